"""The kinds of brokers as sources: lists of destinations, wildcards, browsing.

docs/bridge.md has the table for users.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from stompcodec.bridge.headers import REFUSED, SEQ
from stompcodec.bridge.mapping import Mapping, Rule, is_topic
from stompcodec.client import AsyncClient, RejectedError
from stompcodec.errors import ConnectionLostError, LocalProtocolError, StompError

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
    client_id: bool = False
    """A durable subscription belongs to a client id."""
    exclusive: str = ""
    """The header of SUBSCRIBE by which one consumer gets all messages of a queue while it is subscribed."""


#: Understood by ActiveMQ, and by our broker in every dialect.
_EXCLUSIVE = "activemq.exclusive"

GIVERS: dict[str, Giver] = {
    giver.name: giver
    for giver in (
        Giver("stompcodec", "our broker", lists=True, browse="follow", exclusive=_EXCLUSIVE),
        Giver("rabbitmq", "RabbitMQ", any_topic="#"),
        Giver(
            "activemq",
            "ActiveMQ",
            any_queue=">",
            any_topic=">",
            browse="snapshot",
            client_id=True,
            exclusive=_EXCLUSIVE,
        ),
        Giver("artemis", "Artemis", any_topic="#", transacted_acks=False, client_id=True),
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
        """Return headers of SUBSCRIBE.

        Args:
            seen: the place of the last message that was browsed before; 0 for none.
        """
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
    """Return the subscriptions for a map.

    Raises:
        UnsuitableError: the broker cannot do it, or no destination matches.
        StompError: it could not be asked.
    """
    giver = GIVERS[dialect_of(client)]
    if request.durable is not None and giver.client_id and client.options.client_id is None:
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
    """Return subscriptions with the broker's own wildcard.

    Raises:
        UnsuitableError: it has none for these.
    """
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
            lane = lane._replace(selector=_but_refused(lane.selector))
        lanes.append(lane)
    return lanes


def _but_refused(selector: str | None) -> str:
    return f"{REFUSED} IS NULL" if selector is None else f"{REFUSED} IS NULL AND ({selector})"


def is_advisory(destination: str) -> bool:
    """Return whether a destination is one of ActiveMQ's advisories.

    >>> is_advisory("/topic/ActiveMQ.Advisory.Connection")
    True
    """
    return _ADVISORY in destination


async def is_empty(client: AsyncClient, lane: Lane) -> bool:
    """Return whether a broker whose queues can be browsed shows no message of one.

    Raises:
        StompError: it could not be asked.
    """
    shown = client.subscribe(lane.destination, selector=lane.selector, headers={"browser": "true"})
    async with shown as subscription:
        first = await subscription.get(_PATIENCE)
    return first is not None and first.get("browser") == "end"


async def listed(client: AsyncClient, pattern: str) -> list[tuple[str, int]]:
    """Return the names that our broker has for a pattern, and how many messages each has, delayed and held ones, too.

    Args:
        pattern: a name, or the beginning of names and a star.

    Raises:
        UnsuitableError: the broker does not list them.
        StompError: it could not be asked.
    """
    names: list[tuple[str, int]] = []
    headers = {"browser": "names"}
    for _ in range(_MOST_PAGES):
        try:
            answer = await client.receive(pattern, headers=headers)
        except ConnectionLostError:
            raise
        except (LocalProtocolError, RejectedError) as error:
            raise UnsuitableError(
                f"the broker does not list its destinations ({error}): map each, or name them with --destinations"
            ) from error
        page = _page(b"" if answer is None else answer.body)
        names += [(str(row["destination"]), int(row["messages"])) for row in page["destinations"]]
        if page.get("next") is None:
            break
        headers = {"browser": "names", "from-name": str(page["next"])}
    return names


def _page(body: bytes) -> dict[str, Any]:
    try:
        page = json.loads(body)
        if isinstance(page, dict) and isinstance(page["destinations"], list):
            return page
    except (ValueError, KeyError):
        pass
    raise UnsuitableError(
        "the broker's list of destinations cannot be read: map each, or give them with --destinations"
    )
