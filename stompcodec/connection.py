"""One side of one conversation, without input and output: octets in, checked frames out, and the other way.

The owner moves the octets and says what time it is:

    for frame in connection.receive(data, now): ...        # what came
    transport.writelines(connection.take_output())         # what is to be sent
    alive = connection.tick(now)                           # when `next_deadline()` has come

`now` is in seconds of any clock that never goes back. The rules are the tables of `states.py`; what they forbid raises
LocalProtocolError where it was ours, and RemoteProtocolError, with the answer ready, where it was the peer's.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from stompcodec.codec import Frame, Parser, serialize, serialize_parts
from stompcodec.errors import FrameError, LocalProtocolError, RemoteProtocolError, in_short, moved
from stompcodec.handshake import Handshake
from stompcodec.heartbeat import Heartbeat
from stompcodec.order import CONNECTS, NOTHING_STEADY, named, refusal, steady, why_not
from stompcodec.spec import VERSIONS, Limits, checked_commands, checked_limits
from stompcodec.states import Sender, State, missing_headers, next_state

__all__ = ["Connection", "Role"]


class Role(enum.Enum):
    """Which side of the conversation we are."""

    CLIENT = "client"
    SERVER = "server"


#: We, and our peer.
_SENDERS: dict[Role, tuple[Sender, Sender]] = {Role.CLIENT: ("client", "server"), Role.SERVER: ("server", "client")}
#: Seconds of silence that are borne beyond twice the interval. A client that reconnects too soon only makes it worse.
_GRACE = {Role.CLIENT: 1.0, Role.SERVER: 0.0}
_NO_BEATS = Heartbeat(0, 0)
_EOL = b"\n"
_NOTHING: Iterator[Frame] = iter(())
#: The most octets behind a CONNECT that wait for our answer.
_MOST_WAITING = 2**20


class Connection:
    """One side of one conversation.

    Args:
        role: which side we are.
        versions: the versions we speak, a selection of "1.0", "1.1", "1.2".
        limits: sizes that are accepted in a session; None for the defaults of `Limits`.
        first_limits: sizes that are accepted up to CONNECT or CONNECTED; None for `limits`.
        lenient: read as `Parser(lenient=True)` does. A client also takes frames that lack required headers.
        heart_beat: what we offer, in ms: how often we can send, and how often we want to receive; 0 for not at all.
        commands: further commands that either side may use in a session, such as "PING".
        whole_frames: each chunk of `output` has to be a whole frame, as WebSocket wants it.
        now: the time in seconds.

    `state`, `version`, `heartbeat` and `role` are to be read only. The version is None until it is agreed; a server
    knows it when it hands out CONNECT. `output` holds the octets to be sent and stays the same list: an owner that is
    in a session and in a hurry may append whole frames to it itself. A server's frames have an EOL behind their NUL.

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
        *("_base", "_commands", "_deaf", "_fed", "_first", "_grace", "_handshake", "_heard", "_lenient", "_limits"),
        *("_now", "_one", "_own", "_parser", "_peer", "_sent", "_some", "_whole_frames"),
        *("heartbeat", "output", "role", "state", "version"),
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
        whole_frames: bool = False,
        now: float = 0.0,
    ) -> None:
        self.role = Role(role)
        self._own, self._peer = _SENDERS[self.role]
        self._handshake = Handshake(versions, heart_beat)
        self._limits = checked_limits(limits)
        self._first = self._limits if first_limits is None else checked_limits(first_limits)
        self._lenient = bool(lenient)
        self._commands = checked_commands(commands)
        self._whole_frames = bool(whole_frames)
        self._grace = _GRACE[self.role]
        self._now = self._heard = self._sent = now  # the last time seen, and that of the last octets each way
        self._parser = self._parser_of(None, self._first)
        self._fed = 0  # octets that came, until a version is agreed
        self._base = 0  # stream offset of what `_parser` calls 0
        self._deaf = False  # whatever comes is dropped
        self.version: str | None = None
        self.heartbeat = _NO_BEATS
        self.output: list[bytes] = []
        self._enter(State.NEW)

    def __repr__(self) -> str:
        return f"<Connection {self.role.value} {self.state.value}{f' {self.version}' if self.version else ''}>"

    def _parser_of(self, version: str | None, limits: Limits) -> Any:
        return Parser(version, limits=limits, lenient=self._lenient, commands=self._commands)

    def _enter(self, state: State) -> None:
        """Change the state, and with it the tables of the hot road."""
        self.state = state
        self._one, self._some = steady(self._peer, state, self.version, self._commands)
        if state is State.FAILED or state is State.CLOSED:
            self._end()
        elif state is State.DISCONNECTING and self.role is Role.SERVER:  # the client has said its last
            self._deafen()
            self.heartbeat = Heartbeat(self.heartbeat.send_every, 0)

    def _deafen(self) -> None:
        """Drop all that waits to be read, and all that will come."""
        self._deaf = True
        self._one, self._some = NOTHING_STEADY
        self._parser = self._parser_of(None, self._first)

    def _end(self) -> None:
        """It is over for us: no heart-beat follows our ERROR."""
        self._deafen()
        self.heartbeat = _NO_BEATS

    def _is_asked(self) -> bool:
        """A server that has to answer CONNECT."""
        return self.state is State.CONNECTING and self.role is Role.SERVER

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
        if self._deaf:
            return _NOTHING
        if now > self._heard and len(data):  # `excuse` may have put it ahead of the clock
            self._heard = now
        if self.version is None:
            self._fed += memoryview(data).nbytes
        frames = self._parser.feed(data)
        if not self._is_asked():
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
                    name = self._one.get(frame.command)
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
                    if self._deaf:
                        return
                    self._turn(frame, data)
                    yield frame
                    if self._is_asked():
                        return
                    if self._parser is not parser:
                        break
                if self._parser is parser:
                    return
                frames = self._parser
        except FrameError as error:
            if self._deaf:  # the owner has sent ERROR since
                return
            error = moved(error, self._base)
            raise self._refusal(f"malformed frame ({error.kind})", in_short(error), cause=error) from error

    def _turn(self, frame: Frame, data: Any) -> None:
        """A frame that changes the state, has a rule of its own, or must not come here."""
        command = frame.command
        after = next_state(self._peer, self.state, command, self.version)
        if after is None:
            why = why_not(self._peer, self.state, command)
            raise self._refusal(why, "The order of frames does not allow it.", frame)
        if command in CONNECTS:
            self._asked(frame, data)
        elif command == "CONNECTED":
            self._answered(frame, data)
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

    def _asked(self, frame: Frame, data: Any) -> None:
        """A server has CONNECT."""
        try:
            version = self._handshake.asked(frame)
        except FrameError as error:
            speaks = ",".join(self._handshake.versions)
            if error.kind == "no-common-version":
                remedy = f"The server speaks {speaks}: list one of them in accept-version."
                raise self._refusal("no common version", remedy, headers=[("version", speaks)], cause=error) from error
            remedy = "Write two numbers of milliseconds, as in heart-beat:10000,10000"
            raise self._refusal("heart-beat is malformed", remedy, cause=error) from error
        self._go_on_with(version, data)

    def _answered(self, frame: Frame, data: Any) -> None:
        """A client has CONNECTED."""
        try:
            version = self._handshake.answered(frame)
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
        self._parser = self._parser_of(version, self._limits)
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
        version = self.version
        if command in CONNECTS:
            frame = self._handshake.ask(frame)
            version = "1.0" if frame.get("accept-version") is None else "1.2"
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
        whole = self._whole_frames
        chunks = [serialize(frame, self.version, **rules)] if whole else serialize_parts(frame, self.version, **rules)
        if self.role is Role.SERVER:  # a well-known client cannot read without; older servers write it too
            chunks[-1] += _EOL
        self.output += chunks

    def accept(self, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), now: float | None = None) -> Frame:
        """A server answers CONNECT: CONNECTED goes into `output`, and heart-beats begin.

        Args:
            headers: what CONNECTED carries behind version and heart-beat, such as server. In 1.0 it needs session.
            now: the time in seconds; None for the last one seen.

        Returns:
            CONNECTED.

        Raises:
            LocalProtocolError: there is no CONNECT to answer, or session is missing.
            FrameError: CONNECTED, which has no escapes, cannot carry the headers.
        """
        if not self._is_asked() or self.version is None:
            raise LocalProtocolError("there is no CONNECT to answer")
        frame = self._handshake.answer(self.version, headers)
        self.send(frame)
        client_sends, server_sends = self._handshake.beats(self.version, frame)
        self.heartbeat = Heartbeat(server_sends, client_sends)
        self._heard = self._now = self._now if now is None else now
        return frame

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

    # ---- time ----

    def tick(self, now: float) -> bool:
        """Do what is due: an EOL goes into `output` if nothing was sent for half of the interval (S12-HB-10).

        Args:
            now: the time in seconds. Take in what the transport holds before, or our stall looks like the peer's.

        Returns:
            False when the peer is dead: silent for twice its interval, and for a client one second more.

        >>> server = Connection(Role.SERVER, heart_beat=(1000, 1000))
        >>> for _ in server.receive(b"CONNECT\\naccept-version:1.2\\nheart-beat:1000,1000\\n\\n\\0", 0.0):
        ...     _ = server.accept()
        >>> chunks = server.take_output()
        >>> server.next_deadline(), server.tick(0.5), server.take_output(), server.tick(2.0)
        (0.5, True, [b'\\n'], False)
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

    def close(self, now: float) -> None:
        """The stream of the peer has ended, or the transport is gone.

        Raises:
            RemoteProtocolError: it ended inside a frame ("truncated"). There is nobody to answer.
        """
        self._now = now
        parser, cares = self._parser, not self._is_asked()
        self._enter(State.CLOSED)
        try:
            if cares:
                parser.close()
        except FrameError as error:
            error = moved(error, self._base)
            raise RemoteProtocolError("the stream ended inside a frame", cause=error) from error

    def _refusal(self, message: str, remedy: str = "", frame: Frame | None = None, **more: Any) -> RemoteProtocolError:
        """The error to raise, as `refusal` makes it. Nothing more is read."""
        self._end()
        return refusal(self._own, message, remedy, frame, **more)
