"""Fast look-ups, made from the tables of `states.py`, for frames that keep the state; errors for other frames."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from stompcodec.codec import Frame
from stompcodec.errors import ErrorFrame, FrameError, RemoteProtocolError
from stompcodec.spec import CLIENT_1_1, SERVER
from stompcodec.states import REQUIRED_HEADERS, Sender, State, next_state


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

    >>> steady("client", State.CONNECTED, "1.2").one["SEND"]
    'destination'
    >>> steady("client", State.CONNECTED, "1.2").some
    {'SUBSCRIBE': ('destination', 'id')}
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
    """Return why a frame is not allowed, in words that are safe to show.

    >>> why_not("client", State.NEW, "SEND"), why_not("client", State.CONNECTED, "MESSAGE")
    ('SEND cannot come before CONNECT', 'a client must not send MESSAGE')
    """
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
    """Return the result of `missing_headers` in words.

    >>> named(["destination|id", "x"])
    'destination or id, and x'
    """
    return ", and ".join(name.replace("|", " or ") for name in missing)


def described(frame: ErrorFrame) -> str:
    """Return a received frame in words: its command, and the headers that name it, as printable text.

    >>> described(Frame("MESSAGE", [("subscription", "s1"), ("message-id", "\\t7"), ("a", "b")]))
    "MESSAGE with subscription 's1', message-id '\\\\t7'"
    """
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

    >>> refusal("server", "SEND lacks destination", "Add it.", Frame("SEND", {"receipt": "7"})).reply
    <Frame ERROR message='SEND lacks destination' content-type='text/plain' receipt-id='7' body=8 bytes b'Add it.\\n'>
    """
    if ours == "client":
        return RemoteProtocolError(message, cause=cause)
    entries = [*headers, ("message", message), ("content-type", "text/plain")]
    receipt = None if frame is None or frame.command in CONNECTS else frame.get("receipt")
    if receipt is not None:
        entries.append(("receipt-id", receipt))
    return RemoteProtocolError(message, reply=Frame("ERROR", entries, f"{remedy}\n".encode()), cause=cause)
