"""The suite itself: what `make test` runs, how its summary counts, how long tests wait."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import conftest
import patience as waiting
import pytest
import sharing
from installed import load

HERE = Path(__file__).parent


def _is_slow(node: ast.AST) -> bool:
    return ast.unparse(node).startswith(("pytest.mark.slow", "pytest.mark.peer"))


def _marks(tree: ast.Module) -> list[ast.AST]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return list(node.value.elts) if isinstance(node.value, ast.List) else [node.value]
    return []


def _slow_parts(text: str) -> Iterator[str]:
    """Yield the parts of a module that `make test` leaves out: the module, a class or a function with its marks."""
    tree = ast.parse(text)
    if any(map(_is_slow, _marks(tree))):
        yield text
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and any(map(_is_slow, node.decorator_list)):
            first = min(mark.lineno for mark in node.decorator_list)
            yield "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def test_make_test_names_every_requirement_that_a_test_names() -> None:
    everywhere, slow = [], []
    for path in [*HERE.rglob("*.py"), *HERE.rglob("*.json")]:
        text = path.read_text(encoding="utf-8")
        everywhere += conftest.IDENTIFIER.findall(text)
        if path.suffix == ".py" and ("mark.slow" in text or "mark.peer" in text):
            slow += [name for part in _slow_parts(text) for name in conftest.IDENTIFIER.findall(part)]
    assert len(set(everywhere)) > 300
    only_slow = {name for name in slow if slow.count(name) == everywhere.count(name)}
    assert only_slow == set(), "these requirements are proven by make test-slow alone"


def test_a_page_lists_what_is_slow() -> None:
    page = HERE.parent / "docs" / "development.md"
    if not page.is_file():
        pytest.skip("without docs: this is not the whole tree")
    folder, listed = "", set()
    section = page.read_text(encoding="utf-8").partition("### Keep `make test` fast")[2].partition("\n## ")[0]
    for line in section.splitlines():
        for name in re.findall(r"`([\w/]+\.py)`", line.split("|")[1]) if line.startswith("| `") else ():
            folder = name.rpartition("/")[0] or folder
            listed.add(name if "/" in name else f"{folder}/{name}")
    mark = "pytest.mark." + "slow"
    slow = {p.relative_to(HERE).as_posix() for p in HERE.rglob("test_*.py") if mark in p.read_text("utf-8")}
    slow = {name for name in slow if not name.startswith("interop/")}  # listed as a whole
    assert listed == slow - {"test_suite.py"}, "docs/development.md lists each file with slow tests, and why"


#: What the broker keeps apart, each by a test on real processes that `make test` runs.
ISOLATION = {
    "faults": "broker/queues/test_faults.py::test_a_subscription_that_cannot_be_served_is_refused",
    "hostile sessions": "broker/test_hostile.py::test_a_frame_that_never_ends",
    "subscriptions that end": "broker/queues/test_slices.py::test_others_are_served_while_a_deep_backlog_moves_or_ends",
    "backlogs": "broker/queues/test_slices.py::test_others_are_served_while_a_deep_backlog_moves_or_ends",
    "frames of WebSocket": "broker/sessions/test_websocket_turns.py::test_a_process_answers_others_between_tiny_frames",
    "memory": "broker/test_hostile.py::test_resident_memory_stays_near_the_limit",
    "folders": "broker/storage/test_folders.py::test_killed_while_it_starts",
    "damage": "broker/storage/test_sqlite_faults.py::test_one_flipped_bit",
    "salvage": "broker/storage/test_salvage.py::test_killed_at_any_commit",
    "space": "crash/test_crash.py::test_nothing_is_lost_when_the_storage_is_killed",
    "uploads": "broker/test_descriptors.py::test_half_sent_messages_end",
    "descriptors": "broker/test_descriptors.py::test_who_comes_too_late_is_told_or_closed",
    "durable messages": "docsite/test_pages_run.py::test_the_table_is_right_for_kill_9",
    "the disk": "broker/storage/test_sqlite_faults.py::test_killed_at_random_moments",
    "a full disk": "broker/storage/test_space.py::test_a_disk_that_is_full_heals_by_consuming",
    "shares of names": "broker/routing/test_shares.py::test_twelve_thousand_queues_by_one_client_leave_room",
    "origins": "broker/test_origins.py::test_what_the_file_lists_is_let_in_by_a_process",
    "rights of files": "cli/verbs/test_record.py::test_who_may_read_what_is_recorded",
    "interpreters": "codec/test_isolated.py::test_another_interpreter_of_the_process_says_so",
    "answers on a terminal": "cli/test_process.py::test_sub",
    "failing memory": "codec/test_isolated.py::test_every_allocation_fails_once",
    "forks": "client/test_forks.py::test_every_call_of_a_thread_s_client_is_refused",
    "all at once": "simulation/test_simulation.py::test_nothing_breaks",
}


@pytest.mark.parametrize("what", ISOLATION)
def test_make_test_keeps_a_process_test_of(what: str) -> None:
    name, _, function = ISOLATION[what].partition("::")
    text = (HERE / name).read_text(encoding="utf-8")
    assert f"def {function}(" in text
    assert not any(f"def {function}(" in part for part in _slow_parts(text))


def test_files_that_are_shared_otherwise_exist() -> None:
    named = (*sharing.SPARK, *sharing.WHOLE, *sharing.LONG)
    assert ([name for name in named if not (HERE / name).is_file()], len(set(named))) == ([], len(named))


def test_pieces_of_files_are_handed_out_in_their_order() -> None:
    spark, whole, lasting = (
        [f"tests/{file}::test_{n}" for file in files for n in range(50)]
        for files in (sharing.SPARK, sharing.WHOLE, sharing.LONG)
    )
    pieces = [f"tests/broker/test_{file}.py::test_x[{n}]" for file in "ab" for n in range(4 * sharing._PIECE + 1)]
    assert sorted([*pieces, *lasting, *whole, *spark], key=sharing.worth_first) == [*spark, *whole, *lasting, *pieces]
    units = sharing.units([*spark, *whole, *pieces])
    assert len({units[name] for name in spark}) == 1
    assert len({units[name] for name in whole}) == len(sharing.WHOLE)
    assert len({units[name] for name in pieces}) == 10


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("scripts/test.py", "scripts_test")


_JUNIT = '<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="2" tests="9" time="1"/></testsuites>'


def _stage(script: ModuleType, name: str, text: str | None, status: int, report: str = "--junitxml"):
    write = f"open(sys.argv[1].partition('=')[2], 'w').write({text!r})" if text else ""
    return script.Stage(name, [sys.executable, "-c", f"import sys\n{write}\nsys.exit({status})"], report)


@pytest.mark.parametrize("shared", [False, True])
def test_the_stages_test_what_is_installed(script: ModuleType, shared: bool) -> None:
    """Not the folder they run in, where the C backend is not built: the suite refuses that."""
    command = [*script.PYTEST, *(["--numprocesses", "1"] if shared else []), "-q", "tests/test_suite.py"]
    command += ["-k", "shared_otherwise"]
    subprocess.run(command, cwd=script.ROOT, check=True, stdout=subprocess.PIPE, timeout=waiting.patience(60))


def test_all_stages_run_and_are_counted(script: ModuleType, tmp_path: Path) -> None:
    green = _JUNIT.replace('errors="1" failures="1"', 'errors="0" failures="0"')
    empty = '<testsuite errors="0" failures="0" skipped="0" tests="0"/>'
    table = {
        "red": (_stage(script, "red", _JUNIT, 1), (5, 2, 2)),
        "killed": (_stage(script, "killed", None, 3), (0, 1, 0)),
        "green": (_stage(script, "green", green, 0), (7, 0, 2)),
        "json": (_stage(script, "json", '{"passed": 4, "failed": 0, "skipped": 1}', 0, "--report"), (4, 0, 1)),
        "late": (_stage(script, "late", green, 2), (7, 1, 2)),
        "empty": (_stage(script, "empty", empty, 5), (0, 0, 0)),
    }
    red, killed, *both, late, last = [stage for stage, _ in table.values()]
    counts = script.run_all([[red], [killed], both, [late], [last]], tmp_path)
    numbers = {name: (count.passed, count.failed, count.skipped) for name, count in counts.items()}
    assert numbers == {name: wanted for name, (_, wanted) in table.items()}
    assert "exit status 3" in counts["killed"].note
    assert script.summary(counts).splitlines()[-1].split(maxsplit=1) == ["total", "23 passed, 4 failed, 7 skipped"]


def test_make_test_and_the_workflows_run_the_same(script: ModuleType) -> None:
    makefile = (HERE.parent / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^test: .*\n\t@\$\(BIN\)/python scripts/test\.py$", makefile, re.MULTILINE)
    assert re.search(r"^test-slow: .*\n\t@\$\(BIN\)/python scripts/test\.py --slow$", makefile, re.MULTILINE)
    quick, slow = ([stage.command for row in rows for stage in row] for rows in (script.QUICK, script.SLOW))
    assert all("not slow" in command[command.index("-m") + 1] for command in quick if "-m" in command)
    folders = {name for command in quick + slow for name in command if name.startswith("tests/")}
    assert [name for name in folders if not os.path.exists(HERE.parent / name)] == []
