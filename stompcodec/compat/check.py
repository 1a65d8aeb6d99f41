"""Are the libraries that are installed here known, are their seams in place, and do they work on our codec?"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable
from typing import Any, NamedTuple

from stompcodec.compat.seams import PEERS, PeerError, module_of

__all__ = ["Verdict", "check", "check_all"]


class Verdict(NamedTuple):
    """What is known of one library.

    >>> Verdict("coilmq", "1.1.0", "ok", 2).good
    True
    """

    peer: str
    """The library's name in the registry."""
    version: str | None
    """The one that is installed; None for none."""
    state: str
    """"ok"; "missing": not installed; "unknown": the version is not known, or a seam is not where it should be;
    "broken": the self-test failed."""
    seams: int = 0
    """Names that were replaced."""
    problem: str = ""
    """What is wrong, and what to do."""

    @property
    def good(self) -> bool:
        """Can it be used as it is installed, if it is?"""
        return self.state in ("ok", "missing")


def check(peer: str) -> Verdict:
    """Install into one library, try it with and without quirks, and undo that.

    Args:
        peer: a name of `PEERS`, or of the registry.

    Raises:
        PeerError: the library is unknown.

    >>> check("pika")
    Traceback (most recent call last):
    ...
    stompcodec.compat.seams.PeerError: unknown library 'pika': use one of stomp.py, stompman, coilmq, aiostomp
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
    except Exception as error:  # whatever a library of another version may do
        words = str(error) or "no reason given"
        return Verdict(distribution, version, "broken", count, f"{type(error).__name__}: {words}")
    return Verdict(distribution, version, "ok", count)


def _try(module: Any, quirks: bool) -> int:
    with module.install(quirks) as installed:
        module.self_test(quirks)
        return len(installed.seams)


def check_all(peers: Iterable[str] = ()) -> list[Verdict]:
    """`check` for each; all that are known where none is named."""
    return [check(peer) for peer in peers or PEERS]
