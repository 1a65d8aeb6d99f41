"""Large and small messages at random, to consumers behind transports of any pace: each once, whole, and in order."""

from broker.audit import difference
from broker.large import QUEUE, Slow, assert_empty, bench_of, pattern
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from profiles import examples

SIZES = st.sampled_from([0, 10, 999, 1000, 5000, 262_144, 300_000, 600_000])
ACKS = st.sampled_from(["auto", "client", "client-individual"])


class Machine(RuleBasedStateMachine):
    """One queue. What was sent is in it, or with a consumer that has not acknowledged it, or was delivered."""

    consumers = Bundle("consumers")

    def __init__(self):
        super().__init__()
        self.bench = bench_of(prefetch=3)
        self.sender = self.bench.peer()
        self.sent = 0
        self.sizes = {}
        self.done = set()
        self.open = []
        self.held = {}

    @rule(size=SIZES)
    def send(self, size):
        self.sent += 1
        self.sizes[str(self.sent)] = size
        self.sender.put(QUEUE, pattern(size), number=str(self.sent))
        self.sender.take()

    @rule(target=consumers, ack=ACKS, version=st.sampled_from(["1.0", "1.2"]))
    def subscribe(self, ack, version):
        peer = Slow(self.bench, version)
        peer.connect()
        peer.drain()
        peer.subscribe(QUEUE, ack=ack)
        self.open.append(peer)
        self.held[peer] = []
        self.look(peer, ack)
        peer.ack_mode = ack
        return peer

    @rule(peer=consumers)
    def drain(self, peer):
        if peer in self.held:
            peer.drain()
            self.look(peer, peer.ack_mode)

    @rule(peer=consumers)
    def acknowledge(self, peer):
        held = self.held.get(peer)
        if held:
            message = held[-1] if peer.ack_mode == "client" else held[0]
            self.held[peer] = [] if peer.ack_mode == "client" else held[1:]
            self.done.update(frame.headers["number"] for frame in held if frame not in self.held[peer])
            peer.ack(message)
            self.look(peer, peer.ack_mode)

    @rule(peer=consumers)
    def ask(self, peer):
        """Answers wait behind what is on its way, and harm nothing."""
        if peer in self.held:
            peer.send("BEGIN", transaction="t")
            peer.send("ABORT", transaction="t", receipt="r")
            self.look(peer, peer.ack_mode)

    @rule(peer=consumes(consumers))
    def lose(self, peer):
        """What was on its way in auto mode may be lost: it counts as delivered."""
        if peer in self.held:
            peer.lose()
            self.gone(peer)

    def gone(self, peer):
        del self.held[peer]
        self.open.remove(peer)

    def look(self, peer, ack):
        """At what has come: each whole, each once, in order but for what is redelivered."""
        for frame in peer.take():
            assert frame.command in ("MESSAGE", "RECEIPT"), frame
            if frame.command == "MESSAGE":
                number = frame.headers["number"]
                assert frame.body == pattern(self.sizes[number])
                assert number not in self.done
                if ack == "auto":
                    self.done.add(number)
                else:
                    self.held[peer].append(frame)

    @invariant()
    def files_are_those_of_large_messages(self):
        large = sum(size for size in self.sizes.values() if size >= 1000)
        assert 0 <= self.bench.broker.spool.octets <= large
        assert difference(self.bench.broker) == {}

    def teardown(self):
        """All that is left comes to one more consumer, in order; then nothing is left."""
        for peer in list(self.open):
            peer.lose()
            self.gone(peer)
        last = self.bench.peer()
        last.subscribe(QUEUE)
        numbers = []
        for frame in last.take():
            assert frame.body == pattern(self.sizes[frame.headers["number"]])
            numbers.append(int(frame.headers["number"]))
        assert numbers == sorted(numbers)
        assert not self.done & set(map(str, numbers))
        assert_empty(self.bench)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=examples(15), stateful_step_count=25)
