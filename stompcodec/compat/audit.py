"""A linter for programs written for stomp.py, which finds known problems without running them.

Files are parsed, never imported. The rules follow the names that a file imports from stomp.py, and the variables to
which it assigns connections; other uses are not reported.
"""

from __future__ import annotations

import ast
import itertools
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

#: Code -> the problem, and the remedy.
CODES = {
    "no-heart-beats": (
        "the connection has no heart-beats: a dead peer goes unnoticed, and firewalls cut an idle connection",
        "pass heartbeats=(10000, 10000), or call stompcodec.compat.install('stomp.py', heart_beats=(10000, 10000)); "
        "either way, install() keeps them while a listener blocks",
    ),
    "auto-decode": (
        "bodies are decoded as UTF-8: a binary body arrives damaged",
        "pass auto_decode=False, and decode text yourself: frame.body.decode()",
    ),
    "unconfirmed-send": (
        "nothing confirms this SEND: if the connection breaks now, the message is lost without an error",
        'pass receipt="…" and wait for on_receipt, or send inside a transaction and commit with a receipt',
    ),
    "reconnect-in-on-disconnected": (
        "connecting again in on_disconnected blocks the thread that stomp.py ends the old connection with, and retries "
        "without a limit",
        "set an event in on_disconnected, and connect again, with a growing delay, in a loop of a thread of your own",
    ),
}

#: Larger files, in bytes, are not parsed.
LARGEST = 2 << 20

_MODULES = ("stomp", "stompcodec.compat.stomppy")
_INSTALLS = ("stomppy.install", "compat.install")
#: Class of stomp.py -> STOMP version. All but 1.0 have heart-beats.
_CONNECTIONS = {
    **{f"{prefix}Connection10": "1.0" for prefix in ("", "Stomp")},
    **{name: "1.1" for name in ("Connection", "Connection11", "StompConnection11")},
    **{name: "1.2" for name in ("Connection12", "StompConnection12", "WSConnection", "WSStompConnection")},
}
#: The positions of these arguments.
_HEARTBEATS_AT = {"1.1": 9, "1.2": 9}
_AUTO_DECODE_AT = {"1.0": 10, "1.1": 12, "1.2": 12}
_DESTINATIONS = ("/queue/", "/topic/", "/exchange/", "/amq/", "/temp-", "/reply-queue/", "jms.", "queue/", "topic/")
#: Folders with code of others.
_FOREIGN = frozenset(("__pycache__", "node_modules", "site-packages"))
_SUFFIXES = (".py", ".pyw")


class Finding(NamedTuple):
    """A line with a problem.

    >>> [found] = audit_source("import stomp\\nc = stomp.Connection(heartbeats=(1, 1))")
    >>> found.line, found.code
    (2, 'auto-decode')
    """

    file: str
    """The path of the file, from the given folder on."""
    line: int
    column: int
    """Line and column, counted from 1."""
    code: str
    """A key of `CODES`."""

    @property
    def problem(self) -> str:
        """The problem in words."""
        return CODES[self.code][0]

    @property
    def remedy(self) -> str:
        """The remedy in words."""
        return CODES[self.code][1]


class Skipped(NamedTuple):
    """A file that was not checked."""

    file: str
    reason: str


class Report(NamedTuple):
    """The result of `audit`."""

    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    files: int
    """The number of checked files."""


class _Source(NamedTuple):
    """A parsed file."""

    file: str
    nodes: tuple[ast.AST, ...]
    names: dict[str, str]
    """Name in the file -> dotted name of the import."""


def audit(folder: str | os.PathLike[str]) -> Report:
    """Check the Python files of a folder, or one file.

    Links are not followed. Hidden folders, virtual environments, site-packages and node_modules are skipped.

    Args:
        folder: the source of a program.

    Raises:
        OSError: the folder cannot be read.
    """
    top = Path(folder)
    sources: list[_Source] = []
    skipped: list[Skipped] = []
    for path, reason in _files(top):
        parsed = reason or _parse(path)
        if isinstance(parsed, str):
            skipped.append(Skipped(str(path), parsed))
        else:
            sources.append(_source(str(path), parsed))
    findings = sorted(set(_look(sources)))
    return Report(tuple(findings), tuple(skipped), len(sources))


def audit_source(text: str) -> list[Finding]:
    """Check the text of one file; raise the error of Python's parser if it cannot read it.

    >>> [(found.line, found.code) for found in audit_source("import stomp\\nstomp.Connection12()")]
    [(2, 'auto-decode'), (2, 'no-heart-beats')]
    """
    return sorted(set(_look([_source("<source>", ast.parse(text))])))


def _files(top: Path) -> Iterator[tuple[Path, str]]:
    """Yield the paths of Python files, each with the reason to skip it, or ""."""
    if not top.is_dir():
        os.stat(top)  # raises if it does not exist
        yield top, ""
        return
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            if folder == top:
                raise
            yield folder, error.strerror or "cannot be read"
            continue
        for entry in entries:
            path = folder / entry.name
            if entry.is_symlink():
                if entry.name.endswith(_SUFFIXES):
                    yield path, "a link"
            elif entry.is_dir(follow_symlinks=False):
                hidden = entry.name.startswith(".") or entry.name in _FOREIGN
                if not hidden and not (path / "pyvenv.cfg").exists():
                    folders.append(path)
            elif entry.name.endswith(_SUFFIXES):
                yield path, "" if entry.is_file(follow_symlinks=False) else "not a regular file"


def _parse(path: Path) -> ast.Module | str:
    """Return the tree of a file, or the reason to skip it."""
    try:
        data = _read(path)
        if isinstance(data, str):
            return data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except OSError as error:
        return error.strerror or "cannot be read"
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        return f"not Python: {error.msg}{where}"
    except (RecursionError, MemoryError):
        return "nested too deeply"
    except (ValueError, LookupError) as error:
        return f"not Python: {error}"


def _read(path: Path) -> bytes | str:
    # A file may have become a link or a pipe since its folder was listed.
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return "not a regular file"
        data = file.read(LARGEST + 1)
    return data if len(data) <= LARGEST else f"larger than {LARGEST >> 20} MiB"


def _source(file: str, tree: ast.Module) -> _Source:
    nodes = tuple(ast.walk(tree))
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if alias.name != "*":
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                elif _of_stomp(node.module):
                    names.update({name: f"{node.module}.{name}" for name in (*_CONNECTIONS, "ConnectionListener")})
    return _Source(file, nodes, names)


def _of_stomp(dotted: str) -> bool:
    return any(dotted == module or dotted.startswith(f"{module}.") for module in _MODULES)


def _look(sources: list[_Source]) -> Iterator[Finding]:
    programs = [_Program(source) for source in sources]
    known = any(program.uses_stomp for program in programs)
    beats = any(program.installs_beats() for program in programs)
    for program in programs:
        found: list[tuple[ast.AST, str]] = []
        if program.uses_stomp:
            found += program.connections(beats)
            found += program.reconnects()
        if known:
            found += program.sends()
        for node, code in found:
            yield Finding(program.file, node.lineno, node.col_offset + 1, code)  # type: ignore[attr-defined]


class _Program:
    """One file, with the meanings of its names."""

    def __init__(self, source: _Source) -> None:
        self.file, self.nodes, self._names = source
        self.uses_stomp = any(_of_stomp(name) for name in self._names.values())
        self._calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        #: Headers in a variable are assumed to have a receipt if the file contains that name.
        self._writes_receipt = any(isinstance(node, ast.Constant) and node.value == "receipt" for node in self.nodes)
        self._modules = {
            alias.asname or alias.name for node in self.nodes if isinstance(node, ast.Import) for alias in node.names
        }
        #: Connection class of the file -> STOMP version.
        self._own: dict[str, str] = {}
        self._bases: list[tuple[ast.ClassDef, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    version = self._version_of(base)
                    if version:
                        self._own[node.name] = version
                        self._bases.append((node, version))
        self._variables = set(self._connection_variables())

    def _dotted(self, node: ast.AST | None) -> str:
        """Return `a.b.c` as text, with its first name resolved to the import; "" for other expressions."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._names.get(node.id, node.id), *reversed(parts)])

    def _version_of(self, node: ast.AST | None) -> str:
        """Return the STOMP version of a connection class; "" for other expressions."""
        dotted = self._dotted(node)
        if dotted in self._own:
            return self._own[dotted]
        return _CONNECTIONS.get(dotted.rpartition(".")[2], "") if _of_stomp(dotted) else ""

    def _connection_variables(self) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                made = isinstance(node.value, ast.Call) and self._version_of(node.value.func)
                if made or (isinstance(node, ast.AnnAssign) and self._version_of(node.annotation)):
                    yield from map(self._dotted, node.targets if isinstance(node, ast.Assign) else [node.target])
            elif isinstance(node, ast.arg) and self._version_of(node.annotation):
                yield node.arg

    def installs_beats(self) -> bool:
        """Return whether the program calls `install(heart_beats=…)`."""
        for call in self._calls:
            given = _keyword(call, "heart_beats")
            if given is not None and not _is_no_pair(given) and self._dotted(call.func).endswith(_INSTALLS):
                return True
        return False

    def connections(self, beats: bool) -> Iterator[tuple[ast.AST, str]]:
        """Yield connections without heart-beats, and connections that decode bodies."""
        made = []
        wrapped = set()  # classes that choose the arguments of their base
        for node, version in self._bases:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    wrapped.add(node.name)
                    made += [(call, version) for call in _calls_of(item) if _is_super_init(call)]
        for call in self._calls:
            if self._dotted(call.func) not in wrapped:
                made.append((call, self._version_of(call.func)))
        for call, version in made:
            if not version or any(isinstance(each, ast.Starred) for each in call.args):
                continue
            if any(each.arg is None for each in call.keywords):  # **options
                continue
            own = _keyword(call, "heart_beats")
            pair = _argument(call, "heartbeats", _HEARTBEATS_AT.get(version))
            none = version == "1.0" or ((pair is None or _is_no_pair(pair)) and not beats)
            if none and (own is None or _is_no_pair(own) or version == "1.0"):
                yield call, "no-heart-beats"
            decodes = _argument(call, "auto_decode", _AUTO_DECODE_AT[version])
            if decodes is None or _is(decodes, True):
                yield call, "auto-decode"

    def sends(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield unconfirmed SENDs."""
        inside = {id(call) for node, _ in self._bases for call in _calls_of(node)}
        for call in self._calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "send":
                continue
            names = {each.arg for each in call.keywords}
            if None in names or names & {"receipt", "transaction"}:
                continue
            owner = self._dotted(call.func.value)
            known = bool(owner) and (owner in self._variables or (owner == "self" and id(call) in inside))
            if not known and not {"destination", "body"} <= names and not (self.uses_stomp and _names_a_queue(call)):
                continue
            if not self._has_receipt(_argument(call, "headers", 3)):
                yield call, "unconfirmed-send"

    def _has_receipt(self, headers: ast.expr | None) -> bool:
        if isinstance(headers, ast.Dict):
            # key is None: a mapping is unpacked here
            return any(key is None or _is(key, "receipt") or _is(key, "transaction") for key in headers.keys)
        if headers is None or _is(headers, None):
            return False
        return self._writes_receipt

    def reconnects(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield calls in on_disconnected that connect again, directly or through functions of the file."""
        functions: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions.setdefault(node.name, []).append(node)
        starts = functions.pop("on_disconnected", [])
        if not starts:
            return
        connecting = {  # functions that connect
            name
            for name, found in functions.items()
            if any(map(self._connects, itertools.chain(*map(_calls_of, found))))
        }
        callers: dict[str, set[str]] = {}
        for name, found in functions.items():
            for call in itertools.chain(*map(_calls_of, found)):
                callers.setdefault(_name_of(call), set()).add(name)
        waiting = [*connecting]
        while waiting:  # and those that call them
            more = callers.get(waiting.pop(), set()) - connecting
            connecting |= more
            waiting += more
        for call in itertools.chain(*map(_calls_of, starts)):
            if self._connects(call) or _name_of(call) in connecting:
                yield call, "reconnect-in-on-disconnected"

    def _connects(self, call: ast.Call) -> bool:
        """Return whether a call is `connect` of an object, not of a module as in sqlite3.connect."""
        target = call.func
        if not isinstance(target, ast.Attribute) or target.attr != "connect":
            return False
        return not (isinstance(target.value, ast.Name) and target.value.id in self._modules)


def _name_of(call: ast.Call) -> str:
    target = call.func
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def _calls_of(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _is_super_init(call: ast.Call) -> bool:
    target = call.func
    if not isinstance(target, ast.Attribute) or target.attr != "__init__" or not isinstance(target.value, ast.Call):
        return False
    return isinstance(target.value.func, ast.Name) and target.value.func.id == "super"


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def _argument(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    given = _keyword(call, name)
    if given is None and position is not None and position < len(call.args):
        return call.args[position]
    return given


def _is(node: ast.AST | None, value: Any) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def _is_no_pair(node: ast.expr) -> bool:
    """Return whether a node is `(0, 0)`, None or False."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(_is(each, 0) for each in node.elts)
    return _is(node, None) or _is(node, False)


def _names_a_queue(call: ast.Call) -> bool:
    """Return whether the destination is a literal."""
    node = _argument(call, "destination", 0)
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_DESTINATIONS)
