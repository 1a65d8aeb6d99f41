"""Large messages that stop in the middle, too many at a time, and the file descriptors that they hold."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Bench, Peer
from broker.large import QUEUE, Slow, assert_empty, bench_of, files, pattern

LENGTH = 5000


def begin(peer: Peer, octets: int = 2000, **headers: str) -> bytes:
    """Send the first octets of a large message, and return the others."""
    frame = peer.octets_of("SEND", pattern(LENGTH), destination=QUEUE, **headers)
    at = frame.index(b"\n\n") + 2 + octets
    peer.raw(frame[:at])
    return frame[at:]


def refusal(peer: Peer) -> tuple[str, bytes]:
    error = peer.error()
    return error.headers["message"], error.body


@pytest.mark.parametrize("whole_frames", [False, True])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("octets", [0, 1, 2000, LENGTH])
def test_who_stops_in_the_middle_is_dropped(version: str, whole_frames: bool, octets: int) -> None:
    """At any octet, also before the last one; the ERROR says so, and its file goes."""
    bench = bench_of(upload_timeout=30.0)
    peer = bench.peer(version, whole_frames=whole_frames)
    bench.wait(100)
    begin(peer, octets, receipt="r")
    bench.wait(29)
    assert not peer.closed
    assert files(bench) == 1
    bench.wait(3)
    assert (error := peer.error()).headers["message"] == "the large message does not go on"
    assert error.headers["receipt-id"] == "r"
    assert b"for 30 s" in error.body
    assert_empty(bench)
    assert bench.broker.spool.drafts == 0
    bench.wait(2)
    assert not bench.broker.uploads


def test_who_goes_on_is_not() -> None:
    """An octet now and then is enough; its message is whole."""
    bench = bench_of(upload_timeout=10.0)
    peer = bench.peer()
    rest = begin(peer)
    for at in range(20):
        bench.wait(9)
        peer.raw(rest[at : at + 1])
    peer.raw(rest[20:])
    bench.wait(100)
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    assert consumer.bodies() == [pattern(LENGTH)]
    again = begin(peer)
    bench.wait(8)
    peer.raw(again)
    assert consumer.bodies() == [pattern(LENGTH)]
    begin(peer)
    bench.wait(12)
    assert refusal(peer)[0] == "the large message does not go on"


def test_who_is_not_read_is_not() -> None:
    """A full queue stops the sender; its time begins when it is read again."""
    bench = bench_of(upload_timeout=10.0, max_queue_messages=1)
    peer = bench.peer()
    small = peer.octets_of("SEND", b"small", destination="/queue/small")
    large = peer.octets_of("SEND", pattern(LENGTH), destination=QUEUE)
    peer.raw(small + small + large[:3000])
    assert peer.session.paused
    bench.wait(100)
    assert not peer.closed
    consumer = bench.peer()
    consumer.subscribe("/queue/small")
    assert not peer.session.paused
    bench.wait(8)
    assert not peer.closed
    bench.wait(5)
    assert peer.closed
    assert_empty(bench)


@pytest.mark.parametrize("end", ["whole", "lost", "refused"])
def test_so_many_at_a_time(end: str) -> None:
    """At the bound all go on; one past it is refused, until one of them has ended in any way."""
    bench = bench_of(max_uploads=3)
    peers = [bench.peer() for _ in range(3)]
    rests = [begin(peer) for peer in peers]
    late = bench.peer()
    begin(late, receipt="r")
    message, body = refusal(late)
    assert message == "too many large messages at a time"
    assert b"At most 3 can come in" in body
    bench.peer().put(QUEUE, b"small ones are taken")
    if end == "whole":
        peers[0].raw(rests[0])
    elif end == "lost":
        peers[0].lose()
    else:
        peers[0].raw(rests[0][:-1] + b"x")
        assert peers[0].error()
    last = bench.peer()
    last.raw(begin(last, receipt="r"))
    assert last.next("RECEIPT")
    for peer, rest in zip(peers[1:], rests[1:]):
        peer.raw(rest)
        assert not peer.closed
    assert bench.broker.spool.drafts == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_a_download_holds_no_descriptor() -> None:
    """Many who read slowly are in the middle of a message, and none of its files is open."""
    bench = bench_of()
    bench.peer().put("/queue/a", pattern(10))
    sender = bench.peer()
    peers = []
    for number in range(6):
        sender.put(f"/queue/{number}", pattern(600_000))
        peer = Slow(bench)
        peer.connect()
        peer.drain()
        peer.subscribe(f"/queue/{number}")
        peer.drain()
        peers.append(peer)
    assert all(peer.session.parcels for peer in peers)
    assert open_bodies(bench) == []
    for peer in peers:
        while peer.session.parcels:
            peer.drain()
        assert [frame.body for frame in peer.take() if frame.command == "MESSAGE"] == [pattern(600_000)]


def open_bodies(bench: Bench) -> list[str]:
    folder = str(bench.broker.spool._made)
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if path.startswith(folder + "/") and not path.endswith("/lock"):
            found.append(path)
    return found


@pytest.mark.parametrize("kind", [errno.EMFILE, errno.ENFILE])
def test_a_download_waits_for_a_descriptor(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nobody's fault: no session ends, no message becomes a dead letter, and it comes when there is one."""
    bench = bench_of()
    bench.peer().put(QUEUE, pattern(600_000))
    real, failing = os.open, True

    def none_left(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if failing:
            raise OSError(kind, "Too many open files", path)
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", none_left)
    peer = bench.peer()
    peer.subscribe(QUEUE, ack="client-individual")
    bench.wait(5)
    assert not peer.closed
    assert peer.take() == []
    failing = False
    bench.wait(2)
    message = peer.next("MESSAGE")
    assert message.body == pattern(600_000)
    assert "redelivered" not in message.headers
    peer.ack(message)
    assert_empty(bench)


def test_an_upload_without_a_descriptor_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = bench_of(large_folder=str(tmp_path))
    real = os.open

    def none_left(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", none_left)
    peer = bench.peer()
    begin(peer)
    assert refusal(peer) == (
        "the large message could not be kept",
        b"The broker has no file descriptor left: send it later.\n",
    )
    assert bench.broker.spool.drafts == 0
