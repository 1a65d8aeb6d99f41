"""Compare sending with persistent:true and persistent:false, in interleaved pairs, by our client and our broker.

python benchmarks/stored.py [PAIRS]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from collections.abc import Callable

from brokers import Ours

import stompcodec.client as stomp

_BODY = b"x" * 1024


def one(client: stomp.Client, persistent: bool) -> int:
    """Wait for each receipt."""
    for _ in range(300):
        client.send("/queue/one", _BODY, receipt=True, persistent=persistent)
    return 300


def window(client: stomp.Client, persistent: bool) -> int:
    """Have 100 receipts in flight."""
    receipts: deque[stomp.Receipt] = deque()
    for _ in range(3000):
        receipts.append(client.send_for_receipt("/queue/window", _BODY, persistent=persistent))
        if len(receipts) == 100:
            receipts.popleft().wait()
    for receipt in receipts:
        receipt.wait()
    return 3000


def many(client: stomp.Client, persistent: bool) -> int:
    """Let send_many ask for the receipts."""
    return client.send_many((("/queue/many", _BODY) for _ in range(3000)), persistent=persistent)


WAYS: tuple[Callable[[stomp.Client, bool], int], ...] = (one, window, many)


def main(pairs: int) -> None:
    """Measure each way, print the medians in messages per second, and that of the ratios."""
    rates: dict[tuple[str, bool], list[float]] = {}
    broker = Ours()
    try:
        with stomp.connect(f"stomp://127.0.0.1:{broker.port}") as client:
            for pair in range(pairs):
                for way in WAYS:
                    for persistent in (bool(pair % 2), not pair % 2):
                        began = time.perf_counter()
                        count = way(client, persistent)
                        rates.setdefault((way.__name__, persistent), []).append(count / (time.perf_counter() - began))
                    with client.subscribe(f"/queue/{way.__name__}") as subscription:
                        while subscription.get(0.3) is not None:
                            pass
    finally:
        broker.stop()
    for name in (way.__name__ for way in WAYS):
        stored, memory = rates[name, True], rates[name, False]
        ratio = statistics.median(one / other for one, other in zip(stored, memory))
        print(f"{name:8} {statistics.median(stored):9,.0f} {statistics.median(memory):9,.0f} {ratio:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
