"""ARCHITECTURE.md and its neighbours say what the code says: drawings are fresh, and what they name is there."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stompcodec.broker.sessions import plain

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
DRAWINGS = sorted(path.stem for path in SCRIPTS.glob("draw_*.py"))
DECISIONS = ROOT / "docs" / "decisions"
WORKFLOWS = ROOT / ".github"  # not in the sdist
PAGES = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "RELEASING.md")),
    *(ROOT / "docs" / name for name in ("development.md", "how-to-extend.md")),
    *sorted(DECISIONS.glob("*.md")),
]

pytestmark = pytest.mark.skipif(not PAGES[0].is_file(), reason="this is not the whole tree")

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import a script by its name."""
    names = {"in_process", "page_blocks", *DRAWINGS}
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield importlib.import_module
    for name in names & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(before)


def name_of(script: str) -> str:
    return script.removeprefix("draw_")


# ---- drawings ----


@pytest.mark.parametrize("script", DRAWINGS)
def test_a_drawing_is_what_the_code_says(load: Load, script: str) -> None:
    drawing = load(script)
    assert load("page_blocks").run(name_of(script), drawing.draw, ["--check"]) == 0, f"run scripts/{script}.py"


@pytest.mark.parametrize("script", ["page_blocks", "draw_floors"])
def test_the_examples_of_a_script_run(load: Load, script: str) -> None:
    failed, tried = doctest.testmod(load(script))
    assert tried > 0
    assert failed == 0


def test_each_block_has_its_script() -> None:
    blocks = re.findall(r"^<!-- (\w+): written by scripts/(\w+)\.py", PAGES[0].read_text("utf-8"), re.MULTILINE)
    assert sorted(blocks) == [(name_of(script), script) for script in DRAWINGS]


def test_a_stale_block_is_noticed_and_written_alone(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks, drawing = load("page_blocks"), load("draw_client")
    page = PAGES[0].read_text("utf-8")
    other = page.replace("down --> connecting : ", "down --> up : ")
    assert other != page
    monkeypatch.setattr(blocks, "PAGE", tmp_path / "ARCHITECTURE.md")
    blocks.PAGE.write_text(other, "utf-8")
    assert blocks.run("client", drawing.draw, ["--check"]) == 1
    assert blocks.PAGE.read_text("utf-8") == other
    said = capsys.readouterr().out
    assert "stale, run scripts/draw_client.py" in said
    assert "-    down --> up : " in said
    assert blocks.run("client", drawing.draw, []) == 0
    assert blocks.PAGE.read_text("utf-8") == page


def test_a_page_without_the_block_is_refused(load: Load) -> None:
    with pytest.raises(ValueError, match="needs one block 'floors'"):
        load("page_blocks").replaced("# Architecture\n", "floors", "text")


def test_every_import_counts(load: Load, tmp_path: Path) -> None:
    package = tmp_path / "house"
    for name, text in {
        "__init__": "from house.low import x",
        "low": "import os",
        "room/__init__": "from house.room.high import x, y",
        "room/high": "from house.room import low as other\nfrom house.room.inner import deep",
        "room/low": "def f():\n    import house.low",
        "room/typed": "if TYPE_CHECKING:\n    from house.room.low import x",
        "room/inner/deep": "import house.other.thing",
        "other/thing": "from house import low",
    }.items():
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    drawing = load("draw_floors")
    graph = drawing.imports(package)
    assert graph["room.high"] == {"room.low", "room.inner.deep"}
    assert drawing.rooms(graph) == {"ground floor": set(), "room": {"ground floor", "other"}, "other": {"ground floor"}}
    assert drawing.floors(drawing.inside(graph, "room")) == [["inner/", "low"], ["high", "typed"], ["__init__"]]
    assert drawing.floors(drawing.inside(graph, "ground floor")) == [["low"], ["__init__"]]
    (package / "low.py").write_text("import house.room.typed", "utf-8")
    with pytest.raises(ValueError, match="circle"):
        drawing.floors(drawing.rooms(drawing.imports(package)))


@pytest.mark.parametrize(("persistent", "most"), [(False, 2), (True, 3)])
def test_a_send_enters_no_file_too_often(
    load: Load, monkeypatch: pytest.MonkeyPatch, persistent: bool, most: int
) -> None:
    drawing = load("draw_send")
    steps = drawing.trace(persistent)
    if plain.EXTENSION is not None:
        assert plain.EXTENSION.switch(True), "the plain road in C is switched off for the tests behind this one"
    assert drawing.too_often(steps, most) == {}
    assert drawing.MOST_ENTRIES[persistent] == most
    again = drawing.Call(drawing.SHELL, "core.py", "turn", False)
    assert drawing.too_often([*steps, *[again] * most], most).keys() == {"core.py"}
    monkeypatch.setattr(drawing, "trace", lambda _persistent: [again] * 4)
    with pytest.raises(ValueError, match=r"more than 2 times: {'core.py': 4}"):
        drawing.draw()


def test_only_calls_into_another_file_are_drawn(load: Load) -> None:
    drawing = load("draw_send")
    calls = [step for step in drawing.trace(False) if isinstance(step, drawing.Call)]
    assert all(call.caller != call.file for call in calls)
    assert not {Path(call.file).stem for call in calls if "/" not in call.file} & drawing.CODEC
    text = "\n".join(drawing.picture([*calls, drawing.Call("shell", "queues/new.py", "added", False)]))
    assert "as queues/new.py" in text
    assert ": added" in text


def test_each_step_of_the_clients_tables_is_drawn(load: Load) -> None:
    drawing = load("draw_client")
    for found, states in zip(drawing.arrows(), (drawing.CLIENT, drawing.CONNECTION)):
        rows = {(name, event, after) for name, state in states.items() for event, after in state.after.items()}
        assert set(found) == rows


def test_each_state_of_a_message_is_met(load: Load) -> None:
    drawing = load("draw_message")
    assert {state for arrow in drawing.arrows() for state in arrow} == {"[*]", *drawing.STATES}


# ---- pages ----


def named_in(page: Path) -> list[str]:
    """What stands in backticks, outside of examples."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.fixture(scope="module")
def files() -> set[str]:
    folders = ("stompcodec", "src", "tests", "scripts", "docs", "benchmarks", "examples", ".github")
    return {path.name for folder in folders for path in (ROOT / folder).rglob("*.*")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_paths_of_a_page_exist(page: Path, files: set[str]) -> None:
    suffix = re.compile(r"\.(py|pyi|pyx|pxi|pxd|c|h|md|json|toml|yml|in|tsv|svg)$")
    missing = []
    for name in named_in(page):
        if re.search(r"[\s*…=<>:@]", name) or name.startswith(("/", "build/", "--", ".venv")):
            continue
        if "/" in name:
            found = any((ROOT / base / name).exists() for base in ("", "stompcodec", "tests"))
        elif suffix.search(name):
            found = (ROOT / name).exists() or name in files or (name.endswith(".yml") and not WORKFLOWS.is_dir())
        else:
            continue
        if not found:
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/how-to-extend.md"])
def test_the_names_of_a_page_are_in_the_code(name: str) -> None:
    paths = [path for folder in ("stompcodec", "src") for path in (ROOT / folder).rglob("*") if path.is_file()]
    kinds = {".py", ".c", ".h", ".pyx", ".pxi", ".pxd"}
    texts = [path.read_text("utf-8") for path in paths if path.suffix in kinds and path.name != "codec.c"]
    words = {word for text in texts for word in re.findall(r"\w+", text)} | {"validate", "expect_lenient"}  # of vectors
    named = {word for word in named_in(ROOT / name) if re.fullmatch(r"\w+", word)}
    assert sorted(named - words) == []


def test_the_map_names_every_folder() -> None:
    package = ROOT / "stompcodec"
    folders = {path.parent.relative_to(package).as_posix() for path in package.rglob("*.py")} - {"."}
    folders = {name for name in folders if not name.startswith("testing/suite")}
    named = "\n".join(named_in(PAGES[0]))
    assert sorted(name for name in folders if f"{name}/" not in named) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) <= 5_000


def test_each_decision_is_listed_under_its_title() -> None:
    listed = dict(re.findall(r"^\| \[\d+\]\((\S+)\) \| (.+) \|$", (DECISIONS / "README.md").read_text("utf-8"), re.M))
    titles = {}
    for path in sorted(DECISIONS.glob("0*.md")):
        first = path.read_text("utf-8").splitlines()[0]
        number, title = re.fullmatch(r"# (\d+)\. (.+)", first).groups()
        assert path.name.startswith(f"{int(number):04}-")
        titles[path.name] = title
    assert listed == titles
    assert len(titles) >= 10
