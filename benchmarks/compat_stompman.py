"""The rows of stompman in bench_compat.py."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from clients import Task, drive_stompman
from feeder import LIMIT

SIZE = 200  # octets of a body
READ = 65536  # octets of a read, as asyncio's
COUNT = 4000
SUBSCRIPTION = b"2f1c7f0e-7b0d-4f25-9d8e-0c7f1c5a9b1e"  # as stompman names them
#: As ActiveMQ and our broker write them.
MESSAGE = (
    b"MESSAGE\nsubscription:%b\n"
    b"message-id:ID\\cbroker-41523-1718000000000-2\\c1\\c-1\\c1\\c%d\ndestination:/queue/bench\n"
    b"timestamp:1718000000000\nexpires:0\npriority:4\ncontent-length:%d\n\n%b\0"
)


def _stompman(patched: bool) -> Any:
    """The module, patched or not."""
    import stompman

    if patched:
        from stompcodec.compat import stompman as compat

        compat.install()
    return stompman


def parse(patched: bool, _port: int) -> tuple[int, float]:
    """Octets to stompman's frames, handed to nobody."""
    stompman = _stompman(patched)
    repeats = 10 if patched else 1
    data = b"".join(MESSAGE % (SUBSCRIPTION, number, SIZE, b"x" * SIZE) for number in range(COUNT)) * repeats
    chunks = [data[at : at + READ] for at in range(0, len(data), READ)]
    parser, right = stompman.FrameParser(), 0
    start = time.process_time()
    for chunk in chunks:
        for frame in parser.parse_frames_from_chunk(chunk):
            right += len(frame.headers) + len(frame.body)
    spent = time.process_time() - start
    if right != (7 + SIZE) * COUNT * repeats:
        raise RuntimeError("not all was read")
    return COUNT * repeats, spent


def write(patched: bool, _port: int) -> tuple[int, float]:
    """stompman's frames to octets."""
    stompman = _stompman(patched)
    count = 10 * COUNT if patched else COUNT
    headers = {"destination": "/queue/bench", "content-length": str(SIZE), "content-type": "text/plain"}
    frame = stompman.SendFrame(headers=headers, body=b"x" * SIZE)
    start = time.process_time()
    for _ in range(count):
        stompman.dump_frame(frame)
    return count, time.process_time() - start


def receive(patched: bool, _port: int) -> tuple[int, float]:
    """From the socket to a handler.

    The feeder of bench_compat.py wants no heart-beats, which makes stompman send them without a pause.
    """
    _stompman(patched)
    feeder = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    with feeder:
        task = Task(int(feeder.stdout.readline()), SIZE, "auto", None)
        count = drive_stompman(task)
        return count, time.process_time() - task.start


def feed() -> None:
    """A process: be the broker of one client for a second, then send a body of another size."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        listener.settimeout(LIMIT)
        client, _ = listener.accept()
    with client:
        client.settimeout(LIMIT)
        said = b""
        while not (found := re.search(rb"SUBSCRIBE\n[^\0]*?\nid:([^\n]*)[^\0]*\0", said)):
            more = client.recv(READ)
            if b"CONNECT\n" in more:
                client.sendall(b"CONNECTED\nversion:1.2\nheart-beat:10000,10000\n\n\0")
            if not more:
                raise ConnectionError("the client went away")
            said += more
        frames = [MESSAGE % (found[1], number, SIZE, b"x" * SIZE) for number in range(COUNT)]
        data, deadline = b"".join(frames), time.perf_counter() + 1
        while time.perf_counter() < deadline:
            client.sendall(data)
        client.sendall(MESSAGE % (found[1], COUNT, 3, b"END"))
        while more := client.recv(READ):
            for receipt in re.findall(rb"\nreceipt:([^\n]*)", more):
                client.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt)


def receive_alone(patched: bool, port: int) -> tuple[int, float]:
    """From the socket to the frames of a connection: without stompman's tasks, one for each handler."""
    import asyncio

    stompman = _stompman(patched)
    from stompman.connection import Connection

    async def run() -> tuple[int, float]:
        connection = await Connection.connect(
            host="127.0.0.1", port=port, timeout=int(LIMIT), read_max_chunk_size=1 << 20, ssl=None
        )
        await connection.write_frame(stompman.ConnectFrame(headers={"accept-version": "1.2", "host": "bench"}))
        async for frame in connection.read_frames():
            if isinstance(frame, stompman.ConnectedFrame):
                break
        await connection.write_frame(
            stompman.SubscribeFrame(headers={"id": "0", "destination": "/queue/bench", "ack": "auto"})
        )
        count, start = 0, time.process_time()
        async for frame in connection.read_frames():
            if isinstance(frame, stompman.MessageFrame):
                if len(frame.body) != SIZE:
                    break
                count += 1
        spent = time.process_time() - start
        await connection.close()
        return count, spent

    return asyncio.run(run())


#: (name, how many times as many a second we promise, is it fed over a socket, what drives it)
ROWS: list[tuple[str, float, bool, Callable[[bool, int], tuple[int, float]]]] = [
    ("stompman-parse", 50.0, False, parse),
    ("stompman-receive", 8.0, False, receive),
    ("stompman-read", 8.0, True, receive_alone),
    ("stompman-write", 1.0, False, write),
]

if __name__ == "__main__":
    feed()
