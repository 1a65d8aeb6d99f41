"""Invariant: bodies and header values of any octets are understood, or refused with the documented errors; never more
than the bound is inflated; and what we encode decodes to what it was."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from engine import drive

from stompcodec import Frame, FrameError
from stompcodec.content import decode_content, encode_content, encoding_of, json_text, json_value
from stompcodec.errors import ContentError
from stompcodec.heartbeat import parse_heart_beat

CODINGS = ("gzip", "x-gzip", "deflate", "base64", "identity", "", "gzip, base64", "deflate,gzip", "base64,base64,gzip")
BOUND = 5000  # octets


def check(data: bytes) -> None:
    how, (head, _, body) = data[:1], data[1:].partition(b"\n")
    coding = CODINGS[how[0] % len(CODINGS)] if how and how[0] < 200 else head.decode("latin-1")
    text = head.decode("utf-8", "surrogateescape")
    check_coding(coding, body)
    check_text(text, coding, body)
    check_json(text)
    try:
        parse_heart_beat(text)
    except FrameError as error:
        if error.kind != "bad-heart-beat":
            raise


def check_coding(coding: str, body: bytes) -> None:
    try:
        assert len(decode_content(coding, body, BOUND)) <= BOUND
    except FrameError as error:
        if error.kind not in ("bad-content-encoding", "limit-exceeded"):
            raise
    try:
        encoded = encode_content(coding, body)
    except FrameError as error:
        if error.kind != "bad-content-encoding":
            raise
        return
    assert decode_content(coding, encoded, 10 * BOUND + len(encoded)) == body
    with suppress(FrameError):  # what is cut short is noticed, or is the start of the body
        assert body.startswith(decode_content(coding, encoded[:-1]))


def check_text(content_type: str, coding: str, body: bytes) -> None:
    encoding = encoding_of(content_type)
    assert encoding is None or (encoding == encoding.lower() and encoding.strip())
    with suppress(ContentError, FrameError):
        text = Frame("MESSAGE", {"content-type": content_type, "content-encoding": coding}, body).text()
        assert type(text) is str


def check_json(text: str) -> None:
    value: Any = json_value(text)
    try:
        written = json_text(value)
    except ValueError:  # deeper, once it is quoted, than what is read
        return
    assert json_value(written) == value
    assert json_value(json_text(text)) == text or any("\ud800" <= letter <= "\udfff" for letter in text)


if __name__ == "__main__":
    drive(check)
