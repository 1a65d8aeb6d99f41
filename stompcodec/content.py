"""The meaning of bodies and header values: text by content-type, content-encoding, typed headers.

Input is not trusted: inflated sizes are checked before memory is allocated, the depth and the digits of JSON are
bounded, and only charsets of a fixed list are looked up, since Python caches every charset name for ever.

The rules are S11-CT-02 to S11-CT-04, S12-CT-02 to S12-CT-06, WISH-JSN-01 to WISH-JSN-06, WISH-ENC-01 and WISH-ENC-02.
"""

from __future__ import annotations

import binascii
import json
import re
import zlib
from collections.abc import Mapping
from encodings.aliases import aliases
from typing import Protocol

from stompcodec.errors import ContentError, FrameError


class HasContent(Protocol):
    """The part of a frame that `text_of` needs. The frames of both backends have it."""

    @property
    def body(self) -> bytes | None: ...

    def get(self, name: str, /) -> str | None: ...


#: One parameter. A quoted value may contain semicolons; an unclosed quote is part of the value.
_PARAMETER = re.compile(r';\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)', re.DOTALL)


def encoding_of(content_type: str | None) -> str | None:
    """Return the charset that a content-type implies, in lower case; None for binary content.

    The charset parameter wins, even if Python does not know it. Without it, text/ is UTF-8.

    Args:
        content_type: the header's value; None if absent.
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


#: Python's names of codecs that do not decode bytes to text, depend on the machine, were never shipped (tactis), or
#: pass lone surrogates (UTF-7). unicode_escape, idna and others of the kind have no alias.
_NO_TEXT = {
    *("base64_codec", "bz2_codec", "hex_codec", "quopri_codec", "rot_13", "uu_codec", "zlib_codec"),
    *("mbcs", "tactis", "utf_7"),
}
_WITHOUT_ALIAS = {"cp720", "cp737", "cp874", "cp875", "koi8_t", "koi8_u", "mac_croatian", "mac_romanian", "utf_8_sig"}
_TEXT_CODECS = frozenset(aliases.values()) - _NO_TEXT | _WITHOUT_ALIAS


def _codec_of(charset: str) -> str | None:
    """Return Python's name of a charset; None if it is not in the fixed list."""
    name = re.sub("[^a-z0-9]+", "_", charset.lower())
    name = aliases.get(name, name)
    return name if name in _TEXT_CODECS else None


#: Types that are text without a charset: UTF-8 unless a byte order mark says otherwise.
_OWN_RULES = re.compile(r"application/(json|xml)|.+\+(json|xml)", re.DOTALL)
#: UTF-32 comes first, since its mark begins with that of UTF-16.
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf_32"),
    (b"\x00\x00\xfe\xff", "utf_32"),
    (b"\xff\xfe", "utf_16"),
    (b"\xfe\xff", "utf_16"),
    (b"\xef\xbb\xbf", "utf_8_sig"),
)


def text_of(frame: HasContent, charset: str | None = None, *, untyped: str | None = None) -> str:
    """Return the body of a frame as text, by its content-type.

    application/json, application/xml and types that end with +json or +xml need no charset. The content-encodings gzip,
    deflate and base64 are undone first; any other content-encoding is ignored.

    Args:
        charset: that of the body, whatever its content-type says.
        untyped: the charset of a body without content-type; None to refuse one.

    Raises:
        TypeError, ValueError: `charset` is not a charset that Python knows.
        ContentError: the content-type is absent or is not text, the charset is unknown, the body is not in that
            charset, or the body is streamed.
        FrameError: "bad-content-encoding", or "limit-exceeded" for more than 100 MiB.
    """
    body = frame.body
    if body is None:
        raise ContentError("the body is streamed: join its pieces, then decode them")
    coding = frame.get("content-encoding")
    if coding is not None and set(_codings(coding)) <= _CODINGS:
        body = decode_content(coding, body)
    content_type, advice = frame.get("content-type"), "use frame.body"
    if charset is None and content_type is None and untyped is not None:
        codec, advice = untyped, "it has no content-type: name its charset, as in message.text(charset='latin-1')"
    else:
        codec = _codec_by(content_type, body) if charset is None else _given(charset)
    try:
        return body.decode(codec)
    except UnicodeDecodeError as error:
        raise ContentError(f"byte {error.start} of the body is not {codec}: {advice}") from error


def _codec_by(content_type: str | None, body: bytes) -> str:
    """Return the codec of a body with this content-type; raise ContentError if there is none."""
    if content_type is None:
        raise ContentError("the frame has no content-type, so its body is binary: use frame.body")
    charset = encoding_of(content_type)
    if charset is not None:
        codec = _codec_of(charset)
        if codec is None:
            raise ContentError(f"unknown charset {charset!r:.60}: use frame.body")
        return codec
    if not _OWN_RULES.fullmatch(_media_type(content_type)):
        raise ContentError(f"the content-type {content_type!r:.60} is not text: use frame.body")
    return next((codec for mark, codec in _MARKS if body.startswith(mark)), "utf_8")


def _given(charset: str) -> str:
    """Return the codec of a charset that a program names. Its mistakes are no ContentError: the message is good."""
    if not isinstance(charset, str):
        raise TypeError(f"charset is {charset!r:.60}: it must be str")
    codec = _codec_of(charset)
    if codec is None:
        raise ValueError(f"charset is {charset!r:.60}: it must be one that Python knows, such as 'latin-1'")
    return codec


def text_octets(text: str, content_type: str) -> bytes:
    """Return text in the charset of its content-type, UTF-8 without one. Raise ValueError if that cannot be."""
    return text.encode(_given(encoding_of(content_type) or "utf-8"))


def is_text_type(content_type: str) -> bool:
    return encoding_of(content_type) is not None or _OWN_RULES.fullmatch(_media_type(content_type)) is not None


#: Python cannot compare or print deeper values near the end of its stack.
_MAX_DEPTH = 100
#: Python's default; converting longer numbers takes quadratic time.
_MAX_DIGITS = 4300
#: A string or a bracket. The closing quote is optional, so that the pattern never backtracks.
_JSON_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*"?|[][{}]', re.DOTALL)


def _depth(text: str) -> int:
    """Return how deep the brackets of a JSON text are nested, or 0 if they are few."""
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
    raise ValueError(f"{text} is not JSON")


_JSON = json.JSONDecoder(parse_int=_integer, parse_float=_real, parse_constant=_constant)


def json_value(text: str) -> object:
    """Return the value that a header holds as JSON (the notation of the wish-list for 1.1), or the text itself.

    Text that is not JSON is returned unchanged, and so are NaN, Infinity, numbers of more than 4300 digits or beyond
    the range of a float, and values nested deeper than 100. Never raises.

    Args:
        text: the header's value, unescaped.
    """
    try:
        return _JSON.decode(text) if _depth(text) <= _MAX_DEPTH else text
    except ValueError:
        return text


#: Characters that some STOMP version cannot write in a header.
_UNSAFE = re.compile("[\x00-\x1f\ud800-\udfff]")


def json_text(value: object) -> str:
    """Return the header value that `json_value` reads back as `value`.

    A string is written unchanged unless it would be read as JSON, or contains control characters or lone surrogates;
    then it is written as a JSON string. Everything but unchanged strings is ASCII. Two lone surrogates that form a pair
    are read back as one character.

    Raises:
        TypeError: JSON cannot represent the type.
        ValueError: the value is NaN, infinite, circular, nested deeper than 100, or has too many digits.
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
    """Return headers whose values are written as JSON, for selectors that compare numbers, booleans or lists.

    Args:
        values: header name -> any value that JSON can represent.

    Raises:
        TypeError, ValueError: as for `json_text`.

    >>> typed_headers({"n": 9, "urgent": True, "name": "Ann", "zip": "53111"})
    {'n': '9', 'urgent': 'true', 'name': 'Ann', 'zip': '"53111"'}
    """
    return {name: json_text(value) for name, value in values.items()}


_CODINGS = frozenset(("identity", "gzip", "x-gzip", "deflate", "base64"))
_MAX_CODINGS = 4
#: Checked here, since the strict modes of Python's versions differ.
_BASE64 = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
#: windowBits of zlib, which select the wrapper of the deflated data.
_ZLIB, _RAW, _GZIP = 15, -15, 31
#: Bytes inflated at a time. zlib copies the rest of a piece after each member, which has to stay small for millions of
#: tiny members.
_PIECE = 1024


def _bad(detail: str) -> FrameError:
    return FrameError("bad-content-encoding", detail=detail)


def _too_large() -> FrameError:
    return FrameError("limit-exceeded", limit="max_size")


def _codings(encoding: str | None) -> list[str]:
    """Return the codings of a content-encoding, in the order in which they were applied."""
    return [coding.strip().lower() for coding in (encoding or "identity").split(",")]


def _checked_codings(encoding: str | None) -> list[str]:
    codings = _codings(encoding)
    if len(codings) > _MAX_CODINGS:
        raise _bad(f"more than {_MAX_CODINGS} codings")
    if not set(codings) <= _CODINGS:
        raise _bad("known are gzip, deflate, base64 and identity")
    return codings


def decode_content(encoding: str | None, data: bytes, max_size: int = 100 * 2**20) -> bytes:
    """Return the body with its content-encoding undone.

    gzip may have several members. deflate is the zlib format, or the raw one that some senders write. base64 is strict:
    no line ends, and correct padding. Data after the end of the encoded data is an error.

    Args:
        encoding: the header's value: up to 4 codings, separated by commas; None or "" for identity.
        data: the body.
        max_size: the largest result in bytes, for each coding. At most one byte more is inflated.

    Raises:
        FrameError: "bad-content-encoding", or "limit-exceeded" with limit "max_size".
    """
    for coding in reversed(_checked_codings(encoding)):
        if coding == "base64":
            if len(data) % 4 or _BASE64.fullmatch(data) is None:
                raise _bad("base64: letters and padding are not in order")
            if len(data) // 4 * 3 - data[-2:].count(b"=") > max_size:
                raise _too_large()
            data = binascii.a2b_base64(data)
        elif coding == "deflate":
            data = _inflate(data, _ZLIB if _looks_like_zlib(data) else _RAW, max_size)
        elif coding != "identity":
            data = _inflate(data, _GZIP, max_size)
    if len(data) > max_size:
        raise _too_large()
    return data


def encode_content(encoding: str | None, data: bytes) -> bytes:
    """Return the body with a content-encoding applied. Equal data gives equal bytes: gzip gets no time stamp.

    Args:
        encoding: as for `decode_content`.
        data: the body.

    Raises:
        FrameError: "bad-content-encoding": a coding is unknown, or there are more than 4.
    """
    for coding in _checked_codings(encoding):
        if coding == "base64":
            data = binascii.b2a_base64(data, newline=False)
        elif coding != "identity":
            engine = zlib.compressobj(wbits=_ZLIB if coding == "deflate" else _GZIP)
            data = engine.compress(data) + engine.flush()
    return data


def _looks_like_zlib(data: bytes) -> bool:
    # Method 8, and a header divisible by 31 (RFC 1950). Writers of raw deflate do not begin like that.
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


def _inflate(data: bytes, wbits: int, max_size: int) -> bytes:
    """Return the inflated data: of all members for gzip, else of one. At most max_size + 1 bytes are inflated."""
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
            raise _bad("bytes follow the compressed data")
