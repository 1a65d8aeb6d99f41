"""The examples of docs/middleware.md and docs/tracing.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from client.broker import BrokerThread

DOCS = Path(__file__).parents[3] / "docs"
PRINTED = {
    "middleware": ["/queue/a was handled in less than a minute: True", "True", "a fresh token", "b'genuine'"],
    "tracing": ["b'one'", "1.0"],
}


@pytest.mark.skipif(not DOCS.is_dir(), reason="without the docs")
@pytest.mark.parametrize("page", PRINTED)
def test_the_examples_run(page, capsys):
    if page == "tracing":
        pytest.importorskip("opentelemetry")
        pytest.importorskip("prometheus_client")
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    with BrokerThread() as broker:
        names = {"url": broker.url}
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            exec(compile(block, f"docs/{page}.md", "exec"), names)
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(PRINTED[page])
