"""HTTP CONNECT: the layer on bytes, whole wires through a proxy, and what a proxy may answer instead."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import patience
from transport.proxies import ScriptedProxy
from transport.wires import KINDS, Peer, Place, in_thread

from stompcodec.errors import ConfigError
from stompcodec.transport import sync
from stompcodec.transport.layers import MAX_HEAD, ConnectLayer, Proxy, parse_proxy, proxy_of

OK = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"


def layer(url="http://proxy:3128", host="broker", port=61613):
    made = ConnectLayer(host, port, parse_proxy(url))
    made.start()
    return made


def asked(made):
    return b"".join(made.take_output())


def test_the_login_is_sent_as_basic_and_shown_nowhere():
    made = layer("http://ann:s%3Acret%C3%A9@proxy:3128")
    token = base64.b64encode("ann:s:cretÃ©".encode("latin-1")).decode()
    assert f"\r\nProxy-Authorization: Basic {token}\r\n" in asked(made).decode()
    made.receive(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    assert "does not accept this login" in str(made.error)
    assert "cret" not in str(made.error) + repr(parse_proxy("http://ann:s%3Acret@proxy:3128"))


def test_the_target_is_named_as_http_does_and_cannot_add_lines():
    assert asked(layer(host="::1", port=5)).startswith(b"CONNECT [::1]:5 HTTP/1.1\r\nHost: [::1]:5\r\n")
    assert asked(layer(host="bücher.example", port=1)).startswith(b"CONNECT xn--bcher-kva.example:1 ")
    with pytest.raises(ValueError, match="cannot be asked"):
        layer(host="broker\r\nX: y")


@given(st.data())
def test_the_answer_may_come_in_any_pieces(data):
    octets = b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"first bytes of the broker"
    made, at, upward = layer(), 0, b""
    while at < len(octets):
        size = data.draw(st.integers(1, len(octets) - at))
        upward += b"".join(bytes(piece) for piece in made.receive(octets[at : at + size]))
        at += size
    assert (made.opened, made.error, upward, made.buffered) == (True, None, b"first bytes of the broker", 0)
    made.send([b"one", b"two"])
    assert asked(made).endswith(b"onetwo")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication Required: it wants a login"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden: it does not allow"),
        (b"HTTP/1.0 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "302 Found: redirects are not followed"),
        (b"HTTP/1.1 405\r\n\r\n", "405: it offers no CONNECT"),
        (b"HTTP/1.1 502 Bad\x1b[31m Gateway\r\n\r\n", r"502 Bad\[31m Gateway: it cannot reach the broker"),
        (b"HTTP/1.1 500 Oops\n\n", "500 Oops$"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 999 x\r\n\r\n", "not HTTP"),
        (b"\0" * 7, "not HTTP"),
    ],
)
def test_what_is_no_tunnel_is_an_error_that_says_what_to_do(answer, words):
    made = layer()
    assert made.receive(answer) == []
    assert not made.opened
    assert isinstance(made.error, ConnectionRefusedError)
    with pytest.raises(ConnectionRefusedError, match=words):
        raise made.error
    assert "proxy:3128" in str(made.error)
    assert list(made.receive(OK)) == []


def test_a_head_of_the_limit_and_one_past_it():
    assert MAX_HEAD == 16 * 1024
    start = b"HTTP/1.1 200 OK\r\nX: "
    for more in (0, 1):
        made = layer()
        for _ in range(100):  # they open nothing, and do not count
            made.receive(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert (made.opened, made.buffered) == (False, 0)
        made.receive(start + b"x" * (MAX_HEAD - len(start) + more))
        assert (made.error is None) is (more == 0)
        assert made.buffered <= MAX_HEAD
        made.receive(b"\r\n\r\n")
        assert made.opened is (more == 0)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("socks5://h:1", "unknown scheme socks5"),
        ("http://h:0", "port"),
        ("http://h:65536", "port"),
        ("http://h:1/path", "write http"),
        ("", "write http"),
        ("http://", "write http"),
        ("http://a:s3cret/x@h:1", "write http"),
    ],
)
def test_bad_urls_are_refused_without_the_passcode(url, words):
    with pytest.raises(ConfigError, match=words) as raised:
        parse_proxy(url)
    assert "s3cret" not in str(raised.value)


def test_the_environment_counts_only_when_it_is_asked(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    plain, secure = Place("broker", 1), Place("broker", 1, tls=True)
    assert proxy_of("environment", plain) is None
    monkeypatch.setenv("http_proxy", "http://plain:1")
    monkeypatch.setenv("https_proxy", "http://secure:2")
    assert [proxy_of("environment", each).host for each in (plain, secure)] == ["plain", "secure"]
    assert proxy_of(None, plain) is None
    monkeypatch.setenv("no_proxy", "broker,other")
    assert proxy_of("environment", plain) is None
    monkeypatch.setenv("no_proxy", "other")
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("all_proxy", "everything:3")
    assert proxy_of("environment", plain).host == "everything"


# ---- whole wires ----


@pytest.mark.parametrize(
    ("kind", "secured"), [*((kind, False) for kind in KINDS), ("tcp", True), ("wss", True)], ids=str
)
def test_every_kind_of_wire_goes_through_a_proxy(kind, secured, contexts_of, contexts):
    own = contexts_of(kind)
    with (
        in_thread(kind, own.server) as server,
        ScriptedProxy(context=contexts.server if secured else None) as proxy,
    ):
        peer, where = Peer(), parse_proxy(f"http{'s' * secured}://ann:x@127.0.0.1:{proxy.port}")
        wire = sync.connect(server.place, peer, ssl=contexts.client, proxy=where, timeout=patience(10))
        wire.write([b"hello"])
        while len(peer.data) < 5:
            assert wire.poll(patience(10))
        wire.close()
        while wire.poll(patience(10)):
            pass
        assert peer.data == b"hello"
        (head,) = proxy.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")


def test_a_proxy_that_is_slow_is_given_up(connect):
    with in_thread("tcp", echo=False) as silent, pytest.raises(TimeoutError, match=r"handshake|0\.1 s"):
        connect(Place("b", 1), Peer(), proxy=Proxy("127.0.0.1", silent.port, False), timeout=0.1)
