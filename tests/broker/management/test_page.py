"""docs/management.md is made of the table of requests."""

import re
from pathlib import Path

from stompcodec.broker.management.schema import REQUESTS, markdown, page_of

PAGE = Path(__file__).parents[3] / "docs" / "management.md"


def test_the_page_has_the_tables():
    """`make docs` writes them anew."""
    text = PAGE.read_text(encoding="utf-8")
    assert text.endswith(markdown())
    assert page_of(text) == text


def test_the_tables_name_each_field_once():
    for request in REQUESTS.values():
        for names in ([each.name for each in request.fields], [each.name for each in request.columns]):
            assert len(set(names)) == len(names)
            assert all(re.fullmatch("[a-z_]+", name) for name in names)
