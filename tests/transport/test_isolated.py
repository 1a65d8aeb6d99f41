"""What has to be looked at from outside: each test runs a program in a process of its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from patience import patience

import stompcodec

HERE = Path(__file__).parent
ROOT = str(Path(stompcodec.__file__).parents[1])


def run(*arguments):
    """What a program prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        capture_output=True,
        timeout=patience(120),
        check=False,
        cwd=HERE,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("stompcodec.transport", "asyncio ssl socket websockets"),
        ("stompcodec.transport.sync", "asyncio ssl websockets"),
        ("stompcodec.transport.aio", "websockets uvloop"),
        ("stompcodec.transport.tls", "asyncio websockets"),
        ("stompcodec.transport.websocket", "asyncio ssl websockets.asyncio websockets.legacy"),
    ],
)
def test_what_is_not_needed_is_not_imported(module, absent):
    if module.endswith("websocket"):
        pytest.importorskip("websockets")
    code = f"import sys, {module}; print(*sorted(set({absent.split()!r}) & set(sys.modules)))"
    assert run("-c", code).split() == []


def test_without_the_library_websocket_names_the_extra():
    """And all the rest works."""
    code = """
import asyncio, sys
sys.modules["websockets"] = None
from stompcodec.transport import aio, sync
from stompcodec import errors
async def main():
    try:
        await aio.listen("127.0.0.1", 0, None, websocket=True)
    except errors.MissingExtraError as error:
        print(error)
    listener = await aio.listen("127.0.0.1", 0, None)
    listener.close()
asyncio.run(main())
"""
    assert run("-c", code) == "this needs the package websockets: pip install 'stompcodec[ws]'\n"


@pytest.mark.no_asan
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_idle_connection_is_small(loop):
    """Measured: 1.7 KiB on asyncio, 1.2 KiB on uvloop."""
    if not find_spec(loop):
        pytest.skip(f"{loop} is not installed")
    octets, objects = map(int, run(HERE / "idle.py", 1000, loop).split())
    assert octets < 5 * 1024
    assert objects < 50


@pytest.mark.skipif(not find_spec("trustme"), reason="certificates for TLS are made by trustme")
def test_nothing_is_left_open():
    """A program that connects, closes and ends at once, over all transports, has nothing to warn of."""
    code = f"""
import sys; sys.path.insert(0, {str(HERE.parent)!r})
import asyncio, pathlib, tempfile, trustme
from transport.wires import KINDS, Server
from stompcodec.transport import tls
authority = trustme.CA()
file = pathlib.Path(tempfile.mkdtemp()) / "server.pem"
authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
client = tls.client_context(verify=False)
async def main(kind):
    async with Server(kind, context=tls.server_context(file), echo=True) as server:
        peer = await server.connect(client)
        peer.wire.write([b"hello"])
        await peer.has(5)
        peer.wire.close()
        await peer.gone()
for kind in KINDS:
    asyncio.run(main(kind))
file.unlink(); file.parent.rmdir()
"""
    assert run("-X", "dev", "-W", "error", "-c", code) == ""
