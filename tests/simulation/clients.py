"""Clients, in every version, and ours, whose core does no I/O; those that send again with keys, and their ledger."""

from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.network import Link
from simulation.records import WRONGS, Seen, Violation

from stompcodec import Frame, FrameError, Parser, serialize
from stompcodec.client.core import ClientCore
from stompcodec.client.messages import BaseTransaction, Subscription
from stompcodec.client.options import Options
from stompcodec.errors import StompError

_AGAIN = 0.3  # Seconds between attempts to connect.


def _pairs(args: dict[str, Any], key: int) -> tuple[list[tuple[str, str]], bytes]:
    pairs = [("destination", args["to"])]
    pairs += [(name, str(value)) for name, value in args.get("headers", {}).items()]
    return pairs, b"%d.%b" % (key, b"x" * args.get("size", 0))


class Client:
    """What both kinds have: a link or none, and what they do with messages by their spec. Of the spec: version(s),
    websocket, client_id; nack and hold, parts of the messages that it treats so; delay (ACKs); for `CoreClient` beat,
    and move, the part that it moves to move_to."""

    def __init__(self, net: Any, name: str, spec: dict[str, Any]) -> None:
        self.net, self.name, self.spec = net, name, spec
        self.link, self.wanted = None, False
        self.numbers = self.connections = 0

    def opened(self) -> bool:
        if self.link is None:
            self.link = self.net.connect(self)
            self.connections += self.link is not None
            if self.link is None:
                self.net.clock.after(_AGAIN, self.again)
            return self.link is not None
        return False

    def connect(self, args: dict[str, Any] | None = None) -> None:
        raise NotImplementedError

    def again(self) -> None:
        if self.wanted and self.link is None:
            self.connect()

    def is_down(self) -> None:
        if self.wanted:
            self.net.clock.after(_AGAIN * (1 + self.net.chance(self.name, self.connections)), self.again)

    def decide(self, key, count, settle, move, nacks=True):
        """Do with a message what its number says."""
        spec, draw = self.spec, self.net.chance(self.name, key, count)
        hold = spec.get("hold", 0.0)
        if draw < hold:
            return
        if move is not None and draw > 1 - spec.get("move", 0.0):
            move()
            return
        command = "NACK" if nacks and draw < hold + spec.get("nack", 0.0) else "ACK"
        delay = spec.get("delay", 0.0) * self.net.chance(self.name, key, "delay")
        if delay:
            self.net.clock.after(delay, partial(settle, command))
        else:
            settle(command)


class RawClient(Client):
    """A client of one version that writes its own frames."""

    def __init__(self, net: Any, name: str, spec: dict[str, Any]) -> None:
        super().__init__(net, name, spec)
        self.version, self.up, self.subs = spec.get("version", "1.2"), False, {}
        self.parser = Parser(None)
        self.receipts = {}  # by receipt: what was asked for

    # ---- the transport ----
    def connect(self, args: dict[str, Any] | None = None) -> None:
        self.wanted = True
        if not self.opened():
            return
        self.up, self.parser, self.subs = False, Parser(None), {}
        headers = {} if self.version == "1.0" else {"accept-version": self.version}
        headers |= {"host": "/", "login": "guest", "passcode": "guest"}
        if "client_id" in self.spec:
            headers["client-id"] = self.spec["client_id"]
        self._write(serialize(Frame("CONNECT", headers), None))

    def received(self, data: bytes) -> None:
        try:
            for frame in self.parser.feed(data):
                self._got(frame)
        except FrameError as error:
            raise AssertionError(f"{self.name} cannot read what the broker wrote: {error}") from error

    def writable(self, yes: bool) -> None:
        """It does not care."""

    def lost(self) -> None:
        self.link, self.up = None, False
        self.receipts.clear()
        self.is_down()

    def _write(self, octets: bytes) -> None:
        if self.link is not None:
            self.link.up.write(octets)

    def _send(self, command: str, pairs: Any, body: bytes = b"", receipt: str = "") -> None:
        entries = [*(pairs.items() if isinstance(pairs, dict) else pairs)]
        if receipt:
            self.numbers += 1
            entries.append(("receipt", f"r{self.numbers}"))
            self.receipts[f"r{self.numbers}"] = receipt
        self._write(serialize(Frame(command, entries, body), self.version))

    # ---- what comes ----
    def _got(self, frame: Frame) -> None:
        command = frame.command
        if command == "CONNECTED":
            self.parser.version = frame.get("version", "1.0")
            self.up = True
            for args in self.spec.get("subscriptions", ()):
                self.subscribe(args)
        elif command == "RECEIPT":
            what = self.receipts.pop(frame.headers["receipt-id"], "")
            self.net.progress(self.name, what)
            if what == "DISCONNECT" and self.link is not None:
                self.link.close(self.link.up)
        elif command == "MESSAGE":
            sub = self.subs.get(frame.get("subscription", ""))
            self.net.progress(self.name, "MESSAGE")
            if sub is not None and sub["ack"] != "auto":
                tag = self._tag(frame)
                if tag in sub["done"]:  # of 1.1: it comes again by the same name
                    sub["done"].discard(tag)
                    sub["came"].remove(tag)
                sub["came"].append(tag)
                key, count = frame.body.partition(b".")[0].decode(), frame.get("redelivery-count", "0")
                settle = partial(self._settle, self.connections, sub, frame)
                self.decide(key, count, settle, None, self.version not in ("1.0", "legacy"))
        elif command == "ERROR" and self.link is not None:
            self.link.close(self.link.up)

    def _settle(self, connection: int, sub: dict[str, Any], frame: Frame, command: str) -> None:
        if connection != self.connections or not self.up or self.subs.get(sub["id"]) is not sub:
            return
        tag = self._tag(frame)
        if tag in sub["done"]:
            return
        order = sub["came"]
        sub["done"].update(order[: order.index(tag) + 1] if sub["ack"] == "client" else [tag])
        pairs = {"id": tag} if self.version == "1.2" else {"message-id": tag, "subscription": sub["id"]}
        receipt = "ACK" if self.net.chance(self.name, tag, "receipt") < self.spec.get("receipts", 0.6) else ""
        self._send(command, pairs, receipt=receipt)

    def _tag(self, frame: Frame) -> str:
        return frame.headers["ack" if self.version == "1.2" else "message-id"]

    # ---- steps ----
    def send(self, args: dict[str, Any]) -> None:
        if not self.up:
            return
        for number in range(args.get("count", 1)):
            pairs, body = _pairs(args, args["key"] + number)
            self._send("SEND", pairs, body, "SEND" if args.get("receipt", True) else "")

    def subscribe(self, args: dict[str, Any]) -> None:
        if not self.up or args["id"] in self.subs:
            return
        self.subs[args["id"]] = {**args, "came": [], "done": set()}
        pairs = {"id": args["id"], "destination": args["to"], "ack": args["ack"]}
        for name in ("selector", "prefetch-count", "durable-subscription-name"):
            if name in args:
                pairs[name] = str(args[name])
        self._send("SUBSCRIBE", pairs, receipt="SUBSCRIBE")

    def unsubscribe(self, args: dict[str, Any]) -> None:
        sub = self.subs.pop(args["id"], None)
        if sub is None or not self.up:
            return
        pairs = {"id": args["id"]}
        if args.get("delete") and "durable-subscription-name" in sub:
            pairs["durable-subscription-name"] = sub["durable-subscription-name"]
        self._send("UNSUBSCRIBE", pairs, receipt="UNSUBSCRIBE")

    def transact(self, args: dict[str, Any]) -> None:
        if not self.up:
            return
        self.numbers += 1
        name = f"t{self.numbers}"
        self._send("BEGIN", {"transaction": name})
        for key, to in enumerate(args["to"], args["key"]):
            pairs, body = _pairs({**args, "to": to}, key)
            self._send("SEND", [*pairs, ("transaction", name)], body)
        if args["end"] == "later":
            self.net.clock.after(1.0, partial(self._end, self.connections, name))
        elif args["end"] in ("COMMIT", "ABORT"):
            self._send(args["end"], {"transaction": name}, receipt=args["end"])

    def _end(self, connection: int, name: str) -> None:
        if connection == self.connections and self.up:
            self._send("COMMIT", {"transaction": name}, receipt="COMMIT")

    def disconnect(self, args: dict[str, Any]) -> None:
        self.wanted = False
        if self.up:
            self._send("DISCONNECT", {}, receipt="DISCONNECT")
        elif self.link is not None:
            self.link.cut()
        if "again" in args:
            self.net.clock.after(args["again"], self.connect)

    def wrong(self, args: dict[str, Any]) -> None:
        """Something that no client should send. If the session goes on, it comes to an end a little later."""
        self._write(WRONGS[args["name"]])
        self.net.clock.after(args["for"], partial(self._give_up, self.connections))

    def _give_up(self, connection: int) -> None:
        if connection == self.connections and self.link is not None:
            self.link.cut()


class CoreClient(Client):
    """A client on `ClientCore`, driven as by the engine. Its subscriptions are made once, and come back alone."""

    def __init__(self, net: Any, name: str, spec: dict[str, Any]) -> None:
        super().__init__(net, name, spec)
        self.moved = 0
        self.core, self._armed = self._new_core(), None

    def _new_core(self) -> ClientCore:
        beat = self.spec.get("beat", (0, 0))
        versions = self.spec.get("versions", ("1.0", "1.1", "1.2"))
        options = Options(heart_beat=beat, client_id=self.spec.get("client_id"), versions=versions)
        return ClientCore(options, self._new_id)

    def _new_id(self) -> str:
        self.numbers += 1
        return f"{self.name}-{self.numbers}"

    # ---- the transport ----
    def connect(self, args: dict[str, Any] | None = None) -> None:
        if self.core.link.state == "closed":
            self.core = self._new_core()
        if not self.wanted:
            self.wanted = True
            for each in self.spec.get("subscriptions", ()):
                self.subscribe(each)
        if self.opened():
            how = {"host": "/", "login": "guest", "passcode": "guest", "whole_frames": False}
            self.core.link.opened(self.net.clock.now, **how)
            self._after()

    def again(self) -> None:
        if self.core.link.state not in ("closing", "closed"):
            super().again()

    def received(self, data: bytes) -> None:
        if self.link is not None:
            self.core.inbound.receive(data, self.net.clock.now)
            self._after()

    def writable(self, yes: bool) -> None:
        self.core.link.writable(yes)
        if yes:
            self._after()

    def lost(self) -> None:
        if self.link is not None:
            self.link = None
            self.core.link.lost(None, self.net.clock.now)
            self.is_down()
        self._after()

    def _after(self) -> None:
        """What the engine does after each call of the core."""
        core, now = self.core, self.net.clock.now
        for _ in range(100):
            core.link.events.clear()
            finished, core.link.calls.finished[:] = list(core.link.calls.finished), []
            for call in finished:
                if call.error is None:
                    self.net.progress(self.name, call.command)
            touched, core.inbound.touched[:] = list(core.inbound.touched), []
            for subscription in touched:
                subscription.touched = False
                core.inbound.take(subscription)
                batch = list(subscription.batch)
                subscription.batch.clear()
                for message in batch:
                    self.net.progress(self.name, "MESSAGE")
                    self._decide(message)
            chunks = core.link.take_output(now)
            if chunks and self.link is not None:
                self.link.up.write(b"".join(chunks))
            if not (chunks or finished or touched):
                break
        if core.link.connection is None and self.link is not None:
            link, self.link = self.link, None
            link.close(link.up)
            link.cut()
            self.is_down()
        elif self.link is not None:
            self.link.read(self.link.down, not core.inbound.paused)
        due = core.link.next_deadline()
        if due is not None and (self._armed is None or due < self._armed or self._armed < now):
            self._armed = due
            self.net.clock.after(max(0.0, due - now), partial(self._tick, due))

    def _tick(self, due: float) -> None:
        if self._armed == due:
            self._armed = None
            self.core.link.tick(self.net.clock.now)
            self._after()

    # ---- what comes ----
    def _decide(self, message: Any) -> None:
        if message.subscription.ack != "auto":
            key, count = message.body.partition(b".")[0].decode(), message.get("redelivery-count", "0")
            self.decide(key, count, partial(self._settle, message), partial(self._move, message, int(key)))

    def _settle(self, message: Any, command: str) -> None:
        receipt = self.net.chance(self.name, message.id, "receipt") < 0.6
        call = self._call(command) if receipt else None
        self._do(partial(self.core.settle, message, command, self.net.clock.now, call))

    def _move(self, message: Any, key: int) -> None:
        """ACK it, and send another in its place, in one transaction."""
        transaction, now = BaseTransaction(self._new_id()), self.net.clock.now
        if key >= 10**9 or not self._do(partial(self.core.begin, transaction, now)):
            return
        pairs = [("destination", self.spec["move_to"]), ("persistent", "true"), ("color", "red"), ("n", "1")]
        self.moved += 1
        number = int("".join(filter(str.isdigit, self.name)) or 0)  # two clients may move copies of one message
        body = b"%d." % (10**9 * (1 + number) + key * 1000 + self.moved)
        self._do(partial(self.core.send, Frame("SEND", pairs, body), now, transaction=transaction))
        self._do(partial(self.core.settle, message, "ACK", now, transaction=transaction))
        end = "COMMIT" if self.net.chance(self.name, key, "end") < 0.8 else "ABORT"
        call = self._call(end)
        self._do(partial(self.core.finish_transaction, transaction, end, now, call))

    def _do(self, action: Callable[[], Any]) -> Any:
        """A call of the core that a lost connection may spoil."""
        try:
            return action()
        except StompError:
            return False
        finally:
            self.net.clock.after(0.0, self._after)

    def _call(self, command: str, seconds: float = 20.0, **options: Any) -> Any:
        return self.core.link.calls.make(command, seconds, command, **options)

    # ---- steps ----
    def send(self, args: dict[str, Any]) -> None:
        for number in range(args.get("count", 1)):
            pairs, body = _pairs(args, args["key"] + number)
            call = None
            if args.get("receipt", True):
                call = self._call("SEND", resend=False)
                pairs.append(("receipt", call.id))
            self._do(partial(self.core.send, Frame("SEND", pairs, body), self.net.clock.now, call))

    def subscribe(self, args: dict[str, Any]) -> None:
        if args["id"] in self.core.inbound.subscriptions:
            return
        name = "durable-subscription-name"
        headers = {name: args[name]} if name in args else {}
        how = {"id": args["id"], "ack": args["ack"], "selector": args.get("selector"), "headers": headers}
        subscription = Subscription(args["to"], prefetch=args.get("prefetch-count"), **how)
        self._do(partial(self.core.inbound.subscribe, subscription, self.net.clock.now, self._call("SUBSCRIBE")))

    def unsubscribe(self, args: dict[str, Any]) -> None:
        subscription = self.core.inbound.subscriptions.get(args["id"])
        if subscription is not None:
            call = self._call("UNSUBSCRIBE")
            self._do(partial(self.core.inbound.unsubscribe, subscription, self.net.clock.now, call))

    def transact(self, args: dict[str, Any]) -> None:
        transaction = BaseTransaction(self._new_id())
        now, core = self.net.clock.now, self.core
        if not self._do(partial(core.begin, transaction, now)):
            return
        for key, to in enumerate(args["to"], args["key"]):
            pairs, body = _pairs({**args, "to": to}, key)
            self._do(partial(core.send, Frame("SEND", pairs, body), now, transaction=transaction))
        end = args["end"]
        if end in ("COMMIT", "ABORT"):
            self._finish(transaction, end)
        elif end == "later":
            self.net.clock.after(1.0, partial(self._finish, transaction, "COMMIT"))

    def _finish(self, transaction: BaseTransaction, end: str) -> None:
        call = self._call(end)
        self._do(partial(self.core.finish_transaction, transaction, end, self.net.clock.now, call))

    def disconnect(self, args: dict[str, Any]) -> None:
        self.wanted = False
        self._do(partial(self.core.close, self.net.clock.now, self._call("DISCONNECT", 5.0)))
        if "again" in args:
            self.net.clock.after(args["again"], self.connect)


class Side:
    """A client's end of one link: what an older link still says reaches nobody."""

    def __init__(self, client: Client, link: Link) -> None:
        self.client, self.link = client, link

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name) if self.client.link is self.link else lambda *_: None


def make_client(net: Any, name: str, spec: dict[str, Any]) -> RawClient | CoreClient:
    return (CoreClient if spec["kind"] == "core" else RawClient)(net, name, spec)


#: One has a consumer all the time, in auto mode. From the other one nobody takes anything before the end.
READ, KEPT = "/queue/once", "/queue/kept"
KEYED = (READ, KEPT)


class Resender(RawClient):
    """A client that sends groups of messages, each again until it has a receipt for it."""

    def __init__(self, net: Any, name: str, spec: dict[str, Any]) -> None:
        super().__init__(net, name, spec)
        #: What has no receipt: by number, the keys, where to, more headers, and how it ends if it is a transaction.
        self.pending, self.groups = {}, 0

    def give(self, keys: list[str], to: str, headers: dict[str, str], end: str) -> None:
        """Send messages with these keys; `end` is COMMIT, ABORT, or "" for no transaction."""
        self.groups += 1
        self.pending[self.groups] = keys, to, headers, end
        if self.up:
            self._write_group(self.groups)

    def _write_group(self, number: int) -> None:
        keys, to, headers, end = self.pending[number]
        name, receipt = f"t{number}", ("receipt", f"k{number}")
        if end:
            self._send("BEGIN", {"transaction": name})
        for key in keys:
            spelled = "_AMQ_DUPL_ID" if len(key) % 2 else "idempotency-key"
            pairs = [("destination", to), (spelled, key), *headers.items()]
            pairs += [("transaction", name)] if end else [receipt] if key == keys[-1] else []
            self._send("SEND", pairs, b"%b.x" % key.encode())
        if end:
            self._send(end, [("transaction", name), receipt])
        if end == "ABORT":
            del self.pending[number]

    def _got(self, frame: Frame) -> None:
        super()._got(frame)
        if frame.command == "CONNECTED":
            for number in list(self.pending):
                self._write_group(number)
        elif frame.command == "RECEIPT":
            self.pending.pop(int(frame.headers["receipt-id"][1:]), None)


class Keyed:
    def __init__(self) -> None:
        self.life = 0
        #: Whether it was sent as persistent, by key; and those that came only in transactions without a COMMIT.
        self.sent, self.open, self.promised = {}, {}, set()
        #: By key, and by the life of the broker where it does not outlive that.
        self.ids = {}

    def came(self, seen: Seen, frame: Frame) -> Callable[[], object] | None:
        key = frame.get("idempotency-key") or frame.headers["_AMQ_DUPL_ID"]
        transaction = frame.get("transaction")
        if transaction is not None:
            self.open.setdefault((seen, transaction), []).append(key)
            if frame.get("persistent") == "true":
                self.sent.setdefault(f"persistent {key}", True)
            return None
        self.sent[key] = frame.get("persistent") == "true"
        return partial(self.promised.update, [key])

    def ended(self, seen: Seen, frame: Frame, promise: Callable[[], object] | None) -> Callable[[], object] | None:
        keys = self.open.pop((seen, frame.get("transaction", "")), [])
        if frame.command == "ABORT" or not keys:
            return promise
        for key in keys:
            self.sent[key] = f"persistent {key}" in self.sent

        def committed() -> None:
            if promise is not None:
                promise()
            self.promised.update(keys)

        return committed

    def delivered(self, seen: Seen, frame: Frame) -> None:
        key = frame.get("idempotency-key") or frame.headers["_AMQ_DUPL_ID"]
        if key not in self.sent:
            raise Violation("a key that nobody sent", f"{seen.name} got {key}, which came in no COMMIT")
        ident = frame.headers["message-id"]
        first = self.ids.setdefault((key, 0 if self.sent[key] else self.life), ident)
        if first != ident:
            raise Violation("a key is stored twice", f"{seen.name} got {key} as {ident}, and it was {first} before")

    def balance(self, destinations: dict[str, str]) -> None:
        """All is over, and what was kept has been taken."""
        for key in sorted(self.promised):
            if destinations.get(key) == KEPT and self.sent[key] and (key, 0) not in self.ids:
                raise Violation("a key without its message", f"{key} has a receipt, and never came")
