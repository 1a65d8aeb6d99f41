"""Large messages: bodies that are files from the first octet to the last, in and out, on the disk, and gone again."""

import errno
import gc
import os
import sys
import tempfile
import threading
from contextlib import contextmanager

import pytest
from broker.moves import (
    QUEUE,
    Slow,
    assert_empty,
    bench_of,
    files,
    left,
    messages,
    pattern,
    refusal,
    settle,
    stored_bench,
    taker,
)
from broker.storage.storing import synced
from patience import patience

from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import Config
from stompcodec.broker.storage import folder as folder_module
from stompcodec.broker.storage import large as spool_module
from stompcodec.broker.storage.folder import Remover
from stompcodec.broker.storage.large import BodyFolder, Spool
from stompcodec.broker.values import Refused

LENGTH = 5000


def begin(peer, octets=2000, **headers):
    frame = peer.octets_of("SEND", pattern(LENGTH), destination=QUEUE, **headers)
    at = frame.index(b"\n\n") + 2 + octets
    peer.raw(frame[:at])
    return frame[at:]


def none_left(monkeypatch, function, number, says, when=lambda *args: True):
    real = getattr(os, function)

    def failing(*args, **options):
        if when(*args):
            raise OSError(number, says)
        return real(*args, **options)

    monkeypatch.setattr(os, function, failing)


# ---- in and out ----
def test_a_message_is_seen_only_when_all_of_it_is_there():
    bench = bench_of()
    sender, consumer = bench.peer(), taker(bench)
    octets = sender.octets_of("SEND", pattern(5000), destination=QUEUE, receipt="r")
    sender.raw(octets[:-1])
    assert (consumer.take(), sender.take(), files(bench)) == ([], [], 1)
    sender.raw(octets[-1:])
    assert len(consumer.take()) == 1 == len(sender.take())


def test_the_limit_of_bodies_holds():
    bench = bench_of(limits=Config().limits._replace(max_body=5000))
    for octets in (b"content-length:5001\n\n", b"\n" + b"x" * 5001):
        sender = bench.peer()
        sender.raw(b"SEND\ndestination:/queue/a\n" + octets)
        assert "malformed frame (limit" in refusal(sender)
    assert_empty(bench)


def test_there_is_room_for_so_much_only():
    bench = bench_of(max_large_octets=5000)
    sender, other = bench.peer(), bench.peer()
    sender.put(QUEUE, b"x" * 3000, receipt="1")
    assert sender.next("RECEIPT").headers["receipt-id"] == "1"
    sender.put(QUEUE, b"x" * 3000, receipt="2")
    error = sender.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("no room for large messages", "2")
    other.subscribe(QUEUE)
    assert other.bodies() == [b"x" * 3000]
    other.put(QUEUE, b"y" * 5000)
    assert other.bodies() == [b"y" * 5000]
    assert_empty(bench)


def test_a_disk_that_fails_is_told(monkeypatch, tmp_path):
    sender = bench_of(large_folder="/dev/null/nowhere").peer()
    sender.put(QUEUE, b"x" * 3000, receipt="2")
    error = sender.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("the large message could not be kept", "2")
    bench = bench_of(large_folder=str(tmp_path))
    none_left(monkeypatch, "open", errno.EMFILE, "Too many open files", lambda path, flags, *_: flags & os.O_CREAT)
    begin(peer := bench.peer())
    error = peer.error()
    assert error.headers["message"] == "the large message could not be kept"
    assert error.body == b"The broker has no file descriptor left: send it later.\n"
    assert bench.broker.spool.drafts == 0


def test_who_may_not_send_there_is_refused_before_the_body_comes():
    bench = bench_of(rules=(Rule(who="*", action="subscribe"),))
    begin(sender := bench.peer())
    assert refusal(sender) == "not allowed to send there"
    assert_empty(bench)


def test_over_websocket_a_chunk_is_a_frame_or_a_part_of_one():
    bench = bench_of()
    sender, consumer = bench.peer(), bench.peer(whole_frames=True)
    consumer.whole_frames = False  # they may be parts here
    consumer.subscribe(QUEUE)
    consumer.chunks.clear()
    sender.put(QUEUE, pattern(900_000))
    assert [type(chunk) for chunk in consumer.chunks] == [bytes], "a message of its own, as small ones are"
    sender.put(QUEUE, pattern(1_500_000))
    kinds = [type(chunk).__name__ for chunk in consumer.chunks[1:]]
    assert kinds == ["Part"] * (len(kinds) - 1) + ["bytes"]
    assert len(kinds) > 3
    assert consumer.bodies() == [pattern(900_000), pattern(1_500_000)]
    assert_empty(bench)


def test_looked_at_by_a_browser_and_then_taken():
    bench = bench_of()
    sender, reader = bench.peer(), bench.peer()
    bodies = [pattern(5000), b"small", pattern(6000)]
    for body in bodies:
        sender.put(QUEUE, body)
    reader.subscribe(QUEUE, browser="true")
    assert [frame.body for frame in reader.take()] == [*bodies, b""]
    assert files(bench) == 2
    reader.subscribe(QUEUE, id="2")
    assert reader.bodies() == bodies
    assert_empty(bench)


def test_a_window_in_octets_counts_the_body():
    bench = bench_of()
    for _ in range(3):
        bench.peer().put(QUEUE, pattern(5000))
    consumer = taker(bench, ack="client-individual", consumer_window_size="6000")
    first, second = consumer.take()
    consumer.ack(first)
    assert len(consumer.take()) == 1
    consumer.ack(second)


# ---- on the way to a slow consumer ----
def slow_one(bench, destination=QUEUE, version="1.2", ack="auto"):
    slow = Slow(bench, version)
    slow.connect()
    slow.drain()
    slow.subscribe(destination, ack=ack)
    slow.drain()
    return slow


@pytest.fixture
def slow(request):
    """A slow consumer that is in the middle of a large message."""
    bench = bench_of()
    slow = slow_one(bench, ack=getattr(request, "param", "auto"))
    bench.peer().put(QUEUE, pattern(1_000_000))
    return slow


def test_answers_that_pile_up_behind_it_stop_the_reading(slow):
    for _ in range(40):
        slow.raw(b"BEGIN\ntransaction:t\nreceipt:%b\n\n\0ABORT\ntransaction:t\n\n\0" % (b"r" * 30_000))
    assert slow.session.paused
    for _ in range(30):
        slow.drain()
    assert not slow.session.paused
    assert len(slow.take()) == 41


@pytest.mark.parametrize("slow", ["client-individual"], indirect=True)
def test_an_error_in_the_middle_of_it_cuts_the_session_off(slow):
    """There is no place for an ERROR inside of a body."""
    octets = slow.octets
    slow.send("ACK", id="77-77")
    assert (slow.closed, slow.octets == octets) == (True, True)
    assert slow.bench.broker.queues["/", QUEUE].count == 1


def test_goodbye_waits_for_it(slow):
    slow.send("DISCONNECT", receipt="bye")
    assert not slow.closed
    for _ in range(10):
        slow.bench.wait(9.0)  # longer than a peer may stand still, in all
        slow.drain()
    assert slow.next("MESSAGE").body == pattern(1_000_000)
    assert slow.next("RECEIPT").headers["receipt-id"] == "bye"
    assert slow.closed


def test_goodbye_of_a_peer_that_takes_nothing_is_not_waited_for(slow):
    slow.send("DISCONNECT", receipt="bye")
    slow.bench.wait(25.0)
    assert slow.closed
    assert_empty(slow.bench)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_a_download_holds_no_descriptor():
    """Many who read slowly are in the middle of a message, and none of its files is open."""
    bench = bench_of()
    peers = [slow_one(bench, f"/queue/{number}") for number in range(6)]
    for number in range(6):
        bench.peer().put(f"/queue/{number}", pattern(600_000))
    assert all(peer.session.outbox.downloads for peer in peers)
    folder = str(bench.broker.spool._folder.path)
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    opened = [os.readlink(link) for link in links if os.path.lexists(link)]
    assert [path for path in opened if path.startswith(folder + "/") and not path.endswith("/lock")] == []
    for peer in peers:
        while peer.session.outbox.downloads:
            peer.drain()
        assert [frame.body for frame in messages(peer)] == [pattern(600_000)]


@pytest.mark.parametrize("kind", [errno.EMFILE, errno.ENFILE])
def test_a_download_waits_for_a_descriptor(kind, monkeypatch):
    """It is nobody's fault: no session ends, no message becomes a dead letter, and it comes when there is one."""
    bench = bench_of()
    bench.peer().put(QUEUE, pattern(600_000))
    with monkeypatch.context() as patch:
        none_left(patch, "open", kind, "Too many open files")
        peer = taker(bench, ack="client-individual")
        bench.wait(5)
    assert (peer.closed, peer.take()) == (False, [])
    bench.wait(2)
    message = peer.next("MESSAGE")
    assert (message.body, message.get("redelivered")) == (pattern(600_000), None)
    peer.ack(message)
    assert_empty(bench)


@pytest.mark.parametrize(("version", "whole_frames"), [("1.0", False), ("1.1", True), ("1.2", False)])
@pytest.mark.parametrize("octets", [0, 1, 2000, LENGTH])
def test_who_stops_in_the_middle_is_dropped(version, whole_frames, octets):
    """At any octet, also before the last one; the ERROR says so, and its file goes."""
    bench = bench_of(upload_timeout=30.0)
    peer = bench.peer(version, whole_frames=whole_frames)
    bench.wait(100)
    begin(peer, octets, receipt="r")
    bench.wait(29)
    assert (peer.closed, files(bench)) == (False, 1)
    bench.wait(3)
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("the large message has stalled", "r")
    assert b"for 30 s" in error.body
    assert_empty(bench)
    assert bench.broker.spool.drafts == 0
    bench.wait(2)
    assert not bench.broker.uploads


@pytest.mark.parametrize("less", [0, 1])
@pytest.mark.parametrize("whole_frames", [False, True])
def test_who_drips_is_dropped(whole_frames, less):
    """At the rate it goes on for ever, at one byte less in a time-out it ends."""
    bench = bench_of(upload_timeout=10.0, upload_rate=20)
    peer = bench.peer(whole_frames=whole_frames)
    bench.wait(100)
    rest = begin(peer, 0)
    bench.wait(1)  # the broker looks once per second
    for window in range(4):
        for at in range(10):
            octets = 20 - less * (window == 2 and at == 9)
            peer.raw(rest[:octets])
            rest = rest[octets:]
            bench.wait(1)
        assert peer.closed == (less == 1 and window >= 2)
        if peer.closed:
            break
    if not less:
        peer.raw(rest)
        assert left(bench) == [pattern(LENGTH)]
        return
    error = peer.error()
    assert error.headers["message"] == "the large message has stalled"
    assert b"Less than 20 bytes per second came for 10 s" in error.body
    assert_empty(bench)
    assert bench.broker.spool.drafts == 0


USERS = {name: User(name, hash_passcode("x", n=16)) for name in ("ada", "bob")}
HALF, QUARTERS = {"users": USERS}, {}


@pytest.mark.parametrize(
    ("config", "most", "share", "end"),
    [
        *((HALF, 8, 4, "whole"), (HALF, 3, 2, "lost"), (HALF, 1, 1, "refused"), (QUARTERS, 8, 6, "stopped")),
        *((QUARTERS, 3, 3, "whole"), (QUARTERS, 3, 3, "lost"), (QUARTERS, 1, 1, "refused")),
        *(({**HALF, "user_uploads": 3}, 8, 3, "stopped"), ({"user_uploads": 1}, 8, 1, "whole")),
        ({"user_uploads": 9}, 2, 2, "refused"),
    ],
)
def test_a_share_is_left_for_others(config, most, share, end):
    """One user, or address, has its share and no more; others have theirs; what ends in any way counts no more."""
    bench = bench_of(max_uploads=most, upload_timeout=10.0, **config)
    spool, users = bench.broker.spool, "users" in config

    def client(who, number):
        host = f"10.0.{number}.1" if users else f"10.0.0.{'ab'.index(who[0])}"
        return bench.client(address=f"{host}:{1000 + number}", **({"login": who, "passcode": "x"} if users else {}))

    for _ in range(2):
        peers = [client("ada", number) for number in range(share)]
        rests = [begin(peer) for peer in peers]
        assert not any(peer.closed for peer in peers)
        begin(late := client("ada", share))
        error = late.error()
        assert error.headers["message"] == "too many large messages at a time"
        whose = f"At most {share} of a{' user' if users else 'n address'}"
        assert (whose if share < most else f"At most {most} can be received at a time").encode() in error.body
        client("ada", share + 1).put(QUEUE, b"small ones are taken")
        for other in [client("bob", number) for number in range(min(share, most - share))]:
            other.raw(begin(other))
            assert not other.closed
        for peer, rest in zip(peers, rests):
            if end == "whole":
                peer.raw(rest)
                assert not peer.closed
            elif end == "lost":
                peer.lose()
            elif end == "refused":
                peer.raw(rest[:-1] + b"x")
                assert peer.error()
        if end == "stopped":
            bench.wait(12)
            assert all(peer.closed for peer in peers)
        assert (spool.drafts, bool(spool._owners)) == (0, False)


# ---- persistent ----
def store_large(bench, size=200_000, **headers):
    sender = bench.peer()
    sender.put(QUEUE, pattern(size), **{"persistent": "true", "receipt": "r", **headers})
    settle(bench)
    return sender


def test_it_is_on_the_disk_before_the_commit(tmp_path, monkeypatch):
    bench, steps = stored_bench(tmp_path), synced(monkeypatch)
    store_large(bench)
    assert steps == ["200000 octets", "folder", "commit"]
    (adopted,), (incoming,) = list((tmp_path / "bodies").iterdir()), list((tmp_path / "incoming").iterdir())
    assert adopted.samefile(incoming), "it is not written twice"
    bench.store.close()


def test_on_another_disk_it_is_copied(tmp_path, monkeypatch):
    none_left(monkeypatch, "link", errno.EXDEV, "Invalid cross-device link")
    bench = stored_bench(tmp_path, large_folder=str(tmp_path / "elsewhere"))
    assert store_large(bench).next("RECEIPT")
    bench.store.close()
    again = stored_bench(tmp_path)
    assert left(again) == [pattern(200_000)]
    again.store.close()


def test_a_broker_that_is_gone_takes_nothing_from_the_next_one(tmp_path):
    """In one process: what is left of the old one goes when the garbage collector comes by."""
    bench = stored_bench(tmp_path)
    draft = bench.broker.spool.draft()
    draft.write(b"old")
    body = draft.done()
    store_large(bench)
    bench.store.close()
    again = stored_bench(tmp_path)
    del body, draft, bench
    gc.collect()
    assert left(again) == [pattern(200_000)]
    again.store.close()


def test_a_file_that_cannot_be_adopted_fails_the_commit(tmp_path, monkeypatch, caplog):
    bench = stored_bench(tmp_path)

    def full(*_paths):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("stompcodec.broker.storage.large.link", full)
        assert refusal(store_large(bench, 5000)) == "the message could not be stored"
    assert list((tmp_path / "bodies").iterdir()) == []
    caplog.clear()  # it holds the error, which holds what it was about
    assert_empty(bench)
    assert store_large(bench, 5000).next("RECEIPT")
    bench.store.close()


# ---- files are removed in a thread for that, never in that of the loop ----
#: Whom removals are told; None for nobody. A hook cannot be taken back.
_seen = None


def _hook(event, _args):
    if _seen is not None and event in ("os.remove", "os.rmdir", "os.truncate"):
        _seen.append((event, threading.current_thread() is threading.main_thread()))


sys.addaudithook(_hook)


@contextmanager
def removals():
    global _seen
    _seen = seen = []
    try:
        yield seen
    finally:
        _seen = None


def put(bench, persistent):
    assert store_large(bench, 100_000, persistent=persistent).next("RECEIPT")


def consumer(bench):
    peer = taker(bench, ack="client-individual")
    settle(bench)
    return peer


def octets_of(peer, persistent):
    return peer.octets_of("SEND", pattern(100_000), destination=QUEUE, persistent=persistent)


def ack(bench, persistent):
    put(bench, persistent)
    peer = consumer(bench)
    peer.ack(peer.next("MESSAGE"))


def dead_letter(bench, persistent):
    """It has its file there; then it is taken."""
    put(bench, persistent)
    peer = consumer(bench)
    peer.nack(peer.next("MESSAGE"), requeue="false")
    settle(bench)
    other = taker(bench, "/queue/DLQ.a")
    settle(bench)
    assert [frame.command for frame in other.take()] == ["MESSAGE"]


def nobody(bench, persistent):
    bench.peer().put("/topic/t", pattern(100_000), persistent=persistent)


def lost(bench, persistent):
    peers = [bench.peer() for _ in range(20)]
    for peer in peers:
        peer.raw(octets_of(peer, persistent)[:50_000])
    assert files(bench) == 20
    for peer in peers:
        peer.lose()


def broken(bench, persistent):
    """Its frame is wrong, behind most of the body."""
    peer = bench.peer()
    peer.raw(octets_of(peer, persistent)[:-1] + b"x")
    assert peer.error()


@pytest.mark.long
@pytest.mark.parametrize("persistent", ["false", "true"])
@pytest.mark.parametrize("way", [ack, dead_letter, nobody, lost, broken])
def test_the_loop_removes_nothing(way, persistent, tmp_path):
    bench = stored_bench(tmp_path)
    with removals() as seen:
        way(bench, persistent)
        settle(bench)
        gc.collect()
        assert bench.broker.spool.octets == 0, "it does not count any more, whether it is removed or not"
        bench.broker.spool.flush()
        bench.store._writer.flush()
        assert seen
        assert not any(in_loop for _, in_loop in seen)
    assert os.listdir(tmp_path / "bodies") == os.listdir(tmp_path / "incoming") == []
    bench.store.close()
    bench.broker.spool.close()


def test_what_waits_to_be_removed_is_bounded(monkeypatch):
    """Files that are dropped faster than they are removed: so many, and as many octets as may be in use."""
    monkeypatch.setattr("stompcodec.broker.storage.large._MOST_DISCARDED", 5)
    spool = Spool(None, 1000)

    def drop(octets):
        draft = spool.draft()
        try:
            draft.write(b"x" * octets)
        finally:
            draft.drop()

    drop(0)
    spool.flush()
    for dropped, octets, most in ((4, 0, "too many large messages"), (2, 600, "no room")):
        gate = threading.Event()
        spool._folder.remover.put(gate.wait)
        for _ in range(dropped):
            drop(octets)
            assert spool.octets == 0
        with pytest.raises(Refused, match=most):
            drop(1)
        gate.set()
        spool.flush()
    drop(1000)
    spool.close()


def test_without_a_broker_that_closes_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = {thread for thread in threading.enumerate() if thread.name == "stompcodec-files"}
    bench = bench_of()
    bench.peer().put(QUEUE, pattern(100_000))
    (thread,) = {thread for thread in threading.enumerate() if thread.name == "stompcodec-files"} - before
    assert len(os.listdir(tmp_path)) == 1
    del bench
    gc.collect()
    thread.join(patience(30))
    assert not thread.is_alive()
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_removed_is_passed_over(tmp_path, caplog):
    folder, done = BodyFolder(tmp_path), []
    folder.remover.put(lambda: 1 / 0)
    folder.discard(folder.new_name())
    folder.remover.put(lambda: done.append(1))
    folder.remover.flush()
    assert done == [1]
    assert "could not be removed" in caplog.text
    folder.close()
    folder.close()
    folder.discard("0123456789abcdef-1")
    assert not folder.remove("0123456789abcdef-1")


def test_without_another_thread_jobs_run_at_once(monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    done, remover = [], Remover()
    job = lambda: done.append(threading.current_thread().name)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        remover.put(job)
        assert (len(done), remover.pending) == (1, 0)
        remover.flush()
    remover.put(job)
    remover.flush()
    assert done == [threading.current_thread().name, "stompcodec-files"]
    remover.close()


def test_folders_of_brokers_that_were_killed_go(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, stranger, early = (tmp_path / f"stompcodec-large-{name}" for name in ("dead", "other", "early"))
    for folder in (dead, stranger, early):
        folder.mkdir()
    (dead / "lock").write_text("4711\n")
    (dead / "0123456789abcdef-1").write_bytes(b"x")
    (early / "lock").touch()  # killed before it has written its number
    os.utime(early / "lock", (0, 0))
    spools = [Spool(None, 100) for _ in range(2)]
    bodies = []
    for spool in spools:
        draft = spool.draft()
        draft.write(b"hello")
        bodies.append(draft.done())
        spool.flush()
    assert (dead.exists(), early.exists()) == (False, False)
    assert stranger.exists(), "it holds no lock, so it is no folder of ours"
    assert [body.path.read_bytes() for body in bodies] == [b"hello"] * 2, "that of a living broker stays"
    for spool in spools:
        spool.close()
    assert os.listdir(tmp_path) == [stranger.name]


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
    assert os.listdir(tmp_path) == []
