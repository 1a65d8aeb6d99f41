"""The durable subscriptions of a virtual host: made, found again, stored, and ended.

Each belongs to a user, who alone can consume it, send to its queue, or end it. Two users can have one of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from stompcodec.broker.config.settings import Address, Kind
from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import selector_cost
from stompcodec.broker.message import Message
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.queues.texts import Texts
from stompcodec.broker.routing.durable import Durable, durable_name, title
from stompcodec.broker.routing.topics import Topics
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Subscribed

if TYPE_CHECKING:
    from stompcodec.broker.config.config import Config
    from stompcodec.broker.memory import Account
    from stompcodec.broker.peer import Maker, Peer
    from stompcodec.broker.queues.subscribe_request import SubscribeRequest
    from stompcodec.broker.routing.shares import Shares
    from stompcodec.broker.selectors.selector import Selector

__all__ = ["Durables"]

#: What the key of a durable subscription's queue begins with. No destination does.
_MARK = "\0d"
#: Characters of the different selectors of one client; of all, twice as many. In memory, each takes sixty times as
#: much, and nobody need be there.
_MOST_SELECTED = 2**20


class Durables:
    """All of them, by their owners and names.

    Args:
        config: whether `persistent:true` names them by the id alone.
        journal: to the store.
        topics: that they listen to.
        queue_of: makes a queue: its name, its key, and whether what it holds is stored.
        retained: what a new one gets first.
        check_room: takes a new name, and who makes it; raises Refused when there are too many destinations, or it is
            too long.
        shares: where durable subscriptions are counted.
        account: of the broker's memory.
    """

    def __init__(
        self,
        config: Config,
        journal: Journal,
        topics: Topics,
        queue_of: Callable[[str, str, bool], Queue],
        retained: Callable[[Address, Selector | None], list[Message]],
        check_room: Callable[[str, Maker | None], None],
        shares: Shares,
        account: Account,
    ) -> None:
        #: By name, then by owner; None for no owner.
        self._named: dict[str, dict[str | None, Durable]] = {}
        #: By the key of the queue, in the order in which they were made.
        self._by_key: dict[str, Durable] = {}
        self._selectors = Texts()
        #: Keys of queues that have ended, and whose messages are still being taken out of the store.
        self._purging: set[str] = set()
        self._by_id = bool(config.dsub_prefix)
        self._drops = config.durable_overflow == "drop"
        self._journal = journal
        self._topics = topics
        self._queue_of = queue_of
        self._retained = retained
        self._check_room = check_room
        self._shares = shares
        self._account = account

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Durable]:
        return iter(self._by_key.values())

    @property
    def by_name(self) -> dict[str, Durable]:
        """All, by the names of their queues. For looking at; made anew each time."""
        return {title(durable.owner, durable.name): durable for durable in self}

    def find(self, name: str, owner: str | None) -> Durable | None:
        """Return what somebody means by a name: their own one, or one that nobody has.

        Args:
            name: of the durable subscription.
            owner: the user; None where all are one user: then it is anybody's.
        """
        named = self._named.get(name)
        if named is None:
            return None
        durable = named.get(owner) or named.get(None)
        return next(iter(named.values())) if durable is None and owner is None else durable

    def is_taken(self, name: str) -> bool:
        """Return whether anybody has one of that name."""
        return name in self._named

    def adopt(self, durable: Durable, session: Peer) -> None:
        """Give one that nobody has to the user of a session, which may subscribe to its destination."""
        if durable.owner is not None or session.owner is None:
            return
        named = self._named[durable.name]
        if session.owner in named:
            return
        del named[None]
        named[session.owner] = durable
        durable.owner = session.owner
        durable.queue.name = title(durable.owner, durable.name)
        if durable.maker is None:
            self._shares.give(durable, session)
        session.broker.log.info(
            "the durable subscription %r, which had no owner, belongs to user %r now", durable.name, durable.owner
        )
        if durable.queue.journal is not None and self._journal.store is not None:
            self._journal.store.subscribe(durable.record)

    def made_since(self, count: int) -> list[Durable]:
        """Return those that were made when there were so many already."""
        return list(islice(reversed(self._by_key.values()), max(0, len(self) - count)))

    def name(self, session: Peer, request: SubscribeRequest) -> str | None:
        """As `durable_name`."""
        return durable_name(session, request, self._by_id)

    def requested(
        self, session: Peer, request: SubscribeRequest, address: Address, may: Callable[[Peer, Address], bool]
    ) -> Durable | None:
        """What a SUBSCRIBE to a topic asks for, made if it is not there; None if it asks for no durable one.

        Args:
            session: that subscribes.
            request: what it asks for.
            address: of the topic, which it may subscribe to.
            may: whether a session may subscribe to an address.

        Raises:
            Refused: it is another one, or in use, or something is missing.
        """
        name = self.name(session, request)
        if name is None:
            return None
        shared = request.durable is None
        durable = self.find(name, session.owner)
        if durable is not None and (
            durable.owner == session.owner
            or durable.is_meant(address, request, shared)
            or session.owner is None
            or may(session, durable.address)
        ):
            durable.check(address, request, shared)
            self.adopt(durable, session)
            return durable
        stored = request.durable is not None or request.durable_flag
        ends = not stored if request.auto_delete is None else request.auto_delete
        maker = self._shares.maker(session)
        self._check_room(name, maker)
        self._check_selectors(request.selector, maker)
        owner = session.owner
        queue = self._queue(name, self._key(name, owner, session.broker.seq), stored, owner)
        durable = Durable(name, queue, address, request.selector, shared=shared, auto_delete=ends, owner=owner)
        durable.since, durable.queue.maker = session.broker.seq, maker
        self._add(durable)
        for message in self._retained(address, request.selector):
            durable.queue.put(message)
        store = self._journal.store
        if stored and store is not None:
            store.subscribe(durable.record)
            self._journal.batch.actions.append(partial(self._subscribed, durable))
        return durable

    def _check_selectors(self, selector: Selector | None, maker: Maker) -> None:
        if selector is None:
            return
        length = self._selectors.with_one(selector.text)
        if length > 2 * _MOST_SELECTED or (length > _MOST_SELECTED and self._has_own(selector.text, maker)):
            remedy = (
                f"Those of the durable subscriptions of one client have at most {_MOST_SELECTED} characters together, "
                f"and those of all clients {2 * _MOST_SELECTED}."
            )
            raise Refused("too many selectors", remedy)

    def _subscribed(self, durable: Durable, committed: bool) -> None:
        if not committed and self.has(durable):
            self.delete(durable)

    def has(self, durable: Durable) -> bool:
        """Return whether a durable subscription has not ended."""
        return self._by_key.get(_key_of(durable.queue)) is durable

    def make(self, name: str, address: Address) -> None:
        """One that the configuration has. It is not stored, what it holds is."""
        if name not in self._named:
            self._add(Durable(name, self._queue(name, _MARK + name, True), address))

    def restore(self, record: Subscribed, name: str) -> None:
        """One that the store has, by its key without the virtual host."""
        key, name = name, name[len(_MARK) :].partition("\0")[0]
        preset = self._by_key.get(key)
        if preset is not None:  # the configuration has it, too, but does not say whose it is
            if record.owner is not None and preset.owner is None:
                self._named[name][record.owner] = self._named[name].pop(None)
                preset.owner = record.owner
                preset.queue.name = title(preset.owner, name)
            return
        address = Address(Kind.TOPIC, record.prefix, record.name, record.literal)
        selector = None
        if record.selector is not None:
            from stompcodec.broker.selectors.selector import compile_selector

            selector = compile_selector(record.selector)
        queue = self._queue(name, key, True, record.owner)
        queue.maker = self._shares.of_user(record.owner)
        how = {"shared": record.shared, "auto_delete": record.auto_delete}
        self._add(Durable(name, queue, address, selector, **how, owner=record.owner))

    def load(self, key: str, message: Message) -> bool:
        """A message as the store gives it back, by the key of its queue. False: that is no durable subscription's."""
        if not key.startswith(_MARK):
            return False
        durable = self._by_key.get(key)
        if durable is not None:
            durable.queue.load(message)
        elif self._journal.store is None or not self._journal.store.incomplete:
            # Its subscription ended when a transaction held it, or before all of it was gone.
            queue = self._queue("", key, True)
            self._journal.remove(queue.key, message)
        return True

    def delete(self, durable: Durable) -> None:
        """The end of a subscription, and of what it holds. It has no consumer any more."""
        del self._by_key[_key_of(durable.queue)]
        named = self._named[durable.name]
        del named[durable.owner]
        if not named:
            del self._named[durable.name]
        if durable.selector is not None:
            self._selectors.remove(durable.selector.text)
        self._shares.gone(durable)
        self._charge_selector(durable, -1)
        self._topics.drop(durable, durable.address)
        key = _key_of(durable.queue)
        if durable.queue.delete(partial(self._purging.discard, key)):
            self._purging.add(key)
        store = self._journal.store
        if durable.queue.journal is not None and store is not None:
            store.unsubscribe(durable.queue.key)
            self._journal.batch.actions.append(partial(self._unsubscribed, durable))

    def _unsubscribed(self, durable: Durable, committed: bool) -> None:
        store = self._journal.store
        if not committed and store is not None and _key_of(durable.queue) not in self._by_key:
            store.unsubscribe(durable.queue.key)
            self._journal.batch.actions.append(partial(self._unsubscribed, durable))

    def _add(self, durable: Durable) -> None:
        self._topics.add(durable, durable.address, durable.maker)
        self._by_key[_key_of(durable.queue)] = durable
        self._named.setdefault(durable.name, {})[durable.owner] = durable
        if durable.selector is not None:
            self._selectors.add(durable.selector.text)
        self._shares.made(durable)
        self._charge_selector(durable, 1)

    def _has_own(self, text: str, maker: Maker) -> bool:
        """Whether a selector more is too much for one client, or for all of its address."""
        made = [durable for durable in self if durable.maker is not None and durable.maker.owner is maker.owner]
        own = {durable.selector.text for durable in made if durable.selector is not None and durable.maker is maker}
        all_ = {durable.selector.text for durable in made if durable.selector is not None}
        most = _MOST_SELECTED if self._shares.has_users else _MOST_SELECTED + _MOST_SELECTED // 2
        return sum(map(len, own | {text})) > _MOST_SELECTED or sum(map(len, all_ | {text})) > most

    def _charge_selector(self, durable: Durable, sign: int) -> None:
        selector = durable.selector
        self._account.charge(sign * selector_cost(None if selector is None else selector.text))

    def _key(self, name: str, owner: str | None, seq: int) -> str:
        """The key of a new queue. One that was adopted keeps that without an owner.

        What is left of one that has ended must not come back as its messages, should the broker crash now: so it has
        another key, with the seq in it.
        """
        key = _MARK + name if owner is None else f"{_MARK}{name}\0{owner}"
        return f"{_MARK}{name}\0{owner or ''}\0{seq}" if key in self._purging else key

    def _queue(self, name: str, key: str, stored: bool, owner: str | None = None) -> Queue:
        queue = self._queue_of(title(owner, name), key, stored)
        if self._drops:
            queue.overflow = queue.drop_oldest
        return queue


def _key_of(queue: Queue) -> str:
    """The key of a queue in its virtual host."""
    return queue.key.partition("\0")[2]
