"""The HTML page of `inspect`: a single self-contained file that no frame content can break out of.

Content of the input is embedded as JSON with `<` escaped, and the script inserts it as text, never as markup. The
page's policy allows only that script, by its hash.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from stompcodec.cli.inspecting.data import Entry, Part, masked, shown_body, shown_runs
from stompcodec.cli.linting import title_of
from stompcodec.cli.screen import cut, header_value, printable

#: Bytes of a head in the page. Headers that begin after them are only counted.
_HEAD = 16 * 1024
#: Bytes of a body, and of one when space is short.
_BODY, _LEAN = 4096, 256
#: Characters of a header's value, and findings per frame.
_VALUE = 2000
_MARKS = 50
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; \
script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="stompcodec">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1><p id="about"></p>
<input id="filter" type="search" placeholder="Filter: command, destination, header" aria-label="Filter" \
autocomplete="off" spellcheck="false">
<p class="keys"><kbd>↑</kbd> <kbd>↓</kbd> move, <kbd>/</kbd> filter, <kbd>Esc</kbd> back</p>
</header>
<main>
<section id="list" tabindex="0" aria-label="Frames"></section>
<section id="parts" aria-label="Headers"></section>
<section id="octets" aria-label="Bytes"></section>
<section id="body" aria-label="Body"></section>
</main>
<script type="application/json" id="book">{book}</script>
<script>{script}</script>
</body>
</html>
"""


class Book:
    """The entries of a page, limited to `room` bytes.

    If not all bodies fit, those of later entries are cut before entries are left out.
    """

    def __init__(self, secrets: bool, room: int) -> None:
        self._secrets, self._room = secrets, room
        self._kept = room // 4  # reserved for whole bodies if some do not fit
        self._cut = False
        self._lean: list[str] = []
        self._whole: list[str] = []  # "" if equal to the lean entry, or if there is no space left
        self._held = 0  # bytes of whole entries, to limit memory
        self._rules: dict[str, str] = {}
        self._first = (-1, 0)  # score and index of the entry to open first

    def __len__(self) -> int:
        return len(self._lean)

    def add(self, entry: Entry) -> bool:
        """Add an entry, and return whether there was space for it. The first one is always added."""
        lean = script_text(entry_data(entry, _LEAN, self._secrets))
        whole = ""
        if entry.place is not None and entry.place.size > _LEAN:
            whole = script_text(entry_data(entry, _BODY, self._secrets))
        new = {mark.rule: title_of(mark.rule) for mark in entry.marks if mark.rule not in self._rules}
        size = len(lean) + 1 + len(script_text(new))
        self._cut = self._cut or bool(whole)
        if size > self._room - self._kept * self._cut and self._lean:
            return False
        self._room -= size
        self._held += len(whole)
        self._rules.update(new)
        self._lean.append(lean)
        best = max(self._first, (interest(entry), len(self._lean) - 1), key=lambda choice: choice[0])
        self._whole.append(whole if self._held < self._room or best != self._first else "")
        self._first = best
        return True

    def text(self, left: int) -> str:
        """Return the entries as JSON for the page, with the number of those left out."""
        entries, room = list(self._lean), self._room
        for index in (self._first[1], *range(len(entries))):  # the entry that is opened comes first
            more = len(self._whole[index]) - len(entries[index]) if self._whole else 0
            if 0 < more <= room:
                entries[index] = self._whole[index]
                room -= more
        about = f'"left":{left:d},"first":{self._first[1]:d},"rules":{script_text(self._rules)}'
        return f'{{{about},"entries":[{",".join(entries)}]}}'


def interest(entry: Entry) -> int:
    """Return a score for the entry to open first: a MESSAGE, then any frame with a body."""
    return 2 if entry.is_message else int(entry.place is not None and entry.place.size > 0)


def page_of(name: str, book: str) -> str:
    """Return the page for a file's name and the text of a `Book`."""
    style, script = _asset("inspect.css"), _asset("inspect.js")
    return _PAGE.format(
        title=escape(cut(printable(name), 200)),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        book=book,
    )


@cache
def _asset(name: str) -> str:
    return files("stompcodec.cli.inspecting").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def script_text(data: Any) -> str:
    """Return JSON that is safe inside an HTML element: ASCII, without markup.

    >>> script_text("</script>&\\u2028")
    '"\\\\u003c/script\\\\u003e\\\\u0026\\\\u2028"'
    """
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def entry_data(entry: Entry, most: int, secrets: bool) -> dict[str, Any]:
    """Return an entry as the page shows it, with `most` bytes of its body. Offsets of its parts are relative to it."""
    found = entry.seen.found
    octets = entry.seen.octets if secrets else masked(entry)
    shown = [part for part in entry.parts if part.start - found.start < _HEAD or part.kind in ("body", "end")]
    data: dict[str, Any] = {
        "n": entry.number,
        "at": found.start,
        "time": entry.time,
        "flow": entry.seen.flow,
        "command": cut(entry.command, 80),
        "destination": entry.destination,
        "version": found.version or "1.2",
        "size": None if entry.place is None else entry.place.size,
        "parts": [_part(part, found.start, octets, secrets) for part in shown],
        "more": len(entry.parts) - len(shown),
        "runs": [(at, b64encode(octets[at:end]).decode()) for at, end in shown_runs(octets, entry, _HEAD, most)],
        "length": None if entry.place is None else entry.place.end - found.start,
        "marks": _marks(entry, shown),
    }
    if entry.fault is not None:
        what, remedy = entry.fault_text()
        data["fault"] = {"at": entry.fault.error.offset, "what": what, "remedy": remedy, "on": entry.fault.resumed}
    if entry.place is not None and entry.place.size:
        data["body"] = shown_body(entry.place, most)._asdict()
    return data


def _part(part: Part, base: int, octets: bytes, secrets: bool) -> dict[str, Any]:
    start, end = part.start - base, part.end - base
    data: dict[str, Any] = {"kind": part.kind, "name": cut(printable(part.name), 200), "start": start, "end": end}
    if part.kind in ("header", "skipped"):
        written = octets[start:end].decode("utf-8", "replace")
        hidden = part.secret and not secrets
        meant = header_value(part.name, "") if hidden else printable(part.value, keep="\n")
        data["meant"] = cut(meant, _VALUE)
        data["plain"] = hidden or written == f"{part.name}:{part.value}"
        if part.kind == "skipped" or not data["plain"]:
            data["written"] = cut(printable(written), _VALUE)
    return data


def _marks(entry: Entry, shown: list[Part]) -> list[dict[str, Any]]:
    marks: list[dict[str, Any]] = []
    for mark in entry.marks[:_MARKS]:
        index = entry.part_of(mark)
        part = shown.index(entry.parts[index]) if index is not None and entry.parts[index] in shown else None
        texts = {"text": cut(printable(mark.text), 400), "remedy": mark.remedy}
        marks.append({"rule": mark.rule, "severity": mark.severity, "part": part, **texts})
    if len(entry.marks) > _MARKS:
        text = f"{len(entry.marks) - _MARKS} more findings"
        marks.append({"rule": "…", "severity": "note", "part": None, "text": text, "remedy": "see lint"})
    return marks
