"""Run programs written for stomp.py or stompman on our codec, unchanged.

    from stompcodec import compat

    installed = compat.install("stomp.py")      # before the first connection
    ...
    installed.undo()

Each library has a module, which needs that library: `stompcodec.compat.stomppy`, `.stompman`. Both have classes that
work without a patch.
"""

from __future__ import annotations

import importlib
from typing import Literal

from stompcodec.arguments import checked
from stompcodec.compat.seams import Installed, PeerError, module_of, undo

__all__ = ["Installed", "PeerError", "install", "undo"]


@checked
def install(
    library: str, quirks: bool = True, *, heart_beats: tuple[int, int] | Literal[False] | None = None
) -> Installed:
    """Put our codec into a library. Call it before the program's first connection.

    Args:
        library: "stomp.py" or "stompman".
        quirks: keep what programs may rely on, such as what the library's own tests pin. False: STOMP as specified.
            docs/compat.md lists the differences.
        heart_beats: for stomp.py only: the intervals in ms, to send and to receive, that connections offer unless they
            say otherwise. None: they offer what the program asks for by `heartbeats=`. Either way the heart-beats go on
            while a listener blocks. False: stomp.py's own heart-beats, which stop then.

    Returns:
        An object whose `undo()` restores the library; also a context manager. Installing twice with the same arguments
        returns the same object.

    Raises:
        PeerError: the library is unknown, missing or of an unknown version, or it is installed with other arguments.
            Nothing was changed.
        TypeError, ValueError: `heart_beats` is not two numbers of ms, None or False, or is for another library.

    >>> import stompman.connection
    >>> with install("stompman"):
    ...     stompman.connection.FrameParser.__module__
    'stompcodec.compat.stompman'
    >>> stompman.connection.FrameParser.__module__
    'stompman.serde'
    """
    module = module_of(library)
    if heart_beats is not None and module != "stomppy":
        raise ValueError(f"heart_beats is for stomp.py only, not for {library}")
    options = {} if heart_beats is None else {"heart_beats": heart_beats}
    installed: Installed = importlib.import_module(f"stompcodec.compat.{module}").install(quirks, **options)
    return installed
