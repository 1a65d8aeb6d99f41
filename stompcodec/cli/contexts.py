"""Contexts: named brokers, with login and TLS options, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from stompcodec.cli.screen import printable
from stompcodec.disk import PRIVATE, create, lock, make_folder, sync, sync_folder
from stompcodec.errors import ConfigError, StoreError
from stompcodec.spec import VERSIONS
from stompcodec.uri import parse_uri

#: A name begins with a letter, so that context:NAME cannot be a host with a port.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_REFERENCE = "context:"
#: The version of the file's format, and the most bytes that are read.
_FORMAT = 1
_MOST_BYTES = 2**20
#: Seconds to wait for another process that writes the file, and between two looks.
_PATIENCE = 5.0
_LOOK = 0.02


class Context(NamedTuple):
    """A named broker.

    >>> Context("prod", "stomp://ann@broker", passcode="secret")
    <Context prod stomp://ann@broker:61613>
    """

    name: str
    url: str
    """A URL without a passcode."""
    login: str | None = None
    passcode: str | None = None
    passcode_file: str | None = None
    vhost: str | None = None
    version: str | None = None
    ca: str | None = None
    insecure: bool = False

    def __repr__(self) -> str:
        return f"<Context {self.name} {self.shown_url}>"

    @property
    def shown_url(self) -> str:
        """The addresses in the URL, without secrets."""
        try:
            return ",".join(map(str, parse_uri(self.url)))
        except ConfigError:
            return "a malformed URL"

    def shown(self) -> dict[str, Any]:
        """Return the fields for display: those that are set, and secrets masked."""
        fields = {**self._asdict(), "url": self.shown_url, "passcode": None if self.passcode is None else "***"}
        return {name: value for name, value in fields.items() if value is not None and value is not False}


class Contexts(NamedTuple):
    """All contexts, and the name of the selected one."""

    all: dict[str, Context]
    selected: str | None = None


def path_of() -> Path:
    """Return the file of the contexts: contexts.json in the folder for the configuration of `stompcodec`."""
    return Path(click.get_app_dir("stompcodec")) / "contexts.json"


def checked_name(name: str) -> str:
    """Return the name of a context.

    Raises:
        click.BadParameter: it has other characters than letters, digits, dot, dash and underscore.

    >>> checked_name("prod-1")
    'prod-1'
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{printable(name[:80])!r} cannot be the name of a context: begin with a letter; letters, digits, . - _ may"
            " follow, 64 in all"
        )
    return name


def load() -> Contexts:
    """Return the contexts of the file; none if the file does not exist.

    Raises:
        click.UsageError: it cannot be read, is broken, or others can read it.
    """
    path = path_of()
    try:
        with open(path, "rb") as stream:
            _check_access(path, os.fstat(stream.fileno()))
            data = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return Contexts({})
    except OSError as error:
        _fail(path, f"cannot be read: {error.strerror}")
    if len(data) > _MOST_BYTES:
        _fail(path, f"has more than {_MOST_BYTES} bytes")
    try:
        return _contexts_of(json.loads(data))
    except (ValueError, RecursionError) as error:
        said = "is not JSON" if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError)) else error
        _fail(path, f"is broken: {printable(str(said))}")


def _check_access(path: Path, info: os.stat_result) -> None:
    """Check that only the user can read the file, as ssh does for its keys."""
    if sys.platform == "win32":
        return
    if info.st_uid not in (os.geteuid(), 0):
        _fail(path, f"belongs to another user: it is not read (chown it to {os.geteuid()})")
    if stat.S_IMODE(info.st_mode) & 0o077:
        shown = f"{stat.S_IMODE(info.st_mode):04o}"
        _fail(path, f"others have access to it (its mode is {shown}), and it may hold passcodes: chmod 600 it")


def _fail(path: Path, what: str) -> NoReturn:
    raise click.UsageError(f"{printable(str(path))}: {what}")


def _contexts_of(found: Any) -> Contexts:
    """Return the contexts in the parsed file. Raise ValueError if it is broken."""
    if not isinstance(found, dict) or not isinstance(found.get("contexts"), dict):
        raise ValueError('there is no object "contexts"')
    if found.get("format") != _FORMAT:
        raise ValueError(f"its format is {found.get('format')!r}, not {_FORMAT}: use a newer stompcodec")
    contexts = {name: _context_of(name, fields) for name, fields in found["contexts"].items()}
    selected = found.get("selected")
    if selected is not None and selected not in contexts:
        raise ValueError("the selected context does not exist: select another one with `stompcodec context use`")
    return Contexts(contexts, selected)


def _context_of(name: str, fields: Any) -> Context:
    if not _NAME.fullmatch(name) or not isinstance(fields, dict):
        raise ValueError(f"{name!r} is not a context")
    for field, value in fields.items():
        wanted = bool if field == "insecure" else str
        if field not in Context._fields[1:]:
            raise ValueError(f"context {name} has an unknown field {field!r}")
        if not isinstance(value, wanted):
            raise ValueError(f"{field} of context {name} is not a {'truth value' if wanted is bool else 'text'}")
    if fields.get("version") not in (None, *VERSIONS):
        raise ValueError(f"version of context {name} is not one of {', '.join(VERSIONS)}")
    try:
        check_url(fields.get("url", ""))
    except ConfigError as error:
        raise ValueError(f"url of context {name}: {error}") from None
    return Context(name, **fields)


def check_url(url: str) -> None:
    """Check the URL of a context.

    Raises:
        ConfigError: it is malformed, or has a passcode.
    """
    if any(address.passcode is not None for address in parse_uri(url)):
        raise ConfigError("it has a passcode, which is a field of its own", key="url")


def save(contexts: Contexts) -> None:
    """Replace the file by another one, all at once.

    Raises:
        click.UsageError: it cannot be written.
    """
    fields = {
        name: {
            field: value for field, value in context._asdict().items() if field != "name" and value not in (None, False)
        }
        for name, context in contexts.all.items()
    }
    text = json.dumps({"format": _FORMAT, "selected": contexts.selected, "contexts": fields}, indent=2) + "\n"
    path = Path(os.path.realpath(path_of()))  # a link to the file stays one
    try:
        file, temporary = tempfile.mkstemp(prefix=".contexts-", dir=path.parent)  # with mode 0600
        try:
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                sync(stream.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(path.parent)
    except OSError as error:
        _fail(path, f"cannot be written: {error.strerror}")


@contextmanager
def changing() -> Iterator[Contexts]:
    """Yield the contexts, for `save`, while no other process changes them.

    Raises:
        click.UsageError: they cannot be read, or another process does not finish.
    """
    path = path_of()
    try:
        make_folder(path.parent, PRIVATE)
        file = create(path.with_suffix(".lock"), os.O_RDWR)
    except (OSError, StoreError) as error:
        _fail(path, f"cannot be written: {getattr(error, 'strerror', None) or error}")
    try:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                lock(file)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    _fail(path, "another process is changing it: try again")
                time.sleep(_LOOK)
            except OSError as error:
                _fail(path, f"it cannot be locked: {error.strerror}")
        yield load()
    finally:
        os.close(file)


def context_named(name: str, hint: str = "'--context'") -> Context:
    """Return the context of a name.

    Raises:
        click.BadParameter: there is none. The message names the others.
        click.UsageError: the file cannot be used.
    """
    contexts = load().all
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none; make one with `stompcodec context add`"
        raise click.BadParameter(f"unknown context {printable(name[:80])!r} (there is: {known})", param_hint=hint)
    return contexts[name]


def refers_to_context(text: str) -> bool:
    """Return whether a URL is the name of a context.

    >>> refers_to_context("context:prod"), refers_to_context("context:61613")
    (True, False)
    """
    return text.startswith(_REFERENCE) and _NAME.fullmatch(text[len(_REFERENCE) :]) is not None


def referred(text: str, hint: str = "URL") -> Context | None:
    """Return the context that a URL such as context:prod names; None for other URLs.

    Raises:
        click.UsageError: as `context_named`.
    """
    return context_named(text[len(_REFERENCE) :], hint) if refers_to_context(text) else None
