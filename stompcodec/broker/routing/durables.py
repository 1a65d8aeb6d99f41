"""Durables: the durable subscriptions of a virtual host.

Each belongs to one user, who alone can consume it, send to its queue, or end it. Two users can use the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from stompcodec.broker.config import Config
from stompcodec.broker.connections import Maker, Peer
from stompcodec.broker.memory import Account, selector_cost
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import SubscribeRequest
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.topic import Durable, Shares, Topics, durable_name, owner_of, title
from stompcodec.broker.selectors import Selector, Texts, compile_selector
from stompcodec.broker.settings import Address, Kind
from stompcodec.broker.storage.journal import Journal
from stompcodec.broker.storage.store import Subscribed
from stompcodec.broker.values import Refused

#: The prefix of the keys of their queues. No destination has it.
_MARK = "\0d"
#: The most characters of the distinct selectors of one client; all clients together may have twice as many. A
#: character takes 60 bytes of memory, also without a consumer.
_MOST_SELECTED = 2**20


class Durables:
    """The durable subscriptions of a virtual host, by owner and name.

    `queue_of` creates a queue from its name, its key, and whether its messages are stored. `retained` returns the
    retained messages that a new durable subscription gets first. `check_room` raises Refused if a maker cannot have a
    destination of a new name. `at_end` are called with the queue of each one that ends.
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
        at_end: Sequence[Callable[[Queue], object]],
    ) -> None:
        #: By name, then by owner; None for no owner.
        self._named: dict[str, dict[str | None, Durable]] = {}
        #: By the key of the queue, in the order of creation.
        self._by_key: dict[str, Durable] = {}
        self._selectors = Texts()
        #: Keys of ended queues whose messages are still being removed from the store.
        self._purging: set[str] = set()
        self._drops, self._dialect = config.durable_overflow == "drop", config.dialect
        self._journal = journal
        self._topics = topics
        self._queue_of = queue_of
        self._retained = retained
        self._check_room = check_room
        self._shares = shares
        self._account = account
        self._at_end = at_end

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Durable]:
        return iter(self._by_key.values())

    @property
    def by_name(self) -> dict[str, Durable]:
        """All of them by the names of their queues, as a new dictionary."""
        return {title(durable.owner, durable.name): durable for durable in self}

    def of_queue(self, queue: str) -> Durable | None:
        for owner, name in ((None, queue), (owner_of(queue), queue.split("~", 2)[-1])):
            durable = self._named.get(name, {}).get(owner)
            if durable is not None and title(owner, name) == queue:
                return durable
        return None

    def find(self, name: str, owner: str | None) -> Durable | None:
        """Return the durable subscription that a user means by a name: their own, or one without an owner."""
        named = self._named.get(name)
        if named is None:
            return None
        durable = named.get(owner) or named.get(None)
        return next(iter(named.values())) if durable is None and owner is None else durable

    def is_taken(self, name: str) -> bool:
        return name in self._named

    def adopt(self, durable: Durable, session: Peer) -> None:
        """Give one without an owner to the user of a session, which may subscribe to its destination."""
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
        """Return those that were made since there were `count` of them."""
        return list(islice(reversed(self._by_key.values()), max(0, len(self) - count)))

    def name(self, session: Peer, request: SubscribeRequest) -> str | None:
        """Return the name that a SUBSCRIBE or UNSUBSCRIBE means, by `durable_name`."""
        return durable_name(session, request)

    def requested(
        self, session: Peer, request: SubscribeRequest, address: Address, may: Callable[[Peer, Address], bool]
    ) -> Durable | None:
        """Return the durable subscription that a SUBSCRIBE to a topic means, made if need be; None if it means none.

        `may` returns whether a session may subscribe to an address; it may subscribe to the topic. Raise Refused if the
        name has another meaning, or is in use, or a part of it is missing.
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
        if not request.makes_durable:
            raise Refused("no such durable subscription", "RECEIVE makes none: name it as its SUBSCRIBE did.")
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
                f"All selectors of one client's durable subscriptions have at most {_MOST_SELECTED} characters, "
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
        """Make one that the configuration names. The store keeps its messages, not the subscription."""
        if name not in self._named:
            self._add(Durable(name, self._queue(name, _MARK + name, True), address))

    def restore(self, record: Subscribed, name: str) -> None:
        """Make one that the store had kept, by its key without the virtual host."""
        key, name = name, name[len(_MARK) :].partition("\0")[0]
        preset = self._by_key.get(key)
        if preset is not None:  # the configuration names it too, without an owner
            if record.owner is not None and preset.owner is None:
                self._named[name][record.owner] = self._named[name].pop(None)
                preset.owner = record.owner
                preset.queue.name = title(preset.owner, name)
            return
        address = Address(Kind.TOPIC, record.prefix, record.name, record.literal)
        selector = None
        if record.selector is not None:
            selector = compile_selector(record.selector, self._dialect)
        queue = self._queue(name, key, True, record.owner)
        queue.maker = self._shares.of_user(record.owner)
        how = {"shared": record.shared, "auto_delete": record.auto_delete}
        self._add(Durable(name, queue, address, selector, **how, owner=record.owner))

    def load(self, key: str, message: Message) -> bool:
        """Take a message that the store had kept. Return False if the key is not that of a durable subscription."""
        if not self.is_key(key):
            return False
        queue = self.kept(key)
        if queue is not None and queue.name:
            queue.load(message)
        elif queue is not None:
            self._journal.remove(queue.key, message)
        return True

    @staticmethod
    def is_key(key: str) -> bool:
        """Return whether a key, without the virtual host, is that of a durable subscription."""
        return key.startswith(_MARK)

    def kept(self, key: str) -> Queue | None:
        """Return the queue whose messages the store has kept; one without a name for messages to be removed.

        Its subscription ended while a transaction had the messages, or before all of them were removed. None if they
        must stay in the store, because it could not read all subscriptions.
        """
        durable = self._by_key.get(key)
        if durable is not None:
            return durable.queue
        store = self._journal.store
        return self._queue("", key, True) if store is None or not store.incomplete else None

    def delete(self, durable: Durable, done: Callable[[], object] = lambda: None) -> bool:
        """End a durable subscription without consumers. Return True if that goes on; `done` is called at its end."""
        del self._by_key[_key_of(durable.queue)]
        named = self._named[durable.name]
        del named[durable.owner]
        if not named:
            del self._named[durable.name]
        if durable.selector is not None:
            self._selectors.remove(durable.selector.text)
        self._shares.remove(durable)
        self._charge_selector(durable, -1)
        self._topics.drop(durable, durable.address)
        for tell in self._at_end:
            tell(durable.queue)
        key = _key_of(durable.queue)
        goes_on = durable.queue.delete(partial(self._purged, key, done))
        if goes_on:
            self._purging.add(key)
        store = self._journal.store
        if durable.queue.journal is not None and store is not None:
            store.unsubscribe(durable.queue.key)
            self._journal.batch.actions.append(partial(self._unsubscribed, durable))
        return goes_on

    def _purged(self, key: str, done: Callable[[], object]) -> None:
        self._purging.discard(key)
        done()

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
        self._shares.add(durable)
        self._charge_selector(durable, 1)

    def _has_own(self, text: str, maker: Maker) -> bool:
        """Return whether another selector is too much for one client, or for all clients of its address."""
        made = [durable for durable in self if durable.maker is not None and durable.maker.owner is maker.owner]
        own = {durable.selector.text for durable in made if durable.selector is not None and durable.maker is maker}
        all_ = {durable.selector.text for durable in made if durable.selector is not None}
        most = _MOST_SELECTED if self._shares.has_users else _MOST_SELECTED + _MOST_SELECTED // 2
        return sum(map(len, own | {text})) > _MOST_SELECTED or sum(map(len, all_ | {text})) > most

    def _charge_selector(self, durable: Durable, sign: int) -> None:
        selector = durable.selector
        self._account.charge(sign * selector_cost(None if selector is None else selector.text))

    def _key(self, name: str, owner: str | None, seq: int) -> str:
        """Return the key of a new queue. A subscription that was adopted keeps its key without an owner.

        While messages of an ended one are still being removed, the key has the seq in it: after a crash they must not
        come back as those of the new one.
        """
        key = _MARK + name if owner is None else f"{_MARK}{name}\0{owner}"
        return f"{_MARK}{name}\0{owner or ''}\0{seq}" if key in self._purging else key

    def _queue(self, name: str, key: str, stored: bool, owner: str | None = None) -> Queue:
        queue = self._queue_of(title(owner, name), key, stored)
        if self._drops:
            queue.overflow = queue.drop_oldest
        return queue


def _key_of(queue: Queue) -> str:
    """Return the key of a queue within its virtual host."""
    return queue.key.partition("\0")[2]
