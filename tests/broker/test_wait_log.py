"""Lines in the log about queues whose senders wait: the only sign of it, and not too many of them."""

from __future__ import annotations

import pytest
from broker.harness import Bench, Peer, bench_with_two

from stompcodec.broker.loop_quota import WaitLog
from stompcodec.broker.memory import Account


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages since the last call."""
    found = [record.getMessage() for record in caplog.records if "senders wait" in record.getMessage()]
    caplog.clear()
    return found


def full(peer: Peer, count: int, **headers: str) -> None:
    for number in range(count):
        peer.put("/queue/a", str(number), **headers)


def test_a_full_queue(caplog: pytest.LogCaptureFixture) -> None:
    bench, sender, consumer = bench_with_two(max_queue_messages=4)
    full(sender, 5)
    assert sender.session.paused
    bench.wait(5)
    assert lines(caplog) == []
    bench.wait(2)
    bench.wait(100)
    assert lines(caplog) == ["senders wait for room in /queue/a (5 messages, 205 bytes in memory, 0 consumers): 1"]
    consumer.subscribe("/queue/a")
    assert not sender.session.paused
    bench.wait(1)
    bench.wait(100)
    (line,) = lines(caplog)
    assert line.startswith("senders waited 10")
    assert line.endswith(" s for room in /queue/a (0 messages, 0 bytes in memory, 1 consumers)")


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        ({}, "/queue/a (3 messages, "),
        ({"destination": "/topic/a", "delay": "1000000"}, "delayed messages for topics ("),
    ],
)
def test_memory_is_short(headers: dict[str, str], what: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    sender = bench.peer()
    bench.peer().subscribe("/topic/a")
    bench.broker.account.first = bench.broker.account.second = 100_000
    for _ in range(3):
        sender.send("SEND", b"x" * 50_000, **{"destination": "/queue/a", **headers})
    assert sender.session.paused
    for _ in range(8):
        bench.wait(1)
    (line,) = lines(caplog)
    assert line.startswith(f"senders wait for room in {what}")


@pytest.fixture
def account() -> Account:
    return Account(2**30)


def look(log: WaitLog, since: int, until: int) -> None:
    for second in range(since, until):
        log.look(float(second))
