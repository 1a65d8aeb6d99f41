"""The pages of the site: each is in the menu, each can be reached by links, and each link has a target."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sitepages import staging

CONFIG = staging.DOCS / "site" / "zensical.toml"


def _menu(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _menu(each)


def test_each_page_is_in_the_menu_once(staged: Path) -> None:
    menu = list(_menu(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]))
    assert len(menu) == len(set(menu))
    assert set(menu) == {path.relative_to(staged).as_posix() for path in staged.rglob("*.md")}


def _linked(page: Path) -> Iterator[tuple[staging.Link, Path]]:
    for link in staging.links(page.read_text("utf-8")):
        found = staging.target_of(page, link.target)
        if found is not None:
            yield link, found


def test_each_page_can_be_reached_from_the_first_one_by_links(staged: Path) -> None:
    reached, waiting = set(), [staged / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [found for _, found in _linked(page) if found.suffix == ".md"]
    assert {path.relative_to(staged).as_posix() for path in set(staged.rglob("*.md")) - reached} == set()


def test_each_link_has_a_target(staged: Path) -> None:
    broken = [
        f"{page.relative_to(staged)}:{link.line}: {link.target}"
        for page in sorted(staged.rglob("*.md"))
        for link, found in _linked(page)
        if not found.is_file()
    ]
    assert broken == []


@pytest.mark.parametrize("page", [staging.ROOT / "README.md", *staging.sources().values()], ids=lambda page: page.stem)
def test_each_link_of_the_tree_has_a_target(page: Path) -> None:
    broken = [link.target for link, found in _linked(page) if not found.exists()]
    assert broken == []


def test_pictures_come_along(staged: Path) -> None:
    for page in staged.rglob("*.md"):
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8")):
            assert os.path.isfile(page.parent / picture), (page, picture)
