"""What a broker has to do: it says which choices are right, follows the one made, and what is left undone (`rest`)."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Entry:
    order: int
    body: str
    persistent: bool
    attempts: int = 0
    tag: tuple[int, int] = (0, 0)  # Of its latest delivery.


@dataclass(eq=False)
class Consumer:
    peer: Any
    key: str
    queue: "Queue"
    mode: str
    window: int
    unacked: dict[str, Entry] = field(default_factory=dict)  # By ack id (or message-id), in the order of delivery.
    closed: bool = False

    @property
    def has_credit(self) -> bool:
        return self.peer.flowing and (self.mode == "auto" or len(self.unacked) < self.window)


@dataclass(eq=False)
class Queue:
    name: str
    ready: list[Entry] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)

    def put(self, entry: Entry) -> None:
        self.ready.append(entry)

    def back(self, entries: list[Entry], counted: list[Entry] | None = None) -> None:
        """Delivered in vain: back in their places. It was an attempt of all, or of those that are `counted`."""
        for entry in entries:
            entry.attempts = entry.attempts + 1 if counted is None or entry in counted else max(entry.attempts, 1)
        self.ready = sorted(self.ready + entries, key=lambda entry: entry.order)


@dataclass(eq=False)
class Held:
    consumer: Consumer
    taken: dict[str, Entry]
    accepted: bool


@dataclass(eq=False)
class Peer:
    """A session: its subscriptions and transactions by name."""

    flowing: bool = True
    consumers: dict[str, Consumer] = field(default_factory=dict)
    transactions: dict[str, list[Held | tuple[str, str, bool]]] = field(default_factory=dict)


class Broker:
    """Queues by name; topics as lists of consumers, each with a queue of its own."""

    def __init__(self, max_attempts: int) -> None:
        self.max_attempts, self.queues, self.topics, self.peers = max_attempts, {}, {}, []
        self.orders = 0

    def queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue(name))

    def entry(self, body: str, persistent: bool) -> Entry:
        self.orders += 1
        return Entry(self.orders, body, persistent)

    # ---- what peers do ----
    def put(self, name: str, body: str, persistent: bool) -> None:
        if name.startswith("/topic/"):
            entry = self.entry(body, persistent)
            for consumer in self.topics.get(name, []):
                consumer.queue.put(Entry(entry.order, body, False))
        else:
            self.queue(name).put(self.entry(body, persistent))

    def send(self, peer: Peer, name: str, body: str, persistent: bool, transaction: str | None) -> None:
        if transaction is None:
            self.put(name, body, persistent)
        else:
            peer.transactions[transaction].append((name, body, persistent))

    def subscribe(self, peer: Peer, key: str, name: str, mode: str, window: int) -> Consumer:
        if name.startswith("/topic/"):
            consumer = Consumer(peer, key, Queue(name), mode, window)
            self.topics.setdefault(name, []).append(consumer)
        else:
            consumer = Consumer(peer, key, self.queue(name), mode, window)
        consumer.queue.consumers.append(consumer)
        peer.consumers[key] = consumer
        return consumer

    def unsubscribe(self, peer: Peer, key: str) -> None:
        """Nothing that it had was tried in vain."""
        self._stop([peer.consumers.pop(key)], [])

    def settle(self, consumer: Consumer, ack_id: str, accepted: bool, transaction: str | None) -> None:
        ids = list(consumer.unacked)
        covered = ids[: ids.index(ack_id) + 1] if consumer.mode == "client" else [ack_id]
        taken = {name: consumer.unacked.pop(name) for name in covered}
        held = Held(consumer, taken, accepted)
        if transaction is None:
            self._apply([held])
        else:
            consumer.peer.transactions[transaction].append(held)

    def commit(self, peer: Peer, transaction: str) -> None:
        operations = peer.transactions.pop(transaction)
        for operation in operations:
            if isinstance(operation, tuple):
                self.put(*operation)
        self._apply([operation for operation in operations if isinstance(operation, Held)])

    def abort(self, peer: Peer, transaction: str) -> None:
        self._give_back(peer.transactions.pop(transaction))

    def refuse(self, peer: Peer, named: Entry | None = None) -> None:
        """A refused frame: an attempt of the message that it names, or else of the first delivered, and of no other."""
        for operations in list(peer.transactions.values()):
            self._give_back(operations, [])
        peer.transactions.clear()
        held = [each for each in peer.consumers.values() if each.unacked and not each.queue.name.startswith("/topic/")]
        firsts = sorted((next(iter(each.unacked.values())) for each in held), key=lambda entry: entry.order)
        counted = [named] if named is not None else firsts[:1]
        for consumer in held:
            for ack_id, entry in list(consumer.unacked.items()):
                if entry in counted and self._bury(consumer.queue, entry):
                    del consumer.unacked[ack_id]
        self.end(peer, counted)

    def end(self, peer: Peer, counted: list[Entry] | None = None) -> None:
        """A lost connection is an attempt of all that it had; DISCONNECT, or a refused frame, of those `counted`."""
        for operations in list(peer.transactions.values()):
            self._give_back(operations, counted)
        peer.transactions.clear()
        self._stop(list(peer.consumers.values()), counted)
        peer.consumers.clear()
        self.peers.remove(peer)

    def restart(self) -> None:
        """A tidy end, and a new start from the store."""
        for peer in list(self.peers):
            self.end(peer)
        for queue in self.queues.values():
            queue.ready = [entry for entry in queue.ready if entry.persistent]

    # ---- what becomes of messages ----
    def _apply(self, held: list[Held]) -> None:
        for operation in held:
            if operation.accepted:
                continue
            queue = operation.consumer.queue
            queue.back([entry for entry in operation.taken.values() if not self._bury(queue, entry)])

    def _bury(self, queue: Queue, entry: Entry) -> bool:
        if entry.attempts + 1 < self.max_attempts or queue.name.startswith("/queue/DLQ."):
            return False
        dead = self.queue("/queue/DLQ." + queue.name.rpartition("/")[2])
        dead.put(self.entry(entry.body, entry.persistent))
        return True

    def _give_back(self, operations: list[Held | tuple[str, str, bool]], counted: list[Entry] | None = None) -> None:
        for operation in operations:
            if isinstance(operation, Held):
                consumer = operation.consumer
                if consumer.closed:
                    consumer.queue.back(list(operation.taken.values()), counted)
                else:
                    consumer.unacked = dict(
                        sorted((consumer.unacked | operation.taken).items(), key=lambda item: item[1].tag)
                    )

    def _stop(self, consumers: list[Consumer], counted: list[Entry] | None = None) -> None:
        for consumer in consumers:
            consumer.closed = True
            consumer.queue.consumers.remove(consumer)
            if consumer in self.topics.get(consumer.queue.name, []):
                self.topics[consumer.queue.name].remove(consumer)
            else:
                consumer.queue.back(list(consumer.unacked.values()), counted)
            consumer.unacked = {}

    # ---- what the broker chose ----
    def delivered(self, deliveries: list[tuple[Consumer, str, str, int]]) -> None:
        """Follow what was delivered since the last look: (consumer, ack id or message-id, body, redelivery-count).
        Those of one consumer are in the order in which they came."""
        chosen = {}
        for number, (consumer, ack_id, body, attempts) in enumerate(deliveries):
            queue = consumer.queue
            found = [entry for entry in queue.ready if entry.body == body]
            assert found, f"{body} is not in {queue.name}"
            entry = found[0]
            assert entry.attempts == attempts, f"{body} was delivered {entry.attempts} times, and is said to {attempts}"
            queue.ready.remove(entry)
            entries = chosen.setdefault(id(queue), (queue, []))[1]
            mine = [other for other, its in entries if its is consumer]
            assert not mine or mine[-1].order < entry.order, f"{body} came too late to {consumer.key}"
            entries.append((entry, consumer))
            if consumer.mode != "auto":
                assert len(consumer.unacked) < consumer.window, "the window was passed"
                entry.tag = self.orders, number
                consumer.unacked[ack_id] = entry
        for queue, entries in chosen.values():
            latest = max(entry.order for entry, _ in entries)
            assert not queue.ready or queue.ready[0].order > latest, f"{queue.ready[0].body} was passed over"

    def rest(self) -> None:
        """Nothing may be READY while somebody could have it."""
        queues = [*self.queues.values(), *(c.queue for consumers in self.topics.values() for c in consumers)]
        for queue in queues:
            if queue.ready:
                waiting = [consumer for consumer in queue.consumers if consumer.has_credit]
                assert not waiting, f"{queue.ready[0].body} waits in {queue.name}, and {waiting[0].key} could have it"
