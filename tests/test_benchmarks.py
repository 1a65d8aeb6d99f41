"""The benchmarks: each goal has a row, and their verdicts are right at the limit and one past it."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("resource")  # broker and clients are measured on Unix only

FOLDER = Path(__file__).parent.parent / "benchmarks"
Load = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def bench() -> Iterator[Load]:
    """Import a module of the benchmarks. They import each other without a package; afterwards none of them is left."""
    sys.modules.pop("peers", None)  # scripts/peers, if a test of this process had real servers
    path, before = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == FOLDER:
            del sys.modules[name]


def goal_rows() -> list[tuple[str, str, list[str]]]:
    """Return the goals of the table, with the command and the rows of each."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    table = text.partition("## Where each goal is measured")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    return [(goal, command.strip("`"), re.findall(r"`([^`]+)`", rows)) for goal, command, rows, _judged in lines]


def test_the_table_is_found() -> None:
    assert len(goal_rows()) > 20


@pytest.mark.parametrize(("goal", "command", "rows"), goal_rows(), ids=lambda value: str(value)[:50])
def test_each_goal_names_rows_that_exist(bench: Load, goal: str, command: str, rows: list[str]) -> None:
    known = {
        "make bench-peers": bench("peers").SECTIONS,
        "make bench-client": [*bench("client_sends").TEXTS, *bench("bench_client").LOADS],
        "make bench-broker": bench("loads").LOADS,
        "make bench-against": bench("against").GOALS,
        "make bench-watch": bench("bench_watch").GOALS,
        "make instructions": [*bench("instructions").OPERATIONS, *bench("instructions").ROWS],
    }
    assert rows, goal
    assert set(rows) <= set(known[command])


def test_each_section_is_judged_or_only_shown(bench: Load) -> None:
    """A name that is spelt differently in peers.py and goals.py would leave its goals out, silently."""
    assert set(bench("goals").MAKERS) == set(bench("peers").SECTIONS)


def reached(bench: Load, section: str, numbers: object) -> dict[str, bool]:
    return {goal.what: goal.reached for goal in bench("goals").judge({section: numbers})}


@pytest.mark.parametrize(("taken", "speed", "is_reached"), [(160.0, 1.1, True), (160.1, 1.09, False)])
def test_twins(bench: Load, taken: float, speed: float, is_reached: bool) -> None:
    cells = {"stompcodec C": {"ASCII": 100.0, "UTF-8": taken}}
    found = reached(bench, "utf-8", {"decode": {"all": cells}, "columns": {"all": {"ASCII": 2.0, "UTF-8": speed}}})
    assert list(found.values()) == [is_reached, is_reached]


@pytest.mark.parametrize(("peer", "is_reached"), [(100.0, True), (99.9, False)])
def test_no_peer_is_ahead_of_the_python_backend(bench: Load, peer: float, is_reached: bool) -> None:
    cell = {"stompcodec C": 1.0, "stompcodec Python": 100.0, "stomp.py": peer}
    assert list(reached(bench, "reads", {"acks": {"1": cell}}).values()) == [is_reached]


@pytest.mark.parametrize(("processors", "is_reached"), [(1.85, True), (1.84, False)])
def test_two_threads(bench: Load, processors: float, is_reached: bool) -> None:
    ticks = {"columns": 1.0, "columns, whole": 1.0, "every header": 2.0}
    section = {
        "workloads": {"ticks": ticks},
        "threads": {"side by side": 1.0, "one after the other": 2.0},
        "processors": processors,
    }
    found = reached(bench, "columns", section)
    assert [value for what, value in found.items() if "processor time" in what] == [is_reached]


@pytest.mark.parametrize(("more", "is_reached"), [(0, True), (1, False)])
def test_instructions(bench: Load, more: int, is_reached: bool) -> None:
    counts = {"feed": {"ticks": 980 + more, "acks": 500 + more}, "where_none": {"ticks": 985 // 2 + more}}
    assert set(reached(bench, "instructions", counts).values()) == {is_reached}


@pytest.mark.parametrize(
    ("ratios", "most"), [([1.0, 1.02, 1.02, 1.02, 1.04], 1.03), ([0.9, 0.95, 1.0, 1.05, 1.1], 1.15)]
)
def test_watching_is_judged_by_the_median_and_the_spread(bench: Load, ratios: list[float], most: float) -> None:
    found = bench("bench_watch").judged([{"alone": 2.0, "watched": 2.0 * ratio} for ratio in ratios])
    assert found["ratio"] == sorted(ratios)[2]
    assert found["most"] == most


def test_what_was_not_measured_is_not_reached(bench: Load) -> None:
    assert list(reached(bench, "cold", {"1 body": {"many": 1.0}}).values()) == [False]


def test_only_frames_in_order_are_right(bench: Load) -> None:
    in_order = bench("measure").in_order
    assert in_order("abcd", "abcd") == 4
    assert in_order("abcd", "acbd") == 3
    assert in_order("abcd", "aabbccdd") == 4
    assert in_order("aabb", "abab") == 3
    assert in_order("abcd", "xabxcd") == 4
    assert in_order("abcd", "") == 0


@pytest.mark.parametrize("kind", ["3 of 7 headers", "every header"])
def test_twins_have_the_same_size(bench: Load, kind: str) -> None:
    twins = bench("twins")
    (foreign, octets), (plain, twin) = (twins.stream(kind, which) for which in (twins.FOREIGN, twins.TWIN))
    assert len(octets) == len(twin)
    assert twin.isascii()
    for (_, pairs, body), (_, others, other) in zip(foreign, plain, strict=True):
        assert [(name, len(value.encode())) for name, value in pairs] == [(name, len(value)) for name, value in others]
        assert body == other
        count = twins.KINDS[kind][0]
        assert [value.isascii() for _, value in pairs] == [at >= count for at in range(len(pairs))]


@pytest.mark.parametrize(("ours", "is_reached"), [(10.0, True), (10.1, False)])
def test_a_client_is_compared_with_the_best_of_its_peers(bench: Load, ours: float, is_reached: bool) -> None:
    client, sends = bench("bench_client"), bench("client_sends")
    cells: dict[str, dict[str, list[float]]] = {what: {} for what in sends.TEXTS}
    cells["ping"] = {client.SYNC: [ours, 1.0, 99.0], "stomp.py": [20.0], "stompman": [10.0]}
    (goal,) = client.judge_sending({"cells": cells})
    assert goal.reached is is_reached
    assert "stompman" in goal.what


def test_a_client_that_repeats_a_body_is_caught(bench: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    client, sends = bench("bench_client"), bench("client_sends")
    sink, found = bench("sink").Sink(), sends.bodies(3)
    monkeypatch.setattr(client, "CHECKED", 3)
    monkeypatch.setattr(client, "LATE", 0)
    with sink.listener:
        for sent, is_right in (
            ([*found, found[-1]], True),
            ([*found, found[-1], found[-1]], False),
            ([found[1], found[0], found[2], found[2]], False),
        ):
            monkeypatch.setattr(client, "run_sending", lambda *_, sent=sent: sink.bodies.extend(sent))
            if is_right:
                client.check_sending(sink, client.SYNC, "send")
            else:
                with pytest.raises(RuntimeError, match="repeated or reordered"):
                    client.check_sending(sink, client.SYNC, "send")


class Reader:
    """A contestant of the section `reads`: of each frame it knows no more than that it ended."""

    def __init__(self, name: str, frames: Callable[[bytes], int], backend: object = None) -> None:
        self.name, self.backend, self.frames = name, backend, frames

    def collect(self, _version: str, pieces: list[bytes]) -> tuple[list[tuple[str, dict[str, str], bytes]], bool]:
        return [("ACK", {"id": "1"}, b"")] * self.frames(b"".join(pieces)), True


@pytest.mark.parametrize(("share", "races"), [(0.75, True), (0.74, False)])
def test_a_reader_that_loses_frames_does_not_race(bench: Load, share: float, races: bool) -> None:
    pieces = [b"ACK\nid:1\n\n\0"] * 100
    reader = Reader("peer", lambda data: round(data.count(b"\0") * share))
    assert bench("reads").right([reader], "1.2", pieces) == ([reader] if races else [])


def test_our_reader_must_find_every_frame(bench: Load) -> None:
    reader = Reader("stompcodec Python", lambda data: data.count(b"\0") - 1, backend=object())
    with pytest.raises(AssertionError, match="other frames"):
        bench("reads").right([reader], "1.2", [b"ACK\nid:1\n\n\0"] * 100)


@pytest.mark.parametrize("name", ["send", "websocket", "ack"])
def test_a_row_of_instructions_does_what_it_says(bench: Load, name: str) -> None:
    with bench("broker_rows").Row(name) as row:
        row.check()
        assert (row.run(*row.prepare()) > 0) is (name != "ack")


@pytest.mark.parametrize("name", ["destinations", "sorted"])
def test_a_row_of_management_does_what_it_says(bench: Load, name: str) -> None:
    with bench("management_rows").Row(name) as row:
        row.check()


@pytest.mark.parametrize("name", ["client_send", "client_many", "client_receive", "client_handler"])
def test_a_row_of_the_client_does_what_it_says(bench: Load, name: str) -> None:
    with bench("client_rows").Row(name) as row:
        row.check()
        assert row.run(*row.prepare()) == bench("client_rows").MESSAGES


def test_each_goal_of_the_broker_compares_brokers_that_have_the_load(bench: Load) -> None:
    report, lacks = bench("broker_report"), bench("brokers").LACKS
    assert [bar for bar in report.BARS if bar.load in lacks[bar.peer] or bar.load not in bench("loads").LOADS] == []
    assert report.is_compared("queue-1k", "ours")
    assert report.is_compared("queue-1k", "activemq")
    assert not report.is_compared("queue-1k", "rabbitmq")
    assert not report.is_compared("headers-1k", "ours")


def test_loads_without_a_websocket_port_are_left_out(bench: Load) -> None:
    brokers, loads = bench("brokers"), bench("loads").LOADS
    without = {name for name in brokers.PEERS if name not in brokers.WEBSOCKET}
    over_websocket = {load.name for load in loads.values() if load.websocket}
    assert over_websocket
    assert all(over_websocket <= set(brokers.LACKS[name]) for name in without)
    assert all(over_websocket.isdisjoint(brokers.LACKS[name]) for name in brokers.WEBSOCKET)


def test_computing_processes_have_groups_of_their_own_and_end_with_the_run(
    bench: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, started = bench("load"), []
    popen = load.subprocess.Popen

    def start(*arguments: object, **options: object) -> object:
        started.append(popen(*arguments, **options))
        return started[-1]

    def fail(*_: object) -> None:
        groups = {os.getsid(process.pid) for process in started}
        assert len(groups) == 4
        assert os.getsid(0) not in groups
        raise load.StalledError

    monkeypatch.setattr(load.subprocess, "Popen", start)
    monkeypatch.setattr(load, "receipts", fail)
    with pytest.raises(load.StalledError):
        load.computing(bench("loads").LOADS["window-1-computing"], 1, "/queue/a", 1.0, None)
    assert [process.returncode for process in started] == [-9] * 4


def test_each_message_of_a_row_says_whether_it_is_persistent(bench: Load) -> None:
    """So no figure depends on what a broker does with messages that do not say."""
    loads, rows = bench("loads"), bench("broker_rows")
    said = {name: loads.send_frame(load, "/queue/a", 0, 0) for name, load in loads.LOADS.items()}
    for name in rows.ROWS:
        with rows.Row(name) as row:
            said[name] = b"".join(row._sends)
    for name, octets in said.items():
        assert octets.count(b"SEND\n") == octets.count(b"persistent:true\n") + octets.count(b"persistent:false\n"), name


def test_a_figure_above_its_committed_one_is_counted_a_second_time(bench: Load) -> None:
    instructions = bench("instructions")
    known = {"feed": {"ticks": 100, "acks": 100}, "broker": {"send": 100}}
    wrong = instructions.judge({"feed": {"ticks": 103, "acks": 102}, "broker": {"send": 103}}, known)
    assert instructions.again(wrong) == ["broker", "ticks"]
    kept = instructions.least({"feed": {"ticks": 103, "acks": 102}}, {"feed": {"ticks": 101}})
    assert kept == {"feed": {"ticks": 101, "acks": 102}}
    assert not instructions.judge(kept, known)
