"""Transformations between XML and JSON, and content-encodings: trees, and what subscriptions get over real frames."""

import gzip
import json
import time

import pytest
from broker.harness import Bench
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patience
from profiles import examples
from traced import peak, tracing

pytest.importorskip("defusedxml")
from stompcodec.broker import bodies as transform
from stompcodec.broker.bodies import FORMS, Element, parse_json, parse_xml, write_json, write_xml
from stompcodec.content import decode_content, encode_content
from stompcodec.errors import ContentError

MAP_XML = (
    "<map>\n  <entry>\n    <string>name</string>\n    <string>Dejan</string>\n  </entry>\n  <entry>\n"
    "    <string>city</string>\n    <string>Belgrade</string>\n  </entry>\n</map>\n"
)
MAP_JSON = '{"map":{"entry":[{"string":["name","Dejan"]},{"string":["city","Belgrade"]}]}}'
MOST = 10**6


def same(one, other):
    parts = [(each.name, each.text, each.attributes, len(each.children)) for each in (one, other)]
    return parts[0] == parts[1] and all(map(same, one.children, other.children))


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"))
NUMBERS = st.one_of(st.integers().map(str), st.floats().map(repr), st.sampled_from(["007", "1.50", "-0", "true"]))


@st.composite
def elements(draw, depth=3):
    element = Element(draw(st.one_of(NAMES, st.sampled_from(["int", "double", "boolean", "string"]))))
    element.attributes = draw(st.dictionaries(NAMES, TEXTS, max_size=2))
    if depth and draw(st.booleans()):
        names = draw(st.lists(NAMES, max_size=3, unique=True))
        for name in names:  # those of one name beside each other: JSON cannot tell it otherwise
            for _ in range(draw(st.integers(1, 2))):
                child = draw(elements(depth - 1))
                child.name = name
                element.children.append(child)
    if not element.children:
        element.text = draw(st.one_of(TEXTS, NUMBERS))
    return element


@pytest.mark.req("WISH-TRF-02", "WISH-TRF-03")
@settings(max_examples=examples(150))
@given(elements())
def test_a_tree_survives_both_notations(tree):
    assert same(parse_xml(write_xml(tree, MOST)), tree)
    assert same(parse_json(write_json(tree, MOST)), tree)
    once = write_json(parse_xml(write_xml(tree, MOST)), MOST)
    assert write_json(parse_json(once), MOST) == once


def transformed(body, source, target):
    return transform.transformed(body, FORMS[source], FORMS[target], MOST)


def as_xml(body):
    return transformed(body, "jms-object-json", "jms-object-xml")


BILLION = b'<!DOCTYPE z [<!ENTITY a "aaaa">'
BILLION += b"".join(b'<!ENTITY %c "%b">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(20)) + b"]><z>&u;</z>"
HOSTILE = [
    *((parse_xml, body, "not valid XML") for body in (b"", b"<map>", b"<a></a><b/>")),
    (parse_xml, b"<map>", "not valid XML at line 1"),
    (parse_xml, b'<?xml version="1.0" encoding="nonsense"?><a/>', "not valid XML"),
    *((parse_xml, body, "text between") for body in (b"<a>x<b/></a>", b"<a><b/>x</a>")),
    *((parse_xml, b'<a xmlns="urn:x"/>', "namespaces"), (parse_xml, b"<a>" * 101 + b"</a>" * 101, "nested deeper")),
    (parse_xml, b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a/>', "DTD or entities"),
    (parse_xml, b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "DTD or entities"),
    (parse_xml, BILLION, "DTD or entities"),
    *((parse_json, body, "not a JSON object") for body in (b"", b"[1]", b'{"a":NaN}')),
    (parse_json, b'{"a":' * 200 + b"1" + b"}" * 200, "not a JSON object"),
    (parse_json, b'{"a":' + b"9" * 5000 + b"}", "not a JSON object"),
    *((parse_json, body, "one member, the root") for body in (b"{}", b'{"a":1,"b":2}')),
    (parse_json, b'{"a":[1]}', "root is a list"),
    *((parse_json, body, "list or an object") for body in (b'{"a":{"b":[[1]]}}', b'{"a":{"@b":{}}}')),
    *((parse_json, b'{"a":{"$":"x","b":1}}', "text between"), (parse_json, b'{"\xff":1}', "not UTF-8")),
    # what XML cannot say, and what outgrows its bound
    *((as_xml, body, "a name") for body in (b'{"a":{"b c":1}}', b'{"a":{"<b>":1}}', b'{"' + b"n" * 300 + b'":1}')),
    *((as_xml, body, "control characters") for body in (b'{"a":"\\u0000"}', b'{"a":"\\ud800"}')),
    (as_xml, b'{"a":{"' + b"n" * 200 + b'":[' + b"1," * 40000 + b"1]}}", "too large"),
]


@pytest.mark.parametrize(("read", "body", "why"), HOSTILE)
def test_what_is_hostile_or_cannot_be_said_is_refused_at_once(read, body, why):
    began = time.perf_counter()
    with pytest.raises(ContentError, match=why):
        read(body)
    assert time.perf_counter() - began < patience(5)


def test_an_order_that_json_cannot_say_is_refused():
    for body in (b"<list><int>1</int><string>a</string><int>2</int></list>", b"<p><q><b/><a/><c/><a/></q></p>"):
        with pytest.raises(ContentError, match="not adjacent"):
            transformed(body, "jms-object-xml", "jms-object-json")
    made = transformed(b'{"k":[1,"a",2]}', "jms-map-json", "jms-map-xml")
    assert made == (
        b"<map><entry><string>k</string><list><int>1</int><string>a</string><int>2</int></list></entry></map>"
    )
    with pytest.raises(ContentError, match="not adjacent"):
        transformed(made, "jms-map-xml", "jms-map-json")


@pytest.mark.parametrize(
    "body",
    [
        *(b"<pojo/>", b"<map>x</map>", b"<map><x/></map>", b"<map><entry><string>a</string></entry></map>"),
        b"<map><entry><int>1</int><string>a</string></entry></map>",
    ],
)
def test_a_map_has_the_form_of_a_map(body):
    with pytest.raises(ContentError, match="not a map"):
        transformed(body, "jms-object-xml", "jms-map-json")
    with pytest.raises(ContentError, match="not a map"):
        transformed(body, "jms-map-xml", "jms-map-xml")


def test_what_outgrows_its_bound_is_not_even_built():
    tree = Element("a", "é" * 20)
    for write in (write_xml, write_json):
        octets = write(tree, MOST)
        assert write(tree, len(octets)) == octets
        with pytest.raises(ContentError, match="too large"):
            write(tree, len(octets) - 1)
    body = b'{"a":{"' + b"n" * 200 + b'":[' + b"1," * 100_000 + b"1]}}"
    tree = parse_json(body)
    with tracing():
        with pytest.raises(ContentError, match="too large"):
            write_xml(tree, 10_000)
        assert peak() < 10**6


def test_white_space_in_an_empty_map_means_nothing():
    assert transformed(b"<map>\n</map>", "jms-map-xml", "jms-map-json") == b'{"map":""}'
    assert transformed(b'{"map":""}', "jms-map-json", "jms-map-xml") == b"<map/>"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        *((name, "-5", -5) for name in ("int", "long", "short", "byte")),
        *((name, "2.5", 2.5) for name in ("float", "double")),
        *(("boolean", text, value) for text, value in (("true", True), ("false", False))),
        *((name, text, text) for name, text in (("int", "05"), ("double", "2.50"), ("boolean", "yes"), ("name", "5"))),
    ],
)
def test_elements_of_a_type_become_numbers_and_truth_values(name, text, value):
    body = f"<p><{name}>{text}</{name}></p>".encode()
    written = transformed(body, "jms-object-xml", "jms-object-json")
    assert (written, as_xml(written)) == (json.dumps({"p": {name: value}}, separators=(",", ":")).encode(), body)


def get(bench, body, consumer, **headers):
    """What a subscription with the headers `consumer` gets of a SEND."""
    peer = bench.peer()
    peer.subscribe("/topic/t", **consumer)
    peer.put("/topic/t", body, **headers)
    return peer.next("MESSAGE")


@pytest.mark.req("WISH-TRF-01", "WISH-TRF-02", "WISH-TRF-03", "WISH-TRF-04", "WISH-TYP-01", "WISH-TYP-02")
def test_maps_of_xml_and_json():
    message = get(Bench(), MAP_XML, {"transformation": "jms-map-json"}, transformation="jms-map-xml")
    assert json.loads(message.body) == json.loads(MAP_JSON)
    assert message.headers["message-type"] == message.headers["transformation"] == "jms-map-json"
    assert message.headers["content-type"] == "application/json"
    assert message.headers["content-length"] == str(len(message.body))
    for header in ("transformation", "message_type"):  # both say as much
        headers = {header: "jms-map-json", "content_type": "text/plain"}
        message = get(Bench(), MAP_JSON, {"transformation": "jms-map-xml"}, **headers)
        assert same(parse_xml(message.body), parse_xml(MAP_XML.replace("\n", "").replace("  ", "").encode()))
        assert message.headers["message-type"] == "jms-map-xml"
        types = [value for name, value in message.headers.pairs() if name == "content-type"]
        assert types == ["application/xml;charset=utf-8"]
    message = get(Bench(), MAP_XML, {}, transformation="jms-map-xml")  # who does not ask gets what was sent
    assert (message.body, message.headers["transformation"]) == (MAP_XML.encode(), "jms-map-xml")


@pytest.mark.req("WISH-TRF-01", "WISH-TYP-01")
@pytest.mark.parametrize(
    ("source", "wanted", "name", "body"),
    [
        ("jms-object-xml", "jms-object-json", "jms-object-json", b'{"pojo":{"name":"Dejan"}}'),
        ("jms-object-xml", "jms-json", "jms-object-json", b'{"pojo":{"name":"Dejan"}}'),
        ("jms-object-xml", "jms-xml", "jms-object-xml", b"<pojo><name>Dejan</name></pojo>"),
        ("jms-object-xml", "jms-byte", "jms-byte", b"<pojo><name>Dejan</name></pojo>"),
        ("jms-byte", "jms-byte", "jms-byte", b"<pojo><name>Dejan</name></pojo>"),
    ],
)
def test_objects_and_octets(source, wanted, name, body):
    message = get(Bench(), "<pojo><name>Dejan</name></pojo>", {"transformation": wanted}, transformation=source)
    assert (message.headers["message-type"], message.body) == (name, body)
    assert message.get("transformation-error") is None


@pytest.mark.req("WISH-TRF-04")
@pytest.mark.parametrize(
    ("headers", "body", "why"),
    [
        ({"transformation": "jms-map-json"}, "{", "not a JSON"),
        ({"transformation": "jms-object-json"}, '{"pojo":1}', "not a map"),
        ({"transformation": "jms-byte"}, "x", "bytes message"),
        ({}, "x", "no transformation"),
        ({"transformation": "of-tomorrow"}, "x", "no transformation"),
        ({"transformation": "jms-map-json"}, '{"a":"' + "x" * 2000 + '"}', "larger than 1000"),
        ({"transformation": "jms-map-json", "content_encoding": "gzip"}, "{}", "content-encoding"),
        ({"transformation": "jms-map-json", "transformation_error": "mine"}, "{", "not a JSON"),
    ],
)
def test_what_cannot_be_transformed_comes_as_it_was_sent_and_says_why(headers, body, why):
    message = get(Bench(max_transformed=1000), body, {"transformation": "jms-map-xml"}, **headers)
    assert message.body == body.encode()
    assert why in message.headers["transformation-error"]
    assert message.get("message-type") is None


def test_a_large_message_is_never_transformed():
    consumer = {"transformation": "jms-map-xml", "content_encoding": "gzip"}
    message = get(Bench(large=10), '{"a":"0123456789"}', consumer, transformation="jms-map-json")
    assert message.body == b'{"a":"0123456789"}'
    assert message.headers["transformation-error"] == "the body is too large"


@pytest.mark.req("WISH-ENC-01", "WISH-ENC-02")
@pytest.mark.parametrize("sent", [None, "gzip", "base64", "gzip, base64", "identity"])
@pytest.mark.parametrize("wanted", ["gzip", "base64", "gzip, base64", "deflate", "identity"])
def test_a_subscription_gets_bodies_in_the_coding_it_asks_for(sent, wanted):
    body = bytes(range(256)) * 4
    headers = {} if sent is None else {"content_encoding": sent}
    message = get(Bench(), encode_content(sent, body), {"content_encoding": wanted}, **headers)
    assert message.get("content-encoding") == (None if wanted == "identity" and sent != "identity" else wanted)
    assert decode_content(message.get("content-encoding"), message.body) == body
    assert message.body == encode_content(wanted, body)


@pytest.mark.req("WISH-ENC-01")
@pytest.mark.parametrize(
    "body",
    [b"no gzip", gzip.compress(bytes(5000)), encode_content("gzip", bytes(10**7))],
    ids=["none", "small", "bomb"],
)
def test_a_bomb_is_not_inflated(body):
    message = get(Bench(max_inflated=4000), body, {"content_encoding": "identity"}, content_encoding="gzip")
    assert (message.body, message.headers["content-encoding"]) == (body, "gzip")
    assert "transformation-error" in message.headers


@pytest.mark.parametrize(
    ("config", "headers", "why"),
    [
        ({}, {"transformation": "of-tomorrow"}, "unknown transformation"),
        ({}, {"content_encoding": "brotli"}, "unknown content-encoding"),
        ({"max_transformed": 0}, {"transformation": "jms-map-xml"}, "transformations are off"),
        ({"max_inflated": 0}, {"content_encoding": "gzip"}, "content-encoding is off"),
    ],
)
def test_what_cannot_be_had_is_refused(config, headers, why):
    peer = Bench(**config).peer()
    peer.subscribe("/queue/a", **headers)
    assert peer.error().headers["message"] == why


def test_without_the_package_a_subscription_is_refused_and_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "defusedxml.ElementTree", None)
    peer = Bench().peer()
    peer.subscribe("/queue/a", transformation="jms-map-xml")
    error = peer.error()
    assert error.headers["message"] == "transformations are not installed"
    assert b"stompcodec[broker]" in error.body


def test_a_topic_transforms_once_for_all_that_want_the_same(monkeypatch):
    bench, calls, made = Bench(), [], transform.transformed
    monkeypatch.setattr(transform, "transformed", lambda *args: calls.append(1) or made(*args))
    peers = [bench.peer() for _ in range(5)]
    for peer in peers:
        peer.subscribe("/topic/t", transformation="jms-map-xml")
    peers[0].put("/topic/t", MAP_JSON, transformation="jms-map-json")
    assert (len({peer.next("MESSAGE").body for peer in peers}), calls) == (1, [1])
