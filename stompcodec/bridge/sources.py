"""The kinds of brokers as sources: lists of destinations, wildcards, browsing.

docs/bridge.md has the table for users.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from stompcodec.arguments import checks
from stompcodec.bridge.headers import REFUSED, SEQ, broker_name, check_name
from stompcodec.bridge.mapping import Mapping, Rule, is_topic
from stompcodec.client import AsyncClient, Backoff, connect_async
from stompcodec.client.backoff import SPAN, Refusals
from stompcodec.client.dialects import BROKERS, is_login_refused
from stompcodec.client.options import Options
from stompcodec.errors import LocalProtocolError, RejectedError, StompError
from stompcodec.spec import Limits
from stompcodec.uri import Brokers

#: Seconds after which a connection counts as a good one, so that delays start from the first again.
_GOOD = 5.0
#: Seconds for the answer to DISCONNECT, behind which no ACK is open.
_GOODBYE = 10.0
T = TypeVar("T")


@checks()
class End:
    """A broker at one end of a bridge.

    Each connection is a client of its own, which does not reconnect: the bridge decides what becomes of open messages,
    since it knows their order.

    Args:
        url: its URL, or its addresses.
        name: what it is called in paths; None for host and port.
        max_body: bytes of the largest body.
        backoff: the delays between attempts to connect again.
        options: of `stompcodec.client.connect_async`.

    Raises:
        ConfigError, TypeError, ValueError: the URL, the name or an option is invalid.

    >>> End("stomp://ann:secret@north.example").name
    'north.example:61613'
    """

    def __init__(
        self,
        url: Brokers,
        *,
        name: str | None = None,
        max_body: int = Limits().max_body,
        backoff: Backoff | None = None,
        **options: Any,
    ) -> None:
        self._options = {**options, "limits": Limits(max_body=max_body), "reconnect": None}
        self.addresses = connect_async(url, **self._options).addresses  # which checks them, and connects later
        self.name = broker_name(self.addresses) if name is None else check_name(name)
        self.max_body = max_body
        self.epoch = 0
        """The number of connections so far."""
        self.error: Exception | None = None
        """The error that ended the connection; None while connected."""
        self._backoff = Backoff() if backoff is None else backoff
        self._delays = self._backoff.delays(random.random)
        self._since = 0.0
        self._refusals = Refusals(options.get("login_attempts", Options.login_attempts), SPAN)

    def __str__(self) -> str:
        return ",".join(str(address) for address in self.addresses)

    async def open(self) -> AsyncClient:
        """Return a new client that is connected.

        Raises:
            ConnectionLostError, RejectedError: see `connect_async`.
        """
        client = await connect_async(self.addresses, **self._options)
        self.epoch += 1
        self.error = None
        self._refusals.forget()
        self._since = time.monotonic()
        return client

    async def reopen(self, on_trouble: Callable[[End, Exception], object]) -> AsyncClient:
        """Connect until that succeeds, and return the new client. `on_trouble` is called with each error.

        RejectedError: the broker refused the login as often as `login_attempts` allows, over at least a minute.
        """
        if time.monotonic() - self._since >= _GOOD:
            self._delays = self._backoff.delays(random.random)
        for delay in self._delays:
            await asyncio.sleep(delay)
            try:
                return await self.open()
            except (StompError, OSError) as error:
                self.error = error
                on_trouble(self, error)
                if is_login_refused(error):
                    if self._refusals.note(time.monotonic()):
                        raise
                elif isinstance(error, RejectedError):
                    self._refusals.forget()
        raise AssertionError("a Backoff with attempts")  # it has none

    def succeeded(self) -> None:
        """Note that the connection was useful, so that the next delay is the shortest again."""
        self._since = 0.0
        self._delays = self._backoff.delays(random.random)


async def is_one_broker(source: AsyncClient, target: AsyncClient, seconds: float) -> bool:
    """Return whether a message that is sent to a topic over one connection arrives over the other within `seconds`,
    after both have answered. A broker that refuses that closes the connection, and counts as another one.
    """
    topic = f"/topic/bridge-probe-{uuid.uuid4().hex}"
    with contextlib.suppress(StompError):
        async with source.subscribe(topic) as subscription:
            await subscription
            await target.send(topic, receipt=True)
            await source.ping()
            return await subscription.get(seconds) is not None
    return False


async def leave(client: AsyncClient, hurry: asyncio.Event, *, seconds: float = _GOODBYE) -> None:
    """Close a client. Its ACKs have reached the broker then, if that answers in time and the event is not set."""
    await unless(hurry, client.close(seconds))
    if hurry.is_set():
        await client.close(0.0)


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of some work; cancel it and return None if an event is set first."""
    task, told = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, told):
            each.cancel()
        await asyncio.gather(task, told, return_exceptions=True)


#: The most names in one answer of our broker, which says where the next one begins.
_MOST_PAGES = 10_000
#: Seconds for a broker to show a message, or the end.
_PATIENCE = 10.0
#: Advisories of ActiveMQ are about its own clients.
_ADVISORY = "ActiveMQ.Advisory."


class BridgeError(StompError):
    """An error that ends a bridge. The message says what was wrong and what to do.

    >>> issubclass(BridgeError, StompError)
    True
    """


class UnsuitableError(BridgeError):
    """An error that another map may avoid: the source cannot do what the map asks for, or no destination matches it.

    >>> issubclass(UnsuitableError, BridgeError)
    True
    """


class Giver(NamedTuple):
    """A kind of broker as a source: what it can do."""

    name: str
    title: str
    lists: bool = False
    """It lists its destinations."""
    any_queue: str = ""
    """The wildcard for the rest of a queue's name, which must begin a word."""
    any_topic: str = ""
    """The wildcard for the rest of a topic's name, which must begin a word."""
    browse: str = ""
    """The way its queues are browsed: "follow" shows later messages, too, "snapshot" only the present ones."""
    transacted_acks: bool = True
    """ACKs can wait for a COMMIT."""
    exclusive: str = ""
    """The header of SUBSCRIBE by which one consumer gets all messages of a queue while it is subscribed."""


#: Understood by ActiveMQ, and by our broker in every dialect.
_EXCLUSIVE = "activemq.exclusive"

GIVERS: dict[str, Giver] = {
    giver.name: giver
    for giver in (
        Giver("stompcodec", "our broker", lists=True, browse="follow", exclusive=_EXCLUSIVE),
        Giver("rabbitmq", "RabbitMQ", any_topic="#"),
        Giver("activemq", "ActiveMQ", any_queue=">", any_topic=">", browse="snapshot", exclusive=_EXCLUSIVE),
        Giver("artemis", "Artemis", any_topic="#", transacted_acks=False),
        Giver("unknown", "this broker", transacted_acks=False),
    )
}


def dialect_of(client: AsyncClient) -> str:
    """Return the key of `GIVERS` and `TAKERS` for a broker: `stompcodec` for ours, whatever its dialect."""
    server = None if client.connected is None else client.connected.get("server")
    if (server or "").startswith("stompcodec/"):
        return "stompcodec"
    return client.dialect if client.dialect in GIVERS else "unknown"


class Lane(NamedTuple):
    """One subscription at the source, and where its messages go."""

    destination: str
    target: str | None
    """None: by the map, from the destination of each message."""
    ack: str = "client-individual"
    durable: str | None = None
    selector: str | None = None
    browse: str = ""
    """The value of `Giver.browse` if the messages stay in the queue."""
    exclusive: str = ""
    """The value of `Giver.exclusive` if no other consumer is to get messages of the queue."""

    def subscribe_headers(self, seen: int) -> dict[str, str]:
        """Return headers of SUBSCRIBE, with the place of the last message that was browsed before; 0 for none."""
        if not self.browse:
            return {self.exclusive: "true"} if self.exclusive else {}
        headers = {"browser": "true"}
        if self.browse == "follow":
            headers |= {"browser-end": "false"}
        if self.browse != "snapshot":
            headers |= {"include-seq": SEQ, "from-seq": str(seen + 1)}
        return headers


class Request(NamedTuple):
    """The destinations that a bridge takes from, and how.

    >>> Request(Mapping.parse(["/topic/prices"]), mirror=True).drain
    False
    """

    mapping: Mapping
    mirror: bool = False
    """Copy, and leave the messages of queues where they are."""
    drain: bool = False
    """End when the source is empty."""
    durable: str | None = None
    selector: str | None = None
    shared: bool = False
    """Let others consume the same queues. Then the order of what is carried can change when a connection is lost."""
    names: tuple[str, ...] | None = None
    """Names of the source's destinations, from elsewhere."""


async def lanes_of(client: AsyncClient, request: Request) -> list[Lane]:
    """Return the subscriptions for a map. UnsuitableError: the broker cannot do it, or no destination matches."""
    giver = GIVERS[dialect_of(client)]
    if request.durable is not None and BROKERS[giver.name].client_id and client.options.client_id is None:
        raise UnsuitableError(f"{giver.title} needs a client id for durable subscriptions: give one with --client-id")
    lanes: dict[str, Lane] = {}
    for rule in request.mapping.rules:
        for lane in await _lanes_of_rule(client, giver, rule, request):
            lanes.setdefault(lane.destination, lane)
    if request.durable is not None and (len(lanes) > 1 or len(request.mapping.rules) > 1):
        names = {name: f"{request.durable}-{name.removeprefix('/topic/')}" for name in lanes}
        lanes = {name: lane._replace(durable=names[name]) for name, lane in lanes.items()}
    if not lanes:
        patterns = ", ".join(rule.source for rule in request.mapping.rules)
        raise UnsuitableError(f"no destination of {giver.title} matches {patterns}")
    return list(lanes.values())


async def _lanes_of_rule(client: AsyncClient, giver: Giver, rule: Rule, request: Request) -> list[Lane]:
    if not rule.is_pattern:
        return [_lane(giver, rule.source, None if rule.is_native else rule.target, request)]
    if request.names is not None:
        names: Iterable[str] = request.names
    elif giver.lists:
        names = [name for name, _ in await listed(client, rule.source)]
    else:
        return _wild_lanes(giver, rule, request)
    mapping = request.mapping
    found = [name for name in mapping.matching(names) if mapping.rule_of(name) == rule]
    return [_lane(giver, name, rule.target_of(name), request) for name in found]


def _lane(giver: Giver, destination: str, target: str | None, request: Request) -> Lane:
    lane = Lane(destination, target, durable=request.durable, selector=request.selector)
    if is_topic(destination):
        return lane if request.durable is not None or not request.mirror else lane._replace(ack="auto")
    if request.durable is not None:
        raise UnsuitableError(f"{destination} is a queue: a durable subscription is for topics")
    if not request.mirror:
        return lane if request.shared else lane._replace(exclusive=giver.exclusive)
    if not giver.browse:
        raise UnsuitableError(f"{giver.title} cannot show the messages of {destination} and keep them: move it")
    browse = giver.browse
    if browse == "follow" and request.drain:
        browse = "once"
    return lane._replace(ack="auto", browse=browse)


def _wild_lanes(giver: Giver, rule: Rule, request: Request) -> list[Lane]:
    """Return subscriptions with the broker's own wildcard, or raise UnsuitableError if it has none for these."""
    head = rule.source[:-1]
    heads = [head] if head else ["/queue/", "/topic/"]
    lanes = []
    for each in heads:
        wild = giver.any_topic if is_topic(each) else giver.any_queue
        kind = "topics" if is_topic(each) else "queues"
        if not wild or (request.mirror and not is_topic(each)):
            raise UnsuitableError(
                f"{giver.title} does not name its {kind} over STOMP: map each, or give their names with --destinations"
            )
        if not each.endswith((".", "/")):
            raise UnsuitableError(
                f"{rule.source}: {giver.title} matches whole words: the star has to follow a dot, as in {each}.*"
            )
        lane = _lane(giver, each + wild, None, request)
        if not is_topic(each) and giver.name == "activemq":  # what was refused must not come round
            only = f"{REFUSED} IS NULL"
            lane = lane._replace(selector=only if lane.selector is None else f"{only} AND ({lane.selector})")
        lanes.append(lane)
    return lanes


def is_advisory(destination: str) -> bool:
    """Return whether a destination is one of ActiveMQ's advisories."""
    return _ADVISORY in destination


async def is_empty(client: AsyncClient, lane: Lane) -> bool:
    """Return whether a broker whose queues can be browsed shows no message of one, or raise StompError."""
    shown = client.subscribe(
        lane.destination, selector=lane.selector, headers={"browser": "true", "browser-end": "true"}
    )
    async with shown as subscription:
        first = await subscription.get(_PATIENCE)
    return first is not None and first.get("browser") == "end"


async def listed(client: AsyncClient, pattern: str) -> list[tuple[str, int]]:
    """Return the names that our broker has for a pattern, and how many messages each has, delayed and held ones, too.

    A pattern is a name, or the beginning of names and a star. UnsuitableError: the broker does not list them.
    """
    names: list[tuple[str, int]] = []
    headers = {"browser": "names"}
    for _ in range(_MOST_PAGES):
        try:
            answer = await client.receive(pattern, headers=headers)
            page = json.loads(b"" if answer is None else answer.body)
            names += [(str(row["destination"]), int(row["messages"])) for row in page["destinations"]]
        except (LocalProtocolError, RejectedError, LookupError, TypeError, ValueError) as error:
            raise UnsuitableError(
                f"the broker does not list its destinations ({error}): map each, or name them with --destinations"
            ) from error
        if page.get("next") is None:
            break
        headers = {"browser": "names", "from-name": str(page["next"])}
    return names
