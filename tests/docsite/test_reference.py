"""What the pages of the site name is there: each page is in the menu, each link has a target, the reference names every
public name, verb, option, error and rule, and docs/error-messages.md quotes texts that the code has."""

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("griffe")

from sitepages import api, commands, staging

import stompcodec
from stompcodec.cli.app import app
from stompcodec.client import Options
from stompcodec.client.options import Backoff
from stompcodec.errors import ERROR_KINDS
from stompcodec.spec import Limits

PACKAGE = Path(stompcodec.__file__).parent
#: Modules with `__all__` that are not for programs: parts of a door, and programs.
INTERNAL = {
    "stompcodec._codec_py": "a backend, behind stompcodec",
    "stompcodec.codec": "a part of stompcodec",
    "stompcodec.cli": "the program",
    "stompcodec.spark.base": "what the sources and the sink of Spark share",
    "stompcodec.client.sync.waiting": "a part of stompcodec.client",
    "stompcodec.client.aio.waiting": "a part of stompcodec.client",
}


def test_all_public_modules_have_a_page() -> None:
    public = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^__all__ = ", path.read_text("utf-8"), re.MULTILINE)
    }
    written = {module for part in api.PARTS.values() for module in part.modules}
    assert public - INTERNAL.keys() <= written
    assert INTERNAL.keys() <= public, "no longer there"


def test_every_public_name_is_in_the_reference(generated: dict[str, str]) -> None:
    names = [
        (page, module, name)
        for page, part in api.PARTS.items()
        for module in part.modules
        for name in api.names_of(module)
    ]
    assert len(names) > 150
    for page, module, name in names:
        heading = api.heading(module, name)
        assert generated[f"reference/{page}.md"].count(f"\n{heading}\n") == 1, f"{module}.{name}"


def test_every_verb_and_option_is_in_the_reference(generated: dict[str, str]) -> None:
    page = generated["reference/command-line.md"]
    found = list(commands.verbs(app, click.Context(app, info_name="stompcodec")))
    assert len(found) > 30
    for name, verb, _ in found:
        section = page.partition(f"\n## `{name}` {{")[2].partition("\n## ")[0]
        assert section, name
        options = [each for each in verb.params if isinstance(each, click.Option) and not each.hidden]
        assert [option for each in options for option in each.opts if option not in section] == [], name


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("client-options", [each.name for kind in (Options, Backoff) for each in fields(kind)]),
        ("client-options", list(Limits._fields)),
        ("errors", list(ERROR_KINDS)),
        ("errors", ["StompError", "FrameError", "stompcodec.client.SendManyError", "stompcodec.bridge.BridgeError"]),
    ],
)
def test_tables_are_complete(generated: dict[str, str], page: str, names: list[str]) -> None:
    lines = generated[f"reference/{page}.md"].splitlines()
    for name in names:
        [line] = [each for each in lines if each.startswith(f"| `{name}` |")]
        assert re.search(r"\w", re.split(r"(?<!\\)\|", line)[-2]), f"nothing is said of {name}"


def test_every_rule_is_in_the_reference(generated: dict[str, str]) -> None:
    from stompcodec.cli.linting import _titles

    page = generated["reference/lint-rules.md"]
    assert len(_titles()) > 300
    assert all(f"\n| `{rule}` | " in page for rule in _titles())


def _menu(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _menu(each)


def test_each_page_is_in_the_menu_once(staged: Path) -> None:
    menu = list(_menu(tomllib.loads((staging.DOCS / "site" / "zensical.toml").read_text("utf-8"))["project"]["nav"]))
    assert len(menu) == len(set(menu))
    assert set(menu) == {path.relative_to(staged).as_posix() for path in staged.rglob("*.md")}


def _linked(page: Path) -> Iterator[tuple[int, str, Path]]:
    for line, target in staging.links(page.read_text("utf-8")):
        found = staging.target_of(page, target)
        if found is not None:
            yield line, target, found


def test_each_page_can_be_reached_from_the_first_one_by_links(staged: Path) -> None:
    reached, waiting = set(), [staged / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [found for _, _, found in _linked(page) if found.suffix == ".md"]
    assert {path.relative_to(staged).as_posix() for path in set(staged.rglob("*.md")) - reached} == set()


def test_each_link_has_a_target(staged: Path) -> None:
    broken = [
        f"{page.relative_to(staged)}:{line}: {target}"
        for page in sorted(staged.rglob("*.md"))
        for line, target, found in _linked(page)
        if not found.is_file()
    ]
    assert broken == []


@pytest.mark.parametrize("page", [staging.ROOT / "README.md", *staging.sources().values()], ids=lambda page: page.stem)
def test_each_link_of_the_tree_has_a_target(page: Path) -> None:
    broken = [target for _, target, found in _linked(page) if not found.exists()]
    assert broken == []


def test_pictures_come_along(staged: Path) -> None:
    for page in staged.rglob("*.md"):
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8")):
            assert os.path.isfile(page.parent / picture), (page, picture)


MESSAGES = staging.DOCS / "error-messages.md"
#: Texts that others write, quoted because people search for them.
FOREIGN = {"… Connection refused"}


def _quoted() -> list[str]:
    """The texts in the first column, and in the second of the table of kinds."""
    texts = []
    for line in MESSAGES.read_text("utf-8").splitlines():
        if line.startswith("| `"):
            cells = line.split(" | ")
            texts += re.findall(r"`([^`]+)`", cells[1] if cells[0].strip("| `") in ERROR_KINDS else cells[0])
    return texts


@pytest.fixture(scope="module")
def code() -> str:
    """All of the code without its line ends and the quotes of joined texts, and with … for what is put in."""
    text = "\n".join(path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    text = re.sub(r"\"\s*\n\s*f?\"", "", text)
    return re.sub(r"\{[^{}\n]*\}|%[.\d]*[sdfr]", "…", text)


@pytest.mark.parametrize("text", _quoted())
def test_the_code_has_this_text(text: str, code: str) -> None:
    ours = re.sub("|".join(map(re.escape, FOREIGN)), "", text)
    parts = [part for part in re.split(r"\s*…\s*", ours) if part.strip(" :")]
    assert text in FOREIGN or parts
    assert [part for part in parts if part not in code] == []


#: The errors by which a server or the network ends what a program asked for; others are about the program's own calls.
_ENDS = r"(ConnectionLost|OutboxFull|ReceiptTimeout|Rejected|RemoteProtocol|StaleAck)Error"


def _texts(node: ast.AST) -> Iterator[str]:
    """The texts in an expression, with … for what is put in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    else:
        for each in ast.iter_child_nodes(node):
            yield from _texts(each)


def _messages(tree: ast.Module) -> Iterator[str]:
    """The texts of these errors, also where their function has a name for them: `what = …`."""
    for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)):
        nodes = list(ast.walk(function))
        for call in (each for each in nodes if isinstance(each, ast.Call) and each.args):
            if re.fullmatch(_ENDS, ast.unparse(call.func)):
                names = {each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)}
                said = [
                    each for each in nodes if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) in names
                ]
                for part in (call.args[0], *(each.value for each in said)):
                    yield from (text for text in _texts(part) if len(re.findall(r"\w+", text)) > 3)


@pytest.mark.parametrize(
    "path",
    sorted(PACKAGE.glob("client/**/*.py")) + sorted(PACKAGE.glob("transport/*.py")),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_each_message_has_its_row(path: Path) -> None:
    rows = [re.escape(row).replace("…", ".*") for row in _quoted() if len(row) > 5]
    texts = set(_messages(ast.parse(path.read_text("utf-8"))))
    assert [text for text in texts if not any(re.search(row, text) for row in rows)] == []


def test_every_kind_of_error_is_there() -> None:
    page = MESSAGES.read_text("utf-8")
    assert len(_quoted()) > 40
    for kind, text in ERROR_KINDS.items():
        assert f"| `{kind}` | `{text.what}` |" in page
