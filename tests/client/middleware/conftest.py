"""A broker for each module, and a queue for each test."""

from __future__ import annotations

import itertools

import pytest
from client.broker import BrokerThread

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def queue():
    return f"/queue/middleware-{next(NUMBERS)}"
