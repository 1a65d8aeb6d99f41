"""Invariant: the columns of both backends hold the same rows, Arrow finds nothing wrong with them, and the rows are the
frames that a parser hands out; where it raises, the last row says so, and `consumed` is where to go on."""

from __future__ import annotations

from typing import Any

import pyarrow
from case import case_of
from engine import drive

from stompcodec import FrameError, _codec_c, _codec_py

NAMES = ("a", "content-length", "caf\xe9")


def check(data: bytes) -> None:
    case = case_of(data)
    options = {name: case.options[name] for name in ("version", "limits", "lenient", "commands")}
    names = NAMES[: case.plan % 4]
    columns = [codec.parse_columns(case.wire, names=names, **options) for codec in (_codec_c, _codec_py)]
    told = [(each.rows, each.consumed, each.error) for each in columns]
    assert told[0] == told[1], f"the backends differ on {case}: {told}"
    batches = [pyarrow.record_batch(each) for each in columns]
    for batch in batches:
        batch.validate(full=True)
    rows, others = (batch.to_pylist() for batch in batches)
    assert batches[0].schema == batches[1].schema
    assert rows == others, f"the backends differ on {case}:\n     C: {rows}\nPython: {others}"
    check_rows(rows, columns[0], case.wire, options, names)


def check_rows(rows: list[Any], columns: Any, wire: bytes, options: dict[str, Any], names: tuple[str, ...]) -> None:
    frames: list[Any] = []
    error = None
    try:
        frames.extend(_codec_c.Parser(**options).feed(wire))
    except FrameError as reason:
        error = reason
    assert columns.rows == len(rows)
    assert columns.error == (error.kind if error else None)
    if error:
        bad = rows.pop()
        assert (bad["command"], bad["headers"], bad["body"], bad["error"]) == ("", [], b"", error.kind)
        assert bad["offset"] + bad["length"] == error.offset
        assert columns.consumed == bad["offset"]
    behind = 0
    assert len(rows) == len(frames)
    for row, frame in zip(rows, frames):
        pairs = [(shown(name), shown(value)) for name, value in frame.headers.pairs()]
        assert (row["command"], row["headers"], row["body"]) == (shown(frame.command), pairs, frame.body)
        assert row["error"] is None
        assert [row[name] for name in names] == [dict(reversed(pairs)).get(name) for name in names]
        assert behind <= row["offset"]
        behind = row["offset"] + row["length"]
        assert wire[behind - 1 : behind] == b"\0"
    assert behind <= columns.consumed <= len(wire)


def shown(text: str) -> str:
    """Text as Arrow can hold it: what is no UTF-8 becomes U+FFFD, an octet at a time."""
    return "".join("\ufffd" if "\udc80" <= letter <= "\udcff" else letter for letter in text)


if __name__ == "__main__":
    drive(check)
