"""Workflows, the table of platforms, the image of the broker, scripts/release.py, as far as they can be tried here."""

import doctest
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from installed import TREE as ROOT
from installed import load

import stompcodec

PAGE = ROOT / "docs" / "platforms.md"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")) if PAGE.is_file() else {}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DOCKER = ROOT / "deploy" / "docker"
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
needs_deploy = pytest.mark.skipif(not DOCKER.is_dir(), reason="only tests/ is here")
needs_page = pytest.mark.skipif(not PAGE.is_file(), reason="there is no docs/ beside tests/")
needs_workflows = pytest.mark.skipif(not WORKFLOWS, reason="the sdist has no workflows")


@needs_workflows
def test_actions_are_pinned_by_a_hash_with_their_version() -> None:
    uses = [
        (path.name, line)
        for path in WORKFLOWS
        for line in re.findall(r"^\s*-?\s*uses: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    others = [(name, line) for name, line in uses if not line.startswith("./")]
    assert len(others) > 20
    pinned = re.compile(r"([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)")
    assert [(name, line) for name, line in others if not pinned.fullmatch(line)] == []
    repositories = {(match[1].split("/")[1], match[2], match[3]) for _, line in others if (match := pinned.match(line))}
    names = [name for name, *_ in repositories]
    assert len(names) == len(set(names)), "an action has one version in all workflows"


#: How wheels of a runner are called.
WHEELS = {
    "ubuntu-latest": {"manylinux_x86_64", "musllinux_x86_64"},
    "ubuntu-24.04-arm": {"manylinux_aarch64", "musllinux_aarch64"},
    **{"ubuntu-22.04-arm": {"manylinux_armv7l", "musllinux_armv7l"}, "macos-15": {"macosx_arm64"}},
    **{"macos-15-intel": {"macosx_x86_64"}, "windows-latest": {"win_amd64"}, "windows-11-arm": {"win_arm64"}},
    "ubuntu-24.04": {"pyodide_wasm32"},
}


def table() -> list[list[str]]:
    """Return the rows of the page: platform, wheel, runner, state, what was run."""
    rows = re.findall(r"^\| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[2:]
    return [[cell.strip("`* ") for cell in row.split(" | ")] for row in rows]


@needs_page
@needs_workflows
def test_the_workflow_builds_the_wheels_of_the_table() -> None:
    yaml = pytest.importorskip("yaml")
    matrix = yaml.safe_load((WORKFLOWS[0].parent / "wheels.yml").read_text(encoding="utf-8"))["jobs"]["wheels"][
        "strategy"
    ]["matrix"]
    runners = {*matrix["os"], *(each["os"] for each in matrix["include"])}
    built = {(runner, wheel) for _, wheel, runner, *_ in table() if wheel != "none"}
    assert built == {(runner, wheel) for runner in runners for wheel in WHEELS[runner]}


@needs_page
def test_each_supported_python_gets_wheels() -> None:
    numbers = [each.rpartition(" ")[2] for each in SETTINGS["project"]["classifiers"] if "Python :: 3." in each]
    wanted = [f"cp{number.replace('.', '')}-*" for number in numbers]
    found = SETTINGS["tool"]["cibuildwheel"]["build"]
    assert [each for each in found if "t-" not in each] == wanted
    assert [each for each in found if "t-" in each] == ["cp314t-*", "cp315t-*"]
    assert SETTINGS["project"]["requires-python"] == f">={numbers[0]}"


@needs_deploy
def test_the_image_is_made_of_files_that_exist_and_does_not_run_as_root() -> None:
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    for source in re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE):
        assert (ROOT / source).exists(), source
    (user,) = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    assert "0" not in user
    extras = re.search(r'"\.\[([\w,]+)\]"', text)
    assert extras
    assert set(extras[1].split(",")) <= set(SETTINGS["project"]["optional-dependencies"])
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"]
    assert {"setup.py", "pyproject.toml", "src", "stompcodec", "scripts", "tests"} <= set(kept)
    assert [name for name in kept if not (ROOT / name).exists()] == []


@pytest.mark.long
@needs_deploy
def test_the_health_check_of_the_image_sees_whether_its_broker_runs(tmp_path: Path) -> None:
    """The broker starts with the image's configuration, but in a folder and on ports of this test."""
    pytest.importorskip("click")
    check = re.search(r"^HEALTHCHECK .*\\\n\s+CMD (\[.+\])$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert check
    python, *arguments = json.loads(check[1])
    assert python == "python"
    ready = tmp_path / "ready.json"
    here = ["--host", "127.0.0.1", "--port", "0", "--ws-port", "0", "--data", tmp_path / "data", "--ready-file", ready]
    command = [sys.executable, "-m", "stompcodec.cli", "broker", "--config", DOCKER / "broker.toml", *here]

    def healthy() -> bool:
        program = [argument.replace("15674", str(port)).replace("timeout=4", "timeout=60") for argument in arguments]
        assert program != arguments
        return subprocess.run([sys.executable, *program], cwd=tmp_path, capture_output=True).returncode == 0

    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert "listens on" in broker.stdout.readline()
            port = json.loads(ready.read_text(encoding="utf-8"))["ws_port"]
            assert healthy()
        finally:
            broker.terminate()
    assert not healthy()


@needs_deploy
def test_the_unit_runs_the_broker_with_options_that_exist(tmp_path: Path) -> None:
    pytest.importorskip("click")
    from stompcodec.cli.verbs.broker import command

    text = (ROOT / "deploy/systemd/stompcodec.service").read_text(encoding="utf-8")
    lines = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    program, verb, *options = lines["ExecStart"].split()
    with command.make_context(verb, options) as context:
        assert context.params["data"] == f"/var/lib/{lines['StateDirectory']}"
    assert (verb, lines["Type"], lines["RestartPreventExitStatus"]) == ("broker", "notify", "3")
    if tool := shutil.which("systemd-analyze"):
        unit = tmp_path / "stompcodec.service"
        unit.write_text(text.replace(program, sys.executable))
        assert subprocess.check_output([tool, "verify", unit], stderr=subprocess.STDOUT, text=True) == ""


DATED = "## [1.2.3] - 2030-01-01\n"


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
    found = re.findall(r'^\s*version: "(.*)"$', (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert found == [stompcodec.__version__]


def test_links_of_the_readme_are_absolute_and_lead_to_files_of_the_tree(release: ModuleType) -> None:
    page = re.sub(r"^```.*?^```$", "", release.long_description(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^()\s]+)\)", page)
    assert [link for link in links if not link.startswith("https://")] == []
    found = [re.fullmatch(r"https://[^/]+/stompcodec/(?:blob|raw)/v([^/]+)/([^#]+)(?:#.+)?", link) for link in links]
    assert sum(map(bool, found)) > 20
    for match in filter(None, found):
        assert match[1] == stompcodec.__version__
        assert (ROOT / match[2]).exists(), match[2]


def test_the_examples(release: ModuleType) -> None:
    failed, tried = doctest.testmod(release)
    assert (failed, tried > 0) == (0, True)
