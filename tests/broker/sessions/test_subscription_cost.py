"""To subscribe, to unsubscribe and to be lost costs the same however many others there are. Counted in bytecodes."""

import tracemalloc

import pytest
from broker.harness import Bench
from broker.loop import bytecodes

pytestmark = pytest.mark.long
FEW, MANY = 100, 400
#: Operations that are counted one by one. Some of them pay for many: where a table grows.
OPERATIONS = 20
#: Subscriptions beside which a copy of one pointer for each stands out from what an operation takes.
COPIED = 2000
NAMED = "durable-subscription-name"
#: Kind of a SUBSCRIBE -> its headers; {} is its number.
KINDS = {
    **{"topic": {"destination": "/topic/a"}, "topics": {"destination": "/topic/{}"}},
    **{"pattern": {"destination": "/topic/a.*"}, "patterns": {"destination": "/topic/a.*.{}.>"}},
    **{"queue": {"destination": "/queue/a"}, "queues": {"destination": "/queue/{}"}},
    "acknowledging": {"destination": "/queue/a", "ack": "client", "prefetch-count": "1"},
    "selecting": {"destination": "/queue/a", "selector": "a = {}"},
    "exclusive": {"destination": "/queue/a", "exclusive": "true"},
    "priorities": {"destination": "/queue/a", "priority": "{}"},
    "browsing": {"destination": "/queue/a", "browser": "true", "browser-end": "false"},
    "durable": {"destination": "/topic/a", NAMED: "{}"},
    "durable pattern": {"destination": "/topic/a.>", NAMED: "{}"},
    "selecting durable": {"destination": "/topic/a", NAMED: "{}", "selector": "a = {}"},
    "shared durable": {"destination": "/topic/a", "id": "all", "durable": "true", "auto-delete": "false"},
    **{"temporary": {"destination": "/temp-queue/{}"}, "temporary topic": {"destination": "/temp-topic/{}"}},
}


def subscription(kind, number):
    return {"id": str(number), **{name: value.format(number) for name, value in KINDS[kind].items()}}


class Crowd:
    """Many subscriptions: of one session, or of one session each. Deeds are returned, to be called."""

    def __init__(self, kind, alone):
        self.kind, self.alone, self.number, self.peers = kind, alone, 0, []
        most = dict.fromkeys(
            ("max_subscriptions", "max_destinations", "max_connections", "max_unacked", "large"), 10**6
        )
        self.bench = Bench(wildcards="activemq", **most)
        if alone:
            self.connect()

    def connect(self):
        self.peers.append(peer := self.bench.peer(connect=False))
        peer.session.receive(b"CONNECT\naccept-version:1.2\nhost:/\nclient-id:%d\n\n\0" % (len(self.peers) - 1), 0.0)

    def deed(self, peer, command, number, *names):
        headers = {key: each for key, each in subscription(self.kind, number).items() if not names or key in names}
        octets = peer.octets_of(command, **headers)
        return lambda: peer.session.receive(octets, 0.0)

    def join(self):
        if not self.alone:
            self.connect()
        self.number += 1
        return self.deed(self.peers[-1], "SUBSCRIBE", self.number)

    def grow(self, count):
        while self.number < count:
            self.join()()
        self.rest()

    def rest(self):
        self.bench.turn()
        assert not any(peer.closed for peer in self.peers)

    def leave(self, number):
        return self.deed(self.peers[0 if self.alone else number - 1], "UNSUBSCRIBE", number, "id", "destination")

    def lose(self, number):
        return lambda: self.peers[number - 1].session.lost(0.0)


def costs(kind, alone, size):
    """The usual cost of each way to come and to go, beside so many others: the median."""
    crowd = Crowd(kind, alone)
    crowd.grow(size)
    step = size // 2 // OPERATIONS  # from all over the place
    ways = {
        **{"joins": lambda number: crowd.join(), "leaves": lambda number: crowd.leave(1 + number * step)},
        "losses": lambda number: crowd.lose(size // 2 + 1 + number * step),
    }
    found = {}
    for way in list(ways)[: 2 if alone else 3]:
        actions = [ways[way](number) for number in range(OPERATIONS)]
        found[way] = sorted(map(bytecodes, actions))[OPERATIONS // 2]
        if way == "joins":
            crowd.rest()
    crowd.bench.turn()
    return found


@pytest.mark.parametrize(
    ("kind", "alone"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in ("topics", "queue", "durable"))]
)
def test_the_last_one_costs_what_the_first_ones_did(kind, alone):
    few, many = costs(kind, alone, FEW), costs(kind, alone, MANY)
    assert {way: many[way] <= 1.3 * few[way] for way in many} == dict.fromkeys(many, True), (few, many)


@pytest.mark.parametrize("kind", ["topic", "queue", "selecting", "pattern"])
def test_nothing_is_copied_that_grows_with_the_others(kind):
    """Bytecodes do not show what is copied in one go; memory does."""
    crowd = Crowd(kind, alone=False)
    crowd.grow(COPIED)
    actions = [crowd.join() for _ in range(OPERATIONS)] + [crowd.lose(100 * number + 1) for number in range(OPERATIONS)]
    peaks = []
    tracemalloc.start()
    try:
        for action in actions:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            action()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert sorted(peaks)[len(peaks) * 9 // 10] < 8 * COPIED  # one pointer for each
