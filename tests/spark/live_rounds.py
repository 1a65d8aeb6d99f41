"""Rounds of kill -9 for drivers, JVMs, recorders and brokers, while a producer sends; then the sinks are counted."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as parquet
from client.feeding import left
from crash.process import BrokerProcess
from installed import environment
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.settings import Pauses
from stompcodec.errors import StompError
from stompcodec.testing import StompBroker

LANES = ("spool", "batch", "file")
#: Messages a second on each queue, and how many wait for receipts together.
_RATE, _TOGETHER = 100, 20
#: What Spark says where the machine is too busy for it.
_SLOW = "Python worker failed to connect back"
#: What a recorder ends with where no broker is there yet when it begins, or no longer.
_NO_BROKER = ("cannot connect to", "connection was lost")
#: No message becomes a dead letter, however often it is delivered.
_CONFIG = "[queues]\nmax_attempts = 1000000\n"


class Figures(NamedTuple):
    """What became of the messages of a lane."""

    sent: int  # with a receipt
    unsure: int  # sent, but the broker was killed before the receipt came: they may be there or not
    rows: int
    missing: int
    duplicates: int
    redelivered: int  # rows the broker had sent before
    left: int  # what the broker still has in the end
    torn: int  # files that a killed batch left in the sink, and that count for nothing


def rounds(folder, count, *, seed=0, kinds=("driver", "jvm", "recorder", "broker"), progress=lambda text: None):
    """Kill one of these kinds so many times, at random moments, and count what the sinks of each lane have in the end.
    The folder is for everything that is kept; `progress` is called after each round; each kind has its share."""
    chance = random.Random(seed)
    plan = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(plan)
    with contextlib.ExitStack() as stack:
        flags = ("--port", str(_free_port()))
        broker = stack.enter_context(BrokerProcess(folder / "broker", config=_CONFIG, flags=flags))
        url = f"stomp://127.0.0.1:{broker.port}"
        recorder = stack.enter_context(Recorder(url, folder))
        driver = stack.enter_context(Driver(folder, _lanes(url, folder)))
        producer, began = stack.enter_context(Producer(url)), time.monotonic()
        kills = {"driver": driver.kill, "jvm": driver.kill_jvm, "recorder": recorder.kill}
        kills["broker"] = lambda: (broker.kill(), broker.start())
        for number, kind in enumerate(plan, 1):
            driver.check()
            recorder.check()
            if kind in ("driver", "jvm") and chance.random() < 0.7:
                driver.wait_for_a_batch()  # the next one follows at once, and is hit in the middle
            moment = chance.uniform(0.05, 2.5)
            time.sleep(moment)
            kills[kind]()
            told = f"round {number} of {count}: {kind} killed after {moment:.1f} s, {producer.count:,} sent,"
            progress(f"{told} {time.monotonic() - began:.0f} s")
        producer.stop()
        driver.wait()
        until = time.monotonic() + patience(240)  # what is not there then is missing
        while time.monotonic() < until:
            if all(producer.sent[lane] <= set(rows_in(folder / lane)[0]) for lane in LANES):
                break
            driver.check()
            recorder.check()
            time.sleep(0.5)
        time.sleep(patience(2.0))  # the last acknowledgements
        driver.stop()
        recorder.stop()
        still = {lane: left(url, _queue(lane)) for lane in LANES}
    return {lane: _figures(folder / lane, producer, lane, still[lane]) for lane in LANES}


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _queue(lane):
    return f"/queue/live.{lane}"


def _lanes(url, folder):
    lanes = {"file": {"format": "stompfile", "options": {"path": str(folder / "file" / "spool")}}}
    for mode in ("spool", "batch"):
        options = {"url": url, "destination": _queue(mode), "spoolDir": str(folder / mode / "spool")}
        options |= {"ackMode": mode, "prefetch": "1000", "subscriptions": "2", "maxSpoolBytes": "200m"}
        lanes[mode] = {"format": "stomp", "options": options}
    return lanes


class Program:
    """A process that is started again when it was killed."""

    def __init__(self, command, log, **options):
        self._command, self._log, self._options = [sys.executable, *command], log, options
        self._environment = environment(Path(__file__).parents[1])

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end()

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, env=self._environment, **self._options)

    def end(self):
        self.process.kill()
        self.process.wait()
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()

    def kill(self):
        self.end()
        self.start()

    def tail(self):
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])


class Recorder(Program):
    def __init__(self, url, folder):
        (folder / "file").mkdir(parents=True)
        command = ["-m", "stompcodec.cli", "record", url, _queue("file"), "-o", str(folder / "file" / "spool")]
        super().__init__([*command, "--dedupe", "messageId", "--segment", "500K", "-q"], folder / "recorder.log")

    def check(self):
        """It ends by itself only where it finds no broker, and who keeps such programs running starts it again."""
        if self.process.poll() is None:
            return
        last = (self.tail().splitlines() or [""])[-1]
        if self.process.returncode != 1 or not any(text in last for text in _NO_BROKER):
            raise RuntimeError(f"the recorder has ended with {self.process.returncode}: {self.tail()}")
        self.kill()

    def stop(self):
        self.process.terminate()
        self.process.wait(patience(240))


class Driver(Program):
    """The driver of all lanes, with its JVM; a lane has a name, and the format and options of its source."""

    def __init__(self, folder, lanes):
        order = json.dumps({"folder": str(folder), "lanes": lanes})
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        super().__init__([str(Path(__file__).with_name("live_driver.py")), order], folder / "driver.log", **pipes)
        self._jvm, self._through = None, False

    def wait(self):
        while self._jvm is None:
            line = self.process.stdout.readline()
            said = json.loads(line) if line else {}
            if "jvm" in said:
                self._jvm = int(said["jvm"])
            else:
                self._begin_again(str(said))

    def wait_for_a_batch(self):
        while not self._through:
            self.wait()
            line = self.process.stdout.readline()
            self._through = b"batch" in line
            if not self._through:
                self._begin_again(line.decode())

    def check(self):
        """Nothing but a kill ends it."""
        if self.process.poll() is not None:
            self._begin_again(self.process.stdout.read().decode())
        self.wait()

    def _begin_again(self, said):
        """It has ended by itself, which is only for Spark to do: where its processes do not start within 10 s."""
        if _SLOW not in said:
            raise RuntimeError(f"the driver has ended: {said}\n{self.tail()}")
        self.kill()

    def kill_jvm(self):
        os.kill(self._jvm, 9)
        time.sleep(0.3)
        self.kill()

    def end(self):
        jvm, self._jvm, self._through = self._jvm, None, False
        if jvm is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(jvm, 9)
        super().end()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(patience(240))
        self._jvm = None


class Producer(threading.Thread):
    def __init__(self, url):
        super().__init__(name="producer")
        self._client = stomp.connect(url, reconnect=stomp.Backoff(first=0.05, most=0.5), receipt_timeout=20.0)
        self._stopped = threading.Event()
        self.sent, self.unsure = ({lane: set() for lane in LANES} for _ in range(2))
        self.count = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self._client.close()

    def stop(self):
        self._stopped.set()
        self.join()

    def run(self):
        due = time.monotonic()
        while not self._stopped.is_set():
            waiting = []
            for number in range(self.count, self.count + _TOGETHER):
                for lane in LANES:
                    headers = {"n": str(number), "persistent": "true"}
                    receipt = self._client.send_for_receipt(_queue(lane), b"%d" % number, headers)
                    waiting.append((receipt, lane, number))
            self.count += _TOGETHER
            for receipt, lane, number in waiting:
                try:
                    receipt.wait()
                    self.sent[lane].add(number)
                except StompError:
                    self.unsure[lane].add(number)
            due = max(due + _TOGETHER / _RATE, time.monotonic() - 1.0)
            self._stopped.wait(max(0.0, due - time.monotonic()))


def _committed(sink):
    """The files that count, by the log of the sink."""
    logs = {}
    for path in (sink / "_spark_metadata").glob("[0-9]*"):
        number, _, kind = path.name.partition(".")
        if kind in ("", "compact"):
            logs[int(number)] = path
    whole = max((number for number, path in logs.items() if path.suffix), default=-1)
    lines = [line for number in sorted(logs) if number >= whole for line in logs[number].read_text().splitlines()[1:]]
    return [Path(unquote(urlsplit(json.loads(line)["path"]).path)) for line in lines]


def rows_in(folder):
    tables = [parquet.read_table(path) for path in _committed(folder / "sink")]
    numbers = [number for table in tables for number in table["n"].to_pylist()]
    return numbers, sum(sum(map(bool, table["redelivered"].to_pylist())) for table in tables)


def _figures(folder, producer, lane, still):
    numbers, again = rows_in(folder)
    times = Counter(numbers)
    sent, unsure = producer.sent[lane], producer.unsure[lane]
    assert set(times) <= sent | unsure, "rows that nobody sent"
    return Figures(
        *(len(sent), len(unsure), len(numbers)),
        missing=len(sent - set(times)),
        duplicates=sum(count - 1 for count in times.values()),
        redelivered=again,
        left=still,
        torn=len(set((folder / "sink").glob("*.parquet")) - set(_committed(folder / "sink"))),
    )


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


def goes_on_when_killed(spark, broker, queue, spool, run, body=b"", look=lambda query: None):
    """Run a query, send 20 messages, kill the process of the source, and send 20 more. Return what looking at the query
    that read those gave, and what `run` returned when its query was stopped."""
    results = []

    def keep():
        try:
            results.append(run())
        except BaseException as error:
            results.append(error)

    def read(but=None):
        assert not results, results
        for query in spark.streams.active:
            if query.runId != but and sum(each["numInputRows"] for each in query.recentProgress) >= 20:
                return query

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        publish(broker.url, queue, 20, body=body)
        killed = wait_for(read).runId
        os.kill(runner(spool), signal.SIGKILL)
        publish(broker.url, queue, 20, first=20, body=body)
        seen = look(wait_for(lambda: read(but=killed)))
    finally:
        for query in spark.streams.active:
            query.stop()
        thread.join(patience(120))
    (result,) = results
    assert not isinstance(result, BaseException), result
    return seen, result
