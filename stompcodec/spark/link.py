"""Options of the source and the sink "stomp". They say where the passcode is, but never hold it."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from stompcodec.client.dialects import BROKERS
from stompcodec.client.headers import owned_of
from stompcodec.client.recorder import Dedupe
from stompcodec.disk import access_of
from stompcodec.errors import ConfigError
from stompcodec.spark.options import (
    ELSEWHERE,
    FILE_OPTIONS,
    FileOptions,
    Option,
    OptionError,
    file_options,
    parse,
    uri_of,
)
from stompcodec.uri import Address, parse_uri

LINK_OPTIONS = (
    Option("url", "text", ..., "URL of the broker, such as stomp://host:61613, without a passcode"),
    Option("login", "text", None, "login name"),
    Option("passcodeEnv", "text", None, "environment variable with the passcode, on the machines that connect"),
    Option("passcodeFile", "text", None, "file with the passcode, on the machines that connect"),
    Option("caFile", "text", None, "certificates (PEM) to trust instead of the system's"),
    Option("dialect", ("auto", *sorted(BROKERS)), "auto", "broker whose conventions apply where STOMP is open"),
    Option("heartbeat", "seconds", 10.0, "interval of heart-beats; 0 for none"),
)
_SECRETS = ("passcode", "password")
_SAFE = "Spark's plan would show it: use passcodeEnv (a variable's name) or passcodeFile (a path)"


@dataclass(frozen=True)
class LinkOptions:
    """Options of a connection."""

    addresses: tuple[Address, ...]
    login: str | None
    passcode_env: str | None
    passcode_file: str | None
    ca_file: str | None
    dialect: str
    heartbeat: float

    def passcode(self) -> str | None:
        """Read the passcode; None if neither passcodeEnv nor passcodeFile is given. Raises OptionError if it cannot."""
        if self.passcode_env is not None:
            passcode = os.environ.get(self.passcode_env)
            if passcode is None:
                raise OptionError(
                    f"option passcodeEnv: the variable {self.passcode_env} is not set: set it before Spark starts"
                )
            return passcode
        if self.passcode_file is not None:
            try:
                with open(self.passcode_file, encoding="utf-8") as stream:
                    return stream.read().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not UTF-8"
                raise OptionError(f"option passcodeFile: {self.passcode_file} cannot be read: {why}") from None
        return None

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `stompcodec.client.connect`, with the passcode as it can be read now."""
        beat = round(self.heartbeat * 1000)
        arguments: dict[str, Any] = {"dialect": self.dialect, "heart_beat": (beat, beat), "passcode": self.passcode()}
        if self.login is not None:
            arguments["login"] = self.login
        if self.ca_file is not None:
            try:
                arguments["ssl"] = ssl.create_default_context(cafile=self.ca_file)
            except OSError as error:
                why = error.strerror or "it holds no certificates"
                raise OptionError(f"option caFile: {self.ca_file} cannot be read: {why}") from None
        return arguments


def parse_link(
    options: Mapping[str, Any], table: Iterable[Option], *, also: Iterable[str] = ()
) -> tuple[LinkOptions, dict[str, Any]]:
    """Return the options of a connection, and the values of a further table. Raises as `parse`."""
    given = {str(name).lower() for name in options}
    for name in _SECRETS:
        if name in given:
            raise OptionError(f"option {name} is refused: {_SAFE}")
    values = parse((*LINK_OPTIONS, *table), options, also=also)
    values["addresses"] = _addresses(values.pop("url"), None if values["ca_file"] is None else "caFile")
    if values["passcode_env"] is not None and values["passcode_file"] is not None:
        raise OptionError("options passcodeEnv and passcodeFile: give only one of them")
    link = LinkOptions(**{each.name: values.pop(each.name) for each in fields(LinkOptions)})
    return link, values


def _addresses(url: str, tls: str | None) -> tuple[Address, ...]:
    try:
        addresses = parse_uri(url, tls=tls)
    except ConfigError as error:
        raise OptionError(f"option url: {error}") from None
    if any(address.passcode is not None or "=***" in str(address) for address in addresses):
        raise OptionError(f"option url has a passcode: {_SAFE}")
    return tuple(addresses)


# ---- the source ----
#: Added to the options of a connection and of "stompfile".
LIVE_OPTIONS = (
    Option("destination", "names", ..., "destinations to read, such as /queue/a,/topic/b"),
    Option("spoolDir", "text", ..., "folder for received messages, on a disk that the driver and all executors share"),
    Option("spoolGroup", "text", None, "group of the spool's files, if executors run as another user; mode 0640"),
    Option("spoolArchive", "text", None, "URI of a folder to which full segments move, as in s3://bucket/a.stompcap"),
    Option("ackMode", ("spool", "batch"), "spool", "acknowledge a message once it is on disk, or in Spark's log"),
    Option(
        "prefetch",
        "count positive",
        None,
        "most unacknowledged messages of each subscription; with ackMode=batch enough for two batches",
    ),
    Option("subscriptions", "count positive", 1, "connections that share the messages of queues"),
    Option("clientId", "text", None, "client-id, for durable subscriptions"),
    Option("subscriptionName", "text", None, "name of a durable subscription"),
    Option("selector", "text", None, "selector, in the broker's language"),
    Option("subscribeHeaders", "text", None, 'further headers of SUBSCRIBE, as JSON: {"name": "value"}'),
    Option("reconnectTimeout", "seconds positive", 300.0, "the query fails after this long without a connection"),
    Option("expectEvery", "seconds positive", None, "the query fails after this long without a message"),
    Option("dedupe", "text", "messageId", "how redelivered messages are recognized: messageId, header:NAME, or none"),
    Option("maxSpoolBytes", "size positive", 10 * 2**30, "largest spool; beyond it nothing is acknowledged"),
    Option("retain", "seconds", 86400.0, "hours (or 30m, 2d) to keep processed messages in the spool"),
    Option("idleTimeout", "seconds positive", 5.0, "batch and availableNow: end after this long without a message"),
    Option("drainTimeout", "seconds positive", 300.0, "batch and availableNow: end after this long"),
    Option("maxFrames", "count positive", None, "batch and availableNow: end after this many messages"),
    Option("queryName", "text", None, "name of this query, shown to others that want its spool"),
)
#: Default prefetch with ackMode=spool, and with ackMode=batch when batches have no bounds. One connection takes at most
#: `_MOST_UNACKNOWLEDGED`: some brokers count in 16 bits or limit a session.
_PREFETCH = 1000
_UNBOUNDED = 20_000
_MOST_UNACKNOWLEDGED = 65_000
#: Size of a small frame in bytes, to convert maxBytesPerTrigger to messages.
_SMALL = 512
_DRAINING = ("idletimeout", "draintimeout", "maxframes")


@dataclass(frozen=True)
class LiveOptions:
    """Options for reading a broker through a spool. They hold no secret."""

    link: LinkOptions
    file: FileOptions
    destination: tuple[str, ...]
    spool_dir: str
    spool_group: str | None
    spool_archive: str | None
    ack_mode: str
    prefetch: int
    subscriptions: int
    client_id: str | None
    subscription_name: str | None
    selector: str | None
    subscribe_headers: tuple[tuple[str, str], ...]
    reconnect_timeout: float
    expect_every: float | None
    dedupe: str
    max_spool_bytes: int
    retain: float
    idle_timeout: float
    drain_timeout: float
    max_frames: int | None
    query_name: str | None
    drains: bool = False
    """True if a draining option was given. A Spark that hides its trigger then drains with the first batch."""


def parse_live(options: Mapping[str, Any]) -> LiveOptions:
    """Return the options of the source "stomp". Raises as `parse`."""
    given = {str(name).lower(): str(value) for name, value in options.items()}
    if re.fullmatch(r"\s*[0-9.]+\s*", given.get("retain", "")):
        given["retain"] += "h"
    link, values = parse_link(given, (*LIVE_OPTIONS, *FILE_OPTIONS), also=ELSEWHERE)
    file = file_options(values)
    values["spool_dir"] = _folder(values["spool_dir"])
    values["spool_archive"] = _archive(values["spool_archive"])
    values["subscribe_headers"] = _headers(values["subscribe_headers"])
    values["prefetch"] = values["prefetch"] or _prefetch(values, file)
    values["drains"] = any(name in given for name in _DRAINING)
    result = LiveOptions(link, file, **values)
    _check(result)
    return result


def _prefetch(values: Mapping[str, Any], file: FileOptions) -> int:
    """Return the prefetch of a subscription, in messages.

    With ackMode=batch nothing is acknowledged before its batch is in Spark's log, so the prefetch bounds a batch: it is
    enough for the batch that Spark is working on and for the next one.
    """
    if values["ack_mode"] != "batch":
        return _PREFETCH
    batch = min(
        file.max_frames_per_trigger or _MOST_UNACKNOWLEDGED,
        (file.max_bytes_per_trigger or _MOST_UNACKNOWLEDGED * _SMALL) // _SMALL,
    )
    bounded = file.max_frames_per_trigger or file.max_bytes_per_trigger
    wanted = -(-2 * batch // values["subscriptions"]) if bounded else _UNBOUNDED
    most = max(1, _MOST_UNACKNOWLEDGED // len(values["destination"]))
    return min(max(wanted, _PREFETCH), most)


def _folder(path: str) -> str:
    """Return the path of a folder as Spark names it: a path, or a file: URI."""
    found = re.fullmatch(r"file:(?://(?:localhost)?)?(/.*)", path)
    if found is None and re.match(r"[a-z][a-z0-9+.-]+:", path, re.IGNORECASE):
        raise OptionError(f"option spoolDir is {path!r:.80}: it must be a folder on a mounted disk")
    return os.path.abspath(found[1] if found else path)


def _archive(uri: str | None) -> str | None:
    if uri is not None and "://" not in (uri := uri_of("spoolArchive", uri)):
        raise OptionError(f"option spoolArchive is {uri!r:.200}: it must be a URI, such as s3://bucket/a.stompcap")
    return uri


def _headers(text: str | None) -> tuple[tuple[str, str], ...]:
    try:
        pairs = {} if text is None else json.loads(text)
    except ValueError:
        pairs = None
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise OptionError('option subscribeHeaders: it must be JSON such as {"name": "value"}')
    name = owned_of("SUBSCRIBE", pairs)
    if name is not None:
        raise OptionError(f"option subscribeHeaders: {name} is a header that the source writes itself: leave it out")
    return tuple(pairs.items())


def _check(options: LiveOptions) -> None:
    """Refuse options that do not go together."""
    try:
        access_of(group=options.spool_group)
    except ValueError as error:
        raise OptionError(f"option spoolGroup: {str(error).removeprefix('group: ')}") from None
    try:
        Dedupe.of(options.dedupe, 1)
    except ValueError as error:
        raise OptionError(f"option dedupe is {error}") from None
    if options.selector is not None and dict(options.subscribe_headers).get("selector") not in (None, options.selector):
        raise OptionError("option subscribeHeaders: it has another selector than option selector: give one of them")
    if options.subscription_name is not None and options.subscriptions > 1:
        raise OptionError("option subscriptions: a durable subscription (subscriptionName) has one connection")
    if options.subscription_name is not None and len(options.destination) > 1:
        raise OptionError("option destination: a durable subscription (subscriptionName) has one destination")


# ---- the sink ----
#: Added to the options of a connection.
SINK_OPTIONS = (
    Option("destination", "text", None, "destination of the rows if they have no column destination"),
    Option("transaction", "bool", True, "a task's rows take effect together or not at all"),
    Option("receiptEvery", "count", 1000, "without transaction: messages for each receipt; 0 for no receipts"),
    Option("dedupeHeader", "text", "none", "header for an id that a repeated task sends again; auto: the broker's own"),
    Option(
        "idPrefix", "text", None, "prefix of these ids, instead of the query's id, or of a new id for each batch write"
    ),
    Option("receiptTimeout", "seconds positive", 60.0, "a task fails if the broker does not answer for this long"),
    Option("reconnectTimeout", "seconds positive", 30.0, "a task tries to connect for this long"),
)
#: Headers that the sink writes itself.
_TAKEN = ("destination", "content-length", "transaction", "receipt")


@dataclass(frozen=True)
class SinkOptions:
    """Options for sending rows. They hold no secret."""

    link: LinkOptions
    destination: str | None
    transaction: bool
    receipt_every: int
    dedupe_header: str
    id_prefix: str | None
    receipt_timeout: float
    reconnect_timeout: float


def parse_sink(options: Mapping[str, Any]) -> SinkOptions:
    """Return the options of the sink "stomp". Raises as `parse`."""
    link, values = parse_link(options, SINK_OPTIONS, also=ELSEWHERE)
    result = SinkOptions(link, **values)
    if result.dedupe_header.lower() in _TAKEN:
        raise OptionError(f"option dedupeHeader is {result.dedupe_header!r}: the sink writes that header itself")
    if result.id_prefix is not None and not re.fullmatch(r"[!-9;-\[\]-~]{1,200}", result.id_prefix):
        raise OptionError("option idPrefix: it must be 1 to 200 visible ASCII characters without : and \\")
    return result
