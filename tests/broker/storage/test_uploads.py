"""Large messages that stop in the middle, too many at a time, and the file descriptors that they hold."""

import errno
import os

import pytest
from broker.large import QUEUE, Slow, assert_empty, bench_of, files, pattern

from stompcodec.broker.auth import User, hash_passcode

LENGTH = 5000


def begin(peer, octets=2000, **headers):
    """Send the first octets of a large message, and return the others."""
    frame = peer.octets_of("SEND", pattern(LENGTH), destination=QUEUE, **headers)
    at = frame.index(b"\n\n") + 2 + octets
    peer.raw(frame[:at])
    return frame[at:]


def refusal(peer):
    error = peer.error()
    return error.headers["message"], error.body


@pytest.mark.parametrize(("version", "whole_frames"), [("1.0", False), ("1.1", True), ("1.2", False)])
@pytest.mark.parametrize("octets", [0, 1, 2000, LENGTH])
def test_who_stops_in_the_middle_is_dropped(version, whole_frames, octets):
    """At any octet, also before the last one; the ERROR says so, and its file goes."""
    bench = bench_of(upload_timeout=30.0)
    peer = bench.peer(version, whole_frames=whole_frames)
    bench.wait(100)
    begin(peer, octets, receipt="r")
    bench.wait(29)
    assert not peer.closed
    assert files(bench) == 1
    bench.wait(3)
    assert (error := peer.error()).headers["message"] == "the large message has stalled"
    assert error.headers["receipt-id"] == "r"
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
        consumer = bench.peer()
        consumer.subscribe(QUEUE)
        assert consumer.bodies() == [pattern(LENGTH)]
        return
    assert (said := refusal(peer))[0] == "the large message has stalled"
    assert b"Less than 20 bytes per second came for 10 s" in said[1]
    assert_empty(bench)
    assert bench.broker.spool.drafts == 0


USERS = {name: User(name, hash_passcode("x", n=16)) for name in ("ada", "bob")}
HALF, QUARTERS = {"users": USERS}, {}


def client(bench, who, number):
    """A user on any address, or an address without users."""
    users = bench.broker.config.users is not None
    host = f"10.0.{number}.1" if users else f"10.0.0.{'ab'.index(who[0])}"
    peer = bench.peer(connect=False, peer=f"{host}:{1000 + number}")
    peer.connect(**({"login": who, "passcode": "x"} if users else {}))
    return peer


@pytest.mark.parametrize(
    ("config", "most", "share", "end"),
    [
        (HALF, 8, 4, "whole"),
        (HALF, 3, 2, "lost"),
        (HALF, 1, 1, "refused"),
        (QUARTERS, 8, 6, "stopped"),
        (QUARTERS, 3, 3, "whole"),
        (QUARTERS, 3, 3, "lost"),
        (QUARTERS, 1, 1, "refused"),
        ({**HALF, "user_uploads": 3}, 8, 3, "stopped"),
        ({"user_uploads": 1}, 8, 1, "whole"),
        ({"user_uploads": 9}, 2, 2, "refused"),
    ],
)
def test_a_share_is_left_for_others(config, most, share, end):
    """One user, or address, has its share and no more; others have theirs; what ends in any way counts no more."""
    bench = bench_of(max_uploads=most, upload_timeout=10.0, **config)
    for _ in range(2):
        peers = [client(bench, "ada", number) for number in range(share)]
        rests = [begin(peer) for peer in peers]
        assert not any(peer.closed for peer in peers)
        late = client(bench, "ada", share)
        begin(late)
        message, body = refusal(late)
        assert message == "too many large messages at a time"
        if share < most:
            assert f"At most {share} of a{' user' if 'users' in config else 'n address'}".encode() in body
        else:
            assert f"At most {most} can be received at a time".encode() in body
        client(bench, "ada", share + 1).put(QUEUE, b"small ones are taken")
        others = [client(bench, "bob", number) for number in range(min(share, most - share))]
        for other in others:
            rest = begin(other)
            other.raw(rest)
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
        assert bench.broker.spool.drafts == 0
        assert not bench.broker.spool._owners


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_a_download_holds_no_descriptor():
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
    assert all(peer.session.outbox.downloads for peer in peers)
    assert open_bodies(bench) == []
    for peer in peers:
        while peer.session.outbox.downloads:
            peer.drain()
        assert [frame.body for frame in peer.take() if frame.command == "MESSAGE"] == [pattern(600_000)]


def open_bodies(bench):
    assert bench.broker.spool._folder is not None
    folder = str(bench.broker.spool._folder.path)
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
def test_a_download_waits_for_a_descriptor(kind, monkeypatch):
    """It is nobody's fault: no session ends, no message becomes a dead letter, and it comes when there is one."""
    bench = bench_of()
    bench.peer().put(QUEUE, pattern(600_000))
    real, failing = os.open, True

    def none_left(path, flags, *args, **options):
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


def test_an_upload_without_a_descriptor_is_told(monkeypatch, tmp_path):
    bench = bench_of(large_folder=str(tmp_path))
    real = os.open

    def none_left(path, flags, *args, **options):
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
