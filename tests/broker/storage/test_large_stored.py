"""Large messages on the disk: what outlives the broker, what is cleaned up, and faults of the disk."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from broker.harness import FaultyStore
from broker.large import QUEUE, assert_empty, bench_of, files, pattern, settle, stored_bench

from stompcodec.broker.errors import Refused
from stompcodec.broker.storage import folder_lock as folder_module
from stompcodec.broker.storage import large as spool_module
from stompcodec.broker.storage.body_files import Body, BodyFolder
from stompcodec.broker.storage.large import Spool
from stompcodec.broker.storage.sqlite_writer import Writer

# ---- persistent ----


@pytest.mark.req("ART-LRG-01")
def test_a_persistent_one_outlives_a_crash(tmp_path: Path) -> None:
    """The folder as it is when RECEIPT has come, copied away from under the broker."""
    folder, image = tmp_path / "data", tmp_path / "image"
    bench = stored_bench(folder)
    sender = bench.peer()
    for number in range(3):
        sender.put(QUEUE, pattern(200_000 + number), persistent="true", receipt=f"{number}", color="red")
    settle(bench)
    sender.put(QUEUE, pattern(200_000))
    sender.raw(sender.octets_of("SEND", pattern(90_000), destination=QUEUE, persistent="true")[:50_000])
    assert len(sender.take()) == 3
    shutil.copytree(folder, image)
    sender.lose()
    bench.store.close()

    again = stored_bench(image)
    assert len(list((image / "bodies").iterdir())) == 3
    assert files(again) == 3, "what was not stored is gone"
    consumer = again.peer()
    consumer.subscribe(QUEUE, ack="client-individual")
    messages = consumer.take()
    assert [message.body for message in messages] == [pattern(200_000 + number) for number in range(3)]
    assert {(message.headers["color"], message.headers["redelivered"]) for message in messages} == {("red", "true")}
    for message in messages:
        consumer.ack(message, receipt="a")
    settle(again)
    assert len(consumer.take()) == 3
    assert list((image / "bodies").iterdir()) == []
    assert_empty(again)
    again.store.close()


def test_it_is_not_written_twice(tmp_path: Path) -> None:
    bench = stored_bench(tmp_path)
    bench.peer().put(QUEUE, pattern(200_000), persistent="true", receipt="r")
    settle(bench)
    (adopted,), (incoming,) = list((tmp_path / "bodies").iterdir()), list((tmp_path / "incoming").iterdir())
    assert adopted.samefile(incoming)
    bench.store.close()


def test_it_is_on_the_disk_before_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its octets, then its name, then the row that speaks of it."""
    bench = stored_bench(tmp_path)
    synced: list[str] = []
    fsync, commit = os.fsync, Writer.commit

    def noted(file: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(file).st_mode) else f"{os.fstat(file).st_size} octets"
        synced.append(kind)
        fsync(file)

    def committed(writer: Writer, batch: Any) -> Any:
        synced.append("commit")
        return commit(writer, batch)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Writer, "commit", committed)
    bench.peer().put(QUEUE, pattern(200_000), persistent="true", receipt="r")
    settle(bench)
    assert synced == ["200000 octets", "folder", "commit"]
    bench.store.close()


def test_on_another_disk_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    bench = stored_bench(tmp_path, large_folder=str(tmp_path / "elsewhere"))
    sender = bench.peer()
    sender.put(QUEUE, pattern(200_000), persistent="true", receipt="r")
    settle(bench)
    assert sender.next("RECEIPT")
    bench.store.close()
    again = stored_bench(tmp_path)
    consumer = again.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [pattern(200_000)]
    again.store.close()


def test_a_stored_one_that_becomes_a_dead_letter_after_a_restart(tmp_path: Path) -> None:
    """Its file changes hands: that of the queue goes, that of the dead letters stays."""
    bench = stored_bench(tmp_path)
    bench.peer().put(QUEUE, pattern(200_000), persistent="true")
    settle(bench)
    bench.store.close()
    bench = stored_bench(tmp_path, max_attempts=1)
    consumer = bench.peer()
    consumer.subscribe(QUEUE, ack="client-individual")
    consumer.nack(consumer.next("MESSAGE"), receipt="n")
    settle(bench)
    assert len(list((tmp_path / "bodies").iterdir())) == 1
    consumer.take()
    consumer.subscribe("/queue/DLQ.a", id="2", ack="client-individual")
    assert consumer.next("MESSAGE").body == pattern(200_000)
    bench.store.close()
    bench = stored_bench(tmp_path)
    consumer = bench.peer()
    consumer.subscribe("/queue/DLQ.a")
    assert consumer.bodies() == [pattern(200_000)]
    settle(bench)
    assert list((tmp_path / "bodies").iterdir()) == []
    bench.store.close()


def test_a_broker_that_is_gone_takes_nothing_from_the_next_one(tmp_path: Path) -> None:
    """In one process: what is left of the old one goes when the garbage collector comes by."""
    bench = stored_bench(tmp_path)
    draft = bench.broker.spool.draft()
    draft.write(b"old")
    left = draft.done()
    bench.peer().put(QUEUE, pattern(200_000), persistent="true")
    settle(bench)
    bench.store.close()
    again = stored_bench(tmp_path)
    del left, draft, bench
    gc.collect()
    consumer = again.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [pattern(200_000)]
    again.store.close()


@pytest.mark.parametrize("harm", ["gone", "torn"])
def test_one_whose_file_is_lost_is_left_out_and_told(tmp_path: Path, harm: str, caplog: Any) -> None:
    bench = stored_bench(tmp_path)
    sender = bench.peer()
    sender.put(QUEUE, pattern(200_000), persistent="true")
    settle(bench)
    sender.put(QUEUE, "small", persistent="true")
    settle(bench)
    bench.store.close()
    (file,) = (tmp_path / "bodies").iterdir()
    file.unlink() if harm == "gone" else os.truncate(file, 100)
    again = stored_bench(tmp_path)
    consumer = again.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [b"small"]
    assert "its file is missing or damaged" in caplog.text
    again.store.close()


def test_a_commit_that_fails_leaves_nothing() -> None:
    store = FaultyStore()
    store.faulty = True
    bench = bench_of(store)
    sender = bench.peer()
    sender.put(QUEUE, pattern(5000), persistent="true", receipt="r")
    settle(bench)
    assert sender.error().headers["receipt-id"] == "r"
    assert_empty(bench)


def test_a_file_that_cannot_be_adopted_fails_the_commit(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    bench = stored_bench(tmp_path)
    sender = bench.peer()

    def full(*_paths: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("stompcodec.broker.storage.body_files.link", full)
        sender.put(QUEUE, pattern(5000), persistent="true", receipt="r")
        settle(bench)
    assert sender.error().headers["message"] == "the message could not be stored"
    assert list((tmp_path / "bodies").iterdir()) == []
    caplog.clear()  # it holds the error, which holds what it was about
    assert_empty(bench)
    sender = bench.peer()
    sender.put(QUEUE, pattern(5000), persistent="true", receipt="r")
    settle(bench)
    assert sender.next("RECEIPT")
    bench.store.close()


def test_a_transaction_with_a_persistent_one(tmp_path: Path) -> None:
    bench = stored_bench(tmp_path)
    sender = bench.peer()
    sender.send("BEGIN", transaction="t")
    sender.put(QUEUE, pattern(5000), transaction="t", persistent="true")
    settle(bench)
    sender.put(QUEUE, "small", transaction="t", persistent="true")
    settle(bench)
    sender.send("COMMIT", transaction="t", receipt="r")
    settle(bench)
    assert sender.next("RECEIPT")
    bench.store.close()
    again = stored_bench(tmp_path)
    consumer = again.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [pattern(5000), b"small"]
    again.store.close()


# ---- the spool ----


def test_what_an_earlier_run_has_left_goes(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "0123456789abcdef-7").write_bytes(b"x" * 100)
    bench = stored_bench(tmp_path)
    assert list((tmp_path / "incoming").iterdir()) == []
    bench.store.close()


def test_folders_of_brokers_that_were_killed_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, stranger = tmp_path / "stompcodec-large-dead", tmp_path / "stompcodec-large-other"
    dead.mkdir()
    stranger.mkdir()
    (dead / "lock").write_text("4711\n")
    (dead / "0123456789abcdef-1").write_bytes(b"x")
    early = tmp_path / "stompcodec-large-early"  # killed before it has written its number
    early.mkdir()
    (early / "lock").touch()
    os.utime(early / "lock", (0, 0))
    spools = [Spool(None, 100) for _ in range(2)]
    bodies = []
    for spool in spools:
        draft = spool.draft()
        draft.write(b"hello")
        bodies.append(draft.done())
        spool.flush()
    assert not dead.exists()
    assert not early.exists()
    assert stranger.exists(), "it holds no lock, so it is no folder of ours"
    assert [body.path.read_bytes() for body in bodies] == [b"hello"] * 2, "that of a living broker stays"
    for spool in spools:
        spool.close()
    assert [path.name for path in tmp_path.iterdir()] == [stranger.name]


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
def test_a_broker_that_takes_its_folder_is_not_dead(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker looks for folders of dead ones after a lock was made, and before it is held."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock = folder_module.lock

    def late(file: int) -> None:
        refused = []

        def sweep(*_: object) -> None:
            if moment == "meanwhile":
                try:
                    lock(file)
                except OSError as error:
                    refused.append(error)

        with monkeypatch.context() as patch:
            patch.setattr(folder_module, "lock", lock)
            patch.setattr(BodyFolder, "sweep", sweep)
            spool_module._remove_abandoned()
        for error in refused:
            raise error
        lock(file)

    spool = Spool(None, 100)
    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "lock", late)
        draft = spool.draft()
    draft.write(b"hello")
    body = draft.done()
    assert body.path.read_bytes() == b"hello"
    assert (body.path.parent / "lock").exists()
    del body
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_is_dropped_gives_its_room_back() -> None:
    spool = Spool(None, 10)
    draft = spool.draft()
    draft.write(b"x" * 10)
    with pytest.raises(Refused, match="no room"):
        draft.write(b"y")
    draft.drop()
    assert spool.octets == 0
    spool.close()


def test_a_body_shows_nothing_of_itself(tmp_path: Path) -> None:
    assert repr(Body(tmp_path, 7, 0)) == "<Body of 7 bytes>"


def test_the_folder_of_a_broker_is_for_its_user_alone() -> None:
    spool = Spool(None, 10)
    spool.draft().drop()
    assert spool._folder is not None
    assert spool._folder.path.stat().st_mode & 0o077 == 0
    spool.close()
