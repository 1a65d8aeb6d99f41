"""stompcodec bridge: move or mirror destinations from one broker to another."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from stompcodec.bridge.carrier import OTHERS
from stompcodec.bridge.mapping import check_destination, is_topic
from stompcodec.cli import streams
from stompcodec.cli.app import INTERRUPTED
from stompcodec.cli.connecting import (
    adopt,
    check_count,
    expect_option,
    explanation,
    passcode_of,
    referred,
    reporting_errors,
    text_option,
    tls_option,
    tls_options,
)
from stompcodec.cli.inputs import Duration, complain, number_option, time_option
from stompcodec.cli.screen import StatusLine, pace_of, printable, write_json
from stompcodec.cli.streams import stop_on_signals
from stompcodec.errors import ConfigError, StompError
from stompcodec.shown import plural
from stompcodec.uri import parse_uri

if TYPE_CHECKING:
    from stompcodec.bridge import Bridge, End, Mapping, Request, Way

#: Seconds between two updates of the progress line, and between two lines of --json.
_REDRAW = 0.2
_REPORT = 1.0
#: Bytes that messages may take which were received and not taken.
_INBOX = 32 * 2**20
#: Destinations without a message that the last line names.
_MOST_NAMES = 3
_ALL_QUEUES = ("/queue/*",)
#: The options of `adopt`, which only a context has for an end.
_OF_A_CONTEXT = ("login", "passcode_file", "vhost", "version", "ca", "insecure")
#: Remedies by options that an end does not have, and those of an end.
_REMEDIES = {
    "check --login and the passcode: --passcode-file, STOMPCODEC_PASSCODE, or the URL": "check the login and "
    "the passcode: STOMPCODEC_{}_PASSCODE, the URL, or a context",
    "name one with --vhost; the default of RabbitMQ is --vhost /": "name one in the URL; of RabbitMQ it ends with /%2F",
    "trust its issuer with --ca FILE": "trust its issuer by a context with --ca FILE",
}
#: The largest body, in bytes. A larger one stays in FROM, and ends the bridge.
_MAX_BODY = 100 * 2**20


class Progress:
    """The progress line, the lines of --json, and reports of trouble."""

    def __init__(self, quiet: bool, as_json: bool) -> None:
        self._start = time.monotonic()
        self.quiet = quiet
        self._line = StatusLine(not quiet, _REDRAW)
        self.clear = self._line.clear
        self._json = as_json
        self._reported = self._start
        self._said: set[str] = set()
        self._letters = 0
        self.bridge: Bridge

    def text(self) -> str:
        tally = self.bridge.tally
        pace = pace_of(tally.carried, tally.octets, self._start)
        parts = [f"{plural(tally.carried, 'message')} carried, {pace}"]
        for count, what in (
            (tally.refused, "refused"),
            (tally.looped, "left out as loops"),
            (tally.again, "delivered again"),
            (tally.resent, "sent again"),
            (tally.left, "left in FROM"),
        ):
            parts += [f"{count:,} {what}"] if count else []
        for side, end in (("FROM", self.bridge.source), ("TO", self.bridge.target)):
            parts += [f"{side} is away"] if end.error is not None else []
        return ", ".join(parts)

    def summary(self) -> str:
        counts = self.bridge.tally.destinations
        rules = [rule for rule in self.bridge.request.mapping.rules if not rule.is_pattern and not rule.is_native]
        names = [printable(rule.source) for rule in rules if rule.source not in counts and OTHERS not in counts]
        more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        return self.text() + (f", none from {', '.join(names[:_MOST_NAMES])}{more}" if names else "")

    def turn(self) -> None:
        now = time.monotonic()
        self._line.update(self.text)
        for side, end in (("FROM", self.bridge.source), ("TO", self.bridge.target)):
            if end.error is None:
                self._said.discard(side)
        if self._json and now - self._reported >= _REPORT:
            self._reported = now
            self.report("progress")

    def report(self, event: str) -> None:
        bridge = self.bridge
        seconds = round(time.monotonic() - self._start, 3)
        ends = {"from": str(bridge.source), "to": str(bridge.target)}
        line = {"event": event, **ends, "seconds": seconds, "silence": round(bridge.expected.silence, 3)}
        line |= {"waiting": bridge.waiting, **bridge.tally.counts()}
        write_json(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        sys.stdout.flush()

    def finish(self) -> None:
        if lines := streams.dropped("stdout"):
            complain(f"{plural(lines, 'line')} of --json dropped: their reader does not keep up")

    def trouble(self, end: End | None, error: Exception | str) -> None:
        self.clear()
        with suppress(OSError):  # the terminal was closed, which must not end the work
            if end is None:
                self._letters += 1
                if self._letters <= 10:
                    complain(f"refused: {error}")
                elif self._letters == 11:
                    complain("more messages were refused: see the dead letters")
                return
            side = "FROM" if end is self.bridge.source else "TO"
            if side not in self._said:
                self._said.add(side)
                complain(f"{side} ({end}): {printable(str(error))}; connecting again")


def _dropped(lines: int) -> bytes:
    return json.dumps({"event": "dropped", "lines": lines}).encode() + b"\n"


def _mapping(texts: tuple[str, ...], dead_letter: str) -> Mapping:
    from stompcodec.bridge import Mapping

    if "@" in texts:
        raise click.BadParameter("@ without the name of a file", param_hint="'--map'")
    lines: list[str] = []
    for text in texts or _ALL_QUEUES:
        lines += _lines(text[1:], "'--map'") if text.startswith("@") else [text]
    try:
        check_destination(dead_letter)
    except ValueError as error:
        raise click.BadParameter(printable(str(error)), param_hint="'--dead-letter'") from None
    try:
        return Mapping.parse(lines, excluded=[dead_letter])
    except ValueError as error:
        raise click.BadParameter(printable(str(error)), param_hint="'--map'") from None


def _lines(file: str, hint: str) -> list[str]:
    """Return the lines of a file, or of standard input for "-", without empty ones and comments."""
    try:
        if file == "-":
            lines = sys.stdin.read().splitlines()
        else:
            with open(file, encoding="utf-8") as stream:
                lines = stream.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise click.BadParameter(f"{printable(file)}: cannot be read: {why}", param_hint=hint) from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _names(file: str | None, mapping: Mapping) -> tuple[str, ...] | None:
    if file is None:
        return None
    names = [line if line.startswith("/") else f"/queue/{line}" for line in _lines(file, "'--destinations'")]
    if not any(mapping.matching(names)) and all(rule.is_pattern for rule in mapping.rules):
        patterns = ", ".join(rule.source for rule in mapping.rules)
        raise click.BadParameter(
            f"no destination of {printable(file)} matches {printable(patterns)}", param_hint="'--destinations'"
        )
    return tuple(names)


def _end(side: str, url: str, given: dict[str, Any], **options: Any) -> End:
    from stompcodec.bridge import End

    end = side.upper()
    taken: dict[str, Any] = {"url": url, **dict.fromkeys(_OF_A_CONTEXT), "passcode": None}
    if (context := referred(url, end)) is not None:
        taken |= adopt(context, {**taken, "insecure": False})
    url, login, file, vhost, version, ca, insecure, passcode = taken.values()
    try:
        addresses = parse_uri(url, tls=tls_option(ca, insecure))
        if passcode is None:
            passcode = passcode_of(addresses, login, file, end, f"STOMPCODEC_{end}_PASSCODE")
        if vhost is not None:
            addresses = [address._replace(vhost=vhost) for address in addresses]
        connecting = {"login": login, "passcode": passcode, "versions": None if version is None else [version]}
        options |= {key: value for key, value in connecting.items() if value is not None}
        return End(addresses, name=given.pop(f"{side}_name"), **tls_options(ca, bool(insecure), end), **options)
    except (ConfigError, ValueError) as error:
        raise click.BadParameter(printable(str(error)), param_hint=end) from None


def _way(given: dict[str, Any]) -> Way:
    from stompcodec.bridge import Way

    key = given.pop("key")
    if key is not None and (not key.startswith("header:") or key == "header:"):
        raise click.BadParameter(f"{printable(key)}: write header:NAME", param_hint="'--key'")
    if given["mirror"] and given["batch"] and given["durable"] is None:
        raise click.UsageError("--mirror acknowledges nothing: --batch can be used with it for --durable only")
    names = ("prefetch", "batch", "dead_letter", "persistent", "text", "most", "idle", "expect")
    return Way(key=None if key is None else key[len("header:") :], **{name: given.pop(name) for name in names})


def _request(given: dict[str, Any], dead_letter: str) -> Request:
    from stompcodec.bridge import Request

    mapping = _mapping(given.pop("maps"), dead_letter)
    if given["durable"] == "":
        raise click.UsageError("--durable without a name")
    if given["durable"] is not None:
        queues = [rule.source for rule in mapping.rules if not is_topic(rule.source)]
        if queues and queues[0] != "*":
            raise click.UsageError(
                f"--durable is for topics: map only those, as in --map /topic/prices, and not {printable(queues[0])}"
            )
    options = {name: given.pop(name) for name in ("durable", "selector", "shared")}
    names = _names(given.pop("destinations"), mapping)
    return Request(mapping, given.pop("mirror"), given.pop("drain"), names=names, **options)


def _explanation(error: Exception, bridge: Bridge) -> str:
    """Return the text of an error, with a remedy for the end that could not be connected to."""
    end = "TO" if bridge.source.epoch else "FROM"
    text = explanation(error).replace("see --url", f"check {end}")
    for words, of_an_end in _REMEDIES.items():
        text = text.replace(words, of_an_end.format(end))
    return text


async def _ending(bridge: Bridge, seconds: float | None) -> None:
    """Run the bridge, for some seconds at most."""
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, _stop_connected, bridge)
    await bridge.run()


def _stop_connected(bridge: Bridge) -> None:
    """Stop the bridge once it is connected to both ends: --timeout bounds how long that takes."""
    if bridge.target.epoch:
        bridge.stop()
    else:
        asyncio.get_running_loop().call_later(_REDRAW, _stop_connected, bridge)


def _run(bridge: Bridge, progress: Progress, seconds: float | None) -> None:
    """Run the bridge until its end, and exit with another status than 0 if that is an error."""
    from stompcodec.bridge import UnsuitableError

    logging.getLogger("stompcodec").addHandler(logging.NullHandler())  # errors are reported here
    if sys.stderr.isatty() and not progress.quiet:
        click.echo(f"carrying from {bridge.source} to {bridge.target}; Ctrl-C ends", err=True)
    with stop_on_signals(bridge.stop), reporting_errors(lambda error: _explanation(error, bridge)):
        try:
            asyncio.run(_ending(bridge, seconds))
        except UnsuitableError as error:
            complain(printable(str(error)))
            sys.exit(2)
        except (StompError, ValueError):
            progress.clear()
            if bridge.tally.carried:
                complain(f"stopped: {progress.text()}")
            raise
        finally:
            progress.clear()
    if not bridge.target.epoch:
        side, end = ("TO", bridge.target) if bridge.source.epoch else ("FROM", bridge.source)
        complain(f"ended before it was connected to {side} ({end})")
        sys.exit(INTERRUPTED)


@click.command("bridge")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "-m",
    "--map",
    "maps",
    multiple=True,
    metavar="SOURCE[=TARGET]",
    help="Carry this destination; a star at the end stands for any rest, in both. @FILE reads a line for each. "
    "Repeatable, the first match counts.  [default: /queue/*]",
)
@click.option("--mirror", is_flag=True, help="Copy: leave the messages of queues in FROM.")
@click.option("--drain", is_flag=True, help="End when FROM has no more messages.")
@click.option("-n", "--count", "most", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option("-w", "--wait", "seconds", type=Duration(0), metavar="TIME", help="End after this time.")
@time_option(
    "--idle",
    help="For --drain: the time without a message after which FROM counts as empty.  [default: ask FROM, or 3]",
)
@expect_option
@click.option(
    "--destinations",
    metavar="FILE|-",
    help="The names of the destinations of FROM, for patterns, if it does not list them itself.",
)
@click.option(
    "--durable",
    metavar="NAME",
    help="Subscribe to topics durably, so that no message is missed while the bridge is away.",
)
@click.option("--client-id", metavar="NAME", help="The client id at FROM, which some brokers require for --durable.")
@click.option("--selector", metavar="TEXT", help="Carry only messages that match, in the syntax of FROM.")
@click.option("--shared", is_flag=True, help="Let other consumers of the same queues of FROM get messages, too.")
@number_option(
    "--prefetch",
    kind=click.IntRange(1, 10_000),
    default=200,
    help="The most unacknowledged messages of each destination.",
)
@click.option(
    "--batch",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="Send and acknowledge up to N messages in a transaction.",
)
@click.option("-p", "--persistent", is_flag=True, help="Mark every message as persistent.")
@text_option
@click.option(
    "--key",
    metavar="header:NAME",
    help="A header that is unique for each message, if the message-ids of FROM change with each delivery.",
)
@click.option(
    "--dead-letter",
    default="/queue/bridge-dead-letters",
    show_default=True,
    metavar="DEST",
    help="Where FROM keeps the messages that TO refuses.",
)
@click.option("--from-name", metavar="NAME", help="What FROM is called in bridge-path. Default: its host and port.")
@click.option("--to-name", metavar="NAME", help="What TO is called in bridge-path. Default: its host and port.")
@time_option("--timeout", default=10.0, help="How long to wait for a broker to answer CONNECT.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as a JSON object per second, and at the end.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on success.")
def command(
    source: str,
    target: str,
    timeout: float,
    client_id: str | None,
    seconds: float | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Move the messages of destinations from one broker to another, until Ctrl-C, SIGTERM or SIGHUP.

    A message is acknowledged at FROM once TO has confirmed it, so no message is lost, and our broker stores each once.
    Lost connections are restored, at both ends. Refused messages go to the dead letters of FROM, with the reason.
    FROM and TO are URLs, with a login and a virtual host if needed, or contexts, which have also a passcode file,
    certificates and a version: context:NAME. STOMPCODEC_FROM_PASSCODE and STOMPCODEC_TO_PASSCODE have passcodes.

    \b
      stompcodec bridge old:61613 new:61613 --drain
      stompcodec bridge old:61613 new:61613 -m '/queue/orders.*=/queue/eu.*'
      stompcodec bridge old:61613 new:61613 -m /topic/prices --mirror
    """
    from stompcodec.bridge import Bridge

    if given["idle"] is not None and not given["drain"]:
        raise click.UsageError("--idle is for --drain")
    way = _way(given)
    request = _request(given, way.dead_letter)
    limits = {"max_body": _MAX_BODY, "connect_timeout": timeout}
    inbox = {"inbox_octets": _INBOX} | ({} if client_id is None else {"client_id": client_id})
    ends = _end("from", source, given, **limits, **inbox), _end("to", target, given, **limits)
    progress = Progress(quiet, as_json)
    try:
        bridge = Bridge(*ends, request, way, on_turn=progress.turn, on_trouble=progress.trouble)
    except ValueError as error:
        raise click.UsageError(printable(str(error))) from None
    progress.bridge = bridge
    streams.hand_over("stdout", _dropped)
    streams.hand_over("stderr")
    _run(bridge, progress, seconds)
    if as_json:
        progress.report("end")
        progress.finish()
    if not quiet:
        click.echo(progress.summary(), err=True)
    if seconds is not None:
        check_count(bridge.tally.carried + bridge.tally.refused, way.most, seconds)
    if bridge.tally.refused or bridge.tally.left:
        sys.exit(1)
