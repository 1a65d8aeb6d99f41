"""Make the pictures of docs/page.md from a real run: a broker with load, and its page in headless Chromium.

And the one of `stompcodec inspect` in the README.

python scripts/screenshots.py [FOLDER]    by default docs/images
python scripts/screenshots.py --inspector [FOLDER]    that one alone
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from chromium import Chromium, Page

import stompcodec.client as stomp
from stompcodec.testing import StompBroker

SECONDS = 40  # of load before the first picture, which the plots show
PLACES = ("orders.new", "orders.paid", "invoices", "parcels.north", "parcels.south", "mail", "stock.changes", "audit")
PURGE = "orders.purge(app.view.row, app.view.name)"
DESKTOP, PHONE = (1240, 800), (390, 800)


def produce(url: str, stop: threading.Event) -> None:
    """Send orders at a rate that rises and falls."""
    chance = random.Random(7)
    with stomp.connect(url, client_id="shop") as client:
        number = 0
        while not stop.is_set():
            for _ in range(chance.randint(10, 60)):
                number += 1
                body = {"order": number, "customer": {"id": 1000 + number % 97, "region": "north"}, "total": "19.90"}
                place = PLACES[min(int(chance.expovariate(0.5)), len(PLACES) - 1)]
                headers = {"content-type": "application/json", "region": "north", "persistent": "true"}
                client.send(f"/queue/{place}", json.dumps(body), headers)
            stop.wait(0.15)


def consume(url: str, stop: threading.Event, place: str, refused: int) -> None:
    """Take messages, and refuse some for ever."""
    chance = random.Random(refused)
    with stomp.connect(url, client_id=f"{place}-worker") as client:
        subscription = client.subscribe(f"/queue/{place}", ack="client-individual", prefetch=20)
        while not stop.is_set():
            message = subscription.get(timeout=0.2)
            if message is None:
                continue
            if refused and chance.randrange(refused) == 0:
                message.nack(requeue=False)
            else:
                message.ack()
            stop.wait(0.004)


def take(page: Page, view: str, size: tuple[int, int], scheme: str, ready: str, then: str = "") -> bytes:
    """Return a picture of a view once it is complete."""
    page.resize(*size, phone=size is PHONE)
    page.prefer(scheme)
    page.get(f"location.hash = '#/{view}'")
    page.wait(ready)
    if then:
        page.get(then)
    asked = page.get("app.asked")
    page.wait(f"app.asked > {asked} + 2")
    return page.picture()


def pictures(page: Page) -> dict[str, bytes]:
    """Take all pictures."""
    rows = "document.querySelectorAll('#main tr.row:not([hidden])').length"
    dead = "destination/%2Fqueue%2FDLQ.orders.new"
    choose = "document.querySelectorAll('#main tr.row')[1].click(); byId('main').scrollTop = 1e6"
    return {
        "page-overview-light": take(page, "overview", DESKTOP, "light", f"{rows} > 3"),
        "page-overview-dark": take(page, "overview", DESKTOP, "dark", f"{rows} > 3"),
        "page-dead-letters": take(page, dead, DESKTOP, "light", f"{rows} > 2", choose),
        "page-purge": take(
            page,
            "destination/%2Fqueue%2Finvoices",
            DESKTOP,
            "dark",
            f"{rows} > 2",
            PURGE,
        ),
        "page-phone": take(page, "overview", PHONE, "light", f"{rows} > 3", "document.querySelector('dialog').close()"),
        "page-phone-dark": take(page, "destinations", PHONE, "dark", f"{rows} > 3"),
    }


#: A conversation with one frame that breaks a rule: an undefined escape.
TALK = [
    b"CONNECT\naccept-version:1.2\nhost:/\nlogin:ann\npasscode:secret\nheart-beat:10000,10000\n\n\0\n",
    b"SUBSCRIBE\nid:1\ndestination:/queue/orders\nack:client-individual\nprefetch-count:10\n\n\0",
    b"SEND\ndestination:/queue/orders\ncontent-type:application/json\nregion:north\\csea\ncontent-length:30\n\n"
    b'{"order": 7, "total": "19.90"}\0\n',
    b"SEND\ndestination:/queue/orders\nnote:50\\% off\n\nA header with an undefined escape\0",
    b"ACK\nid:7-1\nreceipt:a1\n\n\0",
]


def inspector(browser: Chromium) -> bytes:
    """Take the picture of the page that `stompcodec inspect` writes."""
    from click.testing import CliRunner

    from stompcodec.cli.app import app

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the page shows the name as it was given
        Path("talk.stomp").write_bytes(b"".join(TALK))
        CliRunner().invoke(app, ["inspect", "--resync", "talk.stomp", "-o", "talk.html"])
        page = browser.open(Path("talk.html").absolute().as_uri())
        page.resize(1240, 560, phone=False)
        page.prefer("light")
        page.wait("document.body.innerText.includes('/queue/orders')")
        page.get("new Promise((done) => setTimeout(done, 500))")
        os.chdir(ROOT)
        return page.picture()


def main() -> None:
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    folder = Path(names[0] if names else ROOT / "docs" / "images")
    folder.mkdir(parents=True, exist_ok=True)
    with Chromium() as browser:
        (folder / "inspector.png").write_bytes(inspector(browser))
    if "--inspector" in sys.argv:
        return
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as data, StompBroker(ws_port=0, web_page=True, data=data) as broker:
        eaters = (("orders.new", 25), ("orders.paid", 0), ("mail", 60))
        work: list[tuple[Any, ...]] = [(produce,), *((consume, *each) for each in eaters)]
        threads = [threading.Thread(target=target, args=(broker.url, stop, *rest)) for target, *rest in work]
        for thread in threads:
            thread.start()
        try:
            with Chromium() as browser:
                server = broker._server
                assert server is not None
                page = browser.open(f"http://127.0.0.1:{server.ws_port}/")
                page.wait(f"app.asked >= {SECONDS}", SECONDS * 2)
                for name, picture in pictures(page).items():
                    (folder / f"{name}.png").write_bytes(picture)
                    print(f"{name}.png: {len(picture):,} bytes")
        finally:
            stop.set()
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main()
