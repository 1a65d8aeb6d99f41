"""docs/error-messages.md quotes texts that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sitepages import staging

import stompcodec
from stompcodec.errors import ERROR_KINDS

PAGE = staging.DOCS / "error-messages.md"
#: Texts that others write, quoted because people search for them.
FOREIGN = {"… Connection refused", "near b'HTTP/1.1…'"}


def _quoted() -> list[str]:
    """The texts in the first column, and in the second of the table of kinds."""
    texts = []
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| `"):
            cells = line.split(" | ")
            texts += re.findall(r"`([^`]+)`", cells[1] if cells[0].strip("| `") in ERROR_KINDS else cells[0])
    return texts


@pytest.fixture(scope="module")
def code() -> str:
    """All of the code without its line ends and the quotes of joined texts, and with … for what is put in."""
    folder = Path(stompcodec.__file__).parent
    text = "\n".join(path.read_text("utf-8") for path in sorted(folder.rglob("*.py")))
    text = re.sub(r"\"\s*\n\s*f?\"", "", text)
    return re.sub(r"\{[^{}\n]*\}|%[.\d]*[sdfr]", "…", text)


@pytest.mark.parametrize("text", _quoted())
def test_the_code_has_this_text(text: str, code: str) -> None:
    parts = [
        part for part in re.split(r"\s*…\s*", re.sub("|".join(map(re.escape, FOREIGN)), "", text)) if part.strip(" :")
    ]
    assert text in FOREIGN or parts
    for part in parts:
        assert part in code, part


def test_every_kind_of_error_is_there() -> None:
    page = PAGE.read_text("utf-8")
    assert len(_quoted()) > 40
    for kind, text in ERROR_KINDS.items():
        assert f"| `{kind}` | `{text.what}` |" in page
