"""Who may ask and order what, by which way; and what is said to a bad request."""

import json
import re
from pathlib import Path

import pytest
from broker.management.managing import ELSEWHERE, FIELDS, LOCAL, Managed, check, over_stomp
from broker.sockets import served
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.management.schema import MOST_ROWS, ORDERS, REQUESTS, markdown, page_of

HASH = hash_passcode("x", n=16)
USERS = {name: User(name, HASH, groups=groups) for name, groups in (("ada", ("staff",)), ("bob", ()), ("eve", ()))}
RULES = (Rule("@staff", "manage"), Rule("bob", "manage", "/management/broker"), Rule("*", "*"))
BY_RULE = {"users": USERS, "rules": RULES}


def fields_of(bench, name):
    if name == "close":
        return {"session": bench.client(address=LOCAL, login="eve", passcode="x").session.id}
    return FIELDS.get(name, {})


def client(bench, address, login="x"):
    peer = bench.client(address=address, login=login, passcode="x")
    if bench.config.dialect != "rabbitmq":  # where reply-to subscribes
        peer.subscribe("/temp-queue/answers")
    return peer


def managed(**config):
    bench = Managed(**config)
    bench.client(address=LOCAL, login="eve", passcode="x").put("/queue/a", "hello")
    return bench


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    ("login", "address", "config", "may"),
    [
        *(("x", LOCAL, {}, REQUESTS), ("x", ELSEWHERE, {}, ()), ("ada", ELSEWHERE, BY_RULE, REQUESTS)),
        *(("bob", ELSEWHERE, BY_RULE, ("broker",)), ("eve", LOCAL, BY_RULE, ())),
    ],
)
def test_who_may_ask(name, login, address, config, may):
    """Without users this machine, else whom a rule allows it; what is refused changes nothing."""
    bench = managed(**config)
    answer = over_stomp(client(bench, address, login), name, None, **fields_of(bench, name))
    fault = "to" if name == "backup" else None
    assert answer.get("error", {}).get("field") == (fault if name in may else "destination")
    assert name in may or bench.queue().total == 1


@pytest.mark.parametrize("listener", ["stomp", "tls", "ws"])
@pytest.mark.parametrize(
    ("who", "config", "may"), [("ada", True, True), ("eve", True, False), ("near", False, True), ("far", False, False)]
)
def test_each_listener_knows_who_asks(certificates, own_addresses, listener, who, config, may):
    pytest.importorskip("websockets")
    if who == "far" and not own_addresses:
        pytest.skip("this machine has no other address than loopback")
    host = own_addresses[0] if who == "far" else "127.0.0.1"

    @served(host=host, ws_port=0, tls_port=0, tls_cert=certificates.server, **(BY_RULE if config else {}))
    async def main(server):
        server.broker.virtual_host("/").destinations.queue("/queue/a")
        server.broker._idle_at = float("inf")  # else the first sweep, after a second, removes it: it is idle
        port = {"stomp": server.port, "tls": server.tls_port, "ws": server.ws_port}[listener]
        scheme, tls = ("stomp+ssl", certificates.contexts.client) if listener == "tls" else (listener, None)
        login = {"login": who, "passcode": "x"}
        async with stomp.connect_async(f"{scheme}://{host}:{port}", ssl=tls, reconnect=None, **login) as client:
            for name in ("sessions", "messages", "purge", "delete"):
                fields = json.dumps(FIELDS.get(name, {}))
                reply = await client.request(f"/management/{name}", fields, timeout=patience(20))
                answer = json.loads(reply.body)
                check(answer)
                assert answer.get("error", {}).get("field") == (None if may else "destination")
            assert [peer.listener for peer in server.peers.values()] == [listener]

    main()


@pytest.mark.parametrize("rules", [(), (Rule("*", "*"),), (Rule("ada", "send", "/management/*"),)])
def test_no_rule_means_no_right(rules):
    """A rule for everything else does not include management."""
    bench = Managed(users=USERS, rules=(*rules, Rule("*", "subscribe")))
    assert over_stomp(client(bench, LOCAL, "ada"), "broker")["error"]["field"] == "destination"


@pytest.mark.parametrize("name", [request.name for request in ORDERS])
def test_an_order_is_logged_with_who_gave_it(name, caplog):
    bench = managed(**BY_RULE)
    over_stomp(client(bench, ELSEWHERE, "eve"), name, None, **fields_of(bench, name))
    assert not caplog.records  # what is not allowed does not fill the log
    over_stomp(client(bench, ELSEWHERE, "ada"), name, None, **fields_of(bench, name))
    *begun, done = [record.getMessage() for record in caplog.records if record.name == "stompcodec.broker.management"]
    for text in (*begun, done):
        assert f"order {name}" in text
        assert "'ada'" in text
        assert ELSEWHERE in text
    assert [text.endswith("has begun") for text in (*begun, done)] == [True] * len(begun) + [False]


def test_orders_are_logged_at_any_level(caplog):
    bench = Managed()
    assert bench.result("log-level", level="error")["level"] == "error"
    assert bench.result("log-level", level="debug")["before"] == "error"
    assert bench.result("broker")["log_level"] == "debug"
    assert [record.args[0] for record in caplog.records] == ["log-level", "log-level"]


@pytest.fixture(scope="module")
def asked():
    bench = managed()
    other = bench.peer(peer=LOCAL)
    other.subscribe("/topic/t", id="1")
    other.subscribe("/queue/busy", id="2")
    return bench, other, client(bench, LOCAL)


A, T, NONE = ({"destination": name} for name in ("/queue/a", "/topic/t", "/queue/none"))
STARS = "*a" * 17
#: Request -> the field that the error names -> bodies.
BAD = {
    **{name: {"ask": [{}]} for name in ("none", "", "x" * 9000)},
    "broker": {
        "body": [
            *(b"{", b"[]", b'"x"', b"\xff", b'{"limit": NaN}', b"[" * 50_000, b" " * 65_537),
            b'{"x": ' + b"9" * 5000 + b"}",
        ],
        "limit": [{"limit": 1}],
    },
    "sessions": {
        "limit": [{"limit": limit} for limit in (0, 1001, 1.0, True, "1")],
        "page": [{"page": page} for page in (1, "", "x", "WyIiXQ")],
    },
    "destinations": {
        "page": [{"page": page} for page in ("Wzdd", "W1tbW1tbW1tbW1tb")],
        **{"sort": [{"sort": "name"}, {"sort": []}], "kind": [{"kind": "stack"}]},
        "match": [{"match": {}}, {"match": STARS}],
    },
    **{"durables": {"match": [{"match": STARS}]}, "subscriptions": {"session": [{"session": "1-x"}]}},
    "messages": {
        **{"destination": [{}, NONE, T], "body": [{**A, "body": 65537}, {**A, "body": -1}]},
        **{"selector": [{**A, "selector": "= 1"}], "page": [{**A, "page": "WyIiXQ"}]},
    },
    "purge": {
        "destination": [{}, NONE, T, {"destination": 7}, {"destination": "x" * 8193}],
        **{"limit": [{**A, "limit": 0}], "message_id": [{**A, "message_id": "x"}, {**A, "message_id": "e-99"}]},
        "to": [{**A, "to": "/queue/b"}],
    },
    "move": {
        "to": [{**A, "to": to} for to in ("/queue/a", "/topic/none", "/temp-queue/none", "/management/broker")],
        "destination": [{**NONE, "to": "/queue/b"}],
    },
    "delete": {"destination": [NONE, {"destination": "/queue/busy"}, T]},
    **{"close": {"session": [{}, {"session": "none"}]}, "pause": {"destination": [T]}},
    **{"resume": {"destination": [NONE]}, "log-level": {"level": [{"level": "loud"}, {"level": "WARNING"}, {}]}},
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_gets_an_error_that_names_the_field(asked, name):
    bench, other, peer = asked
    for field, body in ((field, body) for field, bodies in BAD[name].items() for body in bodies):
        answer = over_stomp(peer, name, body if isinstance(body, bytes) else json.dumps(body).encode())
        assert answer["error"]["field"] == field, (body, answer)
        assert answer["error"]["message"]
        assert (other.take(), other.closed, peer.closed, bench.queue().total) == ([], False, False, 1)


def test_the_most_rows_are_allowed_and_the_session_that_asks_stays():
    peer = client(managed(), LOCAL)
    assert "rows" in over_stomp(peer, "sessions", None, limit=MOST_ROWS)
    assert "rows" in over_stomp(peer, "sessions", b'{"limit": 1}' + b" " * 65_000)
    assert over_stomp(peer, "close", None, session=peer.session.id)["error"]["field"] == "session"
    assert not peer.closed


@pytest.mark.parametrize("name", ["transaction", "delay", "AMQ_SCHEDULED_DELAY", "x-delay"])
def test_an_order_in_a_transaction_or_with_a_delay_is_refused(name):
    bench = managed()
    peer = client(bench, LOCAL)
    peer.send("BEGIN", transaction="60000")
    head = b"SEND\ndestination:/management/purge\nreply-to:/temp-queue/answers\n%b:60000\n\n" % name.encode()
    peer.raw(head + b'{"destination": "/queue/a"}\0')
    assert json.loads(peer.next("MESSAGE").body)["error"]["field"] == name
    peer.send("COMMIT", transaction="60000", receipt="1")
    peer.next("RECEIPT")
    assert bench.queue().total == 1


#: Names by which a client may try to read requests and answers. Wildcards are those of all dialects.
READERS = (
    *("/management/broker", "/management/", "/management/>", "/management/*", "/management/#", "/management/**"),
    *(">", "/>", "/*", "#", "**", "/topic/>", "/topic//management/broker", "/queue//management/broker"),
)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("how", [{}, {"browser": "true"}, {"selector": "1 = 1"}, {"activemq.subscriptionName": "x"}])
def test_nobody_reads_requests_and_answers_of_others(dialect, how):
    bench, readers = Managed(dialect=dialect, **BY_RULE), {}
    for number, destination in enumerate(READERS):
        reader = bench.client(address=ELSEWHERE, login="eve", passcode="x", client_id=f"eve{number}")
        readers[destination] = reader
        reader.subscribe(destination, id="9", **how)
    assert "result" in over_stomp(client(bench, ELSEWHERE, "ada"), "broker")
    for destination, reader in readers.items():
        found = reader.take()
        assert {frame.command for frame in found} <= {"ERROR", "MESSAGE" if how.get("browser") else "ERROR"}
        assert not [frame for frame in found if b"uptime" in frame.body]
        if destination.startswith("/management/"):
            (error,) = found
            assert error.headers["message"] == "a reserved destination"


def test_a_large_body_is_dropped():
    bench = Managed(large=100)
    peer, body = client(bench, LOCAL), b'{"destination": "%b"}' % (b"x" * 1000)
    octets = peer.octets_of("SEND", body, destination="/management/purge", reply_to="/temp-queue/answers")
    for at in range(0, len(octets), 300):
        peer.raw(octets[at : at + 300])
    assert json.loads(peer.next("MESSAGE").body)["error"]["field"] == "body"
    assert "result" in over_stomp(peer, "broker")


def test_without_reply_to_only_the_sender_gets_an_error():
    bench = managed()
    peer, other = client(bench, LOCAL), client(bench, LOCAL)
    peer.put("/management/purge", b'{"destination": "/queue/a"}')
    assert "reply-to" in peer.error().headers["message"]
    assert not other.take()
    assert not other.closed
    assert bench.queue().total == 1


def test_the_answer_goes_only_where_its_asker_may_send():
    rules = (Rule("ada", "manage"), Rule("ada", "send", "/queue/mine"))
    bench = Managed(users=USERS, rules=rules)
    bench.broker.virtual_host("/").destinations.queue("/queue/a")
    peer = client(bench, LOCAL, "ada")
    assert "result" in over_stomp(peer, "broker")  # its own temporary queue needs no right
    peer.put("/management/broker", reply_to="/queue/mine")
    assert bench.queue("/queue/mine").total == 1
    peer.put("/management/purge", b'{"destination": "/queue/a"}', reply_to="/queue/others")
    assert "not allowed" in peer.error().headers["message"]
    assert client(bench, LOCAL, "bob").error().headers["message"] == "not allowed to subscribe there"


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        *((Rule("@staff", "subscribe", "/temp-queue/*", allow=False), True), (Rule(allow=False), False)),
        (Rule("bob", "*", "/temp-queue/*", allow=False), False),
    ],
)
def test_a_rule_about_temporary_queues_binds_managers_too(rule, refused):
    bench = Managed(users=USERS, rules=(Rule("ada", "manage"), rule))
    assert client(bench, LOCAL, "ada").closed is refused


def test_a_manager_sees_its_own_virtual_host_only():
    bench = Managed(virtual_hosts=("/", "b"))
    here, there = client(bench, LOCAL), bench.client(address=LOCAL, host="b")
    there.put("/queue/there", "hello")
    there.subscribe("/queue/there", ack="client")
    assert [row["session"] for row in over_stomp(here, "sessions")["rows"]] == [here.session.id]
    assert [row["destination"] for row in over_stomp(here, "destinations")["rows"]] == [
        f"/temp-queue/{here.session.id}-answers"
    ]
    assert len(over_stomp(here, "subscriptions")["rows"]) == 1
    assert over_stomp(here, "close", None, session=there.session.id)["error"]["field"] == "session"
    assert over_stomp(here, "purge", None, destination="/queue/there")["error"]["field"] == "destination"


def test_the_page_has_the_tables_which_name_each_field_once():
    """`make docs` writes them anew."""
    text = (Path(__file__).parents[3] / "docs" / "management.md").read_text(encoding="utf-8")
    assert text.endswith(markdown())
    assert page_of(text) == text
    for request in REQUESTS.values():
        for names in ([each.name for each in request.fields], [each.name for each in request.columns]):
            assert len(set(names)) == len(names)
            assert all(re.fullmatch("[a-z_]+", name) for name in names)
