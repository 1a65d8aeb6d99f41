"""Fixtures of the verbs that talk to a broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.at_broker import Runner


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Brokers, and what runs verbs against them."""
    from cli.at_broker import USERS, Runner  # needs the extras
    from crash.process import BrokerProcess

    folder = tmp_path_factory.mktemp("broker")
    with (
        BrokerProcess(folder / "open", memory=True) as broker,
        BrokerProcess(folder / "guarded", memory=True, config=USERS) as guarded,
    ):
        yield Runner(broker, guarded)


@pytest.fixture
def fresh() -> str:
    """A queue that nobody has used."""
    return f"/queue/{uuid.uuid4().hex}"
