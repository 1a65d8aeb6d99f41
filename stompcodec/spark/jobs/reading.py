"""Bodies that Spark's own functions cannot inflate, in its Python workers, within bounds. The rest is `items`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: Columns of frames that every row keeps.
KEPT = ("destination", "message_id", "received_at", "spool", "pos")
MOST_RECORDS = 100_000
#: Most rows and bytes of a batch.
_ROWS, _OCTETS = 4096, 4 * 2**20
_GZIP = b"\x1f\x8b"


class BodyError(ValueError):
    """Error for an invalid body. Its text is the reason."""


def inflated(body: bytes, most: int) -> bytes:
    """Return the body, inflated to at most `most` bytes if it is gzip; raise BodyError if that fails.

    >>> import gzip
    >>> inflated(gzip.compress(b"abc"), 3), inflated(b"abc", 3)
    (b'abc', b'abc')
    """
    if not body.startswith(_GZIP):
        if len(body) > most:
            raise BodyError(f"the body is larger than {most} bytes")
        return bytes(body)
    parts, size, rest = [], 0, bytes(body)
    while rest:  # gzip allows several consecutive members
        member = zlib.decompressobj(31)
        try:
            part = member.decompress(rest, most - size + 1)
        except zlib.error as error:
            raise BodyError(f"gzip: {str(error).partition(': ')[2] or error}") from None
        size += len(part)
        if size > most:
            raise BodyError(f"gzip: the inflated body is larger than {most} bytes")
        if not member.eof:
            raise BodyError("gzip: truncated")
        parts.append(part)
        rest = member.unused_data.lstrip(b"\0")
        if rest and not rest.startswith(_GZIP):
            raise BodyError("gzip: data after the end")
    return b"".join(parts)


def inflating(most: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that inflates gzip in `body`; `raw` keeps the original, `error` failures."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            made: list[tuple[bytes | None, str | None]] = []
            start = size = 0
            for row, (body, error) in enumerate(zip(batch.column("body"), batch.column("error")), 1):
                made.append(_inflated(body.as_py(), error.as_py(), most))
                size += len(made[-1][0] or b"")
                if len(made) == _ROWS or size >= _OCTETS or row == batch.num_rows:
                    yield _batch(batch.slice(start, len(made)), made)
                    made, start, size = [], row, 0

    return run


def _inflated(body: bytes | None, error: str | None, most: int) -> tuple[bytes | None, str | None]:
    if error is not None:
        return body, error
    try:
        return inflated(body or b"", most), None
    except BodyError as problem:
        return body, str(problem)


def _batch(frames: Any, made: list[tuple[bytes | None, str | None]]) -> Any:
    import pyarrow as pa

    bodies, errors = (list(column) for column in zip(*made))
    columns = [*map(frames.column, KEPT), pa.array(bodies, pa.binary()), pa.array(errors, pa.string())]
    return pa.RecordBatch.from_arrays([*columns, frames.column("body")], names=[*KEPT, "body", "error", "raw"])
