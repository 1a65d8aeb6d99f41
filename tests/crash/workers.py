"""The programs of the load: who sends, who sends in transactions, who consumes, who moves from queue to queue."""

import random
from collections import deque
from typing import Any

from crash.ledger import Ledger, body_of
from crash.wire import encoded

from stompcodec import Frame

#: Sizes of bodies in octets, most of them small. Those above 64 KiB are kept in files of their own by the store, and
#: the largest are files from the first octet on: large messages.
_SIZES = (*(0, 20, 200, 500, 1000) * 12, *(5000,) * 6, 20_000, 70_000, 120_000)
Headers = list[tuple[str, object]]


class Base:
    """What all have: a name, a link or none, and receipts that are waited for."""

    version = "1.2"
    client_id = ""
    sizes = _SIZES

    def __init__(self, name: str, ledger: Ledger, seed: int = 0) -> None:
        self.name, self.ledger = name, ledger
        self.random, self.link = random.Random(f"{seed} {name}"), None
        self.count = self.epoch = 0
        """Connections that were lost. Order holds for what one connection sent: the end of an old one may come late."""
        self.waiting = {}  # Receipt -> the keys it stands for.

    def connected(self) -> None: ...

    def pump(self) -> None: ...

    def lost(self) -> None:
        self.epoch += 1
        self.waiting.clear()

    def frame(self, frame: Frame) -> None:
        if frame.command == "RECEIPT":
            receipt = frame.headers["receipt-id"]
            keys = self.waiting.pop(receipt, None)
            if keys is None:
                self.ledger.problem("receipt nobody asked for", f"{self.name}: {receipt}")
            else:
                self.done(receipt, keys)
        elif frame.command == "MESSAGE":
            self.message(frame)
        else:
            self.ledger.problem("ERROR frame", f"{self.name}: {frame.get('message')} {frame.body!r:.200}")

    def done(self, receipt: str, keys: list[str]) -> None: ...

    def message(self, frame: Frame) -> None: ...

    def send(self, frame: bytes) -> None:
        assert self.link is not None
        self.link.send(frame)

    def next_key(self) -> str:
        self.count += 1
        return f"{self.name}.{self.epoch}-{self.count}"

    def send_message(self, queue: str, key: str, *more: tuple[str, object]) -> None:
        size = self.random.choice(self.sizes)
        headers = [("destination", queue), ("persistent", "true"), ("key", key), ("size", size), *more]
        self.send(encoded("SEND", headers, body_of(key, size)))


class Producer(Base):
    """Sends with receipts, a window of them; with `batch`, so many in a transaction, whose COMMIT has the receipt."""

    def __init__(self, name, ledger, queue, *, window=64, batch=0, seed=0, sizes=_SIZES, extra=None) -> None:
        super().__init__(name, ledger, seed)
        self.queue, self.window, self.batch, self.sizes = queue, window, batch, sizes
        self.extra = extra or (lambda chance: [])  # headers of the next message
        self.resting = False  # makes nothing more

    def pump(self) -> None:
        for _ in range(16):
            if self.resting or len(self.waiting) >= self.window or (self.link is not None and self.link.full):
                return
            if self.batch:
                self.transaction()
            else:
                key = self.next_key()
                self.ledger.sent(key, self.queue)
                self.waiting[key] = [key]
                self.send_message(self.queue, key, ("receipt", key), *self.extra(self.random))

    def transaction(self) -> None:
        keys = [self.next_key() for _ in range(self.random.randint(1, self.batch))]
        name = f"t-{keys[0]}"
        self.send(encoded("BEGIN", [("transaction", name)]))
        for key in keys:
            self.ledger.sent(key, self.queue, group=name)
            self.send_message(self.queue, key, ("transaction", name), *self.extra(self.random))
        self.waiting[name] = keys
        self.send(encoded("COMMIT", [("transaction", name), ("receipt", name)]))

    def done(self, receipt: str, keys: list[str]) -> None:
        self.ledger.receipted(keys)


def line_of(consumer, key: str, frame: Frame) -> str:
    """Messages of one line come in the order of their numbers; "" for no order."""
    return key.rpartition("-")[0]


class Consumer(Base):
    """Takes messages and acknowledges them late, in groups, with receipts. It is `alone` if no other consumer has this
    queue: what comes again does so in the order of its producers, too. In `mode` "client" one ACK stands for all before
    it. One message in `nack` is refused when it first comes; 0 for none. `asks` are more headers of SUBSCRIBE."""

    alone, mode, nack, line, asks = True, "client-individual", 0, staticmethod(line_of), ()

    def __init__(self, name: str, ledger: Ledger, queue: str, *, seed: int = 0, **options: Any) -> None:
        super().__init__(name, ledger, seed)
        self.queue = queue
        vars(self).update(options)
        self.held = deque()  # keys and ack ids that wait for their ACK
        self.patience = 1
        self.last = {}  # producer -> the number of its last message, on this connection
        self.suspects, self.receipts = {}, 0

    def connected(self) -> None:
        self.subscribe(*self.asks)

    def subscribe(self, *more: tuple[str, object]) -> None:
        self.last.clear()
        self.send(encoded("SUBSCRIBE", [("id", "0"), ("destination", self.queue), ("ack", self.mode), *more]))

    def lost(self) -> None:
        super().lost()
        self.held.clear()
        self.ledger.late += len(self.suspects)
        self.suspects.clear()

    def key_of(self, frame: Frame) -> str:
        return frame.headers["key"]

    def message(self, frame: Frame) -> None:
        key = self.key_of(frame)
        redelivered = frame.get("redelivered") == "true"
        suspicion = self.ledger.delivered(key, self.queue, frame.body, int(frame.headers["size"]), redelivered)
        if suspicion:
            self.suspects[key] = suspicion
        self.in_order(self.line(self, key, frame), key, redelivered)
        ack = frame.headers["ack" if self.version == "1.2" else "message-id"]
        if self.nack and not redelivered and self.random.randrange(self.nack) == 0:
            self.send(encoded("NACK", self.ack_headers(ack)))
        else:
            self.take(key, ack)

    def take(self, key: str, ack: str) -> None:
        self.held.append((key, ack))

    def in_order(self, line: str, key: str, redelivered: bool) -> None:
        # One that was cut off may still be there for the broker when it comes again: then what was redelivered is late.
        if not line or (redelivered and not (self.alone and self.ledger.strict)):
            return
        number = int(key.rpartition("-")[2])
        if number <= self.last.get(line, 0):
            self.ledger.problem("out of order", f"{self.name}: {key} after {self.last[line]}")
        self.last[line] = number

    def ack_headers(self, ack: str) -> list[tuple[str, object]]:
        return [("id", ack)] if self.version == "1.2" else [("message-id", ack), ("subscription", "0")]

    def pump(self) -> None:
        if len(self.held) < self.patience:
            return
        self.patience = self.random.randint(1, 40)
        while self.held:
            keys, ack = self.some()
            self.receipts += 1
            receipt = f"a-{self.receipts}"
            self.ledger.acking(keys)
            self.waiting[receipt] = keys
            self.send(encoded("ACK", [*self.ack_headers(ack), ("receipt", receipt)]))

    def some(self) -> tuple[list[str], str]:
        if self.mode == "client":
            keys = [key for key, _ in self.held]
            ack = self.held[-1][1]
            self.held.clear()
            return keys, ack
        key, ack = self.held.popleft()
        return [key], ack

    def done(self, receipt: str, keys: list[str]) -> None:
        for key in keys:
            suspicion = self.suspects.pop(key, None)
            if suspicion:
                self.ledger.confirm(suspicion, key)
        self.ledger.acked(keys)


class Mover(Consumer):
    """Consumes from one queue and sends to another, ACK and SEND in one transaction."""

    def __init__(self, name: str, ledger: Ledger, queue: str, target: str, *, seed: int = 0) -> None:
        super().__init__(name, ledger, queue, seed=seed)
        self.target, self.made = target, {}

    def lost(self) -> None:
        super().lost()
        self.made.clear()

    def pump(self) -> None:
        if len(self.held) < self.patience:
            return
        self.patience = self.random.randint(1, 10)
        self.receipts += 1
        name = f"m-{self.receipts}"
        self.send(encoded("BEGIN", [("transaction", name)]))
        taken = []
        self.made[name] = []
        for source, ack in self.held:
            taken.append(source)
            self.send(encoded("ACK", [("id", ack), ("transaction", name)]))
            key = self.next_key()
            self.made[name].append(key)
            self.ledger.sent(key, self.target, source=source)
            self.send_message(self.target, key, ("transaction", name))
        self.held.clear()
        self.ledger.acking(taken)
        self.waiting[name] = taken
        self.send(encoded("COMMIT", [("transaction", name), ("receipt", name)]))

    def done(self, receipt: str, keys: list[str]) -> None:
        super().done(receipt, keys)
        self.ledger.receipted(self.made.pop(receipt))


class Drainer(Consumer):
    """Empties a queue: ends when a message of its own, sent behind all others, has come and all is acknowledged."""

    dead, behind = False, ()  # headers that make its own message the last one

    def __init__(self, name: str, ledger: Ledger, queue: str, **options: Any) -> None:
        super().__init__(name, ledger, queue, **options)
        self.seen, self.over = 0, False

    def subscribe(self, *more: tuple[str, object]) -> None:
        super().subscribe(("include-seq", "seq"), *more)

    def connected(self) -> None:
        super().connected()
        end = [("destination", self.queue), ("key", "end"), ("of", self.name), ("persistent", "true"), *self.behind]
        self.send(encoded("SEND", end))

    def message(self, frame: Frame) -> None:
        key = self.key_of(frame)
        if key == "end" and frame.headers["of"] != self.name:  # a topic has several
            self.send(encoded("ACK", [("id", frame.headers["ack"])]))
            return
        if key == "end":
            self.over = True
            self.ledger.ended(self.name, int(frame.headers["seq"]))
            self.waiting["end"] = []
            self.send(encoded("ACK", [("id", frame.headers["ack"]), ("receipt", "end")]))
            return
        self.seen += 1
        self.ledger.drained(key, self.dead)
        if self.dead:
            self.take(key, frame.headers["ack"])
        else:
            super().message(frame)

    def pump(self) -> None:
        self.patience = 1
        super().pump()

    @property
    def finished(self) -> bool:
        return self.over and not self.held and not self.waiting
