"""ARCHITECTURE.md and its neighbours say what the code says: what they name is there."""

import re
from pathlib import Path

import pytest

from stompcodec.client.link import CLIENT, CONNECTION, State

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github"  # not in the sdist
PAGES = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "RELEASING.md")),
    *(ROOT / "docs" / name for name in ("decisions.md", "development.md", "how-to-extend.md")),
]
pytestmark = pytest.mark.skipif(not PAGES[0].is_file(), reason="this is not the whole tree")


@pytest.mark.parametrize("table", [CLIENT, CONNECTION], ids=["client", "connection"])
def test_the_arrows_of_a_client_are_drawn(table: dict[str, State]) -> None:
    section = PAGES[0].read_text("utf-8").partition("## The states of a client")[2]
    drawings = [
        set(re.findall(r"(\w+) --> (\w+) :", text)) for text in re.findall(r"```mermaid\n(.*?)```", section, re.S)
    ]
    assert {(name, after) for name, state in table.items() for after in state.after.values()} in drawings


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

    def is_there(name: str) -> bool:
        if re.search(r"[\s*…=<>:@]", name) or name.startswith(("/", "build/", "--", ".venv")):
            return True
        if "/" in name:
            return any((ROOT / base / name).exists() for base in ("", "stompcodec", "tests"))
        elsewhere = name in files or (name.endswith(".yml") and not WORKFLOWS.is_dir())
        return not suffix.search(name) or (ROOT / name).exists() or elsewhere

    assert [name for name in named_in(page) if not is_there(name)] == []


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


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) <= 5_000


def test_decisions_are_numbered() -> None:
    numbers = re.findall(r"^## (\d+)\. .", (ROOT / "docs" / "decisions.md").read_text("utf-8"), re.M)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert len(numbers) >= 10
