"""What is known of messages: where they were sent, who has them, and what became of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Conditions that subscriptions use, and what they mean.
SELECTORS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "color = 'red'": lambda message: message["color"] == "red",
    "NOT (color = 'red')": lambda message: message["color"] != "red",
    "n > 4": lambda message: int(message["n"]) > 4,
    "color IN ('red', 'blue') AND n <= 6": lambda m: m["color"] in ("red", "blue") and int(m["n"]) <= 6,
    "color LIKE 'b%'": lambda message: message["color"].startswith("b"),
}
#: Where a half frame may go, if what is sent behind it ends it: what is there is in no ledger.
LITTER = ("/queue/w", "/queue/DLQ.w")
#: What misbehaving clients send, by name. Each is refused, or waits for more; none may hurt anybody else.
WRONGS: dict[str, bytes] = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03GET / HTTP/1.1\r\n\r\n",
    "no colon": b"SEND\ndestination\n\nx\0",
    "no UTF-8": b"SEND\ndestination:/queue/a\xff\xfe\n\nx\0",
    "an unknown command": b"SELL\ndestination:/queue/a\n\n\0",
    "a frame of the server": b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\n\nx\0",
    "no destination": b"SEND\nreceipt:w1\n\nx\0",
    "half a body": b"SEND\ndestination:/queue/w\ncontent-length:5000\n\nhalf",
    "half a head": b"SEND\ndestination:/queue/w\nx:" + b"y" * 3000,
    "many empty lines": b"\n" * 5000,
    "a second CONNECT": b"CONNECT\naccept-version:1.2\nhost:/\n\n\0",
    "an ACK of another": b"ACK\nid:1-1\nmessage-id:b1-1\nsubscription:s0\n\n\0",
    "an ACK of nothing": b"ACK\nid:99-99\nmessage-id:none\nsubscription:none\nreceipt:w2\n\n\0",
    "a NACK of nothing": b"NACK\nid:1-999999999999\nmessage-id:none\nsubscription:none\n\n\0",
    "a COMMIT of nothing": b"COMMIT\ntransaction:none\nreceipt:w3\n\n\0",
    "the same BEGIN twice": b"BEGIN\ntransaction:w\n\n\0BEGIN\ntransaction:w\n\n\0",
    "the same SUBSCRIBE twice": b"SUBSCRIBE\nid:w\ndestination:/queue/w\n\n\0" * 2,
    "an UNSUBSCRIBE of nothing": b"UNSUBSCRIBE\nid:none\n\n\0",
    "a selector that makes no sense": b"SUBSCRIBE\nid:w4\ndestination:/queue/w\nselector:a = = b\n\n\0",
    "a temporary queue of another": b"SUBSCRIBE\nid:w5\ndestination:/temp-queue/none-x\n\n\0",
}


class Violation(AssertionError):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass(eq=False, slots=True)
class Message:
    key: int
    sender: "Seen"
    order: int
    destination: str
    body: bytes
    persistent: bool
    priority: int
    properties: Mapping[str, str]
    life: int
    expires: float | None = None
    due: float | None = None
    transaction: "Transaction | None" = None
    promised: int | None = None  # Its RECEIPT is out (that of COMMIT, in a transaction), and the number of that turn.
    failures: int = 0  # Commits that had failed when it came.
    dropped: bool = False  # It must not be delivered: its transaction was aborted.
    seen: bool = False
    copies: "list[Copy]" = field(default_factory=list)
    doubtful: bool = False  # Its session ended in the very read that it came with.
    group: str = ""  # All messages of a group go to one consumer; "" for none.

    def __repr__(self) -> str:
        kind = "persistent" if self.persistent else "volatile"
        inside = "" if self.transaction is None else f" in {self.transaction.name}"
        return f"m{self.key} ({kind}, {self.sender.name} to {self.destination}{inside})"


@dataclass(eq=False, slots=True)
class Copy:
    message: Message
    home: "Home"
    expected: bool = True  # The home was there for sure when the message came.
    gone: str = ""  # Why it must not come any more; "" if it may.
    maybe_gone: bool = False  # An ACK for it came, or something else that may have ended it.
    #: The ACK came in this life of the broker, when so many commits had failed: only one more may undo it.
    acked_life: int = -1
    acked_failures: int = 0
    holder: "Seen | None" = None
    deliveries: int = 0
    tries: int = 0  # The same as the broker counts them, and whether a NACK came.
    nacked: bool = False
    latest_try: int = 1  # The number of the latest attempt: a kill may undo some.
    #: It does not come before the first time, and has come back by the second: the pause after a NACK.
    earliest: float = 0.0
    latest: float = 0.0
    #: It was delivered, or in an outbox, when a refused frame ended the session: perhaps it is the one that counts.
    refused: bool = False
    back: int = -1  # The turn in which it came back to its queue.
    #: The session whose NACK gives it back, if that still waits for receipts: the NACK may stand behind a commit.
    behind: "Seen | None" = None
    must_mark: bool = False
    may_mark: bool = False
    moved: bool = False  # It has become a dead letter, or may have.
    buried_life: int = -1  # It is a dead letter, and was first seen in this life of the broker.


@dataclass(eq=False, slots=True)
class Home:
    name: str
    kind: str
    topic: str = ""
    selector: str | None = None
    sure: bool = True  # It is there for sure.
    deleted: bool = False
    turn: int = 0  # When it was made.
    life: int = 0  # Of the broker, when it was to be deleted.
    #: By the number of the message; in a queue of dead letters by message-id, for each subscription may have made one.
    copies: dict[int | str, Copy] = field(default_factory=dict)
    #: Those that may still come, by sender, in their order.
    waiting: "dict[Seen, list[Copy]]" = field(default_factory=dict)

    def add(self, copy: Copy, name: str | None = None) -> None:
        self.copies[copy.message.key if name is None else name] = copy
        self.waiting.setdefault(copy.message.sender, []).append(copy)
        copy.message.copies.append(copy)


@dataclass(eq=False, slots=True)
class Sub:
    session: "Seen"
    id: str
    mode: str
    home: Home
    window: int
    selector: str | None
    sure: bool = False
    over: bool = False  # UNSUBSCRIBE came; it was answered.
    quiet: bool = False
    unacked: dict[str, Copy] = field(default_factory=dict)  # By the ack header, or message-id.
    order: dict[str, int] = field(default_factory=dict)  # When each delivery was made.
    extra: int = 0  # Deliveries that an ABORT has given back: they may be above the window.
    #: The latest delivery by sender, priority and group: its turn, and the message's order.
    latest: "dict[tuple[Seen, int, str], tuple[int, int]]" = field(default_factory=dict)

    def accepts(self, message: Message) -> bool:
        return self.selector is None or SELECTORS[self.selector](message.properties)


@dataclass(eq=False, slots=True)
class Transaction:
    name: str
    persistent: bool = False
    messages: list[Message] = field(default_factory=list)
    acks: list[Copy] = field(default_factory=list)
    nacks: list[Copy] = field(default_factory=list)
    state: str = "open"  # open, committing, committed, aborted
    deliveries: list[int] = field(default_factory=list)  # Deliveries of `acks` when COMMIT came.
    #: The deliveries that wait for its end: subscription, ack id, copy.
    tags: list[tuple[Sub, str, Copy]] = field(default_factory=list)
    life: int = 0


@dataclass(eq=False, slots=True)
class Seen:
    name: str
    well_behaved: bool
    session: Any
    reader: Any
    writer: Any
    version: str = ""
    client_id: str | None = None
    excused: bool = False  # The link was cut, stalled or slow: what follows of that is not held against the broker.
    ended: bool = False
    error: str = ""
    broken: bool = False  # What it sent cannot be read any further.
    subs: dict[str, Sub] = field(default_factory=dict)
    old_subs: dict[str, Sub] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    #: Receipts to come: their ids, and what they promise.
    receipts: list[tuple[str, Callable[[], object]]] = field(default_factory=list)
    disconnected: bool = False
    #: Ids of ACKs that came before their messages were seen: in the read with its SUBSCRIBE, a guess counts.
    guessed: set[str] = field(default_factory=set)
    mismatch: bool = False  # It names a durable subscription that is another one.
    #: What has to be called when the session ended in the middle of what it just read.
    doubts: list[Callable[[], object]] = field(default_factory=list)
