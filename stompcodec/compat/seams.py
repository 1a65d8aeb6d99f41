"""Seams: the names of another library that are replaced by ours, after all of them were checked."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from stompcodec.arguments import checked
from stompcodec.client.dialects import row_of
from stompcodec.errors import StompError

#: Module of `stompcodec.compat` -> the library's name in the registry.
PEERS = {"stomppy": "stomp.py", "stompman": "stompman"}


class PeerError(StompError, ImportError):
    """A library that is unknown, missing or of an unknown version. Nothing was changed.

    >>> raise PeerError("stomp.py is not installed")
    Traceback (most recent call last):
    ...
    stompcodec.compat.seams.PeerError: stomp.py is not installed
    """


class Seam(NamedTuple):
    """One name to replace."""

    owner: str
    """The module, or "module:Class"."""
    name: str
    new: Any


class Peer(NamedTuple):
    """A library that can run on our codec."""

    distribution: str
    """Its name in the package registry."""
    least: tuple[int, ...]
    """The first known version."""
    below: tuple[int, ...]
    """The first version after the known ones."""

    @property
    def wanted(self) -> str:
        """The known versions as a requirement for pip."""
        return f"{self.distribution}>={_dotted(self.least)},<{_dotted(self.below)}"


class Installed:
    """An installation of our codec into a library, until `undo()`. Also a context manager.

    A missing name raises PeerError, and nothing is changed.

    >>> import types, sys
    >>> sys.modules["doctest_peer"] = module = types.SimpleNamespace(parse=len)
    >>> with Installed([Seam("doctest_peer", "parse", sum)]):
    ...     module.parse is sum
    True
    >>> module.parse is len
    True
    """

    def __init__(self, seams: Iterable[Seam], done: Callable[[Installed], object] = lambda installed: None) -> None:
        self.seams = tuple(seams)
        self._done = done
        places = [(_owner(seam.owner), seam) for seam in self.seams]
        missing = [f"{seam.owner}.{seam.name}" for owner, seam in places if not hasattr(owner, seam.name)]
        if missing:
            raise PeerError(f"missing names: {', '.join(missing)}. Nothing was changed.")
        # An inherited name is not in the class's own dictionary: undo deletes it from the class.
        self._old = [(owner, seam.name, vars(owner).get(seam.name, _ABSENT)) for owner, seam in places]
        for owner, seam in places:
            setattr(owner, seam.name, seam.new)

    def undo(self) -> None:
        """Restore the library. Calling it twice does nothing more."""
        old, self._old = self._old, []
        for owner, name, value in reversed(old):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        if old:
            self._done(self)

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<Installed: {len(self._old)} names replaced>"


_ABSENT = object()
_INSTALLED: dict[str, tuple[dict[str, Any], Installed]] = {}


def install(
    peer: Peer,
    seams: Callable[[bool], Iterable[Seam]],
    quirks: bool,
    options: Mapping[str, Any] | None = None,
    undone: Callable[[], object] = lambda: None,
) -> Installed:
    """Replace all names of a library, or none. The second call returns the same object as the first.

    `seams` returns the names to replace, with quirks or without; it is only called for a known version. `options` are
    other arguments by name, for the error. `undone` is called once the names are restored. Raises PeerError if the
    library or a name is missing, its version is unknown, or it is installed with other arguments.
    """
    choice = {"quirks": quirks, **(options or {})}
    before = _INSTALLED.get(peer.distribution)
    if before is not None:
        if before[0] != choice:
            chosen = ", ".join(f"{name}={value}" for name, value in before[0].items())
            raise PeerError(f"already installed with {chosen}: undo() that first.")
        return before[1]
    version_of(peer)

    def done(_installed: Installed) -> None:
        _INSTALLED.pop(peer.distribution, None)
        undone()

    installed = Installed(seams(quirks), done)
    _INSTALLED[peer.distribution] = choice, installed
    return installed


def module_of(library: str) -> str:
    """Return the module of `stompcodec.compat` for a library, named as in the registry or as the module."""
    for module, name in PEERS.items():
        if library in (module, name):
            return module
    raise PeerError(f"unknown library {library!r}: use one of {', '.join(PEERS.values())}")


@checked
def undo(library: str | None = None) -> None:
    """Restore a library that runs on our codec; does nothing if it does not.

    Args:
        library: its name in the registry, such as "stomp.py"; None for all libraries.

    Raises:
        PeerError: the library is unknown.

    >>> undo("stomp.py")
    """
    wanted = None if library is None else PEERS[module_of(library)]
    for name, (_choice, installed) in list(_INSTALLED.items()):
        if wanted in (None, name):
            installed.undo()


def version_of(peer: Peer) -> str:
    """Return the version of a library; raise PeerError if it is unknown, or the library is not installed."""
    try:
        version = importlib.metadata.version(peer.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise PeerError(f"{peer.distribution} is not installed: pip install '{peer.wanted}'") from None
    release = tuple(int(part) for part in re.match(r"\d*(?:\.\d+)*", version)[0].split(".") if part)  # type: ignore[index]
    if not peer.least <= release < peer.below:
        raise PeerError(
            f"{peer.distribution} {version} is not supported, so nothing was changed. Supported: {peer.wanted}"
        )
    return version


def _owner(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise PeerError(f"{module} cannot be imported: {error}. Nothing was changed.") from error
    if attribute and not hasattr(found, attribute):
        raise PeerError(f"missing names: {module}.{attribute}. Nothing was changed.")
    return getattr(found, attribute) if attribute else found


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


#: The dialects of whose NACK a program was warned.
_warned: set[str] = set()


def warn_of_nack(server: str | None, warn: Callable[[str, str], object]) -> None:
    """Warn once, by the `warning` of the library's log, that the NACK of a broker, by the header server of its
    CONNECTED, drops the message.
    """
    dialect = row_of("auto", server)
    if dialect.nacked == "drops" and dialect.name not in _warned:
        _warned.add(dialect.name)
        warn("NACK: %s drops the message: to keep it, send a copy to another queue, then ACK", dialect.name)
