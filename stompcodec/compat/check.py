"""The check of installed libraries: known version, all seams in place, and a self-test on our codec."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable
from typing import Any, NamedTuple

from stompcodec.compat.seams import PEERS, PeerError, module_of


class Verdict(NamedTuple):
    """The result for one library.

    >>> Verdict("stompman", "3.16.0", "ok", 2).good
    True
    """

    peer: str
    """The library's name in the package registry."""
    version: str | None
    """The installed version; None if it is not installed."""
    state: str
    """"ok"; "missing": not installed; "unknown": the version is unknown, or a seam is missing; "broken": the self-test
    failed."""
    seams: int = 0
    """The number of replaced names."""
    problem: str = ""
    """The problem and its remedy; "" if there is none."""

    @property
    def good(self) -> bool:
        """True if nothing is wrong: the library works, or is not installed."""
        return self.state in ("ok", "missing")


def check(peer: str) -> Verdict:
    """Install our codec into a library, test it with and without quirks, and undo that.

    The library is named as in the registry, or as its module.

    >>> check("pika")
    Traceback (most recent call last):
    ...
    stompcodec.compat.seams.PeerError: unknown library 'pika': use one of stomp.py, stompman
    """
    module_name = module_of(peer)
    distribution = PEERS[module_name]
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return Verdict(distribution, None, "missing", problem=f"pip install {distribution}")
    count = 0
    try:
        module = importlib.import_module(f"stompcodec.compat.{module_name}")
        for quirks in (True, False):
            count = _try(module, quirks)
    except PeerError as error:
        return Verdict(distribution, version, "unknown", problem=str(error))
    except Exception as error:  # from a library that has changed
        words = str(error) or "no reason given"
        return Verdict(distribution, version, "broken", count, f"{type(error).__name__}: {words}")
    return Verdict(distribution, version, "ok", count)


def _try(module: Any, quirks: bool) -> int:
    with module.install(quirks) as installed:
        module.self_test(quirks)
        return len(installed.seams)


def check_all(peers: Iterable[str] = ()) -> list[Verdict]:
    """Check the named libraries, or all known ones."""
    return [check(peer) for peer in peers or PEERS]
