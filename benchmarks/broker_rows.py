"""The broker's rows of instructions.py: what a message costs in process, without sockets.

A turn of the broker's loop is counted: `Session.receive` with some frames, `Broker.turn`, and `take_output` of each
session that has something to write. Clocks stand still, and commits are written in the thread of the caller, so that
each run executes the same instructions. The row of WebSocket has the layer of a server between.
"""

from __future__ import annotations

import tempfile
from typing import Any

from stompcodec.codec import Frame, Parser, serialize

#: Each row, and what one message of it is.
ROWS = {
    "send": "SEND to a queue, MESSAGE to its consumer (ack: auto)",
    "ack": "ACK (client-individual)",
    "fan_out": "SEND to a topic, MESSAGE to each of its 10 subscribers",
    "websocket": "SEND to a queue, MESSAGE to its consumer (ack: auto), both over WebSocket",
    "persistent": "persistent SEND with a receipt, committed to SQLite, 25 per turn",
    "persistent_single": "persistent SEND with a receipt, committed to SQLite, one per turn",
    "persistent_paged": "persistent SEND with a receipt to a queue whose window is full, 25 per turn",
    "transaction": "persistent SEND in a transaction of 10, 5 per turn, with their BEGIN, COMMIT and receipt",
    "reply_to": "SEND with reply-to to a queue, MESSAGE to its consumer (ack: auto)",
    "selector": "SEND to a queue, MESSAGE to its consumer (ack: auto), whose selector matches",
    "persistent_ack": "ACK of a persistent message (client-individual), committed to SQLite, 25 per turn",
}
#: Messages that `Row.run` is about.
MESSAGES = 1000
_PER_TURN = 25
_SUBSCRIBERS = 10
_PER_TRANSACTION, _TRANSACTIONS = 10, 5
#: Frames that answer the messages of a row, if not one for each.
_ANSWERS = {"fan_out": MESSAGES * _SUBSCRIBERS, "ack": 0, "persistent_ack": 0}
_ANSWERS["transaction"] = MESSAGES // _PER_TRANSACTION
#: With seven digits from first to last, message-ids have the same width in each turn.
_FIRST_SEQ = 1_000_000
_BODY = b"x" * 256
_SELECTOR = "color = 'red' AND n > 9"
_HEADERS = [("content-type", "application/json"), ("symbol", "ACME"), ("venue", "XETR"), ("sequence", "0000000")]


class Row:
    """One row, a key of `ROWS`: a broker, and sessions that use it always in the same way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stored = name.startswith(("persistent", "transaction"))
        self._acknowledges = name.endswith("ack")
        self._destination = "/topic/a" if name == "fan_out" else "/queue/a"
        #: Of a session over WebSocket: our layer, and that of its client.
        self._layers: dict[Any, tuple[Any, Any]] = {}

    def __enter__(self) -> Row:
        # Here, and not when rows of the codec are counted: under valgrind this takes longer than they do.
        from stompcodec.broker.config import Config
        from stompcodec.broker.core import Broker
        from stompcodec.broker.storage.sqlite import SqliteStore

        self._folder = tempfile.TemporaryDirectory(prefix="stompcodec-instructions-")
        self._store = SqliteStore(self._folder.name, clock=lambda: 0.0) if self._stored else None
        self.broker = Broker(Config(), self._store, wall=lambda: 1e9, epoch="e", call_soon=None)
        self.broker.seq = _FIRST_SEQ
        self.broker.open(0.0)
        self._sender = self._session()
        self._sends = self._make_sends()
        if not self._stored or self._acknowledges:
            for _ in range(_SUBSCRIBERS if self.name == "fan_out" else 1):
                self._consumer = self._subscribe("client-individual" if self._acknowledges else "auto")
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()
        self._folder.cleanup()

    def prepare(self) -> tuple[Any, list[bytes]]:
        """Make the state from which `run` starts, and return its arguments."""
        if self._acknowledges:
            frames = Parser("1.2").feed(b"".join(self._written(self._sender, self._sends)))
            marks = (frame.headers["ack"].encode() for frame in frames if frame.command == "MESSAGE")
            acks = [b"ACK\nid:%b\n\n\0" % mark for mark in marks]
            assert len(acks) == MESSAGES
            return self._consumer, joined(acks, _PER_TURN)
        if self.name == "persistent_paged":
            while self._queue is None or self._queue.paging is None:
                self._written(self._sender, self._sends)
        elif self._stored:
            self._drain()
        return self._sender, self._sends

    def run(self, session: Any, pieces: list[bytes]) -> int:
        """Let the session send each piece in a turn of its own (counted), and return the number of chunks written."""
        if self._layers:
            return self._run_over_websocket(session, pieces)
        chunks = 0
        broker = self.broker
        for piece in pieces:
            session.receive(piece, 0.0)
            for dirty in broker.turn(0.0):
                chunks += len(dirty.take_output())
        return chunks

    def _run_over_websocket(self, session: Any, pieces: list[bytes]) -> int:
        chunks = 0
        layers, broker = self._layers, self.broker
        for piece in pieces:
            for data in layers[session][0].receive(piece):
                session.receive(data, 0.0)
            for dirty in broker.turn(0.0):
                layer, _client = layers[dirty]
                layer.send(dirty.take_output())
                chunks += len(layer.take_output())
        return chunks

    def check(self) -> None:
        """Do what `run` does, and see that each message of it did what the row says."""
        session, pieces = self.prepare()
        frames = list(Parser("1.2").feed(b"".join(self._written(session, pieces))))
        answers = _ANSWERS.get(self.name, MESSAGES)
        assert [frame.command for frame in frames] == ["RECEIPT" if self._stored else "MESSAGE"] * answers
        if self.name == "persistent_paged":
            assert self._queue.paging.count >= MESSAGES
            return
        left = MESSAGES if self._stored and not self._acknowledges else 0
        assert self._waiting == left
        if self._store is not None:
            assert len(list(self._store.load())) == left

    @property
    def _queue(self) -> Any:
        """The queue of the messages, or None before the first one."""
        return next(iter(self.broker.queues.values()), None)

    @property
    def _waiting(self) -> int:
        return sum(queue.count for queue in self.broker.queues.values())

    def _drain(self) -> None:
        session = self._subscribe("auto")
        while self._waiting:
            self._written(session, [b"\n"])
        session.lost(0.0)
        self._written(self._sender, [b"\n"])

    def _session(self) -> Any:
        over_websocket = self.name == "websocket"
        session = self.broker.attach(0.0, whole_frames=over_websocket)
        if over_websocket:
            self._layers[session] = _opened_layers()
        self._written(session, self._messages(session, [b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"]))
        return session

    def _subscribe(self, ack: str) -> Any:
        session = self._session()
        selector = f"selector:{_SELECTOR}\n" if self.name == "selector" else ""
        frame = f"SUBSCRIBE\nid:1\ndestination:{self._destination}\nack:{ack}\nprefetch-count:0\n{selector}\n\0"
        self._written(session, self._messages(session, [frame.encode()]))
        return session

    def _make_sends(self) -> list[bytes]:
        headers = [("destination", self._destination), *_HEADERS, ("persistent", "true" if self._stored else "false")]
        if self.name == "selector":
            headers += [("color", "red"), ("n", "10")]
        if self.name == "reply_to":
            headers.append(("reply-to", "/queue/answers"))
        if self.name == "transaction":
            return self._make_transactions(headers)
        receipts = self._stored and not self._acknowledges
        frames = []
        for number in range(MESSAGES):
            receipt = [("receipt", f"r{number:04}")] if receipts else []
            frames.append(serialize(Frame("SEND", headers + receipt, _BODY), "1.2"))
        frames = self._messages(self._sender, frames)
        return joined(frames, 1 if self.name == "persistent_single" else _PER_TURN)

    def _make_transactions(self, headers: list[tuple[str, str]]) -> list[bytes]:
        found = []
        for number in range(MESSAGES // _PER_TRANSACTION):
            name = [("transaction", f"t{number:04}")]
            frames = [Frame("SEND", headers + name, _BODY)] * _PER_TRANSACTION
            frames = [Frame("BEGIN", name), *frames, Frame("COMMIT", [*name, ("receipt", f"r{number:04}")])]
            found.append(b"".join(serialize(frame, "1.2") for frame in frames))
        return joined(found, _TRANSACTIONS)

    def _written(self, session: Any, pieces: list[bytes]) -> list[bytes]:
        written: list[bytes] = []
        for piece in pieces:
            for data in self._layers[session][0].receive(piece) if self._layers else [piece]:
                session.receive(data, 0.0)
            for dirty in self.broker.turn(0.0):
                chunks = dirty.take_output()
                if self._layers:
                    layer, client = self._layers[dirty]
                    layer.send(chunks)
                    chunks = [bytes(each) for wire in layer.take_output() for each in client.receive(wire)]
                written += chunks
        return written

    def _messages(self, session: Any, frames: list[bytes]) -> list[bytes]:
        """Return the frames as the client of a session writes them: over WebSocket as a message each."""
        if not self._layers:
            return frames
        _layer, client = self._layers[session]
        found = []
        for frame in frames:
            client.send([frame])
            found += client.take_output()
        return found


def _opened_layers() -> tuple[Any, Any]:
    """Return the WebSocket layers of a server and of its client, which have shaken hands."""
    from stompcodec.transport.websocket import client_layer, server_layer

    server, client = server_layer(), client_layer("localhost", 80)
    client.start()
    server.receive(b"".join(client.take_output()))
    client.receive(b"".join(server.take_output()))
    assert server.opened
    assert client.opened
    return server, client


def joined(frames: list[bytes], size: int) -> list[bytes]:
    return [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]
