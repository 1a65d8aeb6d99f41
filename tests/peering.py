"""Other people's servers for tests, from scripts/peers: the mark `peer`, and the fixtures `peer` and `start_peer`.

    @pytest.mark.peer("activemq6", "artemis")   # runs once for each
    def test_it(peer):
        connect(peer.url)                       # peer.kill() is kill -9; peer.start() starts it with its data

Tests of one process share a server; it is killed with that process, however that ends. Where it cannot run, the test is
skipped and says why. Tests with the mark run with the option --peers alone, as in `make test-peers`.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import installed
import pytest
from patience import patience

__all__ = ["FOLDER", "load"]
FOLDER = Path(__file__).parents[1] / "scripts" / "peers"


def load() -> ModuleType:
    """Return the package `peers`; the test is skipped where it is not beside tests/."""
    if "peers" not in sys.modules and sys.platform == "win32":
        pytest.skip("the servers run on Linux only")
    return sys.modules.get("peers") or installed.load("scripts/peers", "peers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = []
    for item in items:
        if item.get_closest_marker("peer") is not None:
            item.add_marker(pytest.mark.slow)
            marked.append(item)
        elif "start_peer" in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid} starts a server: give it the mark peer")
    if marked and not config.getoption("--peers"):
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item not in set(marked)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("peer")
    if mark is not None and "peer" in metafunc.fixturenames:
        metafunc.parametrize("peer", mark.args, indirect=True)


@pytest.fixture(scope="session")
def start_peer(request, tmp_path_factory):
    """A function that takes the name of a server and its options, and returns it running: a `Server` of scripts/peers.
    The same name and options give the same server, started again if a test has killed it."""
    servers, failed = {}, {}
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(line, file=sys.stderr, flush=True)

    def start(name: str, **options: str) -> Any:
        peers = load()
        if reason := peers.missing(peers.PEERS[name]):
            pytest.skip(f"{name}: {reason}")
        key = (name, *sorted(options.items()))
        if key in failed:
            raise failed[key]
        if key not in servers:
            servers[key] = peers.Server(name, options, folder=tmp_path_factory.mktemp(name), say=say)
        servers[key].limit = patience(120)
        try:
            servers[key].start()
        except peers.PeerError as error:
            failed[key] = error  # each of the other tests would wait for it again
            raise
        return servers[key]

    yield start
    for server in servers.values():
        server.close()


@pytest.fixture
def peer(request: pytest.FixtureRequest, start_peer: Callable[..., Any]) -> Any:
    """The server of the mark `peer`, with the options that are its keywords."""
    return start_peer(request.param, **request.node.get_closest_marker("peer").kwargs)
