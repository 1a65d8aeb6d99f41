r"""stomp.py on our codec, by one line before the first connection:

    from stompcodec import compat
    compat.install("stomp.py")

Or without a patch, by classes with the same arguments:

    from stompcodec.compat.stomppy import Connection12 as Connection

Listeners are called in the same order, with stomp.py's own frames. docs/compat.md lists the differences.

The heart-beats that a program asks for by `heartbeats=` continue while a listener blocks: listeners are called in a
thread of their own. With `heart_beats=(10000, 10000)` that goes for all connections.

stomp.py calls listeners in the thread that reads its socket. While one blocks, the server's heart-beats are missed, and
stomp.py ends the connection; on TLS its own are not sent either, and the server ends it. Here that thread keeps
reading, another one calls the listeners in the same order (`Turns`), and a third one sends heart-beats and watches
those of the server (`Beats`).
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from time import monotonic
from typing import Any, Literal
from weakref import WeakSet

from stompcodec import arguments
from stompcodec.compat.seams import Installed, Seam
from stompcodec.compat.seams import install as _install
from stompcodec.compat.stomppy_codec import (
    PEER,
    convert_frame,
    deliver,
    log,
    parse_frame,
    reading,
    receive_octets,
    stomp,
    strict_convert_frame,
    strict_parse_frame,
    strict_parse_headers,
    transmitting,
)

__all__ = ["PEER", "Connection10", "Connection11", "Connection12", "WSConnection", "install", "seams"]
#: Bytes of waiting frames at which reading stops.
_AHEAD = 1 << 20
#: Memory of a waiting frame beside its body, in bytes.
_FRAME = 512
#: Seconds between two checks while the socket is not read.
_TICK = 0.05
#: The part of the promised interval after which a heart-beat is sent, so that it arrives in time.
_EARLY = 0.8
#: The intervals of silence after which the server is dead. ActiveMQ may leave two between its beats: it checks once per
#: interval, and skips the beat if it has sent a frame since.
_SILENCE = 2.5
#: The default of stomp.py.
_THEIR_SILENCE = 1.5
#: The longest interval in seconds; a longer one would overflow the timers of threads.
_LONGEST = 86_400.0 * 30
#: Seconds in which the thread for listeners begins. A pool of threads may have none left.
_BEGINS = 5.0
_NAME = "stompcodec-beats"
_HeartbeatListener: Any = stomp.listener.HeartbeatListener
#: The argument of `install`: intervals in ms, to send and to receive; None: those that the program asks for; False:
#: stomp.py's own heart-beats.
HeartBeats = tuple[int, int] | Literal[False] | None


def checked(heart_beats: Any) -> HeartBeats:
    """Return the argument `heart_beats` of `install`; raise ValueError unless it is None, False or two numbers."""
    if heart_beats is None or heart_beats is False:
        return heart_beats
    pair = _pair(heart_beats)
    if pair is None:
        raise ValueError(
            "heart_beats must be two whole numbers of milliseconds, (to send, to receive), or None or False, "
            f"not {heart_beats!r}"
        )
    return pair


def _pair(value: Any) -> tuple[int, int] | None:
    """Return two numbers of milliseconds; None for anything else."""
    try:
        send, receive = value
    except (TypeError, ValueError):
        return None
    good = all(type(number) is int and number >= 0 for number in (send, receive))
    return (send, receive) if good else None


class Turns:
    """The queue of a connection's frames for its listeners, and the thread that calls them one by one.

    The `override_threading` of stomp.py's transport applies to this thread too.
    """

    def __init__(self, transport: Any, connected: Any, hand_out: Callable[[Any, bytes], None]) -> None:
        self.socket = connected
        self._transport = transport
        self._hand_out = hand_out
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Any, bytes, int]] = deque()
        self._size = 0
        self._thread: int | None = None
        self._ended = self._busy = self._alone = False
        #: True once a frame was added: all later ones must follow it.
        self.started = False
        #: The error of a listener, which ends the connection, as in stomp.py.
        self.error: BaseException | None = None

    def put(self, frame: Any, octets: bytes) -> None:
        """Add a frame."""
        size = _FRAME + len(frame.body or "") + len(octets)
        with self._changed:
            if self.error is not None:
                return
            if not self.started:
                self._start()
            if not self._alone:
                self._waiting.append((frame, octets, size))
                self._size += size
                self._changed.notify_all()
                return
        self._hand_out(frame, octets)

    def _start(self) -> None:
        self.started = True
        self._transport.create_thread_fc(self._run)
        # Without a thread, listeners are called in the reading thread, as in stomp.py.
        self._alone = not self._changed.wait_for(lambda: self._thread is not None, _BEGINS)
        if self._alone:
            log.warning("override_threading gave no thread for listeners: heart-beats stop while a listener blocks")

    def has_room(self, seconds: float) -> bool:
        """Wait up to `seconds` for room for more frames. Return whether there is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._size < _AHEAD, seconds)

    def end(self) -> None:
        """Note that no more frames follow."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Wait until the listeners have processed all frames, and raise the error of one that failed."""
        self.end()
        with self._changed:
            if self._thread != threading.get_ident():
                self._changed.wait_for(lambda: not self._busy and not self._waiting)
            error, self.error = self.error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        with self._changed:
            if self._alone:
                return
            self._thread = threading.get_ident()
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                # All at once, since the two threads share the lock. Their size counts until the last is processed.
                taken, self._waiting, size = self._waiting, deque(), self._size
                self._busy = True
            try:
                while taken:
                    frame, octets, _ = taken.popleft()
                    self._hand_out(frame, octets)
            except BaseException as error:  # passed to the reading thread, which ends with it
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
        # This wakes the reading thread. A WebSocket has the socket inside.
        with contextlib.suppress(Exception):
            getattr(self.socket, "sock", self.socket).shutdown(socket.SHUT_RDWR)


class Beats:
    """The heart-beats of a transport: a listener of stomp.py that is called after the connection itself.

    Intervals are pairs in ms, to send and to receive: `offered` in CONNECT, `own` as the program asked for, (0, 0) for
    none. The own heart-beats of the connection (`theirs`, or None) are off.
    """

    def __init__(self, transport: Any, offered: tuple[int, int], own: tuple[int, int], theirs: Any) -> None:
        self.offered, self.own = offered, own
        #: The last value assigned to the connection's `heartbeats`.
        self.left: tuple[int, int] = (0, 0)
        self._transport = transport
        self._theirs = theirs
        scale: float = getattr(theirs, "heart_beat_receive_scale", _THEIR_SILENCE)
        self._scale = _SILENCE if scale == _THEIR_SILENCE else scale
        self._stop = threading.Event()
        self._socket: Any = None
        self._answer: Any = None
        self._sent = self._received = 0.0

    def received(self) -> None:
        """Note that bytes were received, or that they are not read for lack of room."""
        self._received = max(self._received, monotonic())  # at first, _received is in the future

    def on_send(self, _frame: Any) -> None:
        self._sent = monotonic()

    def on_connected(self, frame: Any) -> None:
        self._stop.set()
        self._answer = frame
        send, receive = negotiated = _agreed(frame.headers.get("heart-beat", "0,0"), self.offered)
        if self._theirs is not None:
            self._theirs.heartbeats = self.left = negotiated  # as stomp.py keeps it
        if negotiated == (0, 0):
            return
        self._stop, self._socket = threading.Event(), self._transport.socket
        self._sent = now = monotonic()
        # The first beat may take longer, whatever a program chose, as with stomp.py.
        self._received = now + min(receive / 1000, _LONGEST) * max(_SILENCE - self._scale, 0)
        seconds = [min(value / 1000, _LONGEST) for value in (send * _EARLY, receive * self._scale)]
        # Like stomp.py's own, this thread does not come from override_threading, whose pool may have none left.
        stomp.utils.default_create_thread(partial(self._run, self._stop, self._socket, *seconds))

    def on_disconnecting(self) -> None:
        self._stop.set()

    def on_disconnected(self) -> None:
        # An earlier listener may have connected again already.
        if self._transport.socket is not self._socket:
            self._stop.set()

    def on_receiver_loop_completed(self, _frame: Any) -> None:
        turns = self._transport.__dict__.get("_stompcodec_turns")
        if turns is not None and turns.socket is not self._transport.socket:
            turns.end()

    def give_back(self) -> None:
        """Leave the heart-beats to stomp.py again, which goes on with those of an open connection."""
        self._stop.set()
        transport, theirs = self._transport, self._theirs
        if transport.listeners.get(_NAME) is not self:
            return
        transport.remove_listener(_NAME)
        if "_stompcodec_turns" in transport.__dict__:
            transport._stompcodec_turns.end()
        if theirs is None or theirs.heartbeats != self.left:
            return
        theirs.heartbeats = self.own
        if self._answer is None or not transport.is_connected() or max(self.left) > _LONGEST * 1000:
            return
        theirs.heartbeats = self.offered
        _HeartbeatListener.on_connected(theirs, self._answer)
        if not transport.is_connected():  # its end may have been told before the thread began
            _HeartbeatListener.on_disconnected(theirs)

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
                self._sent = now  # even if sending fails
                self._beat()

    def _beat(self) -> None:
        try:
            if self._transport.is_connected():
                self._transport.transmit(stomp.utils.Frame(None, {}, None))
        except Exception as error:  # the reading thread will see the error
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
    """Return the two numbers of a heart-beat header; None if it is malformed."""
    parts = str(text).replace(" ", "").split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _agreed(server: Any, offered: tuple[int, int]) -> tuple[int, int]:
    """Return the intervals in ms, to send and to receive, from the header of CONNECTED and our offer.

    >>> _agreed("0,15000", (10000, 10000)), _agreed("5000,5000", (0, 10000)), _agreed("soon", (1, 1))
    ((15000, 0), (0, 10000), (0, 0))
    """
    sends, wants = _numbers(server) or (0, 0)
    mine, expected = offered
    return max(mine, wants) if mine and wants else 0, max(expected, sends) if expected and sends else 0


def offer(transport: Any, frame: Any, heart_beats: tuple[int, int] | None, taken: WeakSet[Beats]) -> None:
    """Put heart-beats into a CONNECT frame, and a new `Beats` into its transport and into `taken`.

    The program's own offer, by its connection or by a header, is kept; only the thread is ours. If it offers nothing,
    `heart_beats` are offered; with None the connection is left to stomp.py.
    """
    listeners = list(transport.listeners.values())
    theirs = next((found for found in listeners if isinstance(found, _HeartbeatListener)), None)
    before = transport.listeners.get(_NAME)
    own = (0, 0) if theirs is None else _pair(theirs.heartbeats)
    if own is None:
        return  # stomp.py raises its own error
    if isinstance(before, Beats) and own == before.left:
        own = before.own  # the program's offer, not the result of an earlier negotiation
    offered = (0, 0)  # 1.0 has no heart-beats
    if {"1.1", "1.2"} & set(str(frame.headers.get("accept-version", "")).split(",")):
        given = _numbers(frame.headers["heart-beat"]) if "heart-beat" in frame.headers else heart_beats
        offered = own if own != (0, 0) else given or (0, 0)
        if heart_beats is not None or offered != (0, 0):
            frame.headers["heart-beat"] = f"{offered[0]},{offered[1]}"
    if heart_beats is None and offered == (0, 0):
        if isinstance(before, Beats):
            transport.remove_listener(_NAME)
        return
    if theirs is not None:
        theirs.heartbeats = (0, 0)  # so that it does not start its thread
    beats = Beats(transport, offered, own, theirs)
    transport.set_listener(_NAME, beats)
    taken.add(beats)


def reading_ahead(quirks: bool, always: bool) -> Callable[[Any], tuple[()]]:
    """Return a replacement for `BaseTransport.__read_frames` with a thread for listeners.

    Without `always`, connections without heart-beats have no such thread.
    """

    def receive(transport: Any) -> bytes | None:
        data = receive_octets(transport)
        if data is not None:
            _received(transport)
        return data

    def hand_over(transport: Any, frame: Any, octets: bytes) -> None:
        transport._stompcodec_turns.put(frame, octets)

    def choose(transport: Any) -> Callable[[Any, Any, bytes], None] | None:
        # CONNECT, which decides, is sent while the first read waits.
        ahead = always or transport._stompcodec_turns.started or _NAME in transport.listeners
        return hand_over if ahead else None

    read = reading(quirks, receive, choose)

    def read_frames(self: Any) -> tuple[()]:
        connected = getattr(self, "socket", None)
        turns = self.__dict__.get("_stompcodec_turns")
        if turns is None or turns.socket is not connected:
            if turns is not None:
                turns.end()
            self._stompcodec_turns = turns = Turns(self, connected, partial(deliver, self))
        try:
            if not turns.started or _room(self, turns):
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
    """Wait for room for more frames. Return False if there is none and the thread has to write meanwhile."""
    while transport.running and not turns.has_room(_TICK):
        _received(transport)  # the server is not to blame
        # Since 9.0 the reading thread of a TLS socket also writes to it.
        if getattr(transport, "send_queue", None) is not None and not transport.blocking:
            return False
    return True


_BASE: Any = stomp.transport.BaseTransport
#: The reading method, which their I/O thread looks up in each turn. It delivers frames; before 9.0 it returned them.
_READS = "_BaseTransport__read_frames" if hasattr(_BASE, "_BaseTransport__read_frames") else "_BaseTransport__read"


@arguments.checked
def _methods(quirks: bool, heart_beats: HeartBeats = None, taken: WeakSet[Beats] | None = None) -> dict[str, Any]:
    """Return the methods to replace in a transport, by name. `taken` collects the heart-beats that are ours."""
    convert = convert_frame if quirks else strict_convert_frame
    if heart_beats is False:
        return {_READS: reading(quirks), "transmit": transmitting(convert)}
    connecting = partial(offer, heart_beats=heart_beats, taken=WeakSet() if taken is None else taken)
    ahead = reading_ahead(quirks, always=heart_beats is not None)
    return {_READS: ahead, "transmit": transmitting(convert, connecting)}


def _functions(quirks: bool) -> dict[str, Any]:
    """Return the functions to replace in modules, by name."""
    if quirks:
        return {"convert_frame": convert_frame, "parse_frame": parse_frame}
    return {
        "convert_frame": strict_convert_frame,
        "parse_frame": strict_parse_frame,
        "parse_headers": strict_parse_headers,
    }


def seams(quirks: bool = True, heart_beats: HeartBeats = None, taken: WeakSet[Beats] | None = None) -> list[Seam]:
    """Return the names of stomp.py to replace. A function is in several modules, which import it from each other."""
    methods = _methods(quirks, heart_beats, taken)
    found = [Seam("stomp.transport:BaseTransport", name, new) for name, new in methods.items()]
    modules = sorted(name for name in sys.modules if name.startswith("stomp."))
    for name, new in _functions(quirks).items():
        found += [Seam(module, name, new) for module in modules if hasattr(sys.modules[module], name)]
    return found


def install(quirks: bool = True, *, heart_beats: HeartBeats = None) -> Installed:
    """Put our codec into stomp.py: arguments, result and errors are those of `compat.install("stomp.py")`.

    Heart-beats go on while a listener blocks, because listeners are called in another thread, one after the other.

    >>> with install():
    ...     stomp.transport.convert_frame is convert_frame
    True
    """
    beats, taken = checked(heart_beats), WeakSet[Beats]()

    def undone() -> None:
        for each in list(taken):
            each.give_back()

    of = partial(seams, heart_beats=beats, taken=taken)
    return _install(PEER, of, quirks, {"heart_beats": beats}, undone)


@cache
def _transport_class(base: Any, quirks: bool, heart_beats: HeartBeats) -> Any:
    return type(f"Codec{base.__name__}", (base,), {"__doc__": base.__doc__, **_methods(quirks, heart_beats)})


class _OnOurCodec:
    """A mixin for connections of stomp.py, whose transport it puts on our codec."""

    transport: Any

    def __init__(self, *args: Any, quirks: bool = True, heart_beats: HeartBeats = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Their constructors make the transport, with arguments that depend on the version. So its class is changed
        # afterwards, while it has no socket.
        kind: Any = type(self.transport)
        self.transport.__class__ = _transport_class(kind, quirks, checked(heart_beats))


class Connection10(_OnOurCodec, stomp.connect.StompConnection10):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.Connection10` on our codec, with `quirks` and `heart_beats` as for `install`. stomp.py itself is
    unchanged.

    >>> isinstance(Connection10([("127.0.0.1", 61613)]), stomp.Connection10)
    True
    """


class Connection11(_OnOurCodec, stomp.connect.StompConnection11):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.Connection11` (`stomp.Connection`) on our codec, with `quirks` and `heart_beats` as for `install`.

    >>> Connection11([("127.0.0.1", 61613)], heartbeats=(1000, 1000)).heartbeats
    (1000, 1000)
    """


class Connection12(_OnOurCodec, stomp.connect.StompConnection12):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.Connection12` on our codec, with `quirks` and `heart_beats` as for `install`.

    >>> Connection12([("127.0.0.1", 61613)], quirks=False).version
    '1.2'
    """


class WSConnection(_OnOurCodec, stomp.adapter.ws.WSStompConnection):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.WSConnection` on our codec, with `quirks` and `heart_beats` as for `install`.

    >>> WSConnection([("127.0.0.1", 15674)], ws_path="/ws").transport.ws_path
    '/ws'
    """
