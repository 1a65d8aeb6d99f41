"""Idempotency keys as a state machine: sessions that come and go, transactions, failed commits, restarts, time."""

from broker.harness import Bench, FaultyStore
from broker.keyed import QUEUE, held
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from profiles import examples

_WINDOW = 1000.0
KEYS = st.integers(0, 2)
USERS = st.sampled_from(["a", "b"])
KINDS = st.sampled_from([True, True, False])


class Machine(RuleBasedStateMachine):
    """Two clients of one scope send the same few keys.

    What the broker may hold follows from what had a RECEIPT: that is there once, and nothing is there twice.
    """

    def __init__(self):
        super().__init__()
        self.store = FaultyStore(background=True)
        self.peers = {}
        #: By body: whether it is stored.
        self.promised = {}
        #: What each receipt of a client promises.
        self.waiting = {"a": [], "b": []}
        self.open = {}
        self.start()

    def start(self):
        self.bench = Bench(self.store, key_window=_WINDOW, window_messages=3)

    def peer(self, name):
        peer = self.peers.get(name)
        if peer is None or peer.closed:
            self.open.pop(name, None)
            self.waiting[name] = []
            peer = self.peers[name] = self.bench.peer(connect=False)
            peer.connect()
        return peer

    def look(self):
        """Take the answers of all."""
        for name, peer in self.peers.items():
            for frame in peer.take():
                if frame.command == "RECEIPT":
                    self.promised.update(self.waiting[name].pop(0))

    def send(self, name, key, stored, **more):
        body = f"{key}{stored:d}"
        headers = {"idempotency_key": f"{key}{stored:d}", "persistent": str(stored).lower(), **more}
        self.peer(name).put(QUEUE, body, **headers)
        return body, stored

    @rule(name=USERS, key=KEYS, stored=KINDS)
    def send_one(self, name, key, stored):
        self.peer(name)
        self.waiting[name].append([(f"{key}{stored:d}", stored)])
        self.send(name, key, stored, receipt="r")
        self.look()

    @rule(name=USERS, keys=st.lists(st.tuples(KEYS, KINDS), max_size=4))
    def begin(self, name, keys):
        peer = self.peer(name)
        if name in self.open:
            return
        peer.send("BEGIN", transaction="t")
        self.open[name] = [self.send(name, key, stored, transaction="t") for key, stored in keys]

    @rule(name=USERS, command=st.sampled_from(["COMMIT", "COMMIT", "ABORT"]))
    def end(self, name, command):
        peer = self.peer(name)
        sent = self.open.pop(name, None)
        if sent is None:
            return
        self.waiting[name].append(sent if command == "COMMIT" else [])
        peer.send(command, transaction="t", receipt="r")
        self.look()

    @rule(fails=st.booleans())
    def disk(self, fails):
        """A commit ends."""
        if self.store.job is not None:
            self.store.faulty = fails
            self.store.finish()
            self.store.faulty = False
            self.bench.turn()
            self.look()

    @rule(name=USERS)
    def lose(self, name):
        self.peer(name).lose()
        del self.peers[name]
        self.open.pop(name, None)

    @rule()
    def restart(self):
        """The broker is killed: what no commit has written is lost."""
        kept = self.store._kept, self.store._sent, self.store._mark
        self.store = FaultyStore(background=True)
        self.store._kept, self.store._sent, self.store._mark = kept
        self.peers.clear()
        self.open.clear()
        self.promised = {body: stored for body, stored in self.promised.items() if stored}
        self.start()

    @rule()
    def forget(self):
        """All keys become too old, and everything is taken."""
        while self.store.job is not None:
            self.disk(False)
        consumer = self.bench.peer()
        consumer.subscribe(QUEUE)
        bodies = [frame.body.decode() for frame in consumer.take()]
        assert len(bodies) == len(set(bodies))
        assert self.promised.keys() <= set(bodies)
        consumer.lose()
        self.promised.clear()
        self.bench.now += 2 * _WINDOW
        self.bench.broker.tick(self.bench.now)
        self.bench.turn()
        assert len(self.bench.broker.sent) == 0
        while self.store.job is not None:  # else a crash would bring them back, by a clock that stands still
            self.disk(False)

    @invariant()
    def each_is_there_once(self):
        bodies = held(self.bench)
        assert len(bodies) == len(set(bodies)), bodies
        assert self.promised.keys() <= set(bodies), (self.promised, bodies)
        self.bench.audit()


TestKeys = Machine.TestCase
TestKeys.settings = settings(max_examples=examples(60), stateful_step_count=40)
