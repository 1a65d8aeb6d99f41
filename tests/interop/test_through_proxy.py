"""`stompcodec proxy` between clients and brokers, most of them other people's: every check passes through it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from interop import through
from interop.brokers import BROKERS
from interop.checks import CHECKS
from interop.driver import Target
from interop.rows import OTHERS, OURS, Row
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


def test_checks_notice_a_proxy_that_changes_something() -> None:
    (row,) = [row for row in OURS if row.name == "sync 1.2"]
    broker = Through(BROKERS["stompcodec"](), faults=("duplicate MESSAGE times=all",))
    found = run_through([row], broker, ["connect", "queues"])[row.name]
    assert (found["connect"].word, found["queues"].word) == ("ok", "FAIL")


@pytest.mark.parametrize("fault", ["delay CONNECTED 3", "delay RECEIPT 3"])
def test_clients_wait_for_a_slow_broker(fault: str) -> None:
    """Longer than some libraries do by themselves: on a busy machine answers are as late."""
    rows = [row for row in OTHERS if not row.websocket and row.version != "1.0" and not row.missing()]
    if "CONNECTED" in fault:  # stompman always has heart-beats, and begins with them too late for the broker then
        rows = [row for row in rows if row.client != "stompman"]
    found = run_through(rows, Through(BROKERS["stompcodec"](), faults=(f"{fault} times=all",)), ["queues"])
    assert {name: row["queues"].why for name, row in found.items() if row["queues"].word != "ok"} == {}


class _Behind:
    """A broker behind a proxy, for a run that is only played."""

    direct = Target("direct", "127.0.0.1", 1, "ws://127.0.0.1:1/")

    def __enter__(self) -> Target:
        return self.direct._replace(name="proxy")

    def __exit__(self, *_: object) -> None:
        return


def test_what_fails_is_judged_by_a_second_run_and_by_one_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {"proxy": {"refused", "broken"}, "direct": {"refused"}}

    def run_row(row: Row, target: Target, checks: list[str], *_: object) -> dict[str, Outcome]:
        return {check: Outcome("FAIL" if check in fails[target.name] else "ok", target.name) for check in checks}

    monkeypatch.setattr(through, "run_row", run_row)
    first = {row.name: {check: Outcome("FAIL", "slow") for check in ("late", "refused", "broken")} for row in OURS[:1]}
    monkeypatch.setattr(through, "run_rows", lambda *_: first)
    broker: Any = _Behind()
    assert run_through(OURS[:1], broker, ["late", "refused", "broken"])[OURS[0].name] == {
        "late": Outcome("ok", "proxy"),
        "refused": Outcome("n/a", "it fails without the proxy, too: direct"),
        "broken": Outcome("FAIL", "proxy"),
    }
