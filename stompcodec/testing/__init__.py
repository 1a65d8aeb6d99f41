"""Tools for testing programs that use STOMP: a broker that records frames, faults, and a proxy that breaks connections.

pytest has the fixtures `stomp_broker`, `stomp_client` and `async_stomp_client` once stompcodec is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stompcodec.testing.broker import ShiftedClock, StompBroker
    from stompcodec.testing.faults import Direction, FaultProxy, Rules
    from stompcodec.testing.frame_faults import Fault, FrameFaults
    from stompcodec.testing.record import Record, RecordedFrame

__all__ = [
    "Direction",
    "Fault",
    "FaultProxy",
    "FrameFaults",
    "Record",
    "RecordedFrame",
    "Rules",
    "ShiftedClock",
    "StompBroker",
]

#: Imported on first use, since pytest imports this package in every run.
_LAZY = {
    **dict.fromkeys(("StompBroker", "ShiftedClock"), "broker"),
    **dict.fromkeys(("Direction", "FaultProxy", "Rules"), "faults"),
    **dict.fromkeys(("Fault", "FrameFaults"), "frame_faults"),
    **dict.fromkeys(("Record", "RecordedFrame"), "record"),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"stompcodec.testing.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
