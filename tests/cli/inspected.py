"""Runs `inspect`, and reads its output and its pages."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from stompcodec.cli.app import app

LOGIN = b"CONNECT\nlogin:ann\npasscode:hunter2\naccept-version:1.2\nhost:a\n\n\0"
SEND = b"SEND\ndestination:/queue/a\ncontent-type:text/plain\ncontent-length:5\n\nhello\0"
BROKEN = b"SEND\nx:\\q\npasscode:hunter2\n\n\0"


def run(*arguments: str | Path, input: bytes | None = None, **environment: str) -> Result:
    runner = CliRunner(env={"COLUMNS": "120", **environment})
    return runner.invoke(app, ["inspect", *map(str, arguments)], input=input)


def objects(*arguments: str | Path, input: bytes | None = None, status: int = 0) -> list[dict[str, Any]]:
    result = run("--json", *arguments, input=input)
    assert result.exit_code == status, result.output
    return [json.loads(line) for line in result.stdout_bytes.splitlines()]


class Parsed(HTMLParser):
    """The elements of a page, and the text of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.elements[-1][0] if self.elements else "", data))


class Page:
    """What a page holds."""

    def __init__(self, *arguments: str | Path, input: bytes | None = None, status: int = 0) -> None:
        result = run(*arguments, "-o", "-", input=input)
        assert result.exit_code == status, result.output
        self.text = result.stdout_bytes.decode()
        self.parsed = Parsed(self.text)
        (book,) = re.findall(r'<script type="application/json" id="book">(.*?)</script>', self.text, re.DOTALL)
        self.book = json.loads(book)
        self.entries = self.book["entries"]

    def octets(self, number: int = 1) -> dict[int, bytes]:
        """Start -> octets, of the runs of an entry."""
        return {start: b64decode(data) for start, data in self.entries[number - 1]["runs"]}

    def everything(self) -> str:
        """The page and all octets in it."""
        runs = [data for number in range(len(self.entries)) for data in self.octets(number + 1).values()]
        return self.text + json.dumps(self.book) + b"\n".join(runs).decode("latin1")
