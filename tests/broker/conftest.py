"""What each test of the broker leaves behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stompcodec.broker.sessions import plain


@pytest.fixture(autouse=True)
def _road_in_c() -> Iterator[None]:
    """The road in C, which is switched for the whole process, is on again after a test that has switched it off."""
    yield
    if plain.EXTENSION is not None:
        plain.EXTENSION.switch(True)
