"""The broker against a model: order, no loss, no unmarked duplicate, windows, transactions, lost sessions, restarts."""

from functools import partial

from broker.harness import Bench, FaultyStore, Peer
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model import broker_model as model
from profiles import examples

from stompcodec.broker import hot
from stompcodec.broker.sessions.commands import HANDLERS, _send_any
from stompcodec.broker.sessions.commit import _acknowledge

QUICK = dict(HANDLERS)
DESTINATIONS = ["/queue/a", "/queue/b", "/queue/DLQ.a", "/topic/t"]
MODES = ["auto", "client", "client-individual"]
MAX_ATTEMPTS = 3


class StoreAtWork(FaultyStore):
    """A store without faults, which may write in the background: then that takes until the turn has ended."""

    def commit_later(self, done, call_soon):
        super().commit_later(done, call_soon)
        if self.job is not None:
            call_soon(lambda: self.finish())


class Pair:
    def __init__(self, peer: Peer, twin: model.Peer) -> None:
        self.peer, self.twin, self.keys, self.receipts = peer, twin, 0, 0


class BrokerMachine(RuleBasedStateMachine):
    """Every step is one frame, cut somewhere, or an event of the transport; then both sides are compared."""

    @initialize(
        write_high=st.sampled_from([1, 200, 262_144]),
        background=st.booleans(),
        quick=st.booleans(),
        window=st.sampled_from([1, 3, 100]),
        transient=st.sampled_from(["stop", "spool"]),
        road=st.sampled_from(["C", "Python", "both"]),
    )
    def start(self, write_high, background, quick, window, transient, road):
        self.road = road
        if not quick:  # the quick roads may only skip: without them all is the same
            HANDLERS.update(SEND=_send_any, ACK=partial(_acknowledge, True))
        self.config = {"max_attempts": MAX_ATTEMPTS, "write_high": write_high}
        self.config |= {"window_messages": window, "transient": transient}
        self.bench = Bench(StoreAtWork(background), **self.config)
        self.window, self.model = window, model.Broker(MAX_ATTEMPTS)
        self.pairs, self.bodies = [], 0

    def teardown(self):
        HANDLERS.update(QUICK)
        hot.switch(True)

    def pick(self, data, condition=lambda pair: True):
        pairs = [pair for pair in self.pairs if condition(pair)]
        return data.draw(st.sampled_from(pairs)) if pairs else None

    def send(self, data, pair, command, body=b"", **headers):
        """A frame with a receipt, which has to come, and what comes besides; or a DISCONNECT."""
        pair.receipts += 1
        peer = pair.peer
        hot.switch(data.draw(st.booleans(), label="in C") if self.road == "both" else self.road == "C")
        octets = peer.octets_of(command, body, receipt=str(pair.receipts), **headers)
        cut = data.draw(st.integers(0, len(octets) - 1), label="cut")
        if cut:
            peer.raw(octets[:cut])
        peer.raw(octets[cut:])
        if command != "DISCONNECT":
            self.look()

    def look(self):
        deliveries = []
        for pair in self.pairs:
            receipts = []
            for frame in pair.peer.take():
                if frame.command == "RECEIPT":
                    receipts.append(frame.headers["receipt-id"])
                    continue
                assert frame.command == "MESSAGE", frame
                consumer = pair.twin.consumers[frame.headers["subscription"]]
                attempts = int(frame.get("redelivery-count", "0"))
                assert (frame.get("redelivered") == "true") is (attempts > 0)
                assert frame.headers["destination"] == consumer.queue.name
                ack_id = frame.get("ack") or frame.headers["message-id"]
                deliveries.append((consumer, ack_id, frame.body.decode(), attempts))
            wanted = [str(pair.receipts)] if pair.receipts > getattr(pair, "answered", 0) else []
            assert receipts == wanted
            pair.answered = pair.receipts
        self.model.delivered(deliveries)
        self.model.rest()

    def drop(self, pair, refused=False, named=None, counted=None):
        self.pairs.remove(pair)
        if refused:
            self.model.refuse(pair.twin, named)
        else:
            self.model.end(pair.twin, counted)
        self.look()

    @precondition(lambda self: len(self.pairs) < 5)
    @rule(version=st.sampled_from(["1.0", "1.1", "1.2", "1.2"]), whole_frames=st.booleans())
    def connect(self, version, whole_frames):
        twin = model.Peer()
        self.model.peers.append(twin)
        self.pairs.append(Pair(self.bench.peer(version, whole_frames=whole_frames), twin))

    @rule(
        data=st.data(), destination=st.sampled_from(DESTINATIONS), mode=st.sampled_from(MODES), window=st.integers(1, 4)
    )
    def subscribe(self, data, destination, mode, window):
        pair = self.pick(data, lambda pair: len(pair.twin.consumers) < 3)
        if pair is not None:
            pair.keys += 1
            key = f"s:{pair.keys}" if pair.peer.version != "1.0" else f"s{pair.keys}"
            self.model.subscribe(pair.twin, key, destination, mode, window)
            self.send(data, pair, "SUBSCRIBE", id=key, destination=destination, ack=mode, prefetch_count=str(window))

    @rule(data=st.data())
    def unsubscribe(self, data):
        pair = self.pick(data, lambda pair: pair.twin.consumers)
        if pair is not None:
            key = data.draw(st.sampled_from(sorted(pair.twin.consumers)))
            self.model.unsubscribe(pair.twin, key)
            self.send(data, pair, "UNSUBSCRIBE", id=key)

    @rule(
        data=st.data(),
        destination=st.sampled_from(["/queue/a", "/queue/a", "/queue/b", "/topic/t"]),
        persistent=st.booleans(),
        inside=st.booleans(),
    )
    def put(self, data, destination, persistent, inside):
        pair = self.pick(data)
        if pair is None:
            return
        names = sorted(pair.twin.transactions)
        name = data.draw(st.sampled_from(names)) if inside and names else None
        self.bodies += 1
        body = f"m{self.bodies}"
        headers = {} if name is None else {"transaction": name}
        self.model.send(pair.twin, destination, body, persistent, name)
        if persistent:
            headers["persistent"] = "true"
        self.send(data, pair, "SEND", body.encode(), destination=destination, **headers)

    @rule(data=st.data(), command=st.sampled_from(["ACK", "ACK", "NACK"]), inside=st.booleans())
    def settle(self, data, command, inside):
        pair = self.pick(
            data,
            lambda pair: (
                any(consumer.unacked for consumer in pair.twin.consumers.values())
                and (command == "ACK" or pair.peer.version != "1.0")
            ),
        )
        if pair is None:
            return
        consumers = [consumer for consumer in pair.twin.consumers.values() if consumer.unacked]
        consumer = data.draw(st.sampled_from(consumers))
        ack_id = data.draw(st.sampled_from(list(consumer.unacked)))
        names = sorted(pair.twin.transactions)
        name = data.draw(st.sampled_from(names)) if inside and names else None
        headers = {} if name is None else {"transaction": name}
        if pair.peer.version == "1.2":
            headers["id"] = ack_id
        else:
            headers |= {"message_id": ack_id, "subscription": consumer.key}
        self.model.settle(consumer, ack_id, command == "ACK", name)
        self.send(data, pair, command, **headers)

    @rule(data=st.data())
    def begin(self, data):
        pair = self.pick(data, lambda pair: len(pair.twin.transactions) < 2)
        if pair is not None:
            pair.keys += 1
            pair.twin.transactions[f"t{pair.keys}"] = []
            self.send(data, pair, "BEGIN", transaction=f"t{pair.keys}")

    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data, commit):
        pair = self.pick(data, lambda pair: pair.twin.transactions)
        if pair is not None:
            name = data.draw(st.sampled_from(sorted(pair.twin.transactions)))
            (self.model.commit if commit else self.model.abort)(pair.twin, name)
            self.send(data, pair, "COMMIT" if commit else "ABORT", transaction=name)

    @rule(data=st.data(), yes=st.booleans())
    def transport(self, data, yes):
        pair = self.pick(data)
        if pair is not None:
            pair.twin.flowing = yes
            pair.peer.session.writable(yes, self.bench.now)
            self.bench.turn()
            self.look()

    @rule(data=st.data(), how=st.sampled_from(["lose", "disconnect", "cut"]))
    def end(self, data, how):
        pair = self.pick(data)
        if pair is None:
            return
        if how == "disconnect":
            self.send(data, pair, "DISCONNECT")
            assert pair.peer.take()[-1].headers["receipt-id"] == str(pair.receipts)
        elif how == "cut":
            pair.peer.raw(b"SEND\ndestination:/queue/a\ncontent-length:100\n\nhalf of it")
        pair.peer.lose()
        pair.peer.take()
        self.drop(pair, counted=[] if how == "disconnect" else None)

    @precondition(lambda self: len(self.pairs) < 5)
    @rule(
        data=st.data(),
        version=st.sampled_from(["1.1", "1.2"]),
        names=st.sets(st.sampled_from(["/queue/a", "/queue/b"]), min_size=1),
        hows=st.lists(st.sampled_from(["fail", "named", "garbage"]), min_size=1, max_size=4),
    )
    def refuse(self, data, version, names, hows):
        """Sessions end, one after the other, by a frame that the broker refuses, or by bytes that are no frame."""
        for how in hows:
            self.connect(version, False)
            pair = self.pairs[-1]
            for name in sorted(names):
                self.bodies += 1
                self.model.send(pair.twin, name, f"m{self.bodies}", True, None)
                self.send(data, pair, "SEND", b"m%d" % self.bodies, destination=name, persistent="true")
                pair.keys += 1
                key, headers = f"s:{pair.keys}", {"ack": "client-individual", "prefetch_count": "4"}
                self.model.subscribe(pair.twin, key, name, headers["ack"], 4)
                self.send(data, pair, "SUBSCRIBE", id=key, destination=name, **headers)
            self._refuse(data, pair, how)

    def _refuse(self, data, pair, how):
        named = None
        if how == "named":
            held = [each for each in pair.twin.consumers.values() if each.unacked and each.queue.name[1] == "q"]
            if held:
                consumer = data.draw(st.sampled_from(held))
                named = data.draw(st.sampled_from(list(consumer.unacked.values())))
                held, end = pair.peer.session.consumers[f"id:{consumer.key}"].unacked, f"\n\n{named.body}\0".encode()
                ident = next(message.id for message in held.values() if message.tail.endswith(end))
                pair.peer.send("SEND", destination="/management/x", ack=ident, subscription=consumer.key)
        if how == "garbage":
            pair.peer.raw(b"SEND\ndestination\n\n\0")
        elif named is None:
            pair.peer.send("COMMIT", transaction="none")
        assert pair.peer.error()
        pair.peer.lose()
        pair.peer.take()
        self.drop(pair, refused=True, named=named)

    @rule()
    def restart(self):
        self.bench.broker.stop(self.bench.now)
        self.bench.turn()
        for pair in self.pairs:
            assert pair.peer.error()
        self.pairs.clear()
        self.model.restart()
        kept = self.bench.store._kept
        for key in [key for key, stored in kept.items() if not stored.persistent]:  # as a store on disk does
            del kept[key]
        self.bench = Bench(self.bench.store, **self.config)

    @rule()
    def time(self):
        self.bench.wait(40.0)  # idle destinations go
        self.look()

    @invariant()
    def accounts(self):
        if not hasattr(self, "bench"):
            return
        broker = self.bench.broker
        for (_, name), queue in broker.queues.items():
            twin, paging = self.model.queue(name), queue.paging
            ready = [message.frame.body.decode() for message in queue.messages]
            wanted = [entry.body for entry in twin.ready]
            assert ready == (wanted if paging is None else [body for body in wanted if body in ready])
            assert len(ready) + (0 if paging is None else paging.count) == len(wanted)
            held = sum(len(o.taken) for o in self.held() if o.consumer.queue is twin)
            unacked = sum(len(consumer.unacked) for consumer in twin.consumers)
            assert queue.total == len(twin.ready) + unacked + held
        stored = {(stored.destination, stored.seq): stored.persistent for stored in self.bench.store.load()}
        assert sum(stored.values()) == self.persistent() or self.bench.store.pending  # what was sent just now
        assert len(stored) - sum(stored.values()) <= self.persistent(False) or self.bench.store.pending

    def held(self):
        operations = (o for peer in self.model.peers for ops in peer.transactions.values() for o in ops)
        return [operation for operation in operations if isinstance(operation, model.Held)]

    def persistent(self, wanted=True):
        """How many messages have to be in the store; or how many transient ones may be there."""
        queues = self.model.queues.values()
        entries = [entry for queue in queues for entry in queue.ready]
        entries += [entry for queue in queues for c in queue.consumers for entry in c.unacked.values()]
        entries += [entry for operation in self.held() for entry in operation.taken.values()]
        return sum(entry.persistent is wanted for entry in entries)


BrokerMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestBroker = BrokerMachine.TestCase
