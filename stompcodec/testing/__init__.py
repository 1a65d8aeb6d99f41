"""Help for tests of programs that use STOMP: a broker of your own with its frames on record, and broken connections.

With pytest, the fixtures `stomp_broker`, `stomp_client` and `async_stomp_client` are there by themselves.

    from stompcodec.testing import FaultProxy, StompBroker

    with StompBroker() as broker:
        ...                                                # connect to broker.url
        broker.expect("SEND", destination="/queue/a")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stompcodec.testing.broker import StompBroker
    from stompcodec.testing.clock import ShiftedClock
    from stompcodec.testing.faults import FaultProxy, Rules, Way
    from stompcodec.testing.frame_faults import Fault, FrameFaults
    from stompcodec.testing.record import Record, Seen

__all__ = ["Fault", "FaultProxy", "FrameFaults", "Record", "Rules", "Seen", "ShiftedClock", "StompBroker", "Way"]

#: Imported when it is asked for: pytest imports this package in every run, whatever is tested there.
_LAZY = {
    "Fault": "frame_faults",
    "FaultProxy": "faults",
    "FrameFaults": "frame_faults",
    "Record": "record",
    "Rules": "faults",
    "Seen": "record",
    "ShiftedClock": "clock",
    "StompBroker": "broker",
    "Way": "faults",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"stompcodec.testing.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
