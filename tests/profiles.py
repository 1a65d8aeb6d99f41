"""How many examples properties are tried with, in `make quick`, `make test` and `make test-slow`."""

import os
from functools import cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

__all__ = ["begin", "examples", "load"]
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("light", max_examples=10, stateful_step_count=15, derandomize=True, **_COMMON)
settings.register_profile("ci", max_examples=50, stateful_step_count=30, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=200, stateful_step_count=50, print_blob=True, **_COMMON)
settings.register_profile("deep", max_examples=1000, stateful_step_count=80, print_blob=True, **_COMMON)


def load() -> None:
    """Take the profile that HYPOTHESIS_PROFILE names, else that of `make test`."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "ci")


@cache
def begin() -> None:
    """Try an empty property, so that Hypothesis makes its generator of random numbers. Call it before `gc.freeze`: from
    Python 3.14 on, Hypothesis does not see who holds a generator that it makes later, and warns that it will be
    lost."""

    @settings(max_examples=1, database=None)
    @given(st.none())
    def nothing(_: None) -> None: ...

    nothing()


def examples(share: int) -> int:
    """Return how many examples a property takes that is tried more or less often than others.

    Args:
        share: percent of those that the profile gives to each.
    """
    return max(1, share * settings().max_examples // 100)
