"""Certificates made for the run, and loops that fail a test when something goes wrong behind its back."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import patience

from stompcodec.transport import aio, sync, tls


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Files: `ca`, `server` (for 127.0.0.1 and localhost), `client`, `stranger` (of another authority)."""
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    folder = tmp_path_factory.mktemp("certificates")
    files: dict[str, Path] = {}
    authority, other = trustme.CA(), trustme.CA()
    issued = {
        "server": authority.issue_cert("127.0.0.1", "localhost"),
        "client": authority.issue_cert("ann@example.org"),
        "stranger": other.issue_cert("127.0.0.1"),
    }
    files["ca"] = folder / "ca.pem"
    authority.cert_pem.write_to_path(files["ca"])
    for name, certificate in issued.items():
        files[name] = folder / f"{name}.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(files[name])
    return SimpleNamespace(**files)


@pytest.fixture(scope="session")
def contexts(certificates: Any) -> Any:
    """`server` and `client`, that fit."""
    return SimpleNamespace(server=tls.server_context(certificates.server), client=tls.client_context(certificates.ca))


@pytest.fixture
def contexts_of(request: pytest.FixtureRequest) -> Any:
    """For a kind of transport: the contexts of server and client, or two times None."""

    def of(kind: str) -> Any:
        if kind in ("tls", "wss"):
            return request.getfixturevalue("contexts")
        return SimpleNamespace(server=None, client=None)

    return of


@pytest.fixture(scope="module", params=["quick", "library"])
def road(request: pytest.FixtureRequest) -> Iterator[str]:
    """How WebSocket layers handle plain frames: on the quick road, which only skips work, or in the library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stompcodec.transport.websocket._QUICK", request.param == "quick")
        yield request.param


def finish(kind: str, work: Any) -> Any:
    """Run a coroutine to its end. What a loop would only log, or a task that is left, is an error."""
    new_loop = asyncio.new_event_loop
    if kind == "uvloop":
        new_loop = pytest.importorskip("uvloop").new_event_loop
    loop, wrongs = new_loop(), []
    loop.set_exception_handler(lambda _, context: wrongs.append(context))
    try:
        result = loop.run_until_complete(asyncio.wait_for(work, patience(30)))
        loop.run_until_complete(asyncio.sleep(0))
        assert asyncio.all_tasks(loop) == set()
    finally:
        loop.close()
    gc.collect()
    assert wrongs == []
    return result


@pytest.fixture(scope="session", params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    """Runs a coroutine to its end, on both loops."""
    return functools.partial(finish, request.param)


@pytest.fixture(params=["asyncio", "uvloop", "sync"])
def connect(request: pytest.FixtureRequest) -> Any:
    """Connects an owner by each shell, for attempts that fail."""

    def connect(where: Any, peer: Any, **options: Any) -> None:
        if request.param == "sync":
            with sync.Waker() as waker:
                sync.connect(where, peer, waker=waker, **options)
        else:
            finish(request.param, aio.connect(where, peer, **options))

    return connect
