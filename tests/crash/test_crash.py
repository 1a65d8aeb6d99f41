"""What has a receipt outlives kill -9 and cut connections; and the books notice when it does not."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
from crash.bridged import bridge_rounds
from crash.features import BROWSED, DELAYED, DURABLE, FOUNDED, LARGE, RANKED, SELECTED
from crash.ledger import Books, Ledger, body_of
from crash.managed import Orders, managed_rounds
from crash.once import once_rounds
from crash.rounds import cut_rounds, kill_rounds
from crash.storage import WAYS, storage_rounds

pytestmark = pytest.mark.no_asan
posix = pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX")


def _moved(ledger: Ledger) -> bool:
    """Many messages were acknowledged, and some came more than once."""
    again = sum(record.deliveries > 1 for record in ledger.records.values())
    return sum(record.acked for record in ledger.records.values()) > 500 and again > 10


def _used(ledger: Ledger) -> bool:
    """The same, and every lane has seen messages."""
    used = Counter(record.queue for record in ledger.records.values() if record.deliveries)
    return (
        _moved(ledger)
        and all(used[lane] > 10 for lane in (DELAYED, RANKED, SELECTED, LARGE, BROWSED, DURABLE))
        and any(queue.startswith(FOUNDED) for queue in used)
    )


def _cut_short(books: Orders) -> bool:
    """Each order that takes some time was killed in the middle."""
    return all(books.cut(kind) for kind in ("move", "move to a topic", "purge"))


def _right(books: Books, proves: Callable[[Any], bool] = bool) -> None:
    assert (books.examples, dict(books.problems)) == ([], {})
    assert proves(books)


@posix
@pytest.mark.parametrize(
    ("seed", "config"), [(1, ""), pytest.param(2, "[queues]\nwindow = 10\n", marks=pytest.mark.slow)]
)
def test_nothing_is_lost_when_the_broker_is_killed(tmp_path: Path, seed: int, config: str) -> None:
    _right(kill_rounds(tmp_path, 5, seed=seed, config=config, enough=_used), _used)


@posix
def test_nothing_is_lost_when_connections_are_cut(tmp_path: Path) -> None:
    _right(cut_rounds(tmp_path, 50, seed=1, enough=_moved), _moved)


@posix
def test_nothing_is_lost_when_the_storage_is_killed(tmp_path: Path) -> None:
    _right(storage_rounds(tmp_path, 3 * len(WAYS), seed=1))


@posix
def test_an_order_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    _right(managed_rounds(tmp_path, 5, seed=1, count=500))


@posix
@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 50])
def test_orders_that_are_killed_at_many_points_lose_and_double_nothing(tmp_path: Path, window: int | None) -> None:
    _right(managed_rounds(tmp_path, 30, seed=2, window=window, enough=_cut_short), _cut_short)


@posix
@pytest.mark.slow
def test_each_message_of_our_client_is_stored_once(tmp_path: Path) -> None:
    _right(once_rounds(tmp_path, 4, 15, seed=1), lambda books: books.resent > 10)


@posix
@pytest.mark.slow
def test_the_books_notice_a_broker_that_ignores_keys(tmp_path: Path) -> None:
    books = once_rounds(tmp_path, 4, 100, seed=1, config="[idempotency]\nwindow = 0\n")
    assert books.problems["stored more than once"] > 0


@posix
def test_the_books_notice_a_broker_that_forgets(tmp_path: Path) -> None:
    def enough(ledger: Ledger) -> bool:
        return sum(record.receipted and not record.deliveries for record in ledger.records.values()) > 50

    ledger = kill_rounds(tmp_path, 3, seed=1, config='[store]\ndurable = "none"\n', enough=enough)
    assert ledger.problems["lost"] > 10


def book(*, strict: bool = True) -> Ledger:
    """Three messages on two queues."""
    ledger = Ledger(strict=strict, moved_from=frozenset("m"))
    for key, queue in (("p-1", "a"), ("p-2", "a"), ("p-3", "m")):
        ledger.sent(key, queue)
    return ledger


def deliver(ledger: Ledger, key: str, queue: str = "a", redelivered: bool = False) -> str | None:
    return ledger.delivered(key, queue, body_of(key, 10), 10, redelivered)


def _transaction(ledger: Ledger) -> None:
    for key in ("t-1", "t-2"):
        ledger.sent(key, "a", group="t")
    deliver(ledger, "t-1")
    ledger.receipted(["p-3"])
    deliver(ledger, "p-3", "m")
    ledger.acking(["p-3"])


def _wrong(ledger: Ledger) -> None:
    deliver(ledger, "x-1")
    deliver(ledger, "p-1", "b")
    ledger.delivered("p-2", "a", b"something else", 10, False)
    ledger.delivered("p-2", "a", body_of("p-2", 11), 10, True)


def _moved_twice(ledger: Ledger) -> None:
    deliver(ledger, "p-3", "m")
    ledger.sent("q-1", "a", source="p-3")
    deliver(ledger, "q-1")
    ledger.drained("p-3", dead=False)


@pytest.mark.parametrize(
    ("deeds", "problems"),
    [
        # never acknowledged, and not there at the end
        (lambda ledger: (ledger.receipted(["p-1", "p-2"]), deliver(ledger, "p-2")), {"lost": 2}),
        (
            lambda ledger: (deliver(ledger, "p-1"), ledger.acked(["p-1"]), deliver(ledger, "p-1", redelivered=True)),
            {"acknowledged message came back": 1},
        ),
        (lambda ledger: [deliver(ledger, "p-1") for _ in "ab"], {"duplicate without redelivered:true": 1}),
        (_wrong, {"never sent": 1, "wrong queue": 1, "wrong body": 2}),
        (_transaction, {"transaction by half": 1, "lost": 1}),
        (lambda ledger: [ledger.ended("drainer", seq) for seq in (5, 6, 6)], {"seqs do not rise": 1}),
        (_moved_twice, {"moved twice": 1}),
    ],
)
def test_the_books_notice(deeds: Callable[[Ledger], object], problems: dict[str, int]) -> None:
    ledger = book()
    deeds(ledger)
    ledger.balance()
    assert dict(ledger.problems) == problems


@posix
@pytest.mark.long
def test_a_bridge_loses_nothing_and_stores_each_message_once(tmp_path: Path) -> None:
    findings = bridge_rounds(tmp_path, 3, seed=1)
    assert (findings.problems, findings.accepted > 100) == ({}, True), str(findings)


@posix
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "window"),
    [((), 4000), (("--batch", "50"), 4000), ((), 10)],
    ids=["one by one", "in transactions", "paged"],
)
def test_a_bridge_under_many_kills(arguments: tuple[str, ...], window: int, tmp_path: Path) -> None:
    findings = bridge_rounds(tmp_path, 12, seed=2, arguments=arguments, window=window)
    assert findings.problems == {}, str(findings)
    assert findings.starts > 1


@posix
@pytest.mark.slow
def test_the_findings_notice_a_target_that_ignores_keys(tmp_path: Path) -> None:
    """Where a kill falls is chance: up to 30 kills."""
    deaf = "[idempotency]\nwindow = 0\n"
    found = (bridge_rounds(tmp_path / str(seed), 6, seed=seed, config=deaf) for seed in range(5))
    assert any("stored twice" in findings.problems for findings in found)
