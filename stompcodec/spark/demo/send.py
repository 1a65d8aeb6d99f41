"""Send the feed of the demonstration to any broker: `python -m stompcodec.spark.demo.send [URL]`."""

from __future__ import annotations

import argparse
import sys
import time

from stompcodec.errors import StompError
from stompcodec.spark.demo.feed import TD, TRUST
from stompcodec.spark.demo.parts import DemoError, Producer

_URL = "stomp://localhost:61613"


def main() -> None:
    """Send the feed, and print the number of messages. Exit status: 0 if all were sent, 1 if not."""
    parser = argparse.ArgumentParser(
        prog="python -m stompcodec.spark.demo.send", description=f"A feed to {TD}, {TRUST}."
    )
    parser.add_argument("url", nargs="?", default=_URL, metavar="URL", help=f"URL of the broker ({_URL})")
    parser.add_argument("--frames", type=int, default=5000, metavar="N", help="number of messages (5000)")
    parser.add_argument("--rate", type=float, default=1000, metavar="N", help="messages per second (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random feed (0)")
    options = parser.parse_args()
    producer = Producer(options.url, options.frames, options.seed, max(options.rate, 0.1))
    producer.start()
    try:
        while not producer.done:
            time.sleep(0.1)
    except (DemoError, StompError) as error:
        sys.exit(f"stompcodec: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    ledger = producer.ledger
    told = f"{ledger.twice:,} of them twice, {len(ledger.malformed):,} with an invalid body"
    print(f"{ledger.sent:,} messages sent and confirmed, {told}")


if __name__ == "__main__":
    main()
