"""Plant faults in the package, one at a time, and see whether the tests of the room notice each.

    python scripts/mutations.py [--seed N] [--count N] [--room ROOM ...] [--near] [--list]

A seed chooses faults from all rooms alike: at most one for each function, all kinds of fault equally often. A choice
depends on the text of its function alone, so it stays when others change. The faults are planted in a copy of the
installed package. Results are kept in build/mutations/, and a second run goes on where the first was interrupted.

A fault that no test notices survives. It is harmless if REASONS says why; any other makes the exit status 1.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import stompcodec

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(stompcodec.__file__).resolve().parent
WORK = ROOT / "build" / "mutations"
#: CPU seconds that the tests of a room may take; with --near, those of a folder. Wall seconds for all of them.
_CPU, _NEAR_CPU, _LONGEST = 600, 150, 3600
#: The exit statuses of pytest when tests have failed, or could not be collected.
_FAILED = (1, 2)
#: The one when there are none.
_NO_TESTS = 5
_EXAMPLES = "--doctest-modules"
#: Marked tests: the quick ones run first.
_QUICK, _LONG = "not slow and not long", "long and not slow"
#: Statements that only tell people something.
_TALK = re.compile(r"(self\.)?(_?log(ger)?|warnings|_?LOG)\.|note\(")
_COMPARE = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"},
}
#: Calls whose arguments are not exchanged: there it does nothing, or fails at once.
_ALIKE = ("max", "min", "isinstance")
_PURE = {"STOMPCODEC_PURE": "1"}


@dataclass(frozen=True)
class Room:
    """Files of the package, and the tests that must notice a fault in them.

    Args:
        files: patterns below stompcodec/.
        tests: folders and files below tests/; a folder of the same name as the file's runs first.
        environment: variables for the tests.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


def _broker(room: str, *more: str) -> Room:
    return Room((f"broker/{room}/**/*.py",), (f"broker/{room}", *more, "broker"))


ROOMS = {
    "codec": Room(
        ("_*_py.py", "codec.py", "column*.py", "content.py", "frame.py", "errors.py"),
        ("codec", "protocol"),
        tuple(_PURE.items()),
    ),
    "connection": Room(
        (
            "connection.py",
            "handshake.py",
            "heartbeat.py",
            "liveness.py",
            "states.py",
            "steady.py",
            "detect.py",
            "uri.py",
        ),
        ("protocol", "codec", "client/test_connecting.py"),
    ),
    "transport": Room(("transport/*.py",), ("transport", "client")),
    "client": Room(("client/*.py",), ("client",)),
    "shells": Room(("client/aio/*.py", "client/sync/*.py"), ("client",)),
    "capture": Room(
        ("capture/*.py", "disk/*.py"), ("capture", "broker/storage/test_file_access.py", "cli/verbs/test_record.py")
    ),
    "bridge": Room(("bridge/*.py",), ("bridge", "cli/verbs/test_bridge.py")),
    "broker": Room(("broker/*.py", "broker/config/*.py"), ("broker/config", "broker")),
    "queues": _broker("queues"),
    "sessions": _broker("sessions"),
    "routing": _broker("routing"),
    "storage": _broker("storage"),
    "selectors": _broker("selectors", "broker/bodies"),
    "bodies": _broker("bodies", "broker/selectors"),
    "spark": Room(("spark/reading/*.py", "spark/options/*.py", "spark/live/*.py"), ("spark/reading", "spark")),
    "jobs": Room(("spark/jobs/*.py", "spark/sink/*.py", "spark/report/*.py"), ("spark/jobs", "spark")),
    "cli": Room(("cli/**/*.py",), ("cli/verbs", "cli")),
    "compat": Room(("compat/*.py",), ("compat",)),
    "testing": Room(("testing/*.py",), ("testing", "transport/test_faults.py")),
}

#: Faults that survive without harm: the name that `--list` prints -> why no test can notice, or need notice.
REASONS: dict[str, str] = {
    "_scan_py.py Body.room: join: self.length < 0 and not self.known[1] -> "
    "((self.length < 0) or (not self.known[1]))": "each chunk is read alone, not several together: the same events",
    "bridge/bridge.py Bridge._is_over: compare: time.monotonic() - self._asked < _IDLE_ASKED -> "
    "((time.monotonic() - self._asked) <= (_IDLE_ASKED))": "the clock does not stand still between two turns",
    "broker/queues/dispatcher.py _Cursor.note: one: 1 -> 2": "one message more is looked at again",
    "capture/reader.py Cursor._find: drop: self.offset = segment.base -> pass": "the next piece moves it there",
    "compat/stomppy_beats.py Turns.__init__: one: 0 -> 1": "the bytes that may wait are one fewer",
    "connection.py Connection.close: drop: self._now = now -> pass": "the time counts for heart-beats alone, and a "
    "closed connection has none",
    "spark/reading/casts.py _moments: compare: numbers.null_count > values.null_count -> "
    "((numbers.null_count) >= (values.null_count))": "the slow way finds nothing more to read",
    "spark/reading/source.py SplitReader.read: compare: len(parts) > 1 -> ((len(parts)) >= (1))": "the batches of one "
    "part are joined, too: the same rows",
    "testing/faults.py FaultProxy.stop: drop: self._cut_all() -> pass": "the tasks cancelled next hang up, too",
    "transport/owner.py gather: compare: len(chunks) <= 1 -> ((len(chunks)) < (1))": "a short cut: one chunk stays as "
    "it is the long way, too",
}


@dataclass(frozen=True)
class Mutant:
    """A fault: bytes of a file and what stands there instead.

    Args:
        room: a key of ROOMS.
        file: below stompcodec/.
        function: its qualified name.
        kind: negate, compare, join, drop, one, arguments.
        start, end: offsets in the file.
        text: what is planted.
        was: what stood there.
        line: of the file, from 1.
    """

    room: str
    file: str
    function: str
    kind: str
    start: int
    end: int
    text: str
    was: str
    line: int

    @property
    def name(self) -> str:
        """What it is called in REASONS: all but the line, which changes with the rest of the file."""
        was, text = (" ".join(each.split()) for each in (self.was, self.text))
        return f"{self.file} {self.function}: {self.kind}: {was} -> {text}"

    def rank(self, seed: int) -> str:
        return hashlib.sha256(f"{seed} {self.name}".encode()).hexdigest()


class Source:
    """A file and the faults that it could have."""

    def __init__(self, room: str, file: str) -> None:
        self.room, self.file = room, file
        self.data = (PACKAGE / file).read_bytes()
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        start, end = self._span(node)
        return self.data[start:end].decode()

    def mutants(self) -> Iterator[Mutant]:
        """Yield the faults of all functions."""
        yield from self._inside(ast.parse(self.data), "")

    def _inside(self, node: ast.AST, scope: str) -> Iterator[Mutant]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{scope}{child.name}"
                if child.name in ("__repr__", "__str__") or (isinstance(child, ast.ClassDef) and _is_protocol(child)):
                    continue
                if not isinstance(child, ast.ClassDef):
                    for kind, place, text in (each for statement in child.body for each in self._faults(statement)):
                        yield self._mutant(name, kind, place, text)
                yield from self._inside(child, f"{name}.")

    def _mutant(self, function: str, kind: str, place: ast.expr | ast.stmt, text: str) -> Mutant:
        start, end = self._span(place)
        was = self.data[start:end].decode()
        return Mutant(self.room, self.file, function, kind, start, end, text, was, place.lineno)

    def _faults(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Raise, ast.Assert)):
            return
        if isinstance(node, ast.stmt) and _TALK.match(self.text(node)):
            return
        yield from self._own_faults(node)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "type_comment"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self._faults(child)

    def _own_faults(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield "negate", node.test, f"(not ({self.text(node.test)}))"
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.text(node.left), self.text(node.comparators[0])
            yield "compare", node, f"(({left}) {_COMPARE[type(node.ops[0])]} ({right}))"
        if isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            yield "join", node, f"({word.join(f'({self.text(value)})' for value in node.values)})"
        if isinstance(node, ast.stmt) and _can_go(node):
            yield "drop", node, "pass"
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield "one", node, str(node.value + 1)
        if isinstance(node, ast.Call) and len(node.args) > 1 and self.text(node.func) not in _ALIKE:
            first, second, *more = [*map(self.text, node.args), *map(self.text, node.keywords)]
            if first != second and not first.startswith("*") and not second.startswith("*"):
                yield "arguments", node, f"{self.text(node.func)}({', '.join([second, first, *more])})"


def _is_protocol(node: ast.ClassDef) -> bool:
    return any("Protocol" in ast.unparse(base) for base in node.bases)


def _can_go(node: ast.stmt) -> bool:
    """Return whether a statement has an effect beyond its function's own names: without those, it cannot run at all."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await))
    if isinstance(node, (ast.AugAssign, ast.Delete)):
        return True
    return isinstance(node, ast.Assign) and not all(
        isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets
    )


def chosen(rooms: list[str], seed: int, count: int) -> list[Mutant]:
    """Return `count` faults: from each room alike, from its kinds alike, at most one from a function."""
    queues = []
    for room in rooms:
        files = sorted({str(path.relative_to(PACKAGE)) for each in ROOMS[room].files for path in PACKAGE.glob(each)})
        found = [mutant for file in files for mutant in Source(room, file).mutants()]
        found.sort(key=lambda mutant: mutant.rank(seed))
        kinds: Counter[str] = Counter()
        functions: dict[tuple[str, str], tuple[int, Mutant]] = {}
        for mutant in found:
            if (mutant.file, mutant.function) not in functions:
                functions[mutant.file, mutant.function] = (kinds[mutant.kind], mutant)
                kinds[mutant.kind] += 1
        queues.append([mutant for _, mutant in sorted(functions.values(), key=lambda each: each[0])])
    picked: list[Mutant] = []
    for place in range(count):
        for queue in queues:
            if place < len(queue) and len(picked) < count:
                picked.append(queue[place])
    return picked


class Bench:
    """The copy of the package, and pytest on it."""

    def __init__(self, near: bool) -> None:
        self._site = WORK / "site"
        shutil.rmtree(self._site, ignore_errors=True)
        shutil.copytree(PACKAGE, self._site / "stompcodec")
        self._unfit: list[str] = []
        self._cpu = _NEAR_CPU if near else _CPU

    def try_out(self, mutant: Mutant, near: bool) -> dict[str, object]:
        """Plant a fault, run the tests of its room until one fails, and take the fault away again."""
        began = time.monotonic()
        result: dict[str, object] = {"mutant": mutant.name, "line": mutant.line, "room": mutant.room}
        status, by, tests = 0, "", 0
        examples, close, far = _tests(mutant)
        stages = [(examples, _QUICK), (close, _QUICK), (far, _QUICK), ([*close, *far], _LONG)]
        for files, marked in stages[: 2 if near else 4]:
            while files and not status:
                status, said = self._planted(mutant, files, marked)
                tests += sum(map(int, re.findall(r"(\d+) (?:passed|failed|error)", said)))
                failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
                if not status:
                    break
                by = failed[0] if failed else f"exit status {status}: {said[-600:]}"
                again = failed[:1] if files[0] != _EXAMPLES else files
                if failed and self._pytest(mutant, again, marked)[0] in _FAILED:
                    status = 0
                    self._unfit.append(by)  # it fails without the fault, too: again without that test
        result["seconds"], result["tests"], result["by"] = round(time.monotonic() - began), tests, by if status else ""
        result["outcome"] = "killed" if status else "unnoticed near" if near else "survived"
        return result

    def _planted(self, mutant: Mutant, tests: list[str], marked: str) -> tuple[int, str]:
        target = self._site / "stompcodec" / mutant.file
        data = (PACKAGE / mutant.file).read_bytes()
        target.write_bytes(data[: mutant.start] + mutant.text.encode() + data[mutant.end :])
        try:
            return self._pytest(mutant, tests, marked)
        finally:
            shutil.copy2(PACKAGE / mutant.file, target)

    def _pytest(self, mutant: Mutant, tests: list[str], marked: str) -> tuple[int, str]:
        program = "import sys; sys.path = [*filter(None, sys.path)]; import pytest; sys.exit(pytest.main())"
        options = ["-x", "-q", "-m", marked, "-p", "no:cacheprovider", "-rfE", "--tb=no", "--durations=0"]
        options += [f"--deselect={test}" for test in self._unfit if test not in tests]
        environment = {
            **os.environ,
            **dict(ROOMS[mutant.room].environment),
            "HYPOTHESIS_PROFILE": "light",
            "PYTHONPATH": str(self._site),
            "PYTHONDONTWRITEBYTECODE": "1",  # what was compiled stays: its time is that of the whole file
            "HYPOTHESIS_STORAGE_DIRECTORY": str(WORK / "hypothesis"),
            "COLUMNS": "500",
        }
        try:
            done = subprocess.run(
                [sys.executable, "-c", program, *options, *tests],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_LONGEST,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (self._cpu, self._cpu)),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return 124, (error.stdout or b"").decode(errors="replace")
        return 0 if done.returncode == _NO_TESTS else done.returncode, done.stdout.decode(errors="replace")


def _tests(mutant: Mutant) -> tuple[list[str], list[str], list[str]]:
    """Return the examples of the file, the tests of its own folder, and the others of its room.

    Files of tests that have its name come first.
    """
    examples = [_EXAMPLES, "--pyargs", ".".join(("stompcodec", *Path(mutant.file).with_suffix("").parts))]
    stem, folder = Path(mutant.file).stem.strip("_"), Path(mutant.file).parent.name
    near: list[str] = []
    far: list[str] = []
    for name in ROOMS[mutant.room].tests:
        path = ROOT / "tests" / name
        files = [path] if path.suffix else sorted(path.rglob("test_*.py"))
        for file in sorted(files, key=lambda file: stem not in file.stem):
            own = file.parent.name == folder or name == ROOMS[mutant.room].tests[0]
            (near if own else far).append(str(file.relative_to(ROOT)))
    near = list(dict.fromkeys(near))
    return examples, near, [name for name in dict.fromkeys(far) if name not in near]


def _known(book: Path, near: bool) -> dict[str, dict[str, object]]:
    lines = book.read_text(encoding="utf-8").splitlines() if book.exists() else []
    results = {result["mutant"]: result for result in map(json.loads, lines)}
    return {
        name: result
        for name, result in results.items()
        if near or name in REASONS or result["outcome"] != "unnoticed near"
    }


def _summary(results: list[dict[str, object]]) -> list[str]:
    table: dict[str, Counter[str]] = {}
    for result in results:
        kind = "harmless" if result["outcome"] != "killed" and result["mutant"] in REASONS else result["outcome"]
        table.setdefault(str(result["room"]), Counter())[str(kind)] += 1
    total = sum(table.values(), Counter())
    return [
        f"{room:12} " + ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
        for room, counts in [*table.items(), ("total", total)]
    ]


def _stale() -> list[str]:
    """Return the names in REASONS that are out of date, because their functions have changed."""
    files = {file for file in (name.split()[0] for name in REASONS) if (PACKAGE / file).is_file()}
    names = {mutant.name for file in files for mutant in Source("", file).mutants()}
    return [f"no longer a fault: {name}" for name in REASONS if name not in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="which faults are chosen (1)")
    parser.add_argument("--count", type=int, default=102, help="how many (102)")
    parser.add_argument("--room", nargs="+", choices=ROOMS, default=list(ROOMS), help="from these rooms alone")
    parser.add_argument(
        "--near", action="store_true", help="run the tests of the file's own folder alone, in a tenth of the time"
    )
    parser.add_argument("--list", action="store_true", help="print them, run nothing")
    arguments = parser.parse_args()
    mutants = chosen(arguments.room, arguments.seed, arguments.count)
    if arguments.list:
        print("\n".join(f"{mutant.room:10} {mutant.line:4}  {mutant.name}" for mutant in mutants))
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    book = WORK / f"{arguments.seed}.jsonl"
    known, bench, results = _known(book, arguments.near), Bench(arguments.near), []
    for number, mutant in enumerate(mutants, 1):
        result = known.get(mutant.name)
        if result is None:
            result = bench.try_out(mutant, arguments.near)
            with open(book, "a", encoding="utf-8") as out:
                out.write(json.dumps(result) + "\n")
        results.append(result)
        by = REASONS.get(mutant.name) or result["by"]
        print(f"{number:4} {result['outcome']:9} {mutant.name}  [{result['tests']} tests, {result['seconds']} s; {by}]")
        sys.stdout.flush()
    print("", *_summary(results), *_stale(), sep="\n")
    return 1 if any(each["outcome"] != "killed" and each["mutant"] not in REASONS for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
