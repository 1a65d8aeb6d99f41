"""Invariant: whatever comes, a parser hands out frames that can be read in every way, or raises FrameError with a kind
of the closed list and an offset inside the stream; it is dead then, and says the same again. Nothing else is raised,
and no secret stands in a message."""

from __future__ import annotations

import copy
import pickle
from contextlib import suppress
from typing import Any

from case import Case, case_of, feed, pieces, rolls
from engine import drive

from stompcodec import FrameError, _codec_c, _codec_py
from stompcodec.errors import ERROR_KINDS, ContentError


def check(data: bytes) -> None:
    case = case_of(data)
    for codec in (_codec_c, _codec_py):
        parser = codec.Parser(**case.options)
        roll = rolls(case.plan)
        fed = 0
        try:
            for piece in pieces(case.wire, case.plan):
                fed += len(piece)
                for event in feed(parser, piece, next(roll) if case.plan else 0):
                    if type(event) is codec.Frame:
                        check_frame(codec, event)
                assert parser.buffered <= fed
            parser.close()
        except FrameError as error:
            check_error(parser, error, case, fed)


def check_frame(codec: Any, frame: Any) -> None:
    pairs = frame.headers.pairs()
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
    again = codec.Frame(frame.command, pairs, frame.body)
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


if __name__ == "__main__":
    drive(check)
