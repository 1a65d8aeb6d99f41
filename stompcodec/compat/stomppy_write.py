"""Writing for stomp.py: the same bytes as its own, and without quirks only frames that can be read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stompcodec.codec import Frame, serialize
from stompcodec.compat.nacks import warn_of_nack
from stompcodec.compat.stomppy_read import log, stomp

_encode: Any = stomp.utils.encode
_clean_lines: Any = stomp.utils.clean_lines
#: Their original function, which returns the pieces that they log.
_pieces: Callable[[Any], list[bytes]] = stomp.utils.convert_frame
_PASSCODE = b"passcode:"


def _pairs(frame: Any) -> list[tuple[str, Any]]:
    """Return headers as they are written: sorted, a tuple is a repeated header, None is left out."""
    pairs: list[tuple[str, Any]] = []
    for name, value in sorted(frame.headers.items()):
        if type(value) is tuple:
            pairs += [(name, one) for one in value]
        elif value is not None:
            pairs.append((name, value))
    return pairs


def _body(frame: Any) -> bytes:
    if not frame.body:
        return b""
    body: bytes = _encode(frame.body)
    if "content-length" in frame.headers:
        frame.headers["content-length"] = len(body)
    return body


def convert_frame(frame: Any) -> list[bytes]:
    """Replace `stomp.utils.convert_frame`: return the same bytes in one piece.

    >>> convert_frame(stomp.utils.Frame("SEND", {"destination": "/queue/a", "b": None, "a": ("1", 2)}, "hi"))
    [b'SEND\\na:1\\na:2\\ndestination:/queue/a\\n\\nhi\\x00']
    >>> convert_frame(stomp.utils.Frame(None, {}, None))
    [b'\\n']
    """
    body = _body(frame)
    head = "".join([f"{name!s}:{value!s}\n" for name, value in _pairs(frame)])
    if not frame.cmd:
        return [_encode(head + "\n") + body]
    return [b"%b\n%b\n%b\0" % (_encode(frame.cmd), _encode(head), body)]


def strict_convert_frame(frame: Any) -> list[bytes]:
    """Replace `stomp.utils.convert_frame` for frames that can be read back.

    Raises:
        FrameError: a header would not be read back as the same one; text is not UTF-8; a body with NULs has no
            content-length, or content-length without a body is not 0.

    >>> strict_convert_frame(stomp.utils.Frame("SEND", {"destination": "/queue/a\\nadmin:yes"}, b""))
    Traceback (most recent call last):
    ...
    stompcodec.errors.FrameError: unencodable: the frame cannot be written in this STOMP version; header 'destination' \
contains a line feed (use a newer version, or leave the header or body out)
    """
    if not frame.cmd:
        return convert_frame(frame)
    body = frame.body.encode() if isinstance(frame.body, str) else frame.body or b""
    given = "content-length" in frame.headers
    if given and body:
        frame.headers["content-length"] = len(body)
    pairs = [(name, str(value)) for name, value in _pairs(frame)]
    # Values are already escaped: the rules of 1.0 add no escapes, and refuse what cannot be written.
    written = Frame(frame.cmd, pairs, body)
    return [serialize(written, "1.0", content_length="auto" if given else "never", commands=(frame.cmd,))]


def _shown(frame: Any) -> list[bytes]:
    """Return the pieces of a frame as stomp.py logs them, since programs search its log; without the passcode."""
    pieces = _pieces(frame)
    if frame.cmd in ("CONNECT", "STOMP"):
        return [_PASSCODE + b"********\n" if piece.startswith(_PASSCODE) else piece for piece in pieces]
    return pieces


def transmitting(
    convert: Callable[[Any], list[bytes]], connecting: Callable[[Any, Any], None] | None = None
) -> Callable[[Any, Any], None]:
    """Return a replacement for `BaseTransport.transmit`; `connecting` is called with CONNECT, before listeners."""

    def transmit(self: Any, frame: Any) -> None:
        if connecting is not None and frame.cmd in ("CONNECT", "STOMP"):
            connecting(self, frame)
        with self._BaseTransport__listeners_change_condition:
            listeners = sorted(self.listeners.items())
        for _, listener in listeners:
            try:
                listener.on_send(frame)
            except AttributeError:  # like theirs, even if it is raised inside of on_send
                continue
        if frame.cmd == "DISCONNECT" and "receipt" in frame.headers:
            self._BaseTransport__disconnect_receipt = frame.headers["receipt"]
        if frame.cmd == "NACK":
            warn_of_nack(getattr(self, "_stompcodec_server", None), log.warning)
        data = b"".join(convert(frame))
        if log.isEnabledFor(log.DEBUG):
            log.debug("sending frame: %s", _clean_lines(_shown(frame)))
        # Since 9.0 the I/O thread writes to TLS sockets.
        if getattr(self, "send_queue", None) is not None and not self.blocking:
            self.send_queue.put(data)
        else:
            self.send(data)

    return transmit
