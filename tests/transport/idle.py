"""Opens idle connections to itself and prints what one costs the server: octets of resident memory, and objects.

Usage: idle.py [CONNECTIONS [asyncio|uvloop]]
"""

import asyncio
import gc
import socket
import sys

from stompcodec.transport import aio


class Owner:
    """A session that does nothing but echo."""

    __slots__ = ("wire",)

    def opened(self, wire):
        self.wire = wire

    def received(self, data):
        self.wire.write([bytes(data)])

    def writable(self, yes):
        pass

    def lost(self, error):
        pass


def resident():
    gc.collect()
    with open("/proc/self/statm") as source:
        return int(source.read().split()[1]) * 4096


async def main(count):
    listener = await aio.listen("127.0.0.1", 0, Owner)
    sockets = []  # bare ones: what is measured is the server's side

    async def join(many):
        loop = asyncio.get_running_loop()
        for _ in range(many):
            sock = socket.socket()
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", listener.port))
            await loop.sock_sendall(sock, b"hello")
            assert await loop.sock_recv(sock, 5) == b"hello"
            sockets.append(sock)

    await join(200)
    before, objects = resident(), sys.getallocatedblocks()
    await join(count)
    print((resident() - before) // count - sys.getsizeof(sockets[0]), (sys.getallocatedblocks() - objects) // count)
    for sock in sockets:
        sock.close()
    listener.close()
    await asyncio.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[2:] == ["uvloop"]:
        import uvloop

        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    loop.run_until_complete(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
    loop.close()
