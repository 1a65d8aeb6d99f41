"""Parsing of bodies in Spark's Python workers, between Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from stompcodec.spark.jobs.bodies import BodyError, Record, inflated, records

#: Columns of frames that every row keeps.
KEPT = ("destination", "message_id", "received_at", "spool", "pos")
MOST_RECORDS = 100_000
#: Most rows and bytes of a batch.
_ROWS, _OCTETS = 4096, 4 * 2**20
#: Bytes of a row besides its texts.
_ROW = 100


class Item(NamedTuple):
    """A record of a frame, or a frame without records."""

    item: int | None
    rec: list[tuple[str, str]] | None
    raw: bytes | None
    reason: str | None

    @property
    def size(self) -> int:
        return _ROW + len(self.raw or b"") + sum(len(name) + len(text) for name, text in self.rec or ())


class Frame(NamedTuple):
    """The fields of a frame that are needed here."""

    body: bytes | None
    error: str | None


def items_of(frame: Frame, reader: str, most: int) -> Iterator[Item]:
    """Yield the records of a frame, or a single item with the reason why it has none."""
    try:
        if frame.error is not None:
            raise BodyError(frame.error)
        found: list[Record] = []
        for record in records(frame.body or b"", reader, most):
            if len(found) == MOST_RECORDS:
                raise BodyError(f"more than {MOST_RECORDS} records")
            found.append(record)
        if not found:
            raise BodyError("no records")
    except BodyError as error:
        yield Item(None, None, frame.body, str(error))
        return
    for number, record in enumerate(found):
        # An invalid record that is alone in its frame is kept as the whole body.
        text = record.raw if record.fields is None else json.dumps(record.fields, ensure_ascii=False)
        raw = frame.body if len(found) == 1 else (text or "").encode()
        yield Item(number, list(record.fields.items()) if record.fields is not None else None, raw, record.reason)


class _Output:
    """Arrow batches of bounded size; columns of `KEPT` are copied from the source rows."""

    def __init__(self, kinds: list[tuple[str, Any]]) -> None:
        import pyarrow as pa

        self._pa, self._kinds = pa, kinds
        self._columns: list[list[Any]] = [[] for _ in kinds]
        self._from: list[int] = []
        self._size = 0

    def add(self, row: int, values: tuple[Any, ...], size: int) -> bool:
        """Add a row; return True if it is time to flush."""
        self._from.append(row)
        for column, value in zip(self._columns, values):
            column.append(value)
        self._size += size
        return len(self._from) >= _ROWS or self._size >= _OCTETS

    def flush(self, batch: Any) -> Iterator[Any]:
        if self._from:
            kept = [batch.column(name).take(self._pa.array(self._from)) for name in KEPT]
            made = [self._pa.array(column, kind) for column, (_, kind) in zip(self._columns, self._kinds)]
            yield self._pa.RecordBatch.from_arrays([*kept, *made], names=[*KEPT, *(name for name, _ in self._kinds)])
        self._columns, self._from, self._size = [[] for _ in self._kinds], [], 0


def _frames(batch: Any) -> Iterator[Frame]:
    for body, error in zip(batch.column("body"), batch.column("error")):
        yield Frame(body.as_py(), error.as_py())


def reading(reader: str, most: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that makes items of frames with `body` and `error`, as `records`."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        text = pa.string()
        output = _Output([("item", pa.int32()), ("rec", pa.map_(text, text)), ("raw", pa.binary()), ("reason", text)])
        for batch in batches:
            for row, frame in enumerate(_frames(batch)):
                for item in items_of(frame, reader, most):
                    if output.add(row, item, item.size):
                        yield from output.flush(batch)
            yield from output.flush(batch)

    return run


def inflating(most: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for mapInArrow that inflates gzip in `body`; `raw` keeps the original, `error` failures."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        output = _Output([("body", pa.binary()), ("error", pa.string()), ("raw", pa.binary())])
        for batch in batches:
            for row, frame in enumerate(_frames(batch)):
                body, error = frame
                try:
                    body = inflated(body or b"", most) if error is None else body
                except BodyError as problem:
                    error = str(problem)
                if output.add(row, (body, error, frame.body), _ROW + len(body or b"") + len(frame.body or b"")):
                    yield from output.flush(batch)
            yield from output.flush(batch)

    return run
