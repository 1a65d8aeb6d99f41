"""Which files are read, where they are cut, how far a batch of a stream goes, and executors that see other files."""

import gzip
import os
import pickle
import shutil
import tempfile
from functools import partial

import pytest
from capture.storing import object_store
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import examples

pytest.importorskip("pyspark")
from pyspark import cloudpickle
from spark.making import START, ids, make_capture, make_stream, message, octets, pa, rows, rows_of, schema_of

from stompcodec import codec
from stompcodec.capture import Capture, CaptureWriter
from stompcodec.capture.archive import Archive
from stompcodec.capture.places import Remote
from stompcodec.disk import Access
from stompcodec.errors import StoreError
from stompcodec.spark.live import LiveReader, LiveStreamReader
from stompcodec.spark.options import Choice, FileOptions, parse_file
from stompcodec.spark.reading import FileReader, FileStreamReader
from stompcodec.spark.reading.plan import batch_splits, chains_of, ends_of, limit_chains, splits_between
from stompcodec.spark.reading.schema import Projection
from stompcodec.spark.reading.splits import Pack, Split, octets_of, pack, parts_of
from stompcodec.spark.receiver import identify, identity_of

IDS = schema_of(message_id="frame", error="frame")
USUAL = FileOptions()
LENIENT = FileOptions(fail_on_data_loss=False)


def end_of(path, start=None):
    return ends_of(chains_of([str(path)], USUAL), start or {})


def limited(path, start, end, octets=None, frames=None):
    return limit_chains(chains_of([str(path)], USUAL), start, end, octets, frames)


def splits_of(path, start, end, options=USUAL):
    return splits_between(chains_of([str(path)], options), start, end, options)


def ids_of(splits):
    found = rows_of(splits, Projection(IDS), USUAL)
    assert not [row["error"] for row in found if row["error"]]
    return [row["message_id"] for row in found]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "feed").mkdir()
    return tmp_path / "feed"


def test_paths_globs_and_folders(folder):
    make_capture(folder / "b.stompcap", [message(1)])
    make_capture(folder / "a.stompcap", [message(2)], single=True)
    make_capture(folder / "plain-name", [message(3)])
    make_stream(folder / "c.stomp", [message(4)])
    make_stream(folder / "d.stomp.gz", [message(5)])
    for other in ("notes.txt", ".hidden.stomp", "_temporary.stomp"):
        make_stream(folder / other, [message(9)])
    (folder / "empty").mkdir()
    (segment,) = (folder / "b.stompcap").glob("*.stomp")
    for name, numbers in {
        **{"": (2, 1, 4, 5, 3), "*.stompcap": (2, 1), "**/[cf]*.stomp": (1, 4, 3), "notes.txt": (9,)},
        f"b.stompcap/{segment.name}": (1,),
    }.items():
        assert [row["message_id"] for row in rows(folder / name, IDS)] == ids(*numbers)
    assert ids_of(batch_splits([str(folder / "c.stomp"), str(folder / "?.stomp")], USUAL)) == ids(4)
    bracketed = make_stream(folder / "a[1].stomp", [message(6)])  # a name where there is such a file
    assert [row["message_id"] for row in rows(bracketed, IDS)] == ids(6)
    for nothing in ("missing", "*.none", "empty"):
        with pytest.raises(StoreError, match="there is nothing to read"):
            batch_splits([f"{folder}/{nothing}"], USUAL)


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
    st.integers(1, 2000),
    st.integers(1, 6),
    st.integers(200, 3000),
)
@settings(max_examples=examples(60))
def test_splits_cover_all_frames_once_and_begin_with_one(tmp_path_factory, sizes, split, group, segment):
    folder = tmp_path_factory.mktemp("splits")
    frames = [message(n, body=b"x" * size) for n, size in enumerate(sizes)]
    path = make_capture(folder / "a.stompcap", frames, group=group, segment_octets=segment)
    bare = make_stream(folder / "a.stomp", frames)
    for each in (path, bare):
        splits = batch_splits([str(each)], FileOptions(split_bytes=split))
        at = 0
        for one in splits:
            assert one.base + one.start == at
            with open(one.path, "rb") as stream:
                stream.seek(one.start)
                codec.parse(stream.read(one.stop - one.start))
            at = one.base + one.stop
        assert at == len(octets(frames))
        largest = max(len(octets([frame])) for frame in frames) * (group if each == path else 1)
        assert all(one.stop - one.start <= 2 * max(split, largest) for one in splits)


def test_splits_that_came_at_another_time_are_left_out(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(100)), segment_octets=2000)
    some = FileOptions(split_bytes=500, choice=Choice(since=START + 50_000_000, until=START + 51_000_001))
    splits = batch_splits([str(path)], some)
    assert 1 <= len(splits) <= 2
    assert {"id-50", "id-51"} <= set(ids_of(splits))
    assert (
        batch_splits([str(make_stream(tmp_path / "a.stomp", [message(1)]))], FileOptions(choice=Choice(since=0))) == []
    )


def read(reader, partitions):
    sent = pickle.loads(pickle.dumps(list(partitions)))
    return [row for each in sent for batch in reader.read(each) for row in batch.to_pylist()]


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 40))
def test_neighbours_share_a_task_as_long_as_they_fit(sizes, most):
    splits = [Split(str(number), 0, size) for number, size in enumerate(sizes)]
    packs = [parts_of(each) for each in pack(splits, most)]
    assert [split for each in packs for split in each] == splits
    totals = [sum(octets_of(split) for split in each) for each in packs]
    assert all(total <= most or len(each) == 1 for total, each in zip(totals, packs))
    assert all(total + octets_of(following[0]) > most for total, following in zip(totals, packs[1:]))


def test_a_task_has_an_end_in_parts_too():
    splits = [Split(str(number), 0, 0) for number in range(10_000)]
    assert [len(parts_of(each)) for each in pack(splits, USUAL.split_bytes)] == [4096, 4096, 1808]


def test_small_segments_are_one_task_and_few_batches(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(200)), segment_octets=600)
    assert len(batch_splits([str(path)], USUAL)) > 35
    reader = FileReader([str(path)], IDS, USUAL)
    (task,) = reader.partitions()
    assert isinstance(task, Pack)
    assert read(reader, [task]) == rows(path, IDS)
    assert len(list(reader.read(task))) == 1
    some = FileReader([str(path)], IDS, FileOptions(split_bytes=3000, batch_rows=20))
    tasks = some.partitions()
    assert 8 <= len(tasks) <= 20
    assert read(some, tasks) == rows(path, IDS)
    assert all(batch.num_rows <= 20 for task in tasks for batch in some.read(task))
    none = FileReader([str(path)], schema_of(), USUAL)  # batches without columns keep their rows
    assert sum(batch.num_rows for task in none.partitions() for batch in none.read(task)) == 200


def test_offsets_of_several_captures_have_names_that_stay(tmp_path, folder):
    make_capture(folder / "b.stompcap", [message(1)])
    make_stream(folder / "a.stomp", [message(2)])
    names = ["a.stomp", "b.stompcap/frames"]
    assert list(end_of(folder)) == names
    assert list(end_of(f"{tmp_path}/*/*")) == [f"feed/{name}" for name in names]
    assert list(end_of(folder.rename(tmp_path / "moved"))) == names


def test_a_batch_takes_so_many_frames_or_octets(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(10, 40)), group=7, segment_octets=1000)
    end, one = end_of(path), len(octets([message(10)]))
    assert limited(path, {"frames": 0}, end) == end == limited(path, end, end, 1, 1)
    for start, octets_, frames, took in [
        (0, None, 3, 3), (0, 3 * one, None, 3), (0, 3 * one - 1, None, 2), (1, 1, 5, 2), (None, 10 * one, 4, 4),
    ]:  # fmt: skip
        begin = {} if start is None else {"frames": start * one}
        assert limited(path, begin, end, octets_, frames) == {"frames": took * one}


def test_chains_share_what_a_batch_may_take(tmp_path):
    path = tmp_path / "a.stompcap"
    for chain, count in (("a", 100), ("b", 2), ("c", 100)):
        make_capture(path, [message(n + 10) for n in range(count)], chain=chain)
    end = end_of(path)
    one = end["b"] // 2
    assert limited(path, {}, end, None, 32) == {"a": 15 * one, "b": 2 * one, "c": 15 * one}
    assert sum(limited(path, {}, end, None, 1).values()) == sum(limited(path, {}, end, 1, None).values()) == one


def test_what_was_deleted_before_it_was_read_ends_the_query(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(9)), segment_octets=250)
    end, zero = end_of(path), {"frames": 0}
    first, second, third, *_ = Capture(path).segments()
    first.path.unlink()
    with pytest.raises(StoreError, match=r"bytes 0 to \d+ were deleted before .* \(set failOnDataLoss=false"):
        splits_of(path, zero, end)
    for start, options in ((zero, LENIENT), ({}, USUAL), ({"frames": second.base}, USUAL)):
        assert ids_of(splits_of(path, start, end, options)) == ids(*range(2, 9))
    third.path.unlink()
    with pytest.raises(StoreError, match="were deleted"):
        splits_of(path, {"frames": second.base}, end)
    assert ids_of(splits_of(path, zero, end, LENIENT)) == ids(2, 3, 6, 7, 8)


def test_a_bare_stream_that_grows_or_was_replaced(tmp_path):
    data = octets([message(1), message(2)])
    path = make_stream(tmp_path / "a.stomp", [data[: len(data) // 2 + 20]])
    first = end_of(path)
    assert first == {"frames": len(data) // 2}
    make_stream(path, [data])
    assert ids_of(splits_of(path, {}, first)) == ids(1)
    assert ids_of(splits_of(path, first, end_of(path, first))) == ids(2)
    with pytest.raises(StoreError, match="it was replaced"):
        splits_of(path, {"frames": 10_000}, {"frames": 50})


def test_a_compressed_file_is_one_step_of_a_stream(folder):
    packed = make_stream(folder / "a.stomp.gz", [message(1), message(2)])
    end = end_of(folder)
    assert limited(folder, {}, end, 1, 1) == end
    assert ids_of(splits_of(folder, {"a.stomp.gz": 0}, end)) == ids(1, 2)
    assert splits_of(folder, end, end) == []
    make_stream(packed, [message(1), message(2), message(3)])
    with pytest.raises(StoreError, match="it was read, and then it changed"):
        splits_of(folder, end, end_of(folder, end))


class Spool(RuleBasedStateMachine):
    """A capture that is written, rotated, cleaned and reopened, while a stream reads it in batches of any size: every
    frame is in one batch, in order, and a batch that is asked for again is the same."""

    @initialize(segment=st.integers(150, 1000), split=st.integers(50, 2000))
    def begin(self, segment, split):
        self.folder = tempfile.TemporaryDirectory()
        self.path = f"{self.folder.name}/a.stompcap"
        self.segment, self.options = segment, FileOptions(split_bytes=split)
        self.writer = CaptureWriter(self.path, segment_octets=segment)
        self.written = self.synced = 0
        self.read, self.offset, self.batches = [], {}, []

    @rule(count=st.integers(1, 5), size=st.integers(0, 200))
    def append(self, count, size):
        frames = [message(self.written + n, body=b"x" * size) for n in range(count)]
        self.writer.append(octets(frames), START + self.written)
        self.written += count

    @rule()
    def sync(self):
        self.writer.sync()
        self.synced = self.written

    @rule(seal=st.booleans())
    def reopen(self, seal):
        if not seal:
            self.writer.sync()
        self.writer.close(seal=seal)
        self.synced = self.written
        self.writer = CaptureWriter(self.path, segment_octets=self.segment)

    @precondition(lambda self: self.offset)
    @rule()
    def clean(self):
        """Deletes what was read, and what the last batch would need for being read again stays."""
        self.writer.retain(START, octets=0, below=self.batches[-1][0] if self.batches else {})
        self.batches = self.batches[-1:]

    @rule(octets=st.none() | st.integers(1, 2000), count=st.none() | st.integers(1, 7))
    def batch(self, octets, count):
        end = limited(self.path, self.offset, end_of(self.path), octets, count)
        found = ids_of(splits_of(self.path, self.offset, end, self.options))
        assert count is None or len(found) <= count
        self.batches.append((self.offset, end, found))
        self.read += found
        self.offset = end
        assert self.read == ids(*range(len(self.read)))
        assert len(self.read) <= self.written
        assert found or len(self.read) >= self.synced

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def again(self, data):
        start, end, found = data.draw(st.sampled_from(self.batches))
        assert ids_of(splits_of(self.path, start, end, self.options)) == found

    @invariant()
    def the_end_is_that_of_the_capture(self):
        if hasattr(self, "writer"):
            assert end_of(self.path).get("frames", 0) == Capture(self.path).end()

    def teardown(self):
        if hasattr(self, "writer"):
            self.writer.close(seal=False)
            self.folder.cleanup()


TestSpool = Spool.TestCase
TestSpool.settings = settings(max_examples=examples(25), stateful_step_count=25)
# ---- executors that see another folder than the driver at the same path ----
SHORT, LONG = range(6), range(10)
ALL = [(each, None) for each in ids(*LONG)]


def capture(path, numbers, start, **how):
    return make_capture(path, map(message, numbers), start=start, **how)


def growing(path, numbers, start):
    return capture(path, numbers, start, seal=False)


def spool(path, numbers, start):
    identify(str(growing(path, numbers, start)))
    return path


def bare(path, numbers, start):
    return make_stream(path, [message(number, origin=str(start)) for number in numbers])


def without_index(path, numbers, start):
    make_capture(path, [message(number, origin=str(start)) for number in numbers])
    for index in path.glob("*.idx"):
        index.unlink()
    return path


MAKERS = {
    "segments": ("a.stompcap", lambda *what: capture(*what, segment_octets=400)),
    **{"growing": ("a.stompcap", growing), "spool": ("a.stompcap", spool)},
    "sealed file": ("a.stompcap", lambda *what: capture(*what, single=True)),
    "unsealed file": ("a.stompcap", lambda *what: capture(*what, single=True, seal=False)),
    **{"bare stream": ("a.stomp", bare), "compressed": ("a.stomp.gz", bare)},
    "without index": ("a.stompcap", without_index),
}
#: Where a shorter copy lacks a whole file, or differs in what it has.
ONLY_WHOLE = ("segments", "sealed file", "compressed")
#: What the executor sees, in the words of the table: how many frames, and of which recording.
SEEN = {
    **{"the same": (LONG, START), "nothing": None, "a shorter copy": (SHORT, START)},
    **{"another one": (LONG, START + 7), "a shorter one": (SHORT, START + 7)},
    "a longer one": (range(12), START + 7),
}


def swap(path, make, seen):
    for each in (path, path.with_name(path.name + ".idx")):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
    if SEEN[seen] is not None:
        make(path, *SEEN[seen])


def batch_of(path, **options):
    reader = FileReader([str(path)], IDS, parse_file(options))
    return reader, reader.partitions()


def stream_of(path, **options):
    reader = FileStreamReader([str(path)], IDS, parse_file(options))
    return reader, reader.partitions(reader.initialOffset(), reader.latestOffset())


lenient_stream = partial(stream_of, failOnDataLoss="false")


def received(reader, partitions):
    reader, partitions = pickle.loads(cloudpickle.dumps((reader, partitions)))
    found = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    return [(row["message_id"], row["error"]) for row in found]


@pytest.mark.parametrize("split", ["300", "1m"])
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("plan", [batch_of, stream_of, lenient_stream], ids=["batch", "stream", "lenient stream"])
def test_no_read_ends_well_with_wrong_rows(tmp_path, plan, kind, seen, split):
    name, make = MAKERS[kind]
    path = make(tmp_path / name, LONG, START)
    if (plan, kind) == (stream_of, "without index"):
        with pytest.raises(StoreError, match=r"its index is missing \(set failOnDataLoss=false to read its frames"):
            plan(path, splitBytes=split)
        return
    planned = plan(path, splitBytes=split)
    swap(path, make, seen)
    if seen == "the same":
        assert [row for row in received(*planned) if row[0]] == ALL
    elif seen == "a shorter copy" and plan is not stream_of and kind not in ONLY_WHOLE:
        found = received(*planned)  # the mode decides: a row tells
        assert any("truncated: " in (error or "") for _, error in found)
        assert [row for row in found if row[0]] == ALL[:6]
    else:
        with pytest.raises(
            StoreError, match=r"does not see the driver's file.*driver and all executors share"
        ) as caught:
            received(*planned)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_a_shorter_copy_fails_unless_rows_may_tell(tmp_path, mode):
    """A batch in the lenient mode tells it by a row; a stream and a live batch fail: the broker has given it away."""
    path = growing(tmp_path / "a.stompcap", LONG, START)
    zipped = bare(tmp_path / "a.stomp.gz", range(1000), START)
    planned = [stream_of(path, mode=mode), stream_of(zipped, mode=mode)]
    planned += [] if mode == "PERMISSIVE" else [batch_of(path, mode=mode)]
    options = {"url": "stomp://127.0.0.1:1", "destination": "/queue/a", "spoolDir": str(path)}
    planned.append((LiveReader(options, IDS), batch_of(path)[1]))
    swap(path, growing, "a shorter copy")
    os.truncate(zipped, zipped.stat().st_size // 2)
    for each in planned:
        with pytest.raises(StoreError, match="bytes shorter than it was"):
            received(*each)


def test_an_index_that_only_the_driver_sees(tmp_path):
    path = growing(tmp_path / "a.stompcap", LONG, START)
    strict = [stream_of(path), batch_of(path, mode="FAILFAST")]
    lenient = [lenient_stream(path), batch_of(path)]
    next(path.glob("*.idx")).unlink()
    for planned in strict:
        with pytest.raises(StoreError, match="its index is missing"):
            received(*planned)
    for planned in lenient:
        (_, error), *found = received(*planned)
        assert error.startswith("damaged-index: it is missing")
        assert found == ALL


def test_a_file_that_gets_shorter_while_it_is_read(tmp_path):
    path = make_stream(tmp_path / "a.stomp", [message(n, body=b"x" * 1000) for n in range(2000)])
    reader, (partition,) = stream_of(path, batchRows="10")
    rows = reader.read(partition)
    next(rows)
    os.truncate(path, 300_000)
    with pytest.raises(StoreError, match="shorter than it was"):
        list(rows)


@pytest.mark.parametrize("kind", ["growing", "unsealed file", "bare stream", "compressed"])
def test_what_grows_meanwhile_is_still_the_same(tmp_path, kind):
    """New frames, new segments, a seal that moves the index into the file, and an index that was built anew."""
    name, make = MAKERS[kind]
    path = make(tmp_path / name, LONG, START)
    planned = [plan(path, splitBytes=size) for plan in (batch_of, stream_of) for size in ("300", "1m")]

    def look():
        for each in planned:
            assert [row for row in received(*each) if row[0]][: len(LONG)] == ALL

    if kind in ("bare stream", "compressed"):
        data = octets([message(10)])
        path.write_bytes(path.read_bytes() + (data if kind == "bare stream" else gzip.compress(data)))
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
        for segment in sorted(path.glob("*.stomp"))[1:]:
            segment.unlink()
            segment.with_suffix(".idx").unlink()
        CaptureWriter(path).close()
        look()


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        yield store


def test_an_object_store_is_read_as_a_disk_is(tmp_path, store):
    """A capture, a single file, bare and compressed streams, and a folder of them; in ranges, as the splits are cut."""
    folder = tmp_path / "feed"
    folder.mkdir()
    frames = [message(number, body=bytes(range(256)) * 20) for number in range(100)]
    make_capture(folder / "a.stompcap", frames, segment_octets=300_000, group=10)
    make_capture(folder / "b.stompcap", frames[:9], single=True)
    for name in ("c.stomp", "d.stomp.gz"):
        make_stream(folder / name, [*frames[:3], b"GARBAGE\n\n\0"])
    (folder / "e.stomp.zst").write_bytes(pa.compress(octets(frames[:4]), "zstd", asbytes=True))
    files = [each for each in folder.rglob("*") if each.is_file()]
    for each in files:
        store.put(f"{tmp_path.name}/{each.relative_to(tmp_path).as_posix()}", each.read_bytes())
    for name in ("feed", "feed/a.stompcap", "feed/b.stompcap", "feed/c.stomp"):
        uri = store.uri(f"{tmp_path.name}/{name}")
        found, wanted = rows(uri, splitBytes="200k"), rows(tmp_path / name, splitBytes="200k")
        for row in (*found, *wanted):
            row["spool"] = row["spool"].partition(tmp_path.name)[2].partition("?")[0]
        assert found == wanted
    names = ["a.stompcap/frames", "b.stompcap", "c.stomp", "d.stomp.gz", "e.stomp.zst"]
    assert sorted(stream_of(store.uri(f"{tmp_path.name}/feed"))[0].latestOffset()) == names
    with pytest.raises(StoreError, match="there is nothing to read"):
        rows(store.uri("feed/none"))


@pytest.mark.parametrize("plan", [batch_of, stream_of])
def test_a_planned_segment_that_moves_is_read_in_the_archive(tmp_path, store, plan):
    """Before its task begins, and between each two of the opens and reads of the task."""
    path, uri = growing(tmp_path / "a.stompcap", LONG, START), store.uri(f"{tmp_path.name}/a.stompcap")
    with CaptureWriter(path) as writer:
        writer.finish("frames")
        writer.append(octets([message(99)]), START)
    archive = Archive(path, uri)
    archive.join(Access())
    reader, partitions = plan(path, splitBytes="300")
    first = reader.read(partitions[0])
    found = [next(first)]
    archive.move()
    assert [each.suffix for each in sorted(path.glob("frames-*"))] == [".idx", ".stomp"]
    found += [*first, *(batch for each in partitions[1:] for batch in reader.read(each))]
    assert [row["message_id"] for batch in found for row in batch.to_pylist()] == ids(*LONG, 99)
    assert received(*plan(path, splitBytes="300")) == [*ALL, ("id-99", None)]  # planned there


def test_a_stream_that_is_up_to_date_does_not_ask_the_archive(tmp_path, monkeypatch):
    path = growing(tmp_path / "a.stompcap", LONG, START)
    (path / "archive").write_text("s3://bucket/a.stompcap")
    monkeypatch.setattr(Remote, "iterdir", lambda self: pytest.fail("it is asked"))
    end = {"frames": Capture(path).segments(after={"frames": 1})[-1].base}
    reader = FileStreamReader([str(path)], IDS, USUAL)
    assert received(reader, reader.partitions(end, reader.latestOffset(end)))


def test_a_split_without_a_mark_is_read(tmp_path):
    path = bare(tmp_path / "a.stomp", LONG, START)
    assert received(batch_of(path)[0], [Split(str(path), 0, path.stat().st_size)]) == ALL


def test_a_spool_is_told_from_one_of_an_earlier_run(tmp_path):
    """Also if both have the same spool-id, as after a copy that went its own way; the id alone says nothing."""
    path, old = spool(tmp_path / "spool", LONG, START), tmp_path / "old"
    options = {"url": "stomp://127.0.0.1:1", "destination": "/queue/a", "spoolDir": str(path)}
    planned = LiveStreamReader(options, IDS)
    end = {"#spool": identity_of(str(path)), "frames": CaptureWriter(path).end()}
    partitions = planned.partitions({}, end)
    before = planned.partitions({}, {"frames": end["frames"]})  # the offset of an earlier version has no identity
    assert received(planned, partitions) == received(planned, before) == ALL
    growing(old, range(4), START)
    with CaptureWriter(old) as writer:
        for number in range(4, 12):
            writer.append(octets([message(number)]), START + 99_000_000 + number)
    shutil.copy(path / "spool-id", old / "spool-id")
    shutil.rmtree(path)
    old.rename(path)
    for reader in (planned, LiveReader(options, IDS)):
        with pytest.raises(StoreError, match="there is another one"):
            received(reader, partitions)
