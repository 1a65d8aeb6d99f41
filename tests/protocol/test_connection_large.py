"""Bodies in pieces, and terms of heart-beats for one client: what a broker asks of its connections beyond the rules."""

import pytest
from protocol.talking import connect_wire, server_in_session

from stompcodec import END_OF_BODY, Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.spec import Limits

BODY = bytes(range(256)) * 4


def send_wire(body, length=True):
    counted = b"content-length:%d\n" % len(body) if length else b""
    return b"SEND\ndestination:/queue/a\n%b\n%b\0" % (counted, body)


def streaming(**options):
    server = server_in_session(stream_over=99, **options)
    pieces = []
    server.on_piece = pieces.append
    return server, pieces


@pytest.mark.parametrize("cut", [1, 7, 500, 10_000])
@pytest.mark.parametrize("length", [True, False])
def test_a_large_body_comes_in_pieces_behind_its_frame(length, cut):
    server, pieces = streaming()
    body = BODY if length else BODY.replace(b"\0", b"x")
    wire = send_wire(b"s" * 99) + send_wire(body, length) + send_wire(b"after")
    frames = []
    for at in range(0, len(wire), cut):
        for frame in server.receive(wire[at : at + cut], 0.0):
            if len(frames) == 1:
                assert pieces == [], "the frame is handed out first"
            frames.append(frame)
    assert [frame.body for frame in frames] == [b"s" * 99, None, b"after"]
    assert pieces[-1] is END_OF_BODY
    assert b"".join(pieces[:-1]) == body


def test_before_the_session_nothing_is_handed_out_in_pieces():
    server = Connection(Role.SERVER, stream_over=0, first_limits=Limits(max_body=10))
    (frame,) = server.receive(connect_wire(), 0.0)
    assert frame.body == b""


def test_the_limit_holds():
    server, pieces = streaming(limits=Limits(max_body=500))
    with pytest.raises(RemoteProtocolError, match="limit"):
        list(server.receive(send_wire(BODY), 0.0))
    server, pieces = streaming(limits=Limits(max_body=500))
    with pytest.raises(RemoteProtocolError, match="limit"):
        list(server.receive(b"SEND\ndestination:/queue/a\n\n" + b"x" * 501, 0.0))
    assert sum(map(len, pieces)) <= 500


def test_whoever_sends_an_error_meanwhile_hears_no_more():
    server, pieces = streaming()
    wire = send_wire(BODY)
    list(server.receive(wire[:500], 0.0))
    server.send(Frame("ERROR", {"message": "no"}))
    count = len(pieces)
    assert list(server.receive(wire[500:], 0.0)) == []
    assert len(pieces) == count


# ---- terms for one client ----


@pytest.mark.parametrize(("silence", "dead"), [(None, 4.0), (5000, 5.0), (5001, 5.002)])
def test_other_terms_than_those_of_the_connection(silence, dead):
    server = Connection(Role.SERVER, heart_beat=(1, 1))
    for _ in server.receive(connect_wire(more=b"heart-beat:2000,700\n"), 0.0):
        frame = server.accept({"session": "1"}, heart_beat=(500, 1000), silence=silence)
    assert frame.headers["heart-beat"] == "500,1000"
    assert server.heartbeat.send_every == 700
    server.take_output(0.0)
    assert server.tick(dead - 0.01)
    assert not server.tick(dead)
