"""Invariant: the columns of both backends hold the same rows, Arrow finds nothing wrong with them, and the rows are the
frames that a parser hands out; where it raises, the last row says so, and `consumed` is where to go on. Whatever is
wanted of them, the backends agree, and the rows are those of all columns, cut down. `frame_ends` finds the same ends in
both backends, in STOMP 1.0 to 1.2 those of the rows."""

from __future__ import annotations

from typing import Any

import pyarrow
from case import Case, case_of, rolls
from engine import drive

from stompcodec import FrameError, _codec_c, _codec_py

NAMES = ("a", "content-length", "caf\xe9")
COLUMNS = ("command", "headers", "body", "offset", "length", "error")
VALUES = ("", "1", "2", "a", "a:b", "caf\xe9", "\ufffd", "SEND", "MES", "A")
BACKENDS = (_codec_c, _codec_py)


def check(data: bytes) -> None:
    case = case_of(data)
    options = {name: case.options[name] for name in ("version", "limits", "lenient", "commands")}
    names = NAMES[: case.plan % 4]
    columns = [codec.parse_columns(case.wire, names=names, **options) for codec in BACKENDS]
    told = [(each.rows, each.consumed, each.error) for each in columns]
    assert told[0] == told[1], f"the backends differ on {case}: {told}"
    batches = [pyarrow.record_batch(each) for each in columns]
    for batch in batches:
        batch.validate(full=True)
    rows, others = (batch.to_pylist() for batch in batches)
    assert batches[0].schema == batches[1].schema
    assert rows == others, f"the backends differ on {case}:\n     C: {rows}\nPython: {others}"
    check_ends(rows, case.wire, options, case.plan)
    check_wishes(rows, case, names, options)
    check_rows(rows, columns[0], case.wire, options, names)


def check_wishes(rows: list[Any], case: Case, names: tuple[str, ...], options: dict[str, Any]) -> None:
    roll = rolls(case.plan)
    columns = [name for name in COLUMNS if next(roll) % 2]
    values = [VALUES[next(roll) % len(VALUES)] for _ in range(next(roll) % 4)]
    about, kind = ("command", *NAMES)[next(roll) % 4], ("in", "prefix")[next(roll) % 2]
    where = [(about, kind, values)] * (next(roll) % 3)
    repeats = next(roll) % 2 == 0
    wishes = {"columns": columns, "where": where, "repeats": repeats, "names": names}
    wanted = []
    for row in rows:
        first = dict(reversed(row["headers"]))
        text = row["command"] if about == "command" else first.get(about)
        holds = text is not None and any(text.startswith(v) if kind == "prefix" else text == v for v in values)
        if row["error"] or holds or not where:
            pairs = row["headers"] if repeats else [(name, first[name]) for name in dict(row["headers"])]
            wanted.append({name: pairs if name == "headers" else row[name] for name in (*columns, *names)})
    for codec in BACKENDS:
        batch = pyarrow.record_batch(codec.parse_columns(case.wire, **wishes, **options))
        batch.validate(full=True)
        got = batch.to_pylist()
        assert got == wanted, f"{codec.__name__} with {wishes} on {case}:\n   got: {got}\nwanted: {wanted}"


def check_ends(rows: list[Any], wire: bytes, options: dict[str, Any], plan: int) -> None:
    limits = options["limits"]
    ends, others = (list(codec.frame_ends(wire, limits=limits)) for codec in BACKENDS)
    assert ends == others, f"the backends differ on {wire!r}:\n     C: {ends}\nPython: {others}"
    assert ends == sorted(set(ends))
    assert all(wire[end - 1] == 0 for end in ends)
    if options["version"] not in ("legacy", None) and not options["lenient"]:
        known = [row["offset"] + row["length"] for row in rows if not row["error"]]
        assert ends[: len(known)] == known, f"ends of {wire!r}: {ends}, frames: {known}"
    every, most = plan % 50 + 1, plan % 7
    some = [list(codec.frame_ends(wire, every, most, limits=limits)) for codec in BACKENDS]
    assert some[0] == some[1]
    assert set(some[0]) <= set(ends)
    assert len(some[0]) <= most


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
