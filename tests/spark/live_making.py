"""What the tests of the live source share: a broker that can be looked into, and queries that can be waited for."""

import contextlib
import os
import signal
import time
from pathlib import Path

from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.settings import Pauses
from stompcodec.testing import StompBroker


def live_broker():
    return StompBroker(redelivery_delay=Pauses())


def publish(url, queue, count, first=0, body=b""):
    with stomp.connect(url) as client:
        for number in range(first, first + count):
            client.send(queue, body, {"n": str(number)})
        client.ping()


def wait_for(what, query=None):
    until = time.monotonic() + patience(120)
    while not (found := what()):
        assert query is None or query.exception() is None, query.exception()
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def failure(call):
    """What a call raises in the end, if it is tried again and again."""

    def failed():
        try:
            call()
        except Exception as error:
            return error

    return wait_for(failed)


class Rows:
    def __init__(self, fail=False):
        self.batches, self.fail = {}, fail  # whether it fails, once it has the rows of a batch

    def __call__(self, frame, batch):
        self.batches[batch] = rows = [tuple(row) for row in frame.collect()]
        if self.fail and rows:
            raise RuntimeError("the sink fails")

    def column(self, number=0):
        return [row[number] for batch in sorted(self.batches) for row in self.batches[batch]]


@contextlib.contextmanager
def running(spark, folder, sink, options, *, schema="n int", **trigger):
    """A query from a broker into a sink; its spool and its checkpoint are in the folder."""
    given = {"spoolDir": str(folder / "spool"), **{name: str(value) for name, value in options.items()}}
    frames = spark.readStream.format("stomp").options(**given).schema(schema).load()
    writer = frames.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(**(trigger or {"processingTime": "50 milliseconds"})).start()
    try:
        yield query
    finally:
        query.stop()


def runner(spool):
    """The process in which the recorder of this spool runs: it holds its lock. Linux only."""
    lock = os.path.realpath(spool / "lock")
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and any(os.path.realpath(link) == lock for link in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody holds {lock}")


def goes_on_when_killed(spark, broker, queue, spool, check, body=b""):
    """Send 20 messages, kill the process of the source, and send 20 more; return the query that read those."""

    def read(but=None):
        check()
        for query in spark.streams.active:
            if query.runId != but and sum(each["numInputRows"] for each in query.recentProgress) >= 20:
                return query

    publish(broker.url, queue, 20, body=body)
    killed = wait_for(read).runId
    os.kill(runner(spool), signal.SIGKILL)
    publish(broker.url, queue, 20, first=20, body=body)
    return wait_for(lambda: read(but=killed))
