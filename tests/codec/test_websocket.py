"""Plain WebSocket frames, read and written by either backend, against frames that are written out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport.messages import BINARY, CONT, PING, TEXT, frame, frames

WIDE = {"masked": True, "utf8": True, "longest": 2**64, "most": 10**6}
PAYLOADS = st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)), max_size=8)


def kind_of(payload):
    try:
        payload.decode()
    except UnicodeDecodeError:
        return BINARY
    return TEXT


@given(PAYLOADS, st.booleans(), st.integers(0, 9), st.integers(0, 45), st.data())
def test_a_run_is_what_fits(codec, payloads, masked, most, longest, data):
    wires = [
        frame(kind_of(payload), payload, mask=data.draw(st.binary(min_size=4, max_size=4)) if masked else None)
        for payload in payloads
    ]
    before, wire = b"before", b"".join(wires)
    cut = data.draw(st.integers(0, len(wire)))
    count, end = 0, 0
    for payload, each in zip(payloads, wires):
        if count == most or len(payload) > longest or end + len(each) > cut:
            break
        count, end = count + 1, end + len(each)
    for octets in (before + wire[:cut], memoryview(bytearray(before + wire[:cut]))):
        found = codec.read_websocket(octets, 6, masked=masked, utf8=True, longest=longest, most=most)
        assert found == (b"".join(payloads[:count]), 6 + end, count)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 65_535, 65_536])
def test_sizes_and_the_limit(codec, size):
    payload = bytes(range(256)) * 257
    for mask in (None, b"\1\2\xfe\xff"):
        wire = frame(BINARY, payload[:size], mask=mask)
        options = WIDE | {"masked": mask is not None}
        assert codec.read_websocket(wire, **options | {"longest": size}) == (payload[:size], len(wire), 1)
        if size:
            assert codec.read_websocket(wire, **options | {"longest": size - 1}) == (b"", 0, 0)
        (read,) = frames(codec.write_websocket([payload[:size]], mask or b"")) if size else [None]
        assert read is None or (read.payload, read.fin, read.masked) == (payload[:size], True, mask is not None)


@pytest.mark.parametrize(
    "other",
    [
        *(frame(TEXT, b"x", mask=None), frame(TEXT, b"x", fin=False), frame(CONT, b"x"), frame(PING), frame(3, b"x")),
        *(b"\xc1" + frame(TEXT, b"x")[1:], frame(TEXT, b"\xc3"), frame(TEXT, b"\xed\xa0\x80")),
        *(frame(BINARY, b"x" * 200)[:3], frame(BINARY, b"x" * 200)[:-1], b"\x82\xff" + b"\xff" * 8 + b"mask"),
    ],
)
def test_other_frames_end_a_run(codec, other):
    before = frame(TEXT, b"caf\xc3\xa9") + frame(BINARY, b"\xff")
    wire = before + other + frame(TEXT, b"behind")
    wire = before + other if len(other) < 3 or other[0] == 0x82 else wire
    assert codec.read_websocket(wire, **WIDE) == (b"caf\xc3\xa9\xff", len(before), 2)


def test_any_number_of_frames_and_text_that_is_not_checked_for_a_client(codec):
    wire = frame(TEXT, b"x") * 3
    assert codec.read_websocket(wire, **WIDE | {"most": 2**70}) == (b"xxx", len(wire), 3)
    wire = frame(TEXT, b"\xff", mask=None)
    assert codec.read_websocket(wire, **WIDE | {"utf8": False, "masked": False}) == (b"\xff", 3, 1)


@given(PAYLOADS, st.data())
def test_written_frames(codec, payloads, data):
    masks = data.draw(st.one_of(st.just(b""), st.binary(min_size=4 * len(payloads), max_size=4 * len(payloads))))
    read = frames(codec.write_websocket(payloads, masks))
    assert [each.payload for each in read] == [payload for payload in payloads if payload]
    assert all(each.opcode == kind_of(each.payload) and each.fin and each.masked is bool(masks) for each in read)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        *((ValueError, lambda codec, at=at: codec.read_websocket(b"x", at, **WIDE)) for at in (2, -1, 2**70)),
        (ValueError, lambda codec: codec.read_websocket(b"x", **WIDE | {"longest": -1})),
        (ValueError, lambda codec: codec.read_websocket(b"x", **WIDE | {"most": -1})),
        (TypeError, lambda codec: codec.read_websocket("x", **WIDE)),
        (TypeError, lambda codec: codec.write_websocket(["x"])),
        *(
            (ValueError, lambda codec, masks=masks: codec.write_websocket([b"x"], masks))
            for masks in (b"123", b"12345")
        ),
    ],
)
def test_wrong_arguments(codec, error, call):
    with pytest.raises(error):
        call(codec)
