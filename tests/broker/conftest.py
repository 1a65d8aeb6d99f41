"""What each test of the broker leaves behind."""

from collections.abc import Iterator

import pytest
from broker.harness import switch


@pytest.fixture(autouse=True)
def _road_in_c() -> Iterator[None]:
    """The road in C, which is switched for the whole process, is on again after a test that has switched it off."""
    yield
    switch(True)
