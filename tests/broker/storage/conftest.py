"""Where the tests of stores have their data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stompcodec.broker.storage.sqlite import SqliteStore


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


@pytest.fixture
def store(data: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(data)
    yield made
    made.close()
