"""What a body and a header value mean: text by content-type, content-encoding, and typed header values.

Nothing here trusts its input: inflating is bounded before memory is taken, JSON is bounded in depth and in
digits, and only charsets of a closed list are looked up, since Python keeps every name it was ever asked for.
"""

from __future__ import annotations

import binascii
import json
import re
import zlib
from collections.abc import Mapping
from encodings.aliases import aliases
from typing import Protocol

from stompcodec.errors import FrameError, StompError

__all__ = ["ContentError", "decode_content", "encode_content", "encoding_of", "json_text", "json_value", "text_of"]
__all__ += ["typed_headers"]


class ContentError(StompError, ValueError):
    """A body that cannot be had as text. The message says why, and shows nothing of the body."""


class HasContent(Protocol):
    """What `text_of` needs of a frame; the frames of both backends have it."""

    @property
    def body(self) -> bytes | None: ...

    def get(self, name: str, /) -> str | None: ...


#: One parameter. A quoted value may hold semicolons; a quote that is never closed is part of the value.
_PARAMETER = re.compile(r';\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)', re.DOTALL)


def encoding_of(content_type: str | None) -> str | None:
    """The text encoding that a content-type implies, in lower case; None for binary.

    The charset parameter wins, whether Python knows that name or not; without it, text/ is UTF-8.

    Args:
        content_type: the header's value, None if absent.

    Rules: S12-CT-02 to S12-CT-06, S11-CT-02 to S11-CT-04.

    >>> encoding_of("text/plain"), encoding_of('application/xml; Charset="UTF-16"'), encoding_of("image/png")
    ('utf-8', 'utf-16', None)
    """
    if content_type is None:
        return None
    for name, value in _PARAMETER.findall(content_type):
        if name.lower() == "charset":
            if value[0:1] == '"' == value[-1:] and len(value) > 1:
                value = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
            if value.strip():
                return str(value.strip().lower())
    return "utf-8" if _media_type(content_type).startswith("text/") else None


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


#: Python's names for what no text is (bytes to bytes, text to text), depends on the machine, was never shipped
#: (tactis), or lets lone surrogates through (UTF-7). unicode_escape, idna and their like have no alias.
_NO_TEXT = {
    *("base64_codec", "bz2_codec", "hex_codec", "quopri_codec", "rot_13", "uu_codec", "zlib_codec"),
    *("mbcs", "tactis", "utf_7"),
}
_WITHOUT_ALIAS = {"cp720", "cp737", "cp874", "cp875", "koi8_t", "koi8_u", "mac_croatian", "mac_romanian", "utf_8_sig"}
_TEXT_CODECS = frozenset(aliases.values()) - _NO_TEXT | _WITHOUT_ALIAS


def _codec_of(charset: str) -> str | None:
    """Python's name for a charset, None for one that is not in the closed list."""
    name = re.sub("[^a-z0-9]+", "_", charset.lower())
    name = aliases.get(name, name)
    return name if name in _TEXT_CODECS else None


#: Types that are text by rules of their own, UTF-8 unless a byte order mark says otherwise.
_OWN_RULES = re.compile(r"application/(json|xml)|.+\+(json|xml)", re.DOTALL)
#: UTF-32 first: its mark begins with that of UTF-16.
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf_32"),
    (b"\x00\x00\xfe\xff", "utf_32"),
    (b"\xff\xfe", "utf_16"),
    (b"\xfe\xff", "utf_16"),
    (b"\xef\xbb\xbf", "utf_8_sig"),
)


def text_of(frame: HasContent) -> str:
    """The body as text, by content-type and charset.

    application/json, application/xml and types that end with +json or +xml need no charset. A body under
    gzip, deflate or base64 is decoded first; any other content-encoding is no coding of ours and is passed over.

    Raises:
        ContentError: the content-type is absent or names no text, the charset is unknown, the octets are not
            of that charset, or the body is streamed.
        FrameError: "bad-content-encoding", or "limit-exceeded" for over 100 MiB.

    Rules: S12-CT-03 to S12-CT-06.

    >>> from stompcodec.frame import Frame
    >>> text_of(Frame("MESSAGE", {"content-type": "text/plain;charset=latin1"}, b"caf\\xe9"))
    'café'
    """
    body = frame.body
    if body is None:
        raise ContentError("the body is streamed: join its pieces, then decode them")
    coding = frame.get("content-encoding")
    if coding is not None and set(_codings(coding)) <= _CODINGS:
        body = decode_content(coding, body)
    content_type = frame.get("content-type")
    if content_type is None:
        raise ContentError("the frame has no content-type, so its body is binary: use frame.body")
    charset = encoding_of(content_type)
    if charset is not None:
        codec = _codec_of(charset)
        if codec is None:
            raise ContentError(f"the charset {charset!r:.60} is not known here: use frame.body")
    elif _OWN_RULES.fullmatch(_media_type(content_type)):
        codec = next((codec for mark, codec in _MARKS if body.startswith(mark)), "utf_8")
    else:
        raise ContentError(f"the content-type {content_type!r:.60} is not text: use frame.body")
    try:
        return body.decode(codec)
    except UnicodeDecodeError as error:
        raise ContentError(f"octet {error.start} of the body is not {codec}: use frame.body") from error


#: Deeper values would come back as objects that Python cannot compare or print near the end of its stack.
_MAX_DEPTH = 100
#: Python's own default; longer ones take quadratic time.
_MAX_DIGITS = 4300
#: A whole string (its closing quote may be missing, so that this never backtracks), or one bracket.
_JSON_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*"?|[][{}]', re.DOTALL)


def _depth(text: str) -> int:
    """How deep the brackets of a JSON text are nested."""
    depth = deepest = 0
    if text.count("[") + text.count("{") > _MAX_DEPTH:
        for token in _JSON_TOKEN.findall(text):
            depth += (token in "[{") - (token in "]}")
            deepest = max(deepest, depth)
    return deepest


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _MAX_DIGITS:
        raise ValueError("too many digits")
    return int(text)


def _real(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("too large for a float")
    return number


def _constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


_JSON = json.JSONDecoder(parse_int=_integer, parse_float=_real, parse_constant=_constant)


def json_value(text: str) -> object:
    """A header value by the JSON notation of the wish-list; what is no JSON stays the text it is.

    So do NaN and Infinity, numbers that Python cannot hold (over 4300 digits, or infinite as a float), and
    what is nested deeper than 100. Never raises.

    Args:
        text: the value, unescaped.

    Rules: WISH-JSN-01 to WISH-JSN-06.

    >>> json_value("42"), json_value('"42"'), json_value("plain text"), json_value("NaN")
    (42, '42', 'plain text', 'NaN')
    """
    try:
        return _JSON.decode(text) if _depth(text) <= _MAX_DEPTH else text
    except ValueError:
        return text


#: What not every version can carry in a header, or none can.
_UNSAFE = re.compile("[\x00-\x1f\ud800-\udfff]")


def json_text(value: object) -> str:
    """The header value that `json_value` reads as `value`.

    A string is written as it is, unless that would read as JSON or holds control octets or lone surrogates;
    then it is written as a JSON string. Everything but plain strings is ASCII. (Two lone surrogates that make
    a pair come back as the character they stand for: JSON cannot say otherwise.)

    Raises:
        TypeError: JSON has no such type.
        ValueError: NaN, an infinity, a circular value, one nested deeper than 100, or too many digits.

    Rules: WISH-JSN-01 to WISH-JSN-06.

    >>> json_text(True), json_text("true"), json_text("/queue/a"), json_text([1, "x"])
    ('true', '"true"', '/queue/a', '[1,"x"]')
    """
    if isinstance(value, str) and json_value(value) == value and not _UNSAFE.search(value):
        return value
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError("the value is nested too deep") from None
    if _depth(text) > _MAX_DEPTH:
        raise ValueError(f"the value is nested deeper than {_MAX_DEPTH}")
    return text


def typed_headers(values: Mapping[str, object]) -> dict[str, str]:
    """Headers whose values are JSON: numbers, truth values, lists and so on, as selectors compare them.

    Raises:
        TypeError, ValueError: as `json_text`.

    Rules: WISH-JSN-01 to WISH-JSN-06.

    >>> typed_headers({"n": 9, "urgent": True, "name": "Ann", "zip": "53111"})
    {'n': '9', 'urgent': 'true', 'name': 'Ann', 'zip': '"53111"'}
    """
    return {name: json_text(value) for name, value in values.items()}


_CODINGS = frozenset(("identity", "gzip", "x-gzip", "deflate", "base64"))
_MAX_CODINGS = 4
#: The versions of Python differ in what their own strict mode takes, so the order is checked here.
_BASE64 = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
#: windowBits of zlib that say which wrapper the deflated octets have.
_ZLIB, _RAW, _GZIP = 15, -15, 31
#: Octets inflated in one go. zlib copies what a member leaves of them: of millions of tiny members that must be little.
_PIECE = 1024


def _bad(detail: str) -> FrameError:
    return FrameError("bad-content-encoding", detail=detail)


def _too_large() -> FrameError:
    return FrameError("limit-exceeded", limit="max_size")


def _codings(encoding: str | None) -> list[str]:
    """The codings of a header value, in the order in which they were applied."""
    return [coding.strip().lower() for coding in (encoding or "identity").split(",")]


def _checked_codings(encoding: str | None) -> list[str]:
    codings = _codings(encoding)
    if len(codings) > _MAX_CODINGS:
        raise _bad(f"more than {_MAX_CODINGS} codings")
    if not set(codings) <= _CODINGS:
        raise _bad("known are gzip, deflate, base64 and identity")
    return codings


def decode_content(encoding: str | None, data: bytes, max_size: int = 100 * 2**20) -> bytes:
    """Undo a content-encoding.

    gzip may have several members. deflate is the zlib format, or the bare one that some senders write.
    base64 is strict: no line ends, padding in its place. Nothing may follow the end of the encoded data.

    Args:
        encoding: the header's value, up to 4 codings with commas between; None or "" for identity.
        data: the body.
        max_size: the most octets of the result, and of what lies between two codings. Never more than that
            is inflated.

    Raises:
        FrameError: "bad-content-encoding", or "limit-exceeded" with limit "max_size".

    Rules: WISH-ENC-01, WISH-ENC-02.

    >>> decode_content("gzip, base64", encode_content("gzip, base64", b"hello"))
    b'hello'
    """
    for coding in reversed(_checked_codings(encoding)):
        if coding == "base64":
            data = _from_base64(data, max_size)
        elif coding == "deflate":
            data = _inflate(data, _ZLIB if _looks_like_zlib(data) else _RAW, max_size)
        elif coding != "identity":
            data = _inflate(data, _GZIP, max_size)
    if len(data) > max_size:
        raise _too_large()
    return data


def encode_content(encoding: str | None, data: bytes) -> bytes:
    """Apply a content-encoding. The same data always gives the same octets: gzip gets no time stamp.

    Args:
        encoding: as for `decode_content`.
        data: the body.

    Raises:
        FrameError: "bad-content-encoding": an unknown coding, or more than 4.

    Rules: WISH-ENC-01, WISH-ENC-02.

    >>> encode_content("base64", b"a\\x00b")
    b'YQBi'
    """
    for coding in _checked_codings(encoding):
        if coding == "base64":
            data = binascii.b2a_base64(data, newline=False)
        elif coding != "identity":
            engine = zlib.compressobj(wbits=_ZLIB if coding == "deflate" else _GZIP)
            data = engine.compress(data) + engine.flush()
    return data


def _from_base64(data: bytes, max_size: int) -> bytes:
    if len(data) % 4 or _BASE64.fullmatch(data) is None:
        raise _bad("base64: letters and padding are not in order")
    if len(data) // 4 * 3 - data[-2:].count(b"=") > max_size:
        raise _too_large()
    return binascii.a2b_base64(data)


def _looks_like_zlib(data: bytes) -> bool:
    # Method 8, and a header that divides by 31 (RFC 1950). No writer of bare deflate begins like that.
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


def _inflate(data: bytes, wbits: int, max_size: int) -> bytes:
    """The inflated data of all its members (gzip) or of the only one, never more than max_size + 1 octets."""
    view = memoryview(data)
    out = bytearray()
    at = 0
    while True:
        engine = zlib.decompressobj(wbits)
        while not engine.eof:
            piece = view[at : at + _PIECE]
            if not piece:
                raise _bad("the compressed data is cut short")
            at += len(piece)
            try:
                out += engine.decompress(piece, max_size - len(out) + 1)
            except zlib.error as error:
                raise _bad("the compressed data is broken") from error
            if len(out) > max_size:
                raise _too_large()
        at -= len(engine.unused_data)
        if at == len(view):
            return bytes(out)
        if wbits != _GZIP:
            raise _bad("octets follow the compressed data")
