"""Large messages: bodies that are files from the first octet to the last, in and out, and on the disk.

What a message can go through besides is in `test_marks.py`, where one of three is large.
"""

import gc
import os
import stat
import tempfile

import pytest
from broker.large import QUEUE, Slow, assert_empty, bench_of, files, pattern, settle, stored_bench

from stompcodec.broker.auth import Rule
from stompcodec.broker.config import Config
from stompcodec.broker.storage import folder as folder_module
from stompcodec.broker.storage import large as spool_module
from stompcodec.broker.storage.large import BodyFolder, Spool
from stompcodec.broker.storage.sqlite_writer import Writer

# ---- in and out ----


def test_a_message_is_seen_only_when_all_of_it_is_there():
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(QUEUE)
    octets = sender.octets_of("SEND", pattern(5000), destination=QUEUE, receipt="r")
    sender.raw(octets[:-1])
    assert (consumer.take(), sender.take(), files(bench)) == ([], [], 1)
    sender.raw(octets[-1:])
    assert len(consumer.take()) == 1 == len(sender.take())


def test_the_limit_of_bodies_holds():
    limits = Config().limits._replace(max_body=5000)
    bench = bench_of(limits=limits)
    for octets in (b"content-length:5001\n\n", b"\n" + b"x" * 5001):
        sender = bench.peer()
        sender.raw(b"SEND\ndestination:/queue/a\n" + octets)
        assert "malformed frame (limit" in sender.error().headers["message"]
    assert_empty(bench)


def test_there_is_room_for_so_much_only():
    bench = bench_of(max_large_octets=5000)
    sender, other = bench.peer(), bench.peer()
    sender.put(QUEUE, b"x" * 3000, receipt="1")
    assert sender.next("RECEIPT").headers["receipt-id"] == "1"
    sender.put(QUEUE, b"x" * 3000, receipt="2")
    error = sender.error()
    assert error.headers["message"] == "no room for large messages"
    assert error.headers["receipt-id"] == "2"
    other.subscribe(QUEUE)
    assert other.bodies() == [b"x" * 3000]
    other.put(QUEUE, b"y" * 5000)
    assert other.bodies() == [b"y" * 5000]
    assert_empty(bench)


def test_a_disk_that_fails_is_told():
    bench = bench_of(large_folder="/dev/null/nowhere")
    sender = bench.peer()
    sender.put(QUEUE, b"x" * 3000, receipt="2")
    error = sender.error()
    assert error.headers["message"] == "the large message could not be kept"
    assert error.headers["receipt-id"] == "2"


def test_who_may_not_send_there_is_refused_before_the_body_comes():
    bench = bench_of(rules=(Rule(who="*", action="subscribe"),))
    sender = bench.peer()
    sender.raw(sender.octets_of("SEND", pattern(5000), destination=QUEUE)[:2000])
    assert sender.error().headers["message"] == "not allowed to send there"
    assert_empty(bench)


# ---- on the way to a slow consumer ----


def slow_bench(ack="auto", **config):
    bench = bench_of(**config)
    consumer = Slow(bench)
    consumer.connect()
    consumer.drain()
    consumer.subscribe(QUEUE, ack=ack)
    consumer.drain()
    return bench, bench.peer(), consumer


def test_answers_that_pile_up_behind_it_stop_the_reading():
    _bench, sender, slow = slow_bench()
    sender.put(QUEUE, pattern(1_000_000))
    for _ in range(40):
        slow.raw(b"BEGIN\ntransaction:t\nreceipt:%b\n\n\0ABORT\ntransaction:t\n\n\0" % (b"r" * 30_000))
    assert slow.session.paused
    for _ in range(30):
        slow.drain()
    assert not slow.session.paused
    assert len(slow.take()) == 41


def test_an_error_in_the_middle_of_it_cuts_the_session_off():
    """There is no place for an ERROR inside of a body."""
    bench, sender, slow = slow_bench(ack="client-individual")
    sender.put(QUEUE, pattern(1_000_000))
    octets = slow.octets
    slow.send("ACK", id="77-77")
    assert slow.closed
    assert slow.octets == octets
    assert bench.broker.queues["/", QUEUE].count == 1


def test_goodbye_waits_for_it():
    bench, sender, slow = slow_bench()
    body = pattern(1_000_000)
    sender.put(QUEUE, body)
    slow.send("DISCONNECT", receipt="bye")
    assert not slow.closed
    for _ in range(10):
        bench.wait(9.0)  # longer than a peer may stand still, in all
        slow.drain()
    assert slow.next("MESSAGE").body == body
    assert slow.next("RECEIPT").headers["receipt-id"] == "bye"
    assert slow.closed


def test_goodbye_of_a_peer_that_takes_nothing_is_not_waited_for():
    bench, sender, slow = slow_bench()
    sender.put(QUEUE, pattern(1_000_000))
    slow.send("DISCONNECT", receipt="bye")
    bench.wait(25.0)
    assert slow.closed
    assert_empty(bench)


def test_over_websocket_a_chunk_is_a_frame_or_a_part_of_one():
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer(whole_frames=True)
    consumer.whole_frames = False  # they may be parts here
    consumer.subscribe(QUEUE)
    consumer.chunks.clear()
    sender.put(QUEUE, pattern(900_000))
    assert len(consumer.chunks) == 1
    assert type(consumer.chunks[0]) is bytes, "a message of its own, as small ones are"
    sender.put(QUEUE, pattern(1_500_000))
    kinds = [type(chunk).__name__ for chunk in consumer.chunks[1:]]
    assert kinds == ["Part"] * (len(kinds) - 1) + ["bytes"]
    assert len(kinds) > 3
    assert consumer.bodies() == [pattern(900_000), pattern(1_500_000)]
    assert_empty(bench)


# ---- with other features ----


def test_looked_at_by_a_browser_and_then_taken():
    bench = bench_of()
    sender, reader = bench.peer(), bench.peer()
    for content in (pattern(5000), b"small", pattern(6000)):
        sender.put(QUEUE, content)
    reader.subscribe(QUEUE, browser="true")
    bodies = [frame.body for frame in reader.take()]
    assert bodies == [pattern(5000), b"small", pattern(6000), b""]
    assert files(bench) == 2
    reader.subscribe(QUEUE, id="2")
    assert reader.bodies() == bodies[:3]
    assert_empty(bench)


def test_a_window_in_octets_counts_the_body():
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer()
    for _ in range(3):
        sender.put(QUEUE, pattern(5000))
    consumer.subscribe(QUEUE, ack="client-individual", consumer_window_size="6000")
    first, second = consumer.take()
    consumer.ack(first)
    assert len(consumer.take()) == 1
    consumer.ack(second)


# ---- persistent ----


def test_it_is_on_the_disk_before_the_commit(tmp_path, monkeypatch):
    """Its octets, then its name, then the row that speaks of it."""
    bench = stored_bench(tmp_path)
    synced = []
    fsync, commit = os.fsync, Writer.commit

    def noted(file):
        kind = "folder" if stat.S_ISDIR(os.fstat(file).st_mode) else f"{os.fstat(file).st_size} octets"
        synced.append(kind)
        fsync(file)

    def committed(writer, batch):
        synced.append("commit")
        return commit(writer, batch)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Writer, "commit", committed)
    bench.peer().put(QUEUE, pattern(200_000), persistent="true", receipt="r")
    settle(bench)
    assert synced == ["200000 octets", "folder", "commit"]
    (adopted,), (incoming,) = list((tmp_path / "bodies").iterdir()), list((tmp_path / "incoming").iterdir())
    assert adopted.samefile(incoming), "it is not written twice"
    bench.store.close()


def test_on_another_disk_it_is_copied(tmp_path, monkeypatch):
    def refuse(*_paths):
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


def test_a_broker_that_is_gone_takes_nothing_from_the_next_one(tmp_path):
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
def test_one_whose_file_is_lost_is_left_out_and_told(tmp_path, harm, caplog):
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


def test_a_file_that_cannot_be_adopted_fails_the_commit(tmp_path, monkeypatch, caplog):
    bench = stored_bench(tmp_path)
    sender = bench.peer()

    def full(*_paths):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("stompcodec.broker.storage.large.link", full)
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


# ---- the spool ----


def test_folders_of_brokers_that_were_killed_go(tmp_path, monkeypatch):
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
def test_a_broker_that_takes_its_folder_is_not_dead(moment, tmp_path, monkeypatch):
    """Another broker looks for folders of dead ones after a lock was made, and before it is held."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock = folder_module.lock

    def late(file):
        refused = []

        def sweep(*_):
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
