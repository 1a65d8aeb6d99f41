"""The way the imports run, sizes of files, and what modules export: read off the sources.

A module imports modules of a lower rank only. Rooms (folders) below rank 11 do not import each other. What a function
imports when it is called may point upward, but only where `LAZY` says so.
"""

import ast
import functools
import importlib
import re
import sys
from pathlib import Path

import pytest

import stompcodec

PACKAGE = Path(stompcodec.__file__).parent
SUITE = PACKAGE / "testing" / "suite"  # files of tests/ that go along
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if SUITE not in path.parents)
TREE = Path(__file__).parents[1]

#: Module, or the folder it is in, to rank. A module that is not here fails the test: give it a place.
RANKS = {
    **dict.fromkeys(["errors", "spec", "selection"], 0),
    "frame": 1,
    **dict.fromkeys(["_scan_py", "_serialize_py", "_ends_py"], 1.5),
    **dict.fromkeys(["_codec_py", "_codec_c"], 2),
    "codec": 3,
    **dict.fromkeys(["content", "states", "heartbeat", "uri", "columns", "capture"], 4),
    "file_access": 3.5,
    "capture_disk": 3.6,
    "capture_index": 3.7,
    "capture_segment": 3.8,
    "capture_writer": 3.9,
    **dict.fromkeys(["detect", "order", "handshake", "pulse"], 4.5),  # parts of connection
    "connection": 5,
    "": 5.5,  # the door, `stompcodec` itself
    "transport": 6,
    **dict.fromkeys([f"broker.{name}" for name in ("message", "selector", "transform", "auth", "store")], 6),
    **dict.fromkeys(
        [
            *("broker.bodies", "broker.bounds", "broker.heap", "broker.helper", "broker.memory", "broker.schema"),
            *("broker.origins", "broker.owners", "broker.ring", "broker.texts"),
        ],
        6,
    ),
    **dict.fromkeys(["broker.checksums", "broker.damage"], 5.9),
    "broker.wal": 5.6,
    "broker.totals": 6,
    "broker.pages": 5.7,
    "broker.rows": 6.2,
    "broker.space": 6,
    "broker.salvage": 7.1,
    "broker.compact": 6.5,
    **dict.fromkeys([f"broker.selector_{name}" for name in ("grammar", "rules", "values")], 5.9),
    **dict.fromkeys(["broker.folder", "broker.garbage", "broker.remover"], 5.8),
    "broker.body_folder": 5.9,
    **dict.fromkeys(["broker.beats", "broker.jms", "broker.spelling", "broker.terms", "broker.ttl"], 6),
    **dict.fromkeys(["broker.marks", "broker.wildcards", "broker.settings"], 6.2),
    **dict.fromkeys(["broker.destination", "broker.dialects", "broker.config"], 6.25),
    **dict.fromkeys(["broker.addresses", "broker.spool", "broker.wanted"], 6.3),
    **dict.fromkeys([f"broker.{name}" for name in ("backlog", "credit", "faults", "forms", "large")], 6.4),
    **dict.fromkeys(["broker.consumer", "broker.journal", "broker.writer"], 6.5),
    "broker.picking": 6.6,
    **dict.fromkeys(["broker.settling", "broker.slices", "broker.spreading", "broker.stock"], 6.8),
    **dict.fromkeys([f"broker.{name}" for name in ("queue", "topic", "sqlite", "outgoing")], 7),
    **dict.fromkeys(["broker.durable", "broker.retained"], 7.1),
    **dict.fromkeys(["broker.browser", "broker.delayed", "broker.topics"], 7.2),
    **dict.fromkeys(["broker.durables", "broker.kept"], 7.25),
    "broker.shares": 6.2,
    "broker.idempotency": 6.6,
    "broker.small_tables": 6.3,
    "broker.audit": 9.5,
    "broker.dead": 7.4,
    **dict.fromkeys([f"client.{name}" for name in ("backoff", "dialects", "forks", "receipts")], 6),
    **dict.fromkeys([f"client.{name}" for name in ("options", "outbox", "subscription")], 6.2),
    "client.message": 6.3,
    **dict.fromkeys(["client.transaction", "client.hooks", "client.handlers"], 6.4),
    "client.link": 6.6,
    "client.intake": 6.8,
    "client.offers": 6.9,
    "client.core": 7,
    "client.engine": 8,
    "client.shell": 9,
    "client.bulk": 9.5,
    **dict.fromkeys(["client.aio_link", "client.sync_link"], 8.5),
    **dict.fromkeys(["client.aio_messages", "client.sync_messages"], 9),
    **dict.fromkeys(["client.aio_calls", "client.sync_calls"], 9.5),
    "broker.sending": 7.3,
    "broker.windows": 7.3,
    "broker.transaction": 7.6,
    **dict.fromkeys(["broker.destinations", "broker.wishlist"], 7.8),
    "broker.framelog": 8.5,
    **dict.fromkeys([f"broker.{name}" for name in ("router", "session", "management", "commands", "subscribing")], 8),
    "broker.core": 9,
    "broker.values": 8,
    "broker.keytable": 9.3,
    "broker.keys": 9.5,
    **dict.fromkeys(["client.aio", "client.sync", "broker.server", "compat"], 10),
    "broker.running": 10.2,
    **dict.fromkeys(["client", "broker"], 10.5),  # their doors
    **dict.fromkeys(["client.recorder", "testing"], 11),
    **dict.fromkeys(
        [f"spark.{name}" for name in ("java", "session", "options", "schema", "versions", "unsuitable")], 11
    ),
    **dict.fromkeys([f"spark.{name}" for name in ("octets", "index", "casts", "ship", "spool")], 11),
    "spark.garbage": 11.05,
    "spark.progress": 11,
    **dict.fromkeys(["spark.options_link", "spark.project"], 11.05),
    **dict.fromkeys([f"spark.{name}" for name in ("decode", "options_live", "options_replay", "options_sink")], 11.1),
    **dict.fromkeys(["spark.cut", "spark.chains", "spark.pack", "spark.sink_lines"], 11.15),
    **dict.fromkeys(["spark.plan", "spark.sink_rows", "spark.functions"], 11.2),
    **dict.fromkeys(["spark.sink"], 11.3),
    **dict.fromkeys(["spark.file", "spark.receiver"], 11.4),
    "spark.replay": 11.4,
    "spark.live": 11.5,
    "spark.jobs": 11.6,
    "spark.report.text": 11.5,
    **dict.fromkeys([f"spark.report.{name}" for name in ("axis", "verdict")], 11.55),
    **dict.fromkeys([f"spark.report.{name}" for name in ("plot", "data", "spool")], 11.6),
    "spark.report.sections": 11.62,
    "spark.report.page": 11.65,
    "spark.report": 11.7,
    "spark.demo.feed": 11.72,
    **dict.fromkeys([f"spark.demo.{name}" for name in ("parts", "proof", "screen", "driver")], 11.75),
    **dict.fromkeys(["spark.demo.run", "spark.demo.send"], 11.78),
    "spark.demo": 11.8,
    "spark": 11.9,
    "cli": 12,
}

#: What a function may import from above, when it is called: (module, imported).
LAZY = {("frame", "content"), ("_codec_py", "columns")}

#: Only the modules of rank 5 and below: they know octets, frames and their order, and nothing of the world.
GROUND_FLOOR = 5
WORLD = {
    "socket",
    "ssl",
    "asyncio",
    "threading",
    "sqlite3",
    "time",
    "random",
    "selectors",
    "subprocess",
    "datetime",
    "uuid",
}

MOST_LINES = 600


def name_of(path):
    """As in RANKS: dots between, without the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def rank_of(name):
    while name and name not in RANKS:
        name = name.rpartition(".")[0]
        assert name, "a module without a rank"
    return RANKS[name]


def room_of(name):
    """The folder a module is in, and nothing for the flat ones."""
    return name.split(".")[0] if (PACKAGE / name.split(".")[0]).is_dir() and name else ""


def imports_of(path, types=False):
    """(imported module, whether a function imports it) for each import statement; those under TYPE_CHECKING only if
    `types`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.walk(node)
    }
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and "TYPE_CHECKING" in ast.dump(node.test)
        and not isinstance(node.test, ast.UnaryOp)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped and not types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            inner = [name for name in names if _is_module(name)]
            yield from ((name, id(node) in lazy) for name in inner or [node.module])


def _is_module(name):
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name.startswith("stompcodec.") and (path.with_suffix(".py").is_file() or path.is_dir())


def inner_imports(path, types=False):
    for imported, lazy in imports_of(path, types):
        if imported == "stompcodec" or imported.startswith("stompcodec."):
            yield imported.partition(".")[2], lazy


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_point_downward(path):
    name = name_of(path)
    for imported, lazy in inner_imports(path):
        if lazy and (name, imported) in LAZY:
            continue
        same_room = room_of(name) and room_of(name) == room_of(imported)
        assert rank_of(imported) < rank_of(name) or (same_room and rank_of(imported) == rank_of(name)), imported


@functools.cache
def _graph():
    """Module -> modules that it imports anywhere in its text, for annotations too; and the same of C's includes."""
    names = {name_of(path) for path in SOURCES}
    graph = {name_of(path): {name for name, _ in inner_imports(path, types=True)} & names for path in SOURCES}
    for path in (TREE / "src").glob("*.[ch]"):
        included = re.findall(r'^#include "(\w+)\.h"', path.read_text(encoding="utf-8"), re.MULTILINE)
        graph.setdefault(f"src/{path.stem}", set()).update(f"src/{name}" for name in included)
    return {name: others - {name} for name, others in graph.items()}


def _circles(graph):
    """The sets of modules that reach each other."""
    reached = {}
    for start in graph:
        seen, ahead = set(), [start]
        while ahead:
            new = graph.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        reached[start] = seen
    circles = {frozenset(b for b in reached[a] if a in reached.get(b, ())) for a in graph if a in reached[a]}
    return sorted(sorted(circle) for circle in circles)


#: Folders in which a circle is left, each to be cut. A strict expected failure: it says so when it is gone.
CIRCLES = ("broker",)
FOLDERS = sorted({name.partition(".")[0] for name in map(name_of, SOURCES) if room_of(name)} | {"", "src"})


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, marks=[pytest.mark.xfail(strict=True, reason="to be cut")] if folder in CIRCLES else [])
        for folder in FOLDERS
    ],
)
def test_there_is_no_circle(folder):
    def belongs(name):
        return name.startswith("src/") if folder == "src" else "/" not in name and room_of(name) == folder

    assert [circle for circle in _circles(_graph()) if any(map(belongs, circle))] == []


def test_a_circle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}, "e": {"f"}, "f": {"g"}, "g": {"e", "a"}}
    assert _circles(graph) == [["b", "c"], ["e", "f", "g"]]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_rooms_do_not_import_rooms(path):
    name = name_of(path)
    for imported, _ in inner_imports(path):
        if room_of(name) and room_of(imported) not in ("", room_of(name), "transport"):
            assert rank_of(name) >= 11, imported


@pytest.mark.parametrize("path", [path for path in SOURCES if rank_of(name_of(path)) <= GROUND_FLOOR], ids=name_of)
def test_the_ground_floor_knows_nothing_of_the_world(path):
    for imported, _ in imports_of(path):
        top = imported.partition(".")[0]
        assert top not in WORLD, imported
        assert top in sys.stdlib_module_names or top == "stompcodec", f"{imported} is no part of Python"


def test_only_codec_names_both_backends():
    naming = {name_of(path) for path in SOURCES if re.search(r"_codec_c\b", path.read_text(encoding="utf-8"))}
    assert naming <= {"codec"}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_exports(path):
    """What is in __all__ exists, once, and in the order of ruff: constants, classes, the rest."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    listed = [ast.literal_eval(node.value) for node in tree.body if _assigns(node, "__all__")]
    if not listed:
        assert not any(_defines(node) for node in tree.body) or path.name == "__main__.py", "no __all__"
        return
    (names,) = listed
    assert len(set(names)) == len(names)
    assert list(names) == sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))
    try:
        module = importlib.import_module(".".join(filter(None, ["stompcodec", name_of(path)])))
        missing = [name for name in names if not hasattr(module, name)]
    except ImportError as error:  # an extra that is not installed
        pytest.skip(str(error))
    assert missing == []


def _assigns(node, name):
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _defines(node):
    return isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")


def test_the_door_is_complete():
    modules = {path.stem for path in PACKAGE.iterdir()}
    names = {name for name in vars(stompcodec) if not name.startswith(("_", "@"))}  # @: pytest's, in what it rewrites
    public = names - modules - {"annotations"}
    assert public | {"__version__"} == set(stompcodec.__all__)


def test_backends_have_one_surface(codec):
    names = {"END_OF_BODY", "HEARTBEAT", "Frame", "Headers", "Parser", "parse_columns", "serialize", "serialize_many"}
    names |= {"frame_ends", "serialize_parts", "serialize_tail"}
    assert names <= set(codec.__all__)
    assert set(codec.__all__) - names <= {"Columns"}
    for name in codec.__all__:
        assert getattr(codec, name).__doc__, name


@pytest.mark.c_only
@pytest.mark.parametrize("name", ["Frame", "Headers", "Parser"])
def test_backends_have_the_same_members(both, name):
    c, py = ({member for member in dir(getattr(module, name)) if not member.startswith("_")} for module in both)
    assert c == py


def _lengths():
    folders = [PACKAGE, TREE / "src", TREE / "tests"]
    suffixes = {".py", ".pyi", ".c", ".h", ".pyx", ".pxi", ".pxd"}
    for folder in folders:
        for path in folder.rglob("*"):
            if SUITE not in path.parents and path.suffix in suffixes and path.name != "_codec_c.c" and path.is_file():
                yield path, len(path.read_text(encoding="utf-8").splitlines())


def test_no_file_is_long():
    """Near the limit, look for a second concept before splitting."""
    assert {str(path): lines for path, lines in _lengths() if lines > MOST_LINES} == {}
