"""Every code block of the README and of the pages is run by a test, or the page says below it why it is untried."""

import ast
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("click")

import click
from docsite.blocks import ROOT, Block, blocks_of, pages
from docsite.test_pages_run import PAGES

from stompcodec.broker.auth import hash_passcode
from stompcodec.broker.config import load_config
from stompcodec.cli.app import app

TESTS = ROOT / "tests"
#: Which test runs the blocks of a page in a language. `test_it_is_run_there` sees to it that it reads the page.
RUN = {
    **{
        (f"docs/{page}.md", "python"): "client/test_docs.py::test_the_examples_run"
        for page in ("client", "large-bodies", "middleware", "proxies", "tracing")
    },
    ("docs/coming-from-stomp-py.md", "python"): "compat/test_stomppy.py::test_the_examples_of_the_page_run",
    ("docs/coming-from-stompman.md", "python"): "compat/test_stompman.py::test_the_examples_of_the_docs_run",
    **{
        ("docs/how-to-extend.md", kind): "docsite/test_pages_run.py::test_each_recipe_works_as_written"
        for kind in ("diff", "python")
    },
    ("docs/testing.md", "python"): "testing/test_plugin.py::test_the_documentation_is_right",
    ("docs/spark-semantics.md", "python"): (
        "spark/jobs/test_jobs.py::test_the_supervisor_of_the_page_survives_kills_of_the_source"
    ),
    ("docs/spark-tutorial.md", "python"): "spark/test_tutorial.py::test_the_page_does_what_it_says",
    ("docs/spark-tutorial.md", "sh"): "spark/test_tutorial.py::test_the_page_does_what_it_says",
    ("docs/network-rail.md", "python"): "spark/jobs/test_jobs.py::test_the_page_says_how_xml_becomes_columns",
    ("docs/network-rail.md", "sh"): "spark/test_tutorial.py::test_a_pipeline",
    ("docs/pipeline.md", "python"): "spark/test_tutorial.py::test_a_pipeline",
    ("docs/pipeline.md", "sh"): "spark/test_tutorial.py::test_a_pipeline",
    ("docs/spark-cluster.md", "python"): "spark/test_cluster.py",
    ("docs/spark-cluster.md", "sh"): "spark/test_cluster.py",
    ("ARCHITECTURE.md", "mermaid"): "test_architecture_page.py::test_the_arrows_of_a_client_are_drawn",
    ("docs/states.md", "mermaid"): "protocol/test_states.py::test_the_page_is_not_stale",
}
RUN |= {
    **{
        (page, "python"): "docsite/test_pages_run.py"
        for page in ("README.md", "docs/capture-format.md", "docs/compat.md")
    },
    **{(f"docs/{page}.md", "sh"): "docsite/test_pages_run.py" for page in ("bridge", "cli", "queue-tools")},
}
RUN |= {
    (page, language): "docsite/test_pages_run.py::test_a_page_does_what_it_says"
    for page in PAGES
    for language in ("python", "sh")
    if any(block.language == language for block in blocks_of(ROOT / page))
}
#: Pages of which only some blocks are run: those that begin so.
ONLY = {
    ("README.md", "python"): ("import stompcodec.client", "def test_orders", "from stompcodec import compat"),
    ("docs/bridge.md", "sh"): ("seq 1000", "$ stompcodec bridge"),
    ("docs/cli.md", "sh"): "stompcodec reply",
    ("docs/spark-cluster.md", "python"): "# job.py",
    ("docs/spark-cluster.md", "sh"): ("python3 -m pip install", "export PYSPARK"),
    ("docs/spark-semantics.md", "python"): "# supervised.py",
}
#: Where doctest runs the examples: see DOCTESTS in the Makefile.
DOCTESTED = re.compile(r"README\.md|docs/.*")

ALL = [block for page in pages() for block in blocks_of(page)]


def who_runs(block: Block) -> str:
    """Name what runs a block; "" if nothing does."""
    if block.language == "pycon" and DOCTESTED.fullmatch(block.page):
        return "doctest"
    if block.language == "toml":
        return "docsite/test_blocks.py::test_configuration_is_valid"
    where = block.page, block.language
    return RUN.get(where, "") if block.text.startswith(ONLY.get(where, "")) else ""


def test_each_block_is_run_or_says_why_not() -> None:
    tried = [block for block in ALL if not block.untried]
    neither = [block for block in tried if not who_runs(block) and block.language != "text"]
    assert [f"{block} ({block.language}): {block.text[:60]!r}" for block in neither] == []
    assert sum(bool(who_runs(block)) for block in tried) > 95
    assert len(ALL) - len(tried) < 50


@pytest.mark.parametrize(("where", "test"), RUN.items(), ids=str)
def test_it_is_run_there(where: tuple[str, str], test: str) -> None:
    page, language = where
    assert any(block.page == page and block.language == language for block in ALL), f"{page} has no such block"
    file, _, function = test.partition("::")
    text = (TESTS / file).read_text("utf-8")
    assert Path(page).stem in text or Path(page).name in text
    if function:
        assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "toml"], ids=str)
def test_configuration_is_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    text = block.text.replace("scrypt$16384$8$1$...", hash_passcode("a passcode"))
    groups = set(re.findall(r'^who = "@(\w+)"', text, re.MULTILINE)) - set(re.findall(r'"(\w+)"', text))
    users = {name for name in re.findall(r'^who = "(\w+)"', text, re.MULTILINE) if f"[users.{name}]" not in text}
    for number, group in enumerate(groups):
        text += f'\n[users.member{number}]\npasscode = "{hash_passcode("a passcode")}"\ngroups = ["{group}"]\n'
    for user in users:
        text += f'\n[users.{user}]\npasscode = "{hash_passcode("a passcode")}"\n'
    file.write_text(text, "utf-8")
    load_config(file)


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "python"], ids=str)
def test_python_is_python(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _commands() -> list[tuple[Block, list[str]]]:
    """The words of each use of our command, in blocks that are run and in those that are not."""
    found = []
    for block in ALL:
        if block.language in ("sh", "console"):
            for part in re.split(r"\n|\||&&", block.text.replace("\\\n", " ")):
                part = part.strip().removeprefix("$ ").removesuffix("&")
                if part.startswith("stompcodec "):
                    found.append((block, shlex.split(part.replace("<", " ").replace(">", " "), comments=True)[1:]))
    return found


def test_verbs_and_options_of_all_commands_exist() -> None:
    commands = _commands()
    assert len(commands) > 50
    for block, words in commands:
        command: click.Command = app
        context = click.Context(app, info_name="stompcodec")
        while words and isinstance(command, click.Group) and (verb := command.get_command(context, words[0])):
            command, words = verb, words[1:]
        assert command is not app, f"{block}: {words}"
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}
        for word in words:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{block}: {command.name} has no option {word}"


def test_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z0-9 -]+):", makefile, re.MULTILINE))
    known = {name for names in targets for name in names.split()}
    for block in ALL:
        for target in re.findall(r"^(?:\$ )?make ([a-z-]+)", block.text, re.MULTILINE):
            assert target in known, f"{block}: make {target}"
