"""Other people's clients against our broker, our client, Spark and `stompcodec proxy` against brokers: real runs.

Every client and broker that is not installed is skipped; docs/development.md names the packages. `make interop` makes
tables of what these tests find.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from interop.brokers import BROKERS, Broker
from interop.checks import CHECKS
from interop.driver import Target
from interop.fields import FIELDS, place_of
from interop.rows import OTHERS, OURS, Row
from interop.run import THROUGH, Outcome, Outcomes, Passed, run_rows, run_through
from interop.spark_rows import SPARK_CHECKS, Place, missing, sparks

pytestmark = [pytest.mark.slow, pytest.mark.no_asan]  # the sanitizers would be loaded into Ruby and Java, too

NOT_WHOLE = "it keeps no messages, or has no ACK"


def judge(outcome: Outcome) -> None:
    if outcome.word == "n/a":
        pytest.skip(outcome.why)
    if outcome.word == "FAIL":
        pytest.fail(outcome.why, pytrace=False)


@pytest.fixture(scope="module", params=BROKERS.values(), ids=BROKERS.keys())
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[Broker, Target]]:
    candidate: Broker = request.param or pytest.skip("other brokers were chosen")
    if why := candidate.missing():
        pytest.skip(why)
    with candidate.start() as target:
        yield candidate, target


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, broker: tuple[Broker, Target]) -> Callable[..., Any]:
    """A function that runs the clients and checks of all selected tests of the same function at once, and once."""
    found: dict[str, Any] = {}

    def run(what: Callable[..., Any], node: Any) -> Any:
        if node.originalname not in found:
            same = [item for item in request.session.items if getattr(item, "originalname", "") == node.originalname]
            rows = dict.fromkeys(item.callspec.params["row"] for item in same)
            checks = dict.fromkeys(item.callspec.params["check"] for item in same)
            found[node.originalname] = what(rows, broker[1], checks)
        return found[node.originalname]

    return run


each_check = pytest.mark.parametrize("check", CHECKS)
_OURS = ("stompcodec", "relay")
ours_alone = pytest.mark.parametrize("broker", [BROKERS.get(name) for name in _OURS], indirect=True, ids=_OURS)


def of_rows(rows: tuple[Row, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)


@each_check
@of_rows(OTHERS)
@ours_alone
def test_other_peoples_clients(ran: Any, request: Any, row: Row, check: str) -> None:
    outcomes: Outcomes = ran(run_rows, request.node)
    judge(outcomes[row.name][check])


@each_check
@of_rows(OURS)
def test_our_client(ran: Any, request: Any, row: Row, check: str) -> None:
    outcomes: Outcomes = ran(run_rows, request.node)
    judge(outcomes[row.name][check])


@each_check
@of_rows(THROUGH)
def test_through_the_proxy(ran: Any, request: Any, broker: tuple[Broker, Target], row: Row, check: str) -> None:
    """All checks pass through it, and its processes read all as STOMP and end in order."""
    if not broker[0].whole:
        pytest.skip(NOT_WHOLE)
    passed: Passed = ran(run_through, request.node)
    assert passed.trouble == []
    judge(passed.outcomes[row.name][check])


@pytest.mark.parametrize("check", FIELDS)
def test_the_table_of_dialects(broker: tuple[Broker, Target], check: str) -> None:
    candidate, target = broker
    place = place_of(target) if candidate.whole else None
    if place is None:
        pytest.skip("our client's table has no row for it" if candidate.whole else NOT_WHOLE)
    FIELDS[check](place)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    if why := missing():
        pytest.skip(why)
    with sparks() as session:
        yield session


@pytest.mark.parametrize("check", SPARK_CHECKS)
def test_spark(broker: tuple[Broker, Target], session: Any, check: str, tmp_path: Path) -> None:
    if not broker[0].whole:
        pytest.skip(NOT_WHOLE)
    SPARK_CHECKS[check](Place(session, broker[1], tmp_path))


# ---- with our broker, or without any ----


@pytest.fixture(scope="module")
def ours() -> Iterator[Target]:
    from interop.brokers import STARTED

    with STARTED["stompcodec"].start() as target:
        yield target


def test_checks_notice_a_proxy_that_changes_something(ours: Target) -> None:
    (row,) = [row for row in OURS if row.name == "sync 1.2"]
    passed = run_through([row], ours, ["connect", "queues"], faults=("duplicate MESSAGE times=all",))
    assert [outcome.word for outcome in passed.outcomes[row.name].values()] == ["ok", "FAIL"]
    assert (passed.trouble, min(passed.frames) > 5) == ([], True)


@pytest.mark.parametrize("fault", ["delay CONNECTED 3", "delay RECEIPT 3"])
def test_clients_wait_for_a_slow_broker(ours: Target, fault: str) -> None:
    """Longer than some libraries do by themselves: on a busy machine answers are as late."""
    rows = [row for row in OTHERS if not row.over and row.version != "1.0" and not row.missing()]
    if "CONNECTED" in fault:  # stompman always has heart-beats, and begins with them too late for the broker then
        rows = [row for row in rows if row.client != "stompman"]
    found = run_through(rows, ours, ["queues"], faults=(f"{fault} times=all",)).outcomes
    assert {name: row["queues"].why for name, row in found.items() if row["queues"].word != "ok"} == {}
