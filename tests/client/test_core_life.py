"""The life of a client as a state machine: whatever happens in whatever order, these hold.

- Nothing is acknowledged on another connection than the one by which it came, and nothing twice.
- Every call gets one outcome; what says that it never left was never seen by a server, what was accepted was.
- What is sent keeps its order; without `resend` nothing is sent twice.
- On a new connection the subscriptions come first; a transaction lives on one connection only.
"""

import collections

from client.scripted import Scripted, outcome
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import examples

from stompcodec.codec import Frame
from stompcodec.errors import ConnectionLostError, LocalProtocolError, ReceiptTimeoutError, StaleAckError

ACKS = st.sampled_from(["auto", "client", "client-individual"])


class Life(RuleBasedStateMachine):
    @initialize(version=st.sampled_from(["1.0", "1.1", "1.2"]), frames=st.sampled_from([4, 1000]))
    def start(self, version, frames):
        self.client = Scripted(version=version, outbox_frames=frames, inbox_messages=5)
        self.core, self.link = self.client.core, self.client.core.link
        self.version, self.counter = version, 0
        self.calls, self.live, self.subscriptions, self.messages, self.transactions = [], [], [], [], []
        self.sends, self.resent = {}, set()  # body -> call or None
        self.delivered, self.settled = {}, set()  # message-id -> connection
        self.log = []  # (connection, frame)
        self.asked = []  # frames of this connection with a receipt that is not answered
        self.returning, self.held = [], set()  # ids that are subscribed again; ids of those that the server has

    # ---- the server ----
    @property
    def up(self):
        return self.link.connection is not None

    def look(self):
        if not self.up:
            self.asked.clear()
            return
        for frame in self.client.frames():
            self.log.append((self.client.connections, frame))
            if frame.get("receipt") is not None:
                self.asked.append(frame)
            if frame.command in ("SUBSCRIBE", "UNSUBSCRIBE"):
                self.judge_id(frame)
            if frame.command in ("ACK", "NACK"):
                self.judge_ack(frame)
            if frame.command == "SEND" and frame.get("transaction") is None:
                self.judge_send(frame)
            name = frame.get("transaction")
            if name is not None and frame.command != "BEGIN":
                begun = [number for number, other in self.sent("BEGIN") if other.get("transaction") == name]
                assert begun == [self.client.connections]

    def sent(self, command):
        return [(number, frame) for number, frame in self.log if frame.command == command]

    def judge_id(self, frame):
        id = frame.headers["id"]
        assert (id in self.held) == (frame.command == "UNSUBSCRIBE"), "not in their order"
        self.held ^= {id}

    def judge_ack(self, frame):
        name = (frame.get("id") or frame.headers["message-id"]).removeprefix("a")
        assert self.delivered[name] == self.client.connections, "a stale ack"
        if frame.get("transaction") is None:
            assert name not in self.settled, "acknowledged twice"
            self.settled.add(name)

    def judge_send(self, frame):
        number = int(frame.body)
        assert not [each for each in self.asked if each.command == "SUBSCRIBE" and self.holds_up(each)]
        *before, _ = [(at, int(each.body)) for at, each in self.sent("SEND") if each.body]
        assert all(each < number for at, each in before if at == self.client.connections), "out of order"
        assert number in self.resent or number not in [each for _, each in before], "sent twice"

    def holds_up(self, frame):
        """A subscription that came back and is not confirmed, for as long as that is waited for."""
        subscription = self.core.inbound.subscriptions.get(frame.headers["id"])
        recent = self.client.now - self.connected_at < 30
        return subscription is not None and subscription.id in self.returning and recent and not subscription.confirmed

    @precondition(lambda self: not self.up)
    @rule()
    def connect(self):
        self.asked.clear()
        self.connected_at = self.client.now
        self.held.clear()
        self.returning = list(self.core.inbound.subscriptions)
        self.client.connect(confirm=False)
        self.look()
        subscribed = [frame.headers["id"] for at, frame in self.sent("SUBSCRIBE") if at == self.client.connections]
        pace = self.link.pace
        first = sorted(self.returning, key=lambda id: not pace.is_suspect(self.core.inbound.subscriptions[id]))
        is_idle = pace.item is None and not pace.is_free  # nothing is sent for a step
        assert subscribed == ([] if is_idle else first[:1] if pace.is_slow else self.returning)

    @precondition(lambda self: self.up)
    @rule()
    def lose(self):
        self.look()
        self.client.lose()
        self.asked.clear()

    @precondition(lambda self: self.up and self.asked)
    @rule(data=st.data())
    def receipt(self, data):
        frame = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self.client.receipt(frame)
        self.look()

    @precondition(lambda self: self.up and self.asked)
    @rule(data=st.data())
    def error(self, data):
        frame = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        before = set(self.core.inbound.subscriptions)
        self.client.error(frame)
        self.held -= before - set(self.core.inbound.subscriptions)
        assert self.up == (self.version != "1.2")
        self.look()

    @precondition(lambda self: self.up)
    @rule()
    def nameless_error(self):
        self.client.error(None)
        self.look()

    @precondition(lambda self: self.up and self.live)
    @rule(data=st.data(), count=st.integers(1, 4))
    def deliver(self, data, count):
        subscription = data.draw(st.sampled_from(self.live))
        if subscription.closed or not subscription.subscribed:
            return
        for _ in range(count):
            self.counter += 1
            name = f"m{self.counter}"
            self.delivered[name] = self.client.connections
            pairs = {"subscription": subscription.id, "message-id": name, "destination": subscription.destination}
            with_ack = subscription.explicit and self.version == "1.2"
            self.client.answer("MESSAGE", {**pairs, **({"ack": f"a{name}"} if with_ack else {})})

    @rule(yes=st.booleans())
    def writable(self, yes):
        if self.up:
            self.link.writable(yes)
            self.look()

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def time_passes(self, seconds):
        self.client.wait(seconds)
        self.look()

    # ---- the user ----
    @rule(receipt=st.booleans(), resend=st.booleans())
    def send(self, receipt, resend):
        self.counter += 1
        if not self.link.outbox.has_room(10):
            return
        call = self.client.send(b"%d" % self.counter, receipt=receipt, resend=resend)
        self.sends[self.counter] = call
        if receipt:
            self.calls.append(call)
            if resend:
                self.resent.add(self.counter)
        self.look()

    @rule(ack=ACKS, confirm=st.booleans(), data=st.data())
    def subscribe(self, ack, confirm, data):
        ended = {each.id for each in self.subscriptions if each.closed and each.error is None}
        ended = sorted(ended - set(self.core.inbound.subscriptions))
        subscription = self.client.subscribe(ack, confirm=confirm, id=data.draw(st.sampled_from([None, *ended])))
        self.calls.append(subscription.call)
        self.live.append(subscription)
        self.subscriptions.append(subscription)
        self.look()

    @precondition(lambda self: self.live)
    @rule(data=st.data(), receipt=st.booleans())
    def unsubscribe(self, data, receipt):
        subscription = data.draw(st.sampled_from(self.live))
        self.live.remove(subscription)
        self.returning = [id for id in self.returning if id != subscription.id]
        call = self.client.call("UNSUBSCRIBE", 30.0, "UNSUBSCRIBE") if receipt else None
        if call:
            self.calls.append(call)
        self.core.inbound.unsubscribe(subscription, self.client.now, call)
        self.look()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def take(self, data):
        self.messages += self.client.take(data.draw(st.sampled_from(self.live)))

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), command=st.sampled_from(["ACK", "NACK"]), receipt=st.booleans(), within=st.booleans())
    def settle(self, data, command, receipt, within):
        message = data.draw(st.sampled_from(self.messages))
        opened = [each for each in self.transactions if each.state == "open"]
        options = {}
        if within and opened:
            options["transaction"] = data.draw(st.sampled_from(opened))
        elif receipt:
            options["call"] = self.client.call(command, 30.0, command)
        unsure = message.settled == "unknown" or ("call" in options and not message.is_confirmed)
        stale = message.subscription.explicit and (not message.settled or unsure)
        stale = stale and (message.epoch != self.link.epoch or message.subscription.closed)
        try:
            self.client.ack(message, command, **options)
        except StaleAckError:
            assert stale
        except ReceiptTimeoutError:
            assert message.subscription.claims[message.seq].state == "unknown"
        except LocalProtocolError:
            pass
        else:
            assert not stale
            if "call" in options:
                self.calls.append(options["call"])
        self.look()

    @precondition(lambda self: self.link.state == "connected")
    @rule()
    def begin(self):
        self.counter += 1
        self.transactions.append(self.client.begin(f"t{self.counter}"))
        self.look()

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), command=st.sampled_from(["SEND", "COMMIT", "ABORT"]))
    def transact(self, data, command):
        transaction = data.draw(st.sampled_from(self.transactions))
        state = transaction.state
        try:
            if command == "SEND":
                frame = Frame("SEND", {"destination": "/queue/t"})
                self.core.send(frame, self.client.now, transaction=transaction)
            else:
                self.calls.append(self.client.finish(transaction, command))
        except ConnectionLostError:
            assert state == "lost"
        except LocalProtocolError:
            assert state in ("committing", "committed", "aborted", "unknown")
        else:
            assert state == "open"
        self.look()

    # ---- what always holds ----
    @invariant()
    def counts_agree(self):
        outbox = self.link.outbox
        assert self.core.inbound.backlog == sum(len(each.inbox) for each in self.subscriptions)
        assert outbox.frames >= len(outbox)
        assert len(outbox) == 0 or outbox.octets > 0
        assert all(each.open >= 0 for each in self.live)

    def teardown(self):
        if not hasattr(self, "client"):
            return
        self.calls.append(self.client.call("close", 60.0, ""))
        self.core.close(self.client.now, self.calls[-1])
        self.look()
        self.client.wait(120)
        assert self.link.state == "closed"
        told = collections.Counter(id(call) for call in self.link.calls.finished)
        on_wire = collections.Counter(int(frame.body) for _, frame in self.sent("SEND") if frame.body)
        for call in self.calls:
            assert call.done, f"no outcome: {call}"
            assert told[id(call)] == 1
        for number, call in ((number, call) for number, call in self.sends.items() if call is not None):
            if outcome(call) in ("accepted", "RejectedError"):
                assert on_wire[number] >= 1
            if isinstance(call.error, (ConnectionLostError, ReceiptTimeoutError)):
                assert call.error.sent == (on_wire[number] > 0)
        self.counts_agree()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(200), stateful_step_count=50)
