"""Measure what Spark users write by hand against our source and sink, and write docs/benchmarks-spark.md.

    python benchmarks/bench_spark.py [--only read,rows,write,index] [--quick]

The peers are installed into build/peers, and nowhere else. A full run takes five minutes on a quiet machine; its
numbers go to build/spark.json, and the page is written from there. --quick and --only leave the page alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import brokers
import spark_feed
import spark_report

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "spark.json"
DATA = ROOT / "build" / "spark"
PEERS = ROOT / "build" / "peers" / f"{sys.implementation.cache_tag}-spark"
#: All that is needed is named, and nothing more comes along: numpy is there already.
NEEDED = (
    "stomp.py==9.0.0", "docopt-ng==0.9.0", "websocket-client==1.9.2",
    "pandas>=2.2,<3", "python-dateutil", "pytz", "six", "tzdata",
)  # fmt: skip
SECTIONS = ("read", "rows", "write", "index")
#: Frames, so that each contestant takes some seconds on two cores. By hand fewer, for rates are compared.
OURS, SQL, HAND = 1_600_000, 400_000, 120_000
WRITTEN, WRITTEN_BY_HAND = 400_000, 80_000
#: Headers that have columns of their own in our table.
NAMES = ("destination", "message-id", "subscription", "ack", "content-type", "timestamp", "redelivered")
TICKS = os.sysconf("SC_CLK_TCK")


def install() -> None:
    """pip installs the peers into a folder of their own, once; Spark's workers find them by PYTHONPATH."""
    stamp = PEERS / "stamp"
    if not stamp.is_file() or stamp.read_text() != "\n".join(NEEDED):
        print(f"installing {', '.join(NEEDED)}", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
        subprocess.run([*command, "--no-deps", "--target", PEERS, *NEEDED], check=True)
        stamp.write_text("\n".join(NEEDED))
    sys.path.append(str(PEERS))
    here = [str(Path(__file__).parent), str(PEERS)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*here, *filter(None, [os.environ.get("PYTHONPATH")])])


def processor_seconds(but: int = 0) -> float:
    """Of this process and all below it: Spark's JVM and its Python workers. One may be left out."""
    parents: dict[int, list[int]] = {}
    times: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                pid = int(folder.name)
                parents.setdefault(int(fields[1]), []).append(pid)
                times[pid] = sum(map(int, fields[11:15]))  # its own, and those of children that it has waited for
    total, left = 0, [os.getpid()]
    while left:
        pid = left.pop()
        if pid != but:
            left += parents.get(pid, [])
            total += times.get(pid, 0)
    return total / TICKS


def timed(run: Callable[[], object], but: int = 0) -> dict[str, float]:
    """Seconds that it takes, on the clock and of the processors."""
    cpu, start = processor_seconds(but), time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - start, "cpu": processor_seconds(but) - cpu}


def rounds(runs: dict[str, Callable[[], dict[str, float]]], args: argparse.Namespace) -> dict[str, list[Any]]:
    """Each has its turn in each round; the first ones are to warm up."""
    found: dict[str, list[Any]] = {name: [] for name in runs}
    for turn in range(-args.warm, args.rounds):
        start = time.perf_counter()
        for name, run in runs.items():
            taken = run()
            if turn >= 0:
                found[name].append(taken)
        what = f"round {turn + 1} of {args.rounds}" if turn >= 0 else "warming up"
        print(f"  {what}: {time.perf_counter() - start:.0f} s", flush=True)
    return found


# ---- reading ----


def same(table: Any) -> tuple[int, ...]:
    """What tables of the same frames have in common: rows, octets of the bodies, a sum over the message-ids."""
    found = table.selectExpr("count(*)", "sum(length(body))", "sum(crc32(cast(message_id AS binary)))").first()
    return tuple(found)


def read(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Frames to rows that nobody keeps."""
    import spark_cases as cases

    ours, sql, hand = (count // args.less for count in (OURS, SQL, HAND))
    few, some, capture = DATA / f"hand-{hand}", DATA / f"sql-{sql}", DATA / f"ours-{ours}.stompcap"
    spark_feed.files(few, hand)
    spark_feed.files(some, sql)
    spark_feed.capture(capture, ours)
    by_hand = {
        "mapInPandas": (cases.in_pandas(few, cases.WHOLE), few, hand),
        "mapInPandas, narrow": (cases.in_pandas(few, cases.SOME), few, hand),
        "UDF": (cases.in_udf(few, arrow=False), few, hand),
        "UDF, Arrow": (cases.in_udf(few, arrow=True), few, hand),
        "SQL": (cases.in_sql(some), some, sql),
    }
    source = {
        "all columns": cases.ours(capture),
        "without headers": cases.ours(capture, cases.UNMAPPED),
        "narrow": cases.ours(capture, cases.NARROW),
        "destination": cases.ours(capture, "destination string"),
        "filter": cases.ours(capture, destination=cases.NOWHERE),
    }
    args.job = _job(spark)
    truth = {folder: same(cases.ours(folder)(spark)) for folder in (few, some)}
    for name, (table, folder, count) in by_hand.items():
        found = same(table(spark))
        if found != truth[folder] or found[0] != count:
            raise SystemExit(f"{name} found {found}, ours {truth[folder]} in {count} frames")
    for name, make in source.items():
        count = make(spark).count()
        if count != (0 if name == "filter" else ours):
            raise SystemExit(f"{name} found {count} of {ours} frames")
    tables = {name: (table, count) for name, (table, _folder, count) in by_hand.items()}
    tables.update((name, (table, ours)) for name, table in source.items())
    return _nowhere(spark, tables, args)


def _job(spark: Any) -> float:
    """Seconds of a job that reads one frame: what a session takes for itself."""
    import spark_cases as cases

    one = DATA / "one"
    spark_feed.files(one, 1, 1)
    runs = [timed(lambda: cases.ours(one)(spark).write.format("noop").mode("overwrite").save()) for _ in range(6)]
    return statistics.median(run["seconds"] for run in runs[1:])


def rows(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Rows that were made beforehand, from Python into the JVM."""
    import spark_cases as cases

    spark.dataSource.register(cases.Rows)
    counts = {"arrow": OURS * 2 // args.less, "tuples": SQL // args.less}
    tables = {kind: (cases.rows(kind, count), count // 16384 * 16384) for kind, count in counts.items()}
    for kind, (table, count) in tables.items():
        if table(spark).count() != count:
            raise SystemExit(f"{kind}: not {count} rows")
    return _nowhere(spark, tables, args)


def _nowhere(spark: Any, tables: dict[str, tuple[Any, int]], args: argparse.Namespace) -> dict[str, Any]:
    """Read tables; the rows go to Spark's sink that takes anything and does nothing."""

    def run(table: Any) -> dict[str, float]:
        return timed(lambda: table(spark).write.format("noop").mode("overwrite").save())

    runs = {name: lambda table=table: run(table) for name, (table, _count) in tables.items()}
    found = rounds(runs, args)
    return {name: {"frames": count, "runs": found[name]} for name, (_table, count) in tables.items()}


# ---- writing ----


def write(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Rows to a server that only counts."""
    import spark_cases as cases
    import spark_sink

    ways = {
        "foreachPartition": (WRITTEN_BY_HAND // args.less, spark_sink.by_hand),
        "writer": (WRITTEN // args.less, spark_sink.by_writer),
    }
    sink = spark_sink.Sink()
    try:
        runs = {}
        for name, (count, send) in ways.items():
            frames, parquet = DATA / f"write-{count}", DATA / f"write-{count}.parquet"
            spark_feed.files(frames, count)
            cases.ours(frames, "destination string, body binary")(spark).repartition(2).write.mode("overwrite").parquet(
                str(parquet)
            )
            table = spark.read.parquet(str(parquet))
            runs[name] = lambda table=table, count=count, send=send: _sent(sink, table, count, send)
        found = rounds(runs, args)
    finally:
        sink.close()
    return {name: {"frames": count, "runs": found[name]} for name, (count, _send) in ways.items()}


def _sent(sink: Any, table: Any, count: int, send: Callable[[Any, int], None]) -> dict[str, float]:
    taken = timed(lambda: send(table, sink.port), sink.pid)
    came = sink.count(count)
    if came != count:
        raise SystemExit(f"{came} of {count} messages came")
    return taken


# ---- without Spark ----


def index(_spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Where frames end, against the columns of frames: processor time in this process."""
    from stompcodec import frame_ends, parse_columns

    count = HAND // args.less
    runs: dict[str, Callable[[], dict[str, float]]] = {}
    for what, length in (("as they are", False), ("with content-length", True)):
        data = b"".join(spark_feed.frames(count, length=length))

        def ends(data: bytes = data) -> None:
            found = frame_ends(data, 2**20)
            assert found[-1] == len(data) - 1, "all frames are whole"

        def columns(data: bytes = data) -> None:
            view, taken, total = memoryview(data), 0, 0
            while total < count:
                found = parse_columns(view[taken : taken + 6 * 2**20], names=NAMES)
                taken, total = taken + found.consumed, total + found.rows

        runs[f"index, {what}"] = lambda run=ends: _alone(run)
        runs[f"columns, {what}"] = lambda run=columns: _alone(run)
    found = rounds(runs, args)
    return {name: {"frames": count, "runs": found[name]} for name in runs}


def _alone(run: Callable[[], object]) -> dict[str, float]:
    """Seconds that something takes in this process alone, the least of a few: it is done in no time."""
    found = []
    for _ in range(5):
        cpu, start = time.process_time(), time.perf_counter()
        run()
        found.append((time.process_time() - cpu, time.perf_counter() - start))
    return {"seconds": min(clock for _, clock in found), "cpu": min(cpu for cpu, _ in found)}


# ---- all ----


def facts(spark: Any, args: argparse.Namespace) -> dict[str, Any]:
    """What the numbers hold for. No names of hosts or folders."""
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")
    peers = metadata.version("stomp.py"), metadata.version("pandas")
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": brokers.processor(),
        "cores": os.cpu_count(),
        "load": statistics.mean(os.getloadavg()[:2]),
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "spark": f"PySpark {metadata.version('pyspark')}, local[2], Java {java}, pyarrow {metadata.version('pyarrow')}",
        "peers": "stomp.py {}, pandas {}".format(*peers),
        "rounds": args.rounds,
        "quick": args.quick,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SECTIONS), metavar="SECTIONS")
    parser.add_argument("--rounds", type=int, help="of which the median is taken (5)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the frames, two rounds; no page")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from the last full run")
    args = parser.parse_args()
    for name in args.only:
        if name not in SECTIONS:
            parser.error(f"{name!r} is none of {', '.join(SECTIONS)}")
    args.rounds = args.rounds or (2 if args.quick else 5)
    args.warm, args.less = (1, 4) if args.quick else (2, 1)
    return args


def main() -> int:
    args = arguments()
    if args.page:
        spark_report.write(json.loads(RESULTS.read_text()), ROOT / "docs")
        return 0
    install()
    from stompcodec.spark import session

    begin = time.perf_counter()
    spark = session("benchmark", cores=2, **{"spark.ui.showConsoleProgress": False})
    results: dict[str, Any] = {"facts": facts(spark, args)}
    measures = {"read": read, "rows": rows, "write": write, "index": index}
    try:
        for name in args.only:
            print(name, flush=True)
            results[name] = measures[name](spark, args)
    finally:
        spark.stop()
    results["facts"]["job"] = getattr(args, "job", 0)
    results["facts"]["load"] = max(results["facts"]["load"], statistics.mean(os.getloadavg()[:2]))
    print(f"all: {time.perf_counter() - begin:.0f} s\n\n{spark_report.text(results)}")
    if not args.quick and set(args.only) == set(SECTIONS):
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        spark_report.write(results, ROOT / "docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
