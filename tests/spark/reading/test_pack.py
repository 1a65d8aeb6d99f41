"""Small files and segments share a task: in their order, none twice, and no more than the option splitBytes."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from spark.making import make_capture, make_stream, message, octets
from spark.read_back import rows, schema_of

from stompcodec.spark.options import FileOptions
from stompcodec.spark.reading import FileReader, FileStreamReader
from stompcodec.spark.reading.plan import batch_splits
from stompcodec.spark.reading.splits import Pack, Split, octets_of, pack, parts_of

SCHEMA = schema_of(message_id="frame", pos="frame", spool="frame", received_at="frame", body="frame", error="frame")


def read(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    """The rows of partitions, each sent to a task as Spark does."""
    return [
        row
        for each in partitions
        for batch in reader.read(pickle.loads(pickle.dumps(each)))
        for row in batch.to_pylist()
    ]


def segments(path: Path, count: int, **more: Any) -> Path:
    """A capture with a segment for every five frames or so."""
    return make_capture(path, [message(n, nth=str(n)) for n in range(5 * count)], segment_octets=600, **more)


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 40))
def test_neighbours_share_a_task_as_long_as_they_fit(sizes: list[int], most: int) -> None:
    splits = [Split(str(number), 0, size) for number, size in enumerate(sizes)]
    packs = [parts_of(each) for each in pack(splits, most)]
    assert [split for each in packs for split in each] == splits
    totals = [sum(octets_of(split) for split in each) for each in packs]
    assert all(total <= most or len(each) == 1 for total, each in zip(totals, packs))
    for total, following in zip(totals, packs[1:]):
        assert total + octets_of(following[0]) > most


def test_a_task_has_an_end_in_parts_too() -> None:
    splits = [Split(str(number), 0, 0) for number in range(10_000)]
    assert [len(parts_of(each)) for each in pack(splits, FileOptions().split_bytes)] == [4096, 4096, 1808]


def test_small_segments_are_one_task_and_few_batches(tmp_path: Path) -> None:
    path = segments(tmp_path / "a.stompcap", 40)
    assert len(batch_splits([str(path)], FileOptions())) > 35
    reader = FileReader([str(path)], SCHEMA, FileOptions())
    (task,) = reader.partitions()
    assert isinstance(task, Pack)
    assert read(reader, [task]) == rows(path, SCHEMA)
    assert len(list(reader.read(task))) == 1
    some = FileReader([str(path)], SCHEMA, FileOptions(split_bytes=3000, batch_rows=20))
    tasks = some.partitions()
    assert 8 <= len(tasks) <= 20
    assert read(some, tasks) == rows(path, SCHEMA)
    assert all(batch.num_rows <= 20 for task in tasks for batch in some.read(task))


def test_files_of_all_kinds_share_a_task_and_large_ones_are_still_cut(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    for number in range(20):
        frames = [message(number, body=b"x" * 50), b"MESSAGE\nno colon\n\n\0", message(number + 100)]
        make_stream(folder / f"{number:02}.stomp", frames)
        make_capture(folder / f"{number:02}.stompcap", frames[::2], single=bool(number % 2))
        (folder / f"{number:02}z.stomp.gz").write_bytes(gzip.compress(octets(frames)))
    make_stream(folder / "99.stomp", [message(n, body=b"y" * 1000) for n in range(100)])
    (folder / "empty.stomp").write_bytes(b"")
    options = FileOptions(split_bytes=40_000)
    reader = FileReader([str(folder)], SCHEMA, options)
    tasks = reader.partitions()
    assert read(reader, tasks) == rows(folder, SCHEMA, splitBytes=40_000)
    assert len(rows(folder, SCHEMA)) == 20 * (3 + 2 + 3) + 100
    large = [part for task in tasks for part in parts_of(task) if isinstance(part, Split) and "99" in part.path]
    assert len(large) == len([split for split in batch_splits([str(folder)], options) if "99" in split.path]) >= 3
    assert len(tasks) < 15


def test_batches_without_columns_keep_their_rows(tmp_path: Path) -> None:
    path = segments(tmp_path / "a.stompcap", 20)
    reader = FileReader([str(path)], schema_of(), FileOptions())
    assert sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) == 100


def test_a_stream_of_files_has_few_tasks(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    for number in range(30):
        make_stream(folder / f"{number:02}.stomp", [message(number)])
    segments(folder / "a.stompcap", 10)
    reader = FileStreamReader([str(folder)], SCHEMA, FileOptions())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (task,) = reader.partitions(start, end)
    assert read(reader, [task]) == rows(folder, SCHEMA)
