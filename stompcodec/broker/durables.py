"""The durable subscriptions of a virtual host: made, found again, stored, and ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stompcodec.broker.addresses import Address
from stompcodec.broker.destination import Kind
from stompcodec.broker.durable import Durable, durable_name
from stompcodec.broker.journal import Journal
from stompcodec.broker.memory import selector_cost
from stompcodec.broker.message import Message, Refused
from stompcodec.broker.queue import Queue
from stompcodec.broker.store import Subscribed
from stompcodec.broker.texts import Texts
from stompcodec.broker.topics import Topics

if TYPE_CHECKING:
    from stompcodec.broker.config import Config
    from stompcodec.broker.memory import Account
    from stompcodec.broker.selector import Selector
    from stompcodec.broker.session import Session
    from stompcodec.broker.shares import Maker, Shares
    from stompcodec.broker.wanted import Wanted

__all__ = ["Durables"]

#: What the key of a durable subscription's queue begins with. No destination does.
_MARK = "\0d"
#: Characters of the different selectors of one client; of all, twice as many. In memory, each takes sixty times as
#: much, and nobody need be there.
_MOST_SELECTED = 2**20


class Durables:
    """All of them, by the names of their queues.

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
        self.by_name: dict[str, Durable] = {}
        self._selectors = Texts()
        self._by_id = bool(config.dsub_prefix)
        self._drops = config.durable_overflow == "drop"
        self._journal = journal
        self._topics = topics
        self._queue_of = queue_of
        self._retained = retained
        self._check_room = check_room
        self._shares = shares
        self._account = account

    def name(self, session: Session, wanted: Wanted) -> str | None:
        """As `durable_name`."""
        return durable_name(session, wanted, self._by_id)

    def wanted(self, session: Session, wanted: Wanted, address: Address) -> Durable | None:
        """What a SUBSCRIBE to a topic asks for, made if it is not there; None if it asks for no durable one.

        Raises:
            Refused: it is another one, or in use, or something is missing.
        """
        name = self.name(session, wanted)
        if name is None:
            return None
        shared = wanted.durable is None
        durable = self.by_name.get(name)
        if durable is not None:
            durable.check(address, wanted, shared)
            return durable
        stored = wanted.durable is not None or wanted.durable_flag
        ends = not stored if wanted.auto_delete is None else wanted.auto_delete
        maker = self._shares.maker(session)
        self._check_room(name, maker)
        self._check_selectors(wanted.selector, maker)
        durable = Durable(name, self._queue(name, stored), address, wanted.selector, shared=shared, auto_delete=ends)
        durable.since, durable.queue.maker = session.broker.seq, maker
        self._add(durable)
        for message in self._retained(address, wanted.selector):
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
        if not committed and self.by_name.get(durable.name) is durable:
            self.delete(durable)

    def make(self, name: str, address: Address) -> None:
        """One that the configuration has. It is not stored, what it holds is."""
        if name not in self.by_name:
            self._add(Durable(name, self._queue(name, True), address))

    def restore(self, record: Subscribed, name: str) -> None:
        """One that the store has, by its key without the virtual host."""
        name = name[len(_MARK) :]
        if name in self.by_name:  # the configuration has it, too
            return
        address = Address(Kind.TOPIC, record.prefix, record.name, record.literal)
        selector = None
        if record.selector is not None:
            from stompcodec.broker.selector import compile_selector

            selector = compile_selector(record.selector)
        queue = self._queue(name, True)
        self._add(Durable(name, queue, address, selector, shared=record.shared, auto_delete=record.auto_delete))

    def load(self, key: str, message: Message) -> bool:
        """A message as the store gives it back, by the key of its queue. False: that is no durable subscription's."""
        if not key.startswith(_MARK):
            return False
        durable = self.by_name.get(key[len(_MARK) :])
        if durable is not None:
            durable.queue.load(message)
        else:  # its subscription ended when a transaction held it
            queue = self._queue(key[len(_MARK) :], True)
            self._journal.remove(queue.key, message)
        return True

    def delete(self, durable: Durable) -> None:
        """The end of a subscription, and of what it holds. It has no consumer any more."""
        del self.by_name[durable.name]
        if durable.selector is not None:
            self._selectors.remove(durable.selector.text)
        self._shares.gone(durable)
        self._charge_selector(durable, -1)
        self._topics.drop(durable, durable.address)
        durable.queue.delete()
        store = self._journal.store
        if durable.queue.journal is not None and store is not None:
            store.unsubscribe(durable.queue.key)
            self._journal.batch.actions.append(partial(self._unsubscribed, durable))

    def _unsubscribed(self, durable: Durable, committed: bool) -> None:
        store = self._journal.store
        if not committed and store is not None and durable.name not in self.by_name:
            store.unsubscribe(durable.queue.key)
            self._journal.batch.actions.append(partial(self._unsubscribed, durable))

    def _add(self, durable: Durable) -> None:
        self._topics.add(durable, durable.address, durable.maker)
        self.by_name[durable.name] = durable
        if durable.selector is not None:
            self._selectors.add(durable.selector.text)
        self._shares.made(durable)
        self._charge_selector(durable, 1)

    def _has_own(self, text: str, maker: Maker) -> bool:
        """Whether a selector more is too much for one client."""
        own = [durable for durable in self.by_name.values() if self._shares.share(maker, durable.maker)]
        texts = {durable.selector.text for durable in own if durable.selector is not None}
        return sum(map(len, texts | {text})) > _MOST_SELECTED

    def _charge_selector(self, durable: Durable, sign: int) -> None:
        selector = durable.selector
        self._account.charge(sign * selector_cost(None if selector is None else selector.text))

    def _queue(self, name: str, stored: bool) -> Queue:
        queue = self._queue_of(name, _MARK + name, stored)
        if self._drops:
            queue.overflow = queue.drop_oldest
        return queue
