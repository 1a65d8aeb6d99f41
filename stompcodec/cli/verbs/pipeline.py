"""stompcodec pipeline: feeds to tables, figures and reports, and replays, with Spark."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stompcodec.cli.app import Verbs
from stompcodec.cli.connecting import (
    Context,
    adopt,
    connected,
    expect_option,
    is_url,
    login_options,
    passcode_of,
    referred,
    reporting_errors,
)
from stompcodec.cli.files import format_of
from stompcodec.cli.inputs import Interval, complain, option_group, pairs_of, parsed
from stompcodec.cli.screen import StatusLine, printable, screen
from stompcodec.cli.streams import stop_on_signals
from stompcodec.cli.verbs.replay import speed_of
from stompcodec.errors import MissingExtraError, StompError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stompcodec.spark.jobs import Job

_REDRAW = 0.5
#: Seconds after the end of a stream in which a signal counts as its cause: processes of Spark may get it first.
_NEWS = 0.5
#: Our errors as they appear in tracebacks of Spark's Python workers.
_OURS = re.compile(r"stompcodec\.[\w.]*\.(\w+(?:Error|Exception)): ([^\n]+)")
_THEIRS = re.compile(r"^\s*(?:[\w.]+\.)?\w+(?:Error|Exception): ([^\n]+)", re.MULTILINE)
_EXISTS = re.compile(r'\. Set mode as "overwrite" .*')
_TAG = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+.*$")
_LONGEST = 400
#: Interval between the batches of a stream that goes on.
_EVERY = "10 seconds"
#: Formats of files that Spark's source does not read, for people.
_CONVERTED = {"pcapng": "packets", "json": "JSON"}
F = TypeVar("F", bound=Callable[..., Any])


def is_broker(text: str) -> bool:
    """Return whether an input is a broker: a URL, or host:port unless a file has that name."""
    return is_url(text) and not os.path.exists(text)


def at_context(context: Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a verb completed by those of a context."""
    for name in ("vhost", "version", "insecure"):
        if getattr(context, name):
            raise click.UsageError(f"context {context.name} has {name}, which pipeline does not support")
    given = {name: options.get(name) for name in ("login", "passcode_file", "ca")}
    return {**options, **adopt(context, given)}


def one_line(error: BaseException) -> str:
    """Return an error's message without the stack traces of Java and of Python workers.

    >>> one_line(ValueError("[PATH_NOT_FOUND] Path does not exist: a. SQLSTATE: 42K03\\nat org.apache.spark"))
    'Path does not exist: a.'
    """
    text = str(error)
    ours = _OURS.findall(text)
    theirs = _THEIRS.findall(text) if "Traceback" in text else []
    line = ours[-1][1] if ours else theirs[-1] if theirs else text.strip().partition("\n")[0]
    line = _EXISTS.sub(": name another output, or give --existing append or overwrite", line)
    line = _TAG.sub("", _TAG.sub("", line.strip())) or type(error).__name__
    return printable(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…")


class Line:
    """The progress line on standard error, if that is a terminal."""

    def __init__(self) -> None:
        self._line = StatusLine(True)
        self.clear = self._line.clear
        self._start = time.monotonic()

    def show(self, text: str) -> None:
        self._line.update(lambda: f"{text}, {time.monotonic() - self._start:.0f} s")

    @contextmanager
    def stages(self, spark: SparkSession) -> Iterator[None]:
        """Show the progress of Spark's tasks meanwhile."""
        done = threading.Event()

        def run() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(_REDRAW):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                known = [stage for stage in stages if stage is not None]
                if known:
                    ready = sum(stage.numCompletedTasks for stage in known)
                    self.show(f"{ready} of {sum(stage.numTasks for stage in known)} tasks")

        thread = threading.Thread(target=run, daemon=True)
        if self._line.live:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if self._line.live:
                thread.join()
            self.clear()


@contextmanager
def started(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session. Any error is reported in one line on standard error, with exit status 1.

    Spark's output on standard error is shown with STOMPCODEC_TRACE only. `conf` is configuration of Spark.
    """
    line = Line()
    line.show("starting Spark")
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)  # it repeats our errors at length
    try:
        with contextlib.nullcontext() if os.environ.get("STOMPCODEC_TRACE") else _silent_stderr():
            from pyspark.sql import SparkSession

            from stompcodec.spark.sessions import existing_session, session

            running = existing_session(SparkSession) is not None  # a session that runs already is not stopped
            settings: dict[str, Any] = {"spark.ui.showConsoleProgress": False, **conf}
            spark = session("stompcodec", **settings)
    except (StompError, ImportError, OSError, RuntimeError) as error:
        _fail(error, line)
    line.clear()
    try:
        yield spark
    except KeyboardInterrupt:
        line.clear()
        sys.exit(130)
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:  # Spark's errors have no common base class
        _fail(error, line)
    finally:
        line.clear()
        if not running:
            spark.stop()


def _fail(error: BaseException, line: Line) -> None:
    line.clear()
    if os.environ.get("STOMPCODEC_TRACE") or isinstance(error, MissingExtraError):
        raise error
    complain(one_line(error))
    sys.exit(1)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop standard error of programs started meanwhile: Spark's Java and Python workers."""
    sys.stderr.flush()
    before, after = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(after, 2)
    os.close(after)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _check_file(source: str) -> None:
    """Check that an input is there, and holds the bytes of frames or Parquet."""
    if not os.path.exists(source):
        raise click.UsageError(f"{printable(source)}: no such file or folder")
    held = _CONVERTED.get(format_of(source, reading=True))
    if held is not None:
        name = printable(source)
        raise click.UsageError(f"{name} holds {held}: stompcodec convert {name} FILE.stompcap makes a capture of it")


class Input:
    """The frames of a capture, an archive, or a broker.

    `options` are those of `input_options`; `broker` is the URL that the verb sends to, if it is not the source.
    """

    def __init__(self, source: str, options: Mapping[str, Any], broker: str | None = None) -> None:
        self.broker = is_broker(source)
        context = referred(source) if self.broker else None
        self.source = context.url if context else source
        self.streaming = bool(self.broker or options["stream"] or options["checkpoint"])
        self._options = options if context is None else at_context(context, options)
        if not self.broker:
            _check_file(source)
        if self.broker and (not options["destinations"] or not options["spool"]):
            raise click.UsageError("a broker needs --destination and --spool, a folder for its messages")
        if options.get("expect") and not self.broker:
            raise click.UsageError("--expect-every is for a broker")
        self.url = self.source if self.broker else broker
        if self.url is not None:
            self._ask()

    def _ask(self) -> None:
        """Check the passcode file, or prompt for a passcode, before Spark's workers inherit the environment."""
        from stompcodec.uri import parse_uri

        options = self._options
        try:
            addresses = parse_uri(self.url or "")
        except StompError as error:
            raise click.UsageError(str(error)) from None
        passcode = options.get("passcode") or passcode_of(addresses, options["login"], options["passcode_file"])
        if passcode is not None and options["passcode_file"] is None:
            os.environ["STOMPCODEC_PASSCODE"] = passcode

    @property
    def archive(self) -> bool:
        """True if it is Parquet."""
        path = Path(self.source)
        return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("date=*")))

    @property
    def how(self) -> dict[str, Any]:
        """Options of a stream, for jobs."""
        return {
            "checkpoint": self._options["checkpoint"],
            "every": None if self._options["stream"] == "now" else _EVERY,
        }

    def frames(self, spark: SparkSession, *columns: str) -> DataFrame:
        """Return the frames with the columns that are needed; none for all."""
        from pyspark.sql import functions as F

        frames = self._read(spark, columns)
        only = self._options["destinations"]
        if not only or self.broker:
            return frames
        # A broken frame may have had one of these destinations.
        fits = F.col("error").isNotNull() if "error" in frames.columns else F.lit(False)
        for name in only:
            is_it = F.col("destination").startswith(name[:-1]) if name.endswith("*") else F.col("destination") == name
            fits = fits | is_it
        return frames.filter(fits)

    def _read(self, spark: SparkSession, columns: tuple[str, ...]) -> DataFrame:
        from pyspark.sql.types import StructType

        from stompcodec.spark.jobs.frames import ARCHIVE_SCHEMA
        from stompcodec.spark.reading.schema import frame_schema

        whole = ARCHIVE_SCHEMA if self.archive else frame_schema()
        schema = StructType([field for field in whole.fields if not columns or field.name in columns])
        reader: Any = spark.readStream if self.streaming else spark.read
        if self.archive:
            return reader.schema(whole).parquet(self.source).select(*schema.fieldNames())  # type: ignore[no-any-return]
        if not self.broker:
            return reader.format("stompfile").schema(schema).load(self.source)  # type: ignore[no-any-return]
        reader = reader.format("stomp").schema(schema)
        given = {"url": self.source, "destination": ",".join(self._options["destinations"])}
        given |= {"spoolDir": self._options["spool"], **self.credentials}
        if self._options.get("expect"):
            given["expectEvery"] = str(self._options["expect"])
        return reader.options(**given).load()  # type: ignore[no-any-return]

    @property
    def credentials(self) -> dict[str, str]:
        """Options of source and sink for login and passcode."""
        options = self._options
        given = {"login": options["login"], "passcodeFile": options["passcode_file"], "caFile": options.get("ca")}
        if options["passcode_file"] is None and os.environ.get("STOMPCODEC_PASSCODE"):
            given["passcodeEnv"] = "STOMPCODEC_PASSCODE"
        return {name: value for name, value in given.items() if value is not None}


_destination = click.option(
    "-d", "--destination", "destinations", multiple=True, metavar="DEST",
    help="For a broker: what to subscribe to. Otherwise: only these frames; /topic/a* is a prefix.",
)  # fmt: skip
#: The options of the input and of streams.
input_options = option_group(
    _destination,
    click.option("--stream", type=click.Choice(["follow", "now"]),
                 help="Process INPUT as it grows, until Ctrl-C; or what is new since the last run, then exit."),
    click.option("--checkpoint", type=click.Path(), metavar="DIR",
                 help="Where a stream keeps its progress. Default: in the output."),
    click.option("--spool", type=click.Path(), metavar="DIR", help="For a broker: the folder for its messages."),
    expect_option,
    login_options,
)  # fmt: skip


#: The options of Spark and of the output.
output_options = option_group(
    click.option("--conf", multiple=True, callback=parsed(lambda values: dict(pairs_of(values, "="))),
                 metavar="NAME=VALUE",
                 help="Configuration of Spark, as in spark.driver.memory=4g or spark.master=local[2]; repeatable."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)  # fmt: skip


@dataclass
class _Counts:
    """Counts of a stream, across restarts of its query."""

    batches: int = 0
    frames: int = 0
    late: int = 0
    _newest: int = -1
    """The last batch counted. Spark reports the last hundred each time."""

    def add(self, progress: Mapping[str, Any]) -> None:
        late = sum(state.get("numRowsDroppedByWatermark", 0) for state in progress["stateOperators"])
        if progress["batchId"] > self._newest and (progress["numInputRows"] or late):
            self._newest = progress["batchId"]
            self.batches += 1
            self.frames += progress["numInputRows"]
            self.late += late


class _Watched:
    """A running stream that shows its progress and can be stopped."""

    def __init__(self, job: Job, line: Line, stop: threading.Event, counts: _Counts) -> None:
        assert job.query is not None
        self._query, self._line, self._stop, self._counts = job.query, line, stop, counts

    def awaitTermination(self) -> None:
        """Wait until the stream ends or is stopped, and raise its error."""
        from pyspark.errors import PySparkException

        query, stop, counts = self._query, self._stop, self._counts
        try:
            while query.isActive and not stop.is_set():
                query.awaitTermination(1)
                self._look()
                last = query.lastProgress
                rate = 0.0 if last is None else last["processedRowsPerSecond"]
                self._line.show(f"{counts.frames:,} frames in {counts.batches:,} batches, {rate:,.0f}/s")
            if stop.is_set():
                query.stop()
            query.awaitTermination()  # raises the query's error
        except PySparkException:
            if not stop.wait(_NEWS):
                raise
        finally:
            self._line.clear()
            self._look()

    def _look(self) -> None:
        for progress in self._query.recentProgress:
            self._counts.add(progress)


def waited(start: Callable[[], Job]) -> dict[str, Any]:
    """Run a stream until Ctrl-C, SIGTERM or SIGHUP. Restart it if a process of Spark is killed, but not too often.

    Returns the counts batches, frames, and late (too late for their window).
    """
    from stompcodec.spark.jobs import supervise

    line, stop, counts = Line(), threading.Event(), _Counts()
    with stop_on_signals(stop.set):
        supervise(lambda: _Watched(start(), line, stop, counts))
    return {"batches": counts.batches, "frames": counts.frames, "late": counts.late}


def finish(result: Mapping[str, Any], as_json: bool) -> None:
    """Print the result as a table, or as a line of JSON."""
    if as_json:
        click.echo(json.dumps(dict(result), default=str))
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    for name, value in result.items():
        text = f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name.replace("_", " "), printable(text))
    screen().print(table)


#: Columns that each job needs; the others are not read.
_EXPLODED = ("command", "destination", "message_id", "received_at", "body", "spool", "pos", "error")
_MEASURED = ("destination", "received_at", "sent_at", "redelivered", "length", "error")
_WIDEST = 60
#: Columns of a table that is not written to a terminal.
_PIPE = 400


class _Jobs(Verbs):
    """The verbs, which need the packages of Spark, but for their help."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        found = super().resolve_command(ctx, args)
        if not {"-h", "--help"} & {*args}:
            try:
                import pyarrow  # noqa: F401
                import pyspark  # noqa: F401
            except ImportError as error:
                raise MissingExtraError("spark", error.name or "pyspark") from None
        return found


@click.group("pipeline", cls=_Jobs)
def command() -> None:
    """Turn feeds into tables, figures and reports, or replay them, with Spark.

    INPUT is a capture, an archive that `pipeline archive` wrote, or a broker's URL, with --destination and --spool.

    \b
      stompcodec pipeline archive feed.stompcap -o archive
      stompcodec pipeline archive stomp://host -d /topic/feed --spool feed.stompcap -o archive
      stompcodec pipeline explode archive -o td --preset networkrail-td -d /topic/TD_*
    """


_mode = click.option(
    "--existing", "mode", type=click.Choice(["append", "overwrite"]), help="Add to an existing output, or replace it."
)


def _done(start: Callable[[], Job], reading: Input, spark: Any) -> Mapping[str, Any]:
    """Run a job to its end, and return its counts."""
    if reading.streaming:
        return waited(start)
    with Line().stages(spark):
        return start().counts


@command.command("archive")
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="DIR", help="Output folder.")
@_mode
@input_options
@output_options
def archive(
    source: str, output: str, mode: str | None, conf: dict[str, str],
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Write frames to Parquet, in folders date=/destination=. All frames and all their headers are kept.

    \b
      stompcodec pipeline archive feed.stompcap -o archive
      stompcodec pipeline archive broker:61613 -d /topic/feed --spool feed.stompcap -o archive
    """
    reading = Input(source, options)
    with started(conf) as spark:
        from stompcodec.spark import jobs

        made = _done(
            lambda: jobs.archive(
                reading.frames(spark), output, mode=mode or "error", **reading.how,
            ), reading, spark,
        )  # fmt: skip
    finish({"archive": output, **made}, as_json)


@command.command("explode")
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="DIR", help="Output folder.")
@click.option("-p", "--preset", metavar="NAME|FILE", help="The format of the bodies: a preset of docs/pipeline.md.")
@click.option(
    "-s", "--schema", metavar="FILE", help="Schema of JSON bodies: Spark's JSON of a StructType, DDL, or a preset."
)
@_mode
@input_options
@output_options
def explode(
    source: str, output: str, preset: str | None, schema: str | None, mode: str | None,
    conf: dict[str, str], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Write bodies to a table: DIR/rows has a row for each record, DIR/_quarantine invalid ones with the reason.

    \b
      stompcodec pipeline explode archive -o td --preset networkrail-td -d /topic/TD_*
      stompcodec pipeline explode archive -o orders --schema 'id BIGINT, price DOUBLE'
    """
    if (preset is None) == (schema is None):
        raise click.UsageError("explode needs either --preset or --schema")
    reading = Input(source, options)
    with started(conf) as spark:
        from stompcodec.spark import jobs

        totals = dict.fromkeys(("frames", "good", "quarantined", "rows", "quarantine"), 0)
        last: dict[str, int] = {}

        def add(counts: Mapping[str, int]) -> None:
            again = last if last.get("batch") == counts.get("batch") else {}  # a batch that is repeated
            totals.update({name: total + counts[name] - again.get(name, 0) for name, total in totals.items()})
            last.update(counts)

        def start() -> Job:
            exploded = jobs.explode(reading.frames(spark, *_EXPLODED), preset, schema)
            return jobs.write_exploded(exploded, output, mode=mode or "error", on_counts=add, **reading.how)

        made = _done(start, reading, spark)
        if not reading.streaming:
            add(made)
    named = {"frames": "frames", "good": "good_frames", "quarantined": "quarantined_frames"}
    finish({"output": output, **{named.get(name, name): count for name, count in totals.items()}}, as_json)


@command.command("metrics")
@click.argument("source", metavar="INPUT")
@click.option(
    "-o", "--output", type=click.Path(), metavar="DIR", help="Output folder; without it the rows are printed."
)
@click.option("--window", type=Interval(), default="1m", show_default=True, metavar="TIME", help="Length of a window.")
@click.option("--sequence", metavar="HEADER", help="A header ending in a number that grows by one, to find gaps.")
@_mode
@input_options
@output_options
def metrics(
    source: str, output: str | None, window: str, sequence: str | None, mode: str | None,
    conf: dict[str, str], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Count frames, bytes, lag, sizes, gaps, redeliveries and errors for each destination and window of time.

    \b
      stompcodec pipeline metrics archive --window 5m
      stompcodec pipeline metrics feed.stompcap -o metrics --sequence message-id
    """
    reading = Input(source, options)
    if reading.streaming and output is None:
        raise click.UsageError("for a stream, metrics needs -o DIR")
    with started(conf) as spark:
        from stompcodec.spark import jobs

        columns = (*_MEASURED, "headers") if sequence else _MEASURED

        def windows() -> Any:
            return jobs.metrics(reading.frames(spark, *columns), window=window, sequence=sequence)

        if output is None:
            with Line().stages(spark):
                found = [row.asDict(recursive=True) for row in windows().orderBy("start", "destination").collect()]
            _print_rows(found, as_json, ("sequences", "end", "lag_p95", "size_p95", "size_p99"))
            return
        made = _done(
            lambda: jobs.write_metrics(windows(), output, mode=mode or "error", **reading.how),
            reading, spark,
        )  # fmt: skip
    finish({"metrics": output, **made}, as_json)


def _print_rows(rows: list[dict[str, Any]], as_json: bool, left_out: tuple[str, ...]) -> None:
    """Print rows as a table without some columns, or as lines of JSON."""
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=lambda value: value.isoformat() + "Z"))
        return
    if not rows:
        click.echo("nothing")
        return
    from rich.table import Table

    names = [name for name in rows[0] if name not in left_out]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in names:
        number = any(isinstance(row[name], (int, float)) for row in rows)
        table.add_column(name, justify="right" if number else "left", overflow="ellipsis", max_width=_WIDEST)
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    console = screen()
    if not console.is_terminal:
        console.width = max(console.width, _PIPE)
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else printable(" ".join(str(value).split())[: 4 * _WIDEST])


@command.command("replay")
@click.argument("source", metavar="INPUT")
@click.argument("url", metavar="URL")
@click.option("--speed", default="max", show_default=True, callback=speed_of, metavar="N|max",
              help="Speed: 1 as recorded, 2 twice as fast.")  # fmt: skip
@click.option("--to", "to", metavar="DEST", help="Send all messages to this destination.")
@click.option("--ids", metavar="HEADER", help="A header for an id that is equal in each replay.")
@click.option("--management", is_flag=True, help="Send requests to /management/, too. They act with your rights.")
@_destination
@login_options
@output_options
def replay(
    source: str, url: str, speed: float | None, to: str | None, ids: str | None, management: bool,
    conf: dict[str, str], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Send the frames of an archive or a capture to a broker again, except those to /management/.

    At full speed all cores send in parallel, each in a transaction and in order. At another speed, one connection sends
    all in order.

    \b
      stompcodec pipeline replay archive broker:61613
      stompcodec pipeline replay feed.stompcap broker:61613 --speed 10 --to /queue/test
    """
    if is_broker(source) or not is_broker(url):
        raise click.UsageError("replay needs a capture or an archive, then a broker's URL")
    options = {**dict.fromkeys(("stream", "checkpoint", "spool")), **options}
    context = referred(url)
    if context is not None:
        url, options = context.url, at_context(context, options)
    reading = Input(source, options, broker=url)
    sink = {"url": url, "transaction": "true", "receiptEvery": "1000"}
    given = {**sink, **reading.credentials}
    with started(conf) as spark:
        from stompcodec.spark import jobs

        frames = reading.frames(spark)
        line = Line()
        how: dict[str, Any] = {"destination": to, "ids": ids, **({"requests": None} if management else {})}
        if speed is None:
            with line.stages(spark):
                sent = jobs.replay(frames, given, **how)
        else:
            who = {"login": options["login"], "passcode_file": options["passcode_file"], "vhost": None, "version": None}
            trusted = options.get("ca")
            with reporting_errors(), connected(url=url, **who, timeout=60.0, ca=trusted, insecure=False) as client:
                show = lambda count: line.show(f"{count:,} messages sent")  # noqa: E731
                sent = jobs.paced(frames, client, speed, on_sent=show, **how)
            line.clear()
    finish({"messages": sent}, as_json)


@command.command("report")
@click.argument("archived", metavar="ARCHIVE", type=click.Path(exists=True))
@click.option(
    "-o", "--output", required=True, type=click.Path(), metavar="DIR", help="Folder of report.html and report.json."
)
@click.option(
    "--exploded", multiple=True, type=click.Path(exists=True), metavar="DIR", help="Output of explode; repeatable."
)
@click.option("--metrics", "measured", type=click.Path(exists=True), metavar="DIR", help="Output of metrics.")
@click.option("--spool", type=click.Path(exists=True), metavar="CAPTURE", help="The spool, to report its state.")
@click.option(
    "--checkpoint", type=click.Path(exists=True), metavar="DIR", help="Checkpoint of the stream that reads the spool."
)
@output_options
def report(
    archived: str, output: str, exploded: tuple[str, ...], measured: str | None, spool: str | None,
    checkpoint: str | None, conf: dict[str, str], as_json: bool,
) -> None:  # fmt: skip
    """Write a page that shows whether a feed is healthy.

    \b
      stompcodec pipeline report archive -o report
      stompcodec pipeline report archive -o report --exploded td --metrics metrics --spool feed.stompcap
    """
    with started(conf) as spark:
        from stompcodec.spark.report import report as make

        with Line().stages(spark):
            made = make(
                spark, archived, output, exploded=list(exploded) or None, metrics=measured, spool=spool,
                checkpoint=checkpoint,
            )  # fmt: skip
    verdict = made["verdict"]
    if as_json:
        click.echo(json.dumps(made, default=str))
    else:
        click.echo(f"{verdict['word']}: {output}/report.html")
        for each in verdict["reasons"]:
            click.echo(f"  {printable(each['text'])}")
    if verdict["level"] == "unhealthy":
        sys.exit(1)
