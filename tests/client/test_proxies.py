"""The option `proxy`, and SockJS endpoints, with both shells."""

import logging

import pytest
from client.broker import BrokerThread
from client.shells import QUICK
from patience import patience

pytest.importorskip("websockets")
from transport.endpoints import Endpoint, ScriptedProxy

import stompcodec.client as stomp
from stompcodec.transport.websocket import WebSocketLayer


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(ws_port=0) as broker:
        yield broker


@pytest.fixture(scope="module")
def endpoint(broker):
    with Endpoint(broker.port) as endpoint:
        endpoint.url = f"http://ann:s3cret@127.0.0.1:{endpoint.port}/stomp"
        yield endpoint


@pytest.mark.parametrize("scheme", ["stomp", "ws"])
def test_through_a_proxy(shell, broker, queue, scheme):
    port = broker.port if scheme == "stomp" else broker.ws_port
    with ScriptedProxy() as proxy:
        client = shell.connect(f"{scheme}://127.0.0.1:{port}", proxy=f"http://ann:s3cret@127.0.0.1:{proxy.port}")
        client.send(queue, iter([b"hel", b"lo"]), receipt=True)
        assert (client.subscribe(queue).get(patience(10)).body, len(proxy.heads)) == (b"hello", 1)
        assert "s3cret" not in repr(client) + repr(client.options)
        client.close()


@pytest.mark.parametrize(
    ("query", "said"),
    [("", ["whole", "fragments"]), ("?websocket_pieces=messages", ["messages"] * 2), (None, ["whole", "messages"])],
)
def test_large_frames_over_websocket_are_cut_from_connected_on(
    shell, broker, endpoint, queue, monkeypatch, query, said
):
    found, split, body = [], WebSocketLayer.split, "é" * 500_000
    monkeypatch.setattr(WebSocketLayer, "split", lambda layer, pieces: found.append(pieces) or split(layer, pieces))
    with ScriptedProxy() as proxy:
        url = endpoint.url if query is None else f"ws://127.0.0.1:{broker.ws_port}/{query}"
        client = shell.connect(url, proxy=f"http://127.0.0.1:{proxy.port}")
        client.send(queue, body, receipt=True)
        assert client.subscribe(queue).get(patience(10)).text() == body
        client.close()
    assert found == said


def test_by_the_environment_only_when_it_is_asked(shell, broker, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedProxy() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        for options, count in (({}, 0), ({"proxy": "environment"}, 1)):
            shell.connect(broker.url, **options).close()
            assert len(proxy.heads) == count


def test_a_wrong_login_is_told_without_the_passcode(shell, broker, caplog):
    with ScriptedProxy([b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"]) as proxy:
        url = f"http://ann:s3cret@127.0.0.1:{proxy.port}"
        with pytest.raises(stomp.ConnectionLostError, match="does not accept this login") as raised:
            shell.connect(broker.url, proxy=url)
    assert "s3cret" not in str(raised.value) + caplog.text


def test_a_conversation(shell, endpoint, queue):
    client = shell.connect(endpoint.url, stream_over=4096)
    subscription, body = client.subscribe(queue, ack="client-individual"), "äöü€😀".encode() * 10_000
    client.send_many([(queue, f"ü{number}") for number in range(300)])
    for number in range(300):
        message = subscription.get(patience(10))
        assert message.text() == f"ü{number}"
        message.ack(receipt=number == 0)
    client.send(queue, (body[at : at + 777] for at in range(0, len(body), 777)), length=len(body), receipt=True)
    with subscription.get(patience(10)).open() as reader:
        assert reader.read() == body
    assert client.addresses[0].sockjs
    assert not any("s3cret" in text for text in (*endpoint.asked, repr(client.addresses)))


def test_bytes_that_are_no_text_fail_and_harm_nothing_else(shell, endpoint, queue):
    client = shell.connect(endpoint.url, reconnect=QUICK)
    for receipt in (False, True):
        with pytest.raises(stomp.StompError, match="not UTF-8"):
            client.send(queue, b"\xff", receipt=receipt)
    with pytest.raises(stomp.StompError, match="not UTF-8"):
        client.send_many([(queue, b"\xff")])
    client.send(queue, b"\xff", content_encoding="base64", receipt=True)
    assert (client.subscribe(queue).get(patience(10)).content(), client.epoch) == (b"\xff", 1)
    with pytest.raises(stomp.ConnectionLostError, match="not UTF-8"):
        client.send(queue, iter([b"\xff" * 100]), length=100, receipt=True)
    client.send(queue, b"next", receipt=True)


BASIC = "Basic YW5uOnMzY3JldA=="


def test_http_headers_are_fresh_for_each_connection_and_secret(shell, broker, caplog):
    def headers():
        count = len(endpoint.heads)
        return {"Authorization": BASIC, "Cookie": f"token=s3cret{count}", "Origin": "http://here"}

    async def later():
        return headers()

    caplog.set_level(logging.DEBUG, "stompcodec")
    with Endpoint(broker.port, login=BASIC) as endpoint:
        own = f"http://127.0.0.1:{endpoint.port}/stomp"
        client = shell.connect(own, http_headers=headers if shell.name == "sync" else later, reconnect=QUICK)
        with pytest.raises(stomp.ConnectionLostError, match="not UTF-8"):
            client.send("/queue/a", iter([b"\xff"]), length=1, receipt=True)
        client.wait_connected(patience(10))
        cookies = [head["Cookie"] for head in endpoint.heads]
        assert cookies == [f"token=s3cret{at}" for at in ("0", "0; seen=1", "2", "2; seen=1")]
        assert {head["Origin"] for head in endpoint.heads} == {"http://here"}
        client.close()
    assert "s3cret" not in caplog.text + repr(client) + repr(client.options)


def test_http_headers_of_a_file_that_the_url_names(shell, broker, tmp_path, caplog):
    """They are read for each connection. The server sees no name of a file."""
    caplog.set_level(logging.DEBUG, "stompcodec")
    file = tmp_path / "headers"
    with Endpoint(broker.port, login=BASIC) as endpoint:
        url = f"http://127.0.0.1:{endpoint.port}/stomp?a=1&http_headers_file={file}"
        for token in ("s3cret1", "s3cret2"):
            file.write_text(f"# of today\n\nAuthorization:{BASIC}\nCookie: token={token}\n", "utf-8")
            client = shell.connect(url)
            assert endpoint.heads[-1]["Cookie"] == f"token={token}; seen=1"
            client.close()
        assert {each.partition("?")[2] for each in endpoint.asked} == {"a=1"}
        shell.connect(url, http_headers={"Authorization": BASIC}).close()
        assert endpoint.heads[-1]["Cookie"] == "seen=1"
    for octets, said in ((b"X s3cret", "NAME:VALUE"), (b"Host: s3cret", "'Host'"), (b"\xff", "UTF-8"), (b"", "No")):
        file.write_bytes(octets) if octets else file.unlink()
        with pytest.raises(stomp.ConnectionLostError, match=f"http_headers.*{said}") as raised:
            shell.connect(url)
        assert "s3cret" not in str(raised.value)
    assert "s3cret" not in caplog.text + repr(client) + repr(client.options)


def test_the_login_of_the_url_answers_a_server_that_asks_for_basic(shell, broker):
    with Endpoint(broker.port, login=BASIC) as endpoint:
        for user, options in (("ann:s3cret", {}), ("ann", {"passcode": "s3cret"})):
            shell.connect(f"http://{user}@127.0.0.1:{endpoint.port}/stomp", **options).close()
            assert [head.get("Authorization") for head in endpoint.heads[-3:]] == [None, BASIC, BASIC]
        for user, options in (("", {"http_headers": {"authorization": "s3cret"}}), ("ann:s3cret2@", {})):
            with pytest.raises(stomp.ConnectionLostError, match="does not accept this login") as raised:
                shell.connect(f"http://{user}127.0.0.1:{endpoint.port}/stomp", **options)
            assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        *(({name: "s3cret"}, repr(name)) for name in ("Host", "upgrade", "Content-Length", "Connection")),
        *(({name: "s3cret"}, repr(name)) for name in ("Transfer-Encoding", "Sec-WebSocket-Protocol")),
        *(
            ({"X-Y": value}, "the value of 'X-Y'")
            for value in ("s3cret\r\nA: b", "s3cret\n", "s3cret\0", "s3cret\ud800")
        ),
        *(({f"X-Y{rest}": ""}, "begins with 'X-Y'") for rest in (": s3cret", "\r\nA: s3cret", " ", "ä")),
        *(({"": "s3cret"}, "begins with ''"), ({"X-Y": b"s3cret"}, "'X-Y' with a value of bytes")),
        ([("X-Y", "s3cret")], "is list"),
    ],
)
def test_http_headers_are_checked_at_the_call_or_with_each_attempt(shell, headers, said):
    with pytest.raises((ValueError, TypeError)) as raised:
        shell.connect("ws://127.0.0.1:9/", http_headers=headers)
    assert said in str(raised.value)
    assert "s3cret" not in str(raised.value)
    with pytest.raises((stomp.ConnectionLostError, TypeError), match="http_headers") as raised:
        shell.connect("ws://127.0.0.1:9/", http_headers=lambda: headers)
    assert "s3cret" not in str(raised.value)


def test_a_wrong_scheme_or_path_says_so(shell):
    with pytest.raises(ValueError, match="ws://"):
        shell.connect("stomp://127.0.0.1:9", http_headers={"X-Y": "z"})
    with Endpoint(info=[]) as other, pytest.raises(stomp.ConnectionLostError, match="SockJS refused"):
        shell.connect(f"http://127.0.0.1:{other.port}/none")
