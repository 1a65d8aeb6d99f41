"""`stompcodec proxy` between clients and brokers, most of them other people's: every check passes through it."""

from __future__ import annotations

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from interop.brokers import BROKERS
from interop.checks import CHECKS
from interop.rows import OURS, Row
from interop.run import Outcome
from interop.through import THROUGH, Through, run_through

pytestmark = [pytest.mark.slow, pytest.mark.no_asan]  # the sanitizers would be loaded into Ruby and Java, too

Run = tuple[Through, dict[str, dict[str, Outcome]]]


@pytest.fixture(scope="module", params=BROKERS)
def run(request: pytest.FixtureRequest) -> Run:
    broker = Through(BROKERS[request.param]())
    if broker.missing:
        pytest.skip(broker.missing)
    return broker, run_through(THROUGH, broker)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("row", THROUGH, ids=lambda row: row.name)
def test_checks_pass_through_the_proxy(run: Run, row: Row, check: str) -> None:
    outcome = run[1][row.name][check]
    if outcome.word == "n/a":
        pytest.skip(f"{row.name}: {outcome.why}")
    assert outcome.word == "ok", f"{row.name}: {outcome.why}"


def test_proxies_read_all_as_stomp_and_end_in_order(run: Run) -> None:
    broker, _ = run
    assert broker.trouble == []
    assert min(broker.proxies[0].frames) > 1000  # TCP, which the sync client has in any case


@pytest.mark.parametrize(
    "row", [row for row in OURS if row.name in ("sync 1.2", "sync 1.2 ws")], ids=lambda row: row.name
)
def test_checks_notice_a_proxy_that_changes_something(row: Row) -> None:
    broker = Through(BROKERS["stompcodec"](), faults=("duplicate MESSAGE times=all",))
    assert run_through([row], broker, ["connect", "queues"])[row.name]["connect"].word == "ok"
    assert run_through([row], broker, ["queues"])[row.name]["queues"].word == "FAIL"
