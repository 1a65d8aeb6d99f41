"""Plant faults in the package, one at a time, and see whether the tests of the room notice each.

    python scripts/mutations.py [LIST] [--seed N] [--count N] [--room ROOM ...]
    python scripts/mutations.py [LIST] --again [--count N] [--seed N] [--room ROOM ...]

A LIST (tests/mutants.tsv) that does not exist is drawn: COUNT faults, from each room in proportion to its lines, one
for each function, all operators alike; seed and functions alone decide. Those without a verdict are tried, so a run
that was interrupted goes on where it was.

--again leaves LIST as it is: what tests noticed is planted again, and must be noticed; with --count, so many, chosen by
--seed. A fault is found by the name of its function and its text, wherever both stand by now.

All of it happens in copies of the tree, in the folder for temporary files.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import stompcodec

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(stompcodec.__file__).resolve().parent
LIST = ROOT / "tests" / "mutants.tsv"
#: Statements that only tell people something.
_TALK = re.compile(r"(self\.)?(_?log(ger)?|warnings|_?LOG)\.|note\(|time\.sleep\(")
#: Parts of Python that have no faults: what they say, what is declared, and what cannot be written in their place.
_SKIPPED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Raise, ast.Assert, ast.JoinedStr, ast.pattern)
#: Calls whose arguments are not exchanged: there it does nothing, or fails at once.
_ALIKE = ("max", "min", "isinstance")
#: What is planted for a word.
_SWAPS = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "&&": "||", "||": "&&"},
    **{"and": "or", "or": "and", "in": "not in", "not in": "in", "is": "is not", "is not": "is"},
}
#: Operators on a function of C or Cython, whose comments and texts are blank: what the group matches is exchanged.
_NATIVE = {
    "compare": re.compile(r" ([<>]=?|[=!]=)(?= )"),
    "join": re.compile(r" (&&|\|\||and|or)(?= )"),
    "sign": re.compile(r" ([+-])(?= )"),
    "one": re.compile(r"(?<![\w.-])(?<!return )(\d+)(?![\w.])"),
    "negate": re.compile(r"\b(?:if|while) \((.+)\)(?: \{)?\n|\b(?:if|while) ([^(\n].*):\n"),
    "drop": re.compile(r"\n +([\w.>\[\]*-]+(?:->|\.)\w+ [|&+-]?= [^\n;]+|\w+\([^\n;]*\))(?=;?\n)"),
}
_BLANK = {
    True: re.compile(r'"""[\s\S]*?"""|#.*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''),
    False: re.compile(
        r"/\*[\s\S]*?\*/|//.*|#(?:el)?if.*NEON[\s\S]*?(?=\n#e)|(?m:^#(?:.*\\\n)*.*)"
        r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    ),
}
_C_FUNCTION = re.compile(r"^\w[^;{}=]*?\b(\w+)\([^;{}]*\)\s*\n\{\n(?:.*\n)*?\}", re.MULTILINE)
_CYTHON_FUNCTION = re.compile(r"^( *)(?:cdef|cpdef|def) [^\n=]*?(\w+)\([\s\S]*?:\n((?:\1 +.*\n|\s*\n)+)", re.MULTILINE)
_CYTHON_CLASS = re.compile(r"^cdef class (\w+)", re.MULTILINE)
#: The room, or its first folder -> its tests, below tests/. Any other: the folder of that name.
_TESTS = {
    **{"core": "codec protocol client", "c": "codec protocol", "c/plain": "broker", "transport": "transport client"},
    **{"capture": "capture broker cli", "disk": "capture broker cli", "bridge": "bridge cli", "compat": "compat cli"},
    **{"testing": "testing transport client"},
}
#: Folders whose tests run on the Python backend, too.
_PURE = ("codec", "protocol", "capture", "broker")
#: Files that notice most faults in C, and soon.
_FIRST = ("tests/codec/test_vectors.py", "tests/broker/test_scenarios.py")
#: Tests in the first run, before all the others that reach a fault.
_FEW = 30
#: CPU seconds that a single test may take, before it takes three times as long. Seconds without a word from the tests.
_ONE, _HANGS = 10.0, 120
#: Exit statuses: the time is over; no tests.
_TOO_LONG, _NO_TESTS = (-signal.SIGXCPU, -signal.SIGKILL), 5
#: Verdicts of those that tests notice. Others: alive, invalid (the compiler refuses it), gone, changed.
_DEAD = ("killed", "timeout")
_PYTEST = """import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({0}, {0}))
resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
sys.path = [*filter(None, sys.path)]
import pytest
sys.exit(pytest.main())"""
#: A module that notes which tests come to a place.
_REACH = """import os
_seen = set()
def hit(name):
    what = name, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].partition("[")[0]
    if what not in _seen:
        _seen.add(what)
        with open({!r}, "a") as out:
            print(*what, sep="\\t", file=out)
"""
_HIT = '__import__("stompcodec._reach", fromlist=["hit"]).hit("{}")'
#: The seconds of tests, and whether they run on the Python backend.
Stage = tuple[dict[str, float], bool]


class Fault(NamedTuple):
    """Bytes of a file from `start` to `end`, and what is planted there; `line` is where they begin."""

    function: str
    operator: str
    line: str
    before: str
    after: str
    start: int
    end: int

    @property
    def key(self) -> tuple[str, ...]:
        """What it is found by: each text on one line."""
        return tuple(" ".join(each.split()) for each in self[:5])


class Mutant(NamedTuple):
    """A line of the list: the key of a fault, whether its tests noticed it and which one did, and seconds."""

    room: str
    file: str
    function: str
    operator: str
    line: str
    before: str
    after: str
    verdict: str = "-"
    test: str = ""
    seconds: str = "0"

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.operator}: {self.before} -> {self.after}"

    def digest(self, seed: int = 0) -> str:
        return hashlib.sha256(f"{seed} {self}".encode()).hexdigest()


class _Python:
    """A Python file and the faults that it could have."""

    def __init__(self, data: bytes) -> None:
        self._data, self._starts = data, [0, *(match.end() for match in re.finditer(rb"\n", data))]

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        first, last = self._starts[node.lineno - 1], self._starts[(node.end_lineno or 0) - 1]
        return first + node.col_offset, last + (node.end_col_offset or 0)

    def _text(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        return self._data[slice(*self._span(node))].decode()

    def faults(self, node: ast.AST | None = None, scope: str = "") -> Iterator[Fault]:
        """Yield the faults of all functions but those that describe an object to people."""
        for child in ast.iter_child_nodes(node or ast.parse(self._data)):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bases = map(ast.unparse, child.bases) if isinstance(child, ast.ClassDef) else ()
                if child.name in ("__repr__", "__str__") or "Protocol" in bases:
                    continue
                body = [] if isinstance(child, ast.ClassDef) else child.body
                for operator, place, text in (each for part in body for each in self._inside(part)):
                    line = self._data[self._starts[place.lineno - 1] :].partition(b"\n")[0].decode()
                    yield Fault(scope + child.name, operator, line, self._text(place), text, *self._span(place))
                yield from self.faults(child, f"{scope}{child.name}.")
            elif not isinstance(child, ast.expr):
                yield from self.faults(child, scope)

    def _inside(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        if isinstance(node, _SKIPPED) or (isinstance(node, ast.stmt) and _TALK.match(self._text(node))):
            return
        yield from self._own(node)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if name not in ("annotation", "returns") and isinstance(child, ast.AST):
                    yield from self._inside(child)

    def _own(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
        text = self._text
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield "negate", node.test, f"(not ({text(node.test)}))"
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            word = _SWAPS[ast.unparse(ast.Compare(ast.Name(""), node.ops, [ast.Name("")])).strip()]
            yield "compare", node, f"(({text(node.left)}) {word} ({text(node.comparators[0])}))"
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            yield "join", node, f"({word.join(f'({text(value)})' for value in node.values)})"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and '"' not in text(node):
            sign = "-" if isinstance(node.op, ast.Add) else "+"
            yield "sign", node, f"(({text(node.left)}) {sign} ({text(node.right)}))"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "flag", node, str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield "one", node, str(node.value + 1)
        elif isinstance(node, ast.Call) and len(node.args) > 1 and text(node.func) not in _ALIKE:
            first, second, *more = [*map(text, node.args), *map(text, node.keywords)]
            if first != second and not first.startswith("*") and not second.startswith("*"):
                yield "arguments", node, f"{text(node.func)}({', '.join([second, first, *more])})"
        elif isinstance(node, ast.stmt) and _can_go(node):
            yield "drop", node, "pass"


def _can_go(node: ast.stmt) -> bool:
    """Return whether a statement has an effect beyond its function's own names: without those, it cannot run at all."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await))
    if isinstance(node, (ast.AugAssign, ast.Delete)):
        return True
    return isinstance(node, ast.Assign) and not all(isinstance(each, (ast.Name, ast.Tuple)) for each in node.targets)


def _native(text: str, cython: bool) -> Iterator[Fault]:
    """Yield the faults of a file in C or Cython, whose functions are found by their layout."""
    code = _BLANK[cython].sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    classes = [(match.start(), match[1]) for match in _CYTHON_CLASS.finditer(code)]
    for match in (_CYTHON_FUNCTION if cython else _C_FUNCTION).finditer(code):
        function, first = (match[2], match.start(3) - 1) if cython else (match[1], code.index("\n{\n", match.start()))
        if cython and match[1]:
            function = f"{max(each for each in classes if each[0] < match.start())[1]}.{function}"
        for operator, pattern in _NATIVE.items():
            for found in pattern.finditer(code, first, match.end()):
                start, end = found.span(found.lastindex or 0)
                before, line = text[start:end], text[text.rfind("\n", 0, start) + 1 : text.index("\n", start)]
                after = _SWAPS.get(before) or ("pass" if cython else "")
                if operator == "one":
                    after = str(int(before) + 1)
                elif operator == "negate":
                    after = f"{'not ' if cython else '!'}({before})"
                if code.count("(", start, end) == code.count(")", start, end):
                    yield Fault(function, operator, line, before, after, start, end)


@cache
def faults(root: Path, file: str) -> dict[tuple[str, ...], Fault]:
    """Return the faults that a file could have; the first, of those that are called the same."""
    data = (root / file).read_bytes() if (root / file).is_file() else b""
    cython = not file.endswith((".c", ".h"))
    found = _Python(data).faults() if file.endswith(".py") else _native(data.decode("latin-1"), cython)
    return {fault.key: fault for fault in reversed(list(found))}


@cache
def files(root: Path) -> list[str]:
    found = [path for ending in ("py", "c", "h", "pyx", "pxi") for path in root.glob(f"s*/**/*.{ending}")]
    names = sorted(path.relative_to(root).as_posix() for path in found)
    return [name for name in names if name.startswith(("stompcodec/", "src/")) and name != "src/_codec_c.c"]


def room_of(file: str) -> str:
    """Return the room of a file.

    >>> [room_of(name) for name in ("stompcodec/a.py", "stompcodec/broker/queues/a.py", "src/plain/a.c")]
    ['core', 'broker/queues', 'c/plain']
    """
    first, *folders, _ = Path(file).parts
    return "/".join((["c"] if first == "src" else []) + folders[:2]) or "core"


def drawn(root: Path, rooms: Iterable[str], seed: int, count: int) -> list[Mutant]:
    """Return `count` faults: from each room in proportion to its lines, one from a function, operators alike."""
    lines: Counter[str] = Counter()
    found: dict[str, list[Mutant]] = {}
    for file in files(root):
        room = room_of(file)
        if not rooms or room in rooms:
            lines[room] += (root / file).read_bytes().count(b"\n")
            found.setdefault(room, []).extend(Mutant(room, file, *key) for key in faults(root, file))
    exact = {room: count * number / lines.total() for room, number in lines.items()}
    shares = {room: int(number) for room, number in exact.items()}
    for room in sorted(exact, key=lambda room: shares[room] - exact[room])[: count - sum(shares.values())]:
        shares[room] += 1
    picked: list[Mutant] = []
    for room, mutants in sorted(found.items()):
        operators: Counter[str] = Counter()
        functions: dict[tuple[str, str], tuple[int, Mutant]] = {}
        for mutant in sorted(mutants, key=lambda each: each.digest(seed)):
            if (mutant.file, mutant.function) not in functions:
                functions[mutant.file, mutant.function] = (operators[mutant.operator], mutant)
                operators[mutant.operator] += 1
        picked += [mutant for _, mutant in sorted(functions.values(), key=lambda each: each[0])[: shares[room]]]
    return picked


def find(root: Path, mutant: Mutant) -> tuple[str, Fault] | str:
    """Return the file and the fault, or what became of it: it is "gone" with its function, or "changed"."""
    key, there = mutant[2:7], []
    for file in dict.fromkeys([mutant.file, *files(root)]):
        table = faults(root, file)
        if key in table:
            return file, table[key]
        there += [file] if any(each[0] == mutant.function for each in table) else []
        if there == [mutant.file]:
            break
    if len(there) != 1:  # of several functions of that name, none is known to be the one
        return "gone"
    alike = [fault for each, fault in faults(root, there[0]).items() if each[:2] + each[3:] == key[:2] + key[3:]]
    return (there[0], alike[0]) if alike else "changed"


class Bench:
    """A copy of the tree, and two of the package: one where faults are planted, and a clean one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tree, self.site, self._clean = folder, folder / "tree", folder / "site", folder / "clean"
        shutil.rmtree(folder, ignore_errors=True)
        left = shutil.ignore_patterns(".git", ".venv", "build", "stompcodec-demo", ".*_cache", "*.egg-info")
        shutil.copytree(ROOT, self.tree, ignore=left, symlinks=True)
        shutil.copytree(PACKAGE, self._clean / "stompcodec")
        shutil.copytree(ROOT / "stompcodec", self._clean / "stompcodec", dirs_exist_ok=True)
        compileall.compile_dir(self._clean, quiet=2)
        shutil.copytree(self._clean, self.site)
        (folder / "tmp").mkdir()

    def pytest(self, site: Path, tests: Iterable[str], pure: bool, seconds: float, *options: str) -> tuple[int, str]:
        """Run tests, and return the exit status and the output."""
        command = [sys.executable, "-u", "-c", _PYTEST.format(round(30 + 3 * seconds)), "-v", "-p", "no:cacheprovider"]
        command += ["-rfE", "--tb=no", f"--basetemp={self.folder}/t", *options, *tests]
        command += ["-m", "not slow and not names_backend" if pure else "not slow"]
        ours = {"HYPOTHESIS_PROFILE": "light", "HYPOTHESIS_STORAGE_DIRECTORY": f"{self.folder}/hypothesis"}
        ours |= {"PYTHONPATH": str(site), "TMPDIR": f"{self.folder}/tmp", "COLUMNS": "500"}
        ours |= {"STOMPCODEC_PURE": "1" if pure else ""}
        with open(self.folder / "output", "w+", encoding="utf-8", errors="replace") as out:
            environment = {**os.environ, **ours}
            process = subprocess.Popen(
                command, 0, None, None, out, out, cwd=self.tree, env=environment, start_new_session=True
            )
            quiet, size = 0, -1
            try:
                while process.poll() is None and quiet < _HANGS:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(1)
                    said = os.fstat(out.fileno()).st_size
                    quiet, size = (quiet + 1 if size == said else 0), said
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            out.seek(0)
            return process.wait(), out.read()

    @contextlib.contextmanager
    def planted(self, places: list[tuple[str, Fault, str]]) -> Iterator[bool]:
        """Plant a text for each fault, and take it away again; the value is whether the C compiler takes it."""
        paths = {file: (self.tree if file.startswith("src/") else self.site) / file for file, _, _ in places}
        before = {path: (path.read_bytes(), path.stat()) for path in paths.values()}
        native = any(file.startswith("src/") for file in paths)
        try:
            for file, fault, text in sorted(places, key=lambda each: -each[1].start):
                data = paths[file].read_bytes()
                paths[file].write_bytes(data[: fault.start] + text.encode() + data[fault.end :])
            yield not native or self._build()
        finally:
            for path, (data, status) in before.items():
                path.write_bytes(data)
                if path.suffix == ".py":  # what was made of any other file is made anew
                    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            for made in self._clean.rglob("*.so") if native else ():
                shutil.copy2(made, self.site / made.relative_to(self._clean))

    def _build(self) -> bool:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(self.site)]
        command += ["--build-temp", f"{self.folder}/objects"]
        ours = {"STOMPCODEC_BUILD_EXTENSION": "yes", "STOMPCODEC_CFLAGS_EXTRA": "-O1 -w"}
        return not subprocess.run(command, cwd=self.tree, env={**os.environ, **ours}, capture_output=True).returncode

    def tried(self, mutant: Mutant, place: tuple[str, Fault], stages: Iterable[Stage]) -> Mutant:
        """Plant a fault, and run the stages until a test notices it."""
        verdict, noticed, spent = "alive", "", 0.0
        with self.planted([(*place, place[1].after)]) as good:
            for tests, pure in stages if good else ():
                left, seconds, began = dict(tests), sum(tests.values()), time.monotonic()
                while left and verdict == "alive":
                    status, output = self.pytest(self.site, left, pure, seconds, "-x")
                    by = _noticed_by(output, left)
                    if status in (0, _NO_TESTS):
                        break
                    if "::" not in by or not self.pytest(self._clean, [by], pure, seconds)[0]:
                        verdict, noticed = ("timeout" if status in _TOO_LONG else "killed"), "pure:" * pure + by
                    elif left.pop(by.partition("[")[0], None) is None:  # it fails without the fault, too
                        break
                spent += time.monotonic() - began
                if verdict != "alive":
                    break
        return mutant._replace(verdict=verdict if good else "invalid", test=noticed, seconds=f"{spent:.0f}")


def _noticed_by(output: str, tests: Iterable[str]) -> str:
    """Return the test that failed, or the last one that began."""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?\.py[\w:]*(?:\[.*?\])?)(?: - .*)?$", output, re.MULTILINE)
    begun = re.findall(r"^(tests/\S+?\.py::.+?)(?: [A-Z]+ +\[ *\d+%\])?$", output, re.MULTILINE)
    return (failed[1] if failed else [*tests, *begun][-1]).strip()


class Judge:
    """A bench, and which tests of a room reach which faults of the list at `path`."""

    def __init__(self, path: Path, mutants: list[Mutant]) -> None:
        name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
        self.folder = Path(tempfile.gettempdir()) / "stompcodec-mutants" / name
        self._bench, self._mutants = Bench(self.folder / "0"), mutants
        self.root, digest = self._bench.tree, hashlib.sha256()
        for file in [*sorted(self.root.glob("tests/**/*.py")), *(self.root / name for name in files(self.root))]:
            digest.update(file.read_bytes())
        self.digest = digest.hexdigest()[:12]

    def _reached(self, folder: str, pure: bool) -> dict[str, tuple[float, list[str]]]:
        """Return the seconds of each test of a folder, and the faults that it reaches."""
        kept = self.folder / f"reach-{self.digest}-{folder}{'-pure' * pure}.json"
        if not kept.exists():
            print(f"measuring what tests/{folder} reaches{', on the Python backend' * pure}", flush=True)
            kept.write_text(json.dumps(self._measured(folder, pure)), encoding="utf-8")
        found: dict[str, tuple[float, list[str]]] = json.loads(kept.read_text(encoding="utf-8"))
        return found

    def _measured(self, folder: str, pure: bool) -> dict[str, tuple[float, list[str]]]:
        bench, notes, places = Bench(self.folder / "reach"), self.folder / "reached", []
        notes.write_text("")
        (bench.site / "stompcodec" / "_reach.py").write_text(_REACH.format(str(notes)))
        for mutant, place in ((mutant, find(self.root, mutant)) for mutant in self._mutants):
            if isinstance(place, tuple) and place[0].endswith(".py"):
                old, hit = place[1].before, _HIT.format(mutant.digest())
                places.append((*place, f"{hit}; {old}" if mutant.operator == "drop" else f"({hit} or ({old}))"))
        with bench.planted(places):
            _, output = bench.pytest(bench.site, [f"tests/{folder}"], pure, 3000, "--durations=0", "--durations-min=0")
        reached: dict[str, tuple[float, list[str]]] = {}
        for seconds, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(tests/[^\[\s]+)", output, re.MULTILINE):
            reached[test] = (reached.get(test, (0.0,))[0] + float(seconds), [])
        if not reached:
            sys.exit(f"the tests of tests/{folder} cannot run:\n{output[-2000:]}")
        for name, test in sorted({tuple(line.split("\t")) for line in notes.read_text().splitlines()}):
            if test in reached:
                reached[test][1].append(name)
        shutil.rmtree(bench.folder)
        return reached

    def _stages(self, mutant: Mutant, room: str) -> Iterator[Stage]:
        """Yield the test that noticed it before, then those of its room that reach it, the quickest first."""
        test = mutant.test.removeprefix("pure:")
        if test and (self.root / test.partition("::")[0]).is_file():
            yield {test: _ONE}, test != mutant.test
        first, native, known = room.split("/")[0], not mutant.file.endswith(".py"), set[str]()
        folders = (_TESTS.get(room) or _TESTS.get(first) or first).split()
        for pure in (False, True)[: 1 if native else 2]:
            times: dict[str, float] = {}
            for folder in folders if not pure else set(folders) & set(_PURE):
                found = self._reached(folder, pure).items()
                times |= {test: each[0] for test, each in found if native or mutant.digest() in each[1]}
            order = sorted(times.keys() - known, key=lambda test: (native and not test.startswith(_FIRST), times[test]))
            for some in (order[:_FEW], order[_FEW:]):
                yield {test: times[test] for test in sorted(some)}, pure
            known |= times.keys()

    def run(self, path: Path, head: str, mutants: list[Mutant], rooms: list[str]) -> list[Mutant]:
        """Try those of these rooms, or of all, that have no verdict, and write the list after each."""
        results = list(mutants)
        waiting = [at for at, each in enumerate(mutants) if each.verdict == "-" and each.room in (rooms or [each.room])]
        for count, at in enumerate(waiting, 1):
            result, place = results[at], find(self.root, results[at])
            if isinstance(place, str):
                results[at] = result._replace(verdict=place)
            else:
                results[at] = self._bench.tried(result, place, self._stages(result, room_of(place[0])))
            written(path, head, results)
            result = results[at]
            print(f"{count}/{len(waiting)} {result.verdict} {result} [{result.seconds} s; {result.test}]", flush=True)
        shutil.rmtree(self._bench.folder)
        return results


def read(path: Path) -> tuple[str, list[Mutant]]:
    """Return the first line of a list, and its mutants."""
    head, _, *lines = path.read_text(encoding="utf-8").splitlines()
    return head, [Mutant(*line.split("\t")) for line in lines]


def written(path: Path, head: str, mutants: list[Mutant]) -> None:
    new = path.with_suffix(".new")
    new.write_text("\n".join([head, *("\t".join(each) for each in [Mutant._fields, *mutants]), ""]), encoding="utf-8")
    new.replace(path)


def summary(mutants: list[Mutant]) -> list[str]:
    """Return a line for each room, and the total."""
    table: dict[str, Counter[str]] = {}
    for mutant in mutants:
        table.setdefault(mutant.room, Counter())[mutant.verdict] += 1
    rows = [*table.items(), ("total", sum(table.values(), Counter()))]
    return [f"{room:12} " + ", ".join(f"{n} {each}" for each, n in sorted(counts.items())) for room, counts in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", nargs="?", type=Path, default=LIST, metavar="LIST", help="tests/mutants.tsv")
    parser.add_argument("--again", action="store_true", help="plant again what was noticed")
    parser.add_argument("--seed", type=int, help="which ones are drawn (42), or with --again chosen (the day's)")
    parser.add_argument("--count", type=int, help="how many are drawn (400), or with --again chosen (all)")
    parser.add_argument("--room", nargs="+", default=[], help="those of these rooms alone")
    parser.add_argument("--report", type=Path, help="write how many were noticed, as JSON")
    given = parser.parse_args()
    os.nice(10)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the tests are ended
    if not given.list.exists():
        seed, count, git = 42 if given.seed is None else given.seed, given.count or 400, ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        written(given.list, f"# {count} faults, seed {seed}, drawn at {commit}", drawn(ROOT, given.room, seed, count))
    path, (head, mutants) = given.list, read(given.list)
    judge = Judge(path, mutants)
    if given.again:
        seed = int(time.time() // 86400) if given.seed is None else given.seed
        mutants = [each for each in mutants if each.verdict in _DEAD and each.room in (given.room or [each.room])]
        mutants = random.Random(seed).sample(mutants, min(len(mutants), given.count or len(mutants)))
        mutants = [each._replace(verdict="-") for each in mutants]
        chosen = hashlib.sha256("".join(map(str, mutants)).encode()).hexdigest()
        path = judge.folder / f"again-{judge.digest}-{chosen[:12]}.tsv"
        mutants = read(path)[1] if path.exists() else mutants
    results = judge.run(path, head, mutants, given.room)
    lost = [each for each in results if each.verdict == "alive"] if given.again else []
    print("", *summary(results), *(f"no longer noticed: {each}" for each in lost), sep="\n")
    if given.report:
        died = sum(each.verdict in _DEAD for each in results)
        report = {"passed": died, "failed": len(lost), "skipped": len(results) - died - len(lost)}
        given.report.write_text(json.dumps(report), encoding="utf-8")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
