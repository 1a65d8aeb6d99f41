"""Invariant: both backends hand out the same frames, heart-beats and pieces, then the same error at the same offset,
and say the same of what is buffered, however they are fed. The octet-at-a-time model agrees with them. Frames can be
read in every way. Nothing but FrameError is raised, with a kind of the closed list and an offset inside the stream; a
parser is dead then, and says the same again. No secret stands in a message."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from typing import Any

from case import VERSIONS, Case, case_of, drive, feed, pieces, rolls
from codec.lockstep import Answer, add, answer_of, error_of
from model.reference import Reference

from stompcodec import FrameError, _codec_c, _codec_py
from stompcodec.errors import ERROR_KINDS, ContentError

MODELLED = 300  # octets: the model takes its time


def check(data: bytes) -> None:
    case = case_of(data)
    c, python = run(_codec_c, case), run(_codec_py, case)
    assert c == python, f"the backends differ on {case}\n     C: {c}\nPython: {python}"
    if len(case.wire) <= MODELLED and not case.switches:
        wanted = {name: case.options[name] for name in ("limits", "lenient", "commands")}
        events = Reference(case.options["version"], **wanted).read(case.wire, eof=True)
        # Parsers do not tell the offsets of frames and heart-beats.
        kept = [event[: {"heartbeat": 1}.get(event[0], 4)] for event in events]
        model = [answer for answer in kept if case.options["heartbeats"] or answer[0] != "heartbeat"]
        assert whole(c[0]) == model, f"the model differs on {case}\n    C: {whole(c[0])}\nmodel: {model}"


def run(codec: Any, case: Case) -> tuple[list[Answer], list[int]]:
    """Feed a case to a backend as its plan says. Return its answers, and what waited after each feed and at the end."""
    answers: list[Answer] = []
    buffered: list[int] = []
    fed, parser, roll = 0, codec.Parser(**case.options), rolls(case.plan)

    def take(iterator: Any) -> None:
        for item in iterator:
            answer = answer_of(item)
            add(answers, answer)
            if answer[0] == "frame":
                check_frame(item, answer[2])
            if case.switches and (answer[0] == "end" or (answer[-1] is not None and answer[0] == "frame")):
                parser.version = VERSIONS[len(answers) * 3 % 5]

    try:
        for piece in pieces(case.wire, case.plan):
            fed += len(piece)
            iterator = feed(parser, piece, next(roll) if case.plan else 0, lambda: take(parser))
            if case.plan and next(roll) < 40:
                continue  # what is not iterated over stays for later
            take(iterator)
            assert parser.buffered <= fed
            buffered.append(parser.buffered)
        take(parser)
        parser.close()
    except FrameError as error:
        answers.append(error_of(error))
        check_error(parser, error, case, fed)
    return answers, [*buffered, parser.buffered]


def whole(answers: list[Answer]) -> list[Answer]:
    """Return answers in the model's form: bodies that came in pieces are put together, unfinished ones go."""
    found: list[Answer] = []
    body = b""
    for answer in answers:
        if answer[0] == "frame" and answer[3] is None:
            head, body = answer[:3], b""
        elif answer[0] == "piece":
            body = answer[1]
        else:
            found.append((*head, body) if answer[0] == "end" else answer)
    return found


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
        try:
            again()
        except FrameError as same:
            found = same.kind, same.offset, same.limit
            assert found == (error.kind, error.offset, error.limit)
        else:
            raise AssertionError("a dead parser came to life")
    assert parser.buffered == 0


if __name__ == "__main__":
    drive(check)
