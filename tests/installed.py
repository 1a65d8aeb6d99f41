"""Where the package under test comes from."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

__all__ = ["is_editable", "is_source_tree"]

TREE = Path(__file__).resolve().parents[1]


def is_editable() -> bool:
    """Return whether the package is installed as a link to its sources, as `make dev` does."""
    made = (each.read_text("direct_url.json") for each in importlib.metadata.distributions(name="stompcodec"))
    return any(json.loads(text).get("dir_info", {}).get("editable") for text in made if text)


def is_source_tree(module: Path) -> bool:
    """Return whether a module of the package is a file of this tree that was never installed.

    There the C backend is missing, or as old as the last build: tests of it would be skipped, or prove nothing.

    Args:
        module: `stompcodec/__init__.py`.
    """
    return module.resolve().parents[1] == TREE and not is_editable()
