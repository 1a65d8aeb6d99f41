"""Folders of the broker: nothing of somebody else is removed, written to, or taken for ours."""

import os
import sqlite3
from contextlib import closing

import pytest
from broker.folders import OURS, put_file, start, stop, tree, use
from broker.harness import Bench
from broker.large import pattern
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec.broker.storage.folder import MARKER, FolderLock
from stompcodec.broker.storage.large import BodyFolder
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.errors import StoreError

# ---- folders that are not marked ----


def put_link(path):
    target = path.parents[2] / "elsewhere"
    target.write_bytes(b"mine")
    path.symlink_to(target)


def put_folder(path):
    path.mkdir()
    put_file(path / OURS)


def put_pipe(path):
    os.mkfifo(path)


FOREIGN = [
    ("orders.csv", put_file),
    (OURS.upper(), put_file),
    (OURS + ".csv", put_file),
    (".hidden", put_file),
    (OURS, put_link),
    (OURS, put_folder),
    (OURS, put_pipe),
]


@pytest.mark.parametrize(("name", "put"), FOREIGN)
@pytest.mark.parametrize("part", ["bodies", "incoming", "large"])
def test_a_folder_with_files_of_others_is_refused(part, name, put, tmp_path):
    """Nothing is written, and the message says what is in the way and what to do."""
    folder = tmp_path / "data" / part
    folder.mkdir(parents=True)
    put(folder / name)
    before = tree(tmp_path)
    with pytest.raises(StoreError) as caught:
        Bench(large_folder=str(folder)) if part == "large" else start(tmp_path / "data")
    assert tree(tmp_path) == before
    text = str(caught.value)
    assert (f"{part}/{name}" if part != "large" else name) in text
    assert "name another folder for " in text
    assert ("messages.large_folder" if part == "large" else "store.data (--data)") in text


@pytest.mark.parametrize("content", [None, "lost+found", "broker.toml", "bodies", "incoming/lost+found"])
def test_a_folder_without_any_is_taken(content, tmp_path):
    """An empty one, the root of a disk, one with the configuration beside the data."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    if content == "broker.toml":
        (folder / content).write_text("")
    elif content is not None:
        (folder / content).mkdir(parents=True)
    before = tree(folder)
    use(folder)
    use(folder)
    assert before.items() <= tree(folder).items()
    assert (folder / "stompcodec-folder").read_bytes() == b"stompcodec data 1\n"


@pytest.mark.parametrize("content", ["lost+found", OURS, "nothing"])
def test_a_folder_for_large_messages_is_taken(content, tmp_path):
    """Bodies that a killed broker has left are removed."""
    folder = tmp_path / "deep" / "large"
    if content != "nothing":
        folder.mkdir(parents=True)
        put_file(folder / content) if content == OURS else (folder / content).mkdir()
    for _ in range(2):
        bench = Bench(large_folder=str(folder), large=1000)
        bench.peer().put("/queue/a", pattern(5000))
        assert not (folder / OURS).exists()
        stop(bench)
        left = {path.name for path in folder.iterdir()}
        assert left == {"lock", "stompcodec-folder"} | ({content} & {"lost+found"})


def link(data, name):
    target = data.parent / "target"
    target.mkdir()
    put_file(target / OURS)
    (data / name).symlink_to(target, target_is_directory=True)


def database(data, application):
    with closing(sqlite3.connect(data / "messages.sqlite")) as other:
        other.execute("CREATE TABLE a (b)")
        other.execute(f"PRAGMA application_id = {application}")


def database_elsewhere(data):
    use(data.parent / "other")
    (data / "messages.sqlite").symlink_to(data.parent / "other" / "messages.sqlite")


LOCK, STORE, FOLDER = "'lock' does not belong to this broker", "is not a stompcodec store", "name another folder"
#: What somebody has done to a data folder, and what the broker says to it.
DEEDS = {
    "lock": (lambda data: (data / "lock").write_text("the key to the cellar\n"), LOCK),
    "lock is a link": (lambda data: link(data, "lock"), LOCK),
    "lock is a folder": (lambda data: (data / "lock").mkdir(), LOCK),
    "database": (lambda data: database(data, 7), STORE),
    "database without an application": (lambda data: database(data, 0), STORE),
    "no database": (lambda data: (data / "messages.sqlite").write_bytes(b"no database at all" * 1000), "backup"),
    "locked database": (lambda data: (database(data, 7), FolderLock(data).release()), STORE),
    "database is a link": (database_elsewhere, r"'messages\.sqlite' does not belong to this broker"),
    "marker": (lambda data: (data / MARKER).write_bytes(b"my notes\n"), "is not a marker of stompcodec"),
    "marker is a link": (lambda data: link(data, MARKER), "is not a marker of stompcodec"),
    "newer marker": (lambda data: (data / MARKER).write_bytes(b"stompcodec data 2\n"), "newer version"),
    "other marker": (lambda data: (data / MARKER).write_bytes(b"stompcodec other 1\n"), "not the data folder"),
    "bodies is a link": (lambda data: link(data, "bodies"), FOLDER),
    "incoming is a link": (lambda data: link(data, "incoming"), FOLDER),
    "used, bodies is a link": (lambda data: (use(data), (data / "bodies").rmdir(), link(data, "bodies")), FOLDER),
    "used, incoming is a link": (lambda data: (use(data), (data / "incoming").rmdir(), link(data, "incoming")), FOLDER),
}


@pytest.mark.parametrize(("deed", "why"), DEEDS.values(), ids=DEEDS)
def test_what_is_not_ours_is_refused_and_stays_as_it_is(deed, why, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    deed(data)
    before = tree(tmp_path)
    with pytest.raises(StoreError, match=why):
        start(data)
    if (data / MARKER).exists() or (data / MARKER).is_symlink():
        with pytest.raises(StoreError):
            Bench(large_folder=str(data))
    made = {"data/lock", "data/bodies"} if why == "backup" else set()  # only SQLite can say that
    assert {name: value for name, value in tree(tmp_path).items() if name not in made} == before


# ---- folders that are marked ----


@pytest.mark.parametrize(("name", "put"), FOREIGN)
@pytest.mark.parametrize("part", ["bodies", "incoming", "large"])
def test_what_others_put_into_our_folders_stays(part, name, put, tmp_path):
    data, large = tmp_path / "data", tmp_path / "data" / "large"
    config = {"large_folder": str(large)} if part == "large" else {}
    stop(start(data, **config))
    folder = data / part
    folder.mkdir(exist_ok=True)
    put(folder / name)
    put_file(folder / "fedcba9876543210-1")
    before = tree(tmp_path)
    for _ in range(2):
        bench = start(data, **config)
        peer = bench.peer()
        peer.put("/queue/a", pattern(5000))
        peer.lose()
        stop(bench)
    del before[f"data/{part}/fedcba9876543210-1"]
    after = tree(tmp_path)
    for name, value in before.items():
        assert after.get(name) == value or "sqlite" in name or "lock" in name
    assert f"data/{part}/fedcba9876543210-1" not in after


names = st.text("0123456789abcdefABCDEFg-_. ٣", min_size=1, max_size=24) | st.from_regex(
    "[0-9a-f]{14,18}-[0-9]{0,21}", fullmatch=True
)


@given(name=names.filter(lambda name: name not in (".", "..")))
@example(name="0123456789abcdef-")
@example(name="0123456789abcdef-1\n")
@example(name="0123456789abcdef--1")
def test_only_our_own_names_are_removed(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("bodies")
    put_file(path / name)
    folder = BodyFolder(path)
    head, _, tail = name.partition("-")
    ours = len(head) == 16 and set(head) <= set("0123456789abcdef") and 0 < len(tail) < 20
    ours = ours and set(tail) <= set("0123456789")
    assert folder.sweep({name}) == 0
    assert folder.sweep(()) == ours
    assert (path / name).exists() is not ours
    folder.close()


def test_a_folder_that_becomes_a_link_while_the_broker_runs(tmp_path):
    """What is removed then is what lies in the folder that was opened."""
    data, target = tmp_path / "data", tmp_path / "target"
    bench = start(data)
    peer = bench.peer()
    peer.put("/queue/a", pattern(5000))
    (name,) = os.listdir(data / "incoming")
    os.rename(data / "incoming", data / "moved")
    target.mkdir()
    put_file(target / name)
    (data / "incoming").symlink_to(target, target_is_directory=True)
    peer.lose()
    stop(bench)
    assert os.listdir(target) == [name]
    assert os.listdir(data / "moved") == []


def test_the_folder_that_was_named_may_be_a_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real, target_is_directory=True)
    use(link)
    (tmp_path / "large").mkdir()
    (tmp_path / "to").symlink_to(tmp_path / "large", target_is_directory=True)
    stop(start(link, large_folder=str(tmp_path / "to")))
    stop(start(link, large_folder=str(link / "incoming")))


# ---- whose is it ----


def test_a_folder_of_one_kind_is_not_taken_for_another(tmp_path):
    data, large = tmp_path / "data", tmp_path / "large"
    stop(start(data, large_folder=str(large)))
    put_file(data / "bodies" / OURS)
    before = tree(tmp_path)
    for folder in (data, data / "bodies", data / "incoming"):
        with pytest.raises(StoreError, match="name another folder"):
            Bench(large_folder=str(folder))
    with pytest.raises(StoreError, match="is the folder of large messages of a broker, and not the data folder"):
        SqliteStore(large)
    assert tree(tmp_path) == before


def test_two_brokers_do_not_share_a_folder_of_large_messages(tmp_path):
    first = Bench(large_folder=str(tmp_path / "large"), large=1000)
    first.peer().put("/queue/a", pattern(5000))
    before = tree(tmp_path)
    with pytest.raises(StoreError, match=r"is in use by process [0-9]+ \(stop that broker, or name another folder\)"):
        Bench(large_folder=str(tmp_path / "large"))
    assert tree(tmp_path) == before
    stop(first)
    stop(Bench(large_folder=str(tmp_path / "large")))


@pytest.mark.parametrize(
    "marker", [b"", b"stompcodec da", b"stompcodec data 1", b"\0" * 18, b"stomp\0\0"], ids=lambda marker: repr(marker)
)
def test_a_marker_that_was_being_written(marker, tmp_path):
    (tmp_path / "stompcodec-folder").write_bytes(marker)
    use(tmp_path)
    assert (tmp_path / "stompcodec-folder").read_bytes() == b"stompcodec data 1\n"


def test_each_guard_holds_by_itself(tmp_path):
    """Names are looked at when files are listed, and again when one is removed; a link is not opened."""
    folder = BodyFolder(tmp_path / "bodies")
    for name in ("orders.csv", OURS):
        put_file(tmp_path / "bodies" / name)
    assert folder.names() == [OURS]
    assert not folder.remove("orders.csv")
    assert not folder.remove("../bodies/orders.csv")
    assert folder.remove(OURS)
    assert os.listdir(tmp_path / "bodies") == ["orders.csv"]
    folder.close()
    (tmp_path / "link").symlink_to(tmp_path / "bodies", target_is_directory=True)
    with pytest.raises(StoreError, match="is a symbolic link"):
        BodyFolder(tmp_path / "link")
