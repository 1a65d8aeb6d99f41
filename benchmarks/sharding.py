"""Simulate a broker that is split over processes: what N of them would give, with costs that were measured on one.

Such a broker does not exist: this calculation says whether it would be worth building. draw_sharding.py runs it
with the costs of sharding.json, which sharding_costs.py has measured, and writes the figures of docs/sharding.md.

The model. Destinations are owned by processes, by the hash of their names. A front accepts each connection, reads until
the first destination, and hands the connection over to the owner: its home. Frames for destinations of other owners
take a hop from the home to the owner, and so do their messages to consumers. Each process works in turns: everything
that has arrived, up to about 2 ms of it. Stored messages are committed group after group. Processes share the cores.
Clients have machines of their own, unless their costs are given. Everything is seeded, and time is in microseconds.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

__all__ = ["Costs", "Simulation", "Workload", "owner", "simulate"]

#: µs of a turn after which the rest waits for the next one.
TURN = 2000.0


@dataclass(frozen=True)
class Costs:
    """Measured costs, in CPU µs unless stated otherwise.

    Attributes:
        wake: waking a process that sleeps.
        socket: reading from a connection and writing to it, in a turn.
        message: SEND and MESSAGE.
        ack: ACK of a message.
        delivery: MESSAGE to each further subscriber of a topic.
        stored: what a stored message costs in addition.
        commit: a commit, however many messages it has.
        syncs: syncs per second that some processes do together, on one disk.
        disk: bytes per second that the disk takes at most.
        written: bytes that it is given for a stored message.
        link: a write to another process and its read there.
        frame: writing a frame and parsing it, half each; `ack_frame` of an ACK or a RECEIPT.
        network: µs from a client to the broker or back.
        client: of a message for the client, which then uses the same cores; None for machines of their own.
    """

    wake: float = 0.0
    socket: float = 0.0
    message: float = 1.0
    ack: float = 0.0
    delivery: float = 0.0
    stored: float = 0.0
    commit: float = 0.0
    syncs: tuple[tuple[int, float], ...] = ((1, 1e9),)
    disk: float = 1e12
    written: float = 0.0
    link: float = 0.0
    frame: float = 0.0
    ack_frame: float = 0.0
    network: float = 100.0
    client: float | None = None

    def sync(self, together: int, messages: int) -> float:
        """Return how many µs a sync of some messages takes while some processes sync, by the nearest measurements.

        >>> costs = Costs(syncs=((1, 1000.0), (4, 2000.0)), disk=1e6, written=500.0)
        >>> costs.sync(1, 0), costs.sync(2, 0), costs.sync(8, 0), costs.sync(1, 10)
        (1000.0, 1500.0, 4000.0, 5000.0)
        """
        return max(self._least_sync(together), 1e6 * together * messages * self.written / self.disk)

    def _least_sync(self, together: int) -> float:
        (low, low_rate), (high, high_rate) = self.syncs[0], self.syncs[-1]
        for one, other in pairwise(self.syncs):
            if one[0] <= together <= other[0]:
                (low, low_rate), (high, high_rate) = one, other
        if together >= self.syncs[-1][0]:  # the disk does no more than what was measured
            return 1e6 * together / high_rate
        rate = low_rate + (high_rate - low_rate) * (together - low) / max(1, high - low)
        return 1e6 * together / rate


@dataclass(frozen=True)
class Workload:
    """The traffic of the clients. Each producer has a consumer of its own, unless there is a topic.

    Attributes:
        producers: connections that send.
        window: messages of a producer that are under way at most.
        bundle: messages that are sent together, to one destination.
        destinations: that a connection uses; the first one decides where it lives.
        acked: messages are acknowledged one by one.
        stored: messages are stored, and the producer waits for receipts.
        hot: all connections use one queue.
        subscribers: of the one topic that all producers send to; 0 for queues.
    """

    producers: int
    window: int = 100
    bundle: int = 10
    destinations: int = 1
    acked: bool = False
    stored: bool = False
    hot: bool = False
    subscribers: int = 0


def owner(destination: str, processes: int) -> int:
    """Return which process owns a destination.

    >>> owner("/queue/a", 1), owner("/queue/a", 8) == owner("/queue/a", 8)
    (0, True)
    """
    return int.from_bytes(hashlib.blake2b(destination.encode(), digest_size=8).digest(), "big") % processes


# ---- processes and cores ----


@dataclass(frozen=True)
class Bundle:
    """Messages sent together: the number of their producer, its home, the owner of the destination, and how many."""

    number: int
    home: int
    queue: int
    count: int


@dataclass
class Entry:
    """Work for a process: its cost, its source, and what to do when it is done."""

    cost: float
    source: Any
    done: Callable[[], None]
    to: tuple[Any, ...] = ()
    """The other processes to which it writes."""
    is_link: bool = False
    """It came from another process."""


class Process:
    """A thread that works in turns.

    Args:
        wake: µs, if it slept.
        socket: µs of each connection that has sent something, in a turn.
        most: µs of a turn after which nothing more is begun in it.

    Attributes:
        busy: µs of CPU so far.
    """

    def __init__(self, simulation: Simulation, wake: float, socket: float, most: float = TURN) -> None:
        self.simulation, self.wake, self.socket, self.most = simulation, wake, socket, most
        self.inbox: deque[Entry] = deque()
        self.is_idle = True
        self.busy = 0.0

    def give(self, entry: Entry) -> None:
        self.inbox.append(entry)
        if self.is_idle:
            self.is_idle = False
            self.simulation.request(self, self.wake)

    def turn(self, wake: float) -> tuple[float, Callable[[], None]]:
        """Take a turn; return its µs and what to do after it."""
        costs, taken, spent = self.simulation.costs, [], wake
        sources, peers = set(), set()
        while self.inbox and (not taken or spent < self.most):
            entry = self.inbox.popleft()
            taken.append(entry)
            spent += entry.cost
            if entry.source is not None and entry.source not in sources:
                sources.add(entry.source)
                spent += costs.link / 2 if entry.is_link else self.socket
            for peer in entry.to:
                if peer not in peers:
                    peers.add(peer)
                    spent += costs.link / 2
        self.busy += spent

        def done() -> None:
            for entry in taken:
                entry.done()
            if self.inbox:
                self.simulation.request(self, 0.0)
            else:
                self.is_idle = True

        return spent, done


class Committer:
    """The thread of a process that commits one group after the other; receipts follow the sync.

    It shares the interpreter's lock with the loop, so that its work is work of the process. It syncs without the lock.
    """

    def __init__(self, simulation: Simulation, process: Process) -> None:
        self.simulation, self.process = simulation, process
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.group: list[tuple[int, Callable[[], None]]] = []
        self.commits = self.count = 0

    def store(self, count: int, done: Callable[[], None]) -> None:
        self.waiting.append((count, done))
        if not self.group:
            self._begin()

    def _begin(self) -> None:
        self.group, self.waiting = self.waiting, []
        costs = self.simulation.costs
        self.count = sum(count for count, _ in self.group)
        cost = costs.commit + costs.stored * self.count
        self.process.give(Entry(cost, None, self._sync))

    def _sync(self) -> None:
        self.simulation.syncing += 1
        self.simulation.after(self.simulation.costs.sync(self.simulation.syncing, self.count), self._synced)

    def _synced(self) -> None:
        self.simulation.syncing -= 1
        self.commits += 1
        group, self.group = self.group, []
        for _, done in group:
            done()
        if self.waiting:
            self._begin()


class Simulation:
    """Some processes on some cores, and their clients.

    Args:
        costs: of everything.
        workload: of the clients.
        processes: of the broker.
        cores: for all of them; by default each process has a core.
        seed: of the destinations.

    Attributes:
        sent, delivered, acknowledged, receipts: messages, or frames, so far.
        hops: frames that went from one process to another.
    """

    def __init__(self, costs: Costs, workload: Workload, processes: int, cores: int = 0, seed: int = 1) -> None:
        self.costs, self.workload = costs, workload
        self.now = 0.0
        self.sent = self.delivered = self.acknowledged = self.receipts = self.hops = 0
        self.sending = True
        self.syncing = 0
        self.rng = random.Random(f"{seed}/{processes}")
        self.shards = [Process(self, costs.wake, costs.socket) for _ in range(processes)]
        self.committers = [Committer(self, shard) for shard in self.shards]
        self.clients = [Process(self, 0.0, 0.0, 0.0) for _ in range(processes)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._reached = min(processes, workload.subscribers)  # the processes that have subscribers
        self._free = cores or processes
        self._ready: deque[tuple[Any, float]] = deque()
        self._connect()

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now + delay, self._number, action))

    def request(self, worker: Any, wake: float) -> None:
        """Let a process have a turn as soon as a core is free."""
        self._ready.append((worker, wake))
        self._schedule()

    def _schedule(self) -> None:
        while self._free and self._ready:
            worker, wake = self._ready.popleft()
            self._free -= 1
            spent, done = worker.turn(wake)
            self.after(spent, partial(self._ended, done))

    def _ended(self, done: Callable[[], None]) -> None:
        self._free += 1
        done()
        self._schedule()

    def run(self, until: float) -> None:
        """Go on until a time, or until nothing happens any more."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()

    def drain(self) -> None:
        """Let producers stop, and go on until nothing is under way."""
        self.sending = False
        self.run(float("inf"))

    # ---- clients ----

    def _connect(self) -> None:
        for number in range(self.workload.producers):
            queues = self._queues(number)
            for _ in range(max(1, self.workload.window // self.workload.bundle)):
                self.after(self.rng.random(), partial(self._send, number, queues))

    def _queues(self, number: int) -> list[str]:
        if self.workload.subscribers:
            return ["/topic/ticks"]
        if self.workload.hot:
            return ["/queue/hot"]
        if self.workload.destinations == 1:  # each process owns as many; `balance` is about those that do not
            return [_named(f"/queue/{number}", number % len(self.shards), len(self.shards))]
        return [f"/queue/{number}/{one}" for one in range(self.workload.destinations)]

    def _send(self, number: int, queues: list[str]) -> None:
        """Let a producer send a bundle, unless the time is over."""
        if not self.sending:
            return
        processes, count = len(self.shards), min(self.workload.bundle, self.workload.window)
        self.sent += count
        to = owner(queues[self.rng.randrange(len(queues))], processes)
        bundle = Bundle(number, owner(queues[0], processes), to, count)
        again = partial(self._on_client, bundle, partial(self._send, number, queues))
        self.after(self.costs.network, partial(self._arrive, bundle, again))

    def _on_client(self, bundle: Bundle, action: Callable[[], None]) -> None:
        """Let the client do something once it has an answer; it takes CPU here if its costs are given."""
        if self.costs.client is None:
            self.after(self.costs.network, action)
        else:
            client = self.clients[bundle.number % len(self.clients)]
            entry = Entry(self.costs.client * bundle.count, bundle.number, action)
            self.after(self.costs.network, partial(client.give, entry))

    # ---- the broker ----

    def _arrive(self, bundle: Bundle, again: Callable[[], None]) -> None:
        """Let the home of a connection read SENDs. When they are done, `again` lets the client send more."""
        home, queue, count = bundle.home, bundle.queue, bundle.count
        if self.workload.subscribers:
            peers = tuple(shard for shard in range(self._reached) if shard != queue)
        else:
            peers = () if home == queue else (home,)

        def owned() -> None:
            if self.workload.stored:
                receipts = partial(self._receipts, count, again)
                self.committers[queue].store(
                    count, self._hop(queue, home, count, receipts, self.costs.ack_frame * count)
                )
            if self.workload.subscribers:
                self._fan_out(bundle, again)
            else:
                delivered = partial(self._delivered, bundle, again)
                self._hop(queue, home, count, delivered, self.costs.frame * count)()

        cost = self.costs.message * count
        if home == queue:
            self.shards[home].give(Entry(cost, bundle.number, owned, peers))
        else:
            forward = self._hop(home, queue, count, owned, cost + self.costs.frame / 2 * count, peers)
            self.shards[home].give(Entry(self.costs.frame * count, bundle.number, forward, (queue,)))

    def _hop(
        self, sender: int, receiver: int, count: int, done: Callable[[], None], cost: float, to: tuple[int, ...] = ()
    ) -> Callable[[], None]:
        """Return what brings frames to another process, where they cost something, and then goes on."""
        if sender == receiver:
            return done

        def hop() -> None:
            self.hops += count
            entry = Entry(cost, ("link", sender), done, to, is_link=True)
            self.shards[receiver].give(entry)

        return hop

    def _receipts(self, count: int, again: Callable[[], None]) -> None:
        self.receipts += count
        again()

    def _delivered(self, bundle: Bundle, again: Callable[[], None]) -> None:
        """Count delivered messages; the producer sends more, the consumer acknowledges. Both have the same home."""
        self.delivered += bundle.count
        if not self.workload.stored:
            again()
        if self.workload.acked:
            self.after(2 * self.costs.network, partial(self._acknowledge, bundle))

    def _acknowledge(self, bundle: Bundle) -> None:
        """Let the home of a consumer read ACKs."""
        home, queue, count = bundle.home, bundle.queue, bundle.count
        done, cost = partial(self._acknowledged, count), self.costs.ack * count
        if home == queue:
            self.shards[home].give(Entry(cost, ("acks", bundle.number), done))
        else:
            forward = self._hop(home, queue, count, done, cost + self.costs.ack_frame / 2 * count)
            self.shards[home].give(Entry(self.costs.ack_frame * count, ("acks", bundle.number), forward, (queue,)))

    def _acknowledged(self, count: int) -> None:
        self.acknowledged += count

    def _fan_out(self, bundle: Bundle, again: Callable[[], None]) -> None:
        """Let messages of a topic take one hop to each process, and go from there to its subscribers."""
        share, more = divmod(self.workload.subscribers, self._reached)
        waiting = self._reached

        def one_done(deliveries: int) -> None:
            nonlocal waiting
            self.delivered += deliveries
            waiting -= 1
            if not waiting:
                again()

        for shard in range(self._reached):
            deliveries = (share + (shard < more)) * bundle.count
            cost, done = self.costs.delivery * deliveries, partial(one_done, deliveries)
            if shard == bundle.queue:
                self.shards[shard].give(Entry(cost, "local", done))
            else:
                self._hop(bundle.queue, shard, bundle.count, done, cost + self.costs.frame / 2 * bundle.count)()


def _named(name: str, wanted: int, processes: int) -> str:
    """Return a name like this one that a process owns."""
    return next(found for found in (f"{name}.{more}" for more in range(10**6)) if owner(found, processes) == wanted)


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation: messages per second (deliveries of a topic), and the share of CPU by process."""

    rate: float
    busy: tuple[float, ...] = field(default=())
    hops: float = 0.0
    """Hops of a message."""


def simulate(
    costs: Costs, workload: Workload, processes: int, cores: int = 0, *, seconds: float = 0.05, seed: int = 1
) -> Outcome:
    """Return the rates over some seconds, after half as many to warm up.

    >>> simulate(Costs(message=10.0), Workload(8), 1, seconds=1.0).rate
    100000.0
    """
    run = Simulation(costs, workload, processes, cores, seed)
    run.run(5e5 * seconds)
    before, hops, sent = (run.receipts if workload.stored else run.delivered), run.hops, run.sent
    busy = [shard.busy for shard in run.shards]
    run.run(1.5e6 * seconds)
    done = (run.receipts if workload.stored else run.delivered) - before
    shares = tuple((shard.busy - old) / (1e6 * seconds) for shard, old in zip(run.shards, busy))
    return Outcome(done / seconds, shares, (run.hops - hops) / max(1, run.sent - sent))


def balance(destinations: int, processes: int, exponent: float, seed: int = 1) -> float:
    """Return the speed-up that hashing leaves: all traffic over that of the process with most of it.

    Args:
        exponent: of Zipf's law: 0 if all destinations have the same traffic, 1 if the n-th has an n-th of the first's.

    >>> balance(10, 1, 0.0), balance(1, 8, 0.0)
    (1.0, 1.0)
    """
    weights = [0.0] * processes
    for number in range(destinations):
        weights[owner(f"/queue/{seed}/{number}", processes)] += (number + 1) ** -exponent
    return sum(weights) / max(weights)
