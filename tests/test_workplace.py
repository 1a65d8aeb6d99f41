"""The files around the code: make targets, the quick loop, settings of editors, forms, and what the suite runs on."""

import re
import tomllib
from pathlib import Path

import installed
import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE)


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


def test_the_source_tree_is_refused_unless_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    source = ROOT / "stompcodec" / "__init__.py"
    monkeypatch.setattr(installed, "is_editable", lambda: False)
    assert installed.is_source_tree(source)
    assert not installed.is_source_tree(Path(pytest.__file__))
    monkeypatch.setattr(installed, "is_editable", lambda: True)
    assert not installed.is_source_tree(source)


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


def test_news_fragments_have_their_names_and_a_release_its_place_in_the_changelog() -> None:
    news = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    changelog = (ROOT / news["filename"]).read_text(encoding="utf-8")
    assert changelog.count(news["start_string"]) == 1
    assert "\n## [" not in changelog.partition(news["start_string"])[0]
    folder = ROOT / news["directory"]
    page = (folder / "README.md").read_text(encoding="utf-8")
    types = [each["directory"] for each in news["type"]]
    assert ", ".join(f"`{name}`" for name in types) in " ".join(page.split())
    for path in folder.iterdir():
        if path.name != "README.md":
            assert re.fullmatch(rf"(\d+|\+[a-z0-9-]+)\.({'|'.join(types)})\.md", path.name)
            assert path.read_text(encoding="utf-8").strip()
