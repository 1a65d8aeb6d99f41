"""A message to many subscriptions goes out over several turns. Subscribers get the same messages in the same order."""

import gc

import pytest
from broker.harness import Bench
from broker.moves import receive
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import serialize
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.message import Message
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.routing import topic
from stompcodec.codec import Frame

#: More than what two turns give away, and how many of them a session has.
MANY, EACH = 3 * AT_ONCE, 500
PATTERN, TOPIC = "/topic/a.*", "/topic/a.b"
#: A SEND that goes on the quick road, and ones that do not.
SENDS = {"plain": {}, "priority": {"priority": "9"}, "expires": {"expires": "99999999999999"}}
either = pytest.mark.parametrize("destination", [TOPIC, PATTERN])


def crowd(destination):
    bench = Bench(max_subscriptions=10**4, wildcards="rabbitmq")
    peers = []
    for start in range(0, MANY, EACH):
        peer, ids = bench.peer(), range(min(EACH, MANY - start))
        peer.raw(b"".join(serialize(Frame("SUBSCRIBE", {"id": str(n), "destination": destination})) for n in ids))
        peers.append(peer)
    return bench, peers, bench.peer()


def one_turn(bench):
    """Have one turn of the loop. Return how many MESSAGEs it wrote."""
    written = 0
    for session in bench.broker.turn(bench.now):
        peer = bench.peers.get(session)
        if peer is not None:
            had = len(peer.inbox)
            peer.flush()
            written += sum(frame.command == "MESSAGE" for frame in peer.inbox[had:])
    return written


def counts(bench):
    """Return how many messages each turn wrote, up to the one that had nothing left to do."""
    found = [one_turn(bench)]
    while bench.broker.quota.waiting or bench.broker.dirty:
        found.append(one_turn(bench))
        assert len(found) < 1000, "the broker never rests"
    return found


@pytest.mark.long
@pytest.mark.parametrize(("destination", "send"), [(TOPIC, "plain"), (TOPIC, "priority"), (PATTERN, "plain")])
def test_a_turn_gives_a_message_to_a_share_of_many_subscriptions(destination, send):
    bench, peers, sender = crowd(destination)
    receive(sender, "SEND", destination=TOPIC)  # destinations are remembered, and cost something
    counts(bench)
    for peer in peers:
        peer.take()
    used = bench.broker.account.used
    receive(sender, "SEND", b"1", destination=TOPIC, **SENDS[send])
    found = counts(bench)
    assert max(found) <= 2 * AT_ONCE, "others are served in between"
    assert sum(found) == MANY
    assert all([frame.body for frame in peer.take()] == [b"1"] * EACH for peer in peers)
    assert bench.broker.account.used == used


@either
def test_a_subscription_that_ends_gets_what_was_on_its_way_once(destination):
    bench, peers, sender = crowd(destination)
    receive(sender, "SEND", b"1", destination=TOPIC)
    one_turn(bench)
    for peer in (peers[0], peers[-1]):
        receive(peer, "UNSUBSCRIBE", id="0", receipt="r")
    counts(bench)
    for peer in (peers[0], peers[-1]):
        frames = peer.take()
        mine = [frame.command for frame in frames if frame.headers.get("subscription", "0") == "0"]
        assert mine == ["MESSAGE", "RECEIPT"], "before the receipt"
        assert sum(frame.command == "MESSAGE" for frame in frames) == EACH


@pytest.mark.long
@either
def test_what_is_on_its_way_keeps_no_subscription_that_has_ended(destination):
    bench, peers, _sender = crowd(destination)
    for _ in range(3):
        receive(bench.peer(), "SEND", b"x" * 1000, destination=TOPIC)
        one_turn(bench)
    for peer in peers[::2]:
        peer.session.lost(bench.now)
    while not all(peer.session.ended for peer in peers[::2]):
        one_turn(bench)
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, Consumer) and each.session.broker is bench.broker]
    assert len(kept) == MANY / 2
    assert sum(counts(bench)) > 0, "the others get theirs"


@pytest.mark.parametrize(("size", "kept"), [(100, True), (2**21, False)])
@pytest.mark.parametrize("whole_frames", [False, True])
def test_the_bytes_of_a_small_message_are_made_once_for_each_id(size, kept, whole_frames):
    """They are kept from turn to turn; those of a large message would multiply it in memory."""
    bench = Bench()
    peer = bench.peer(whole_frames=whole_frames)
    peer.subscribe(TOPIC)
    (consumer,), outbox = peer.session.consumers.values(), peer.session.outbox
    bundle = topic.Bundle([Message(b"m-1", 1, TOPIC, b"\n" + b"x" * size + b"\0")], True)
    for _ in range(2):
        outbox.send_budget = 2**30
        bundle.give([consumer])
    one, two = outbox.chunks
    assert one == two
    assert (one is two) is kept


#: Topics to send to, and patterns that mean both, or one of them.
TOPICS = ("/topic/a.b", "/topic/a.c")
DESTINATIONS = (*TOPICS, PATTERN, "/topic/*.c")
WHO = st.integers(0, 3)
STEPS = st.one_of(
    st.tuples(st.just("SUBSCRIBE"), WHO, st.integers(0, 5), st.sampled_from(DESTINATIONS)),
    st.tuples(st.just("UNSUBSCRIBE"), WHO, st.integers(0, 5)),
    st.tuples(st.just("SEND"), WHO, st.sampled_from(TOPICS), st.sampled_from(list(SENDS))),
    st.tuples(st.just("turn"), WHO),
)


def play(script, share):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AT_ONCE", "_STEP", "_FEW"):
            patch.setattr(topic, name, share)
        bench, used, got = Bench(wildcards="rabbitmq"), set(), {}
        peers = [bench.peer() for _ in range(4)]
        for number, (what, who, *rest) in enumerate(script):
            if what == "SUBSCRIBE" and (who, rest[0]) not in used:
                used.add((who, rest[0]))
                receive(peers[who], what, id=str(rest[0]), destination=rest[1])
            elif what == "UNSUBSCRIBE" and (who, rest[0]) in used:
                used.discard((who, rest[0]))
                receive(peers[who], what, id=str(rest[0]))
            elif what == "SEND":
                receive(peers[who], what, b"%d" % number, destination=rest[0], **SENDS[rest[1]])
            elif what == "turn":
                one_turn(bench)
        counts(bench)
        counts(bench)
        for who, peer in enumerate(peers):
            for frame in peer.take():
                if frame.command == "MESSAGE":
                    got.setdefault((who, frame.headers["subscription"]), []).append(frame.body)
        for peer in peers:
            peer.lose()
        bench.audit()
        return got


@settings(max_examples=examples(150))
@given(st.lists(STEPS, max_size=40), st.integers(1, 3))
def test_everybody_gets_the_same_however_many_are_served_in_a_turn(script, share):
    assert play(script, share) == play(script, 1000)


@either
def test_what_expires_on_its_way_is_given_to_nobody_else(destination):
    bench, peers, sender = crowd(destination)
    receive(sender, "SEND", b"1", destination=TOPIC, expiration="1000")
    in_time = one_turn(bench)
    assert 0 < in_time < MANY
    bench.date += 2
    counts(bench)
    assert sum(len(peer.take()) for peer in peers) == in_time
