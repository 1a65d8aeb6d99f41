"""WebSocket on the quick road and in the library: the same bytes and answers for any input, however it is cut."""

import secrets
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transport.messages import BINARY, CLOSE, CONT, PING, PONG, TEXT, frame, frames, joined
from transport.test_websocket import opened_client, opened_server

from stompcodec.transport import websocket

MOST = 300


@st.composite
def streams(draw):
    server, wire = draw(st.booleans()), b""
    for _ in range(draw(st.integers(1, 8))):
        opcode = draw(st.sampled_from([TEXT, BINARY] * 4 + [CONT, PING, PONG, CLOSE, 3, 11]))
        size = draw(st.sampled_from([0, 1, 2, 7, 8, 9, 124, 125, 126, 127, MOST - 1, MOST, MOST + 1, 70_000]))
        payload = draw(st.binary(max_size=9)) if opcode == CLOSE else b"\xc3\xa9x"[draw(st.integers(0, 2)) :] * size
        mask = draw(st.binary(min_size=4, max_size=4)) if server else None
        made = frame(opcode, payload[:size], fin=draw(st.integers(0, 4)) > 0, mask=mask)
        match draw(st.integers(0, 12)):
            case 0:  # a reserved bit, or another first byte
                made = bytes([draw(st.integers(0, 255))]) + made[1:]
            case 1:  # another length, or no mask
                made = made[:1] + bytes([draw(st.integers(0, 255))]) + made[2:]
            case 2:  # hostile lengths
                made = made[:1] + bytes([255 if server else 127]) + draw(st.binary(min_size=8, max_size=8)) + made[2:]
            case 3:
                made = made[: draw(st.integers(0, 20))]
        wire += made
    return server, wire


def outcome(server, wire, sizes, bounds, quick):
    """What can be seen of a layer that reads a stream in pieces; the bound changes on the way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(websocket, "_QUICK", quick)
        layer = opened_server(max_message=MOST) if server else opened_client()
        layer.take_output()
        layer.bound(MOST)
        received, at = b"", 0
        for number, size in enumerate([*sizes, len(wire)]):
            received += joined(layer.receive(memoryview(wire)[at : at + size]))
            at += size
            if number < len(bounds):
                layer.bound(bounds[number])
            while layer.waiting:
                received += joined(layer.receive(b""))
        buffered = 0 if layer.error is not None or layer.ended else layer.buffered
        said = [(read.opcode, read.payload) for read in frames(b"".join(layer.take_output()))]
        return received, said, layer.ended, type(layer.error).__name__ + str(layer.error), buffered


@given(streams(), st.lists(st.integers(1, 300), max_size=12), st.lists(st.integers(0, 2 * MOST), max_size=2))
@example((True, frame(TEXT, b"x" * MOST) + frame(BINARY, b"y" * (MOST + 1))), [], [])
@example((True, frame(TEXT, b"\xc3") + frame(TEXT, b"\xa9")), [3], [])
@example((False, b"\x81\x7f" + b"\xff" * 8), [], [])
@example((False, frame(TEXT, b"x" * 20)), [16, 1], [1, 0])  # the bound falls below what is there
def test_both_roads_read_the_same(stream, sizes, bounds):
    server, wire = stream
    assert outcome(server, wire, sizes, bounds, True) == outcome(server, wire, sizes, bounds, False)


@given(st.lists(st.one_of(st.binary(max_size=300), st.text(max_size=200).map(str.encode)), max_size=6), st.booleans())
@example([b"x" * 125, b"x" * 126, b"\xff" * 65_535, b"x" * 65_536], True)
def test_both_roads_write_the_same(chunks, server):
    """But for random masks. A ping that came between is answered in its place."""
    written = []
    for quick in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(websocket, "_QUICK", quick)
            layer = opened_server() if server else opened_client()
            layer.take_output()
            layer.send(chunks)
            layer.receive(frame(PING, b"?", mask=b"abcd" if server else None))
            layer.send(chunks)
            wire = b"".join(layer.take_output())
            written.append(wire if server else [read[:3] for read in frames(wire)])
    assert written[0] == written[1]


def test_masks_are_random(monkeypatch):
    octets, layer = secrets.token_bytes(12), opened_client()
    layer.take_output()
    monkeypatch.setattr("os.urandom", lambda count: octets[:count])
    layer.send([b"\0\0\0\0"] * 3)
    wire = b"".join(layer.take_output())
    assert [wire[at + 2 : at + 6] for at in (0, 10, 20)] == [octets[:4], octets[4:8], octets[8:]]


@pytest.mark.no_asan
@pytest.mark.parametrize("length", [2**40, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("first", [0x81, 0x82, 0x01])
def test_an_announced_length_allocates_nothing(first, length):
    layer = opened_server(max_message=2**50)
    layer.bound(2**50)
    tracemalloc.start()
    try:
        for octet in bytes([first, 0xFF]) + length.to_bytes(8, "big") + b"mask and payload":
            layer.receive(bytes([octet]))
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()
    assert (layer.error is None) is (length < 2**50)


def test_a_large_frame_in_small_reads_is_read_once(monkeypatch):
    """The bytes of a frame that is not whole are not looked at again with each read."""
    looks, read = [], websocket.read_websocket

    def counted(data, at, **options):
        looks.append(len(data) - at)
        return read(data, at, **options)

    monkeypatch.setattr(websocket, "read_websocket", counted)
    layer, wire = opened_server(), frame(BINARY, b"x" * 1_000_000)
    received = b"".join(joined(layer.receive(wire[at : at + 100])) for at in range(0, len(wire), 100))
    assert received == b"x" * 1_000_000
    assert sum(looks) < 1_000_000 + 1000
