"""What the pages of the site name is there: each page is in the menu, each link has a target, the reference names every
public name, verb, option and error, and docs/troubleshooting.md quotes texts that the code has."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("griffe")

from sitepages import api, built, commands, messages, staging

import stompcodec
from stompcodec.cli.app import app
from stompcodec.errors import ERROR_KINDS

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
    assert public - INTERNAL.keys() <= {module for part in api.PARTS.values() for module in part.modules}
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
    """`staged` itself has refused a link of a page to a file of the tree that is not there."""
    pages = [*sorted(staged.rglob("*.md")), staging.ROOT / "README.md"]
    links = [(page.name, line, target, found) for page in pages for line, target, found in _linked(page)]
    assert [f"{page}:{line}: {target}" for page, line, target, found in links if not found.exists()] == []


def test_an_old_address_leads_to_a_section_that_is_there(staged: Path, tmp_path: Path) -> None:
    built.lead_on(tmp_path)
    pages = list(tmp_path.rglob("index.html"))
    assert pages
    for old in pages:
        [to] = built.Page(old.read_text("utf-8")).loads
        path, _, anchor = to.partition("#")
        page = (old.parent / path).resolve().relative_to(tmp_path).as_posix().replace(".", "index")
        headings = re.findall("^#+ (.*)$", (staged / f"{page}.md").read_text("utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
        assert anchor in {"", *slugs}, old


#: Texts that others write, quoted because people search for them.
FOREIGN = {"… Connection refused"}


@pytest.fixture(scope="module")
def code() -> str:
    """All of the code without its line ends and the quotes of joined texts, and with … for what is put in."""
    text = "\n".join(path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    text = re.sub(r"\"\s*\n\s*f?\"", "", text)
    return re.sub(r"\{[^{}\n]*\}|%[.\d]*[sdfr]", "…", text)


@pytest.mark.parametrize("text", messages.rows())
def test_the_code_has_this_text(text: str, code: str) -> None:
    ours = re.sub("|".join(map(re.escape, FOREIGN)), "", text)
    parts = [part for part in re.split(r"\s*…\s*", ours) if part.strip(" :")]
    assert text in FOREIGN or parts
    assert [part for part in parts if part not in code] == []


#: The errors by which a server or the network ends what a program asked for; others are about the program's own calls.
ENDS = r"(client|transport)/.*:(ConnectionLost|OutboxFull|ReceiptTimeout|Rejected|RemoteProtocol|StaleAck)Error$"


def test_each_message_has_its_row() -> None:
    sections, titles = set(messages.rows().values()), [title for title, _ in messages.families()]
    others = [each for each in messages.messages() if each.section not in sections]
    assert [kind for kind in ERROR_KINDS if f"`{kind}`" not in messages.filled(messages.PAGE)] == []
    assert [each.text for each in others if re.match(ENDS, each.place) and len(re.findall(r"\w+", each.text)) > 3] == []
    assert {sum(title.startswith(each.section) for title in titles) for each in others} == {1}


def test_no_message_is_left_out() -> None:
    """A call that `messages` does not know would be missing here."""
    known = {each.text for each in messages.messages()}
    for path in PACKAGE.rglob("*.py"):
        raised = (each for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, ast.Raise))
        texts = {text for each in raised if each.exc for text in messages.texts(each.exc, {})}
        assert [text for text in texts - known if len(re.findall(r"\w+", text)) > 3] == [], path
