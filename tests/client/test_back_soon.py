"""A client is back within seconds of its broker, and the clients of one broker do not come at once."""

from __future__ import annotations

import random

import stompcodec.client as stomp


class Outage:
    """A clock that goes on by each delay, and by what each round of attempts takes."""

    def __init__(self, backoff: stomp.Backoff, round_: float = 0.0, seed: int = 1) -> None:
        self.now = 1000.0
        self._delays = backoff.delays(random.Random(seed).random, lambda: self.now)
        self._round = round_

    def delays(self, until: float) -> list[tuple[float, float]]:
        """Return each delay before a point of time, with the seconds since the connection was lost."""
        found = []
        began = self.now
        while self.now - began < until:
            delay = next(self._delays)
            found.append((self.now - began, delay))
            self.now += delay + self._round
        return found


def test_a_client_tries_at_least_every_five_seconds_for_five_minutes():
    for round_ in (0.0, 1.0, 10.0):
        for at, delay in Outage(stomp.Backoff(), round_).delays(3600.0):
            assert delay <= (5.0 if at <= 300.0 else 30.0)


def test_after_five_minutes_the_delays_grow_to_half_a_minute():
    delays = Outage(stomp.Backoff(jitter=0.0)).delays(3600.0)
    assert {delay for at, delay in delays if 30.0 < at < 300.0} == {5.0}
    assert {delay for at, delay in delays if at > 500.0} == {30.0}


def test_a_longest_delay_that_was_asked_for_holds_for_ever():
    assert {delay for _, delay in Outage(stomp.Backoff(most=2.0, jitter=0.0)).delays(3600.0)[20:]} == {2.0}
    slow = Outage(stomp.Backoff(first=10.0, jitter=0.0)).delays(3600.0)
    assert {delay for at, delay in slow if at < 280.0} == {10.0}  # a first delay longer than 5 s stays valid


def test_clients_that_lost_one_broker_together_are_spread_over_seconds():
    """Of 500 clients, no more than 60 come in any 200 ms once the delays have grown."""
    at = sorted(Outage(stomp.Backoff(), seed=seed).delays(30.0)[-1][0] for seed in range(500))
    assert max(sum(1 for other in at if one <= other < one + 0.2) for one in at) <= 60


def test_a_client_is_back_within_half_of_the_outage():
    """A broker that was down for 8 s and is up for 3 s is found."""
    for seed in range(200):
        for at, delay in Outage(stomp.Backoff(), seed=seed).delays(60.0):
            assert delay <= max(1.0, at / 2)
            assert at > 8.0 or delay <= 3.0
