"""Decode a generated capture: its first frames, and a summary with the rate. Run by `make demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from stompcodec.cli import require_extra

__all__ = ["main"]

_FIRST = 12


def main() -> None:
    """Write the capture, show it, and remove it."""
    require_extra()
    from stompcodec.cli.decode import show_file
    from stompcodec.cli.pretty import PrettyView
    from stompcodec.cli.reader import Broken, FrameReader, Place
    from stompcodec.cli.sample import sample
    from stompcodec.cli.screen import screen
    from stompcodec.cli.summary import SummaryView
    from stompcodec.cli.table import TableView

    console = screen()
    with TemporaryDirectory() as folder:
        path = Path(folder, "railway.stomp")
        with path.open("wb") as file:
            file.writelines(sample())
        with path.open("rb") as file:
            reader = FrameReader(file.read)
            places: list[Place] = []
            for found in reader.places():
                assert not isinstance(found, Broken)
                places += found
        console.print("A capture in the shape of a railway feed, made by stompcodec.cli.sample.\n", style="bold")
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
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
