"""Content-encoding: what is written and read again, what is refused, and bombs."""

import base64
import gzip
import time
import zlib

import pytest
from hypothesis import example
from hypothesis import given as st_given
from hypothesis import strategies as st
from patience import patience
from protocol.vectors_of import answer, vectors_of
from traced import peak, tracing

from stompcodec.content import decode_content, encode_content
from stompcodec.errors import FrameError


def refused(kind, function, *args):
    with pytest.raises(FrameError) as caught:
        function(*args)
    assert caught.value.kind == kind
    return caught.value


CODINGS = ("gzip", "x-gzip", "deflate", "base64", "identity")
codings = st.lists(st.sampled_from(CODINGS), max_size=4).map(", ".join)


def raw_deflate(data):
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(data) + engine.flush()


@vectors_of("content-encoding")
def test_content_encoding_vectors(given, expect):
    got = answer(decode_content, given["encoding"], base64.b64decode(given["wire_b64"]))
    assert (got if isinstance(got, dict) else {"body_b64": base64.b64encode(got).decode()}) == expect


@pytest.mark.req("WISH-ENC-01", "WISH-ENC-02")
@st_given(codings, st.binary(max_size=4000) | st.integers(0, 300_000).map(bytes))
def test_content_round_trip(encoding, data):
    encoded = encode_content(encoding, data)
    assert decode_content(encoding, encoded) == data
    assert encode_content(encoding, data) == encoded


@pytest.mark.parametrize(
    "encoding", ["br", "gzip;q=1", "gzip,", ",", "gzip,,base64", "utf-8", "*", "gzip base64", " ", "\0"]
)
def test_unknown_codings_are_refused(encoding):
    refused("bad-content-encoding", decode_content, encoding, b"")
    refused("bad-content-encoding", encode_content, encoding, b"")


def test_four_codings_and_no_more():
    four, five = ",".join(["base64"] * 4), ",".join(["base64"] * 5)
    assert decode_content(four, encode_content(four, b"hello")) == b"hello"
    for encoding in (five, "identity," * 100_000 + "identity"):
        refused("bad-content-encoding", decode_content, encoding, b"")
        refused("bad-content-encoding", encode_content, encoding, b"")


@pytest.mark.req("WISH-ENC-01")
@st_given(st.lists(st.binary(max_size=2000), min_size=1, max_size=8))
def test_gzip_members_are_joined(parts):
    encoded = b"".join(gzip.compress(part, mtime=0) for part in parts)
    assert decode_content("gzip", encoded) == b"".join(parts)
    refused("bad-content-encoding", decode_content, "gzip", encoded + b"\0")
    refused("bad-content-encoding", decode_content, "gzip", encoded + encoded[:9])


def encoders():
    return [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)]


@pytest.mark.req("WISH-ENC-01")
@st_given(st.sampled_from(encoders()), st.binary(max_size=1500), st.binary(min_size=1, max_size=20), st.data())
def test_cut_or_followed_by_junk(encoder, data, junk, choice):
    encoding, encode = encoder
    encoded = encode(data)
    assert decode_content(encoding, encoded) == data
    refused("bad-content-encoding", decode_content, encoding, encoded[: choice.draw(st.integers(0, len(encoded) - 1))])
    refused("bad-content-encoding", decode_content, encoding, encoded + junk)


@pytest.mark.req("WISH-ENC-01")
@pytest.mark.parametrize("encode", [gzip.compress, zlib.compress])
def test_checksums_are_checked(encode):
    encoded = bytearray(encode(b"hello" * 100))
    encoded[-5] ^= 1
    refused("bad-content-encoding", decode_content, "gzip" if encode is gzip.compress else "deflate", bytes(encoded))


@pytest.mark.req("WISH-ENC-01")
def test_a_dictionary_is_refused():
    engine = zlib.compressobj(zdict=b"hello")
    refused("bad-content-encoding", decode_content, "deflate", engine.compress(b"hello") + engine.flush())


@pytest.mark.req("WISH-ENC-02")
@pytest.mark.parametrize(
    "data",
    [
        "YQ",
        "YQ=",
        "YQ===",
        "Y===",
        "====",
        "=",
        "==",
        "YWI=YWI=",
        "YQ==\n",
        "Y Q=",
        "YQ-_",
        "Y\0Q=",
        "=YQ=",
        "YQ=A",
        "YWJj=",
    ],
)
def test_base64_is_strict(data):
    refused("bad-content-encoding", decode_content, "base64", data.encode())


@st_given(codings, st.binary(max_size=300))
@example("deflate", b"\x78\x9c")
@example("deflate", b"x")
@example("base64", b"\xff\xff\xff\xff")
def test_any_octets_are_decoded_or_refused(encoding, data):
    got = answer(decode_content, encoding, data, 1000)
    assert isinstance(got, bytes) or got["error"] in ("bad-content-encoding", "limit-exceeded")


@pytest.mark.req("S12-LIM-05")
@st_given(st.sampled_from([*encoders(), ("base64", base64.b64encode), ("identity", bytes)]), st.integers(1, 5000))
@example(("base64", base64.b64encode), 1)
@example(("base64", base64.b64encode), 2)
@example(("base64", base64.b64encode), 3)
def test_limit_at_and_one_past(encoder, size):
    encoding, encode = encoder
    encoded = encode(b"a" * size)
    assert len(decode_content(encoding, encoded, size)) == size
    assert refused("limit-exceeded", decode_content, encoding, encoded, size - 1).limit == "max_size"


@pytest.mark.req("S12-LIM-05")
def test_limit_holds_for_all_members_together_and_between_codings():
    members = gzip.compress(b"a" * 600) + gzip.compress(b"a" * 400)
    assert len(decode_content("gzip", members, 1000)) == 1000
    refused("limit-exceeded", decode_content, "gzip", members, 999)
    inner = base64.b64encode(b"a" * 999)
    refused("limit-exceeded", decode_content, "base64,gzip", gzip.compress(inner), len(inner) - 1)
    assert decode_content("base64,gzip", gzip.compress(inner), len(inner)) == b"a" * 999
    assert decode_content("gzip", gzip.compress(b""), 0) == b""


def flat_bomb(wbits):
    """A gigabyte of zeros in one deflate stream; its end does not matter."""
    engine = zlib.compressobj(wbits=-15)
    block = engine.compress(bytes(2**20)) + engine.flush(zlib.Z_FULL_FLUSH)
    return {31: gzip.compress(b"")[:10], 15: b"\x78\x9c", -15: b""}[wbits] + block * 1024


@pytest.mark.req("S12-LIM-05", "WISH-ENC-01")
@pytest.mark.parametrize(
    ("encoding", "bomb"),
    [
        ("gzip", flat_bomb(31)),
        ("deflate", flat_bomb(15)),
        ("deflate", flat_bomb(-15)),
        ("gzip", gzip.compress(bytes(2**24)) * 64),
        ("gzip,gzip", gzip.compress(flat_bomb(31))),
        ("gzip,base64", base64.b64encode(flat_bomb(31))),
    ],
    ids=["gzip", "zlib", "raw", "members", "nested", "under base64"],
)
@tracing()
def test_a_bomb_of_a_gigabyte_is_refused_in_little_memory(encoding, bomb):
    limit = 4 * 2**20
    refused("limit-exceeded", decode_content, encoding, bomb, limit)
    assert peak() < 4 * limit


@pytest.mark.req("S12-LIM-05")
def test_default_limit_is_that_of_a_body():
    begin = time.perf_counter()
    refused("limit-exceeded", decode_content, "gzip", flat_bomb(31))
    assert time.perf_counter() - begin < patience(10)
    assert len(decode_content("gzip", gzip.compress(bytes(100 * 2**20), 1))) == 100 * 2**20


@pytest.mark.req("S12-LIM-05")
def test_tiny_members_take_linear_time():
    empty = gzip.compress(b"", mtime=0)
    begin = time.perf_counter()
    assert decode_content("gzip", empty * 200_000) == b""
    assert time.perf_counter() - begin < patience(8)
