"""The finished site: old addresses lead on, all that a page loads is there, on its own host. Zensical checks links."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sitepages.staging import DOCS

#: Elements that make a browser load something, and the attribute that says what.
_LOADS = {**dict.fromkeys(("script", "img", "iframe", "source", "video", "audio"), "src"), "link": "href"}
#: Values of `rel` of a link that loads nothing.
_NOT_LOADED = {"canonical", "prev", "next", "alternate", "edit", "license"}
#: A host in a script or style sheet. Namespaces are names, not addresses.
_HOST = re.compile(rb"""(?:https?:)?//(?:[a-z0-9-]+\.)+(?:com|net|org|io|dev|app)\b[^\s"'`)]*""", re.IGNORECASE)
_NAMESPACES = re.compile(rb"https?://(?:www\.w3\.org/|zensical\.org/|fontawesome\.com|github\.com/)")
#: Scripts whose messages name pages of their makers. The policy in each page keeps them from loading anything.
#: Pyodide has a default that its caller replaces.
_LINKS_IN_MESSAGES = {"mermaid.min.js", "pyodide.mjs", "pyodide.asm.mjs"}


class Page(HTMLParser):
    """The addresses that a page of HTML loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if values.get("http-equiv") == "refresh":
            self.loads.append(values["content"].partition("url=")[2])
        loaded = tag != "link" or not set(values.get("rel", "").split()) <= _NOT_LOADED
        if loaded and _LOADS.get(tag) in values:
            self.loads.append(values[_LOADS[tag]])


def lead_on(site: Path) -> None:
    """Put a page at each old address that leads to the new one."""
    menu = tomllib.loads((DOCS / "site" / "zensical.toml").read_text("utf-8"))
    for old, new in menu["project"]["extra"]["moved"].items():
        to = "../" * len(old.split("/")) + new
        (site / old).mkdir(parents=True)
        head = f'<!doctype html><title>Moved</title><meta http-equiv="refresh" content="0;url={to}">'
        (site / old / "index.html").write_text(f'{head}<p>This page is now <a href="{to}">here</a>.</p>\n', "utf-8")


def problems(site: Path) -> Iterator[str]:
    """Yield a line for each load from another host, or of a file that is not there."""
    for path in sorted(site.rglob("*.html")):
        for load in Page(path.read_text("utf-8")).loads:
            parts = urlsplit(load)
            file = site / parts.path[1:] if parts.path.startswith("/") else path.parent / unquote(parts.path)
            if parts.netloc:
                yield f"{path.relative_to(site)}: loads {load} from another host"
            elif parts.scheme != "data" and not (file / "index.html" if file.is_dir() else file).is_file():
                yield f"{path.relative_to(site)}: loads {load}, which is not there"
    for path in sorted(site.rglob("*")):
        if path.suffix in (".js", ".mjs", ".css") and path.name not in _LINKS_IN_MESSAGES:
            for found in _HOST.finditer(path.read_bytes()):
                if not _NAMESPACES.match(found[0]):
                    yield f"{path.relative_to(site)}: names the host of {found[0].decode(errors='replace')}"
