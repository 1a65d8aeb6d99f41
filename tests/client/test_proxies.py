"""The option `proxy`, and SockJS endpoints, with both shells."""

from __future__ import annotations

import pytest
from client.broker import BrokerThread
from client.shells import QUICK
from patience import patience

pytest.importorskip("websockets")

from transport.endpoints import Endpoint
from transport.proxies import ScriptedProxy

import stompcodec.client as stomp


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(ws_port=0) as broker:
        yield broker


@pytest.mark.parametrize("scheme", ["stomp", "ws"])
def test_through_a_proxy(shell, broker, scheme):
    port = broker.port if scheme == "stomp" else broker.ws_port
    with ScriptedProxy() as proxy:
        client = shell.connect(f"{scheme}://127.0.0.1:{port}", proxy=f"http://ann:s3cret@127.0.0.1:{proxy.port}")
        client.send("/queue/a", b"hello", receipt=True)
        assert client.subscribe("/queue/a").get(patience(10)).body == b"hello"
        client.send("/queue/b", iter([b"a", b"b"]), receipt=True)
        assert len(proxy.heads) == 1
        assert "s3cret" not in repr(client) + repr(client.options)
        client.close()


def test_by_the_environment_only_when_it_is_asked(shell, broker, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedProxy() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        shell.connect(broker.url).close()
        assert proxy.heads == []
        shell.connect(broker.url, proxy="environment").close()
        assert len(proxy.heads) == 1


def test_a_wrong_login_is_told_without_the_passcode(shell, broker, caplog):
    with ScriptedProxy([b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"]) as proxy:
        url = f"http://ann:s3cret@127.0.0.1:{proxy.port}"
        with pytest.raises(stomp.ConnectionLostError, match="does not accept this login") as raised:
            shell.connect(broker.url, proxy=url)
    assert "s3cret" not in str(raised.value) + caplog.text


@pytest.fixture(scope="module")
def endpoint():
    with BrokerThread() as broker, Endpoint(broker.port) as endpoint:
        endpoint.broker = broker
        yield endpoint


@pytest.fixture
def url(endpoint):
    return f"http://127.0.0.1:{endpoint.port}/stomp"


def test_a_conversation(shell, url):
    client = shell.connect(url)
    subscription = client.subscribe("/queue/a", ack="client-individual")
    client.send("/queue/a", "Grüße")
    client.send_many([("/queue/a", f"ü{number}") for number in range(300)])
    message = subscription.get(patience(10))
    assert message.text() == "Grüße"
    message.ack(receipt=True)
    for number in range(300):
        message = subscription.get(patience(10))
        assert message.text() == f"ü{number}"
        message.ack()
    assert client.addresses[0].sockjs


def test_a_streamed_body_of_text(shell, url):
    client = shell.connect(url, stream_over=4096)
    body = "äöü€😀".encode() * 10_000
    client.send("/queue/b", (body[at : at + 777] for at in range(0, len(body), 777)), length=len(body), receipt=True)
    with client.subscribe("/queue/b").get(patience(10)).open() as reader:
        assert reader.read() == body


def test_bytes_that_are_no_text_fail_and_harm_nothing_else(shell, url):
    client = shell.connect(url, reconnect=QUICK)
    for receipt in (False, True):
        with pytest.raises(stomp.StompError, match="not UTF-8"):
            client.send("/queue/c", b"\xff", receipt=receipt)
    with pytest.raises(stomp.StompError, match="not UTF-8"):
        client.send_many([("/queue/c", b"\xff")])
    client.send("/queue/c", b"\xff", content_encoding="base64", receipt=True)
    assert client.subscribe("/queue/c").get(patience(10)).content() == b"\xff"
    assert client.epoch == 1
    with pytest.raises(stomp.ConnectionLostError, match="not UTF-8"):
        client.send("/queue/c", iter([b"\xff" * 100]), length=100, receipt=True)
    client.send("/queue/c", b"next", receipt=True)


def test_the_login_of_the_url_is_that_of_stomp_and_a_wrong_path_says_so(shell, endpoint):
    client = shell.connect(f"http://ann:s3cret@127.0.0.1:{endpoint.port}/stomp")
    assert "s3cret" not in repr(client.addresses)
    assert not any("s3cret" in path for path in endpoint.asked)
    with Endpoint(info=[]) as other, pytest.raises(stomp.ConnectionLostError, match="SockJS refused"):
        shell.connect(f"http://127.0.0.1:{other.port}/none")
