"""The live page of a proxy: one static file from this machine, which fetches the latest entries again and again.

Only this machine reaches it, under its own name: Host and Origin are checked. Other users of the machine do not get the
entries: they need the token that is behind the `#` of the printed URL, which browsers neither send nor log. The page
sends it in a header.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs

from stompcodec.cli.linting.rules import title_of
from stompcodec.cli.proxying.entry import Entry
from stompcodec.cli.screen import cut, hex_lines, printable
from stompcodec.cli.show.pretty import body_of

#: Entries that are kept, the characters of their JSON, and those of one answer.
_ENTRIES, _KEPT, _ANSWER = 2000, 8 * 2**20, 2**20
#: Characters of a body, headers of a frame, characters of a value, and findings.
_BODY, _HEADERS, _VALUE, _FINDINGS = 8192, 200, 2000, 20
#: Largest size to which a body is decompressed, in bytes.
_INFLATED = 2**20
#: Connections at a time, and seconds for a request.
_MOST, _PATIENCE = 16, 5.0
_METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS")
_POLICY = (
    "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "script-src 'sha256-{script}'; style-src 'sha256-{style}'"
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1><p id="about" role="status"></p>
<input id="filter" type="search" placeholder="Filter: command, destination, header" aria-label="Filter" \
autocomplete="off" spellcheck="false">
<button id="hold" type="button" aria-pressed="false">Pause</button>
</header>
<main>
<section id="list" tabindex="0" aria-label="Frames"></section>
<section id="detail" aria-label="The chosen frame"></section>
</main>
<script>{script}</script>
</body>
</html>
"""


@cache
def _asset(name: str) -> str:
    return files("stompcodec.cli.proxying").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def page_of(title: str) -> bytes:
    """Return the page. Its only variable part is the title."""
    text = _PAGE.format(title=escape(title), style=_asset("proxy.css"), script=_asset("proxy.js"))
    return text.encode()


def data_of(entry: Entry) -> dict[str, Any]:
    """Return an entry as the page shows it.

    >>> data_of(Entry("opened", 7, 1, text="opened by 127.0.0.1:4711"))["text"]
    'opened by 127.0.0.1:4711'
    """
    clock = time.strftime("%H:%M:%S", time.localtime(entry.time // 1_000_000))
    data: dict[str, Any] = {
        "kind": entry.kind,
        "time": f"{clock}.{entry.time // 1000 % 1000:03}",
        "connection": entry.connection,
        "from": entry.direction or "",
        "text": entry.text,
        "faults": [printable(fault) for fault in entry.faults],
        "lint": [
            {
                **{name: getattr(each, name) for name in ("rule", "severity", "text", "remedy")},
                "title": title_of(each.rule),
            }
            for each in entry.findings[:_FINDINGS]
        ],
    }
    if entry.begin and entry.frame is None:
        data["body"] = "\n".join(hex_lines(entry.begin, entry.offset))
    if entry.frame is not None:
        pairs = entry.frame.headers.pairs()
        notes, form, text = ["too large to be kept"], "text", ""
        if not entry.streamed:
            notes, form, text = body_of(entry.frame, _INFLATED)
        data |= {
            "command": printable(entry.frame.command),
            "destination": printable((entry.frame.get("destination") or "")[:400]),
            "headers": [[cut(printable(name), 200), cut(printable(value), _VALUE)] for name, value in pairs[:_HEADERS]],
            "more": max(0, len(pairs) - _HEADERS),
            "size": entry.size,
            "notes": [*notes, *([f"the first {_BODY} characters"] if len(text) > _BODY else [])],
            "form": form,
            "body": text[:_BODY],
        }
    return data


class Entries:
    """The latest entries as JSON, in bounded memory. Any thread may call its methods.

    >>> entries = Entries()
    >>> for number in range(3):
    ...     entries.add(Entry("opened", 0, number))
    >>> [each["connection"] for each in json.loads(entries.after(1))["entries"]]
    [1, 2]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[str] = deque()
        self._size = 0
        self._total = 0

    def add(self, entry: Entry) -> None:
        """Add an entry; the oldest ones make room for it."""
        text = json.dumps(data_of(entry), separators=(",", ":"))
        with self._lock:
            self._kept.append(text)
            self._size += len(text)
            self._total += 1
            while len(self._kept) > _ENTRIES or (self._size > _KEPT and len(self._kept) > 1):
                self._size -= len(self._kept.popleft())

    def after(self, number: int, about: dict[str, Any] | None = None) -> bytes:
        """Return the next entries after the first `number` as JSON, with the number to ask for next."""
        with self._lock:
            first = self._total - len(self._kept)
            at = max(0, min(number, self._total) - first)
            chosen: list[str] = []
            size = 0
            for text in list(self._kept)[at:]:
                size += len(text)
                if chosen and size > _ANSWER:
                    break
                chosen.append(text)
            following = first + at + len(chosen)
            head = {"next": following, "more": following < self._total, "lost": max(0, first - number)}
        return f'{json.dumps({**head, "about": about or {}})[:-1]},"entries":[{",".join(chosen)}]}}'.encode()


class Page:
    """The server of the page, in threads of its own.

    Args:
        port: of 127.0.0.1; 0 for any free port.
        title: the title, as text.
        about: returns counts to show.

    Raises:
        OSError: the port cannot be used.
    """

    def __init__(self, port: int, title: str, about: Callable[[], dict[str, Any]] = dict) -> None:
        self.entries = Entries()
        self.token = secrets.token_urlsafe(16)
        self._server = _Server(("127.0.0.1", port), self, title, about)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="stompcodec-proxy-page", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.port}/#{self.token}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], page: Page, title: str, about: Callable[[], dict[str, Any]]) -> None:
        self.page = page
        self.about = about
        self.html = page_of(title)
        self.policy = _POLICY.format(script=_hash(_asset("proxy.js")), style=_hash(_asset("proxy.css")))
        self._free = threading.BoundedSemaphore(_MOST)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without the reverse lookup of the host's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread, if there are not too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection."""
        cutter = threading.Timer(_PATIENCE, self.shutdown_request, [request])
        cutter.daemon = True
        cutter.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            cutter.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "stompcodec"
    sys_version = ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Answer with the page, or with entries."""
        path, _, query = self.path.partition("?")
        if not self._is_ours():
            self._answer(403, b"This page is for its own address on this machine only.\n")
        elif path == "/" and not query:
            self._answer(200, self.server.html, "text/html; charset=utf-8")
        elif path == "/entries":
            given = self.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self.server.page.token}".encode()):
                self._answer(401, b"Open the address that stompcodec proxy has printed.\n")
                return
            number = (parse_qs(query).get("after") or ["0"])[0]
            after = int(number) if number.isascii() and number.isdigit() and len(number) < 16 else 0
            self._answer(200, self.server.page.entries.after(after, self.server.about()), "application/json")
        else:
            self._answer(404, b"There is nothing here.\n")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._answer(405, b"Only GET is answered here.\n")

    def _is_ours(self) -> bool:
        """Return whether a request names this server, and comes from its own page, if from a page at all."""
        hosts = self.headers.get_all("Host") or []
        port = self.server.server_port
        if len(hosts) != 1 or hosts[0].lower() not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return False
        origins = self.headers.get_all("Origin") or []
        return all(origin.lower() == f"http://{hosts[0].lower()}" for origin in origins)

    def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", self.server.policy),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            *([("Allow", "GET, HEAD")] if status == 405 else []),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for each request."""


for _method in _METHODS:
    setattr(_Handler, f"do_{_method}", _Handler._refuse)
