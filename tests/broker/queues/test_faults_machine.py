"""Messages that cannot be written to some users, over any order of events: queues with selectors, groups, priorities,
exclusive consumers, browsers and transactions; topics with subscriptions of both kinds.

Which messages fail for whom is a fixed choice that the broker does not know. After each step: no sender noticed
anything, no message is lost, no other consumer's order suffers, nothing is a dead letter too early, no pair of user and
version is offered what has failed for it, and a failure is no attempt.
"""

import zlib

import pytest
from broker import dispatching as base
from broker.fault_hook import FaultHook
from broker.paged import ready_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from profiles import examples

from stompcodec.broker.auth import User, hash_passcode

pytest.importorskip("lark")

QUEUE, LETTERS = base.QUEUE, "/queue/DLQ.a"
NAMES = ("ada", "bob", "eve", "joe")
USERS = {name: User(name, hash_passcode("guest", n=16)) for name in (*NAMES, "guest")}
VERSIONS = ("1.0", "1.1", "1.2")
WHO = {"name": st.sampled_from(NAMES), "version": st.sampled_from([*VERSIONS, "1.2"])}


class Faults:
    """Which message fails for which pair, and what the broker made of it."""

    def __init__(self, bench, seed):
        self.users = bench.config.users is not None
        self.seed = seed
        self.bench = bench
        #: The message of each seq that counts; those that were tried for a pair and have failed.
        self.messages = {}
        self.tried = {}
        self.sessions = []
        #: What the broker did wrong: it would swallow an AssertionError like any other fault.
        self.wrong = []

    def pair(self, name, version):
        return (name if self.users else "", version)

    def fails(self, consumer, seq):
        if seq not in self.messages:
            return False
        pair = self.pair(consumer.session.user.name, consumer.version)
        tried = self.tried.setdefault(seq, set())
        if consumer.address is None and pair in tried:
            self.wrong.append(f"{seq} was offered to {pair} again")
        if consumer.session in self.sessions:
            self.wrong.append(f"{seq} was offered to a session that ends")
        text = f"{self.seed} {seq} {pair}".encode()
        if zlib.crc32(text) % 5 and zlib.crc32(f"{self.seed} {seq}".encode()) % 7:
            return False
        if consumer.address is None:
            tried.add(pair)
        self.sessions.append(consumer.session)
        return True

    def barred(self, seq, pair):
        return pair in self.tried.get(seq, ())

    def is_dead(self, seq):
        return len({name for name, _version in self.tried.get(seq, ())}) >= 3

    def connect(self, name, version, **headers):
        peer = self.bench.peer(version, connect=False)
        peer.connect(login=name, **headers)
        return peer


class FaultMachine(base.DispatcherMachine):
    @initialize(
        looks=st.sampled_from([2, 1000]),
        again=st.sampled_from([1, 1000]),
        write_high=st.sampled_from([1, 10**6]),
        users=st.booleans(),
        window=st.sampled_from([1, 3, 100]),
        seed=st.integers(0, 999),
    )
    def start(self, looks, again, write_high, users, window, seed):
        self.begin(looks, again, write_high, users=USERS if users else None, window_messages=window)
        self.faults = Faults(self.bench, seed)
        self.hook = FaultHook()
        self.hook.fails, self.hook.watch = self.faults.fails, self.watch
        self.hook.__enter__()

    def teardown(self):
        super().teardown()
        if hasattr(self, "hook"):
            self.hook.__exit__()

    # ---- what is true ----

    def barred(self, taker, message):
        return self.faults.barred(message.seq, taker.pair)

    def may(self, taker, message):
        holder, owner = self.holder(), self.owner(message)
        if self.barred(taker, message) or not taker.selects(message):
            return False
        if holder not in (None, taker) and not self.barred(holder, message):
            return False
        if owner in (None, taker):
            return True
        return not owner.selects(message) or self.barred(owner, message)

    def ready(self):
        """The messages that the broker takes for READY, in memory and in the store only."""
        queue = self.queue
        return [] if queue is None else [self.messages[int(m.frame.body)] for m in ready_of(self.bench, queue)]

    def watch(self, consumer, seq):
        """A message is about to be written: nothing READY that this consumer may have stands before it."""
        taker = next((taker for taker in self.takers if taker.peer.session is consumer.session), None)
        message = self.faults.messages.get(seq)
        if taker is None or message is None or consumer.request.browser:
            return
        for other in self.ready():
            if other.rank < message.rank and other.group is None and self.may(taker, other):
                self.faults.wrong.append(f"{other.number} stands before {message.number}")

    def look(self):
        assert self.faults.wrong == []
        before = {group: owner for group, owner in self.owners.items() if owner in self.takers}
        for taker in sorted(self.takers, key=lambda taker: taker.peer.session not in self.faults.sessions):
            frames = taker.peer.take()
            ended = bool(frames) and frames[-1].command == "ERROR"
            if ended:
                assert frames.pop().headers["message"] == "a message could not be written"
                assert taker.peer.closed
            assert ended is (taker.peer.session in self.faults.sessions)
            for frame in frames:
                assert frame.command == "MESSAGE", frame
                message = self.messages[int(frame.body)]
                assert message.number not in self.gone
                assert taker.selects(message)
                if taker.mode == "auto":
                    self.gone.add(message.number)
                else:
                    taker.unacked[frame.get("ack") or frame.headers["message-id"]] = message
            if ended:
                self.dead(taker)
                taker.peer.lose()
            else:
                assert len(taker.unacked) <= taker.window + 1 or taker.mode == "auto"  # one more by ABORT
        for message in self.ready():
            assert not self.faults.is_dead(message.seq), "too many users have failed"
            able = [taker for taker in self.takers if taker.is_able and self.may(taker, message)]
            assert not able, f"{message.number} could be with {able[0].selector}"
        for group in {message.group for message in self.messages.values()} - {None}:
            owner = self.owner(base.Sent(0, "", 0, group, 4, False))
            if before.get(group) in self.takers:
                assert owner is before[group], "a group stays where it is"
            self.owners[group] = owner

    def dead(self, taker):
        """Requeue the messages of a taker, which were delivered."""
        self.takers.remove(taker)
        for message in (*taker.unacked.values(), *taker.held.values()):
            message.attempts += 1

    def letters(self):
        """The numbers of the dead letters."""
        queue = self.bench.broker.queues.get(("/", LETTERS))
        numbers = []
        for letter in () if queue is None else ready_of(self.bench, queue):
            headers = letter.frame.headers
            message = self.messages[int(letter.frame.body)]
            assert (headers["dead-letter-reason"], headers["original-destination"]) == ("undeliverable", QUEUE)
            assert headers["original-message-id"] == f"e-{message.seq}"
            assert headers["dead-letter-attempts"] == str(message.attempts)
            assert self.faults.users, "without users nobody makes dead letters"
            assert self.faults.is_dead(message.seq), "dead too early"
            numbers.append(message.number)
        return numbers

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "bench"):
            return
        self.bench.turn()  # what a transaction has delivered leaves the store one commit later
        ready, letters = self.ready(), self.letters()
        assert ready == sorted(ready, key=lambda message: message.rank)
        taken = [m for taker in self.takers for m in (*taker.unacked.values(), *taker.held.values())]
        numbers = [message.number for message in (*ready, *taken)]
        assert sorted(numbers + letters) == sorted(set(self.messages) - self.gone)
        if self.queue is not None:
            assert self.queue.total == len(numbers)
            for message in ready_of(self.bench, self.queue):
                assert message.attempts == self.messages[int(message.frame.body)].attempts, "a failure is no attempt"
        assert sum(queue.octets for queue in self.bench.broker.queues.values()) == self.bench.octets
        stored = sorted(int(stored.tail[:-1].rpartition(b"\n")[2]) for stored in self.bench.store.load())
        assert stored == sorted(number for number in numbers + letters if self.messages[number].persistent)
        assert not self.bench.broker.failing

    # ---- steps ----

    def sent(self, seq, **what):
        message = base.Sent(len(self.messages) + 1, **what)
        message.seq, message.attempts = seq, 0
        self.messages[message.number] = self.faults.messages[seq] = message
        return str(message.number), message.headers

    @rule(
        color=st.sampled_from(["red", "blue"]),
        n=st.integers(0, 6),
        group=st.sampled_from([None, None, None, None, "g", "h"]),
        priority=st.sampled_from([4, 4, 4, 4, 9, 0]),
        persistent=st.sampled_from([False, False, True]),
        receipt=st.booleans(),
        count=st.sampled_from([1, 1, 1, 3]),
        transaction=st.booleans(),
    )
    def put(self, color, n, group, priority, persistent, receipt=True, count=1, transaction=False):
        """Some messages in one turn, in a transaction or not."""
        what = {"color": color, "n": n, "group": group, "priority": priority, "persistent": persistent}
        more, octets = ({"transaction": "t"} if transaction else {}), []
        for number in range(count):
            body, headers = self.sent(self.bench.broker.seq + 1 + number, **what)
            if receipt:
                more["receipt"] = body
            octets.append(self.sender.octets_of("SEND", body.encode(), destination=QUEUE, **headers, **more))
        if transaction:
            begin, commit = (self.sender.octets_of(name, transaction="t") for name in ("BEGIN", "COMMIT"))
            octets = [begin, *octets, commit]
        self.sender.raw(b"".join(octets))
        assert [frame.command for frame in self.sender.take()] == ["RECEIPT"] * (receipt * count)
        self.look()

    @precondition(lambda self: len(self.takers) < 4)
    @rule(
        selector=st.sampled_from(list(base.SELECTORS)),
        mode=st.sampled_from(["auto", "client", "client-individual", "client-individual"]),
        window=st.integers(1, 3),
        exclusive=st.sampled_from([False, False, False, True]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        seq=st.sampled_from([False, False, True]),
        **WHO,
    )
    def subscribe(self, selector, mode, window, exclusive, priority, seq, name, version):
        peer = self.faults.connect(name, version)
        taker = base.Taker(peer, selector, mode, window, exclusive, priority)
        taker.pair, taker.held = self.faults.pair(name, version), {}
        taker.session = peer.session
        self.join(taker, **({"include_seq": "seq"} if seq else {}))

    @rule(data=st.data(), how=st.sampled_from(["UNSUBSCRIBE", "lose"]))
    def leave(self, data, how):
        taker = self.some(data)
        if taker is not None:
            self.dead(taker)
            if how == "lose":
                taker.peer.lose()
            else:
                taker.peer.send("UNSUBSCRIBE", id="1")
            self.look()

    def command(self, taker, command, key, **headers):
        name = "id" if taker.peer.version == "1.2" else "message_id"
        if name == "message_id":
            headers["subscription"] = "1"
        taker.peer.send(command, **{name: key}, **headers)

    @rule(data=st.data(), command=st.sampled_from(["ACK", "ACK", "ACK", "NACK"]))
    def settle(self, data, command):
        taker = self.some(data, lambda t: t.unacked and (command == "ACK" or t.peer.version != "1.0"))
        if taker is None:
            return
        key = data.draw(st.sampled_from(list(taker.unacked)))
        covered = list(taker.unacked)
        for each in covered[: covered.index(key) + 1] if taker.mode == "client" else [key]:
            message = taker.unacked.pop(each)
            if command == "ACK":
                self.gone.add(message.number)
            else:
                message.attempts += 1
        self.command(taker, command, key)
        self.look()

    @rule(data=st.data(), commit=st.booleans(), persistent=st.booleans())
    def settle_in_transaction(self, data, commit, persistent):
        """Between ACK and COMMIT something comes that may end the session."""
        taker = self.some(data, lambda t: t.unacked and t.mode == "client-individual")
        if taker is None:
            return
        key = data.draw(st.sampled_from(list(taker.unacked)))
        taker.held[key] = taker.unacked.pop(key)
        taker.peer.send("BEGIN", transaction="t")
        self.command(taker, "ACK", key, transaction="t")
        self.look()
        if taker in self.takers:
            self.put("red", 5, None, 4, persistent)
        if taker not in self.takers:
            return
        message = taker.held.pop(key)
        if commit:
            self.gone.add(message.number)
        else:
            taker.unacked = dict(sorted({**taker.unacked, key: message}.items(), key=lambda pair: pair[1].seq))
        taker.peer.send("COMMIT" if commit else "ABORT", transaction="t")
        self.look()

    @rule(**WHO)
    def browse(self, name, version):
        pair, browser = self.faults.pair(name, version), self.faults.connect(name, version)
        ready = sorted((m for m in self.ready() if not self.faults.barred(m.seq, pair)), key=lambda m: m.seq)
        browser.subscribe(QUEUE, browser="true")
        frames = browser.take()
        shown = [int(frame.body) for frame in frames if frame.command == "MESSAGE" and frame.body]
        if browser.session in self.faults.sessions:
            assert frames[-1].command == "ERROR"
            assert shown == [message.number for message in ready][: len(shown)]
            assert self.faults.barred(ready[len(shown)].seq, pair)
        elif self.bench.config.write_high > 1:
            assert frames[-1].headers["browser"] == "end"
            assert shown == [message.number for message in ready]
        browser.lose()
        self.look()

    @rule()
    def time(self):
        self.bench.wait(3.0)
        self.look()


LIMITS = settings(stateful_step_count=40)
FaultMachine.TestCase.settings = settings(LIMITS, max_examples=examples(100))
TestFaults = FaultMachine.TestCase
