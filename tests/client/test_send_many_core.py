"""Blocks of frames in the core: over reconnects, versions and failures, on a fake clock."""

import pytest
from client.scripted import Scripted, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

import stompcodec.client as stomp
from stompcodec import Frame, FrameError, parse, serialize, serialize_many
from stompcodec.client.outbox import Block, Group, Outbox, Waiting

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
PAIRS = st.lists(st.tuples(TEXT.filter(lambda name: name and name != "content-length"), TEXT), max_size=3)
SENDS = st.builds(
    lambda pairs, body: Frame("SEND", [("destination", "d"), *pairs], body), PAIRS, st.binary(max_size=20)
)
FRAMES = st.lists(SENDS, min_size=1, max_size=5)


def block_of(*bodies, receipt=None, version="1.2", name="/queue/a"):
    frames = [Frame("SEND", {"destination": name}, body) for body in bodies]
    octets = serialize_many(frames, version)
    block = Block(octets, len(frames), version, len(octets) - len(serialize(frames[-1], version)))
    return block if receipt is None else block.with_receipt(receipt)


def put(scripted, *bodies, group=None, resend=False, **options):
    call = scripted.call(f"block of {bodies}", resend=resend)
    call.group = group
    assert scripted.core.send_block(block_of(*bodies, receipt=call.id, **options), scripted.now, call)
    return call


def bodies(frames):
    return [frame.body for frame in frames]


@settings(max_examples=examples(60))
@given(FRAMES)
def test_a_block_is_its_frames_for_any_connection(frames):
    octets = serialize_many(frames)
    block = Block(octets, len(frames), "1.2", len(octets) - len(serialize(frames[-1])))
    assert b"".join(block.chunks("1.2", False)) == octets
    assert block.chunks("1.2", True) == [serialize(frame) for frame in frames]
    assert [serialize(frame) for frame in block.frames()] == [serialize(frame) for frame in frames]
    try:
        others = [serialize(frame, "1.1") for frame in frames]
    except FrameError:
        with pytest.raises(FrameError):
            block.chunks("1.1", False)
    else:
        assert block.chunks("1.1", False) == others
    *same, last = parse(block.with_receipt("r7").body)
    assert serialize_many(same) == octets[: block.last]
    assert serialize(Frame("SEND", last.headers.pairs()[1:], last.body)) == octets[block.last :]
    assert last.headers.pairs()[0] == ("receipt", "r7")


def test_blocks_count_as_their_frames():
    outbox = Outbox(10, 10_000)
    outbox.push(Waiting(block_of(b"1", b"2", b"3"), None, 0))
    assert (len(outbox), outbox.frames) == (1, 3)
    assert outbox.has_room(10, 7)
    assert not outbox.has_room(10, 8)
    outbox.pop()
    assert (outbox.frames, outbox.octets) == (0, 0)
    outbox.passed(block_of(*[b"x"] * 20))
    assert (outbox.frames, outbox.has_room(0)) == (20, False)
    outbox.flushed()
    assert (outbox.frames, outbox.octets) == (0, 0)


def test_a_full_outbox_takes_no_block_and_tells_when_it_does():
    scripted = Scripted(outbox_frames=5)
    put(scripted, b"1", b"2", b"3")
    assert not scripted.core.send_block(block_of(b"4", b"5", b"6"), scripted.now)
    room = scripted.call("room")
    scripted.core.when_room(room, scripted.now, 100, 3)
    scripted.connect()
    assert outcome(room) == "accepted"
    assert scripted.core.send_block(block_of(b"4", b"5", b"6"), scripted.now)
    assert bodies(scripted.frames()) == [b"4", b"5", b"6"]
    assert bodies(frame for _, frame in scripted.seen if frame.command == "SEND") == [b"%d" % n for n in range(1, 7)]


def test_blocks_and_frames_keep_their_order_over_another_version():
    """What it cannot carry is an error of its call; text for JMS stays text."""
    assert Block(b"SEND\ndestination:a\n\ntext\0", 1, "1.2").chunks("1.1", False) == [b"SEND\ndestination:a\n\ntext\0"]
    scripted = Scripted(version="1.0")
    bad = put(scripted, b"0", name="line\nfeed")
    scripted.core.send_block(block_of(b"1", b"2", name="a:b\\c"), scripted.now)
    scripted.send(b"3")
    last = put(scripted, b"4")
    scripted.connect(confirm=False)
    frames = scripted.frames()
    assert bodies(frames) == [b"1", b"2", b"3", b"4"]
    assert frames[0].headers["destination"] == "a:b\\c"
    assert (outcome(bad), outcome(last)) == ("FrameError", "waits")


def test_one_that_fails_takes_those_with_it_that_have_not_left():
    """If nothing is in doubt, nothing fails: what waits goes out with the next connection."""
    scripted = Scripted()
    scripted.connect()
    group, other = Group(), Group()
    assert outcome(put(scripted, b"0", group=other)) == "waits"
    scripted.confirm_all()
    sent = put(scripted, b"1", group=group)
    assert bodies(scripted.frames()) == [b"1"]
    scripted.core.link.writable(False)
    waiting, apart = put(scripted, b"2", group=group), put(scripted, b"3", group=other)
    scripted.lose()
    assert (outcome(sent), outcome(waiting), outcome(apart)) == ("ConnectionLostError", "ConnectionLostError", "waits")
    assert (sent.error.sent, waiting.error.sent) == (True, False)
    with pytest.raises(stomp.ConnectionLostError):
        put(scripted, b"4", group=group)
    scripted.connect()
    assert bodies(frame for number, frame in scripted.seen if (number, frame.command) == (2, "SEND")) == [b"3"]
    assert outcome(apart) == "accepted"
    assert scripted.core.link.outbox.frames == 0


def test_resend_keeps_the_order_of_blocks():
    scripted = Scripted()
    scripted.connect()
    group = Group()
    calls = [put(scripted, b"%d" % number, group=group, resend=True) for number in range(3)]
    scripted.frames()
    scripted.core.link.writable(False)
    calls += [put(scripted, b"%d" % number, group=group, resend=True) for number in range(3, 6)]
    scripted.lose()
    scripted.connect()
    assert bodies(frame for number, frame in scripted.seen if (number, frame.command) == (2, "SEND")) == [
        b"%d" % number for number in range(6)
    ]
    assert {outcome(call) for call in calls} == {"accepted"}


def test_what_was_refused_is_not_sent_again():
    scripted = Scripted()
    scripted.connect()
    group = Group()
    calls = [put(scripted, b"%d" % number, group=group, resend=True) for number in range(3)]
    apart = put(scripted, b"apart", resend=True)
    scripted.frames()
    scripted.error()
    assert outcome(calls[0]) == "RejectedError"
    assert {outcome(call) for call in calls[1:]} == {"ConnectionLostError"}
    scripted.connect()
    assert outcome(apart) == "accepted"
    assert [number for number, frame in scripted.seen if frame.body == b"0"] == [1]


def test_time_runs_out_for_a_block_that_waits():
    scripted = Scripted()
    group = Group()
    calls = [put(scripted, b"1", group=group), put(scripted, b"2", group=group)]
    scripted.wait(31)
    assert [outcome(call) for call in calls] == ["ReceiptTimeoutError", "ConnectionLostError"]
    assert not any(call.error.sent for call in calls)
    assert scripted.core.link.outbox.frames == 0


def test_in_a_transaction_of_an_older_connection_nothing_leaves():
    scripted = Scripted()
    scripted.connect()
    transaction = scripted.begin()
    scripted.core.link.writable(False)
    call = scripted.call()
    assert scripted.core.send_block(block_of(b"1", receipt=call.id), scripted.now, call, transaction)
    scripted.lose()
    assert (outcome(call), call.error.sent) == ("ConnectionLostError", False)
    scripted.connect()
    with pytest.raises(stomp.ConnectionLostError, match="transaction"):
        scripted.core.send_block(block_of(b"2"), scripted.now, None, transaction)
    assert not [frame for _, frame in scripted.seen if frame.command == "SEND"]
