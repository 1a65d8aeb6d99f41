"""What tests have clients of a broker, and its store, do again and again."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from broker.harness import Bench, Peer

from stompcodec import Frame

QUEUE = "/queue/a"


def client(bench: Bench, client_id: str = "c", version: str = "1.2", **headers: str) -> Peer:
    """Return a peer that has connected with a client-id, as a user of a name, and so on."""
    peer = bench.peer(version, connect=False)
    peer.connect(**({"client_id": client_id} if client_id else {}), **headers)
    return peer


def taker(bench: Bench, destination: str = QUEUE, id: str = "1", version: str = "1.2", **headers: str) -> Peer:
    peer = bench.peer(version)
    peer.subscribe(destination, id, **headers)
    return peer


def left(bench: Bench, destination: str = QUEUE, **headers: str) -> list[bytes]:
    peer = taker(bench, destination, **headers)
    bodies = peer.bodies()
    peer.lose()
    return bodies


def messages(peer: Peer) -> list[Frame]:
    return [frame for frame in peer.take() if frame.command == "MESSAGE"]


def put_all(peer: Peer, bodies: Iterable[object], destination: str = QUEUE, **headers: str) -> None:
    for body in bodies:
        peer.put(destination, str(body), **headers)


def refusal(peer: Peer) -> str:
    message: str = peer.error().headers["message"]
    return message


@contextmanager
def transaction(peer: Peer, end: str = "COMMIT", **headers: str) -> Iterator[None]:
    """BEGIN transaction t, and end it after the block."""
    peer.send("BEGIN", transaction="t")
    yield
    peer.send(end, transaction="t", **headers)


def commit(bench: Bench) -> None:
    bench.store.finish()
    bench.turn()


def finish(bench: Bench) -> None:
    while bench.store.job is not None:
        commit(bench)
