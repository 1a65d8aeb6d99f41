"""Dialects of brokers: their headers for prefetch, durable subscriptions, NACK, redelivery and replies.

A broker is recognised by the `server` header of CONNECTED. Brokers differ by a row of a table, never by a subclass. Our
own broker in another dialect has the row of that dialect, with the fields of `_OWN`.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from stompcodec.client.headers import ACTIVEMQ, ANYCAST, ARTEMIS, TEMPORARY, Rule, fault_in, type_of
from stompcodec.codec import Frame, Headers
from stompcodec.errors import LocalProtocolError, RejectedError

#: The message-id of Artemis: the number of the consumer, new in each delivery, and that of the message.
ARTEMIS_ID = "[0-9]+,([0-9]+)"


def lasting_identity(dialect: BrokerDialect, headers: Mapping[str, str]) -> str | None:
    """Return what is the same in each delivery of a message, and differs for another message; None if nothing is.

    Subscriptions to one topic get their copies with one identity: compare those of one subscription or destination.
    On Artemis it is the number in the journal with the timestamp, since a new journal counts from the beginning again.
    """
    kind = dialect.lasting
    if kind == "id":
        return headers.get("message-id")
    if not kind:
        return None
    id, time = headers.get("message-id"), headers.get("timestamp")
    if id is None or time is None:
        return None
    consumer, _comma, number = id.partition(",")
    is_known = consumer.isdecimal() and number.isdecimal() and time.isdecimal() and id.isascii() and time.isascii()
    # JMS clients may leave the timestamp out, which makes it 0.
    return f"{number} {time}" if is_known and time[0] != "0" else None


Pairs = tuple[tuple[str, str], ...]
log, _emptied = logging.getLogger("stompcodec.client"), logging.getLogger("stompcodec.client.emptied")

#: The characters of the longest destination of our broker.
_LONGEST = 4096
#: The largest window or prefetch: brokers read 32 bits with a sign.
MOST = 2**31 - 1
#: The bytes of a window that no other consumer of a queue competes for.
_WIDE = 8 * 2**20
#: Headers of SUBSCRIBE by which a program itself chooses the queue behind a topic subscription.
_CHOSEN = frozenset({"durable", "persistent", "auto-delete", "exclusive", "x-queue-type"})


class BrokerDialect(NamedTuple):
    """The dialect of one broker."""

    name: str
    server: str = ""
    """The words of the product's name in its `server` header, in lower case, joined by hyphens."""
    prefetch: tuple[str, ...] = ()
    """Headers of SUBSCRIBE that take a number of messages."""
    window: str = ""
    """The header of SUBSCRIBE that takes a number of bytes instead: see `prefetch_headers`."""
    durable: Pairs | None = None
    """Headers of SUBSCRIBE and UNSUBSCRIBE for a durable subscription; {} is its name. None: not supported."""
    client_id: bool = False
    """A durable subscription needs the header client-id in CONNECT."""
    delete_apart: bool = False
    """Only a second UNSUBSCRIBE deletes a durable subscription."""
    requeue: Pairs | None = ()
    """Headers of NACK to have the message delivered again; None: not supported."""
    discard: Pairs = ()
    """Headers of NACK to have it dropped or dead-lettered."""
    unsubscribed: str = ""
    """What UNSUBSCRIBE does with unacknowledged messages: "returns" (they come again, before others), "behind" (they
    do, but behind those that were returned before) or "keeps" (they can still be acknowledged once the same id has
    subscribed again); "" if that is not known."""
    nack_transacted: bool = True
    """NACK can be part of a transaction."""
    attempts: tuple[str, ...] = ()
    """Headers of MESSAGE that count earlier deliveries; the first one that is present counts."""
    jms: bool = False
    """A SEND without content-length becomes a text message, with it a bytes message, and MESSAGE says so."""
    counts_text: bool = False
    """MESSAGE of a text message may have a content-length as well: behind all other headers."""
    emptied: str = ""
    """What to do about the JMS messages whose body it leaves out: all but text and bytes. "" if it does not."""
    ending: Pairs = ()
    """Headers at which it may close the connection without ERROR, and when it does."""
    implicit_replies: bool = False
    """A temporary queue in reply-to is subscribed to automatically, under its own name."""
    replies: str = "/temp-queue/replies.{}"
    """Where replies to `request` go; {} is a unique word. If there is no scheme, JMS on Artemis sends to topics."""
    rights: str = ""
    """What an error says that the subscription to it needs."""
    schemes: Mapping[str, str] = {}
    """Scheme of JMS in a reply-to -> what the name begins with in its place."""
    powers: str = ""
    """A pattern for names that stand for more than a queue or topic. No reply goes there, as strangers choose it."""
    duplicate: str = "idempotency-key"
    """The header of SEND that marks a message as sent again."""
    login_refused: tuple[str, ...] = ()
    """Words in lower case, of which an ERROR that refuses the login has one."""
    names_causes: bool = False
    """A frame may name the message in whose handling it is sent, which has had an attempt if the frame is refused."""
    topics: tuple[tuple[str, Pairs], ...] = ()
    """Kinds of queues for topic subscriptions, with their headers of SUBSCRIBE; {} is a unique name."""
    topic_queue: str = "transient"
    """The kind that `topic_queues="auto"` asks for."""
    aliases: tuple[str, ...] = ("/queue/",)
    """The prefixes that a name may have or lack, and means the same queue; the first one is the usual. Empty: no two
    names mean one queue."""
    lasting: str = ""
    """The part of a MESSAGE that is the same in each delivery, see `lasting_identity`: "id", its message-id; "number",
    the number in that with the timestamp; "" if there is none, or none is known."""
    marks: str = ""
    """What may follow the name of a queue, which stays the same one: options behind ?, a queue behind ::, more names
    behind a comma. Empty: all of them are part of the name."""
    nacked: str = ""
    """What NACK alone does with a message: "again" (it is delivered again), "counted" (so it is, and becomes a dead
    letter after some attempts), or "drops"; else "", or if it is not known."""
    gives_up: str = ""
    """The messages of which NACK with `discard` makes dead letters: "nack" (all), "persistent" (those of queues and
    durable subscriptions), or "" (none: a copy is sent)."""
    letters: str = ""
    """Where that copy goes; {} is the name of the source. Empty: only `dead_letter=` names it."""
    queue_type: Pairs = ()
    """Headers of SEND that make a name the name of a queue."""
    types: bool = False
    """Headers say whether a destination is a queue: destination-type of SEND, subscription-type of SUBSCRIBE."""
    values: Mapping[str, Rule] = {}
    """Headers of SEND and the destination of SUBSCRIBE, with the values by which the broker loses the message or ends
    the connection."""
    unbounded: tuple[str, ...] = ()
    """The modes of acknowledgement in which nothing gives a window back, so that there must be none."""
    least: int | None = None
    """The least value of a window with which messages come; None if none stops them."""
    shared: Pairs = ()
    """The headers of SUBSCRIBE that make a destination a queue: with them more consumers of a subscription share its
    messages, each with a window of its own. Empty: more consumers are not needed, or not known to share."""
    acks_transacted: bool = True
    """ACK can be part of a transaction; else the client sends it after the RECEIPT of COMMIT."""
    forged: bool = False
    """STOMP 1.0 sessions get line feeds of header values as they are: a sender can forge headers."""
    changed: str = ""
    """What it does if a durable name comes with another selector or destination; "" if it refuses that."""
    poisoned: str = ""
    """The prefix of selectors after which it refuses the same selector without the prefix, for everyone."""
    only_true: tuple[str, ...] = ()
    """Headers of SEND that mean what they say with the value true alone, and are left out with another one."""
    unescapes: bool = False
    """It reads escapes in CONNECT, which has none: the client writes each backslash twice."""
    knows_keys: bool = False
    """It drops a SEND whose `duplicate` header has the value of an earlier one, and confirms it."""

    offset: str = ""
    """The header with an offset in a stream, of MESSAGE and of SUBSCRIBE; "" if there are no streams."""
    closes: tuple[tuple[str, str], ...] = ()
    """Why it closes the connection without ERROR at a SEND with receipt: prefixes of destinations, and reasons."""
    pieces: str = "whole"
    """How large frames go over WebSocket: see the option `websocket_pieces`."""
    largest: tuple[int, ...] = ()
    """The bytes, and perhaps the headers, of the largest frame; at a larger one it closes without ERROR."""

    def excess(self, pairs: Collection[tuple[str, str]], octets: int) -> str:
        """Return why it may close at a frame with these headers, and content-length; "" if that is not known."""
        for name, when in self.ending:
            if name in dict(pairs):
                return f"at the header {name} {when}"
        octets += sum(len(name) + len(value) + 2 for name, value in pairs)
        for unit, most, count in zip(("bytes", "headers"), self.largest, (octets, len(pairs) + 1), strict=False):
            if count > most:
                return f"at more than {most} {unit}, and this frame has about {count}"
        return ""

    def is_text(self, headers: Headers) -> bool:
        """Return whether a MESSAGE is a text message, as far as its content-length tells."""
        names = [name for name, _ in headers.pairs()]
        return "content-length" not in (names[:-1] if self.counts_text else names)

    def is_emptied(self, frame: Frame) -> bool:
        """Return whether the broker may have left out the body of a MESSAGE; it may also be an empty text."""
        told = {"content-length", "content-type", "browser"}  # the last of a browser is empty
        return bool(self.emptied) and not frame.body and told.isdisjoint(frame.headers)

    def body_of(self, frame: Any, text: bool | None = None) -> bytes | str:
        """Return the body of a MESSAGE to send on: as text if it is that, or `text` says so, and it is UTF-8."""
        if self.is_text(frame.headers) if text is None else text:
            with contextlib.suppress(UnicodeDecodeError):
                return str(frame.body, "utf-8")
        return bytes(frame.body)

    def refusals(self, what: str) -> str:
        """Return why it may have refused a SEND with a receipt by closing; "" if that is not known."""
        is_any = what.startswith("message")  # of `send_many`
        return ", or ".join(reason for prefix, reason in self.closes if is_any or f" to {prefix}" in what)

    def is_stream(self, headers: list[tuple[str, str]]) -> bool:
        """Return whether headers of SUBSCRIBE ask for a stream, as far as they tell."""
        is_asked = ("x-queue-type", "stream") in headers or self.offset in dict(headers)
        return is_asked and bool(self.offset)

    @property
    def may_stall(self) -> bool:
        """Whether a program that waits for messages may have to do something first: see `Windows.waits`."""
        return bool(self.window) or not self.acks_transacted

    def suit(self, pairs: list[tuple[str, str]], is_reply: bool = False) -> str | None:
        """Add the type of the destination to the headers of a SEND, unless they have one; return it if it was added.

        Headers that must not be false are left out. A reply to a temporary destination gets no type: its consumer is
        there, and perhaps has named another one. Raises ValueError for a value by which the broker would lose the
        message.
        """
        if self.only_true:
            pairs[:] = self.without_false(pairs)
        destination = kind = None
        for name, value in pairs:
            if name == "destination":
                destination = destination or value
            elif name == "destination-type":
                kind = value
            if name in self.values:
                self.check_value(name, value)
        if not self.types or kind is not None or not isinstance(destination, str):
            return None
        if is_reply and destination.startswith(TEMPORARY):
            return None
        kind = type_of(destination)
        if kind is not None:
            pairs.append(("destination-type", kind))
        return kind

    def check_value(self, name: str, value: object) -> None:
        """Raise ValueError for a value by which the broker would lose the message, or end the connection."""
        fault = fault_in(self.values, name, value)
        if fault is not None:
            raise ValueError(f"the header {name!r} is {value!r:.60}: with {self.name} it must be {fault}")

    def type_headers(self, destination: str, given: Iterable[tuple[str, str]], durable: bool) -> Pairs:
        """Return the headers of SUBSCRIBE for the type of the destination; none if `given` has one, which counts."""
        if not self.types:
            return ()
        said = next((value for name, value in given if name == "subscription-type"), None)
        kind = type_of(destination) if said is None else said
        if durable and kind == ANYCAST:
            raise ValueError(
                f"durable= with {destination!r:.60}, which is a queue: it keeps messages without a subscription, "
                "so leave out durable="
            )
        return () if said is not None or kind is None else (("subscription-type", kind),)

    def without_false(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the headers of a SEND without those of `only_true` that are not true."""
        return [pair for pair in pairs if pair[0] not in self.only_true or pair[1].lower() == "true"]

    def check_selector(self, selector: str | None) -> None:
        """Raise LocalProtocolError for a selector that harms other clients of the broker."""
        if selector is not None and self.poisoned and self.poisoned in selector:
            plain = selector.replace(self.poisoned, "", 1).strip()
            raise LocalProtocolError(
                f"a selector with {self.poisoned} breaks {plain!r:.60} for all clients of {self.name} until it is"
                " restarted: compare with texts, as in n = '9'"
            )

    def is_same(self, one: str, other: str) -> bool:
        """Return whether two names mean one queue."""
        return self._bare(one) == self._bare(other)

    @property
    def requeues(self) -> bool:
        """Whether NACK alone has a message delivered again."""
        return self.nacked in ("again", "counted")

    def is_read(self, source: str, destination: str) -> bool:
        """Return whether a subscription to `source` gets what is sent to a destination, as far as the names tell."""
        names = self._each(destination)
        return any(self.is_same(each, name) for each in self._each(source) for name in names)

    def _each(self, name: str) -> list[str]:
        """Return the queues of a name, without what may follow them."""
        marks = self.marks.split()
        names = name.split(",") if "," in marks else [name]
        for mark in marks:
            names = [each.partition(mark)[0] for each in names]
        return names

    def letters_of(self, destination: str) -> str:
        """Return where copies of messages go that are given up; "" if the broker has no place for them."""
        return self.letters.format(_KIND.sub("", destination).replace("/", "."))

    def refusing(self, requeue: bool | None, discard: bool) -> bool | None:
        """Return the `requeue` of a NACK that a program asks for; only with `discard` may it drop the message."""
        if discard and requeue:
            raise ValueError("requeue=True and discard=True: give one of them")
        if discard:
            return False
        if self.nacked == "drops" and not requeue:
            raise LocalProtocolError(
                f"the NACK of {self.name} drops the message: say discard=True to mean that. Raise in a handler or in"
                " message.processing() to have a dead letter made of it, or leave it unsettled to get it again"
            )
        return requeue

    def _bare(self, name: str) -> str:
        prefix = next(filter(name.startswith, self.aliases), "")
        return name[len(prefix) :]

    def prefetch_headers(self, messages: int, ack: str = "client", *, wide: bool = False) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE that bound the unacknowledged messages.

        Where windows are in bytes, 1 stands for one message of any size, and more messages count as a KiB each. `wide`
        says that no other consumer waits for what is delivered ahead: the window is at least 8 MiB then.
        """
        if ack in self.unbounded:
            return []
        if self.window:
            octets = max(messages * 1024, _WIDE if wide else 0)
            return [(self.window, "1" if messages == 1 else str(min(octets, MOST)))]
        return [(name, str(messages)) for name in self.prefetch]

    def check_window(self, ack: str, headers: Iterable[tuple[str, str]]) -> None:
        """Raise ValueError if headers of SUBSCRIBE hold a window with which no messages come, or after some no more."""
        names = {self.window, *self.prefetch}
        for name, value in headers:
            if self.least is None or name not in names:
                continue
            number = re.fullmatch("-?[0-9]{1,10}", value)
            if number is None or not self.least <= int(value) <= MOST:
                raise ValueError(f"headers= holds {name!r} as {value!r:.60}: {self.name} takes {self.least} to {MOST}")
            if ack in self.unbounded and int(value) != -1:
                raise ValueError(
                    f"headers= holds {name!r} as {value!r:.60}: with ack={ack!r} nothing gives a window of {self.name} "
                    "back: leave it out, or acknowledge"
                )

    def beside(self, prefetch: int | None, headers: Iterable[tuple[str, str]]) -> int | None:
        """Return a usual prefetch for `subscribe`, in messages; None if its headers say one in the broker's words."""
        names = {name for name, _ in self.prefetch_headers(1)}
        return prefetch if names.isdisjoint(name for name, _ in headers) else None

    def durable_headers(self, name: str, client_id: str | None) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE for a durable subscription, and of UNSUBSCRIBE to delete it."""
        if self.durable is None:
            raise LocalProtocolError(
                f"the dialect {self.name!r} has no durable subscriptions: set dialect=, or give the headers="
            )
        if self.client_id and client_id is None:
            raise LocalProtocolError(f"a durable subscription of {self.name} needs connect(..., client_id=)")
        return [(key, value.format(name)) for key, value in self.durable]

    def topic_headers(
        self, destination: str, choice: str, given: Collection[str], unique: Callable[[], str]
    ) -> list[tuple[str, str]]:
        """Return the headers of SUBSCRIBE that choose the queue behind a topic subscription, which is not durable.

        None are added if headers of the program (`given`) choose it. `unique` returns a name no other subscription has.
        """
        if not self.topics or not destination.startswith("/topic/") or not _CHOSEN.isdisjoint(given):
            return []
        if choice == "auto":
            choice = self.topic_queue
            if choice == "exclusive" and "x-queue-name" in given:  # a named queue is meant to be shared
                choice = "durable"
        return [(key, unique() if value == "{}" else value) for key, value in dict(self.topics)[choice]]

    def place_of(self, reply_to: str) -> tuple[str, Pairs]:
        """Return the destination of a reply-to, and the headers of SEND for the type that a scheme says."""
        scheme, _, name = reply_to.partition("://")
        if scheme not in self.schemes or scheme == reply_to:
            return reply_to, ()
        kind = None if reply_to.startswith(TEMPORARY) or not self.queue_type else type_of(reply_to)
        return self.schemes[scheme] + name, () if kind is None else (("destination-type", kind),)

    def fault_of(self, reply_to: str) -> str | None:
        """Return why no reply can be sent to a destination that a stranger chose; None if that is not known."""
        destination, _ = self.place_of(reply_to)
        if not destination or _KIND.fullmatch(destination):
            return "is empty"
        if any(character < " " for character in destination):
            return "has line breaks or other control characters"
        if "," in destination:
            return "has a comma, which separates destinations"
        if len(destination) > _LONGEST:
            return f"is longer than {_LONGEST} characters"
        if _SCHEME.match(destination):
            return f"has a scheme that the dialect {self.name!r} does not know"
        if self.powers and re.match(self.powers, destination.lstrip()):
            return "stands for more than a queue or topic at the broker"
        return None

    def refuses_login(self, words: str) -> bool:
        """Return whether the words of an ERROR refuse the login, so that another attempt with it is refused as well."""
        folded = words.lower()
        return any(each in folded for each in self.login_refused)

    def nack_headers(self, requeue: bool | None, transacted: bool = False) -> Pairs:
        """Return the headers of NACK: to deliver again (True), to drop (False), or for the broker's default (None)."""
        if transacted and not self.nack_transacted:
            raise LocalProtocolError(f"{self.name} does not support NACK in a transaction: refuse the message outside")
        if requeue is None:
            return ()
        headers = self.requeue if requeue else self.discard
        if headers is None:
            raise LocalProtocolError(f"the NACK of {self.name} cannot requeue a message")
        return headers


#: What brokers say when they refuse a login: ours, RabbitMQ, and both ActiveMQ and Artemis.
_OURS, _RABBITMQ, _ACTIVEMQ = "login refused", "access refused for user", "password is invalid"
#: The ERROR of Spring's relay beside the RECEIPT of DISCONNECT, before or behind it, whatever broker it has.
PARTING = "Connection to broker closed."
#: Why RabbitMQ refuses messages without ERROR.
_FULL, _LEFT = "if a queue with overflow=reject-publish is full", "if a subscriber of the topic leaves"
#: The prefix for the kind of a destination.
_KIND = re.compile(r"^/(?:amq/)?[a-z-]+/")
#: The schemes by which JMS names destinations, and any.
_KINDS = ("queue", "topic", "temp-queue", "temp-topic")
_SCHEME = re.compile(r"\s*[\w+.-]*://")
#: `powers`: management; any exchange; management and notifications; agents, advisories and wildcards.
_MANAGES, _EXCHANGES = "/management/", "/exchange/"
_ARTEMIS_POWERS = r".*activemq\.(?:management|notifications)|.*\$\.artemis\.internal"
_ACTIVEMQ_POWERS = r"(?:.*[/ ])?ActiveMQ\.|.*[*>]"
#: It may be Artemis, as that is set up or in STOMP 1.0: it reads activemq.prefetchSize as bytes, and has text messages.
_UNKNOWN = BrokerDialect(
    "unknown",
    prefetch=("prefetch-count",),
    aliases=("/queue/", "/amq/queue/"),
    login_refused=(_OURS, _RABBITMQ, _ACTIVEMQ),
    marks=":: ? ,",
    powers="|".join((_MANAGES, _EXCHANGES, _ARTEMIS_POWERS, _ACTIVEMQ_POWERS)),
    forged=True,  # Artemis does not say what it is in 1.0
    jms=True,
    counts_text=True,
)
#: The fields of our own broker in every dialect.
_OWN: dict[str, Any] = {
    "login_refused": (_OURS,),
    "attempts": ("redelivery-count",),
    "names_causes": True,
    "lasting": "id",
    "marks": "",
    "replies": "/temp-queue/replies.{}",
    **{"rights": "", "schemes": {}, "powers": _MANAGES},
    **{"forged": False, "changed": "", "poisoned": "", "only_true": ()},
    "unescapes": False,
    "knows_keys": True,
    "pieces": "fragments",
    **{"offset": "", "closes": (), "largest": (), "counts_text": False, "emptied": "", "ending": ()},
}
#: The dialects of our own broker in which a name with and without its prefix is one queue.
_OWN_ALIASES = ("rabbitmq", "activemq")

BROKERS: dict[str, BrokerDialect] = {
    dialect.name: dialect
    for dialect in (
        BrokerDialect(
            "stompcodec",
            "stompcodec",
            prefetch=("prefetch-count",),
            durable=(("durable", "true"), ("auto-delete", "false")),
            aliases=(),
            requeue=(),
            discard=(("requeue", "false"),),
            nacked="counted",
            gives_up="nack",
            letters="/queue/DLQ.{}",
            unsubscribed="returns",
            **_OWN,
        ),
        BrokerDialect(
            "rabbitmq",
            "rabbitmq",
            prefetch=("prefetch-count",),
            durable=(("durable", "true"), ("auto-delete", "false")),
            requeue=(("requeue", "true"),),
            discard=(("requeue", "false"),),
            unsubscribed="keeps",
            attempts=("x-acquired-count", "x-delivery-count"),  # NACK counts in the first alone since 4.3
            login_refused=(_RABBITMQ,),
            implicit_replies=True,
            powers=_EXCHANGES,
            aliases=("/queue/", "/amq/queue/"),
            only_true=("persistent",),  # persistent:false makes the queue exclusive, and fails where it is not
            topics=(
                ("transient", ()),
                ("exclusive", (("exclusive", "true"),)),
                ("durable", (("durable", "true"), ("auto-delete", "true"), ("x-queue-name", "{}"))),
            ),
            nacked="again",
            letters="/queue/DLQ.{}",
            unescapes=True,
            offset="x-stream-offset",
            closes=(("", _FULL),),
            pieces="fragments",
        ),
        BrokerDialect(
            "artemis",
            "artemis",
            window="consumer-window-size",
            durable=(("durable-subscription-name", "{}"),),
            client_id=True,
            requeue=None,
            unsubscribed="returns",
            jms=True,
            counts_text=True,
            emptied="have its sender use a Text or Bytes message",
            login_refused=(_ACTIVEMQ,),
            duplicate="_AMQ_DUPL_ID",
            lasting="number",
            marks="::",
            nacked="drops",
            letters="DLQ",
            queue_type=(("destination-type", "ANYCAST"),),
            types=True,
            replies="/temp-topic/replies.{}",
            rights=", which needs the rights createAddress, createNonDurableQueue and consume,",
            schemes=dict.fromkeys(_KINDS, ""),
            powers=_ARTEMIS_POWERS,
            values=ARTEMIS,
            forged=True,
            changed="keeps the old ones",
            unbounded=("auto",),
            least=-1,
            shared=(("subscription-type", "ANYCAST"),),
            acks_transacted=False,
            knows_keys=True,
            pieces="fragments",
        ),
        BrokerDialect(
            "activemq",
            "activemq",
            prefetch=("activemq.prefetchSize",),
            durable=(("activemq.subscriptionName", "{}"),),
            client_id=True,
            delete_apart=True,
            requeue=None,
            unsubscribed="behind",
            nack_transacted=False,
            jms=True,
            emptied="have its sender use a Text or Bytes message, or subscribe with transformation:jms-json, for which"
            " ActiveMQ needs XStream: without it, it closes the connection",
            ending=(("transformation", "if the broker has no XStream"),),
            login_refused=(_ACTIVEMQ,),
            lasting="id",
            marks="? ,",
            gives_up="persistent",
            letters="/queue/ActiveMQ.DLQ",
            schemes={kind: f"/{'remote-' * (kind[:4] == 'temp')}{kind}/" for kind in _KINDS},
            powers=_ACTIVEMQ_POWERS,
            values=ACTIVEMQ,
            forged=True,
            changed="drops what waits",
            poisoned="convert_string_expressions:",
            least=1,
            unescapes=True,
        ),
        BrokerDialect(
            "vertx", "vertx-stomp", requeue=None, aliases=(), nacked="drops", unescapes=True, pieces="messages"
        ),
        _UNKNOWN,
    )
}

#: Row -> (first version, fields that changed with it), in order.
_SINCE: dict[str, tuple[tuple[tuple[int, int], dict[str, Any]], ...]] = {
    # 4.3 refuses queues that are neither durable nor exclusive, the default of topic subscriptions.
    "rabbitmq": (
        ((4, 0), {"largest": (4 * 2**20,)}),
        (
            (4, 3),
            {"topic_queue": "exclusive", "largest": (4 * 2**20, 100), "closes": (("", _FULL), ("/topic/", _LEFT))},
        ),
    ),
}
#: What names of destinations begin with at brokers, after a slash.
_SLASHED = ("queue/", "topic/", "temp-queue/", "temp-topic/", "exchange/", "amq/queue/")
#: The dialects whose forged headers this process has warned of, and the remedies for empty bodies.
_warned: set[str] = set()
_VERSION = re.compile(r"/v?([0-9]{1,6})\.([0-9]{1,6})")


def row_of(name: str, server: str | None) -> BrokerDialect:
    """Return the dialect of a broker, by the client option `dialect` and the header server of CONNECTED."""
    folded = (server or "").lower()
    product, _, manner = folded.partition(" as ")
    words = set(re.split("[^a-z]+", product.partition("/")[0]))
    found = next((row for row in BROKERS.values() if row.server and words.issuperset(row.server.split("-"))), _UNKNOWN)
    own = found.name == "stompcodec"
    if name != "auto":
        row = BROKERS[name]
    else:
        row = BROKERS.get(manner.strip(), found) if own else found
    if own:
        unsubscribed = row.unsubscribed if row.name == "rabbitmq" else "returns"
        aliases = row.aliases if row.name in _OWN_ALIASES else ()
        return row._replace(**_OWN, unsubscribed=unsubscribed, aliases=aliases)
    version = _VERSION.search(folded)
    if found is row and version is not None:
        numbers = int(version[1]), int(version[2])
        for first, fields in _SINCE.get(row.name, ()):
            if numbers >= first:
                row = row._replace(**fields)
    return row


def is_login_refused(error: BaseException) -> bool:
    """Return whether the error of `connect` is a login that the broker, whichever it is, refused."""
    return isinstance(error, RejectedError) and _UNKNOWN.refuses_login(str(error))


def lacks_slash(destination: str, dialect: str) -> bool:
    """Return whether a destination lacks its leading slash, as in queue/a. Artemis takes any name for an address."""
    return destination.startswith(_SLASHED) and dialect != "artemis"


def caution_session(dialect: BrokerDialect, version: str | None) -> None:
    """Warn once that senders can forge headers of messages to a STOMP 1.0 session, if the broker lets them."""
    if version == "1.0" and dialect.forged and dialect.name not in _warned:
        _warned.add(dialect.name)
        log.warning(
            "STOMP 1.0 has no escapes, and %s writes line feeds of header values as they are: a sender can forge"
            " headers of the messages that come here; use STOMP 1.1 or 1.2",
            "the broker, which does not say what it is, perhaps" if dialect.name == "unknown" else dialect.name,
        )


def caution_empty(dialect: BrokerDialect, frame: Frame) -> None:
    """Warn once of a message whose body the broker may have left out."""
    if dialect.emptied not in _warned and dialect.is_emptied(frame):
        _warned.add(dialect.emptied)
        _emptied.warning(
            "message %s of %s has no body: %s leaves out that of a JMS Map, Object or Stream message. If it is not an"
            " empty text, %s",
            *(frame.get("message-id"), frame.get("destination"), dialect.name, dialect.emptied),
        )


def caution_durable(dialect: BrokerDialect, name: str | None, selector: str | None) -> None:
    """Log that a durable name keeps its selector: another one needs the name to be deleted first."""
    if name is not None and selector is not None and dialect.changed:
        log.info(
            "the durable subscription %r has a selector: if it or the destination changes, %s %s;"
            " first delete the name with unsubscribe(delete=True)",
            *(name, dialect.name, dialect.changed),
        )
