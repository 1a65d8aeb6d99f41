"""How long to wait between attempts to connect: a policy, and its delays as a generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True)
class Backoff:
    """Delays that grow, with jitter so that many clients do not come back at once.

    Args:
        first: the delay after the first failed round, in seconds.
        factor: by how much it grows.
        most: the longest delay, in seconds.
        jitter: the share of a delay that is random: 0 for none, 1 for anything between nothing and the whole.
        attempts: how many rounds over all addresses before the client gives up; None for no end.

    Raises:
        ValueError: a number makes no sense.

    >>> list(Backoff(first=1.0, most=5.0, attempts=4).delays(lambda: 1.0))
    [1.0, 2.0, 4.0, 5.0]
    """

    first: float = 0.1
    factor: float = 2.0
    most: float = 30.0
    jitter: float = 0.5
    attempts: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.most:
            raise ValueError(f"first is {self.first} and most is {self.most}: write 0 < first <= most, in seconds")
        if self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"factor is {self.factor}, jitter is {self.jitter}: at least 1, and from 0 to 1")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}: 1 or more, or None for no end")

    def delays(self, random: Callable[[], float]) -> Iterator[float]:
        """Seconds to wait before each further round.

        Args:
            random: gives numbers from 0 to 1, as `random.random` does.
        """
        delay, count = self.first, 0
        while self.attempts is None or count < self.attempts:
            yield delay * (1 - self.jitter + self.jitter * random())
            delay, count = min(delay * self.factor, self.most), count + 1
