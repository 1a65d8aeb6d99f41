"""A server and a shell for each test. Both shells run the same cases."""

import logging

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.scripted import Scripted
from client.shells import Shell


@pytest.fixture(params=["sync", "async"])
def shell(request):
    shell = Shell(request.param)
    yield shell
    shell.stop()


@pytest.fixture
def peer():
    with Peer() as peer:
        yield peer


@pytest.fixture(scope="module")
def broker():
    """Our own broker, for all tests of a module: each has a `queue`."""
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def client():
    return Scripted().connect()


@pytest.fixture
def quiet():
    logging.getLogger("stompcodec.client").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("stompcodec.client").setLevel(logging.NOTSET)
