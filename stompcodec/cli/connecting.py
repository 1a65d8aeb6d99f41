"""Options and error messages shared by the verbs that talk to a broker."""

from __future__ import annotations

import functools
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from stompcodec.cli import streams
from stompcodec.cli.contexts import Context, context_named, load, referred, refers_to_context
from stompcodec.cli.groups import INTERRUPTED
from stompcodec.cli.inputs import Duration, complain, option_group
from stompcodec.cli.screen import printable
from stompcodec.cli.signals import ending
from stompcodec.cli.unreadable import way_round
from stompcodec.content import is_text_type
from stompcodec.errors import (
    ConfigError,
    ConnectionLostError,
    FrameError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
    StompError,
)
from stompcodec.spec import VERSIONS
from stompcodec.values import SIZE
from stompcodec.values import size as size_of

if TYPE_CHECKING:
    from stompcodec.client import Client
    from stompcodec.uri import Address

_URL = "stomp://localhost:61613"
_TIMEOUT = 10.0
_LONGEST_PASSCODE = 64 * 1024
#: host:port, optionally with a login and a virtual host.
_HOST_PORT = re.compile(r"(?:[^/@\s]*@)?(?:\[[0-9a-fA-F:.]+\]|[\w.-]+):[0-9]{1,5}(?:/\S*)?", re.ASCII)
#: What names of destinations begin with at brokers, after a slash.
_KINDS = ("queue/", "topic/", "temp-queue/", "temp-topic/", "exchange/", "amq/queue/", "dsub/")
#: Python's prefix of the system's error text.
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
F = TypeVar("F", bound=Callable[..., Any])


def header_pairs(
    _context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Parse NAME:VALUE options into pairs: a callback of click."""
    pairs = []
    for value in values:
        name, colon, rest = value.partition(":")
        if not colon or not name:
            raise click.BadParameter(f"{value!r}: write NAME:VALUE", param=option)
        pairs.append((name, rest))
    return tuple(pairs)


def header_option(command: str) -> Callable[[F], F]:
    """Return the option -H of a verb that writes frames of a command, a key of the client's `OWNED`."""

    def check(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        pairs = header_pairs(context, option, values)
        if pairs:
            from stompcodec.client.owned import owned_of

            name = owned_of(command, [name for name, _ in pairs])
            if name is not None:
                raise click.BadParameter(
                    f"{name!r} is a header that the client writes itself: leave it out (see the options)",
                    param=option,
                )
        return pairs

    text = "A header; repeatable."
    return click.option("-H", "--header", "headers", metavar="NAME:VALUE", multiple=True, callback=check, help=text)


#: The options of a subscription, which `subscription_of` collects.
subscription_options = option_group(
    click.option("--selector", metavar="TEXT", help="Receive only messages that match, in the broker's syntax."),
    click.option("--durable", metavar="NAME", help="Make the subscription durable, with this name."),
    click.option(
        "--client-id", metavar="NAME", help="The client id, which some brokers require for durable subscriptions."
    ),
    header_option("SUBSCRIBE"),
)


def subscription_of(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `Client.subscribe` from a verb's options, which leaves those of `connected`."""
    return {name: given.pop(name) for name in ("selector", "durable", "headers", "prefetch")}


def report_reconnect(state: str, error: Exception | None) -> None:
    """Report a lost connection that is being restored: an `on_state` of clients."""
    if state == "reconnecting":
        complain(f"{printable(str(error)) if error else 'the connection was lost'}; connecting again")


def check_count(count: int, most: int | None, seconds: float | None) -> None:
    """Exit with status 1 and a message if fewer messages came than -n asks for."""
    if most is not None and count < most:
        complain(f"{count} of {most} messages came" + ("" if seconds is None else f" in {seconds:g} s"))
        sys.exit(1)


#: The options of the login, for `connected` and `credentials`.
login_options = option_group(
    click.option(
        "--login",
        envvar="STOMPCODEC_LOGIN",
        metavar="NAME",
        help="The login; also STOMPCODEC_LOGIN, or in the URL.",
    ),
    click.option(
        "--passcode-file",
        metavar="FILE",
        type=click.Path(),
        help="Read the passcode from the first line of FILE. Otherwise it is taken from "
        "STOMPCODEC_PASSCODE, the URL, or a prompt without echo.",
    ),
)


def _with_context(command: F) -> F:
    """Replace the name of --context by the context that counts: that, the selected one, or None if a URL is given."""

    @functools.wraps(command)
    def wrapped(*args: Any, context: str | None, url: str | None, **options: Any) -> Any:
        return command(*args, url=url, context=_chosen(context, url), **options)

    return wrapped  # type: ignore[return-value]  # the options of click make its signature


def _chosen(name: str | None, url: str | None) -> Context | None:
    """Return the context that counts.

    Raises:
        click.UsageError: a context and a URL are named in the same way; or the context cannot be read.
    """
    if name and url is not None:
        named, addressed = (_is_from(option, ParameterSource.COMMANDLINE) for option in ("context", "url"))
        if named == addressed:
            given = "--url and --context" if named else "STOMPCODEC_URL and STOMPCODEC_CONTEXT"
            raise click.UsageError(f"{given} both name a broker: give one of them")
        name = name if named else None
    if name:
        return context_named(name)
    if url is not None:
        return referred(url, "'--url'")
    contexts = load()
    return None if contexts.selected is None else contexts.all[contexts.selected]


def _is_from(option: str, source: ParameterSource) -> bool:
    return click.get_current_context().get_parameter_source(option) is source


#: The options of the broker's address and the login, without a timeout. The context is for `connected`.
connection_options = option_group(
    click.option(
        "-u",
        "--url",
        envvar="STOMPCODEC_URL",
        metavar="URL",
        help="The broker: host:61613, a URL with stomp, stomp+ssl, ws or wss, failover:(URL,URL), or context:NAME. "
        f"Also STOMPCODEC_URL.  [default: the selected context, or {_URL}]",
    ),
    click.option(
        "--context",
        envvar="STOMPCODEC_CONTEXT",
        metavar="NAME",
        help="The broker, login and TLS options by name: see `stompcodec context`. Also STOMPCODEC_CONTEXT.",
    ),
    login_options,
    click.option("--vhost", metavar="NAME", help="The virtual host. Default: from the URL, or its host name."),
    click.option("--version", type=click.Choice(VERSIONS), help="Offer this STOMP version only."),
    click.option("--ca", type=click.Path(), metavar="FILE", help="Trust the certificates in FILE (PEM)."),
    click.option("--insecure", is_flag=True, help="Do not check the broker's certificate."),
    _with_context,
)


def at_url(broker: dict[str, Any], url: str) -> None:
    """Replace the broker of `connection_options` by the one of an argument, with the context that it names, if any.

    Raises:
        click.UsageError: --context names another one; or the context cannot be read.
    """
    if broker["context"] is not None and _is_from("context", ParameterSource.COMMANDLINE):
        raise click.UsageError(f"{printable(url)} and --context both name a broker: give one of them")
    broker["url"], broker["context"] = url, referred(url)


def adopt(context: Context | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return options completed by those of a context. Options of the command line take precedence.

    A login that the command line names leaves out the passcode of the context, which belongs to another login.
    The variables STOMPCODEC_LOGIN and STOMPCODEC_PASSCODE count only for what the context does not have.

    Args:
        context: the context; None for no change.
        given: url, login, passcode_file and so on, each None where it is not given.

    >>> adopt(Context("a", "b:1", vhost="/"), {"url": None, "vhost": None, "ca": "c.pem"})
    {'url': 'b:1', 'vhost': '/', 'ca': 'c.pem', 'passcode': None}
    """
    if context is None:
        return given
    taken = {**given, "url": context.url, "passcode": None}
    has_login = context.login is not None or any(address.login is not None for address in addresses_of(context.url))
    if given.get("login") is not None and has_login and _is_from("login", ParameterSource.ENVIRONMENT):
        taken["login"] = None
    if taken.get("login") in (None, context.login) and given.get("passcode_file") is None:
        taken |= {"passcode": context.passcode, "passcode_file": context.passcode_file}
    for name in ("login", "vhost", "version", "ca", "insecure"):
        if name in taken:
            taken[name] = taken[name] or getattr(context, name)
    return {name: taken[name] for name in (*given, "passcode")}


#: The options of the broker's address, the login, and the timeout.
broker_options = option_group(
    connection_options,
    click.option(
        "--timeout",
        type=Duration(0, min_open=True),
        default=_TIMEOUT,
        show_default=True,
        metavar="TIME",
        help="How long to wait for the broker: to connect, and for a receipt.",
    ),
)


def is_url(text: str) -> bool:
    """Return whether an argument names a broker, as a URL or as host:port.

    >>> [is_url(text) for text in ("stomp://a", "failover:(ws://a)", "a:61613", "ann:x@[::1]:61613/v")]
    [True, True, True, True]
    >>> [is_url(text) for text in ("/queue/a", "module:name", "localhost")]
    [False, False, False]
    """
    return (
        "://" in text
        or text.lower().startswith("failover:")
        or refers_to_context(text)
        or _HOST_PORT.fullmatch(text) is not None
    )


def url_of(text: str) -> str:
    """Return a broker's URL, adding the scheme if it is missing.

    >>> url_of("localhost:61613"), url_of("wss://broker/stomp")
    ('stomp://localhost:61613', 'wss://broker/stomp')
    """
    return text if "://" in text or text.lower().startswith("failover:") else f"stomp://{text}"


def addresses_of(url: str) -> list[Address]:
    """Return the addresses in a URL or host:port.

    Raises:
        ConfigError: it is malformed. The message shows no passcode.
    """
    from stompcodec.uri import parse_uri

    return parse_uri(url_of(url))


def passcode_of(
    addresses: list[Address],
    login: str | None,
    file: str | None,
    option: str = "--passcode-file",
    variable: str = "STOMPCODEC_PASSCODE",
) -> str | None:
    """Return the passcode from --passcode-file, the environment, or a prompt; None for the one in the URL, or none.

    The passcode is never shown. The prompt appears if a login has no passcode and there is a terminal, even if standard
    input is a pipe.
    """
    if file is not None:
        return _first_line(file, f"'{option}'")
    passcode = os.environ.get(variable)
    name = login if login is not None else next((each.login for each in addresses if each.login), None)
    asked = passcode is None and name is not None and not any(each.passcode for each in addresses)
    if asked and _has_terminal():
        passcode = click.prompt(
            f"Passcode of {printable(name or '')}", hide_input=True, err=True, default="", show_default=False
        )
    return passcode


def _first_line(file: str, hint: str) -> str:
    try:
        with open(file, encoding="utf-8") as stream:
            text = stream.readline(_LONGEST_PASSCODE).rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.BadParameter(f"{printable(file)}: not UTF-8 text", param_hint=hint) from None
    except OSError as error:
        raise click.BadParameter(f"{printable(file)}: cannot be read: {error.strerror}", param_hint=hint) from None
    if not text:
        raise click.BadParameter(f"{printable(file)}: no passcode in the first line", param_hint=hint)
    return text


def _has_terminal() -> bool:
    """Return whether the user can be prompted: on standard input, or on /dev/tty if standard error is a terminal."""
    if sys.stdin.isatty():
        return True
    if not sys.stderr.isatty():
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def credentials(
    addresses: list[Address], login: str | None, passcode_file: str | None, passcode: str | None = None
) -> dict[str, str]:
    """Return the login and passcode that override those of the URL, as options of `stompcodec.client.connect`.

    Args:
        addresses: the addresses in the URL.
        login, passcode_file: the options.
        passcode: that of a context, which takes precedence over the environment.
    """
    if passcode is None or passcode_file is not None:
        passcode = passcode_of(addresses, login, passcode_file)
    given = {"login": login, "passcode": passcode}
    return {key: value for key, value in given.items() if value is not None}


def tls_options(ca: str | None, insecure: bool, option: str = "--ca") -> dict[str, Any]:
    """Return the option `ssl` of `stompcodec.client.connect`, if --ca or --insecure ask for one.

    Raises:
        click.BadParameter: the file cannot be used.
    """
    if ca is None and not insecure:
        return {}
    from stompcodec.transport.tls import client_context

    try:
        return {"ssl": client_context(ca, verify=not insecure)}
    except OSError as error:
        raise click.BadParameter(f"{printable(ca or '')}: {error.strerror}", param_hint=f"'{option}'") from None


def opening(
    url: str | None,
    login: str | None,
    passcode_file: str | None,
    vhost: str | None,
    version: str | None,
    timeout: float,
    ca: str | None,
    insecure: bool,
    context: Context | None = None,
    **options: Any,
) -> Callable[[], Client]:
    """Return a function that connects a client by a verb's options. Others, and errors: as
    `stompcodec.client.connect`. A passcode is asked for once.
    """
    import stompcodec.client as stomp

    logging.getLogger("stompcodec").addHandler(logging.NullHandler())  # errors are reported by the verb
    who: dict[str, Any] = {"login": login, "passcode_file": passcode_file, "passcode": None}
    given = adopt(context, {"url": url, **who, "vhost": vhost, "version": version, "ca": ca, "insecure": insecure})
    addresses = addresses_of(given["url"] or _URL)
    options = {
        **credentials(addresses, *(given[name] for name in who)),
        **tls_options(given["ca"], given["insecure"]),
        **options,
    }
    if given["version"] is not None:
        options["versions"] = [given["version"]]
    times = {"connect_timeout": timeout, "receipt_timeout": timeout}
    options = {"vhost": given["vhost"], "reconnect": None, **times, **options}
    return lambda: stomp.connect(addresses, **options)


@contextmanager
def connected(**broker: Any) -> Iterator[Client]:
    """Yield a client, connected by a verb's options. Arguments and errors: `opening`."""
    with opening(**broker)() as client:
        yield client


def warn_of_missing_slash(client: Client, destination: str) -> None:
    """Warn if a destination lacks its leading slash, as in queue/a: another queue, or none, at most brokers.

    Artemis takes any name for an address.
    """
    if destination.startswith(_KINDS) and client.dialect != "artemis":
        name = printable(destination)
        complain(f"warning: {name} has no leading slash, so it is not /{name}; did you mean that?")


@contextmanager
def reporting_errors(explain: Callable[[Exception], str] | None = None) -> Iterator[None]:
    """Report errors of the broker or network in one line on standard error, and exit with status 1.

    Args:
        explain: returns the line for an error; None for `explanation`.
    """
    try:
        yield
    except (StompError, ValueError) as error:
        complain((explain or explanation)(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C, SIGTERM or SIGHUP came; none of them ends the process at once.

    KeyboardInterrupt could interrupt the program while it holds a lock that would then never be released. A second
    signal of the same kind does what it usually does. SIGHUP stays ignored if it is, as with nohup.

    >>> with interrupts() as interrupted:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupted()
    True
    """
    noted: list[int] = []
    before: dict[int, Any] = {number: signal.getsignal(number) for number in ending()}

    def note(number: int, frame: object) -> None:
        noted.append(number)
        streams.hurry()
        signal.signal(number, before[number])

    if None in before.values() or threading.current_thread() is not threading.main_thread():  # others get no signals
        yield lambda: False
        return
    streams.prepare()
    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def explanation(error: Exception) -> str:
    """Return the text of an error, with a remedy.

    >>> explanation(ConnectionLostError("cannot connect to stomp://localhost:61613: Connection refused"))
    'cannot connect to stomp://localhost:61613: Connection refused (is the broker running there? see --url)'
    """
    text = printable(_ERRNO.sub("", str(error)))
    folded = text.lower()
    remedy = ""
    if way := way_round(error):
        remedy = way
    elif isinstance(error, RejectedError):
        if "virtual host" in folded and "login" not in folded:
            remedy = "name one with --vhost; the default of RabbitMQ is --vhost /"
        elif "connect" in folded.partition(":")[0]:
            remedy = "check --login and the passcode: --passcode-file, STOMPCODEC_PASSCODE, or the URL"
    elif isinstance(error, ReceiptTimeoutError):
        remedy = "it is unknown whether the broker has it; wait longer with --timeout"
    elif isinstance(error, ConfigError):
        remedy = "see --url"
    elif isinstance(error, ConnectionLostError):
        if "certificate" in folded:
            remedy = "trust its issuer with --ca FILE"
        elif any(sign in folded for sign in ("no connected", "handshake", "websocket", "wrong version number")):
            remedy = "is it a STOMP broker, and the right scheme? see --url"
        elif "cannot connect" in folded:
            remedy = "is the broker running there? see --url"
        else:
            remedy = "messages without a receipt may be lost"
    elif isinstance(error, RemoteProtocolError):
        if "malformed frame" in folded:
            remedy = "is it a STOMP broker, and the right port? see --url"
    elif isinstance(error, FrameError):
        return text
    return f"{text} ({remedy})" if remedy else text


def _body(_context: click.Context, _argument: click.Parameter, body: str | None) -> str:
    """Take standard input for a missing BODY, unless it is a terminal: a callback of click."""
    if body is None and sys.stdin.isatty():
        raise click.UsageError("no BODY: give a text, @FILE, or - for standard input")
    return "-" if body is None else body


#: The argument BODY, for `read_body`.
body_argument = click.argument("body", metavar="[BODY|@FILE|-]", required=False, callback=_body)


def read_body(body: str) -> bytes:
    """Return the bytes of an argument TEXT, @FILE or - (standard input).

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


def as_text(body: bytes, headers: Iterable[tuple[str, str]]) -> bytes | str:
    """Return a body to send: as text if it is UTF-8 without NUL, and no header says something else.

    >>> as_text(b"hello", []), as_text(b"\\xff", []), as_text(b"hello", [("content-type", "image/png")])
    ('hello', b'\\xff', b'hello')
    """
    named = dict(headers)
    if b"\0" in body or "content-encoding" in named or not is_text_type(named.get("content-type", "text/plain")):
        return body
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def size(_context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a size above 0, as in 128MiB: a callback of click."""
    if value is None:
        return None
    try:
        number = size_of(value)
    except ValueError:
        number = 0
    if not number:
        raise click.BadParameter(f"{value!r}: it must be {SIZE}, and more than 0", param=option)
    return number
