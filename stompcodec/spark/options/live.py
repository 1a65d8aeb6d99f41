"""Options of the source "stomp": how to reach the broker, and how messages get into the spool."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompcodec.client.dedupe import Dedupe
from stompcodec.client.owned import owned_of
from stompcodec.disk import access_of
from stompcodec.spark.options.connection import LinkOptions, parse_link
from stompcodec.spark.options.options import ELSEWHERE, FILE_OPTIONS, FileOptions, Option, OptionError, file_options

#: Added to the options of a connection and of "stompfile".
LIVE_OPTIONS = (
    Option("replay", ("spool", "broker"), "spool", "where Spark reads a repeated batch from"),
    Option("destination", "names", ..., "destinations to read, such as /queue/a,/topic/b"),
    Option("spoolDir", "text", ..., "folder for received messages, on a disk that the driver and all executors share"),
    Option("spoolMode", "mode", None, "octal mode of the spool's files, such as 0640; default 0600"),
    Option("spoolGroup", "text", None, "their group, for executors that run as another user; sets mode 0640"),
    Option("ackMode", ("spool", "batch"), "spool", "acknowledge a message once it is on disk, or in Spark's log"),
    Option(
        "prefetch",
        "count positive",
        None,
        "most unacknowledged messages of each subscription; default 1000, or with ackMode=batch those of two batches "
        "by maxFramesPerTrigger or maxBytesPerTrigger, else 20000; at most 65000 for all destinations together",
    ),
    Option("subscriptions", "count positive", 1, "connections that share the messages of queues"),
    Option("clientId", "text", None, "client-id, for durable subscriptions"),
    Option("subscriptionName", "text", None, "name of a durable subscription"),
    Option("selector", "text", None, "selector, in the broker's language"),
    Option("subscribeHeaders", "text", None, 'further headers of SUBSCRIBE, as JSON: {"name": "value"}'),
    Option("reconnectTimeout", "seconds positive", 300.0, "the query fails after this long without a connection"),
    Option("dedupe", "text", "messageId", "how redelivered messages are recognized: messageId, header:NAME, or none"),
    Option("dedupeWindow", "count positive", 1_000_000, "messages remembered for dedupe"),
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
    """Options for reading a broker through a spool. They hold no secret.

    >>> parse_live({"url": "stomp://h", "destination": "/queue/a", "spoolDir": "s", "retain": "2"}).retain
    7200.0
    """

    link: LinkOptions
    file: FileOptions
    destination: tuple[str, ...]
    spool_dir: str
    spool_mode: int | None
    spool_group: str | None
    ack_mode: str
    prefetch: int
    subscriptions: int
    client_id: str | None
    subscription_name: str | None
    selector: str | None
    subscribe_headers: tuple[tuple[str, str], ...]
    reconnect_timeout: float
    dedupe: str
    dedupe_window: int
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
    values["subscribe_headers"] = _headers(values["subscribe_headers"])
    values.pop("replay")  # parse_replay reads replay=broker
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
        access_of(options.spool_mode, options.spool_group)
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
