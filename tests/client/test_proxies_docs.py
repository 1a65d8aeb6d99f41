"""The examples of docs/proxies.md run as they stand."""

import re
from pathlib import Path

import pytest
from client.broker import BrokerThread
from transport.proxies import ScriptedProxy

PAGE = Path(__file__).parents[2] / "docs" / "proxies.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="without the docs")
def test_the_examples_run():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    with BrokerThread() as broker, ScriptedProxy() as proxy:
        names = {"url": broker.url, "proxy_url": f"http://127.0.0.1:{proxy.port}"}
        for block in blocks:
            exec(compile(block, "docs/proxies.md", "exec"), names)
        assert proxy.heads
