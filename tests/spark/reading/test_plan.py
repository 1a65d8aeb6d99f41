"""Which files are read, where they are cut, and how far a batch of a stream goes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import examples

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from spark.making import START, make_capture, make_stream, message, octets
from spark.read_back import rows, schema_of

from stompcodec import codec
from stompcodec.capture import Capture, CaptureWriter
from stompcodec.errors import StoreError
from stompcodec.spark.options import Choice, FileOptions
from stompcodec.spark.reading import splits as cut
from stompcodec.spark.reading.decode import read_split
from stompcodec.spark.reading.plan import (
    batch_splits,
    chains_of,
    ends_of,
    limit_chains,
    splits_between,
)
from stompcodec.spark.reading.schema import Projection
from stompcodec.spark.reading.splits import Split

IDS = schema_of(message_id="frame", error="frame")


def spool_end(path: str) -> dict[str, int]:
    return ends_of(chains_of([path], FileOptions()), {})


def limited(
    path: str, start: dict[str, int], end: dict[str, int], octets: int | None, frames: int | None
) -> dict[str, int]:
    return limit_chains(chains_of([path], FileOptions()), start, end, octets, frames)


def spool_splits(path: str, start: dict[str, int], end: dict[str, int], options: FileOptions) -> list[Split]:
    return splits_between(chains_of([path], options), start, end, options)


def ids_of(splits: list[Split], options: FileOptions | None = None) -> list[str | None]:
    projection = Projection(IDS)
    found = [
        row
        for split in splits
        for batch in read_split(split, projection, options or FileOptions())
        for row in batch.to_pylist()
    ]
    assert not [row["error"] for row in found if row["error"]]
    return [row["message_id"] for row in found]


def ids(*numbers: int) -> list[str]:
    return [f"id-{number}" for number in numbers]


# ---- what is read ----


def test_paths_globs_and_folders(tmp_path: Path) -> None:
    make_capture(tmp_path / "b.stompcap", [message(1)])
    make_capture(tmp_path / "a.stompcap", [message(2)], single=True)
    make_capture(tmp_path / "plain-name", [message(3)])
    make_stream(tmp_path / "c.stomp", [message(4)])
    (tmp_path / "d.stomp.gz").write_bytes(gzip.compress(octets([message(5)])))
    for other in ("notes.txt", ".hidden.stomp", "_temporary.stomp"):
        (tmp_path / other).write_bytes(octets([message(9)]))
    (tmp_path / "empty").mkdir()

    def read(path: str) -> list[Any]:
        return [row["message_id"] for row in rows(path, IDS)]

    assert read(f"{tmp_path}") == ids(2, 1, 4, 5, 3)
    assert read(f"{tmp_path}/*.stompcap") == ids(2, 1)
    assert read(f"{tmp_path}/**/[cf]*.stomp") == ids(1, 4, 3)
    assert read(f"{tmp_path}/notes.txt") == ids(9)
    (segment,) = (tmp_path / "b.stompcap").glob("*.stomp")
    assert read(str(segment)) == ids(1)
    assert ids_of(batch_splits([str(tmp_path / "c.stomp"), str(tmp_path / "?.stomp")], FileOptions())) == ids(4)
    bracketed = make_stream(tmp_path / "a[1].stomp", [message(6)])  # a name where there is such a file
    assert read(str(bracketed)) == ids(6)
    for nothing in ("missing", "*.none", "empty"):
        with pytest.raises(StoreError, match="there is nothing to read"):
            batch_splits([f"{tmp_path}/{nothing}"], FileOptions())


# ---- splits ----


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
    st.integers(1, 2000),
    st.integers(1, 6),
    st.integers(200, 3000),
)
@settings(max_examples=examples(60))
def test_splits_cover_all_frames_once_and_begin_with_one(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], split: int, group: int, segment: int
) -> None:
    folder = tmp_path_factory.mktemp("splits")
    frames = [message(n, body=b"x" * size) for n, size in enumerate(sizes)]
    path = make_capture(folder / "a.stompcap", frames, group=group, segment_octets=segment)
    bare = make_stream(folder / "a.stomp", frames)
    for each in (path, bare):
        splits = batch_splits([str(each)], FileOptions(split_bytes=split))
        at = 0
        for one in splits:
            assert one.base + one.start == at
            assert one.stop is not None
            with open(one.path, "rb") as stream:
                stream.seek(one.start)
                codec.parse(stream.read(one.stop - one.start))
            at = one.base + one.stop
        assert at == len(octets(frames))
        largest = max(len(octets([frame])) for frame in frames) * (group if each == path else 1)
        assert all(one.stop - one.start <= 2 * max(split, largest) for one in splits)


def test_one_row_of_an_index_that_tells_of_much_is_cut_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "_PIECE", 1000)
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(100)], group=100)
    splits = batch_splits([str(path)], FileOptions(split_bytes=2000))
    assert len(splits) > 4
    assert {(one.row, one.rows, one.since) for one in splits} == {(0, 1, START)}
    assert ids_of(splits) == ids(*range(100))


def test_splits_that_came_at_another_time_are_left_out(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(100)], segment_octets=2000)
    options = FileOptions(split_bytes=500, choice=Choice(since=START + 50_000_000, until=START + 51_000_001))
    some = batch_splits([str(path)], options)
    assert 1 <= len(some) <= 2
    assert {"id-50", "id-51"} <= set(ids_of(some))
    bare = make_stream(tmp_path / "a.stomp", [message(1)])
    assert batch_splits([str(bare)], FileOptions(choice=Choice(since=0))) == []


def test_planning_a_capture_does_not_read_its_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(1000)])
    monkeypatch.setattr(cut, "opened", None)
    assert len(batch_splits([str(path)], FileOptions(split_bytes=10_000))) > 5


# ---- streams ----


def test_offsets_of_one_capture_are_called_as_its_chains(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(1)], chain="one")
    make_capture(path, [message(2)], chain="frames")
    size = len(octets([message(1)]))
    assert spool_end(str(path)) == {"frames": size, "one": size}
    assert list(spool_end(str(path))) == ["frames", "one"]
    assert {key: chain.first for key, chain in chains_of([str(path)], FileOptions()).items()} == {"frames": 0, "one": 0}
    assert spool_end(str(tmp_path / "missing")) == {}
    assert {split.spool for split in spool_splits(str(path), {}, spool_end(str(path)), FileOptions())} == {
        str(path),
        f"{path}#one",
    }


def test_offsets_of_several_captures_have_names_that_stay(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    make_capture(folder / "b.stompcap", [message(1)])
    make_stream(folder / "a.stomp", [message(2)])
    options = FileOptions()
    assert list(chains_of([str(folder)], options)) == ["a.stomp", "b.stompcap/frames"]
    assert list(chains_of([f"{tmp_path}/*/*"], options)) == ["all/a.stomp", "all/b.stompcap/frames"]
    moved = folder.rename(tmp_path / "moved")
    assert list(chains_of([str(moved)], options)) == ["a.stomp", "b.stompcap/frames"]
    assert chains_of([str(tmp_path / "later")], options) == {}


def test_a_batch_takes_so_many_frames_or_octets(tmp_path: Path) -> None:
    frames = [message(n, body=b"x" * 10) for n in range(30)]
    path = str(make_capture(tmp_path / "a.stompcap", frames, group=7, segment_octets=1000))
    end, one = spool_end(path), len(octets([message(0, body=b"x" * 10)]))
    assert one == len(octets([frames[9]]))
    assert limited(path, {"frames": 0}, end, None, None) == end
    assert limited(path, {"frames": 0}, end, None, 3) == {"frames": 3 * one}
    assert limited(path, {"frames": 0}, end, 3 * one, None) == {"frames": 3 * one}
    assert limited(path, {"frames": 0}, end, 3 * one - 1, None) == {"frames": 2 * one}
    assert limited(path, {"frames": one}, end, 1, 5) == {"frames": 2 * one}
    assert limited(path, {}, end, 10 * one, 4) == {"frames": 4 * one}
    assert limited(path, end, end, 1, 1) == end


def test_chains_share_what_a_batch_may_take(tmp_path: Path) -> None:
    path = tmp_path / "a.stompcap"
    for chain, count in (("a", 100), ("b", 2), ("c", 100)):
        make_capture(path, [message(n + 10) for n in range(count)], chain=chain)
    options = FileOptions()
    chains = chains_of([str(path)], options)
    end = ends_of(chains, {})
    one = end["b"] // 2
    part = limit_chains(chains, {}, end, None, 32)
    assert {key: value // one for key, value in part.items()} == {"a": 15, "b": 2, "c": 15}
    first = limit_chains(chains, {}, end, None, 1)
    assert sum(first.values()) == one
    assert sum(limit_chains(chains, {}, end, 1, None).values()) == one


def test_what_was_deleted_before_it_was_read_ends_the_query(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(9)], segment_octets=250)
    end = spool_end(str(path))
    first, second, third, *_ = Capture(path).segments()
    first.path.unlink()
    with pytest.raises(
        StoreError, match=r"bytes 0 to \d+ were deleted before they were read \(set failOnDataLoss=false"
    ):
        spool_splits(str(path), {"frames": 0}, end, FileOptions())
    go_on = FileOptions(fail_on_data_loss=False)
    assert ids_of(spool_splits(str(path), {"frames": 0}, end, go_on)) == ids(*range(2, 9))
    assert ids_of(spool_splits(str(path), {}, end, FileOptions())) == ids(*range(2, 9))
    assert ids_of(spool_splits(str(path), {"frames": second.base}, end, FileOptions())) == ids(*range(2, 9))
    third.path.unlink()
    with pytest.raises(StoreError, match="were deleted"):
        spool_splits(str(path), {"frames": second.base}, end, FileOptions())
    assert ids_of(spool_splits(str(path), {"frames": 0}, end, go_on)) == ids(2, 3, 6, 7, 8)


def test_a_capture_that_was_replaced_ends_the_query(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [message(1)])
    options = FileOptions()
    with pytest.raises(StoreError, match="it was replaced"):
        splits_between(chains_of([str(path)], options), {"frames": 10_000}, {"frames": 50}, options)


def test_a_bare_stream_that_grows(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [message(1), octets([message(2)])[:20]])
    options = FileOptions()

    def chains() -> Any:
        return chains_of([str(path)], options)

    first = ends_of(chains(), {})
    assert first == {"frames": len(octets([message(1)]))}
    with path.open("ab") as stream:
        stream.write(octets([message(2)])[20:])
    second = ends_of(chains(), first)
    assert ids_of(splits_between(chains(), {}, first, options)) == ids(1)
    assert ids_of(splits_between(chains(), first, second, options)) == ids(2)


def test_a_compressed_file_is_one_step_of_a_stream(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    packed = folder / "a.stomp.gz"
    packed.write_bytes(gzip.compress(octets([message(1), message(2)])))
    options = FileOptions()
    chains = chains_of([str(folder)], options)
    end = ends_of(chains, {})
    assert limit_chains(chains, {}, end, 1, 1) == end
    assert ids_of(splits_between(chains, {"a.stomp.gz": 0}, end, options)) == ids(1, 2)
    assert splits_between(chains, end, end, options) == []
    packed.write_bytes(gzip.compress(octets([message(1), message(2), message(3)])))
    chains = chains_of([str(folder)], options)
    with pytest.raises(StoreError, match="it was read, and then it changed"):
        splits_between(chains, end, ends_of(chains, end), options)


class Spool(RuleBasedStateMachine):
    """A capture that is written, rotated, cleaned and reopened, while a stream reads it in batches of any size: every
    frame is in one batch, in order, and a batch that is asked for again is the same."""

    @initialize(segment=st.integers(150, 1000), split=st.integers(50, 2000))
    def begin(self, segment: int, split: int) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = f"{self.folder.name}/a.stompcap"
        self.segment = segment
        self.options = FileOptions(split_bytes=split)
        self.writer = CaptureWriter(self.path, segment_octets=segment)
        self.written = self.synced = 0
        self.read: list[str | None] = []
        self.offset: dict[str, int] = {}
        self.batches: list[tuple[dict[str, int], dict[str, int], list[str | None]]] = []

    @rule(count=st.integers(1, 5), size=st.integers(0, 200))
    def append(self, count: int, size: int) -> None:
        frames = [message(self.written + n, body=b"x" * size) for n in range(count)]
        self.writer.append(octets(frames), START + self.written)
        self.written += count

    @rule()
    def sync(self) -> None:
        self.writer.sync()
        self.synced = self.written

    @rule(seal=st.booleans())
    def reopen(self, seal: bool) -> None:
        if not seal:
            self.writer.sync()
        self.writer.close(seal=seal)
        self.synced = self.written
        self.writer = CaptureWriter(self.path, segment_octets=self.segment)

    @precondition(lambda self: self.offset)
    @rule()
    def clean(self) -> None:
        """Deletes what was read, and what the last batch would need for being read again stays."""
        below = self.batches[-1][0] if self.batches else {}
        self.writer.retain(START, octets=0, below=below)
        self.batches = self.batches[-1:]

    @rule(octets=st.none() | st.integers(1, 2000), count=st.none() | st.integers(1, 7))
    def batch(self, octets: int | None, count: int | None) -> None:
        end = limited(self.path, self.offset, spool_end(self.path), octets, count)
        found = ids_of(spool_splits(self.path, self.offset, end, self.options))
        if count is not None:
            assert len(found) <= count
        self.batches.append((self.offset, end, found))
        self.read += found
        self.offset = end
        assert self.read == ids(*range(len(self.read)))
        assert len(self.read) <= self.written
        assert found or len(self.read) >= self.synced

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        start, end, found = data.draw(st.sampled_from(self.batches))
        assert ids_of(spool_splits(self.path, start, end, self.options)) == found

    @invariant()
    def the_end_is_that_of_the_capture(self) -> None:
        if hasattr(self, "writer"):
            assert spool_end(self.path).get("frames", 0) == Capture(self.path).end()

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close(seal=False)
            self.folder.cleanup()


TestSpool = Spool.TestCase
TestSpool.settings = settings(max_examples=examples(25), stateful_step_count=25)
