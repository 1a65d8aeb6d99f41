"""Write docs/top.svg: the screen of `stompcodec top` at a broker of its own, with traffic. `--check` compares words.

The numbers of a run differ, and so may the order of the rows.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

import stompcodec.client as stomp
from stompcodec.cli.watching.figures import DESTINATIONS, Asker, Choice, address_of
from stompcodec.cli.watching.terminal import History, screen_of
from stompcodec.testing import StompBroker

PAGE = Path(__file__).resolve().parents[1] / "docs" / "top.svg"
WIDTH, HEIGHT = 120, 16
#: Messages per second of each queue, and how many of them its consumer takes at a time; 0 for no consumer.
QUEUES = {
    "/queue/orders.eu": (40, 100),
    "/queue/orders.us": (25, 100),
    "/queue/invoices": (15, 5),
    "/queue/audit": (10, 0),
    "/queue/thumbnails": (8, 100),
}
INTERVAL = 1.0
ANSWERS = 12


def feed(url: str, stopped: threading.Event) -> None:
    """Send to the queues, more and less in turns, until it is stopped."""
    with stomp.connect(url) as client:
        moment = 0
        while not stopped.wait(0.1):
            moment += 1
            for number, (queue, (rate, _)) in enumerate(QUEUES.items()):
                swing = 1 + ((moment // 10 + number) % 4)
                for _ in range(rate * swing // 20):
                    client.send(queue, b"x" * 400, {"persistent": "true"})


def serve(client: stomp.Client, queue: str, prefetch: int) -> None:
    """Consume a queue. With a small prefetch the messages are taken, and never acknowledged."""
    handler = (lambda message: message.ack()) if prefetch >= 100 else None
    client.subscribe(queue, ack="client-individual", prefetch=prefetch, handler=handler)


def watch() -> list[Text]:
    """Return the lines of a screen."""
    stopped = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        StompBroker(data=folder) as broker,
        stomp.connect(broker.url) as consumers,
        stomp.connect(broker.url) as client,
    ):
        feeder = threading.Thread(target=feed, args=(broker.url, stopped))
        feeder.start()
        for queue, (_, prefetch) in QUEUES.items():
            if prefetch:
                serve(consumers, queue, prefetch)
        choice, history = Choice(DESTINATIONS, "ready", "/queue/*", HEIGHT - 5), History()
        asker = Asker(client, "/management/", 30.0)
        for _ in range(ANSWERS):
            shown = asker.ask(choice.wish())
            history.add(shown)
            time.sleep(INTERVAL)
        stopped.set()
        feeder.join()
        address = re.sub(r":\d+$", ":61613", address_of(client))
        return screen_of(shown, choice, history, address, None, WIDTH, HEIGHT)


def plain(svg: str) -> set[str]:
    """Return the words of a drawing."""
    text = " ".join(re.findall(r"<text [^>]*>([^<]*)</text>", svg)).replace("&#160;", " ")
    return set(re.findall(r"[a-z/][a-z/.]+", text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and change nothing")
    arguments = parser.parse_args()
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    console.print(Group(*watch()))
    svg = console.export_svg(title="stompcodec top", unique_id="top")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # they name a foreign host
    if arguments.check:
        if plain(PAGE.read_text(encoding="utf-8")) != plain(svg):
            print(f"{PAGE.name}: a run shows something else: python scripts/top_picture.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(svg, encoding="utf-8")
    print(f"{PAGE.name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
