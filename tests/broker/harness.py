"""A broker without sockets: peers that give it octets and read its answers, and time that stands still until told."""

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.audit import difference

from stompcodec import Frame, Limits, Parser, serialize
from stompcodec.broker import hot
from stompcodec.broker.config import Config
from stompcodec.broker.core import Broker
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.settings import Pauses
from stompcodec.broker.storage.folder import HelperThread
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.errors import StoreError

#: Takes the road in C, or not, until the end of the test.
switch = hot.switch


class Bench:
    """A broker, its clocks, and the turns of a loop that flushes all sessions. It stores what says persistent:true."""

    def __init__(self, store: Any = None, *, helper: Any = None, **config: Any) -> None:
        self.now, self.date = 0.0, 1_000_000.0
        #: By how much the wall clock was set.
        self.ahead = 0.0
        if "artemis" in (config.get("dialect"), config.get("wildcards")) and not config.get("anycast_prefix"):
            config |= {"queue_prefixes": ("/queue/",), "topic_prefixes": ("/topic/",)}  # by which tests name things
        #: A NACK has no pause, and only messages with persistent:true are stored, unless a test wants it otherwise.
        self.config = Config(**{"redelivery_delay": Pauses(), "durable": "persistent", **config})
        self.store = MemoryStore() if store is None else store
        #: What the store wants the loop to call.
        self.soon = []
        clocks = {"wall": lambda: self.date, "monotonic": lambda: self.date - self.ahead}
        self.broker = Broker(self.config, self.store, **clocks, epoch="e", call_soon=self.soon.append, helper=helper)
        #: Set by the broker when something was done in the background.
        self.woken = False
        self.broker.wake = self._wake
        self.broker.open(self.now)
        self.peers = {}

    @classmethod
    def with_peers(cls, count: int, *args: Any, **config: Any) -> tuple[Any, ...]:
        """Return a bench and so many peers."""
        bench = cls(*args, **config)
        return bench, *(bench.peer() for _ in range(count))

    def peer(self, version: str = "1.2", *, connect: bool = True, **options: Any):
        peer = Peer(self, version, **options)
        if connect:
            peer.connect()
        return peer

    def client(self, version: str = "1.2", address: str = "", **headers: str):
        peer = self.peer(version, connect=False, peer=address)
        peer.connect(**headers)
        return peer

    def queue(self, name: str = "/queue/a") -> Queue:
        return self.broker.queues["/", name]

    def ready(self, name: str = "/queue/a") -> list[bytes]:
        queue = self.broker.queues.get(("/", name))
        return [] if queue is None else [message.tail[:-1].partition(b"\n\n")[2] for message in queue.messages]

    def left(self, name: str = "/queue/a") -> list[bytes]:
        peer = self.peer()
        peer.subscribe(name)
        return peer.bodies()

    def _wake(self) -> None:
        self.woken = True

    def turn(self) -> None:
        for _ in range(10_000):
            self.step()
            waiting = self.broker.dirty or self.broker._resumable or self.broker._opened or self.broker.quota.waiting
            if not (waiting or self.soon):
                assert not self.woken
                self.audit()
                return
        raise AssertionError("the broker never rests")

    def step(self) -> None:
        while self.soon:
            self.soon.pop(0)()
        self.woken = False
        for session in self.broker.turn(self.now):
            peer = self.peers.get(session)
            if peer is not None and peer.reading:
                peer.flush()

    @property
    def octets(self) -> int:
        """Of all messages in queues, without what is retained."""
        hosts = self.broker._virtual_hosts.values()
        queues = [queue for host in hosts for queue in host.queues.values()]
        queues += [durable.queue for host in hosts for durable in host.destinations.durables.by_name.values()]
        consumers = [consumer for peer in self.peers for consumer in peer.consumers.values()]
        queues += [consumer.queue for consumer in consumers if consumer.address is not None]
        delayed = [entry[2] for entry in self.broker.delayed._heap if not isinstance(entry[2], int)]
        return sum(queue.octets for queue in queues) + sum(message.size for message in delayed)

    def audit(self) -> None:
        found = difference(self.broker)
        assert found == {}, str(found)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            deadline = self.broker.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            self.broker.tick(self.now)
            self.turn()
        self.now = until

    def later(self, seconds: float) -> None:
        self.date += seconds
        self.wait(seconds)


class Peer:
    """One client of the broker."""

    def __init__(self, bench: Bench, version: str = "1.2", **options: Any) -> None:
        self.bench, self.version = bench, version
        self.whole_frames = options.get("whole_frames", False)
        self.session = bench.broker.attach(bench.now, **options)
        bench.peers[self.session] = self
        self.parser, self.inbox, self.chunks = Parser(None, limits=Limits()), [], []
        self.octets, self.closed = b"", False
        #: What comes is taken. False: it stays with the broker, as if the transport was full.
        self.reading = True

    def connect(self, **headers: str) -> Frame:
        entries = {"accept-version": self.version, "host": "/", "login": "guest", "passcode": "guest", **headers}
        if self.version == "1.0":
            del entries["accept-version"]
        self.send("CONNECT", **entries)
        return self.next("CONNECTED")

    def octets_of(self, command: str, body: bytes = b"", **headers: str) -> bytes:
        """A frame; underscores in names of headers are hyphens."""
        pairs = {name.rstrip("_").replace("_", "-"): value for name, value in headers.items()}
        return serialize(Frame(command, pairs, body), None if command in ("CONNECT", "STOMP") else self.version)

    def send(self, command: str, body: bytes = b"", **headers: str) -> None:
        self.raw(self.octets_of(command, body, **headers))

    def raw(self, octets: bytes) -> None:
        self.session.receive(octets, self.bench.now)
        self.bench.turn()

    def put(self, destination: str, body: bytes | str = b"", **headers: str) -> None:
        self.send("SEND", body.encode() if isinstance(body, str) else body, destination=destination, **headers)

    def subscribe(self, destination: str, id: str = "1", ack: str = "auto", **headers: str) -> None:
        self.send("SUBSCRIBE", destination=destination, id=id, ack=ack, **headers)

    def ack(self, message: Frame, command: str = "ACK", **headers: str) -> None:
        """ACK, or another command, for a MESSAGE, as the version spells it."""
        if self.version == "1.2":
            self.send(command, id=message.headers["ack"], **headers)
        else:
            names = {"message_id": message.headers["message-id"]}
            subscription = message.get("subscription")
            if subscription is not None:
                names["subscription"] = subscription
            self.send(command, **names, **headers)

    def nack(self, message: Frame, **headers: str) -> None:
        self.ack(message, "NACK", **headers)

    def flush(self) -> None:
        chunks = self.session.take_output()
        self.chunks += chunks
        self.octets += b"".join(chunks)
        for chunk in chunks if self.whole_frames else [b"".join(chunks)]:
            frames = list(self.parser.feed(chunk))
            assert not self.whole_frames or chunk == b"\n" or (len(frames) == 1 and chunk.endswith(b"\0\n"))
            for frame in frames:
                self.inbox.append(frame)
                if frame.command == "CONNECTED":
                    self.parser.version = frame.get("version", "1.0")
        if self.session.closing:
            self.closed = True

    def lose(self) -> None:
        self.session.lost(self.bench.now)
        self.bench.turn()

    def take(self) -> list[Frame]:
        frames, self.inbox = self.inbox, []
        return frames

    def next(self, command: str | None = None) -> Frame:
        assert self.inbox, f"no frame came; expected {command}"
        frame = self.inbox.pop(0)
        assert command is None or frame.command == command, frame
        return frame

    def bodies(self) -> list[bytes]:
        frames = self.take()
        assert all(frame.command == "MESSAGE" for frame in frames), frames
        return [frame.body for frame in frames]

    def error(self) -> Frame:
        frames = self.take()
        assert frames, "no frame came; expected ERROR"
        assert frames[-1].command == "ERROR", frames
        assert self.closed
        return frames[-1]


#: A bench with this configuration, and two peers.
bench_with_two = partial(Bench.with_peers, 2)


class AtOnce(HelperThread):
    def __init__(self) -> None:
        super().__init__("test")

    def give(self, job: Callable[[], object]) -> None:
        job()

    wait = stop = lambda self: None


class FaultyStore(MemoryStore):
    """A store whose commits fail on demand, and take as long as one likes."""

    def __init__(self, background: bool = False) -> None:
        #: The messages that the intakes of the open batch have taken, by queue and seq.
        self._taken = {}
        super().__init__()
        self.faulty, self.background, self.commits = False, background, 0
        self.job, self._held = None, {}

    @property
    def _puts(self) -> dict[tuple[str, int], Any]:
        for queue, taken in self._taken.items():
            self._appended.update({(queue, seq): message for seq, message in taken.items()})
            taken.clear()
        return self._appended

    @_puts.setter
    def _puts(self, puts: dict[tuple[str, int], Any]) -> None:
        self._appended, self._taken = puts, {}

    def intake(self, queue: str) -> Any:
        return self._taken.setdefault(queue, {}), 0, -1

    def hold_removals(self) -> bool:
        if not self._removes or self._clears or not self._removes.keys().isdisjoint(self._puts):
            return False
        self._held, self._removes = self._removes, {}
        return True

    def commit_later(self, done: Any, call_soon: Any) -> None:
        assert self.job is None, "one at a time"
        batch = MemoryStore()
        batch._puts, batch._removes, batch._updates = self._puts, self._removes, self._updates
        self._puts, self._removes, self._updates = {}, {}, {}
        self._removes, self._held = self._held, {}
        batch._clears, self._clears = self._clears, []
        batch._kept = self._kept
        batch._sent, batch._keys, self._keys = self._sent, self._keys, {}
        batch._changes, batch._subscribed, self._changes = self._changes, self._subscribed, {}
        batch._reserved, batch._mark = self._reserved, self._mark
        self.job = batch, done, call_soon
        self.commits += 1
        if not self.background:
            self.finish(at_once=True)

    def finish(self, at_once: bool = False) -> None:
        (batch, done, call_soon), self.job = self.job, None
        error = StoreError("the disk is full: make room") if self.faulty else None
        if error is None:
            batch.commit()
            self._mark = batch._mark
        if at_once:
            done(error)
        else:
            call_soon(partial(done, error))

    @property
    def bodies(self) -> list[str]:
        return [stored.tail[:-1].rpartition(b"\n\n")[2].decode() for stored in self.load()]
