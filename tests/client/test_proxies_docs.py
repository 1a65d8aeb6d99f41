"""The examples of docs/proxies.md run as they stand."""

import re
from pathlib import Path

import pytest
from client.broker import BrokerThread

pytest.importorskip("websockets")

from transport.endpoints import Endpoint
from transport.proxies import ScriptedProxy

from stompcodec.transport import proxy as http_proxy
from stompcodec.transport import websocket as sockjs

PAGE = Path(__file__).parents[2] / "docs" / "proxies.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="without the docs")
class TestDocs:
    def test_the_examples_run(self):
        blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        assert len(blocks) == 2
        with BrokerThread() as broker, ScriptedProxy() as proxy, Endpoint(broker.port) as endpoint:
            names = {
                "url": broker.url,
                "proxy_url": f"http://127.0.0.1:{proxy.port}",
                "sockjs_url": f"http://127.0.0.1:{endpoint.port}/stomp",
            }
            for block in blocks:
                exec(compile(block, "docs/proxies.md", "exec"), names)
            assert proxy.heads
            assert endpoint.asked

    def test_the_limits_are_told(self):
        text = PAGE.read_text(encoding="utf-8")
        assert f"a head over {http_proxy.MAX_HEAD // 1024} KiB" in text
        assert f"an answer over {sockjs.MAX_INFO // 1024} KiB" in text
