"""Captures whose sealed segments move to an object store: what is there at every moment, and what works without it."""

import sys
import time
from pathlib import Path

import pytest
from capture.capturing import ONE, TIME, TWO
from capture.storing import object_store
from patience import patience

fs = pytest.importorskip("pyarrow.fs")
from stompcodec.capture import Capture, CaptureWriter
from stompcodec.capture import archive as module
from stompcodec.capture.archive import Archive
from stompcodec.capture.index import names_of
from stompcodec.capture.places import open_place, place_of, size_of
from stompcodec.errors import MissingExtraError, StoreError


class KilledError(BaseException):
    """In the place of kill -9."""


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        yield store


@pytest.fixture
def uri(store, tmp_path):
    return store.uri(f"{tmp_path.name}/a.stompcap")


@pytest.fixture(params=["s3", "disk"])
def any_uri(request, uri, tmp_path, monkeypatch):
    """One of an object store, and one of a file system where files can be seen while they are written."""
    if request.param == "disk":
        (tmp_path / "disk").mkdir()
        system = fs.SubTreeFileSystem(str(tmp_path / "disk"), fs.LocalFileSystem())
        monkeypatch.setattr("stompcodec.capture.places._system_of", lambda root, query: (system, ""))
    return uri


def write(path, count, archive=None, start=TIME):
    """Segments of one message each, of which `archive` gets all but the last."""
    with CaptureWriter(path, segment_octets=1, archive=archive) as writer:
        for number in range(count):
            writer.append((ONE, TWO)[number % 2], start + number)
            writer.sync()


def bodies(place):
    return [frame.body for _, _, frame in Capture(place).frames()]


def here(path):
    return [base for _, base, _ in names_of(Path(path))]


BODIES = [b"one", b"two", b"one"]
#: What a kill comes before: (where, name, how often it is called before).
STEPS = {
    "nothing is there": (Archive, "_put", 0),
    "the index is there": (Archive, "_is_copy", 0),
    "the copy is not written": (Archive, "_put", 1),
    "the copy is not verified": (Archive, "_is_copy", 1),
    "the copy is verified": (module, "delete", 0),
    "the segment is removed, and not its index": (Path, "unlink", 1),
    "the second segment": (Archive, "_copy", 1),
}


def kill_before(patch, where, name, after):
    original, calls = getattr(where, name), []

    def counted(*arguments, **options):
        calls.append(1)
        if len(calls) > after:
            raise KilledError
        return original(*arguments, **options)

    patch.setattr(where, name, counted)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_every_step_of_a_move_loses_nothing(path, any_uri, step):
    uri = any_uri
    write(path, 3)
    archive = Archive(path, uri)
    archive.join(module.Access())
    with pytest.MonkeyPatch.context() as patch:
        kill_before(patch, *STEPS[step])
        with pytest.raises(KilledError):
            archive.move()
    assert bodies(path) == BODIES
    copied = len(names_of(place_of(uri)))
    assert not copied or bodies(uri) == BODIES[:copied]
    with CaptureWriter(path, archive=uri):  # the next process
        pass
    assert bodies(path) == bodies(uri) == BODIES
    assert [each.name for each in path.iterdir() if each.suffix == ".stomp"] == [names_of(path)[-1][2].name]


def _until(found):
    limit = time.monotonic() + patience(30)
    while not found():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_segments_move_while_more_is_written_and_are_read_by_their_old_paths(path, uri):
    with CaptureWriter(path, segment_octets=1, archive=uri) as writer:
        cursor = Capture(path).cursor()
        for number in range(3):
            writer.append((ONE, TWO)[number % 2], TIME)
            writer.sync()
        planned = Capture(path).segments()
        _until(lambda: here(path) == [2 * len(ONE)])
        assert writer.retain(TIME * 2, seconds=0, octets=0) == 0
        for each, data in zip(planned, [ONE, TWO, ONE]):
            with open_place(each.path) as stream:
                assert (stream.read(), size_of(each.path)) == (data, len(data))
        assert [piece.data for piece in cursor.pieces()] == [ONE, TWO, ONE]
        assert [each.base for each in Capture(path).segments(after={"frames": 2 * len(ONE)})] == here(path)
    assert bodies(path) == bodies(uri) == BODIES


def test_another_node_goes_on_behind_the_archive(path, tmp_path, uri):
    write(path, 2, uri)
    write(tmp_path / "b.stompcap", 1, uri)
    assert bodies(tmp_path / "b.stompcap") == bodies(uri) == [b"one", b"two", b"one"]


def test_a_segment_of_another_recorder_is_not_overwritten(path, tmp_path, uri, caplog):
    write(path, 2)
    write(tmp_path / "b.stompcap", 1, uri, start=TIME + 1)
    Archive(path, uri).move()
    assert "is a segment of another recorder: give each an archive of its own" in caplog.text
    assert here(path) == [0, len(ONE)]
    assert bodies(uri) == [b"one"]


def test_damage_is_not_moved(path, uri, caplog):
    write(path, 2)
    path_of = Capture(path).segments()[0].path
    path_of.write_bytes(ONE.replace(b"one", b"0ne"))
    Archive(path, uri).move()
    assert "does not match its index" in caplog.text
    assert path_of.exists()


@pytest.mark.parametrize("copy", [ONE[:-1], TWO])
def test_a_damaged_copy_is_made_again(path, tmp_path, store, uri, copy):
    write(path, 2)
    folder, segment = f"{tmp_path.name}/a.stompcap", Capture(path).segments()[0].path
    store.put(f"{folder}/{segment.stem}.idx", segment.with_suffix(".idx").read_bytes())
    store.put(f"{folder}/{segment.name}", copy)
    Archive(path, uri).move()
    assert (bodies(uri), here(path)) == ([b"one"], [len(ONE)])


def test_an_archive_that_is_away_is_told_once_and_stops_nothing(path, store, uri, caplog, monkeypatch):
    monkeypatch.setattr(module, "_AGAIN", 0.01)
    tries = []

    def fail(self, path, base):
        tries.append(path)
        raise OSError("AWS Error NETWORK_CONNECTION")

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "_copy", fail)
        with CaptureWriter(path, segment_octets=1, archive=uri) as writer:
            for number in range(3):
                writer.append((ONE, TWO)[number % 2], TIME)
                writer.sync()
            _until(lambda: len(tries) > 5)
            assert len(here(path)) == 3
    assert [each.message for each in caplog.records if "NETWORK_CONNECTION" in each.message] == [
        f"{tries[0]} stays here, and is tried again: not moved to the archive: AWS Error NETWORK_CONNECTION"
    ]
    write(path, 0, uri)
    assert bodies(uri) == bodies(path) == BODIES


@pytest.mark.parametrize(
    ("archive", "problem"),
    [
        ("/disk/a.stompcap", "cannot be an archive: use a URI, such as s3://bucket/feed.stompcap"),
        ("s3://key:s3cr3t@bucket/a", r"s3://\*\*\*: secrets belong into the environment"),
        *((f"s3://bucket/a?x=1&{name}=s3cr3t", r"s3://\*\*\*: secrets") for name in ("secret_key", "ssekey", "Sig")),
        ("s3://bucket/a?token=s3cr3t", r"s3://\*\*\*: secrets belong into the environment"),
        ("none://bucket/a", "none://bucket: Unrecognized filesystem type"),
    ],
)
def test_an_archive_that_cannot_be(path, archive, problem):
    with pytest.raises(StoreError, match=problem) as refused:
        CaptureWriter(path, archive=archive)
    assert "s3cr3t" not in str(refused.value)


def test_the_value_of_a_parameter_is_no_secret():
    uri = "s3://bucket/a?endpoint_override=http://monkey.example:9000&region=x"
    assert str(place_of(uri) / "b") == "s3://bucket/a/b?endpoint_override=http:%2F%2Fmonkey.example:9000&region=x"
    assert place_of("s3://bucket/a/") == place_of("S3N://bucket/a")
    assert place_of("hdfs://ann@node:8020/a/b").parent == place_of("hdfs://ann@node:8020/a")


def test_a_folder_has_one_archive_and_a_single_file_none(path, tmp_path, store, uri):
    write(path, 1, uri)
    with pytest.raises(StoreError, match=r"its archive is s3://.*: name that one, or write another capture"):
        CaptureWriter(path, archive=store.uri("other"))
    with pytest.raises(StoreError, match="a single file has no segments to move"):
        CaptureWriter(tmp_path / "single", single=True, archive=uri)


def test_without_pyarrow_the_error_names_the_extra(path, uri, monkeypatch):
    write(path, 2)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'stompcodec\[spark\]'"):
        CaptureWriter(path, archive=uri)
