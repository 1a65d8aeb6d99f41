"""Parts of a bridge alone: what its carrier drops when a connection is lost, and the delays of its ends."""

import asyncio
from types import SimpleNamespace

import pytest

from stompcodec import Frame
from stompcodec.bridge import End
from stompcodec.bridge import carrier as carrier_module
from stompcodec.bridge import sources as ends_module
from stompcodec.bridge.carrier import Carrier, Entry, Tally
from stompcodec.client import Backoff
from stompcodec.client.messages import BaseMessage, Subscription


def entry(session, body=b"", ack="client-individual"):
    frame = Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, body)
    return Entry(BaseMessage(frame, Subscription("/queue/a", id="1", ack=ack), 1, 1), session, "/queue/a", None, "k")


@pytest.fixture
def carrier():
    dropped = []
    made = Carrier(Tally(), 0, 100, lambda entry, reason: None, dropped.append)
    made.dropped = dropped
    return made


async def take(carrier, *entries):
    for each in entries:
        await carrier.take(each)


def test_all_that_comes_again_is_dropped_at_once(carrier):
    """Those that were sent before, too; not those of topics, nor the one that is being sent."""
    lost, session = SimpleNamespace(ended=False), SimpleNamespace(ended=False)
    first, sent, new = (entry(lost) for _ in range(3))
    topic, later = entry(lost, ack="auto"), entry(session)
    asyncio.run(take(carrier, first, sent, new, topic, later))
    sent.sent = True
    carrier._begin([first])
    lost.ended = True
    carrier.forget_stale()
    assert (carrier.dropped, list(carrier.unsent)) == ([sent, new], [first, topic, later])
    assert carrier.octets == 3 * first.octets


@pytest.mark.parametrize(("limit", "most"), [("MOST_OPEN", 5), ("MOST_OCTETS", 6000)])
def test_it_takes_no_more_than_it_may(carrier, limit, most, monkeypatch):
    monkeypatch.setattr(carrier_module, limit, most)

    async def main():
        entries = [entry(SimpleNamespace(ended=False), bytes(700)) for _ in range(8)]
        tasks = [asyncio.create_task(carrier.take(each)) for each in entries]
        await asyncio.sleep(0)
        before = len(carrier)
        assert carrier.is_full
        while not all(task.done() for task in tasks):
            carrier._drop(carrier.unsent[0])
            await asyncio.sleep(0)
        return before, len(carrier)

    assert asyncio.run(main()) == (5, 5)


@pytest.fixture
def away(monkeypatch):
    """An end whose attempts fail while `failures` are left, and the delays, which take no time."""
    end = End("stomp://a.invalid", backoff=Backoff(first=1.0, factor=2.0, most=4.0, jitter=0.0))
    failures, slept = [], []

    async def sleep(seconds):
        slept.append(seconds)

    async def open():
        while failures:
            raise failures.pop()
        return "a client"

    monkeypatch.setattr(ends_module.asyncio, "sleep", sleep)
    monkeypatch.setattr(end, "open", open)
    return end, failures, slept


@pytest.mark.parametrize(("succeeded", "since", "delay"), [(True, 0.0, 1.0), (False, -60.0, 1.0), (False, 0.0, 2.0)])
def test_after_a_good_connection_the_delays_start_again(away, succeeded, since, delay):
    end, _, slept = away
    end._since = ends_module.time.monotonic()
    asyncio.run(end.reopen(lambda which, error: None))
    end._since = ends_module.time.monotonic() + since
    if succeeded:
        end.succeeded()
        end._since = ends_module.time.monotonic()
    asyncio.run(end.reopen(lambda which, error: None))
    assert slept == [1.0, delay]
