"""stompcodec encode: write a frame, or frames from lines of JSON, as bytes."""

from __future__ import annotations

import sys
from typing import Any

import click

from stompcodec import Frame, FrameError, serialize
from stompcodec.cli.connecting import read_body
from stompcodec.cli.files import frame_of, lines_of
from stompcodec.cli.inputs import HANDSHAKE, Unreadable, complain, name_of, remedy_of, version_after
from stompcodec.errors import ERROR_KINDS
from stompcodec.spec import VERSIONS

#: Remedies that differ from those for reading.
_REMEDIES = {
    "unknown-command": "check its spelling and --version",
    "body-not-allowed": "leave the body out, or use --version 1.0",
}


def _problem(error: Exception) -> str:
    if isinstance(error, FrameError):
        detail = f": {error.detail}" if error.detail else ""
        return f"{error.kind}: {ERROR_KINDS[error.kind].what}{detail} ({_REMEDIES.get(error.kind) or remedy_of(error)})"
    return str(error)


def _one_frame(name: str, headers: tuple[str, ...], body: str, version: str, options: dict[str, Any]) -> str:
    pairs = []
    for header in headers:
        key, colon, value = header.partition(":")
        if not colon:
            raise click.BadParameter(f"{header!r} has no colon: write NAME:VALUE", param_hint="-H")
        pairs.append((key, value))
    try:
        data = read_body(body)
    except click.ClickException as error:
        return error.message
    try:
        sys.stdout.buffer.write(serialize(Frame(name, pairs, data), None if version == "auto" else version, **options))
    except FrameError as error:
        return _problem(error)
    return ""


def _all_lines(file: str, version: str, options: dict[str, Any]) -> str:
    rules = None if version == "auto" else version
    number = 0
    try:
        for number, line in enumerate(lines_of(file), 1):  # noqa: B007  used in the message
            if not line.strip():
                continue
            frame = frame_of(line)
            sys.stdout.buffer.write(serialize(frame, rules, **options))
            if version == "auto" and frame.command in HANDSHAKE:
                rules = version_after(frame)
    except Unreadable as error:
        return f"{name_of(file)}: cannot be read: {error}"
    except ValueError as error:
        return f"{name_of(file)}: line {number}: {_problem(error)}"
    return ""


@click.command("encode")
@click.argument("arguments", metavar="[COMMAND | --json [FILE|-]...]", nargs=-1)
@click.option(
    "-H", "--header", "headers", metavar="NAME:VALUE", multiple=True, help="A header, not escaped; repeatable."
)
@click.option("-b", "--body", default="", metavar="TEXT|@FILE|-", help="The body: text, a file, or standard input.")
@click.option("--json", "lines", is_flag=True, help="Read frames from lines of JSON, as decode --json writes them.")
@click.option(
    "--version",
    type=click.Choice(["auto", *VERSIONS, "legacy"]),
    default="auto",
    show_default=True,
    help="The STOMP version. auto is 1.2; with --json it follows CONNECTED.",
)
@click.option("--lenient", is_flag=True, help="Write headers that are not UTF-8 as decode --lenient has read them.")
def command(
    arguments: tuple[str, ...], headers: tuple[str, ...], body: str, lines: bool, version: str, **options: Any
) -> None:
    """Write a frame to standard output, with escapes and content-length.

    With --json, or without a COMMAND, frames are read from lines of JSON.

    \b
      stompcodec encode SEND -H destination:/queue/a -b hello
      stompcodec decode --json frames.stomp | stompcodec encode > copy.stomp
    """
    if lines or not arguments:
        if headers or body:
            raise click.UsageError("-H and -b need a COMMAND, and cannot be used with --json")
        problems = [_all_lines(file, version, options) for file in arguments or ("-",)]
    elif len(arguments) > 1:
        raise click.UsageError("one COMMAND at a time: name headers with -H and the body with -b")
    else:
        problems = [_one_frame(arguments[0], headers, body, version, options)]
    sys.stdout.flush()
    for text in filter(None, problems):
        complain(text)
    sys.exit(1 if any(problems) else 0)
