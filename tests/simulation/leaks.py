"""The leak rule: after an hour of simulated time a broker holds the memory and descriptors of five minutes."""

import os
from pathlib import Path

from broker.harness import AtOnce, Bench

from stompcodec.broker.storage.sqlite import SqliteStore

LEAST, MOST = 300, 3600  # Seconds after which the broker has all that it keeps, and those of the whole run.
_SHARE = 1.05  # What memory and descriptors may grow by.
_NAMES = 100


def unavailable() -> str:
    """Return why memory and descriptors cannot be counted here; "" if they can."""
    return "" if Path("/proc/self/fd").is_dir() else "the leak rule needs /proc"


def held() -> tuple[int, int]:
    """Return the resident bytes and the open descriptors of this process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))


def visit(bench: Bench, number: int) -> None:
    """Connect, use everything, and lose the connection in the middle of a frame."""
    name = number % _NAMES
    peer = bench.peer("1.2" if number % 2 else "1.1")
    peer.subscribe(f"/queue/{name}", "1", "client-individual")
    peer.subscribe("/temp-queue/answers", "2")
    peer.subscribe(f"/topic/{name}", "3")
    peer.put(f"/queue/{name}", b"x" * 1000, persistent="true", receipt="r")
    peer.put(f"/topic/{name}", b"x" * 1000)
    peer.put(f"/queue/{name}", b"x", expires=str(int(bench.date * 1000) + 1000))
    for message in peer.take():
        if message.command == "MESSAGE" and message.get("subscription") == "1":
            peer.ack(message, "NACK" if number % 10 == 0 else "ACK")
    peer.send("BEGIN", transaction="t")
    peer.put(f"/queue/{name}", b"x" * 1000, transaction="t")
    peer.raw(b"SEND\ndestination:/queue/half")
    peer.lose()
    del bench.peers[peer.session]


def grown(folder, *, least=LEAST, most=MOST, also=None):
    """Run a broker with a store for that long, and return a line for all that has grown by more than a twentieth."""
    store = SqliteStore(folder, helper=AtOnce())
    bench, first = Bench(store, helper=AtOnce()), held()
    for number in range(most):
        if number == least:
            first = held()
        visit(bench, number)
        if also is not None:
            also(bench)
        bench.date += 1.0
        bench.wait(1.0)
    last = held()
    bench.broker.stop(bench.now)
    bench.turn()
    store.close()
    names = ("bytes of memory", "descriptors")
    return [f"{new:,} {name}, {old:,} before" for name, old, new in zip(names, first, last) if new > old * _SHARE]
