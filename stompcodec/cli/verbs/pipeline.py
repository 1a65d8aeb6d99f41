"""stompcodec pipeline: convert feeds to tables, figures and reports, and replay them, with Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click

from stompcodec.cli.connecting import connected, reporting_errors, size, url_of
from stompcodec.cli.contexts import referred
from stompcodec.cli.groups import Verbs
from stompcodec.cli.inputs import Interval, complain, option_group
from stompcodec.cli.pipelines.run import (
    Input,
    Line,
    at_context,
    finish,
    input_options,
    is_broker,
    output_options,
    started,
    waited,
)
from stompcodec.cli.screen import printable, screen
from stompcodec.cli.verbs.replay import speed_of
from stompcodec.errors import MissingExtraError

#: Columns that each job needs; the others are not read.
_EXPLODED = ("command", "destination", "message_id", "received_at", "body", "spool", "pos", "error")
_MEASURED = ("destination", "received_at", "sent_at", "redelivered", "length", "error")
_LETTERS = ("destination", "message_id", "received_at", "sent_at", "headers", "body", "error")
_WIDEST = 60
#: Columns of a table that is not written to a terminal.
_PIPE = 400


@click.group("pipeline", cls=Verbs)
def command() -> None:
    """Turn feeds into tables, figures and reports, or replay them, with Spark.

    INPUT is a capture, an archive that `pipeline archive` wrote, or a broker's URL, with --destination and --spool.

    \b
      stompcodec pipeline archive feed.stompcap -o archive
      stompcodec pipeline archive stomp://host -d /topic/feed --spool feed.stompcap -o archive
      stompcodec pipeline explode archive -o td --preset networkrail-td -d /topic/TD_*
    """
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        complain(str(MissingExtraError("spark", error.name or "pyspark")))
        raise SystemExit(2) from None


_mode = option_group(
    click.option("--overwrite", "mode", flag_value="overwrite", help="Replace an existing output."),
    click.option("--append", "mode", flag_value="append", help="Add to an existing output."),
)


def _done(start: Callable[[], Any], reading: Input, spark: Any, quiet: bool) -> Any:
    """Run a job to its end, and return the counts of a stream, or the result of the job."""
    if reading.streaming:
        return waited(start, quiet)
    with Line(quiet).stages(spark):
        return start()


@command.command("archive")
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="DIR", help="Output folder.")
@click.option("--dedupe/--no-dedupe", default=True, show_default=True, help="Drop redelivered frames.")
@click.option(
    "--within",
    type=Interval(),
    default="10m",
    show_default=True,
    metavar="TIME",
    help="For a stream: how far apart.",
)
@click.option("--partition-by", default="date,destination", type=click.Choice(["date,destination", "date"]),
              show_default=True, help="The levels of folders.")  # fmt: skip
@_mode
@input_options
@output_options
def archive(
    source: str, output: str, dedupe: bool, within: str, partition_by: str, mode: str | None, cores: int | None,
    memory: int | None, spark_log: str | None, as_json: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Write frames to Parquet, in folders date=/destination=. All frames and all their headers are kept.

    \b
      stompcodec pipeline archive feed.stompcap -o archive
      stompcodec pipeline archive broker:61613 -d /topic/feed --spool feed.stompcap -o archive
    """
    reading = Input(source, options)
    with started(cores, memory, spark_log, quiet) as spark:
        from stompcodec.spark import jobs

        made = _done(
            lambda: jobs.archive(
                reading.frames(spark), output, dedupe=dedupe, within=within, partition_by=partition_by.split(","),
                mode=mode or "errorifexists", **reading.how,
            ), reading, spark, quiet,
        )  # fmt: skip
    finish({"archive": output, **(made if reading.streaming else {"frames": made})}, as_json, quiet)


@command.command("explode")
@click.argument("source", metavar="INPUT", required=False)
@click.option("-o", "--output", type=click.Path(), metavar="DIR", help="Output folder.")
@click.option("-p", "--preset", metavar="NAME|FILE", help="The format of the bodies: see --list.")
@click.option(
    "-s", "--schema", metavar="FILE", help="Schema of JSON bodies: Spark's JSON of a StructType, DDL, or a preset."
)
@click.option("--list", "listed", is_flag=True, help="Print the presets.")
@click.option("--gzip", is_flag=True, help="Decompress JSON bodies with gzip.")
@click.option("--max-body", callback=size, default="4MiB", show_default=True, metavar="SIZE",
              help="Larger bodies are quarantined.")  # fmt: skip
@_mode
@input_options
@output_options
def explode(
    source: str | None, output: str | None, preset: str | None, schema: str | None, listed: bool, gzip: bool,
    max_body: int, mode: str | None, cores: int | None, memory: int | None, spark_log: str | None, as_json: bool,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Write bodies to a table: DIR/rows has a row for each record, DIR/_quarantine invalid ones with the reason.

    \b
      stompcodec pipeline explode --list
      stompcodec pipeline explode archive -o td --preset networkrail-td -d /topic/TD_*
      stompcodec pipeline explode archive -o orders --schema 'id BIGINT, price DOUBLE'
    """
    if listed:
        _list_presets(as_json)
        return
    if source is None or output is None or (preset is None) == (schema is None):
        raise click.UsageError("explode needs INPUT, -o DIR, and either --preset or --schema")
    reading = Input(source, options)
    with started(cores, memory, spark_log, quiet) as spark:
        from stompcodec.spark import jobs

        totals = dict.fromkeys(("frames", "good", "quarantined", "rows", "quarantine"), 0)
        last: dict[str, int] = {}

        def add(counts: dict[str, int]) -> None:
            again = last if last.get("batch") == counts.get("batch") else {}  # a batch that is repeated
            totals.update({name: total + counts[name] - again.get(name, 0) for name, total in totals.items()})
            last.update(counts)

        def start() -> Any:
            exploded = jobs.explode(reading.frames(spark, *_EXPLODED), preset, schema, gzip=gzip, max_body=max_body)
            return jobs.write_exploded(exploded, output, mode=mode or "errorifexists", on_counts=add, **reading.how)

        made = _done(start, reading, spark, quiet)
        if not reading.streaming:
            add(made)
    named = {"frames": "frames", "good": "good_frames", "quarantined": "quarantined_frames"}
    finish({"output": output, **{named.get(name, name): count for name, count in totals.items()}}, as_json, quiet)


def _list_presets(as_json: bool) -> None:
    from stompcodec.spark.jobs.presets import load, preset_names

    for name in preset_names():
        about = load(name).about
        click.echo(json.dumps({"preset": name, "about": about}) if as_json else f"{name:<20}{about}")


@command.command("metrics")
@click.argument("source", metavar="INPUT")
@click.option(
    "-o", "--output", type=click.Path(), metavar="DIR", help="Output folder; without it the rows are printed."
)
@click.option("--window", type=Interval(), default="1m", show_default=True, metavar="TIME", help="Length of a window.")
@click.option(
    "--watermark", type=Interval(), default="10m", show_default=True, metavar="TIME", help="How late frames may be."
)
@click.option("--sequence", metavar="HEADER", help="A header ending in a number that grows by one, to find gaps.")
@_mode
@input_options
@output_options
def metrics(
    source: str, output: str | None, window: str, watermark: str, sequence: str | None, mode: str | None,
    cores: int | None, memory: int | None, spark_log: str | None, as_json: bool, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Count frames, bytes, lag, sizes, gaps, redeliveries and errors for each destination and window of time.

    \b
      stompcodec pipeline metrics archive --window 5m
      stompcodec pipeline metrics feed.stompcap -o metrics --sequence message-id
    """
    reading = Input(source, options)
    if reading.streaming and output is None:
        raise click.UsageError("for a stream, metrics needs -o DIR")
    with started(cores, memory, spark_log, quiet) as spark:
        from stompcodec.spark import jobs

        columns = (*_MEASURED, "headers") if sequence else _MEASURED

        def windows() -> Any:
            return jobs.metrics(reading.frames(spark, *columns), window=window, watermark=watermark, sequence=sequence)

        if output is None:
            with Line(quiet).stages(spark):
                found = [row.asDict(recursive=True) for row in windows().orderBy("start", "destination").collect()]
            _print_rows(found, as_json, ("sequences", "end", "lag_p95", "size_p95", "size_p99"))
            return
        made = _done(
            lambda: jobs.write_metrics(windows(), output, mode=mode or "errorifexists", **reading.how),
            reading, spark, quiet,
        )  # fmt: skip
    finish({"metrics": output, **(made if reading.streaming else {"windows": made})}, as_json, quiet)


@command.command("deadletters")
@click.argument("source", metavar="INPUT")
@click.option("--most", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Groups to print.")
@input_options
@output_options
def deadletters(
    source: str, most: int, cores: int | None, memory: int | None, spark_log: str | None, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """List dead letters by their first destination, reason and exception, with samples.

    Record the queue first, because a job that reads from the broker would consume the dead letters.

    \b
      stompcodec record broker:61613 /queue/DLQ -o dead.stompcap --wait 5
      stompcodec pipeline deadletters dead.stompcap
    """
    if is_broker(source):
        raise click.UsageError("record the queue first: stompcodec record URL QUEUE -o dead.stompcap")
    options.update(follow=False, available_now=False, checkpoint=None)
    reading = Input(source, options)
    with started(cores, memory, spark_log, quiet) as spark:
        from stompcodec.spark import jobs

        letters = jobs.deadletters(reading.frames(spark, *_LETTERS))
        with Line(quiet).stages(spark):
            found = [row.asDict(recursive=True) for row in letters.limit(most).collect()]
    _print_rows(found, as_json, ("first_id", "last_id", "last_body", "bytes"))


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
@click.option("--receipts/--no-receipts", default=True, show_default=True, help="Request receipts now and then.")
@click.option("--management", is_flag=True, help="Send requests to /management/, too. They act with your rights.")
@input_options
@output_options
def replay(
    source: str, url: str, speed: float | None, to: str | None, ids: str | None, receipts: bool, management: bool,
    cores: int | None, memory: int | None, spark_log: str | None, as_json: bool, quiet: bool, **options: Any,
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
    further, options["source_options"] = dict(options["source_options"]), ()  # here they are options of the sink
    options.update(follow=False, available_now=False, checkpoint=None)
    context = referred(url)
    if context is not None:
        url, options = context.url, at_context(context, options)
    url = url_of(url)
    reading = Input(source, options, broker=url)
    sink = {"url": url, "transaction": str(receipts).lower(), "receiptEvery": "1000" if receipts else "0"}
    given = {**sink, **reading.credentials, **further}
    with started(cores, memory, spark_log, quiet) as spark:
        from stompcodec.spark import jobs

        frames = reading.frames(spark)
        line = Line(quiet)
        how: dict[str, Any] = {"destination": to, "ids": ids, **({"requests": None} if management else {})}
        if speed is None:
            with line.stages(spark):
                sent = jobs.replay(frames, given, **how)
        else:
            who = {"login": options["login"], "passcode_file": options["passcode_file"], "vhost": None, "version": None}
            trusted = options.get("ca")
            with reporting_errors(), connected(url=url, **who, timeout=60.0, ca=trusted, insecure=False) as client:
                show = lambda count: line.show(f"{count:,} messages sent")  # noqa: E731
                sent = jobs.paced(frames, client, speed, receipts=receipts, on_sent=show, **how)
            line.clear()
    finish({"messages": sent}, as_json, quiet)


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
@click.option("--title", metavar="TEXT", help="Title of the page.")
@output_options
def report(
    archived: str, output: str, exploded: tuple[str, ...], measured: str | None, spool: str | None,
    checkpoint: str | None, title: str | None, cores: int | None, memory: int | None, spark_log: str | None,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write a page that shows whether a feed is healthy.

    \b
      stompcodec pipeline report archive -o report
      stompcodec pipeline report archive -o report --exploded td --metrics metrics --spool feed.stompcap
    """
    with started(cores, memory, spark_log, quiet) as spark:
        from stompcodec.spark.report import report as make

        with Line(quiet).stages(spark):
            made = make(
                spark, archived, output, exploded=list(exploded) or None, metrics=measured, spool=spool,
                checkpoint=checkpoint, title=title,
            )  # fmt: skip
    verdict = made["verdict"]
    if as_json:
        click.echo(json.dumps(made, default=str))
    elif not quiet or verdict["level"] == "unhealthy":
        click.echo(f"{verdict['word']}: {output}/report.html")
        for each in verdict["reasons"]:
            click.echo(f"  {printable(each['text'])}")
    if verdict["level"] == "unhealthy":
        sys.exit(1)


@command.command("demo", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def demo(context: click.Context, /, arguments: tuple[str, ...]) -> None:
    """Demonstrate it on this machine: a broker, a feed, tables, a report; the driver is killed half-way.

    \b
      stompcodec pipeline demo
      stompcodec pipeline demo --folder /tmp/demo
    """
    from stompcodec.spark.demo import main

    examples = "    stompcodec pipeline demo\n    stompcodec pipeline demo --folder /tmp/demo\n"
    statuses = (context.command.epilog or "").removeprefix("\b\n").replace("\n", "\n  ")
    main(list(arguments), "stompcodec pipeline demo", f"{examples}\n  {statuses}\n")
    sys.exit(0)
