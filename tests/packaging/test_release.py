"""scripts/release.py: what it refuses, and the links of the README; and that files which name the version agree."""

import doctest
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from installed import TREE, load

import stompcodec

DATED = "## [1.2.3] - 2030-01-01\n"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return load("scripts/release.py")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository, ready for a release of 1.2.3."""
    for name, text in (
        ("stompcodec/__init__.py", '__version__ = "1.2.3"\n'),
        *(("changes/README.md", "# News\n"), ("changes/+a.fixed.md", "Broker: a.\n")),
        *(("CHANGELOG.md", "# Changelog\n\n## [1.2.2] - 2030-01-01\n"), ("SECURITY.md", "https://a.example\n")),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    git(tmp_path, "init", "--quiet")
    committed(tmp_path)
    return tmp_path


def committed(tree: Path) -> Path:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "a")
    return tree


def names(release: ModuleType, tree: Path, tag: str = "") -> list[str]:
    return [line.partition(":")[0] for line in release.refusals(tree, tag)]


def test_a_tree_with_news_may_be_released(release: ModuleType, tree: Path) -> None:
    assert names(release, tree) == []
    (tree / "changes" / "+a.fixed.md").unlink()
    (tree / "CHANGELOG.md").write_text(DATED)
    assert names(release, committed(tree)) == names(release, tree, "v1.2.3") == []


def test_each_reason_against_a_release_is_told(release: ModuleType, tree: Path) -> None:
    assert names(release, tree, "v1.2.4") == ["wrong tag", "no news"]
    (tree / "CHANGELOG.md").write_text(DATED)
    assert names(release, tree) == ["dirty tree", "news left"]
    (tree / "CHANGELOG.md").write_text(DATED.replace("2030-01-01", "unreleased"))
    (tree / "changes" / "+a.fixed.md").unlink()
    (tree / "SECURITY.md").write_text(f"https://{release.PLACEHOLDER}/a\n")
    git(committed(tree), "tag", "v1.2.3")
    assert names(release, tree) == ["existing tag", "no news", "placeholder"]
    assert "SECURITY.md" in release.refusals(tree)[2]


def test_every_file_names_the_version_of_the_package(release: ModuleType) -> None:
    assert release.version() == stompcodec.__version__
    found = re.findall(r'^\s*version: "(.*)"$', (TREE / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert found == [stompcodec.__version__]


def test_links_of_the_readme_are_absolute_and_lead_to_files_of_the_tree(release: ModuleType) -> None:
    page = re.sub(r"^```.*?^```$", "", release.long_description(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^()\s]+)\)", page)
    assert [link for link in links if not link.startswith("https://")] == []
    found = [re.fullmatch(r"https://[^/]+/stompcodec/(?:blob|raw)/v([^/]+)/([^#]+)(?:#.+)?", link) for link in links]
    assert sum(map(bool, found)) > 20
    for match in filter(None, found):
        assert match[1] == stompcodec.__version__
        assert (TREE / match[2]).exists(), match[2]


def test_the_examples(release: ModuleType) -> None:
    failed, tried = doctest.testmod(release)
    assert (failed, tried > 0) == (0, True)
