"""A subscription into a capture: octets to the disk first, then the ACK.

Whatever ends the process, and at whatever moment: what was acknowledged is in the capture. What was not comes again
from the broker, so a message may be there twice, with the same message-id.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stompcodec.capture import CHAIN, CaptureWriter, octets_of
from stompcodec.client import Client, Message, Subscription
from stompcodec.errors import FrameError, StaleAckError, StompError, StoreError

__all__ = ["Recorder"]

#: Messages that are taken at once, and octets that are written between two syncs.
_MOST = 1000
_GROUP = 4 * 2**20
#: Seconds between two looks at whether to stop, where nothing comes.
_LOOK = 0.2
#: Seconds until what could not be written is tried again.
_RETRY = 1.0


class _Batch(NamedTuple):
    """Messages that were taken together."""

    messages: list[Message]
    time: int


def _parts(messages: list[Message]) -> Iterator[list[Message]]:
    """The messages in parts, so that what waits to be written has an end, also where they are large."""
    part: list[Message] = []
    octets = 0
    for message in messages:
        part.append(message)
        octets += len(message.body)
        if octets >= _GROUP:
            yield part
            part, octets = [], 0
    if part:
        yield part


class Recorder:
    """Writes what subscriptions bring into a capture. All syncs and acks happen in the thread that calls `run`.

    While the disk is full nothing is acknowledged, so the broker keeps what it has, and nothing is lost.

    Args:
        client: whose messages. It is not closed.
        capture: where to. It is not closed.
        most: end after so many messages; None for no end.
        on_turn: called a few times a second, between two syncs.
        on_trouble: called with what went wrong and is tried again.
        hold: while this returns True nothing is written and nothing acknowledged.
        clock: the time, in seconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        capture: CaptureWriter,
        *,
        most: int | None = None,
        on_turn: Callable[[], object] = lambda: None,
        on_trouble: Callable[[Exception], object] = lambda error: None,
        hold: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._capture = capture
        self._most = most
        self._on_turn = on_turn
        self._on_trouble = on_trouble
        self._hold = hold
        self._clock = clock
        self._arrived: queue.Queue[_Batch | Exception | None] = queue.Queue(maxsize=16)
        self._subscriptions: list[Subscription] = []
        self._chains: dict[str, str] = {}
        self._live = 0
        self._enough = False
        self._stop = threading.Event()
        self.messages = 0
        """How many are on the disk."""
        self.octets = 0
        """Of their frames."""
        self.redelivered = 0
        """How many of them the broker had sent before."""

    def subscribe(self, destination: str, *, chain: str = CHAIN, prefetch: int = _MOST, **options: Any) -> None:
        """Record one more destination, each message acknowledged by itself.

        Args:
            chain: of the capture.
            prefetch: how many messages may be on their way and not on the disk.
            options: more of `Client.subscribe`.

        Raises:
            RejectedError, ConnectionLostError, ReceiptTimeoutError: as `Client.subscribe`.
        """
        subscription = self._client.subscribe(destination, ack="client-individual", prefetch=prefetch, **options)
        self._subscriptions.append(subscription)
        self._chains[subscription.id] = chain
        self._live += 1
        threading.Thread(target=self._take, args=(subscription,), name="stompcodec-record", daemon=True).start()

    def stop(self) -> None:
        """Let `run` write what was taken, and return. May be called from anywhere, also from a handler of signals."""
        self._stop.set()

    def run(self) -> None:
        """Record until `stop` is called, `most` have come, or the last subscription ends.

        Raises:
            StompError: a subscription ended with it, or the capture cannot be written any more.
        """
        try:
            while not (self._stop.is_set() or self._enough) and self._live:
                self._on_turn()
                if self._hold():
                    self._stop.wait(_LOOK)
                    continue
                group = self._group(_LOOK)
                if group:
                    self._record(group)
            group = self._group(0.0)  # what was taken before
            if group and not self._hold():
                self._record(group)
        finally:
            for subscription in self._subscriptions:
                with contextlib.suppress(StompError):
                    subscription.unsubscribe(wait=False)
            self._stop.set()

    def _take(self, subscription: Subscription) -> None:
        """Runs in a thread for each subscription."""
        while True:
            try:
                messages = subscription.take(_MOST)
            except StompError as error:
                if not subscription.deaf:  # an ERROR that belongs to nobody
                    self._on_trouble(error)
                    continue
                self._hand_over(error)
                return
            if not messages:
                self._hand_over(None)
                return
            micros = round(self._clock() * 1e6)
            for part in _parts(messages):
                if not self._hand_over(_Batch(part, micros)):
                    return

    def _hand_over(self, item: _Batch | Exception | None) -> bool:
        """False once nobody takes anything any more: then it goes back to the broker."""
        while not self._stop.is_set():
            try:
                self._arrived.put(item, timeout=_LOOK)
                return True
            except queue.Full:
                continue
        return False

    def _group(self, timeout: float) -> list[_Batch]:
        """What has come, up to what one sync is for."""
        group: list[_Batch] = []
        octets, count = 0, self.messages
        while octets < _GROUP and count != self._most:
            try:
                item = self._arrived.get(timeout=timeout) if timeout and not group else self._arrived.get_nowait()
            except queue.Empty:
                break
            if item is None:
                self._live -= 1
                continue
            if isinstance(item, Exception):
                if group:
                    self._record(group)
                raise item
            if self._most is not None:
                item = item._replace(messages=item.messages[: self._most - count])
            group.append(item)
            count += len(item.messages)
            octets += sum(len(message.body) for message in item.messages)
        self._enough = count == self._most
        return group

    def _record(self, group: list[_Batch]) -> None:
        """Write, sync, acknowledge. While it cannot be written, try again, until it is to stop."""
        while True:
            try:
                written, octets = self._write(group)
                break
            except StoreError as error:
                if self._capture.failed:
                    raise
                self._on_trouble(error)
                if self._stop.wait(_RETRY):
                    raise
                self._on_turn()
        self.messages += len(written)
        self.octets += octets
        for message in written:
            self.redelivered += message.redelivered
            with contextlib.suppress(StaleAckError):  # the connection was lost in between: it comes again
                message.ack()

    def _write(self, group: list[_Batch]) -> tuple[list[Message], int]:
        written: list[Message] = []
        octets = 0
        for batch in group:
            parts: dict[str, list[bytes]] = {}
            for message in batch.messages:
                try:
                    data = octets_of(message.frame)
                except FrameError as error:  # no frame that came over the wire is like this
                    self._on_trouble(error)
                    continue
                parts.setdefault(self._chains[message.subscription.id], []).append(data)
                written.append(message)
            for chain, each in parts.items():
                data = b"".join(each)
                self._capture.append(data, batch.time, chain)
                octets += len(data)
        self._capture.sync()
        return written, octets
