"""Text by content-type and charset."""

import encodings
import gzip
import pkgutil
import time
import zlib
from collections import namedtuple
from encodings.aliases import aliases

import pytest
from hypothesis import given as st_given
from hypothesis import strategies as st
from patience import patience
from protocol.vectors_of import vectors_of

from stompcodec import ContentError, FrameError, StompError
from stompcodec.content import encoding_of, text_of


class Body(namedtuple("Body", "body headers")):
    """As much of a frame as content needs."""

    def get(self, name):
        return self.headers.get(name)


def text(body, content_type=None, coding=None):
    headers = {"content-type": content_type, "content-encoding": coding}
    return text_of(Body(body, headers))


@vectors_of("content-type")
def test_content_type_vectors(given, expect):
    assert {"encoding": encoding_of(given["value"])} == expect


@pytest.mark.req("S12-CT-04", "S12-CT-05", "S12-CT-06", "S11-CT-03", "S11-CT-04")
@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("TEXT/Plain", "utf-8"),
        (" text/plain ", "utf-8"),
        ("text/plain;", "utf-8"),
        ("text", None),
        ("application/text/plain", None),
        ("", None),
        ("text/plain;charset=UTF-16", "utf-16"),
        ("text/plain ; CharSet = latin1 ", "latin1"),
        ("text/plain;format=flowed;charset=latin1;x=y", "latin1"),
        ("text/plain;charset=", "utf-8"),
        ('text/plain;charset=""', "utf-8"),
        ("text/plain;charset=;charset=latin1", "latin1"),
        ("text/plain;charset=latin1;charset=utf-8", "latin1"),
        ("application/json;charset=x-unheard-of", "x-unheard-of"),
        (';charset="a;b"', "a;b"),
        (r';charset="a\"b"', 'a"b'),
        ('text/plain;title="x;charset=utf-16";charset=latin1', "latin1"),
        ('text/plain;title="x;charset=latin1', "latin1"),
        ('text/plain;charset="latin1', '"latin1'),
        ('text/plain;charset="', '"'),
        ("text/plain;notcharset=latin1", "utf-8"),
        ("text/plain charset=latin1", "utf-8"),
        ("image/png", None),
    ],
)
def test_encoding_of(content_type, encoding):
    assert encoding_of(content_type) == encoding


@pytest.mark.parametrize(
    "hostile",
    [
        *[";" * 300_000, '"' * 300_000, ';a="' * 100_000, ';a="\\' * 100_000, '="' * 150_000, "; " * 150_000],
        *[";a" * 150_000, ";" + " " * 300_000, ";" + "a" * 300_000, ";a" + " " * 300_000, ';a= "\\' * 60_000],
        ';a="' + '\\"' * 150_000,
    ],
    ids=lambda hostile: repr(hostile[:6]),
)
def test_encoding_of_takes_linear_time(hostile):
    begin = time.perf_counter()
    encoding_of("text/plain" + hostile)
    assert time.perf_counter() - begin < patience(5)


@pytest.mark.req("S12-CT-04", "S12-CT-05", "S12-CT-06")
@pytest.mark.parametrize(
    ("content_type", "body", "expect"),
    [
        ("text/plain", "zażółć".encode(), "zażółć"),
        ("text/plain", b"", ""),
        ("text/plain;charset=latin1", b"caf\xe9", "café"),
        ("text/plain;charset=ISO_8859-1:1987", b"caf\xe9", "café"),
        ("application/x-thing;charset=windows-1252", b"\x80", "€"),
        ("text/plain;charset=koi8-u", b"\xa4", "є"),
        ("text/plain;charset=utf-16", "a€".encode("utf-16"), "a€"),
        ("text/plain", b"\xef\xbb\xbfa", "\ufeffa"),
        ("application/json", '{"é":1}'.encode(), '{"é":1}'),
        ("Application/JSON ; x=y", b"1", "1"),
        ("application/problem+json", b"1", "1"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        ("application/xml", b"\xef\xbb\xbf<a/>", "<a/>"),
        ("application/xml", b"\xff\xfe<\0a\0/\0>\0", "<a/>"),
        ("application/xml", b"\xfe\xff\0<\0a\0/\0>", "<a/>"),
        ("application/xml", "<é/>".encode("utf-32"), "<é/>"),
        ("application/xml", b"\0\0\xfe\xff\0\0\0<", "<"),
        ("application/xml;charset=latin1", b"\xef\xbb\xbf", "ï»¿"),
    ],
)
def test_text_of(content_type, body, expect):
    assert text(body, content_type) == expect


@pytest.mark.req("S12-CT-03", "S11-CT-02")
@pytest.mark.parametrize(
    ("content_type", "body", "says"),
    [
        (None, b"text", "no content-type"),
        ("", b"text", "is not text"),
        ("application/octet-stream", b"text", "'application/octet-stream' is not text"),
        ("application/jsonp", b"text", "is not text"),
        ("image/svg+xml2", b"text", "is not text"),
        ("text/plain", b"ab\xff", "byte 2 of the body is not utf_8"),
        ("text/plain", b"\xed\xa0\x80", "byte 0 of the body is not utf_8"),
        ("text/plain;charset=ascii", b"caf\xe9", "byte 3 of the body is not ascii"),
        ("text/plain;charset=utf-16", b"a", "byte 0 of the body is not utf_16"),
        ("application/json", b"\xe9", "byte 0 of the body is not utf_8"),
        ("text/plain;charset=x-unheard-of", b"", "unknown charset 'x-unheard-of'"),
        ("text/plain;charset=utf\udc80", b"", r"unknown charset 'utf\\udc80'"),
        ("text/plain;charset=u\0", b"", r"unknown charset 'u\\x00'"),
        ("text/plain", None, "is streamed"),
    ],
)
def test_what_is_not_text(content_type, body, says):
    with pytest.raises(ContentError, match=says) as caught:
        text(body, content_type)
    assert isinstance(caught.value, StompError)
    assert isinstance(caught.value, ValueError)
    assert "use frame.body" in str(caught.value) or body is None


#: Octets that the codecs below take, and what is no text about them.
NOT_TEXT = {
    "hex": b"6162",
    "rot13": b"ab",
    "idna": b"xn--4ca",
    "punycode": b"ab-",
    "unicode_escape": b"\\n",
    "raw-unicode-escape": b"\\u0041",
    "undefined": b"",
    "base64": b"YQ==",
    "zlib": zlib.compress(b"a"),
    "bz2": b"",
    "quopri": b"a",
    "uu": b"",
    "utf-7": b"+2AA-",
    "mbcs": b"a",
    "oem": b"a",
    "charmap": b"a",
    "palmos": b"a",
}


@pytest.mark.req("S12-CT-05")
@pytest.mark.parametrize("charset", NOT_TEXT)
def test_codecs_that_are_no_charsets_are_refused(charset):
    for name in {charset, charset.upper(), f"{charset}_codec", charset.replace("_", "-")}:
        with pytest.raises(ContentError, match="unknown charset"):
            text(NOT_TEXT[charset], f"text/plain;charset={name}")


EVERY_CHARSET = sorted(
    {*aliases, *aliases.values(), *(module.name for module in pkgutil.iter_modules(encodings.__path__))}
)


@st_given(st.sampled_from(EVERY_CHARSET), st.binary(max_size=40))
def test_every_charset_gives_text_or_a_content_error(charset, body):
    try:
        got = text(body, f"text/plain;charset={charset}")
    except ContentError:
        return
    assert got.encode().decode() == got


@pytest.mark.req("S12-LIM-05")
def test_charsets_of_peers_fill_no_cache():
    """Python's codec machinery remembers every name it is asked for, and every way to spell it."""
    text(b"", "text/plain;charset=utf-8")
    before = len(encodings._cache)
    for number in range(1, 50):
        assert text(b"a", f"text/plain;charset=utf{'-' * number}8") == "a"
        with pytest.raises(ContentError):
            text(b"a", f"text/plain;charset=no-such-{number}")
    assert len(encodings._cache) == before


@pytest.mark.req("WISH-ENC-01", "WISH-ENC-02")
def test_text_under_a_content_encoding():
    assert text(gzip.compress("é".encode()), "text/plain", "gzip") == "é"
    assert text(b"w6k=", "text/plain", "base64") == "é"
    # What AMQP clients write there is no coding.
    for coding in ("utf-8", "binary", "", "gzip;q=1"):
        assert text("é".encode(), "text/plain", coding) == "é"
    with pytest.raises(FrameError) as caught:
        text(b"no gzip", "text/plain", "gzip")
    assert caught.value.kind == "bad-content-encoding"
