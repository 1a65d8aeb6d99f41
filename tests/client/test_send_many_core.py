"""Blocks of frames in the core: over reconnects, versions and failures, on a fake clock."""

import pytest
from client.scripted import Scripted, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import Frame, FrameError, parse, serialize, serialize_many
from stompcodec.client.outbox import Block, Group

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
