"""A small scripted server for the client's tests, built on `Connection(Role.SERVER)`: real sockets, one thread."""

import collections
import contextlib
import itertools
import selectors
import socket
import threading
import time
from concurrent.futures import Future

from patience import patience

from stompcodec import Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError


@contextlib.contextmanager
def closed_port():
    """A port that refuses connections. It is bound, so that no other program gets it while the block runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class Side:
    def __init__(self, peer, sock, number):
        self.peer, self.sock, self.number = peer, sock, number
        self.connection = Connection(Role.SERVER, heart_beat=peer.heart_beat, versions=peer.versions, now=0.0)
        self.subscriptions, self.unacked = {}, {}
        self.silent = self.closed = False

    def send(self, command, headers=(), body=b""):
        self.connection.send(Frame(command, headers, body))
        self.flush()

    def receipt(self, frame):
        if frame.get("receipt") is not None:
            self.send("RECEIPT", {"receipt-id": frame.headers["receipt"]})

    def error(self, frame, message="refused"):
        named = frame is not None and frame.get("receipt") is not None
        self.send("ERROR", {"message": message, **({"receipt-id": frame.headers["receipt"]} if named else {})})

    def deliver(self, subscription, body=b"", headers=(), count=1, **more):
        asked = self.subscriptions[subscription]
        for _ in range(count):
            number = f"m{next(self.peer.ids)}"
            own = {"subscription": subscription, "message-id": number, "destination": asked.headers["destination"]}
            if asked.get("ack", "auto") != "auto":
                self.unacked[number] = asked
                if self.connection.version == "1.2":
                    own["ack"] = number
            self.connection.send(Frame("MESSAGE", [*own.items(), *dict(headers).items(), *more.items()], body))
        self.flush()

    def flush(self):
        data = b"".join(self.connection.take_output(time.monotonic()))
        if data and not self.closed and not self.silent:
            with contextlib.suppress(OSError):
                self.sock.sendall(data)

    def close(self):
        if not self.closed:
            self.closed = True
            with contextlib.suppress(KeyError, ValueError):
                self.peer.selector.unregister(self.sock)
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()


class Peer:
    """The server. `rules` maps a command to a function of (side, frame); what it lacks is done as a broker would."""

    def __init__(self, *, heart_beat=(0, 0), versions=("1.0", "1.1", "1.2"), server="test/1", rules=None, port=0):
        self.heart_beat, self.versions, self.server = heart_beat, versions, server
        self.rules = dict(rules or {})
        self.frames, self.sides, self.dead = [], [], []
        self.changed, self.queues = threading.Condition(), collections.defaultdict(list)
        self.ids, self.selector = itertools.count(1), selectors.DefaultSelector()
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.selector.register(self.listener, selectors.EVENT_READ)
        self._todo = collections.deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self.selector.register(self._wake_in, selectors.EVENT_READ)
        self._running = True
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"stomp://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._running = False
        self._wake()
        self.thread.join(patience(5))
        for side in self.sides:
            side.close()
        for each in (self.listener, self.selector, self._wake_in, self._wake_out):
            each.close()

    # ---- from the test's thread ----
    def do(self, work):
        done = Future()

        def run():
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        self._todo.append(run)
        self._wake()
        return done.result(patience(5))

    def wait(self, condition, timeout=10.0):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), patience(timeout)), self.frames

    def got(self, command, **headers):
        wanted = {name.replace("_", "-"): value for name, value in headers.items()}
        frames = [frame for _, frame in list(self.frames) if frame.command == command]
        return [frame for frame in frames if all(frame.get(name) == value for name, value in wanted.items())]

    def commands(self, number=None):
        return [frame.command for side, frame in list(self.frames) if number is None or side == number]

    def cut(self):
        self.do(lambda: [side.close() for side in self.sides])

    def side(self):
        return next(side for side in reversed(self.sides) if not side.closed)

    def deliver(self, subscription, body=b"", **options):
        self.do(lambda: self.side().deliver(subscription, body, **options))

    # ---- the server's thread ----
    def _wake(self):
        with contextlib.suppress(OSError):
            self._wake_out.send(b"x")

    def _run(self):
        while self._running:
            for key, _ in self.selector.select(0.05):
                if key.fileobj is self.listener:
                    self._accept()
                elif key.fileobj is self._wake_in:
                    self._wake_in.recv(4096)
                else:
                    self._read(key.data)
            while self._todo:
                self._todo.popleft()()
            now = time.monotonic()
            for side in [side for side in self.sides if not side.closed]:
                if not side.connection.tick(now):
                    self.dead.append(side.number)  # the client was silent for too long
                    side.close()
                side.flush()

    def _accept(self):
        sock, _ = self.listener.accept()
        side = Side(self, sock, len(self.sides) + 1)
        self.sides.append(side)
        self.selector.register(sock, selectors.EVENT_READ, side)

    def _read(self, side):
        try:
            data = side.sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            side.close()
            self._note()
            return
        try:
            for frame in side.connection.receive(data, time.monotonic()):
                self.frames.append((side.number, frame))
                rule = self.rules.get(frame.command) or getattr(self, f"on_{frame.command.lower()}", Side.receipt)
                rule(side, frame)
                self._note()
                if side.closed:
                    return
        except RemoteProtocolError as error:
            self.frames.append((side.number, error.reply))
            side.close()

    def _note(self):
        with self.changed:
            self.changed.notify_all()

    def on_connect(self, side, frame):
        side.connection.accept({"session": str(side.number), "server": self.server})
        side.flush()

    def on_subscribe(self, side, frame):
        side.subscriptions[frame.headers.get("id", frame.headers["destination"])] = frame
        side.receipt(frame)
        waiting, self.queues[frame.headers["destination"]] = self.queues[frame.headers["destination"]], []
        for body in waiting:
            side.deliver(frame.headers.get("id"), body)

    def on_unsubscribe(self, side, frame):
        side.subscriptions.pop(frame.headers["id"], None)
        side.receipt(frame)

    def on_send(self, side, frame):
        side.receipt(frame)
        if frame.get("transaction"):
            return
        kept = ("reply-to", "correlation-id", "content-encoding")
        extra = {name: frame.headers[name] for name in kept if frame.get(name)}
        for other in self.sides:
            for name, asked in list(other.subscriptions.items()):
                if not other.closed and asked.headers["destination"] == frame.headers["destination"]:
                    other.deliver(name, frame.body, extra)
                    return
        self.queues[frame.headers["destination"]].append(frame.body)

    def on_ack(self, side, frame):
        name = frame.get("id") or frame.get("message-id")
        assert name in side.unacked, f"an ACK that this connection may not send: {frame!r}"
        del side.unacked[name]
        side.receipt(frame)

    on_nack = on_ack

    def on_disconnect(self, side, frame):
        side.receipt(frame)
        side.close()
