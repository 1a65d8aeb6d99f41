"""Measure the size of the house, now and at adc59d8: lines, modules, keys, options, make targets, words.

It counts the files that git knows, blank lines included, without pictures, .idx and .xz.
"""

import re
import subprocess
import sys
from pathlib import Path

import click
from sitepages.commands import verbs as below

from stompcodec.broker.config import KEYS
from stompcodec.cli.app import app
from stompcodec.cli.connecting import broker_options

ROOT = Path(__file__).resolve().parents[1]
_LEFT_OUT = (".png", ".svg", ".idx", ".xz")
_WORKSHOP = ("scripts", "benchmarks", "fuzz", ".github", ".ci", "deploy", "examples", "Makefile")
_STARTED = """
import asyncio, sys
from stompcodec.broker import Config, serve
async def main():
    async with serve(Config(port=0)):
        print(sum(name.partition(".")[0] == "stompcodec" for name in sys.modules))
asyncio.run(main())
"""
#: Row -> its figure at adc59d8, and the goal.
GOALS = {
    "package, lines": (85_500, 54_000),
    "C and Cython, lines": (10_600, 8_600),
    "C and Cython, files": (80, 24),
    "tests, lines": (113_600, 61_000),
    "workshop, lines": (25_000, 8_500),
    "scripts/peers, lines": (0, 1_000),
    "docs and the rest, lines": (15_000, 8_000),
    "all, lines": (249_700, 141_500),
    "docs, words": (116_000, 60_000),
    "modules of the package": (446, 210),
    "modules of a started broker": (144, 90),
    "keys of the broker": (108, 60),
    "verbs": (26, 22),
    "verbs, with those below": (44, 36),
    "distinct long options": (141, 100),
    "options, not of connection": (328, 210),
    "make targets with help": (53, 26),
}


def group_of(name: str) -> str:
    """Return the row of lines that a file belongs to."""
    first = name.partition("/")[0]
    if name.startswith("scripts/peers/"):
        return "scripts/peers, lines"
    rooms = {"stompcodec": "package, lines", "src": "C and Cython, lines", "tests": "tests, lines"}
    return rooms.get(first, "workshop, lines" if first in _WORKSHOP else "docs and the rest, lines")


def figures() -> dict[str, int]:
    """Return the figure of every row."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    paths = [name for name in listed if not name.endswith(_LEFT_OUT) and (ROOT / name).is_file()]
    lines = {name: (ROOT / name).read_bytes().count(b"\n") for name in paths}
    found = dict.fromkeys(GOALS, 0)
    for name, count in lines.items():
        found[group_of(name)] += count
    context = click.Context(app, info_name="stompcodec")
    verbs = [verb for _, verb, _ in below(app, context) if not isinstance(verb, click.Group)]
    connection = {each.name for each in click.command()(broker_options(lambda **_: None)).params}
    options = [each for verb in verbs for each in verb.params if isinstance(each, click.Option)]
    started = subprocess.run([sys.executable, "-c", _STARTED], capture_output=True, text=True, check=True).stdout
    return found | {
        "C and Cython, files": sum(name.startswith("src/") for name in paths),
        "all, lines": sum(lines.values()),
        "docs, words": sum(len((ROOT / name).read_bytes().split()) for name in paths if re.match(r"docs/.*\.md", name)),
        "modules of the package": sum(name.startswith("stompcodec/") and name.endswith(".py") for name in paths),
        "modules of a started broker": int(started),
        "keys of the broker": len(KEYS),
        "verbs": len(app.list_commands(context)),
        "verbs, with those below": len(verbs),
        "distinct long options": len({name for each in options for name in each.opts if name.startswith("--")}),
        "options, not of connection": sum(each.name not in connection for each in options),
        "make targets with help": len(re.findall(r"^[a-z0-9-]+:.*## ", (ROOT / "Makefile").read_text("utf-8"), re.M)),
    }


if __name__ == "__main__":
    print(f"{'':28}{'now':>9}{'adc59d8':>9}{'goal':>9}")
    for name, now in figures().items():
        print(f"{name:28}{now:9,}{GOALS[name][0]:9,}{GOALS[name][1]:9,}")
