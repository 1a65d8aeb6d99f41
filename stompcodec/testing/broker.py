"""A broker for tests, on real sockets: it records frames, waits for expected ones, and fails on demand."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from stompcodec.arguments import checks
from stompcodec.broker import Config
from stompcodec.broker.auth import User
from stompcodec.broker.config import read_fields
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.addresses import Addresses, Naming
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.server import Server, serve
from stompcodec.broker.sessions.commands import HANDLERS
from stompcodec.broker.sessions.send import parts_of, targets_of
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.transaction import QueueOrTopic
from stompcodec.broker.settings import Kind
from stompcodec.broker.values import Refused
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.client.shell import outgoing
from stompcodec.codec import Frame, parse
from stompcodec.testing.faults import FaultProxy, LoopThread
from stompcodec.testing.frame_faults import FrameFaults
from stompcodec.testing.record import Record, RecordedFrame, lines
from stompcodec.testing.session import Watch, WatchedSession

__tracebackhide__ = True  # pytest shows the test's line instead


@checks()
class ShiftedClock:
    """The clock of the machine plus an offset that only grows.

    >>> clock = ShiftedClock()
    >>> before = clock.monotonic()
    >>> clock.reach(before + 3600)
    >>> clock.monotonic() - before >= 3600, clock.time() - time.time() > 3590
    (True, True)
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Return seconds since 1970."""
        return time.time() + self._ahead

    def reach(self, at: float) -> None:
        """Set the clock forward until `monotonic` returns at least `at`."""
        self._ahead = max(self._ahead, at - time.monotonic())


class _Names:
    """The names of destinations, as a broker of this configuration reads them in a SEND."""

    def __init__(self, config: Config) -> None:
        prefixes = config.queue_prefixes, config.topic_prefixes, config.temp_queue_prefix, config.temp_topic_prefix
        self._config, self.naming = config, Naming(*prefixes)
        self._addresses = Addresses(config, self.naming)
        #: The prefix that makes no difference to the names of queues.
        self._free = config.queue_prefixes[0] if config.exchanges or config.virtual_topics else ""

    def read(self, destination: str) -> tuple[Kind | None, str]:
        """Return the kind, None if a header of SEND decides it, and the name. Raise ValueError for a wrong one."""
        try:
            kind, prefix, rest, *_ = self._addresses.find(destination, None, False)
        except Refused as error:
            raise ValueError(f"{destination!r:.60}: {error.message}: {error.remedy}") from None
        is_open = self._config.routing_headers and not prefix and rest == destination
        is_free = kind is Kind.QUEUE and not prefix and not rest.startswith("/")
        return None if is_open else kind, (self._free if is_free else prefix) + rest

    def are_same(self, one: str, other: str) -> bool:
        """Return whether two names are of one destination."""
        try:
            (kind, name), (other_kind, other_name) = self.read(one), self.read(other)
        except ValueError:
            return one == other
        return name == other_name and (kind is other_kind or None in (kind, other_kind))

    def of_queues(self, destination: str) -> set[str]:
        """Return the names that the queue, or the queues, of a SEND can have. Raise ValueError if none can."""
        names: set[str] = set()
        for part in parts_of(destination, self._config.composite):
            kind, name = self.read(part)
            if kind in (Kind.TOPIC, Kind.TEMP_TOPIC):
                raise ValueError(f"{part!r:.60} is a topic, which keeps no messages")
            names |= {name, name.removeprefix(self._free)}
        return names


_T = TypeVar("_T")
#: The brokers that run now.
RUNNING: list[StompBroker] = []
#: No message is stored in a file, so that frames are recorded whole.
_NEVER_LARGE = 2**62


@checks()
class StompBroker:
    """A broker in its own thread: `with StompBroker() as broker:`, or `start` and `stop`.

    It is the broker of `stompcodec broker`. By default it is in memory, on a free port of 127.0.0.1, and accepts any
    login. Any thread may call its methods. Those that wait raise AssertionError after `timeout` seconds.

    Args:
        config: the configuration; None for the defaults of `stompcodec.broker.Config`.
        keep: the number of frames to keep on record.
        changes: fields of `Config`, or keys of a configuration file, without their tables unless a field has that name
            (`**{"web.page": True}`), to set. Values are those of the file, or of the fields.

    >>> import stompcodec.client as stomp
    >>> with StompBroker(prefetch=1) as broker, stomp.connect(broker.url) as client:
    ...     client.send("/queue/a", b"hello")
    ...     broker.expect("SEND", destination="/queue/a").body
    b'hello'
    """

    def __init__(self, config: Config | None = None, *, keep: int = 100_000, **changes: Any) -> None:
        base = Config(port=0, large=_NEVER_LARGE) if config is None else config.replace(large=_NEVER_LARGE)
        self.config = base.replace(**read_fields(changes, base))
        self.clock = ShiftedClock()
        """Its clock, which `advance` sets forward."""
        self._names = _Names(self.config)
        self.faults = FrameFaults(self._names.are_same)
        """Its faults; set them by the methods of `FrameFaults`."""
        self.record = Record(keep, self._names.are_same)
        """The recorded frames."""
        self._watch = Watch(self.record, self.clock, self.faults)
        self._server: Server | None = None
        self._thread: LoopThread | None = None

    def __repr__(self) -> str:
        return f"<StompBroker {'stopped' if self._server is None else self.url}>"

    # ---- start and stop ----
    def start(self) -> None:
        """Start listening. After `stop`, the ports are the same, and only the contents of `data` are kept.

        Raises:
            OSError, StoreError: as for `stompcodec.broker.serve`.
        """
        assert self._thread is None, "it runs already"
        self._thread = LoopThread.running("stomp-broker", self._start())
        RUNNING.append(self)

    async def _start(self) -> None:
        server = serve(self.config, clock=self.clock, sessions=partial(WatchedSession, self._watch))
        self._watch.begin()
        await server.start()
        ports = {"port": server.port, "ws_port": server.ws_port, "tls_port": server.tls_port}
        self.config = self.config.replace(**ports, ports=tuple(server.ports), legacy_port=server.legacy_port)
        self._server = server

    def stop(self, drain: float = 0.5) -> None:
        """Send ERROR to all clients, which have `drain` seconds to read it, and stop. Stopping twice does nothing.

        Raises the error of a `change` of the faults.
        """
        if self._thread is None:
            return
        assert self._server is not None
        RUNNING.remove(self)
        thread, server, self._thread, self._server = self._thread, self._server, None, None
        thread.end(server.stop(drain))
        self._watch.end()

    def end_test(self, passed: bool = True) -> None:
        """End a test, as pytest does: check the faults that it set, if it has `passed`, and remove them."""
        try:
            self._watch.end()
            if passed:
                self.faults.check()
        finally:
            self.faults.restore()

    def __enter__(self) -> StompBroker:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        self.end_test(kind is None)

    async def __aenter__(self) -> StompBroker:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.__exit__, *error)

    # ---- addresses ----
    @property
    def host(self) -> str:
        """The address on which it listens."""
        return self.config.host

    @property
    def port(self) -> int:
        """The port for STOMP over TCP."""
        assert self.config.port, "no listener for TCP, or the broker was never started"
        return self.config.port

    @property
    def url(self) -> str:
        """The URL for `stompcodec.client.connect`: stomp://127.0.0.1:PORT."""
        return f"stomp://{self.host}:{self.port}"

    @property
    def ws_url(self) -> str:
        """The URL for WebSocket, if the broker is started with `ws_port=0`."""
        assert self.config.ws_port, "no listener for WebSocket: give ws_port=0"
        return f"ws://{self.host}:{self.config.ws_port}"

    # ---- frames ----
    @property
    def frames(self) -> list[RecordedFrame]:
        """The recorded frames of both directions, in order, without heart-beats."""
        return self.record.frames()

    def expect(self, command: str, *, timeout: float = 2.0, **headers: Any) -> RecordedFrame:
        """Return a frame, waiting for it if necessary. Each frame is returned once: the next call needs another one.

        Args:
            command: SEND, SUBSCRIBE, ... of clients; MESSAGE, RECEIPT, ... of the broker.
            timeout: in seconds.
            headers: headers of the frame, where "_" stands for "-", and its `body`: a text, bytes, a compiled pattern
                to search for, a function that returns whether a value is right, or None for a header that is absent.

        Raises:
            AssertionError: no such frame in time. The message shows the last frames.
            TypeError, ValueError: no such frame can come.
        """
        return self.record.expect(command, headers, timeout=timeout)

    def expect_none(self, command: str, *, timeout: float = 0.2, **headers: Any) -> None:
        """Wait for `timeout` seconds, and raise AssertionError if there is a frame that `expect` would return."""
        self.record.expect_none(command, headers, timeout=timeout)

    def wait_subscribed(self, destination: str, *, count: int = 1, timeout: float = 2.0) -> None:
        """Wait until a destination has at least `count` subscriptions, so that messages sent now reach them."""

        self._names.read(destination)

        def subscriptions() -> int:
            consumers = (each for one in self._core.sessions.values() for each in one.consumers.values())
            return sum(self._names.are_same(each.destination, destination) for each in consumers)

        self._wait(lambda: subscriptions() >= count, timeout, lambda: f"{count} subscriptions to {destination}")

    def wait_connected(self, count: int = 1, *, timeout: float = 2.0) -> None:
        """Wait until at least `count` clients are connected."""
        self._wait(lambda: self._connected() >= count, timeout, lambda: f"{count} connected clients")

    def wait_disconnected(self, *, timeout: float = 2.0) -> None:
        """Wait until no client is connected."""
        self._wait(lambda: not self._core.sessions, timeout, lambda: "the end of all connections")

    def wait_queued(self, destination: str, count: int, *, timeout: float = 2.0) -> None:
        """Wait until a queue has exactly `count` messages: 0 means that all are acknowledged."""
        found, names = [0], self._names.of_queues(destination)

        def holds() -> bool:
            found[0] = self._queued(names)
            return found[0] == count

        def what() -> str:
            full = self.inject(lambda: [name for (_, name), queue in self._core.queues.items() if queue.count])
            others = ", ".join(full[:20]) or "none"
            return f"{count} messages in {destination}, where {found[0]} are (queues with messages: {others})"

        self._wait(holds, timeout, what)

    def put(self, destination: str, body: bytes | str = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a message without a client, which no frame records.

        Raises:
            ValueError: the broker refuses it, or nobody takes it.
        """
        message = outgoing(destination, body, headers)
        self.inject(partial(self._put, Frame("SEND", message.pairs, message.body)))

    def _put(self, frame: Frame) -> None:
        core = self._core
        session = Session(core, "put", core.now, peer="", secure=False, whole_frames=False, listener="")
        session.user, session.version, session.virtual_host = User(""), "1.2", core.virtual_host("/")
        try:
            if not any(_is_taken(target.queue) for target in targets_of(session, frame)):
                raise Refused("nobody takes the message", "It is for a topic without subscriptions.")
            HANDLERS["SEND"](session, frame)
        except Refused as error:
            raise ValueError(f"{error.message}: {error.remedy}") from None
        session.forget_targets()
        core.senders.pop(session, None)
        core.wake()

    def messages(self, destination: str) -> list[Frame]:
        """Return the messages of a queue in order, as MESSAGE frames, with delivered but unacknowledged ones."""
        names = self._names.of_queues(destination)
        return self.inject(lambda: [frame for queue in self._named(names) for frame in _frames_of(queue)])

    def queued(self, destination: str) -> int:
        """Return the number of messages in a queue, including delivered ones that are not acknowledged."""
        return self.inject(partial(self._queued, self._names.of_queues(destination)))

    def _queued(self, names: set[str]) -> int:
        return sum(queue.count for queue in self._named(names))

    def _named(self, names: set[str]) -> list[Queue]:
        hosts, temporary = self._core.hosts.values(), filter(self._names.naming.is_temporary, names)
        names = names.union(self._names.naming.owned(name, own) for name in temporary for own in self._core.sessions)
        found = [host.queues[name] for host in hosts for name in names if name in host.queues]
        durables = (durable.queue for host in hosts for durable in host.destinations.durables)
        return found or [queue for queue in durables if queue.name in names]

    def _connected(self) -> int:
        return sum(session.connected for session in self._core.sessions.values())

    @property
    def _core(self) -> Any:
        assert self._server is not None, "the broker does not run"
        return self._server.broker

    def inject(self, function: Callable[[], _T]) -> _T:
        """Call a function in the broker's thread, and return its result."""
        assert self._thread is not None, "the broker does not run"
        return self._thread.call(function)

    def _wait(self, holds: Callable[[], bool], timeout: float, what: Callable[[], str]) -> None:
        until = time.monotonic() + timeout
        while True:
            version = self.record.version
            if self.inject(holds):
                return
            left = until - time.monotonic()
            if left <= 0 or not self.record.wait(version, left):
                break
        raise AssertionError(f"no {what()} within {timeout:g} s; {self.record.expectations()}")

    async def expect_async(self, command: str, *, timeout: float = 2.0, **headers: Any) -> RecordedFrame:
        """Await `expect`, without blocking the event loop."""
        return await asyncio.to_thread(partial(self.expect, command, timeout=timeout, **headers))

    async def wait_subscribed_async(self, destination: str, *, count: int = 1, timeout: float = 2.0) -> None:
        """Await `wait_subscribed`, without blocking the event loop."""
        await asyncio.to_thread(self.wait_subscribed, destination, count=count, timeout=timeout)

    # ---- faults and time ----
    def advance(self, seconds: float) -> None:
        """Advance the broker's clock, for expiry, delayed messages and heart-beats. That of clients does not change.

        The broker reads nothing meanwhile, so that clients with heart-beats time out.
        """
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}: time cannot go back")
        assert self._server is not None, "the broker does not run"
        self.inject(partial(self._advance, self._server, self.clock.monotonic() + seconds))

    def _advance(self, server: Server, until: float) -> None:
        while (deadline := server.broker.next_deadline()) is not None and deadline < until:
            self.clock.reach(deadline)  # one by one: a late timer would excuse silent clients
            server.catch_up()
        self.clock.reach(until)
        server.catch_up()

    def cut(self) -> int:
        """Abort all connections, without ERROR. Return how many there were."""
        assert self._server is not None, "the broker does not run"
        connections = self._server.peers
        peers = self.inject(lambda: list(connections.values()))
        for peer in peers:
            self.inject(peer.wire.abort)
        return len(peers)

    def proxy(self, seed: int = 0) -> FaultProxy:
        """Return a proxy in front of it that cuts, delays, splits or drops bytes: `with broker.proxy() as proxy:`."""
        return FaultProxy((self.host, self.port), seed=seed)

    # ---- reports ----
    def expectations(self) -> str:
        """Return the frames as text, one per line: time, connection, direction (> to the broker, < from it), frame."""
        return "\n".join(lines(self.frames))

    def save(self, path: str | os.PathLike[str], direction: str = "in") -> int:
        """Write the frames of a direction to a capture, for `stompcodec decode` and `replay`. Return their number."""
        frames = [seen for seen in self.frames if seen.direction == direction]
        began = time.time() - (time.monotonic() - self._watch.real_start)
        with CaptureWriter(Path(path), single=True) as capture:
            for seen in frames:
                capture.append(octets_of(seen.frame), round((began + seen.at) * 1e6))
            capture.sync()
        return len(frames)


def _is_taken(target: QueueOrTopic | None) -> bool:
    """Return whether what is sent to a target has an effect; a topic may outlast its subscriptions."""
    return bool(target.consumers or target.durables) if isinstance(target, Topic) else target is not None


def _frames_of(queue: Queue) -> Iterator[Frame]:
    found = [*queue.messages, *queue.deferred.values(), *queue.returned.held.values()]
    found += [message for consumer in queue.consumers for message in consumer.unacked.values()]
    for message in sorted(found, key=lambda each: each.seq):
        yield from parse(b"MESSAGE\nmessage-id:%b\n%b" % (message.ident, message.tail), "1.2")
