"""Configuration files: reading them, and listing the keys of `Config` as text and Markdown."""

from __future__ import annotations

import difflib
import os
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from stompcodec.broker.config import settings as values
from stompcodec.broker.config.config import KEYS, Config, Key
from stompcodec.errors import ConfigError
from stompcodec.values import shown_duration, shown_size

_BY_NAME = {key.name: key for key in KEYS}


def load_config(path: str | os.PathLike[str], **over: Any) -> Config:
    """Read a configuration file.

    Args:
        path: of the TOML file. Relative paths in it are relative to its folder.
        over: fields of `Config` that take precedence over the file, before it is checked as a whole.

    Raises:
        ConfigError: the file cannot be read, or has an error; the message says where.

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
        raise ConfigError(f"byte {error.start} is not UTF-8", file=file) from error
    config = parse_config(source, file, **over)
    folder = os.path.dirname(os.path.abspath(file))
    paths = {name: getattr(config, name) for name in ("data", "large_folder", "tls_cert", "tls_key", "tls_ca")}
    return config.replace(**{name: os.path.join(folder, value) for name, value in paths.items() if value})


def parse_config(source: str, file: str = "", **over: Any) -> Config:
    """Parse the text of a file. Relative paths are kept. `over` are fields that take precedence.

    Raises:
        ConfigError: see `load_config`.

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
            where = f"{name}.{error.name}" if isinstance(error, values.NestedError) else name
            raise ConfigError(str(error), file=file, line=_line_of(source, where), key=where) from None
    try:
        return Config(**changes | over)
    except ConfigError as error:
        names = [key.name for key in KEYS if error.key in (key.target.split(".")[0], *key.also)] or [error.key]
        name = names[0].rpartition(".")[0] if len(names) > 1 else names[0]
        message = str(error).removeprefix(f"{error.key}: ")
        raise ConfigError(message, file=file, line=_line_of(source, name), key=name) from None


def _parse_toml(source: str, file: str) -> dict[str, Any]:
    import tomllib  # only a broker with a file needs it

    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise ConfigError(f"it is not valid TOML: {error}", file=file, line=int(found[1]) if found else None) from None


def _leaves(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a file and their values, descending into tables."""
    for key, value in table.items():
        name = above + key
        if name not in _BY_NAME and isinstance(value, dict) and _is_table(name):
            yield from _leaves(value, name + ".")
        else:
            yield name, value


def _is_table(name: str) -> bool:
    return any(key.startswith(name + ".") for key in _BY_NAME)


def _put(changes: dict[str, Any], key: Key, value: Any) -> None:
    value = key.read(value)
    field, _, part = key.target.partition(".")
    if part:
        value = changes.get(field, getattr(Config(), field))._replace(**{part: value})
    changes.update(value if isinstance(value, values.Several) else {field: value})


def _unknown(name: str) -> str:
    """Return the message for an unknown key."""
    if _is_table(name):
        return f"it must be a table: write [{name}] on a line of its own, and its keys below"
    table, _, last = name.rpartition(".")
    close = [key for key in _BY_NAME if key.endswith("." + last)] or difflib.get_close_matches(name, _BY_NAME, 1)
    beside = [key.rpartition(".")[2] for key in _BY_NAME if key.rpartition(".")[0] == table]
    tables = list(dict.fromkeys(key.partition(".")[0] for key in _BY_NAME))
    hint = f"; did you mean {close[0]}?" if close else "."
    return f"unknown key{hint} Allowed here: " + ", ".join(beside if table and beside else tables)


def _line_of(source: str, name: str) -> int | None:
    """Return the line, from 1, of a key's value, as well as it can be found without a TOML parser of our own."""
    best, length, inside = None, 0, None
    for number, here in _places(source):
        if (name == here or name.startswith(here + ".")) and len(here) > length:
            best, length = number, len(here)
        if inside is None and here.startswith(name + "."):
            inside = number
    return best or inside


def _places(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin a table or a key, with its name; tables of a list are numbered from 0."""
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
    """Return every key with its default and meaning, as a usable configuration file.

    >>> explain().splitlines()[2:5]
    ['[listen]', '# Address to listen on. 0.0.0.0 or :: opens the broker to the network.', '# host = "127.0.0.1"']
    """
    lines, table = (["# Configuration of `stompcodec broker`. A line after # shows a default, or an example."], "")
    for key in KEYS:
        above, _, name = key.name.rpartition(".")
        if not above:  # users and rules
            lines += ["", *textwrap.wrap(key.doc, 118, initial_indent="# ", subsequent_indent="# ")]
            lines += [f"# {line}" for line in key.example.splitlines()]
            continue
        if above != table:
            lines += ["", f"[{above}]"]
            table = above
        lines += textwrap.wrap(key.doc, 118, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"# {name} = {key.example or _toml(key.default, key.read)}")
    return "\n".join(lines) + "\n"


def markdown() -> str:
    """Return the keys as Markdown: the text of docs/broker-config.md.

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
            lines += [key.doc, "", "```toml", key.example, "```"]
        else:
            default = key.example if key.also else _toml(key.default, key.read)
            default = "" if key.default is None and not key.also else f" = {default}"
            lines.append(f"- `{name}{default}`: {key.doc}")
        table = above
    return "\n".join([*lines, _FIXED])


_INTRODUCTION = """# Configuration of the broker

`stompcodec broker --config FILE` reads a TOML file. Every key has a default; command-line options take precedence.
Sizes and times are [written](cli.md#sizes-and-times) as `"64KiB"` and `"30s"`. Relative paths start from the folder of
the file. `--help-config` prints all keys as a file to start from, and `examples/brokers` has some small ones.

This page is generated from `Config` in `stompcodec/broker/config/config.py`."""

_FIXED = """
## Values without a key

A dialect or another key sets these. A program of yours can set the field of `stompcodec.broker.Config` instead.

| what | value | field |
| --- | --- | --- |
| permissions of files | `0600`, or `0640` with `store.group` | `mode` |
| free space of `store.data` below which storing is refused | 64 MiB | `store_free` |
| longest command line | 256 bytes | `limits` |
| limits before CONNECTED | command line 64 bytes, header line 8 KiB, 100 headers, body 64 KiB | `first_limits` |
| longest frame of WebSocket; a message may have many | 128 MiB | `ws_frame` |
| time that sessions have when the broker stops | 5 s | `drain_timeout` |
| connections of a user | half of `sessions.max_connections`; all for a single user | `user_connections` |
| connections of an address, IPv6 by its /64 | three quarters of them; all on loopback | `address_connections` |
| connections before login | a quarter of them | `max_before_login` |
| open transactions of a session | 100 | `max_transactions` |
| unwritten bytes above which a client gets no more | 256 KiB, less with little memory | `write_high` |
| commands of the wish-list | PING and RECEIVE | `commands` |
| prefixes of queues | `/queue/`, `/temp-queue/` | `queue_prefixes`, `temp_queue_prefix` |
| prefixes of topics | `/topic/`, `/temp-topic/` | `topic_prefixes`, `temp_topic_prefix` |
| higher priority is delivered first | yes | `priority` |
| scheduled messages in memory, over all queues | 100,000 | `max_delayed` |
| bytes of a queue in memory from which on it is paged | 4 MiB, at most a 16th of `limits.memory` | `window_octets` |
| destinations that a session creates | half of `queues.max_destinations` | `session_destinations` |
| those that a user creates | half; without users, an address three quarters | `user_destinations` |
| messages that wait for a slow subscriber | 100,000 | `topic_backlog` |
| retained messages together | 64 MiB | `max_retained_octets` |
| large messages received at a time | 500, at most a quarter of the file descriptors | `max_uploads` |
| those of a user | half; without users, of an address three quarters | `user_uploads` |
| pause in a large message that ends it | 60 s | `upload_timeout` |
| slowest large message | 1 KiB per second | `upload_rate` |
| largest body for `transformation` | 256 KiB | `max_transformed` |
| largest decoded body for `content-encoding` | 1 MiB | `max_inflated` |
| idempotency keys of a user, virtual host, client-id and destination | the last 20,000 | `max_keys` |
| prefix of [requests](management.md); an empty one turns them off | `/management/` | `management_prefix` |
| destinations with metrics of their own | 100 | `web_metrics_destinations` |

[Dialects](broker-extensions.md#destinations) also differ in the fields `heart_beat_answer`, `exclusive`,
`queue_arguments`, `reply_to_subscribes`, `refuse_message_id`, `routing`, `routing_headers`, `composite` and
`virtual_topics`.
"""


def _toml(value: Any, read: Any = None) -> str:
    if read in (values.seconds, values.seconds_or_0):
        return f'"{shown_duration(value)}"'
    if read is values.millis:
        return f'"{shown_duration(value / 1000)}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, values.Pauses):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    text = shown_size(value) if type(value) is int else str(value)
    return text if text == str(value) else f'"{text}"'
