"""One connection through the proxy: two ends, and a pump for each direction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stompcodec.cli.proxying.carrier import Answer, Carrier, Chunk, Cut, Pause, Step
from stompcodec.cli.proxying.faults import Faults
from stompcodec.cli.proxying.leg import Leg
from stompcodec.cli.proxying.observer import DIRECTIONS, KEEP, Direction, Exchange
from stompcodec.cli.proxying.watcher import Watcher
from stompcodec.testing.faults import Direction as ByteFaults
from stompcodec.testing.faults import Flow

#: Bytes of a body that are kept if frames are recorded, or have faults.
KEEP_WHOLE = 16 * 2**20
#: Seconds for the rest of a connection of which one end is lost, or has closed its WebSocket.
_REST = 5.0
#: Seconds for a peer to read what was written before the end.
_LINGER = 2.0
#: Seconds between two looks at a direction that is held.
_NAP = 0.01


class Link:
    """A connection through the proxy.

    Args:
        number: counted from 1.
        front, back: the ends at the client and at the broker, with their handshakes done.
        faults: None for none.
        watcher: gets what passes.
        keep: bytes of a body that are kept.
    """

    def __init__(
        self, number: int, front: Leg, back: Leg, *, faults: Faults | None, watcher: Watcher, keep: int = KEEP
    ) -> None:
        self.number = number
        self._legs: dict[Direction, Leg] = {"client": front, "broker": back}
        self._faults = faults
        self._watcher = watcher
        self._exchange = Exchange(keep)
        self._over = asyncio.Event()
        self._reset: bool | None = None  # how it ends, if not by its peers
        self._trouble = ""

    async def run(self) -> str:
        """Carry bytes in both directions until both have ended. Return what went wrong, or ""."""
        pumps = [asyncio.ensure_future(self._pump(direction)) for direction in DIRECTIONS]
        over = asyncio.ensure_future(self._over.wait())
        try:
            while not over.done() and not all(pump.done() for pump in pumps):
                limit = _REST if self._is_ending(pumps) else None
                waiting = [over, *(pump for pump in pumps if not pump.done())]
                done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
        finally:
            for task in (*pumps, over):
                task.cancel()
            results = await asyncio.gather(*pumps, over, return_exceptions=True)
            self._count()
            await self._close()
        for result in results[:2]:
            if isinstance(result, Exception):  # of the proxy itself
                raise result
        return self._trouble

    def _is_ending(self, pumps: Sequence[asyncio.Future[None]]) -> bool:
        """Return whether the rest may not take long: an end was lost, or has closed its WebSocket."""
        return any(pump.done() for pump in pumps) and (
            bool(self._trouble) or any(leg.ended for leg in self._legs.values())
        )

    def cut(self, reset: bool) -> None:
        """End the connection, by a reset or orderly after what was written."""
        self._reset = reset
        self._over.set()

    def _count(self) -> None:
        for direction, side in self._exchange.sides.items():
            self._watcher.tally.foreign[direction] += side.foreign

    async def _close(self) -> None:
        if self._reset:
            for leg in self._legs.values():
                leg.abort()
            return
        await asyncio.gather(*(leg.close(_LINGER) for leg in self._legs.values()))

    # ---- one direction ----

    async def _pump(self, direction: Direction) -> None:
        source = self._legs[direction]
        target = self._legs["broker" if direction == "client" else "client"]
        carrier = Carrier(
            self._exchange,
            direction,
            faults=self._faults,
            framed=source.messages is None and target.messages is not None,
            tell=lambda side, event, faults: self._watcher.tell(self.number, side, event, faults),
        )
        flow = Flow(self.number, "up" if direction == "client" else "down", self._faults.seed if self._faults else 0)
        octets = self._watcher.tally.octets
        while True:
            try:
                chunks = await source.read()
            except OSError as error:
                self._lose(direction, error)
                self.cut(reset=True)
                return
            for chunk in chunks:
                octets[direction] += len(chunk.data)
                if not await self._do(carrier.take(chunk), source, target, flow, direction):
                    return
            if not chunks:
                break
            await asyncio.sleep(0)  # what is buffered would keep other connections waiting
        if await self._do(carrier.end(), source, target, flow, direction):
            target.end(*(source.messages.close_code if source.messages is not None else ()))

    def _lose(self, direction: Direction, error: OSError) -> None:
        who = "the client" if direction == "client" else "the broker"
        self._trouble = self._trouble or f"{who} was lost: {error.strerror or error}"

    async def _do(self, steps: list[Step], source: Leg, target: Leg, flow: Flow, direction: Direction) -> bool:
        """Do the steps in order. Return False if this direction has ended."""
        other: Direction = "broker" if direction == "client" else "client"
        for step in steps:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            if isinstance(step, Cut):
                self.cut(reset=False)
                return False
            try:
                if isinstance(step, Answer):
                    source.put(Chunk(step.data))
                    continue
                rules = None if self._faults is None else self._faults.bytes_of(direction)
                if rules is not None:
                    await self._disturb(step, target, rules, flow)
                else:
                    await target.write(step)
            except OSError as error:  # what the lost end has sent before is still carried
                self._lose(other, error)
                return False
            if self._over.is_set():
                return False
        return True

    async def _disturb(self, chunk: Chunk, target: Leg, rules: ByteFaults, flow: Flow) -> None:
        """Write a chunk with the faults of bytes."""
        assert self._faults is not None
        data = chunk.data
        while data and not self._over.is_set():
            if rules.hold:
                await asyncio.sleep(_NAP)
                continue
            size = flow.size(rules, len(data))
            piece, data = data[:size], data[size:]
            if size and rules.delay:
                await asyncio.sleep(rules.delay)
            if size and not rules.swallow:
                await target.write(Chunk(piece, chunk.kind, chunk.end and not data))
            if flow.left is not None and flow.left <= 0:
                self._watcher.say(self.number, "cut", f"cut after the bytes that {_text(rules)} allows")
                self.cut(reset=self._faults.rules.reset)


def _text(rules: ByteFaults) -> str:
    after = rules.cut_after
    return f"cut_after={after[0]}..{after[1]}" if isinstance(after, tuple) else f"cut_after={after}"
