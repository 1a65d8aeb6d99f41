"""A server and a shell for each test. Both shells run the same cases."""

from __future__ import annotations

import pytest
from client.peer import Peer
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
