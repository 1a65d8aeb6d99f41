"""The keys of a configuration file, each documented once: read, explained and looked up by one table."""

from __future__ import annotations

import difflib
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from stompcodec.broker import values
from stompcodec.broker.config import Config
from stompcodec.errors import ConfigError, MissingExtraError

__all__ = ["KEYS", "Key", "explain", "load_config", "markdown", "parse_config"]


class Key(NamedTuple):
    """One key of the file."""

    name: str
    """With dots between, as in `limits.max_body`."""
    target: str
    """The field of `Config` that it sets, perhaps with a field of `Limits` behind a dot."""
    read: Callable[[Any], Any]
    """Turns what TOML gave into the value; ValueError says what is allowed."""
    doc: str

    @property
    def default(self) -> Any:
        """What holds when the file does not say."""
        value: Any = _DEFAULTS
        for part in self.target.split("."):
            value = getattr(value, part)
        return value


def _limits(table: str, target: str, when: str) -> list[Key]:
    size, count = values.octets(), values.whole(1, 100_000)
    return [
        Key(
            f"{table}.max_command_line", f"{target}.max_command_line", size, f"Longest command line {when}, in octets."
        ),
        Key(f"{table}.max_header_line", f"{target}.max_header_line", size, f"Longest header line {when}, in octets."),
        Key(f"{table}.max_headers", f"{target}.max_headers", count, f"Most headers of a frame {when}."),
        Key(f"{table}.max_body", f"{target}.max_body", values.octets(0), f"Largest body {when}, in octets."),
    ]


_DEFAULTS = Config()
_COUNT = values.whole(1, 2**40)
_SIZE = values.octets()
_DURABLE = values.one_of("persistent", "all", "none")
_SLOW = values.one_of("disconnect", "drop", "block")

#: Every key that a file may hold, in the order of the documentation.
KEYS: tuple[Key, ...] = (
    Key("listen.host", "host", values.text, "Address to listen on. 0.0.0.0 or :: opens the broker to the network."),
    Key("listen.port", "port", values.port, "Port of plain STOMP. 0 takes any free port, false none."),
    Key("listen.ws_port", "ws_port", values.port, "Port of STOMP over WebSocket, on any path."),
    Key("listen.tls_port", "tls_port", values.port, "Port of STOMP over TLS. It needs tls.cert."),
    Key("tls.cert", "tls_cert", values.text, "File of the certificate and its chain, PEM."),
    Key(
        "tls.key",
        "tls_key",
        values.text,
        "File of the private key, PEM, where that of the certificate does not hold it.",
    ),
    Key("tls.ca", "tls_ca", values.text, "File of the authorities whose certificates clients must show, PEM."),
    Key(
        "store.data",
        "data",
        values.text,
        "Folder for what must outlive the broker. Without it, nothing does; but `stompcodec broker` then takes "
        "./stompcodec-data, unless --memory is given or store.durable is none.",
    ),
    Key(
        "store.durable",
        "durable",
        _DURABLE,
        "Which messages are stored: those that say persistent:true, all, or none.",
    ),
    *_limits("limits", "limits", "of a client that has connected"),
    *_limits("limits.before_login", "first_limits", "before CONNECTED was sent"),
    Key(
        "sessions.heart_beat",
        "heart_beat",
        values.heart_beat,
        "How often the broker can send heart-beats, and how often it wants them, in milliseconds; 0 is never.",
    ),
    Key(
        "sessions.login_timeout", "login_timeout", values.seconds, "Seconds that a new connection has for its CONNECT."
    ),
    Key("sessions.drain_timeout", "drain_timeout", values.seconds, "Seconds that sessions have when the broker stops."),
    Key("sessions.max_connections", "max_connections", _COUNT, "Connections at one time."),
    Key("sessions.max_subscriptions", "max_subscriptions", _COUNT, "Subscriptions of a session."),
    Key("sessions.max_unacked", "max_unacked", _COUNT, "Unacknowledged messages of a session, over all subscriptions."),
    Key("sessions.max_transactions", "max_transactions", _COUNT, "Open transactions of a session."),
    Key(
        "sessions.max_transaction_octets",
        "max_transaction_octets",
        _SIZE,
        "Octets that the open transactions of a session may hold, together.",
    ),
    Key(
        "sessions.write_high",
        "write_high",
        _SIZE,
        "Octets that may wait to be written to a client. Above, it gets no more messages until they are gone.",
    ),
    Key("sessions.transactional_acks", "transactional_acks", values.flag, "Whether ACK and NACK obey transactions."),
    Key(
        "queues.prefixes",
        "queue_prefixes",
        values.prefixes,
        "What the names of queues begin with. A name without any prefix is a queue, too.",
    ),
    Key("queues.temp_prefix", "temp_queue_prefix", values.prefix, "What the names of temporary queues begin with."),
    Key(
        "queues.prefetch", "prefetch", _COUNT, "Unacknowledged messages of a subscription that names no number itself."
    ),
    Key("queues.max_attempts", "max_attempts", _COUNT, "Deliveries of a message before it becomes a dead letter."),
    Key("queues.dead_letter", "dead_letter", values.dead_letter, "Where dead letters go; {name} is the queue's name."),
    Key("queues.dead_letter_expired", "dead_letter_expired", values.flag, "Whether expired messages go there, too."),
    Key("queues.max_messages", "max_queue_messages", _COUNT, "Messages in a queue. Above, its senders wait."),
    Key("queues.max_octets", "max_queue_octets", _SIZE, "Octets in a queue. Above, its senders wait."),
    Key("queues.max_total_octets", "max_octets", _SIZE, "Octets in all queues together. Above, all senders wait."),
    Key("queues.max_destinations", "max_destinations", _COUNT, "Queues and topics at one time."),
    Key("topics.prefixes", "topic_prefixes", values.prefixes, "What the names of topics begin with."),
    Key("topics.temp_prefix", "temp_topic_prefix", values.prefix, "What the names of temporary topics begin with."),
    Key("topics.backlog", "topic_backlog", _COUNT, "Messages that may wait for a slow subscriber."),
    Key("topics.backlog_octets", "topic_backlog_octets", _SIZE, "Octets that may wait for a slow subscriber."),
    Key(
        "topics.slow_consumer",
        "slow_consumer",
        _SLOW,
        "What happens then: the subscriber is sent an ERROR, its oldest messages are dropped, or senders wait.",
    ),
    Key(
        "access.virtual_hosts",
        "virtual_hosts",
        values.texts,
        "Hosts that CONNECT may name; the first is the default. Without the key any name will do, and all are one.",
    ),
    Key(
        "users",
        "users",
        values.users,
        'Who may connect: a line NAME = "HASH", or a table [users.NAME] with passcode (the hash), groups and vhosts '
        "(lists). Without users any login will do, or none. `stompcodec broker --hash-passcode` makes a hash.",
    ),
    Key(
        "rules",
        "rules",
        values.rules,
        "Who may do what: tables [[rules]] with who (a user, @GROUP, or *), action (send, subscribe, or *), "
        "destination (* stands for any characters), vhost, and allow (true or false). The first that fits decides; "
        "what none allows is refused. Without rules everything is allowed.",
    ),
)

_BY_NAME = {key.name: key for key in KEYS}


def load_config(path: str | os.PathLike[str]) -> Config:
    """Reads a file. Relative paths in it start from its folder.

    Raises:
        ConfigError: the file cannot be read, or says something that is not allowed: where, and what is.
        MissingExtraError: on Python 3.10, when the package tomli is missing.

    >>> load_config("no/such.toml")
    Traceback (most recent call last):
        ...
    stompcodec.errors.ConfigError: no/such.toml: it cannot be read: No such file or directory
    """
    file = os.fspath(path)
    try:
        with open(file, encoding="utf-8") as stream:
            source = stream.read()
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"octet {error.start} is not UTF-8", file=file) from error
    config = parse_config(source, file)
    folder = os.path.dirname(os.path.abspath(file))
    paths = {name: getattr(config, name) for name in ("data", "tls_cert", "tls_key", "tls_ca")}
    return config.replace(**{name: os.path.join(folder, value) for name, value in paths.items() if value})


def parse_config(source: str, file: str = "") -> Config:
    """What the text of a file says. Relative paths stay as they are.

    Raises:
        ConfigError, MissingExtraError: as in `load_config`.

    >>> parse_config("[listen]\\nport = 0").port
    0
    >>> parse_config("[listen]\\n\\nhost = 1", "broker.toml")
    Traceback (most recent call last):
        ...
    stompcodec.errors.ConfigError: broker.toml, line 3: listen.host: it must be a text without control characters, \
and not empty
    """
    changes: dict[str, Any] = {}
    for name, value in _leaves(_parse_toml(source, file)):
        try:
            if name not in _BY_NAME:
                raise ValueError(_unknown(name))
            _put(changes, _BY_NAME[name], value)
        except ValueError as error:
            where = f"{name}.{error.name}" if isinstance(error, values.At) else name
            raise ConfigError(str(error), file=file, line=_line_of(source, where), key=where) from None
    try:
        return Config(**changes)
    except ConfigError as error:
        names = [key.name for key in KEYS if key.target.split(".")[0] == error.key]
        name = names[0].rpartition(".")[0] if len(names) > 1 else names[0]
        message = str(error).removeprefix(f"{error.key}: ")
        raise ConfigError(message, file=file, line=_line_of(source, name), key=name) from None


def _parse_toml(source: str, file: str) -> dict[str, Any]:
    toml = _toml_module()
    try:
        table: dict[str, Any] = toml.loads(source)
    except toml.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise ConfigError(f"it is no TOML: {error}", file=file, line=int(found[1]) if found else None) from None
    return table


def _toml_module() -> Any:
    """tomllib, which Python has from 3.11 on, or the package that it came from."""
    try:
        return import_module("tomllib")
    except ImportError:
        pass
    try:
        return import_module("tomli")
    except ImportError:
        raise MissingExtraError("broker", "tomli") from None


def _leaves(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a file and their values; tables that hold keys are gone through."""
    for key, value in table.items():
        name = above + key
        if name not in _BY_NAME and isinstance(value, dict) and _is_table(name):
            yield from _leaves(value, name + ".")
        else:
            yield name, value


def _is_table(name: str) -> bool:
    return any(key.startswith(name + ".") for key in _BY_NAME)


def _put(changes: dict[str, Any], key: Key, value: Any) -> None:
    field, _, part = key.target.partition(".")
    value = key.read(value)
    if part:
        value = changes.get(field, getattr(_DEFAULTS, field))._replace(**{part: value})
    changes[field] = value


def _unknown(name: str) -> str:
    """What to say of a name that is no key."""
    if _is_table(name):
        return f"it must be a table: write [{name}] in a line of its own, and its keys below"
    close = difflib.get_close_matches(name, _BY_NAME, 1) or [
        key for key in _BY_NAME if key.rpartition(".")[2] == name.rpartition(".")[2]
    ]
    table = name.rpartition(".")[0]
    beside = [key.rpartition(".")[2] for key in _BY_NAME if key.rpartition(".")[0] == table]
    tables = list(dict.fromkeys(key.partition(".")[0] for key in _BY_NAME))
    hint = f"; did you mean {close[0]}?" if close else "."
    return f"there is no such key{hint} Allowed here: " + ", ".join(beside if table and beside else tables)


def _line_of(source: str, name: str) -> int | None:
    """The line, from 1, where the value of a key is, as well as one can tell without a parser of one's own."""
    best, length, inside = None, 0, None
    for number, here in _places(source):
        if (name == here or name.startswith(here + ".")) and len(here) > length:
            best, length = number, len(here)
        if inside is None and here.startswith(name + "."):
            inside = number
    return best or inside


def _places(source: str) -> Iterator[tuple[int, str]]:
    """Lines that begin a table or a key, and its name; the tables of a list are counted from 0."""
    table = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(source.splitlines(), 1):
        head = re.match(r"\s*(\[\[?)([^\]]+)\]", line)
        pair = re.match(r"\s*([\w.\"' -]+?)\s*=", line)
        if head:
            table = _plain(head[2])
            if head[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}.{counts[table]}"
            yield number, table
        elif pair:
            yield number, f"{table}.{_plain(pair[1])}".lstrip(".")


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def explain() -> str:
    """Every key with its default and what it means, as a file that can be used: for the terminal.

    >>> explain().splitlines()[2:5]
    ['[listen]', '# Address to listen on. 0.0.0.0 or :: opens the broker to the network.', '# host = "127.0.0.1"']
    """
    lines, table = (
        ["# Configuration of `stompcodec broker`. A line behind # shows a default, or the form of a value."],
        "",
    )
    for key in KEYS:
        above, _, name = key.name.rpartition(".")
        if not above:  # users and rules
            lines += ["", *textwrap.wrap(key.doc, 118, initial_indent="# ", subsequent_indent="# "), _FORMS[key.name]]
            continue
        if above != table:
            lines += ["", f"[{above}]"]
            table = above
        lines += textwrap.wrap(key.doc, 118, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"# {name} = {_FORMS.get(key.name) or _toml(key.default)}")
    return "\n".join(lines) + "\n"


def markdown() -> str:
    """The keys as tables of Markdown: the text of docs/broker-config.md.

    >>> markdown().splitlines()[0]
    '# Configuration of the broker'
    """
    lines, table = [_INTRODUCTION], ""
    for key in KEYS:
        above, _, name = key.name.rpartition(".")
        if above != table or not above:
            title = f"[{above}]" if above else f"[{name}]" if name == "users" else f"[[{name}]]"
            lines += ["", f"## `{title}`", ""]
        if not above:
            lines += [key.doc, "", "```toml", _FORMS[name].replace("# ", ""), "```"]
        elif above != table:
            lines += ["| key | default | meaning |", "| --- | --- | --- |"]
        if above:
            default = f"`{_toml(key.default)}`" if key.default is not None else "–"
            lines.append(f"| `{name}` | {default} | {key.doc} |")
        table = above
    return "\n".join(lines) + "\n"


_INTRODUCTION = """# Configuration of the broker

`stompcodec broker --config FILE` reads a TOML file. Every key has a default, so an empty file is a good one; flags win
over the file. Octets are numbers, or texts such as `"64 KiB"`, `"16 MiB"`, `"1 GiB"`. Relative paths start from the
folder of the file. `stompcodec broker --help-config` prints all of this as a file to start from, and
`examples/brokers` holds some small ones.

This page is made from the table `KEYS` of `stompcodec/broker/keys.py`."""

#: What cannot be shown by a default.
_FORMS = {
    "listen.ws_port": "15674",
    "listen.tls_port": "61614",
    "tls.cert": '"server.pem"',
    "tls.key": '"server.key"',
    "tls.ca": '"clients.pem"',
    "store.data": '"stompcodec-data"',
    "access.virtual_hosts": '["/", "orders.example"]',
    "users": """# [users.guest]
# passcode = "scrypt$16384$8$1$..."
# groups = ["staff"]
# vhosts = ["/"]""",
    "rules": """# [[rules]]
# who = "@staff"
# action = "send"
# destination = "/queue/orders.*"
# vhost = "*"
# allow = true""",
}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    for unit, octets in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if type(value) is int and value >= octets and value % octets == 0:
            return f'"{value // octets} {unit}"'
    return str(value)
