"""The door `stompcodec.compat`: install by a library's name, and undo."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from stompcodec import compat
from stompcodec.compat import seams
from stompcodec.compat.seams import Peer, Seam


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A library "a.lib" that `stompcodec.compat.a_lib` is for; stomp.py beside it in `PEERS` shows that others stay."""
    found = SimpleNamespace(parse=len, asked=[])
    module = ModuleType("stompcodec.compat.a_lib")

    def install(quirks: bool = True, **options: object) -> seams.Installed:
        found.asked.append((quirks, options))
        return seams.install(Peer("a.lib", (1,), (2,)), lambda quirks: [Seam("a_lib", "parse", sum)], quirks, options)

    module.install = install
    monkeypatch.setitem(sys.modules, "a_lib", found)
    monkeypatch.setitem(sys.modules, "stompcodec.compat.a_lib", module)
    monkeypatch.setattr(seams, "PEERS", {"a_lib": "a.lib", "stomppy": "stomp.py"})
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.0")
    return found


@pytest.mark.parametrize("name", ["a.lib", "a_lib"])
def test_install_by_either_name(library: SimpleNamespace, name: str) -> None:
    installed = compat.install(name)
    assert library.parse is sum
    assert compat.install(name) is installed
    with pytest.raises(compat.PeerError, match="already installed with quirks=True"):
        compat.install(name, quirks=False)
    installed.undo()
    assert library.parse is len
    with compat.install(name, quirks=False):
        assert library.parse is sum
    assert library.parse is len
    assert [quirks for quirks, _options in library.asked] == [True, True, False, False]


@pytest.mark.parametrize("name", ["a.lib", "a_lib", None])
def test_undo_by_name_or_all(library: SimpleNamespace, name: str | None) -> None:
    compat.install("a.lib")
    compat.undo("stomp.py")
    assert library.parse is sum
    compat.undo(name)
    compat.undo(name)
    assert library.parse is len


def test_unknown_names(library: SimpleNamespace) -> None:
    for call in (compat.install, compat.undo):
        with pytest.raises(compat.PeerError, match=r"unknown library 'pika': use one of a.lib, stomp.py"):
            call("pika")


def test_heart_beats_are_stomp_py_s(library: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"heart_beats is for stomp.py only, not for a.lib"):
        compat.install("a.lib", heart_beats=(1000, 1000))
    monkeypatch.setitem(sys.modules, "stompcodec.compat.stomppy", sys.modules["stompcodec.compat.a_lib"])
    with compat.install("stomp.py", heart_beats=(1000, 1000)):
        assert library.asked == [(True, {"heart_beats": (1000, 1000)})]


def test_importing_the_door_imports_no_library() -> None:
    assert compat.__all__ == ["Installed", "PeerError", "install", "undo"]
    assert issubclass(compat.PeerError, ImportError)
