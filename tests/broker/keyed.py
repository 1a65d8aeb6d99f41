"""SENDs with idempotency keys, and what became of them."""

from broker.harness import Bench, Peer
from broker.large import settle

from stompcodec.broker.storage.sqlite import SqliteStore

QUEUE = "/queue/a"


def send(peer: Peer, key: str | None, body: str = "x", destination: str = QUEUE, **headers: str) -> None:
    if key is not None:
        headers = {"idempotency-key": key, **headers}
    peer.put(destination, body, **{"receipt": "r", **headers})
    if isinstance(peer.bench.store, SqliteStore):
        settle(peer.bench)


def receipts(peer: Peer) -> int:
    """How many RECEIPTs have come; nothing else may have."""
    frames = peer.take()
    assert all(frame.command == "RECEIPT" for frame in frames), frames
    return len(frames)


def held(bench: Bench, queue: str = QUEUE) -> list[str]:
    found = bench.broker.queues.get(("/", queue))
    return [] if found is None else [message.frame.body.decode() for message in found.messages]


def raw_send(bench: Bench, peer: Peer, header: str, key: str, body: bytes = b"x", more: bytes = b"") -> None:
    """SEND with a header as it is spelled."""
    peer.raw(
        b"SEND\ndestination:%b\nreceipt:r\n%b%b:%b\n\n%b\0"
        % (QUEUE.encode(), more, header.encode(), key.encode(), body)
    )
