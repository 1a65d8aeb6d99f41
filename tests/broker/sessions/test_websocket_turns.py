"""WebSocket has the same share of the loop as TCP: work is counted that is done before another session is served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker.sockets import CONFIG, Client, run, send, subscribe, until
from crash.process import BrokerProcess
from patience import patience
from transport.messages import BINARY, CONT, PING, TEXT, frame, frames, request
from transport.wires import Raw

from stompcodec.broker.server import Server
from stompcodec.broker.sessions.commands import HANDLERS

CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"
FLOOD = 8_000
FLOODS = {
    "fragments": frame(TEXT, b"\n", fin=False) + frame(CONT, b"\n", fin=False) * (FLOOD - 2) + frame(CONT),
    "empty messages": frame(BINARY) * FLOOD,
    "pings": frame(PING) * FLOOD,
}


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("websockets")


class Turns:
    """What was done in each turn of the loop: whoever has sent something is read in each."""

    def __init__(self, loop: Any) -> None:
        self.counts = [0]
        self._select = loop._selector.select
        loop._selector.select = self._turn

    def _turn(self, timeout: float | None = None) -> Any:
        self.counts.append(0)
        return self._select(timeout)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            self.counts[-1] += 1
            return function(*arguments)

        return count


@contextlib.asynccontextmanager
async def browser(server: Server) -> Any:
    """A WebSocket that is connected, by hand."""
    assert server.ws_port is not None
    async with Raw.to(server.ws_port) as raw:
        await raw.send(request())
        await raw.until(b"\r\n\r\n")
        await raw.send(frame(TEXT, CONNECT))
        await raw.until(b"\0")
        yield raw


def queue(server: Server, name: str = "/queue/a") -> int:
    found = server.broker.queues.get(("/", name))
    return 0 if found is None else len(found.messages)


# ---- frames of WebSocket ----


@pytest.mark.long
def test_a_process_answers_others_between_tiny_frames(tmp_path: Path) -> None:
    """A client asks one thing after the other while floods are read: it has many answers before those end."""
    from run_scenarios import WebSocket

    pytest.importorskip("click")
    with BrokerProcess(tmp_path, memory=True) as broker:
        wires = [WebSocket("127.0.0.1", broker.ws_port, "/", patience(60)) for _ in range(2)]
        client = socket.create_connection(("127.0.0.1", broker.port), patience(60))
        for wire in (*wires, client):
            wire.sendall(CONNECT)
            assert wire.recv(65536).startswith(b"CONNECTED")
        ended = threading.Event()
        last = frame(BINARY, send("/queue/b", "x", "receipt:last").encode())

        def flood() -> None:
            senders = [
                threading.Thread(target=wire.socket.sendall, args=(FLOODS["fragments"] * 4 + last,)) for wire in wires
            ]
            for sender in senders:
                sender.start()
            for wire in wires:
                assert wire.recv(65536).startswith(b"RECEIPT")
            ended.set()

        flooding = threading.Thread(target=flood)
        flooding.start()
        answers = 0
        while not ended.is_set():
            client.sendall(send("/queue/a", "x", f"receipt:{answers}").encode())
            received = b""
            while not received.endswith(b"\0\n"):
                received += client.recv(65536)
            assert f"receipt-id:{answers}\n".encode() in received
            answers += 1
        flooding.join()
        client.close()
        for wire in wires:
            wire.close()
    assert answers > 25


# ---- frames of STOMP in many messages ----


@pytest.fixture
def frame_by_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share is over after eight frames of STOMP."""
    monkeypatch.setattr("stompcodec.broker.loop_quota._SHARE", -1.0)


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Turns]:
    """Counts the SENDs of each turn."""

    def start() -> Turns:
        turns = Turns(asyncio.get_running_loop())
        monkeypatch.setitem(HANDLERS, "SEND", turns.counted(HANDLERS["SEND"]))
        return turns

    return start


def messages(count: int) -> list[bytes]:
    return [send("/queue/a", str(number), f"receipt:{number}").encode() for number in range(count)]


@pytest.mark.usefixtures("frame_by_frame")
def test_a_message_each_is_no_way_around_a_share(sends: Callable[[], Turns]) -> None:
    async def main(server: Server) -> None:
        async with browser(server) as raw:
            turns = sends()
            await raw.send(b"".join(frame(BINARY, message) for message in messages(800)))
            receipts = await raw.until(b"receipt-id:799\n\n\0\n")
            assert sum(turns.counts) == 800
            assert max(turns.counts) <= 16
            got = b"".join(read.payload for read in frames(receipts))
            assert got.count(b"RECEIPT") == 800
            assert got.index(b"receipt-id:100\n") < got.index(b"receipt-id:101\n") < got.index(b"receipt-id:700\n")
            consumer = await Client.connect(server)
            await consumer.ask(subscribe("/queue/a"))
            assert [(await consumer.frame()).body for _ in range(800)] == [b"%d" % number for number in range(800)]
            await consumer.close()

    run(main, CONFIG.replace(ws_port=0))


@pytest.mark.usefixtures("frame_by_frame")
def test_small_records_of_tls_are_no_way_around_a_share(tmp_path: Path, sends: Callable[[], Turns]) -> None:
    """A SEND in a record of its own, 1000 of them in one write."""
    from stompcodec.transport.tls import TlsLayer, client_context

    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    certificate = tmp_path / "certificate"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)

    async def main(server: Server) -> None:
        assert server.tls_port is not None
        layer = TlsLayer(client_context(verify=False), server_hostname="localhost")
        async with Raw.to(server.tls_port) as raw:
            layer.start()
            while not layer.opened:
                await raw.send(b"".join(layer.take_output()))
                layer.receive(await raw.some())
            layer.send([CONNECT])
            turns = sends()
            for message in messages(1000):
                layer.send([message])
            await raw.send(b"".join(layer.take_output()))
            received = b""
            while b"receipt-id:999\n" not in received:
                received += b"".join(layer.receive(await raw.some()))
            assert received.count(b"RECEIPT") == 1000
            assert sum(turns.counts) == 1000
            assert max(turns.counts) <= 16

    run(main, CONFIG.replace(tls_port=0, tls_cert=str(certificate)))


# ---- what happens meanwhile ----


@pytest.mark.usefixtures("frame_by_frame")
def test_one_that_is_gone_gets_nothing_more() -> None:
    """While the rest of what it sent is done, messages go to others."""

    async def main(server: Server) -> None:
        async with browser(server) as raw:
            wire = [subscribe("/queue/z").encode(), *messages(200), send("/queue/z", "mine").encode()]
            await raw.send(b"".join(frame(TEXT, part) for part in wire))
            await until(lambda: bool(queue(server)))
            for peer in server.peers.values():
                peer.wire._transport.abort()
            await until(lambda: not server.peers)
            assert queue(server) == 200
            (message,) = server.broker.queues["/", "/queue/z"].messages
            assert message.attempts == 0

    run(main, CONFIG.replace(ws_port=0))


def test_an_error_ends_it_in_its_place() -> None:
    """Of what stands behind it nothing is done; the ERROR arrives."""

    async def main(server: Server) -> None:
        async with browser(server) as raw:
            wrong = frame(TEXT, b"NONSENSE\n\n\0")
            await raw.send(frame(BINARY) * 2000 + wrong + frame(BINARY, messages(1)[0]) * 2000)
            assert b"ERROR" in await raw.rest()
            await until(lambda: not server.peers)
            assert not queue(server)
            assert not server.broker.quota.blocked

    run(main, CONFIG.replace(ws_port=0))
