"""The site: what the WebSocket port answers to plain HTTP requests.

    GET /healthz, /readyz    web.health     ok or not, without a login
    GET /metrics             web.metrics    for Prometheus, with the right to manage
    GET /                    web.page       the page, which logs in over WebSocket

The listener has checked Host and Origin before a request comes here. A connection is closed after its response, or ten
seconds after its beginning. Until then it counts in the memory account.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stompcodec.broker.auth import far_network_of, has_origin, is_forwarded, is_loopback, is_own_origin
from stompcodec.broker.loop_quota import Line, Work
from stompcodec.broker.management.management import Management, host_of_peer
from stompcodec.broker.memory import CONNECTION, Account, below_cost
from stompcodec.transport.owner import PlainRequest

if TYPE_CHECKING:
    from stompcodec.transport.aio import Wire
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from http import HTTPStatus
from importlib.resources import files

from stompcodec.broker.config import Config

#: The scripts of the page, in the order in which they run.
_SCRIPTS = ("stomp.js", "show.js", "plot.js", "grid.js", "orders.js", "lists.js", "browser.js", "views.js", "main.js")
_STRICT = '"use strict";\n'
#: What is written in the page itself, which its policy names by digests.
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def page(config: Config) -> tuple[bytes, str]:
    text = page_text(config)
    return text.encode(), policy_of(text)


def page_text(config: Config) -> str:
    """Return the page for a broker: HTML with its style and its script, and the settings that it has to know."""
    settings = {
        "prefix": config.management_prefix,
        "temp": config.temp_queue_prefix,
        "dead": config.dead_letter.replace("{name}", "*"),
        "host": "/" if config.virtual_hosts is None else config.virtual_hosts[0],
        "subscribe": not config.reply_to_subscribes,
    }
    first, *others = (_asset(name) for name in _SCRIPTS)
    parts = {
        "settings": f' data-settings="{escape(json.dumps(settings))}"',
        "style": _asset("page.css"),
        "script": "".join((first, *(text.removeprefix(_STRICT) for text in others))),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return files("stompcodec.broker.web").joinpath(name).read_text(encoding="utf-8")


def policy_of(text: str) -> str:
    """Return the policy of a page: its own scripts and styles, and connections to where it came from."""
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for name, content in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        digests[name].append(f"'sha256-{digest}'")
    nothing = "'none'"
    return "; ".join(
        (
            f"default-src {nothing}",
            f"script-src {' '.join(digests['script']) or nothing}",
            f"style-src {' '.join(digests['style']) or nothing}",
            "img-src data:",
            "connect-src 'self'",
            f"base-uri {nothing}",
            f"form-action {nothing}",
            f"frame-ancestors {nothing}",
        )
    )


#: Headers of all responses: nothing is kept, guessed, or shown in a frame.
_ALWAYS = (
    ("Connection", "close"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
)


def response(
    status: int,
    body: bytes | str = b"",
    kind: str = "text/plain; charset=utf-8",
    headers: Sequence[tuple[str, str]] = (),
) -> bytes:
    octets = body.encode() if isinstance(body, str) else body
    pairs = [("Content-Type", kind), ("Content-Length", str(len(octets))), *_ALWAYS, *headers]
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in pairs)]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + octets


_LOG = logging.getLogger("stompcodec.broker.web")
#: Bytes of memory of a connection until its head has been read.
_COST = CONNECTION + below_cost(16 * 1024)
#: Bytes of a response that is sent even if memory is short: health has to be told then, above all.
_LITTLE = 1024
#: The longest login and passcode in base64.
_MOST_LOGIN = 4096
_ASK = (("WWW-Authenticate", 'Basic realm="stompcodec", charset="UTF-8"'),)


class Site:
    """The paths of one broker. `visit` is called with each new connection."""

    def __init__(self, management: Management) -> None:
        self.management = management
        self._broker = management.broker
        config = self._broker.config
        self._page_made: tuple[bytes, str] | None = None
        self._paths: dict[str, Callable[[PlainRequest, Visit], None]] = {}
        if config.web_health:
            self._paths |= {"/healthz": lambda _, visit: visit.respond(response(200, "ok\n")), "/readyz": self._ready}
        if config.web_metrics:
            from stompcodec.broker.web.metrics import Metrics

            self._metrics_of = Metrics(management)
            self._paths["/metrics"] = self._metrics
        if config.web_page:
            self._paths["/"] = self._page

    def visit(self, wire: Wire) -> Visit:
        visit = Visit(self, wire)
        if not self._broker.account.has_room(_COST):
            wire.respond(response(503, "The broker is short of memory.\n"))
        return visit

    def answer(self, request: PlainRequest, visit: Visit) -> None:
        handler = self._paths.get(request.target.partition("?")[0])
        if handler is None:
            visit.respond(response(404, "Nothing is served here.\n"))
        elif request.method != "GET":
            visit.respond(response(405, "Only GET is served here.\n", headers=(("Allow", "GET"),)))
        else:
            handler(request, visit)

    # ---- paths ----
    def _ready(self, request: PlainRequest, visit: Visit) -> None:
        """Answer whether messages are taken: the broker is not stopping, and the store is well."""
        journal, account = self._broker.journal, self._broker.account
        broken = journal.failing or journal.lost is not None
        well = not (self._broker.stopping or broken or journal.short or account.is_full)
        visit.respond(response(200, "ok\n") if well else response(503, "not ok\n"))

    def _page(self, request: PlainRequest, visit: Visit) -> None:
        if self._page_made is None:
            self._page_made = page(self._broker.config)
        octets, policy = self._page_made
        visit.respond(response(200, octets, "text/html; charset=utf-8", (("Content-Security-Policy", policy),)))

    def _metrics(self, request: PlainRequest, visit: Visit) -> None:
        refusal = self._why_not(request, visit, "metrics")
        if refusal is not None:
            visit.respond(refusal)
            return
        Work(self._measuring(visit)).take_turn(self._broker.now)
        self._broker.wake()

    def _measuring(self, visit: Visit) -> Iterator[Line]:
        try:
            octets, kind = yield from self._metrics_of.text()
        except Exception:
            _LOG.exception("%s: the metrics cannot be told", visit.peer)
            visit.respond(response(500, "internal error: see the broker's log\n"))
            return
        visit.respond(response(200, octets, kind))

    # ---- rights ----
    def _why_not(self, request: PlainRequest, visit: Visit, name: str) -> bytes | None:
        broker, config = self._broker, self._broker.config
        vhost = "/" if config.virtual_hosts is None else config.virtual_hosts[0]
        login, passcode = _credentials(request)
        if config.users is not None and login is None:
            return response(401, "Log in as a user who may manage the broker.\n", headers=_ASK)
        user = broker.auth.login(login, passcode, vhost, broker.now, far_network_of(visit.peer))
        if user is None:
            broker.connections.refuse_login(login, visit.peer, broker.now)
            return response(401, "login or passcode is wrong\n", headers=_ASK)
        foreign = is_forwarded(request.headers) or (
            has_origin(request.headers) and not (config.web_page and is_own_origin(request.headers))
        )
        local = is_loopback(host_of_peer(visit.peer)) and not foreign
        right = (config.management_prefix or "/management/") + name
        if not broker.auth.may_manage(user, right, local=local):
            return response(403, "not allowed\n")
        return None


class Visit:
    """One connection until it is closed, or has become a WebSocket."""

    def __init__(self, site: Site, wire: Wire) -> None:
        self._site = site
        self._wire = wire
        self._account: Account | None = site.management.broker.account
        self._account.charge(_COST)
        #: Bytes of its response.
        self._octets = 0

    @property
    def peer(self) -> str:
        return self._wire.peer

    def asked(self, request: PlainRequest) -> None:
        _LOG.info("%s: %s %s", self.peer, request.method, ascii(request.target[:200]))
        self._site.answer(request, self)

    def respond(self, octets: bytes) -> None:
        """Send the response, unless memory is short or the client has gone."""
        if self._account is None:
            return
        if self._account.is_full and len(octets) > _LITTLE:
            octets = response(503, "The broker is short of memory.\n")
        self._octets += len(octets)
        self._account.used += len(octets)
        self._wire.respond(octets)

    def gone(self) -> None:
        account, self._account = self._account, None
        if account is not None:
            account.charge(-_COST)
            account.used -= self._octets


def _credentials(request: PlainRequest) -> tuple[str | None, str | None]:
    """Return login and passcode of a request: as in Basic, or the same text as a Bearer token. None without them."""
    found = [value for name, value in request.headers if name.lower() == "authorization"]
    if len(found) != 1 or len(found[0]) > _MOST_LOGIN:
        return None, None
    scheme, _, token = found[0].partition(" ")
    if scheme.lower() not in ("basic", "bearer"):
        return None, None
    try:
        login, colon, passcode = base64.b64decode(token.strip(), validate=True).decode("utf-8").partition(":")
    except (ValueError, binascii.Error):
        return None, None
    return (login, passcode) if colon else (None, None)
