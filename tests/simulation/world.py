"""One run: a plan is carried out, then everything is healed, drained and counted."""

import logging
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple
from unittest.mock import patch

from broker.audit import audit
from simulation import vfs
from simulation.clients import KEPT, KEYED, READ, CoreClient, RawClient, Resender, Side, make_client
from simulation.disk import Disk
from simulation.host import Host, Peer
from simulation.network import Clock, Link
from simulation.plan import Plan, Step
from simulation.records import LITTER, Violation
from simulation.rules import Rules
from simulation.watcher import Watcher, key_of

from stompcodec.broker.config import Config
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.routing import registry

#: Seconds within which a well-behaved pair gets its answers, once nothing is wrong with disk and broker.
_PATIENCE = 8.0
_PAIR = "/queue/pair"


def _hush(link: Link, args: dict[str, Any]) -> None:
    link.read(link.down, False)
    link.clock.after(args["for"], partial(link.read, link.down, True))


#: What befalls links.
_LINKS: dict[str, Callable[[Link, dict[str, Any]], object]] = {
    **{"link_cut": lambda link, args: link.cut(), "link_half": lambda link, args: link.cut(half=args["end"])},
    **{"link_stall": lambda link, args: link.stall(args["for"], link.up, link.down), "link_hush": _hush},
    "link_slow": lambda link, args: setattr(link.down, "slow", 50),
}


class Outcome(NamedTuple):
    plan: Plan
    fault: Exception | None
    frames: int

    @property
    def kind(self) -> str:
        """The same for all faults of a kind; "" if nothing broke."""
        if self.fault is None:
            return ""
        return self.fault.kind if isinstance(self.fault, Violation) else type(self.fault).__name__


_EACH = 3  # One message in that many cannot be written.


class Unwritable(Exception):
    """The fault. Nothing in the broker expects it."""


class _Failing(NamedTuple):
    """The conversion of a consumer, or none, which fails for some messages."""

    rules: Rules
    conversion: Any

    def apply(self, message: Message) -> Message:
        if self.rules.unwritable is not None:
            key = key_of(message.tail[message.tail.index(b"\n\n") + 2 :])
            if key is not None and key % _EACH == self.rules.unwritable:
                self.rules.failed.add(key)
                raise Unwritable(f"message {key}")
        return message if self.conversion is None else self.conversion.apply(message)


@contextmanager
def unwritable(rules: Rules) -> Iterator[None]:
    """Have deliveries fail while `rules.unwritable` is a number: those of the messages that have that rest."""

    def begin(*args: Any) -> Consumer:
        consumer = Consumer(*args)
        if consumer.version != "1.2":
            consumer.conversion = _Failing(rules, consumer.conversion)
        return consumer

    with patch.object(registry, "Consumer", begin):
        yield


class _Log(logging.Handler):
    def __init__(self, watcher: Watcher, disk: Disk) -> None:
        super().__init__(logging.INFO)
        self.watcher, self.disk = watcher, disk

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.watcher.tell(f"   log: {text}")
        if record.exc_info and not isinstance(record.exc_info[1], Unwritable):
            error = record.exc_info[1]
            self.watcher.faults.append(f"{text}: {type(error).__name__}: {error}")
        elif record.levelno >= logging.ERROR and not (record.exc_info or self.disk.faults or self.watcher.is_dying()):
            self.watcher.faults.append(text)


class World:
    def __init__(self, plan: Plan, folder: str, trace: Callable[[str], object] | None) -> None:
        self.plan, self.clock = plan, Clock()
        settings = plan.settings
        self.disk = Disk(random.Random(f"disk {plan.seed}"))
        config = Config(**plan.config)
        self.rules = Rules(self.clock, config, self.disk)
        self.watcher = Watcher(self.clock, self.rules, trace)
        log = logging.Logger("simulation", logging.INFO)
        log.addHandler(_Log(self.watcher, self.disk))
        self.host = Host(self.clock, random.Random(f"host {plan.seed}"), self.disk, folder, config, self.watcher, log)
        self.host.turn_delay, self.host.helper_delay = settings["turn_delay"], settings["helper_delay"]
        self.sync_cost, self.links = settings["sync_cost"], {}
        self.clients: dict[str, RawClient | CoreClient] = {
            name: make_client(self, name, spec) for name, spec in plan.clients.items()
        }
        self.excused = set()
        self.healing, self.last_progress = False, 0.0
        #: Of the pair: the number of the message under way, and when it was sent; when the world was last disturbed.
        self.pair_at = None
        self.disturbed, self.pair_key = 0.0, 10**8
        self.keyed_to = {}  # Idempotency keys that were given out: where they went.

    # ---- what clients see ----
    def connect(self, client: Any) -> Link | None:
        """A connection to the broker, if it is up."""
        if self.healing and client.name in self.clients:  # it wanted to come back later
            client.wanted = False
            return None
        if self.host.broker is None:
            return None
        settings = self.plan.settings
        link = Link(
            self.clock, random.Random(f"link {self.plan.seed} {client.name} {client.connections}"),
            settings["latency"], settings["splitting"],
        )  # fmt: skip
        link.client = Side(client, link)
        self.watcher.next = (client.name, not client.spec.get("rogue", False))
        peer = Peer(self.host, link, peer=client.name, whole_frames=client.spec.get("websocket", False))
        self.links[client.name] = link, peer
        return link

    def chance(self, *what: object) -> float:
        """From 0 to 1; the same for the same words and seed."""
        return zlib.crc32("/".join(map(str, (self.plan.seed, *what))).encode()) / 2**32

    def progress(self, name: str, what: str) -> None:
        """Somebody got an answer."""
        self.last_progress = self.clock.now
        if name == "taker" and what == "ACK":
            self.pair_at = None

    # ---- the plan ----
    def run(self) -> None:
        self._boot()
        self.disk.sync_cost = self.sync_cost
        for step in self.plan.steps:
            self.clock.after(step.at, partial(self._do, step))
        if self.plan.pair:
            self._start_pair()
            self._start_keyed()
        self.clock.run(self.plan.length)
        self._heal()
        self._drain()
        self.rules.balance()
        self.watcher.keyed.balance(self.keyed_to)
        self._rest()

    def _do(self, step: Step) -> None:
        if self.healing:
            return
        self.watcher.tell(f"* {step.who} {step.what} {step.args or ''}")
        if step.what in _LINKS:
            link = self._of(step.args)
            if link is not None:
                _LINKS[step.what](link, step.args)
        elif step.who == "world":
            getattr(self, f"_{step.what}")(step.args)
        else:
            getattr(self.clients[step.who], step.what)(step.args)

    # ---- what befalls the broker ----
    def _boot(self) -> None:
        if self.host.broker is None and not self.host.boot():
            if not self.disk.faults:
                raise Violation("the broker does not start", "though nothing is wrong with the disk")
            self.clock.after(0.5, self._boot)
        self.disturbed = self.clock.now

    def _down(self, seconds: float) -> None:
        self.disturbed = self.clock.now
        self.clock.after(seconds, self._boot)

    def _crash(self, args: dict[str, Any]) -> None:
        if self.host.broker is not None:
            self.host.crash()
            self._down(args["down"])

    def _stop(self, args: dict[str, Any]) -> None:
        if self.host.broker is not None:
            self.host.stop(args.get("turns", 100), args.get("full", 0))
            self._down(args["down"])

    def _crash_at_sync(self, args: dict[str, Any]) -> None:
        if self.host.broker is not None:
            self.host.crash_at_sync(args["count"])
            self._look_whether_up(self.host.boots)

    def _look_whether_up(self, boots: int) -> None:
        """The crash comes some time."""
        if self.host.boots != boots or self.healing:
            return
        if self.host.broker is None:
            self._down(0.0)
        else:
            self.disturbed = self.clock.now
            self.clock.after(0.2, partial(self._look_whether_up, boots))

    def _disk(self, args: dict[str, Any]) -> None:
        """It is "full", "failing" or slow ("sync_cost") for a time."""
        setattr(self.disk, args["what"], args["amount"])
        self.disturbed = self.clock.now + args["for"]
        self.clock.after(args["for"], self._well)

    def _well(self) -> None:
        disk = self.disk
        disk.full, disk.failing, disk.sync_cost = False, 0.0, self.sync_cost
        self.disturbed = max(self.disturbed, self.clock.now)

    def _unwritable(self, args: dict[str, Any]) -> None:
        self.rules.unwritable = args["rest"]
        self.clock.after(args["for"], partial(setattr, self.rules, "unwritable", None))

    # ---- what befalls links ----
    def _of(self, args: dict[str, Any]) -> Link | None:
        link, peer = self.links.get(args["client"], (None, None))
        if link is None or link.cut_off:
            return None
        seen = self.watcher.sessions.get(peer.session) if peer is not None else None
        if seen is not None:
            seen.excused = True
        return link

    # ---- the pair that must make progress ----
    def _start_pair(self) -> None:
        taker = {
            **{"kind": "raw", "receipts": 1.0},
            "subscriptions": [{"id": "0", "to": _PAIR, "ack": "client-individual"}],
        }
        self.clients["giver"] = make_client(self, "giver", {"kind": "raw"})
        self.clients["taker"] = make_client(self, "taker", taker)
        for name in ("giver", "taker"):
            self.clients[name].connect()
        self.clock.after(0.5, self._pair)

    def _is_linked(self, name: str) -> bool:
        link, peer = self.links.get(name, (None, None))
        return link is not None and not link.cut_off and peer is not None and peer.session in self.host.peers

    def _pair(self) -> None:
        if self.healing:
            return
        now, giver = self.clock.now, self.clients["giver"]
        if self.host.broker is None or self.disk.full or self.disk.failing:
            self.disturbed = now
        linked = self._is_linked("giver") and self._is_linked("taker")
        if not linked:  # one of them has not noticed yet
            self.disturbed, self.pair_at = now, None
        if self.pair_at is not None and now - max(self.pair_at, self.disturbed) > _PATIENCE:
            raise Violation("a stall", f"the pair has waited since {self.pair_at:.1f}")
        if self.pair_at is not None and self.pair_at < self.disturbed < now - _PATIENCE / 2:
            self.pair_at = None  # it was lost in the disturbance
        if linked and self.pair_at is None and isinstance(giver, RawClient) and giver.up:
            self.pair_key += 1
            self.pair_at = now
            giver.send({"to": _PAIR, "key": self.pair_key, "headers": {"persistent": "true"}})
        self.clock.after(0.5, self._pair)

    # ---- those who send with idempotency keys ----
    def _start_keyed(self) -> None:
        """Two that send the same keys, and a consumer of some of it."""
        spec = {"kind": "raw", "version": ("1.0", "1.1", "1.2")[int(3 * self.chance("keyed"))]}
        for name in ("keeper", "twin"):
            self.clients[name] = Resender(self, name, spec)
        reads = {"kind": "raw", "subscriptions": [{"id": "0", "to": READ, "ack": "auto"}]}
        self.clients["reader"] = make_client(self, "reader", reads)
        for name in ("keeper", "twin", "reader"):
            self.clients[name].connect()
        self.clock.after(0.4, self._give_keys)

    def _give_keys(self) -> None:
        if self.healing:
            return
        keeper, twin = self.clients["keeper"], self.clients["twin"]
        assert isinstance(keeper, Resender)
        assert isinstance(twin, Resender)
        group = len(self.keyed_to)
        draw = partial(self.chance, "keyed", group)
        keys = [f"key-{group + number}" for number in range(1 + int(3 * draw("many")))]
        to = KEPT if draw("to") < 0.5 else READ
        headers = {"persistent": "true"} if draw("persistent") < 0.8 else {}
        end = "" if draw("end") < 0.6 else "COMMIT" if draw("end") < 0.9 else "ABORT"
        self.keyed_to.update(dict.fromkeys(keys, to))
        keeper.give(keys, to, headers, end)
        if draw("twin") < 0.4:
            self.clock.after(0.1 * draw("later"), partial(twin.give, keys, to, headers, "" if end == "ABORT" else end))
        self.clock.after(0.05 + 0.4 * draw("next"), self._give_keys)

    # ---- the end ----
    def _heal(self) -> None:
        """Nothing is wrong any more, and nobody is there."""
        self.healing = True
        self._well()
        self.rules.unwritable = None
        self.disk.on_sync = None
        self.disk.sync_cost = 0.0
        self.watcher.tell("-- everything is well again")
        for client in self.clients.values():
            client.wanted = False
        for link, _peer in self.links.values():
            if not link.cut_off:
                link.cut()
        for peer in list(self.host.peers.values()):
            peer.lost()
        if self.host.broker is None:
            self.clock.run(self.clock.now + 1.0)
        if self.host.broker is None:
            self._boot()
        self.clock.run(self.clock.now + 0.5)

    def _drain(self) -> None:
        clock, rules, host = self.clock, self.rules, self.host
        collector = RawClient(self, "collector", {})
        collector.connect()
        owners = {}
        clock.run(clock.now + 0.5)
        subscribed = set()
        self.last_progress = clock.now
        latest = max(
            (m.due - clock.wall() + clock.now for m in rules.messages.values() if m.due is not None), default=0.0
        )
        give_up = max(clock.now, latest) + 120.0
        while clock.now < max(self.last_progress + 3.0, latest + 3.0):
            assert host.broker is not None
            names = {name for (_vhost, name), queue in host.broker.queues.items() if queue.total} | set(rules.homes)
            for name in sorted(names - subscribed):
                subscribed.add(name)
                mode = "auto" if name in LITTER + KEYED else "client-individual"
                collector.subscribe({"id": f"all-{len(subscribed)}", "to": name, "ack": mode})
            for home in [*rules.durables.values(), *rules.ghosts.values()]:
                client_id, _, name = home.name.partition(".")
                if client_id not in owners:
                    owners[client_id] = RawClient(self, f"owner {client_id}", {"client_id": client_id})
                    owners[client_id].connect()
                    clock.run(clock.now + 0.2)
                args = {"id": name, "to": home.topic, "ack": "client-individual", "durable-subscription-name": name}
                if home.selector is not None:
                    args["selector"] = home.selector
                owners[client_id].subscribe(args)
            clock.run(clock.now + 0.5)
            if clock.now > give_up:
                raise Violation("it never ends", "messages come again and again")
        for client in (collector, *owners.values()):
            client.disconnect({})
        clock.run(clock.now + 1.0)

    def _rest(self) -> None:
        """Nothing is left, in memory or on the disk."""
        clock, host = self.clock, self.host
        clock.run(clock.now + 70.0)
        broker = host.broker
        assert broker is not None
        left = {name: queue for (_, name), queue in broker.queues.items() if queue.total}
        if left:
            raise Violation("something is left", f"{left}")
        held = audit(broker)
        if held.queues or held.backlogs or held.delayed or held.batches or held.sessions or held.leaving:
            raise Violation("the account is wrong", f"nothing is left, and it has {held}")
        host.stop()
        if host.broker is None and not host.boot():
            raise Violation("the broker does not start", "after a clean stop")
        assert host.broker is not None
        left = {name: queue for (_, name), queue in host.broker.queues.items() if queue.total}
        if left:
            raise Violation("something is left on the disk", f"{left}")
        host.stop()


@cache
def _folder() -> str:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="stompcodec-simulation-", dir=base)
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run(plan: Plan, trace: Callable[[str], object] | None = None) -> Outcome:
    folder = _folder()
    for name in os.listdir(folder):  # of the last world, whose disk is gone
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    logger = logging.getLogger("stompcodec.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # lost connections are its daily bread
    with vfs.installed():
        world = World(plan, folder, trace)
        vfs.mount(folder, world.disk)
        faulty = any(step.what == "unwritable" for step in plan.steps)
        try:
            with unwritable(world.rules) if faulty else nullcontext():
                world.run()
            fault = None
        except Exception as error:
            fault = error
        finally:
            world.watcher.faults.clear()
            if world.host.broker is not None:
                world.host.crash()
            vfs.unmount(folder)
            logger.setLevel(level)
    return Outcome(plan, fault, world.watcher.frames)
