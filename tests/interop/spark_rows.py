"""Spark against brokers: what is in a queue comes into Parquet once each, and a table goes into a queue in order."""

import contextlib
import functools
import importlib.util
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from crash.process import environment
from interop.checks import queue, same
from interop.driver import Failed, Target
from patience import patience

import stompcodec.client as stomp

#: Messages of a check; and of each queue while a driver is killed: half of them before that, the others meanwhile.
_COUNT = 3000
_KILLED = 600
_PREFETCH = 100  # Far less than there is, so that it all comes only if acknowledgements reach the broker.
_MODES = ("spool", "batch")
#: The processes of Spark have the variables of Java, which other tests of this process may have started.
_PASSCODE = "STOMPCODEC_INTEROP_PASSCODE"
os.environ.setdefault(_PASSCODE, "guest")
#: What a message is known by when it is delivered again, where that is not the message-id: RabbitMQ makes new ones.
_DEDUPE = {"rabbitmq": "header:uuid"}
_ODD = "a:b\\c ü"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # What makes Java start sooner, and run slower.


class Place(NamedTuple):
    spark: Any
    target: Target
    folder: Path

    def connect(self) -> stomp.Client:
        return stomp.connect(self._url, login=self.target.login, passcode=self.target.passcode)

    @property
    def _url(self) -> str:
        return f"stomp://{self.target.host}:{self.target.port}/{quote(self.target.vhost, safe='')}"

    def link(self, destination: str) -> dict[str, str]:
        """Options of Spark's source and sink. Spark's processes have the passcode in a variable."""
        options = {"url": self._url, "destination": destination}
        return {**options, "login": self.target.login, "passcodeEnv": _PASSCODE}

    def source(self, destination: str, mode: str, folder: Path) -> dict[str, str]:
        options = {**self.link(destination), "spoolDir": str(folder / "spool"), "ackMode": mode}
        options |= {"prefetch": str(_PREFETCH), "maxFramesPerTrigger": "500", "idleTimeout": "2s"}
        return {**options, "dedupe": _DEDUPE.get(self.target.name, "messageId")}

    def send(self, destination: str, numbers: Iterable[int]) -> None:
        with self.connect() as client:
            client.send_many(
                (destination, b"%d" % number, {"n": str(number), "uuid": str(uuid.uuid4()), "persistent": "true"})
                for number in numbers
            )

    def left(self, destination: str) -> int:
        """How many messages a second consumer gets."""
        return len(self.taken(destination))

    def taken(self, destination: str, count: int = 0) -> list[stomp.Message]:
        """So many messages, and what more there is."""
        found: list[stomp.Message] = []
        with self.connect() as client:
            subscription = client.subscribe(destination, ack="client-individual", prefetch=1000)
            while (message := subscription.get(10.0 if len(found) < count else 1.0)) is not None:
                found.append(message)
                message.ack()
            client.ping()
        return found


SPARK_CHECKS: dict[str, Callable[[Place], None]] = {}


def check(function: Callable[[Place], None]) -> Callable[[Place], None]:
    SPARK_CHECKS[function.__name__.replace("_", "-")] = function
    return function


def _once_each(folder: Path, count: int) -> None:
    """What is in the sink is what was sent."""
    from spark.live_rounds import rows_in

    times = Counter(rows_in(folder)[0])
    missing = len(set(range(count)) - set(times))
    same((missing, times.total() - len(times)), (0, 0), f"{count} sent: missing, duplicates")
    same(set(times) - set(range(count)), set(), "numbers that nobody sent")


def _read(place: Place, mode: str) -> None:
    destination, folder = queue(f"spark-{mode}"), place.folder / mode
    place.send(destination, range(_COUNT))
    frames = place.spark.readStream.format("stomp").options(**place.source(destination, mode, folder))
    rows = frames.schema("n long, redelivered boolean").load()
    writer = rows.writeStream.format("parquet").option("path", str(folder / "sink"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(round(patience(120))):
            raise Failed(f"it does not end within {patience(120):g} s: {query.lastProgress}")
    finally:
        query.stop()
    _once_each(folder, _COUNT)
    same(place.left(destination), 0, "left in the broker")


@check
def read_spool(place: Place) -> None:
    """3000 messages into Parquet with a prefetch of 100, acknowledged once they are in the spool; each once."""
    _read(place, "spool")


@check
def read_batch(place: Place) -> None:
    """3000 messages into Parquet with a prefetch of 100, acknowledged once Spark has committed them; each once."""
    _read(place, "batch")


@check
def killed_driver(place: Place) -> None:
    """Driver and JVM were killed half-way, and began again: each message once in the sinks of both modes."""
    queues = {mode: queue(f"spark-killed-{mode}") for mode in _MODES}
    _kill(place, queues)
    for mode, destination in queues.items():
        _once_each(place.folder / mode, _KILLED)
        same(place.left(destination), 0, f"left in the broker, ackMode {mode}")


def _kill(place: Place, queues: dict[str, str]) -> None:
    """One driver reads both modes, and is killed."""
    from spark.live_rounds import Driver, rows_in

    folder = place.folder
    lanes: dict[str, dict[str, Any]] = {
        mode: {"format": "stomp", "options": place.source(destination, mode, folder / mode)}
        for mode, destination in queues.items()
    }

    def send(first: int, end: int) -> None:
        for destination in queues.values():
            place.send(destination, range(first, end))

    def more() -> None:
        for first in range(_KILLED // 2, _KILLED, 50):
            send(first, first + 50)

    def through() -> bool:
        return all(len(set(rows_in(folder / name)[0])) >= _KILLED for name in lanes)

    send(0, _KILLED // 2)
    with Driver(folder, lanes) as driver:
        driver.wait_for_a_batch()
        meanwhile = threading.Thread(target=more)
        meanwhile.start()
        try:
            driver.kill()
            if through():
                raise Failed("the driver was through before it was killed")
            driver.wait()
        finally:
            meanwhile.join()
        until = time.monotonic() + patience(120)
        while time.monotonic() < until and not through():  # what is not there then is missing
            driver.check()
            time.sleep(0.5)
        time.sleep(2.0)  # the last acknowledgements
        driver.stop()


@check
def write(place: Place) -> None:
    """3000 rows by df.write, in a transaction with receipts: all come once, in order, as they were."""
    destination = queue("spark-write")
    rows = place.spark.range(0, _COUNT, 1, 1).selectExpr(
        "cast(id AS int) AS n", "encode(concat('ü ', id), 'UTF-8') AS body", "concat('a:b', char(92), 'c ü') AS odd"
    )
    options = {**place.link(destination), "transaction": "true", "receiptEvery": "500"}
    rows.write.format("stomp").options(**options).mode("append").save()
    found = [(each.headers.get("n"), each.body, each.headers.get("odd")) for each in place.taken(destination, _COUNT)]
    expected = [(str(number), f"ü {number}".encode(), _ODD) for number in range(_COUNT)]
    same(len(found), _COUNT, "messages")
    wrong = next((pair for pair in zip(found, expected) if pair[0] != pair[1]), None)
    if wrong is not None:
        same(*wrong, "first message that differs")
    same(place.left(destination), 0, "left in the broker")


@functools.cache
def missing() -> str:
    """What has to be installed first, or ""."""
    absent = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


@contextlib.contextmanager
def sparks() -> Iterator[Any]:
    """A Spark session for all brokers: it takes seconds, and a gigabyte."""
    from stompcodec.spark import session

    before = dict(os.environ)
    os.environ.update(environment())
    made = session("interop", cores=2, **{"spark.driver.extraJavaOptions": _QUICK, "spark.sql.shuffle.partitions": 2})
    try:
        yield made
    finally:
        made.stop()
        os.environ.clear()
        os.environ.update(before)
