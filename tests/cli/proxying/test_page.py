"""The live page of the proxy: who gets it, what it holds, and what a browser shows of it."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")

from chromium import Chromium, needs_chromium
from cli.proxied import proxied, raw, settle
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.cli.proxying import page as module
from stompcodec.cli.proxying.entry import Entry
from stompcodec.cli.proxying.page import Entries, Page
from stompcodec.testing import StompBroker

EVIL = "</script><script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"


@pytest.fixture
def page() -> Iterator[Page]:
    served = Page(0, "stompcodec proxy: a to b")
    yield served
    served.close()


def ask(page: Page, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=patience(10))
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    try:
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


# Who gets it


def test_only_its_own_script_may_run(page: Page) -> None:
    status, headers, body = ask(page, "/")
    text = body.decode()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    rules = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
    hashed = [f"'sha256-{b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in (script, style)]
    assert status == 200
    assert rules == {
        **dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'"),
        "connect-src": "'self'",
        "script-src": hashed[0],
        "style-src": hashed[1],
    }
    assert not re.search(r"innerHTML|insertAdjacent|\b(eval|Function|document\.write)\b *\(", script)
    assert not re.search(r"<(link|img|iframe|object|base)\b|\b(src|href)=", text.replace(script, ""))
    assert page.token not in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer x"}, 401),
        ({"Authorization": "TOKEN"}, 200),
        ({"Authorization": "TOKEN", "Host": "localhost:PORT"}, 200),
        ({"Authorization": "TOKEN", "Host": "localhost:PORT", "Origin": "http://localhost:PORT"}, 200),
        ({"Authorization": "TOKEN", "Host": "evil.example:PORT"}, 403),
        ({"Authorization": "TOKEN", "Host": "127.0.0.1"}, 403),
        ({"Authorization": "TOKEN", "Origin": "http://evil.example"}, 403),
        ({"Authorization": "TOKEN", "Origin": "null"}, 403),
        ({"Authorization": "TOKEN", "Origin": "http://127.0.0.1:1"}, 403),
    ],
)
def test_entries_are_for_its_own_page(page: Page, headers: dict[str, str], status: int) -> None:
    filled = {
        name: value.replace("TOKEN", f"Bearer {page.token}").replace("PORT", str(page.port))
        for name, value in headers.items()
    }
    assert ask(page, "/entries?after=0", **filled)[0] == status
    if status == 403:
        assert ask(page, "/", **filled)[0] == 403


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/?x", 404),
        ("POST", "/", 405),
        ("DELETE", "/entries", 405),
        ("HEAD", "/", 200),
    ],
)
def test_other_requests(page: Page, method: str, path: str, status: int) -> None:
    assert ask(page, path, method)[0] == status


def test_it_listens_on_this_machine_only(page: Page) -> None:
    assert page._server.socket.getsockname()[0] == "127.0.0.1"
    assert page.url == f"http://127.0.0.1:{page.port}/#{page.token}"


def test_connections_are_bounded(page: Page) -> None:
    idle = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(module._MOST)]
    try:
        for _ in settle():
            with socket.create_connection(("127.0.0.1", page.port), timeout=patience(10)) as one:
                one.settimeout(0.2)
                try:
                    if one.recv(1) == b"":
                        break
                except ConnectionResetError:
                    break
                except TimeoutError:
                    continue
    finally:
        for each in idle:
            each.close()


# What it holds


def test_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = Entries()
    for number in range(module._ENTRIES + 5):
        entries.add(Entry("opened", 0, number))
    first = json.loads(entries.after(0))
    assert (first["lost"], len(first["entries"]), first["more"]) == (5, module._ENTRIES, False)
    monkeypatch.setattr(module, "_KEPT", 3000)
    monkeypatch.setattr(module, "_ANSWER", 1000)
    for number in range(20):
        entries.add(Entry("frame", 0, number, "client", frame=Frame("SEND", {}, b"x" * 600), size=600))
    answer = json.loads(entries.after(0))
    assert answer["more"]
    seen = answer["entries"]
    while answer["more"]:
        answer = json.loads(entries.after(answer["next"]))
        seen += answer["entries"]
    assert [each["connection"] for each in seen] == [17, 18, 19]
    assert json.loads(entries.after(10**9))["entries"] == []


def test_long_things_are_cut() -> None:
    headers = [("a" * 5000, "b" * 5000)] * 300
    data = module.data_of(Entry("frame", 0, 1, "client", frame=Frame("SEND", headers, b"x" * 50_000), size=50_000))
    assert len(json.dumps(data)) < 2 * 200 * 2300 + 10_000
    assert (len(data["headers"]), data["more"], len(data["body"])) == (200, 100, 8192)
    assert data["notes"] == ["the first 8192 characters"]


# In a browser


class Browser:
    """A page in headless Chromium, by its DevTools protocol."""

    def __init__(self, url: str) -> None:
        from websockets.sync.client import connect

        self._folder = tempfile.mkdtemp(prefix="stompcodec-chromium-")
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage --remote-debugging-port=0"
        self._process = subprocess.Popen(
            [shutil.which("chromium") or "", *flags.split(), f"--user-data-dir={self._folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        chosen = Path(self._folder, "DevToolsActivePort")
        for _ in settle(60):
            if chosen.is_file() and len(lines := chosen.read_text(encoding="ascii").split()) == 2:
                break
        for _ in settle(60):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json") as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                break
        self._stack = contextlib.ExitStack()
        self._socket = self._stack.enter_context(connect(pages[0]["webSocketDebuggerUrl"], max_size=None))
        self._number = 0
        self.order("Page.navigate", url=url)

    def order(self, method: str, **params: object) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(patience(60)))
            if answer.get("id") == self._number:
                return answer["result"]

    def get(self, expression: str) -> Any:
        return self.order("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression: str) -> Any:
        for _ in settle(60):
            if value := self.get(expression):
                return value
        raise AssertionError(expression)

    def close(self) -> None:
        self._stack.close()
        self._process.terminate()
        self._process.wait(patience(20))
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_a_browser_shows_what_passes(page: Page) -> None:
    pytest.importorskip("websockets")
    browser = Browser(page.url)
    try:
        with (
            StompBroker() as broker,
            proxied(broker.url, "duplicate MESSAGE") as proxy,
            stomp.connect(proxy.url, login="ann", passcode="hunter2") as client,
        ):
            messages = client.subscribe("/queue/a")
            client.send("/queue/a", EVIL.encode(), {EVIL: EVIL, "x-token": "hunter2"})
            assert messages.get(timeout=patience(10)) is not None
            proxy.frame("MESSAGE")
        for entry in proxy.entries:
            page.entries.add(entry)
        browser.wait(f"document.querySelectorAll('#list tbody tr').length === {len(proxy.entries)}")
        shown = browser.get("[...document.querySelectorAll('#list .command')].map((cell) => cell.textContent)")
        assert shown == [entry.frame.command for entry in proxy.entries if entry.frame is not None]
        browser.get(
            "[...document.querySelectorAll('#list tr')].find((row) => row.textContent.includes('SEND')).click()"
        )
        detail = browser.get("document.getElementById('detail').textContent")
        assert EVIL in detail
        assert "fault: duplicate MESSAGE" in browser.get("document.getElementById('list').textContent")
        assert "hunter2" not in browser.get("document.documentElement.outerHTML")
        assert browser.get("document.title") == "stompcodec proxy: a to b"
        assert browser.get("document.querySelectorAll('img').length") == 0
        assert browser.get("location.href") == f"http://127.0.0.1:{page.port}/"
        browser.get("document.getElementById('filter').value = 'connected'")
        browser.get("document.getElementById('filter').dispatchEvent(new Event('input'))")
        visible = browser.get("[...document.querySelectorAll('#list tbody tr:not([hidden])')].length")
        assert 0 < visible < len(proxy.entries)
        page.close()
        browser.wait("document.getElementById('about').textContent.includes('cannot be reached')")
    finally:
        browser.close()


#: The kinds of elements of the page with a list.
OWN = [
    *("button", "h1", "header", "input", "main", "p", "script", "section"),
    *("table", "tbody", "td", "th", "thead", "tr"),
]
LINK = "javascript:document.title='stolen'"
#: What a client sends, one connection each: the texts are in commands, names, values, destinations and bodies.
STREAMS = {
    "command": f"{EVIL}\na:b\n\n\0",
    "lower case": f"CONNECT {EVIL}\n\n\0",
    "headers": f"SEND\ndestination:{EVIL}\n{EVIL}:{EVIL}\nhref:{LINK}\ncontent-type:text/html\n\n{EVIL}\0",
    "json": f"SEND\ndestination:{LINK}\ncontent-type:application/json\n\n{json.dumps({EVIL: [EVIL]})}\0",
    "xml": f'SEND\ndestination:/queue/a\ncontent-type:application/xml\n\n<svg onload="{LINK}"><a>{EVIL}</a></svg>\0',
    "end": f"SEND\ndestination:/queue/a\nx:{EVIL}",
}


@pytest.mark.long
@needs_chromium
def test_nothing_of_the_stream_becomes_markup() -> None:
    """In a browser: commands, headers, destinations, bodies, bytes that are not STOMP, and events."""
    pytest.importorskip("websockets")
    with raw() as (proxy, connect):
        for stream in STREAMS.values():
            near, far = connect()
            near.send(stream.encode())
            assert far.read(len(stream)) == stream.encode()
            near.end()
            far.end()
            assert far.rest() == near.rest() == b""
    direct = [
        Entry("opened", 0, 1, text=EVIL, faults=(EVIL,)),
        Entry("frame", 0, 1, "broker", frame=Frame(EVIL, {"message": EVIL}, EVIL.encode()), size=1, faults=(EVIL,)),
        Entry("not-stomp", 0, 1, "client", EVIL, begin=EVIL.encode()),
    ]
    entries = [*proxy.entries, *direct]
    assert {entry.kind for entry in entries} >= {"frame", "not-stomp"}
    page = Page(0, EVIL, lambda: {"connections": EVIL, "frames": {"client": EVIL, "broker": EVIL}, "not_shown": EVIL})
    try:
        for entry in entries:
            page.entries.add(entry)
        with Chromium() as browser:
            shown = browser.open(page.url)
            shown.wait(f"document.querySelectorAll('#list tbody tr').length === {len(entries)}")
            elements = "[...new Set([...document.querySelectorAll('body *')].map((each) => each.localName))].sort()"
            own = shown.get(elements)
            assert own == OWN
            texts = []
            for at in range(len(entries)):
                shown.get(f"document.querySelectorAll('#list tbody tr')[{at}].click()")
                texts.append(shown.get("document.getElementById('detail').textContent"))
                assert set(shown.get(elements)) <= {*own, "h2", "pre"}
            assert sum("onerror" in text for text in texts) >= len(STREAMS) - 1 + len(direct)
            attributes = shown.get(
                "[...new Set([...document.querySelectorAll('#list *, #detail *, #about')]"
                ".flatMap((each) => each.getAttributeNames()))]"
            )
            assert set(attributes) <= {"class", "colspan", "title", "aria-selected", "id", "role"}
            assert shown.get("document.title") == EVIL
            assert "onerror" in shown.text("#about")
            assert shown.get("document.scripts.length") == 1
            assert shown.errors == []
            shown.close()
    finally:
        page.close()
