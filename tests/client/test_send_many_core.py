"""Blocks of frames in the core: over reconnects, versions and failures, on a fake clock."""

from client.scripted import Scripted, outcome
from hypothesis import strategies as st

from stompcodec import Frame, serialize, serialize_many
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
