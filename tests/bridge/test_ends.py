"""The ends of a bridge: names, connections, and the delays between attempts."""

import asyncio

import pytest

from stompcodec.bridge import End
from stompcodec.bridge import sources as ends_module
from stompcodec.client import Backoff
from stompcodec.errors import ConnectionLostError
from stompcodec.testing import StompBroker


@pytest.fixture
def slept(monkeypatch):
    """The delays, which take no time."""
    delays = []

    async def sleep(seconds):
        delays.append(seconds)

    monkeypatch.setattr(ends_module.asyncio, "sleep", sleep)
    return delays


def attempts(monkeypatch, end, failures):
    """Have an end fail so often, and succeed then."""
    answers = iter([ConnectionLostError("away", sent=False)] * failures)

    async def open():
        for error in answers:
            raise error
        return "a client"

    monkeypatch.setattr(end, "open", open)


def test_attempts_come_after_growing_delays(monkeypatch, slept):
    end = End("stomp://a.invalid", backoff=Backoff(first=1.0, factor=2.0, most=4.0, jitter=0.0))
    attempts(monkeypatch, end, 3)
    seen = []
    assert asyncio.run(end.reopen(lambda which, error: seen.append((which, str(error))))) == "a client"
    assert slept == [1.0, 2.0, 4.0, 4.0]
    assert seen == [(end, "away")] * 3
    assert str(end.error) == "away"  # until `open` itself succeeds


@pytest.mark.parametrize(("succeeded", "since", "delay"), [(True, 0.0, 1.0), (False, -60.0, 1.0), (False, 0.0, 2.0)])
def test_after_a_good_connection_the_delays_start_again(monkeypatch, slept, succeeded, since, delay):
    end = End("stomp://a.invalid", backoff=Backoff(first=1.0, factor=2.0, most=4.0, jitter=0.0))
    attempts(monkeypatch, end, 0)
    end._since = ends_module.time.monotonic()
    asyncio.run(end.reopen(lambda which, error: None))
    end._since = ends_module.time.monotonic() + since
    if succeeded:
        end.succeeded()
        end._since = ends_module.time.monotonic()
    asyncio.run(end.reopen(lambda which, error: None))
    assert slept == [1.0, delay]


def test_a_connection_is_counted():
    with StompBroker() as broker:
        end = End(broker.url, name="here")
        end.error = ConnectionLostError("away", sent=False)

        async def main():
            client = await end.open()
            await client.close()

        asyncio.run(main())
        assert (end.epoch, end.error, end.name, str(end)) == (1, None, "here", broker.url)
