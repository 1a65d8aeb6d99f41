"""Options and errors shared by the verbs that talk to a broker: contexts, logins, unreadable messages."""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click
from click.core import ParameterSource

from stompcodec.cli.app import INTERRUPTED, SILENT
from stompcodec.cli.inputs import complain, option_group, pairs_of, parsed, time_option
from stompcodec.cli.screen import printable
from stompcodec.content import is_text_type, text_octets
from stompcodec.disk import PRIVATE, create, lock, make_folder, replace
from stompcodec.errors import (
    ConfigError,
    ConnectionLostError,
    FrameError,
    MissingExtraError,
    ReceiptTimeoutError,
    RejectedError,
    RemoteProtocolError,
    SilentFeedError,
    StompError,
    StoreError,
)
from stompcodec.spec import VERSIONS
from stompcodec.uri import Address, parse_uri
from stompcodec.values import SIZE
from stompcodec.values import size as size_of

if TYPE_CHECKING:
    from stompcodec.client import Client

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
            return ",".join(map(str, parse_uri(self.url, "stomp+ssl" if self.ca or self.insecure else "stomp")))
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
    """Return the name of a context."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{printable(name[:80])!r} cannot be the name of a context: begin with a letter; letters, digits, . - _ may"
            " follow, 64 in all"
        )
    return name


def load() -> Contexts:
    """Return the contexts of the file; none if the file does not exist."""
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
    """Raise ConfigError if the URL of a context is malformed, or has a passcode."""
    if any(address.passcode is not None for address in parse_uri(url)):
        raise ConfigError("it has a passcode, which is a field of its own", key="url")


def save(contexts: Contexts) -> None:
    """Replace the file by another one, all at once."""
    fields = {
        name: {
            field: value for field, value in context._asdict().items() if field != "name" and value not in (None, False)
        }
        for name, context in contexts.all.items()
    }
    text = json.dumps({"format": _FORMAT, "selected": contexts.selected, "contexts": fields}, indent=2) + "\n"
    path = Path(os.path.realpath(path_of()))  # a link to the file stays one
    try:
        replace(path, text)
    except OSError as error:
        _fail(path, f"cannot be written: {error.strerror}")


@contextmanager
def changing() -> Iterator[Contexts]:
    """Yield the contexts, for `save`, while no other process changes them."""
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
    """Return the context that a URL such as context:prod names; None for other URLs."""
    return context_named(text[len(_REFERENCE) :], hint) if refers_to_context(text) else None


#: How the client says that a message was not settled.
_STAYS = "not settled"
#: Headers that differ each time a message is delivered.
_OF_DELIVERY = ("ack", "subscription", "redelivered")

lenient_option = click.option(
    "--lenient", is_flag=True, help="Pass over messages that the broker cannot write as STOMP, and say which."
)


expect_option = time_option(
    "--expect-every",
    "expect",
    help="End with an error if no message comes for TIME, as in 5m, though the broker beats.",
)


class PassedOver(logging.Handler):
    """The messages that clients passed over: each is reported once; with `removes`, only those that stay."""

    def __init__(self, removes: bool) -> None:
        super().__init__()
        self.settled = 0
        self.removes = removes
        self._staying: dict[object, str] = {}

    @property
    def count(self) -> int:
        """How many stay in their queues."""
        return len(self._staying)

    def emit(self, record: logging.LogRecord) -> None:
        """Note a message; the client logs them."""
        how, error = record.args if isinstance(record.args, tuple) else ("", None)
        key, text = _key(error), printable(record.getMessage())
        if how != _STAYS:
            self.settled += 1
            self._staying.pop(key, None)
            complain(text)
        elif key not in self._staying:
            self._staying[key] = text
            if not self.removes:
                complain(text)

    def report(self) -> None:
        """Report those that were not removed, though they should be."""
        for text in self._staying.values() if self.removes else ():
            complain(text)


def _say(record: logging.LogRecord) -> bool:
    complain(record.getMessage())
    return True


for _name in ("stompcodec.client.emptied", "stompcodec.capture"):
    logging.getLogger(_name).addFilter(_say)


def _key(error: Any) -> object:
    """Return what is the same of a message on every connection, or in every look at its queue."""
    frame = getattr(error, "frame", None)
    if frame is None:
        return str(error)
    id = frame.get("message-id")
    return id or frozenset(pair for pair in frame.headers.items() if pair[0] not in _OF_DELIVERY)


@contextmanager
def passing_over(lenient: bool, removes: bool = False) -> Iterator[PassedOver | None]:
    """Report the messages that clients pass over in this block; nothing without `lenient`. Arguments: `PassedOver`."""
    if not lenient:
        yield None
        return
    passed, log = PassedOver(removes), logging.getLogger("stompcodec.client.unreadable")
    log.addHandler(passed)
    try:
        yield passed
    finally:
        log.removeHandler(passed)
        passed.report()


def way_round(error: Exception) -> str:
    """Return the remedy for an error because of a message that cannot be read; "" for another error, or verb."""
    context = click.get_current_context(silent=True)
    options: list[Any] = [] if context is None else context.command.params
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, RemoteProtocolError):
        cause = cause.__cause__
    has_it = any(option.name == "lenient" for option in options)
    return "pass over such messages with --lenient" if has_it and cause is not None and cause.frame is not None else ""


_URL = "stomp://localhost:61613"
_TIMEOUT = 10.0
_LONGEST_PASSCODE = 64 * 1024
#: host:port, optionally with a login and a virtual host.
_HOST_PORT = re.compile(r"(?:[^/@\s]*@)?(?:\[[0-9a-fA-F:.]+\]|[\w.-]+):[0-9]{1,5}(?:/\S*)?", re.ASCII)
#: Python's prefix of the system's error text.
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
F = TypeVar("F", bound=Callable[..., Any])


def header_option(command: str) -> Callable[[F], F]:
    """Return the option -H of a verb that writes frames of a command, a key of the client's `OWNED`."""

    @parsed
    def check(values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        pairs = pairs_of(values, ":")
        if pairs:
            from stompcodec.client.headers import owned_of

            name = owned_of(command, [name for name, _ in pairs])
            if name is not None:
                raise ValueError(f"{name!r} is a header that the client writes itself: leave it out (see the options)")
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
    return {name: given.pop(name) for name in ("selector", "durable", "headers")}


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
        "--login", envvar="STOMPCODEC_LOGIN", metavar="NAME", help="The login; also STOMPCODEC_LOGIN, or in the URL."
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


@parsed
def _http_headers(values: tuple[str, ...]) -> dict[str, str] | None:
    """Parse NAME:VALUE options for the client's `http_headers`. Errors do not show a value."""
    from stompcodec.transport.http import http_of

    return http_of(values) if values else None


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
    click.option(
        "--http-header",
        "http_headers",
        metavar="NAME:VALUE",
        multiple=True,
        callback=_http_headers,
        help="An HTTP header for WebSocket and SockJS; repeatable.",
    ),
    click.option(
        "--no-receipts",
        "receipts",
        flag_value=False,
        default=True,
        help="For servers that answer no receipts: wait for none. What is lost or refused goes unnoticed.",
    ),
    click.option("--version", type=click.Choice(VERSIONS), help="Offer this STOMP version only."),
    click.option("--ca", type=click.Path(), metavar="FILE", help="Trust the certificates in FILE (PEM)."),
    click.option("--insecure", is_flag=True, help="Do not check the broker's certificate."),
    _with_context,
)


def at_url(broker: dict[str, Any], url: str) -> None:
    """Replace the broker of `connection_options` by the one of an argument, with the context that it names, if any."""
    if broker["context"] is not None and _is_from("context", ParameterSource.COMMANDLINE):
        raise click.UsageError(f"{printable(url)} and --context both name a broker: give one of them")
    broker["url"], broker["context"] = url, referred(url)


def adopt(context: Context | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return options completed by those of a context (None for no change).

    Options of the command line take precedence; None is one that is not given. A login that the command line names
    leaves out the passcode of the context, which belongs to another login. STOMPCODEC_LOGIN and STOMPCODEC_PASSCODE
    count only for what the context does not have.

    >>> adopt(Context("a", "b:1", vhost="/"), {"url": None, "vhost": None, "ca": "c.pem"})
    {'url': 'b:1', 'vhost': '/', 'ca': 'c.pem', 'passcode': None}
    """
    if context is None:
        return given
    taken = {**given, "url": context.url, "passcode": None}
    has_login = context.login is not None or any(address.login is not None for address in parse_uri(context.url))
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
    time_option("--timeout", default=_TIMEOUT, help="How long to wait for the broker: to connect, and for a receipt."),
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


def new_passcode() -> str:
    """Return a passcode to store: typed twice at a prompt, or the first line of standard input without a terminal."""
    if sys.stdin.isatty():
        return str(click.prompt("Passcode", hide_input=True, confirmation_prompt=True, err=True))
    return _first_line("-", "standard input")


def _first_line(file: str, hint: str) -> str:
    try:
        with click.open_file(file, encoding="utf-8") as stream:
            text: str = stream.readline(_LONGEST_PASSCODE).rstrip("\r\n")
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
    """Return login and passcode that override those of the URL, for `connect`; a context's passcode comes first."""
    if passcode is None or passcode_file is not None:
        passcode = passcode_of(addresses, login, passcode_file)
    given = {"login": login, "passcode": passcode}
    return {key: value for key, value in given.items() if value is not None}


def tls_option(ca: str | None, insecure: bool | None) -> str | None:
    """Return the name of the option that is given for TLS; None if none is."""
    return "--ca" if ca is not None else "--insecure" if insecure else None


def tls_options(ca: str | None, insecure: bool, option: str = "--ca") -> dict[str, Any]:
    """Return the option `ssl` of `stompcodec.client.connect`, if --ca or --insecure ask for one."""
    if ca is None and not insecure:
        return {}
    from stompcodec.transport.tls import client_context

    try:
        return {"ssl": client_context(ca, verify=not insecure)}
    except OSError as error:
        raise click.BadParameter(f"{printable(ca or '')}: {error.strerror}", param_hint=f"'{option}'") from None


@functools.cache
def _metrics(place: str) -> list[Any]:
    """Serve the metrics of this process's clients to Prometheus at [HOST:]PORT; return the middleware."""
    from stompcodec.client.middleware.prometheus import Prometheus  # it names the extra

    from prometheus_client import start_http_server  # isort: skip

    host, _, port = place.rpartition(":")
    try:
        start_http_server(int(port), host or "127.0.0.1")
    except (OSError, OverflowError, ValueError) as error:
        raise click.UsageError(f"STOMPCODEC_METRICS: {printable(place)} cannot be used: {error}") from None
    return [Prometheus()]


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
    """Return a function that makes a client by a verb's options, to be entered. Others, and errors: as
    `stompcodec.client.connect`. A passcode is asked for once.
    """
    from stompcodec.client import Client, Options

    logging.getLogger("stompcodec").addHandler(logging.NullHandler())  # errors are reported by the verb
    who: dict[str, Any] = {"login": login, "passcode_file": passcode_file, "passcode": None}
    given = adopt(context, {"url": url, **who, "vhost": vhost, "version": version, "ca": ca, "insecure": insecure})
    addresses = parse_uri(given["url"] or _URL, tls=tls_option(given["ca"], given["insecure"]))
    options = {
        **credentials(addresses, *(given[name] for name in who)),
        **tls_options(given["ca"], given["insecure"]),
        **options,
    }
    if place := os.environ.get("STOMPCODEC_METRICS"):
        options["middleware"] = _metrics(place)
    if given["version"] is not None:
        options["versions"] = [given["version"]]
    times = {"connect_timeout": timeout, "receipt_timeout": timeout}
    options = {"vhost": given["vhost"], "reconnect": None, **times, **options}
    return lambda: Client(addresses, Options(**options))


class Stopped(threading.Event):
    """An event for a signal, which also ends a client that is still connecting."""

    connecting: Client | None = None

    def set(self) -> None:
        super().set()
        if (client := self.connecting) is not None:
            client.close(0.0)


@contextmanager
def connected(stopped: Stopped | None = None, **broker: Any) -> Iterator[Client]:
    """Yield a client, connected by a verb's options. Arguments and errors: `opening`."""
    stopped, client = stopped or Stopped(), opening(**broker)()
    stopped.connecting = client
    try:
        if not stopped.is_set():
            client.open()
    except StompError:
        if not stopped.is_set():
            raise
    finally:
        stopped.connecting = None
    if stopped.is_set():
        client.close(0.0)
        sys.exit(INTERRUPTED)
    with client:
        yield client


def warn_of_missing_slash(client: Client, destination: str) -> None:
    """Warn if a destination lacks its leading slash."""
    from stompcodec.client.dialects import lacks_slash

    if lacks_slash(destination, client.dialect):
        name = printable(destination)
        complain(f"warning: {name} has no leading slash, so it is not /{name}; did you mean that?")


@contextmanager
def reporting_errors(explain: Callable[[Exception], str] | None = None) -> Iterator[None]:
    """Report errors of the broker or network in one line on standard error, and exit with status 1, or `SILENT`."""
    try:
        yield
    except MissingExtraError:
        raise
    except (StompError, ValueError) as error:
        complain((explain or explanation)(error))
        sys.exit(SILENT if isinstance(error, SilentFeedError) else 1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def explanation(error: Exception) -> str:
    """Return the text of an error, with a remedy."""
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
        wait = "it is unknown whether the broker has it; wait longer with --timeout"
        remedy = wait + (", or give --no-receipts" if "receipts=False" in text else "")
    elif isinstance(error, ConfigError):
        remedy = "see --url"
    elif isinstance(error, ConnectionLostError):
        if "certificate" in folded:
            remedy = "trust its issuer with --ca FILE"
        elif "does this port speak" in folded:
            remedy = "see --url"
        elif any(sign in folded for sign in ("an answer", "no connected", "handshake", "websocket")):
            remedy = "is it a STOMP broker, and the right scheme? see --url"
        elif "cannot connect" in folded:
            remedy = "is the broker running there? see --url"
        else:
            remedy = "messages without a receipt may be lost"
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
    """Return the bytes of an argument TEXT, @FILE or - (standard input)."""
    if body == "-":
        return sys.stdin.buffer.read()
    if not body.startswith("@"):
        return os.fsencode(body)
    try:
        with open(body[1:], "rb") as stream:
            return stream.read()
    except OSError as error:
        raise click.ClickException(f"{body[1:]}: cannot be read: {error.strerror}") from None


#: The option `text` of verbs that send messages, or send them on; None without it.
text_option = click.option(
    "--text/--bytes", default=None, help="Send UTF-8 as JMS text, or all as bytes.  [default: text stays text]"
)


def as_text(body: bytes, headers: Iterable[tuple[str, str]], text: bool | None = None) -> bytes | str:
    """Return a body to send: as text if it is UTF-8 without NUL, and neither a header nor `text` says something else.

    >>> as_text(b"hello", []), as_text(b"\\xff", []), as_text(b"hello", [("content-type", "image/png")])
    ('hello', b'\\xff', b'hello')
    >>> as_text("é".encode(), [("content-type", "text/plain;charset=latin-1")])
    b'\\xc3\\xa9'
    """
    named = dict(headers)
    if text is None:
        text = "content-encoding" not in named and is_text_type(named.get("content-type", "text/plain"))
    if not text or b"\0" in body:
        return body
    try:
        said = body.decode()
        return said if text_octets(said, named.get("content-type") or "") == body else body
    except ValueError:
        return body


@parsed
def size(value: str | None) -> int | None:
    """Parse a size above 0, as in 128MiB."""
    if value is None:
        return None
    with suppress(ValueError):
        if number := size_of(value):
            return number
    raise ValueError(f"{value!r}: it must be {SIZE}, and more than 0")
