"""A proxy for tests: it tunnels by CONNECT, or answers with what a test says."""

import contextlib
import socket
import socketserver
import threading


class ScriptedProxy(socketserver.ThreadingTCPServer):
    """Answers each CONNECT with `answer`, written in these pieces; a 200 opens a tunnel. `heads` has what was asked."""

    daemon_threads = True

    def __init__(self, answer=(b"HTTP/1.1 200 Connection established\r\n\r\n",), *, context=None):
        super().__init__(("127.0.0.1", 0), None)
        self.answer, self.context, self.port = answer, context, self.server_address[1]
        self.heads, self._sockets = [], []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.server_close()

    def finish_request(self, near, _):
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
            if b"".join(self.answer).startswith(b"HTTP/1.1 200"):
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
