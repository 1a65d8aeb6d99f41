"""What management says, against the model of a broker; and its orders among all that clients do."""

from broker.management.managing import Managed
from broker.test_state_machine import BrokerMachine
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from profiles import examples

from stompcodec.broker.management.management import Management

QUEUES = ["/queue/a", "/queue/b", "/queue/DLQ.a"]


class ManagedMachine(BrokerMachine):
    def managed(self) -> Managed:
        """The bench, which a restart replaces, as one that can be asked."""
        bench = self.bench
        if not hasattr(bench, "management"):
            bench.management = Management(bench.broker)
        bench.__class__ = Managed
        return bench

    def names(self):
        return sorted(name for (_, name) in self.bench.broker.queues if name in QUEUES)

    @precondition(lambda self: self.names())
    @rule(data=st.data(), limit=st.none() | st.integers(1, 3))
    def purge(self, data, limit):
        name = data.draw(st.sampled_from(self.names()))
        twin = self.model.queue(name)
        wanted = twin.ready[:limit]
        assert self.managed().result("purge", destination=name, limit=limit)["messages"] == len(wanted)
        del twin.ready[: len(wanted)]
        self.look()

    @precondition(lambda self: self.names())
    @rule(data=st.data(), to=st.sampled_from(QUEUES), limit=st.none() | st.integers(1, 3))
    def move(self, data, to, limit):
        name = data.draw(st.sampled_from(self.names()))
        if to == name:
            assert self.managed().fault("move", destination=name, to=to, limit=limit) == "to"
            return
        twin = self.model.queue(name)
        moved = twin.ready[:limit]
        del twin.ready[: len(moved)]
        for entry in moved:
            self.model.queue(to).put(self.model.entry(entry.body, entry.persistent))
        assert self.managed().result("move", destination=name, to=to, limit=limit)["messages"] == len(moved)
        self.look()

    @rule(data=st.data())
    def close(self, data):
        pair = self.pick(data)
        if pair is not None:
            self.managed().result("close", session=pair.peer.session.id)
            assert "closed by a manager" in pair.peer.error().headers["message"]
            pair.peer.lose()
            self.drop(pair)

    @precondition(lambda self: self.names())
    @rule(data=st.data())
    def browse(self, data):
        name, limit = data.draw(st.sampled_from(self.names())), data.draw(st.integers(1, 4))
        rows = self.managed().result("messages", destination=name, limit=limit)
        wanted = self.model.queue(name).ready
        assert [(row["body"], row["attempts"], row["persistent"]) for row in rows] == [
            (entry.body, entry.attempts, entry.persistent) for entry in wanted
        ]
        self.look()

    @invariant()
    def says(self):
        if not hasattr(self, "bench"):
            return
        bench = self.managed()
        rows = {row["destination"]: row for row in bench.result("destinations", kind="queue", limit=2)}
        assert rows.keys() == {name for _, name in bench.broker.queues}
        for name, row in rows.items():
            twin = self.model.queue(name)
            held = sum(len(o.taken) for o in self.held() if o.consumer.queue is twin)
            assert row["ready"] == len(twin.ready)
            assert row["unacknowledged"] == sum(len(consumer.unacked) for consumer in twin.consumers) + held
            assert row["consumers"] == len(twin.consumers)
            assert (row["oldest"] is None) is (not twin.ready)
        sessions = {row["session"]: row for row in bench.result("sessions", limit=2)}
        assert sessions.keys() == {pair.peer.session.id for pair in self.pairs}
        for pair in self.pairs:
            row, twins = sessions[pair.peer.session.id], pair.twin.consumers.values()
            assert row["subscriptions"] == len(twins)
            assert row["unacknowledged"] == sum(len(consumer.unacked) for consumer in twins)
            assert row["transactions"] == len(pair.twin.transactions)
        found = [(row["session"], row["subscription"], row["unacknowledged"]) for row in bench.result("subscriptions")]
        assert found == [
            (pair.peer.session.id, key, len(consumer.unacked))
            for pair in self.pairs
            for key, consumer in pair.twin.consumers.items()
        ]
        found = [(row["session"], row["transaction"]) for row in bench.result("transactions", limit=1)]
        assert found == [(pair.peer.session.id, name) for pair in self.pairs for name in pair.twin.transactions]
        memory = bench.result("memory")
        assert (memory["other"], memory["used"]) == (0, bench.broker.account.used)


ManagedMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestManaged = ManagedMachine.TestCase
