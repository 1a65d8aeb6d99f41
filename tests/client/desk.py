"""A handler of the client without threads and sockets, and a broker that has one queue, on a clock of its own.

The broker keeps what is not settled, and delivers it again first, as a queue does. Pauses take no time: they move the
clock, and call `at_pause`.
"""

from __future__ import annotations

import itertools
import time
from collections import deque

from stompcodec import Frame, serialize
from stompcodec.client import Client, Options
from stompcodec.client.handlers import Handling
from stompcodec.client.sync import messages as module
from stompcodec.client.sync.waiting import Pauses, Receipt
from stompcodec.connection import Connection, Role


class Desk:
    """`run()` handles all messages of `put`, as far as they come.

    With `behind`, as ActiveMQ, what comes back goes behind what came back before; both go before all others.
    """

    def __init__(self, monkeypatch, handler, *, server="stompcodec/1", prefetch=None, behind=False, **options):
        monkeypatch.setattr(Receipt, "wait", lambda receipt: self._wait(receipt))
        monkeypatch.setattr(Pauses, "rest", lambda _pauses, seconds, is_over: is_over() or self._rest(seconds))
        self.clock, self.pauses, self.at_pause = 0.0, [], lambda: None
        self.calls, self.fates, self.windows, self.frames = [], [], [], []
        self._handler, self._server_name, self._behind = handler, server, behind
        self._queue, self._back, self._unacked, self._window = deque(), deque(), {}, 0
        self._numbers = itertools.count(1)
        self._client = Client("stomp://localhost:1", Options(heart_beat=(0, 0)))
        self.link = self._client._link
        self.core = self.link.core
        self.connect()
        handling = Handling(self._call, **options).checked(self.core.link.dialect)
        self.subscription = self.link.subscription("/queue/a", handling.ack, prefetch, handler, id="s1")
        call = self.link.call("SUBSCRIBE", "SUBSCRIBE", None)
        self.core.inbound.subscribe(self.subscription, time.monotonic(), call)
        self.serve()
        self.work = self.subscription._work = module._Work(self.subscription, handling)
        self.subscription.wake = self.subscription._wake

    # ---- the program ----

    def _call(self, message):
        self.calls.append((message.id, message.attempt))
        return self._handler(message)

    def _rest(self, seconds):
        self.clock += seconds
        self.pauses.append(seconds)
        self.at_pause()
        self.serve()

    def _wait(self, receipt):
        self.serve()
        assert receipt.done, receipt
        if receipt._call.error is not None:
            raise receipt._call.error

    def run(self, until=float("inf")):
        self.serve()
        while self.subscription.inbox and self.clock < until and not self.work.stopped:
            message = self.link.engine.take_one(self.subscription)
            self.work._take(message)
            self.serve()
        return self

    def transaction(self):
        return self._client.transaction()

    def left(self):
        return [*sorted(self._unacked), *(number for number, _ in (*self._back, *self._queue))]

    # ---- the broker ----

    def put(self, count):
        self._queue.extend((f"m{next(self._numbers):04}", False) for _ in range(count))
        self._deliver()
        return self

    def connect(self):
        self._server = Connection(Role.SERVER, versions=["1.2"], heart_beat=(0, 0), now=0.0)
        self.core.link.opened(time.monotonic(), host="h", login=None, passcode=None, whole_frames=False)
        (_connect,) = self._server.receive(b"".join(self.core.link.take_output(0.0)), 0.0)
        self._server.accept({"server": self._server_name})
        self.core.inbound.receive(b"".join(self._server.take_output(0.0)), 0.0)

    def lose(self):
        self.serve()
        self._return()
        self.core.link.lost(None, time.monotonic())
        self.connect()
        self.serve()

    def serve(self):
        while chunks := self.core.link.take_output(0.0):
            for frame in self._server.receive(b"".join(chunks), 0.0):
                self.frames.append(frame)
                getattr(self, f"_on_{frame.command.lower()}", lambda frame: None)(frame)
                if frame.get("receipt") is not None:
                    self._write("RECEIPT", {"receipt-id": frame.headers["receipt"]})
                self._deliver()

    def _write(self, command, headers, body=b""):
        self.core.inbound.receive(serialize(Frame(command, headers, body), "1.2"), 0.0)

    def _deliver(self):
        while (self._back or self._queue) and len(self._unacked) < self._window:
            number, again = (self._back or self._queue).popleft()
            self._unacked[number] = again
            fixed = {"subscription": "s1", "destination": "/queue/a", "message-id": number, "ack": number}
            self._write("MESSAGE", {**fixed, "redelivered": "true" if again else "false"}, b"x")

    def _return(self):
        returned = [(number, True) for number in sorted(self._unacked)]
        self._back = deque([*self._back, *returned] if self._behind else [*returned, *self._back])
        self._unacked.clear()
        self._window = 0

    def _on_subscribe(self, frame):
        self._window = int(frame.get("prefetch-count") or frame.get("activemq.prefetchSize") or 1000)
        self.windows.append(self._window)

    def _on_unsubscribe(self, frame):
        self._return()

    def _on_ack(self, frame):
        if frame.get("transaction") is None:
            del self._unacked[frame.headers["id"]]
            self.fates.append((frame.headers["id"], "ACK"))

    def _on_nack(self, frame):
        number = frame.headers["id"]
        del self._unacked[number]
        self.fates.append((number, f"NACK {frame.get('requeue') or ''}".strip()))
