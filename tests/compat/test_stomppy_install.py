"""What `stompcodec.compat.stomppy.install()` replaces, and that `undo()` gives all of it back."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from compat.stomppy_peer import compat, needs_stomppy, stomp

from stompcodec.compat import seams
from stompcodec.compat.seams import PeerError

pytestmark = needs_stomppy


def names():
    found = {}
    for module in [name for name in sys.modules if name == "stomp" or name.startswith("stomp.")]:
        found |= {(module, name): value for name, value in vars(sys.modules[module]).items() if callable(value)}
    return {**found, **{("class", name): value for name, value in vars(stomp.transport.BaseTransport).items()}}


@pytest.mark.parametrize("quirks", [True, False])
def test_undo_gives_everything_back(quirks):
    before = names()
    installed = compat.install(quirks)
    changed = {place for place, value in names().items() if value is not before[place]}
    assert {name for _, name in changed} >= {"transmit", "convert_frame", "parse_frame"}
    installed.undo()
    installed.undo()
    assert names() == before


def test_every_copy_of_a_function_is_replaced():
    with compat.install() as installed:
        old = {name for name, value in names().items() if getattr(value, "__module__", "") == "stomp.utils"}
        assert {name for _, name in old} & {seam.name for seam in installed.seams} == set()


@pytest.mark.parametrize("version", ["7.0.0", "10.0"])
def test_an_unknown_version_is_left_alone(version, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    before = names()
    with pytest.raises(PeerError, match=r"is not supported.*stomp.py>=8.1,<10"):
        compat.install()
    assert names() == before


def test_a_seam_that_is_gone_is_told(monkeypatch):
    monkeypatch.delattr(stomp.transport.BaseTransport, "transmit")
    with pytest.raises(PeerError, match="transmit"):
        compat.install()
    assert seams._INSTALLED == {}
