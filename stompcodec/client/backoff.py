"""Delays between attempts to connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isinf

#: Seconds from the first to the last refused login that end a client: a broker that restarts may refuse for a while.
SPAN = 60.0


@dataclass(frozen=True)
class Backoff:
    """A policy of growing delays, with jitter so that many clients do not reconnect at once.

    Args:
        first: the delay after the first failed round over all addresses, in seconds.
        factor: by which each delay grows.
        most: the longest delay, in seconds.
        jitter: the random share of a delay, from 0 (none) to 1 (all of it).
        attempts: the number of rounds before the client gives up; None for no limit.

    Raises:
        ValueError: a number is out of its range.

    >>> list(Backoff(first=1.0, most=5.0, attempts=4).delays(lambda: 1.0))
    [1.0, 2.0, 4.0, 5.0]
    """

    first: float = 0.1
    factor: float = 2.0
    most: float = 30.0
    jitter: float = 0.5
    attempts: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.most or isinf(self.first):
            raise ValueError(f"first is {self.first} and most is {self.most}: write 0 < first <= most, in seconds")
        if not self.factor >= 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"factor is {self.factor} and jitter is {self.jitter}: they must be >= 1 and 0 to 1")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}: it must be 1 or more, or None for no limit")

    def delays(self, random: Callable[[], float]) -> Iterator[float]:
        """Yield the seconds to wait before each round.

        Args:
            random: returns numbers from 0 to 1, as `random.random`.
        """
        delay, count = self.first, 0
        while self.attempts is None or count < self.attempts:
            yield delay * (1 - self.jitter + self.jitter * random())
            delay, count = min(delay * self.factor, self.most), count + 1


class Refusals:
    """The refused logins in a row, which a client counts: more attempts could lock the account.

    Args:
        most: the number that ends the attempts; None for no limit.
        span: the least seconds from the first of them to the one that ends the attempts.

    >>> refusals = Refusals(2, span=60.0)
    >>> [refusals.note(at) for at in (0.0, 1.0, 60.0)]
    [False, False, True]
    >>> refusals.forget()
    >>> refusals.note(61.0)
    False
    """

    def __init__(self, most: int | None, span: float) -> None:
        self._most = most
        self.span = span
        self._count = 0
        self._first = 0.0

    def note(self, now: float) -> bool:
        """Count a refused login; return whether to give up."""
        if not self._count:
            self._first = now
        self._count += 1
        return self._most is not None and self._count >= self._most and now - self._first >= self.span

    def forget(self) -> None:
        """Begin anew: there was a session, or the broker refused for another reason."""
        self._count = 0
