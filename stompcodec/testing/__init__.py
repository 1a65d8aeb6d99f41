"""Help for tests of programs that use STOMP. `faults` has a proxy that breaks connections."""

from stompcodec.testing.faults import FaultProxy, Rules, Way

__all__ = ["FaultProxy", "Rules", "Way"]
