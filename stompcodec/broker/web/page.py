"""The page that shows the broker: one file, with a policy that lets nothing else into it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from importlib.resources import files

from stompcodec.broker.config.config import Config

#: The scripts of the page, in the order in which they run.
_SCRIPTS = ("stomp.js", "show.js", "plot.js", "grid.js", "orders.js", "lists.js", "browser.js", "views.js", "main.js")
_STRICT = '"use strict";\n'
#: What is written in the page itself, which its policy names by digests.
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def page(config: Config) -> tuple[bytes, str]:
    """Return the page for a broker, and its Content-Security-Policy."""
    text = page_text(config)
    return text.encode(), policy_of(text)


def page_text(config: Config) -> str:
    """Return the page for a broker: HTML with its style and its script, and the settings that it has to know.

    >>> page_text(Config())[:15]
    '<!DOCTYPE html>'
    """
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
    """Return the policy of a page: its own scripts and styles, and connections to where it came from.

    >>> policy_of("<script>1</script>").split("; ")[1:3]
    ["script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='", "style-src 'none'"]
    """
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
