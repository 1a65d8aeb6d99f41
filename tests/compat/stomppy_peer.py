"""stomp.py, our module for it, and a scripted server; the tests are skipped where stomp.py is not installed."""

from __future__ import annotations

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

    def connect(self, connection, listener, **options):
        """Connect, and wait for this side of the connection, too."""
        connection.set_listener("test", listener)
        connection.connect("guest", "guest", wait=True, **options)
        if self.peer is not None:
            self.peer.close()
        self.peer = self._accepted.get(timeout=patience(30))
        return listener

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
