"""The rows of management of instructions.py: what a broker with 1,000 queues pays for a look at them, in process.

Counted is the way from the bytes of a request to those of its answer, or a read of /metrics without HTTP. Each look is
a second after the one before, so that rates and ages are computed anew.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

from stompcodec.codec import Parser

#: Each row, and what is counted for each queue. That of /metrics needs prometheus-client.
ROWS = {
    "destinations": "a row of `destinations`, of which all are asked for",
    "sorted": "a queue of which `destinations` looks at the number to sort by, and shows the highest 100",
    **({"metrics": "a queue of which /metrics tells; 100 have labels"} if find_spec("prometheus_client") else {}),
}
#: Queues.
MESSAGES = 1000
_FIELDS = {"destinations": {"limit": MESSAGES}, "sorted": {"limit": 100, "sort": "ready"}}


class Row:
    """One row, a key of `ROWS`: a broker, and a session that asks always in the same way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._now = 0.0

    def __enter__(self) -> Row:
        from stompcodec.broker.config import Config
        from stompcodec.broker.core import Broker
        from stompcodec.broker.management.management import Management, OverStomp

        config = Config(ws_port=0, web_metrics=self.name == "metrics")
        self.broker = Broker(config, None, wall=lambda: 1e9, epoch="e", call_soon=None)
        self.broker.seq = 1_000_000
        self.broker.open(0.0)
        management = Management(self.broker)
        OverStomp(management)
        if config.web_metrics:
            from stompcodec.broker.web.metrics import Metrics

            self._metrics = Metrics(management)
        self._session: Any = self.broker.attach(0.0, peer="127.0.0.1:1")
        self._written(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        self._written(b"SUBSCRIBE\nid:1\ndestination:/temp-queue/answers\n\n\0")
        for number in range(MESSAGES - 1):  # the answers have a queue, too
            frame = b"SEND\ndestination:/queue/kept.%05d\npersistent:false\n\n%b\0" % (number, b"x" * 100)
            self._written(frame * (number % 10 + 1))
        self.run(*self.prepare())
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prepare(self) -> tuple[bytes]:
        """Let a second pass, and return the request."""
        self._now += 1.0
        self.broker.now = self._now
        body = json.dumps(_FIELDS.get(self.name, {})).encode()
        return (b"SEND\ndestination:/management/destinations\nreply-to:/temp-queue/answers\n\n%b\0" % body,)

    def run(self, request: bytes) -> bytes:
        """Answer the request, or tell the metrics (counted)."""
        if self.name != "metrics":
            return self._written(request)
        steps = self._metrics.text()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value[0]

    def check(self) -> None:
        """Do what `run` does, and see that the answer is about the queues."""
        answer = self.run(*self.prepare())
        if self.name == "metrics":
            assert answer.count(b'destination_ready_messages{destination="/queue/kept') == 100
            return
        (frame,) = Parser("1.2").feed(answer)
        found = json.loads(frame.body)["rows"]
        assert len(found) == _FIELDS[self.name]["limit"]
        assert max(row["ready"] for row in found) == 10
        assert all(row["received_rate"] is not None for row in found)

    def _written(self, data: bytes) -> bytes:
        self._session.receive(data, self._now)
        written: list[bytes] = []
        while True:
            for dirty in self.broker.turn(self._now):
                written += dirty.take_output()
            if not self.broker.quota.waiting:
                return b"".join(written)
