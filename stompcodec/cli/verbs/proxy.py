"""stompcodec proxy: show, check, record and disturb what passes between clients and a broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from stompcodec.cli import streams
from stompcodec.cli.connecting import tls_option, tls_options
from stompcodec.cli.inputs import complain, parsed, time_option
from stompcodec.cli.screen import printable, screen
from stompcodec.cli.streams import stop_on_signals
from stompcodec.errors import ConfigError, StompError
from stompcodec.uri import parse_uri

if TYPE_CHECKING:
    from stompcodec.cli.proxying.bytes import Faults
    from stompcodec.cli.proxying.telling import Entry, Output, Recorder, Tally, Watcher
    from stompcodec.cli.proxying.wire import Place, Proxy, Target

_LISTEN = re.compile(
    r"(?:(?P<scheme>[a-z+]+)://)?(?:(?P<host>\[[0-9a-f:.%]+\]|[\w.-]*):)?(?P<port>[0-9]{1,5})/?",
    re.IGNORECASE | re.ASCII,
)
#: Schemes of LISTEN: whether they use TLS, and WebSocket.
_SCHEMES = {
    **dict.fromkeys(("stomp", "tcp"), (False, False)),
    **dict.fromkeys(("stomp+ssl", "stomp+tls", "stomps", "ssl"), (True, False)),
    "ws": (False, True),
    "wss": (True, True),
}
#: Seconds that a busy thread may make the stream wait.
_SWITCH = 0.0005
#: Seconds to check and record the last frames, and to show them.
_LAST, _SHOWING = 10.0, 3.0


def _place(listen: str, cert: str | None, public: bool) -> Place:
    from stompcodec.broker.auth import is_loopback
    from stompcodec.cli.proxying.wire import Place

    found = _LISTEN.fullmatch(listen)
    scheme = (found["scheme"] or "stomp").lower() if found else ""
    if found is None or scheme not in _SCHEMES or int(found["port"]) > 65535:
        raise click.UsageError(
            f"LISTEN is {printable(listen)!r}: write PORT, HOST:PORT, or a URL such as ws://127.0.0.1:15674"
        )
    secure, websocket = _SCHEMES[scheme]
    host = (found["host"] or "127.0.0.1").strip("[]")
    if not public and not is_loopback(host):
        raise click.UsageError(f"{host} can be reached from other machines: add --public if that is meant")
    if secure is not (cert is not None):
        raise click.UsageError(
            "a scheme with TLS in LISTEN, such as stomp+ssl, and --cert go together: the client has to trust it"
        )
    context = None
    if cert is not None:
        from stompcodec.transport.tls import server_context

        try:
            context = server_context(cert)
        except OSError as error:
            raise click.UsageError(f"{printable(cert)}: {error.strerror or error}") from None
    return Place(host, int(found["port"]), context, websocket)


def _target(text: str, ca: str | None, insecure: bool) -> Target:
    from stompcodec.cli.proxying.wire import Target

    try:
        addresses = parse_uri(text, tls=tls_option(ca, insecure))
    except ConfigError as error:
        raise click.UsageError(f"TARGET: {error}") from None
    if len(addresses) != 1:
        raise click.UsageError("TARGET is one broker, not several")
    if addresses[0].login is not None:
        raise click.UsageError("TARGET has a login: leave it out, since clients log in themselves")
    return Target(addresses[0], tls_options(ca, insecure).get("ssl"))


@parsed
def _faults(texts: tuple[str, ...]) -> tuple[str, ...]:
    from stompcodec.cli.proxying.bytes import faults_of

    faults_of(texts)
    return texts


class _Run:
    """A run of the proxy, from its start to its last line."""

    def __init__(self, as_json: bool, quiet: bool) -> None:
        from stompcodec.cli.proxying.telling import Tally

        self.tally: Tally = Tally()
        self.status = 0
        self._json = as_json
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._over: asyncio.Event | None = None
        self.output: Output | None = None
        self.outputs: list[Callable[[Entry], object]] = []
        if quiet:
            self.outputs.append(_complain_of)
        else:
            from stompcodec.cli.proxying.telling import Output

            self.output = Output(None if as_json else screen(), self.tally, self._lost_output)
            self.outputs.append(self.output.add)

    def stop(self) -> None:
        self._stopped = True
        if self._loop is not None and self._over is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._over.set)

    def fail(self, what: str, error: Exception) -> None:
        """Note an error of a thread, which does not end the stream."""
        self.status = 1
        complain(f"{what}: {printable(str(error))}")

    def _lost_output(self, error: Exception) -> None:
        self.fail("cannot write", error)
        self.stop()

    async def serve(self, proxy: Proxy, watcher: Watcher) -> None:
        """Serve until `stop`. Raise OSError if the proxy cannot listen."""
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        await proxy.start()
        text = f"{proxy.place} passes on to {proxy.target}"
        click.echo(f"stompcodec proxy: {text}; Ctrl-C ends", err=True)
        if self._json:
            watcher.say(0, "listening", text)
        if not self._stopped:
            await self._over.wait()
        await proxy.stop()

    def finish(self, done: bool) -> None:
        """Print the counts, once all is shown as far as possible. `done`: all is checked and recorded."""
        if self._json and self.output is not None:
            self.output.add_counts()
        shown = self.output is None or self.output.close(_SHOWING)
        for line in self.tally.lines():
            click.echo(line, err=True)
        if not done:
            self.status = 1
            complain("the last frames could not be checked or recorded in time")
        if not shown:
            complain("the last frames were not shown, since nobody reads the output")
        if not (done and shown):  # a thread hangs, and the process would wait for it
            streams.end()
            os._exit(self.status)


def _complain_of(entry: Entry) -> None:
    """Report trouble of a connection, while nothing else is shown."""
    if entry.kind == "closed" and ": " in entry.text:
        complain(f"connection {entry.connection} {entry.text}")


@click.command("proxy")
@click.argument("listen", metavar="LISTEN")
@click.argument("target", metavar="TARGET")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line. Secrets are masked.")
@click.option("-q", "--quiet", is_flag=True, help="Print no frames, only trouble and the counts at the end.")
@click.option("--heart-beats", is_flag=True, help="Show heart-beats, too.")
@click.option("--record", "folder", type=click.Path(), metavar="CAPTURE", help="Record frames to a new capture.")
@click.option(
    "--fault",
    "texts",
    multiple=True,
    callback=_faults,
    metavar="TEXT",
    help="Inject a fault, as in 'lose RECEIPT nth=2'; repeatable. docs/proxy.md has the table.",
)
@click.option(
    "--cert", type=click.Path(), metavar="FILE", help="Private key and certificate chain for TLS with clients, PEM."
)
@click.option("--ca", type=click.Path(), metavar="FILE", help="Trust the certificates in FILE (PEM) for TARGET.")
@click.option("--insecure", is_flag=True, help="Do not check the certificate of TARGET.")
@click.option("--public", is_flag=True, help="Allow LISTEN to be an address that other machines reach.")
@time_option("--timeout", default=10.0, help="How long to wait for TARGET, and for handshakes.")
def command(
    listen: str,
    target: str,
    as_json: bool,
    quiet: bool,
    heart_beats: bool,
    folder: str | None,
    texts: tuple[str, ...],
    cert: str | None,
    ca: str | None,
    insecure: bool,
    public: bool,
    timeout: float,
) -> None:
    """Pass bytes between clients and the broker TARGET, unchanged, and show each frame, until Ctrl-C or SIGTERM.

    LISTEN is PORT, HOST:PORT, or a URL with stomp, stomp+ssl, ws or wss; TARGET is an address as for --url. Passcodes
    are masked in all output. Bytes that are not STOMP pass, too.

    \b
      stompcodec proxy 61614 localhost:61613
      stompcodec proxy 61614 stomp+ssl://broker:61614 --record talk.stompcap
      stompcodec proxy ws://127.0.0.1:15674 ws://broker:15674/ws --fault 'delay MESSAGE 0.5 times=all'
    """
    from stompcodec.cli.proxying.bytes import faults_of

    place, broker = _place(listen, cert, public), _target(target, ca, insecure)
    if place.websocket or broker.address.websocket:
        import stompcodec.cli.proxying.messages  # noqa: F401 - it needs an extra
    logging.getLogger("stompcodec").addHandler(logging.NullHandler())
    run = _Run(as_json, quiet)
    recorder = _recorder(folder, run.tally)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        with stop_on_signals(run.stop, output=False):  # a thread of its own writes there
            _run(run, recorder, place, broker, faults_of(texts) if texts else None, timeout, heart_beats)
    finally:
        sys.setswitchinterval(before)
    sys.exit(run.status)


def _recorder(folder: str | None, tally: Tally) -> Recorder | None:
    if folder is None:
        return None
    from stompcodec.cli.proxying.telling import Recorder

    try:
        return Recorder(folder, tally)
    except (OSError, StompError) as error:
        raise click.UsageError(f"--record: {error}") from None


def _run(
    run: _Run,
    recorder: Recorder | None,
    place: Place,
    target: Target,
    faults: Faults | None,
    timeout: float,
    heart_beats: bool,
) -> None:
    from stompcodec.cli.proxying.telling import Watcher
    from stompcodec.cli.proxying.wire import Proxy

    watcher = Watcher(run.tally, run.outputs, recorder, heart_beats=heart_beats, failed=run.fail)
    proxy = Proxy(place, target, watcher, faults=faults, whole=recorder is not None, timeout=timeout)
    try:
        asyncio.run(run.serve(proxy, watcher))
    except OSError as error:
        run.status = 1
        complain(f"{error.strerror or error}")
    done = watcher.close(_LAST)
    if recorder is not None and done:
        try:
            recorder.close()
        except StompError as error:
            run.fail("the capture is not complete", error)
    run.finish(done)
