"""Bytes by both shells, over TCP, TLS, WebSocket: what a wire promises; and how connections come to be, or do not."""

import asyncio
import base64
import contextlib
import random
import select
import selectors
import socket
import ssl
import struct
import threading
import time

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from patience import patience
from profiles import examples
from transport.endpoints import Endpoint, ScriptedProxy
from transport.messages import PING, frame, joined
from transport.wires import KINDS, Peer, Place, Raw, Server, Sync, connect, in_thread, on_loops, place, shaken

from stompcodec.errors import ConfigError
from stompcodec.transport import aio, sync, tls
from stompcodec.transport.http import MAX_HEAD
from stompcodec.transport.layers import ConnectLayer, Proxy, parse_proxy, proxy_of
from stompcodec.transport.owner import BIG, gather, name_of

kinds = pytest.mark.parametrize("kind", KINDS)


def sock_of(wire):
    return wire._socket if isinstance(wire, sync.SyncWire) else wire._transport.get_extra_info("socket")


def reset(wire):
    sock_of(wire).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.abort()


@contextlib.contextmanager
def ending(shell, peer):
    yield
    shell.call(peer.wire.abort)
    if not peer.is_lost:
        shell.gone(peer)


@contextlib.contextmanager
def served(shell, kind, contexts_of, peer=None, echo=False, **options):
    context, peer = contexts_of(kind), peer or Peer()
    with in_thread(kind, context.server, echo=echo) as server:
        shell.connect(server.place, peer, ssl=context.client, **options)
        there = server.run(server.first())

        async def do(what):
            return what(there.wire)

        server.do = lambda what: server.run(do(what))
        with ending(shell, peer):
            yield peer, there, server


@contextlib.contextmanager
def pair(shell, buffer=None):
    """A client, and the other end as a plain socket. buffer: bytes of both buffers, to be full soon."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        peer = Peer()
        shell.connect(Place("127.0.0.1", listener.getsockname()[1]), peer)
        if buffer is not None:
            sock_of(peer.wire).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer // 2)
        other, _ = listener.accept()
        with other, ending(shell, peer):
            yield peer, other


@kinds
def test_octets_arrive_as_they_were_sent_and_what_a_wire_says_of_itself(kind, shell, contexts_of):
    roll = random.Random(kind)
    sizes = [0, 1, 5, 125, 126, 127, 1000, 65535, 65536, 65537, 200_000]
    chunks = [roll.randbytes(roll.choice(sizes)) for _ in range(30)] + [b"", b"\n", "SEND\ncafé\0".encode()]
    with served(shell, kind, contexts_of, echo=True) as (peer, there, server):
        wire, whole = peer.wire, b"".join(chunks)
        while chunks:
            some = [chunks.pop(0) for _ in range(min(len(chunks), roll.randrange(6)))]
            shell.call(lambda some=some: wire.write(some))
        shell.until(peer, lambda: len(peer.data) >= len(whole))
        assert peer.data == whole
        if kind == "tcp":  # a view is valid during the call only
            with pytest.raises(ValueError, match="released"):
                bytes(peer.view)
        assert wire.peer == f"127.0.0.1:{server.port}"
        assert there.wire.peer == f"127.0.0.1:{sock_of(wire).getsockname()[1]}"
        for each in (wire, there.wire):
            assert (each.secure, each.whole_frames) == (kind in ("tls", "wss"), kind in ("ws", "wss"))
            assert sock_of(each).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock_of(each).getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert (wire.buffered, "closing" in repr(wire)) == (0, False)
        shell.call(wire.close)
        assert "closing" in repr(wire)
        assert shell.gone(peer) is server.run(there.gone()) is None
        assert peer.log == ["opened", ("lost", None)] or peer.log.count("opened") == 1


@kinds
def test_an_owner_is_told_once_to_stop_and_once_to_go_on(kind, shell, contexts_of):
    with served(shell, kind, contexts_of, high=50_000) as (peer, there, server):
        server.do(lambda wire: wire.pause_reading())
        written = 0
        while False not in peer.log:
            assert written < 500_000_000
            shell.call(lambda: peer.wire.write([b"x" * 10_000] * 10))
            written += 100_000
        assert shell.call(lambda: (peer.wire.write([b"x" * 10_000] * 10), peer.wire.buffered)[1]) > 50_000
        assert peer.log == ["opened", False]
        server.do(lambda wire: wire.resume_reading())
        shell.until(peer, lambda: True in peer.log)
        assert peer.wire.buffered <= 50_000 // 4
        while shell.call(lambda: peer.wire.buffered):
            shell.call(lambda: getattr(peer.wire, "poll", time.sleep)(0.001))
        server.run(there.has(written + 100_000))
        assert peer.log == ["opened", False, True]


@kinds
def test_close_sends_all_that_waits(kind, shell, contexts_of):
    def close():
        wire.write([b"y" * 20_000_000])
        wire.close()
        wire.write([b"dropped"])
        wire.close()

    with served(shell, kind, contexts_of) as (peer, there, server):
        wire = peer.wire
        shell.call(close)
        assert shell.gone(peer) is None
        error = server.run(there.gone())  # its answer to the close may find nobody
        assert error is None or isinstance(error, (BrokenPipeError, ConnectionResetError))
        assert there.data == b"y" * 20_000_000
        shell.call(lambda: (wire.write([b"dropped"]), wire.pause_reading(), wire.resume_reading(), wire.close()))


@pytest.mark.parametrize("ends", ["we close", "the peer is done"])
def test_a_peer_that_never_reads_is_cut_off(shell, ends, monkeypatch):
    for wire in (aio.Wire, sync.SyncWire):
        monkeypatch.setattr(wire.close, "__defaults__", (0.05,))
    with pair(shell, buffer=8192) as (peer, other):
        shell.call(lambda: peer.wire.write([b"z" * 20_000_000]))
        if ends == "we close":
            shell.call(peer.wire.close)
        else:
            other.shutdown(socket.SHUT_WR)
        assert isinstance(shell.gone(peer), ConnectionAbortedError)


def test_a_peer_that_asks_for_pongs_and_reads_none_is_cut_off(shell, contexts_of):
    with served(shell, "ws", contexts_of) as (peer, _, server):
        flood = frame(PING, b"p" * 125, mask=None) * 100_000
        server.do(lambda wire: (wire.pause_reading(), wire._put([flood])))
        assert isinstance(shell.gone(peer), ConnectionAbortedError)
        assert peer.wire.buffered < 1_000_000


@pytest.fixture
def blocking():
    with Sync() as shell:
        yield shell


@pytest.mark.parametrize("size", [1, sync.AHEAD, sync.AHEAD + 1, 2 * sync.AHEAD])
@pytest.mark.parametrize("ended", [False, True])
def test_what_was_read_ahead_and_what_is_behind_it_are_one_read(blocking, size, ended):
    octets, reads = bytes(number % 251 for number in range(size)), []
    with pair(blocking) as (peer, other):
        peer.received = lambda data: reads.append(bytes(data))
        other.sendall(octets)
        while len(peer.wire._socket.recv(size, socket.MSG_PEEK)) < size:
            select.select([peer.wire._socket], [], [], patience(10))
        assert peer.wire.read_ahead() == octets[: sync.AHEAD]
        if ended:
            other.shutdown(socket.SHUT_WR)
        assert peer.wire.handle(0)
        assert reads == [octets]
        assert not peer.wire.ahead


def test_what_is_read_after_a_failed_write_is_bounded_by_the_receive_buffer(blocking, monkeypatch):
    """A write may fail though the connection lives, and the peer goes on sending."""
    buffer = memoryview(bytearray(1000))
    monkeypatch.setattr(sync, "read_buffer", lambda: buffer)
    with pair(blocking) as (peer, other):
        peer.wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        most = peer.wire._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        peer.wire._break_off(OSError("a write failed"))
        other.sendall(bytes(1000))
        while peer.wire.poll(0):
            other.sendall(bytes(1000))
        assert most <= len(peer.data) < most + 1000
        assert str(peer.error) == "a write failed"


class Racing:
    def __init__(self, waker):
        self.waker, self.inner = waker, waker._here

    def recv(self, size):
        self.waker.wake()
        return self.inner.recv(size)


def test_no_wake_is_lost(blocking):
    waker = blocking.waker
    assert waker.wait(0) is False
    waker.wake()
    waker.wake()
    assert [waker.wait(None), waker.wait(0)] == [True, False]
    for _ in range(5):
        waker.wake()
    assert waker._here.recv(100) == b"\0"  # many wakes cost one call of the kernel
    waker.clear()
    inner, waker._here = waker._here, Racing(waker)
    waker.wake()
    waker.clear()  # another thread wakes meanwhile
    waker._here = inner
    waker.wake()
    assert waker.wait(0)
    waker.close()
    waker.wake()


#: Steps of our own, by name. Others: "burst" is more than a layer handles in one turn.
OURS = {
    **{"poll": lambda wire, borrower: wire.poll(0.02), "lend": lambda wire, borrower: wire.lend(borrower)},
    "read_ahead": lambda wire, borrower: wire.is_lent and wire.read_ahead(),
    **{"read_now": lambda wire, borrower: wire.read_now(), "take_back": lambda wire, borrower: wire.lend(None)},
    "write": lambda wire, borrower: wire.write([b"hello"] * 3),
    "pause": lambda wire, borrower: (wire.pause_reading(), wire.watch()),
    "resume": lambda wire, borrower: (wire.resume_reading(), wire.watch()),
    **{"close": lambda wire, borrower: wire.close(0.01), "abort": lambda wire, borrower: wire.abort()},
}
few = settings(
    deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate], suppress_health_check=[*HealthCheck]
)


@contextlib.contextmanager
def other_ends(kind, contexts_of):
    with contextlib.ExitStack() as stack:
        shell = stack.enter_context(Sync())
        if kind == "sockjs":
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            endpoint = stack.enter_context(Endpoint(listener.getsockname()[1]))
            wire = shell.connect(Place("127.0.0.1", endpoint.port, websocket=True, sockjs=True), Peer())
            behind = stack.enter_context(listener.accept()[0])

            def there(step):
                with contextlib.suppress(OSError):  # the endpoint may be gone
                    behind.sendall(bytes(30_000)) if step == "burst" else behind.shutdown(socket.SHUT_WR)

        else:
            context = contexts_of(kind)
            server = stack.enter_context(in_thread(kind, context.server, echo=False))
            wire = shell.connect(server.place, Peer(), ssl=context.client)
            steps = {"burst": lambda wire: [wire.write([b"x"]) for _ in range(1500)], "end": lambda wire: wire.close()}

            async def do(step):
                with contextlib.suppress(OSError):
                    steps.get(step, reset)((await server.first()).wire)

            def there(step):
                server.run(do(step))

        yield wire, there


@pytest.mark.parametrize("kind", [*KINDS, "sockjs"])
def test_a_deadline_is_a_time(kind, contexts_of):
    @settings(few, max_examples=6 if kind == "sockjs" else 12)
    @given(st.lists(st.sampled_from((*OURS, "poll", "burst", "burst", "end", "reset")), max_size=12))
    def check(steps):
        at, known = time.monotonic(), None

        def look():
            nonlocal at, known
            due = wire.deadline
            assert due is None or due == known or due >= at, f"{due} is no time: the clock was at {at}"
            if wire._deadline is not None or due is None:
                known = wire._deadline
            at = time.monotonic()

        with other_ends(kind, contexts_of) as (wire, there), selectors.DefaultSelector() as borrower:
            try:
                for step in ["burst", "poll", "poll", *steps, "resume", "take_back", "end"]:
                    if step not in OURS:
                        there(step)
                    elif not wire._dead:
                        OURS[step](wire, borrower)
                    look()
                    if wire._is_held() or wire.ahead or wire._broken:
                        event("there is something to do at once")
                until = time.monotonic() + patience(2)
                while wire.poll(0.05):
                    look()
                    assert time.monotonic() < until
                look()
            finally:
                wire.abort()

    check()


# ---- the small parts that both shells stand on ----
@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([bytes(BIG - 1), bytes(BIG), bytes(BIG + 1)]))))
def test_chunks_are_joined_unless_they_are_big(chunks):
    pieces = gather(chunks)
    assert b"".join(pieces) == b"".join(chunks)
    big = [chunk for chunk in chunks if len(chunk) >= BIG]
    assert [id(piece) for piece in pieces if any(piece is chunk for chunk in big)] == [id(chunk) for chunk in big]
    assert len(pieces) <= 2 * len(big) + 1


def test_names_of_peers():
    addresses = [("127.0.0.1", 80), ("::1", 80, 0, 0), "", None, "/run/stomp"]
    assert [name_of(each) for each in addresses] == ["127.0.0.1:80", "[::1]:80", "?", "?", "/run/stomp"]


layered = pytest.mark.parametrize("kind", ["tls", "ws", "wss"])


@contextlib.contextmanager
def answering(answer):
    def serve():
        other, _ = listener.accept()
        with other, contextlib.suppress(ConnectionError):
            other.recv(4096)
            other.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(patience(30))
        assert not thread.is_alive()


@layered
@pytest.mark.parametrize("answer", [b"", b"ERROR\nmessage:who are you\n\n\0" * 9, b"HTTP/1.1 200 OK\r\n\r\nhello"])
def test_a_server_that_speaks_something_else(kind, answer, shell, contexts_of):
    peer, words = Peer(), r"(?i)closed|websocket|wrong version|ssl|record|reset"
    with answering(answer) as port, pytest.raises(OSError, match=words):
        shell.connect(place(kind, port), peer, ssl=contexts_of(kind).client, timeout=patience(30))
    assert peer.log == []


def test_a_peer_that_is_gone_at_once(monkeypatch):
    """It has accepted and reset the connection before we ask for its name: the socket is closed, not left behind."""
    reached = []

    def reach(host, port, deadline):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            reached.append(socket.create_connection(listener.getsockname()))
            there, _ = listener.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        return reached[0]

    monkeypatch.setattr(sync, "_reach", reach)
    with Sync() as shell, pytest.raises(OSError, match=r"connected|argument"):  # as the system puts it
        shell.connect(Place("127.0.0.1", 1), Peer())
    assert reached[0].fileno() == -1


@on_loops
@layered
@pytest.mark.parametrize("timeout", [60.0, 0.1])
async def test_a_handshake_ends_with_the_listener_or_in_time(kind, timeout, contexts_of):
    async with Server(kind, context=contexts_of(kind).server, timeout=timeout) as server:
        async with Raw.to(server.port) as raw:
            await raw.send(b"\x16\x03" if "s" in kind[1:] else b"GET / ")
            while timeout > 1 and not server.listener._plan.opening:
                await asyncio.sleep(0)
            if timeout > 1:
                server.listener.close()
            assert await raw.rest() == b""
        assert (server.peers, server.listener._plan.opening) == ([], set())


@settings(max_examples=examples(20))
@given(noise=st.binary(max_size=300))
@layered
def test_noise_is_refused_and_others_are_served(kind, noise, contexts, run):
    """Nothing is raised where nobody could catch it; see also fuzz/fuzz_websocket.py."""

    async def main():
        async with Server(kind, context=contexts.server, echo=True, timeout=0.2) as server:
            async with Raw.to(server.port) as raw:
                await raw.send(noise + b"\r\n\r\n")
                await raw.rest()
            server.listener._plan.timeout = patience(30)  # a busy machine may need more than 0.2 s for a handshake
            client = await server.connect(contexts.client)
            client.wire.write([b"hello"])
            await client.has(5)
            client.wire.abort()
            await client.gone()

    run(main())


@pytest.mark.parametrize(
    ("shown", "trusted", "words"),
    [("stranger", "ca", r"\w"), ("stranger", None, r"\w"), ("client", "ca", r"(?i)mismatch|not valid|match")],
    ids=["another authority", "what the system trusts", "another name"],
)
def test_a_stranger_is_not_trusted(shell, certificates, shown, trusted, words):
    context = tls.client_context(getattr(certificates, trusted)) if trusted else None
    accepting = tls.server_context(getattr(certificates, shown))
    with in_thread("tls", accepting) as server, pytest.raises(ssl.SSLCertVerificationError, match=words):
        shell.connect(server.place, Peer(), ssl=context)


@on_loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_name_is_looked_up_and_checked_unless_nobody_verifies(version, certificates):
    for shown, host, verify in (("server", "localhost", True), ("client", "127.0.0.1", False)):
        context = tls.client_context(certificates.ca, verify=verify)
        context.minimum_version = context.maximum_version = version
        accepting = tls.server_context(getattr(certificates, shown))
        async with Server("tls", context=accepting, echo=True) as server:
            client, octets = Peer(), random.Random(1).randbytes(1_000_000)
            await connect(Place(host, server.port, tls=True), client, ssl=context)
            client.wire.write([octets])
            assert await client.has(1_000_000) == octets
            client.wire.close()
            assert await client.gone() is None


@on_loops
async def test_clients_must_show_a_certificate(certificates):
    context = tls.server_context(certificates.server, cafile=certificates.ca)
    async with Server("tls", context=context, echo=True) as server:
        shown = await server.connect(tls.client_context(certificates.ca, certificates.client))
        shown.wire.write([b"hello"])
        await shown.has(5)
        shown.wire.close()
        await shown.gone()
        assert len(server.peers) == 1
        for other in ((), (certificates.stranger,)):
            client = Peer()
            try:
                await connect(server.place, client, ssl=tls.client_context(certificates.ca, *other))
            except OSError:
                continue
            assert isinstance(await client.gone(), OSError)
        assert len(server.peers) == 1


def test_older_versions_renegotiation_and_compression_are_off(certificates):
    client, server = tls.client_context(), tls.server_context(certificates.server)
    assert client.minimum_version == server.minimum_version == ssl.TLSVersion.TLSv1_2
    assert server.options & ssl.OP_NO_RENEGOTIATION
    assert server.options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize("content", [None, b"no PEM"])
def test_files_that_cannot_be_used_are_named(content, certificates, tmp_path):
    path = tmp_path / "some.pem"
    if content is not None:
        path.write_bytes(content)
    for make in (
        *(lambda: tls.server_context(path), lambda: tls.server_context(certificates.server, path)),
        *(lambda: tls.server_context(certificates.server, cafile=path), lambda: tls.client_context(path)),
        lambda: tls.client_context(certificates.ca, path),
    ):
        with pytest.raises(OSError, match=r"PEM, are expected.*some\.pem"):
            make()


def test_the_end_is_signed(contexts):
    client, server = shaken(contexts)
    server.send([b"last"])
    server.close()
    assert joined(client.receive(joined(server.take_output()))) == b"last"
    assert (client.ended, client.error) == (True, None)

    client, server = shaken(contexts)
    server.send([b"last"])
    wire = bytearray(joined(server.take_output()))
    wire[-1] ^= 1
    assert joined(client.receive(wire)) == b""
    assert isinstance(client.error, ssl.SSLError)
    client.send([b"dropped"])
    client.close()
    assert client.receive(b"more") == []


# ---- HTTP CONNECT ----
OK = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def tunnel(url="http://proxy:3128", host="broker", port=61613):
    made = ConnectLayer(host, port, parse_proxy(url))
    made.start()
    return made


def test_the_login_is_sent_as_basic_and_shown_nowhere():
    made = tunnel("http://ann:s%3Acret%C3%A9@proxy:3128")
    token = base64.b64encode("ann:s:cretÃ©".encode("latin-1"))
    assert b"\r\nProxy-Authorization: Basic " + token + b"\r\n" in joined(made.take_output())
    made.receive(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    assert "does not accept this login" in str(made.error)
    assert "cret" not in str(made.error) + repr(parse_proxy("http://ann:s%3Acret@proxy:3128"))


def test_the_target_is_named_as_http_does_and_cannot_add_lines():
    (asked,) = tunnel(host="::1", port=5).take_output()
    assert asked.startswith(b"CONNECT [::1]:5 HTTP/1.1\r\nHost: [::1]:5\r\n")
    assert joined(tunnel(host="bücher.example", port=1).take_output()).startswith(b"CONNECT xn--bcher-kva.example:1 ")
    with pytest.raises(ValueError, match="cannot be asked"):
        tunnel(host="broker\r\nX: y")


@given(st.data())
def test_the_answer_may_come_in_any_pieces(data):
    octets = CONTINUE + OK + b"first bytes of the broker"
    made, at, upward = tunnel(), 0, b""
    while at < len(octets):
        size = data.draw(st.integers(1, len(octets) - at))
        upward += joined(made.receive(octets[at : at + size]))
        at += size
    assert (made.opened, made.error, upward, made.buffered) == (True, None, b"first bytes of the broker", 0)
    made.send([b"one", b"two"])
    assert joined(made.take_output()).endswith(b"onetwo")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication Required: it wants a login"),
        (b"HTTP/1.0 302 Found\r\nLocation: http://elsewhere/\r\n\r\n", "302 Found: redirects are not followed"),
        (b"HTTP/1.1 502 Bad\x1b[31m Gateway\r\n\r\n", r"502 Bad\[31m Gateway: it cannot reach the broker"),
        *((b"HTTP/1.1 500 Oops\n\n", "500 Oops$"), (b"SSH-2.0-OpenSSH\r\n", "not HTTP")),
        *((b"HTTP/2 200\r\n\r\n", "not HTTP"), (b"HTTP/1.1 999 x\r\n\r\n", "not HTTP")),
    ],
)
def test_what_is_no_tunnel_is_an_error_that_says_what_to_do(answer, words):
    made = tunnel()
    assert made.receive(answer) == []
    assert not made.opened
    with pytest.raises(ConnectionRefusedError, match=words):
        raise made.error
    assert "proxy:3128" in str(made.error)
    assert list(made.receive(OK)) == []


def test_a_head_of_the_limit_and_one_past_it():
    assert MAX_HEAD == 16 * 1024
    start = b"HTTP/1.1 200 OK\r\nX: "
    for more in (0, 1):
        made = tunnel()
        for _ in range(100):  # they open nothing, and do not count
            made.receive(CONTINUE)
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
        *((url, "port") for url in ("http://h:0", "http://h:65536")),
        *((url, "write http") for url in ("http://h:1/path", "", "http://", "http://a:s3cret/x@h:1")),
    ],
)
def test_bad_urls_are_refused_without_the_passcode(url, words):
    with pytest.raises(ConfigError, match=words) as raised:
        parse_proxy(url)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("environment", "plain", "secure"),
    [
        ({}, None, None),
        ({"http_proxy": "http://plain:1", "https_proxy": "http://secure:2"}, "plain", "secure"),
        ({"http_proxy": "http://plain:1", "no_proxy": "broker,other"}, None, None),
        ({"all_proxy": "everything:3", "no_proxy": "other"}, "everything", "everything"),
    ],
)
def test_the_environment_counts_only_when_it_is_asked(monkeypatch, environment, plain, secure):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for where, host in ((Place("broker", 1), plain), (Place("broker", 1, tls=True), secure)):
        found = proxy_of("environment", where)
        assert (found and found.host, proxy_of(None, where)) == (host, None)


@pytest.mark.parametrize(
    ("kind", "secured"), [*((kind, False) for kind in KINDS), ("tcp", True), ("wss", True)], ids=str
)
def test_every_kind_of_wire_goes_through_a_proxy(kind, secured, contexts_of, contexts):
    with (
        in_thread(kind, contexts_of(kind).server) as server,
        ScriptedProxy(context=contexts.server if secured else None) as proxy,
        Sync() as shell,
    ):
        peer, where = Peer(), parse_proxy(f"http{'s' * secured}://ann:x@127.0.0.1:{proxy.port}")
        wire = shell.connect(server.place, peer, ssl=contexts.client, proxy=where, timeout=patience(10))
        wire.write([b"hello"])
        shell.until(peer, lambda: len(peer.data) >= 5)
        wire.close()
        shell.gone(peer)
        assert peer.data == b"hello"
        (head,) = proxy.heads
        assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")


def test_a_proxy_that_is_slow_is_given_up():
    with in_thread("tcp", echo=False) as silent, pytest.raises(TimeoutError, match="handshake"):
        sync.connect(Place("b", 1), Peer(), proxy=Proxy("127.0.0.1", silent.port, False), timeout=0.1)
