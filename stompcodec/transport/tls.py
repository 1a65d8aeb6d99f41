"""TLS 1.2 and later: contexts for both sides, and the layer.

The layer works on memory buffers, not on asyncio's TLS. So both transports can use it, a connection can be half-closed,
and an idle one does not own a buffer of 256 KiB.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator

from stompcodec.arguments import checked, checks
from stompcodec.transport.owner import gather

__all__ = ["TlsLayer", "client_context", "server_context"]
_Path = str | os.PathLike[str]
#: The largest TLS record in bytes; a read returns at most that.
_RECORD = 16384
#: The most records that one call of `receive` decrypts. A read may contain 6,000 small ones.
SHARE = 512
#: The most bytes in a buffer of OpenSSL, since such a buffer never shrinks: reads of 128 KiB would leave 150 KiB with
#: each connection.
_SLICE = 16384


@checked
def client_context(
    cafile: _Path | None = None, certfile: _Path | None = None, keyfile: _Path | None = None, verify: bool = True
) -> ssl.SSLContext:
    """Return a TLS context for clients.

    Args:
        cafile: trusted certificates (PEM), instead of those of the system.
        certfile, keyfile: the client's certificate and key (PEM), if the server requires one. The key may be in the
            file of the certificate.
        verify: False accepts any server. For tests only.

    Raises:
        OSError: a file cannot be read, or is not valid PEM.

    >>> client_context().check_hostname
    True
    """
    with _told(cafile):
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cafile)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certfile is not None:
        with _told(certfile, keyfile):
            context.load_cert_chain(certfile, keyfile)
    return context


@checked
def server_context(certfile: _Path, keyfile: _Path | None = None, cafile: _Path | None = None) -> ssl.SSLContext:
    """Return a TLS context for servers.

    Args:
        certfile, keyfile: the server's certificate, with intermediate ones, and its key (PEM). The key may be in the
            file of the certificate.
        cafile: certificates (PEM) that must have signed those of clients; None if clients need no certificate.

    Raises:
        OSError: a file cannot be read, or is not valid PEM.

    >>> server_context("no-such-file.pem")
    Traceback (most recent call last):
        ...
    FileNotFoundError: [Errno 2] cannot be used for TLS (No such file or directory); a certificate and its private \
key, PEM, are expected: 'no-such-file.pem'
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | getattr(ssl, "OP_NO_RENEGOTIATION", 0)
    with _told(certfile, keyfile):
        context.load_cert_chain(certfile, keyfile)
    if cafile is not None:
        with _told(cafile):
            context.load_verify_locations(cafile)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def _told(*files: _Path | None) -> Iterator[None]:
    """Add the names of files to errors of the ssl module, which does not name them."""
    try:
        yield
    except OSError as error:
        names = " and ".join(dict.fromkeys(os.fspath(file) for file in files if file is not None))
        what = "a certificate and its private key" if len(files) > 1 else "certificates"
        raise OSError(
            error.errno, f"cannot be used for TLS ({error.strerror or error}); {what}, PEM, are expected", names
        ) from error


@checks("receive", "send")
class TlsLayer:
    """The TLS layer of one connection. Its methods are those of `stompcodec.transport.Layer`, which has an example.

    Args:
        context: from `client_context` or `server_context`.
        server_hostname: the name that the server's certificate must have; None on the server's side.
    """

    def __init__(self, context: ssl.SSLContext, *, server_hostname: str | None = None) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._in, self._out, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self.opened = self.ended = self.waiting = False
        self._rest = b""  # bytes for the next share
        self._ready: list[bytes] = []  # output taken from its buffer
        self.error: BaseException | None = None

    @property
    def buffered(self) -> int:
        # Without the beginning of one record, which OpenSSL keeps inside.
        return len(self._rest) + self._in.pending

    def start(self) -> None:
        try:
            self._tls.do_handshake()
            self.opened = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, ValueError) as error:
            self.error = error

    def receive(self, data: bytes | memoryview) -> list[bytes]:
        if self.ended or self.error is not None:
            return []
        pieces: list[bytes] = []
        view = memoryview(self._rest + bytes(data) if self._rest else data)
        self._rest, self.waiting = b"", False
        at = 0
        while True:
            self._in.write(view[at : at + _SLICE])
            at += _SLICE
            if not self.opened:
                self.start()
            if self.opened:
                self._read(pieces)
            if self.waiting or self.ended or self.error is not None or at >= len(view):
                break
        if self.waiting:
            self._rest = bytes(view[at:])
        return pieces

    def _read(self, pieces: list[bytes]) -> None:
        """Decrypt complete records into `pieces`; set `waiting` if there may be more."""
        try:
            while piece := self._tls.read(_RECORD):
                pieces.append(piece)
                if len(pieces) >= SHARE:
                    self.waiting = True
                    return
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            self.error = error

    def send(self, chunks: list[bytes]) -> None:
        if self.error is not None or not self.opened:
            return
        try:
            for chunk in gather(chunks):
                view = memoryview(chunk)
                while view:  # one record at a time
                    view = view[self._tls.write(view) :]
                    if self._out.pending > _SLICE:
                        self._ready.append(self._out.read())
        except ssl.SSLError as error:
            self.error = error

    def take_output(self) -> list[bytes]:
        ready, self._ready = self._ready, []
        if self._out.pending:
            ready.append(self._out.read())
        return ready

    def close(self) -> None:
        if self.opened and self.error is None:
            with contextlib.suppress(ssl.SSLError):  # unwrap would wait for the peer's answer
                self._tls.unwrap()

    def discard(self) -> None:
        self._rest, self.waiting = b"", False
        self._in.read()

    def bound(self, octets: int) -> None:
        """Do nothing: TLS keeps at most one record."""

    def split(self, pieces: str) -> None:
        """Do nothing: TLS cuts records by itself."""
