"""How many examples properties are tried with, in `make quick`, `make test` and `make test-slow`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["examples", "load"]

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("light", max_examples=10, stateful_step_count=15, derandomize=True, **_COMMON)
settings.register_profile("ci", max_examples=50, stateful_step_count=30, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=200, stateful_step_count=50, print_blob=True, **_COMMON)
settings.register_profile("deep", max_examples=1000, stateful_step_count=80, print_blob=True, **_COMMON)


def load() -> None:
    """Take the profile that HYPOTHESIS_PROFILE names, else that of `make test`."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "ci")


def examples(share: int) -> int:
    """Return how many examples a property takes that is tried more or less often than others.

    Args:
        share: percent of those that the profile gives to each.
    """
    return max(1, share * settings().max_examples // 100)
