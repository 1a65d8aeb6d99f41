"""Plans: from a seed to a configuration, clients, and what happens when. A plan is data, so it can be made smaller."""

import random
from dataclasses import dataclass, field
from typing import Any

from simulation.records import SELECTORS, WRONGS

from stompcodec.broker.settings import Pauses

_QUEUES = ("/queue/a", "/queue/b", "/queue/c")
_TOPICS = ("/topic/t", "/topic/u")
_COLORS = ("red", "blue", "black", "green")
_GROUPS = ("g", "h", "i")
_MARKS = ("plain", "", "ünï", "a b", "%d")  # What no version has to escape, and what 1.2 has to.
#: Of the broker, its surroundings, SUBSCRIBE and SEND: in which part of the plans, what, and one of these.
_CONFIG = (
    *((0.2, "priority", (False,)), (0.3, "write_high", (1, 500, 5000)), (0.3, "max_queue_messages", (3, 20))),
    *((0.2, "dead_letter_expired", (True,)), (0.5, "window_messages", (1, 1, 3, 100))),
)
_SETTINGS = (
    *(("latency", (0.0, 0.002, 0.05)), ("splitting", (0.0, 0.3, 0.9)), ("sync_cost", (0.0, 0.0001, 0.002, 0.02))),
    *(("turn_delay", (0.0, 0.001, 0.01)), ("helper_delay", (0.0, 0.005, 0.1))),
)
_LIMITS = ((0.3, "prefetch-count", (1, 3, 50)), (0.25, "selector", tuple(sorted(SELECTORS))))
_HEADERS = (
    *((0.6, "persistent", ("true",)), (0.2, "priority", tuple(range(10)))),
    *((0.15, "expiration", (1, 300, 2000, 100_000)), (0.1, "delay", (1, 500, 3000))),
)


def _some(rng: random.Random, rows: tuple[tuple[float, str, tuple[Any, ...]], ...]) -> dict[str, Any]:
    drawn = ((name, values) for part, name, values in rows if rng.random() < part)
    return {name: rng.choice(values) if len(values) > 1 else values[0] for name, values in drawn}


@dataclass(frozen=True)
class Step:
    """At a time somebody does something. `who` is a client, or "world"."""

    at: float
    who: str
    what: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.at:8.3f} {self.who} {self.what} {self.args or ''}"


@dataclass(frozen=True)
class Plan:
    seed: int
    config: dict[str, Any]
    settings: dict[str, Any]
    clients: dict[str, dict[str, Any]]
    steps: tuple[Step, ...]
    length: float
    pair: bool = True

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.length:g} s, {self.config}", f"{self.settings}"]
        lines += [f"{name}: {spec}" for name, spec in self.clients.items()]
        lines += map(str, self.steps)
        return "\n".join(lines)


class _Maker:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(f"plan {seed}")
        self.length, self.key = self.rng.choice((6.0, 12.0, 25.0)), 0
        self.steps, self.clients = [], {}

    def make(self) -> Plan:
        rng = self.rng
        for number in range(rng.randint(2, 5)):
            self._client(f"c{number}")
        if rng.random() < 0.5:
            self._rogue("rogue")
        faults = rng.choice(("none", "network", "crash", "disk", "all", "all"))
        if faults in ("network", "all"):
            self._network_faults()
        if faults in ("crash", "all"):
            self._crashes()
        if faults in ("disk", "all"):
            self._disk_faults()
        self._more(random.Random(f"more {self.seed}"))
        self._last(random.Random(f"last {self.seed}"))
        self.steps.sort(key=lambda step: step.at)
        return Plan(self.seed, self._config(), self._settings(faults), self.clients, tuple(self.steps), self.length)

    # ---- the broker and its surroundings ----
    def _config(self) -> dict[str, Any]:
        rng = self.rng
        config = {"prefetch": rng.choice((1, 2, 10, 100)), "max_attempts": rng.choice((1, 2, 3, 6))}
        config["durable"] = "all" if rng.random() < 0.2 else "persistent"
        config |= _some(rng, _CONFIG)
        moves = any(spec.get("move") for spec in self.clients.values())  # our client undoes ACKs by ABORT
        if rng.random() < 0.2 and not moves:
            config["transactional_acks"] = False
        if random.Random(f"pauses {self.seed}").random() < 0.7:
            config["redelivery_delay"] = Pauses()  # otherwise 0.1 s, which doubles
        return config

    def _settings(self, faults: str) -> dict[str, Any]:
        return {**{name: self.rng.choice(values) for name, values in _SETTINGS}, "faults": faults}

    def _crashes(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            what = rng.choice(("crash", "crash", "crash_at_sync", "stop"))
            args = {"down": rng.choice((0.05, 0.5, 2.0))}
            if what == "crash_at_sync":
                args["count"] = rng.randint(1, 12)
            self._step("world", what, args)

    def _disk_faults(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            what = rng.choice(("full", "failing", "sync_cost"))
            amount = {"full": 1, "failing": rng.choice((0.02, 0.2, 1.0)), "sync_cost": rng.choice((0.05, 0.3))}[what]
            self._step("world", "disk", {"what": what, "amount": amount, "for": rng.choice((0.2, 1.0, 3.0))})

    def _network_faults(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 8)):
            name = rng.choice(sorted(self.clients))
            what = rng.choice(("cut", "cut", "half", "stall", "hush", "slow"))
            args: dict[str, Any] = {"client": name}
            if what == "half":
                args["end"] = rng.choice(("client", "broker"))
            if what in ("stall", "hush", "slow"):
                args["for"] = rng.choice((0.2, 1.0, 4.0))
            self._step("world", f"link_{what}", args)

    def _step(self, who: str, what: str, args: dict[str, Any]) -> None:
        self.steps.append(Step(round(self.rng.uniform(0.1, self.length), 4), who, what, args))

    def _more(self, rng: random.Random) -> None:
        """What came to the plans later; the rest of them is the same without."""
        sends = [step for step in self.steps if step.what in ("send", "transact")]
        if rng.random() < 0.3:
            for step in sends:
                if rng.random() < 0.5:
                    step.args["headers"]["message_group"] = rng.choice(_GROUPS)
        if rng.random() < 0.15:
            args: dict[str, Any] = {"rest": rng.randint(0, 2), "for": rng.choice((1.0, 4.0))}
            self.steps.append(Step(round(rng.uniform(0.1, self.length), 4), "world", "unwritable", args))
        if sends and rng.random() < 0.2:  # the end comes while it is being stored or delivered
            at = round(rng.choice(sends).at + rng.choice((0.0, 0.01, 0.1)) * rng.random(), 4)
            self.steps.append(Step(at, "world", rng.choice(("crash", "stop")), {"down": 0.05}))

    def _last(self, rng: random.Random) -> None:
        """A stop whose last commit may fail, though the disk is well again behind it."""
        sends = [step for step in self.steps if step.what in ("send", "transact")]
        if sends and rng.random() < 0.15:
            at = round(rng.choice(sends).at + rng.choice((0.01, 0.1, 0.5)) * rng.random(), 4)
            args = {"down": 0.05, "turns": rng.choice((0, 0, 100)), "full": rng.choice((1, 1, 2))}
            self.steps.append(Step(at, "world", "stop", args))

    # ---- clients ----
    def _client(self, name: str) -> None:
        rng = self.rng
        spec = {"kind": rng.choice(("core", "raw", "raw"))}
        if spec["kind"] == "raw":
            spec["version"] = rng.choice(("1.0", "1.1", "1.2", "1.2"))
        else:
            spec["versions"] = rng.choice((("1.0", "1.1", "1.2"), ("1.1",), ("1.2",)))
            spec["move"] = rng.choice((0.0, 0.0, 0.5))
            spec["move_to"] = rng.choice(_QUEUES)
            if spec["move"]:
                spec["versions"] = ("1.2",)
            if rng.random() < 0.3:
                spec["beat"] = (1000, 1000)
        spec["client_id"] = f"id-{name}"
        spec["nack"] = rng.choice((0.0, 0.0, 0.1, 0.4))
        spec["hold"] = rng.choice((0.0, 0.0, 0.05, 0.3))
        spec["delay"] = rng.choice((0.0, 0.0, 0.05, 1.0))
        if spec["kind"] == "raw" and rng.random() < 0.2:
            spec["websocket"] = True
        self.clients[name] = spec
        spec["subscriptions"] = [self._subscription(name, number) for number in range(rng.choice((0, 1, 1, 2, 3)))]
        self.steps.append(Step(round(rng.uniform(0, 0.5), 4), name, "connect"))
        for _ in range(rng.randint(2, 14)):
            self._act(name, spec)

    def _rogue(self, name: str) -> None:
        """A client that behaves, and then does not."""
        rng = self.rng
        self._client(name)
        spec = self.clients[name]
        self.clients[name] = {
            **{"kind": "raw", "version": rng.choice(("1.0", "1.1", "1.2", "1.2")), "rogue": True},
            **{key: spec[key] for key in ("client_id", "nack", "hold", "delay", "subscriptions")},
        }
        for _ in range(rng.randint(1, 6)):
            self._step(name, "wrong", {"name": rng.choice(sorted(WRONGS)), "for": rng.choice((0.1, 3.0))})

    def _subscription(self, name: str, number: int) -> dict[str, Any]:
        rng = self.rng
        args: dict[str, Any] = {
            **{"id": f"s{number}", "to": rng.choice(_QUEUES + _QUEUES + _TOPICS)},
            "ack": rng.choice(("auto", "client", "client-individual", "client-individual")),
        }
        args |= _some(rng, _LIMITS)
        if args["to"].startswith("/topic/") and rng.random() < 0.6:
            args["durable-subscription-name"] = f"d{number}"
        if args["to"].startswith("/queue/") and rng.random() < 0.1:
            args["to"] = f"/queue/DLQ.{args['to'][-1]}"
        return args

    def _act(self, name: str, spec: dict[str, Any]) -> None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.7:
            self._send(name)
        elif draw < 0.82:
            count, message = rng.randint(1, 4), self._message()
            to = [rng.choice(_QUEUES + _TOPICS) for _ in range(count)]
            args = {**message, "to": to, "key": self._keys(count)}
            args["headers"].pop("delay", None)
            args["end"] = rng.choice(("COMMIT", "COMMIT", "COMMIT", "ABORT", "later", "never"))
            self._step(name, "transact", args)
        elif draw < 0.9:
            if spec["kind"] == "raw":
                self._step(name, "subscribe", self._subscription(name, rng.randint(3, 5)))
            else:
                self._step(name, "disconnect", {"again": rng.choice((0.1, 1.0))})
        elif draw < 0.95:
            args = {"id": f"s{rng.randint(0, 5)}", "delete": rng.random() < 0.5}
            self._step(name, "unsubscribe", args)
        else:
            self._step(name, "disconnect", {"again": rng.choice((0.1, 1.0))})

    def _send(self, name: str) -> None:
        rng = self.rng
        args = {**self._message(), "to": rng.choice(_QUEUES + _TOPICS), "count": rng.choice((1, 1, 3, 10, 30))}
        args["key"] = self._keys(args["count"])
        args["receipt"] = rng.random() < 0.7
        if args["to"].startswith("/topic/"):
            args["headers"].pop("delay", None)
        self._step(name, "send", args)

    def _message(self) -> dict[str, Any]:
        rng = self.rng
        headers = {"color": rng.choice(_COLORS), "n": rng.randint(0, 9), "mark": rng.choice(_MARKS)}
        headers |= _some(rng, _HEADERS)
        return {"headers": headers, "size": rng.choice((0, 1, 100, 100, 3000))}

    def _keys(self, count: int) -> int:
        first = self.key + 1
        self.key += count
        return first


def plan_of(seed: int) -> Plan:
    return _Maker(seed).make()
