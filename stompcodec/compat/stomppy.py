r"""stomp.py on our codec, by one line before the first connection:

    from stompcodec import compat
    compat.install("stomp.py")

Or without a patch, by classes with the same arguments:

    from stompcodec.compat.stomppy import Connection12 as Connection

Listeners are called in the same order, with stomp.py's own frames. docs/compat.md lists the differences.

The heart-beats that a program asks for by `heartbeats=` continue while a listener blocks: listeners are called in a
thread of their own. With `heart_beats=(10000, 10000)` that goes for all connections.
"""

from __future__ import annotations

import functools
import sys
from typing import Any
from weakref import WeakSet

from stompcodec.compat.seams import Installed, Seam
from stompcodec.compat.seams import install as _install
from stompcodec.compat.stomppy_beats import Beats, HeartBeats, checked, offer, reading_ahead
from stompcodec.compat.stomppy_codec import (
    PEER,
    convert_frame,
    parse_frame,
    reading,
    stomp,
    strict_convert_frame,
    strict_parse_frame,
    strict_parse_headers,
    transmitting,
)

__all__ = ["PEER", "Connection10", "Connection11", "Connection12", "WSConnection", "install", "seams"]

_BASE: Any = stomp.transport.BaseTransport
#: The reading method, which their I/O thread looks up in each turn. It delivers frames; before 9.0 it returned them.
_READS = "_BaseTransport__read_frames" if hasattr(_BASE, "_BaseTransport__read_frames") else "_BaseTransport__read"


def _methods(quirks: bool, heart_beats: HeartBeats = None, taken: WeakSet[Beats] | None = None) -> dict[str, Any]:
    """Return the methods to replace in a transport, by name. `taken` collects the heart-beats that are ours."""
    convert = convert_frame if quirks else strict_convert_frame
    if heart_beats is False:
        return {_READS: reading(quirks), "transmit": transmitting(convert)}
    connecting = functools.partial(offer, heart_beats=heart_beats, taken=WeakSet() if taken is None else taken)
    ahead = reading_ahead(quirks, always=heart_beats is not None)
    return {_READS: ahead, "transmit": transmitting(convert, connecting)}


def _functions(quirks: bool) -> dict[str, Any]:
    """Return the functions to replace in modules, by name."""
    if quirks:
        return {"convert_frame": convert_frame, "parse_frame": parse_frame}
    return {
        "convert_frame": strict_convert_frame,
        "parse_frame": strict_parse_frame,
        "parse_headers": strict_parse_headers,
    }


def seams(quirks: bool = True, heart_beats: HeartBeats = None, taken: WeakSet[Beats] | None = None) -> list[Seam]:
    """Return the names of stomp.py to replace. A function is in several modules, which import it from each other.

    >>> [seam.name for seam in seams() if seam.owner == "stomp.transport:BaseTransport"][-1]
    'transmit'
    """
    methods = _methods(quirks, heart_beats, taken)
    found = [Seam("stomp.transport:BaseTransport", name, new) for name, new in methods.items()]
    modules = sorted(name for name in sys.modules if name.startswith("stomp."))
    for name, new in _functions(quirks).items():
        found += [Seam(module, name, new) for module in modules if hasattr(sys.modules[module], name)]
    return found


def install(quirks: bool = True, *, heart_beats: HeartBeats = None) -> Installed:
    """Put our codec into stomp.py, for all connections of this program. Call it before the first of them connects.

    Args:
        quirks: programs see the same as before, even for malformed streams. False: STOMP as specified; malformed data
            ends the connection, and a frame that could not be read back is not sent (FrameError).
        heart_beats: the intervals in ms, to send and to receive, that connections offer unless they say otherwise.
            None: they offer what the program asks for by `heartbeats=`, or nothing. Either way, connections of STOMP
            1.1 and 1.2 keep their heart-beats while a listener blocks, because listeners are called in another thread,
            still one after the other. False: as stomp.py does; a listener that blocks stops them.

    Returns:
        An object whose `undo()` restores stomp.py. Call it when no connection is open.

    Raises:
        PeerError: the version of stomp.py is unknown, or it is installed with other arguments. Nothing was changed.
        ValueError: `heart_beats` is not two numbers of milliseconds, None or False.

    >>> with install():
    ...     stomp.transport.convert_frame is convert_frame
    True
    """
    beats, taken = checked(heart_beats), WeakSet[Beats]()

    def undone() -> None:
        for each in list(taken):
            each.give_back()

    of = functools.partial(seams, heart_beats=beats, taken=taken)
    return _install(PEER, of, quirks, {"heart_beats": beats}, undone)


@functools.cache
def _transport_class(base: Any, quirks: bool, heart_beats: HeartBeats) -> Any:
    return type(f"Codec{base.__name__}", (base,), {"__doc__": base.__doc__, **_methods(quirks, heart_beats)})


class _OnOurCodec:
    """A mixin for connections of stomp.py, whose transport it puts on our codec."""

    transport: Any

    def __init__(self, *args: Any, quirks: bool = True, heart_beats: HeartBeats = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Their constructors make the transport, with arguments that depend on the version. So its class is changed
        # afterwards, while it has no socket.
        kind: Any = type(self.transport)
        self.transport.__class__ = _transport_class(kind, quirks, checked(heart_beats))


class Connection10(_OnOurCodec, stomp.connect.StompConnection10):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.Connection10` on our codec, with `quirks` and `heart_beats` as for `install`. stomp.py itself is
    unchanged.

    >>> isinstance(Connection10([("127.0.0.1", 61613)]), stomp.Connection10)
    True
    """


class Connection11(_OnOurCodec, stomp.connect.StompConnection11):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.Connection11` (`stomp.Connection`) on our codec, with `quirks` and `heart_beats` as for `install`.

    >>> Connection11([("127.0.0.1", 61613)], heartbeats=(1000, 1000)).heartbeats
    (1000, 1000)
    """


class Connection12(_OnOurCodec, stomp.connect.StompConnection12):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.Connection12` on our codec, with `quirks` and `heart_beats` as for `install`.

    >>> Connection12([("127.0.0.1", 61613)], quirks=False).version
    '1.2'
    """


class WSConnection(_OnOurCodec, stomp.adapter.ws.WSStompConnection):  # type: ignore[misc, name-defined, unused-ignore]
    """`stomp.WSConnection` on our codec, with `quirks` and `heart_beats` as for `install`.

    >>> WSConnection([("127.0.0.1", 15674)], ws_path="/ws").transport.ws_path
    '/ws'
    """
