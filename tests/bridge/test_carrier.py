"""The carrier alone: what is dropped when a connection is lost, and how much it takes."""

from __future__ import annotations

import asyncio

import pytest

from stompcodec import Frame
from stompcodec.bridge import carrier as carrier_module
from stompcodec.bridge.carrier import Carrier, Entry, Tally
from stompcodec.client.message import BaseMessage
from stompcodec.client.subscription import Subscription
from stompcodec.errors import RejectedError


class Session:
    ended = False


def entry(session: Session, body: bytes = b"", ack: str = "client-individual") -> Entry:
    frame = Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, body)
    return Entry(BaseMessage(frame, Subscription("/queue/a", id="1", ack=ack), 1, 1), session, "/queue/a", None, "k")


@pytest.fixture
def dropped() -> list[Entry]:
    return []


@pytest.fixture
def carrier(dropped: list[Entry]) -> Carrier:
    return Carrier(Tally(), 0, 100, lambda entry, reason: None, dropped.append)


def test_all_that_comes_again_is_dropped_at_once(carrier: Carrier, dropped: list[Entry]) -> None:
    """Those that were sent before, too; not those of topics, nor the one that is being sent."""
    lost, session = Session(), Session()
    first, sent, new, topic, later = (
        entry(lost),
        entry(lost),
        entry(lost),
        entry(lost, ack="auto"),
        entry(session),
    )

    async def main() -> None:
        for each in (first, sent, new, topic, later):
            await carrier.take(each)

    asyncio.run(main())
    sent.sent = True
    carrier._begin([first])
    lost.ended = True
    carrier.forget_stale()
    assert (dropped, list(carrier.unsent)) == ([sent, new], [first, topic, later])
    assert carrier.octets == 3 * first.octets


@pytest.mark.parametrize("kind", ["messages", "bytes"])
def test_it_takes_no_more_than_it_may(carrier: Carrier, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        carrier_module, "MOST_OPEN" if kind == "messages" else "MOST_OCTETS", 5 if kind == "messages" else 6000
    )
    session = Session()

    async def main() -> tuple[int, int]:
        entries = [entry(session, bytes(700)) for _ in range(8)]
        tasks = [asyncio.create_task(carrier.take(each)) for each in entries]
        await asyncio.sleep(0)
        before = len(carrier)
        assert carrier.is_full
        while not all(task.done() for task in tasks):
            carrier._drop(carrier.unsent[0])
            await asyncio.sleep(0)
        return before, len(carrier)

    assert asyncio.run(main()) == (5, 5)


def test_one_message_is_always_taken(carrier: Carrier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier_module, "MOST_OCTETS", 10)
    asyncio.run(carrier.take(entry(Session(), bytes(1000))))
    assert len(carrier) == 1


@pytest.mark.parametrize(("said", "times"), [(None, 5), (RejectedError("no", Frame("ERROR")), 2)])
def test_a_message_that_ends_its_connection_is_tried_again(said: RejectedError | None, times: int) -> None:
    """Alone, five times, or twice if the target says something each time."""
    reasons: list[str | None] = []
    carrier = Carrier(Tally(), 0, 100, lambda entry, reason: reasons.append(reason), lambda entry: None)
    culprit, later = entry(Session()), entry(Session())

    async def main() -> None:
        for each in (culprit, later):
            await carrier.take(each)

    asyncio.run(main())
    for _ in range(times):
        assert reasons == []
        carrier._suspect(culprit, said)
    assert reasons == ["no" if said else "the connection ended 5 times when it was sent"]
    assert list(carrier.unsent) == [later]


def test_messages_are_sent_together_again_once_the_suspects_have_their_outcomes(carrier: Carrier) -> None:
    session = Session()
    entries = [entry(session) for _ in range(4)]

    async def main() -> None:
        for each in entries:
            await carrier.take(each)

    asyncio.run(main())
    carrier._careful = 2
    seen = []
    for each in entries:
        carrier._deliver(each)
        seen.append(carrier._careful)
    assert seen == [1, 0, 0, 0]
