"""One end of a proxied connection: a socket, with TLS and WebSocket above it if its side speaks them.

Reading stops while the other end does not take what was read: nothing is read ahead of that, but for the socket's
buffer. The streams of TCP and TLS are closed one direction at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING

from stompcodec.cli.proxying.carrier import Chunk
from stompcodec.transport.owner import MOST_REPLIES

if TYPE_CHECKING:
    from stompcodec.cli.proxying.messages import Messages
    from stompcodec.transport.tls import TlsLayer

#: Bytes of a read, of which each takes a turn of the loop, and unwritten bytes at which writing waits.
READ, HIGH = 32 * 1024, 64 * 1024


class Leg:
    """One end of a connection. `tls` and `messages` are layers without I/O, set before their handshakes.

    >>> async def main():
    ...     leg = Leg(*await asyncio.open_connection("127.0.0.1", 61613))
    ...     await leg.write(Chunk(b"CONNECT\\naccept-version:1.2\\nhost:localhost\\n\\n\\0"))
    ...     return await leg.read()
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.tls: TlsLayer | None = None
        self.messages: Messages | None = None
        self._early: list[bytes] = []  # read together with the handshake of TLS
        self._pending: list[Chunk] = []  # the same of WebSocket
        self._closed = False
        writer.transport.set_write_buffer_limits(HIGH)
        sock = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @property
    def ended(self) -> bool:
        """True if the peer has closed its WebSocket."""
        return self.messages is not None and self.messages.ended

    async def secure(self, layer: TlsLayer) -> None:
        """Do the handshake of TLS. Raise OSError if it fails."""
        self.tls = layer
        layer.start()
        self._flush(layer.take_output())
        while not layer.opened:
            data = await self._reader.read(READ)
            if not data:
                raise ConnectionResetError("closed during the handshake of TLS")
            self._early += layer.receive(data)
            self._flush(layer.take_output())
            if layer.error is not None:
                raise layer.error
        await self._writer.drain()

    async def open_messages(self, messages: Messages) -> None:
        """Do the handshake of WebSocket: read the client's request, or send one and read the answer.

        Raise OSError if it fails.
        """
        self.messages = messages
        self._put(messages.take_output())
        while messages.request is None and not messages.opened:
            data = await self._read_bytes()
            if not data:
                raise ConnectionResetError("closed during the handshake of WebSocket")
            self._pending += messages.receive(data)
            if messages.error is not None:
                self._put(messages.take_output())
                raise messages.error

    async def read(self) -> list[Chunk]:
        """Return the next chunks, or none at the end of the stream. Raise OSError if the connection is lost."""
        messages = self.messages
        if messages is None:
            data = await self._read_bytes()
            return [Chunk(data)] if data else []
        while not self._pending:
            if messages.ended or not (data := await self._read_bytes()):
                return []
            self._pending = messages.receive(data)
            output = messages.take_output()
            self._put(output)
            self._check_replies(output)
            if messages.error is not None:
                raise messages.error
        chunks, self._pending = self._pending, []
        return chunks

    async def _read_bytes(self) -> bytes:
        """Return the bytes above TLS."""
        layer = self.tls
        if layer is None:
            return await self._reader.read(READ)
        pieces, self._early = self._early, []
        while not pieces:
            if layer.ended:
                return b""
            if layer.error is not None:
                raise layer.error
            data = await self._reader.read(READ)
            if not data:
                return b""
            pieces = layer.receive(data)
            while layer.waiting:
                pieces += layer.receive(b"")
            output = layer.take_output()
            self._flush(output)
            self._check_replies(output)
        return b"".join(pieces)

    def _check_replies(self, output: list[bytes]) -> None:
        """Raise OSError if a peer that does not read causes more and more replies of a layer."""
        if output and self._writer.transport.get_write_buffer_size() > 2 * HIGH + MOST_REPLIES:
            raise ConnectionAbortedError("the peer asks for replies that it does not read")

    def flush_messages(self) -> None:
        """Write what the WebSocket end has to say."""
        if self.messages is not None:
            self._put(self.messages.take_output())

    def put(self, chunk: Chunk) -> None:
        """Write a chunk without waiting."""
        if self._closed:
            return
        if self.messages is None:
            self._put([chunk.data])
        else:
            self.messages.send(chunk)
            self._put(self.messages.take_output())

    async def write(self, chunk: Chunk) -> None:
        """Write a chunk, and wait until the next one may be written. Raise OSError if the connection is lost."""
        self.put(chunk)
        await self._writer.drain()

    def _put(self, output: list[bytes]) -> None:
        """Write what is above TLS."""
        if output and self.tls is not None:
            self.tls.send(output)
            output = self.tls.take_output()
        self._flush(output)

    def _flush(self, output: list[bytes]) -> None:
        if output and not self._writer.transport.is_closing():
            self._writer.writelines(output)

    def end(self, code: int | None = 1000, reason: str = "") -> None:
        """End our stream, after all that was written. What the peer sends is still read."""
        if self._closed:
            return
        self._closed = True
        if self.messages is not None:
            self.messages.close(code, reason)
            self._put(self.messages.take_output())
            if not self.messages.ended:
                return  # the peer answers, and the end of the connection follows
        if self.tls is not None:
            self.tls.close()
            self._flush(self.tls.take_output())
        with contextlib.suppress(OSError, RuntimeError):  # the connection may be lost
            self._writer.write_eof()

    def abort(self, reset: bool = True) -> None:
        """Close at once; by default by a reset."""
        sock = self._writer.get_extra_info("socket")
        if reset and sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self, seconds: float) -> None:
        """Close after all that was written, or after some seconds."""
        self.end()
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), seconds)
        except (TimeoutError, OSError):
            self._writer.transport.abort()
