"""Executors that see another folder than the driver at the same path: no query ends well with wrong or missing rows.

The tests do as Spark does: they plan, pickle reader and partitions, and read where the path leads elsewhere.
"""

import gzip
import os
import pickle
import shutil

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from spark.making import START, ids, make_capture, make_stream, message, octets, schema_of

from stompcodec.capture import CaptureWriter
from stompcodec.errors import StoreError
from stompcodec.spark.live import LiveReader, LiveStreamReader
from stompcodec.spark.options import parse_file
from stompcodec.spark.reading import FileReader, FileStreamReader
from stompcodec.spark.receiver import identify, identity_of

IDS = schema_of(message_id="frame", error="frame")
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
    "growing": ("a.stompcap", growing),
    "spool": ("a.stompcap", spool),
    "sealed file": ("a.stompcap", lambda *what: capture(*what, single=True)),
    "unsealed file": ("a.stompcap", lambda *what: capture(*what, single=True, seal=False)),
    "bare stream": ("a.stomp", bare),
    "compressed": ("a.stomp.gz", bare),
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


def swap(path, make, seen):
    """Put there what the executor sees."""
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


def read(reader, partitions):
    """The rows of message-id and error, read from a pickle as in an executor."""
    reader, partitions = pickle.loads(cloudpickle.dumps((reader, partitions)))
    found = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    return [(row["message_id"], row["error"]) for row in found]


@pytest.mark.parametrize("split", ["300", "1m"])
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("plan", [batch_of, stream_of], ids=["batch", "stream"])
def test_no_read_ends_well_with_wrong_rows(tmp_path, plan, kind, seen, split):
    name, make = MAKERS[kind]
    path = make(tmp_path / name, LONG, START)
    lenient = {"failOnDataLoss": "false"} if (plan, kind) == (stream_of, "without index") else {}
    planned = plan(path, splitBytes=split, **lenient)
    swap(path, make, seen)
    if seen == "the same":
        assert [row for row in read(*planned) if row[0]] == ALL
    elif seen == "a shorter copy" and (plan is batch_of or lenient) and kind not in ONLY_WHOLE:
        found = read(*planned)  # the mode decides: a row tells
        assert any("truncated: " in (error or "") for _, error in found)
        assert [row for row in found if row[0]] == ALL[:6]
    else:
        with pytest.raises(
            StoreError, match=r"does not see the driver's file.*driver and all executors share"
        ) as caught:
            read(*planned)
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
            read(*each)


def test_without_fail_on_data_loss_a_stream_has_a_row_for_what_is_gone(tmp_path):
    path = growing(tmp_path / "a.stompcap", LONG, START)
    planned = stream_of(path, failOnDataLoss="false")
    swap(path, growing, "a shorter copy")
    *found, (_, error) = read(*planned)
    assert found == ALL[:6]
    assert error.startswith("truncated: ")
    swap(path, growing, "another one")
    with pytest.raises(StoreError, match="there is another one"):  # wrong rows are no loss
        read(*planned)


def test_an_index_that_only_the_driver_sees(tmp_path):
    path = growing(tmp_path / "a.stompcap", LONG, START)
    strict = [stream_of(path), batch_of(path, mode="FAILFAST")]
    lenient = [stream_of(path, failOnDataLoss="false"), batch_of(path)]
    next(path.glob("*.idx")).unlink()
    for planned in strict:
        with pytest.raises(StoreError, match="its index is missing"):
            read(*planned)
    for planned in lenient:
        (_, error), *found = read(*planned)
        assert error.startswith("damaged-index: it is missing")
        assert found == ALL


def test_an_index_that_is_missing_ends_a_stream(tmp_path):
    path = without_index(tmp_path / "a.stompcap", LONG, START)
    with pytest.raises(StoreError, match=r"its index is missing \(set failOnDataLoss=false to read its frames"):
        stream_of(path)
    assert [row for row in read(*stream_of(path, failOnDataLoss="false")) if row[0]] == ALL


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
            assert [row for row in read(*each) if row[0]][: len(LONG)] == ALL

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


def test_a_spool_is_told_from_one_of_an_earlier_run(tmp_path):
    """Also if both have the same spool-id, as after a copy that went its own way; the id alone says nothing."""
    path, old = spool(tmp_path / "spool", LONG, START), tmp_path / "old"
    options = {"url": "stomp://127.0.0.1:1", "destination": "/queue/a", "spoolDir": str(path)}
    planned = LiveStreamReader(options, IDS)
    end = {"#spool": identity_of(str(path)), "frames": CaptureWriter(path).end()}
    partitions = planned.partitions({}, end)
    before = planned.partitions({}, {"frames": end["frames"]})  # the offset of an earlier version has no identity
    assert read(planned, partitions) == read(planned, before) == ALL
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
