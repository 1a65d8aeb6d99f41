"""The files around the code: make targets, the quick loop, settings of editors, forms, and what the suite runs on."""

from __future__ import annotations

import configparser
import fnmatch
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import installed
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE)
FOLDERS = ["", "stompcodec", "src", "tests", "scripts", "docs", "benchmarks", "fuzz", "examples", "changes", ".github"]
#: Folders that builds and tools make.
MADE = {"build", "dist", "__pycache__", "work", "node_modules", "stompcodec-demo"}


# ---- the Makefile ----


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_listed_and_explained(target: str) -> None:
    assert re.search(rf"^{target}:.*## \S", MAKEFILE, re.MULTILINE), "make help does not show it"


def test_what_contributors_are_told_to_run_is_there() -> None:
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    pages = [page, *((ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "RELEASING.md"))]
    named = {name for text in pages for name in re.findall(r"(?:`|^    )make ([a-z0-9-]+)", text, re.MULTILINE)}
    table = page[page.index("## The commands") :].partition("\n## ")[0]
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        named |= {cell.split()[0] for cell in re.findall(r"`([^`]+)`", row) if re.match(r"[a-z]", cell)}
    assert {"dev", "quick", "test", "check"} <= named
    assert {name for name in named if not (name in TARGETS or name.startswith("scripts/"))} <= {"python", "make"}


def test_dev_and_test_do_not_share_an_installation() -> None:
    dev = MAKEFILE[MAKEFILE.index("\ndev:") :].partition("\n\n")[0]
    package = MAKEFILE[MAKEFILE.index("\n$(VENV)/package.stamp:") :].partition("\n\n")[0]
    assert "--editable ." in dev
    assert "rm -f $(VENV)/package.stamp" in dev
    assert "rm -f $(VENV)/editable.stamp" in package


# ---- make quick, with fewer examples ----


def test_the_light_profile_is_lighter() -> None:
    light, usual = settings.get_profile("light"), settings.get_profile("ci")
    assert light.max_examples * 4 <= usual.max_examples
    assert light.stateful_step_count < usual.stateful_step_count


# ---- what the suite runs on ----


def test_the_source_tree_is_refused_unless_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ROOT / "stompcodec" / "__init__.py"
    monkeypatch.setattr(installed, "is_editable", lambda: False)
    assert installed.is_source_tree(source)
    assert not installed.is_source_tree(Path(pytest.__file__))
    monkeypatch.setattr(installed, "is_editable", lambda: True)
    assert not installed.is_source_tree(source)


@pytest.mark.parametrize(
    ("made", "editable"),
    [
        ([None], False),
        ([], False),
        (['{"url": "file:///src", "dir_info": {}}'], False),
        (['{"url": "file:///src", "dir_info": {"editable": true}}'], True),
        ([None, '{"url": "file:///src", "dir_info": {"editable": true}}'], True),
    ],
)
def test_how_it_is_installed(made: list[str | None], editable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [SimpleNamespace(read_text={"direct_url.json": text}.get) for text in made]
    monkeypatch.setattr("importlib.metadata.distributions", lambda name: found)
    assert installed.is_editable() is editable


# ---- settings of editors, forms ----


def _sections() -> list[tuple[str, dict[str, str]]]:
    path = ROOT / ".editorconfig"
    if not path.is_file():
        pytest.skip("no checkout")
    parser = configparser.ConfigParser()
    parser.read_string("[root]\n" + path.read_text(encoding="utf-8"))
    return [(name, dict(parser[name])) for name in parser.sections() if name != "root"]


def _matches(path: Path, pattern: str) -> bool:
    name = path.relative_to(ROOT).as_posix() if "/" in pattern else path.name
    before, braces, rest = pattern.partition("{")
    if not braces:
        return fnmatch.fnmatch(name, pattern)
    inner, _, after = rest.partition("}")
    return any(fnmatch.fnmatch(name, before + each + after) for each in inner.split(","))


def _faults(path: Path, rules: dict[str, str]) -> set[str]:
    raw = path.read_bytes()
    faults = set()
    if rules["charset"] == "utf-8":
        try:
            raw.decode()
        except UnicodeDecodeError:
            faults.add("charset")
    if rules["end_of_line"] == "lf" and b"\r\n" in raw:
        faults.add("end_of_line")
    if rules["insert_final_newline"] == "true" and raw and not raw.endswith(b"\n"):
        faults.add("insert_final_newline")
    if rules["trim_trailing_whitespace"] == "true" and re.search(rb"[ \t]$", raw, re.MULTILINE):
        faults.add("trim_trailing_whitespace")
    if rules["indent_style"] == "space" and re.search(rb"^\t", raw, re.MULTILINE):
        faults.add("indent_style")
    return faults


def test_the_files_are_written_as_the_editor_is_told() -> None:
    sections = _sections()
    found = {}
    for folder in [
        "",
        "stompcodec",
        "src",
        "tests",
        "scripts",
        "docs",
        "benchmarks",
        "fuzz",
        "examples",
        "changes",
        ".github",
    ]:
        for path in (ROOT / folder).glob("**/*" if folder else "*"):
            if MADE & set(path.relative_to(ROOT).parts) or path.name == "codec.c" or not path.is_file():
                continue
            if path.suffix in {".so", ".xz", ".pyd", ".html", ".png"} or path.name.startswith(".git"):
                continue
            rules = {key: value for pattern, each in sections if _matches(path, pattern) for key, value in each.items()}
            if faults := _faults(path, rules):
                found[str(path.relative_to(ROOT))] = faults
    assert found == {}


def test_a_fault_is_seen(tmp_path: Path) -> None:
    rules = dict(_sections())["*"]
    (tmp_path / "a.py").write_bytes(b"if 1:\n\tx = '\xff' \r\n\ty = 2")
    assert _faults(tmp_path / "a.py", rules) == {
        *("charset", "end_of_line", "insert_final_newline", "indent_style"),
    }
    (tmp_path / "b.py").write_bytes(b"x = 1 \n")
    assert _faults(tmp_path / "b.py", rules) == {"trim_trailing_whitespace"}


FORMS = sorted((ROOT / ".github").glob("**/*.yml"))


@pytest.mark.parametrize("path", [*FORMS, ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name)
def test_yaml_can_be_read(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    if not path.is_file():
        pytest.skip("no checkout")
    page = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name == "ISSUE_TEMPLATE" and path.name != "config.yml":
        assert {"name", "description", "body"} <= set(page)
        ids = [part["id"] for part in page["body"] if part["type"] != "markdown"]
        assert len(set(ids)) == len(ids) > 2
    if path.name == ".pre-commit-config.yaml":
        tools = {hook["entry"].split()[0] for repo in page["repos"] for hook in repo["hooks"] if "entry" in hook}
        assert tools == {".venv/bin/ruff"}
    if path.name == "dependabot.yml":
        assert {each["package-ecosystem"] for each in page["updates"]} == {"github-actions", "pip", "docker"}


def _news() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib")
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    return settings


def test_a_release_finds_its_place_in_the_changelog() -> None:
    news = _news()
    changelog = (ROOT / news["filename"]).read_text(encoding="utf-8")
    assert changelog.count(news["start_string"]) == 1
    assert "\n## [" not in changelog.partition(news["start_string"])[0]


def test_news_fragments_are_named_as_their_page_says() -> None:
    news = _news()
    folder = ROOT / news["directory"]
    page = (folder / "README.md").read_text(encoding="utf-8")
    types = [each["directory"] for each in news["type"]]
    assert ", ".join(f"`{name}`" for name in types) in " ".join(page.split())
    for path in folder.iterdir():
        if path.name != "README.md":
            assert re.fullmatch(rf"(\d+|\+[a-z0-9-]+)\.({'|'.join(types)})\.md", path.name)
            assert path.read_text(encoding="utf-8").strip()


def test_c_is_as_wide_as_python() -> None:
    style, ruff = (ROOT / ".clang-format", ROOT / "pyproject.toml")
    if not style.is_file():
        pytest.skip("no checkout")
    width = re.search(r"^ColumnLimit: (\d+)$", style.read_text(encoding="utf-8"), re.MULTILINE)
    assert width is not None
    assert f"line-length = {width[1]}" in ruff.read_text(encoding="utf-8")
