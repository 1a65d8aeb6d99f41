"""The parts shared by the verbs of `stompcodec pipeline`: session, input, progress and errors."""

from __future__ import annotations

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

from stompcodec.cli.connecting import adopt, is_url, login_options, passcode_of, size, url_of
from stompcodec.cli.contexts import Context, referred
from stompcodec.cli.files.sources import format_of
from stompcodec.cli.inputs import Interval, complain, option_group
from stompcodec.cli.screen import StatusLine, printable, screen
from stompcodec.cli.signals import stop_on_signals
from stompcodec.errors import MissingExtraError, StompError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_REDRAW = 0.5
#: Seconds after the end of a stream in which a signal counts as its cause: processes of Spark may get it first.
_NEWS = 0.5
#: Our errors as they appear in tracebacks of Spark's Python workers.
_OURS = re.compile(r"stompcodec\.[\w.]*\.(\w+(?:Error|Exception)): ([^\n]+)")
_THEIRS = re.compile(r"^\s*(?:[\w.]+\.)?\w+(?:Error|Exception): ([^\n]+)", re.MULTILINE)
_TAG = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+.*$")
_LONGEST = 400
#: Formats of files that Spark's source does not read, for people.
_CONVERTED = {"pcapng": "packets", "json": "JSON"}
F = TypeVar("F", bound=Callable[..., Any])


def is_broker(text: str) -> bool:
    """Return whether an input is a broker: a URL, or host:port unless a file has that name."""
    return is_url(text) and not os.path.exists(text)


def at_context(context: Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a verb completed by those of a context.

    Raises:
        click.UsageError: it has a field for which Spark has no option.
    """
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
    line = _TAG.sub("", _TAG.sub("", line.strip())) or type(error).__name__
    return printable(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…")


class Line:
    """The progress line on standard error, if that is a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._line = StatusLine(not quiet)
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
def started(cores: int | None, memory: int | None, log: str | None, quiet: bool) -> Iterator[SparkSession]:
    """Yield a session. Any error is reported in one line on standard error, with exit status 1.

    Spark's output on standard error goes to the file `log`, or nowhere. `quiet` shows no progress.
    """
    line = Line(quiet)
    line.show("starting Spark")
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)  # it repeats our errors at length
    try:
        with _stderr_to(log or os.devnull):
            from pyspark.sql import SparkSession

            from stompcodec.spark.sessions import existing_session, session

            running = existing_session(SparkSession) is not None  # a session that runs already is not stopped
            spark = session("stompcodec", cores=cores, memory=memory, **{"spark.ui.showConsoleProgress": False})
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
    if os.environ.get("STOMPCODEC_TRACE"):
        raise error
    complain(one_line(error) if not isinstance(error, MissingExtraError) else str(error))
    sys.exit(1)


@contextmanager
def _stderr_to(file: str) -> Iterator[None]:
    """Redirect standard error of programs started meanwhile: Spark's Java and Python workers."""
    sys.stderr.flush()
    before, after = os.dup(2), os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(after, 2)
    os.close(after)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _check_file(source: str) -> None:
    """Check that an input is there, and holds the bytes of frames or Parquet.

    Raises:
        click.UsageError: it does not. Read as bytes of frames, it would be rows of malformed ones.
    """
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
        self.source = url_of(context.url if context else source) if self.broker else source
        self.streaming = bool(self.broker or options["follow"] or options["available_now"] or options["checkpoint"])
        self._options = options if context is None else at_context(context, options)
        if not self.broker:
            _check_file(source)
        if self.broker and (not options["destinations"] or not options["spool"]):
            raise click.UsageError("a broker needs --destination and --spool, a folder for its messages")
        if options["follow"] and options["available_now"]:
            raise click.UsageError("--follow or --available-now, not both")
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
        return {name: self._options[name] for name in ("checkpoint", "available_now", "every")}

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

        from stompcodec.spark.jobs.archive import ARCHIVE_SCHEMA
        from stompcodec.spark.reading.schema import frame_schema

        whole = ARCHIVE_SCHEMA if self.archive else frame_schema()
        schema = StructType([field for field in whole.fields if not columns or field.name in columns])
        reader: Any = spark.readStream if self.streaming else spark.read
        if self.archive:
            return reader.schema(whole).parquet(self.source).select(*schema.fieldNames())  # type: ignore[no-any-return]
        if not self.broker:
            options = dict(self._options["source_options"])
            return reader.format("stompfile").options(**options).schema(schema).load(self.source)  # type: ignore[no-any-return]
        reader = reader.format("stomp").schema(schema)
        given = {"url": self.source, "destination": ",".join(self._options["destinations"])}
        given |= {"spoolDir": self._options["spool"], **self.credentials, **dict(self._options["source_options"])}
        return reader.options(**given).load()  # type: ignore[no-any-return]

    @property
    def credentials(self) -> dict[str, str]:
        """Options of source and sink for login and passcode."""
        options = self._options
        given = {"login": options["login"], "passcodeFile": options["passcode_file"], "caFile": options.get("ca")}
        if options["passcode_file"] is None and os.environ.get("STOMPCODEC_PASSCODE"):
            given["passcodeEnv"] = "STOMPCODEC_PASSCODE"
        return {name: value for name, value in given.items() if value is not None}


def _pairs(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for value in values:
        name, sign, text = value.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{value!r}: write NAME=VALUE")
        if "passcode" == name.lower():
            raise click.BadParameter("give a passcode by STOMPCODEC_PASSCODE or --passcode-file")
        pairs.append((name, text))
    return tuple(pairs)


#: The options of the input and of streams.
input_options = option_group(
    click.option("-d", "--destination", "destinations", multiple=True, metavar="DEST",
                 help="For a broker: what to subscribe to. Otherwise: only these frames; /topic/a* is a prefix."),
    click.option("--follow", is_flag=True, help="Keep processing as INPUT grows, until Ctrl-C."),
    click.option("--available-now", is_flag=True, help="Process what is new since the last run, then exit."),
    click.option("--checkpoint", type=click.Path(), metavar="DIR",
                 help="Where a stream keeps its progress. Default: in the output."),
    click.option("--every", type=Interval(), metavar="TIME", help="How often to begin a batch, as in 10s."),
    click.option("--spool", type=click.Path(), metavar="DIR", help="For a broker: the folder for its messages."),
    login_options,
    click.option("--option", "source_options", multiple=True, callback=_pairs, metavar="NAME=VALUE",
                 help="A further option of the source, as in prefetch=500, ackMode=batch; repeatable."),
)  # fmt: skip


#: The options of Spark and of the output.
output_options = option_group(
    click.option("--cores", type=click.IntRange(1), metavar="N", help="Cores of Spark. Default: all."),
    click.option("--memory", callback=size, metavar="SIZE", help="Memory of Spark, as in 2GiB. Default: 1GiB."),
    click.option("--spark-log", type=click.Path(dir_okay=False), metavar="FILE", help="File for the log of Spark."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option("-q", "--quiet", is_flag=True, help="Print no progress, and no table on success."),
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

    def __init__(self, query: StreamingQuery, line: Line, stop: threading.Event, counts: _Counts) -> None:
        self._query, self._line, self._stop, self._counts = query, line, stop, counts

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


def waited(start: Callable[[], StreamingQuery], quiet: bool) -> dict[str, Any]:
    """Run a stream until Ctrl-C, SIGTERM or SIGHUP. Restart it if a process of Spark is killed, but not too often.

    Returns the counts batches, frames, and late (too late for their window).
    """
    from stompcodec.spark.jobs import supervise

    line, stop, counts = Line(quiet), threading.Event(), _Counts()
    with stop_on_signals(stop.set):
        supervise(lambda: _Watched(start(), line, stop, counts))
    return {"batches": counts.batches, "frames": counts.frames, "late": counts.late}


def finish(result: Mapping[str, Any], as_json: bool, quiet: bool) -> None:
    """Print the result as a table, or as a line of JSON."""
    if as_json:
        click.echo(json.dumps(dict(result), default=str))
        return
    if quiet:
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    for name, value in result.items():
        text = f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name.replace("_", " "), printable(text))
    screen().print(table)
