"""Which requests of WebSocket are let in: pages by their origin, hosts by their name, and nothing local by a proxy."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from broker.sockets import CONFIG, run
from crash.process import BrokerProcess
from hypothesis import given
from hypothesis import strategies as st
from transport.messages import answered, request
from transport.wires import Raw

from stompcodec.broker.auth import Gate, host_of, is_loopback, origin_of, own_names
from stompcodec.broker.config.config import Config
from stompcodec.broker.config.file import parse_config
from stompcodec.broker.server import Server, serve
from stompcodec.errors import ConfigError

EVIL = "https://evil.example"
LOCAL = Gate(None, [], local=True)
OPEN = Gate(None, [], local=False)
LISTED = Gate(["https://app.example", "http://dev.example:*", "http://localhost:3000"], ["broker.example"], local=True)


def asked(
    gate: Gate, *headers: tuple[str, str], host: str | None = "localhost:15674", address: str = "127.0.0.1"
) -> bool:
    """Whether a request is let in."""
    hosts = [] if host is None else [("Host", host)]
    reason = gate.refusal("/", [*hosts, *headers], address)
    assert reason is None or (reason.endswith(".") and reason.isascii() and reason.isprintable())
    return reason is None


# ---- pages ----


def test_programs_send_no_origin() -> None:
    assert asked(LOCAL)
    assert asked(OPEN)
    assert asked(LISTED)


@pytest.mark.parametrize(
    "origin",
    [
        *("http://localhost", "http://localhost:3000", "https://localhost", "http://localhost.:80", "HTTP://LocalHost"),
        *("http://127.0.0.1", "http://127.0.0.1:8080", "https://127.255.0.9", "http://127.0.0.1."),
        *("http://[::1]", "http://[::1]:3000", "http://[0:0:0:0:0:0:0:1]", "http://[::ffff:127.0.0.1]"),
        "http://[::ffff:7f00:1]:1",
    ],
)
def test_by_default_pages_of_this_machine_may(origin: str) -> None:
    """If the broker listens on this machine only; not through a proxy."""
    assert asked(LOCAL, ("Origin", origin))
    assert not asked(OPEN, ("Origin", origin))
    assert not asked(LISTED, ("Origin", origin)) or origin.startswith("http://localhost:3000")


@pytest.mark.parametrize(
    "origin",
    [
        *(EVIL, "null", "NULL", "", " ", "http://", "https://evil.example:61613", "file://", "http:///", "//localhost"),
        *("http://127.0.0.1@evil.example", "http://127.0.0.1:80@evil.example", "http://evil.example@127.0.0.1"),
        *("http://127.0.0.1.evil.example", "http://localhost.evil.example", "http://localhost.evil.example."),
        *("http://evil.example/127.0.0.1", "http://localhost/", "http://localhost#", "http://localhost?a", "localhost"),
        *("http://evil.example#@localhost", "http://evil.example\\@localhost", "http://localhost\\.evil.example"),
        *(
            "http://localhost http://localhost",
            "http://localhost, http://localhost",
            "http://localhost:1 ",
            "\thttp://a",
        ),
        *("http://localhost:", "http://localhost:99999", "http://localhost:-1", "http://localhost:*", "http://*"),
        *(
            "http://0.0.0.0",
            "http://[::]",
            "http://127.1",
            "http://2130706433",
            "http://0x7f.0.0.1",
            "http://0127.0.0.1",
        ),
        *("http://[::1", "http://::1", "http://[127.0.0.1]", "http://[::1]evil", "http://[::1%25lo]", "http://[evil]"),
        *("http://[::ffff:8.8.8.8]", "http://10.0.0.1", "http://192.168.0.1:3000", "http://[fe80::1]"),
        *(
            "http://lоcalhost",
            "http://ⅼocalhost",
            "http://１２７.0.0.1",
            "http://localhost\u3002",
            "http://loc\xa0alhost",
        ),
        *(
            "http://localhost..",
            "http://.localhost",
            "http://localhost\0",
            "http://localhost\r\n",
            "http://localhost\n",
        ),
        *("javascript://localhost", "data:text/html", "ftp://localhost", "chrome-extension://localhost"),
    ],
)
def test_other_pages_may_not(origin: str) -> None:
    assert not asked(LOCAL, ("Origin", origin))
    assert not asked(OPEN, ("Origin", origin))
    assert not asked(LISTED, ("Origin", origin))


@pytest.mark.parametrize(
    ("origin", "let_in"),
    [
        *(("https://app.example", True), ("https://app.example:443", True), ("HTTPS://APP.example.", True)),
        *(("https://app.example:8443", False), ("http://app.example", False), ("http://app.example:443", False)),
        *(("http://dev.example", True), ("http://dev.example:1", True), ("https://dev.example", False)),
        *(
            ("https://sub.app.example", False),
            ("https://app.example.evil.example", False),
            ("https://xapp.example", False),
        ),
        *(("http://localhost:3000", True), ("http://localhost", False), ("http://127.0.0.1:3000", False)),
    ],
)
def test_what_is_listed_is_all_there_is(origin: str, let_in: bool) -> None:
    assert asked(LISTED, ("Origin", origin)) is let_in
    assert asked(LISTED, ("Origin", origin), ("X-Forwarded-For", "1.2.3.4"), host="broker.example") is let_in


def test_an_empty_list_allows_no_page() -> None:
    assert not asked(Gate([], [], local=True), ("Origin", "http://localhost"))
    assert asked(Gate([], [], local=True))


def test_other_schemes_may_be_listed() -> None:
    assert asked(Gate(["chrome-extension://abcdef"], [], local=False), ("Origin", "chrome-extension://abcdef"))


@pytest.mark.parametrize("name", ["Origin", "origin", "Host", "hOST"])
def test_a_header_that_comes_twice_is_refused(name: str) -> None:
    """Whoever reads the other one would decide otherwise."""
    value = "localhost" if name.lower() == "host" else "http://localhost"
    again = [(name, value)] if name.lower() == "host" else [(name, value), ("Origin", value)]
    assert not asked(LOCAL, *again)


# ---- names of the broker ----


@pytest.mark.parametrize(
    ("host", "let_in"),
    [
        *(("localhost", True), ("localhost:15674", True), ("LOCALHOST.:1", True), ("localhost:", True)),
        *(("127.0.0.1:80", True), ("127.9.9.9", True), ("[::1]:15674", True), ("[::ffff:127.0.0.1]", True)),
        *(("broker.example", False), ("evil.example:15674", False), ("localhost.evil.example", False), ("", False)),
        *(("127.0.0.1.evil.example", False), ("127.0.0.1@evil.example", False), ("evil@localhost", False)),
        *(("localhost/", False), ("localhost, evil", False), ("::1", False), ("[::1", False), ("[127.0.0.1]", False)),
        *(("10.0.0.1", False), ("0.0.0.0", False), ("[::]", False), ("127.1", False), ("2130706433", False)),
        *(("localhost:x", False), ("localhost:123456", False), ("http://localhost", False), ("lоcalhost", False)),
        *((None, False), (" localhost", False), ("*", False)),
    ],
)
@pytest.mark.parametrize("gate", [LOCAL, OPEN], ids=["local", "open"])
def test_the_host_has_to_name_the_broker(gate: Gate, host: str | None, let_in: bool) -> None:
    """A name that an attacker let point here is none of ours, whatever the origin says."""
    assert asked(gate, host=host) is let_in
    assert asked(gate, ("Origin", "http://localhost"), host=host) is (let_in and gate is LOCAL)
    assert not asked(gate, ("Origin", f"http://{host}"), host="evil.example")


def test_names_may_be_listed() -> None:
    for host in ("broker.example", "BROKER.example.:443", "localhost", "127.0.0.1"):
        assert asked(LISTED, host=host)
    assert not asked(LISTED, host="evil.example")
    gate = Gate(None, ["fe80::1", "[::2]", "10.1.2.3"], local=False)
    assert all(asked(gate, host=host) for host in ("[fe80::1]:80", "[::2]", "10.1.2.3:80"))


def test_the_address_that_was_connected_to_is_a_name() -> None:
    """It cannot be made to point elsewhere. Other addresses are not ours."""
    assert asked(OPEN, host="10.0.0.1:80", address="10.0.0.1")
    assert asked(OPEN, host="10.0.0.1", address="::ffff:10.0.0.1")
    assert asked(OPEN, host="[fe80::1]", address="fe80::1%eth0")
    assert not asked(OPEN, host="10.0.0.2", address="10.0.0.1")
    assert not asked(OPEN, host="0.0.0.0", address="0.0.0.0")
    assert not asked(OPEN, ("Via", "1.1 proxy"), host="10.0.0.1", address="10.0.0.1")


@pytest.mark.parametrize("target", ["http://evil.example/", "http://localhost/", "//localhost/".lstrip("/"), "*", ""])
def test_a_whole_url_does_not_stand_in_for_the_host(target: str) -> None:
    assert LOCAL.refusal(target, [("Host", "localhost")]) is not None


# ---- proxies ----

PROXIED = [
    *(
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "x-forwarded-port",
        "X-Forwarded-Server",
    ),
    *("Via", "X-Real-IP", "X-Forwarded", "FORWARDED", "X-FORWARDED-PREFIX", "X-Client-IP"),
]


@pytest.mark.parametrize("header", PROXIED)
@pytest.mark.parametrize("value", ["", "127.0.0.1", "for=127.0.0.1;host=localhost"])
def test_what_a_proxy_passes_on_is_never_local(header: str, value: str) -> None:
    """It is from anywhere, though it comes from 127.0.0.1, and though it says so."""
    assert not asked(LOCAL, (header, value))
    assert not asked(LOCAL, (header, value), ("Origin", "http://localhost"))
    named = Gate(None, ["broker.example", "localhost"], local=True)
    for host in ("broker.example", "localhost"):
        assert asked(named, (header, value), host=host)
        assert not asked(named, (header, value), ("Origin", "http://localhost"), host=host)
    assert asked(LISTED, (header, value), ("Origin", "https://app.example"), host="broker.example")
    assert not asked(LISTED, (header, value), ("Origin", "https://app.example"), host="localhost")


# ---- the parser ----

PIECES = [
    *(
        "http",
        "https",
        "ws",
        "://",
        ":",
        "/",
        "//",
        "@",
        "#",
        "?",
        "\\",
        ".",
        "%",
        "[",
        "]",
        "*",
        "-",
        " ",
        "\t",
        "\0",
        ",",
    ),
    *("localhost", "127.0.0.1", "::1", "evil.example", "evil", "80", "443", "99999", "LOCALHOST", "::ffff:", "xn--"),
    *("null", "\u3002", "\xe9", "\n", "%2e", "0x7f", "1"),
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=6).map(lambda pieces: "http://" + "".join(pieces)),
    st.text(max_size=20),
)


@given(texts)
def test_an_origin_is_what_a_url_parser_says(text: str) -> None:
    """What is accepted has no user, no path, and the host that others see in it."""
    try:
        origin = origin_of(text)
    except ValueError:
        return
    parts = urlsplit(text)
    assert (parts.path, parts.query, parts.fragment, parts.username, parts.password) == ("", "", "", None, None)
    assert text.isascii()
    assert parts.scheme == origin.scheme
    assert parts.hostname is not None
    seen = parts.hostname
    assert host_of(f"[{seen}]" if ":" in seen else seen) == origin.host
    assert (
        parts.port if parts.port is not None else {"http": 80, "https": 443, "ws": 80}.get(parts.scheme, 0)
    ) == origin.port
    written = f"[{origin.host}]" if ":" in origin.host else origin.host
    assert origin_of(f"{origin.scheme}://{written}:{origin.port}") == origin, "one spelling"


@given(texts)
def test_only_loopback_is_loopback(text: str) -> None:
    """Never a name that somebody can register, in whatever spelling."""
    try:
        host = host_of(text)
    except ValueError:
        return
    if is_loopback(host):
        assert host == "localhost" or host == "::1" or host.startswith("127.")
        assert all(character in "0123456789." for character in host) or host in ("localhost", "::1")
    assert "evil" not in host or not is_loopback(host)
    assert host == host.lower()
    assert not host.endswith(".")


@given(texts, st.lists(st.tuples(st.sampled_from(["Host", "Origin", "Via", "X"]), texts), max_size=4), texts)
def test_a_request_gets_an_answer_whatever_it_says(target: str, headers: list[tuple[str, str]], address: str) -> None:
    for gate in (LOCAL, OPEN, LISTED):
        reason = gate.refusal(target, headers, address)
        assert reason is None or (reason.isascii() and reason.isprintable() and len(reason) < 1000)


# ---- the configuration ----


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("origins", '["*"]'), ("origins", '["null"]'), ("origins", '["localhost"]'), ("origins", '["https://a/"]')),
        *(("origins", '["https://caf\xe9.example"]'), ("origins", '"https://a"'), ("origins", '["https://*.example"]')),
        *(("hosts", '["broker.example:80"]'), ("hosts", '["http://a"]'), ("hosts", '["*"]'), ("hosts", '"a"')),
        *(("hosts", '[""]'), ("hosts", '["a b"]'), ("origins", "[1]")),
    ],
)
def test_a_wrong_list_is_said_at_start(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"line 2: websocket.{key}: "):
        parse_config(f"[websocket]\n{key} = {value}\n")


def test_what_the_dataclass_is_given_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="ws_origins"):
        Config(ws_origins=("*",))
    with pytest.raises(ConfigError, match="ws_hosts"):
        Config(ws_hosts=("a:1",))


def test_the_keys_are_read() -> None:
    config = parse_config('[websocket]\norigins = ["https://app.example", "http://localhost:*"]\nhosts = ["[::2]"]\n')
    assert config.ws_origins == ("https://app.example", "http://localhost:*")
    assert config.ws_hosts == ("[::2]",)
    assert parse_config("[websocket]\norigins = []\n").ws_origins == ()
    assert Config().ws_origins is None


@pytest.mark.parametrize(
    ("host", "names"),
    [
        *(("broker.example", ["broker.example"]), ("Broker.Example.", ["broker.example"]), ("10.1.2.3", ["10.1.2.3"])),
        *(("0.0.0.0", []), ("::", []), ("127.0.0.1", []), ("::1", []), ("localhost", []), ("", []), ("a b", [])),
        *(("fe80::1%eth0", ["fe80::1"]), ("::ffff:127.0.0.1", [])),
    ],
)
def test_the_address_to_listen_on_may_be_a_name(host: str, names: list[str]) -> None:
    assert own_names(host) == names


# ---- over sockets ----


async def shake(port: int, host: str = "127.0.0.1", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    assert host
    async with Raw.to(port) as raw:
        await raw.send(request(**headers))
        data = await raw.until(b"\r\n\r\n")
        if b" 101 " not in data[:20]:
            data += await raw.rest()
        status, answer, rest = answered(data)
        return status, rest, answer


@pytest.fixture(autouse=True)
def _library() -> None:
    pytest.importorskip("websockets")


def test_refusals_are_403_with_a_reason() -> None:
    async def main(server: Server) -> None:
        port = server.ws_port
        assert port is not None
        assert (await shake(port))[0] == 101
        assert (await shake(port, Origin=f"http://localhost:{port}"))[0] == 101
        for headers, word in [
            ({"Origin": EVIL}, b"websocket.origins"),
            ({"Origin": "null"}, b"null"),
            ({"Host": "evil.example"}, b"websocket.hosts"),
            ({"Host": ""}, b"Host"),
            ({"X-Forwarded-For": "1.2.3.4"}, b"proxy"),
            ({"Origin": "http://localhost\r\nOrigin: http://localhost"}, b"one Origin"),
            ({"Host": "localhost\r\nHost: localhost"}, b"one Host"),
        ]:
            status, body, answer = await shake(
                port, **{name.replace("-", "_"): value for name, value in headers.items()}
            )
            assert status == 403
            assert word in body
            assert answer["content-type"].startswith("text/plain")
        assert server.broker.stats.sessions_total == 2
        assert (await shake(port))[0] == 101

    run(main, CONFIG.replace(ws_port=0))


def test_a_request_that_is_no_websocket_is_checked_as_well() -> None:
    """Pages of HTTP come later on this port: a name that points here gets none of them."""

    async def main(server: Server) -> None:
        assert server.ws_port is not None
        for host, status in (("localhost", 426), ("evil.example", 403)):
            async with Raw.to(server.ws_port) as raw:
                await raw.send(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert answered(await raw.rest())[0] == status

    run(main, CONFIG.replace(ws_port=0))


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        *(("127.0.0.1", "http://localhost", 101), ("localhost", "http://localhost", 101)),
        *(("0.0.0.0", "http://localhost", 403), ("", "http://localhost", 403)),
    ],
)
def test_it_matters_where_the_broker_listens(host: str, origin: str, status: int) -> None:
    async def main(server: Server) -> None:
        assert server.ws_port is not None
        assert (await shake(server.ws_port, Origin=origin))[0] == status
        assert (await shake(server.ws_port))[0] == 101, "programs may, anyhow"

    run(main, CONFIG.replace(ws_port=0, host=host))


def test_ipv6_is_loopback_as_well() -> None:
    async def main(server: Server) -> None:
        assert server.ws_port is not None
        reader, writer = await asyncio.open_connection("::1", server.ws_port)
        writer.write(request(Host=f"[::1]:{server.ws_port}", Origin="http://[::1]"))
        assert b" 101 " in await reader.readline()
        writer.close()

    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        run(main, CONFIG.replace(ws_port=0, host="::1"))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


@pytest.mark.long
def test_what_the_file_lists_is_let_in_by_a_process(tmp_path: Path) -> None:
    pytest.importorskip("click")
    config = '[websocket]\norigins = ["https://app.example"]\nhosts = ["broker.example"]\n'
    with BrokerProcess(tmp_path, config=config, memory=True) as broker:
        for origin, host, status in [
            ("https://app.example", "broker.example", 101),
            ("https://app.example", "localhost", 101),
            ("http://localhost", "localhost", 403),
            ("https://app.example", "evil.example", 403),
            ("null", "localhost", 403),
        ]:
            assert asyncio.run(shake(broker.ws_port, Origin=origin, Host=host))[0] == status
        assert asyncio.run(shake(broker.ws_port, Host="broker.example", X_Forwarded_For="1.2.3.4"))[0] == 101
        assert "evil.example" in broker.tail(), "the log says whom it has refused"


# ---- the warning ----


def warned(caplog: Any, **config: Any) -> bool:
    async def main() -> None:
        async with serve(CONFIG.replace(**config)):
            pass

    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="stompcodec.broker.server"):
        asyncio.run(main())
    return any("without users" in record.getMessage() for record in caplog.records)


def test_a_broker_open_to_the_network_without_users_warns(caplog: Any) -> None:
    from stompcodec.broker.auth import User, hash_passcode

    ann = {"ann": User("ann", hash_passcode("secret"))}
    assert warned(caplog, host="0.0.0.0")
    assert warned(caplog, host="0.0.0.0", ws_port=0)
    assert not warned(caplog, host="0.0.0.0", users=ann)
    for host in ("127.0.0.1", "localhost", "127.0.0.5"):
        assert not warned(caplog, host=host)


@pytest.mark.long
@pytest.mark.parametrize(("flags", "warns"), [((), False), (("--host", "0.0.0.0"), True)])
def test_the_command_warns_too(tmp_path: Path, flags: tuple[str, ...], warns: bool) -> None:
    pytest.importorskip("click")
    with BrokerProcess(tmp_path, memory=True, flags=(*flags, "--log-level", "warning")) as broker:
        broker.stop()  # the log is written by then
        assert ("without users" in broker.tail()) is warns


# ---- what cannot be guessed ----


def test_ids_of_sessions_are_random() -> None:
    """And so the names of temporary destinations, which are made of them. Message-ids do not give them away."""

    async def main(server: Server) -> None:
        sessions = [server.broker.attach(server.now()) for _ in range(100)]
        words = [session.id.rpartition("-")[2] for session in sessions]
        assert len(set(words)) == 100
        numbers = sorted(int.from_bytes(base64.b32decode(word.upper()), "big") for word in words)
        assert all(later - earlier > 2**32 for earlier, later in itertools.pairwise(numbers))
        assert max(numbers) > 2**70
        for session in sessions:
            session.lost(server.now())

    run(main)


def test_randomness_comes_from_outside() -> None:
    from stompcodec.broker.core import Broker

    broker = Broker(Config(), epoch="e", entropy=lambda size: bytes(range(size)))
    ids = [broker.attach(0.0).id for _ in range(3)]
    assert ids == [f"{number}-aaaqeayeaudaocaj" for number in (1, 2, 3)]


def test_a_temporary_queue_cannot_be_guessed() -> None:
    """Somebody who knows one name knows no other, not even that of the next session."""
    from broker.harness import Bench

    bench = Bench()
    peers = [bench.peer() for _ in range(2)]
    names = []
    for peer in peers:
        peer.subscribe("/temp-queue/answers")
        peer.put("/queue/ask", "x", reply_to="/temp-queue/answers")
    consumer = bench.peer()
    consumer.subscribe("/queue/ask")
    names = [consumer.next("MESSAGE").headers["reply-to"] for _ in peers]
    words = [name.split("-")[-2] for name in names]
    assert len(set(words)) == 2
    assert all(len(word) == 16 for word in words)
