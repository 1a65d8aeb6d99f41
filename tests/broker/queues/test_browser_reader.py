"""A reader that only notes how far it has come, against all that makes messages come late or in another order."""

from broker.harness import Bench, FaultyStore
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

STEPS = st.lists(
    st.sampled_from(["send", "persistent", "commit", "late", "delayed", "store", "read", "read", "let go", "restart"]),
    max_size=40,
)


class Reader:
    """SUBSCRIBE as a browser from the place it knows, up to the end marker, again and again."""

    def __init__(self):
        self.seq = 0
        self.seen = []
        self.bound = 0

    def read(self, bench):
        peer = bench.peer()
        peer.subscribe("/queue/a", browser="true", include_seq="seq", from_seq=str(self.seq + 1), ack="auto")
        while bench.store.job is not None and not (peer.inbox and "browser" in peer.inbox[-1].headers):
            bench.store.finish()  # what is in the store only is read after its commit
            bench.turn()
        frames = peer.take()
        end = frames.pop()
        assert end.headers["browser"] == "end"
        seqs = [int(frame.headers["seq"]) for frame in frames]
        assert seqs == sorted(set(seqs))
        assert all(self.seq < seq <= int(end.headers["seq"]) for seq in seqs)
        self.seen += [frame.body.decode() for frame in frames]
        self.seq = max(self.seq, int(end.headers["seq"]))
        peer.lose()

    def let_go(self, bench, waits=False):
        """Acknowledge the messages that it has seen. Those that are not stored yet may stay if the reader does not wait
        for the store.
        """
        peer = bench.peer()
        peer.subscribe("/queue/a", browser="true", ack="client", include_seq="seq", prefetch_count="1000")
        while bench.store.job is not None and not (peer.inbox and "browser" in peer.inbox[-1].headers):
            bench.store.finish()
            bench.turn()
        shown = [frame for frame in peer.take() if frame.body and int(frame.headers["seq"]) <= self.seq]
        if shown:
            peer.ack(shown[-1])
        while waits and bench.store.job is not None:
            bench.store.finish()
            bench.turn()
        assert not peer.closed
        peer.lose()


@given(steps=STEPS, window=st.sampled_from([1, 3, 100]))
@settings(max_examples=examples(150))
def test_nothing_is_missed_and_nothing_comes_twice(steps, window):
    bench, reader = Bench(FaultyStore(background=True), window_messages=window), Reader()
    sent: list[str] = []
    kept: set[str] = set()

    def store():
        while bench.store.job is not None:
            bench.store.finish()
            bench.turn()

    senders = [bench.peer(), bench.peer()]
    for number, step in enumerate(steps):
        slow, quick = senders
        body = f"m{number}"
        if step in ("send", "persistent", "late", "delayed"):
            sent.append(body)
        if step == "send":
            quick.put("/queue/a", body)
        elif step == "late":  # behind a transaction, if one waits for the store
            slow.put("/queue/a", body)
        elif step == "persistent":
            quick.put("/queue/a", body, persistent="true")
            kept.add(body)
        elif step == "delayed":
            quick.put("/queue/a", body, delay="2000", persistent="true")
            kept.add(body)
        elif step == "commit":
            slow.send("BEGIN", transaction="t")
            for part in "xy":
                slow.put("/queue/a", body + part, transaction="t", persistent="true")
                sent.append(body + part)
                kept.add(body + part)
            slow.send("COMMIT", transaction="t")
        elif step == "store":
            store()
            bench.date += 1
            bench.wait(1)
        elif step == "read":
            reader.read(bench)
        elif step == "let go":
            reader.let_go(bench)
        elif step == "restart":
            store()
            bench.broker.stop(bench.now)
            bench.turn()
            store()
            date = bench.date
            bench = Bench(bench.store, window_messages=window)
            bench.date = date
            senders = [bench.peer(), bench.peer()]
            sent = [body for body in sent if body in kept or body in reader.seen]
    store()
    bench.date += 10
    for _ in range(2 + len(steps)):  # delayed messages come page by page
        bench.wait(1)
        store()
    reader.read(bench)
    assert sorted(reader.seen) == sorted(sent)
    reader.let_go(bench, waits=True)
    store()
    assert bench.broker.queues.get(("/", "/queue/a")) is None or not bench.broker.queues["/", "/queue/a"].total
    assert list(bench.store.load()) == []
