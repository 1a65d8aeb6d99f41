"""Handlers of `sub`: print a message by a format, as JSON or for people, save it in a folder, or run a command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from stompcodec.cli.inputs import complain
from stompcodec.cli.screen import printable, write_json
from stompcodec.cli.show.view import json_of
from stompcodec.disk.access import PRIVATE, Access, make_folder, opener
from stompcodec.errors import StoreError

if TYPE_CHECKING:
    from stompcodec.client import Message

_FIELD = re.compile(r"%(?:\{([^}]*)\}|(.))|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
#: File suffixes by content-type.
_SUFFIXES = {"json": ".json", "xml": ".xml", "html": ".html", "text": ".txt", "jpeg": ".jpg", "png": ".png"}
_NUMBERED = re.compile(r"(\d{6,})\..*")


class Handler(Protocol):
    """A handler of messages. It returns when it is done, and whether it succeeded."""

    def __call__(self, message: Message, number: int) -> bool: ...


def message_line(message: Message) -> bytes:
    """Return a message as a line of JSON, which `pub --json` and `encode --json` accept."""
    return json_of({}, message.frame)


def render(form: str, message: Message, number: int) -> bytes:
    """Return a message rendered by a format.

    %b body, %d destination, %i message-id, %s bytes of body, %n number, %t time, %h all headers, %{NAME} one header, %%
    a percent sign; \\n, \\t, \\r, \\0 and \\\\ as in C.
    """
    fields: dict[str, Callable[[], str]] = {
        "d": lambda: message.destination,
        "i": lambda: message.id,
        "s": lambda: str(len(message.body)),
        "n": lambda: str(number),
        "t": lambda: time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "h": lambda: " ".join(f"{name}:{value}" for name, value in message.headers.pairs()),
        "%": lambda: "%",
    }
    parts: list[bytes] = []
    at = 0
    for found in _FIELD.finditer(form):
        parts.append(form[at : found.start()].encode("utf-8", "surrogateescape"))
        at = found.end()
        name, letter, escape = found.groups()
        if letter == "b":
            parts.append(message.body)
        elif name is not None:
            parts.append((message.get(name) or "").encode("utf-8", "surrogateescape"))
        elif letter is not None:
            parts.append(fields[letter]().encode("utf-8", "surrogateescape"))
        else:
            parts.append(_ESCAPES[escape].encode())
    parts.append(form[at:].encode("utf-8", "surrogateescape"))
    return b"".join(parts)


def checked_format(_context: click.Context, _option: click.Parameter, form: str) -> str:
    """Check that a format is valid: a callback of click."""
    for found in _FIELD.finditer(form):
        _name, letter, escape = found.groups()
        if (letter and letter not in "bdisnth%") or (escape and escape not in _ESCAPES):
            raise click.BadParameter(f"{found.group()} is unknown: use %b %d %i %s %n %t %h %{{NAME}} %% \\n \\t \\0")
    return form


def _write(data: bytes) -> None:
    """Write to standard output, with control characters escaped on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(printable(data.decode("utf-8", "replace"), keep="\n\t"))
        sys.stdout.flush()
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _printer(form: str) -> Handler:
    def show(message: Message, number: int) -> bool:
        _write(render(form, message, number))
        return True

    return show


def _show_json(message: Message, number: int) -> bool:
    write_json(message_line(message))
    sys.stdout.flush()
    return True


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

    def __call__(self, message: Message, number: int) -> bool:
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
        return True


def _runner(shell_command: str) -> Handler:
    def run(message: Message, number: int) -> bool:
        environment = {
            **os.environ,
            "STOMP_DESTINATION": message.destination,
            "STOMP_MESSAGE_ID": message.id,
            "STOMP_NUMBER": str(number),
            "STOMP_HEADERS": json.dumps(message.headers.pairs()),
        }
        sys.stdout.flush()
        try:
            done = subprocess.run(shell_command, shell=True, input=message.body, env=environment, check=False)
        except OSError as error:  # the pipe, or too many headers for an environment
            complain(f"message {message.id}: cannot run the command: {error.strerror}")
            return False
        if done.returncode:
            complain(f"message {printable(message.id)}: the command ended with status {done.returncode}")
        return done.returncode == 0

    return run


def _show_pretty(message: Message, number: int) -> bool:
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
    return True


def handler(
    form: str, view: str | None, dump: str | None, shell_command: str | None, access: Access = PRIVATE
) -> Handler:
    handlers: list[Handler] = []
    if dump is not None:
        handlers.append(Dump(Path(dump), access))
    if shell_command is not None:
        handlers.append(_runner(shell_command))
    if view is not None or not handlers:
        handlers.append({"json": _show_json, "pretty": _show_pretty}.get(view or "", _printer(form)))

    def handle(message: Message, number: int) -> bool:
        return all(each(message, number) for each in handlers)

    return handle
