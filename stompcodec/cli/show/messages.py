"""Handlers of messages: print one by a template, as JSON or for people, or run a command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import click

from stompcodec.cli.screen import printable, write_json
from stompcodec.cli.show.views import json_of

if TYPE_CHECKING:
    from stompcodec.client import Message

_BRACE = re.compile(r"(\{\{|\}\})|\{([^{}]*)\}|([{}])|\\(.)", re.DOTALL)
_HEADER = re.compile(r"headers\[([^\[\]]+)\]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
Part = Callable[["Message", int], bytes]


def _text(field: Callable[[Message, int], str]) -> Part:
    return lambda message, number: field(message, number).encode("utf-8", "surrogateescape")


#: The fields by name.
_FIELDS: dict[str, Part] = {
    "body": lambda message, _number: message.body,
    "destination": _text(lambda message, _number: message.destination),
    "id": _text(lambda message, _number: message.id),
    "size": _text(lambda message, _number: str(len(message.body))),
    "number": _text(lambda _message, number: str(number)),
    "time": _text(lambda _message, _number: time.strftime("%Y-%m-%dT%H:%M:%S%z")),
    "headers": _text(lambda message, _number: " ".join(f"{k}:{v}" for k, v in message.headers.pairs())),
}
FIELDS = ", ".join([*(f"{{{name}}}" for name in _FIELDS), "{headers[NAME]}"])


class Template:
    """A parsed format.

    >>> from stompcodec.client.messages import Subscription
    >>> from types import SimpleNamespace as Fake
    >>> frame = Fake(pairs=lambda: [("n", "1")])
    >>> Template("{body} is {number}\\\\n").render(Fake(body=b"red"), 7)
    b'red is 7\\n'

    Raises:
        ValueError: it names an unknown field. The message lists those that exist.
    """

    def __init__(self, form: str) -> None:
        self._parts: list[Part] = []
        at = 0
        for found in _BRACE.finditer(form):
            self._literal(form[at : found.start()])
            at = found.end()
            self._parts.append(_part(found))
        self._literal(form[at:])

    def _literal(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        if data:
            self._parts.append(lambda _message, _number: data)

    def render(self, message: Message, number: int) -> bytes:
        """Return a message in this format. `number` counts messages from 1 on."""
        return b"".join([part(message, number) for part in self._parts])


def _part(found: re.Match[str]) -> Part:
    doubled, name, single, escape = found.groups()
    if doubled is not None or escape in _ESCAPES:
        return _constant(doubled[0] if doubled else _ESCAPES[escape])
    if name in _FIELDS:
        return _FIELDS[name]
    header = None if name is None else _HEADER.fullmatch(name)
    if header is not None:
        return _header(header[1])
    if single is not None:
        raise ValueError(f"a single {single}: write {single}{single} for itself")
    raise ValueError(f"{found.group()} is unknown: use {FIELDS}, {{{{ }}}} for braces, \\n \\t \\0")


def _constant(text: str) -> Part:
    return lambda _message, _number: text.encode()


def _header(name: str) -> Part:
    return _text(lambda message, _number: message.get(name) or "")


def template_of(_context: click.Context, _option: click.Parameter, form: str | None) -> Template | None:
    """Parse a format: a callback of click."""
    try:
        return None if form is None else Template(form)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class CommandError(Exception):
    """A command has failed for a message, and may be run again."""


class Handler(Protocol):
    """A handler of messages. It returns when it is done, or raises CommandError."""

    def __call__(self, message: Message, number: int) -> None: ...


def message_line(message: Message) -> bytes:
    """Return a message as a line of JSON, which `pub --json` and `encode --json` accept."""
    return json_of({}, message.frame)


def _write(data: bytes) -> None:
    """Write to standard output, with control characters escaped on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(printable(data.decode("utf-8", "replace"), keep="\n\t"))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _printer(form: Template) -> Handler:
    def show(message: Message, number: int) -> None:
        _write(form.render(message, number))

    return show


def _show_json(message: Message, number: int) -> None:
    write_json(message_line(message))
    sys.stdout.flush()


def run_command(shell_command: str, message: Message, number: int, output: int | None = None) -> bytes:
    """Run a command for a message, which is its input. Return its output; raise CommandError if it fails."""
    environment = {
        **os.environ,
        "STOMP_DESTINATION": message.destination,
        "STOMP_MESSAGE_ID": message.id,
        "STOMP_NUMBER": str(number),
        "STOMP_HEADERS": json.dumps(message.headers.pairs()),
    }
    sys.stdout.flush()
    try:
        done = subprocess.run(
            shell_command, shell=True, input=message.body, stdout=output, env=environment, check=False
        )
    except OSError as error:  # the pipe, or too many headers for an environment
        raise CommandError(f"message {printable(message.id)}: cannot run the command: {error.strerror}") from error
    if done.returncode:
        raise CommandError(f"message {printable(message.id)}: the command ended with status {done.returncode}")
    return done.stdout or b""


def _runner(shell_command: str) -> Handler:
    def run(message: Message, number: int) -> None:
        run_command(shell_command, message, number)

    return run


def _show_pretty(message: Message, number: int) -> None:
    from rich.text import Text

    from stompcodec.cli.screen import COMMAND_STYLES, header_value, screen
    from stompcodec.cli.show.views import body_of

    console = screen()
    text = Text().append(f"{number} ", "dim").append(printable(message.destination), COMMAND_STYLES["MESSAGE"])
    text.append(f", {len(message.body)} bytes\n", "dim")
    for name, value in message.headers.pairs():
        text.append(printable(name), "bold").append(": ", "dim").append(header_value(name, value) + "\n")
    notes, _form, shown = body_of(message.frame)
    for note in notes:
        text.append(f"({note})\n", "dim italic")
    console.print(text.append(f"\n{shown}\n"), soft_wrap=True)
    sys.stdout.flush()


def handler(form: Template, view: str | None, shell_command: str | None) -> Handler:
    handlers: list[Handler] = []
    if shell_command is not None:
        handlers.append(_runner(shell_command))
    if view is not None or not handlers:
        handlers.append({"json": _show_json, "pretty": _show_pretty}.get(view or "", _printer(form)))

    at = (0, 0)  # a number, and the index of its handler: what precedes that is not repeated

    def handle(message: Message, number: int) -> None:
        nonlocal at
        first = at[1] if at[0] == number else 0
        for index, each in enumerate(handlers[first:], first):
            at = (number, index)
            each(message, number)

    return handle
