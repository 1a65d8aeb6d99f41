"""Invariant: both backends hand out the same frames, heart-beats and pieces, then the same error at the same offset,
and say the same of what is buffered, however they are fed. The octet-at-a-time model agrees with them. Frames can be
read in every way. Nothing but FrameError is raised, with a kind of the closed list and an offset inside the stream; a
parser is dead then, and says the same again. No secret stands in a message."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from typing import Any, NamedTuple

from case import VERSIONS, Case, case_of, feed, pieces, rolls
from engine import drive
from model.reference import Reference

from stompcodec import END_OF_BODY, HEARTBEAT, FrameError, _codec_c, _codec_py
from stompcodec.errors import ERROR_KINDS, ContentError

MODELLED = 300  # octets: the model takes its time


def check(data: bytes) -> None:
    case = case_of(data)
    c = run(_codec_c, case)
    python = run(_codec_py, case)
    assert c == python, f"the backends differ on {case}\n     C: {c}\nPython: {python}"
    if len(case.wire) <= MODELLED and not case.switches:
        model = by_model(case)
        assert whole(c) == model, f"the model differs on {case}\n    C: {whole(c)}\nmodel: {model}"


class Outcome(NamedTuple):
    """All that can be seen of one run, in plain values that compare."""

    events: list[Any]
    """("heartbeat",), ("frame", command, pairs, body), ("streamed", command, pairs), ("piece", octets) or ("end",)."""
    error: tuple[str, int | None, str | None] | None
    """Kind, offset and limit."""
    buffered: list[int]
    """What waited after each feed, and at the end."""


def run(codec: Any, case: Case) -> Outcome:
    """Feed a case to a backend as its plan says. Adjacent pieces of a body are joined: where they are cut is free."""
    events: list[Any] = []
    buffered: list[int] = []
    error, fed = None, 0
    parser = codec.Parser(**case.options)
    roll = rolls(case.plan)
    try:
        for piece in pieces(case.wire, case.plan):
            fed += len(piece)
            iterator = feed(parser, piece, next(roll) if case.plan else 0, lambda: take(parser, parser, case, events))
            if case.plan and next(roll) < 40:
                continue  # what is not iterated over stays for later
            take(parser, iterator, case, events)
            assert parser.buffered <= fed
            buffered.append(parser.buffered)
        take(parser, parser, case, events)
        parser.close()
    except FrameError as reason:
        error = reason.kind, reason.offset, reason.limit
        check_error(parser, reason, case, fed)
    buffered.append(parser.buffered)
    return Outcome(events, error, buffered)


def take(parser: Any, iterator: Any, case: Case, events: list[Any]) -> None:
    """Iterate to the end."""
    if not case.switches:
        for event in iterator:
            note(events, event)
        return
    for event in iterator:
        note(events, event)
        if events[-1][0] in ("frame", "end"):
            parser.version = VERSIONS[len(events) * 3 % 5]


def note(events: list[Any], event: Any) -> None:
    """Add what a parser handed out, in a form that compares."""
    if event is HEARTBEAT:
        events.append(("heartbeat",))
    elif event is END_OF_BODY:
        events.append(("end",))
    elif type(event) is bytes:
        if events[-1][0] == "piece":
            event = events.pop()[1] + event
        events.append(("piece", event))
    else:
        pairs = event.headers.pairs()
        check_frame(event, pairs)
        body = () if event.body is None else (event.body,)
        events.append(("frame" if body else "streamed", event.command, pairs, *body))


def check_frame(frame: Any, pairs: list[tuple[str, str]]) -> None:
    assert type(frame.command) is str
    assert all(type(name) is str and type(value) is str and name for name, value in pairs)
    first = dict(reversed(pairs))
    assert dict(frame.headers) == first
    assert len(frame.headers) == len(first)
    assert all(frame.get(name) == frame.headers[name] == value for name, value in first.items())
    assert all(frame.headers.getall(name)[0] == value for name, value in first.items())
    assert frame.get("\0") is None
    assert repr(frame).startswith("<Frame ")
    assert "passcode='x" not in repr(frame)
    if frame.body is None:
        return
    again = type(frame)(frame.command, pairs, frame.body)
    assert frame == again
    assert hash(frame) == hash(again)
    assert copy.copy(frame) is frame
    if len(pairs) == 2:  # not every time: pickling is slow
        assert pickle.loads(pickle.dumps(frame)) == frame
    with suppress(ContentError, FrameError):
        assert type(frame.text()) is str


def check_error(parser: Any, error: FrameError, case: Case, fed: int) -> None:
    assert error.kind in ERROR_KINDS
    assert error.offset is not None
    assert 0 <= error.offset <= fed
    assert (error.limit is not None) == (error.kind == "limit-exceeded")
    assert "passcode:x" not in str(error)
    if error.kind == "truncated":
        assert error.offset == fed == len(case.wire)
        return
    assert error.offset < fed
    assert parser.buffered == 0
    for again in (lambda: next(parser.feed(b"SEND\n\n\0")), lambda: next(parser), parser.close):
        same = None
        try:
            again()
        except FrameError as reason:
            same = reason
        assert same, "a dead parser came to life"
        assert (same.kind, same.offset, same.limit) == (error.kind, error.offset, error.limit)
    assert parser.buffered == 0


def by_model(case: Case) -> list[Any]:
    """What the model reads; frames and heart-beats without their offsets, which parsers do not tell."""
    wanted = {name: case.options[name] for name in ("version", "limits", "lenient", "commands")}
    events = Reference(wanted.pop("version"), **wanted).read(case.wire, eof=True)
    kept = [event[:1] if event[0] == "heartbeat" else event[:4] for event in events]
    return kept if case.options["heartbeats"] else [event for event in kept if event[0] != "heartbeat"]


def whole(outcome: Outcome) -> list[Any]:
    """An outcome in the model's form: bodies that came in pieces are put together, unfinished ones go."""
    events: list[Any] = []
    body = b""
    for event in outcome.events:
        if event[0] == "streamed":
            head, body = event, b""
        elif event[0] == "piece":
            body = event[1]
        elif event[0] == "end":
            events.append(("frame", *head[1:], body))
        else:
            events.append(event)
    return events if outcome.error is None else [*events, ("error", *outcome.error)]


if __name__ == "__main__":
    drive(check)
