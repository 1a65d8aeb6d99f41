"""Both shells: getting a connection, credentials and secrets, hooks."""

import contextlib
import itertools
import logging
import math
import socket
import threading
import time

import pytest
from client.peer import Peer, closed_port
from client.shells import QUICK
from client.test_timeouts import TIMEOUTS
from patience import patience

import stompcodec.client as stomp
from stompcodec.errors import ConfigError
from stompcodec.transport.tls import client_context
from stompcodec.uri import parse_uri

SLOW = stomp.Backoff(first=60, most=60, jitter=0)
TLS = client_context()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x15\x03\x01\0\x02\x02F", "F' (this is TLS: use stomp+ssl://)"),
        *((b"\x16\x03\x01\0\x02\x02F", "this is TLS"), (b"\0\0\1\\\1ActiveMQ\0", "this is OpenWire")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n\0", "b'HTTP/1.1 400 Bad Request' (this is HTTP: use ws://"),
        *((b"AMQP\0\0\x09\1", "this is AMQP"), (b"\x20\2\0\1", "this is MQTT")),
        *((b"SSH-2.0-OpenSSH_9.2\r\n", "this is SSH"), (b"-ERR unknown command 'CONNECT'\r\n", "this is Redis")),
        *((b"INFO {}\r\n", "this is NATS"), (b"220 mail ESMTP\r\n", "this is SMTP")),
        *((b"J\0\0\0\x0a8.0.1\0", "this is MySQL"), (b"\n?", "it sent b'?' (check the port)")),
        (b"hello secret", "does not speak STOMP (check the port)"),
        (b"\n", "closed by the server without an answer to CONNECT"),
        (b"CONNECTED\nversion", "the stream ended inside a frame"),
        (b"CONNECTED\nversion:1.2\nheart-beat:x\n\n\0", "CONNECTED cannot be used: bad-heart-beat: heart-beat is not"),
        (b"CONNECTED\n\nserver:vertx-stomp\nversion:1.2\n\n\0", "CONNECTED has its headers behind an empty line"),
    ],
)
def test_what_is_no_stomp_is_named_with_its_address(shell, answer, said):
    rules = {"CONNECT": lambda side, frame: (side.sock.sendall(answer), side.close())}
    with Peer(rules=rules) as peer, pytest.raises((stomp.RemoteProtocolError, stomp.ConnectionLostError)) as error:
        shell.connect(f"stomp://ann:secret@127.0.0.1:{peer.port}", lenient=True)
    assert str(error.value).startswith(f"cannot connect to stomp://ann:***@127.0.0.1:{peer.port}: ")
    assert (said in str(error.value), "secret" in str(error.value)) == (True, False)


@pytest.mark.parametrize(("scheme", "asked"), [("stomp+ssl", "TLS"), ("ws", "WebSocket"), ("wss", "TLS and WebSocket")])
def test_a_port_that_does_not_speak_what_the_scheme_says_is_doubted(shell, peer, scheme, asked):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (silent.getsockname()[1], peer.port)[: 2 if "TLS" in asked else 1]:
            with pytest.raises(stomp.ConnectionLostError, match=rf"does this port speak {asked}\?\)$"):
                shell.connect(f"{scheme}://127.0.0.1:{port}", connect_timeout=0.5)


def test_headers_behind_an_empty_line_are_1_0_where_nothing_else_was_offered(shell):
    answer = b"CONNECTED\n\nversion:1.0\n\n\0"
    with Peer(rules={"CONNECT": lambda side, frame: side.sock.sendall(answer)}) as peer:
        assert shell.connect(peer.url, lenient=True, versions=["1.0"]).version == "1.0"


def test_a_server_that_leaves_connect_of_1_0_unanswered_is_told_by_that(shell):
    """As Spring does where there is no accept-version."""

    def answer(side, frame):
        if frame.get("accept-version") is not None:
            side.peer.on_connect(side, frame)

    with Peer(rules={"CONNECT": answer}) as peer:
        with pytest.raises(stomp.ConnectionLostError, match=r"no CONNECTED in 0\.3 s: .* STOMP 1\.0 alone"):
            shell.connect(peer.url, versions=["1.0"], connect_timeout=0.3)
        assert shell.connect(peer.url, versions=["1.0", "1.1"]).version == "1.1"


@pytest.mark.parametrize(
    ("kind", "reconnect"),
    [("refused", SLOW), ("refused", None), ("closes", SLOW), ("silent", QUICK), ("credentials", QUICK)],
)
def test_no_delay_and_no_attempt_passes_the_startup_timeout(shell, kind, reconnect):
    rules = {"silent": lambda side, frame: None, "closes": lambda side, frame: side.close()}
    release = threading.Event()
    options = {"passcode": lambda: release.wait(60) and "x"} if kind == "credentials" else {}
    options |= {"startup_timeout": 0.4, "connect_timeout": 60, "reconnect": reconnect}
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.callback(release.set)
        place = Peer(rules={"CONNECT": rules[kind]}) if kind in rules else closed_port()
        opened = stack.enter_context(place)
        url = f"stomp://127.0.0.1:{opened.port if kind in rules else opened}"
        with pytest.raises(stomp.ConnectionLostError):
            shell.connect(f"failover:({url},{url})", login="ann", **options)
    assert 0.3 < time.monotonic() - started < patience(30)


@pytest.mark.req("S12-CON-08", "S12-CON-09", "S12-CON-11", "S11-CON-10", "S11-CON-12")
def test_the_url_says_who_and_where(shell, peer):
    shell.connect(f"stomp://ann:p%40ss@127.0.0.1:{peer.port}/orders")
    shell.connect(peer.url, login="bob", passcode="other", vhost="/", client_id="me", headers={"x": "y"})
    first, second = peer.got("CONNECT")
    assert [first.get(name) for name in ("host", "login", "passcode")] == ["orders", "ann", "p@ss"]
    assert [second.get(name) for name in ("host", "login", "client-id", "x")] == ["/", "bob", "me", "y"]


def test_addresses_have_the_forms_that_programs_write(shell, peer):
    for url in (f"127.0.0.1:{peer.port}", [("127.0.0.1", peer.port)], [shell.connect(peer.url).addresses[0]]):
        assert str(shell.connect(url).addresses[0]) == peer.url
    for wrong in (("127.0.0.1", 61613), ["127.0.0.1:61613"], 61613):
        with pytest.raises(TypeError, match=r"it must be str or a list of Address or \(str, a whole number\)"):
            shell.connect(wrong)


def test_a_tls_context_means_tls_where_no_scheme_says_so(monkeypatch):
    for url in ("h:1", [("h", 1)], "failover:(h:1)", "ssl://h:1", parse_uri("stomps://h:1")):
        assert [str(each) for each in stomp.connect_async(url, ssl=TLS).addresses] == ["stomp+ssl://h:1"]
    monkeypatch.setenv("http_proxy", "https://p:1")
    monkeypatch.setenv("no_proxy", "direct")
    for proxy in ("https://p:1", "environment"):
        assert not stomp.connect_async("stomp://h", ssl=TLS, proxy=proxy).addresses[0].tls  # it is for the proxy
    with pytest.raises(ValueError, match="stomp://direct:61613 is without TLS, for which ssl= is given"):
        stomp.connect_async("failover:(stomp://h,stomp://direct)", ssl=TLS, proxy="environment")


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        *(("stomp://h", {"receipt_timeout": 0}, ValueError), ("stomp://h", {"outbox_frames": 0}, ValueError)),
        *(("stomp://h", {name: value}, ValueError) for name in TIMEOUTS for value in (math.nan, -1, 10**400)),
        *(("stomp://h", {"heart_beat": value}, ValueError) for value in ((-1, 0), (0, -1), (2**63, 0), (0, 10**400))),
        *(("stomp://h", {"login_attempts": value}, ValueError) for value in (0, -1)),
        *(("stomp://h", {"stream_over": value}, ValueError) for value in (4095, -1)),
        *(("stomp://h", {"dialect": "klingon"}, ValueError), ("stomp://h", {"proxy": "socks5://h:1"}, ConfigError)),
        ("gopher://h", {}, ConfigError),
        *((url, {"ssl": TLS}, ValueError) for url in ("stomp://h", "ws://h/ws", "failover:(stomp+ssl://a,stomp://b)")),
        *(([each], {"ssl": TLS, "proxy": "http://h:1"}, ValueError) for each in parse_uri("tcp://h")),
    ],
)
def test_options_and_urls_are_checked_at_once(url, options, error):
    for connect in (stomp.connect, stomp.connect_async):
        with pytest.raises(error, match=next(iter(options), "gopher")):
            connect(url, **options)


def test_credentials_that_cannot_be_had(shell, peer, caplog):
    def fail():
        raise RuntimeError("the secret is s3cret")

    with pytest.raises(stomp.ConnectionLostError, match="RuntimeError") as lost:
        shell.connect(peer.url, passcode=fail)
    assert "s3cret" not in str(lost.value)
    for bug, error in ((lambda: 7, "they must be str"), (lambda: None.token, "'token'"), (lambda: [][0], "index")):
        with pytest.raises((TypeError, AttributeError, IndexError), match=error):  # it is no lost connection
            shell.connect(peer.url, passcode=bug, startup_timeout=patience(30))
    tokens = iter([lambda: "a", lambda: None.token, lambda: "b"])  # later such an attempt is tried again
    client = shell.connect(peer.url, passcode=lambda: next(tokens)(), reconnect=QUICK, client_id="me")
    peer.cut()
    peer.wait(lambda peer: [frame.get("passcode") for frame in peer.got("CONNECT")] == ["a", "b"])
    client.wait_connected()
    (said,) = [each for each in caplog.records if each.exc_info]
    assert (said.levelname, said.exc_info[0]) == ("WARNING", AttributeError)
    assert said.getMessage().startswith(f"no session at {peer.url} for 'me': ")


def test_passcodes_are_asked_for_each_attempt_and_never_logged(shell, peer, caplog):
    seen, count = [], itertools.count()
    with caplog.at_level(logging.DEBUG):
        options = {"login": "ann", "passcode": lambda: f"s3cret{next(count)}", "reconnect": QUICK}
        client = shell.connect(peer.url, on_frame=lambda way, frame: seen.append(frame), **options)
        peer.cut()
        peer.wait(lambda peer: len(peer.got("CONNECT")) == 2)
        client.wait_connected()
        client.close()
        with contextlib.suppress(stomp.StompError), closed_port() as port:
            shell.connect(f"stomp://ann:s3cret@127.0.0.1:{port}")
    assert [frame.headers["passcode"] for frame in peer.got("CONNECT")] == ["s3cret0", "s3cret1"]
    assert "s3cret" not in caplog.text + repr(client.options) + repr(seen)
    assert [frame.headers["passcode"] for frame in seen if frame.command == "CONNECT"] == ["***", "***"]


def test_hooks_see_frames_and_states(shell, peer):
    frames, states = [], []
    hooks = {"on_frame": lambda way, frame: frames.append((way, frame.command))}
    hooks["on_state"] = lambda state, error: states.append(state if error is None else type(error).__name__)
    client = shell.connect(peer.url, reconnect=QUICK, **hooks)
    peer.cut()
    peer.wait(lambda peer: len(peer.got("CONNECT")) == 2)
    client.wait_connected()
    client.close()
    assert frames == [("out", "CONNECT"), ("in", "CONNECTED")] * 2 + [("out", "DISCONNECT"), ("in", "RECEIPT")]
    assert states == ["connected", "ConnectionLostError", "connected", "closing", "closed"]


def test_a_hook_that_blocks_or_fails_holds_up_nothing(peer, caplog):
    go_on = threading.Event()

    def fail(*_):
        go_on.wait(patience(10))
        raise ValueError("hook")

    with stomp.connect(peer.url, on_frame=fail, on_state=fail) as client:
        client.send("/queue/a", b"x", receipt=True)
        for _ in range(1000):
            client.send_for_receipt("/queue/a", b"x")
        client.ping()
        go_on.set()
    assert caplog.text.count("on_frame failed") >= 4
    assert "on_state failed" in caplog.text
