"""The orders, as generators like the questions: each yields where it waits, and returns the answer.

A purge or a move takes out some messages in each turn. Where messages are stored, a share takes effect like a
transaction: store and queues change after its commit, or not at all. So a crash neither loses nor doubles a message.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from functools import partial
from typing import Any, NamedTuple

from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line, Waiter
from stompcodec.broker.management.asker import Asker
from stompcodec.broker.management.finding import durable_named, is_wanted, queue_named, selector_of, seq_of
from stompcodec.broker.management.moving import LetterOf, Share, letter_for, place_for
from stompcodec.broker.management.reading import BadRequest
from stompcodec.broker.management.walker import Walker
from stompcodec.broker.queues.backlog import Wait
from stompcodec.broker.queues.queue import Queue

#: Messages that one turn takes out, or looks at.
_TAKEN_AT_ONCE, _LOOKS_AT_ONCE = 50, 500

Answering = Generator[Line, None, dict[str, Any]]


class _AfterCommit(NamedTuple):
    """The place to wait until what has been done is stored."""

    broker: Broker

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter go on after the commit of all that was done; in the next turn if nothing is to be stored."""
        journal, quota = self.broker.journal, self.broker.quota
        batch = journal.batch if journal.store is not None and journal.store.pending else journal.busy
        if batch is None:
            quota.line_up(waiter)
            return

        def go_on(committed: bool) -> None:
            quota.line_up(waiter)

        batch.actions.append(go_on)
        self.broker.wake()


class Orders:
    """The orders to one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # ---- messages ----

    def purge(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Carry out `purge`."""
        queue = queue_named(asker, fields["destination"])
        share = Share(self._broker, queue)
        yield from self._take(share, queue, fields, lambda message: None)
        self._check(share)
        return {"destination": queue.name, "messages": share.done}

    def move(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Carry out `move`."""
        queue, to = queue_named(asker, fields["destination"]), fields["to"]
        place = None if to is None else place_for(asker, to)
        if place is not None and place.target is queue:
            raise BadRequest("to", "it is the queue itself")
        share = Share(self._broker, queue)
        letter_of = partial(letter_for, self._broker, asker, queue, place)
        yield from self._take(share, queue, fields, letter_of, place is None)
        self._check(share)
        return {
            "destination": queue.name,
            "messages": share.done,
            "skipped": share.skipped,
            "stopped": share.stopped,
        }

    def _check(self, share: Share) -> None:
        if share.failed:
            raise BadRequest(
                "destination",
                f"the store has failed: {share.done} messages were done, the others stay. See the broker's log",
            )

    def _take(
        self, share: Share, queue: Queue, fields: dict[str, Any], letter_of: LetterOf, goes_back: bool = False
    ) -> Generator[Line, None, None]:
        """Take out the messages that an order is about, and wait until all of it is stored."""
        selector, message_id, quota = selector_of(fields["selector"]), fields["message_id"], self._broker.quota
        seq, left = seq_of(message_id), fields["limit"]
        upto = self._broker.seq if seq is None else seq
        walker = Walker(queue, -1 if seq is None else seq - 1, upto)
        looked = 0
        try:
            while (left is None or left > 0) and not share.stopped and not share.failed:
                message = walker.next()
                if message is None:
                    break
                if isinstance(message, Wait):
                    share.apply()
                    yield walker.pages
                    continue
                looked += 1
                if is_wanted(message, selector, message_id) and not queue.is_expired(message):
                    taken = share.take(message, letter_of, goes_back)
                    left = None if left is None else left - taken
                if len(share) >= _TAKEN_AT_ONCE or looked >= _LOOKS_AT_ONCE:
                    looked = 0
                    share.apply()
                    yield self._broker.journal.line if share.is_stored else quota
            share.apply()
        finally:
            share.apply()
            walker.close()
        if message_id is not None and not share.taken:
            raise BadRequest("message_id", "no ready message of this queue has it")
        while share.open:
            yield share

    # ---- destinations ----

    def delete(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Carry out `delete`."""
        name, destinations = fields["destination"], asker.host.destinations
        topic, queue = asker.host.topics.get(name), asker.host.queues.get(name)
        durable = durable_named(asker, name)
        if queue is None and durable is None and topic is not None:
            if not destinations.delete_topic(name):
                raise BadRequest("destination", "it has subscriptions: end or close them first")
            return {"destination": name, "messages": 0}
        found = queue_named(asker, name)
        if found.members:
            raise BadRequest("destination", f"it has {len(found.members)} consumers: end or close them first")
        if destinations.naming.is_temporary(name) or name in destinations.owners:
            raise BadRequest("destination", "it ends with its session")
        total, ended = found.total, threading.Event()
        if durable is None or queue is not None:
            goes_on = destinations.delete(name, ended.set)
        else:
            goes_on = destinations.durables.delete(durable, ended.set)
        while goes_on and not ended.is_set():
            yield self._broker.quota
        for _ in range(2):  # a commit may leave removals to the next one
            yield _AfterCommit(self._broker)
        return {"destination": name, "messages": total}

    def pause(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        """Carry out `pause`."""
        queue = queue_named(asker, fields["destination"])
        return {"destination": queue.name, "changed": queue.pause(True)}

    def resume(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        """Carry out `resume`."""
        queue = queue_named(asker, fields["destination"])
        return {"destination": queue.name, "changed": queue.pause(False)}

    # ---- the rest ----

    def close(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        """Carry out `close`."""
        session = self._broker.sessions.get(fields["session"])
        if session is None or session.ended or not session.version or session.virtual_host is not asker.host:
            raise BadRequest("session", "there is no session with this id")
        if session.id == asker.session:
            raise BadRequest("session", "it is the session that sends this order: disconnect it instead")
        session.fail("the session was closed by a manager", "Ask the operator of the broker why.")
        return {"session": session.id}

    def log_level(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        """Carry out `log-level`."""
        log, level = self._broker.log, fields["level"]
        before = logging.getLevelName(log.getEffectiveLevel()).lower()
        log.setLevel(level.upper())
        orders = logging.getLogger("stompcodec.broker.management")
        orders.setLevel(logging.WARNING if level == "error" else logging.NOTSET)  # orders are logged in any case
        return {"level": level, "before": before}
