"""What fills the spool of a live source, without Spark: locks, limits, brokers that go away, secrets, dialects."""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from client.broker import BrokerThread
from client.feeding import fill_disk, left, publish, wait_for
from client.peer import Peer, closed_port
from patience import interval, patience

from stompcodec.capture import Capture, CaptureBusyError, CaptureWriter
from stompcodec.errors import ConnectionLostError, RejectedError, StoreError
from stompcodec.spark import receiver as module
from stompcodec.spark.link import parse_live
from stompcodec.spark.options import OptionError
from stompcodec.spark.receiver import Receiver
from stompcodec.testing.faults import FaultProxy

SECRET = "s3cr3t-Pa55"


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def options_of(url: str, queue: str, spool: Path, **options: object):
    given = {name: str(value) for name, value in options.items()}
    return parse_live({"url": url, "destination": queue, "spoolDir": str(spool), **given})


@contextlib.contextmanager
def receiving(url: str | Callable[[], int], queue: str, spool: Path, **options: object):
    if callable(url):
        url = f"stomp://127.0.0.1:{url()}"
    receiver = Receiver(options_of(url, queue, spool, **options))
    try:
        receiver.wait(patience(60))
        yield receiver
    finally:
        receiver.close()


def numbers(spool: Path) -> list[int]:
    capture = Capture(spool)
    return [int(frame.body.split()[0]) for chain in capture.chains() for _, _, frame in capture.frames(chain)]


def fails(receiver: Receiver) -> Exception:
    """What it fails with, in the end."""
    seen: list[Exception] = []

    def failed() -> bool:
        try:
            receiver.check()
        except Exception as error:
            seen.append(error)
        return bool(seen)

    wait_for(failed)
    return seen[0]


# ---- acknowledging ----


def test_all_is_acknowledged_on_the_disk(broker, queue: str, spool: Path) -> None:
    publish(broker.url, queue, 100)
    with receiving(broker.url, queue, spool, prefetch=10) as receiver:
        wait_for(lambda: receiver.count == 100)
        assert receiver.ends() == {"frames": Capture(spool).end()}
    assert numbers(spool) == list(range(100))
    assert left(broker.url, queue) == 0


def test_batch_mode_acknowledges_what_is_released(broker, queue: str, spool: Path) -> None:
    publish(broker.url, queue, 25)
    with receiving(broker.url, queue, spool, prefetch=10, ackMode="batch") as receiver:
        wait_for(lambda: receiver.count == 10)
        for count in (20, 25):  # each time what is there is done, as much comes as the prefetch allows
            receiver.release(receiver.ends())
            wait_for(lambda count=count: receiver.count == count)
    assert left(broker.url, queue) == 5


def test_a_release_before_the_connection_counts(broker, queue: str, spool: Path) -> None:
    """After a restart Spark says first how far it was; what comes again and lies below is acknowledged."""
    publish(broker.url, queue, 10)
    with receiving(broker.url, queue, spool, ackMode="batch") as receiver:
        wait_for(lambda: receiver.count == 10)
        ends = receiver.ends()
    receiver = Receiver(options_of(broker.url, queue, spool, ackMode="batch"))
    receiver.release(ends)
    wait_for(lambda: receiver.count == 10)
    receiver.close()
    assert numbers(spool) == list(range(10))
    assert left(broker.url, queue) == 0


def test_several_connections(broker, queue: str, spool: Path) -> None:
    with receiving(broker.url, queue, spool, subscriptions=3, prefetch=5) as receiver:
        publish(broker.url, queue, 90)
        wait_for(lambda: receiver.count == 90)
        assert sorted(receiver.ends()) == ["frames", "frames.1", "frames.2"]
    assert sorted(numbers(spool)) == list(range(90))


def test_a_slow_disk_is_no_end_of_the_messages(broker, queue: str, spool: Path, monkeypatch) -> None:
    """Messages that have come are waited for, though writing them takes longer than idleTimeout."""
    publish(broker.url, queue, 5)
    sync = CaptureWriter.sync

    def slow_sync(self: CaptureWriter) -> None:
        time.sleep(0.3)
        sync(self)

    monkeypatch.setattr(CaptureWriter, "sync", slow_sync)
    with receiving(broker.url, queue, spool, idleTimeout="100ms", drainTimeout="1h") as receiver:
        wait_for(lambda: receiver.count or receiver.metrics({})["unacknowledged"])
        receiver.drain()
        assert receiver.count == 5


# ---- the spool ----


def test_a_second_one_waits_and_is_refused(broker, queue: str, spool: Path, monkeypatch) -> None:
    assert module._LOCK_WAIT == 10.0
    monkeypatch.setattr(module, "_LOCK_WAIT", 0.3)
    with receiving(broker.url, queue, spool, queryName="orders"):
        with pytest.raises(CaptureBusyError, match="another query or recorder fills this spool") as refused:
            Receiver(options_of(broker.url, queue, spool))
        told = rf"held by pid {os.getpid()} on {re.escape(platform.node())}: the query 'orders' that reads {queue} "
        assert re.search(told + r"from stomp://\S+, since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$", str(refused.value))
    with receiving(broker.url, queue, spool) as receiver:
        receiver.check()


def test_no_secret_and_no_control_character_is_in_the_note_of_a_holder(broker, queue: str, spool: Path) -> None:
    (spool.parent / "secret").write_text(SECRET)
    options = {"login": "ann", "passcodeFile": spool.parent / "secret", "queryName": "a\x1b[31m\nb" * 100}
    with receiving(broker.url, queue, spool, **options):
        pass
    note = (spool / "lock").read_bytes()
    assert SECRET.encode() not in note
    assert len(note) <= 1001
    (spool / "lock").write_bytes(b"\xff\x1b[31m\n" * 1000)  # whatever stands there is shown as text, and not much of it
    held = CaptureWriter(spool, holder="me")
    (spool / "lock").write_bytes(b"\xff\x1b[31m\n" * 1000)
    with pytest.raises(CaptureBusyError) as refused:
        CaptureWriter(spool)
    held.close()
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1200 + len(str(spool))


def test_it_gets_the_spool_once_the_other_one_has_ended(broker, queue: str, spool: Path) -> None:
    held = CaptureWriter(spool)
    timer = threading.Timer(0.4, held.close)
    timer.start()
    with receiving(broker.url, queue, spool) as receiver:
        receiver.check()
    timer.join()


@pytest.mark.parametrize("segments", ["many", "one"])
def test_a_full_disk_is_freed_of_what_spark_is_done_with(
    broker, queue: str, spool: Path, monkeypatch, segments: str
) -> None:
    """A disk of 300 kB, far below maxSpoolBytes: it goes on as soon as Spark is done with something."""
    disk = 300_000
    fill_disk(monkeypatch, lambda data: module._size_of(str(spool)) + len(data) > disk, lambda data: 0)
    monkeypatch.setattr("stompcodec.client.recorder._RETRY", 0.01)
    most = 400_000 if segments == "many" else 10**9  # a segment is an eighth of it
    publish(broker.url, queue, 60, size=10_000)
    with receiving(broker.url, queue, spool, maxSpoolBytes=most, prefetch=2) as receiver:
        wait_for(lambda: module._size_of(str(spool)) > disk - 10_000)  # another message does not fit
        wait_for(lambda: receiver.count == len(numbers(spool)))
        wait_for(lambda: "No space left on device" in (receiver.stalled or ""))
        assert receiver.waits
        stuck = receiver.count
        assert 20 <= stuck < 30
        assert len(numbers(spool)) == stuck  # nothing that Spark has not read is deleted

        def all_came() -> bool:
            receiver.check()
            receiver.release(receiver.ends())
            return receiver.count >= 60

        wait_for(all_came)
        wait_for(lambda: receiver.stalled is None)
        rest = numbers(spool)
    assert rest == list(range(rest[0], 60))
    assert rest[0] > 0
    assert left(broker.url, queue) == 0


def test_the_spool_is_as_large_as_it_may_be(broker, queue: str, spool: Path) -> None:
    """What Spark has not read stays, and the broker keeps the rest; what it has read makes room."""
    publish(broker.url, queue, 200, size=10_000)
    most = 500_000

    def size() -> int:
        return module._size_of(str(spool))

    with receiving(broker.url, queue, spool, maxSpoolBytes=most, prefetch=5) as receiver:
        wait_for(lambda: receiver.stalled)
        assert "maxSpoolBytes" in receiver.stalled
        kept = receiver.count
        assert most <= size() < most + 150_000
        time.sleep(2.5 * module._LOOK)
        assert receiver.count == kept

        def all_came() -> bool:
            receiver.release(receiver.ends())
            assert size() < most + 300_000
            return receiver.count >= 200

        wait_for(all_came)
        rest = numbers(spool)
    assert rest == list(range(rest[0], 200))
    assert rest[0] > 50
    assert left(broker.url, queue) == 0


def test_what_spark_is_done_with_is_kept_for_some_time(broker, queue: str, spool: Path) -> None:
    """With little time to retain it goes, but never what was not read."""
    publish(broker.url, queue, 40, size=10_000)
    options = {"maxSpoolBytes": 1_000_000, "prefetch": 5, "retain": "0s"}
    with receiving(broker.url, queue, spool, **options) as receiver:
        wait_for(lambda: receiver.count == 40)
        time.sleep(2 * module._LOOK)
        assert numbers(spool) == list(range(40))
        receiver.release(receiver.ends())
        wait_for(lambda: Capture(spool).segments()[0].base > 100_000)
        receiver.check()
    assert numbers(spool)[-1] == 39


# ---- the broker ----


def test_it_comes_back_by_itself(broker, queue: str, spool: Path) -> None:
    proxy = FaultProxy(("127.0.0.1", broker.port))
    with proxy, receiving(lambda: proxy.port, queue, spool, reconnectTimeout="30s") as receiver:
        for round in range(3):
            publish(broker.url, queue, 10, first=10 * round)
            wait_for(lambda round=round: len(numbers(spool)) == 10 * round + 10)
            proxy.cut()
        publish(broker.url, queue, 1, first=30)
        wait_for(lambda: len(numbers(spool)) == 31)
        receiver.check()
    assert numbers(spool) == list(range(31))


def test_a_broker_that_stays_away_ends_the_query(broker, queue: str, spool: Path) -> None:
    proxy = FaultProxy(("127.0.0.1", broker.port))
    with proxy, receiving(lambda: proxy.port, queue, spool, reconnectTimeout="500ms") as receiver:
        receiver.check()
        proxy.rules.refuse = True
        proxy.cut()
        error = fails(receiver)
    assert isinstance(error, ConnectionLostError)
    assert "reconnectTimeout" in str(error)


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ({"CONNECT": lambda side, frame: side.error(frame, "bad login")}, RejectedError),
        ({"SUBSCRIBE": lambda side, frame: side.error(frame, "not allowed")}, RejectedError),
        (None, ConnectionLostError),
    ],
    ids=["login", "destination", "no broker"],
)
def test_what_is_refused_or_never_there_ends_the_query(queue: str, spool: Path, monkeypatch, rules, error) -> None:
    monkeypatch.setattr(module, "_REFUSED", 0.2)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(closed_port()) if rules is None else stack.enter_context(Peer(rules=rules)).port
        with receiving(lambda: port, queue, spool, reconnectTimeout="300ms" if rules is None else "60s") as receiver:
            assert isinstance(fails(receiver), error)


def test_a_message_that_breaks_each_connection_ends_the_query(queue: str, spool: Path) -> None:
    """It is larger than what is accepted, and comes again and again."""

    def deliver(side, frame) -> None:
        side.subscriptions[frame.headers["id"]] = frame
        side.receipt(frame)
        side.deliver(frame.headers["id"], bytes(2000))

    peer = Peer(rules={"SUBSCRIBE": deliver})
    with peer, receiving(peer.url, queue, spool, maxBody=1000, reconnectTimeout=f"{interval(1500)}ms") as receiver:
        error = fails(receiver)
    assert "limit-exceeded" in str(error)
    assert len(peer.got("SUBSCRIBE")) > 1


@pytest.mark.parametrize(
    ("server", "headers"),
    [
        ("ActiveMQ/5.18", {"activemq.prefetchSize": "7", "activemq.subscriptionName": "daily"}),
        ("ActiveMQ-Artemis/2.31", {"consumer-window-size": "8388608", "durable-subscription-name": "daily"}),
        ("RabbitMQ/3.13", {"prefetch-count": "7", "durable": "true", "auto-delete": "false"}),
    ],
)
def test_brokers_are_spoken_to_in_their_own_words(queue: str, spool: Path, server: str, headers) -> None:
    options = {"prefetch": 7, "subscriptionName": "daily", "clientId": "me", "selector": "kind = 'x'"}
    topic = queue.replace("/queue/", "/topic/")
    with Peer(server=server) as peer:
        with receiving(peer.url, topic, spool, **options, subscribeHeaders='{"x-Own": "a:b"}') as receiver:
            receiver.check()
        (connect,) = peer.got("CONNECT")
        (subscribe,) = peer.got("SUBSCRIBE")
    assert connect.headers["client-id"] == "me"
    usual = {"destination": topic, "ack": "client-individual", "selector": "kind = 'x'", "x-Own": "a:b"}
    assert {name: subscribe.get(name) for name in (*headers, *usual)} == {**headers, **usual}


# ---- secrets, and options ----


@pytest.mark.parametrize("kind", ["passcodeEnv", "passcodeFile"])
def test_the_passcode_is_nowhere_but_in_connect(
    queue: str, spool: Path, kind: str, tmp_path, monkeypatch, caplog
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("FEED_PASSCODE", SECRET)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    value = "FEED_PASSCODE" if kind == "passcodeEnv" else str(tmp_path / "secret")
    with Peer() as peer:
        options = options_of(peer.url, queue, spool, login="ann", **{kind: value})
        assert SECRET not in repr(options) + repr(pickle.dumps(options))
        receiver = Receiver(options)
        receiver.wait(patience(60))
        receiver.check()
        assert SECRET not in repr(vars(receiver))
        receiver.close()
        (connect,) = peer.got("CONNECT")
    assert connect.headers["passcode"] == SECRET
    assert connect.headers["login"] == "ann"
    assert SECRET not in caplog.text
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in spool.iterdir())


def test_secrets_are_not_taken(queue: str, spool: Path) -> None:
    for url, options in (
        (f"stomp://ann:{SECRET}@h", {}),
        (f"failover:(stomp://h,stomp://ann:{SECRET}@h)", {}),
        (f"ws://h/ws?token={SECRET}", {}),
        ("stomp://h", {"passcode": SECRET}),
        ("stomp://h", {"Password": SECRET}),
    ):
        with pytest.raises(OptionError, match="passcodeEnv") as told:
            options_of(url, queue, spool, **options)
        assert SECRET not in str(told.value)


def test_a_passcode_that_is_not_there(queue: str, spool: Path) -> None:
    with pytest.raises(OptionError, match="NOT_SET is not set"):
        Receiver(options_of("stomp://h", queue, spool, passcodeEnv="NOT_SET"))
    with pytest.raises(OptionError, match="cannot be read"):
        Receiver(options_of("stomp://h", queue, spool, passcodeFile=str(spool / "nothing")))
    assert not spool.exists()
    spool.write_bytes(b"hello")
    with pytest.raises(StoreError):
        Receiver(options_of("stomp://h", queue, spool))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ackMode": "never"}, "ackMode is 'never': it must be one of spool, batch"),
        ({"prefetch": "0"}, "prefetch is '0'"),
        ({"dedupe": "uuid"}, "option dedupe is 'uuid': use messageId"),
        ({"spoolDir": "s3://bucket/x"}, "it must be a folder on a mounted disk"),
        ({"subscribeHeaders": "a:b"}, "it must be JSON"),
        ({"subscribeHeaders": '{"a": 1}'}, "it must be JSON"),
        ({"subscriptions": "2", "subscriptionName": "x"}, "has one connection"),
        ({"destination": "/queue/a,/queue/b", "subscriptionName": "x"}, "has one destination"),
        ({"passcodeEnv": "A", "passcodeFile": "b"}, "give only one of them"),
        ({"prefetchh": "1"}, "did you mean prefetch"),
        ({"url": "gopher://h"}, "option url"),
        ({"url": "stomp://h?host=/"}, "option url: .*write the virtual host as the path"),
        ({"url": "h:61613?heart-beat=1,1"}, "option url: .*unknown option heart-beat"),
        ({"url": "failover:(stomp://a,stomp://b)?timeout=3"}, "option url: .*unknown option timeout"),
    ],
)
def test_options_that_cannot_be(options, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_live({"url": "stomp://h", "destination": "/queue/a", "spoolDir": "s", **options})


@pytest.mark.parametrize(
    ("options", "prefetch"),
    [
        ({}, 1000),
        ({"maxFramesPerTrigger": "50k"}, 1000),
        ({"prefetch": "7", "ackMode": "batch", "maxFramesPerTrigger": "50k"}, 7),
        ({"ackMode": "batch"}, 20_000),
        ({"ackMode": "batch", "maxFramesPerTrigger": "10"}, 1000),
        ({"ackMode": "batch", "maxFramesPerTrigger": "10k"}, 20_000),
        ({"ackMode": "batch", "maxFramesPerTrigger": "10k", "subscriptions": "4"}, 5000),
        ({"ackMode": "batch", "maxFramesPerTrigger": "1m"}, 65_000),
        ({"ackMode": "batch", "maxBytesPerTrigger": "4m"}, 16_384),
        ({"ackMode": "batch", "maxBytesPerTrigger": "1"}, 1000),
        ({"ackMode": "batch", "maxBytesPerTrigger": "1t"}, 65_000),
        ({"ackMode": "batch", "maxBytesPerTrigger": "4m", "maxFramesPerTrigger": "1k"}, 2000),
        ({"ackMode": "batch", "destination": ",".join(map("/queue/{}".format, range(5)))}, 13_000),
        ({"ackMode": "batch", "destination": ",".join(map("/queue/{}".format, range(100)))}, 650),
    ],
)
def test_the_prefetch_follows_the_bounds_of_a_batch(options: dict[str, str], prefetch: int) -> None:
    given = {"url": "h:61613", "destination": "/queue/a", "spoolDir": "file:///data/s", "retain": "1.5", **options}
    made = parse_live({**given, "reconnectTimeout": "2m"})
    assert (made.prefetch, made.retain, made.reconnect_timeout, made.spool_dir) == (prefetch, 5400.0, 120.0, "/data/s")


def test_the_metrics_tell_of_backlog_and_acknowledgements(broker, queue: str, spool: Path) -> None:
    with receiving(broker.url, queue, spool, ackMode="batch") as receiver:
        assert receiver.metrics({})["lastFrameAgeSeconds"] is None
        publish(broker.url, queue, 20)
        wait_for(lambda: receiver.count == 20)
        found, end = receiver.metrics({}), receiver.ends()
        assert found["description"] == f"stomp: {queue} at {broker.url}, spool {spool}"
        assert (found["backlogBytes"], found["unacknowledged"]) == (end["frames"], 20)
        assert found["spoolBytes"] >= end["frames"]
        assert (found["connected"], found["stalled"]) == (True, None)
        assert receiver.metrics({"frames": end["frames"] - 5})["backlogBytes"] == 5
        assert receiver.metrics(end)["backlogBytes"] == 0
        receiver.release(end)
        wait_for(lambda: receiver.metrics(end)["unacknowledged"] == 0)
        age = receiver.metrics(end)["lastFrameAgeSeconds"]
        assert age >= 0
    with receiving(broker.url, queue, spool, ackMode="batch") as receiver:  # nothing comes: the spool knows when
        assert receiver.metrics(end)["lastFrameAgeSeconds"] >= age
