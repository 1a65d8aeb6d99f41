"""The reference of the command line, written from the verbs' own options and help."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from sitepages.tables import cell, table
from stompcodec.cli.app import app


def verbs(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield each verb below a command with its full name, those of groups after their group."""
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        verb = command.get_command(context, name)
        assert verb is not None
        inner = click.Context(verb, info_name=name, parent=context)
        yield inner.command_path, verb, inner
        yield from verbs(verb, inner)


def pages() -> dict[str, str]:
    """Return the text of the page by its name."""
    return {"reference/command-line.md": "\n".join(_page()) + "\n"}


def _page() -> Iterator[str]:
    context = click.Context(app, info_name="stompcodec")
    found = list(verbs(app, context))
    yield "# Command line: every verb and option\n"
    yield "Written from the code; `stompcodec VERB --help` prints the same. [The command line](../cli.md) explains"
    yield "addresses, passcodes, formats and exit statuses.\n"
    yield from table(
        ["verb", ""], ([f"[`{name}`](#{_anchor(name)})", cell(verb.get_short_help_str(200))] for name, verb, _ in found)
    )
    for name, verb, inner in found:
        yield f"\n## `{name}` {{ #{_anchor(name)} }}\n"
        yield f"```text\n{verb.get_usage(inner)}\n```\n"
        yield from _paragraphs(verb.help or "")
        rows = [record for parameter in verb.get_params(inner) if (record := parameter.get_help_record(inner))]
        if rows:
            yield from table(["option", ""], ([f"`{option}`".replace("|", "\\|"), cell(text)] for option, text in rows))
            yield ""
        yield from _paragraphs(verb.epilog or "")


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield a help text: paragraphs that click leaves alone are code."""
    for paragraph in re.split(r"\n\s*\n", text.partition("\f")[0].strip()):
        if paragraph.startswith("\b\n"):
            code = paragraph.removeprefix("\b\n")
            yield f"```text\n{code}\n```\n"
        elif paragraph:
            yield f"{cell(paragraph)}\n"
