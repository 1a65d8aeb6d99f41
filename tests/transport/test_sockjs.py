"""SockJS: the layer on bytes, whole wires, and what an endpoint may answer instead."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("websockets")
from transport.messages import joined

from stompcodec.transport.http import Handshake
from stompcodec.transport.owner import AskAgainError, Part
from stompcodec.transport.websocket import Frames, SockJsLayer, client_layer, server_layer

INFO = b'{"websocket":true,"cookie_needed":false,"origins":["*:*"],"entropy":7}'


def info(body=INFO, status=b"200 OK", more=b""):
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


def asking(host="h", port=80, path="/stomp"):
    layer = SockJsLayer(host, port, path)
    layer.start()
    return layer, joined(layer.take_output())


def fed(octets, data):
    while octets:
        size = data.draw(st.integers(1, len(octets)))
        yield octets[:size]
        octets = octets[size:]


class Session:
    """The layer, and the WebSocket of a server at its other end."""

    def __init__(self, first=b"o"):
        self.layer, self.request = asking(path="/app/stomp/?x=1")
        assert self.layer.receive(info()) == []
        self.server = server_layer()
        self.server.receive(joined(self.layer.take_output()))
        self.layer.receive(joined(self.server.take_output()))
        if first:
            self.say(first)

    def say(self, *texts):
        self.server.send([text if isinstance(text, bytes) else text.encode() for text in texts])
        found = joined(self.layer.receive(joined(self.server.take_output())))
        while self.layer.waiting:
            found += joined(self.layer.receive(b""))
        return found

    def send(self, *chunks):
        self.layer.send(list(chunks))
        data = joined(self.layer.take_output())
        octets = joined(self.server.receive(data)) if data else b""
        return json.loads(b"[" + octets.replace(b"][", b"],[") + b"]")


def test_a_session():
    session = Session(first=None)
    assert session.request.startswith(b"GET /app/stomp/info?x=1 HTTP/1.1\r\nHost: h\r\n")
    assert not session.layer.opened
    assert session.say("o") == b""
    assert session.layer.opened
    assert session.say("h", 'a["CONNECTED\\n\\n\\u0000","\\u00fc"]', "h") == "CONNECTED\n\n\0ü".encode()
    assert session.send("SEND\n\nü\0".encode()) == [["SEND\n\nü\0"]]
    assert session.say('a["last"]c[3000,"x"]a["never"]') == b"last"


@pytest.mark.parametrize("text", ["x", '"', "é", "😀\0"])
@pytest.mark.parametrize("pieces", ["whole", "fragments", "messages"])
def test_large_frames_go_in_arrays_of_at_most_8000_bytes_if_asked(pieces, text):
    session, text = Session(), text * 30_000
    session.layer.split(pieces)
    octets = text.encode()
    arrays = session.send(Part(octets[:50_001]), octets[50_001:], b"last")
    assert "".join(*zip(*arrays, strict=True)) == text + "last"
    assert (len(arrays) < 4) is (pieces != "messages")
    assert pieces != "messages" or max(len(json.dumps(each)) for each in arrays) <= 8000


@given(st.lists(st.lists(st.text(max_size=20), max_size=4), max_size=6), st.data())
def test_frames_may_be_cut_anywhere(arrays, data):
    octets = b"o" + b"h".join(b"a" + json.dumps(each, ensure_ascii=False).encode() for each in arrays)
    frames, found = Frames(), []
    for piece in fed(octets, data):
        found += frames.feed(piece)
    assert ([value for kind, value in found if kind == "a"], frames.buffered) == (arrays, 0)


@pytest.mark.parametrize(
    ("frame", "opened", "error", "words"),
    [
        ('c[3000,"Go away!"]', True, ConnectionAbortedError, "3000: Go away!$"),
        ('c[2010,"Another connection still open"]', False, ConnectionRefusedError, "2010: Another"),
        ('c["x"]', True, ConnectionAbortedError, r"\?$"),
        ('c[1,"a\\nb\\u001b"]', True, ConnectionAbortedError, "1: ab$"),
        *(("a{}", True, ConnectionAbortedError, "no array"), ('a["a"}]', True, ConnectionAbortedError, "not JSON")),
        ("a[1]", True, ConnectionAbortedError, "something else than texts"),
        ('a["\\ud800"]', True, ConnectionAbortedError, "surrogate"),
        ('a["a"]', False, ConnectionAbortedError, "begins with o"),
        ("CONNECTED\n\n\0", True, ConnectionAbortedError, "begins with o"),
        ("a" + "[" * 1000 + "]" * 1000, True, ConnectionAbortedError, "not JSON"),
    ],
)
def test_close_frames_and_garbage_end_the_session(frame, opened, error, words):
    session = Session("o" if opened else None)
    session.say(frame)
    with pytest.raises(error, match=words):
        raise session.layer.error
    assert list(session.layer.receive(b"more")) == []


def test_a_frame_of_the_limit_and_one_past_it():
    for more in (0, 1):
        session = Session()
        session.layer.bound(100)
        session.say('a["' + "x" * (197 + more))
        assert (session.layer.error is None) is (more == 0)
        assert session.layer.buffered <= 200


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (info(status=b"302 Found", more=b"Location: https://user:s3cret@other/\r\n"), "302 Found: redirects are not"),
        (info(status=b"404 Not Found"), "404 Not Found: there is no such endpoint"),
        *((info(status=b"500 Oops"), "500 Oops$"), (info(b'{"websocket":false}'), "no WebSocket transport")),
        *((info(b"[]"), "not a JSON object"), (info(b"[" * 10_000), "not a JSON object")),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", "content-length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 16385\r\n\r\n{}", "longer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4001\r\n", "longer"),
        *((b"\x15\x03\x01\0\x02\x02", "not HTTP"), (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 16 * 1024, "longer")),
    ],
)
def test_bad_answers_to_info(answer, words):
    layer, _ = asking()
    layer.receive(answer)
    with pytest.raises(ConnectionRefusedError, match=words):
        raise layer.error
    assert "s3cret" not in str(layer.error)
    assert list(layer.receive(info())) == []


CHALLENGE = b"""Www-authenticate: Negotiate, basic realm="x"\r
Set-Cookie: b=2; Path=/; HttpOnly\r
Set-Cookie: a=; Max-Age=0\r
Set-Cookie: c=\xff\r
"""


@pytest.mark.parametrize("kind", ["SockJS", "WebSocket"])
@pytest.mark.parametrize("login", ["ann", None])
def test_headers_go_with_each_request_and_the_login_once_it_is_asked_for(kind, login):
    handshake = Handshake({"Cookie": "a=1; d=4", "X-Y": "z"}, login, "s3cret")

    def asked(answer):
        layer = (SockJsLayer if kind == "SockJS" else client_layer)("h", 80, "/s", handshake=handshake)
        layer.start()
        head = joined(layer.take_output()).split(b"\r\n")
        layer.receive(answer)
        return layer, head, [line for line in head if line[:6] in (b"Cookie", b"Author")]

    layer, head, sent = asked(info(b"none", b"401 Unauthorized", CHALLENGE)[:-2])
    assert b"X-Y: z" in head
    assert sent == [b"Cookie: a=1; d=4"]
    if login is None:
        assert str(layer.error) == f"{kind} refused, 401 Unauthorized: it wants an HTTP login: see http_headers"
        return
    assert isinstance(layer.error, AskAgainError)
    layer, head, sent = asked(info(b"none", b"401 ", CHALLENGE)[:-2])
    assert sent == [b"Authorization: Basic YW5uOnMzY3JldA==", b"Cookie: d=4; b=2"]
    assert str(layer.error) == f"{kind} refused, 401: it does not accept this login"


@given(st.booleans(), st.data())
def test_the_answer_to_info_may_come_in_any_pieces(chunked, data):
    chunks = b"Transfer-Encoding: chunked\r\n\r\n5\r\n%b\r\n%x;x=y\r\n%b\r\n0\r\n\r\n" % (
        *(INFO[:5], len(INFO) - 5, INFO[5:]),
    )
    layer, _ = asking()
    for piece in fed(b"HTTP/1.1 200 OK\r\n" + chunks if chunked else info(), data):
        layer.receive(piece)
    assert layer.error is None
    assert joined(layer.take_output()).startswith(b"GET /stomp/")
