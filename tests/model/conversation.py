"""A model of one side of a conversation: the whole stream at once, rule by rule, nothing kept and nothing quick."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from stompcodec.codec import Parser
from stompcodec.errors import FrameError
from stompcodec.spec import VERSIONS
from stompcodec.states import State, missing_headers, negotiate, negotiate_client, next_state, parse_heart_beat


class Heard(NamedTuple):
    frames: list[Any]
    fault: tuple[Any, ...] | None
    """("order",), ("headers",), or kind, offset and limit of what the codec refuses."""
    state: State  # When the fault was noticed, before it was answered.
    version: str | None


def converse(role, wire, *, versions=VERSIONS, limits=None, first_limits=None, lenient=False):
    """What "client" or "server" hears; a client has sent CONNECT before."""
    peer = "server" if role == "client" else "client"
    state = State.CONNECTING if role == "client" else State.NEW
    version, frames = None, []
    at = 0  # where `parser` began
    parser = Parser(None, limits=first_limits or limits, lenient=lenient)
    parser.feed(wire)
    try:
        while True:
            frame = next(parser, None)
            if frame is None:
                return Heard(frames, None, state, version)
            after = next_state(peer, state, frame.command, version)
            if after is None:
                return Heard(frames, ("order",), state, version)
            negotiates = frame.command in ("CONNECT", "STOMP", "CONNECTED")
            if negotiates:
                version, at = agreed(role, frame, versions), len(wire) - parser.buffered
                parser = Parser(version, limits=limits, lenient=lenient)
                parser.feed(wire[at:])
                after = State.CONNECTED
            elif missing_headers(version, peer, frame.command, frame.headers.pairs()) and not (
                lenient and role == "client"
            ):
                return Heard(frames, ("headers",), state, version)
            frames.append(frame)
            state = after
            if state is State.FAILED or (state is State.DISCONNECTING and role == "server"):
                return Heard(frames, None, state, version)
    except FrameError as error:
        offset = None if error.offset is None else error.offset + at
        return Heard(frames, (error.kind, offset, error.limit), state, version)


def agreed(role: str, frame: Any, versions: Sequence[str]) -> str:
    """The version of the session; FrameError where there is none, or where heart-beat is malformed."""
    if role == "server":
        version = negotiate(frame.get("accept-version"), versions)
    else:
        version = negotiate_client(frame.get("version"), versions)
    if version != "1.0" and frame.get("heart-beat") is not None:
        parse_heart_beat(frame.headers["heart-beat"])
    return version
