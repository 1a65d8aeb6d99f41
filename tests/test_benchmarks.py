"""The benchmarks: each row does what it says, each goal has a row, and the README's figures are those of the page."""

import importlib
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("resource")  # broker and clients are measured on Unix only
ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
Load = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def bench() -> Iterator[Load]:
    """Import a module of the benchmarks. They import each other without a package; afterwards none of them is left."""
    path, before = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == FOLDER:
            del sys.modules[name]


def test_goals_and_readme_name_rows_that_exist(bench: Load) -> None:
    page, client, brokers = bench("page"), bench("bench_client"), bench("brokers")
    loads = {load.about for load in bench("load").LOADS.values()}
    deep = set(re.findall(r'^            "(.*)": ', (FOLDER / "bench_broker.py").read_text("utf-8"), re.MULTILINE))
    rows = {
        **{"codec": set(bench("corpus").WORKLOADS), "broker": loads | deep},
        "client": {row for _table, row, _column in client.tasks(None, 1.0, 1)},
        "spark": {"all columns", "narrow", "Parquet"},
    }
    named = [(goal.subject, goal.table, goal.row) for goal in page.GOALS]
    named += [(subject, table, row) for subject, (_, table, row, _, _) in page.README.items()]
    assert {subject for subject, _, _ in named} == set(rows)
    assert {*page.README["broker"][4]} == {*brokers.PEERS} <= brokers.SERVERS.keys()
    assert brokers.WORDS.keys() <= {peer.dialect for peer in brokers.SERVERS.values()}
    for subject, table, row in named:
        assert table in page.TABLES[subject]
        assert row in rows[subject], row


def test_a_run_replaces_its_own_part_of_the_page_and_of_the_readme(bench, tmp_path, monkeypatch):
    page = bench("page")
    monkeypatch.setattr(page, "plot", lambda *_: None)
    monkeypatch.setattr(page, "ROOT", tmp_path)
    marked = "by hand\n<!-- client: written by make bench -->\nold\n<!-- end of client -->\nby hand, too\n"
    (tmp_path / "docs").mkdir()
    names = ("README.md", "docs/benchmarks.md")
    for name in names:
        (tmp_path / name).write_text(marked, encoding="utf-8")
    cell = {"ours, sync": 1234.5}
    found = {"facts": {"date": "today"}, "tables": {"received": {"100 B": cell}}, "wrong": []}
    page.write("client", found)
    assert [(tmp_path / name).read_text("utf-8") for name in names] == [marked] * 2  # a figure of the README is missing
    cell |= {"stomp.py": 100.0, "stompman": 10.0}
    page.write("client", found)
    shown = (tmp_path / "docs" / "benchmarks.md").read_text("utf-8")
    ends = r"by hand\n<!-- client[^>]*>\n\n.*today.*12\.3×.*\n\n<!-- end of client -->\nby hand, too\n"
    assert re.fullmatch(ends, shown, re.DOTALL)
    assert "old" not in shown
    assert " per CPU second; stomp.py: 100 (12.3×)\n\n<!-- end" in (tmp_path / "README.md").read_text("utf-8")


def tables_of(page: ModuleType, subject: str) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """Read the tables of a subject from docs/benchmarks.md, and who gets a row wrong."""
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    text = text.partition(f"<!-- {subject}: written by make bench -->")[2].partition("<!-- end of")[0]
    tables, wrong = {}, []
    for name, table in page.TABLES[subject].items():
        lines = text.partition(f"### {table.title}\n\n")[2].partition("\n### ")[0].splitlines()[2:]
        head, _, *rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines if line] or [[], []]
        tables[name] = {row[0]: dict(zip(head[1:], row[1:])) for row in rows}
        wrong += [(name, row, who) for row, cells in tables[name].items() for who in cells if "*" in cells[who]]
    for rows in tables.values():
        for row, cells in rows.items():
            figures = {who: re.sub(r"[,×]| \\\*", "", cell) for who, cell in cells.items()}
            rows[row] = {who: float(cell) for who, cell in figures.items() if cell}
    return tables, wrong


@pytest.mark.parametrize("subject", ["codec", "broker", "client", "spark"])
def test_the_readme_has_the_figures_of_the_page(bench: Load, subject: str) -> None:
    page = bench("page")
    tables, wrong = tables_of(page, subject)
    expected = page.readme_of(subject, {"tables": tables, "wrong": wrong})
    readme = (ROOT / "README.md").read_text("utf-8")
    assert readme.partition(f"<!-- {subject}: written by make bench -->\n\n")[2].partition("\n<!-- end")[0] == expected


@pytest.mark.parametrize(("share", "verdict"), [(1, "right"), (0.99, "wrong"), (0.75, "wrong"), (0.74, "fails")])
def test_a_reader_that_loses_frames_is_marked_or_left_out(bench: Load, share: float, verdict: str) -> None:
    truth = [("ACK", {"id": str(number)}, b"") for number in range(100)]
    contestants = bench("contestants")
    reader = Namespace(name="reader", collect=lambda _version, _pieces: (truth[: round(100 * share)], True))
    assert contestants.judged(reader, "1.2", [], truth) == verdict
    if verdict != "right":
        reader.name = contestants.C
        with pytest.raises(AssertionError, match="wrong"):
            contestants.judged(reader, "1.2", [], truth)


@pytest.mark.parametrize(
    ("order", "is_right"), [([0, 1, 2], True), ([0, 1], False), ([1, 0, 2], False), ([0, 1, 1, 2], False)]
)
def test_a_client_that_loses_repeats_or_reorders_is_caught(bench, monkeypatch, order, is_right):
    client, body = bench("bench_client"), bench("load").body

    def receive(task: Any) -> None:
        task.begin()
        task.kept = [body(100, 0, number) for number in order]
        task.count = len(order)

    monkeypatch.setattr(client, "CHECKED", 3)
    monkeypatch.setattr(client, "RECEIVE", {"someone": receive})
    what = ("someone", 1, 100, "auto", True, False)
    with nullcontext() if is_right else pytest.raises(RuntimeError, match="bodies were lost"):
        assert client.drive(*what)[0] == 3


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        *(((0, 1, 2), ""), ((0, 1), "2 messages came of 3"), ((0, 2, 1), "message 1"), ((0, 1, 1), "message 2")),
        ((0, 1, 2, 3), "more messages"),
    ],
)
def test_a_broker_that_loses_repeats_or_reorders_is_caught(bench: Load, texts: tuple[int, ...], fault: str) -> None:
    load = bench("load")
    messages = iter([Namespace(body=load.body(100, 0, number)) for number in texts])
    with pytest.raises(load.WrongError, match=fault) if fault else nullcontext():
        load.verify(load.LOADS["queue-100b"], Namespace(get=lambda _timeout: next(messages, None)), 3)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *[("broker_rows", name) for name in ("send", "websocket", "ack")],
        *[("client_rows", name) for name in ("client_send", "client_many", "client_receive", "client_handler")],
    ],
)
def test_a_row_of_instructions_does_what_it_says(bench: Load, module: str, name: str) -> None:
    with bench(module).Row(name) as row:
        row.check()
        done = row.run(*row.prepare())
        assert done == bench(module).MESSAGES if module == "client_rows" else (done > 0) is (name != "ack")


def test_each_message_of_a_row_says_whether_it_is_persistent(bench: Load) -> None:
    load, rows = bench("load"), bench("broker_rows")
    said = {name: load.send_frame(each, "/queue/a", 0, 0) for name, each in load.LOADS.items()}
    for name in rows.ROWS:
        with rows.Row(name) as row:
            said[name] = b"".join(row._sends)
    for name, octets in said.items():
        assert octets.count(b"SEND\n") == octets.count(b"persistent:true\n") + octets.count(b"persistent:false\n"), name


def test_a_figure_above_its_committed_one_is_counted_a_second_time(bench, monkeypatch):
    instructions, asked = bench("instructions"), []
    ticks, acks, send = ("feed", "ticks"), ("feed", "acks"), ("broker", "send")

    def measure(names: list[str]) -> dict[tuple[str, str], int]:
        asked.append(names)
        return {ticks: 101, ("make", "ticks"): 900, send: 104}

    monkeypatch.setattr(instructions, "measure", measure)
    known = {ticks: 100, acks: 100, send: 100, ("make", "ticks"): 500}
    assert (instructions.judge_twice({ticks: 102, acks: 100}, known), asked) == ({}, [])
    wrong = instructions.judge_twice({ticks: 103, acks: 102, send: 103, ("make", "ticks"): 500}, known)
    assert asked == [["broker", "ticks"]]
    assert wrong == {send: "broker send: 103 instructions per message, 100 are committed"}
