"""A client with no sense, for tests that look at octets."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from patience import patience

from stompcodec import Parser


class Wire:
    """`with Wire(broker) as wire:` connects; `say` sends a frame, `frame` reads one, `rest` all up to the end."""

    def __init__(self, broker, *, beats="0,0", connect=True):
        address = urlsplit(broker.url)
        self.sock = socket.create_connection((address.hostname, address.port), timeout=patience(20))
        self.parser = Parser("1.2")
        self.frames = []
        self.octets = b""
        if connect:
            self.say(f"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:{beats}\n\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def say(self, text):
        self.sock.sendall(text.encode() + b"\0")

    def read(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        self.octets += data
        self.frames += self.parser.feed(data)
        return bool(data)

    def frame(self):
        while not self.frames:
            assert self.read(), "the connection is closed"
        return self.frames.pop(0)

    def commands(self, count):
        return [self.frame().command for _ in range(count)]

    def rest(self):
        while self.read():
            pass
        frames, self.frames = self.frames, []
        return frames

    def is_silent(self, seconds):
        self.sock.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            return not self.read()
        self.sock.settimeout(20)
        return True
