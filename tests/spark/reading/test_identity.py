"""Executors that see another folder than the driver at the same path: no query ends well with wrong or missing rows.

The tests do as Spark does: they plan, pickle reader and partitions, and read where the path leads elsewhere.
"""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark import cloudpickle
from spark.making import START, make_capture, make_stream, message, octets
from spark.read_back import schema_of

from stompcodec.capture import CaptureWriter
from stompcodec.errors import StoreError
from stompcodec.spark.live import LiveReader, LiveStreamReader
from stompcodec.spark.options import parse_file
from stompcodec.spark.reading import FileReader, FileStreamReader
from stompcodec.spark.reading.splits import Split
from stompcodec.spark.receiver import identify, identity_of

IDS = schema_of(message_id="frame", error="frame")
SHORT, LONG = range(6), range(10)
Maker = Callable[[Path, range, int], Path]


def segments(path: Path, numbers: range, start: int) -> Path:
    return make_capture(path, map(message, numbers), segment_octets=400, start=start)


def growing(path: Path, numbers: range, start: int) -> Path:
    return make_capture(path, map(message, numbers), seal=False, start=start)


def sealed(path: Path, numbers: range, start: int) -> Path:
    return make_capture(path, map(message, numbers), single=True, start=start)


def unsealed(path: Path, numbers: range, start: int) -> Path:
    return make_capture(path, map(message, numbers), single=True, seal=False, start=start)


def spool(path: Path, numbers: range, start: int) -> Path:
    growing(path, numbers, start)
    identify(str(path))
    return path


def bare(path: Path, numbers: range, start: int) -> Path:
    return make_stream(path, [message(number, origin=str(start)) for number in numbers])


def packed(path: Path, numbers: range, start: int) -> Path:
    path.write_bytes(gzip.compress(octets([message(n, origin=str(start)) for n in numbers]), mtime=start % 2**31))
    return path


def without_index(path: Path, numbers: range, start: int) -> Path:
    make_capture(path, [message(number, origin=str(start)) for number in numbers])
    for index in path.glob("*.idx"):
        index.unlink()
    return path


MAKERS: dict[str, tuple[str, Maker]] = {
    "segments": ("a.stompcap", segments),
    "growing": ("a.stompcap", growing),
    "spool": ("a.stompcap", spool),
    "sealed file": ("a.stompcap", sealed),
    "unsealed file": ("a.stompcap", unsealed),
    "bare stream": ("a.stomp", bare),
    "compressed": ("a.stomp.gz", packed),
    "without index": ("a.stompcap", without_index),
}
#: Where a shorter copy lacks a whole file, or differs in what it has.
ONLY_WHOLE = ("segments", "sealed file", "compressed")
#: What the executor sees, in the words of the table: how many frames, and of which recording.
SEEN = {
    "the same": (LONG, START),
    "nothing": None,
    "a shorter copy": (SHORT, START),
    "another one": (LONG, START + 7),
    "a shorter one": (SHORT, START + 7),
    "a longer one": (range(12), START + 7),
}


def swap(path: Path, make: Maker, seen: str) -> None:
    """Put there what the executor sees."""
    for each in (path, path.with_name(path.name + ".idx")):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
    found = SEEN[seen]
    if found is not None:
        make(path, *found)


def batch_of(path: Path, **options: str) -> tuple[Any, Any]:
    reader = FileReader([str(path)], IDS, parse_file(options))
    return reader, reader.partitions()


def stream_of(path: Path, **options: str) -> tuple[Any, Any]:
    reader = FileStreamReader([str(path)], IDS, parse_file(options))
    return reader, reader.partitions(reader.initialOffset(), reader.latestOffset())


def read(reader: Any, partitions: Any) -> list[tuple[str | None, str | None]]:
    """The rows of message-id and error, read from a pickle as in an executor."""
    reader, partitions = pickle.loads(cloudpickle.dumps((reader, partitions)))
    return [
        (row["message_id"], row["error"])
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def ids(numbers: range) -> list[tuple[str, None]]:
    return [(f"id-{number}", None) for number in numbers]


@pytest.mark.parametrize("split", ["300", "1m"])
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("plan", [batch_of, stream_of], ids=["batch", "stream"])
def test_no_read_ends_well_with_wrong_rows(
    tmp_path: Path, plan: Callable[..., tuple[Any, Any]], kind: str, seen: str, split: str
) -> None:
    name, make = MAKERS[kind]
    path = make(tmp_path / name, LONG, START)
    lenient = {"failOnDataLoss": "false"} if (plan, kind) == (stream_of, "without index") else {}
    planned = plan(path, splitBytes=split, **lenient)
    swap(path, make, seen)
    if seen == "the same":
        assert [row for row in read(*planned) if row[0]] == ids(LONG)
        return
    if seen == "a shorter copy" and (plan is batch_of or lenient) and kind not in ONLY_WHOLE:
        found = read(*planned)  # the mode decides: a row tells
        assert any("truncated: " in (error or "") for _, error in found)
        assert [row for row in found if row[0]] == ids(SHORT)
        return
    with pytest.raises(StoreError) as caught:
        read(*planned)
    text = str(caught.value)
    assert "does not see the driver's file" in text
    assert str(path) in text
    assert "driver and all executors share" in text


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_a_shorter_copy_fails_unless_rows_may_tell(tmp_path: Path, mode: str) -> None:
    """A batch in the lenient mode tells it by a row; a stream and a live batch fail: the broker has given it away."""
    path = growing(tmp_path / "a.stompcap", LONG, START)
    zipped = packed(tmp_path / "a.stomp.gz", range(1000), START)
    planned = [stream_of(path, mode=mode), stream_of(zipped, mode=mode)]
    planned += [] if mode == "PERMISSIVE" else [batch_of(path, mode=mode)]
    options = {"url": "stomp://127.0.0.1:1", "destination": "/queue/a", "spoolDir": str(path)}
    planned.append((LiveReader(options, IDS), batch_of(path)[1]))
    swap(path, growing, "a shorter copy")
    os.truncate(zipped, zipped.stat().st_size // 2)
    for each in planned:
        with pytest.raises(StoreError, match="bytes shorter than it was"):
            read(*each)


def test_without_fail_on_data_loss_a_stream_has_a_row_for_what_is_gone(tmp_path: Path) -> None:
    path = growing(tmp_path / "a.stompcap", LONG, START)
    planned = stream_of(path, failOnDataLoss="false")
    swap(path, growing, "a shorter copy")
    *found, (_, error) = read(*planned)
    assert found == ids(SHORT)
    assert (error or "").startswith("truncated: ")
    swap(path, growing, "another one")
    with pytest.raises(StoreError, match="there is another one"):  # wrong rows are no loss
        read(*planned)


def test_an_index_that_only_the_driver_sees(tmp_path: Path) -> None:
    path = growing(tmp_path / "a.stompcap", LONG, START)
    strict, lenient, batch = stream_of(path), stream_of(path, failOnDataLoss="false"), batch_of(path)
    failfast = batch_of(path, mode="FAILFAST")
    next(path.glob("*.idx")).unlink()
    for planned in (strict, failfast):
        with pytest.raises(StoreError, match="its index is missing"):
            read(*planned)
    for planned in (lenient, batch):
        (_, error), *found = read(*planned)
        assert (error or "").startswith("damaged-index: it is missing")
        assert found == ids(LONG)


def test_an_index_that_is_missing_ends_a_stream(tmp_path: Path) -> None:
    path = without_index(tmp_path / "a.stompcap", LONG, START)
    with pytest.raises(StoreError, match=r"its index is missing \(set failOnDataLoss=false to read its frames"):
        stream_of(path)
    assert [row for row in read(*stream_of(path, failOnDataLoss="false")) if row[0]] == ids(LONG)


def test_a_file_that_gets_shorter_while_it_is_read(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [message(n, body=b"x" * 1000) for n in range(2000)])
    reader, (partition,) = stream_of(path, batchRows="10")
    rows = reader.read(partition)
    next(rows)
    os.truncate(path, 300_000)
    with pytest.raises(StoreError, match="shorter than it was"):
        list(rows)


@pytest.mark.parametrize("kind", ["growing", "unsealed file", "bare stream", "compressed"])
def test_what_grows_meanwhile_is_still_the_same(tmp_path: Path, kind: str) -> None:
    """New frames, new segments, a seal that moves the index into the file, and an index that was built anew."""
    name, make = MAKERS[kind]
    path = make(tmp_path / name, LONG, START)
    planned = [plan(path, splitBytes=size) for plan in (batch_of, stream_of) for size in ("300", "1m")]

    def look() -> None:
        for each in planned:
            assert [row for row in read(*each) if row[0]][: len(LONG)] == ids(LONG)

    if kind in ("bare stream", "compressed"):
        data = octets([message(10)])
        with path.open("ab") as stream:
            stream.write(data if kind == "bare stream" else gzip.compress(data))
        look()
        return
    with CaptureWriter(path, single=None if kind == "growing" else True, segment_octets=1000) as writer:
        look()
        for number in range(10, 20):
            writer.append(octets([message(number)]), START)
        writer.sync()
        look()
    look()  # sealed
    if kind == "growing":
        first = min(path.glob("*.idx"))
        first.write_bytes(first.read_bytes()[:-1])  # torn: it is built anew
        last = sorted(path.glob("*.stomp"))
        for segment in last[1:]:
            segment.unlink()
            segment.with_suffix(".idx").unlink()
        CaptureWriter(path).close()
        look()


def test_a_spool_is_told_from_one_of_an_earlier_run(tmp_path: Path) -> None:
    """Also if both have the same spool-id, as after a copy that went its own way; the id alone says nothing."""
    path, old = tmp_path / "spool", tmp_path / "old"
    spool(path, LONG, START)
    options = {"url": "stomp://127.0.0.1:1", "destination": "/queue/a", "spoolDir": str(path)}
    planned = LiveStreamReader(options, IDS)
    end = {"#spool": identity_of(str(path)), "frames": CaptureWriter(path).end()}
    partitions = planned.partitions({}, end)
    before = planned.partitions({}, {"frames": end["frames"]})  # the offset of an earlier version has no identity
    assert read(planned, partitions) == read(planned, before) == ids(LONG)
    growing(old, range(4), START)
    with CaptureWriter(old) as writer:
        for number in range(4, 12):
            writer.append(octets([message(number)]), START + 99_000_000 + number)
    shutil.copy(path / "spool-id", old / "spool-id")
    shutil.rmtree(path)
    old.rename(path)
    for reader in (planned, LiveReader(options, IDS)):
        with pytest.raises(StoreError, match="there is another one"):
            read(reader, partitions)


def test_a_split_without_a_mark_is_read(tmp_path: Path) -> None:
    path = bare(tmp_path / "a.stomp", LONG, START)
    reader, _ = batch_of(path)
    assert read(reader, [Split(str(path), 0, path.stat().st_size)]) == ids(LONG)
