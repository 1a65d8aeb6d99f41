"""stompcodec record: record messages of a broker into a capture, acknowledging them once they are on the disk."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli import connecting
from stompcodec.cli.inputs import Duration, complain, parsed
from stompcodec.cli.screen import StatusLine, pace_of, printable
from stompcodec.cli.streams import stop_on_signals
from stompcodec.disk import Access, access_of
from stompcodec.shown import plural

if TYPE_CHECKING:
    from stompcodec.capture import CaptureWriter
    from stompcodec.client.recorder import Dedupe, Recorder

#: Seconds between two updates of the progress line, between two lines of a log, and between two checks for segments to
#: delete.
_REDRAW = 0.2
_TELL = 60.0
_CLEAN = 5.0
#: Seconds after which a segment is sealed.
_SEGMENT_SECONDS = 3600.0
#: Begins a value of --keep that names a checkpoint.
_UNTIL = "until-committed:"


@parsed
def _dedupe(value: str) -> Dedupe | None:
    from stompcodec.client.recorder import Dedupe

    return Dedupe.of(value)


def _keep(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[int | None, list[Path]]:
    """Return the size and the checkpoints in the values of --keep: a callback of click."""
    paths = [value.removeprefix(_UNTIL) for value in values if value.startswith(_UNTIL)]
    sizes = [connecting.size(context, option, value) for value in values if not value.startswith(_UNTIL)]
    if not all(paths) or len(sizes) > 1:
        raise click.BadParameter(f"one SIZE at most, and a folder behind each {_UNTIL}", param=option)
    return (sizes[0] if sizes else None), [Path(path) for path in paths]


def _committed(checkpoint: Path, capture: CaptureWriter) -> dict[str, int]:
    """Return the offset of each chain up to which the Spark query with this checkpoint has committed a capture.

    Raises OSError or ValueError if that cannot be told.
    """
    batches = [int(name) for name in os.listdir(checkpoint / "commits") if name.isdecimal()]
    if not batches:
        raise ValueError(f"{checkpoint}: no batch is committed yet")
    path = checkpoint / "offsets" / f"{max(batches)}"
    version, _, *sources = [*path.read_text("utf-8").splitlines(), "", ""]
    if version != "v1":
        raise ValueError(f"{path} has the unknown format {version!r:.20}")
    place, found = Path(os.path.abspath(capture.path)).as_posix(), dict[str, int]()
    for source in sources:
        try:
            offset = json.loads(source) if source.startswith("{") else {}
        except ValueError:
            raise ValueError(f"{path} is damaged") from None
        for name, end in offset.items():
            folder, _, chain = name.rpartition("/")
            if "#spool" in offset or not isinstance(end, int) or not capture.end(chain):
                continue  # of a source that reads something else
            if folder in ("", place) or place.endswith(f"/{folder}"):
                found[chain] = min(end, found.get(chain, end))
    if not found:
        raise ValueError(f"{checkpoint}: its query does not read this capture")
    if any(end > capture.end(chain) for chain, end in found.items()):
        raise ValueError(f"{checkpoint}: its query has read more than the capture has: it is of another recording")
    return found


class Progress:
    """The progress line, and periodic work on the capture."""

    def __init__(
        self, capture: CaptureWriter, keep: dict[str, Any], until: tuple[list[Path], int], quiet: bool
    ) -> None:
        self._capture = capture
        self._keep = {name: value for name, value in keep.items() if value is not None}
        self._checkpoints, self._last = until
        if self._checkpoints and not self._keep:
            self._keep = {"octets": 0}
        self._doubt = ""
        self._start = time.monotonic()
        self._cleaned = 0.0
        self._line = StatusLine(not quiet, _REDRAW)
        self._tells, self._told = not (quiet or self._line.live), self._start
        self.clear = self._line.clear
        self.recorder: Recorder
        self.trouble = ""
        self._messages = 0

    def text(self) -> str:
        recorder = self.recorder
        pace = pace_of(recorder.messages, recorder.octets, self._start)
        again = f", {recorder.redelivered:,} of them redelivered" if recorder.redelivered else ""
        again += f", {recorder.duplicates:,} more were recorded already" if recorder.duplicates else ""
        again += f", silence {recorder.expected.silence:.0f} s" if recorder.expected.silence >= 1 else ""
        return f"{plural(recorder.messages, 'message')} recorded, {pace}{again}"

    def turn(self) -> None:
        """Update the line and the segments, while nothing is written."""
        now = time.monotonic()
        self._line.update(self.text)
        if self._tells and now - self._told >= _TELL:
            self._told = now
            click.echo(self.text(), err=True)
        if self.recorder.messages != self._messages:
            self._messages, self.trouble = self.recorder.messages, ""
        if now - self._cleaned > _CLEAN:
            self._cleaned = now
            micros = round(time.time() * 1e6)
            self._capture.roll(micros)
            if self._keep:
                self._capture.retain(micros, **self._keep, below=self._done() if self._checkpoints else None)

    def _done(self) -> dict[str, int]:
        """Return what the queries of all checkpoints have committed; nothing if one of them cannot be read.

        The last bytes of each chain stay: a restart must know their messages, which may be redelivered.
        """
        found, doubt = list[dict[str, int]](), ""
        try:
            found += [_committed(checkpoint, self._capture) for checkpoint in self._checkpoints]
        except (OSError, ValueError) as error:
            doubt = connecting.explanation(error)
        if doubt and doubt != self._doubt:
            self.clear()
            complain(f"{doubt}; no segment is deleted until this is solved")
        self._doubt = doubt
        done = {chain: min(each.get(chain, 0) for each in found) for chain in found[0]} if not doubt else {}
        return {chain: min(end, self._capture.end(chain) - self._last) for chain, end in done.items()}

    def told(self, error: Exception) -> None:
        text = printable(str(error))
        if text != self.trouble:
            self.trouble = text
            self.clear()
            complain(f"{text}; nothing is acknowledged until this is solved")


@click.command("record")
@click.argument("destinations", metavar="[URL] DEST...", nargs=-1, required=True)
@click.option(
    "-o", "--output", required=True, type=click.Path(), metavar="CAPTURE", help="The capture, such as a.stompcap."
)
@click.option("--archive", metavar="URI", help="Move full segments there, such as to s3://bucket/a.stompcap.")
@click.option(
    "--segment",
    callback=connecting.size,
    default="128MiB",
    show_default=True,
    metavar="SIZE",
    help="Begin a new segment at this size.",
)
@click.option(
    "--keep",
    multiple=True,
    callback=_keep,
    metavar=f"SIZE|{_UNTIL}CHECKPOINT",
    help="Delete the oldest segments beyond this size, or what a Spark query has committed. Several must agree.",
)
@click.option("--keep-time", type=Duration(0), metavar="TIME", help="Delete older segments.")
@click.option("-n", "--count", "most", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("-w", "--wait", "seconds", type=Duration(0), metavar="TIME", help="End after this time.")
@connecting.expect_option
@click.option(
    "--dedupe",
    callback=_dedupe,
    default="none",
    show_default=True,
    metavar="messageId|header:NAME|none",
    help="Leave out redelivered messages that are in the capture already.",
)
@connecting.subscription_options
@click.option(
    "--group",
    callback=parsed(lambda group: access_of(group=group)),
    metavar="NAME",
    help="A group that may read new files: 0640, not 0600.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on success.")
@connecting.lenient_option
@connecting.broker_options
def command(
    destinations: tuple[str, ...],
    output: str,
    archive: str | None,
    segment: int,
    keep: tuple[int | None, list[Path]],
    keep_time: float | None,
    most: int | None,
    seconds: float | None,
    expect: float | None,
    dedupe: Dedupe | None,
    quiet: bool,
    lenient: bool,
    group: Access,
    **broker: Any,
) -> None:
    """Record the messages of queues and topics into a capture, until Ctrl-C, SIGTERM or SIGHUP.

    A message is acknowledged once it is on the disk, so no message is lost. A lost connection is restored. An existing
    capture is continued. Messages redelivered after a crash or a lost connection are recorded twice, unless --dedupe
    leaves them out.

    \b
      stompcodec record host:61613 /topic/feed -o feed.stompcap
      stompcodec record /queue/a /queue/b -o jobs.stompcap --keep 10GiB
    """
    destinations = _without_url(destinations, broker)
    octets, checkpoints = keep
    if archive is not None and (octets is not None or checkpoints or keep_time is not None):
        raise click.UsageError("only a verified copy lets a segment go: --keep cannot be used with --archive")
    options = {**connecting.subscription_of(broker), "on_unreadable": "skip" if lenient else "raise"}
    stopped = connecting.Stopped()
    with stop_on_signals(stopped.set), connecting.passing_over(lenient), connecting.reporting_errors():
        how: dict[str, Any] = {"archive": archive, "access": group, "segment_octets": segment}
        how["segment_seconds"] = _SEGMENT_SECONDS
        capture = _opened(output, destinations, quiet, **how)
        progress = Progress(capture, {"octets": octets, "seconds": keep_time}, (checkpoints, segment), quiet)
        try:
            how = {"dedupe": dedupe, "most": most, "expect": expect}
            _record(capture, progress, destinations, options, how, seconds, stopped, broker)
        finally:
            progress.clear()
            capture.close()
        if not quiet:
            click.echo(progress.text(), err=True)
    if seconds is not None and not stopped.is_set():
        connecting.check_count(progress.recorder.messages, most, seconds)


def _without_url(destinations: tuple[str, ...], broker: dict[str, Any]) -> tuple[str, ...]:
    if connecting.is_url(destinations[0]):
        connecting.at_url(broker, destinations[0])
        destinations = destinations[1:]
    if not destinations:
        raise click.UsageError("no DEST: name what to record, as in /queue/a")
    return destinations


def _opened(output: str, destinations: tuple[str, ...], quiet: bool, **options: Any) -> CaptureWriter:
    from stompcodec.capture import CaptureWriter
    from stompcodec.client.recorder import holder_of

    holder = holder_of(f"stompcodec record {' '.join(destinations)}", time.time())
    capture = CaptureWriter(output, holder=holder, **options)
    if capture.lost and not quiet:
        complain(f"{output}: {capture.lost} unacknowledged bytes at the end were cut off, as after a crash")
    return capture


def _record(
    capture: CaptureWriter,
    progress: Progress,
    destinations: tuple[str, ...],
    options: dict[str, Any],
    how: dict[str, Any],
    seconds: float | None,
    stopped: connecting.Stopped,
    broker: dict[str, Any],
) -> None:
    from stompcodec.client import Backoff
    from stompcodec.client.hub import apart
    from stompcodec.client.recorder import Recorder

    until = None if seconds is None else time.monotonic() + seconds

    def turn() -> None:
        progress.turn()
        if stopped.is_set() or (until is not None and time.monotonic() >= until):
            recorder.stop()

    broker.update(reconnect=Backoff(), on_state=connecting.report_reconnect)
    with contextlib.ExitStack() as stack:
        clients = []
        for number, _ in enumerate(destinations):  # an ACK of one may settle others of its connection
            name = broker["client_id"] and number and {"client_id": f"{broker['client_id']}-{number}"}
            with apart():
                clients.append(stack.enter_context(connecting.connected(stopped, **{**broker, **(name or {})})))
        recorder = Recorder(clients, capture, **how, on_turn=turn, on_trouble=progress.told)
        progress.recorder = recorder
        for client, destination in zip(clients, destinations):
            connecting.warn_of_missing_slash(client, destination)
            recorder.subscribe(destination, clients=[client], **options)
        if sys.stderr.isatty():
            click.echo(f"recording {', '.join(map(printable, destinations))}; Ctrl-C ends", err=True)
        recorder.run()
