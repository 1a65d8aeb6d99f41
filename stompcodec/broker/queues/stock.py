"""Stock: what a queue holds, how much of it there is, and who waits until there is less. Who gets it is `queue.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from stompcodec.broker.loop_quota import AT_ONCE, Line, Turns, Work
from stompcodec.broker.memory import LOW, MESSAGE, Account, Part
from stompcodec.broker.message import Message
from stompcodec.broker.queues.arguments import Terms
from stompcodec.broker.queues.backlog import Backlog, Fifo
from stompcodec.broker.queues.limits import Bound
from stompcodec.broker.storage.journal import Journal

if TYPE_CHECKING:
    from stompcodec.broker.peer import Maker, Peer

__all__ = ["Stock"]

#: In a line of at most so many messages, those in the middle are looked for one by one.
_SHORT = 10_000
#: What a queue has that never had anything READY: a deque of its own takes 600 octets.
_NONE = Fifo((), 0)


class Stock:
    """The messages of a queue: READY here, UNACKED with its consumers, and held until their time comes.

    Args:
        name, key, bound, account, journal, wall, ranked: as in Queue.
    """

    __slots__ = (
        *(
            "account",
            "blocked",
            "bound",
            "closed",
            "count",
            "expiring",
            "held",
            "idle",
            "journal",
            "key",
            "late",
            "maker",
            "messages",
            "name",
        ),
        *("octets", "ranked", "swept", "terms", "turns", "used", "wall"),
    )

    def __init__(
        self,
        name: str,
        key: str,
        bound: Bound,
        account: Account | Part,
        journal: Journal | None,
        wall: Callable[[], float],
        ranked: bool,
    ) -> None:
        self.name = name
        self.key = key
        self.bound = bound
        self.account = account
        #: Who made it.
        self.maker: Maker | None = None
        self.journal = journal
        self.wall = wall
        self.ranked = ranked
        #: What a client has said of this queue, and when it was last seen to be used.
        self.terms: Terms | None = None
        self.used: float | None = None
        #: READY, oldest first, or in the order of a `Backlog`.
        self.messages: Fifo | Backlog = _NONE
        #: From this seq on, messages may stand behind later ones in a `Fifo`; None: all are in order.
        self.late: int | None = None
        #: Not READY before their time, by their seqs.
        self.held: dict[int, Message] = {}
        #: READY, UNACKED and held.
        self.count = 0
        self.octets = 0
        #: Sessions that wait until there is room.
        self.blocked: dict[Peer, None] = {}
        self.closed = False
        #: Where it waits when there is more to do than one turn should take; None to do it at once.
        self.turns: Turns | None = None
        #: Messages with a time to expire have come.
        self.expiring = False
        #: When expired messages are looked for next, in seconds.
        self.swept = 0.0
        #: Nothing has happened since the last sweep.
        self.idle = False

    # ---- how much ----

    @property
    def full(self) -> bool:
        """The bound is passed, or memory is short and the queue is one of the largest."""
        bound, account = self.bound, self.account
        return (
            self.count > bound.messages
            or self.octets > bound.octets
            or (account.used > account.first and account.is_large(self.cost))
        )

    @property
    def cost(self) -> int:
        """Bytes of memory that the messages take."""
        return self.octets + self.count * MESSAGE

    @property
    def is_low(self) -> bool:
        """There is room again, and not only for one message."""
        return self.bound.is_low(self.count, self.octets) and not self.account.is_large(self.cost, LOW)

    @property
    def may_grow(self) -> bool:
        """It is full for lack of memory only, and there is some left for those that cannot wait for it."""
        bound = self.bound
        within = self.count <= bound.messages and self.octets <= bound.octets
        return within and self.account.used <= self.account.second

    @property
    def is_too_large(self) -> bool:
        """It is within its bound, but memory is short."""
        return self.account.is_large(self.cost)

    def more(self, message: Message) -> None:
        """A message has come."""
        self.count += 1
        self.octets += message.size
        self.account.used += message.size + MESSAGE

    def less(self, count: int, octets: int) -> None:
        """Messages are gone: there is room for others."""
        if self.closed:
            return
        self.count -= count
        self.octets -= octets
        self.account.used -= octets + count * MESSAGE
        if self.blocked and self.is_low:
            self.release_blocked()

    def less_one(self, octets: int) -> None:
        """As `less`, for one message: the hot road."""
        if self.closed:
            return
        self.count -= 1
        self.octets -= octets
        self.account.used -= octets + MESSAGE
        if self.blocked and self.is_low:
            self.release_blocked()

    def release_blocked(self) -> None:
        """Let those that wait send again."""
        self.account.waiting.pop(self, None)
        if len(self.blocked) > AT_ONCE and self.turns is not None:
            self.turns.line_up(Work(self._releasing(self.turns)))
            return
        blocked, self.blocked = self.blocked, {}
        for session in blocked:
            session.unblock(self)

    def _releasing(self, turns: Turns) -> Iterator[Line]:
        """Let some of those that wait send again in each turn, as long as there is room."""
        while self.blocked and (self.closed or self.is_low):
            for session in list(islice(self.blocked, AT_ONCE)):
                del self.blocked[session]
                session.unblock(self)
            yield turns
        if self.blocked:
            self.account.wait(self)

    @property
    def refuses(self) -> bool:
        """It is full, and a client has said that then SENDs are refused."""
        terms = self.terms
        if terms is None or not terms.rejects:
            return False
        most, octets = terms.messages, terms.octets
        return (most is not None and self.count >= most) or (octets is not None and self.octets >= octets)

    def stamp(self, message: Message) -> None:
        """A message comes: it expires no later than the queue says."""
        if self.terms is not None and self.terms.life is not None:
            expires = self.wall() + self.terms.life
            message.expires = expires if message.expires is None else min(expires, message.expires)

    # ---- what ----

    def own(self) -> Fifo | Backlog:
        """READY, to put something in."""
        if self.messages is _NONE:
            self.messages = Fifo()
        return self.messages

    def indexed(self) -> Backlog:
        """READY, where messages in the middle are found quickly."""
        messages = self.messages
        if isinstance(messages, Fifo):
            self.put_in_order()
            messages = self.messages = Backlog(messages, self.ranked)
        return messages

    def put_back(self, messages: list[Message]) -> None:
        """READY again, each in its old place, which is near the front for most of them."""
        own, latest = self.own(), max(message.seq for message in messages)
        if isinstance(own, Fifo) and len(own) > AT_ONCE and own[AT_ONCE].seq < latest:
            own = self.indexed()
        own.put_back(messages)

    def take_seqs(self, seqs: set[int]) -> list[Message]:
        """Remove those READY messages that have these seqs, and return them."""
        messages = self.messages
        if not isinstance(messages, Fifo):
            return messages.take_seqs(seqs)
        gone = messages.take_first(seqs)
        left = len(seqs) - len(gone)
        if left and len(messages) > _SHORT:
            gone += self.indexed().take_seqs(seqs.difference([message.seq for message in gone]))
        elif left:
            gone += messages.take_out(lambda message: message.seq in seqs)
        return gone

    def came_late(self, seq: int) -> None:
        """Note that a message stands behind later ones, until `put_in_order`."""
        self.late = seq if self.late is None else min(seq, self.late)

    def put_in_order(self) -> None:
        """Give messages that came late their places."""
        if self.late is not None:
            self.messages.sort_from(self.late)
            self.late = None

    def is_expired(self, message: Message) -> bool:
        """Its time is over."""
        return message.expires is not None and message.expires <= self.wall()

    def drop_oldest(self) -> bool:
        """Make room in a full queue, at the cost of what has waited longest. Nobody has to wait: False."""
        while self.messages and self.full:
            message = self.messages.popleft()
            self.forget((message,))
            self.less(1, message.size)
            self.dropped(message)
        return False

    def dropped(self, message: Message) -> None:
        """A message went to make room."""

    def block(self, session: Peer) -> None:
        """Make a session wait until there is room."""
        if session.block(self):
            self.blocked[session] = None
            self.account.wait(self)

    def withdraw(self, numbers: set[int]) -> None:
        """Messages that could not be stored leave the queue, unless somebody has got them."""
        self.put_in_order()
        gone = self.messages.take_last(numbers)
        gone += [self.held.pop(seq) for seq in numbers & self.held.keys()]
        self.less(len(gone), sum(message.size for message in gone))

    def forget(self, messages: Iterable[Message]) -> None:
        """Take messages out of the store that nobody will get."""
        for message in messages:
            if message.persistent and self.journal is not None:
                self.journal.remove(self.key, message)

    def close(self) -> None:
        """The end of the queue, and of all that is in it."""
        self.release_blocked()
        self.account.used -= self.cost
        self.closed = True
        self.messages = _NONE
        self.held = {}
        self.count = self.octets = 0
