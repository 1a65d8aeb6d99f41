"""A proxy for tests: it tunnels by CONNECT, or answers with what a test says."""

from __future__ import annotations

import contextlib
import socket
import threading


class ScriptedProxy:
    """Answers each CONNECT with `answer`, written in these pieces; a 200 opens a tunnel. `heads` has what was asked."""

    def __init__(self, answer=(b"HTTP/1.1 200 Connection established\r\n\r\n",), *, context=None):
        self.answer = answer
        self.context = context
        self.heads = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._sockets = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        for each in (self.listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._thread.join(30)

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self.listener.accept()
                self._sockets.append(accepted)
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, near):
        with contextlib.suppress(OSError):
            if self.context is not None:
                near = self.context.wrap_socket(near, server_side=True)
                self._sockets.append(near)
            head = b""
            while b"\r\n\r\n" not in head:
                octets = near.recv(4096)
                if not octets:
                    return
                head += octets
            self.heads.append(head.decode())
            for piece in self.answer:
                near.sendall(piece)
            if not b"".join(self.answer).startswith(b"HTTP/1.1 200"):
                near.close()
                return
            host, _, port = head.split()[1].decode().rpartition(":")
            far = socket.create_connection((host, int(port)))
            self._sockets.append(far)
            threading.Thread(target=_copy, args=(far, near), daemon=True).start()
            _copy(near, far)


def _copy(source, target):
    with contextlib.suppress(OSError):
        while octets := source.recv(65536):
            target.sendall(octets)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
