"""Delayed messages, and messages that a browser removed, after the process was killed. On real sockets."""

import socket
import sqlite3
import time
from contextlib import closing

import pytest
from patience import patience

pytest.importorskip("click")

from crash.process import BrokerProcess

from stompcodec import Frame, Parser, serialize
from stompcodec.broker.storage.salvage import check

WISHED = ("RECEIVE", "EMPTY")


class Client:
    """Blocks until what it waits for has come."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience(30))
        self.parser = Parser("1.2", commands=WISHED)
        self.frames = []
        self.send("CONNECT", {"accept-version": "1.2", "host": "/", "login": "guest", "passcode": "guest"})
        assert self.next().command == "CONNECTED"

    def send(self, command, headers, body=b""):
        self.socket.sendall(
            serialize(Frame(command, headers, body), None if command == "CONNECT" else "1.2", commands=WISHED)
        )

    def next(self):
        while not self.frames:
            data = self.socket.recv(65536)
            assert data, "the connection is closed"
            self.frames += self.parser.feed(data)
        return self.frames.pop(0)

    def ask(self, command, headers, body=b""):
        """Read until the RECEIPT, and return the frames before it."""
        self.send(command, {**headers, "receipt": "r"}, body)
        before = []
        while (frame := self.next()).command != "RECEIPT":
            before.append(frame)
        return before


@pytest.mark.long
def test_what_was_confirmed_is_there_after_a_kill(tmp_path):
    queue = {"destination": "/queue/a", "persistent": "true"}
    with BrokerProcess(tmp_path) as broker:
        client = Client(broker.port)
        sent = time.monotonic()
        client.ask("SEND", {**queue, "delay": "3000"}, b"late")
        for number in range(5):
            client.ask("SEND", queue, b"%d" % number)
        look = {"destination": "/queue/a", "id": "1", "ack": "client", "browser": "true", "include-seq": "seq"}
        client.send("SUBSCRIBE", look)
        shown = [client.next() for _ in range(6)]
        assert [frame.body for frame in shown] == [b"0", b"1", b"2", b"3", b"4", b""]
        client.ask("ACK", {"id": shown[2].headers["ack"]})
        last = int(shown[4].headers["seq"])
        broker.kill()
        client.socket.close()
        broker.start()
        client = Client(broker.port)
        client.send("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "include-seq": "seq"})
        found = [client.next() for _ in range(3)]
        client.socket.close()
    assert time.monotonic() - sent > 2.5  # it has waited, over the restart
    assert [frame.body for frame in found] == [b"3", b"4", b"late"]
    assert int(found[2].headers["seq"]) > last


@pytest.mark.long
def test_transient_messages_that_were_stored_are_gone_after_a_kill(tmp_path):
    """They are not delivered; persistent ones among them come in order, and new ones after them."""
    config = '[queues]\ntransient = "spool"\nwindow = 10\n'
    with BrokerProcess(tmp_path, config=config) as broker:
        client = Client(broker.port)
        for number in range(601):
            kept = "false" if number % 10 else "true"
            client.send("SEND", {"destination": "/queue/a", "persistent": kept}, b"%d" % number)
        client.ask("SEND", {"destination": "/queue/b", "persistent": "true"}, b"the last one, and it is stored")
        broker.kill()
        client.socket.close()
        before = transient(tmp_path)
        broker.start()
        client = Client(broker.port)
        for number in range(601, 631):
            client.send("SEND", {"destination": "/queue/a"}, b"%d" % number)
        client.send("SUBSCRIBE", {"destination": "/queue/a", "id": "1"})
        found = [int(client.next().body) for _ in range(91)]
        rest = client.ask("RECEIVE", {"destination": "/queue/a"})
        client.socket.close()
        give_up = time.monotonic() + patience(30)
        while transient(tmp_path):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        broker.stop()
    assert before > 400
    assert found == [*range(0, 601, 10), *range(601, 631)]
    assert [frame.command for frame in rest] == ["EMPTY"]
    findings = check(tmp_path / "data")
    assert (findings.whole, findings.messages) == (True, 1)


def transient(folder):
    with closing(sqlite3.connect(folder / "data" / "messages.sqlite")) as connection:
        return connection.execute("SELECT count(*) FROM message WHERE persistent = 0").fetchone()[0]
