"""The option `proxy` with both shells."""

from __future__ import annotations

import pytest
from client.broker import BrokerThread
from patience import patience
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
