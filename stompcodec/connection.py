"""One side of one conversation, without input and output: octets in, checked frames out, and the other way.

The owner moves the octets and says what time it is:

    for frame in connection.receive(data, now): ...        # what came
    transport.writelines(connection.take_output())         # what is to be sent
    alive = connection.tick(now)                           # when `next_deadline()` has come

`now` is in seconds of any clock that never goes back. The rules are the tables of `states.py`; what they forbid raises
LocalProtocolError where it was ours, and RemoteProtocolError, with the answer ready, where it was the peer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from stompcodec.codec import Frame, Parser, serialize, serialize_parts
from stompcodec.detect import FirstFrame
from stompcodec.errors import FrameError, LocalProtocolError, RemoteProtocolError, in_short, moved
from stompcodec.handshake import Handshake
from stompcodec.heartbeat import Heartbeat
from stompcodec.spec import VERSIONS, Limits, checked_commands, checked_limits
from stompcodec.states import State, missing_headers, next_state
from stompcodec.steady import CONNECTS, GRACE, NOTHING_STEADY, SENDERS, Role, named, refusal, steady, why_not

__all__ = ["Connection", "Role"]

_NO_BEATS = Heartbeat(0, 0)
_EOL = b"\n"
_NOTHING: Iterator[Frame] = iter(())
#: Bytes that may wait behind a CONNECT until it is answered.
_MOST_WAITING = 2**20


def _drop(_piece: Any) -> None:
    """Drop a piece of a body: the `on_piece` of a connection whose owner has set none."""


class Connection:
    """One side of one conversation.

    Args:
        role: which side we are.
        versions: the versions we speak, a selection of "1.0", "1.1", "1.2"; or "legacy". A server that has "legacy"
            beside others tells it by the first frame (see `detect.py`).
        limits: sizes that are accepted in a session; None for the defaults of `Limits`.
        first_limits: sizes that are accepted up to CONNECT or CONNECTED; None for `limits`.
        lenient: read as `Parser(lenient=True)` does. A client also takes frames that lack required headers.
        heart_beat: what we offer, in ms: how often we can send, and how often we want to receive; 0 for not at all.
        commands: further commands that either side may use in a session, such as "PING".
        version_header: a server heeds the header version of CONNECT, see `Handshake`.
        stream_over: in a session, frames with larger bodies are handed out ahead of those; None: all come whole.
        whole_frames: each chunk of `output` has to be a whole frame, as WebSocket wants it.
        now: the time in seconds.

    `state`, `version`, `heartbeat` and `role` are to be read only. The version is None until it is agreed; a server
    knows it when it hands out CONNECT. `output` holds the octets to be sent and stays the same list: an owner that is
    in a session and in a hurry may append whole frames to it itself. `on_piece` is the owner's, too: with `stream_over`
    it is called with each piece of a body, then with END_OF_BODY. A server's frames have an EOL behind their NUL.

    Rules: S12-CON-01, S12-CON-05, S12-NEG-03, S12-DIS-02, S12-ERR-02 to S12-ERR-04, and those of 1.0 and 1.1.

    >>> server, client = Connection(Role.SERVER), Connection(Role.CLIENT)
    >>> client.send(Frame("CONNECT", {"host": "a"}))
    >>> for frame in server.receive(b"".join(client.take_output()), now=0.0):
    ...     print(frame, server.version)
    ...     _ = server.accept({"session": "1"})
    <Frame CONNECT accept-version='1.0,1.1,1.2' host='a'> 1.2
    >>> list(client.receive(b"".join(server.take_output()), now=0.0))
    [<Frame CONNECTED version='1.2' heart-beat='0,0' session='1'>]
    >>> client
    <Connection client connected 1.2>
    """

    __slots__ = (
        *("_base", "_commands", "_fed", "_first", "_grace", "_handshake", "_heard", "_lenient", "_limits", "_now"),
        *("_one", "_own", "_parser", "_peer", "_sent", "_some", "_stopped", "_stream_over", "_whole_frames"),
        *("heartbeat", "on_piece", "output", "role", "state", "version"),
    )

    def __init__(
        self,
        role: Role,
        *,
        versions: Sequence[str] = VERSIONS,
        limits: Limits | None = None,
        first_limits: Limits | None = None,
        lenient: bool = False,
        heart_beat: tuple[int, int] = (0, 0),
        commands: Iterable[str] = (),
        version_header: bool = False,
        stream_over: int | None = None,
        whole_frames: bool = False,
        now: float = 0.0,
    ) -> None:
        self.role = Role(role)
        self._grace = GRACE[self.role]
        self._now = self._heard = self._sent = now  # the last time seen, and when bytes last came and went
        self.heartbeat = _NO_BEATS
        self.output: list[bytes] = []
        self._own, self._peer = SENDERS[self.role]
        self._handshake = Handshake(versions, heart_beat, version_header)
        self._limits = checked_limits(limits)
        self._first = self._limits if first_limits is None else checked_limits(first_limits)
        self._lenient = bool(lenient)
        self._commands = checked_commands(commands)
        self._stream_over = stream_over
        self.on_piece: Callable[[Any], object] = _drop
        self._whole_frames = bool(whole_frames)
        first = self._handshake.first
        self._parser = self._parser_of(first, self._first)
        if "legacy" in versions and first is None:
            if self.role is Role.CLIENT:
                raise ValueError("versions has legacy beside others: a client has to know which it speaks")
            self._parser = FirstFrame(lambda version: self._parser_of(version, self._first))
        self._fed = 0  # octets that came, until a version is agreed
        self._base = 0  # stream offset of what `_parser` calls 0
        self._stopped = False  # whatever comes is dropped
        self.version: str | None = None
        self._enter(State.NEW)

    def __repr__(self) -> str:
        return f"<Connection {self.role.value} {self.state.value}{f' {self.version}' if self.version else ''}>"

    def _parser_of(self, version: str | None, limits: Limits, stream_over: int | None = None) -> Any:
        options: Any = {"lenient": self._lenient, "commands": self._commands, "stream_over": stream_over}
        return Parser(version, limits=limits, **options)

    def _enter(self, state: State) -> None:
        """Change the state, and with it the tables of the hot road."""
        self.state = state
        self._one, self._some = steady(self._peer, state, self.version, self._commands)
        if state is State.FAILED or state is State.CLOSED:
            self._end()
        elif state is State.DISCONNECTING and self.role is Role.SERVER:  # the client has said its last
            self._stop_reading()
            self.heartbeat = Heartbeat(self.heartbeat.send_every, 0)

    def _stop_reading(self) -> None:
        """Drop all that waits to be read, and all that will come."""
        self._stopped = True
        self._one, self._some = NOTHING_STEADY
        self._parser = self._parser_of(None, self._first)

    def _end(self) -> None:
        """It is over for us: no heart-beat follows our ERROR."""
        self._stop_reading()
        self.heartbeat = _NO_BEATS

    def _owes_connected(self) -> bool:
        """A server that has to answer CONNECT."""
        return self.state is State.CONNECTING and self.role is Role.SERVER

    @property
    def buffered(self) -> int:
        """Bytes that have come and that no frame was made of yet, or that nobody has iterated over."""
        buffered: int = self._parser.buffered
        return buffered

    # ---- what comes ----

    def receive(self, data: Any, now: float) -> Iterator[Frame]:
        """Take in octets.

        Args:
            data: any bytes-like object. It must not change until the iteration has ended.
            now: the time in seconds.

        Returns:
            An iterator over the frames that are whole now, checked. Iterate to its end. The owner may send in between.
            A server answers CONNECT (`accept`, or `send` of an ERROR) while it holds it. If it cannot, it stops
            reading, and once it has answered it calls `receive(b"", now)` for what came behind.

        Raises:
            RemoteProtocolError: while iterating, behind the good frames. Whatever comes then is dropped, as it is
                behind an ERROR of ours, and behind DISCONNECT.

        >>> server = Connection(Role.SERVER)
        >>> list(server.receive(b"BEGIN\\ntransaction:t\\n\\n\\0", 0.0))
        Traceback (most recent call last):
            ...
        stompcodec.errors.RemoteProtocolError: BEGIN cannot come before CONNECT
        """
        self._now = now
        if self._stopped:
            return _NOTHING
        if now > self._heard and len(data):  # `excuse` may have put it ahead of the clock
            self._heard = now
        if self.version is None:
            self._fed += memoryview(data).nbytes
        frames = self._parser.feed(data)
        if not self._owes_connected():
            return self._frames(frames, data)
        if self._parser.buffered > _MOST_WAITING:
            raise self._refusal("too much came behind CONNECT", "Wait for CONNECTED before you send so much.")
        return _NOTHING

    def _frames(self, frames: Any, data: Any) -> Iterator[Frame]:
        """The hot road. Nothing is built: a frame costs a look-up by its command, and one for each required header.

        The tables are read anew for each frame, for the owner may send while it holds one.
        """
        try:
            while True:
                parser = self._parser
                for frame in frames:
                    try:
                        name = self._one.get(frame.command)
                    except AttributeError:  # part of a body: to test for it would take its time for every frame
                        self.on_piece(frame)
                        continue
                    if name is not None:
                        if frame.get(name) is None:
                            self._check_headers(frame)
                        yield frame
                        continue
                    names = self._some.get(frame.command)
                    if names is not None:
                        for name in names:
                            if frame.get(name) is None:
                                self._check_headers(frame)
                        yield frame
                        continue
                    if self._stopped:
                        return
                    self._on_state_change(frame, data)
                    yield frame
                    if self._owes_connected():
                        return
                    if self._parser is not parser:
                        break
                if self._parser is parser:
                    return
                frames = self._parser
        except FrameError as error:
            if self._stopped:  # the owner has sent ERROR since
                return
            error = moved(error, self._base)
            raise self._refusal(f"malformed frame ({error.kind})", in_short(error), cause=error) from error

    def _on_state_change(self, frame: Frame, data: Any) -> None:
        """A frame that changes the state, has a rule of its own, or must not come here."""
        command = frame.command
        after = next_state(self._peer, self.state, command, self.version)
        if after is None:
            why = why_not(self._peer, self.state, command)
            raise self._refusal(why, "The order of frames does not allow it.", frame)
        if command in CONNECTS:
            self._on_connect(frame, data)
        elif command == "CONNECTED":
            self._on_connected(frame, data)
        else:
            self._check_headers(frame)
        if after is not self.state:
            self._enter(after)

    def _check_headers(self, frame: Frame) -> None:
        """Refuse a frame that lacks a required header. CONNECT and CONNECTED do not come here: see docs/states.md."""
        if self._lenient and self.role is Role.CLIENT:
            return
        missing = missing_headers(self.version, self._peer, frame.command, frame.headers.pairs())
        if missing:
            lacks = f"{frame.command} lacks {named(missing)}"
            raise self._refusal(lacks, f"It is required in STOMP {self.version}.", frame)

    def _on_connect(self, frame: Frame, data: Any) -> None:
        """A server has CONNECT."""
        try:
            version = "legacy" if self._parser.version == "legacy" else self._handshake.on_connect(frame)
        except FrameError as error:
            speaks = ",".join(self._handshake.versions)
            if error.kind == "no-common-version":
                remedy = f"The server speaks {speaks}: list one of them in accept-version."
                raise self._refusal("no common version", remedy, headers=[("version", speaks)], cause=error) from error
            remedy = "Write two numbers of milliseconds, as in heart-beat:10000,10000"
            raise self._refusal("heart-beat is malformed", remedy, cause=error) from error
        self._go_on_with(version, data)

    def _on_connected(self, frame: Frame, data: Any) -> None:
        """A client has CONNECTED."""
        try:
            version = self._handshake.on_connected(frame)
            beats = self._handshake.beats(version, frame)
        except FrameError as error:
            raise self._refusal(f"CONNECTED cannot be used: {error}", cause=error) from error
        self._go_on_with(version, data)
        self.heartbeat = Heartbeat(*beats)
        self._sent = self._now

    def _go_on_with(self, version: str, data: Any) -> None:
        """Read what follows, in this chunk too, by the rules of a version and the limits of a session.

        What the parser has not handed out is the end of this chunk, for no frame came before, and its own ended here.
        """
        behind = self._parser.buffered
        octets = memoryview(data).cast("B")
        if behind > len(octets):
            raise LocalProtocolError("iterate over what receive() returned before you call it again")
        self.version = version
        self._base = self._fed - behind
        self._parser = self._parser_of(version, self._limits, self._stream_over)
        self._parser.feed(bytes(octets[len(octets) - behind :]))

    # ---- what is sent ----

    def send(self, frame: Frame) -> None:
        """Check a frame and put it into `output`.

        CONNECT gets the headers accept-version and heart-beat where it has none, by what was given to `Connection`. In
        ERROR there is no content-length: a well-known client drops an ERROR that has it beside a content-type.

        Raises:
            LocalProtocolError: it must not be sent now, or lacks a required header.
            FrameError: the version cannot carry it.

        >>> Connection(Role.CLIENT).send(Frame("SEND", {"destination": "/queue/a"}))
        Traceback (most recent call last):
            ...
        stompcodec.errors.LocalProtocolError: SEND cannot come before CONNECT
        """
        command = frame.command
        one, some = steady(self._own, self.state, self.version, self._commands)
        name = one.get(command)
        if name is not None and frame.get(name) is not None:
            self._put(frame)
            return
        after = self.state if command in some else next_state(self._own, self.state, command, self.version)
        if after is None:
            raise LocalProtocolError(why_not(self._own, self.state, command))
        version = self.version or self._handshake.first
        if command in CONNECTS:
            frame = self._handshake.connect_frame(frame)
            version = version or ("1.0" if frame.get("accept-version") is None else "1.2")
        missing = missing_headers(version, self._own, command, frame.headers.pairs())
        if missing:
            raise LocalProtocolError(f"{command} lacks {named(missing)}")
        self._put(frame, "never" if command == "ERROR" else "auto")
        if after is not self.state:
            self._enter(after)
        if command == "ERROR":
            self._end()

    def _put(self, frame: Frame, length: Literal["auto", "never"] = "auto") -> None:
        """Into the output. A large body stays a chunk of its own, uncopied, unless chunks have to be whole frames."""
        rules: Any = {"content_length": length, "lenient": self._lenient, "commands": self._commands}
        version = self.version or self._handshake.first
        chunks = (
            [serialize(frame, version, **rules)] if self._whole_frames else serialize_parts(frame, version, **rules)
        )
        if self.role is Role.SERVER:  # a well-known client cannot read without; older servers write it too
            chunks[-1] += _EOL
        self.output += chunks

    def take_output(self, now: float | None = None) -> list[bytes]:
        """Hand over what is in `output`, and empty it.

        Args:
            now: the time in seconds, for heart-beats; None for the last one seen.
        """
        taken = self.output[:]
        if now is not None:
            self._now = now
        if taken:
            self.output.clear()
            self._sent = self._now
        return taken

    def accept(
        self,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        now: float | None = None,
        *,
        heart_beat: tuple[int, int] | None = None,
        silence: int | None = None,
    ) -> Frame:
        """A server answers CONNECT: CONNECTED goes into `output`, and heart-beats begin.

        Args:
            headers: what CONNECTED carries behind version and heart-beat, such as server. In 1.0 it needs session.
            now: the time in seconds; None for the last one seen.
            heart_beat: what to offer to this client, in ms, instead of what was given to `Connection`.
            silence: ms after which this client is dead; None for twice the interval that was agreed.

        Returns:
            CONNECTED.

        Raises:
            LocalProtocolError: there is no CONNECT to answer, or session is missing.
            FrameError: CONNECTED, which has no escapes, cannot carry the headers.
        """
        if not self._owes_connected() or self.version is None:
            raise LocalProtocolError("there is no CONNECT to answer")
        frame = self._handshake.connected_frame(self.version, headers, heart_beat)
        self.send(frame)
        client_sends, server_sends = self._handshake.beats(self.version, frame)
        self.heartbeat = Heartbeat(server_sends, client_sends if silence is None else (silence + 1) // 2)
        self._heard = self._now = self._now if now is None else now
        return frame

    def close(self, now: float) -> None:
        """The stream of the peer has ended, or the transport is gone.

        Raises:
            RemoteProtocolError: it ended inside a frame ("truncated"). There is nobody to answer.
        """
        self._now = now
        parser, cares = self._parser, not self._owes_connected()
        self._enter(State.CLOSED)
        try:
            if cares:
                parser.close()
        except FrameError as error:
            error = moved(error, self._base)
            raise RemoteProtocolError("the stream ended inside a frame", cause=error) from error

    # ---- time ----

    def tick(self, now: float) -> bool:
        """Do what is due: an EOL goes into `output` if nothing was sent for half of the interval (S12-HB-10).

        Args:
            now: the time in seconds. Take in what the transport holds before, or our stall looks like the peer's.

        Returns:
            False when the peer is dead: silent for twice its interval, and for a client one second more.
        """
        self._now = now
        dead, due = self._dead_at(), self._beat_at()
        if due is not None and now >= due and (dead is None or now < dead):
            self.output.append(_EOL)
        return dead is None or now < dead

    def excuse(self, seconds: float) -> None:
        """Do not hold so much silence against the peer: we did not read, being held up or having paused.

        While reading is paused, call it before every `tick`.
        """
        self._heard += max(seconds, 0.0)

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, in seconds; None for never. Ask again after every other call."""
        deadlines = [at for at in (self._dead_at(), self._beat_at()) if at is not None]
        return min(deadlines, default=None)

    def _dead_at(self) -> float | None:
        return self.heartbeat.dead_at(self._heard + self._grace)

    def _beat_at(self) -> float | None:
        """What waits in `output` is as good as an EOL that is sent now."""
        return self.heartbeat.next_send_at(self._now if self.output else self._sent)

    def _refusal(self, message: str, remedy: str = "", frame: Frame | None = None, **more: Any) -> RemoteProtocolError:
        """The error to raise, as `refusal` makes it. Nothing more is read."""
        self._end()
        return refusal(self._own, message, remedy, frame, **more)
