"""Rounds of a broker that is killed, and of connections that are cut, under load; then the books are closed."""

import random
import time

from crash.features import CONFIG, feature_drainers, feature_workers
from crash.ledger import Ledger
from crash.process import BrokerProcess
from crash.wire import Load
from crash.workers import Base, Consumer, Drainer, Mover, Producer

from stompcodec.testing.faults import FaultProxy

_BACKLOG = 1500  # Producers rest while more messages than this are not acknowledged.
QUEUES = ("alone", "shared", "cumulative", "moved-from", "moved-to")


def queue_of(name: str) -> str:
    return f"/queue/crash.{name}"


def workers(ledger: Ledger, seed: int) -> list[Base]:
    """The load: every kind of program, each queue with its own rules."""
    alone, shared, cumulative, source, target = map(queue_of, QUEUES)
    return [
        *(Producer("p1", ledger, alone, seed=seed), Producer("p2", ledger, alone, batch=8, window=8, seed=seed)),
        *(Consumer("c1", ledger, alone, seed=seed), Producer("p3", ledger, shared, seed=seed)),
        Consumer("c2", ledger, shared, alone=False, nack=50, seed=seed),
        Consumer("c3", ledger, shared, alone=False, nack=50, version="1.1", seed=seed),
        Producer("p4", ledger, cumulative, window=1, seed=seed),
        Producer("p5", ledger, cumulative, window=200, seed=seed),
        *(Consumer("c4", ledger, cumulative, mode="client", seed=seed), Producer("p6", ledger, source, seed=seed)),
        *(Mover("m1", ledger, source, target, seed=seed), Consumer("c5", ledger, target, seed=seed)),
    ]


def throttle(load: Load, ledger: Ledger, quiet: bool = False) -> None:
    """Let producers rest while the consumers are behind, or to leave the broker to others."""
    resting = quiet or ledger.backlog > _BACKLOG
    for worker in load.workers:
        if isinstance(worker, Producer):
            worker.resting = resting


def _empty(broker: BrokerProcess, ledger: Ledger, features: bool) -> int:
    """Take all that is left in the queues, and look at dead letters; returns how much there was."""
    load = Load()
    load.port = broker.port
    queues = [(queue_of(name), False) for name in QUEUES] + [(f"/queue/DLQ.crash.{name}", True) for name in QUEUES]
    drainers = [Drainer(f"d{number}", ledger, queue, dead=dead) for number, (queue, dead) in enumerate(queues)]
    drainers += feature_drainers(ledger) if features else []
    load.workers += drainers
    try:
        load.run(lambda: all(drainer.finished for drainer in drainers), 120)
    finally:
        load.close()
    return sum(drainer.seen for drainer in drainers)


def close_books(broker: BrokerProcess, ledger: Ledger, features: bool = False) -> None:
    """Empty the queues, kill the broker once more, and see that they stay empty."""
    ledger.strict = True
    _empty(broker, ledger, features)
    broker.kill()
    broker.start()
    left = _empty(broker, ledger, features)
    if left:
        ledger.problem("came back after all was acknowledged", str(left))
    ledger.balance()


def kill_rounds(folder, rounds, *, seed=0, config="", progress=lambda _: None, enough=lambda _: True):
    """Kill the broker so many times, at a random moment each, and look for what it lost."""
    chance = random.Random(seed)
    ledger = Ledger(moved_from=frozenset([queue_of("moved-from")]))
    load = Load()
    load.workers += [*workers(ledger, seed), *feature_workers(ledger, seed)]
    broker = BrokerProcess(folder, config=CONFIG + config)
    try:
        for number in range(10 * rounds):
            if number >= rounds and enough(ledger):
                break
            broker.start()
            load.port = broker.port
            throttle(load, ledger, quiet=number % 3 == 2)
            load.for_seconds(chance.uniform(0.02, 0.6) * (1 + number // rounds))
            broker.kill()
            load.read_out()
            progress(number + 1)
        broker.start()
        close_books(broker, ledger, features=True)
    finally:
        load.close()
        broker.kill()
    return ledger


def cut_rounds(folder, cuts, *, seed=0, config="", progress=lambda _: None, enough=lambda _: True):
    """Cut connections by a proxy so many times, in the middle of frames too, and look for what was lost."""
    chance = random.Random(seed)
    ledger = Ledger(strict=False, moved_from=frozenset([queue_of("moved-from")]))
    load = Load()
    load.workers += workers(ledger, seed)
    with (
        BrokerProcess(folder, config=config or None) as broker,
        FaultProxy(("127.0.0.1", broker.port), seed=seed) as proxy,
    ):
        load.port = proxy.port
        shown = 0
        try:
            while proxy.cuts < cuts or (proxy.cuts < 10 * cuts and not enough(ledger)):
                for way in (proxy.rules.up, proxy.rules.down):
                    way.cut_after = way.piece = None
                throttle(load, ledger)
                load.for_seconds(chance.uniform(0.05, 0.4))
                _break(load, proxy, chance)
                if proxy.cuts // 50 > shown // 50:
                    progress(proxy.cuts)
                shown = proxy.cuts
            load.read_out(cut=proxy.cut)
            broker.stop()
            broker.start()
            close_books(broker, ledger)
        finally:
            load.close()
    return ledger


def _break(load: Load, proxy: FaultProxy, chance: random.Random) -> None:
    proxy.rules.reset = chance.random() < 0.5
    for way in (proxy.rules.up, proxy.rules.down):
        way.piece = chance.choice([None, None, 7, 1000])
        way.cut_after = (0, chance.choice([500, 20_000, 400_000]))
    enough, end = proxy.cuts + chance.randint(1, 12), time.monotonic() + 0.4
    load.run(lambda: proxy.cuts >= enough or time.monotonic() > end)
    if chance.random() < 0.2:
        proxy.cut()
