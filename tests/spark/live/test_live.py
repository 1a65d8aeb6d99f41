"""The live source: what fills its spool, without Spark, and what docs/spark-semantics.md promises, with it."""

import contextlib
import json
import logging
import os
import pickle
import platform
import re
import shutil
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from capture.capturing import DEEDS
from capture.storing import object_store
from client.feeding import fill_disk
from client.peer import Peer, closed_port
from patience import interval, patience
from pyspark.errors import StreamingQueryException
from spark.live_rounds import Rows, failure, live_broker, publish, runner, running, wait_for
from spark.making import ADMISSION

from stompcodec.capture import Capture, CaptureBusyError, CaptureWriter
from stompcodec.errors import ConnectionLostError, RejectedError, SilentFeedError, StoreError
from stompcodec.spark import receiver as module
from stompcodec.spark.base import ReadAllAvailable
from stompcodec.spark.link import parse_live
from stompcodec.spark.live import LiveReader, LiveStreamReader
from stompcodec.spark.options import OptionError
from stompcodec.spark.reading.schema import FRAME_SCHEMA
from stompcodec.spark.receiver import Receiver
from stompcodec.testing.faults import FaultProxy

SECRET = "s3cr3t-Pa55"
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def broker():
    with live_broker() as broker:
        yield broker


@pytest.fixture
def proxy(broker):
    with FaultProxy(("127.0.0.1", broker.port)) as proxy:
        proxy.url = f"stomp://127.0.0.1:{proxy.port}"
        yield proxy


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.fixture(autouse=True)
def heard(caplog, monkeypatch):
    """What the source logs is seen, whatever other tests of this process have done to its logger."""
    log = logging.getLogger("stompcodec.spark")
    monkeypatch.setattr(log, "disabled", False)
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.WARNING, log.name)


def given(url, queue, spool, **options):
    options = {name: str(value) for name, value in options.items()}
    return {"url": url, "destination": queue, "spoolDir": str(spool), **options}


def new_receiver(*where, **options):
    return Receiver(parse_live(given(*where, **options)))


@contextlib.contextmanager
def receiving(url, queue, spool, **options):
    receiver = new_receiver(url, queue, spool, **options)
    try:
        receiver.wait(patience(60))
        yield receiver
    finally:
        receiver.close()


def numbers(spool):
    capture = Capture(spool)
    return [int(frame.headers["n"]) for chain in capture.chains() for _, _, frame in capture.frames(chain)]


def releasing(receiver, count):
    def came():
        receiver.check()
        receiver.release(receiver.ends())
        return receiver.count >= count

    wait_for(came)


def test_all_is_acknowledged_on_the_disk(broker, queue, spool):
    publish(broker.url, queue, 100)
    with receiving(broker.url, queue, spool, prefetch=10) as receiver:
        wait_for(lambda: receiver.count == 100)
        assert receiver.ends() == {"frames": Capture(spool).end()}
    assert numbers(spool) == list(range(100))
    assert broker.queued(queue) == 0


def test_batch_mode_acknowledges_what_is_released(broker, queue, spool):
    publish(broker.url, queue, 25)
    with receiving(broker.url, queue, spool, prefetch=10, ackMode="batch") as receiver:
        wait_for(lambda: receiver.count == 10)
        for count in (20, 25):  # each time what is there is done, as much comes as the prefetch allows
            receiver.release(receiver.ends())
            wait_for(lambda count=count: receiver.count == count)
        ends = receiver.ends()
    assert broker.queued(queue) == 5
    # After a restart Spark says first how far it was; what comes again and lies below is acknowledged.
    receiver = new_receiver(broker.url, queue, spool, ackMode="batch")
    receiver.release(ends)
    wait_for(lambda: receiver.count == 5)
    receiver.close()
    assert numbers(spool) == list(range(25))
    assert broker.queued(queue) == 0


def test_a_second_one_waits_and_is_refused(broker, queue, spool, monkeypatch):
    assert module._LOCK_WAIT == 10.0
    monkeypatch.setattr(module, "_LOCK_WAIT", 0.3)
    with receiving(broker.url, queue, spool, queryName="orders"):
        with pytest.raises(CaptureBusyError, match="another query or recorder fills this spool") as refused:
            new_receiver(broker.url, queue, spool)
        told = rf"held by pid {os.getpid()} on {re.escape(platform.node())}: the query 'orders' that reads {queue} "
        assert re.search(told + r"from stomp://\S+, since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$", str(refused.value))
        second = LiveStreamReader(given(broker.url, queue, spool), FRAME_SCHEMA)
        with pytest.raises(StoreError, match="another query or recorder fills this spool"):
            second.latestOffset({}, ALL)
        second.stop()
    with receiving(broker.url, queue, spool) as receiver:
        receiver.check()


def test_no_secret_and_no_control_character_is_in_the_note_of_a_holder(broker, queue, spool):
    (spool.parent / "secret").write_text(SECRET)
    options = {"login": "ann", "passcodeFile": spool.parent / "secret", "queryName": "a\x1b[31m\nb" * 100}
    with receiving(broker.url, queue, spool, **options):
        pass
    note = (spool / "lock").read_bytes()
    assert SECRET.encode() not in note
    assert len(note) <= 1001
    with contextlib.closing(CaptureWriter(spool, holder="me")):
        (spool / "lock").write_bytes(b"\xff\x1b[31m\n" * 1000)  # whatever stands there is shown as text, not much of it
        with pytest.raises(CaptureBusyError) as refused:
            CaptureWriter(spool)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1200 + len(str(spool))


def test_it_gets_the_spool_once_the_other_one_has_ended(broker, queue, spool):
    timer = threading.Timer(0.4, CaptureWriter(spool).close)
    timer.start()
    with receiving(broker.url, queue, spool) as receiver:
        receiver.check()
    timer.join()


@pytest.mark.parametrize("segments", ["many", "one"])
def test_a_full_disk_is_freed_of_what_spark_is_done_with(broker, queue, spool, monkeypatch, segments):
    """A disk of 300 kB, far below maxSpoolBytes: it goes on as soon as Spark is done with something."""
    disk = 300_000
    fill_disk(monkeypatch, lambda data: module._size_of(str(spool)) + len(data) > disk, lambda data: 0)
    monkeypatch.setattr("stompcodec.client.recorder._RETRY", 0.01)
    most = 400_000 if segments == "many" else 10**9  # a segment is an eighth of it
    publish(broker.url, queue, 60, body=bytes(10_000))
    with receiving(broker.url, queue, spool, maxSpoolBytes=most, prefetch=2) as receiver:
        wait_for(lambda: module._size_of(str(spool)) > disk - 12_000)  # another message does not fit
        wait_for(lambda: receiver.count == len(numbers(spool)))
        wait_for(lambda: "No space left on device" in (receiver.stalled or ""))
        assert receiver.waits
        assert 20 <= receiver.count < 30
        wait_for(lambda: len(numbers(spool)) == receiver.count)  # nothing that Spark has not read is deleted
        releasing(receiver, 60)
        wait_for(lambda: receiver.stalled is None)
    rest = numbers(spool)
    assert rest == list(range(rest[0], 60))
    assert rest[0] > 0
    assert broker.queued(queue) == 0


def test_the_spool_is_as_large_as_it_may_be(broker, queue, spool):
    """What Spark has not read stays, and the broker keeps the rest; what it has read makes room."""
    publish(broker.url, queue, 200, body=bytes(10_000))
    most = 500_000
    with receiving(broker.url, queue, spool, maxSpoolBytes=most, prefetch=5) as receiver:
        wait_for(lambda: receiver.stalled)
        assert "maxSpoolBytes" in receiver.stalled
        kept = receiver.count
        assert most <= module._size_of(str(spool)) < most + 150_000
        time.sleep(2.5 * module._LOOK)
        assert receiver.count == kept
        releasing(receiver, 200)
        assert module._size_of(str(spool)) < most + 300_000
    rest = numbers(spool)
    assert rest == list(range(rest[0], 200))
    assert rest[0] > 50
    assert broker.queued(queue) == 0


def test_a_full_spool_of_which_all_is_read_is_tidied_at_once(broker, queue, spool, monkeypatch):
    monkeypatch.setattr(module, "_LOOK", 10**9)  # longer than the machine has run
    publish(broker.url, queue, 60, body=bytes(10_000))
    with receiving(broker.url, queue, spool, maxSpoolBytes=200_000, prefetch=5) as receiver:
        releasing(receiver, 60)
        assert module._size_of(str(spool)) < 350_000


def test_what_spark_is_done_with_is_kept_for_some_time(broker, queue, spool):
    publish(broker.url, queue, 40, body=bytes(10_000))
    with receiving(broker.url, queue, spool, maxSpoolBytes=1_000_000, prefetch=5, retain="0s") as receiver:
        wait_for(lambda: receiver.count == 40)
        time.sleep(2 * module._LOOK)
        assert numbers(spool) == list(range(40))
        receiver.release(receiver.ends())
        wait_for(lambda: Capture(spool).segments()[0].base > 100_000)
        receiver.check()
        assert Capture(spool).end() - Capture(spool).segments()[0].base >= 125_000  # may be delivered again
    assert numbers(spool)[-1] == 39


removes_open_files = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no open files")


@removes_open_files
@pytest.mark.parametrize("mode", ["spool", "batch"])
@pytest.mark.parametrize("deed", DEEDS)
def test_a_spool_that_is_removed_ends_the_receiver(broker, queue, spool, deed, mode):
    publish(broker.url, queue, 20)
    with receiving(broker.url, queue, spool, ackMode=mode) as receiver:
        wait_for(lambda: receiver.count == 20)
        wait_for(lambda: mode == "batch" or not broker.queued(queue))
        DEEDS[deed](spool)
        publish(broker.url, queue, 30, first=20)
        error = failure(receiver.check)
        assert isinstance(error, StoreError)
        assert str(spool) in str(error)
        assert receiver.stalled is None, "it does not wait for the folder to come back"
    assert broker.queued(queue) == (30 if mode == "spool" else 50)


def test_it_comes_back_by_itself(broker, proxy, queue, spool):
    with receiving(proxy.url, queue, spool, reconnectTimeout="30s") as receiver:
        for round in range(4):
            publish(broker.url, queue, 10, first=10 * round)
            wait_for(lambda round=round: len(numbers(spool)) == 10 * round + 10)
            receiver.check()
            proxy.cut()
    assert numbers(spool) == list(range(40))


def test_a_broker_that_stays_away_ends_the_query(proxy, queue, spool, caplog):
    with receiving(proxy.url, queue, spool, reconnectTimeout="500ms") as receiver:
        receiver.check()
        proxy.rules.refuse = True
        proxy.cut()
        error = failure(receiver.check)
    assert isinstance(error, ConnectionLostError)
    assert "reconnectTimeout" in str(error)
    with closed_port() as port:
        options = given(f"stomp://127.0.0.1:{port}", queue, spool, reconnectTimeout="200ms")
        with pytest.raises(ConnectionLostError, match=r"\(option reconnectTimeout\): .*refused"):
            LiveReader(options, FRAME_SCHEMA).partitions()
    assert caplog.text.count("the source tries again for 0.2 s (option reconnectTimeout)") == 1


def test_a_destination_without_its_slash_is_told(broker, queue, spool, caplog):
    with receiving(broker.url, f"{queue},{queue[1:]}", spool):
        assert caplog.text.count(f"{queue[1:]} has no leading slash, so it is not {queue}") == 1


@pytest.mark.parametrize("mode", ["spool", "batch"])
def test_a_feed_that_is_silent_for_too_long_ends_the_query(broker, queue, spool, mode):
    publish(broker.url, queue, 5)
    with receiving(broker.url, queue, spool, expectEvery=f"{interval(400)}ms", ackMode=mode) as receiver:
        wait_for(lambda: receiver.count == 5)
        if mode == "batch":
            time.sleep(interval(800) / 1000)
            receiver.check()  # Spark has them, so the broker may have to wait
        receiver.release(receiver.ends())
        assert isinstance(failure(receiver.check), SilentFeedError)
    assert broker.queued(queue) == 0


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ({"CONNECT": lambda side, frame: side.error(frame, "bad login")}, RejectedError),
        ({"SUBSCRIBE": lambda side, frame: side.error(frame, "not allowed")}, RejectedError),
        (None, ConnectionLostError),
    ],
    ids=["login", "destination", "no broker"],
)
def test_what_is_refused_or_never_there_ends_the_query(queue, spool, monkeypatch, rules, error):
    monkeypatch.setattr(module, "_REFUSED", 0.2)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(closed_port()) if rules is None else stack.enter_context(Peer(rules=rules)).port
        longest = "300ms" if rules is None else "60s"
        with receiving(f"stomp://127.0.0.1:{port}", queue, spool, reconnectTimeout=longest) as receiver:
            assert isinstance(failure(receiver.check), error)


def test_a_message_that_breaks_each_connection_ends_the_query(queue, spool):
    def deliver(side, frame):
        side.subscriptions[frame.headers["id"]] = frame
        side.receipt(frame)
        side.deliver(frame.headers["id"], bytes(2000))

    options = {"maxBody": 1000, "reconnectTimeout": f"{interval(1500)}ms"}
    with Peer(rules={"SUBSCRIBE": deliver}) as peer, receiving(peer.url, queue, spool, **options) as receiver:
        assert "limit-exceeded" in str(failure(receiver.check))
    assert len(peer.got("SUBSCRIBE")) > 1


@pytest.mark.parametrize(
    ("server", "headers"),
    [
        ("ActiveMQ/5.18", {"activemq.prefetchSize": "7", "activemq.subscriptionName": "daily"}),
        ("ActiveMQ-Artemis/2.31", {"consumer-window-size": "8388608", "durable-subscription-name": "daily"}),
        ("RabbitMQ/3.13", {"prefetch-count": "7", "durable": "true", "auto-delete": "false"}),
    ],
)
def test_brokers_are_spoken_to_in_their_own_words(queue, spool, server, headers):
    options = {"prefetch": 7, "subscriptionName": "daily", "clientId": "me", "selector": "kind = 'x'"}
    topic = queue.replace("/queue/", "/topic/")
    with Peer(server=server) as peer:
        with receiving(peer.url, topic, spool, **options, subscribeHeaders='{"x-Own": "a:b"}') as receiver:
            receiver.check()
        (connect,), (subscribe,) = peer.got("CONNECT"), peer.got("SUBSCRIBE")
    assert connect.headers["client-id"] == "me"
    wanted = {"destination": topic, "ack": "client", "selector": "kind = 'x'", "x-Own": "a:b", **headers}
    assert {name: subscribe.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("kind", ["passcodeEnv", "passcodeFile"])
def test_the_passcode_is_nowhere_but_in_connect(queue, spool, kind, tmp_path, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("FEED_PASSCODE", SECRET)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    how = {"login": "ann", kind: "FEED_PASSCODE" if kind == "passcodeEnv" else tmp_path / "secret"}
    with Peer() as peer:
        options = parse_live(given(peer.url, queue, spool, **how))
        assert SECRET not in repr(options) + repr(pickle.dumps(options))
        with receiving(peer.url, queue, spool, **how) as receiver:
            receiver.check()
            assert SECRET not in repr(vars(receiver))
        (connect,) = peer.got("CONNECT")
    assert (connect.headers["login"], connect.headers["passcode"]) == ("ann", SECRET)
    assert SECRET not in caplog.text
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in spool.iterdir())


def test_a_passcode_that_is_not_there(queue, spool):
    for how, told in ({"passcodeEnv": "NOT_SET"}, "NOT_SET is not set"), ({"passcodeFile": spool}, "cannot be read"):
        with pytest.raises(OptionError, match=told):
            new_receiver("stomp://h", queue, spool, **how)
    assert not spool.exists()
    spool.write_bytes(b"hello")
    with pytest.raises(StoreError):
        new_receiver("stomp://h", queue, spool)


def test_the_metrics_tell_of_backlog_and_acknowledgements(broker, queue, spool):
    with receiving(broker.url, queue, spool, ackMode="batch") as receiver:
        assert receiver.metrics({})["silenceSeconds"] is None
        assert receiver.metrics({})["lagSeconds"] == 0.0
        publish(broker.url, queue, 20)
        wait_for(lambda: receiver.count == 20)
        found, end = receiver.metrics({}), receiver.ends()
        assert found["description"] == f"stomp: {queue} at {broker.url}, spool {spool}"
        assert (found["backlogBytes"], found["unacknowledged"]) == (end["frames"], 20)
        assert found["spoolBytes"] >= end["frames"]
        assert (found["connected"], found["stalled"]) == (True, None)
        assert receiver.metrics({"frames": end["frames"] - 5})["backlogBytes"] == 5
        time.sleep(0.2)
        publish(broker.url, queue, 1)
        wait_for(lambda: receiver.ends() != end)
        later, first = (receiver.metrics({"frames": begin})["lagSeconds"] for begin in (end["frames"], 0))
        assert 0 <= later <= first - 0.2 < patience(120)
        end = receiver.ends()
        assert receiver.metrics(end)["backlogBytes"] == 0
        receiver.release(end)
        wait_for(lambda: receiver.metrics(end)["unacknowledged"] == 0)
        age = receiver.metrics(end)["silenceSeconds"]
        assert age >= 0
    with receiving(broker.url, queue, spool, ackMode="batch") as receiver:  # nothing comes: the spool knows when
        assert receiver.metrics(end)["silenceSeconds"] >= age
        assert receiver.metrics(end)["lagSeconds"] == 0.0
        assert receiver.metrics({})["lagSeconds"] >= first


def test_times_are_those_of_the_frames_at_offsets(spool):
    frame = b"SEND\ndestination:/queue/a\n\n0123456789\0"
    with CaptureWriter(spool, single=False, segment_octets=100) as writer:
        places = [writer.append(frame, second * 10**6) for second in range(1, 8)]
        writer.append(b"ACK\nid:1\n\n\0", 0, "other")
        writer.sync()
        assert [module._times_of(spool, {"frames": place + 5}) for place in places] == [[n] for n in range(1, 8)]
    assert module._times_of(spool, {"frames": places[-1], "other": 0, "gone": 0}) == [7]
    shutil.rmtree(spool)
    assert module._times_of(spool, {"frames": 0}) == []


@pytest.fixture
def reader_of(broker, queue, spool):
    return lambda **options: LiveStreamReader(given(broker.url, queue, spool, **options), FRAME_SCHEMA)


@pytest.fixture
def end_of(broker, queue):
    def end(reader, start):
        try:
            wait_for(lambda: reader.latestOffset(start, ALL).get("frames") and not broker.queued(queue))
            return reader.latestOffset(start, ALL)
        finally:
            reader.stop()

    return end


def test_a_new_query_on_an_old_spool_is_told(broker, queue, reader_of, end_of, caplog):
    """A deleted checkpoint looks like that; Spark's file sinks would skip batches then."""
    publish(broker.url, queue, 3)
    end_of(reader_of(), end_of(reader_of(), {}))
    assert "file sink" not in caplog.text  # the spool was new, and then the offset was known
    end_of(reader_of(), {})
    assert caplog.text.count("a file sink of Spark skips batches") == 1


def test_a_new_query_begins_where_it_is_told_to(broker, queue, reader_of, end_of, caplog):
    assert reader_of(startingPosition="latest").initialOffset() == {}  # there is no spool
    publish(broker.url, queue, 3)
    end = end_of(reader_of(), {})
    middle = datetime.now(timezone.utc).isoformat()
    publish(broker.url, queue, 2, first=3)
    end_of(reader_of(), end)
    for position, count in (("latest", 0), (middle, 2), ("earliest", 5)):
        assert "file sink" not in caplog.text
        reader = reader_of(startingPosition=position)
        start = reader.initialOffset()
        parts = reader.partitions(start, end_of(reader, start))
        assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == count
    assert "file sink" in caplog.text


@pytest.mark.parametrize("filled", [20, 0])
def test_another_spool_is_refused_before_anything_is_received(
    broker, queue, spool, reader_of, end_of, tmp_path, caplog, filled
):
    """One that is longer than the offset, and one that is not there: each start fails, and so does a planned batch."""
    publish(broker.url, queue, 3)
    last = end_of(reader_of(), {})
    spool.rename(tmp_path / "kept")
    if filled:
        publish(broker.url, queue, filled, body=bytes(100))
        with receiving(broker.url, queue, spool) as receiver:
            wait_for(lambda: receiver.count == filled and not broker.queued(queue))
    publish(broker.url, queue, 5, first=3)
    told = f"is not the spool of the checkpoint.* everything behind offset {last['frames']} "
    for _ in range(3):
        with pytest.raises(StoreError, match=told + ".*set failOnDataLoss=false to read the new one from its start"):
            end_of(reader_of(), last)
    with pytest.raises(StoreError, match=f"lost: bytes 0 to {last['frames']} of frames "):
        reader_of().partitions({}, last)
    assert broker.queued(queue) == 5
    assert "lost:" not in caplog.text
    lenient = reader_of(failOnDataLoss="false")
    assert lenient.partitions({}, last) == []
    assert end_of(lenient, last)["#spool"] != last["#spool"]
    assert caplog.text.count("lost:") == 2


@pytest.mark.parametrize("kept", [1, 0])
def test_a_short_spool_of_the_same_identity_is_refused(broker, queue, spool, reader_of, end_of, caplog, kept):
    """As when a folder was put back in part: each start fails, and failOnDataLoss=false reads all that is there."""
    publish(broker.url, queue, 3)
    last = end_of(reader_of(), {})
    cut = [offset for chain in Capture(spool).chains() for offset, *_ in Capture(spool).frames(chain)][kept]
    for segment in spool.glob("frames-*.stomp"):
        os.truncate(segment, cut)
        if not cut:
            segment.unlink()
    publish(broker.url, queue, 20, first=3)  # soon it is longer than the offset
    for start in ({"frames": last["frames"]}, last, last):  # the first: an offset of an earlier version
        with pytest.raises(StoreError, match=f"lost: bytes {cut} to {last['frames']} of frames, which were read"):
            end_of(reader_of(), start)
    assert broker.queued(queue) == 20
    lenient = reader_of(failOnDataLoss="false")

    def read():
        parts = lenient.partitions(last, lenient.latestOffset(last, ALL))
        rows = [row for part in parts for batch in lenient.read(part) for row in batch.to_pylist()]
        return [int(dict(row["headers"])["n"]) for row in rows]

    try:
        wait_for(lambda: len(read()) == kept + 20)
        assert read() == [*range(kept), *range(3, 23)]
    finally:
        lenient.stop()
    assert caplog.text.count("lost:") == 1


@pytest.mark.parametrize("is_lost", [False, True])
def test_another_node_takes_over_from_the_archive(broker, queue, spool, reader_of, end_of, caplog, is_lost):
    """The spool was in a folder that is gone. What only that had is told; what follows is read, and nothing twice."""
    with object_store() as store:
        options = {"spoolArchive": store.uri("a.stompcap"), "maxSpoolBytes": "16k", "failOnDataLoss": not is_lost}

        def read(start, end):
            parts = reader_of(**options).partitions(start, end)
            found = [row for part in parts for batch in reader_of(**options).read(part) for row in batch.to_pylist()]
            return [int(dict(row["headers"])["n"]) for row in found]

        publish(broker.url, queue, 20, body=bytes(1000))
        last = end_of(reader_of(**options), {})
        assert read({}, last) == list(range(20))
        shutil.rmtree(spool)
        assert read({}, last) == list(range(20))  # a batch that comes again
        if is_lost:
            newest = max(name for name in store.names("a.stompcap") if name.endswith(".stomp"))
            for name in (newest, newest.replace(".stomp", ".idx")):
                store.system.delete_file(f"{store.bucket}/a.stompcap/{name}")
            with pytest.raises(StoreError, match=r"lost: .* were read .*failOnDataLoss=false to go on behind"):
                end_of(reader_of(**{**options, "failOnDataLoss": True}), last)
        publish(broker.url, queue, 5, first=20)
        end = end_of(reader_of(**options), last)
        assert end["#spool"] == last["#spool"]
        assert read(last, end) == list(range(20, 25))
        assert ("which were read already" in caplog.text) == is_lost
        assert "s3cr3t" not in caplog.text


# ---- the source as Spark sees it: what docs/spark-semantics.md promises, line by line ----
#: How often a query without new data shows progress, in ms.
IDLE = "spark.sql.streaming.noDataProgressEventInterval"


@pytest.mark.parametrize("mode", ["spool", pytest.param("batch", marks=pytest.mark.slow)])
def test_an_idle_stream_acknowledges_all(spark, broker, queue, tmp_path, mode):
    """Far more messages than the prefetch, and then nothing: all come, and all are acknowledged, without a new one."""
    publish(broker.url, queue, 150)
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "prefetch": 40, "ackMode": mode}
    with running(spark, tmp_path, sink, options) as query:
        wait_for(lambda: len(sink.column()) == 150, query)
        wait_for(lambda: broker.queued(queue) == 0, query)
    assert sink.column() == list(range(150))


def test_a_batch_that_failed_comes_again_as_it_was(spark, broker, queue, tmp_path):
    """The rows of the unfinished batch come from the spool, though the broker is away; that ends the query then."""
    publish(broker.url, queue, 20)
    sink, again = Rows(fail=True), Rows()
    with FaultProxy(("127.0.0.1", broker.port)) as proxy:
        options = {"url": f"stomp://127.0.0.1:{proxy.port}", "destination": queue}
        options |= {"reconnectTimeout": "500ms", "ackMode": "batch"}
        for way, told in ((sink, "the sink fails"), (again, "reconnectTimeout")):
            schema = "n int, spool string, pos long, received_at timestamp, message_id string"
            with running(spark, tmp_path, way, options, schema=schema) as query:
                wait_for(query.exception)
            assert told in str(query.exception())
            assert broker.queued(queue) == 20
            proxy.rules.refuse = True
    assert sink.column()
    first, second = ({key: rows for key, rows in each.batches.items() if rows} for each in (sink, again))
    assert first == second


def shown(query):
    text = query.lastProgress["sources"][0]["latestOffset"]
    return (json.loads(text) if isinstance(text, str) else text) or {}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux sets limits of other processes")
def test_a_full_disk_stops_acknowledging_and_loses_nothing(spark, broker, queue, tmp_path, request):
    """Files of the recorder may not grow beyond 60 kB for a while; the query goes on meanwhile."""
    resource, sink = pytest.importorskip("resource"), Rows()
    options = {"url": broker.url, "destination": queue, "prefetch": 20, "subscriptions": 2}
    request.addfinalizer(lambda: spark.conf.unset(IDLE))
    spark.conf.set(IDLE, "50")
    with running(spark, tmp_path, sink, options) as query:
        publish(broker.url, queue, 2)
        wait_for(lambda: len(sink.column()) == 2, query)
        process = runner(tmp_path / "spool")
        _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (60_000, most))
        publish(broker.url, queue, 198, first=2, body=bytes(2000))
        wait_for(lambda: len(sink.column()) > 20, query)
        written = len(sink.column())
        wait_for(lambda: query.lastProgress["sources"][0]["numInputRows"] == 0, query)
        assert written <= 60
        assert broker.queued(queue) >= 140
        if ADMISSION:  # else Spark asks for no report
            wait_for(lambda: "cannot be written" in shown(query).get("#stalled", ""), query)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, most))
        wait_for(lambda: len(sink.column()) >= 200 and broker.queued(queue) == 0, query)
        if ADMISSION:
            wait_for(lambda: "#stalled" not in shown(query), query)
    assert sorted(sink.column()) == list(range(200))
    assert sorted(Capture(tmp_path / "spool").chains()) == ["frames", "frames.1"]


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [1000, 4])
def test_available_now_drains_and_ends(spark, broker, queue, tmp_path, prefetch):
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "idleTimeout": f"{interval(500)}ms", "prefetch": prefetch}
    # Before 4.2 there is one batch, and nothing says that it is done.
    options["ackMode"] = "batch" if ADMISSION else "spool"
    for first in (0, 10):
        publish(broker.url, queue, 10, first=first)
        with running(spark, tmp_path, sink, options, availableNow=True) as query:
            assert query.awaitTermination(patience(120))
        wait_for(lambda: broker.queued(queue) == 0)
    assert sink.column() == list(range(20))


def test_a_batch_reads_what_comes_until_it_is_quiet(spark, broker, queue, tmp_path):
    publish(broker.url, queue, 12)
    options = {"url": broker.url, "destination": queue, "spoolDir": str(tmp_path / "spool")}
    options["idleTimeout"] = f"{interval(500)}ms"
    frames = spark.read.format("stomp").options(**options, maxFrames="5").schema("n int, body binary").load()
    assert [row.n for row in frames.collect()] == [0, 1, 2, 3, 4]
    wait_for(lambda: broker.queued(queue) == 7)
    rest = spark.read.format("stomp").options(**options).load()
    assert [row.headers["n"] for row in rest.collect()] == [str(number) for number in range(5, 12)]
    wait_for(lambda: broker.queued(queue) == 0)
    assert spark.read.format("stompfile").load(options["spoolDir"]).count() == 12


def test_a_batch_has_all_that_was_recorded_for_it(broker, queue, tmp_path, monkeypatch):
    """Messages that are in the spool before anything else is done with it, and one that comes last."""

    class Busy(Receiver):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            wait_for(lambda: self.count == 5)

        def close(self):
            self.resume()
            publish(broker.url, queue, 1)
            wait_for(lambda: self.count == 6)
            return super().close()

    monkeypatch.setattr("stompcodec.spark.receiver.Receiver", Busy)
    publish(broker.url, queue, 5)
    given = {"url": broker.url, "destination": queue, "spoolDir": str(tmp_path / "spool"), "idleTimeout": "100ms"}
    reader = LiveReader(given, FRAME_SCHEMA)
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 6


@pytest.mark.parametrize(
    ("form", "options", "told"),
    [
        ("stomp", {"url": "stomp://h", "destination": "/queue/a"}, "option spoolDir is missing"),
        ("stomp", {"passcode": SECRET}, "use passcodeEnv"),
        ("stompfile", {}, "option path is missing"),
    ],
)
def test_wrong_options_of_a_stream_are_told_by_load_and_by_start(spark, form, options, told):
    """Without a schema Spark asks the source for one; with a schema it asks nothing before the query runs."""
    reading = spark.readStream.format(form).options(**options)
    with pytest.raises(Exception, match=told):
        reading.load()
    query = reading.schema("body binary").load().writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match=told) as failure:
        query.awaitTermination(patience(120))
    assert not re.search(f"UnboundLocalError|{SECRET}", str(failure.value))


def test_a_passcode_is_in_no_plan_and_no_file(spark, broker, queue, tmp_path, capfd):
    """It comes from a file on the driver, and a query's plan, checkpoint and progress do not show it."""
    good = {"url": broker.url, "destination": queue, "spoolDir": str(tmp_path / "spool")}
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    publish(broker.url, queue, 3)
    sink = Rows()
    with running(spark, tmp_path, sink, {**good, "login": "ann", "passcodeFile": secret}) as query:
        wait_for(lambda: len(sink.column()) == 3, query)
        query.explain(True)
        shown = str(query.lastProgress) + "".join(capfd.readouterr())
    assert "stomp" in shown
    secret.unlink()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET not in shown
    assert SECRET.encode() not in kept
