"""Which requests of WebSocket are let in: pages by their origin, hosts by their name, and nothing local by a proxy."""

import asyncio
import base64
import itertools
import logging

import pytest
from broker.harness import Bench
from broker.sockets import CONFIG, run, served
from crash.process import BrokerProcess
from transport.messages import answered, request
from transport.wires import Raw

from stompcodec.broker.auth import Gate, User, hash_passcode, own_names
from stompcodec.broker.config import Config, parse_config
from stompcodec.errors import ConfigError

pytest.importorskip("websockets")
EVIL = "https://evil.example"
LOCAL = Gate(None, [], local=True)
OPEN = Gate(None, [], local=False)
LISTED = Gate(["https://app.example", "http://dev.example:*", "http://localhost:3000"], ["broker.example"], local=True)


def asked(gate, *headers, host="localhost:15674", address="127.0.0.1"):
    hosts = [] if host is None else [("Host", host)]
    reason = gate.refusal("/", [*hosts, *headers], address)
    assert reason is None or (reason.endswith(".") and reason.isascii() and reason.isprintable())
    return reason is None


NEAR = (
    *("http://localhost", "http://localhost:3000", "https://localhost", "http://localhost.:80", "HTTP://LocalHost"),
    *("http://127.0.0.1", "http://127.0.0.1:8080", "https://127.255.0.9", "http://127.0.0.1.", "http://[::1]"),
    *("http://[::ffff:7f00:1]:1", "http://[::1]:3000", "http://[0:0:0:0:0:0:0:1]", "http://[::ffff:127.0.0.1]"),
)
FAR = (
    *f"""
    {EVIL} null NULL http:// https://evil.example:61613 file:// http:/// //localhost http://127.0.0.1@evil.example
    http://127.0.0.1:80@evil.example http://evil.example@127.0.0.1 http://127.0.0.1.evil.example
    http://localhost.evil.example http://localhost.evil.example. http://evil.example/127.0.0.1 http://localhost/
    http://localhost# http://localhost?a localhost http://evil.example#@localhost http://evil.example\\@localhost
    http://localhost\\.evil.example http://localhost: http://localhost:99999 http://localhost:-1 http://localhost:*
    http://* http://0.0.0.0 http://[::] http://127.1 http://2130706433 http://0x7f.0.0.1 http://0127.0.0.1 http://[::1
    http://::1 http://[127.0.0.1] http://[::1]evil http://[::1%25lo] http://[evil] http://[::ffff:8.8.8.8]
    http://10.0.0.1 http://192.168.0.1:3000 http://[fe80::1] http://l\u043ecalhost http://\u217cocalhost
    http://\uff11\uff12\uff17.0.0.1 http://localhost\u3002 http://localhost.. http://.localhost javascript://localhost
    data:text/html ftp://localhost chrome-extension://localhost
    """.split(),
    *("", " ", "http://localhost http://localhost", "http://localhost, http://localhost", "http://localhost:1 "),
    *("\thttp://a", "http://loc\xa0alhost", "http://localhost\0", "http://localhost\r\n", "http://localhost\n"),
)
#: What `LISTED` lets in, and what it does not.
ORIGINS = {
    True: (
        *("https://app.example", "https://app.example:443", "HTTPS://APP.example.", "http://dev.example"),
        *("http://dev.example:1", "http://localhost:3000"),
    ),
    False: (
        *("https://app.example:8443", "http://app.example", "http://app.example:443", "https://dev.example"),
        *("https://sub.app.example", "https://app.example.evil.example", "https://xapp.example"),
        *("http://localhost", "http://127.0.0.1:3000"),
    ),
}


def test_by_default_pages_of_this_machine_may_and_others_may_not():
    """If the broker listens on this machine only; not through a proxy. Programs send no origin."""
    for gate in (LOCAL, OPEN, LISTED, Gate([], [], local=True)):
        assert asked(gate)
    for origin in NEAR + FAR:
        may = [asked(gate, ("Origin", origin)) for gate in (LOCAL, OPEN, LISTED, Gate([], [], local=True))]
        assert may == [origin in NEAR, False, origin == "http://localhost:3000", False], origin


def test_what_is_listed_is_all_there_is():
    for let_in, origins in ORIGINS.items():
        for origin in origins:
            assert asked(LISTED, ("Origin", origin)) is let_in, origin
            proxied = [("Origin", origin), ("X-Forwarded-For", "1.2.3.4")]
            assert asked(LISTED, *proxied, host="broker.example") is let_in, origin
    for origin in ("chrome-extension://abcdef", "null"):
        assert asked(Gate([origin], [], local=False), ("Origin", origin))


HOSTS = {
    True: (
        *("localhost", "localhost:15674", "LOCALHOST.:1", "localhost:", "127.0.0.1:80", "127.9.9.9", "[::1]:15674"),
        "[::ffff:127.0.0.1]",
    ),
    False: (
        *("broker.example", "evil.example:15674", "localhost.evil.example", "", "127.0.0.1.evil.example"),
        *("127.0.0.1@evil.example", "evil@localhost", "localhost/", "localhost, evil", "::1", "[::1", "[127.0.0.1]"),
        *("10.0.0.1", "0.0.0.0", "[::]", "127.1", "2130706433", "localhost:x", "localhost:123456", "http://localhost"),
        *("l\u043ecalhost", None, " localhost", "*"),
    ),
}


@pytest.mark.parametrize("gate", [LOCAL, OPEN], ids=["local", "open"])
def test_the_host_has_to_name_the_broker(gate):
    """A name that an attacker let point here is none of ours, whatever the origin says."""
    for let_in, hosts in HOSTS.items():
        for host in hosts:
            assert asked(gate, host=host) is let_in, host
            assert asked(gate, ("Origin", "http://localhost"), host=host) is (let_in and gate is LOCAL), host
            assert not asked(gate, ("Origin", f"http://{host}"), host="evil.example"), host


def test_names_may_be_listed_and_the_address_that_was_connected_to_is_one():
    """That cannot be made to point elsewhere. Other addresses are not ours."""
    for host in ("broker.example", "BROKER.example.:443", "localhost", "127.0.0.1"):
        assert asked(LISTED, host=host)
    assert not asked(LISTED, host="evil.example")
    gate = Gate(None, ["fe80::1", "[::2]", "10.1.2.3"], local=False)
    assert all(asked(gate, host=host) for host in ("[fe80::1]:80", "[::2]", "10.1.2.3:80"))
    assert asked(OPEN, host="10.0.0.1:80", address="10.0.0.1")
    assert asked(OPEN, host="10.0.0.1", address="::ffff:10.0.0.1")
    assert asked(OPEN, host="[fe80::1]", address="fe80::1%eth0")
    assert not asked(OPEN, host="10.0.0.2", address="10.0.0.1")
    assert not asked(OPEN, host="0.0.0.0", address="0.0.0.0")
    assert not asked(OPEN, ("Via", "1.1 proxy"), host="10.0.0.1", address="10.0.0.1")


def test_a_header_that_comes_twice_and_a_whole_url_are_refused():
    """Whoever reads the other one would decide otherwise."""
    for name in ("Host", "hOST"):
        assert not asked(LOCAL, (name, "localhost"))
    for name in ("Origin", "origin"):
        assert not asked(LOCAL, (name, "http://localhost"), ("Origin", "http://localhost"))
    for target in ("http://evil.example/", "http://localhost/", "localhost/", "*", ""):
        assert LOCAL.refusal(target, [("Host", "localhost")]) is not None


@pytest.mark.parametrize(
    "header",
    [
        *("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "x-forwarded-port"),
        *("X-Forwarded-Server", "Via", "X-Real-IP", "X-Forwarded", "FORWARDED", "X-FORWARDED-PREFIX", "X-Client-IP"),
    ],
)
@pytest.mark.parametrize("value", ["", "127.0.0.1", "for=127.0.0.1;host=localhost"])
def test_what_a_proxy_passes_on_is_never_local(header, value):
    """It is from anywhere, though it comes from 127.0.0.1, and though it says so."""
    assert not asked(LOCAL, (header, value))
    assert not asked(LOCAL, (header, value), ("Origin", "http://localhost"))
    named = Gate(None, ["broker.example", "localhost"], local=True)
    for host in ("broker.example", "localhost"):
        assert asked(named, (header, value), host=host)
        assert not asked(named, (header, value), ("Origin", "http://localhost"), host=host)
    assert asked(LISTED, (header, value), ("Origin", "https://app.example"), host="broker.example")
    assert not asked(LISTED, (header, value), ("Origin", "https://app.example"), host="localhost")


def test_what_the_dataclass_is_given_is_checked():
    assert Config().ws_origins is None
    assert parse_config("[websocket]\norigins = []\n").ws_origins == ()
    for name, value in (("ws_origins", "*"), ("ws_hosts", "a:1")):
        with pytest.raises(ConfigError, match=name):
            Config(**{name: (value,)})


def test_the_address_to_listen_on_may_be_a_name():
    for host in ("0.0.0.0", "::", "127.0.0.1", "::1", "localhost", "", "a b", "::ffff:127.0.0.1"):
        assert own_names(host) == [], host
    for host, name in (("Broker.Example.", "broker.example"), ("10.1.2.3", "10.1.2.3"), ("fe80::1%eth0", "fe80::1")):
        assert own_names(host) == [name]


# ---- over sockets ----
async def shake(port, **headers):
    async with Raw.to(port) as raw:
        await raw.send(request(**headers))
        data = await raw.until(b"\r\n\r\n")
        if b" 101 " not in data[:20]:
            data += await raw.rest()
        status, answer, rest = answered(data)
        return status, rest, answer


@served(ws_port=0)
async def test_refusals_are_403_with_a_reason(server):
    """A request that is no WebSocket is checked as well: a name that points here gets no page."""
    port = server.ws_port
    assert (await shake(port))[0] == (await shake(port, Origin=f"http://localhost:{port}"))[0] == 101
    for headers, word in [
        *(({"Origin": EVIL}, b"websocket.origins"), ({"Origin": "null"}, b"websocket.origins")),
        *(({"Host": "evil.example"}, b"websocket.hosts"), ({"Host": ""}, b"Host")),
        ({"X_Forwarded_For": "1.2.3.4"}, b"proxy"),
        ({"Origin": "http://localhost\r\nOrigin: http://localhost"}, b"one Origin"),
        ({"Host": "localhost\r\nHost: localhost"}, b"one Host"),
    ]:
        status, body, answer = await shake(port, **headers)
        assert status == 403
        assert word in body
        assert answer["content-type"].startswith("text/plain")
    assert server.broker.stats.sessions_total == 2
    for host, expected in (("localhost", 426), ("evil.example", 403)):
        async with Raw.to(port) as raw:
            await raw.send(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert answered(await raw.rest())[0] == expected


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 101), ("localhost", 101), ("0.0.0.0", 403), ("", 403)])
def test_it_matters_where_the_broker_listens(host, status):
    @served(ws_port=0, host=host)
    async def main(server):
        assert (await shake(server.ws_port, Origin="http://localhost"))[0] == status
        assert (await shake(server.ws_port))[0] == 101, "programs may, anyhow"

    main()


@pytest.mark.long
def test_what_the_file_lists_is_let_in_by_a_process(tmp_path):
    pytest.importorskip("click")
    config = '[websocket]\norigins = ["https://app.example"]\nhosts = ["broker.example"]\n'
    with BrokerProcess(tmp_path, config=config, memory=True) as broker:
        for origin, host, status in [
            *(("https://app.example", "broker.example", 101), ("https://app.example", "localhost", 101)),
            *(("http://localhost", "localhost", 403), ("https://app.example", "evil.example", 403)),
            ("null", "localhost", 403),
        ]:
            assert asyncio.run(shake(broker.ws_port, Origin=origin, Host=host))[0] == status
        assert asyncio.run(shake(broker.ws_port, Host="broker.example", X_Forwarded_For="1.2.3.4"))[0] == 101
        assert "evil.example" in broker.tail(), "the log says whom it has refused"


@pytest.mark.parametrize(
    ("warned", "config"),
    [
        *(("without users", {"host": "0.0.0.0"}), ("without users", {"host": "0.0.0.0", "ws_port": 0})),
        ("", {"host": "0.0.0.0", "users": {"ann": User("ann", hash_passcode("secret", n=16))}}),
        *(("", {"host": host}) for host in ("127.0.0.1", "localhost", "127.0.0.5")),
        *(("sandboxed frames of any site", {"ws_origins": ("null",)}), ("", {"ws_origins": ("http://a",)})),
    ],
)
def test_a_broker_that_lets_in_more_than_it_seems_warns(caplog, warned, config):
    with caplog.at_level(logging.WARNING, logger="stompcodec.broker.server"):
        run(lambda server: asyncio.sleep(0), CONFIG.replace(**config))
    warnings = [record.getMessage() for record in caplog.records]
    assert (len(warnings), warned in "".join(warnings)) == (bool(warned), True)


@served()
async def test_ids_of_sessions_are_random(server):
    sessions = [server.broker.attach(server.now()) for _ in range(100)]
    words = [session.id.rpartition("-")[2] for session in sessions]
    assert len(set(words)) == 100
    numbers = sorted(int.from_bytes(base64.b32decode(word.upper()), "big") for word in words)
    assert all(later - earlier > 2**32 for earlier, later in itertools.pairwise(numbers))
    assert max(numbers) > 2**70
    for session in sessions:
        session.lost(server.now())


def test_names_of_temporary_queues_are_made_of_random_ids():
    """Somebody who knows one name knows no other, not even that of the next session."""
    bench = Bench()
    peers = [bench.peer() for _ in range(2)]
    for peer in peers:
        peer.subscribe("/temp-queue/answers")
        peer.put("/queue/ask", "x", reply_to="/temp-queue/answers")
    consumer = bench.peer()
    consumer.subscribe("/queue/ask")
    words = [consumer.next("MESSAGE").headers["reply-to"].split("-")[-2] for _ in peers]
    assert len(set(words)) == 2
    assert all(len(word) == 16 for word in words)
