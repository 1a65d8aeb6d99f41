"""Draw the floors of the package from its import statements, as a block of ARCHITECTURE.md.

    draw_floors.py            write the block
    draw_floors.py --check    exit status 1 if the block is not what the imports say

Every import counts, wherever it stands: at the top of a module, in a function, or under TYPE_CHECKING. A module stands
on the lowest floor that is above all that it imports.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import wrap

from page_blocks import ROOT, run

PACKAGE = ROOT / "stompcodec"
SOURCES = ROOT / "src"
#: Files of tests/ that go along in the package.
LEFT_OUT = PACKAGE / "testing" / "suite"
GROUND = "ground floor"
#: What the C backend is for this drawing: the module, and what it includes or declares.
CYTHON = "codec"
WIDTH = 118

Graph = dict[str, set[str]]


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Return the modules of the package by name, such as "broker.queues.queue"; a folder stands for its __init__."""
    paths = (path for path in package.rglob("*.py") if LEFT_OUT not in path.parents)
    return {".".join(path.relative_to(package).with_suffix("").parts): path for path in paths}


def imports(package: Path = PACKAGE) -> Graph:
    """Return which modules each module imports."""
    files = modules(package)

    def module_of(name: str) -> str | None:
        for each in (name, f"{name}.__init__".removeprefix(".")):
            if each in files:
                return each
        return None

    graph: Graph = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                # A name that is no module comes from the module before it.
                wanted = [
                    inner if module_of(_inside(inner)) else str(node.module)
                    for inner in (f"{node.module}.{alias.name}" for alias in node.names)
                ]
            else:
                continue
            inside = [_inside(each) for each in wanted if each.split(".")[0] == package.name]
            graph[name] |= {found for each in inside if (found := module_of(each)) is not None} - {name}
    return graph


def _inside(name: str) -> str:
    """Return a name without that of the package."""
    return name.partition(".")[2]


def includes(folder: Path) -> Graph:
    """Return the same of the C backend: x.c and x.h are one node, and all that Cython reads is another."""
    graph: Graph = {}
    for path in folder.glob("*"):
        cython = path.suffix in (".pyx", ".pxi", ".pxd")
        if path.name == f"{CYTHON}.c" or not (cython or path.suffix in (".c", ".h")):
            continue
        name = CYTHON if cython else path.stem
        found = re.findall(r'^\s*(?:#include|cdef extern from) "(\w+)\.h"', path.read_text("utf-8"), re.MULTILINE)
        graph.setdefault(name, set()).update(each for each in found if each != name)
    return {name: others & graph.keys() for name, others in graph.items()}  # without the headers of Python


def gathered(graph: Graph, node_of: Mapping[str, str]) -> Graph:
    """Return a graph whose nodes are groups of modules; modules without a group are left out."""
    nodes: Graph = {node: set() for node in node_of.values()}
    for name, others in graph.items():
        if name in node_of:
            nodes[node_of[name]] |= {node_of[other] for other in others if other in node_of} - {node_of[name]}
    return nodes


def floors(graph: Graph) -> list[list[str]]:
    """Return the nodes from the lowest floor to the highest.

    Raises:
        ValueError: nodes import each other in a circle.

    >>> floors({"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": set()})
    [['c', 'd'], ['b'], ['a']]
    """
    left, placed, found = dict(graph), set[str](), []
    while left:
        floor = sorted(node for node, others in left.items() if others <= placed)
        if not floor:
            raise ValueError(f"an import circle is among {', '.join(sorted(left))}")
        found.append(floor)
        placed |= set(floor)
        left = {node: others for node, others in left.items() if node not in placed}
    return found


def reduced(graph: Graph) -> Graph:
    """Return a graph without the arrows that follow from others.

    >>> sorted(reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()})["a"])
    ['b']
    """
    reached: Graph = {}
    for node in (node for floor in floors(graph) for node in floor):
        reached[node] = graph[node].union(*(reached[other] for other in graph[node]))
    return {
        node: {other for other in others if not any(other in reached[between] for between in others - {other})}
        for node, others in graph.items()
    }


def rooms(graph: Graph) -> Graph:
    """Return the graph of the rooms; all modules that are in no room are the ground floor."""
    return gathered(graph, {name: name.split(".")[0] if "." in name else GROUND for name in graph})


def inside(graph: Graph, room: str) -> Graph:
    """Return the graph inside a room, or on the ground floor: a folder is one node, and each folder in it another."""

    def node_of(name: str) -> str:
        *folders, module = name.split(".")[room != GROUND :]
        return "/".join(folders) + "/" if folders else module

    members = (name for name in graph if ("." not in name if room == GROUND else name.startswith(f"{room}.")))
    return gathered(graph, {name: node_of(name) for name in members})


def picture(graph: Graph) -> Iterable[str]:
    """Yield the rooms as a Mermaid flow chart."""
    yield "```mermaid"
    yield "flowchart TB"
    for floor in reversed(floors(graph)):
        for node in floor:
            yield f'    {node.replace(" ", "_")}["{node}"]'
    for node, others in sorted(reduced(graph).items()):
        for other in sorted(others):
            yield f"    {node.replace(' ', '_')} --> {other.replace(' ', '_')}"
    yield "```"


def listing(title: str, graph: Graph) -> Iterable[str]:
    """Yield the floors of one room, the highest first."""
    yield title
    for floor in reversed(floors(graph)):
        names = [node for node in floor if node != "__init__"]
        names += ["(the door)"] * ("__init__" in floor)
        for number, line in enumerate(wrap("  ".join(names), WIDTH - 4, break_on_hyphens=False)):
            yield f"{'    ' if number else '  - '}{line}"


def draw() -> str:
    """Return the block."""
    graph = imports()
    del graph["__main__"]  # it starts the command line, from the ground floor
    house = rooms(graph)
    lines = [*picture(house), "", "```text"]
    for floor in reversed(floors(house)):
        for room in floor:
            lines += [*listing(room, inside(graph, room)), ""]
    lines += [*listing("src, the C backend (by #include)", includes(SOURCES)), ""]
    lines += [*listing("src/plain, the broker's plain road in C", includes(SOURCES / "plain")), "```"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run("floors", draw, sys.argv[1:]))
