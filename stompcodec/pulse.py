"""The sense of time of a connection: when it heard and sent something, when a beat is due, when its peer is dead."""

from __future__ import annotations

from stompcodec.heartbeat import Heartbeat

__all__ = ["EOL", "NO_BEATS", "Pulse"]

NO_BEATS = Heartbeat(0, 0)
EOL = b"\n"


class Pulse:
    """The part of a connection that knows the time, and its output. No clock is read here.

    Args:
        grace: seconds of silence that are borne beyond twice the interval.
        now: the time in seconds.

    >>> pulse = Pulse(0.0, 5.0)
    >>> pulse.heartbeat = Heartbeat(send_every=1000, receive_every=2000)
    >>> pulse.next_deadline(), pulse.tick(5.5), pulse.take_output(), pulse.tick(9.0)
    (5.5, True, [b'\\n'], False)
    """

    __slots__ = ("_grace", "_heard", "_now", "_sent", "heartbeat", "output")

    def __init__(self, grace: float, now: float) -> None:
        self._grace = grace
        self._now = self._heard = self._sent = now  # the last time seen, and that of the last octets each way
        self.heartbeat = NO_BEATS
        self.output: list[bytes] = []

    def take_output(self, now: float | None = None) -> list[bytes]:
        """Hand over what is in `output`, and empty it.

        Args:
            now: the time in seconds, for heart-beats; None for the last one seen.
        """
        taken = self.output[:]
        if now is not None:
            self._now = now
        if taken:
            self.output.clear()
            self._sent = self._now
        return taken

    def tick(self, now: float) -> bool:
        """Do what is due: an EOL goes into `output` if nothing was sent for half of the interval (S12-HB-10).

        Args:
            now: the time in seconds. Take in what the transport holds before, or our stall looks like the peer's.

        Returns:
            False when the peer is dead: silent for twice its interval, and for a client one second more.
        """
        self._now = now
        dead, due = self._dead_at(), self._beat_at()
        if due is not None and now >= due and (dead is None or now < dead):
            self.output.append(EOL)
        return dead is None or now < dead

    def excuse(self, seconds: float) -> None:
        """Do not hold so much silence against the peer: we did not read, being held up or having paused.

        While reading is paused, call it before every `tick`.
        """
        self._heard += max(seconds, 0.0)

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, in seconds; None for never. Ask again after every other call."""
        deadlines = [at for at in (self._dead_at(), self._beat_at()) if at is not None]
        return min(deadlines, default=None)

    def _dead_at(self) -> float | None:
        return self.heartbeat.dead_at(self._heard + self._grace)

    def _beat_at(self) -> float | None:
        """What waits in `output` is as good as an EOL that is sent now."""
        return self.heartbeat.next_send_at(self._now if self.output else self._sent)
