"""Programs that watch a broker for bench_watch.py, each a process of its own.

    python benchmarks/watchers.py each-second PORT METRICS_PORT    until standard input ends; METRICS_PORT may be 0
    python benchmarks/watchers.py answers PORT SECONDS

`each-second` asks each question of QUESTIONS once a second, and reads /metrics. `answers` asks one question after the
other, with short pauses. Both print JSON at the end: the seconds of each answer, by question.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import defaultdict

import stompcodec.client as stomp

#: The name of each row, the request, and its fields.
QUESTIONS: dict[str, tuple[str, dict[str, object]]] = {
    "broker": ("broker", {}),
    "store": ("store", {}),
    "memory": ("memory", {}),
    "sessions": ("sessions", {}),
    "subscriptions": ("subscriptions", {}),
    "destinations, 100 rows": ("destinations", {"limit": 100}),
    "destinations, sorted": ("destinations", {"limit": 100, "sort": "ready"}),
    "destinations, 1000 rows": ("destinations", {"limit": 1000}),
}
#: Seconds between an answer and the next question of `answers`.
PAUSE = 0.01
TIMEOUT = 30.0
Times = dict[str, list[float]]


def ask(client: stomp.Client, row: str, times: Times) -> None:
    """Ask a question, and note how long the answer took."""
    name, fields = QUESTIONS[row]
    body = json.dumps(fields)
    begin = time.perf_counter()
    answer = client.request(f"/management/{name}", body, TIMEOUT).body
    times[row].append(time.perf_counter() - begin)
    assert b'"error"' not in answer[:200], answer[:200]


def read_metrics(port: int, times: Times) -> None:
    """Read /metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    begin = time.perf_counter()
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    answer.read()
    times["/metrics"].append(time.perf_counter() - begin)
    assert answer.status == 200, answer.status
    connection.close()


def each_second(client: stomp.Client, metrics_port: int, times: Times) -> None:
    """Ask everything each second until standard input ends."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    begin = time.perf_counter()
    while not over.is_set():
        for row in QUESTIONS:
            ask(client, row, times)
        if metrics_port:
            read_metrics(metrics_port, times)
        passed = time.perf_counter() - begin
        over.wait(1.0 - passed % 1.0)


def answers(client: stomp.Client, seconds: float, times: Times) -> None:
    """Ask for some seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for row in QUESTIONS:
            ask(client, row, times)
            time.sleep(PAUSE)


def main() -> None:
    what, port, number = sys.argv[1:]
    times: Times = defaultdict(list)
    with stomp.connect(f"stomp://127.0.0.1:{port}") as client:
        print("ready", flush=True)
        if what == "each-second":
            each_second(client, int(number), times)
        else:
            answers(client, float(number), times)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
