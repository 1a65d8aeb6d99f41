"""A listener that blocks keeps its connection with the first lines of our pages, and moved to our client."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from client.broker import BrokerThread
from compat.stomppy_peer import needs_stomppy, stomp
from patience import patience

import stompcodec.compat

TOP = Path(__file__).parents[2]
PAGES = ("README.md", "docs/coming-from-stomp-py.md")
INSTALLED = [f"installed as {page} says" for page in PAGES]
#: Heart-beats of the broker for which the listener blocks. stomp.py by itself waits for three intervals.
BLOCKS = 8
#: Milliseconds between heart-beats. A busy machine may break a short promise; then a longer one is tried.
BEATS = (40, 500, 4000)

pytestmark = [needs_stomppy, pytest.mark.skipif(not (TOP / PAGES[1]).is_file(), reason="without the docs")]


class Wire:
    """A relay in front of a broker: counts connections, and the heart-beats that the broker has sent."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self.connections = self.ended = self._beats = 0
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += near, far
                self.connections += 1
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source, target, counts=False):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                if counts and not data.strip(b"\r\n"):
                    with self._changed:
                        self._beats += 1
                        self._changed.notify_all()
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self.ended += 1
            self._changed.notify_all()

    def blocks(self):
        """Wait for heart-beats of the broker, or for the end of a connection; return whether it is alive."""
        with self._changed:
            until = self._beats + BLOCKS
            assert self._changed.wait_for(lambda: self._beats >= until or self.ended, patience(120))
            return not self.ended

    def close(self):
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def blocks_of(page, words):
    """The blocks of Python with these words."""
    text = (TOP / page).read_text(encoding="utf-8")
    return [block for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if words in block]


class Worker(stomp.ConnectionListener if stomp else object):
    """A program of the usual kind: its first message takes long, and each is acknowledged."""

    def __init__(self, wire, beats, queue):
        self.wire, self.alive, self.bodies, self.done = wire, None, [], threading.Event()
        self.connection = stomp.Connection12([("127.0.0.1", wire.port)], heartbeats=(beats, beats))
        self.connection.set_listener("worker", self)
        self.connection.connect("guest", "guest", wait=True)
        self.connection.subscribe(queue, id="1", ack="client-individual")
        for body in ("one", "two"):
            self.connection.send(queue, body)

    def on_message(self, frame):
        if self.alive is None:
            self.alive = self.wire.blocks()
        if not self.alive:
            self.done.set()
            return
        self.connection.ack(frame.headers["ack"])
        self.bodies.append(frame.body)
        if len(self.bodies) == 2:
            self.done.set()

    def outcome(self):
        assert self.done.wait(patience(240))
        if self.alive:
            self.connection.disconnect()
        return self.alive and self.bodies == ["one", "two"]


def moved(wire, beats, queue):
    """The page's program for our client, with the heart-beats that its table names."""
    block = blocks_of(PAGES[1], "connect(")[-1]
    url = 'f"stomp://guest:guest@{host}:{port}"'
    assert url in block
    block = block.replace(url, f"{url}, heart_beat=({beats}, {beats})").replace("/queue/orders", queue)
    lived = []
    names = {"host": "127.0.0.1", "port": wire.port, "print": lambda *_: lived.append(wire.blocks())}
    exec(compile(block, PAGES[1], "exec"), names)
    return lived == [True]


def lives(way, port, beats, queue):
    """Whether a program works through with one connection, although it blocks."""
    wire = Wire(port)
    try:
        if way == "moved":
            return moved(wire, beats, queue) and wire.connections == 1
        if way in INSTALLED:
            page = way.split()[2]
            exec(compile(blocks_of(page, "compat.install(")[0], page, "exec"), {})
        return Worker(wire, beats, queue).outcome() and wire.connections == 1
    finally:
        stompcodec.compat.undo("stomp.py")
        wire.close()


@pytest.mark.parametrize("way", [*INSTALLED, "moved"])
def test_a_listener_that_blocks_keeps_its_connection_with_the_first_line(way):
    for beats in BEATS:
        with BrokerThread(heart_beat=(beats, beats)) as broker:
            if lives(way, broker.port, beats, "/queue/orders"):
                return
    pytest.fail("cut off, however long the interval")


@pytest.mark.peer("activemq6")
@pytest.mark.parametrize("way", ["plain", *INSTALLED, "moved"])
def test_a_listener_that_blocks_for_12_s_keeps_its_connection_to_activemq(peer, way):
    """Eight heart-beats, 1.5 s apart."""
    queue = peer.row.queue.format(uuid4().hex)
    assert lives(way, peer.ports["stomp"], 1500, queue) is (way != "plain")
