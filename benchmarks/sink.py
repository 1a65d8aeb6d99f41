"""A broker of the thinnest kind for clients that send: it drains, answers receipts, and returns pings."""

from __future__ import annotations

import contextlib
import re
import socket
import threading

from loads import KIB

#: What is sent to this destination comes back to the only subscription of the connection.
PING = "/queue/ping"
_RECEIPT = re.compile(rb"\nreceipt:([^\n\r]*)")
_ID = re.compile(rb"\nid:([^\n\r]*)")


class Sink:
    """Serves any number of clients, each in a thread. With `keep` it keeps the bodies of all SENDs."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        self.keep = False
        self.bodies: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        kept, name = b"", b"0"
        with client, contextlib.suppress(OSError):
            while data := client.recv(256 * KIB):
                whole = kept + data
                *parts, kept = whole.split(b"\0")
                frames = [part.lstrip(b"\r\n") for part in parts]  # heart-beats
                if self.keep:
                    self.bodies += [frame.partition(b"\n\n")[2] for frame in frames if frame.startswith(b"SEND")]
                elif not any(word in whole for word in (b"receipt:", b"CONNECT", b"STOMP\n", PING.encode())):
                    continue
                answers = []
                for frame in frames:
                    if frame.startswith((b"CONNECT", b"STOMP")):
                        answers.append(b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0")
                    elif b"SUBSCRIBE\n" in frame:
                        name = (_ID.search(frame) or [b"", b"0"])[1]
                    elif PING.encode() in frame:
                        head = b"MESSAGE\nsubscription:%b\nmessage-id:1\ndestination:%b\n\n" % (name, PING.encode())
                        answers.append(head + frame.partition(b"\n\n")[2] + b"\0")
                    answers += [b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt for receipt in _RECEIPT.findall(frame)]
                if answers:
                    client.sendall(b"".join(answers))
