"""Persistent messages of other people's brokers, read under kill -9 of reader and broker: none is lost or doubled."""

from __future__ import annotations

import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from client.feeding import wait_for
from crash.process import Verb
from interop.taking import held
from patience import patience

import stompcodec.client as stomp
from stompcodec.capture import Capture
from stompcodec.testing import StompBroker

QUICK = stomp.Backoff(first=0.05, most=0.5)


class Feed(threading.Thread):
    """Sends numbered messages to a queue, and waits for the receipt of each."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(daemon=True)
        self.url, self.queue = url, queue
        self.sent: set[int] = set()
        self.unsure: set[int] = set()  # the broker was killed before the receipt: it may have them
        self.ending = threading.Event()

    def __enter__(self) -> Feed:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.join(patience(120))

    def run(self) -> None:
        number = 0
        with stomp.connect(self.url, reconnect=QUICK) as client:
            while not self.ending.is_set():
                try:
                    client.send(self.queue, b"%d" % number, {"n": str(number)}, persistent=True, receipt=True)
                    self.sent.add(number)
                except stomp.StompError:
                    self.unsure.add(number)
                number += 1

    def check(self, got: list[int]) -> None:
        assert sorted(self.sent - set(got)) == []
        assert {number: times for number, times in Counter(got).items() if times > 1} == {}
        assert set(got) <= self.sent | self.unsure

    def is_in(self, got: list[int]) -> bool:
        return self.sent <= set(got)


class Recording(Verb):
    def __init__(self, url: str, queues: Sequence[str], dedupe: str, path: Path) -> None:
        self.path = path
        options = ["-o", str(path), "--dedupe", dedupe, "--segment", "100K", "-q"]
        super().__init__("record", url, *queues, *options, log=path.with_suffix(".log"))

    def numbers(self, queue: str) -> list[int]:
        frames = [frame for _, _, frame in Capture(self.path).frames()] if self.path.exists() else []
        return [int(frame.body) for frame in frames if frame.headers["destination"].endswith(queue.lstrip("/"))]


def rounds(peer: Any, feed: Feed, reader: Any, numbers: Callable[[], list[int]]) -> None:
    """Kill the reader, the broker, and both; then let the reader take what is left."""

    def moved(more: int) -> None:
        enough = len(numbers()) + more

        def on() -> bool:
            reader.keep()
            return len(numbers()) >= enough

        wait_for(on)

    for kill_reader, kill_broker in ((True, False), (False, True), (True, True), (True, False)):
        moved(150)
        if kill_reader:
            reader.kill()
        if kill_broker:
            peer.kill()
            peer.start()
    moved(1)
    feed.ending.set()
    feed.join(patience(120))

    def through() -> bool:
        reader.keep()
        return feed.is_in(numbers())

    wait_for(through)


def url_of(peer: Any) -> str:
    return f"stomp://127.0.0.1:{peer.ports['stomp']}"


@pytest.mark.slow
@pytest.mark.peer("artemis", "activemq6")
def test_a_bridge_under_kills(peer: Any, tmp_path: Path) -> None:
    queue = f"/queue/bridged.{uuid4().hex}"
    url = url_of(peer)
    with StompBroker() as target, Feed(url, queue) as feed:
        maps = ["--map", f"{queue}=/queue/b", "--from-name", "peer"]
        bridge = Verb("bridge", url, target.url, *maps, log=tmp_path / "log")
        got: list[int] = []

        with stomp.connect(target.url) as client:
            client.subscribe("/queue/b", handler=lambda message: got.append(int(message.body)))
            try:
                rounds(peer, feed, bridge, lambda: list(got))
                assert bridge.end() == 0
            finally:
                bridge.kill()
        feed.check(got)
    assert held(url, queue, 2.0) == []


@pytest.mark.slow
@pytest.mark.peer("artemis", "activemq6", "rabbitmq", "rabbitmq4")
def test_a_recorder_under_kills(peer: Any, tmp_path: Path) -> None:
    """Of two queues, as one ACK settles all that came before it: on RabbitMQ also that of others on its connection."""
    url, queues = peer.url, [f"/queue/recorded.{uuid4().hex}" for _ in range(2)]
    dedupe = "header:n" if peer.row.name.startswith("rabbitmq") else "messageId"
    with Feed(url, queues[0]) as feed, Feed(url, queues[1]) as other:
        recording = Recording(url, queues, dedupe, tmp_path / "a.stompcap")

        def others() -> bool:
            recording.keep()
            return other.is_in(recording.numbers(queues[1]))

        try:
            rounds(peer, feed, recording, lambda: recording.numbers(queues[0]))
            other.ending.set()
            other.join(patience(120))
            wait_for(others)
        finally:
            recording.kill(signal.SIGTERM)
        for each, queue in zip((feed, other), queues):
            each.check(recording.numbers(queue))
            assert held(url, queue, 2.0) == []


@pytest.mark.slow
@pytest.mark.peer("artemis", "activemq6")
def test_a_table_of_spark_under_kills(peer: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from spark.live_rounds import Driver, rows_in

    url, id = url_of(peer), uuid4().hex
    lanes: dict[str, Any] = {}
    for mode in ("spool", "batch"):
        options = {"url": url, "destination": f"/queue/{mode}.{id}", "spoolDir": str(tmp_path / mode / "spool")}
        lanes[mode] = {"format": "stomp", "options": {**options, "ackMode": mode, "prefetch": "200"}}
    with (
        Feed(url, lanes["spool"]["options"]["destination"]) as spool,
        Feed(url, lanes["batch"]["options"]["destination"]) as batch,
        Driver(tmp_path, lanes) as driver,
    ):
        for kill in (driver.kill, peer.kill, driver.kill_jvm):
            driver.wait_for_a_batch()
            kill()
            peer.start()
        driver.wait_for_a_batch()
        for feed in (spool, batch):
            feed.ending.set()
            feed.join(patience(120))

        def through() -> bool:
            driver.check()
            return all(feed.is_in(rows_in(tmp_path / mode)[0]) for feed, mode in ((spool, "spool"), (batch, "batch")))

        wait_for(through, 180)
        driver.stop()
    spool.check(rows_in(tmp_path / "spool")[0])
    batch.check(rows_in(tmp_path / "batch")[0])


@pytest.fixture
def emptied(peer: Any) -> Iterator[Callable[[], None]]:
    """A function that kills the server, and starts it with a new journal."""

    def empty() -> None:
        peer.kill()
        shutil.rmtree(peer.folder / "instance" / "data")
        peer.start()

    yield empty
    with suppress(OSError):
        peer.start()


@pytest.mark.peer("artemis")
def test_a_new_journal_loses_nothing(peer: Any, emptied: Callable[[], None], tmp_path: Path) -> None:
    """It gives the same numbers again, to messages with the same bodies."""
    queue, path = "/queue/journal", tmp_path / "a.stompcap"
    ids = []
    for _ in range(2):
        emptied()
        with stomp.connect(peer.url) as client:
            client.send_many([(queue, b"%d" % number) for number in range(50)])  # not persistent: each takes one number
        recording = Recording(url_of(peer), queue, path)
        recording.keep()
        before = len(ids)
        wait_for(lambda before=before, recording=recording: len(recording.numbers()) >= before + 50)
        recording.kill(signal.SIGTERM)
        ids += [frame.headers["message-id"].partition(",")[2] for _, _, frame in Capture(path).frames()][before:]
    assert set(ids[:50]) & set(ids[50:])  # else nothing is proven
    assert recording.numbers() == list(range(50)) * 2
