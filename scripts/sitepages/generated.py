"""All pages that are written from the code."""

from __future__ import annotations

from sitepages import api, commands, tables


def pages() -> dict[str, str]:
    """Return their texts by their names on the site."""
    return {**api.pages(), **commands.pages(), **tables.pages()}
