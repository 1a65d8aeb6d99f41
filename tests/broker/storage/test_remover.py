"""Files of large messages are removed in a thread for that, never in that of the loop."""

import gc
import os
import sys
import threading
from contextlib import contextmanager

import pytest
from broker.large import QUEUE, bench_of, files, pattern, settle, stored_bench
from patience import patience

from stompcodec.broker.storage.folder import Remover
from stompcodec.broker.storage.large import BodyFolder, Spool
from stompcodec.broker.values import Refused

#: Whom removals are told; None for nobody. A hook cannot be taken back.
_seen = None


def _hook(event, _args):
    if _seen is not None and event in ("os.remove", "os.rmdir", "os.truncate"):
        _seen.append((event, threading.current_thread() is threading.main_thread()))


sys.addaudithook(_hook)


@contextmanager
def removals():
    """What is removed meanwhile, and whether that is in the thread of the loop, which is the one of the test."""
    global _seen
    _seen = seen = []
    try:
        yield seen
    finally:
        _seen = None


def put(bench, persistent, **headers):
    peer = bench.peer()
    peer.put(QUEUE, pattern(100_000), persistent=str(persistent).lower(), receipt="r", **headers)
    settle(bench)
    assert peer.next("RECEIPT")
    return peer


def consumer(bench, **options):
    peer = bench.peer()
    peer.subscribe(QUEUE, **{"ack": "client-individual", **options})
    settle(bench)
    return peer


def ack(bench, persistent):
    put(bench, persistent)
    peer = consumer(bench)
    peer.ack(peer.next("MESSAGE"))


def auto(bench, persistent):
    put(bench, persistent)
    assert consumer(bench, ack="auto").next("MESSAGE")


def abort(bench, persistent):
    peer = bench.peer()
    peer.send("BEGIN", transaction="t")
    peer.put(QUEUE, pattern(100_000), persistent=str(persistent).lower(), transaction="t")
    peer.send("ABORT", transaction="t")


def dead_letter(bench, persistent):
    """It has its file there; then it is taken."""
    put(bench, persistent)
    peer = consumer(bench)
    peer.nack(peer.next("MESSAGE"), requeue="false")
    settle(bench)
    other = bench.peer()
    other.subscribe("/queue/DLQ./queue/a", ack="auto")
    other.subscribe("/queue/DLQ.a", ack="auto", id="2")
    settle(bench)
    assert [frame.command for frame in other.take()] == ["MESSAGE"]


def expiry(bench, persistent):
    put(bench, persistent, expiration="1000")
    bench.date += 10
    bench.wait(10)


def purge(bench, persistent):
    """The queue of a topic's subscription, which goes with it."""
    peer = bench.peer()
    peer.subscribe("/topic/t", ack="client")
    bench.peer().put("/topic/t", pattern(100_000), persistent=str(persistent).lower())
    settle(bench)
    assert peer.next("MESSAGE")
    peer.send("UNSUBSCRIBE", id="1")


def nobody(bench, persistent):
    bench.peer().put("/topic/t", pattern(100_000), persistent=str(persistent).lower())


def lost(bench, persistent):
    peers = [bench.peer() for _ in range(20)]
    for peer in peers:
        frame = peer.octets_of("SEND", pattern(100_000), destination=QUEUE, persistent=str(persistent).lower())
        peer.raw(frame[:50_000])
    assert files(bench) == 20
    for peer in peers:
        peer.lose()


def refused(bench, persistent):
    """There is no room for it."""
    bench.broker.spool.limit = 70_000
    peer = bench.peer()
    peer.put(QUEUE, pattern(100_000), persistent=str(persistent).lower())
    assert "no room" in peer.error().headers["message"]


def broken(bench, persistent):
    """Its frame is wrong, behind most of the body."""
    peer = bench.peer()
    frame = peer.octets_of("SEND", pattern(100_000), destination=QUEUE, persistent=str(persistent).lower())
    peer.raw(frame[:-1] + b"x")
    assert peer.error()


WAYS = [ack, auto, abort, dead_letter, expiry, purge, nobody, lost, refused, broken]


@pytest.mark.long
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("way", WAYS)
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


@contextmanager
def closing_draft(spool):
    draft = spool.draft()
    try:
        yield draft
    finally:
        draft.drop()


def test_what_waits_to_be_removed_is_bounded(monkeypatch):
    """Files that are dropped faster than they are removed: so many, and as many octets as may be in use."""
    monkeypatch.setattr("stompcodec.broker.storage.large._MOST_DISCARDED", 5)
    spool = Spool(None, 1000)
    spool.draft().drop()
    spool.flush()
    assert spool._folder is not None
    for dropped, most in ((4, "too many large messages"), (2, "no room")):
        gate = threading.Event()
        spool._folder.remover.put(gate.wait)
        for _ in range(dropped):
            draft = spool.draft()
            draft.write(b"x" * (600 if dropped == 2 else 0))
            draft.drop()
            assert spool.octets == 0
        with pytest.raises(Refused, match=most), closing_draft(spool) as draft:
            draft.write(b"x")
        gate.set()
        spool.flush()
    draft = spool.draft()
    draft.write(b"x" * 1000)
    draft.drop()
    spool.close()


def test_without_a_broker_that_closes_it(tmp_path, monkeypatch):
    """Whatever is dropped goes, and no thread stays."""
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
    folder = BodyFolder(tmp_path)

    def fail():
        raise ValueError("a fault")

    folder.remover.put(fail)
    folder.discard(folder.new_name())
    done = []
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

    done = []
    remover = Remover()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        remover.put(lambda: done.append(threading.current_thread().name))
        assert (len(done), remover.pending) == (1, 0)
        remover.flush()
    remover.put(lambda: done.append(threading.current_thread().name))
    remover.flush()
    assert done == [threading.current_thread().name, "stompcodec-files"]
    remover.close()
