"""Frames in Parquet, by pyarrow from the extra `spark`. The columns have the names that Spark's `stompfile` uses."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from stompcodec import Frame
from stompcodec.cli.files.recorded import Recorded
from stompcodec.errors import MissingExtraError, StompError

_ROWS = 8192
_OCTETS = 8 * 2**20


def pyarrow_modules() -> tuple[Any, Any]:
    """Return pyarrow and pyarrow.parquet; raise MissingExtraError if they are not installed."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("spark", "pyarrow") from None


def _schema(arrow: Any) -> Any:
    text = arrow.string()
    types = (
        arrow.field("command", text, nullable=False),
        arrow.field("destination", text),
        arrow.field("message_id", text),
        arrow.field("received_at", arrow.timestamp("us", tz="UTC")),
        arrow.field("headers", arrow.map_(text, text), nullable=False),
        arrow.field("body", arrow.binary(), nullable=False),
        arrow.field("pos", arrow.int64(), nullable=False),
    )
    return arrow.schema(types)


def _plain(text: str | None) -> str | None:
    """Return text as UTF-8 for Parquet, with invalid bytes replaced by U+FFFD."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class ParquetSink:
    """A writer of frames as rows, in batches."""

    def __init__(self, stream: BinaryIO) -> None:
        self._arrow, parquet = pyarrow_modules()
        self._stream = stream
        self._schema = _schema(self._arrow)
        self._writer = parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []
        self._octets = 0

    def write(self, each: Recorded) -> None:
        frame = each.frame
        pairs = [(_plain(name), _plain(value)) for name, value in frame.headers.pairs()]
        named = _plain(frame.get("destination")), _plain(frame.get("message-id"))
        self._rows.append((_plain(frame.command), *named, each.time or None, pairs, frame.body, each.offset))
        self._octets += len(frame.body)
        if len(self._rows) >= _ROWS or self._octets >= _OCTETS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            columns = [self._arrow.array(column, field.type) for column, field in zip(zip(*self._rows), self._schema)]
            self._writer.write_batch(self._arrow.record_batch(columns, schema=self._schema))
        self._rows.clear()
        self._octets = 0

    def close(self) -> None:
        self._flush()
        self._writer.close()
        self._stream.close()


def read_parquet(path: Path) -> Iterator[tuple[int, Frame]]:
    """Yield time in µs (0 if unknown) and frame of each row; raise StompError unless it is Parquet with the columns."""
    arrow, parquet = pyarrow_modules()
    try:
        with parquet.ParquetFile(path) as file:
            wanted = [name for name in ("command", "headers", "body", "received_at") if name in file.schema_arrow.names]
            if wanted[:3] != ["command", "headers", "body"]:
                raise StompError(f"{path}: it lacks the columns command, headers and body")
            for batch in file.iter_batches(batch_size=1000, columns=wanted):
                for row in batch.to_pylist():
                    yield _micros(row.get("received_at")), _frame(row, path)
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise StompError(f"{path}: cannot be read: {error}") from error


def _frame(row: dict[str, Any], path: Path) -> Frame:
    try:
        return Frame(row["command"], row["headers"] or (), row["body"] or b"")
    except (TypeError, ValueError) as error:
        raise StompError(f"{path}: a row is not a frame: {error}") from None


def _micros(time: Any) -> int:
    return round(time.timestamp() * 1e6) if hasattr(time, "timestamp") else 0
