"""URIs: what they name, what is refused, and that no passcode is shown."""

import re
import traceback
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.talking import linear

from stompcodec.errors import ConfigError
from stompcodec.uri import Address, parse_uri


def one(uri):
    (address,) = parse_uri(uri)
    return address


def test_all_parts():
    named = {"scheme": "stomp", "host": "example.org", "port": 1234, "tls": False, "websocket": False, "path": ""}
    said = {"login": "ann", "passcode": "x@y", "vhost": "orders/eu", "options": {"vhost": "&"}}
    assert one("stomp://ann:x%40y@example.org:1234/orders%2Feu?vhost=%26") == Address(**named, **said)


@pytest.mark.parametrize(
    ("uri", "scheme", "port", "tls", "websocket"),
    [
        *[(f"{name}://h", "stomp", 61613, False, False) for name in ("stomp", "STOMP", "tcp")],
        *[(f"{name}://h", "stomp+ssl", 61614, True, False) for name in ("stomp+ssl", "stomp+tls", "stomps", "ssl")],
        *[(f"{name}://h/stomp", name, 80, False, True) for name in ("ws", "http")],
        *[(f"{name}://h/stomp", name, 443, True, True) for name in ("wss", "https")],
        *(("ws://h", "ws", 80, False, True), ("wss://h:15673/ws", "wss", 15673, True, True)),
    ],
)
def test_schemes(uri, scheme, port, tls, websocket):
    address = one(uri)
    found = (address.scheme, address.host, address.port, address.tls, address.websocket)
    assert found == (scheme, "h", port, tls, websocket)
    assert (address.login, address.passcode, address.vhost, address.options) == (None, None, None, {})


@pytest.mark.parametrize(
    ("uri", "login", "passcode"),
    [
        *[("stomp://h", None, None), ("stomp://@h", "", None), ("stomp://ann@h", "ann", None)],
        *[("stomp://ann:@h", "ann", ""), ("stomp://:x@h", "", "x"), ("stomp://ann:a:b@h", "ann", "a:b")],
        ("stomp://ann@example.org:x@h", "ann@example.org", "x"),
        ("stomp://%C3%A9:%3A%2F%3F%23%40@h", "é", ":/?#@"),
        ("stomp://a+b:c+d@h", "a+b", "c+d"),
    ],
)
def test_login_and_passcode(uri, login, passcode):
    assert (one(uri).login, one(uri).passcode, one(uri).host) == (login, passcode, "h")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        *(("stomp://h", "stomp://h:61613"), ("stomp://ann@h", "stomp://ann@h:61613")),
        *(("h", "stomp://h:61613"), ("ann:x@h:1/v", "stomp://ann:***@h:1/v"), ("failover:(h:1)", "stomp://h:1")),
        ("tcp://ann:x@h/a%2Fb", "stomp://ann:***@h:61613/a%2Fb"),
        ("ws://ann:x@h/a%2Fb?a=1,2&token=3", "ws://ann:***@h:80/a%2Fb?a=1,2&token=***"),
        *(("wss://h/ws/x?a=1", "wss://h:443/ws/x?a=1"), ("stomp://[::1%25eth0]", "stomp://[::1%25eth0]:61613")),
    ],
)
def test_as_text(uri, shown):
    assert str(one(uri)) == shown
    assert repr(one(uri)) == f"<Address {shown}>"


@pytest.mark.parametrize(
    ("uri", "vhost"),
    [
        *[("stomp://h/", None), ("stomp://h/%2F", "/"), ("stomp://h/a/b", "a/b"), ("stomp://h/%20", " ")],
        *[("ws://h/ws", None), ("ws://h/ws?vhost=a", "a"), ("ws://h/?vhost=%2F", "/")],
        *[("stomp://h?vhost=a", "a"), ("stomp://h/?vhost=%2F", "/"), ("ssl://h/b?vhost=a", "b")],
        *[("failover:(stomp://h)?vhost=a", "a"), ("failover:(stomp://h/b)?vhost=a", "b")],
    ],
)
def test_virtual_hosts(uri, vhost):
    assert one(uri).vhost == vhost


@pytest.mark.parametrize(
    ("query", "path"), [("", "/p"), ("a=%31&", "/p?a=%31"), ("a=1&http%5Fheaders_file=g&b=&", "/p?a=1&b=")]
)
def test_a_file_of_headers_is_not_for_the_server(query, path):
    (address,) = parse_uri(f"ws://h/p?{query}http_headers_file=/a%20b")
    assert (address.path, address.options["http_headers_file"][-1]) == (path, "g" if "g&" in query else "b")
    assert parse_uri("failover:(http://h,stomp://h)?http_headers_file=/a")[0].path == "/"


def test_failover():
    addresses = parse_uri("failover:(stomp://a:1?vhost=1,ssl://u:p@b/v?vhost=9,tcp://c)?vhost=3")
    assert [(each.scheme, each.host, each.vhost, each.options["vhost"]) for each in addresses] == [
        *[("stomp", "a", "1", "1"), ("stomp+ssl", "b", "v", "9"), ("stomp", "c", "3", "3")]
    ]
    assert (addresses[1].login, addresses[1].passcode) == ("u", "p")
    for uri in ("failover://(stomp://a,stomp://b)", "failover:stomp://a,stomp://b", "FAILOVER:(stomp://a,stomp://b)"):
        assert [address.host for address in parse_uri(uri)] == ["a", "b"]


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        *[(uri, "write stomp://host") for uri in ("", "stomp:/h", "stomp://", "stomp://h:x")],
        *[(f"stomp://{rest}", "write stomp://host") for rest in (":1", "[::1", "h:123456", "h#x", "[zz]", "a:1:2")],
        *[(f"stomp://{rest}", "write stomp://host") for rest in ("u:p/q@h", "u:p#q@h")],
        *[(uri, "unknown scheme") for uri in ("gopher://h", "amqp://h", "stomp+nio://h")],
        *[("stomp://h:0", "the port is 0"), ("stomp://h:65536", "the port is 65536")],
        *[("stomp://%FF@h", "not UTF-8"), ("stomp://h/?vhost=%FF", "not UTF-8")],
        *[("stomp://h\n", "control character"), (" stomp://h", "space"), ("stomp://a b@h", "space")],
        *[("failover:()", "write stomp://host"), ("failover:(stomp://a", "write failover:")],
        *[("failover:(stomp://a)x", "write failover:"), ("failover:(failover:(stomp://a))", "write stomp://host")],
        ("failover:(stomp://a,,stomp://b)", "write stomp://host"),
        *[(f"{scheme}://h?websocket_pieces=all", "must be one of auto, whole") for scheme in ("stomp", "ws", "https")],
        *[(f"{scheme}://h?receipts=no", "receipts: it must be true or false") for scheme in ("stomp", "ws", "https")],
        ("stomp://h?http_headers_file=a", "http_headers_file is for ws"),
    ],
)
def test_what_is_refused(uri, said):
    with pytest.raises(ConfigError, match=said) as caught:
        parse_uri(uri)
    assert caught.value.key == "uri"


@pytest.mark.parametrize("scheme", ["stomp", "tcp", "stomp+ssl", "stomp+tls", "stomps", "ssl"])
@pytest.mark.parametrize(
    ("query", "said"),
    [
        *[(f"{name}=1", f"unknown option {name} ") for name in ("heart-beat", "timeout", "randomize", "VHOST", "a")],
        ("vhost=a&x=1", "unknown option x "),
        *[(f"{name}=/", "stomp://host/%2F for /") for name in ("host", "virtualhost", "virtual-host")],
        *[(query, "unknown option after") for query in ("=1", "a%20b=1", "a@b", "%C3%A9=1", "a" * 41)],
    ],
)
def test_unknown_options_are_refused(scheme, query, said):
    for uri in (
        *(f"{scheme}://h?{query}", f"{scheme}://ann:x@h:1/v?{query}", f"failover:({scheme}://h?{query})"),
        *(f"failover:({scheme}://h)?{query}", f"failover:({scheme}://a,{scheme}://b/v?{query},{scheme}://c)"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)) as caught:
            parse_uri(uri)
        assert caught.value.key == "uri"


@pytest.mark.parametrize(
    "uri",
    [
        *("stomp://ann:hunter2@h/v", "wss://ann:hunter2@h/ws?token=hunter2&a=1", "stomp://h?passcode=hunter2"),
        *("stomp://ann:hunter2@", "http://ann:hunter2@h", "stomp://ann:hunter2@h:0", "stomp://ann:hunter2/@h"),
        *("stomp://h?token=hunter2", "stomp://ann?hunter2@h", "stomp://h?a=1&hunter2:=", "stomp://h?passcode:hunter2"),
        *("failover:(stomp://h)?passcode=hunter2", "failover:(stomp://h?password=hunter2)"),
        *("failover:(stomp://ann:hunter2@h", "stomp://ann:hunter2%FF@h", "stomp://ann:hunter2@h:port"),
    ],
)
def test_no_passcode_is_shown(uri):
    try:
        addresses = parse_uri(uri)
        shown = [*map(str, addresses), *map(repr, addresses), str(addresses), f"{addresses}"]
    except ConfigError as error:
        shown = [str(error), repr(error), "".join(traceback.format_exception_only(error))]
    assert "hunter2" not in "".join(shown)


def test_length_costs_linear_time():
    for uri in ("stomp://" + "a" * 10**6, "stomp://" + "@" * 10**6, "failover:(" + "stomp://a," * 10**5 + ")"):
        with linear(10), suppress(ConfigError):
            parse_uri(uri)


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(["stomp", "failover:", "://", "(", ")", ",", "@", ":", "[", "?"])).map("".join)
)
def test_only_the_documented_error(uri):
    try:
        addresses = parse_uri(uri)
    except ConfigError:
        return
    assert all(0 < address.port < 65536 and address.host for address in addresses)
