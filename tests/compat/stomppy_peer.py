"""stomp.py, our module for it, a listener and a scripted server; tests are skipped where stomp.py is not installed."""

import contextlib
import os
import queue
import socket
import threading

import pytest
from patience import patience

os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
try:
    import stompcodec.compat.stomppy as compat
    import stompcodec.compat.stomppy_codec

    stomp = compat.stomp
except ImportError as error:
    stomp = compat = None
    REASON = str(error)
else:
    compat.stomppy_codec = stompcodec.compat.stomppy_codec
    REASON = ""
needs_stomppy = pytest.mark.skipif(stomp is None, reason=REASON)


class Listener(stomp.ConnectionListener if stomp else object):
    """Keeps what it is told, and by which thread; it may block in messages until it is released."""

    def __init__(self, blocks=False):
        self.release, self.changed, self.told = threading.Event(), threading.Condition(), []
        if not blocks:
            self.release.set()

    def note(self, kind, frame=None):
        with self.changed:
            self.told.append((kind, frame, threading.current_thread()))
            self.changed.notify_all()

    def of(self, kind):
        return [frame for found, frame, _ in self.told if found == kind]

    def bodies(self, kind="done"):
        return [frame.body for frame in self.of(kind)]

    def threads(self, *kinds):
        return {thread for kind, _, thread in self.told if kind in kinds or not kinds}

    def wait(self, *kinds, count=1):
        with self.changed:
            came = self.changed.wait_for(lambda: max(len(self.of(kind)) for kind in kinds) >= count, patience(30))
            assert came, self.told
        return self.of(kinds[0])

    def on_message(self, frame):
        self.note("message", frame)
        assert self.release.wait(patience(60))
        self.note("done", frame)

    def on_receipt(self, frame):
        self.note("receipt", frame)

    def on_error(self, frame):
        self.note("error", frame)

    def on_heartbeat_timeout(self):
        self.note("timeout")

    def on_disconnected(self):
        self.note("disconnected")


class Server:
    """Accepts one connection after the other, and answers CONNECT; `peer` is the newest one's socket."""

    def __init__(self, beats=b"0,0", context=None):
        self.beats, self.context = beats, context
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1", self.listener.getsockname()[1]
        self.peer, self.came, self._accepted = None, [], queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                peer.settimeout(patience(30))
                if self.context is not None:
                    peer = self.context.wrap_socket(peer, server_side=True)
                self.came.append(b"")
                while b"\0" not in self.came[-1]:
                    self.came[-1] += peer.recv(65536)
                peer.sendall(b"CONNECTED\nversion:1.2\nheart-beat:%b\n\n\0" % self.beats)
                self._accepted.put(peer)  # last: frames that arrive earlier are not read

    def dial(self, name="Connection12", connection=None, classes=None, blocks=False, headers=None, **options):
        """Connect, and wait for this side of the connection, too; return the connection and its listener."""
        if connection is None:
            connection = getattr(classes or stomp, name)([self.address], **options)
        listener = connection.get_listener("test") or Listener(blocks)
        connection.set_listener("test", listener)
        connection.connect("guest", "guest", wait=True, headers=dict(headers or {}))
        if self.peer is not None:
            self.peer.close()
        self.peer = self._accepted.get(timeout=patience(30))
        return connection, listener

    def end(self, listener, times=1):
        self.peer.close()
        listener.wait("disconnected", count=times)

    def last_offer(self):
        """The heart-beat header of the newest CONNECT; None without it."""
        lines = self.came[-1].decode().split("\n")
        return next((line[11:] for line in lines if line.startswith("heart-beat:")), None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.peer is not None:
            self.peer.close()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
