"""The demonstration: decodes a generated capture, then sends its messages through a durable broker to a consumer.

Run by `make demo-broker`. It ends with two tables: the decoded frames with their rate, and the broker's deliveries.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from stompcodec.cli import require_extra

if TYPE_CHECKING:
    from rich.console import Console

    from stompcodec.cli.demonstration.feed import Tally
    from stompcodec.cli.reader import FrameReader, Place

_FIRST = 12


def main() -> None:
    """Write the capture, show it, send its messages through a broker, and remove both."""
    require_extra()
    from stompcodec.cli.screen import screen

    console = screen()
    with TemporaryDirectory() as folder:
        problems = _decode(console, Path(folder))
        problems += _through_the_broker(console, Path(folder))
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


def _places(path: Path) -> tuple[list[Place], FrameReader]:
    from stompcodec.cli.reader import Broken, FrameReader

    with path.open("rb") as file:
        reader = FrameReader(file.read)
        places: list[Place] = []
        for found in reader.places():
            assert not isinstance(found, Broken)
            places += found
    return places, reader


def _decode(console: Console, folder: Path) -> list[str]:
    """Show the capture as `stompcodec decode` does."""
    from stompcodec.cli.demonstration.sample import sample
    from stompcodec.cli.show.pretty import PrettyView
    from stompcodec.cli.show.summary import SummaryView
    from stompcodec.cli.show.table import TableView
    from stompcodec.cli.verbs.decode import show_file

    path = folder / "railway.stomp"
    with path.open("wb") as file:
        file.writelines(sample())
    places, reader = _places(path)
    console.print(
        "A capture in the shape of a railway feed, made by stompcodec.cli.demonstration.sample.\n", style="bold"
    )
    console.print("Its first frames (stompcodec decode):")
    table = TableView(console)
    table.title("")
    table.show(places[:_FIRST], reader)
    console.print("\nTwo of them (stompcodec decode --pretty):\n")
    packed = [place for place in places if place.frame.get("content-encoding")]
    plain = [place for place in places if place.size and not place.frame.get("content-encoding")]
    for some in (plain, packed):
        PrettyView(console).show([min(some, key=lambda place: place.size)], reader)
    console.print("All of them (stompcodec decode --summary):\n")
    summary = SummaryView(console)
    problems = show_file(str(path), summary, {})
    summary.finish()
    return list(map(str, problems))


def _through_the_broker(console: Console, folder: Path) -> list[str]:
    """Send the capture's messages through a broker with a disk to a consumer that acknowledges each."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from stompcodec.broker import Config
    from stompcodec.cli.demonstration.feed import Feed, broker_url

    frames = [place.frame for place in _places(folder / "railway.stomp")[0] if place.frame.command == "MESSAGE"]
    console.print("\nThe same messages through a broker, producer and consumer in one go\n", style="bold")
    with broker_url(Config(port=0, data=str(folder / "data"))) as url:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=console, transient=not console.is_terminal) as bars:
            names = ("confirmed", "acknowledged")
            tasks = [bars.add_task(name, total=len(frames)) for name in names]

            def show(tally: Tally) -> None:
                for name, task in zip(names, tasks):
                    bars.update(task, completed=getattr(tally, name))

            tally = Feed(frames, url).run(show)
    _show_tally(console, tally)
    wrong = {"lost": tally.lost, "delivered twice": tally.twice, "damaged": tally.damaged, "misplaced": tally.misplaced}
    return [f"stompcodec: demo: {count} messages were {what}" for what, count in wrong.items() if count]


def _show_tally(console: Console, tally: Tally) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in (
        "messages",
        "sent",
        "with receipt",
        "received",
        "acknowledged",
        "lost",
        "twice",
        "out of order",
        "damaged",
    ):
        table.add_column(name, justify="right")
    figures = [tally.frames, tally.sent, tally.confirmed, tally.received, tally.acknowledged]
    figures += [tally.lost, tally.twice, tally.misplaced, tally.damaged]
    table.add_row(*(f"{figure:,}" for figure in figures))
    console.print(table)
    rate, octets = tally.received / tally.seconds, tally.octets / tally.seconds / 1e6
    console.print(
        f"every message on disk before its receipt: {tally.received:,} messages in {tally.seconds:.2f} s, "
        f"{rate:,.0f} messages/s, {octets:.1f} MB/s"
    )


if __name__ == "__main__":
    main()
