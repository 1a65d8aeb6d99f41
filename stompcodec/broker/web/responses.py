"""Responses to plain HTTP requests."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

#: Headers of all responses: nothing is kept, guessed, or shown in a frame.
_ALWAYS = (
    ("Connection", "close"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
)


def response(
    status: int,
    body: bytes | str = b"",
    kind: str = "text/plain; charset=utf-8",
    headers: Sequence[tuple[str, str]] = (),
) -> bytes:
    r"""Return an HTTP response.

    >>> response(200, "ok\n").splitlines()[0], response(200, "ok\n")[-7:]
    (b'HTTP/1.1 200 OK', b'\r\n\r\nok\n')
    """
    octets = body.encode() if isinstance(body, str) else body
    pairs = [("Content-Type", kind), ("Content-Length", str(len(octets))), *_ALWAYS, *headers]
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + octets
