"""How many attributes objects of the broker have: CPython shares the names of 29 at most in a class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.harness import AtOnce, Bench

from stompcodec.broker.storage.sqlite import SqliteStore

#: More are kept in a dict of the object's own, and the interpreter looks up each of its attributes and methods anew.
_MOST = 29
#: One object of these is there, and few of its attributes are used for each message.
_LARGE = {"Broker", "Config"}


def _parts(thing: Any, seen: set[int]) -> Iterator[Any]:
    """Yield an object of the broker, and those that it refers to."""
    if not type(thing).__module__.startswith("stompcodec.broker") or isinstance(thing, type) or id(thing) in seen:
        return
    seen.add(id(thing))
    yield thing
    for value in getattr(thing, "__dict__", {}).values():
        yield from _parts(value, seen)


def test_objects_that_each_commit_uses_have_few_attributes(tmp_path: Path) -> None:
    bench = Bench(SqliteStore(tmp_path, helper=AtOnce(), page_helper=AtOnce()))
    bench.broker.journal.on_lost = lambda error: None
    sender = bench.peer()
    sender.put("/queue/a", b"m", persistent="true", receipt="r")
    assert sender.next("RECEIPT")
    counts = {type(each).__name__: len(getattr(each, "__dict__", ())) for each in _parts(bench.broker, set())}
    assert {"Journal", "SqliteStore", "Writer"} < set(counts)
    assert {name: count for name, count in counts.items() if count > _MOST and name not in _LARGE} == {}
