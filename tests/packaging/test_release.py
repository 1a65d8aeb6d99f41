"""The rehearsal of a release in short: what is refused, the news, comparing builds, the index.

`make rehearse` is the whole.
"""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
FIRST = "# Changelog\n\n<!-- new releases stand below this line -->\n"
KINDS = "added|changed|deprecated|removed|fixed|security"

pytestmark = [
    pytest.mark.skipif(not SCRIPTS.is_dir(), reason="only tests/ is here"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script, with those that it imports."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository, ready for a release of 1.2.3."""
    root = tmp_path / "tree"
    (root / "stompcodec").mkdir(parents=True)
    (root / "changes").mkdir()
    (root / "stompcodec" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (root / "changes" / "README.md").write_text("# News\n")
    (root / "changes" / "+a.fixed.md").write_text("Broker: a.\n")
    (root / "CHANGELOG.md").write_text(FIRST + "\n## [1.2.2] - 2030-01-01\n\n### Added\n\n- b\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "a")
    monkeypatch.setattr(load("repository"), "ROOT", root)
    monkeypatch.setattr(load("release_checks"), "missing_tools", list)
    return root


# ---- what is refused ----


def refused(load: Any, tree: Path) -> list[str]:
    return [refusal.name for refusal in load("release_checks").before_building(tree)]


def test_a_clean_tree_with_news_is_not_refused(load: Any, tree: Path) -> None:
    assert refused(load, tree) == []


@pytest.mark.parametrize("name", ["CHANGELOG.md", "new.txt"])
def test_a_dirty_tree(load: Any, tree: Path, name: str) -> None:
    with (tree / name).open("a") as file:
        file.write("\n")
    (refusal,) = load("release_checks").before_building(tree)
    assert refusal.name == "dirty tree"
    assert name in refusal.reason


def test_a_tag_that_exists(load: Any, tree: Path) -> None:
    git(tree, "tag", "v1.2.2")
    assert refused(load, tree) == []
    git(tree, "tag", "v1.2.3")
    assert refused(load, tree) == ["existing tag"]


def test_a_version_without_news(load: Any, tree: Path) -> None:
    git(tree, "rm", "--quiet", "changes/+a.fixed.md")
    git(tree, "commit", "--quiet", "--message", "b")
    assert refused(load, tree) == ["version without news"]
    page = tree / "CHANGELOG.md"
    page.write_text(page.read_text().replace("[1.2.2] - 2030-01-01", "[1.2.3] - unreleased"))
    git(tree, "commit", "--quiet", "--all", "--message", "c")
    assert refused(load, tree) == ["version without news"]
    page.write_text(page.read_text().replace("unreleased", "2030-01-02"))
    git(tree, "commit", "--quiet", "--all", "--message", "d")
    assert refused(load, tree) == []


def test_news_that_the_changelog_left_out(load: Any, tree: Path) -> None:
    page = tree / "CHANGELOG.md"
    page.write_text(page.read_text().replace("1.2.2", "1.2.3"))
    git(tree, "commit", "--quiet", "--all", "--message", "b")
    assert refused(load, tree) == ["news left"]


@pytest.mark.parametrize(("module", "package"), [("twine", "twine"), ("cyclonedx_py", "cyclonedx-bom")])
def test_a_missing_tool_is_named(load: Any, monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    checks = load("release_checks")
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None if name == module else object())
    monkeypatch.setattr(checks.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(checks.Path, "is_file", lambda path: True)
    (refusal,) = checks.missing_tools()
    assert refusal.name == "missing tool"
    assert refusal.reason.startswith(f"{package} is not installed")


@pytest.mark.parametrize("program", ["git", "cc-of-python"])
def test_a_missing_program_is_named(load: Any, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    checks = load("release_checks")
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(checks.shutil, "which", lambda name: None if name == program else f"/bin/{name}")
    monkeypatch.setattr(checks.sysconfig, "get_config_var", lambda name: "cc-of-python -pthread")
    monkeypatch.setattr(checks.Path, "is_file", lambda path: True)
    (refusal,) = checks.missing_tools()
    assert program in refusal.reason


def test_nothing_is_built_when_it_is_refused(
    load: Any, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse = load("rehearse")
    monkeypatch.setattr(rehearse, "ROOT", tree)
    monkeypatch.setattr(rehearse, "rehearse", lambda *_: pytest.fail("it was begun"))
    git(tree, "tag", "v1.2.3")
    assert rehearse.main(["--json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["refused"][0]["name"] == "existing tag"
    assert "refused: existing tag: v1.2.3" in said.err


def test_a_change_of_the_tree_during_the_rehearsal_is_an_error(
    load: Any, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearse = load("rehearse")
    monkeypatch.setattr(rehearse, "ROOT", tree)
    monkeypatch.setattr(rehearse, "rehearse", lambda options, work, report: (tree / "x").touch())
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # which main sets, and monkeypatch takes back
    with pytest.raises(ValueError, match="changed during the rehearsal"):
        rehearse.main([])


def test_what_the_workflow_asks(load: Any, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, repository = load("release_checks"), load("repository")
    monkeypatch.setattr(repository, "files", lambda: iter([(tree / "pyproject.toml", "a", "b")]))
    names = [refusal.name for refusal in checks.for_tag(tree, "v1.2.4")]
    assert names == ["version without news", "wrong tag", "stale file", "placeholder", "placeholder"]
    page = tree / "CHANGELOG.md"
    page.write_text(page.read_text().replace("1.2.2", "1.2.3"))
    (tree / "changes" / "+a.fixed.md").unlink()
    monkeypatch.setattr(repository, "files", lambda: iter([]))
    monkeypatch.setattr(repository, "URL", "https://a.example")
    monkeypatch.setattr(repository, "CONTACT", "a@b.example")
    assert checks.for_tag(tree, "v1.2.3") == []


# ---- the news ----


def test_files_of_changes_have_names_that_towncrier_reads(load: Any) -> None:
    for path in load("news").fragments(ROOT):
        assert re.fullmatch(rf"(?:\d+|\+[\w-]+)\.(?:{KINDS})\.md", path.name), path.name
        assert path.read_text(encoding="utf-8").strip(), path.name


def test_the_first_release_takes_along_what_is_unreleased(load: Any) -> None:
    news = load("news")
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    start = page.index("\n## [") + 1
    new = page[:start] + "## [9.8.7] - 2030-01-31\n\n### Fixed\n\n- The newest.\n\n" + page[start:]
    merged = news.merge(new.replace("[0.1.0] - unreleased", "[9.8.7] - unreleased"), "9.8.7")
    assert news.has_section(merged, "9.8.7")
    assert not re.search(r"^## .*unreleased", merged, re.MULTILINE | re.IGNORECASE)
    (section,) = [text for name, _, text in news.sections(merged) if name == "9.8.7"]
    kinds = re.findall(r"^### (.+)$", section, re.MULTILINE)
    assert len(kinds) == len(set(kinds))

    def lines(text: str) -> list[str]:
        return sorted(line for line in text.splitlines() if line and not line.startswith(("## ", "### ")))

    assert lines(merged) == lines(new)


def test_older_releases_stay_as_they_are(load: Any) -> None:
    older = "## [1.2.2] - 2030-01-01\n\n### Added\n\n- b\n"
    page = FIRST + "\n## [1.2.3] - 2030-01-31\n\n### Fixed\n\n- a\n\n"
    assert load("news").merge(page + older, "1.2.3").endswith("- a\n\n" + older)
    assert load("news").merge(page, "1.2.3").endswith("- a\n")


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("## [1.2.2] - 2030-01-01\n", "first section"),
        ("## [1.2.3] - 2030-01-01\n\n- a\n", "outside of a group"),
        ("## [1.2.3] - 2030-01-01\n\n### Magic\n\n- a\n", "Magic"),
    ],
)
def test_a_changelog_that_is_not_understood(load: Any, page: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        load("news").merge(FIRST + page, "1.2.3")


# ---- builds and index ----


def archives(folder: Path, data: bytes, *, name: str = "a/_c.so") -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "a-1-py3.whl", "w") as wheel:
        wheel.writestr(zipfile.ZipInfo(name), data)
    (folder / "x").write_bytes(data)
    with tarfile.open(folder / "a-1.tar.gz", "w:gz") as sdist:
        sdist.add(folder / "x", "a-1/x", filter=lambda member: setattr(member, "mtime", 0) or member)
    (folder / "x").unlink()


def test_two_builds_are_compared_by_member(load: Any, tmp_path: Path) -> None:
    builds = load("rehearsal_builds").Builds(tmp_path, tmp_path, [sys.executable])
    for folder, data in (("first", b"1"), ("same", b"1"), ("other", b"2")):
        archives(tmp_path / folder, data)
    for folder in ("same", "other"):  # gzip keeps the time of day
        (tmp_path / folder / "a-1.tar.gz").write_bytes((tmp_path / "first" / "a-1.tar.gz").read_bytes())
    assert builds.compare("first", "same") == "2 files are equal"
    with pytest.raises(ValueError, match=r"a-1-py3.whl: a/_c.so differs"):
        builds.compare("first", "other")
    (tmp_path / "other" / "a-1-py3.whl").unlink()
    with pytest.raises(ValueError, match="different files"):
        builds.compare("first", "other")


def test_paths_of_this_machine_in_an_extension_are_found(load: Any, tmp_path: Path) -> None:
    builds = load("rehearsal_builds").Builds(tmp_path, tmp_path, [sys.executable])
    archives(tmp_path / "good", b"\0_codec_c.c\0")
    assert builds.look_for_paths("good") == "1 extensions"
    archives(tmp_path / "bad", b"\0" + bytes(tmp_path) + b"/src/codec.c\0")
    with pytest.raises(ValueError, match=r"_c\.so names"):
        builds.look_for_paths("bad")
    archives(tmp_path / "pure", b"", name="a/b.py")
    with pytest.raises(ValueError, match="no wheel has an extension"):
        builds.look_for_paths("pure")


def test_the_index_has_every_file_with_its_digest(load: Any, tmp_path: Path) -> None:
    archives(tmp_path / "files", b"1")
    with load("rehearsal_installs").served(tmp_path / "files", tmp_path / "index") as url:
        with urllib.request.urlopen(f"{url}stompcodec/") as answer:
            page = answer.read().decode()
        links = re.findall(r'href="([^#]+)#sha256=([0-9a-f]{64})"', page)
        assert sorted(name for name, _ in links) == ["a-1-py3.whl", "a-1.tar.gz"]
        for name, digest in links:
            with urllib.request.urlopen(f"{url}stompcodec/{name}") as answer:
                (tmp_path / "got").write_bytes(answer.read())
            assert load("rehearsal_builds").digest(tmp_path / "got") == digest


def test_every_extra_for_users_is_installed_and_tried(load: Any) -> None:
    installs = load("rehearsal_installs")
    extras = installs.Installs(ROOT, ROOT, "", "", ROOT).extras()
    assert extras[0] == ""
    assert extras[-1] == "all"
    assert {*extras, *installs.OURS} == {"", *load("requirements").project()["optional-dependencies"]}
    assert set(installs.TRIES) == set(extras)


def test_a_step_that_fails_is_told_with_the_last_line(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report = load("rehearse").Report("1.2.3", "abc", "2030-01-31")
    command = [sys.executable, "-c", "print('a'); print('b'); raise SystemExit(3)"]
    assert not report.run("one", lambda: load("rehearsal_builds").call(*command))
    assert report.run("two", lambda: "note: set it")
    assert report.run("three", lambda: "fine")
    assert [(step.status, step.detail) for step in report.steps] == [
        ("failed", "b"),
        ("note", "set it"),
        ("ok", "fine"),
    ]
    assert not report.passed
    assert report.table().endswith("stompcodec 1.2.3: 2 steps passed, 1 failed")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["news", "repository", "requirements", "rehearsal_installs"])
def test_the_examples(load: Any, name: str) -> None:
    found = doctest.testmod(load(name))
    assert found.attempted
    assert not found.failed
