"""stompcodec bench: measure the codec on this machine, or the throughput of a broker."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stompcodec.cli.connecting import broker_options, header_option, interrupts, reporting_errors
from stompcodec.cli.connecting import size as octets
from stompcodec.cli.groups import Verbs
from stompcodec.cli.inputs import Complaints, Number, complain, name_of, option_group

if TYPE_CHECKING:
    from stompcodec.cli.benching.broker import Crew
    from stompcodec.cli.benching.codec import Group, Race

_TOPIC = "/topic/stompcodec.bench"
#: Number of generated frames, if they are small.
_FRAMES = 5000
_RATES = ("messages", "seconds", "messages_per_s")
#: Columns of the table, which has to fit into 80 columns; other facts are in its title.
_SHOWN = {
    "pub": (*_RATES, "mb_per_s"),
    "sub": (*_RATES, "mb_per_s"),
    "rtt": (*_RATES, "min_ms", "median_ms", "p90_ms", "p99_ms", "max_ms"),
}
F = TypeVar("F", bound=Callable[..., Any])


@click.group("bench", cls=Verbs)
def command() -> None:
    """Measure the codec on this machine, or the throughput of a broker.

    \b
      stompcodec bench codec --compare stomp.py,stompman
      stompcodec bench sub --feed --clients 4
      stompcodec bench rtt --url stomp://broker:61613 --json

    All figures are measured in this run. Ctrl-C ends it early, with the figures so far and exit status 130.
    """


#: The options common to all measurements.
_common = option_group(
    click.option(
        "--size",
        callback=octets,
        default="100",
        show_default=True,
        metavar="BYTES",
        help="Size of each body; K and M are allowed.",
    ),
    click.option(
        "--duration",
        type=Number(0, min_open=True),
        default=5.0,
        show_default=True,
        metavar="SECS",
        help="How long to measure.",
    ),
    click.option("--json", "form", flag_value="json", help="Print one JSON object."),
    click.option("--csv", "form", flag_value="csv", help="Print CSV with a header line."),
)


_clients = click.option(
    "--clients",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of connections, each with a thread.",
)


def _names(_context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Parse the libraries named by --compare: a callback of click."""
    from stompcodec.cli.benching.libraries import PEERS

    names = tuple(dict.fromkeys(name.strip() for name in (value or "").split(",") if name.strip()))
    for name in names:
        if name not in PEERS:
            raise click.BadParameter(f"{name!r}: name one of {', '.join(PEERS)}, or both with a comma", param=option)
    return names


@command.command("codec")
@click.argument("file", metavar="[FILE|-]", required=False, type=click.Path(allow_dash=True))
@click.option(
    "--frames", type=click.IntRange(1), metavar="N", help="Number of generated frames; 5000 unless they are large."
)
@click.option("--read", callback=octets, default="65536", show_default=True, metavar="BYTES", help="Size of each feed.")
@click.option("--compare", callback=_names, metavar="NAMES", help="Also measure other libraries: stomp.py,stompman.")
@_common
def codec(
    file: str | None,
    size: int,
    frames: int | None,
    read: int,
    duration: float,
    compare: tuple[str, ...],
    form: str | None,
) -> None:
    """Decode and encode in memory with each backend, and with other libraries.

    FILE is a capture or a raw stream of frames, of which the first 32 MiB are used. Without FILE, frames like market
    ticks are generated, with bodies of --size.

    Libraries take turns of about 1000 frames, round after round, until --duration is over. The best time of each turn
    counts, in CPU time if that clock is precise enough. The ratio is relative to our backend, the first in the table.

    \b
      stompcodec bench codec frames.stomp
      stompcodec bench codec --size 4K --compare stomp.py,stompman
    """
    from stompcodec.cli.benching.codec import Race
    from stompcodec.cli.benching.figures import live, show
    from stompcodec.cli.benching.libraries import ours

    if file is not None and frames is not None:
        raise click.UsageError("--frames generates frames: it cannot be used with FILE")
    problems = Complaints()
    with reporting_errors(), interrupts() as interrupted:
        groups, whole = _workload(file, size, frames, read, problems)
        race = Race(groups, ours(), read)
        missing = _invite(race, compare)
        with live() as tell:
            race.run(duration, interrupted, tell)
        rows = race.rows()
        if rows:
            facts = {
                "bench": "codec",
                "source": "generated" if file is None else name_of(file),
                "whole": whole and rows[0]["frames"] == sum(len(group.parts) for group in groups),
                "read": read,
                "rounds": race.rounds,
                "versions": {library.name: library.version for library in race.libraries},
                "not_compared": missing,
                "results": rows,
            }
            show(form, facts, rows if form else [_labelled(row) for row in rows], _title(facts, rows[0]))
    sys.exit(130 if interrupted() else 1 if problems.count else 0)


def _workload(
    file: str | None, size: int, frames: int | None, read: int, problems: Complaints
) -> tuple[list[Group], bool]:
    """Return the workload, and whether it is complete."""
    from stompcodec.cli.benching.codec import MOST, generated, grouped, recorded

    if size > MOST or (frames or 0) * size > MOST:
        raise click.UsageError(f"the generated bodies must not exceed {MOST // 2**20} MiB in total")
    if file is None:
        groups, whole = grouped(generated(size, frames or max(1, min(_FRAMES, MOST // size))), read, problems)
    else:
        groups, whole = grouped(recorded(file, problems), read, problems)
    if not groups:
        complain(f"{name_of(file or '-')}: no frames to measure")
        sys.exit(1)
    return groups, whole


def _invite(race: Race, names: tuple[str, ...]) -> dict[str, str]:
    """Add libraries to the race. Return those that cannot take part, with the reason, which is also printed."""
    from stompcodec.cli.benching.libraries import peer

    missing = {}
    for name in names:
        try:
            library = peer(name)
            wrong = race.qualify(library)
            if not wrong:
                race.libraries.append(library)
                continue
        except ModuleNotFoundError:
            wrong = f"it is not installed: pip install {name}"
        except Exception as error:  # an unsupported version
            wrong = f"it cannot be used: {type(error).__name__}: {error}"
        missing[name] = wrong
        complain(f"{name} is not compared: {wrong}")
    return missing


def _labelled(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for the table, without the columns that are equal in all rows."""
    from stompcodec.cli.benching.codec import MEASURES

    shown = {name: value for name, value in row.items() if name not in ("frames", "seconds")}
    return {**shown, "measure": MEASURES[row["measure"]]}


def _title(facts: dict[str, Any], row: dict[str, Any]) -> str:
    part = "" if facts["whole"] else " (not all of it)"
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"{facts['source']}{part}: {row['frames']:,} frames, {row['octets']:,} bytes, fed {facts['read']:,} at a time; "
        f"best of {facts['rounds']} rounds; {versions}"
    )


@command.command("pub")
@click.argument("destination", metavar="[DEST]", default=_TOPIC)
@header_option("SEND")
@click.option("--receipt", is_flag=True, help="Request a receipt for each message, not for many at a time.")
@_clients
@_common
@broker_options
def pub(
    destination: str,
    headers: tuple[tuple[str, str], ...],
    receipt: bool,
    clients: int,
    size: int,
    duration: float,
    form: str | None,
    **broker: Any,
) -> None:
    """Send to DEST, /topic/stompcodec.bench by default, as fast as the broker accepts messages.

    Messages count once the broker has confirmed them. They are not consumed: a queue keeps them until the broker's
    memory or disk is full, and a topic without subscribers drops them.

    \b
      stompcodec bench pub --url broker:61613 --clients 4
      stompcodec bench pub /queue/bench --receipt --size 1K
    """
    from stompcodec import Frame
    from stompcodec.cli.benching.broker import Crew, body_of, publish
    from stompcodec.cli.benching.broker import clients as connections
    from stompcodec.cli.benching.figures import live

    message = Frame("SEND", [("destination", destination), *headers], body_of(size))
    with reporting_errors(), interrupts() as interrupted, connections(clients, **broker) as connected:
        crew = Crew(connected)
        with live() as tell:
            crew.start(lambda worker: publish(worker, crew, message, receipt))
            crew.until_over(duration, interrupted, tell)
            crew.finish()
        crew.ended = max(worker.last for worker in crew.workers)
        _report("pub", destination, crew, form, size=size, receipt=receipt)
    sys.exit(130 if interrupted() else 0)


@command.command("sub")
@click.argument("destination", metavar="[DEST]", default=_TOPIC)
@click.option(
    "--ack",
    type=click.Choice(["auto", "client", "client-individual"]),
    default="auto",
    show_default=True,
    help="How messages are acknowledged; with client, many at a time.",
)
@click.option("--prefetch", type=click.IntRange(1), metavar="N", help="Most unacknowledged messages.")
@click.option("--feed", "fed", is_flag=True, help="Also send messages of --size, on another connection.")
@_clients
@_common
@broker_options
def sub(
    destination: str,
    ack: str,
    prefetch: int | None,
    fed: bool,
    clients: int,
    size: int,
    duration: float,
    form: str | None,
    timeout: float,
    **broker: Any,
) -> None:
    """Consume messages of DEST, /topic/stompcodec.bench by default.

    Time counts from the first message, which must arrive within --timeout, to the end, even if the sender stops early.
    Send with --feed, or with `stompcodec bench pub` elsewhere. Messages sent by --feed are all consumed.

    \b
      stompcodec bench sub --feed --url broker:61613
      stompcodec bench sub /queue/bench --ack client-individual --duration 30
    """
    from stompcodec import Frame
    from stompcodec.cli.benching.broker import Crew, Worker, body_of, consume, feed
    from stompcodec.cli.benching.broker import clients as connections
    from stompcodec.cli.benching.figures import live

    broker["timeout"] = timeout
    with reporting_errors(), interrupts() as interrupted, connections(clients + fed, **broker) as connected:
        crew = Crew(connected[:clients])
        taking = {
            id(worker): worker.client.subscribe(destination, ack=ack, prefetch=prefetch) for worker in crew.workers
        }
        with live() as tell:
            crew.start(lambda worker: consume(worker, crew, taking[id(worker)]))
            if fed:
                message = Frame("SEND", [("destination", destination)], body_of(size))
                feeding = crew.also(lambda worker: feed(worker, crew, message), Worker(connected[-1]))
            crew.until_first(timeout, interrupted, tell)
            if crew.count:
                crew.until_over(duration, interrupted, tell)
            crew.over.set()
            if fed:
                crew.drain(feeding)
            crew.finish()
        silent = crew.ended - max(worker.last for worker in crew.workers)
        if not crew.count and not interrupted():
            complain(f"no message came in {timeout:g} s (is anything sent there? see --feed)")
            sys.exit(1)
        _report("sub", destination, crew, form, size=size if fed else None, ack=ack, fed=fed, silent_s=silent)
    sys.exit(130 if interrupted() else 0)


@command.command("rtt")
@click.argument("destination", metavar="[DEST]", required=False)
@_clients
@_common
@broker_options
def rtt(
    destination: str | None, clients: int, size: int, duration: float, form: str | None, timeout: float, **broker: Any
) -> None:
    """Time messages to the broker and back, one at a time.

    Each client has a topic of its own, or DEST, with a number appended (DEST.1, DEST.2) if there are several clients.
    The first round trip of each is not counted. If a message is not back within --timeout, the status is 1.

    \b
      stompcodec bench rtt --url broker:61613
      stompcodec bench rtt --clients 8 --size 1K --json
    """
    from stompcodec.cli.benching.broker import Crew, RoundTrips, body_of
    from stompcodec.cli.benching.broker import clients as connections
    from stompcodec.cli.benching.figures import live, spread
    from stompcodec.cli.show.summary import Sizes

    base = destination or f"{_TOPIC}.{uuid.uuid4().hex}"
    names = [base] if clients == 1 else [f"{base}.{number}" for number in range(1, clients + 1)]
    broker["timeout"] = timeout
    with reporting_errors(), interrupts() as interrupted, connections(clients, **broker) as connected:
        crew = Crew(connected)
        trips = {
            id(worker): RoundTrips(worker, name, body_of(size), timeout) for worker, name in zip(crew.workers, names)
        }
        for each in trips.values():
            each.once(crew)
        with live() as tell:
            crew.start(lambda worker: trips[id(worker)].run(crew))
            crew.until_over(duration, interrupted, tell)
            crew.finish()
        crew.ended = max(worker.last for worker in crew.workers)
        times = Sizes()
        for each in trips.values():
            times.merge(each.times)
        _report("rtt", base, crew, form, size=size, more=partial(spread, times))
    sys.exit(130 if interrupted() else 0)


def _report(
    verb: str,
    destination: str,
    crew: Crew,
    form: str | None,
    more: Callable[[], dict[str, float]] | None = None,
    **facts: Any,
) -> None:
    """Show the counts of a crew, if there are any."""
    from stompcodec.cli.benching.figures import rates, show

    if not crew.count:
        complain("nothing was measured: time was over before the first message")
        return
    frame = crew.workers[0].client.connected
    row = {
        "bench": verb,
        "destination": destination,
        "server": None if frame is None else frame.get("server"),
        "clients": len(crew.workers),
        **facts,
        **rates("messages", crew.count, crew.octets, crew.ended - crew.began),
        **(more() if more else {}),
    }
    show(form, row, [row if form else {name: row[name] for name in row if name in _SHOWN[verb]}], _run_title(row))


def _run_title(row: dict[str, Any]) -> str:
    """Return the title of the table."""
    size = "" if row["size"] is None else f" of {row['size']:,} bytes"
    how = {"receipt": "a receipt for each", "fed": "fed by itself"}
    texts = (
        f"{row['bench']} {row['destination']} at {row['server'] or 'a broker without a name'}",
        f"messages{size}",
        f"{row['clients']} client{'s' * (row['clients'] != 1)}",
        *(text for name, text in how.items() if row.get(name)),
        *(f"ack {row[name]}" for name in ("ack",) if name in row),
    )
    return "; ".join(texts)
