"""Sees every frame that the broker reads and writes, and holds it against the rules."""

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.audit import audit, difference
from simulation.clients import KEYED, Keyed
from simulation.network import EPOCH, Clock
from simulation.records import LITTER, Message, Seen, Sub, Transaction, Violation
from simulation.rules import Rules

from stompcodec import Frame, FrameError, Parser
from stompcodec.states import State

_THOROUGH = 16  # every so many turns each message is looked at; in the others, each queue
#: The words of an ERROR to a well-behaved session, and when they are right.
_ALLOWED: tuple[tuple[str, Callable[[Rules, Seen], object]], ...] = (
    *(("could not be stored", lambda rules, seen: rules.disk.faults), ("shutting down", lambda rules, seen: True)),
    ("heart-beats are missing", lambda rules, seen: seen.excused),
    *(("login took too long", lambda rules, seen: seen.excused), ("slow consumer", lambda rules, seen: True)),
    ("the queue is full", lambda rules, seen: True),
    *(("durable subscription is in use", lambda rules, seen: True), ("client-id", lambda rules, seen: True)),
    ("durable subscription differs", lambda rules, seen: seen.mismatch),
    ("a message could not be written", lambda rules, seen: rules.failed),
)


def key_of(body: bytes) -> int | None:
    """The number of a message, which its body begins with."""
    head, dot, _ = body.partition(b".")
    return int(head) if dot and head.isdigit() else None


class Watcher:
    def __init__(self, clock: Clock, rules: Rules, trace: Callable[[str], object] | None = None) -> None:
        self.clock, self.rules, self.trace = clock, rules, trace
        self.keyed, self.sessions = Keyed(), {}
        self.next = ("?", True)  # Set before `opened`: whose session it is.
        self.broker, self.faults = None, []
        self.frames = self.turns = 0
        self.is_dying = lambda: False  # The power is going, in the middle of something.

    def tell(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.clock.now:10.4f} {text}")

    # ---- the broker's life ----
    def booted(self, broker: Any) -> None:
        self.broker = broker
        self.rules.booted(broker)
        self.keyed.life += 1
        self.tell("-- the broker is up")

    def died(self, clean: bool, closing: bool) -> None:
        self.tell("-- the broker has stopped" if clean else "-- the broker has crashed")
        self.broker = None
        for seen in list(self.sessions.values()):
            self.rules.ended(seen)
        self.sessions.clear()
        self.rules.died(clean, closing)
        self._look_for_faults()

    def opened(self, session: Any) -> None:
        name, well_behaved = self.next
        self.sessions[session] = Seen(name, well_behaved, session, Parser(None), Parser(None))
        self.tell(f"{name} connects")

    def ended(self, session: Any, why: str) -> None:
        seen = self.sessions.get(session)
        if seen is not None and not seen.ended:
            self.tell(f"{seen.name}: session ended ({why})")
            self._resolve(seen)
            self.rules.ended(seen)

    def closed(self, session: Any) -> None:
        self.sessions.pop(session, None)

    def turned(self) -> None:
        self._look_for_ended()
        self._look_for_faults()
        self.turns += 1
        if not self.turns % _THOROUGH:
            fault = difference(self.broker)
            if fault:
                raise Violation("the account is wrong", f"(account, held): {fault}")
        elif (held := sum(audit(self.broker))) != self.broker.account.used:
            raise Violation("the account is wrong", f"{held} bytes are held; it has {self.broker.account.used}")
        self.rules.turned()

    def ticked(self) -> None:
        self._look_for_ended()

    def _look_for_faults(self) -> None:
        if self.faults:
            raise Violation("fault of the broker", self.faults[0])

    def _look_for_ended(self) -> None:
        for session, seen in self.sessions.items():
            if session.ended and not seen.ended:
                self.ended(session, "by the broker")

    # ---- what the broker reads ----
    def reads(self, session: Any, data: bytes) -> None:
        seen = self.sessions[session]
        if seen.broken or seen.ended:
            return
        try:
            for frame in seen.reader.feed(data):
                self.frames += 1
                if self.trace is not None:
                    self.tell(f"{seen.name} > {_line(frame)}")
                self._arrived(seen, frame)
                if seen.broken:
                    break
        except FrameError as error:
            self.tell(f"{seen.name} > what is no frame: {error}")
            seen.broken = True

    def has_read(self, session: Any) -> None:
        seen = self.sessions.get(session)
        if seen is None:
            return
        if not session.ended and not session.waits_for_turn and session.steps is None:
            seen.doubts.clear()  # all of it was looked at
        self._look_for_ended()

    def _resolve(self, seen: Seen) -> None:
        """Doubt what came in one read with the frame that ended its session, unless that was its DISCONNECT."""
        if seen.session.connection.state is not State.DISCONNECTING:
            for doubt in seen.doubts:
                doubt()
        seen.doubts.clear()

    def _arrived(self, seen: Seen, frame: Frame) -> None:
        command = frame.command
        handler = getattr(self, f"_on_{command.lower()}", None)
        if handler is None or (seen.version == "") is not (command in ("CONNECT", "STOMP")) or seen.disconnected:
            seen.broken = True  # the broker ends this session
            return
        promise = handler(seen, frame)
        if command in ("COMMIT", "ABORT"):
            promise = self.keyed.ended(seen, frame, promise)
        if seen.broken:
            self.tell(f"{seen.name}: what it sends is wrong from here on")
        receipt = frame.get("receipt")
        if receipt is not None and command not in ("CONNECT", "STOMP"):
            seen.receipts.append((receipt, promise or (lambda: None)))

    def _on_connect(self, seen: Seen, frame: Frame) -> None:
        offered = frame.get("accept-version", "1.0").split(",")
        known = [version for version in ("1.2", "1.1", "1.0") if version in offered]
        if not known:
            seen.broken = True
            return
        seen.version = seen.reader.version = known[0]
        seen.client_id = frame.get("client-id")

    _on_stomp = _on_connect

    def _on_send(self, seen: Seen, frame: Frame) -> Callable[[], object] | None:
        if frame.get("destination") in KEYED:
            return self.keyed.came(seen, frame)
        key = key_of(frame.body)
        if key is None or frame.get("destination") in (None, *LITTER):
            return None
        get = frame.get
        now, rules = EPOCH + self.clock.now, self.rules
        expires, life = get("expires"), get("expiration")
        ends = [float(expires) / 1000] if expires not in (None, "0") else []
        ends += [now + float(life) / 1000] if life not in (None, "0") else []
        delay = get("delay")
        default = "true" if rules.config.durable == "all" and frame.headers["destination"].startswith("/queue/") else ""
        message = Message(
            key,
            seen,
            rules.next_order(),
            frame.headers["destination"],
            frame.body,
            get("persistent", default) == "true",
            int(get("priority", "4")),
            {"color": get("color", ""), "n": get("n", "0"), "mark": get("mark", "")},
            rules.life,
            min(ends, default=None),
            None if delay is None else now + float(delay) / 1000,
            failures=rules.failures,
            group=get("message_group", ""),
        )
        name = get("transaction")
        if name is not None:
            transaction = seen.transactions.get(name)
            if transaction is None:
                seen.broken = True
                return None
            message.transaction = transaction
            transaction.messages.append(message)
            rules.messages[key] = message
            return None
        rules.arrived(message)
        seen.doubts.append(lambda: setattr(message, "doubtful", True))
        return partial(rules.promised, message)

    def _on_subscribe(self, seen: Seen, frame: Frame) -> Callable[[], object] | None:
        name = frame.get("id", "")
        if name in seen.subs or frame.get("destination") is None:
            seen.broken = True
            return None
        sub = self.rules.subscribed(
            seen,
            name,
            frame.headers["destination"],
            frame.get("ack", "auto"),
            int(frame.get("prefetch-count", str(self.rules.config.prefetch))),
            frame.get("selector"),
            frame.get("durable-subscription-name"),
        )
        seen.broken = seen.mismatch
        return partial(self.rules.confirmed, sub)

    def _on_unsubscribe(self, seen: Seen, frame: Frame) -> Callable[[], object] | None:
        sub = seen.subs.get(frame.get("id", ""))
        if sub is None:
            seen.broken = True
            return None
        delete = frame.get("durable-subscription-name") is not None
        promise, home = self.rules.unsubscribed(seen, sub, delete), sub.home
        seen.doubts.append(lambda: setattr(home, "life", -1))  # then it may be there still
        return promise

    def _on_ack(self, seen: Seen, frame: Frame) -> Callable[[], object] | None:
        found = self._delivery(seen, frame)
        if found is None:
            if frame.command == "ACK":
                seen.guessed.add((frame.get("id") if seen.version == "1.2" else frame.get("message-id")) or "")
            seen.broken = True  # or it names a subscription that has ended, which means nothing
            if seen.version == "1.2" and frame.get("receipt") is None:
                number = (frame.get("id") or "").partition("-")[0]
                seen.broken = not (number.isdigit() and int(number) <= len(seen.subs) + len(seen.old_subs))
            return None
        sub, tag = found
        tags = list(sub.unacked)
        covered = tags[: tags.index(tag) + 1] if sub.mode == "client" else [tag]
        copies = [sub.unacked.pop(each) for each in covered]
        name = frame.get("transaction")
        if name is not None and self.rules.config.transactional_acks:
            transaction = seen.transactions.get(name)
            if transaction is None:
                sub.unacked.update(zip(covered, copies))
                seen.broken = True
                return None
            for each, copy in zip(covered, copies):
                self.rules.kept(transaction, sub, each, copy, frame.command == "ACK")
            return None
        if frame.command == "ACK":
            self.rules.acked(copies)
            seen.doubts.append(lambda: [self.rules.doubt(copy) for copy in copies])
            return partial(self.rules.ack_promised, copies)
        for copy in copies:
            self.rules.nacked(seen, copy, frame.get("requeue") != "false")
        return None

    _on_nack = _on_ack

    def _delivery(self, seen: Seen, frame: Frame) -> tuple[Sub, str] | None:
        if seen.version == "1.2":
            tag, name = frame.get("id", ""), None
        else:
            tag, name = frame.get("message-id", ""), frame.get("subscription")
        for sub in seen.subs.values():
            if tag in sub.unacked and (name is None or name == sub.id):
                return sub, tag
        return None

    def _on_begin(self, seen: Seen, frame: Frame) -> None:
        name = frame.get("transaction", "")
        if name in seen.transactions:
            seen.broken = True
        else:
            seen.transactions[name] = Transaction(f"{seen.name}/{name}")

    def _on_commit(self, seen: Seen, frame: Frame) -> Callable[[], object] | None:
        transaction = seen.transactions.pop(frame.get("transaction", ""), None)
        if transaction is None:
            seen.broken = True
            return None
        self.rules.committing(seen, transaction)
        return partial(self.rules.committed, transaction)

    def _on_abort(self, seen: Seen, frame: Frame) -> None:
        transaction = seen.transactions.pop(frame.get("transaction", ""), None)
        if transaction is None:
            seen.broken = True
        else:
            self.rules.aborted(seen, transaction)

    def _on_disconnect(self, seen: Seen, _frame: Frame) -> None:
        seen.disconnected = True

    # ---- what the broker writes ----
    def writes(self, session: Any, chunks: list[bytes]) -> None:
        self._look_for_ended()
        seen = self.sessions.get(session)
        if seen is None:
            return
        for frame in seen.writer.feed(b"".join(chunks)):
            self.frames += 1
            if self.trace is not None:
                self.tell(f"{seen.name} < {_line(frame)}")
            command = frame.command
            if seen.error:
                raise Violation("a frame behind ERROR", f"{seen.name} got {_line(frame)}")
            if command == "MESSAGE" and frame.get("destination") in KEYED:
                self.keyed.delivered(seen, frame)
            elif command == "MESSAGE":
                self.rules.delivered(seen, frame, key_of(frame.body))
            elif command == "RECEIPT":
                self._receipt(seen, frame.headers["receipt-id"])
            elif command == "CONNECTED":
                seen.writer.version = frame.get("version", "1.0")
            elif command == "ERROR":
                self._error(seen, frame)

    def _receipt(self, seen: Seen, name: str) -> None:
        if not seen.receipts:
            raise Violation("a receipt that nobody asked for", f"{seen.name} got {name}")
        wanted, promise = seen.receipts.pop(0)
        if wanted != name:
            raise Violation("receipts out of order", f"{seen.name} got {name}, and {wanted} should be next")
        promise()

    def _error(self, seen: Seen, frame: Frame) -> None:
        seen.error = frame.get("message", "ERROR")
        if "internal error" in seen.error:
            raise Violation("internal error", f"{seen.name}: {seen.error}")
        if not seen.well_behaved or any(words in seen.error and when(self.rules, seen) for words, when in _ALLOWED):
            return
        body = frame.body.decode("utf-8", "replace").strip()
        raise Violation("an ERROR to a well-behaved client", f"{seen.name}: {seen.error} ({body})")


def _line(frame: Frame) -> str:
    headers = " ".join(f"{name}:{value}" for name, value in frame.headers.items() if name != "content-length")
    body = frame.body[:12].decode("latin-1")
    return f"{frame.command} {headers} {body!r}" if body else f"{frame.command} {headers}"
