"""What has to be looked at from outside: each test runs a program in a process of its own."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from installed import environment, program

HERE = Path(__file__).parent


def run(*arguments):
    return program(*arguments, env=environment(HERE.parent), cwd=HERE)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        *(("", "asyncio ssl socket websockets"), (".sync", "asyncio ssl websockets")),
        *((".aio", "websockets uvloop"), (".tls", "asyncio websockets")),
        (".websocket", "asyncio ssl websockets.asyncio websockets.legacy"),
    ],
)
def test_what_is_not_needed_is_not_imported(module, absent):
    if module == ".websocket":
        pytest.importorskip("websockets")
    code = f"import sys, stompcodec.transport{module}; print(*sorted(set({absent.split()!r}) & set(sys.modules)))"
    assert run("-c", code).split() == []


def test_without_the_library_websocket_names_the_extra():
    code = """
import asyncio, sys
sys.modules["websockets"] = None
from stompcodec import errors
from stompcodec.transport import aio, sync
try:
    asyncio.run(aio.listen("127.0.0.1", 0, object, websocket=True))
except errors.MissingExtraError as error:
    print(error)
asyncio.run(aio.listen("127.0.0.1", 0, object))
"""
    assert run("-c", code) == "this needs the package websockets: pip install 'stompcodec[ws]'\n"


IDLE = """
import asyncio, gc, importlib, sys
from transport.wires import Raw
from stompcodec.transport import aio
class Owner:
    __slots__ = ("wire",)
    def opened(self, wire):
        self.wire = wire
    def received(self, data):
        self.wire.write([bytes(data)])
    def lost(self, error):
        pass
def resident():
    gc.collect()
    with open("/proc/self/statm") as source:
        return int(source.read().split()[1]) * 4096, sys.getallocatedblocks()
async def main(count):
    listener = await aio.listen("127.0.0.1", 0, Owner)
    opened = [Raw.to(listener.port) for number in range(200 + count)]  # bare sockets: the server's side is measured
    for number, each in enumerate(opened):
        if number == 200:
            before = resident()
        raw = await each.__aenter__()
        await raw.send(b"hello")
        assert await raw.some() == b"hello"
    print(*((late - early) // count for late, early in zip(resident(), before)))
    for each in opened:
        await each.__aexit__(None, None, None)
    listener.close()
    await asyncio.sleep(0.1)
importlib.import_module(sys.argv[1]).new_event_loop().run_until_complete(main(1000))
"""


@pytest.mark.no_asan
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_idle_connection_is_small(loop):
    """Measured: 1.7 KiB on asyncio, 1.2 KiB on uvloop, and as much for the socket of the test."""
    if not find_spec(loop):
        pytest.skip(f"{loop} is not installed")
    octets, objects = map(int, run("-c", IDLE, loop).split())
    assert octets < 6 * 1024
    assert objects < 60
