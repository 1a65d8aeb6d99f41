"""scripts/repository.py: the repository's URL, its contact and the version stand in one place each."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import stompcodec

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "repository.py"
URL = "https://repository.example/stomp"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="only tests/ is here")


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("repository_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr("sys.argv", ["repository.py"])
    return module


@pytest.fixture
def copy(repository: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the files that the script writes, where it works now."""
    for name in {name for name, *_ in repository.NAMED} | {"README.md", repository.PACKAGE.as_posix()}:
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(repository, "ROOT", tmp_path)
    return tmp_path


def run(repository: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["repository.py", *arguments])
    return int(repository.main())


def test_every_file_has_what_the_constants_say(repository: ModuleType) -> None:
    assert [path for path, text, wanted in repository.files() if text != wanted] == []
    names = {path.relative_to(ROOT).as_posix() for path, *_ in repository.files()}
    assert names >= {"pyproject.toml", "CITATION.cff", "CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md"}


def test_the_version_stands_in_one_place(repository: ModuleType) -> None:
    tomllib = pytest.importorskip("tomllib")  # 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "stompcodec.__version__"}
    assert repository.version() == stompcodec.__version__


def test_two_versions_are_an_error(repository: ModuleType, copy: Path) -> None:
    with (copy / repository.PACKAGE).open("a", encoding="utf-8") as file:
        file.write('__version__ = "9.9.9"\n')
    with pytest.raises(ValueError, match="it has 2"):
        repository.version()


def test_a_new_url_contact_or_version_makes_files_stale_until_it_is_written(
    repository: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(repository, monkeypatch, "--check") == 0
    monkeypatch.setattr(repository, "URL", URL)
    monkeypatch.setattr(repository, "CONTACT", "us@repository.example")
    (copy / repository.PACKAGE).write_text('__version__ = "1.2.3"\n', encoding="utf-8")
    before = {path: path.read_bytes() for path, *_ in repository.files()}
    assert run(repository, monkeypatch, "--check") == 1
    said = capsys.readouterr().out
    for name in ("pyproject.toml", "CITATION.cff", "CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md"):
        assert f"{name} is stale" in said
    assert before == {path: path.read_bytes() for path in before}
    assert run(repository, monkeypatch) == 0
    assert run(repository, monkeypatch, "--release") == 0
    assert 'version: "1.2.3"' in (copy / "CITATION.cff").read_text(encoding="utf-8")
    assert f'Source = "{URL}"' in (copy / "pyproject.toml").read_text(encoding="utf-8")
    for path, *_ in repository.files():
        text = path.read_text(encoding="utf-8")
        assert "repository.invalid" not in text
        assert "repository.example" in text


@pytest.mark.parametrize("name", ["URL", "CONTACT"])
def test_a_release_is_refused_while_a_placeholder_is_left(
    repository: ModuleType, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(repository, "URL", URL)
    monkeypatch.setattr(repository, "CONTACT", "us@repository.example")
    monkeypatch.setattr(repository, name, "x@repository.invalid")
    assert run(repository, monkeypatch) == 0
    assert run(repository, monkeypatch, "--check") == 0
    assert run(repository, monkeypatch, "--release") == 1
    assert f"placeholder in {name}:" in capsys.readouterr().out


def test_links_of_the_readme_are_absolute_and_lead_to_files_of_the_tree(
    repository: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "URL", URL)
    page = repository.long_description()
    links = re.findall(r"\]\(([^()\s]+)\)", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [link for link in links if link.startswith(URL)]
    start = re.compile(rf"{re.escape(URL)}(?:/(?:blob|raw)/v{re.escape(stompcodec.__version__)}/([^#]+))?(?:#.+)?")
    for link in ours:
        match = start.fullmatch(link)
        assert match, link
        assert match[1] is None or (ROOT / match[1]).exists(), link
    assert len(ours) > 20


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("[![a](docs/a.svg)](docs/a.md)", "[![a](U/raw/v1/docs/a.svg)](U/blob/v1/docs/a.md)"),
        ('<img src="docs/a.png" alt="(x)">', '<img src="U/raw/v1/docs/a.png" alt="(x)">'),
        ("[a]: docs/a.md", "[a]: U/blob/v1/docs/a.md"),
        ("[a](mailto:b@c.d) <a href='x'>", "[a](mailto:b@c.d) <a href='x'>"),
        ("[a](#b) [c](./d.md)", "[a](U#b) [c](U/blob/v1/d.md)"),
        ("```\n[a](b)\n```\n[a](b)", "```\n[a](b)\n```\n[a](U/blob/v1/b)"),
        ("    [a](b)", "    [a](b)"),
        ("``[`a](b)`` [c](d)", "``[`a](b)`` [c](U/blob/v1/d)"),
    ],
)
def test_a_link(repository: ModuleType, line: str, wanted: str) -> None:
    assert repository.absolute(line, "U", "v1") == wanted
