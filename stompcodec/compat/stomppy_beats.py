"""Heart-beats for stomp.py that go on while a listener blocks.

stomp.py calls listeners in the thread that reads its socket. While one blocks, nobody reads: the server's heart-beats
are not seen, and stomp.py ends the connection; on TLS its own are not sent either, and the server ends it. Here the
thread that reads goes on reading, a thread of ours calls the listeners in the same order (`Turns`), and another one
sends the heart-beats and watches those of the server (`Beats`).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from stompcodec.compat.stomppy_read import deliver, log, reading, receive_octets, stomp

__all__ = ["Beats", "Turns", "checked", "offer", "reading_ahead"]

#: Bytes of frames that wait for a listener before the socket is read no further.
_AHEAD = 1 << 20
#: What a waiting frame takes beside its body, in bytes.
_FRAME = 512
#: Seconds between two looks while the socket is not read.
_TICK = 0.05
#: The part of the promised interval after which a heart-beat is sent, so that it arrives in time.
_EARLY = 0.8
#: The intervals without a byte after which the server counts as gone. ActiveMQ leaves up to two between its beats: it
#: looks once in an interval, and skips the beat if it sent a frame since.
_SILENCE = 2.5
#: What stomp.py waits, unless a program chooses.
_THEIR_SILENCE = 1.5
#: The longest interval in seconds; a longer one would overflow the timers of threads.
_LONGEST = 86_400.0 * 30
_NAME = "stompcodec-beats"
_HeartbeatListener: Any = stomp.listener.HeartbeatListener


def checked(heart_beats: Any) -> tuple[int, int] | None:
    """Return what the caller of `install` gave, checked.

    Raises:
        ValueError: it is not None and not two numbers of milliseconds.

    >>> checked([10000, 10000])
    (10000, 10000)
    >>> checked((0.5, 1))
    Traceback (most recent call last):
    ...
    ValueError: heart_beats must be two whole numbers of milliseconds, (to send, to receive), not (0.5, 1)
    """
    if heart_beats is None:
        return None
    try:
        send, receive = heart_beats
    except (TypeError, ValueError):
        send = receive = None
    if not all(type(value) is int and value >= 0 for value in (send, receive)):
        raise ValueError(
            f"heart_beats must be two whole numbers of milliseconds, (to send, to receive), not {heart_beats!r}"
        )
    return send, receive


class Turns:
    """The frames of one connection on their way to its listeners, which a thread of their own calls one by one.

    Args:
        transport: of stomp.py; its `override_threading` holds for this thread, too.
        connected: its socket.
        hand_out: hands one frame and its octets to the listeners.
    """

    def __init__(self, transport: Any, connected: Any, hand_out: Callable[[Any, bytes], None]) -> None:
        self.socket = connected
        self._transport = transport
        self._hand_out = hand_out
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Any, bytes, int]] = deque()
        self._size = 0
        self._thread: int | None = None
        self._started = self._ended = self._busy = False
        #: What a listener raised; it ends the connection, as in stomp.py.
        self.error: BaseException | None = None

    def put(self, frame: Any, octets: bytes) -> None:
        """Add a frame."""
        size = _FRAME + len(frame.body or "") + len(octets)
        with self._changed:
            if self.error is not None:
                return
            self._waiting.append((frame, octets, size))
            self._size += size
            if not self._started:
                self._started = True
                self._transport.create_thread_fc(self._run)
            self._changed.notify_all()

    def has_room(self, seconds: float) -> bool:
        """Wait until more frames may be read, at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._size < _AHEAD, seconds)

    def end(self) -> None:
        """Say that no frames follow."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until the listeners have had every frame.

        Raises:
            Exception: what a listener raised.
        """
        self.end()
        with self._changed:
            if self._thread != threading.get_ident():
                self._changed.wait_for(lambda: not self._busy and not self._waiting)
            error, self.error = self.error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        self._thread = threading.get_ident()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                frame, octets, size = self._waiting.popleft()
                self._busy = True
            try:
                self._hand_out(frame, octets)
            except BaseException as error:  # it belongs to the thread that reads, which ends with it
                self._fail(error)
                return
            finally:
                with self._changed:
                    self._busy = False
                    self._size -= size
                    self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = error
            self._size -= sum(size for _, _, size in self._waiting)
            self._waiting.clear()
        # Wakes the thread that reads. A WebSocket has the socket inside.
        with contextlib.suppress(Exception):
            getattr(self.socket, "sock", self.socket).shutdown(socket.SHUT_RDWR)


class Beats:
    """The heart-beats of one transport: a listener of stomp.py that is called after the connection itself.

    Args:
        transport: of stomp.py.
        offered: milliseconds to send and to receive, as CONNECT says them.
        own: those that the program asked for; (0, 0) for none.
        theirs: the connection, whose own heart-beats are off; None where stomp.py has none.
    """

    def __init__(self, transport: Any, offered: tuple[int, int], own: tuple[int, ...], theirs: Any) -> None:
        self.offered, self.own = offered, own
        #: What was written to the connection's `heartbeats` last.
        self.left: tuple[int, ...] = (0, 0)
        self._transport = transport
        self._theirs = theirs
        scale: float = getattr(theirs, "heart_beat_receive_scale", _THEIR_SILENCE)
        self._scale = _SILENCE if scale == _THEIR_SILENCE else scale
        self._stop = threading.Event()
        self._socket: Any = None
        self._sent = self._received = 0.0

    def received(self) -> None:
        """Octets came, or more would come if there was room for them."""
        self._received = max(self._received, monotonic())  # which is later at first

    def on_send(self, _frame: Any) -> None:
        self._sent = monotonic()

    def on_connected(self, frame: Any) -> None:
        self._stop.set()
        send, receive = negotiated = _agreed(frame.headers.get("heart-beat", "0,0"), self.offered)
        if self._theirs is not None:
            self._theirs.heartbeats = self.left = negotiated  # as stomp.py keeps it
        if negotiated == (0, 0):
            return
        self._stop, self._socket = threading.Event(), self._transport.socket
        self._sent = now = monotonic()
        # The first beat may take that long, whatever a program chose: stomp.py is patient with it, too.
        self._received = now + min(receive / 1000, _LONGEST) * max(_SILENCE - self._scale, 0)
        seconds = [min(value / 1000, _LONGEST) for value in (send * _EARLY, receive * self._scale)]
        self._transport.create_thread_fc(partial(self._run, self._stop, self._socket, *seconds))

    def on_disconnecting(self) -> None:
        self._stop.set()

    def on_disconnected(self) -> None:
        # A listener that was told before this one may have connected again already.
        if self._transport.socket is not self._socket:
            self._stop.set()

    def on_receiver_loop_completed(self, _frame: Any) -> None:
        turns = self._transport.__dict__.get("_stompcodec_turns")
        if turns is not None and turns.socket is not self._transport.socket:
            turns.end()

    def _run(self, stop: threading.Event, connected: Any, send: float, receive: float) -> None:
        transport = self._transport
        while transport.socket is connected:
            due = [last + seconds for last, seconds in ((self._sent, send), (self._received, receive)) if seconds]
            if stop.wait(max(min(due) - monotonic(), 0.0)):
                return
            now = monotonic()
            if receive and now - self._received >= receive:
                self._time_out(connected, now - self._received)
                return
            if send and now - self._sent >= send:
                self._sent = now  # whatever becomes of it
                self._beat()

    def _beat(self) -> None:
        try:
            if self._transport.is_connected():
                self._transport.transmit(stomp.utils.Frame(None, {}, None))
        except Exception as error:  # the thread that reads sees why
            log.debug("unable to send heartbeat, due to: %s", error)

    def _time_out(self, connected: Any, silent: float) -> None:
        transport = self._transport
        if transport.socket is not connected:
            return
        log.warning("heartbeat timeout: the server sent nothing for %.3f s", silent)
        transport.set_connected(False)
        transport.disconnect_socket()
        transport.stop()
        for listener in list(transport.listeners.values()):
            told = getattr(listener, "on_heartbeat_timeout", None)
            if told:
                told()


def _numbers(text: Any) -> tuple[int, int] | None:
    """The two numbers of a heart-beat header; None for anything else."""
    parts = str(text).replace(" ", "").split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _agreed(server: Any, offered: tuple[int, int]) -> tuple[int, int]:
    """Milliseconds to send and to receive, by the header of CONNECTED and our own.

    >>> _agreed("0,15000", (10000, 10000)), _agreed("5000,5000", (0, 10000)), _agreed("soon", (1, 1))
    ((15000, 0), (0, 10000), (0, 0))
    """
    sends, wants = _numbers(server) or (0, 0)
    mine, expected = offered
    return max(mine, wants) if mine and wants else 0, max(expected, sends) if expected and sends else 0


def offer(transport: Any, frame: Any, heart_beats: tuple[int, int]) -> None:
    """Put heart-beats into a CONNECT frame, and a fresh `Beats` into its transport.

    What the program itself offers, by its connection or by a header, stays; only the thread is ours.
    """
    listeners = list(transport.listeners.values())
    theirs = next((found for found in listeners if isinstance(found, _HeartbeatListener)), None)
    before = transport.listeners.get(_NAME)
    own = tuple(theirs.heartbeats) if theirs is not None else (0, 0)
    if isinstance(before, Beats) and own == before.left:
        own = before.own  # of an earlier connection: what the program has asked for, not what was agreed then
    offered = (0, 0)  # all that 1.0 knows
    if {"1.1", "1.2"} & set(str(frame.headers.get("accept-version", "")).split(",")):
        given = _numbers(frame.headers["heart-beat"]) if "heart-beat" in frame.headers else heart_beats
        offered = own if own != (0, 0) else given or (0, 0)
        frame.headers["heart-beat"] = f"{offered[0]},{offered[1]}"
    if theirs is not None:
        theirs.heartbeats = (0, 0)  # so that it starts no thread
    transport.set_listener(_NAME, Beats(transport, offered, own, theirs))


def reading_ahead(quirks: bool) -> Callable[[Any], tuple[()]]:
    """Return what stands in for `BaseTransport.__read_frames` when listeners have a thread of their own."""

    def receive(transport: Any) -> bytes | None:
        data = receive_octets(transport)
        if data is not None:
            _received(transport)
        return data

    def hand_over(transport: Any, frame: Any, octets: bytes) -> None:
        transport._stompcodec_turns.put(frame, octets)

    read = reading(quirks, receive, hand_over)

    def read_frames(self: Any) -> tuple[()]:
        connected = getattr(self, "socket", None)
        turns = self.__dict__.get("_stompcodec_turns")
        if turns is None or turns.socket is not connected:
            if turns is not None:
                turns.end()
            self._stompcodec_turns = turns = Turns(self, connected, partial(deliver, self))
        try:
            if _room(self, turns):
                read(self)
        except stomp.exception.ConnectionClosedException:
            turns.finish()
            raise
        if not self.running:
            turns.finish()
        return ()

    return read_frames


def _received(transport: Any) -> None:
    beats = transport.listeners.get(_NAME)
    if isinstance(beats, Beats):
        beats.received()


def _room(transport: Any, turns: Turns) -> bool:
    """Wait until there is room for more frames. False: there is none, and the thread has to write meanwhile."""
    while transport.running and not turns.has_room(_TICK):
        _received(transport)  # the server waits for us
        # Since 9.0 the thread that reads a TLS socket also writes to it.
        if getattr(transport, "send_queue", None) is not None and not transport.blocking:
            return False
    return True
