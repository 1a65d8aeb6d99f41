"""Rates and ages, computed when they are asked for: nothing is noted for each message."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

#: The least seconds over which a rate is taken.
_LEAST = 1.0
#: Samples of `Ages`: one for each second with messages; older ones are thinned out.
_MOST_SAMPLES = 4096


class Sampled(Protocol):
    """A queue or a topic, which keeps the counts of earlier questions."""

    sample: object


def thousandths(number: float) -> float:
    """Return a number rounded to three decimal places, five times as fast as round(number, 3).

    >>> thousandths(0.12345), thousandths(1234.5)
    (0.123, 1234.5)
    """
    return round(number * 1000) / 1000


def rates(thing: Sampled, now: float, received: int, delivered: int) -> tuple[float | None, float | None]:
    """Return the messages received and delivered per second since an earlier question, at least a second ago.

    Several clients may ask: none of them shortens the time over which the others measure.

    >>> class Thing: sample = None
    >>> rates(Thing, 0.0, 0, 0), rates(Thing, 2.0, 10, 8), rates(Thing, 2.5, 11, 9)
    ((None, None), (5.0, 4.0), (4.4, 3.6))
    """
    sample = thing.sample
    # The counts of two earlier questions, `_LEAST` seconds apart or more: the later one first. A plain tuple, because
    # each queue of an answer gets one: a named one takes ten times the instructions.
    if not isinstance(sample, tuple):
        thing.sample = (now, received, delivered, now, received, delivered)
        return None, None
    if now - sample[0] >= _LEAST:
        thing.sample = sample = (now, received, delivered, sample[0], sample[1], sample[2])
    seconds = now - sample[3]
    if seconds < _LEAST:
        return None, None
    more, gone = received - sample[4], delivered - sample[5]
    return thousandths(more / seconds) if more else 0.0, thousandths(gone / seconds) if gone else 0.0


class Ages:
    """When messages were sent, by their seqs: samples of the latest seq, about one per second.

    >>> ages = Ages(0.0, 5)
    >>> ages.note(1.0, 7); ages.note(2.0, 7); ages.note(3.0, 9)
    >>> ages.age(6, 10.0), ages.age(8, 10.0), ages.age(10, 10.0), ages.age(4, 10.0)
    (10.0, 8.0, 7.0, 10.0)
    """

    def __init__(self, now: float, seq: int) -> None:
        self.start = now
        #: Each seq, and the last time at which it was the latest.
        self._seqs, self._times = [seq], [now]

    def note(self, now: float, seq: int) -> None:
        """Take a sample."""
        if seq == self._seqs[-1]:
            self._times[-1] = now
            return
        self._seqs.append(seq)
        self._times.append(now)
        if len(self._seqs) > _MOST_SAMPLES:  # the first half becomes half as dense
            half = len(self._seqs) // 2
            self._seqs[:half] = self._seqs[:half:2]
            self._times[:half] = self._times[:half:2]

    def age(self, seq: int, now: float) -> float:
        """Return the seconds since a message was sent, about one second too many; for one of an earlier run of the
        broker, those since the start.
        """
        at = bisect_left(self._seqs, seq)
        passed = now - (self._times[at - 1] if at else self.start)
        return thousandths(passed) if passed > 0.0 else 0.0
