"""WebSocket: the layer by itself, its shares of many tiny frames, and hostile peers on real sockets."""

import contextlib
import logging
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport.messages import (
    BINARY,
    CLOSE,
    CONT,
    KEY,
    PING,
    PONG,
    TEXT,
    accept_of,
    answered,
    frame,
    frames,
    joined,
    request,
)
from transport.wires import Raw, Server, on_loops, shaken
from websockets.protocol import Protocol

from stompcodec.transport import websocket
from stompcodec.transport.owner import CloseCodeError, Over, Part
from stompcodec.transport.websocket import MAX_HANDSHAKE, client_layer, server_layer

pytestmark = pytest.mark.usefixtures("road")
opcodes = pytest.mark.parametrize("opcode", [TEXT, BINARY])


def opened_server(bound=None, **options):
    layer = server_layer(**options)
    layer.start()
    assert layer.receive(request()) == []
    assert layer.opened
    layer.take_output()
    if bound is not None:
        layer.bound(bound)
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


def cut(octets, places):
    ends = sorted([*places, len(octets)])
    return [octets[start:end] for start, end in zip([0, *ends], ends)]


def in_frames(opcode, fragments, between=b""):
    last = len(fragments) - 1
    return b"".join(
        frame(CONT if at else opcode, fragment, fin=at == last) + between for at, fragment in enumerate(fragments)
    )


def code_of(layer):
    last = frames(joined(layer.take_output()))[-1]
    assert last.opcode == CLOSE
    return int.from_bytes(last.payload[:2], "big")


# ---- handshake ----
@pytest.mark.req("ART-WSK-01")
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        *(("v10.stomp, v11.stomp, v12.stomp", "v12.stomp"), ("v11.stomp,v10.stomp", "v11.stomp")),
        *(("mqtt, v11.stomp", "v11.stomp"), ("mqtt", None), ("", None)),
    ],
)
def test_the_best_version_offered_is_chosen(offered, chosen):
    layer = server_layer()
    layer.receive(request(Sec_WebSocket_Protocol=offered))
    status, headers, rest = answered(joined(layer.take_output()))
    assert (status, headers.get("sec-websocket-protocol"), rest) == (101, chosen, b"")
    assert headers["sec-websocket-accept"] == accept_of(KEY)
    assert (layer.opened, layer.error, layer.subprotocol) == (True, None, chosen)


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        *((b"CONNECT\naccept-version:1.2\n\n\0\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 426)),
        *((b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400), (request().replace(b"GET", b"PUT"), 405)),
        *((request(Sec_WebSocket_Key="short"), 400), (request(Sec_WebSocket_Version="8"), 400)),
        *((b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n", 414), (request(X="a" * 9000), 431)),
        (request(**{f"X{n}": "a" for n in range(200)}), 431),
        *((request(**{f"X{n}": "a" * 8000 for n in range(30)}), 431), (b"a" * (MAX_HANDSHAKE + 1), 414)),
    ],
)
def test_what_is_no_handshake_is_refused_in_words(wire, status):
    for size in (len(wire), 1000):
        layer, said = server_layer(), b""
        for at in range(0, len(wire), size):
            assert layer.receive(wire[at : at + size]) == []
            said += joined(layer.take_output())
        assert answered(said)[0] in (status, 400)
        assert isinstance(layer.error, ConnectionError)
        assert (layer.opened, layer.receive(request()), layer.take_output()) == (False, [], [])


def test_one_path_may_be_the_only_one():
    for path, status in (("/ws", 101), ("/ws?token=x", 101), ("/", 404), ("/ws/x", 404)):
        layer = server_layer(path="/ws")
        layer.receive(request(path))
        assert (answered(joined(layer.take_output()))[0], layer.opened) == (status, status == 101)


@pytest.mark.parametrize(
    "wire",
    [
        *(b"ERROR\nmessage:no\n\n\0\r\n\r\n", b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: AAAA\r\n\r\n",
        *(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 9000, b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"),
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
    layer, received, at = opened_server(), b"", 0
    for size in [*sizes, len(wire)]:
        received += joined(layer.receive(memoryview(wire)[at : at + size]))
        at += size
    assert received == stream
    answers = frames(joined(layer.take_output()))
    assert [(read.opcode, read.payload, read.masked) for read in answers] == [(PONG, ping, False) for ping in pings]
    assert (layer.error, layer.ended) == (None, False)


# ---- the end ----
@pytest.mark.parametrize(
    ("wire", "code"),
    [
        *((frame(TEXT, b"x", mask=None), 1002), (frame(3, b"x"), 1002), (frame(CONT, b"x"), 1002)),
        *((frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), 1002), (frame(PING, b"x" * 126), 1002)),
        *((frame(PING, fin=False), 1002), (b"\xc1" + frame(TEXT, b"x")[1:], 1002), (frame(CLOSE, b"\x03"), 1002)),
        *((frame(CLOSE, b"\x03\xed"), 1002), (frame(CLOSE, b"\x03\xe8\xff"), 1007)),
        *((frame(BINARY, b"x" * 1001), 1009), (in_frames(BINARY, [b"x" * 600, b"x" * 401]), 1009)),
        (b"\x82\xff" + b"\x7f" + b"\xff" * 7, 1009),
    ],
)
def test_broken_messages_end_it_with_the_right_code(wire, code):
    layer = opened_server(max_message=1000)
    pieces = layer.receive(frame(TEXT, b"good") + wire + frame(TEXT, b"unread"))
    assert bytes(pieces[0]) == b"good"
    assert b"unread" not in joined(pieces)
    assert isinstance(layer.error, ConnectionError)
    assert code_of(layer) == code
    assert (layer.receive(frame(TEXT, b"unread")), layer.take_output()) == ([], [])


GOOD = "SEND\ndestination:/queue/caf\xe9\n\n\u20ac\U0001f600\0".encode()


@pytest.mark.parametrize(
    "bad", [b"\xff", b"CONNECT\n\n\xc3\0", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"caf\xc3"]
)
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_a_text_message_that_is_not_utf8_ends_it_with_1007(bad, step):
    """In one frame or in many, with pings in between, and cut within a character; what was good before it counts."""
    layer = opened_server()
    wire = in_frames(TEXT, cut(bad, range(step, len(bad), step)), between=frame(PING))
    assert joined(layer.receive(frame(TEXT, GOOD) + wire + frame(TEXT, b"unread"))).startswith(GOOD)
    assert isinstance(layer.error, ConnectionError)
    assert code_of(layer) == 1007


@pytest.mark.parametrize("size", [100, 1000])
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_the_limit_of_a_message_is_exact(size, cut):
    for octets, broken in ((size, False), (size + 1, True)):
        layer, wire = opened_server(max_message=size), frame(BINARY, b"x" * octets)
        received = b"".join(joined(layer.receive(wire[at : at + cut])) for at in range(0, len(wire), cut))
        assert (layer.error is not None) is broken
        assert received == (b"" if broken else b"x" * octets)


@pytest.mark.parametrize("raised", [False, True])
def test_what_waits_for_the_rest_of_its_message_is_bounded(raised):
    """The bound holds for what has come, not for what was announced; raised, it holds for the frame that is on."""
    layer, announced = opened_server(bound=1000), frame(BINARY, b"x" * 50_000)
    assert (layer.receive(announced[:900]), layer.error) == ([], None)
    if raised:
        layer.bound(100_000)
    received = joined(layer.receive(announced[900:1100]))
    assert (layer.error is None) is raised
    received += joined(layer.receive(announced[1100:]))
    assert received == (b"x" * 50_000 if raised else b"")
    assert raised or code_of(layer) == 1009


@pytest.mark.req("ART-WSK-02")
@opcodes
@pytest.mark.parametrize(("octets", "broken"), [(65536, False), (65537, True)])
def test_the_bound_of_a_frame_holds_however_it_comes(opcode, octets, broken):
    """Also for one that comes at once, and in a message of many frames; their sum may be larger."""
    layer = opened_server(bound=65536)
    received = joined(layer.receive(frame(opcode, b"x" * octets) + frame(opcode, b"y")))
    assert (layer.error is not None) is broken
    assert received == (b"" if broken else b"x" * octets + b"y")
    layer = opened_server(bound=65536)
    layer.receive(in_frames(opcode, [b"x" * 60_000, b"x" * 60_000, b""])[: -len(frame(CONT))])
    assert layer.error is None
    layer.receive(frame(CONT, b"x" * octets))
    assert (layer.error is not None) is broken
    assert not broken or code_of(layer) == 1009


@pytest.mark.parametrize("body", [b"x", "é€😀".encode(), b"\x80"])
@pytest.mark.parametrize(
    ("pieces", "most", "found"),
    [
        ("whole", 2**20, [(None, True), (BINARY, False), (CONT, True)]),
        ("fragments", 60_000, [(None, False), (CONT, True), (BINARY, False), (CONT, False), (CONT, True)]),
        ("messages", 8_000, [*[(None, True)] * 26, (TEXT, True)]),
    ],
)
def test_large_chunks_go_whole_in_fragments_or_in_messages(pieces, most, found, body):
    client, server, body = opened_client(), opened_server(), body * (100_000 // len(body))
    client.split(pieces)
    client.send([b"first", body, Part(body), b"last"])
    wire = joined(client.take_output())
    assert joined(server.receive(wire)) == b"first" + body + body + b"last"
    _, *read = frames(wire)
    kind = BINARY if body[:1] == b"\x80" else TEXT
    assert [(each.opcode, each.fin) for each in read] == [(kind if code is None else code, fin) for code, fin in found]
    assert max(len(each.payload) for each in read) <= most
    for each in read if kind == TEXT else ():
        each.payload.decode()


def test_nothing_that_is_read_or_written_is_logged(caplog):
    """There are passcodes in it."""
    with caplog.at_level(logging.DEBUG, "stompcodec.transport.websocket"):
        opened_server().receive(frame(TEXT, b"CONNECT\npasscode:hunter2\n\n\0") + frame(CLOSE))
        opened_client().send([b"CONNECT\npasscode:hunter2\n\n\0"])
    assert caplog.records == []


@pytest.mark.parametrize("code", [1001, 1008, 1011, 4001])
def test_a_close_code_is_the_error_behind_messages_that_came_with_it(code):
    client, server = opened_client(), opened_server()
    for name, one, other in (("server", server, client), ("client", opened_client(), opened_server())):
        one.send([b"hello"])
        one._protocol.send_close(code, "token expired\n")
        assert joined(other.receive(joined(one.take_output()))) == b"hello"
        assert isinstance(other.error, CloseCodeError)
        assert other.error.code == code
        assert str(other.error) == f"the {name} closed the WebSocket: {code}: token expired"


MANY = 5000
FLOODS = {
    "fragments of one byte": in_frames(TEXT, [b"x"] * (MANY - 1) + [b""]),
    **{"messages of one byte": frame(BINARY, b"x") * MANY, "empty messages": frame(TEXT) * MANY},
    **{"empty fragments": in_frames(BINARY, [b""] * MANY), "pings": frame(PING) * MANY},
    "pongs": frame(PONG, b"x") * MANY,
    "pings between fragments": in_frames(TEXT, [b"x"] * (MANY // 2) + [b""], between=frame(PING)),
}


@pytest.fixture
def counting(monkeypatch):
    """Gives the frames that layers have read since the last call, and what they are of a share."""
    counts, handle, read = {"library": 0, "quick": 0}, Protocol.recv_frame, websocket.read_websocket

    def counted_handle(protocol, frame):
        counts["library"] += 1
        handle(protocol, frame)

    def counted_read(*args, **options):
        found = read(*args, **options)
        counts["quick"] += found[2]
        return found

    def take():
        library, quick = counts.values()
        counts.update(library=0, quick=0)
        return library + quick, library + quick / websocket.RUN

    monkeypatch.setattr(Protocol, "recv_frame", counted_handle)
    monkeypatch.setattr(websocket, "read_websocket", counted_read)
    return take


def drained(layer, take, wire):
    take()
    received, counts = joined(layer.receive(wire)), [take()]
    while layer.waiting:
        assert (layer.error, layer.ended) == (None, False)
        received += joined(layer.receive(b""))
        counts.append(take())
    frames, shares = zip(*counts)
    return received, sum(frames), shares


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_share_at_a_time(flood, counting):
    received, count, shares = drained(opened_server(), counting, flood + frame(BINARY, b"end"))
    assert received.strip(b"x") == b"end"
    assert count in (MANY + 1, MANY + 3)
    assert shares[0] <= websocket.FIRST_SHARE
    assert max(shares) <= websocket.SHARE
    assert len(shares) < 2 * MANY / websocket.SHARE


@pytest.mark.parametrize("end", ["close", "noise"])
def test_frames_in_small_records_of_tls_have_one_share_together(contexts, end, counting):
    """Neither the records nor the frames in them are a way around it; the end of TLS comes behind all frames."""

    def records(pieces):
        return b"".join([client.send([piece]) or joined(client.take_output()) for piece in pieces])

    client, lower = shaken(contexts)
    layer = Over(lower, server_layer())
    assert layer.receive(records([request()])) == []
    assert layer.opened
    wire = records([frame(BINARY, b"x") * size for size in [1] * 1000 + [500] * 8])
    if end == "close":
        client.close()
        wire += joined(client.take_output())
    else:
        wire += b"\x17\x03\x03\x00\x20" + bytes(32)
    received, _, shares = drained(layer, counting, wire)
    assert received == b"x" * 5000
    assert max(shares) <= websocket.SHARE
    assert (layer.ended, layer.error is None) == ((True, True) if end == "close" else (False, False))


def fragments(count):
    """A message in frames of one byte, which no quick road reads."""
    return in_frames(BINARY, [b"x"] * count)


@contextlib.asynccontextmanager
async def opened(**options):
    async with Server("ws", **options) as server, Raw.to(server.port) as raw:
        await raw.send(request())
        await raw.until(b"\r\n\r\n")
        yield raw, await server.first()


@on_loops
@pytest.mark.parametrize("end", ["end of stream", "reset", "close"])
async def test_what_was_read_is_received_though_the_peer_is_gone(end):
    async with opened() as (raw, peer):
        await raw.send(fragments(3000) + (frame(CLOSE) if end == "close" else b""))
        await peer.has(1)
        if end == "reset" and peer.wire._held:
            peer.wire._transport.abort()  # as a failed write does it
        elif end == "end of stream":
            raw.sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            await raw.rest()
        raw.sock.close()
        await peer.gone()
        assert bytes(peer.data) == b"x" * 3000


@on_loops
async def test_a_wire_passes_its_bound_on():
    async with opened() as (raw, peer):
        peer.wire.bound(1000)
        await raw.send(frame(TEXT, b"s" * 900))
        await peer.has(900)
        await raw.send(frame(TEXT, b"s" * 2000)[:-1])
        assert b"\x03\xf1" in await raw.rest()
        raw.sock.close()
        assert isinstance(await peer.gone(), ConnectionAbortedError)
