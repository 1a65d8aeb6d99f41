"""Make the picture of docs/proxy.md from a real run: a client, a proxy with a fault, and a broker.

    proxy_picture.py    write docs/proxy.svg

The times are those of the run, so each run makes another picture.
"""

from __future__ import annotations

import io
import threading
from pathlib import Path

from rich.console import Console
from rich.text import Text

import stompcodec.client as stomp
from stompcodec.cli.proxying.entry import Entry, Rows
from stompcodec.cli.proxying.faults import faults_of
from stompcodec.cli.proxying.proxy import Place, Proxy, Target
from stompcodec.cli.proxying.tally import Tally
from stompcodec.cli.proxying.watcher import Watcher
from stompcodec.testing import StompBroker
from stompcodec.testing.faults import LoopThread
from stompcodec.uri import parse_uri

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "proxy.svg"
FAULT = "duplicate MESSAGE nth=2"
WIDTH = 132
#: Seconds for the last frames.
PATIENCE = 20.0


def talk(url: str, seen: threading.Event) -> None:
    """Talk to the broker through the proxy."""
    with stomp.connect(url, login="ann", passcode="secret", heart_beat=(0, 0)) as client:
        orders = client.subscribe("/queue/orders", ack="client-individual")
        for body in (b'{"order": 1}', b'{"order": 2}'):
            client.send("/queue/orders", body, {"content-type": "application/json"}, receipt=True)
            message = orders.get(timeout=PATIENCE)
            assert message is not None
            message.ack()
        client.send("/queue/orders", b"a body without a type")
    seen.wait(PATIENCE)


def run(console: Console) -> None:
    """Show what passes on a console."""
    closed = threading.Event()
    rows = Rows(console)

    def show(entry: Entry) -> None:
        console.print(rows.row(entry), soft_wrap=True, end="")
        if entry.kind == "closed":
            closed.set()

    def failed(what: str, error: Exception) -> None:
        raise SystemExit(f"{what}: {error}")

    tally, thread = Tally(), LoopThread("proxy")
    with StompBroker() as broker:
        watcher = Watcher(tally, [show], failed=failed)
        target = Target(parse_uri(broker.url)[0], None)
        proxy = Proxy(Place("127.0.0.1", 0, None, False), target, watcher, faults=faults_of((FAULT,), 0))
        thread.run(proxy.start())
        talk(str(proxy.place), closed)
        thread.run(proxy.stop())
        watcher.close(PATIENCE)
    thread.end()
    for line in tally.lines():
        console.print(Text(line))


def main() -> None:
    """Write the picture."""
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor", highlight=False
    )
    console.print(Text(f"$ stompcodec proxy 61614 localhost:61613 --fault '{FAULT}'", "bold"))
    run(console)
    svg = console.export_svg(title="stompcodec proxy", unique_id="proxy")
    PICTURE.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
