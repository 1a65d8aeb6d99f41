"""WebSocket: the layer by itself, cut in every way, and hostile peers on real sockets."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport.messages import BINARY, CLOSE, CONT, KEY, PING, PONG, TEXT, accept_of, answered, frame, frames, request

from stompcodec.transport.owner import CloseCodeError
from stompcodec.transport.websocket import MAX_HANDSHAKE, client_layer, server_layer

pytestmark = pytest.mark.usefixtures("road")


def opened_server(**options):
    """A server's layer behind its handshake."""
    layer = server_layer(**options)
    layer.start()
    assert layer.receive(request()) == []
    assert layer.opened
    layer.take_output()
    return layer


def opened_client():
    layer = client_layer("localhost", 80)
    layer.start()
    (asked,) = layer.take_output()
    key = answered(b"HTTP/1.1 200 \r\n" + asked.partition(b"\r\n")[2])[1]["sec-websocket-key"]
    layer.receive(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept_of(key).encode() + b"\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n"
    )
    assert layer.opened
    return layer


def joined(pieces):
    return b"".join(bytes(piece) for piece in pieces)


def cut(octets, places):
    """Octets in pieces."""
    ends = sorted([*places, len(octets)])
    return [octets[start:end] for start, end in zip([0, *ends], ends)]


# ---- handshake ----


@pytest.mark.req("ART-WSK-01")
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("v10.stomp, v11.stomp, v12.stomp", "v12.stomp"),
        ("v11.stomp,v10.stomp", "v11.stomp"),
        ("v10.stomp", "v10.stomp"),
        ("mqtt, v11.stomp", "v11.stomp"),
        ("mqtt", None),
        ("", None),
    ],
)
def test_the_best_version_offered_is_chosen(offered, chosen):
    layer = server_layer()
    layer.receive(request(Sec_WebSocket_Protocol=offered))
    status, headers, rest = answered(b"".join(layer.take_output()))
    assert (status, headers.get("sec-websocket-protocol"), rest) == (101, chosen, b"")
    assert headers["sec-websocket-accept"] == accept_of(KEY)
    assert layer.opened
    assert layer.error is None
    assert layer.subprotocol == chosen


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"CONNECT\naccept-version:1.2\n\n\0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 426),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (request().replace(b"GET", b"PUT"), 405),
        (request(Sec_WebSocket_Key=""), 400),
        (request(Sec_WebSocket_Key="short"), 400),
        (request(Sec_WebSocket_Version="8"), 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n", 414),
        (request(X="a" * 9000), 431),
        (request(**{f"X{n}": "a" for n in range(200)}), 431),
        (request(**{f"X{n}": "a" * 8000 for n in range(30)}), 431),
        (b"a" * (MAX_HANDSHAKE + 1), 414),
    ],
)
def test_what_is_no_handshake_is_refused_in_words(wire, status):
    """With an answer of HTTP, whatever came, and however it came. Older libraries know fewer codes."""
    for size in (len(wire), 1000):
        layer = server_layer()
        said = b""
        for at in range(0, len(wire), size):
            assert layer.receive(wire[at : at + size]) == []
            said += b"".join(layer.take_output())
        assert answered(said)[0] in (status, 400)
        assert isinstance(layer.error, ConnectionError)
        assert not layer.opened
        assert layer.receive(request()) == []
        assert layer.take_output() == []


def test_one_path_may_be_the_only_one():
    for path, status in (("/ws", 101), ("/ws?token=x", 101), ("/", 404), ("/ws/x", 404)):
        layer = server_layer(path="/ws")
        layer.receive(request(path))
        assert answered(b"".join(layer.take_output()))[0] == status
        assert layer.opened is (status == 101)


@pytest.mark.parametrize(
    "wire",
    [
        b"ERROR\nmessage:no\n\n\0\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: AAAA\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 9000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"a" * (MAX_HANDSHAKE + 1),
    ],
)
def test_a_server_that_refuses_or_is_none(wire):
    layer = client_layer("localhost", 80)
    layer.start()
    assert layer.receive(wire) == []
    assert isinstance(layer.error, ConnectionError)
    assert not layer.opened


# ---- messages ----


@st.composite
def conversations(draw):
    """(octets of STOMP, the same as WebSocket frames with pings between, payloads of the pings)."""
    stream, wire, pings = b"", b"", []
    for _ in range(draw(st.integers(0, 6))):
        fragments = draw(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
        opcode = draw(st.sampled_from([TEXT, BINARY]))
        if opcode == TEXT:  # may be cut within a character
            fragments = cut(draw(st.text(max_size=300)).encode(), draw(st.lists(st.integers(0, 300), max_size=3)))
        for number, fragment in enumerate(fragments):
            if draw(st.booleans()):
                pings.append(draw(st.binary(max_size=125)))
                wire += frame(PING, pings[-1])
            wire += frame(CONT if number else opcode, fragment, fin=number == len(fragments) - 1)
            stream += fragment
        if draw(st.booleans()):
            wire += frame(PONG, b"unasked")
    return stream, wire, pings


@pytest.mark.req("ART-WSK-01")
@given(conversations(), st.lists(st.integers(1, 400), max_size=20))
def test_messages_are_octets_however_they_are_cut(conversation, sizes):
    stream, wire, pings = conversation
    layer = opened_server()
    received, at = b"", 0
    for size in [*sizes, len(wire)]:
        received += joined(layer.receive(memoryview(wire)[at : at + size]))
        at += size
    assert received == stream
    answers = frames(b"".join(layer.take_output()))
    assert [(read.opcode, read.payload, read.masked) for read in answers] == [(PONG, ping, False) for ping in pings]
    assert layer.error is None
    assert not layer.ended


def test_text_that_is_no_utf8_is_taken():
    """There are brokers that send every body as text."""
    layer = opened_client()
    assert joined(layer.receive(frame(TEXT, b"MESSAGE\n\n\xff\0", mask=None))) == b"MESSAGE\n\n\xff\0"
    assert layer.error is None


# ---- the end ----


def test_our_close_says_1000_once():
    for layer in (opened_server(), opened_client()):
        layer.close()
        layer.close()
        layer.send([b"dropped"])
        assert [(read.opcode, read.payload) for read in frames(b"".join(layer.take_output()))] == [(CLOSE, b"\x03\xe8")]


def code_of(layer):
    """The code of the close that a layer sends last."""
    last = frames(b"".join(layer.take_output()))[-1]
    assert last.opcode == CLOSE
    return int.from_bytes(last.payload[:2], "big")


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (frame(TEXT, b"x", mask=None), 1002),
        (frame(3, b"x"), 1002),
        (frame(11, b"x"), 1002),
        (frame(CONT, b"x"), 1002),
        (frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(PING, fin=False), 1002),
        (b"\xc1" + frame(TEXT, b"x")[1:], 1002),
        (frame(CLOSE, b"\x03"), 1002),
        (frame(CLOSE, b"\x03\xed"), 1002),
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (frame(BINARY, b"x" * 1001), 1009),
        (frame(BINARY, b"x" * 600, fin=False) + frame(CONT, b"x" * 401), 1009),
        (b"\x82\xff" + b"\x7f" + b"\xff" * 7, 1009),
    ],
)
def test_broken_messages_end_it_with_the_right_code(wire, code):
    """What was good before them is handed over; what follows is not looked at."""
    layer = opened_server(max_message=1000)
    pieces = layer.receive(frame(TEXT, b"good") + wire + frame(TEXT, b"unread"))
    assert bytes(pieces[0]) == b"good"
    assert b"unread" not in joined(pieces)
    assert isinstance(layer.error, ConnectionError)
    assert code_of(layer) == code
    assert layer.receive(frame(TEXT, b"unread")) == []
    assert layer.take_output() == []


@pytest.mark.parametrize("size", [100, 1000])
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_the_limit_of_a_message_is_exact(size, cut):
    """Its head does not count, nor does how it comes."""
    for octets, broken in ((size, False), (size + 1, True)):
        layer = opened_server(max_message=size)
        wire = frame(BINARY, b"x" * octets)
        received = b"".join(joined(layer.receive(wire[at : at + cut])) for at in range(0, len(wire), cut))
        assert (layer.error is not None) is broken
        assert received == (b"" if broken else b"x" * octets)


def test_what_waits_for_the_rest_of_its_message_is_bounded():
    """The bound holds for what has come, not for what was announced; raised, it holds for the frame that is on."""
    announced = frame(BINARY, b"x" * 50_000)
    for raised in (False, True):
        layer = opened_server()
        layer.bound(1000)
        assert layer.receive(announced[:900]) == []
        assert layer.error is None
        if raised:
            layer.bound(100_000)
        received = joined(layer.receive(announced[900:1100]))
        assert (layer.error is None) is raised
        received += joined(layer.receive(announced[1100:]))
        assert received == (b"x" * 50_000 if raised else b"")
        assert raised or code_of(layer) == 1009


@pytest.mark.req("ART-WSK-02")
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_the_bound_of_a_frame_holds_however_it_comes(opcode):
    """Also for one that comes at once, and in a message of many frames; their sum may be larger."""
    for octets, broken in ((65536, False), (65537, True)):
        layer = opened_server()
        layer.bound(65536)
        received = joined(layer.receive(frame(opcode, b"x" * octets) + frame(opcode, b"y")))
        assert (layer.error is not None) is broken
        assert received == (b"" if broken else b"x" * octets + b"y")
        layer = opened_server()
        layer.bound(65536)
        layer.receive(frame(opcode, b"x" * 60_000, fin=False) + frame(CONT, b"x" * 60_000, fin=False))
        assert layer.error is None
        layer.receive(frame(CONT, b"x" * octets))
        assert (layer.error is not None) is broken
        assert not broken or code_of(layer) == 1009


def test_nothing_that_is_read_or_written_is_logged(caplog):
    """There are passcodes in it."""
    with caplog.at_level(logging.DEBUG, "stompcodec.transport.websocket"):
        opened_server().receive(frame(TEXT, b"CONNECT\npasscode:hunter2\n\n\0") + frame(CLOSE))
        opened_client().send([b"CONNECT\npasscode:hunter2\n\n\0"])
    assert caplog.records == []


@pytest.mark.parametrize("code", [1001, 1008, 1011, 4001])
def test_a_close_code_of_the_server_is_the_error_behind_messages_that_came_with_it(code):
    client, server = opened_client(), opened_server()
    server.send([b"hello"])
    server._protocol.send_close(code, "token expired\n")
    assert joined(client.receive(b"".join(server.take_output()))) == b"hello"
    assert isinstance(client.error, CloseCodeError)
    assert client.error.code == code
    assert str(client.error) == f"the server closed the WebSocket: {code} token expired"


# ---- text that is not UTF-8 ----

GOOD = "SEND\ndestination:/queue/caf\xe9\n\n\u20ac\U0001f600\0".encode()
BAD = [b"\xff", b"CONNECT\n\n\xc3\0", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"caf\xc3"]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_a_text_message_that_is_not_utf8_ends_it_with_1007(bad, step):
    """In one frame or in many, with pings in between, and cut within a character; what was good before it counts."""
    layer = opened_server()
    fragments = [bad[at : at + step] for at in range(0, len(bad), step)]
    wire = frame(TEXT, GOOD)
    for number, fragment in enumerate(fragments):
        wire += frame(CONT if number else TEXT, fragment, fin=number == len(fragments) - 1) + frame(PING)
    assert joined(layer.receive(wire + frame(TEXT, b"unread"))).startswith(GOOD)
    assert isinstance(layer.error, ConnectionError)
    assert code_of(layer) == 1007
