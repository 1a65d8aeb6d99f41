"""Plant faults in the package, one at a time, and see whether the tests of the room notice each.

    python scripts/mutations.py [LIST] [--seed N] [--count N] [--room ROOM ...]
    python scripts/mutations.py [LIST] --again [--count N] [--seed N] [--room ROOM ...]

A LIST (tests/mutants.tsv) that does not exist is drawn: COUNT faults, from each room in proportion to its lines, one
for each function, all operators alike; seed and functions alone decide. Those without a verdict are tried, so a run
that was interrupted goes on where it was.

--again leaves LIST as it is: what tests noticed is planted again, and must be noticed; with --count, so many, chosen by
--seed. A fault is found by the name of its function and its text. All of it happens in temporary copies of the tree.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import hashlib
import itertools
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
from collections import Counter, namedtuple
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

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
#: A file, a room or its first folder -> its tests, below tests/. Any other: the folder of that name.
_TESTS = {
    **{"core": "codec protocol client test_values.py test_arguments.py", "c": "codec protocol", "c/plain": "broker"},
    **{"transport": "transport client", "testing": "testing transport client", "stompcodec/shown.py": "cli"},
    **{"capture": "capture broker cli", "stompcodec/disk.py": "capture broker cli", "bridge": "bridge cli"},
}
#: Folders whose tests run on the Python backend, too.
_PURE = ("codec", "protocol", "capture", "broker")
#: Files that notice most faults in C, and soon.
_FIRST = ("tests/codec/test_vectors.py", "tests/broker/test_scenarios.py")
#: Tests in the first run, before all the others that reach a fault.
_FEW = 30
_FORKING = [sys.executable, "-P", str(Path(__file__).with_name("forking.py")), "0", "-q", "-p", "no:cacheprovider"]
#: Seconds that a test takes whose time is unknown.
_ONE = 10.0
#: Verdicts of those that tests notice. Others: alive, invalid (the compiler refuses it), gone, changed.
_DEAD = ("killed", "timeout")
#: sitecustomize.py: what each process, those that tests start included, notes of the statements that it comes to. One
#: that is started by a fixture may serve all tests.
_REACH = """import builtins, os
seen, last, shared = set(), None, os.environ.get("PYTEST_CURRENT_TEST", "").endswith("(setup)")
def hit(place, opened=open, tests=os.environ._data):
    global last
    test = tests.get(b"PYTEST_CURRENT_TEST")
    if test is not last:
        seen.clear()
        last = test
    if place not in seen:
        seen.add(place)
        name = b"*" if shared else (test or b"").rpartition(b" ")[0].partition(b"[")[0]
        try:
            with opened({!r}, "ab", 0) as out:
                out.write(name + b"\\t" + place.encode() + b"\\n")
        except OSError:  # a test lets it want for descriptors or space
            seen.discard(place)
builtins._hit_ = hit
"""
#: The seconds of tests, and which of them come to each place; the first stands for imports.
Reached = tuple[dict[str, float], dict[str, list[int]]]
#: Tests and their seconds, on the Python backend if `pure`, in a process that is started `anew` or in a fork. The
#: broker's modules are compiled there only if the fault is one of C.
Stage = namedtuple("Stage", "tests pure anew")


class Fault(namedtuple("Fault", "function operator line before after start end at", defaults=[0])):
    """Bytes of a file from `start` to `end`, and what is planted there; in Python, the statement begins `at` a line."""

    @property
    def key(self) -> tuple[str, ...]:
        """What it is found by: each text on one line."""
        return tuple(" ".join(each.split()) for each in self[:5])


_FIELDS = "room file function operator line before after verdict test seconds"


class Mutant(namedtuple("Mutant", _FIELDS, defaults=["-", "", "0"])):
    """A line of the list: the key of a fault, whether its tests noticed it and which one did, and seconds."""

    def __str__(self) -> str:
        return f"{self.file} {self.function}: {self.operator}: {self.before} -> {self.after}"

    def digest(self, seed: int) -> str:
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
                for at, operator, place, text in (each for part in body for each in self._inside(part, 0)):
                    line = self._data[self._starts[place.lineno - 1] :].partition(b"\n")[0].decode()
                    yield Fault(scope + child.name, operator, line, self._text(place), text, *self._span(place), at)
                yield from self.faults(child, f"{scope}{child.name}.")
            elif not isinstance(child, ast.expr):
                yield from self.faults(child, scope)

    def _inside(self, node: ast.AST, at: int) -> Iterator[tuple[int, str, ast.expr | ast.stmt, str]]:
        if isinstance(node, _SKIPPED) or (isinstance(node, ast.stmt) and _TALK.match(self._text(node))):
            return
        at = node.lineno if isinstance(node, ast.stmt) else at
        yield from ((at, *each) for each in self._own(node))
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if name not in ("annotation", "returns") and isinstance(child, ast.AST):
                    yield from self._inside(child, at)

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


def noting(text: bytes, file: str) -> str:
    """Return a Python file in which each statement of a function is noted before it runs."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for node in {each for function in functions for each in ast.walk(function)}:
        for block in (each for _, each in ast.iter_fields(node) if isinstance(each, list)):
            for at in reversed([at for at, part in enumerate(block) if isinstance(part, ast.stmt)]):
                if not (isinstance(block[at], ast.Expr) and isinstance(block[at].value, ast.Constant)):  # no docstring
                    block[at:at] = ast.parse(f"_hit_({f'{file}:{block[at].lineno}'!r})").body
    return ast.unparse(tree)


@cache
def files(root: Path) -> list[str]:
    found = [path for ending in ("py", "c", "h", "pyx", "pxi") for path in root.glob(f"s*/**/*.{ending}")]
    names = sorted(path.relative_to(root).as_posix() for path in found)
    return [name for name in names if name.startswith(("stompcodec/", "src/")) and name != "src/_codec_c.c"]


def room_of(file: str) -> str:
    """Return the room of a file: its first two folders, core without any, c for src."""
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


class Judge:
    """A copy of the tree and of the package, where faults are planted, and the processes whose tests try them."""

    def __init__(self, path: Path) -> None:
        self.kept = Path(tempfile.gettempdir()) / "stompcodec-mutants"
        self.folder = self.kept / hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
        self.tree, self.site = self.folder / "tree", self.folder / "site"
        shutil.rmtree(self.folder, ignore_errors=True)
        left = shutil.ignore_patterns(".git", ".venv", "build", "stompcodec-demo", ".*_cache", "*.egg-info")
        shutil.copytree(ROOT, self.tree, ignore=left, symlinks=True)
        shutil.copytree(PACKAGE, self.site / "stompcodec")
        shutil.copytree(ROOT / "stompcodec", self.site / "stompcodec", dirs_exist_ok=True)
        compileall.compile_dir(self.site, quiet=2)
        (self.folder / "tmp").mkdir()
        self._processes: dict[tuple[Path, tuple[str, ...], bool, bool], subprocess.Popen[str]] = {}
        self._reached: dict[tuple[str, bool], Reached] = {}
        self._times = itertools.count(1_000_000_000)

    def _process(
        self, folders: tuple[str, ...], pure: bool, compiled: bool = False, site: Path | None = None
    ) -> subprocess.Popen[str]:
        """Return the process of some folders. One that is started while a fault stands would have it for ever."""
        key = (site or self.site, folders, pure, compiled)
        if {each[:2] for each in self._processes} - {key[:2]}:
            self.close()
        if key not in self._processes:
            command = [*_FORKING, f"--basetemp={self.folder}/t", "-m", f"not slow{' and not names_backend' * pure}"]
            ours = {"HYPOTHESIS_PROFILE": "light", "HYPOTHESIS_STORAGE_DIRECTORY": f"{self.folder}/hypothesis"}
            ours |= {"PYTHONPATH": str(key[0]), "TMPDIR": f"{self.folder}/tmp", "PYTEST_CURRENT_TEST": ""}
            given: dict[str, Any] = {"env": {**os.environ, **ours, "STOMPCODEC_PURE": "1" if pure else ""}}
            given["env"]["STOMPCODEC_PLAIN"] = "" if compiled else "0"
            given |= {"cwd": self.tree, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            with open(self.folder / "output", "a") as out:
                command += [f"tests/{folder}" for folder in folders]
                self._processes[key] = subprocess.Popen(command, stderr=out, **given)
            self._answer(self._processes[key], Stage({"": 0.0}, pure, False))
        return self._processes[key]

    def _answer(self, process: Any, stage: Stage, file: str = "") -> tuple[str, str, dict[str, float]]:
        """Return what scripts/forking.py says of the tests of a stage."""
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([stage.tests, file, stage.anew]), file=process.stdin, flush=True)
        said = process.stdout.readline() or sys.exit(f"pytest has ended: see {self.folder}/output")
        verdict, test, seconds = json.loads(said)
        return verdict, test or next(iter(stage.tests), ""), seconds

    def close(self) -> None:
        """End the processes, and the tests that they run."""
        for process in self._processes.values():
            process.terminate()
            process.communicate()
        self._processes.clear()

    @contextlib.contextmanager
    def planted(self, file: str, fault: Fault) -> Iterator[bool]:
        """Plant a fault, and take it away again; the value is whether the C compiler takes it."""
        native = file.startswith("src/")
        path = (self.tree if native else self.site) / file
        paths = [path, *(self.site.rglob("*.so") if native else ())]
        before = [(each, each.read_bytes(), each.stat()) for each in paths]
        for each in paths:
            each.unlink()  # processes go on with what they have of it
        try:
            data = before[0][1]
            path.write_bytes(data[: fault.start] + fault.after.encode() + data[fault.end :])
            if not native:  # its time and size tell a cache that it is not the fault before
                os.utime(path, (0, next(self._times)))
            yield not native or self._build()
        finally:
            for each, data, status in before:
                each.unlink(missing_ok=True)
                each.write_bytes(data)
                if self.site in each.parents:  # what was made of any other file is made anew
                    os.utime(each, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _build(self) -> bool:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(self.site)]
        command += ["--build-temp", f"{self.folder}/objects"]
        ours = {"STOMPCODEC_BUILD_EXTENSION": "yes", "STOMPCODEC_CFLAGS_EXTRA": "-O1 -w"}
        return not subprocess.run(command, cwd=self.tree, env={**os.environ, **ours}, capture_output=True).returncode

    def reached(self, folder: str, pure: bool) -> Reached:
        """Return what the tests of a folder come to, measured once for what the package and these tests are now."""
        if (folder, pure) not in self._reached:
            paths = [*self.tree.glob("tests/*.py"), *self.tree.glob(f"tests/{folder}/**/*.py")]
            digest = hashlib.sha256()
            for path in [*sorted(paths), *(self.tree / name for name in files(self.tree))]:
                digest.update(path.read_bytes())
            kept = self.kept / f"reach-{folder}{'-pure' * pure}-{digest.hexdigest()[:12]}.json"
            if not kept.exists():
                kept.write_text(json.dumps(self._measured(folder, pure)), encoding="utf-8")
            self._reached[folder, pure] = json.loads(kept.read_text(encoding="utf-8"))
        return self._reached[folder, pure]

    def _measured(self, folder: str, pure: bool) -> Reached:
        print(f"measuring what tests/{folder} reaches{', on the Python backend' * pure}", flush=True)
        site, notes = self.folder / "noting", self.folder / "notes"
        shutil.copytree(PACKAGE, site / "stompcodec")
        (site / "sitecustomize.py").write_text(_REACH.format(str(notes)))
        notes.touch()
        for file in (name for name in files(self.tree) if name.endswith(".py")):
            (site / file).write_text(noting((self.tree / file).read_bytes(), file), encoding="utf-8")
        seconds = {"": 0.0} | self._answer(self._process((folder,), pure, site=site), Stage({}, pure, False))[2]
        self.close()
        numbers, places = {name: at for at, name in enumerate(seconds)}, dict[str, list[int]]()
        for test, place in {tuple(line.split("\t")) for line in notes.read_text().splitlines()}:
            if test in numbers or test == "*":
                places.setdefault(place, []).extend([numbers[test]] if test != "*" else range(1, len(numbers)))
        shutil.rmtree(site)
        notes.unlink()
        return seconds, places

    def _stages(self, folders: tuple[str, ...], mutant: Mutant, file: str, fault: Fault) -> Iterator[Stage]:
        """Yield the test that noticed it before, then those of its room that reach it, the quickest first."""
        test, native = mutant.test.removeprefix("pure:"), not file.endswith(".py")
        if test:
            yield Stage({test: _ONE}, test != mutant.test, native)
        known = set[str]()
        rooms = [(folder, pure) for pure in (False, True) for folder in folders if not pure or folder in _PURE]
        for folder, pure in rooms[: len(folders) if native else None]:
            seconds, places = self.reached(folder, pure)
            names = list(seconds)
            reaching = set(names) if native else {names[at] for at in places.get(f"{file}:{fault.at}", ())}
            left = [test for test in names if test in reaching - known]  # some pass in their own order only
            left.sort(key=lambda test: native and not test.startswith(_FIRST))
            quick = set(left if native else sorted(left, key=seconds.__getitem__)[:_FEW])
            for some in ([test for test in left if test in quick], [test for test in left if test not in quick]):
                yield Stage({test: seconds[test] for test in some}, pure, native)
            known |= reaching
        if "" in known and not native:  # it ran when the process was started, which has seen nothing of the fault
            for folder in folders:
                yield Stage(self.reached(folder, False)[0], False, True)

    def tried(self, mutant: Mutant, file: str, fault: Fault) -> Mutant:
        """Plant a fault, and run the tests that reach it until one notices it that passes without."""
        began, unfit, room = time.monotonic(), set[str](), room_of(file)
        places = (file, room, room.split("/")[0])
        folders = tuple(next(filter(None, map(_TESTS.get, places)), places[-1]).split())
        verdict, test, stages = "alive", "", self._stages(folders, mutant, file, fault)
        while verdict == "alive" and (stage := next(stages, None)):
            stage = stage._replace(tests={name: stage.tests[name] for name in stage.tests if name not in unfit})
            if not stage.tests:
                continue
            process = self._process(folders, stage.pure, not file.endswith(".py"))
            with self.planted(file, fault) as good:
                verdict, test, _ = self._answer(process, stage, str(self.site / file)) if good else ("invalid", "", {})
            if verdict in _DEAD and self._answer(process, stage._replace(tests={test: _ONE}))[0] != "alive":
                print(f"  fails without the fault, too: {test}", flush=True)
                unfit |= {test, test.partition("[")[0]}
                verdict, stages = "alive", self._stages(folders, mutant, file, fault)
        test = "pure:" * stage.pure + test if verdict in _DEAD else ""
        return mutant._replace(verdict=verdict, test=test, seconds=f"{time.monotonic() - began:.0f}")

    def run(self, path: Path | None, head: str, mutants: list[Mutant], rooms: list[str]) -> list[Mutant]:
        """Try those of these rooms, or of all, that have no verdict, and write the list after each."""
        results = list(mutants)
        waiting = [at for at, each in enumerate(mutants) if each.verdict == "-" and each.room in (rooms or [each.room])]
        for count, at in enumerate(waiting, 1):
            mutant, place = results[at], find(self.tree, results[at])
            mutant = mutant._replace(verdict=place) if isinstance(place, str) else self.tried(mutant, *place)
            results[at] = mutant
            if path:
                written(path, head, results)
            print(f"{count}/{len(waiting)} {mutant.verdict} {mutant} [{mutant.seconds} s; {mutant.test}]", flush=True)
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
    head, mutants = read(given.list)
    if given.again:
        seed = int(time.time() // 86400) if given.seed is None else given.seed
        mutants = [each for each in mutants if each.verdict in _DEAD and each.room in (given.room or [each.room])]
        mutants = random.Random(seed).sample(mutants, min(len(mutants), given.count or len(mutants)))
        mutants = sorted(each._replace(verdict="-") for each in mutants)
    with contextlib.closing(Judge(given.list)) as judge:
        results = judge.run(None if given.again else given.list, head, mutants, given.room)
    shutil.rmtree(judge.folder)
    lost = [each for each in results if each.verdict == "alive"] if given.again else []
    print("", *summary(results), *(f"no longer noticed: {each}" for each in lost), sep="\n")
    if given.report:
        died = sum(each.verdict in _DEAD for each in results)
        report = {"passed": died, "failed": len(lost), "skipped": len(results) - died - len(lost)}
        given.report.write_text(json.dumps(report), encoding="utf-8")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
