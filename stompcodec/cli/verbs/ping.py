"""stompcodec ping: check that a broker answers, which versions it speaks, and how fast."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.connecting import at_url, broker_options, connected, reporting_errors
from stompcodec.cli.inputs import number_option
from stompcodec.cli.screen import printable, screen
from stompcodec.states import negotiate_heart_beat

if TYPE_CHECKING:
    from stompcodec.client import Client

#: Seconds between two round trips.
_PAUSE = 0.2


def _show_facts(facts: dict[str, Any], client: Client) -> None:
    from rich.text import Text

    beat = negotiate_heart_beat("{},{}".format(*client.options.heart_beat), facts["heart_beat"])
    agreed = ", ".join(
        f"{who} one every {interval / 1000:g} s" if interval else f"{who} none"
        for who, interval in (("we send", beat[0]), ("it sends", beat[1]))
    )
    lines = (
        ("server", printable(facts["server"] or "not given")),
        ("dialect", facts["dialect"]),
        ("version", f"STOMP {facts['version']}"),
        ("session", printable(facts["session"] or "not given")),
        ("heart-beats", f"{printable(facts['heart_beat'])}: {agreed}"),
        ("connected in", f"{facts['connect_ms']:.1f} ms"),
    )
    console = screen()
    for name, value in lines:
        console.print(Text(f"{name:13}", "dim").append(value, "not dim"), soft_wrap=True)


@click.command("ping")
@click.argument("address", metavar="[URL]", required=False)
@number_option("-c", "-n", "--count", kind=click.IntRange(0), default=3, help="How many round trips to time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@broker_options
def command(address: str | None, count: int, as_json: bool, **broker: Any) -> None:
    """Connect, describe the broker, and time round trips.

    A round trip is an empty transaction with a receipt: it leaves nothing behind.

    \b
      stompcodec ping localhost:61613
      stompcodec ping stomp+ssl://broker --login ann --passcode-file secret --count 10
      stompcodec ping wss://broker/stomp --json
    """
    if address:
        at_url(broker, address)
    started = time.monotonic()
    with reporting_errors(), connected(**broker) as client:
        connect_ms = (time.monotonic() - started) * 1000
        frame = client.connected
        assert frame is not None
        facts = {
            "server": frame.get("server"),
            "version": client.version,
            "session": frame.get("session"),
            "heart_beat": frame.get("heart-beat", "0,0"),
            "dialect": client.dialect,
            "connect_ms": connect_ms,
        }
        if not as_json:
            _show_facts(facts, client)
            sys.stdout.flush()
        trips = []
        for number in range(1, count + 1):
            trips.append(client.ping() * 1000)
            if not as_json:
                click.echo(f"receipt {number}: {trips[-1]:.2f} ms")
            if number < count:
                time.sleep(_PAUSE)
    if as_json:
        click.echo(json.dumps({**facts, "round_trips_ms": trips}))
    elif trips:
        click.echo(f"min {min(trips):.2f}, p50 {statistics.median(trips):.2f}, max {max(trips):.2f} ms")
