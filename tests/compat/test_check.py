"""What `check` says of a library: known or not, its seams, its self-test."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from stompcodec.compat import check, seams
from stompcodec.compat.seams import Peer, PeerError, Seam


class Fake:
    """A library in version 1.5 whose `parse` is replaced, and our module for it."""

    version: str | None = "1.5"
    self_test_error: Exception | None = None

    def __init__(self) -> None:
        self.library: Any = ModuleType("fake_library")
        self.library.parse = len
        self.module: Any = ModuleType("stompcodec.compat.fake")
        self.module.install = lambda quirks: seams.install(Peer("fake-library", (1,), (2,)), self.seams, quirks)
        self.module.self_test = self.self_test
        self.tried: list[bool] = []

    def seams(self, _quirks: bool) -> list[Seam]:
        return [Seam("fake_library", "parse", sum)]

    def self_test(self, quirks: bool) -> None:
        assert self.library.parse is sum
        self.tried.append(quirks)
        if self.self_test_error is not None:
            raise self.self_test_error

    def version_of(self, name: str) -> str:
        if self.version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return self.version


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    made = Fake()
    monkeypatch.setitem(sys.modules, "fake_library", made.library)
    monkeypatch.setitem(sys.modules, "stompcodec.compat.fake", made.module)
    for module in (check, seams):
        monkeypatch.setattr(module, "PEERS", {"fake": "fake-library"})
    monkeypatch.setattr(importlib.metadata, "version", made.version_of)
    yield made
    assert made.library.parse is len, "it was not put back"


@pytest.mark.parametrize("name", ["fake", "fake-library"])
def test_a_good_one(fake: Fake, name: str) -> None:
    assert check.check(name) == ("fake-library", "1.5", "ok", 1, "")
    assert fake.tried == [True, False]


def test_what_is_missing(fake: Fake) -> None:
    fake.version = None
    verdict = check.check("fake")
    assert (verdict.state, verdict.version) == ("missing", None)
    assert "pip install fake-library" in verdict.problem
    assert verdict.good


def test_an_unknown_version(fake: Fake) -> None:
    fake.version = "2.0"
    verdict = check.check("fake")
    assert (verdict.state, verdict.version) == ("unknown", "2.0")
    assert "fake-library>=1,<2" in verdict.problem
    assert not verdict.good
    assert fake.tried == []


def test_a_seam_that_has_gone(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "seams", lambda quirks: [Seam("fake_library", "gone", sum)])
    verdict = check.check("fake")
    assert verdict.state == "unknown"
    assert "fake_library.gone" in verdict.problem


@pytest.mark.parametrize("error", [AssertionError("a header came back changed"), AttributeError("no_such_name")])
def test_a_self_test_that_fails(fake: Fake, error: Exception) -> None:
    fake.self_test_error = error
    verdict = check.check("fake")
    assert verdict.state == "broken"
    assert verdict.problem == f"{type(error).__name__}: {error}"
    assert not verdict.good


def test_nobody_knows_it(fake: Fake) -> None:
    with pytest.raises(PeerError, match="unknown library 'stomppy': use one of fake-library"):
        check.check("stomppy")


def test_all(fake: Fake) -> None:
    assert [verdict.peer for verdict in check.check_all()] == ["fake-library"]


@pytest.mark.parametrize("peer", seams.PEERS)
def test_what_is_installed_here(peer: str) -> None:
    """Each library that is installed is known, and works."""
    verdict = check.check(peer)
    if verdict.state == "missing":
        pytest.skip(verdict.problem)
    assert verdict.state == "ok", verdict.problem
    assert verdict.seams >= 2
