"""Certificates made for the run, the two roads of WebSocket, and both shells."""

import functools
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from transport.wires import Loop, Sync, finish


@pytest.fixture(scope="session")
def contexts(certificates):
    return certificates.contexts


@pytest.fixture
def contexts_of(request: pytest.FixtureRequest) -> Any:
    """For a kind of transport: the contexts of server and client, or two times None."""
    none = SimpleNamespace(server=None, client=None)
    return lambda kind: request.getfixturevalue("contexts") if kind in ("tls", "wss") else none


@pytest.fixture(scope="module", params=["quick", "library"])
def road(request: pytest.FixtureRequest) -> Iterator[str]:
    """How WebSocket layers handle plain frames: on the quick road, which only skips work, or in the library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stompcodec.transport.websocket._QUICK", request.param == "quick")
        yield request.param


@pytest.fixture(scope="session", params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")  # before a test makes its coroutine
    return functools.partial(finish, request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    pyfuncitem.funcargs["run"](pyfuncitem.obj(**given))
    return True


@pytest.fixture(params=["asyncio", "uvloop", "sync"])
def shell(request: pytest.FixtureRequest) -> Iterator[Any]:
    with Sync() if request.param == "sync" else Loop(request.param) as shell:
        yield shell
