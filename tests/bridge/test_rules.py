"""What a bridge is told and what it makes of it: headers for every pair of brokers, names, paths, keys, and the map."""

import platform
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, parse, serialize
from stompcodec.bridge import Mapping, Request, Rule
from stompcodec.bridge.headers import (
    ARGUMENTS,
    DELIVERY,
    MOST_HOPS,
    PATH,
    SOURCES,
    TAKERS,
    Hop,
    broker_name,
    check_name,
    circle,
    dead_letter,
    extended,
    idempotency_key,
    may_be_one,
    same_broker,
)
from stompcodec.bridge.sources import GIVERS, _wild_lanes
from stompcodec.broker import values
from stompcodec.broker.management import management
from stompcodec.cli.looking import kept as moved
from stompcodec.client import dialects
from stompcodec.uri import parse_uri

BROKERS = sorted(TAKERS)
VERSIONS = ["1.0", "1.1", "1.2"]
NOW = 1_700_000_000.0


def hop(giver="stompcodec", taker="stompcodec", version="1.2", **more):
    return Hop("a:1", giver, taker, version, **more)


def headers(pairs, now=NOW, key="k", **options):
    return hop(**options).headers(pairs, key, now)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
KNOWN = st.sampled_from(
    [*DELIVERY, *SOURCES, *ARGUMENTS, "expires", "expiration", "priority", "persistent", "reply-to", "n"]
)
PAIRS = st.lists(st.tuples(st.one_of(KNOWN, TEXT.filter(bool)), st.one_of(TEXT, st.just("60000"))), max_size=12)


@given(PAIRS, st.sampled_from(BROKERS), st.sampled_from(BROKERS), st.sampled_from(VERSIONS))
def test_what_comes_out_can_be_sent_and_has_nothing_of_the_delivery(pairs, giver, taker, version):
    made = headers(pairs, giver=giver, taker=taker, version=version)
    octets = serialize(Frame("SEND", [("destination", "/queue/a"), *made]), version)
    (frame,) = parse(octets, version)
    names = [name for name, _ in made]
    assert names.count("bridge-path") == 1
    assert names.count(TAKERS[taker].duplicate) == 1
    assert not (DELIVERY - {"bridge-path", "bridge-escaped", "bridge-dropped"}).intersection(names)
    assert not (SOURCES - {TAKERS[taker].duplicate}).intersection(names)
    assert frame.get("bridge-path").endswith("a:1")
    if version != "1.0":
        assert list(frame.headers.pairs())[1:-1] == made if octets.count(b"content-length") else True


SPELLED = st.one_of(
    TEXT, st.sampled_from(["True", " true ", "FALSE", "maybe", "1", "high", "200", " 7", "-1", "9" * 19])
)
READ = st.sampled_from([*values.NAMES["SEND"], *ARGUMENTS])


@given(st.lists(st.tuples(READ, SPELLED), max_size=8), st.sampled_from(BROKERS), st.sampled_from(BROKERS))
def test_no_broker_refuses_a_value_that_is_sent_on(pairs, giver, taker):
    """Also not one that an older broker has ignored; by the bridge, as its dead letter, and by `move`."""
    letter = dead_letter(Frame("MESSAGE", pairs).headers, "/queue/a", "why", giver)
    for made, broker in (
        (headers(pairs, giver=giver, taker=taker), taker),
        (letter, giver),
        (moved(pairs, giver), giver),
    ):
        dialect = "stompcodec" if broker == "unknown" else broker
        for name, value in made:
            assert name not in values.NAMES["SEND"] or values.read_value(name, value, dialect) is not None
            assert name not in ARGUMENTS or not TAKERS[broker].arguments
        for name, value in pairs:
            if name == "persistent" and dict(reversed(pairs))[name] == value:
                assert ("persistent", "true" if value.strip(" ").lower() in ("true", "1") else "false") in made


NAMED = st.sampled_from(sorted({name for row in dialects.BROKERS.values() for name in row.values} - {"destination"}))
ODD = st.sampled_from(["abc", "", "-1", "12", "3000000000", "1.5", "/queue/", "ANY", "* * * * *"])


@given(st.lists(st.tuples(NAMED, ODD), max_size=6), st.sampled_from(BROKERS), st.sampled_from(BROKERS))
def test_the_client_refuses_no_value_that_is_sent_on(pairs, giver, taker):
    for made in (headers(pairs, giver=giver, taker=taker), moved(pairs, taker), moved(pairs, taker, returns=True)):
        dialects.BROKERS[taker].suit([("destination", "/queue/a"), *made])


@given(PAIRS, st.sampled_from(BROKERS))
def test_nothing_of_the_user_is_lost_in_versions_that_can_write_it(pairs, taker):
    kept = headers(pairs, taker=taker)
    special = (
        DELIVERY
        | SOURCES
        | (ARGUMENTS if TAKERS[taker].arguments else set())
        | {"expires", "expiration", "priority", "persistent", "reply-to"}
    )
    for name, value in pairs:
        if name not in special and dict(reversed(pairs))[name] == value:
            assert (name, value) in kept


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_what_the_source_made_stays_readable_and_the_first_origin_stays(name):
    assert (f"original-{name}", "x") in headers([(name, "x")])
    pairs = [(name, "later"), (f"original-{name}", "first")]
    assert [pair for pair in headers(pairs) if pair[0].startswith("original")] == [(f"original-{name}", "first")]


@pytest.mark.parametrize("taker", BROKERS)
def test_the_target_makes_its_queues_as_it_likes(taker):
    for name in ARGUMENTS:
        same = taker == "activemq"  # which does not read these
        assert headers([(name, "x")], taker=taker)[0] == ((name if same else f"original-{name}"), "x")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(("name", "value"), [("a\rb", "50%"), ("50%", "a\rb"), ("a\rb%", "%\0")])
def test_a_header_is_escaped_as_a_whole(version, name, value):
    """So that a reader can decode name and value, without guessing which of them was escaped."""
    pairs = headers([(name, value), ("p", "50%")], version=version)
    new, text = pairs[0]
    assert (unquote(new), unquote(text)) == (name, value)
    assert ("bridge-escaped", new) in pairs
    assert ("p", "50%") in pairs


def test_what_belongs_to_a_delivery_is_left_out():
    for name in DELIVERY - {"bridge-path"}:
        assert headers([(name, "x")]) == [("bridge-path", "a:1"), ("idempotency-key", "k")], name


LATER = str(round(NOW * 1000) + 60_000)


@pytest.mark.parametrize(
    ("taker", "given", "made"),
    [
        ("stompcodec", ("expires", LATER), [("expires", LATER)]),
        ("activemq", ("expires", LATER), [("expires", LATER)]),
        ("artemis", ("expires", LATER), [("expires", LATER)]),
        ("rabbitmq", ("expires", LATER), [("expiration", "60000")]),
        ("rabbitmq", ("expires", "1"), [("expiration", "0")]),
        ("rabbitmq", ("expires", "0"), []),
        ("activemq", ("expires", "0"), [("expires", "0")]),
        ("stompcodec", ("expiration", "60000"), [("expiration", "60000")]),
        ("rabbitmq", ("expiration", "60000"), [("expiration", "60000")]),
        ("activemq", ("expiration", "60000"), [("expires", LATER)]),
        ("artemis", ("expiration", "60000"), [("expires", LATER)]),
        ("activemq", ("expires", "soon"), [("original-expires", "soon")]),
        ("rabbitmq", ("expiration", "-1"), [("original-expiration", "-1")]),
        ("stompcodec", ("expires", "9" * 30), [("original-expires", "9" * 30)]),
        ("stompcodec", ("priority", "7"), [("priority", "7")]),
        ("activemq", ("priority", "200"), [("priority", "9")]),
        ("rabbitmq", ("priority", "200"), [("priority", "200")]),
        ("activemq", ("priority", "high"), [("original-priority", "high")]),
        ("rabbitmq", ("persistent", "1"), [("persistent", "true")]),
        ("activemq", ("persistent", "no"), [("persistent", "false")]),
        ("stompcodec", ("persistent", " True "), [("persistent", "true")]),
        ("stompcodec", ("JMSXGroupSeq", "-1"), [("JMSXGroupSeq", "-1")]),
        ("activemq", ("JMSXGroupSeq", "last"), [("original-JMSXGroupSeq", "last")]),
        ("stompcodec", ("reply-to", "/temp-queue/a"), [("original-reply-to", "/temp-queue/a")]),
        ("rabbitmq", ("reply-to", "/remote-temp-queue/a"), [("original-reply-to", "/remote-temp-queue/a")]),
        ("stompcodec", ("reply-to", "/reply-queue/x"), [("original-reply-to", "/reply-queue/x")]),
        ("stompcodec", ("reply-to", "/queue/a"), [("reply-to", "/queue/b")]),
        ("stompcodec", ("reply-to", "/queue/other"), [("reply-to", "/queue/other")]),
    ],
)
def test_what_means_the_same_at_the_target(taker, given, made):
    target_of = {"/queue/a": "/queue/b"}.get
    key = TAKERS[taker].duplicate
    assert headers([given], taker=taker, target_of=target_of) == [*made, ("bridge-path", "a:1"), (key, "k")]


def test_a_path_is_extended_and_messages_can_be_marked_persistent():
    made = headers([("bridge-path", "x,y"), ("persistent", "false")], persistent=True, key=None)
    assert made == [("persistent", "true"), ("bridge-path", "x,y,a:1")]


def test_repeated_headers_where_the_target_keeps_them():
    pairs = [("n", "1"), ("n", "2")]
    assert headers(pairs)[:2] == pairs
    assert headers(pairs, taker="rabbitmq")[:2] == [("n", "1"), ("bridge-path", "a:1")]


def test_what_1_0_cannot_write_is_escaped_and_said():
    made = headers([("a:b", "c\nd"), ("good", "100%:1")], version="1.0")
    assert made[:3] == [("a%3Ab", "c%0Ad"), ("good", "100%:1"), ("bridge-escaped", "a%3Ab")]
    assert headers([("a:b", "c\nd\r")], version="1.1")[:2] == [("a:b", "c\nd%0D"), ("bridge-escaped", "a:b")]
    assert headers([("a:b", "c\nd\r")])[0] == ("a:b", "c\nd\r")


def test_what_is_too_large_for_the_target_is_left_out_and_said():
    made = headers([("big", "x" * 20_000), ("small", "1")], taker="activemq")
    assert made[:2] == [("small", "1"), ("bridge-dropped", "big")]
    assert headers([("big", "x" * 20_000)], taker="stompcodec")[0][0] == "big"
    many = headers([(f"n{number}", "1") for number in range(2000)])
    assert len(many) < 1000
    assert dict(many)["bridge-dropped"].startswith("n900 n901")


@pytest.mark.parametrize(
    ("giver", "taker", "pairs", "text"),
    [
        ("activemq", "activemq", {}, True),
        ("activemq", "activemq", {"content-length": "2"}, False),
        ("activemq", "stompcodec", {}, False),
        ("stompcodec", "activemq", {"content-length": "2", "content-type": "text/plain"}, True),
        ("stompcodec", "artemis", {"content-length": "2"}, False),
        ("stompcodec", "rabbitmq", {"content-type": "text/plain"}, False),
    ],
)
def test_text_messages_of_jms(giver, taker, pairs, text):
    frame = Frame("MESSAGE", pairs, b"hi")
    assert hop(giver, taker).body(frame) == ("hi" if text else b"hi")
    assert hop(giver, taker).body(Frame("MESSAGE", pairs, b"\xff")) == b"\xff"


# ---- names of brokers, paths, and keys ----

HERE = platform.node().lower()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("stomp://ann:secret@Host.example", "host.example:61613"),
        ("stomp://host/v", "host:61613/v"),
        ("stomp://host?vhost=v", "host:61613/v"),
        ("ws://host:8080/stomp?token=secret", "host:8080"),
        ("failover:(stomp://b,stomp://ann:secret@a)", "a:61613"),
        ("failover:(stomp://a,stomp://b)", "a:61613"),
        ("stomp://127.0.0.1", f"{HERE}:61613"),
        ("stomp://[::1]:5", f"{HERE}:5"),
        ("stomp://0.0.0.0", f"{HERE}:61613"),
        ("stomp://Host.example.", "host.example:61613"),
        ("stomp://localhost/a%2Cb%20c", f"{HERE}:61613/a%2Cb%20c"),
    ],
)
def test_a_name_has_no_secret_and_is_one_for_each_broker(url, name):
    assert broker_name(parse_uri(url)) == name
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("stomp://a", "stomp://a", True),
        ("stomp://ann:1@a", "stomp://bob:2@A:61613", True),
        ("stomp://a", "stomp://a:61614", False),
        ("stomp://a/v", "stomp://a/w", False),
        ("stomp://a", "stomp://b.invalid", False),
        ("stomp://localhost", "tcp://127.0.0.1", True),
        ("stomp://127.0.0.2", "stomp://[::1]", True),
        ("stomp://a", "failover:(stomp://c.invalid,stomp://a)", True),
        ("stomp://localhost", "stomp://0.0.0.0", True),
        ("stomp://localhost", "stomp://[::]", True),
        ("stomp://localhost", "stomp://[::ffff:127.0.0.1]", True),
        ("stomp://localhost", "stomp://Localhost.", True),
        ("stomp://a.invalid", "stomp://A.invalid.", True),
        ("stomp://localhost", "stomp+ssl://localhost:61613", True),
        ("stomp://localhost", "stomp://10.0.0.1", False),
    ],
)
def test_the_same_broker(one, other, same):
    assert same_broker(parse_uri(one), parse_uri(other)) == same


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("stomp://localhost", "stomp://127.0.0.1:61614", True),
        ("stomp://localhost", f"stomp://{HERE}:61614", True),
        ("stomp://a.invalid", "ws://A.invalid:1/ws", True),
        ("stomp://a.invalid/v", "stomp://a.invalid/w", True),
        ("stomp://a.invalid", "failover:(stomp://b.invalid,stomp://a.invalid)", True),
        ("stomp://a.invalid", "stomp://b.invalid", False),
        ("stomp://localhost", "stomp://10.0.0.1", False),
    ],
)
def test_ends_on_one_machine(one, other, may):
    assert may_be_one(parse_uri(one), parse_uri(other)) == may


@pytest.mark.parametrize("name", ["", "a,b", " a", "a\n", "x" * 256])
def test_names_that_cannot_stand_in_a_path(name):
    with pytest.raises(ValueError, match="a name has 1 to 255"):
        check_name(name)


HOSTS = st.text("abc.:/1", min_size=1, max_size=5)


@given(st.lists(HOSTS, max_size=5), HOSTS, HOSTS)
def test_a_path_never_has_a_broker_twice(brokers, source, target):
    path = None
    for broker in brokers:
        path = extended(path, broker)
    assert (circle(path, source, target) is None) == (source not in brokers and target not in brokers)


def test_a_path_has_an_end():
    path = ",".join(str(number) for number in range(MOST_HOPS))
    assert "carried 16 times" in circle(path, "a", "b")
    assert circle(path.rpartition(",")[0], "a", "b") is None


@given(st.tuples(HOSTS, HOSTS, HOSTS), st.tuples(HOSTS, HOSTS, HOSTS))
def test_a_key_is_that_of_one_message(one, other):
    assert (idempotency_key(*one) == idempotency_key(*other)) == (one == other)


def test_the_broker_knows_what_a_bridge_carries():
    assert management._CARRIED == PATH


# ---- the map of destinations ----

NAMES = st.text("ab./é", min_size=1, max_size=8).map(lambda rest: f"/queue/{rest}")


@given(NAMES, NAMES)
def test_an_exact_rule_is_about_one_name(source, other):
    mapping = Mapping.parse([f"{source}=/queue/to"])
    assert mapping.target_of(source) == "/queue/to"
    assert mapping.target_of(other) == ("/queue/to" if other == source else None)


@given(NAMES, NAMES, st.text("ab.", max_size=5))
def test_a_star_keeps_the_rest(source, target, rest):
    mapping = Mapping.parse([f"{source}*={target}*"])
    assert mapping.target_of(source + rest) == target + rest
    assert Mapping.parse([f"{source}*={target}"]).target_of(source + rest) == target
    assert Mapping.parse([f"{source}*"]).target_of(source + rest) == source + rest


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), NAMES)
def test_the_first_rule_counts_and_an_exact_one_before_patterns(sources, name):
    rules = [Rule(f"{source}*", f"/queue/{number}") for number, source in enumerate(sources)]
    fitting = [rule.target for rule in rules if name.startswith(rule.source[:-1])]
    assert Mapping(rules).target_of(name) == (fitting[0] if fitting else None)
    assert Mapping([*rules, Rule(name, "/queue/exact")]).target_of(name) == "/queue/exact"


def test_what_patterns_do_not_match():
    mapping = Mapping.parse(["*"], excluded=["/queue/dead"])
    names = ["/queue/a", "/queue/dead", "/temp-queue/x", "/reply-queue/amq.gen", "/topic/b", "/queue/a"]
    assert list(mapping.matching(names)) == ["/queue/a", "/topic/b"]
    assert list(Mapping.parse(["/queue/a"]).matching(names)) == []


BAD = {
    "": "write SOURCE=TARGET",
    "=/queue/a": "write SOURCE=TARGET",
    "/queue/a=": "write SOURCE=TARGET",
    "/queue/a=/queue/b=/queue/c": "more than one equals sign",
    "/queue/a=/queue/*": "the star of TARGET",
    "/queue/a*b": "a star stands at the end",
    "/queue/a*b*=/queue/c": "a star stands at the end",
    "/queue/a\n": "no control characters",
    " /queue/a": "no spaces around it",
    "/queue/a= /queue/b": "no spaces around it",
    "/temp-queue/a": "belongs to one session",
    "/queue/a=/temp-queue/a": "belongs to one session",
    "/queue/" + "a" * 4096: "at most 4096 characters",
}


@pytest.mark.parametrize(("text", "why"), BAD.items(), ids=range(len(BAD)))
def test_a_malformed_rule_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        Mapping.parse([text])


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "no destination"),
        (["/queue/a", "/queue/a=/queue/b"], "mapped twice"),
        (["/queue/dead=/queue/a"], "where refused messages go"),
    ],
)
def test_rules_that_do_not_go_together(texts, why):
    with pytest.raises(ValueError, match=why):
        Mapping.parse(texts, excluded=["/queue/dead"])


@pytest.mark.parametrize(
    ("text", "native"),
    [("/topic/a.>", True), ("/topic/#", True), ("/topic/a.*.b.>", True), ("/topic/a>b", False), ("/queue/a", False)],
)
def test_wildcards_of_the_broker_keep_the_names(text, native):
    assert Rule.parse(text).is_native == native
    assert not Rule.parse(text).is_pattern


@pytest.mark.parametrize(
    ("selector", "made"),
    [(None, "bridge_refused IS NULL"), ("a = 1 OR b = 2", "bridge_refused IS NULL AND (a = 1 OR b = 2)")],
)
def test_a_wildcard_of_activemq_leaves_out_dead_letters(selector, made):
    mapping = Mapping.parse(["/queue/a.*"])
    (lane,) = _wild_lanes(GIVERS["activemq"], mapping.rules[0], Request(mapping, selector=selector))
    assert (lane.destination, lane.selector) == ("/queue/a.>", made)


@pytest.mark.parametrize(("broker", "wild"), [("activemq", ">"), ("rabbitmq", "#"), ("artemis", "#")])
def test_a_wildcard_for_topics_has_the_users_selector_alone(broker, wild):
    mapping = Mapping.parse(["/topic/a.*"])
    (lane,) = _wild_lanes(GIVERS[broker], mapping.rules[0], Request(mapping, selector="a = 1"))
    assert (lane.destination, lane.selector) == (f"/topic/a.{wild}", "a = 1")
