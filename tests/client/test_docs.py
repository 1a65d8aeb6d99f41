"""The examples of docs/client.md run as they stand, and the tables say what the code says."""

import re
from pathlib import Path

import pytest
from client.broker import BrokerThread

from stompcodec.client.dialects import BROKERS
from stompcodec.client.handlers import POLICIES
from stompcodec.client.options import Options

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.skipif(not DOCS.is_dir(), reason="without the docs")
class TestDocs:
    def test_the_examples_run(self, capsys):
        text = (DOCS / "client.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert len(blocks) > 5
        with BrokerThread() as broker:
            names = {"url": broker.url}
            for block in blocks:
                exec(compile(block, "docs/client.md", "exec"), names)
        printed = capsys.readouterr().out
        assert printed.splitlines() == ["/queue/a b'hello'", "hello", "handled b'for the handler'", "b'HELLO'"]

    def test_the_defaults_are_told(self):
        text = (DOCS / "client.md").read_text(encoding="utf-8")
        options = Options()
        assert f"`heart_beat=({options.heart_beat[0]:_}, {options.heart_beat[1]:_})`" in text
        assert f"{options.outbox_frames:,} frames, {options.outbox_octets // 2**20} MiB" in text
        assert f"{options.inbox_messages:,} messages, {options.inbox_octets // 2**20} MiB" in text
        assert f"`close_timeout` ({options.close_timeout:g} s)" in text
        for policy in POLICIES:
            assert f'"{policy}"' in text

    def test_every_dialect_and_its_headers_are_told(self):
        text = (DOCS / "brokers.md").read_text(encoding="utf-8")
        for dialect in BROKERS.values():
            assert dialect.server in text.lower()
            for name in (*dialect.prefetch, dialect.window, *dialect.attempts, dialect.duplicate):
                assert name in text
            for name, _ in dialect.durable or ():
                assert name in text
            for choice, headers in dialect.topics:
                assert f'| `"{choice}"` |' in text
                assert all(name in text for name, _ in headers)
