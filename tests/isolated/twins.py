"""Random conversations, and a digest of each, which no road of frames may change. Arguments: seed, how many, roads."""

import logging
import random
import sys
from hashlib import sha256
from typing import Any

from broker.harness import Bench, FaultyStore, Peer

from stompcodec import Frame, serialize
from stompcodec.broker import hot

DESTINATIONS = ("/queue/a", "/queue/a", "/queue/a", "/queue/b", "/topic/t", "/queue/%d")
HEADERS = (
    *(("receipt", "7"), ("receipt", "a:b"), ("persistent", "true"), ("persistent", "true"), ("persistent", "false")),
    *(("x", "y"), ("x", "z"), ("priority", "7"), ("priority", "4"), ("expires", "1"), ("expires", "2000000000000")),
    *(("transaction", "t"), ("transaction", "u"), ("reply-to", "/queue/b"), ("reply-to", "/temp-queue/r")),
    *(("JMSXGroupID", "g"), ("delay", "5"), ("message-id", "forged"), ("ü", "\n")),
)
CONFIGS: tuple[dict[str, Any], ...] = (
    *({}, {"max_queue_messages": 4, "max_queue_octets": 900}, {"window_messages": 2}),
    *({"window_messages": 3, "transient": "spool"}, {"durable": "all", "priority": True}, {"dialect": "activemq"}),
)


def wire(chosen: random.Random, acks: list[str]) -> bytes:
    kind = chosen.random()
    if acks and kind < 0.35:
        more = dict(chosen.sample((("receipt", "a"), ("transaction", "t"), ("x", "y")), chosen.choice((0, 0, 1))))
        return serialize(Frame(chosen.choice(("ACK", "ACK", "ACK", "NACK")), {"id": acks.pop(0), **more}))
    if kind < 0.45:
        command = chosen.choice(("BEGIN", "COMMIT", "COMMIT", "ABORT"))
        return serialize(Frame(command, {"transaction": chosen.choice("ttu"), "receipt": "c"}))
    if kind < 0.5:
        return serialize(Frame("UNSUBSCRIBE", {"id": chosen.choice("0123")}))
    headers = {"destination": chosen.choice(DESTINATIONS)}
    headers |= dict(chosen.sample(HEADERS, chosen.choice((0, 0, 1, 2, 3))))
    return serialize(Frame("SEND", headers, b"x" * chosen.choice((0, 5, 200))))


def subscribe(chosen: random.Random, peer: Peer, number: int) -> None:
    more = {"selector": "x = 'y'"} if chosen.random() < 0.2 else {}
    mode = chosen.choice(("auto", "client-individual", "client-individual", "client"))
    window = chosen.choice(("1", "3", "100"))
    peer.subscribe(chosen.choice(DESTINATIONS[2:]), id=str(number), ack=mode, prefetch_count=window, **more)


def books(bench: Bench) -> object:
    account, queues = bench.broker.account, bench.broker.queues
    tallies = [
        (name, queue.count, queue.octets, queue.total, len(queue.messages), bool(queue.blocked), len(queue.ring))
        + tuple(getattr(queue.tally, each) for each in ("put", "sent", "ended", "redelivered", "expired", "dropped"))
        for name, queue in queues.items()
    ]
    return tallies, account.used, account.held, account.fixed, bench.broker.seq


def converse(seed: int, switching: bool) -> str:
    """Hold one conversation. Return its digest."""
    chosen, switches = random.Random(seed), random.Random(seed)
    store = FaultyStore(background=chosen.random() < 0.3)
    bench = Bench(store, **chosen.choice(CONFIGS))
    bench.broker._entropy = random.Random(seed).randbytes
    peers = [bench.peer(chosen.choice(("1.2", "1.2", "1.1")), whole_frames=chosen.random() < 0.2) for _ in range(3)]
    digest = sha256()
    for step in range(chosen.choice((5, 25))):
        if switching:
            hot.switch(switches.random() < 0.5)
        peer, kind = chosen.choice(peers), chosen.random()
        acks = [ack for frame in peer.inbox if (ack := frame.get("ack"))]
        del peer.inbox[: chosen.choice((0, 1, 100))]
        if peer.closed or kind < 0.02:
            peer.session.lost(bench.now)
            peers[peers.index(peer)] = bench.peer()
        elif kind < 0.2:
            subscribe(chosen, peer, step % 4)
        elif kind < 0.25:
            store.faulty = not store.faulty
        elif kind < 0.3 and store.job is not None:
            store.finish()
        elif kind < 0.35:
            bench.later(1.0)
        elif kind < 0.4:
            peer.reading = not peer.reading
            peer.session.writable(peer.reading, bench.now)
        else:
            peer.session.receive(b"".join(wire(chosen, acks) for _ in range(chosen.randrange(1, 12))), bench.now)
        if chosen.random() < 0.8:
            bench.turn()
        digest.update(repr([*(each.octets for each in peers), books(bench)]).encode())
    hot.switch(True)
    return digest.hexdigest()[:16]


def main() -> None:
    first, count = map(int, sys.argv[1:3])
    logging.disable()
    for seed in range(first, first + count):
        print(seed, converse(seed, len(sys.argv) > 3))


if __name__ == "__main__":
    main()
