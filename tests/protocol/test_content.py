"""Bodies and header values: text by content-type and charset, content-encoding and its bombs, the wish-list's JSON."""

import base64
import encodings
import gzip
import json
import pkgutil
import zlib
from encodings.aliases import aliases
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import example
from hypothesis import given as st_given
from hypothesis import strategies as st
from protocol.talking import answer, linear
from traced import peak, tracing

from stompcodec import ContentError, FrameError, StompError
from stompcodec.content import decode_content, encode_content, encoding_of, json_text, json_value, text_of


def text(body, content_type=None, coding=None):
    headers = {"content-type": content_type, "content-encoding": coding}
    return text_of(SimpleNamespace(body=body, headers=headers, get=headers.get))


@pytest.mark.req("S12-CT-04", "S12-CT-05", "S12-CT-06", "S11-CT-03", "S11-CT-04")
@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        *(("TEXT/Plain", "utf-8"), (" text/plain ", "utf-8"), ("text/plain;", "utf-8"), ("text", None)),
        *(("application/text/plain", None), ("", None), ("text/plain;charset=UTF-16", "utf-16")),
        *(("text/plain ; CharSet = latin1 ", "latin1"), ("text/plain;format=flowed;charset=latin1;x=y", "latin1")),
        *(("text/plain;charset=", "utf-8"), ('text/plain;charset=""', "utf-8")),
        *(("text/plain;charset=;charset=latin1", "latin1"), ("text/plain;charset=latin1;charset=utf-8", "latin1")),
        *(("application/json;charset=x-unheard-of", "x-unheard-of"), (';charset="a;b"', "a;b")),
        *((r';charset="a\"b"', 'a"b'), ('text/plain;title="x;charset=utf-16";charset=latin1', "latin1")),
        *(('text/plain;title="x;charset=latin1', "latin1"), ('text/plain;charset="latin1', '"latin1')),
        *(('text/plain;charset="', '"'), ("text/plain;notcharset=latin1", "utf-8")),
        *(("text/plain charset=latin1", "utf-8"), ("image/png", None)),
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
    with linear(5):
        encoding_of("text/plain" + hostile)


@pytest.mark.req("S12-CT-04", "S12-CT-05", "S12-CT-06")
@pytest.mark.parametrize(
    ("content_type", "body", "expect"),
    [
        *(("text/plain", "zażółć".encode(), "zażółć"), ("text/plain", b"", "")),
        ("text/plain;charset=latin1", b"caf\xe9", "café"),
        ("text/plain;charset=ISO_8859-1:1987", b"caf\xe9", "café"),
        *(("application/x-thing;charset=windows-1252", b"\x80", "€"), ("text/plain;charset=koi8-u", b"\xa4", "є")),
        *(("text/plain;charset=utf-16", "a€".encode("utf-16"), "a€"), ("text/plain", b"\xef\xbb\xbfa", "\ufeffa")),
        *(("application/json", '{"é":1}'.encode(), '{"é":1}'), ("Application/JSON ; x=y", b"1", "1")),
        *(("application/problem+json", b"1", "1"), ("image/svg+xml", b"<svg/>", "<svg/>")),
        *(("application/xml", b"\xef\xbb\xbf<a/>", "<a/>"), ("application/xml", b"\xff\xfe<\0a\0/\0>\0", "<a/>")),
        ("application/xml", b"\xfe\xff\0<\0a\0/\0>", "<a/>"),
        *(("application/xml", "<é/>".encode("utf-32"), "<é/>"), ("application/xml", b"\0\0\xfe\xff\0\0\0<", "<")),
        ("application/xml;charset=latin1", b"\xef\xbb\xbf", "ï»¿"),
    ],
)
def test_text_of(content_type, body, expect):
    assert text(body, content_type) == expect


@pytest.mark.req("S12-CT-03", "S11-CT-02")
@pytest.mark.parametrize(
    ("content_type", "body", "says"),
    [
        *((None, b"text", "no content-type"), ("", b"text", "is not text")),
        ("application/octet-stream", b"text", "'application/octet-stream' is not text"),
        *(("application/jsonp", b"text", "is not text"), ("image/svg+xml2", b"text", "is not text")),
        ("text/plain", b"ab\xff", "byte 2 of the body is not utf_8"),
        ("text/plain", b"\xed\xa0\x80", "byte 0 of the body is not utf_8"),
        ("text/plain;charset=ascii", b"caf\xe9", "byte 3 of the body is not ascii"),
        ("text/plain;charset=utf-16", b"a", "byte 0 of the body is not utf_16"),
        ("application/json", b"\xe9", "byte 0 of the body is not utf_8"),
        ("text/plain;charset=x-unheard-of", b"", "unknown charset 'x-unheard-of'"),
        ("text/plain;charset=utf\udc80", b"", r"unknown charset 'utf\\udc80'"),
        *(("text/plain;charset=u\0", b"", r"unknown charset 'u\\x00'"), ("text/plain", None, "is streamed")),
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
    **{"hex": b"6162", "rot13": b"ab", "idna": b"xn--4ca", "punycode": b"ab-", "unicode_escape": b"\\n"},
    **{"raw-unicode-escape": b"\\u0041", "base64": b"YQ==", "zlib": zlib.compress(b"a"), "utf-7": b"+2AA-"},
    **dict.fromkeys(("undefined", "bz2", "uu"), b""),
    **dict.fromkeys(("quopri", "mbcs", "oem", "charmap", "palmos"), b"a"),
}


@pytest.mark.req("S12-CT-05")
@pytest.mark.parametrize("charset", NOT_TEXT)
def test_codecs_that_are_no_charsets_are_refused(charset):
    for name in {charset, charset.upper(), f"{charset}_codec", charset.replace("_", "-")}:
        with pytest.raises(ContentError, match="unknown charset"):
            text(NOT_TEXT[charset], f"text/plain;charset={name}")


EVERY_CHARSET = sorted({*aliases, *aliases.values(), *(each.name for each in pkgutil.iter_modules(encodings.__path__))})


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


BAD = {"error": "bad-content-encoding"}
TOO_LARGE = {"error": "limit-exceeded"}
codings = st.lists(st.sampled_from(["gzip", "x-gzip", "deflate", "base64", "identity"]), max_size=4).map(", ".join)


def raw_deflate(data):
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(data) + engine.flush()


@pytest.mark.req("WISH-ENC-01", "WISH-ENC-02")
@st_given(codings, st.binary(max_size=4000) | st.integers(0, 300_000).map(bytes))
@example(",".join(["base64"] * 4), b"hello")
def test_content_round_trip(encoding, data):
    encoded = encode_content(encoding, data)
    assert decode_content(encoding, encoded) == data
    assert encode_content(encoding, data) == encoded


@pytest.mark.parametrize(
    "encoding",
    [
        *["br", "gzip;q=1", "gzip,", ",", "gzip,,base64", "utf-8", "*", "gzip base64", " ", "\0"],
        *[",".join(["base64"] * 5), "identity," * 100_000 + "identity"],
    ],
    ids=lambda encoding: encoding[:20],
)
def test_unknown_codings_and_more_than_four_are_refused(encoding):
    assert answer(decode_content, encoding, b"") == answer(encode_content, encoding, b"") == BAD


@pytest.mark.req("WISH-ENC-01")
@st_given(st.lists(st.binary(max_size=2000), min_size=1, max_size=8))
def test_gzip_members_are_joined(parts):
    encoded = b"".join(gzip.compress(part, mtime=0) for part in parts)
    assert decode_content("gzip", encoded) == b"".join(parts)
    assert answer(decode_content, "gzip", encoded + b"\0") == BAD
    assert answer(decode_content, "gzip", encoded + encoded[:9]) == BAD


ENCODERS = [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)]


@pytest.mark.req("WISH-ENC-01")
@st_given(st.sampled_from(ENCODERS), st.binary(max_size=1500), st.binary(min_size=1, max_size=20), st.data())
def test_cut_or_followed_by_junk(encoder, data, junk, choice):
    encoding, encode = encoder
    encoded = encode(data)
    assert decode_content(encoding, encoded) == data
    assert answer(decode_content, encoding, encoded[: choice.draw(st.integers(0, len(encoded) - 1))]) == BAD
    assert answer(decode_content, encoding, encoded + junk) == BAD


def wrong_checksum(encode):
    encoded = bytearray(encode(b"hello" * 100))
    encoded[-5] ^= 1
    return bytes(encoded)


def with_dictionary(data):
    engine = zlib.compressobj(zdict=b"hello")
    return engine.compress(data) + engine.flush()


@pytest.mark.req("WISH-ENC-01", "WISH-ENC-02")
@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        *(("gzip", wrong_checksum(partial(gzip.compress, mtime=0))), ("deflate", wrong_checksum(zlib.compress))),
        ("deflate", with_dictionary(b"hello")),
        *[("base64", data) for data in (b"YQ", b"YQ=", b"YQ===", b"Y===", b"====", b"=", b"==", b"YWI=YWI=")],
        *[("base64", data) for data in (b"YQ==\n", b"Y Q=", b"YQ-_", b"Y\0Q=", b"=YQ=", b"YQ=A", b"YWJj=")],
    ],
)
def test_checksums_are_checked_and_base64_is_strict(encoding, data):
    assert answer(decode_content, encoding, data) == BAD


@st_given(codings, st.binary(max_size=300))
@example("deflate", b"\x78\x9c")
@example("deflate", b"x")
@example("base64", b"\xff\xff\xff\xff")
def test_any_octets_are_decoded_or_refused(encoding, data):
    got = answer(decode_content, encoding, data, 1000)
    assert isinstance(got, bytes) or got in (BAD, TOO_LARGE)


@pytest.mark.req("S12-LIM-05")
@st_given(st.sampled_from([*ENCODERS, ("base64", base64.b64encode), ("identity", bytes)]), st.integers(1, 5000))
@example(("base64", base64.b64encode), 1)
@example(("base64", base64.b64encode), 2)
@example(("base64", base64.b64encode), 3)
def test_limit_at_and_one_past(encoder, size):
    encoding, encode = encoder
    encoded = encode(b"a" * size)
    assert len(decode_content(encoding, encoded, size)) == size
    with pytest.raises(FrameError) as caught:
        decode_content(encoding, encoded, size - 1)
    assert (caught.value.kind, caught.value.limit) == ("limit-exceeded", "max_size")


@pytest.mark.req("S12-LIM-05")
def test_limit_holds_for_all_members_together_and_between_codings():
    members = gzip.compress(b"a" * 600) + gzip.compress(b"a" * 400)
    assert len(decode_content("gzip", members, 1000)) == 1000
    assert answer(decode_content, "gzip", members, 999) == TOO_LARGE
    inner = base64.b64encode(b"a" * 999)
    assert answer(decode_content, "base64,gzip", gzip.compress(inner), len(inner) - 1) == TOO_LARGE
    assert decode_content("base64,gzip", gzip.compress(inner), len(inner)) == b"a" * 999
    assert decode_content("gzip", gzip.compress(b""), 0) == b""


def flat_bomb(wbits):
    engine = zlib.compressobj(wbits=-15)
    block = engine.compress(bytes(2**20)) + engine.flush(zlib.Z_FULL_FLUSH)
    return {31: gzip.compress(b"")[:10], 15: b"\x78\x9c", -15: b""}[wbits] + block * 1024


@pytest.mark.req("S12-LIM-05", "WISH-ENC-01")
@pytest.mark.parametrize(
    ("encoding", "bomb"),
    [
        *(("gzip", flat_bomb(31)), ("deflate", flat_bomb(15)), ("deflate", flat_bomb(-15))),
        *(("gzip", gzip.compress(bytes(2**24)) * 64), ("gzip,gzip", gzip.compress(flat_bomb(31)))),
        ("gzip,base64", base64.b64encode(flat_bomb(31))),
    ],
    ids=["gzip", "zlib", "raw", "members", "nested", "under base64"],
)
@tracing()
def test_a_bomb_of_a_gigabyte_is_refused_in_little_memory(encoding, bomb):
    limit = 4 * 2**20
    assert answer(decode_content, encoding, bomb, limit) == TOO_LARGE
    assert peak() < 4 * limit


@pytest.mark.req("S12-LIM-05")
def test_default_limit_is_that_of_a_body_and_tiny_members_take_linear_time():
    with linear(10):
        assert answer(decode_content, "gzip", flat_bomb(31)) == TOO_LARGE
    assert len(decode_content("gzip", gzip.compress(bytes(100 * 2**20), 1))) == 100 * 2**20
    empty = gzip.compress(b"", mtime=0)
    with linear(8):
        assert decode_content("gzip", empty * 200_000) == b""


@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-03", "WISH-JSN-04", "WISH-JSN-05", "WISH-JSN-06")
@pytest.mark.parametrize(
    "plain",
    [
        *["NaN", "Infinity", "-Infinity", "[NaN]", '{"a":Infinity}', "1e999", "-1e999", "[1e999]"],
        *["01", "+1", ".5", "1.", "0x1", "1 2", "\u0661", "1.2.3", "\ufeff1", "\xa01", "True", "None", "nul", "nullx"],
        *["'a'", '"a', '"\n"', '"\\q"', "[1,]", "[1,2", "{a:1}", "{}{}", "/queue/a", "\ud800", '["' + "[" * 200],
        *["[" * 100_000, "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101],
        *["9" * 4301, "-" + "9" * 4301, "[" + "9" * 100_000 + "]"],
    ],
    ids=lambda plain: ascii(plain)[:30],
)
def test_what_is_no_json_stays_text(plain):
    assert json_value(plain) is plain


@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-04")
def test_json_at_the_bounds():
    assert json_value("9" * 4300) == 10**4300 - 1
    assert json_value("-" + "9" * 4300) == 1 - 10**4300
    assert json_value(" \t\r\n42 ") == 42
    assert json_value("1.7e308") == 1.7e308
    assert json_value(json.dumps(["[" * 500])) == ["[" * 500]
    assert json_value(json.dumps(["\n" + "[" * 500])) == ["\n" + "[" * 500]
    assert json_value("[" + "[]," * 500 + '"\\"["]') == [[]] * 500 + ['"[']
    value = json_value("[" * 100 + "]" * 100)
    for _ in range(99):
        (value,) = value
    assert value == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-03", "WISH-JSN-04", "WISH-JSN-05", "WISH-JSN-06")
@st_given(json_values)
@example("42")
@example('"a"')
@example("null")
@example("\0")
@example("\ud83d")
def test_json_round_trip(value):
    written = json_text(value)
    assert repr(json_value(written)) == repr(value)
    assert not any(character < " " or "\ud800" <= character <= "\udfff" for character in written)
    assert written.isascii() or written == value


@pytest.mark.req("WISH-JSN-02")
@pytest.mark.parametrize(
    "hostile", ['"' + '\\"' * 500_000, "[" * 200 + '"\\' * 300_000, "[" * 1_000_000, "[1," * 300_000]
)
def test_json_takes_linear_time(hostile):
    with linear(5):
        assert json_value(hostile) is hostile


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_what_json_cannot_say_is_refused():
    assert json_text(nested(100)) == "[" * 100 + "]" * 100
    circular = []
    circular.append(circular)
    for value in (float("nan"), [float("inf")], nested(101), nested(100_000), circular):
        with pytest.raises(ValueError, match=r"."):
            json_text(value)
    for value in (b"octets", {1, 2}, object(), [b"octets"]):
        with pytest.raises(TypeError):
            json_text(value)
