"""WebSocket has the same share of the loop as TCP: work is counted that is done before another session is served."""

import asyncio
import socket
import threading

import pytest
from broker.sockets import CONNECT, Client, browser, send, served, subscribe, until
from crash.process import BrokerProcess
from patience import patience
from transport.messages import BINARY, CONT, TEXT, frame, frames
from transport.wires import Raw

from stompcodec.broker.sessions.commands import HANDLERS

pytest.importorskip("websockets")


@pytest.mark.long
def test_a_process_answers_others_between_tiny_frames(tmp_path):
    """A client asks one thing after the other while floods are read: it has many answers before those end."""
    from run_scenarios import WebSocket

    pytest.importorskip("click")
    pieces = frame(TEXT, b"\n", fin=False) + frame(CONT, b"\n", fin=False) * 7_998 + frame(CONT)
    octets = pieces * 4 + frame(BINARY, send("/queue/b", "x", "receipt:last").encode())
    with BrokerProcess(tmp_path, memory=True) as broker:
        wires = [WebSocket("127.0.0.1", broker.ws_port, "/", patience(60)) for _ in range(2)]
        client = socket.create_connection(("127.0.0.1", broker.port), patience(60))
        for wire in (*wires, client):
            wire.sendall(CONNECT)
            assert wire.recv(65536).startswith(b"CONNECTED")

        def flood():
            senders = [threading.Thread(target=wire.socket.sendall, args=(octets,)) for wire in wires]
            for sender in senders:
                sender.start()
            for wire in wires:
                assert wire.recv(65536).startswith(b"RECEIPT")

        for _ in range(5):  # in some of them the machine may not have let this process run
            flooding = threading.Thread(target=flood)
            flooding.start()
            answers = 0
            while flooding.is_alive():
                client.sendall(send("/queue/a", "x", f"receipt:{answers}").encode())
                received = b""
                while not received.endswith(b"\0\n"):
                    received += client.recv(65536)
                assert f"receipt-id:{answers}\n".encode() in received
                answers += 1
            if answers > 25:
                break
        client.close()
        for wire in wires:
            wire.close()
    assert answers > 25


@pytest.fixture
def sends(monkeypatch):
    """A share is over after eight frames. Counts, once it is called, the SENDs of each turn of the loop."""
    monkeypatch.setattr("stompcodec.broker.loop_quota._SHARE", -1.0)
    counts, handler = [0], HANDLERS["SEND"]

    def counted(*arguments):
        counts[-1] += 1
        return handler(*arguments)

    def start():
        selector = asyncio.get_running_loop()._selector
        select = selector.select
        selector.select = lambda timeout=None: (counts.append(0), select(timeout))[1]
        monkeypatch.setitem(HANDLERS, "SEND", counted)
        return counts

    return start


def messages(count):
    return [send("/queue/a", str(number), f"receipt:{number}").encode() for number in range(count)]


@served(ws_port=0)
async def test_a_message_each_is_no_way_around_a_share(server, sends):
    async with browser(server) as raw:
        counts = sends()
        await raw.send(b"".join(frame(BINARY, message) for message in messages(800)))
        receipts = await raw.until(b"receipt-id:799\n\n\0\n")
        assert sum(counts) == 800
        assert max(counts) <= 16
        got = b"".join(read.payload for read in frames(receipts))
        assert got.count(b"RECEIPT") == 800
        assert got.index(b"receipt-id:100\n") < got.index(b"receipt-id:101\n") < got.index(b"receipt-id:700\n")
        consumer = await Client.connect(server)
        await consumer.ask(subscribe("/queue/a"))
        assert [(await consumer.frame()).body for _ in range(800)] == [b"%d" % number for number in range(800)]


def test_small_records_of_tls_are_no_way_around_a_share(certificates, sends):
    """A SEND in a record of its own, 1000 of them in one write."""
    from stompcodec.transport.tls import TlsLayer, client_context

    @served(tls_port=0, tls_cert=certificates.server)
    async def main(server):
        layer = TlsLayer(client_context(verify=False), server_hostname="localhost")
        async with Raw.to(server.tls_port) as raw:
            layer.start()
            while not layer.opened:
                await raw.send(b"".join(layer.take_output()))
                layer.receive(await raw.some())
            layer.send([CONNECT])
            counts = sends()
            for message in messages(1000):
                layer.send([message])
            await raw.send(b"".join(layer.take_output()))
            received = b""
            while b"receipt-id:999\n" not in received:
                received += b"".join(layer.receive(await raw.some()))
            assert received.count(b"RECEIPT") == sum(counts) == 1000
            assert max(counts) <= 16

    main()


@served(ws_port=0)
async def test_one_that_is_gone_gets_nothing_more(server, sends):
    """While the rest of what it sent is done, messages go to others."""
    async with browser(server) as raw:
        wire = [subscribe("/queue/z").encode(), *messages(200), send("/queue/z", "mine").encode()]
        await raw.send(b"".join(frame(TEXT, part) for part in wire))
        await until(lambda: ("/", "/queue/a") in server.broker.queues)
        for peer in server.peers.values():
            peer.wire._transport.abort()
        await until(lambda: not server.peers)
        assert len(server.broker.queues["/", "/queue/a"].messages) == 200
        (message,) = server.broker.queues["/", "/queue/z"].messages
        assert message.attempts == 0
