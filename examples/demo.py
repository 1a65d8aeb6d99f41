"""A feed becomes tables and a report, while its driver is killed: `make demo`, or `python examples/demo.py`.

Spark streams an invented feed from a broker into Parquet. Half-way the driver and its JVM get kill -9, and start again.
Then typed tables, figures and a report are made. Exit status 0: every message is in the sink exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from railway import ID_HEADER, TD, TRUST, Ledger, send

import stompcodec.client as stomp
from stompcodec.errors import StompError
from stompcodec.testing import StompBroker

_SPAWN = get_context("spawn")
#: Typed tables: name, destination, preset.
TABLES = (("td", TD, "networkrail-td"), ("trust", TRUST, "networkrail-trust"))
#: Marks a folder that a demonstration made, and that may be emptied.
_MARK = ".stompcodec-demo"
#: Messages per second, and most seconds that the feed may take.
_RATE, _LONGEST = 1000, 40
#: Shares of the messages when the driver is killed: from `_SENT` to `_HELD` are sent, at least `_STORED` are stored.
_SENT, _STORED, _HELD = 0.5, 0.25, 0.75
#: Seconds to wait for progress; seconds without a new row after which the driver stops waiting.
_PATIENCE, _QUIET = 300.0, 30.0


def main() -> None:
    """Run the demonstration, and exit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20_000, metavar="N", help="number of messages (20000)")
    parser.add_argument("--folder", default="stompcodec-demo", metavar="DIR", help="output folder (./stompcodec-demo)")
    options = parser.parse_args()
    if options.frames < 100:
        parser.error("--frames must be at least 100")
    folder = Path(options.folder).resolve()
    if folder.exists() and not (folder / _MARK).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"{folder} is not empty and was not made by a demonstration: choose another --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    try:
        result, killed = run(folder, options.frames)
    except StompError as error:
        sys.exit(f"stompcodec demo: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print("\n".join(table(result, killed)))
    print(f"the report: {folder / 'report' / 'report.html'}")
    sys.exit(1 if result["wrong"] else 0)


def run(folder: Path, frames: int) -> tuple[dict[str, Any], int]:
    """Run the demonstration in a folder, and return the proof, and the rows in the sink when the driver was killed."""
    started = time.monotonic()

    def stage(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)

    stage(f"a broker with a store on disk, a feed of {frames:,} messages, and Spark")
    ledger, go_on, held = Ledger(), threading.Event(), int(frames * _HELD)
    with StompBroker(data=str(folder / "broker"), keep=0) as broker, ThreadPoolExecutor(1) as pool:
        url, rate = broker.url, max(_RATE, frames / _LONGEST)
        feed = pool.submit(send, url, frames, ledger, rate=rate, before=lambda at: at == held and go_on.wait())
        driver = Driver(url, folder, frames, 1)

        def check() -> None:
            if feed.done():
                feed.result()

        try:
            driver.wait("rows", lambda rows: rows is not None, check)
            stage("Spark streams from the broker into Parquet")
            driver.wait("rows", lambda rows: rows >= _STORED * frames and ledger.sent >= _SENT * frames, check)
            go_on.set()
            time.sleep(random.uniform(0.1, 0.5))  # any moment will do while messages are in flight
            killed, sent = driver.told["rows"], ledger.sent
            driver.kill()
            stage(f"kill -9: the driver and its JVM, with {killed:,} messages in the sink, {sent:,} sent")
            stage("the feed goes on, and Spark starts again")
            driver = Driver(url, folder, frames, 2)
            driver.wait("rows", lambda rows: rows is not None, check)
            stage("Spark goes on where its checkpoint says")
            driver.wait("rows", lambda rows: feed.done(), check)
            (folder / "ledger.part").write_text(json.dumps(vars(ledger), default=sorted), encoding="utf-8")
            (folder / "ledger.part").replace(folder / "ledger.json")
            driver.wait("streamed", bool)
            stage("typed tables, with a quarantine for what cannot be read, figures by the minute, and the report")
            result: dict[str, Any] = driver.wait("proof", bool)
            driver.end()
        finally:
            go_on.set()
            driver.close()
    stage("done")
    return result, killed


def table(result: dict[str, Any], killed: int) -> Iterator[str]:
    """Yield the lines of the proof."""
    yield ""
    for name, figure in (
        ("sent by the feed, each confirmed by the broker", result["produced"] + result["sent_twice"]),
        ("  of these the same message once more (same id, same body)", result["sent_twice"]),
        ("in the sink when driver and JVM got kill -9", killed),
        ("produced: different messages", result["produced"]),
        ("in the sink: rows of the archive", result["in_sink"]),
        ("missing", result["missing"]),
        ("duplicates", result["duplicates"]),
        ("damaged: not the body that was sent", result["damaged"]),
        ("left in the broker, not acknowledged", result["left_in_broker"]),
        ("delivered again by the broker after the kill, and stored once", result["redelivered"]),
        ("invalid bodies", result["malformed"]),
        ("  of these in quarantine", result["quarantined"]),
        ("events in the other bodies", result["events"]),
        ("  rows of the typed tables", result["typed_rows"]),
        ("messages 5 to 90 minutes late by their timestamp", result["late"]),
    ):
        yield f" {name:<63}{figure:>8,}"
    yield ""
    yield from (f"wrong: {each}" for each in result["wrong"])
    yield "not as it should be" if result["wrong"] else "every message is in the sink, and once"


class Driver:
    """The Spark program, a process that tells what it does."""

    def __init__(self, url: str, folder: Path, frames: int, number: int) -> None:
        self.told: dict[str, Any] = {}
        self._log = folder / f"driver-{number}.log"
        self._pipe, theirs = _SPAWN.Pipe(duplex=False)
        arguments = url, folder, frames, self._log, theirs
        self._process = _SPAWN.Process(target=drive, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    def wait(self, name: str, enough: Callable[[Any], bool], check: Callable[[], object] = lambda: None) -> Any:
        """Wait until what it told of this name is enough; end the program if it ended, or told nothing for long."""
        until = time.monotonic() + _PATIENCE
        while not enough(self.told.get(name)):
            check()
            before = dict(self.told)
            try:
                while self._pipe.poll(0.1):
                    self.told |= self._pipe.recv()
            except EOFError:
                until = 0.0
            if self.told != before:
                until = time.monotonic() + _PATIENCE
            if time.monotonic() > until:
                raise SystemExit(f"stompcodec demo: the driver ended, or told nothing for long: see {self._log}")
        return self.told[name]

    def kill(self) -> None:
        """Send kill -9 to the driver and its JVM, so that neither can clean up."""
        with contextlib.suppress(OSError):
            os.kill(self.told["jvm"], getattr(signal, "SIGKILL", signal.SIGTERM))
        self.close()

    def end(self) -> None:
        """Wait until it has ended by itself; end the program if it failed."""
        self._process.join(_PATIENCE)
        if self._process.exitcode != 0:
            raise SystemExit(f"stompcodec demo: the driver failed: see {self._log}")

    def close(self) -> None:
        """Kill it; its JVM ends with it."""
        self._process.kill()
        self._process.join()


# The driver, in a process of its own.


def drive(url: str, folder: Path, frames: int, log: Path, pipe: Connection) -> None:
    """Stream into the archive until the ledger of the whole feed is there; then make tables, proof and report."""
    from stompcodec.spark import jobs, session

    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # Faster for a JVM that lives for a minute: no optimizing compiler.
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = session(name="stompcodec demo", cores=2, **java)
    pipe.send({"jvm": spark._jvm.java.lang.ProcessHandle.current().pid(), "rows": 0})
    archive = str(folder / "archive")
    source = {"url": url, "destination": f"{TD},{TRUST}", "spoolDir": str(folder / "spool.stompcap")}
    source |= {"dedupe": f"header:{ID_HEADER}", "maxFramesPerTrigger": str(max(100, frames // 8))}
    stream = spark.readStream.format("stomp").options(**source).load()
    # The source drops duplicates, so the archive need not.
    job = jobs.archive(stream, archive, checkpoint=str(folder / "checkpoint"), every="200 milliseconds", dedupe=False)
    query: Any = job.query
    while not (folder / "ledger.json").exists():
        batches = {each["batchId"]: each["numInputRows"] for each in query.recentProgress}
        pipe.send({"rows": sum(batches.values())})
        if query.awaitTermination(0.2):
            raise SystemExit(1)
    ledger = Ledger(**json.loads((folder / "ledger.json").read_text(encoding="utf-8")))
    stored, changed = -1, time.monotonic()
    while stored < len(ledger.bodies) and time.monotonic() - changed < _QUIET:
        query.processAllAvailable()
        before, stored = stored, jobs.read_archive(spark, archive).count()
        changed = changed if stored == before else time.monotonic()
    query.stop()
    pipe.send({"streamed": True})
    pipe.send({"proof": _finish(spark, folder, ledger, left_in(url))})
    spark.stop()


def left_in(url: str) -> int:
    """Return the number of messages left in the broker; they are consumed."""
    count = 0
    with stomp.connect(url) as client:
        for destination in (TD, TRUST):
            with client.subscribe(destination, ack="client-individual", prefetch=1000) as subscription:
                while (message := subscription.get(timeout=0.3)) is not None:
                    message.ack()
                    count += 1
    return count


def _finish(spark: Any, folder: Path, ledger: Ledger, left: int) -> dict[str, Any]:
    """Make typed tables, figures and the report from the archive. Return its comparison with the ledger."""
    from stompcodec.spark import jobs
    from stompcodec.spark.report import report

    archive = jobs.read_archive(spark, str(folder / "archive"))
    tables = {name: str(folder / "exploded" / name) for name, _, _ in TABLES}
    for name, destination, preset in TABLES:
        events = jobs.explode(archive.where(archive.destination == destination), preset=preset)
        jobs.write_exploded(events, tables[name])
    jobs.write_metrics(jobs.metrics(archive, sequence=ID_HEADER), str(folder / "metrics"))
    columns = (f"headers['{ID_HEADER}']", "crc32(body)", "coalesce(redelivered, false)", "message_id")
    rows = [tuple(row) for row in archive.selectExpr(*columns).collect()]
    quarantined = {row[0] for name in tables for row in _rows(spark, f"{tables[name]}/_quarantine", "message_id")}
    typed = sum(len(_rows(spark, f"{tables[name]}/rows", "1")) for name in tables)
    proof = prove(ledger, rows, quarantined, typed, left)
    paths = {"metrics": "metrics", "spool": "spool.stompcap", "checkpoint": "checkpoint"}
    more: dict[str, Any] = {name: str(folder / path) for name, path in paths.items()}
    more |= {"proof": {name: figure for name, figure in proof.items() if name != "wrong"}, "title": "stompcodec demo"}
    report(spark, str(folder / "archive"), str(folder / "report"), exploded=list(tables.values()), **more)
    return proof


def _rows(spark: Any, path: str, column: str) -> list[Any]:
    """Return a column of a table; nothing if none was written."""
    return spark.read.parquet(path).selectExpr(column).collect() if any(Path(path).rglob("*.parquet")) else []


def prove(
    ledger: Ledger, rows: list[tuple[Any, ...]], quarantined: set[str], typed_rows: int, left_in_broker: int
) -> dict[str, Any]:
    """Compare the sender's account with the archive. Return the figures, and in `wrong` every discrepancy in words. A
    row of the archive is the feed's id, the CRC-32 of the body, redelivered, and the message-id.
    """
    seen, sent = Counter(row[0] for row in rows), ledger.bodies
    apart = {row[0] for row in rows if row[3] in quarantined}
    proof: dict[str, Any] = {"produced": len(sent), "in_sink": len(rows), "missing": len(sent.keys() - seen.keys())}
    proof |= {"duplicates": len(rows) - len(seen), "left_in_broker": left_in_broker, "sent_twice": ledger.twice}
    proof["damaged"] = len({row[0] for row in rows if sent.get(row[0]) != row[1]})
    proof |= {"redelivered": sum(row[2] for row in rows), "late": len(ledger.late), "malformed": len(ledger.malformed)}
    proof |= {"quarantined": len(quarantined), "events": ledger.events, "typed_rows": typed_rows}
    faults = {
        "messages are missing in the sink": proof["missing"] or not ledger.bodies,
        "rows of the sink are duplicates": proof["duplicates"],
        "messages in the sink are not what was sent": proof["damaged"],
        "messages were left in the broker": left_in_broker,
        "messages are wrongly in quarantine, or wrongly not": len(apart ^ set(ledger.malformed)),
        "rows of the typed tables are too few or too many": abs(ledger.events - typed_rows),
    }
    return proof | {"wrong": [f"{count:,} {what}" for what, count in faults.items() if count]}


if __name__ == "__main__":
    main()
