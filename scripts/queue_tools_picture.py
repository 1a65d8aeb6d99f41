"""Write docs/queue-tools.svg: a real run of the queue tools on a broker of its own. `--check` compares the commands.

The times and message-ids of a run differ, so the check compares what was run and shown without digits.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

import stompcodec.client as stomp
from stompcodec.testing import StompBroker

PAGE = Path(__file__).resolve().parents[1] / "docs" / "queue-tools.svg"
WIDTH = 110
COMMANDS = (
    ("dlq", "list"),
    ("dlq", "show", "/queue/DLQ.orders"),
    ("dlq", "retry", "/queue/DLQ.orders", "--dry-run"),
    ("dlq", "retry", "/queue/DLQ.orders", "--yes"),
    ("browse", "/queue/orders"),
    ("move", "/queue/orders", "/queue/orders.eu", "--selector", "region = 'eu'", "--yes"),
)


def fill(url: str) -> None:
    """Make three dead letters."""
    with stomp.connect(url) as client:
        for number, region in enumerate(("eu", "us", "eu"), 1):
            body = f'{{"order": {number}, "price": {number * 7}}}'
            client.send("/queue/orders", body, {"region": region}, receipt=True)
        with client.subscribe("/queue/orders", ack="client-individual") as subscription:
            for message in itertools.islice(subscription, 3):
                message.nack(requeue=False, receipt=True)


def record() -> Console:
    """Run the commands, and return a console that has shown them."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    with StompBroker() as broker:
        fill(broker.url)
        plain = {name: value for name, value in os.environ.items() if not name.startswith("STOMPCODEC_")}
        environment = {**plain, "STOMPCODEC_URL": broker.url, "COLUMNS": str(WIDTH), "PYTHONIOENCODING": "utf-8"}
        for command in COMMANDS:
            words = " ".join(f'"{word}"' if " " in word else word for word in command)
            console.print(Text("$ ", "bold green").append(f"stompcodec {words}", "bold default"))
            done = subprocess.run(
                [sys.executable, "-m", "stompcodec.cli", *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                check=True,
            )
            console.print(Text(done.stdout.decode()), soft_wrap=True)
    return console


def plain(svg: str) -> str:
    """Return the text of a drawing without digits, and without the spaces that depend on them."""
    text = " ".join(re.findall(r"<text [^>]*>([^<]*)</text>", svg)).replace("&#160;", " ")
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "0", re.sub(r"\s+", " ", text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and change nothing")
    arguments = parser.parse_args()
    svg = record().export_svg(title="stompcodec: queue tools", unique_id="queue-tools")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # they name a foreign host
    if arguments.check:
        if plain(PAGE.read_text(encoding="utf-8")) != plain(svg):
            print(f"{PAGE.name}: a run shows something else: python scripts/queue_tools_picture.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(svg, encoding="utf-8")
    print(f"{PAGE.name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
