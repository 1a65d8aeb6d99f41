"""One side of a STOMP connection, without I/O: handshake, and checked frames.

The owner moves the bytes and tells the time:

    for frame in connection.receive(data, now): ...        # frames of the peer
    transport.writelines(connection.take_output())         # bytes to send
    alive = connection.tick(now)                           # when `next_deadline()` is reached

`now` is in seconds of any monotonic clock. The rules are the tables of `states.py`. A violation by the owner raises
LocalProtocolError; one by the peer raises RemoteProtocolError, whose `reply` is the frame to answer with.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from stompcodec.arguments import check_values, checked
from stompcodec.codec import Frame, Parser, serialize, serialize_parts
from stompcodec.errors import (
    NEAR,
    ErrorFrame,
    FrameError,
    LocalProtocolError,
    RemoteProtocolError,
    excerpt,
    in_short,
    moved,
)
from stompcodec.spec import CLIENT_1_1, SERVER, VERSIONS, Limits, checked_commands, checked_leniency, checked_limits
from stompcodec.states import (
    REQUIRED_HEADERS,
    Heartbeat,
    Sender,
    State,
    missing_headers,
    negotiate,
    negotiate_client,
    negotiate_heart_beat,
    negotiate_wishlist,
    next_state,
)

# ---- stand-ins for a parser: for servers of the legacy dialect and others, and behind a malformed frame ----
#: A longer first frame, in bytes, is not legacy: a CONNECT of that dialect has two headers.
_MOST = 8192
_CONNECT = b"CONNECT"
#: The longest beginning of a frame, in bytes behind its EOLs, that is kept to see what follows.
_MOST_BEGUN = 512
_HEAD_END = re.compile(rb"\n\r?\n")
#: Headers that a CONNECT of the legacy dialect does not have.
_NOT_LEGACY = {b"accept-version", b"login", b"version"}


def is_legacy(octets: bytes) -> bool | None:
    """Return whether a first frame, by the stream from its first byte on, is of the legacy dialect; None if more bytes
    are needed.

    It is if its command is CONNECT in another case or with spaces after it, or if its headers contain a username but
    neither login nor accept-version. Rules: LEG-CMD-01, LEG-CON-02.
    """
    text = octets.lstrip(b"\r\n")
    line, ended, _rest = text.partition(b"\n")
    word = line.rstrip(b" \r")
    if len(octets) > _MOST or b"\0" in word:
        return False
    if not ended:
        return None if _CONNECT.startswith(word.upper()) else False
    if word.upper() != _CONNECT:
        return False
    if line.removesuffix(b"\r") != _CONNECT:
        return True
    end = _HEAD_END.search(text)
    if end is None:
        return False if b"\0" in text else None
    names = {header.partition(b":")[0].lower() for header in text[: end.start()].split(b"\n")}
    return b"username" in names and names.isdisjoint(_NOT_LEGACY)


class FirstFrame:
    """A stand-in for a parser until its dialect is known. Its members are those of `Parser`. `parser_of` makes the
    parser for "legacy", or for None: versions that are negotiated.
    """

    __slots__ = ("_parser", "_parser_of", "_waiting")

    def __init__(self, parser_of: Callable[[str | None], Any]) -> None:
        self._parser_of = parser_of
        self._parser: Any = None
        self._waiting = b""

    @property
    def version(self) -> str | None:
        """ "legacy", or None."""
        return None if self._parser is None else self._parser.version

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not handed out."""
        return len(self._waiting) if self._parser is None else self._parser.buffered

    def feed(self, data: Any) -> Iterator[Any]:
        """Take in bytes and return an iterator over complete frames."""
        if self._parser is None:
            self._waiting += bytes(data)
            legacy = is_legacy(self._waiting)
            if legacy is None:
                return iter(())
            self._parser = self._parser_of("legacy" if legacy else None)
            data, self._waiting = self._waiting, b""
        frames: Iterator[Any] = self._parser.feed(data)
        return frames

    def close(self) -> None:
        """Mark the end of the stream. Raise FrameError: "truncated"."""
        if self._parser is None:
            self._parser = self._parser_of(None)
            list(self._parser.feed(self._waiting))
        self._parser.close()


class NextFrame:
    """A stand-in for a parser behind a malformed frame: it looks for a NUL, EOLs, and a line with one of these
    commands; `legacy` ones may be in any case, with spaces behind them. `offset` is that of the first byte in the
    stream. `found` is called with the bytes from such a command on, and their offset; it returns an iterator over the
    frames. What follows was not checked: if it is malformed, too, begin again behind it. Of the other bytes only the
    end is kept, so that each is read once.
    """

    __slots__ = ("_begun", "_end", "_found", "_legacy", "_names", "_next")

    def __init__(
        self, commands: Iterable[str], legacy: bool, offset: int, found: Callable[[bytes, int], Iterator[Any]]
    ) -> None:
        self._names = [command.encode() for command in commands]
        names = b"|".join(map(re.escape, self._names))
        eol = rb"[ \r]*\n" if legacy else rb"\r?\n"
        self._next = re.compile(rb"\0(?:\r?\n)*((?:%b)%b)" % (names, eol), re.IGNORECASE if legacy else 0)
        self._legacy = legacy
        self._end = offset
        self._found = found
        self._begun = b""

    @property
    def buffered(self) -> int:
        """Never 0: the next bytes need not begin a frame."""
        return max(len(self._begun), 1)

    def feed(self, data: Any) -> Iterator[Any]:
        """Take in bytes and return an iterator over complete frames."""
        octets = self._begun + bytes(data)
        self._end += len(octets) - len(self._begun)
        found = self._next.search(octets)
        if found is not None:
            return self._found(octets[found.start(1) :], self._end - len(octets) + found.start(1))
        begun = octets[octets.rfind(b"\0") + 1 :].lstrip(b"\r\n")
        self._begun = b"\0" + begun if b"\0" in octets and self._may_begin(begun) else b""
        return iter(())

    def _may_begin(self, octets: bytes) -> bool:
        line = octets.rstrip(b" \r").upper() if self._legacy else octets.removesuffix(b"\r")
        return len(octets) < _MOST_BEGUN and any(name.startswith(line) for name in self._names)

    def close(self) -> None:
        """Mark the end of the stream, which may be in any frame."""


# ---- the handshake: CONNECT and CONNECTED, which agree on the version and the heart-beats ----
#: Versions without heart-beats.
_WITHOUT_BEATS = ("1.0", "legacy")


def protocol_value(frame: Frame, name: str) -> str | None:
    """Return the value of a header of the first frame that belongs to the protocol, without blanks around it; None if
    it is missing. Examples in specifications have such blanks.
    """
    value = frame.get(name)
    return None if value is None else value.strip(" \t")


class Handshake:
    """One side of the negotiation. A client calls `connect_frame`, then `on_connected`; a server calls `on_connect`,
    then `connected_frame`. In 1.0, which has no heart-beats, the header heart-beat has no meaning.

    `versions` are those we speak: some of "1.0", "1.1", "1.2", or "legacy", which is never negotiated. `heart_beat` is
    our offer in ms: how often we can send, and how often we want to receive; 0 for never. Others raise ValueError.

    With `version_header`, a server reads the header version of a CONNECT without accept-version, as the wish-list for
    1.1 proposed (WISH-NEG-01 to WISH-NEG-03). A client reads it if its CONNECT has the header.
    """

    __slots__ = ("_connect_beat", "_heart_beat", "_highest", "_offered", "_version_header", "first", "versions")

    def __init__(self, versions: Sequence[str], heart_beat: tuple[int, int], version_header: bool = False) -> None:
        if not versions or not set(versions) <= {*VERSIONS, "legacy"}:
            raise ValueError(f"versions is {versions!r}: give some of {', '.join(VERSIONS)}, or legacy")
        if min(heart_beat) < 0:
            raise ValueError(f"heart_beat is {heart_beat!r}: give two numbers of milliseconds, 0 or more")
        #: In the order of `VERSIONS`.
        self.versions = tuple(version for version in VERSIONS if version in versions)
        #: The dialect of the first frame: "legacy", or None for the common rules of the other versions.
        self.first = None if self.versions else "legacy"
        self._version_header = version_header
        self._highest: str | None = None  # the version header of CONNECT
        self._heart_beat = f"{heart_beat[0]},{heart_beat[1]}"
        self._offered: Sequence[str] = self.versions
        self._connect_beat: str | None = None  # the heart-beat header of CONNECT

    def connect_frame(self, frame: Frame) -> Frame:
        """Return a client's CONNECT, with accept-version and heart-beat added unless it has them. Raise FrameError
        "no-common-version" if its header version is malformed, or lower than all our versions.
        """
        if self.first is not None:
            return frame
        more: list[tuple[str, str]] = []
        self._highest = frame.get("version")
        versions = _up_to(self._highest, self.versions)
        if frame.get("accept-version") is None and versions != ["1.0"]:
            more.append(("accept-version", ",".join(versions)))
        if frame.get("heart-beat") is None and self._heart_beat != "0,0":
            more.append(("heart-beat", self._heart_beat))
        if more:
            frame = Frame(frame.command, [*more, *frame.headers.pairs()], frame.body)
        offered = frame.get("accept-version", "1.0").split(",")
        self._offered = [version for version in self.versions if version in offered]
        self._connect_beat = frame.get("heart-beat")
        return frame

    def on_connect(self, frame: Frame) -> str:
        """Return the version of the session, on a server that has received CONNECT. Raise FrameError:
        "no-common-version" or "bad-heart-beat".
        """
        accept, highest = protocol_value(frame, "accept-version"), protocol_value(frame, "version")
        if self._version_header and accept is None and highest is not None:
            version = _up_to(highest, self.versions)[-1]
        else:
            version = negotiate(accept, self.versions)
        beat = protocol_value(frame, "heart-beat") if version != "1.0" else None
        negotiate_heart_beat(beat, None)
        self._connect_beat = beat
        return version

    def connected_frame(
        self,
        version: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        heart_beat: tuple[int, int] | None = None,
    ) -> Frame:
        """Return a server's CONNECTED. It always has the header heart-beat, which some clients require."""
        given = headers.items() if isinstance(headers, Mapping) else headers
        if version == "legacy":
            return Frame("CONNECTED", given)
        offer = self._heart_beat if heart_beat is None else f"{heart_beat[0]},{heart_beat[1]}"
        if version == "1.0":
            offer = "0,0"
        return Frame("CONNECTED", [("version", version), ("heart-beat", offer), *given])

    def on_connected(self, frame: Frame) -> str:
        """Return the version of the session, on a client that has received CONNECTED. Raise FrameError
        "no-common-version" if the server chose one that was not offered.
        """
        if self.first is not None:
            return self.first
        version = protocol_value(frame, "version")
        if self._highest is not None:
            version = negotiate_wishlist(self._highest, version)
        return negotiate_client(version, self._offered)

    def beats(self, version: str, connected: Frame) -> tuple[int, int]:
        """Return the negotiated intervals in ms, from client to server and from server to client; 0 for none. Raise
        FrameError: "bad-heart-beat".
        """
        if version in _WITHOUT_BEATS:
            return 0, 0
        return negotiate_heart_beat(self._connect_beat, protocol_value(connected, "heart-beat"))


def _up_to(highest: str | None, versions: Sequence[str]) -> list[str]:
    """Return our versions up to `highest`; all for None. Raise FrameError "no-common-version" if all are higher, or
    `highest` is not a version.
    """
    found = [version for version in versions if highest is None or negotiate_wishlist(version, highest) == version]
    if not found:
        raise FrameError("no-common-version", detail=f"we speak {', '.join(versions)}")
    return found


# ---- fast look-ups, made from the tables of `states.py`, for frames that keep the state; errors for others ----
class Role(enum.Enum):
    """The side of a connection.

    >>> Role("server")
    <Role.SERVER: 'server'>
    """

    CLIENT = "client"
    SERVER = "server"


#: Role -> our side and that of the peer.
SENDERS: dict[Role, tuple[Sender, Sender]] = {Role.CLIENT: ("client", "server"), Role.SERVER: ("server", "client")}
#: Seconds of silence tolerated beyond twice the interval. A client that reconnects too early adds load to a slow
#: server.
GRACE = {Role.CLIENT: 1.0, Role.SERVER: 0.0}
#: The two commands of the first frame.
CONNECTS = ("CONNECT", "STOMP")
#: The headers that name a received frame, for people, and the most characters of each that are shown.
_NAMING = ("subscription", "destination", "message-id", "receipt-id")
_MOST_SHOWN = 200
_IN_SESSION = (State.CONNECTED, State.DISCONNECTING)
_KNOWN = frozenset((*CLIENT_1_1, *SERVER))


class _Steady(NamedTuple):
    """The frames that are allowed in a state and do not change it: nearly all frames of a session.

    Frames in neither table need `next_state` and `missing_headers`.
    """

    one: dict[str, str]
    """Command -> its only required header."""
    some: dict[str, tuple[str, ...]]
    """Command -> its required headers, if there are none or several."""


NOTHING_STEADY = _Steady({}, {})


@lru_cache(64)
def steady(sender: Sender, state: State, version: str | None, commands: frozenset[str] = frozenset()) -> _Steady:
    """Return the frames that `sender` may send in a state without changing it.

    `commands` are further commands of a session, without required headers.
    """
    if state not in _IN_SESSION:
        return NOTHING_STEADY
    one: dict[str, str] = {}
    some: dict[str, tuple[str, ...]] = {}
    required = REQUIRED_HEADERS[version or "1.2", sender]
    for command in (*required, "ERROR"):
        if next_state(sender, state, command, version) is not state:
            continue
        names = required.get(command, ())
        if any("|" in name for name in names):  # one of two: left to `missing_headers`
            continue
        if len(names) == 1:
            one[command] = names[0]
        else:
            some[command] = names
    if state is State.CONNECTED:
        some.update(dict.fromkeys(commands - _KNOWN, ()))
    return _Steady(one, some)


def why_not(sender: Sender, state: State, command: str) -> str:
    """Return why a frame is not allowed, in words that are safe to show."""
    command = ascii(command[:40])[1:-1]
    if command not in _KNOWN:
        return f"unknown command {command}"
    if (command in SERVER) is (sender == "client"):
        return f"a {sender} must not send {command}"
    if state in (State.NEW, State.CONNECTING) and command not in CONNECTS:
        return f"{command} cannot come before {'CONNECT' if state is State.NEW else 'CONNECTED'}"
    if state in (State.CONNECTING, State.CONNECTED):
        return f"{command} cannot come twice"
    ends = {State.DISCONNECTING: "DISCONNECT", State.FAILED: "ERROR"}
    return f"{command} cannot come after {ends.get(state, 'the end of the stream')}"


def named(missing: Iterable[str]) -> str:
    """Return the result of `missing_headers` in words."""
    return ", and ".join(name.replace("|", " or ") for name in missing)


def described(frame: ErrorFrame) -> str:
    """Return a received frame in words: its command, and the headers that name it, as printable text."""
    given = [(name, frame.get(name)) for name in _NAMING]
    words = ", ".join(f"{name} {value[:_MOST_SHOWN]!r}" for name, value in given if value is not None)
    command = repr(frame.command[:_MOST_SHOWN])[1:-1]
    return f"{command} with {words}" if words else command


def refusal(
    ours: Sender,
    message: str,
    remedy: str,
    frame: Frame | None,
    *,
    headers: Iterable[tuple[str, str]] = (),
    cause: FrameError | None = None,
) -> RemoteProtocolError:
    """Return the error for a violation by the peer; if we are a server, with the ERROR frame (S12-ERR-03, S12-ERR-04),
    of which `remedy` is the body. `frame` caused it. `headers` stand before the usual ones of ERROR.
    """
    if ours == "client":
        return RemoteProtocolError(message, cause=cause)
    entries = [*headers, ("message", message), ("content-type", "text/plain")]
    receipt = None if frame is None or frame.command in CONNECTS else frame.get("receipt")
    if receipt is not None:
        entries.append(("receipt-id", receipt))
    return RemoteProtocolError(message, reply=Frame("ERROR", entries, f"{remedy}\n".encode()), cause=cause)


# ---- the connection ----
_NO_BEATS = Heartbeat(0, 0)
_EOL = b"\n"
_NOTHING: Iterator[Frame] = iter(())
#: Bytes after a CONNECT that are kept until it is answered.
_MOST_WAITING = 2**20
#: Bytes that may be read again behind malformed frames: so many, and so many times those that were received. Each such
#: frame costs at most a copy of the bytes that wait.
_REREAD, _REREAD_TIMES = 2**26, 64


def _drop(_piece: Any) -> None:
    """Drop a piece of a body: the default of `Connection.on_piece`."""


class Connection:
    """One side of a STOMP connection.

    Args:
        role: our side.
        versions: the versions we speak: some of "1.0", "1.1", "1.2", or "legacy". A server with "legacy" beside others
            recognises it by the first frame (`FirstFrame`).
        limits: the largest sizes in a session; None for the defaults of `Limits`.
        first_limits: the largest sizes up to CONNECT or CONNECTED; None for `limits`.
        lenient: how to read, as for `Parser`. With True, a client accepts frames without required headers, too.
        heart_beat: our offer in ms: how often we can send, and how often we want to receive; 0 for never.
        commands: further commands that either side may use in a session, such as "PING".
        version_header: whether a server reads the header version of CONNECT, see `Handshake`.
        stream_over: in a session, larger bodies, in bytes, are streamed after their frame; None for none.
        whole_frames: whether each chunk of `output` must be a whole frame, as WebSocket needs it.
        now: the time in seconds.

    Raises:
        TypeError, ValueError: an argument has another type, or is out of range.

    `state`, `version`, `heartbeat` and `role` are read-only. `version` is None until it is negotiated; a server knows
    it when it yields CONNECT. `output` is the list of bytes to send, always the same object: in a session, the owner
    may append whole frames to it. The owner may set `on_piece`, which is called with each piece of a streamed body,
    then with END_OF_BODY. A server writes an EOL after the NUL of each frame.

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
        *("_one", "_own", "_parser", "_peer", "_reread", "_resume", "_sent", "_some", "_stopped", "_stream_over"),
        *("_whole_frames", "heartbeat", "on_piece", "output", "role", "state", "version"),
    )

    @checked
    def __init__(
        self,
        role: Role | str,
        *,
        versions: Sequence[str] = VERSIONS,
        limits: Limits | None = None,
        first_limits: Limits | None = None,
        lenient: bool | str = False,
        heart_beat: tuple[int, int] = (0, 0),
        commands: Iterable[str] = (),
        version_header: bool = False,
        stream_over: int | None = None,
        whole_frames: bool = False,
        now: float = 0.0,
    ) -> None:
        self.role = Role(role)
        self._grace = GRACE[self.role]
        self._now = self._heard = self._sent = now  # the latest time, and when bytes were last received and sent
        self.heartbeat = _NO_BEATS
        self.output: list[bytes] = []
        self._own, self._peer = SENDERS[self.role]
        self._handshake = Handshake(versions, heart_beat, version_header)
        self._limits = checked_limits(limits)
        self._first = self._limits if first_limits is None else checked_limits(first_limits)
        self._lenient = checked_leniency(lenient)
        self._commands = checked_commands(commands)
        self._stream_over = stream_over
        self.on_piece: Callable[[Any], object] = _drop
        self._whole_frames = bool(whole_frames)
        first = self._handshake.first
        self._parser = self._parser_of(first, self._first)
        if "legacy" in versions and first is None:
            if self.role is Role.CLIENT:
                raise ValueError("versions has legacy beside others: a client must choose one")
            self._parser = FirstFrame(lambda version: self._parser_of(version, self._first))
        self._fed = 0  # bytes received, until a version is negotiated
        self._base = 0  # stream offset at which `_parser` began
        self._stopped = False  # received bytes are dropped
        self._resume: tuple[Any, ...] | None = None  # for `go_on`: a method and its arguments
        self._reread = 0  # bytes that were read again by `go_on`
        self.version: str | None = None
        self._enter(State.NEW)

    def __repr__(self) -> str:
        return f"<Connection {self.role.value} {self.state.value}{f' {self.version}' if self.version else ''}>"

    def _parser_of(self, version: str | None, limits: Limits, stream_over: int | None = None) -> Any:
        options: Any = {"lenient": self._lenient, "commands": self._commands, "stream_over": stream_over}
        return Parser(version, limits=limits, **options)

    def _enter(self, state: State) -> None:
        """Change the state, and the look-up tables with it."""
        self.state = state
        self._one, self._some = steady(self._peer, state, self.version, self._commands)
        if state is State.FAILED or state is State.CLOSED:
            self._end()
        elif state is State.DISCONNECTING and self.role is Role.SERVER:  # the client sends no more frames
            self._stop_reading()
            self.heartbeat = Heartbeat(self.heartbeat.send_every, 0)

    def _stop_reading(self) -> None:
        """Drop unread bytes, and those that are received later."""
        self._stopped = True
        self._one, self._some = NOTHING_STEADY
        self._parser = self._parser_of(None, self._first)

    def _end(self) -> None:
        """Stop reading and sending heart-beats: none may follow our ERROR."""
        self._stop_reading()
        self.heartbeat = _NO_BEATS

    def _owes_connected(self) -> bool:
        """Return whether this is a server that has not answered CONNECT."""
        return self.state is State.CONNECTING and self.role is Role.SERVER

    @property
    def buffered(self) -> int:
        """Bytes received and not handed out: frames that were not iterated, and the last, incomplete frame."""
        buffered: int = self._parser.buffered
        return buffered

    # ---- receiving ----
    @checked
    def passed(self, octets: int, now: float) -> None:
        """Note that a client's owner has read so many bytes, whole frames, itself; `now` is the time in seconds.

        >>> Connection(Role.CLIENT).passed(40, now=1.0)
        """
        self._heard, self._now = max(now, self._heard), now
        self._base += octets

    def receive(self, data: Any, now: float) -> Iterator[Frame]:
        """Take in bytes and return an iterator over the checked frames that are complete.

        Iterate to the end; the owner may send meanwhile. A server answers CONNECT (`accept`, or `send` of an ERROR)
        before the next step. If it cannot, it stops reading, and calls `receive(b"", now)` once it has answered.

        Args:
            data: any bytes-like object. It must not change until the iteration ends.
            now: the time in seconds.

        Raises:
            RemoteProtocolError: while iterating, after the good frames. Later bytes are dropped, as they are after our
                ERROR and after DISCONNECT.

        >>> server = Connection(Role.SERVER)
        >>> list(server.receive(b"BEGIN\\ntransaction:t\\n\\n\\0", 0.0))
        Traceback (most recent call last):
            ...
        stompcodec.errors.RemoteProtocolError: BEGIN cannot come before CONNECT
        """
        try:
            if now > self._heard and len(data):
                self._heard = now
        except TypeError:  # if that is because of the data, `feed` says so
            check_values(float, now=now)
        self._now = now
        if self._stopped:
            return _NOTHING
        if self.version is None:
            self._fed += memoryview(data).nbytes
        frames = self._parser.feed(data)
        if not self._owes_connected():
            return self._frames(frames, data)
        if self._parser.buffered > _MOST_WAITING:
            raise self._refusal("too many bytes follow CONNECT", "Wait for CONNECTED before you send so much.")
        return _NOTHING

    def _frames(self, frames: Any, data: Any) -> Iterator[Frame]:
        """Yield checked frames. A frame costs one look-up by its command, and one for each required header.

        The tables are read again for each frame, since the owner may send between two of them.
        """
        try:
            while True:
                parser = self._parser
                for frame in frames:
                    try:
                        name = self._one.get(frame.command)
                    except AttributeError:  # a piece of a body; testing for it would cost time in each frame
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
            raise self._malformed(error) from error

    def _malformed(self, error: FrameError) -> RemoteProtocolError:
        """Stop reading, and return the error to raise. In a session it has the frame."""
        failed = None if self.version is None else getattr(self._parser, "failed", None)
        error = moved(error, self._base)
        frame, octets, at = failed or (None, b"", 0)
        if self.role is Role.SERVER:
            refused = self._refusal(f"malformed frame ({error.kind})", in_short(error), cause=error)
            refused.frame = frame or self._begun(octets, at)
            return refused
        near = error.near
        if frame is not None:  # the fault is in its body, which may repeat a secret of the head
            near = octets[max(at - NEAR, 0) : at + NEAR]
            near = near if excerpt(str(frame.headers.pairs()).encode("utf-8", "replace") + near, 0) else b""
        frame = frame or self._begun(octets, at)
        heartbeat = self.heartbeat
        message = f"malformed frame ({error.kind}) at octet {error.offset}"
        message += (f", over {error.limit}" if error.limit else "") + (f", near {near!r}" if near else "")
        message += f": {described(frame)}" if frame else ""
        refused = self._refusal(f"{message} ({error.remedy})", cause=error)
        refused.frame = frame
        if failed and error.offset is not None:
            self._resume = Connection._seek, octets, error.offset - at, error.offset, heartbeat
        return refused

    def _begun(self, octets: bytes, at: int) -> Frame | None:
        """Return what was read of a frame whose head has its fault at `at`, if that is more than nothing."""
        head = octets[: octets.rfind(b"\n", 0, at) + 1]
        try:
            # Without body, so that the end of the head is the end of the frame.
            begun = [*self._parser_of(self.version, self._limits, 0).feed(head + b"\n\0")]
        except FrameError:
            return None
        return begun[0] if begun else None

    def go_on(self) -> Iterator[Frame] | None:
        """Go on behind a frame that is malformed or not allowed, on a client in a session, after `receive` has raised.

        Behind a malformed one the next frame begins with a line that is a command of servers, behind a NUL and EOLs.
        This is a guess: the body may contain what looks like a frame. If that is malformed, iterating raises again.

        Returns:
            An iterator over the frames that are complete, as of `receive`. None if the last error was another one, or
            if malformed frames would take too much time; then the connection stays as the error left it.

        >>> client = Connection(Role.CLIENT)
        >>> client.send(Frame("CONNECT", {"host": "a"}))
        >>> list(client.receive(b"CONNECTED\\nversion:1.2\\n\\n\\0", 0.0))
        [<Frame CONNECTED version='1.2'>]
        >>> try:
        ...     list(client.receive(b"RECEIPT\\nno colon\\n\\n\\0\\nRECEIPT\\nreceipt-id:7\\n\\n\\0", 0.0))
        ... except RemoteProtocolError:
        ...     list(client.go_on() or ())
        [<Frame RECEIPT receipt-id='7'>]
        """
        resume, self._resume = self._resume, None
        if resume is None or self.state not in (State.CONNECTED, State.DISCONNECTING):
            return None
        method, *given = resume
        frames: Iterator[Frame] | None = method(self, *given)
        return frames

    def _read_on(self, parser: Any, heartbeat: Heartbeat) -> None:
        """Undo `_end`."""
        self._stopped, self._parser, self.heartbeat = False, parser, heartbeat
        self._enter(self.state)

    def _seek(self, octets: bytes, start: int, offset: int, heartbeat: Heartbeat) -> Iterator[Frame] | None:
        """Go on behind the fault at an offset of the stream; the bytes from `start` on are to be read again."""
        self._reread += len(octets)
        if self._reread > _REREAD + _REREAD_TIMES * offset:
            return None
        commands = {*SERVER, *self._commands} - {"CONNECTED"}
        self._read_on(NextFrame(commands, self.version == "legacy", start, self._found), heartbeat)
        return self._frames(self._parser.feed(octets), b"")

    def _behind(self, parser: Any, heartbeat: Heartbeat) -> Iterator[Frame]:
        """Go on behind a frame that was read to its end."""
        self._read_on(parser, heartbeat)
        return self._frames(parser, b"")

    def _found(self, octets: bytes, offset: int) -> Iterator[Frame]:
        """Read on at an offset of the stream, where a frame seems to begin."""
        self._base = offset
        self._parser = self._parser_of(self.version, self._limits, self._stream_over)
        frames: Iterator[Frame] = self._parser.feed(octets)
        return frames

    def _on_state_change(self, frame: Frame, data: Any) -> None:
        """Check a frame that is not in the tables: it changes the state, has its own rule, or is not allowed."""
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
        """Refuse a frame without a required header. CONNECT and CONNECTED are not checked: see docs/states.md."""
        if self._lenient is True and self.role is Role.CLIENT:
            return
        missing = missing_headers(self.version, self._peer, frame.command, frame.headers.pairs())
        if missing:
            lacks = f"{frame.command} lacks {named(missing)}"
            raise self._refusal(lacks, f"It is required in STOMP {self.version}.", frame)

    def _on_connect(self, frame: Frame, data: Any) -> None:
        """Negotiate the version on a server that has received CONNECT."""
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
        """Adopt the version and heart-beats on a client that has received CONNECTED."""
        behind = frame.get("version") is None and b"\nversion:" in b"\n" + frame.body
        if behind and self._handshake.versions not in ((), ("1.0",)):  # lenient reading would take it for 1.0
            raise self._refusal("CONNECTED has its headers behind an empty line: mend the server, or offer 1.0 alone")
        try:
            version = self._handshake.on_connected(frame)
            beats = self._handshake.beats(version, frame)
        except FrameError as error:
            raise self._refusal(f"CONNECTED cannot be used: {error}", cause=error) from error
        self._go_on_with(version, data)
        self.heartbeat = Heartbeat(*beats)
        self._sent = self._now

    def _go_on_with(self, version: str, data: Any) -> None:
        """Read the rest of the stream, and of this chunk, by the rules of a version and the limits of a session.

        The bytes that the parser still holds are the end of this chunk, since CONNECT or CONNECTED is the first frame.
        """
        behind = self._parser.buffered
        octets = memoryview(data).cast("B")
        if behind > len(octets):
            raise LocalProtocolError("iterate over what receive() returned before you call it again")
        self.version = version
        self._base = self._fed - behind
        self._parser = self._parser_of(version, self._limits, self._stream_over)
        self._parser.feed(bytes(octets[len(octets) - behind :]))

    def offer_frames(self, hook: object) -> bool:
        """Offer complete frames to a hook in C (`src/stomp.h`) before they are made and checked. Return False if
        the backend makes all frames.
        """
        offer = getattr(self._parser, "_offer", None)
        if offer is None:
            return False
        offer(hook)
        return True

    def skip(self, octets: int, now: float) -> None:
        """Note that the owner has handled received bytes itself.

        Args:
            octets: their number. They were whole frames that change no state, and nothing was `buffered`.
            now: the time in seconds.
        """
        try:
            heard, base = max(now, self._heard), self._base + octets
        except TypeError:
            check_values(float, now=now, octets=octets)
            raise
        self._now, self._heard, self._base = now, heard, base

    # ---- sending ----
    def send(self, frame: Frame) -> None:
        """Check a frame and append it to `output`.

        CONNECT gets the headers accept-version and heart-beat unless it has them. ERROR is written without
        content-length: stomp.py drops an ERROR with both content-length and content-type.

        Raises:
            LocalProtocolError: the frame is not allowed in this state, or lacks a required header.
            FrameError: the version cannot represent it.

        >>> Connection(Role.CLIENT).send(Frame("SEND", {"destination": "/queue/a"}))
        Traceback (most recent call last):
            ...
        stompcodec.errors.LocalProtocolError: SEND cannot come before CONNECT
        """
        try:
            command = frame.command
        except AttributeError:
            raise TypeError(f"frame is {type(frame).__name__}: it must be a Frame") from None
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
        """Append a frame to the output. A large body is its own, uncopied chunk, unless chunks must be whole frames."""
        more = self._commands if frame.command in self._commands else ()  # to check them takes time in each frame
        rules: Any = {"content_length": length, "lenient": self._lenient is True, "commands": more}
        version = self.version or self._handshake.first
        chunks = (
            [serialize(frame, version, **rules)] if self._whole_frames else serialize_parts(frame, version, **rules)
        )
        if self.role is Role.SERVER:  # some clients need it; older servers write it too
            chunks[-1] += _EOL
        self.output += chunks

    def take_output(self, now: float | None = None) -> list[bytes]:
        """Empty `output` and return its chunks.

        Args:
            now: the time in seconds, for heart-beats; None for the latest one.
        """
        taken = self.output[:]
        if now is not None:
            self._now = now
        if taken:
            self.output.clear()
            self._sent = self._now
        return taken

    def written(self, now: float) -> None:
        """Note that the owner has written, and emptied, `output` itself.

        Args:
            now: the time in seconds, for heart-beats.
        """
        self._sent = self._now = now

    @checked
    def accept(
        self,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        now: float | None = None,
        *,
        heart_beat: tuple[int, int] | None = None,
        silence: int | None = None,
    ) -> Frame:
        """Answer CONNECT on a server: append CONNECTED to `output`, and start heart-beats.

        Args:
            headers: headers of CONNECTED after version and heart-beat, such as server. In 1.0 session is required.
            now: the time in seconds; None for the latest one.
            heart_beat: our offer to this client in ms, if it differs from that of `Connection`.
            silence: ms of silence after which this client is dead; None for twice the negotiated interval.

        Returns:
            The CONNECTED frame.

        Raises:
            LocalProtocolError: CONNECT was not received or is answered already, or session is missing.
            FrameError: a header cannot be written in CONNECTED, which has no escapes.
        """
        if not self._owes_connected() or self.version is None:
            raise LocalProtocolError("no CONNECT to answer")
        frame = self._handshake.connected_frame(self.version, headers, heart_beat)
        self.send(frame)
        client_sends, server_sends = self._handshake.beats(self.version, frame)
        self.heartbeat = Heartbeat(server_sends, client_sends if silence is None else (silence + 1) // 2)
        self._heard = self._now = self._now if now is None else now
        return frame

    @checked
    def close(self, now: float) -> None:
        """Note that the peer's stream has ended, or that the transport is closed.

        Raises:
            RemoteProtocolError: the stream ended inside a frame ("truncated"). It has no `reply`.
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

    @checked
    def tick(self, now: float, beat: Callable[[], bytes] | None = None) -> bool:
        """Append an EOL to `output` if nothing was sent for half of our interval (S12-HB-10), and check the peer.

        Args:
            now: the time in seconds. Receive the bytes that have arrived before this call: otherwise a delay on our
                side looks like silence of the peer.
            beat: in the middle of a body, to which an EOL would belong: returns some bytes of the body, or b"" if it
                has none to send now.

        Returns:
            False if the peer is dead: silent for twice its interval; for a client, one second more.
        """
        self._now = now
        dead, due = self._dead_at(), self._beat_at()
        if due is not None and now >= due and (dead is None or now < dead):
            octets = _EOL if beat is None else beat()
            if octets:
                self.output.append(octets)
            else:
                self._sent = now  # asks again after the next half of the interval
        return dead is None or now < dead

    @checked
    def excuse(self, seconds: float, now: float | None = None) -> None:
        """Do not count some seconds of silence against the peer, because we did not read.

        While reading is paused, call this before each `tick`. The peer is never excused for time to come: at most, it
        counts as heard now.

        Args:
            seconds: how long we did not read, up to now.
            now: the time in seconds; None for the latest one.
        """
        self._heard = max(self._heard, min(self._heard + seconds, self._now if now is None else now))

    def next_deadline(self) -> float | None:
        """Return when to call `tick` next, in seconds; None for never. Any other call may change it."""
        deadlines = [at for at in (self._dead_at(), self._beat_at()) if at is not None]
        return min(deadlines, default=None)

    def _dead_at(self) -> float | None:
        return self.heartbeat.dead_at(self._heard + self._grace)

    def _beat_at(self) -> float | None:
        """Return when an EOL is due. Unsent `output` counts as sent now."""
        return self.heartbeat.next_send_at(self._now if self.output else self._sent)

    def _refusal(self, message: str, remedy: str = "", frame: Frame | None = None, **more: Any) -> RemoteProtocolError:
        """Stop reading, and return the error to raise. `frame` caused it."""
        resume = Connection._behind, self._parser, self.heartbeat
        self._end()
        refused = refusal(self._own, message, remedy, frame, **more)
        if frame is not None and self.role is Role.CLIENT and self.version is not None:
            self._resume, refused.frame = resume, frame
        return refused
