"""What a bridge makes of headers for every pair of brokers, names, paths, keys; what its carrier drops; delays."""

import asyncio
import platform
import ssl
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, parse, serialize
from stompcodec.bridge import End, Mapping, Request, Rule
from stompcodec.bridge import carrier as carrier_module
from stompcodec.bridge import headers as hops
from stompcodec.bridge import sources as ends_module
from stompcodec.bridge.carrier import Carrier, Entry, Tally
from stompcodec.bridge.sources import GIVERS, _wild_lanes
from stompcodec.cli.looking import kept as moved
from stompcodec.client import Backoff, dialects
from stompcodec.client.headers import TEMPORARY
from stompcodec.client.messages import BaseMessage, Subscription
from stompcodec.uri import parse_uri

BROKERS = st.sampled_from(sorted(hops.TAKERS))
NOW = 1_700_000_000.0
LATER = str(round(NOW * 1000) + 60_000)


def hop(giver="stompcodec", taker="stompcodec", version="1.2", **more):
    return hops.Hop("a:1", giver, taker, version, **more)


def headers(pairs, now=NOW, key="k", **options):
    return hop(**options).headers(pairs, key, now)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
MEANT = {"expires", "expiration", "priority", "persistent", "reply-to"}
KNOWN = st.sampled_from(sorted({*hops.DELIVERY, *hops.SOURCES, *hops.ARGUMENTS, *MEANT, "n"}))
PAIRS = st.lists(st.tuples(st.one_of(KNOWN, TEXT.filter(bool)), st.one_of(TEXT, st.just("60000"))), max_size=12)


@given(PAIRS, BROKERS, BROKERS, st.sampled_from(["1.0", "1.1", "1.2"]))
def test_what_comes_out_can_be_sent_and_has_nothing_of_the_delivery(pairs, giver, taker, version):
    made = headers(pairs, giver=giver, taker=taker, version=version)
    octets = serialize(Frame("SEND", [("destination", "/queue/a"), *made]), version)
    (frame,) = parse(octets, version)
    names = [name for name, _ in made]
    assert names.count("bridge-path") == 1
    assert names.count(dialects.BROKERS[taker].duplicate) == 1
    assert not (hops.DELIVERY - {"bridge-path", "bridge-escaped", "bridge-dropped"}).intersection(names)
    assert not (hops.SOURCES - {dialects.BROKERS[taker].duplicate}).intersection(names)
    assert frame.get("bridge-path").endswith("a:1")
    if version != "1.0":
        assert frame.headers.pairs()[1:] == made


@given(PAIRS, BROKERS)
def test_nothing_of_the_user_is_lost_in_versions_that_can_write_it(pairs, taker):
    made = headers(pairs, taker=taker)
    special = hops.DELIVERY | hops.SOURCES | MEANT | (hops.ARGUMENTS if hops.TAKERS[taker].arguments else set())
    for name, value in pairs:
        if name not in special and dict(reversed(pairs))[name] == value:
            assert (name, value) in made


NAMED = st.sampled_from(sorted({name for row in dialects.BROKERS.values() for name in row.values} - {"destination"}))
ODD = st.sampled_from(["abc", "", "-1", "12", "3000000000", "1.5", "/queue/", "ANY", "* * * * *"])


@given(st.lists(st.tuples(NAMED, ODD), max_size=6), BROKERS, BROKERS)
def test_the_client_refuses_no_value_that_is_sent_on(pairs, giver, taker):
    for made in (headers(pairs, giver=giver, taker=taker), moved(pairs, taker), moved(pairs, taker, returns=True)):
        dialects.BROKERS[taker].suit([("destination", "/queue/a"), *made])


@pytest.mark.parametrize(
    ("taker", "name", "value", "made"),
    [
        ("stompcodec", "expires", LATER, [("expires", LATER)]),
        ("rabbitmq", "expires", LATER, [("expiration", "60000")]),
        *(("rabbitmq", "expires", "1", [("expiration", "0")]), ("rabbitmq", "expires", "0", [])),
        ("activemq", "expires", "0", [("expires", "0")]),
        ("rabbitmq", "expiration", "60000", [("expiration", "60000")]),
        ("activemq", "expiration", "60000", [("expires", LATER)]),
        ("activemq", "expires", "soon", [("original-expires", "soon")]),
        ("rabbitmq", "expiration", "-1", [("original-expiration", "-1")]),
        ("stompcodec", "expires", "9" * 30, [("original-expires", "9" * 30)]),
        ("activemq", "priority", "200", [("priority", "9")]),
        ("rabbitmq", "priority", "200", [("priority", "200")]),
        ("activemq", "priority", "high", [("original-priority", "high")]),
        ("rabbitmq", "persistent", "1", [("persistent", "true")]),
        ("activemq", "persistent", "no", [("persistent", "false")]),
        ("stompcodec", "persistent", " True ", [("persistent", "true")]),
        ("stompcodec", "JMSXGroupSeq", "-1", [("JMSXGroupSeq", "-1")]),
        ("activemq", "JMSXGroupSeq", "last", [("original-JMSXGroupSeq", "last")]),
        ("stompcodec", "reply-to", "/temp-queue/a", [("original-reply-to", "/temp-queue/a")]),
        ("stompcodec", "reply-to", "/reply-queue/x", [("original-reply-to", "/reply-queue/x")]),
        ("activemq", "reply-to", "temp-queue://x", [("original-reply-to", "temp-queue://x")]),
        ("stompcodec", "reply-to", "/queue/a", [("reply-to", "/queue/b")]),
        ("stompcodec", "reply-to", "/queue/other", [("reply-to", "/queue/other")]),
    ],
)
def test_what_means_the_same_at_the_target(taker, name, value, made):
    found = headers([(name, value)], taker=taker, target_of={"/queue/a": "/queue/b"}.get)
    assert found == [*made, ("bridge-path", "a:1"), (dialects.BROKERS[taker].duplicate, "k")]


def test_what_cannot_be_written_is_escaped_or_left_out_and_said():
    made = headers([("a:b", "c\nd"), ("good", "100%:1")], version="1.0")
    assert made[:3] == [("a%3Ab", "c%0Ad"), ("good", "100%:1"), ("bridge-escaped", "a%3Ab")]
    assert headers([("a:b", "c\nd\r")], version="1.1")[:2] == [("a:b", "c\nd%0D"), ("bridge-escaped", "a:b")]
    assert headers([("a:b", "c\nd\r")])[0] == ("a:b", "c\nd\r")
    made = headers([("big", "x" * 20_000), ("small", "1")], taker="activemq")
    assert made[:2] == [("small", "1"), ("bridge-dropped", "big")]
    assert headers([("big", "x" * 20_000)], taker="stompcodec")[0][0] == "big"
    many = headers([(f"n{number}", "1") for number in range(2000)])
    assert (len(many) < 1000, dict(many)["bridge-dropped"].startswith("n900 n901")) == (True, True)
    made = headers([("bridge-path", "x,y"), ("persistent", "false")], persistent=True, key=None)
    assert made == [("persistent", "true"), ("bridge-path", "x,y,a:1")]


@pytest.mark.parametrize(
    ("giver", "option", "pairs", "text"),
    [
        *(("activemq", None, {}, True), ("activemq", None, {"content-length": "2"}, False)),
        *(("activemq", True, {"content-length": "2"}, True), ("activemq", False, {"content-type": "text/x"}, False)),
        ("artemis", None, {"message-id": "1", "content-length": "2"}, True),
        ("artemis", None, {"content-length": "2", "message-id": "1"}, False),
        ("stompcodec", None, {"content-length": "2", "content-type": "text/plain"}, True),
        ("stompcodec", None, {"message-id": "1", "content-length": "2"}, False),
        ("unknown", None, {"message-id": "1", "content-length": "2"}, True),  # perhaps Artemis
    ],
)
def test_text_messages_of_jms(giver, option, pairs, text):
    way = hop(giver, text=option)
    assert way.body(Frame("MESSAGE", pairs, b"hi")) == ("hi" if text else b"hi")
    assert way.body(Frame("MESSAGE", pairs, b"\xff")) == b"\xff"


HERE = platform.node().lower()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        *(("stomp://ann:secret@Host.example", "host.example:61613"), ("stomp://host/v", "host:61613/v")),
        *(("stomp://host?vhost=v", "host:61613/v"), ("ws://host:8080/stomp?token=secret", "host:8080")),
        *(("failover:(stomp://b,stomp://ann:secret@a)", "a:61613"), ("stomp://127.0.0.1", f"{HERE}:61613")),
        *(("stomp://0.0.0.0", f"{HERE}:61613"), ("stomp://Host.example.", "host.example:61613")),
        ("stomp://localhost/a%2Cb%20c", f"{HERE}:61613/a%2Cb%20c"),
    ],
)
def test_a_name_has_no_secret_and_is_one_for_each_broker(url, name):
    assert hops.broker_name(parse_uri(url)) == hops.check_name(name) == name


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("stomp://localhost", "stomp://127.0.0.1:61614", True),
        *(("stomp://localhost", f"stomp://{HERE}:61614", True), ("stomp://a.invalid", "ws://A.invalid:1/ws", True)),
        ("stomp://a.invalid/v", "stomp://a.invalid/w", True),
        ("stomp://a.invalid", "failover:(stomp://b.invalid,stomp://a.invalid)", True),
        *(("stomp://a.invalid", "stomp://b.invalid", False), ("stomp://localhost", "stomp://10.0.0.1", False)),
    ],
)
def test_ends_on_one_machine(one, other, may):
    assert hops.may_be_one(parse_uri(one), parse_uri(other)) == may


@pytest.mark.parametrize("name", ["", "a,b", " a", "a\n", "x" * 256])
def test_names_that_cannot_stand_in_a_path(name):
    with pytest.raises(ValueError, match="a name has 1 to 255"):
        hops.check_name(name)


HOSTS = st.text("abc.:/1", min_size=1, max_size=5)


@given(st.lists(HOSTS, max_size=5), HOSTS, HOSTS)
def test_a_path_never_has_a_broker_twice(brokers, source, target):
    path = None
    for broker in brokers:
        path = hops.extended(path, broker)
    assert (hops.circle(path, source, target) is None) == (source not in brokers and target not in brokers)


def test_a_path_has_an_end():
    path = ",".join(str(number) for number in range(hops.MOST_HOPS))
    assert "carried 16 times" in hops.circle(path, "a", "b")
    assert hops.circle(path.rpartition(",")[0], "a", "b") is None


NAMES = st.text("ab./é", min_size=1, max_size=8).map(lambda rest: f"/queue/{rest}")


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), NAMES)
def test_the_first_rule_counts_and_an_exact_one_before_patterns(sources, name):
    rules = [Rule(f"{source}*", f"/queue/{number}") for number, source in enumerate(sources)]
    fitting = [rule.target for rule in rules if name.startswith(rule.source[:-1])]
    assert Mapping(rules).target_of(name) == (fitting[0] if fitting else None)
    assert Mapping([*rules, Rule(name, "/queue/exact")]).target_of(name) == "/queue/exact"


@pytest.mark.parametrize("name", ["/queue/dead", *(f"{prefix}a" for prefix in TEMPORARY)])
def test_patterns_match_neither_temporary_destinations_nor_dead_letters(name):
    mapping = Mapping([Rule("/*", "/queue/all")], ["/queue/dead"])
    assert (mapping.target_of(name), mapping.target_of("/queue/a")) == (None, "/queue/all")


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        *(([text], "write SOURCE=TARGET") for text in ("", "=/queue/a", "/queue/a=")),
        (["/queue/a=/queue/b=/queue/c"], "more than one equals sign"),
        (["/queue/a=/queue/*"], "the star of TARGET"),
        *(([text], "a star stands at the end") for text in ("/queue/a*b", "/queue/a*b*=/queue/c")),
        (["/queue/a\n"], "no control characters"),
        *(([text], "no spaces around it") for text in (" /queue/a", "/queue/a= /queue/b")),
        *(([text], "belongs to one session") for text in ("/temp-queue/a", "/queue/a=/temp-queue/a")),
        *((["/queue/" + "a" * 4096], "at most 4096 characters"), ([], "no destination")),
        (["/queue/a", "/queue/a=/queue/b"], "mapped twice"),
        (["/queue/dead=/queue/a"], "where refused messages go"),
    ],
)
def test_malformed_rules_are_refused(texts, why):
    with pytest.raises(ValueError, match=why):
        Mapping.parse(texts, excluded=["/queue/dead"])


@pytest.mark.parametrize(
    ("broker", "source", "selector", "lane"),
    [
        # A wildcard of ActiveMQ leaves out dead letters.
        ("activemq", "/queue/a.*", None, ("/queue/a.>", "bridge_refused IS NULL")),
        ("activemq", "/queue/a.*", "a=1 OR b=2", ("/queue/a.>", "bridge_refused IS NULL AND (a=1 OR b=2)")),
        ("activemq", "/topic/a.*", "a=1", ("/topic/a.>", "a=1")),
        ("rabbitmq", "/topic/a.*", "a=1", ("/topic/a.#", "a=1")),
        ("artemis", "/topic/a.*", "a=1", ("/topic/a.#", "a=1")),
    ],
)
def test_a_wildcard(broker, source, selector, lane):
    mapping = Mapping.parse([source])
    (found,) = _wild_lanes(GIVERS[broker], mapping.rules[0], Request(mapping, selector=selector))
    assert (found.destination, found.selector) == lane


def entry(session, body=b"", ack="client-individual"):
    frame = Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, body)
    return Entry(BaseMessage(frame, Subscription("/queue/a", id="1", ack=ack), 1, 1), session, "/queue/a", None, "k")


@pytest.fixture
def carrier():
    dropped = []
    made = Carrier(Tally(), 0, 100, lambda entry, reason: None, dropped.append)
    made.dropped = dropped
    return made


def test_all_that_comes_again_is_dropped_at_once(carrier):
    """Those that were sent before, too; not those of topics, nor the one that is being sent."""
    lost, session = SimpleNamespace(ended=False), SimpleNamespace(ended=False)
    first, sent, new = (entry(lost) for _ in range(3))
    topic, later = entry(lost, ack="auto"), entry(session)

    async def take():
        for each in (first, sent, new, topic, later):
            await carrier.take(each)

    asyncio.run(take())
    sent.sent = True
    carrier._begin([first])
    lost.ended = True
    carrier.forget_stale()
    assert (carrier.dropped, list(carrier.unsent)) == ([sent, new], [first, topic, later])
    assert carrier.octets == 3 * first.octets


@pytest.mark.parametrize(("limit", "most"), [("MOST_OPEN", 5), ("MOST_OCTETS", 6000)])
def test_it_takes_no_more_than_it_may(carrier, limit, most, monkeypatch):
    monkeypatch.setattr(carrier_module, limit, most)

    async def main():
        entries = [entry(SimpleNamespace(ended=False), bytes(700)) for _ in range(8)]
        tasks = [asyncio.create_task(carrier.take(each)) for each in entries]
        await asyncio.sleep(0)
        before = len(carrier)
        assert carrier.is_full
        while not all(task.done() for task in tasks):
            carrier._drop(carrier.unsent[0])
            await asyncio.sleep(0)
        return before, len(carrier)

    assert asyncio.run(main()) == (5, 5)


def test_an_end_with_a_tls_context_has_tls():
    context = ssl.create_default_context()
    assert str(End("a:1", ssl=context)) == "stomp+ssl://a:1"
    with pytest.raises(ValueError, match="stomp://a:1 is without TLS"):
        End("stomp://a:1", ssl=context)


@pytest.mark.parametrize(("succeeded", "since", "delay"), [(True, 0.0, 1.0), (False, -60.0, 1.0), (False, 0.0, 2.0)])
def test_after_a_good_connection_the_delays_start_again(succeeded, since, delay, monkeypatch):
    end, slept = End("stomp://a.invalid", backoff=Backoff(first=1.0, factor=2.0, most=4.0, jitter=0.0)), []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(ends_module.asyncio, "sleep", sleep)
    monkeypatch.setattr(end, "open", partial(sleep, None))
    end._since = ends_module.time.monotonic()
    asyncio.run(end.reopen(lambda which, error: None))
    end._since = ends_module.time.monotonic() + since
    if succeeded:
        end.succeeded()
        end._since = ends_module.time.monotonic()
    asyncio.run(end.reopen(lambda which, error: None))
    assert [each for each in slept if each] == [1.0, delay]
