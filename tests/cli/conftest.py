"""Fixtures of the verbs that talk to a broker. Without the extras there is nothing to test here."""

import uuid
from importlib.util import find_spec

import pytest

if find_spec("click") is None or find_spec("websockets") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    from cli.running import USERS, Runner  # needs the extras
    from crash.process import BrokerProcess

    folder = tmp_path_factory.mktemp("broker")
    with (
        BrokerProcess(folder / "open", memory=True) as broker,
        BrokerProcess(folder / "guarded", memory=True, config=USERS) as guarded,
    ):
        yield Runner(broker, guarded)


@pytest.fixture
def fresh():
    return f"/queue/{uuid.uuid4().hex}"
