"""The compiled half of the broker: one extension that has the modules of `MODULES`, made from their Python files.

Each of those files has a `.pxd` file beside it, which gives its classes fields of C; the same file runs without a
compiler. Importing this module, as the package does first, lets the import system take them from the extension. The
environment variable STOMPCODEC_PLAIN=0 leaves all to Python, and so does the Python backend of the codec; with
STOMPCODEC_PLAIN=1, a missing extension is an error. docs/decisions.md has the reasons.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from stompcodec.codec import BACKEND, Frame

#: The modules in the extension. The last three are written for it alone: `heads` has a Python file of the same name.
MODULES = (
    *("memory", "message", "queues.outbox", "queues.ready", "queues.consumer", "queues.paging", "queues.queue"),
    *("routing.topic", "sessions.state", "sessions.receipts", "sessions.transaction", "sessions.plain"),
    *("storage.journal", "queues.heads", "sessions.road", "storage.places"),
)
_PACKAGE = "stompcodec.broker"
#: Versions whose heads are read as the frames are: in others, values are trimmed or names folded.
_VERSIONS = ("1.1", "1.2")


class _Finder(MetaPathFinder):
    """Finds the modules of the extension."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.names = {f"{_PACKAGE}.{name}" for name in MODULES}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self.names:
            return None
        return spec_from_file_location(name, self._path, loader=ExtensionFileLoader(name, self._path))


def _extension(setting: str) -> str | None:
    """Return the path of the extension; None to do without."""
    if setting not in ("", "0", "1"):
        raise ImportError(f"STOMPCODEC_PLAIN is {setting!r}: set it to 1 or 0, or not at all")
    if setting == "0" or BACKEND != "c":
        return None
    here = [Path(__file__).with_name(f"_hot{suffix}") for suffix in EXTENSION_SUFFIXES]
    for path in filter(Path.exists, here):
        newer = _newer(path)
        if not newer:
            return str(path)
        text = f"{newer} has changed since the broker was compiled, so its Python files are used: run make dev"
        warnings.warn(text, RuntimeWarning, stacklevel=1)
        return None
    if setting == "1":
        raise ImportError("STOMPCODEC_PLAIN is 1, but the extension stompcodec.broker._hot was not built")
    return None


def _newer(extension: Path) -> str:
    """Return a file of a source tree that was changed after the extension was built; "" for none."""
    if not (extension.parents[2] / "setup.py").exists():
        return ""
    built = extension.stat().st_mtime
    for typed in extension.parent.rglob("*.pxd"):
        for file in (typed, typed.with_suffix(".py")):
            if file.stat().st_mtime > built:
                return str(file)
    return ""


def _install() -> bool:
    path = _extension(os.environ.get("STOMPCODEC_PLAIN", ""))
    if path is not None:
        finder = _Finder(path)
        if early := finder.names & sys.modules.keys():
            raise ImportError(f"{min(early)} was imported before stompcodec.broker.hot, which says where it comes from")
        sys.meta_path.insert(0, finder)
    return path is not None


#: The modules come from the extension.
COMPILED = _install()
#: The module `sessions.road` of the extension; None without.
_road: Any = None
_Handler = Callable[[Any, Frame], None]


def prepare(send: _Handler, ack: _Handler, slow: tuple[str, ...], without: tuple[str, ...]) -> None:
    """Let SENDs and ACKs be read without frames, where the modules are compiled. While a session has other handlers
    than `send` and `ack`, all frames are made. `slow` are the headers of SENDs that only `send` handles, `without`
    those that MESSAGE does not have.
    """
    global _road
    if COMPILED:
        _road = import_module(f"{_PACKAGE}.sessions.road")
        _road.prepare(send, ack, _failed, slow, without)


def begin(session: Any, each: int) -> None:
    """Have SENDs and ACKs of a new session read without frames; after `each` frames somebody looks at the clock."""
    if _road is None or not session.plain or session.version not in _VERSIONS:
        return
    road = _road.Road(session, each)
    if session.connection.offer_frames(road):
        session.road = road


def switch(on: bool) -> bool:
    """Have frames of all sessions read without frame objects, or not, for tests. Return what it was before."""
    return _road is not None and bool(_road.switch(on))


def _failed(session: Any, error: Exception, command: str, receipt: str | None) -> None:
    """End a session as after an error in the handler of a frame with that receipt."""
    session.answer_error(error, Frame(command, {} if receipt is None else {"receipt": receipt}))
