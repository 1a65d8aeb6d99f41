"""Names of another library are replaced all or none, and come back."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from stompcodec.compat import seams
from stompcodec.compat.seams import Installed, Peer, PeerError, Seam
from stompcodec.errors import StompError

PEER = Peer("peer-of-a-test", (1, 2), (3,))


class Base:
    def inherited(self) -> str:
        return "theirs"


class Reader(Base):
    def read(self) -> str:
        return "theirs"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A library with a function and a class, in version 1.2."""
    module: Any = ModuleType("peer_of_a_test")
    module.parse = lambda: "theirs"
    module.Reader = type("Reader", (Reader,), {"read": Reader.read})
    monkeypatch.setitem(sys.modules, "peer_of_a_test", module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"peer-of-a-test": "1.2"}[name])
    yield module
    assert PEER.distribution not in seams._INSTALLED, "a test left it installed"


def ours(_self: object = None) -> str:
    return "ours"


def three(_quirks: bool) -> list[Seam]:
    return [
        Seam("peer_of_a_test", "parse", ours),
        Seam("peer_of_a_test:Reader", "read", ours),
        Seam("peer_of_a_test:Reader", "inherited", ours),
    ]


def answers(library: Any) -> list[str]:
    return [library.parse(), library.Reader().read(), library.Reader().inherited()]


def test_all_names_are_replaced_and_come_back(library: Any) -> None:
    before = dict(vars(library)), dict(vars(library.Reader))
    installed = seams.install(PEER, three, True)
    assert answers(library) == ["ours"] * 3
    assert repr(installed) == "<Installed: 3 names replaced>"
    installed.undo()
    assert answers(library) == ["theirs"] * 3
    # Also what a class inherits: the name is not left in it.
    assert (dict(vars(library)), dict(vars(library.Reader))) == before


def test_undo_twice_does_no_harm(library: Any) -> None:
    installed = seams.install(PEER, three, True)
    installed.undo()
    library.parse = lambda: "somebody else's"
    installed.undo()
    assert library.parse() == "somebody else's"


def test_twice_is_once(library: Any) -> None:
    with seams.install(PEER, three, True) as first:
        assert seams.install(PEER, three, True) is first
        with pytest.raises(PeerError, match="undo"):
            seams.install(PEER, three, False)
    assert answers(library) == ["theirs"] * 3


def test_it_can_be_installed_again_with_other_quirks(library: Any) -> None:
    for quirks in (True, False, True):
        with seams.install(PEER, three, quirks):
            assert answers(library) == ["ours"] * 3


def test_undo_follows_an_exception(library: Any) -> None:
    with pytest.raises(KeyError), seams.install(PEER, three, True):
        raise KeyError
    assert answers(library) == ["theirs"] * 3


def test_one_name_on_two_seams_comes_back(library: Any) -> None:
    """The older value wins, whatever stands twice in the list."""
    before = library.parse
    Installed([Seam("peer_of_a_test", "parse", 1), Seam("peer_of_a_test", "parse", 2)]).undo()
    assert library.parse is before


@pytest.mark.parametrize(
    "bad", [Seam("peer_of_a_test", "gone", ours), Seam("peer_of_a_test:Reader", "gone", ours)], ids=["module", "class"]
)
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_missing_name_changes_nothing(library: Any, bad: Seam, at: int) -> None:
    def with_bad(quirks: bool) -> list[Seam]:
        good = three(quirks)
        return [*good[:at], bad, *good[at:]]

    with pytest.raises(PeerError, match="gone") as caught:
        seams.install(PEER, with_bad, True)
    assert "Nothing was changed" in str(caught.value)
    assert answers(library) == ["theirs"] * 3
    with seams.install(PEER, three, False):  # and it can be tried anew
        pass


@pytest.mark.parametrize("owner", ["peer_of_a_test.gone", "peer_of_a_test:Gone"])
def test_a_missing_owner_changes_nothing(library: Any, owner: str) -> None:
    with pytest.raises(PeerError):
        seams.install(PEER, lambda quirks: [*three(quirks), Seam(owner, "parse", ours)], True)
    assert answers(library) == ["theirs"] * 3


@pytest.mark.parametrize("version", ["1.1.9", "1", "0.9", "3", "3.0.0", "3.0rc1", "4.1", "unversioned"])
def test_an_unknown_version_changes_nothing(library: Any, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    called = []
    with pytest.raises(PeerError) as caught:
        seams.install(PEER, lambda quirks: called.append(quirks) or three(quirks), True)
    assert version in str(caught.value)
    assert "peer-of-a-test>=1.2,<3" in str(caught.value)
    assert not called
    assert answers(library) == ["theirs"] * 3


@pytest.mark.parametrize("version", ["1.2", "1.2.0", "1.10", "2.99.1", "2.0rc1", "2.9.post1", "2.9+local"])
def test_known_versions(library: Any, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with seams.install(PEER, three, True):
        assert answers(library) == ["ours"] * 3


def test_a_missing_library_says_how_to_get_it() -> None:
    with pytest.raises(PeerError, match=r"pip install 'no-such-peer>=1,<2'") as caught:
        seams.install(Peer("no-such-peer", (1,), (2,)), three, True)
    assert isinstance(caught.value, (ImportError, StompError))
    assert isinstance(caught.value, ImportError)
