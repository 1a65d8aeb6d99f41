"""Bridges in a thread beside the test, and what their brokers hold."""

import asyncio
import threading

from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.bridge import Bridge, End, Mapping, Request, Way
from stompcodec.client import Backoff
from stompcodec.testing import StompBroker

__all__ = ["Running", "call_itself", "carry", "end", "fill", "request", "take_all"]
#: Delays of tests: nobody waits for them.
QUICK = Backoff(first=0.005, most=0.05)


def end(url: str, **options) -> End:
    return End(url, **{"backoff": QUICK, "heart_beat": (0, 0), **options})


def request(*maps: str, excluded=("/queue/bridge-dead-letters",), **options) -> Request:
    return Request(Mapping.parse(maps, excluded), **options)


class Running:
    """`with Running(bridge):` has it run in a thread; `result()` waits for its end."""

    def __init__(self, source: End | str, target: End | str, what: Request, **way) -> None:
        self.said = []
        ends = [end(each) if isinstance(each, str) else each for each in (source, target)]
        self.bridge = Bridge(*ends, what, Way(**way), on_trouble=lambda _end, error: self.said.append(str(error)))
        self.tally, self._error = self.bridge.tally, None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            asyncio.run(self.bridge.run())
        except BaseException as error:
            self._error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bridge.stop()
        self._thread.join(patience(60))
        assert not self._thread.is_alive()

    def result(self):
        self._thread.join(patience(60))
        assert not self._thread.is_alive(), self.tally.counts()
        if self._error is not None:
            raise self._error
        return self.tally


def call_itself(broker: StompBroker, server: str) -> None:
    broker.faults.change(
        "CONNECTED", lambda frame: Frame("CONNECTED", {**frame.headers, "server": server}, frame.body), times=None
    )


def carry(source: End | str, target: End | str, *maps: str, drain=True, way=None, **options):
    with Running(source, target, request(*maps, drain=drain, **options), **(way or {})) as running:
        return running.result()


def fill(url: str, queue: str, count: int, first: int = 0, **headers: str) -> None:
    with stomp.connect(url) as client:
        client.send_many([(queue, b"%d" % number, headers) for number in range(first, first + count)])


def take_all(url: str, queue: str) -> list[stomp.Message]:
    taken = []
    with stomp.connect(url) as client:
        while (message := client.receive(queue)) is not None:
            taken.append(message)
    return taken
