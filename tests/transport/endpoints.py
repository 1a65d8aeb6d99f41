"""A SockJS endpoint for tests, on the server of the `websockets` library, in front of a STOMP broker on TCP."""

import codecs
import contextlib
import http
import json
import socket
import socketserver
import threading

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response
from websockets.sync.server import serve


class Endpoint:
    """`/stomp` of a server; each session is a connection to the broker on `port`. It answers /info on a connection of
    its own, as `websockets` closes those that are no handshake. `first` is sent before the session begins; `asked` has
    the paths of all requests, `heads` their headers. With `login`, requests need it as their Authorization."""

    def __init__(self, port=None, *, info=None, first=("o",), context=None, login=None):
        self.target = port
        self.info = {"websocket": True, "origins": ["*:*"], "cookie_needed": False} if info is None else info
        self.first, self.asked, self.heads, self.login = first, [], [], login
        self.got = []
        self._server = serve(self._session, "127.0.0.1", 0, process_request=self._request, ssl=context)
        self.port = self._server.socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join(30)

    def _request(self, connection, request):
        self.asked.append(request.path)
        self.heads.append(dict(request.headers.raw_items()))
        if self.login not in (None, self.heads[-1].get("Authorization")):
            more = [("Www-Authenticate", "Basic"), ("Content-Length", "0"), ("Connection", "close")]
            return Response(401, "Unauthorized", Headers(more))
        if request.path.partition("?")[0].endswith("/info"):
            body = json.dumps(self.info).encode()
            headers = Headers([("Content-Length", str(len(body))), ("Connection", "close"), ("Set-Cookie", "seen=1")])
            return Response(http.HTTPStatus.OK.value, "OK", headers, body)
        return None

    def _session(self, websocket):
        with contextlib.suppress(ConnectionClosed, OSError):
            for text in self.first:
                websocket.send(text)
            if self.target is None:
                for message in websocket:
                    self.got += json.loads(message)
                    websocket.send("a" + json.dumps([each.upper() for each in self.got[-1:]]))
                return
            with socket.create_connection(("127.0.0.1", self.target)) as broker:
                threading.Thread(target=self._answers, args=(broker, websocket), daemon=True).start()
                for message in websocket:
                    assert isinstance(message, str)
                    for text in json.loads(message):
                        broker.sendall(text.encode())

    def _answers(self, broker, websocket):
        decoder = codecs.getincrementaldecoder("utf-8")()
        with contextlib.suppress(ConnectionClosed, OSError):
            while octets := broker.recv(1000):
                if text := decoder.decode(octets):
                    websocket.send("h")
                    websocket.send(["a", json.dumps([text[:7], text[7:]])])  # in two fragments
            websocket.send('c[3000,"Go away!"]')
            websocket.close()


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
