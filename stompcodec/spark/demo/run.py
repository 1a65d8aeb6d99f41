"""A feed becomes tables and a report, while its driver is killed: `python -m stompcodec.spark.demo`.

A generated feed goes to a broker, and Spark streams it from there into Parquet. Half-way the driver and its JVM get
kill -9 and are restarted. Then typed tables, metrics and a report are made. The table at the end says whether every
message is in the sink exactly once. Exit status: 0 if it is, 1 if not, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompcodec.errors import MissingExtraError

if TYPE_CHECKING:
    from stompcodec.spark.demo.parts import Driver, Producer
    from stompcodec.spark.demo.proof import Proof
    from stompcodec.spark.demo.screen import Screen

FOLDER = "stompcodec-demo"
#: Marks a folder that a demonstration made, and that may be emptied.
_MARK = ".stompcodec-demo"
#: Messages per second, and most seconds that the feed may take.
_RATE, _LONGEST = 1000, 40
#: Shares of the messages when the driver is killed: from `_SENT` to `_HELD` are sent, at least `_STORED` are stored.
_SENT, _STORED, _HELD = 0.5, 0.25, 0.75
#: Files that only help to find a fault.
_SCAFFOLD = ("broker", "broker.json", "broker.log", "checkpoint", "driver-1.log", "driver-2.log")


def main(
    arguments: Sequence[str] | None = None, prog: str = "python -m stompcodec.spark.demo", epilog: str = ""
) -> None:
    """Run the demonstration, and exit. `prog` and `epilog` are for the help."""
    options = _options(arguments, prog, epilog)
    for package, extra in (("pyspark", "spark"), ("pyarrow", "spark"), ("click", "cli"), ("rich", "cli")):
        if find_spec(package) is None:
            print(f"stompcodec demo: {MissingExtraError(extra, package)}", file=sys.stderr)
            sys.exit(2)
    from stompcodec.spark.demo.parts import DemoError
    from stompcodec.spark.demo.screen import Screen

    folder = Path(options.folder).resolve()
    if problem := _prepare(folder):
        print(f"stompcodec demo: {problem}", file=sys.stderr)
        sys.exit(2)
    screen = Screen(quiet=options.json)
    try:
        result = run(folder, options.frames, options.seed, screen)
    except DemoError as error:
        screen.close()
        print(f"stompcodec demo: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        screen.close()
        sys.exit(130)
    if not (options.keep or result["wrong"]):
        _remove(folder / name for name in _SCAFFOLD)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        screen.table(result)
    sys.exit(1 if result["wrong"] else 0)


def _options(arguments: Sequence[str] | None, prog: str, epilog: str) -> argparse.Namespace:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=prog, description=__doc__, epilog=epilog, formatter_class=raw)
    parser.add_argument("--frames", type=int, default=20_000, metavar="N", help="number of messages (20000)")
    parser.add_argument("--folder", default=FOLDER, metavar="DIR", help=f"output folder (./{FOLDER})")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random feed (0)")
    parser.add_argument("--json", action="store_true", help="print only the figures, as JSON")
    parser.add_argument("--keep", action="store_true", help="also keep the broker's store, the checkpoint and the logs")
    options = parser.parse_args(arguments)
    if options.frames < 100:
        parser.error("--frames must be at least 100")
    return options


def _prepare(folder: Path) -> str:
    """Create or empty the folder; return why that fails, or an empty text."""
    try:
        if folder.exists() and not (folder / _MARK).is_file() and (not folder.is_dir() or any(folder.iterdir())):
            return f"{folder} is not empty and was not made by a demonstration: choose another --folder"
        folder.mkdir(parents=True, exist_ok=True)
        _remove(folder.iterdir())
        (folder / _MARK).touch()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def _remove(paths: Any) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def run(folder: Path, frames: int, seed: int, screen: Screen) -> dict[str, Any]:
    """Run the demonstration in an empty folder; raise a DemoError if a part failed.

    Returns the figures of `Proof`, the seconds it took, the state when the driver was killed, the path of the report,
    and in `wrong` every discrepancy.
    """
    from stompcodec.spark.demo.parts import Broker, Driver, Producer

    started = time.monotonic()
    order = {"folder": str(folder), "frames": frames, "title": "stompcodec demo"}
    with screen:
        screen.stage(f"a broker with a store on disk, a feed of {frames:,} messages, and Spark")
        with Broker(folder) as broker:
            order["url"] = broker.url
            rate = max(_RATE, frames / _LONGEST)
            producer = Producer(broker.url, frames, seed, rate, int(frames * _HELD))
            driver = Driver(order, folder / "driver-1.log")
            try:
                producer.start()
                killed = _until_killed(driver, producer, frames, seed, screen)
                driver = Driver(order, folder / "driver-2.log")
                proof = _after(driver, producer, broker.left, killed["stored"], screen)
            finally:
                producer.stop()
                driver.close()
    result: dict[str, Any] = {**proof.figures(), "wrong": list(proof.wrong), "killed": killed}
    result["seconds"] = round(time.monotonic() - started, 1)
    result["report"] = str(folder / "report" / "report.html")
    return result


def _until_killed(driver: Driver, producer: Producer, frames: int, seed: int, screen: Screen) -> dict[str, int]:
    """Let Spark stream for a while, then kill it in the middle of its work."""

    def turn() -> None:
        screen.show(producer.ledger.sent, driver.heard("stream").get("rows", 0), frames)
        producer.check()

    driver.wait("session", turn=turn)
    screen.stage("Spark streams from the broker into Parquet")

    def half_way(told: dict[str, Any]) -> bool:
        return told.get("rows", 0) >= _STORED * frames and producer.ledger.sent >= _SENT * frames

    driver.wait("stream", half_way, turn)
    producer.go_on()
    time.sleep(random.Random(seed).uniform(0.1, 0.5))  # any moment will do while messages are in flight
    killed = {"sent": producer.ledger.sent, "stored": driver.heard("stream")["rows"]}
    driver.kill()
    figures = f"{killed['stored']:,} messages in the sink, {killed['sent']:,} sent"
    screen.stage(f"kill -9: the driver and its JVM, with {figures}", bad=True)
    screen.stage("the feed goes on, and Spark starts again")
    return killed


def _after(driver: Driver, producer: Producer, left: Any, stored: int, screen: Screen) -> Proof:
    """Send the rest of the feed, then make tables, proof and report."""
    from stompcodec.spark.demo.proof import prove

    frames = producer.frames

    def turn() -> None:
        different = len(producer.ledger.bodies) if producer.done else None
        screen.show(producer.ledger.sent, stored + driver.heard("stream").get("rows", 0), frames, different)

    driver.wait("session", turn=turn)
    screen.stage("Spark goes on where its checkpoint says")
    driver.wait("session", lambda _: producer.done, turn)
    driver.tell({"messages": len(producer.ledger.bodies)})
    driver.wait("streamed", turn=turn)
    in_broker = left()
    screen.stage("typed tables, with a quarantine for what cannot be read, and figures for each minute")
    files = driver.wait("files")
    screen.stage("the sender's account is compared with the Parquet files")
    proof = prove(producer.ledger, files, in_broker)
    screen.stage("the report")
    driver.tell({"proof": proof.figures()})
    driver.wait("report")
    driver.end()
    return proof
