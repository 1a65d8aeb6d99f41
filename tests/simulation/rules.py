"""What the broker owes, said in terms of what was seen at its connections: a ledger of every message."""

from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.disk import Disk
from simulation.network import Clock
from simulation.records import LITTER, SELECTORS, Copy, Home, Message, Seen, Sub, Transaction, Violation

from stompcodec import Frame
from stompcodec.broker.config import Config

_DEAD = "/queue/DLQ."


class Rules:
    def __init__(self, clock: Clock, config: Config, disk: Disk) -> None:
        self.clock, self.config, self.disk = clock, config, disk
        self.life, self.messages, self.homes, self.durables = 0, {}, {}, {}
        #: Those whose end may not have been stored: they may come back with a restart.
        self.ghosts = {}
        self.live = []  # The queues of topics' subscriptions that are there.
        self.transactions, self.broker = [], None
        self.turn, self.turned_at = 0, 0.0
        #: The highest seq that was seen in lives before this one, and in this one.
        self.highest_before = self.highest = 0
        self._failures_before = self._order = 0
        #: The rest of the numbers of messages that cannot be written to old versions now; and which could not, so that
        #: others came before them.
        self.unwritable, self.failed = None, set()
        self._given = []  # Deliveries of this turn.

    # ---- the broker ----
    @property
    def failures(self) -> int:
        """Commits that have failed."""
        return self._failures_before + (0 if self.broker is None else self.broker.journal.failures)

    def next_order(self) -> int:
        self._order += 1
        return self._order

    def turned(self) -> None:
        """All that the turn has given out was seen."""
        for sub, copy in self._given:
            self._check_order(sub, copy)
        self._given.clear()
        self.turn += 1
        self.turned_at = self.clock.now

    def booted(self, broker: Any) -> None:
        self.life += 1
        self.broker, self.turned_at = broker, self.clock.now

    def boot_failed(self) -> None:
        """A broker that has opened the store, and could not start, has not closed it: that is a crash."""
        for home in [*self.homes.values(), *self.durables.values()]:
            for copy in home.copies.values():
                copy.may_mark = True

    def died(self, clean: bool, closing: bool) -> None:
        """The broker has ended. `closing`: it may have said already that all ended well."""
        self._given.clear()
        self.turn += 1
        self._failures_before, self.broker = self.failures, None
        self.highest_before = max(self.highest_before, self.highest)
        for home in self.live:
            home.deleted = True
        self.live.clear()
        for home in [*self.homes.values(), *self.durables.values(), *self.ghosts.values()]:
            for copy in home.copies.values():
                self._restart(copy, clean, closing)

    def _restart(self, copy: Copy, clean: bool, closing: bool) -> None:
        copy.holder = None
        if copy.gone and copy.gone != "auto":
            return
        if not copy.message.persistent:
            copy.gone = "it was not stored, and the broker ended"
            return
        if clean and self.failures == 0:
            return
        if copy.gone == "auto":
            copy.gone, copy.maybe_gone = "", True
        copy.earliest = copy.latest = 0.0
        copy.must_mark = copy.must_mark or not (clean or closing)
        copy.may_mark = True

    # ---- sessions ----
    def ended(self, seen: Seen) -> None:
        seen.ended = True
        for sub in seen.subs.values():
            if getattr(seen.session, "refusal", None) is not None and sub.mode != "auto":
                for copy in sub.home.copies.values():
                    copy.refused = True
            self._stop(sub)
        for transaction in seen.transactions.values():
            self._give_back(transaction)
        for message in (m for t in seen.transactions.values() for m in t.messages):
            message.dropped = True
        seen.old_subs.update(seen.subs)
        seen.subs = {}

    def _stop(self, sub: Sub) -> None:
        for copy in sub.unacked.values():
            self._returned(copy)
        sub.unacked = {}
        if sub.mode != "auto":  # what was in an outbox counts as delivered, though nobody saw it
            for copy in sub.home.copies.values():
                copy.may_mark = True
        if sub.home in self.live:
            self.live.remove(sub.home)
            sub.home.deleted = True

    def _returned(self, copy: Copy) -> None:
        copy.holder, copy.back = None, self.turn
        copy.must_mark = copy.may_mark = True

    # ---- subscriptions ----
    def subscribed(self, seen, name, destination, mode, window, selector, durable):
        if durable is not None:
            key = f"{seen.client_id}.{durable}"
            ghost = self.ghosts.pop(key, None)
            if ghost is not None and ghost.life == self.life:  # its end was not stored yet, but it has ended
                ghost = None
            home = self.durables.get(key) or ghost
            if home is not None:
                self.durables[key] = home
                seen.mismatch = (home.topic, home.selector) != (destination, selector)
            else:
                home = self.durables[key] = Home(key, "durable", destination, selector, sure=False, turn=self.turn)
        elif destination.startswith("/topic/"):
            home = Home(f"{destination} of {seen.name}", "topic", destination, selector, sure=False, turn=self.turn)
            self.live.append(home)
        else:
            home = self.home(destination)
        sub = seen.subs[name] = Sub(seen, name, mode, home, window or 10**9, selector)
        return sub

    def home(self, name: str) -> Home:
        home = self.homes.get(name)
        if home is None:
            home = self.homes[name] = Home(name, "queue")
        return home

    def confirmed(self, sub: Sub) -> None:
        sub.sure = sub.home.sure = True

    def unsubscribed(self, seen: Seen, sub: Sub, delete: bool) -> Callable[[], object]:
        home = sub.home
        self._stop(sub)
        sub.over = True
        del seen.subs[sub.id]
        seen.old_subs[sub.id] = sub
        if delete and home.kind == "durable":
            self.durables.pop(home.name, None)
            self.ghosts[home.name] = home
            home.sure, home.life = False, self.life
            for copy in home.copies.values():
                copy.maybe_gone = True
        return partial(self._unsubscribed, sub, delete and home.kind == "durable")

    def _unsubscribed(self, sub: Sub, deleted: bool) -> None:
        sub.quiet = True
        if deleted:
            sub.home.deleted = True
            self.ghosts.pop(sub.home.name, None)

    # ---- messages come ----
    def arrived(self, message: Message) -> None:
        self.messages[message.key] = message
        destination = message.destination
        if not destination.startswith("/topic/"):
            self.home(destination).add(Copy(message, self.home(destination)))
            return
        for home in [*self.live, *self.durables.values(), *self.ghosts.values()]:
            if home.topic == destination and _fits(home, message):
                home.add(Copy(message, home, expected=home.sure))

    def promised(self, message: Message) -> None:
        if message.promised is None:
            message.promised = self.turn

    # ---- acknowledgements ----
    def acked(self, copies: list[Copy]) -> None:
        for copy in copies:
            copy.holder = None
            copy.must_mark = copy.may_mark = copy.maybe_gone = True
            copy.acked_life, copy.acked_failures = self.life, self.failures

    def doubt(self, copy: Copy) -> None:
        """Nobody knows whether the ACK took effect."""
        copy.acked_life = -1

    def ack_promised(self, copies: list[Copy]) -> None:
        for copy in copies:
            copy.gone = "its ACK has a receipt"

    def nacked(self, seen: Seen, copy: Copy, requeue: bool) -> None:
        copy.holder, copy.back = None, self.turn
        copy.behind = seen if seen.receipts else None
        copy.must_mark = copy.may_mark = copy.nacked = True
        pause = self.config.redelivery_delay.after(copy.latest_try)
        copy.latest = self.clock.now + pause + 1.0 if pause else 0.0
        copy.earliest = 0.0 if seen.receipts else self.clock.now + pause - 0.001
        if not requeue or copy.tries >= self.config.max_attempts:
            copy.moved = copy.maybe_gone = True

    # ---- transactions ----
    def kept(self, transaction: Transaction, sub: Sub, tag: str, copy: Copy, accepted: bool) -> None:
        """An ACK or NACK waits for COMMIT."""
        (transaction.acks if accepted else transaction.nacks).append(copy)
        transaction.tags.append((sub, tag, copy))

    def committing(self, seen: Seen, transaction: Transaction) -> None:
        transaction.state, transaction.life = "committing", self.life
        self.transactions.append(transaction)
        for message in transaction.messages:
            message.order, message.failures = self.next_order(), self.failures
            self.arrived(message)
        stored = [copy.message.persistent for copy in (*transaction.acks, *transaction.nacks)]
        transaction.persistent = any(stored) or any(message.persistent for message in transaction.messages)
        transaction.deliveries = [copy.deliveries for copy in transaction.acks]
        self.acked(transaction.acks)
        if transaction.persistent:  # a failed commit, or the end of the session, may undo them
            for copy in transaction.acks:
                self.doubt(copy)
        for copy in transaction.nacks:
            self.nacked(seen, copy, True)
            copy.moved = copy.maybe_gone = True
            copy.earliest = 0.0  # a failed commit gives it back at once

    def committed(self, transaction: Transaction) -> None:
        """COMMIT has its receipt."""
        transaction.state = "committed"
        for message in transaction.messages:
            self.promised(message)
        self.ack_promised(transaction.acks)

    def aborted(self, seen: Seen, transaction: Transaction) -> None:
        transaction.state = "aborted"
        for message in transaction.messages:
            message.dropped = True
        self._give_back(transaction)

    def _give_back(self, transaction: Transaction) -> None:
        """Unacknowledged again; or back in the queue, if the subscription is over."""
        for sub, tag, copy in transaction.tags:
            if sub.over or sub.session.ended:
                self._returned(copy)
            else:
                sub.unacked[tag] = copy
                sub.extra += 1
        for sub in {id(sub): sub for sub, _, _ in transaction.tags}.values():
            sub.unacked = dict(sorted(sub.unacked.items(), key=lambda item: sub.order.get(item[0], 0)))

    # ---- messages go ----
    def delivered(self, seen: Seen, frame: Frame, key: int | None) -> None:
        """A MESSAGE is on its way to a session."""
        if frame.get("destination") in LITTER:
            return
        message = None if key is None else self.messages.get(key)
        if message is None:
            raise Violation("a message that nobody sent", f"{seen.name} got {frame.body[:40]!r}")
        name = frame.headers["subscription"]
        sub = seen.subs.get(name) or seen.old_subs.get(name)
        if sub is None:
            raise Violation("a message for no subscription", f"{seen.name} got {message} for {name!r}")
        if sub.quiet:
            raise Violation("a message behind the receipt of UNSUBSCRIBE", f"{seen.name} got {message}")
        copy = self._copy_of(seen, sub, message, frame)
        self._check_body(message, copy, frame)
        copy.latest_try = int(frame.get("redelivery-count", "0")) + 1
        copy.tries = max(copy.tries, copy.latest_try)
        if sub.over or seen.ended:
            self._came_late(sub, copy)
            return
        self._check_whether(seen, sub, copy)
        self._check_mark(seen, copy, frame)
        if copy.deliveries or frame.get("redelivered") is None:  # else it was in an outbox that nobody saw
            self._check_sequence(sub, copy)
        self._given.append((sub, copy))
        self._note_seq(message, copy, frame.headers["message-id"])
        message.seen = True
        if copy.earliest > self.clock.now:
            raise Violation(
                "a pause too short", f"{seen.name} got {message} {copy.earliest - self.clock.now:.3f} s early"
            )
        copy.earliest = copy.latest = 0.0
        copy.deliveries += 1
        copy.must_mark = copy.may_mark = True  # if it ever comes again, whatever happens until then
        copy.refused = False
        copy.moved = False  # a NACK before a crash has not moved it, then
        if not sub.home.name.startswith(_DEAD):
            self._undo_dead_letters(message)
        if sub.mode == "auto":
            copy.gone = "auto"
            return
        copy.holder = seen
        tag = frame.get("ack") if seen.version == "1.2" else frame.headers["message-id"]
        if tag is None:
            raise Violation("no ack header", f"{seen.name} got {message}")
        sub.order[tag] = self.next_order()
        sub.unacked[tag] = copy
        if tag in seen.guessed:
            copies = [sub.unacked.pop(each) for each in (list(sub.unacked) if sub.mode == "client" else [tag])]
            self.acked(copies)
            for each in copies:
                self.doubt(each)
        if len(sub.unacked) > sub.window + sub.extra:
            raise Violation("more than the prefetch", f"{seen.name} has {len(sub.unacked)} of {sub.window}")

    def _undo_dead_letters(self, message: Message) -> None:
        """It is in its old place after a crash: a dead letter that was seen before had not been stored."""
        for copy in message.copies:
            if 0 <= copy.buried_life < self.life:
                copy.maybe_gone = True

    def _came_late(self, sub: Sub, copy: Copy) -> None:
        """It was in the outbox when its session or subscription ended: it has gone back since, unless in auto mode."""
        copy.message.seen = True
        copy.deliveries += 1
        copy.must_mark = copy.may_mark = True
        copy.back = self.turn
        if sub.mode == "auto":
            copy.gone = copy.gone or "auto"

    def _copy_of(self, seen: Seen, sub: Sub, message: Message, frame: Frame) -> Copy:
        home = sub.home
        name = frame.headers["message-id"] if home.name.startswith(_DEAD) else None
        copy = home.copies.get(message.key if name is None else name)
        if copy is not None:
            return copy
        if home.name.startswith(_DEAD):
            origin = frame.get("original-destination")
            if origin != message.destination:
                raise Violation("a dead letter of another queue", f"{message} says {origin}")
            copy = Copy(message, home, may_mark=True, buried_life=self.life)
            home.add(copy, name)
            self._check_death(message, frame.get("dead-letter-reason"))
            return copy
        late = message.promised is None or message.promised >= home.turn
        if home.topic == message.destination and late and _fits(home, message):
            copy = Copy(message, home, expected=False)  # it took effect behind a commit, and SUBSCRIBE came before
            home.add(copy)
            return copy
        raise Violation("a message in the wrong place", f"{seen.name} got {message} from {home.name}")

    def _check_death(self, message: Message, reason: str | None) -> None:
        """A message became a dead letter: its other copy is gone, and had to."""
        sources = [copy for copy in message.copies if not copy.home.name.startswith(_DEAD)]
        if len(message.copies) > 2 * len(sources) and self.life == message.life:
            raise Violation("more dead letters than messages", f"{message}")
        tried = max((copy.tries for copy in sources), default=0)
        refused = any(copy.refused for copy in sources)
        if reason == "max-attempts" and tried < self.config.max_attempts and not refused:
            raise Violation("a dead letter too early", f"{message} was delivered {tried} times")
        if reason in ("max-attempts", "rejected") and not (refused or any(copy.nacked for copy in sources)):
            raise Violation("a dead letter that nobody refused", f"{message}")
        if reason == "expired" and (message.expires is None or message.expires > self.clock.wall()):
            raise Violation("a dead letter too early", f"{message} has not expired")
        for copy in sources:
            copy.moved = copy.maybe_gone = True

    def _check_body(self, message: Message, copy: Copy, frame: Frame) -> None:
        if frame.body != message.body:
            raise Violation("a wrong body", f"{message} came as {frame.body[:40]!r}")
        if frame.get("mark", "") != message.properties["mark"]:
            raise Violation("a wrong header", f"{message} came with mark {frame.get('mark')!r}")
        dead = copy.home.name.startswith(_DEAD)
        if frame.headers["destination"] != (copy.home.name if dead else message.destination):
            raise Violation("a wrong destination", f"{message} came with {frame.headers['destination']}")

    def _check_whether(self, seen: Seen, sub: Sub, copy: Copy) -> None:
        """It may come at all, and to this one."""
        message = copy.message
        what = f"{seen.name} got {message} from {copy.home.name}"
        if copy.gone:
            raise Violation("a message that was gone", f"{what}, though {copy.gone}")
        if copy.home.deleted and not sub.over and not seen.ended:
            raise Violation("a message of a subscription that was deleted", what)
        if copy.acked_life == self.life and copy.acked_failures == self.failures:
            raise Violation("an acknowledged message came back", what)
        if copy.holder is not None:
            raise Violation("delivered twice at once", f"{what}, and {copy.holder.name} has it")
        transaction = message.transaction
        if message.dropped or (transaction is not None and transaction.state == "open"):
            raise Violation("a message of no committed transaction", what)
        if not sub.accepts(message):
            raise Violation("a message that the selector refuses", f"{what}: {sub.selector}, {message.properties}")
        if message.expires is not None and not copy.home.name.startswith(_DEAD):
            late = self.turned_at - (message.expires - self.clock.wall() + self.clock.now)
            if late > 0:
                raise Violation("an expired message", f"{what}, {late:.3f} s late")
        if message.due is not None and message.due > self.clock.wall() + 0.002:
            raise Violation("a delayed message too early", f"{what}, {message.due - self.clock.wall():.3f} s early")

    def _check_mark(self, seen: Seen, copy: Copy, frame: Frame) -> None:
        marked = frame.get("redelivered") == "true"
        if copy.must_mark and not marked:
            raise Violation("redelivered is missing", f"{seen.name} got {copy.message} from {copy.home.name}")
        undone = copy.message.due is not None and self.failures  # it may have been delivered, its broker thinks
        if marked and not copy.may_mark and not copy.deliveries and not undone:
            raise Violation("redelivered for no reason", f"{seen.name} got {copy.message} from {copy.home.name}")

    def _check_sequence(self, sub: Sub, copy: Copy) -> None:
        """What one subscription gets in one turn is in order."""
        message = copy.message
        if copy.home.name.startswith(_DEAD) or message.due is not None:
            return
        if copy.maybe_gone or message.key in self.failed:  # it has come back at any time
            return
        key = message.sender, message.priority if self.config.priority else 4, message.group
        turn, order = sub.latest.get(key, (-1, 0))
        if turn == self.turn and order > message.order and not self._is_coming_back(copy):
            raise Violation("out of order", f"{sub.session.name} got {message} behind a later one")
        sub.latest[key] = self.turn, message.order

    def _check_order(self, sub: Sub, copy: Copy) -> None:
        """Nothing stands before it that this subscription could have had."""
        message, home = copy.message, copy.home
        if home.name.startswith(_DEAD) or message.due is not None:
            return
        ranked, waiting = self.config.priority, home.waiting.get(message.sender, [])
        if waiting and waiting[0].gone:
            waiting[:] = [each for each in waiting if not each.gone]
        for other in waiting:
            before = other.message
            if (
                before.order < message.order
                and before.group in ("", message.group)  # that of another group may be for another consumer
                and (not ranked or before.priority == message.priority)
                and self._is_ready(sub, other)
            ):
                raise Violation("out of order", f"{sub.session.name} got {message} before {before}")
        if not ranked or message.priority == 9 or home.kind != "queue":
            return
        for others in home.waiting.values():
            for other in others:
                before = other.message
                if (
                    before.priority > message.priority
                    and not before.group
                    and before.promised is not None
                    and before.promised < self.turn
                    and self._is_ready(sub, other)
                    and not other.deliveries
                ):
                    raise Violation("a lower priority came first", f"{sub.session.name} got {message} before {before}")

    def _is_coming_back(self, copy: Copy) -> bool:
        """It may have come back to its queue in this turn."""
        return copy.back == self.turn or (copy.behind is not None and bool(copy.behind.receipts))

    def _is_ready(self, sub: Sub, copy: Copy) -> bool:
        """It is in its queue for sure, and this subscription could have it."""
        message = copy.message
        if copy.gone or copy.maybe_gone or copy.holder is not None or not copy.expected or message.due is not None:
            return False
        if copy.latest > self.clock.now:
            return False
        if self._is_coming_back(copy) or message.key in self.failed or copy.refused:  # it may be a dead letter
            return False
        if message.expires is not None and message.expires <= self.clock.wall() + 1.0:
            return False
        transaction = message.transaction
        if transaction is not None and transaction.state != "committed":
            return False
        if message.promised is None:  # also what was seen may be withdrawn when its commit fails
            if message.life != self.life or message.doubtful or message.failures != self.failures or self.disk.failing:
                return False
            if self.disk.full:
                return False
        return sub.accepts(message)

    def _note_seq(self, message: Message, copy: Copy, name: str) -> None:
        """Seqs rise over restarts: a message that is new now has a higher one than all before."""
        seq = int(name.rpartition("-")[2])
        if message.life == self.life and message.due is None and seq <= self.highest_before:
            raise Violation("seqs do not rise", f"{message} has {seq}, and there was {self.highest_before}")
        self.highest = max(self.highest, seq)

    # ---- the end ----
    def balance(self) -> None:
        """Everything was drained: what is missing?"""
        now = self.clock.wall()
        for message in self.messages.values():
            if message.promised is None or (message.expires is not None and message.expires <= now):
                continue
            for copy in message.copies:
                if copy.home.kind == "topic" or copy.home.deleted or not copy.expected:
                    continue
                if not copy.gone and not copy.maybe_gone:
                    raise Violation("a receipted message is lost", f"{message}, of {copy.home.name}")
                if copy.moved and not copy.gone and not self._found_dead(message):
                    raise Violation("a dead letter is lost", f"{message}, of {copy.home.name}")
        for transaction in self.transactions:
            self._check_whole(transaction)

    def _found_dead(self, message: Message) -> bool:
        return any(copy.home.name.startswith(_DEAD) for copy in message.copies) or any(
            copy.acked_life >= 0 or copy.gone for copy in message.copies
        )

    def _check_whole(self, transaction: Transaction) -> None:
        """All of what it did with stored messages happened, or nothing."""
        if not transaction.persistent:
            return
        sent = [
            m
            for m in transaction.messages
            if m.persistent and m.expires is None and any(c.expected for c in m.copies if c.home.kind != "topic")
        ]
        seen = [message for message in sent if message.seen]
        again = [
            copy.message
            for copy, before in zip(transaction.acks, transaction.deliveries)
            if copy.message.persistent and copy.deliveries > before
        ]
        if seen and len(seen) < len(sent):
            missing = next(message for message in sent if not message.seen)
            raise Violation("a transaction by half", f"{transaction.name}: {seen[0]} is there, {missing} is not")
        if seen and again:
            raise Violation("a transaction by half", f"{transaction.name}: {seen[0]} is there, {again[0]} came back")


def _fits(home: Home, message: Message) -> bool:
    return home.selector is None or SELECTORS[home.selector](message.properties)
