"""What the verbs that talk to a broker have in common: where it is, who we are, and what to say when it fails."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stompcodec.cli.inputs import complain
from stompcodec.cli.screen import printable
from stompcodec.errors import (
    ConfigError,
    ConnectionLostError,
    FrameError,
    ReceiptTimeoutError,
    RejectedError,
    StompError,
)
from stompcodec.spec import VERSIONS

if TYPE_CHECKING:
    from stompcodec.client import Client
    from stompcodec.uri import Address

__all__ = ["broker_options", "connected", "explanation", "header_option", "interrupts", "read_body", "saying"]

_URL = "stomp://localhost:61613"
#: What Python puts before the system's words.
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
F = TypeVar("F", bound=Callable[..., Any])


def header_pairs(
    _context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """NAME:VALUE -> (NAME, VALUE)."""
    pairs = []
    for value in values:
        name, colon, rest = value.partition(":")
        if not colon or not name:
            raise click.BadParameter(f"{value!r}: write NAME:VALUE", param=option)
        pairs.append((name, rest))
    return tuple(pairs)


#: -H, for verbs that write a frame.
header_option = click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME:VALUE",
    multiple=True,
    callback=header_pairs,
    help="A header; repeatable.",
)


def broker_options(function: F) -> F:
    """The options that say where the broker is, and who connects."""
    for option in (
        click.option("--insecure", is_flag=True, help="Do not check the broker's certificate."),
        click.option("--ca", type=click.Path(), metavar="FILE", help="Trust the certificates in FILE (PEM)."),
        click.option(
            "--timeout",
            type=click.FloatRange(0, min_open=True),
            default=10.0,
            show_default=True,
            metavar="SECS",
            help="How long to wait for the broker: to connect, and for a receipt.",
        ),
        click.option("--version", type=click.Choice(VERSIONS), help="Offer this STOMP version only."),
        click.option("--vhost", metavar="NAME", help="The virtual host; the one of the URL, or its host."),
        click.option(
            "--login", envvar="STOMPCODEC_LOGIN", metavar="NAME", help="Who connects; or STOMPCODEC_LOGIN, or the URL."
        ),
        click.option(
            "-u",
            "--url",
            envvar="STOMPCODEC_URL",
            default=_URL,
            show_default=True,
            metavar="URL",
            help="The broker: stomp, stomp+ssl, ws or wss, or failover:(URL,URL); or STOMPCODEC_URL.",
        ),
    ):
        function = option(function)
    return function


def _addresses(url: str) -> list[Address]:
    from stompcodec.uri import parse_uri

    return parse_uri(url if "://" in url or url.startswith("failover:") else f"stomp://{url}")


def _credentials(addresses: list[Address], login: str | None) -> dict[str, str]:
    """What wins over the URL: --login, and a passcode of the environment or of a prompt. It is never shown."""
    name = login if login is not None else next((each.login for each in addresses if each.login), None)
    passcode = os.environ.get("STOMPCODEC_PASSCODE")
    asked = passcode is None and name is not None and not any(each.passcode for each in addresses)
    if asked and sys.stdin.isatty():
        passcode = click.prompt(
            f"Passcode of {printable(name or '')}", hide_input=True, err=True, default="", show_default=False
        )
    given = {"login": login, "passcode": passcode}
    return {key: value for key, value in given.items() if value is not None}


def _tls(ca: str | None, insecure: bool) -> dict[str, Any]:
    if ca is None and not insecure:
        return {}
    from stompcodec.transport.tls import client_context

    return {"ssl": client_context(ca, verify=not insecure)}


@contextmanager
def connected(
    url: str,
    login: str | None,
    vhost: str | None,
    version: str | None,
    timeout: float,
    ca: str | None,
    insecure: bool,
    **options: Any,
) -> Iterator[Client]:
    """A client for the verb's options; `options` are more of `stompcodec.client.connect`.

    Raises:
        StompError, OSError: as `connect` does.
    """
    import stompcodec.client as stomp

    logging.getLogger("stompcodec").addHandler(logging.NullHandler())  # what matters is said as an error
    addresses = _addresses(url)
    options = {**_credentials(addresses, login), **_tls(ca, insecure), **options}
    if version is not None:
        options["versions"] = [version]
    with stomp.connect(
        addresses,
        vhost=vhost,
        connect_timeout=timeout,
        receipt_timeout=timeout,
        reconnect=options.pop("reconnect", None),
        **options,
    ) as client:
        yield client


@contextmanager
def saying() -> Iterator[None]:
    """Errors of the broker and of the network become one line on standard error, and exit status 1."""
    try:
        yield
    except (StompError, ValueError) as error:
        complain(explanation(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noted, and said by what this gives, instead of being raised wherever the program happens to be: perhaps
    with a lock in its hand, which nobody would get any more. The second one is raised.

    >>> with interrupts() as interrupted:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupted()
    True
    """
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: object) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, before)

    if before is None or threading.current_thread() is not threading.main_thread():  # only that one can have signals
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, before)


def explanation(error: Exception) -> str:
    """What went wrong, and what to do.

    >>> explanation(ConnectionLostError("cannot connect to stomp://localhost:61613: Connection refused"))
    'cannot connect to stomp://localhost:61613: Connection refused (is the broker running there? see --url)'
    """
    text = printable(_ERRNO.sub("", str(error)))
    folded = text.lower()
    remedy = ""
    if isinstance(error, RejectedError):
        if "virtual host" in folded and "login" not in folded:
            remedy = "name one with --vhost; the default of RabbitMQ is --vhost /"
        elif "connect" in folded.partition(":")[0]:
            remedy = "check --login and the passcode, in the URL or STOMPCODEC_PASSCODE"
    elif isinstance(error, ReceiptTimeoutError):
        remedy = "whether the broker has it is unknown; --timeout waits longer"
    elif isinstance(error, ConfigError):
        remedy = "see --url"
    elif isinstance(error, ConnectionLostError):
        if "certificate" in folded:
            remedy = "trust its issuer with --ca FILE"
        elif any(sign in folded for sign in ("no connected", "handshake", "websocket", "wrong version number")):
            remedy = "does a STOMP broker listen there, and by this scheme? see --url"
        elif "cannot connect" in folded:
            remedy = "is the broker running there? see --url"
        else:
            remedy = "what had no receipt may be lost"
    elif isinstance(error, FrameError):
        return text
    return f"{text} ({remedy})" if remedy else text


def read_body(body: str) -> bytes:
    """The octets of an argument TEXT, @FILE or - (standard input).

    Raises:
        click.ClickException: the file cannot be read.

    >>> read_body("hello")
    b'hello'
    """
    if body == "-":
        return sys.stdin.buffer.read()
    if not body.startswith("@"):
        return os.fsencode(body)
    try:
        with open(body[1:], "rb") as stream:
            return stream.read()
    except OSError as error:
        raise click.ClickException(f"{body[1:]}: cannot be read: {error.strerror}") from None
