"""Lines in the log about queues whose senders wait: the only sign of it, and not too many of them."""

import pytest
from broker.harness import bench_with_two


def lines(caplog):
    """Return the messages since the last call."""
    found = [record.getMessage() for record in caplog.records if "senders wait" in record.getMessage()]
    caplog.clear()
    return found


def test_a_full_queue(caplog):
    bench, sender, consumer = bench_with_two(max_queue_messages=4)
    for number in range(5):
        sender.put("/queue/a", str(number))
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
def test_memory_is_short(headers, what, caplog):
    bench, sender, listener = bench_with_two()
    listener.subscribe("/topic/a")
    bench.broker.account.first = bench.broker.account.second = 100_000
    for _ in range(3):
        sender.send("SEND", b"x" * 50_000, **{"destination": "/queue/a", **headers})
    assert sender.session.paused
    for _ in range(8):
        bench.wait(1)
    (line,) = lines(caplog)
    assert line.startswith(f"senders wait for room in {what}")
