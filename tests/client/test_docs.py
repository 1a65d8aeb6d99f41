"""The examples of the client's pages run as they stand, and their tables say what the code says."""

import contextlib
import re
from pathlib import Path

import pytest
from client.broker import BrokerThread

from stompcodec.client import owner
from stompcodec.client.dialects import BROKERS
from stompcodec.client.handlers import POLICIES
from stompcodec.client.options import SHORT, Options
from stompcodec.transport import http, websocket

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="without the docs")
#: Page -> what its examples print, in any order; the modules that it needs.
PRINTED = {
    "client": (["/queue/a b'hello'", "hello", "handled b'for the handler'", "b'HELLO'"], ("websockets",)),
    "large-bodies": (["100000 900000 True"], ()),
    "middleware": (["/queue/a was handled in less than a minute: True", "True", "b'genuine'"], ()),
    "tracing": (["b'one'", "1.0"], ("opentelemetry", "prometheus_client")),
}


def page(name):
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PRINTED)
def test_the_examples_run(name, capsys, tmp_path):
    printed, needed = PRINTED[name]
    for module in needed:
        pytest.importorskip(module)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread())
        names = {"url": broker.url, "folder": tmp_path}
        if name == "client":
            from transport.endpoints import Endpoint, ScriptedProxy

            through, endpoint = stack.enter_context(ScriptedProxy()), stack.enter_context(Endpoint(broker.port))
            names["proxy_url"] = f"http://127.0.0.1:{through.port}"
            names["sockjs_url"] = f"http://127.0.0.1:{endpoint.port}/stomp"
        blocks = re.findall(r"^```python\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)
        assert len(blocks) >= 2
        for block in blocks:
            exec(compile(block, f"docs/{name}.md", "exec"), names)
        if name == "client":
            assert through.heads
            assert endpoint.asked
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(printed)


def test_the_numbers_are_told():
    options = Options()
    told = {
        "client": [
            f"`heart_beat=({options.heart_beat[0]:_}, {options.heart_beat[1]:_})`",
            f"{options.outbox_frames:,} frames, {options.outbox_octets // 2**20} MiB",
            f"{options.inbox_messages:,} messages, {options.inbox_octets // 2**20} MiB",
            f"`close_timeout` ({options.close_timeout:g} s)",
            *[f'"{policy}"' for policy in POLICIES],
            f"a head over {http.MAX_HEAD // 1024} KiB",
            f"an answer over {websocket.MAX_INFO // 1024} KiB",
        ],
        "large-bodies": [
            f"`inbox_octets` ({options.inbox_octets // 2**20} MiB)",
            f"up to {SHORT // 1024} KiB are never streamed",
            f"more than {(owner._WHOLE_BODY + owner._BESIDE_BODY) // 2**20} MiB",
        ],
    }
    assert [text for name, texts in told.items() for text in texts if text not in page(name)] == []


def test_every_dialect_and_its_headers_are_told():
    text = page("broker") + page("rabbitmq")
    for dialect in BROKERS.values():
        assert dialect.server in text.lower()
        for name in (*dialect.prefetch, dialect.window, *dialect.attempts, dialect.duplicate):
            assert name in text
        for name, _ in dialect.durable or ():
            assert name in text
        for choice, headers in dialect.topics:
            assert f'| `"{choice}"` |' in text
            assert all(name in text for name, _ in headers)
