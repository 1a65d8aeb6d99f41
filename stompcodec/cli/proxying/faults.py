"""The faults of a proxy: the table of `--fault`, on the faults of the test plugin (`stompcodec.testing`).

A fault of frames is an action, a command and options, as in "lose RECEIPT nth=2"; one of bytes is a direction and its
fields, as in "down piece=3 delay=0.001".
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stompcodec import Frame, FrameError, serialize
from stompcodec.spec import SERVER, dialect_of
from stompcodec.testing.faults import Direction as ByteFaults
from stompcodec.testing.faults import Rules
from stompcodec.testing.frame_faults import Fault, FrameFaults
from stompcodec.values import count, duration, shown_duration, size

#: Longest delay in seconds.
_LONGEST = 3600.0


class Action(NamedTuple):
    """An action on frames, as `FrameFaults` has it."""

    does: str
    """The action of `Fault`."""
    sender: str = ""
    """Whose frames: "client", "broker", or "" for both."""
    times: int | None = 1
    """How many frames by default; None for all."""
    options: tuple[str, ...] = ()


#: The actions on frames.
ACTIONS = {
    "refuse": Action("error", "client", None, ("message",)),
    "error": Action("error", "client", options=("message",)),
    "lose": Action("lose"),
    "drop": Action("lose"),
    "cut": Action("cut", options=("octets", "after")),
    "duplicate": Action("duplicate"),
    "delay": Action("delay", options=("seconds",)),
    "corrupt": Action("change"),
    "crlf": Action("crlf", "broker", None),
    "repeat_headers": Action("change", "broker", None),
}
#: Those of bytes, by direction, with their fields.
_SIDES = {"up": "client", "down": "broker"}
_FIELDS = ("cut_after", "delay", "piece", "swallow", "hold")
#: Words that stand alone.
_ALONE = ("silent", "unreachable", "fin")
_COMMANDS = dialect_of("1.2").commands


@dataclass
class Faults:
    """The faults of a proxy, for all its connections."""

    frames: FrameFaults = field(default_factory=FrameFaults)
    rules: Rules = field(default_factory=Rules)
    seed: int = 0
    any_frames: bool = False
    """True if there are faults of frames, so that frames pass one by one."""

    def bytes_of(self, sender: str) -> ByteFaults | None:
        """Return the faults of the bytes that a side sends, if there are any."""
        rules = self.rules.up if sender == "client" else self.rules.down
        return None if rules == ByteFaults() else rules


def faults_of(texts: tuple[str, ...], seed: int) -> Faults:
    """Return the faults that these texts name.

    Raises:
        ValueError: a text is not a fault.

    >>> faults = faults_of(("lose RECEIPT nth=2", "delay MESSAGE 0.5", "down piece=3"), 0)
    >>> faults.any_frames, faults.rules.down.piece
    (True, 3)
    """
    faults = Faults(seed=seed)
    for text in texts:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from None
        try:
            _add(faults, text, words)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from None
    return faults


def _add(faults: Faults, text: str, words: list[str]) -> None:
    name = words[0] if words else ""
    if name in _SIDES:
        _add_bytes(getattr(faults.rules, name), words[1:])
    elif name in _ALONE and len(words) == 1:
        if name == "silent":
            faults.frames.silent = faults.any_frames = True
        else:
            faults.rules.refuse = faults.rules.refuse or name == "unreachable"
            faults.rules.reset = faults.rules.reset and name != "fin"
    elif name in ACTIONS:
        faults.frames.add(_frame_fault(text, name, words[1:], faults.seed))
        faults.any_frames = True
    else:
        raise ValueError(f"the first word is one of {', '.join((*ACTIONS, *_SIDES, *_ALONE))}")


def _add_bytes(direction: ByteFaults, words: list[str]) -> None:
    if not words:
        raise ValueError(f"name one of {', '.join(_FIELDS)}")
    for word in words:
        name, _, value = word.partition("=")
        if name not in _FIELDS:
            raise ValueError(f"{word} is not one of {', '.join(_FIELDS)}")
        if name in ("swallow", "hold"):
            if value:
                raise ValueError(f"{name} takes no value")
            setattr(direction, name, True)
        elif name == "delay":
            direction.delay = _seconds(value)
        elif name == "piece":
            direction.piece = _number(name, value, 1, size)
        else:
            low, dots, high = value.partition("..")
            least = _number(name, low, 0, size)
            direction.cut_after = (least, _number(name, high, least, size)) if dots else least


def _frame_fault(text: str, name: str, words: list[str], seed: int) -> Fault:
    action = ACTIONS[name]
    if name == "refuse":
        words = ["CONNECT", *words]
    command = words[0].upper() if words else ""
    if command not in _COMMANDS:
        raise ValueError(f"{name} needs a command, such as {'MESSAGE' if action.sender != 'client' else 'SEND'}")
    if action.sender and (command in SERVER) is not (action.sender == "broker"):
        whose = "clients" if action.sender == "client" else "the broker"
        raise ValueError(f"{name} is for frames of {whose}, and {command} is not one")
    nth, times, headers = 1, action.times, {}
    options: dict[str, Any] = {"text": text}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key == "nth":
            nth = _number(key, value, 1)
        elif key == "times":
            times = None if value == "all" else _number(key, value, 1)
        elif key in action.options or (name == "delay" and not equals):
            options.update(_option(key, equals, value))
        elif equals:
            headers[key] = value
        else:
            raise ValueError(f"{word}: write NAME=VALUE, for an option of {name} or a header of the frame")
    if name == "delay" and "seconds" not in options:
        raise ValueError("delay needs seconds, as in delay MESSAGE 0.5")
    if "after" in options and "octets" in options:
        raise ValueError("octets and after exclude each other")
    options.update(_change(name, seed))
    return Fault(action.does, "CONNECT" if command == "STOMP" else command, nth, times, headers, options)


def _option(key: str, equals: str, value: str) -> dict[str, Any]:
    if key == "message":
        return {key: value}
    if key == "octets":
        return {key: _number(key, value, 0, size)}
    if key == "after":
        if equals:
            raise ValueError("after takes no value")
        return {key: True}
    return {"seconds": _seconds(value if equals else key)}


def _change(name: str, seed: int) -> dict[str, Callable[..., Any]]:
    if name == "corrupt":
        roll = random.Random(seed)
        return {"flip": lambda octets: _flip(octets, roll)}
    return {"frame": _repeat_headers} if name == "repeat_headers" else {}


def _flip(octets: bytes, roll: random.Random) -> bytes:
    """Return a frame with one bit flipped, anywhere in it."""
    at = roll.randrange(len(octets))
    return octets[:at] + bytes([octets[at] ^ (1 << roll.randrange(8))]) + octets[at + 1 :]


def _repeat_headers(frame: Frame) -> Frame:
    pairs = frame.headers.pairs()
    more = [(name, "the second entry") for name, _ in pairs if name != "content-length"]
    return Frame(frame.command, [*pairs, *more], frame.body)


def _number(name: str, value: str, least: int, read: Callable[[str], int] = count) -> int:
    try:
        number = read(value)
    except ValueError as error:
        raise ValueError(f"{name} is {value!r}: {error}") from None
    if number < least:
        raise ValueError(f"{name} is {value!r}: it must be {least} or more")
    return number


def _seconds(value: str) -> float:
    try:
        seconds = duration(value)
    except ValueError as error:
        raise ValueError(f"the delay is {value!r}: {error}") from None
    if seconds > _LONGEST:
        raise ValueError(f"the delay is {value!r}: it must be at most {shown_duration(_LONGEST)}")
    return seconds


def error_frame(message: str, frame: Frame, version: str | None) -> bytes:
    """Return the ERROR that answers a frame.

    >>> error_frame("no", Frame("SEND", {"receipt": "7"}), "1.2").splitlines()[:3]
    [b'ERROR', b'message:no', b'receipt-id:7']
    """
    receipt = frame.get("receipt")
    pairs = [("message", message), *([] if receipt is None else [("receipt-id", receipt)])]
    body = b"A proxy that tests faults has made this.\n"
    made = Frame("ERROR", [*pairs, ("content-type", "text/plain")], body)
    return serialize(made, version, content_length="always", lenient=True) + b"\n"


def changed(fault: Fault, frame: Frame, octets: bytes, version: str | None) -> bytes:
    """Return the bytes of a frame after a fault that changes it; the same bytes if the result cannot be written."""
    if "flip" in fault.options:
        return bytes(fault.options["flip"](octets))
    if fault.action == "crlf":
        head, _, body = octets.partition(b"\n\n")
        return head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body
    try:
        return serialize(fault.options["frame"](frame), version, lenient=True)
    except FrameError:
        return octets
