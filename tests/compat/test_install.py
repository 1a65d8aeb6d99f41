"""`stompcodec.compat`: names of a library are replaced all or none, by its name, and come back."""

import importlib.metadata
import sys
from types import ModuleType, SimpleNamespace

import pytest
from compat.stomppy_peer import compat as stomppy
from compat.stomppy_peer import needs_stomppy, stomp

from stompcodec import compat
from stompcodec.compat import seams
from stompcodec.compat.seams import Peer, PeerError, Seam
from stompcodec.errors import StompError

PEER = Peer("a.lib", (1, 2), (3,))


def theirs(_self=None):
    return "theirs"


def ours(_self=None):
    return "ours"


def three(_quirks):
    return [Seam("a_lib", "parse", ours), Seam("a_lib:Reader", "read", ours), Seam("a_lib:Reader", "inherited", ours)]


def answers(library):
    return [library.parse(), library.Reader().read(), library.Reader().inherited()]


@pytest.fixture
def library(monkeypatch):
    """A library "a.lib" 1.2 with a function and a class; stomp.py beside it in `PEERS` shows that others stay."""
    found = ModuleType("a_lib")
    found.parse, found.asked = theirs, []
    found.Reader = type("Reader", (type("Base", (), {"inherited": theirs}),), {"read": theirs})

    def install(quirks=True, **options):
        found.asked.append((quirks, options))
        return seams.install(PEER, three, quirks, options)

    monkeypatch.setitem(sys.modules, "a_lib", found)
    monkeypatch.setitem(sys.modules, "stompcodec.compat.a_lib", SimpleNamespace(install=install))
    monkeypatch.setattr(seams, "PEERS", {"a_lib": "a.lib", "stomppy": "stomp.py"})
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.2")
    yield found
    assert PEER.distribution not in seams._INSTALLED, "a test left it installed"


@pytest.mark.parametrize("name", ["a.lib", "a_lib"])
def test_install_by_either_name(library, name):
    before = dict(vars(library)), dict(vars(library.Reader))
    installed = compat.install(name)
    assert (answers(library), repr(installed)) == (["ours"] * 3, "<Installed: 3 names replaced>")
    assert compat.install(name) is installed
    with pytest.raises(compat.PeerError, match=r"already installed with quirks=True: undo\(\) that first"):
        compat.install(name, quirks=False)
    installed.undo()
    # Also what a class inherits: the name is not left in it.
    assert (dict(vars(library)), dict(vars(library.Reader))) == before
    with pytest.raises(KeyError), compat.install(name, quirks=False):
        raise KeyError
    assert answers(library) == ["theirs"] * 3
    assert [quirks for quirks, _options in library.asked] == [True, True, False, False]


@pytest.mark.parametrize("name", ["a.lib", "a_lib", None])
def test_undo_by_name_or_all(library, name):
    installed = compat.install("a.lib")
    compat.undo("stomp.py")
    assert library.parse() == "ours"
    compat.undo(name)
    library.parse = lambda: "somebody else's"
    compat.undo(name)
    installed.undo()
    assert library.parse() == "somebody else's"


def test_unknown_names_and_options(library, monkeypatch):
    for call in (compat.install, compat.undo):
        with pytest.raises(compat.PeerError, match=r"unknown library 'pika': use one of a.lib, stomp.py"):
            call("pika")
    with pytest.raises(ValueError, match=r"heart_beats is for stomp.py only, not for a.lib"):
        compat.install("a.lib", heart_beats=(1000, 1000))
    monkeypatch.setitem(sys.modules, "stompcodec.compat.stomppy", sys.modules["stompcodec.compat.a_lib"])
    with compat.install("stomp.py", heart_beats=(1000, 1000)):
        assert library.asked == [(True, {"heart_beats": (1000, 1000)})]


@pytest.mark.parametrize("bad", ["a_lib", "a_lib:Reader", "a_lib.gone", "a_lib:Gone"])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_missing_name_changes_nothing(library, bad, at):
    def with_bad(quirks):
        good = three(quirks)
        return [*good[:at], Seam(bad, "gone", ours), *good[at:]]

    with pytest.raises(PeerError, match=r"(?i)gone.*Nothing was changed"):
        seams.install(PEER, with_bad, True)
    assert answers(library) == ["theirs"] * 3
    with seams.install(PEER, three, False):  # and it can be tried anew
        pass


@pytest.mark.parametrize(
    ("version", "known"),
    [
        *[(version, False) for version in ("1.1.9", "1", "0.9", "3", "3.0.0", "3.0rc1", "unversioned")],
        *[(version, True) for version in ("1.2", "1.2.0", "1.10", "2.99.1", "2.0rc1", "2.9.post1", "2.9+local")],
    ],
)
def test_versions(library, monkeypatch, version, known):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    if known:
        with seams.install(PEER, three, True):
            assert answers(library) == ["ours"] * 3
        return
    called = []
    with pytest.raises(PeerError, match=r"is not supported.*a\.lib>=1\.2,<3") as caught:
        seams.install(PEER, lambda quirks: called.append(quirks) or three(quirks), True)
    assert version in str(caught.value)
    assert not called
    assert answers(library) == ["theirs"] * 3


def test_a_missing_library_says_how_to_get_it():
    with pytest.raises(PeerError, match=r"pip install 'no-such-peer>=1,<2'") as caught:
        seams.install(Peer("no-such-peer", (1,), (2,)), three, True)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, StompError)


def names():
    found = {("class", name): value for name, value in vars(stomp.transport.BaseTransport).items()}
    for module in [name for name in sys.modules if name == "stomp" or name.startswith("stomp.")]:
        found |= {(module, name): value for name, value in vars(sys.modules[module]).items() if callable(value)}
    return found


@needs_stomppy
@pytest.mark.parametrize("quirks", [True, False])
def test_undo_gives_stomp_py_back(quirks):
    before, installed = names(), stomppy.install(quirks)
    changed = {place for place, value in names().items() if value is not before[place]}
    assert {name for _, name in changed} >= {"transmit", "convert_frame", "parse_frame"}
    old = {name for (_, name), value in names().items() if getattr(value, "__module__", "") == "stomp.utils"}
    assert not old & {seam.name for seam in installed.seams}, "a copy of a function is not replaced"
    installed.undo()
    assert names() == before


@needs_stomppy
@pytest.mark.parametrize("wrong", [5, 0, True, (1,), (1, 2, 3), (-1, 1), (1.5, 1), (True, 1), ("1", "1"), "ab"])
def test_other_heart_beats_are_refused(wrong):
    for use in (stomppy.install, lambda **options: stomppy.Connection12([("127.0.0.1", 1)], **options)):
        with pytest.raises(ValueError, match="two whole numbers of milliseconds"):
            use(heart_beats=wrong)
