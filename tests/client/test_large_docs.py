"""The examples of docs/large-bodies.md run as they stand."""

import re
from pathlib import Path

import pytest
from client.broker import BrokerThread

from stompcodec.client.io import owner
from stompcodec.client.options import SHORT, Options

PAGE = Path(__file__).parents[2] / "docs" / "large-bodies.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="without the docs")
class TestDocs:
    def test_the_examples_run(self, capsys, tmp_path):
        blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        assert len(blocks) == 3
        with BrokerThread() as broker:
            names = {"url": broker.url, "folder": tmp_path}
            for block in blocks:
                exec(compile(block, "docs/large-bodies.md", "exec"), names)
        assert capsys.readouterr().out.splitlines() == ["100000 900000 True", "b'one line' 900000"]

    def test_the_numbers_are_told(self):
        text = PAGE.read_text(encoding="utf-8")
        assert f"`inbox_octets` ({Options().inbox_octets // 2**20} MiB)" in text
        assert f"up to {SHORT // 1024} KiB are never streamed" in text
        assert f"more than {(owner._WHOLE_BODY + owner._BESIDE_BODY) // 2**20} MiB" in text
