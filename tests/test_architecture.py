"""Which way imports run (down `FLOORS`), how large files are, and what modules export: read off the sources."""

import ast
import functools
import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import stompcodec

PACKAGE = Path(stompcodec.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
TREE = Path(__file__).parents[1]
#: For a folder of the package ("" is the package itself): what is in it, from low to high. What stands between two ">"
#: imports only what stands before it, and not each other. The modules of a folder that is not here are only free of
#: circles. A module without a place fails the test: give it one.
FLOORS = {
    "": "_lean > arguments, errors, spec > content > frame > columns > _scan_py > _codec_py > codec > states, values"
    " > uri > connection > __init__ > disk, shown > transport, capture > client, broker > bridge, compat, testing"
    " > spark > cli > __main__",
    "broker": "hot, memory, values > loop_quota, auth > settings > config > message > bodies > connections"
    " > selectors, storage > queues > routing > sessions > core > management > web > server > __init__",
    "spark": "base, options, sessions > link > reading > receiver, sink > live, functions > jobs > report > __init__",
    "cli": "screen, streams > app, inputs > connecting, figures, linting, packets, show"
    " > files, looking, proxying > verbs > __init__ > __main__",
    "bridge": "mapping > headers > sources > carrier > bridge > __init__",
    "capture": "places > index > archive > writer > __init__",
    "client": "headers, bodies, runs > dialects, outbox > messages > backoff, middleware"
    " > middleware.otel, middleware.prometheus, options > handlers > link > inbound > core > hub, owner > engine"
    " > shell > aio, sync > __init__ > recorder",
}
MOST_MODULES = 24
#: What the ground floor does not know: it knows bytes, frames and their order, and nothing of the world.
WORLD = {
    *("socket", "ssl", "asyncio", "threading", "sqlite3", "time"),
    *("random", "selectors", "subprocess", "datetime", "uuid"),
}
LONGEST_FUNCTION = 50


def name_of(path):
    """As in FLOORS: dots between, without the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(name):
    return name.split(".")[0] if (PACKAGE / name.split(".")[0]).is_dir() and name else ""


def imports_of(path, types=True):
    """The modules that import statements name, wherever they stand; those under TYPE_CHECKING only if `types`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
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
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            inner = [name for name in names if _is_module(name)]
            yield from inner if len(inner) == len(names) else [*inner, node.module]


def inner_imports(path):
    for imported in imports_of(path):
        if imported == "stompcodec" or imported.startswith("stompcodec."):
            yield imported.partition(".")[2]


def _is_module(name):
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name.startswith("stompcodec.") and (path.with_suffix(".py").is_file() or path.is_dir())


@functools.cache
def _graph():
    """Module -> modules that it imports anywhere in its text, for annotations too; and the same of C's includes."""
    names = {name_of(path) for path in SOURCES}
    graph = {name_of(path): set(inner_imports(path)) & names for path in SOURCES}
    for path in (TREE / "src").rglob("*.[ch]"):
        included = re.findall(r'^#include "(\w+)\.h"', path.read_text(encoding="utf-8"), re.MULTILINE)
        graph.setdefault(f"src/{path.stem}", set()).update(f"src/{name}" for name in included)
    return {name: others - {name} for name, others in graph.items()}


def _circles(graph):
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


def _places():
    """(folder, entry) -> number of its line, for each entry of FLOORS."""
    for folder, floors in FLOORS.items():
        for number, line in enumerate(floors.split(" > ")):
            for entry in line.split(", "):
                yield (folder, entry), number


PLACES = dict(_places())


def place_of(name, folder):
    """The entry of FLOORS in which a module stands, seen from a folder; None for one outside, and for some doors."""
    if name == folder:
        return "__init__" if (folder, "__init__") in PLACES else None
    if folder and not name.startswith(f"{folder}."):
        return None
    inner = name.removeprefix(f"{folder}.") if folder else name
    while inner:
        if (folder, inner) in PLACES:
            return inner
        inner = inner.rpartition(".")[0]
    raise AssertionError(f"a module without a place in FLOORS: {name}")


def _upward():
    """The imports that do not point down, as `module -> imported`."""
    for name, others in _graph().items():
        for other in others if "/" not in name else ():
            if any(_points_up(place_of(name, folder), place_of(other, folder), folder) for folder in FLOORS):
                yield f"{name} -> {other}"


def _points_up(here, there, folder):
    return None not in (here, there) and here != there and PLACES[folder, there] >= PLACES[folder, here]


def test_imports_point_downward():
    for folder in FLOORS:
        for path in SOURCES:
            place_of(name_of(path), folder)
    assert sorted(_upward()) == []


FOLDERS = sorted({name.partition(".")[0] for name in map(name_of, SOURCES) if room_of(name)} | {"", "src"})


@pytest.mark.parametrize("folder", FOLDERS)
def test_there_is_no_circle(folder):
    def belongs(name):
        return name.startswith("src/") if folder == "src" else "/" not in name and room_of(name) == folder

    assert [circle for circle in _circles(_graph()) if any(map(belongs, circle))] == []


def test_folders_files_and_functions_have_a_measure():
    modules = Counter(path.parent for path in SOURCES if path.name != "__main__.py")
    del modules[PACKAGE / "cli" / "verbs"]
    assert [str(folder) for folder, count in modules.items() if count > MOST_MODULES] == []
    assert [str(path) for path in _texts() if path.read_text(encoding="utf-8").count("\n") > 1000] == []
    functions = (
        (f"{name_of(path)}.{node.name}", node.end_lineno - node.lineno + 1)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    assert sorted(name for name, lines in functions if lines > LONGEST_FUNCTION) == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.parent == PACKAGE], ids=name_of)
def test_the_ground_floor_knows_nothing_of_the_world(path):
    for imported in imports_of(path, types=False):
        top = imported.partition(".")[0]
        assert top not in WORLD, imported
        assert top in sys.stdlib_module_names or top == "stompcodec", f"{imported} is no part of Python"


def test_only_codec_names_both_backends():
    naming = {name_of(path) for path in SOURCES if re.search(r"_codec_c\b", path.read_text(encoding="utf-8"))}
    assert naming <= {"codec"}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_exports(path):
    listed = re.search(r"^__all__ = (\[.*?\]|\(.*?\))$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if listed is None:
        return
    names = ast.literal_eval(listed[1])
    assert len(set(names)) == len(names)
    assert list(names) == sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))
    try:
        module = importlib.import_module(".".join(filter(None, ["stompcodec", name_of(path)])))
        missing = [name for name in names if not hasattr(module, name)]
    except ImportError as error:  # an extra that is not installed
        pytest.skip(str(error))
    assert missing == []


def test_the_door_is_complete():
    modules = {path.stem for path in PACKAGE.iterdir()}
    assert stompcodec.Role  # is there, with Connection, once it was asked for
    names = {name for name in vars(stompcodec) if not name.startswith(("_", "@"))}  # @: pytest's, in what it rewrites
    public = names - modules - {"annotations", "TYPE_CHECKING"}
    assert public | {"__version__"} == set(stompcodec.__all__)


def test_backends_have_one_surface(codec):
    names = {"END_OF_BODY", "HEARTBEAT", "Frame", "Headers", "Parser", "parse_columns", "serialize", "serialize_many"}
    names |= {"frame_ends", "serialize_parts", "serialize_tail", "read_websocket", "write_websocket"}
    assert names <= set(codec.__all__)
    assert set(codec.__all__) - names <= {"Columns"}
    for name in codec.__all__:
        assert getattr(codec, name).__doc__, name


def _texts():
    suffixes = {".py", ".pyi", ".c", ".h", ".pyx", ".pxi", ".pxd"}
    paths = (path for folder in (PACKAGE, TREE / "src", TREE / "tests") for path in folder.rglob("*"))
    return [path for path in paths if path.suffix in suffixes and path.name != "codec.c" and path.is_file()]
