"""The site's search, fed with complaints and wishes as people wrote them: the right place is among the first three."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from docsite.symptoms import COMPLAINTS, WISHES, WORDS
from patience import patience
from sitepages import built, staging

SITE = staging.ROOT / "build" / "site" / "html"
SCRIPT = Path(__file__).with_name("search.js")
LISTS = {"complaints and wishes": {**COMPLAINTS, **WISHES}, "words": WORDS}
FIRST = 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "search.json").is_file(), reason="the site is not built: make site"),
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed, which runs the site's search"),
]


def answers(queries: list[str]) -> list[list[str]]:
    """What the site's search finds for each query: locations, best first."""
    done = subprocess.run(
        ["node", SCRIPT, SITE],
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found


def is_right(location: str, places: tuple[str, ...]) -> bool:
    """True if a location is one of some places: that section, or any section of a page."""
    return any(location == place or (place.endswith("/") and location.startswith(place)) for place in places)


@pytest.mark.parametrize("name", LISTS)
def test_the_right_place_is_among_the_first_three(name: str) -> None:
    asked = LISTS[name]
    missed = [
        f"{query}: {found[:FIRST]}"
        for (query, places), found in zip(asked.items(), answers(list(asked)))
        if not any(is_right(location, places) for location in found[:FIRST])
    ]
    print(f"{len(asked) - len(missed)} of {len(asked)} {name} found")
    for line in missed:
        print(f"missed: {line}")
    assert len(missed) * 10 <= len(asked), "\n".join(missed)


def test_the_places_exist() -> None:
    known = {str(item["location"]) for item in built.searched(SITE)}
    for place in {place for asked in LISTS.values() for places in asked.values() for place in places}:
        assert place in known, place


def test_an_unfinished_word_finds_something() -> None:
    [found] = answers(["heart-be"])
    assert any("heart-beat" in location for location in found[:FIRST])


def test_words_that_say_nothing_find_nothing() -> None:
    assert answers(["what is it", "", "zzzqqqxxx"]) == [[], [], []]
