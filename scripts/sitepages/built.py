"""Check the finished site: every link leads somewhere, nothing comes from another host, every page can be reached."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

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
_PLACE = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/]+(/\S*)?|mailto:[^\s@]+@[^\s@]+", re.IGNORECASE)


class Page(HTMLParser):
    """What a page of HTML links to, loads and names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        loaded = tag != "link" or not set(values.get("rel", "").split()) <= _NOT_LOADED
        if loaded and _LOADS.get(tag) in values:
            self.loads.append(values[_LOADS[tag]])


def problems(site: Path) -> Iterator[str]:
    """Yield a line for each broken link, each address with a bad form, and each load from another host."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in page.links:
            if wrong := _wrong(link, path, site, pages):
                yield f"{where}: {link}: {wrong}"
        for load in page.loads:
            if urlsplit(load).netloc:
                yield f"{where}: loads {load} from another host"
            elif not load.startswith("data:") and not _file(load, path, site).is_file():
                yield f"{where}: loads {load}, which is not there"
    for path in sorted(site.rglob("*")):
        if path.suffix in (".js", ".mjs", ".css") and path.name not in _LINKS_IN_MESSAGES:
            for found in _HOST.finditer(path.read_bytes()):
                if not _NAMESPACES.match(found[0]):
                    yield f"{path.relative_to(site)}: names the host of {found[0].decode(errors='replace')}"


def _file(link: str, page: Path, site: Path) -> Path:
    path = unquote(urlsplit(link).path)
    found = (site / path.lstrip("/") if path.startswith("/") else page.parent / path) if path else page
    return found / "index.html" if found.is_dir() else found


def _wrong(link: str, page: Path, site: Path, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "" if _PLACE.fullmatch(link) else "not the form of an address"
    if page.name == "404.html":
        return ""  # its links begin with the site's address
    file = _file(link, page, site).resolve()
    if not file.is_file():
        return "no such file"
    anchor = unquote(parts.fragment)
    if anchor and file in pages and anchor not in pages[file].ids:
        return "no such anchor"
    return ""


def searched(site: Path) -> list[dict[str, object]]:
    """Return the sections that the site's search knows."""
    index = json.loads((site / "search.json").read_text("utf-8"))
    return list(index["items"])
