"""Handlers of `sub`: print a message by a format, as JSON or for people, save it in a folder, or run a command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from stompcodec.cli.inputs import complain
from stompcodec.cli.screen import printable, write_json
from stompcodec.cli.show.template import Template
from stompcodec.cli.show.view import json_of
from stompcodec.disk import PRIVATE, Access, make_folder, opener
from stompcodec.errors import StoreError

if TYPE_CHECKING:
    from stompcodec.client import Message

#: File suffixes by content-type.
_SUFFIXES = {"json": ".json", "xml": ".xml", "html": ".html", "text": ".txt", "jpeg": ".jpg", "png": ".png"}
_NUMBERED = re.compile(r"(\d{6,})\..*")


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


class Dump:
    """Saves bodies as numbered files in a folder, and their headers in messages.jsonl. Existing files are kept."""

    def __init__(self, folder: Path, access: Access = PRIVATE) -> None:
        self._opener = opener(access)
        try:
            make_folder(folder, access)
            found = [_NUMBERED.fullmatch(name) for name in os.listdir(folder)]
        except (OSError, StoreError) as error:
            raise click.ClickException(f"{folder}: {getattr(error, 'strerror', None) or error}") from None
        self._folder = folder
        self._before = max((int(match[1]) for match in found if match), default=0)

    def __call__(self, message: Message, number: int) -> None:
        kind = (message.get("content-type") or "").partition(";")[0].lower()
        suffix = next((_SUFFIXES[word] for word in _SUFFIXES if word in kind), ".bin")
        name = f"{self._before + number:06}{suffix}"
        try:
            with open(self._folder / name, "xb", opener=self._opener) as file:
                file.write(message.body)
            entry = {"file": name, "headers": message.headers.pairs()}
            index_file = self._folder / "messages.jsonl"
            with open(index_file, "a", encoding="utf-8", errors="backslashreplace", opener=self._opener) as index:
                index.write(json.dumps(entry, ensure_ascii=False) + "\n")
        except (OSError, StoreError) as error:
            complain(f"{self._folder / name}: cannot be written: {getattr(error, 'strerror', None) or error}")
            sys.exit(1)  # it is not acknowledged, and will be delivered again


def run_command(shell_command: str, message: Message, number: int, output: int | None = None) -> bytes:
    """Run a command for a message, which is its input. Return its output; raise CommandError if it fails.

    Args:
        shell_command: the command, for the shell.
        message: its body is the input; other fields are in the environment.
        number: the number of the message.
        output: subprocess.PIPE to return the output; None to let it pass, which returns b"".
    """
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
    from stompcodec.cli.show.pretty import body_of

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


def handler(
    form: Template, view: str | None, dump: str | None, shell_command: str | None, access: Access = PRIVATE
) -> Handler:
    handlers: list[Handler] = []
    if dump is not None:
        handlers.append(Dump(Path(dump), access))
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
