"""Other people's clients against our broker, and our client against other people's brokers: real runs of both.

Every client and broker that is not installed is skipped; docs/development.md names the packages.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from interop.brokers import BROKERS
from interop.checks import CHECKS
from interop.driver import Target
from interop.rows import OTHERS, OURS, Row
from interop.run import Outcome, run_row, run_rows
from patience import patience

pytestmark = [pytest.mark.slow, pytest.mark.no_asan]  # the sanitizers would be loaded into Ruby and Java, too

Outcomes = dict[str, dict[str, Outcome]]


def judge(row: Row, outcome: Outcome) -> None:
    if outcome.word == "n/a":
        pytest.skip(f"{row.name}: {outcome.why}")
    assert outcome.word == "ok", f"{row.name}: {outcome.why}"


@pytest.fixture(scope="module")
def broker() -> Iterator[Target]:
    with BROKERS["stompcodec"]() as target:
        yield target


@pytest.fixture(scope="module")
def of_others(broker: Target) -> Outcomes:
    return run_rows(OTHERS, broker)


@pytest.fixture(scope="module")
def of_ours(broker: Target) -> Outcomes:
    return run_rows(OURS, broker)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_their_clients_and_our_broker(of_others: Outcomes, row: Row, check: str) -> None:
    judge(row, of_others[row.name][check])


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("row", OURS, ids=lambda row: row.name)
def test_our_client_and_our_broker(of_ours: Outcomes, row: Row, check: str) -> None:
    judge(row, of_ours[row.name][check])


@pytest.fixture(scope="module", params=["rabbitmq", "activemq"])
def at_others(request: pytest.FixtureRequest) -> Outcomes:
    broker = BROKERS[request.param]()
    if broker.missing:
        pytest.skip(broker.missing)
    with broker as target:
        return run_rows(OURS, target)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("row", OURS, ids=lambda row: row.name)
def test_our_client_and_their_brokers(at_others: Outcomes, row: Row, check: str) -> None:
    judge(row, at_others[row.name][check])


@pytest.mark.parametrize(
    ("who", "word"), [("1.2", "n/a"), ("sync 1.2", "n/a"), ("1.1", "ok"), ("asyncio 1.2", "ok"), ("sync 1.2 ws", "ok")]
)
def test_what_a_broker_lacks_is_of_a_version_or_a_client(monkeypatch: pytest.MonkeyPatch, who: str, word: str) -> None:
    (row,) = [row for row in OURS if row.name == "sync 1.2"]
    monkeypatch.setitem(CHECKS, "connect", lambda *_: None)
    target = Target("played", "127.0.0.1", 1, lacks=((who, "connect", "it cannot"),))
    outcome = run_row(row, target, ["connect"], lambda line: None, threading.Event())["connect"]
    assert outcome == (Outcome("n/a", "it cannot") if word == "n/a" else Outcome("ok"))


def test_activemq_bears_late_heart_beats() -> None:
    """By default it closes a client whose heart-beats are a little late, as those of a timer are."""
    broker = BROKERS["activemq"]()
    if broker.missing:
        pytest.skip(broker.missing)
    with broker as target, socket.create_connection((target.host, target.port), patience(10)) as connection:
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:2000,0\n\n\0")
        assert connection.recv(4096).startswith(b"CONNECTED")
        connection.settimeout(3.2)
        for _ in range(3):
            with pytest.raises(TimeoutError):  # nothing is said, and the connection stays
                connection.recv(4096)
            connection.sendall(b"\n")
