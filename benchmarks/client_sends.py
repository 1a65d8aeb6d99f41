"""The sending of clients: what `bench_client.py` measures beside receiving, with a sink (sink.py) as the broker.

Each driver runs in a process of its own. It returns the CPU microseconds per message, the p50 of a round trip in
microseconds, or KiB and threads of 1,000 clients. What a client lacks is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clients import ASYNC, SYNC
from loads import body
from sink import PING

BARE = "sock.send"
STREAMS = "asyncio alone"
WHOS = (SYNC, ASYNC, "stomp.py", "stompman", BARE, STREAMS)
SIZE = 100
COUNTS = {"send": 20_000, "burst": 20_000, "receipt": 2_000, "ping": 2_000, "clients": 1_000}
#: What is measured, by the part of its key before the comma.
TEXTS = {
    "send": "send, one by one (CPU us per message)",
    "burst": "send_many, or 100 gathered sends (CPU us per message)",
    "receipt": "send and wait for its receipt (CPU us per message)",
    "ping": "ping-pong, quiet (us, p50)",
    "ping, busy": "ping-pong beside two busy loops (us, p50)",
    "clients": "1,000 clients (KiB each)",
    "threads": "1,000 clients (threads)",
}
PEERS = ("stomp.py", "stompman")
#: The promise: (what, ours, the others, at most this many times the least of the others' numbers).
FLOORS = (
    ("send", SYNC, (BARE,), 1.3),
    ("burst", SYNC, ("stomp.py",), 1 / 3),
    ("burst", ASYNC, ("stomp.py",), 1 / 3),
    ("receipt", SYNC, ("stomp.py",), 1 / 1.5),
    ("receipt", ASYNC, ("stomp.py",), 1 / 1.5),
    ("ping", SYNC, PEERS, 1.0),
    ("ping", ASYNC, PEERS, 1.0),
    ("ping, busy", SYNC, PEERS, 1.0),
    ("ping, busy", ASYNC, PEERS, 1.0),
)
#: Whose last message has no receipt, so that it is not sent a second time to get one.
WITHOUT_RECEIPT = {(SYNC, "burst"), ("stompman", "send"), ("stompman", "burst")}
MOST_KIB, MOST_THREADS = 40, 4


def bodies(count: int) -> list[bytes]:
    """Messages that all differ, made before the time counts."""
    return [body(SIZE, 0, number) for number in range(count)]


@contextlib.contextmanager
def cpu(count: int, found: list[float]) -> Iterator[None]:
    """Note the CPU microseconds per message of the block."""
    start = time.process_time()
    yield
    found.append((time.process_time() - start) / count * 1e6)


def _memory() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def _each(before: float, count: int) -> list[float]:
    time.sleep(0.5)  # threads that have connected end
    return [(_memory() - before) / count, threading.active_count()]


# ---- ours ----


def sync_drive(port: int, what: str, count: int) -> list[float]:
    import stompcodec.client as stomp

    found: list[float] = []
    url = f"stomp://127.0.0.1:{port}"
    if what == "clients":
        with contextlib.ExitStack() as stack:
            stack.enter_context(stomp.connect(url))
            before = _memory()
            for _ in range(count):
                stack.enter_context(stomp.connect(url))
            return _each(before, count)
    with stomp.connect(url) as client:
        texts = bodies(count)
        if what == "ping":
            subscription = client.subscribe(PING, confirm=False)
            for text in texts:
                start = time.perf_counter()
                client.send(PING, text)
                assert subscription.get(60).body == text
                found.append(time.perf_counter() - start)
            return [statistics.median(found) * 1e6]
        with cpu(count, found):
            if what == "burst":
                client.send_many(("/queue/bench", text) for text in texts)
            else:
                for text in texts:
                    client.send("/queue/bench", text, receipt=what == "receipt")
                client.send("/queue/bench", texts[-1], receipt=True)
    return found


def async_drive(port: int, what: str, count: int) -> list[float]:
    import stompcodec.client as stomp

    url = f"stomp://127.0.0.1:{port}"

    async def connected() -> list[float]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(stomp.connect_async(url))
            before = _memory()
            for _ in range(count):
                await stack.enter_async_context(stomp.connect_async(url))
            return _each(before, count)

    async def run() -> list[float]:
        found: list[float] = []
        async with stomp.connect_async(url) as client:
            texts = bodies(count)
            if what == "ping":
                subscription = await client.subscribe(PING, confirm=False)
                for text in texts:
                    start = time.perf_counter()
                    await client.send(PING, text)
                    assert (await subscription.get(60)).body == text
                    found.append(time.perf_counter() - start)
                return [statistics.median(found) * 1e6]
            with cpu(count, found):
                if what == "burst":
                    for at in range(0, count, 100):
                        await asyncio.gather(*[client.send("/queue/bench", text) for text in texts[at : at + 100]])
                else:
                    for text in texts:
                        await client.send("/queue/bench", text, receipt=what == "receipt")
                await client.send("/queue/bench", texts[-1], receipt=True)
        return found

    return asyncio.run(connected() if what == "clients" else run())


# ---- the others ----


def stomp_py_drive(port: int, what: str, count: int) -> list[float]:
    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
    import stomp

    come, got = threading.Semaphore(0), []

    class Listener(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            got.append(frame.body)
            come.release()

        def on_receipt(self, frame: Any) -> None:
            come.release()

    def connect() -> Any:
        connection = stomp.Connection12([("127.0.0.1", port)], auto_decode=False)
        connection.set_listener("", Listener())
        connection.connect("guest", "guest", wait=True)
        return connection

    found: list[float] = []
    connection = connect()
    if what == "clients":
        before = _memory()
        others = [connect() for _ in range(count)]
        found = _each(before, count)
        for each in others:
            each.transport.stop()
        return found
    texts = bodies(count)
    if what == "ping":
        connection.subscribe(PING, id="0", ack="auto")
        for text in texts:
            start = time.perf_counter()
            connection.send(PING, text)
            come.acquire()
            assert got.pop() == text
            found.append(time.perf_counter() - start)
        found = [statistics.median(found) * 1e6]
    else:
        with cpu(count, found):
            for number, text in enumerate(texts):
                if what == "receipt":
                    connection.send("/queue/bench", text, receipt=str(number))
                    come.acquire()
                else:
                    connection.send("/queue/bench", text)
            connection.send("/queue/bench", texts[-1], receipt="last")
            come.acquire()
    connection.disconnect()
    return found


def stompman_drive(port: int, what: str, count: int) -> list[float]:
    import stompman

    async def run() -> list[float]:
        found: list[float] = []
        server = stompman.ConnectionParameters("127.0.0.1", port, "guest", "guest")
        if what == "clients":
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(stompman.Client([server]))
                before = _memory()
                for _ in range(count):
                    await stack.enter_async_context(stompman.Client([server]))
                return _each(before, count)
        async with stompman.Client([server]) as client:
            texts = bodies(count)
            if what == "ping":
                queue: asyncio.Queue[bytes] = asyncio.Queue()

                async def take(frame: stompman.MessageFrame) -> None:
                    queue.put_nowait(frame.body)

                asked = await client.subscribe(
                    PING, take, ack="auto", on_suppressed_exception=lambda error, frame: None
                )
                for text in texts:
                    start = time.perf_counter()
                    await client.send(text, PING)
                    assert await queue.get() == text
                    found.append(time.perf_counter() - start)
                await asked.unsubscribe()
                return [statistics.median(found) * 1e6]
            with cpu(count, found):
                if what == "burst":
                    for at in range(0, count, 100):
                        await asyncio.gather(*[client.send(text, "/queue/bench") for text in texts[at : at + 100]])
                else:
                    for text in texts:
                        await client.send(text, "/queue/bench")
        return found

    return asyncio.run(run())


# ---- the floors: bytes that were made before the time counts ----


def _frames(count: int, **headers: str) -> list[bytes]:
    from stompcodec import Frame, serialize

    made = {"destination": "/queue/bench"} | headers
    return [serialize(Frame("SEND", made, text)) for text in bodies(count)]


def bare_drive(port: int, what: str, count: int) -> list[float]:
    """The bytes of our client, by a loop of `sock.send`."""
    found: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames, last = _frames(count), _frames(count, receipt="1")[-1]
        with cpu(count, found):
            for frame in frames:
                sock.send(frame)
            sock.send(last)
            sock.recv(1000)
    return found


def streams_drive(port: int, what: str, count: int) -> list[float]:
    """The same bytes by asyncio's streams, from 100 gathered coroutines or one by one; what comes is not parsed."""

    async def run() -> list[float]:
        found: list[float] = []
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        last = _frames(count, receipt="1")[-1]
        if what == "ping":
            for frame in _frames(count, destination=PING):
                start = time.perf_counter()
                writer.write(frame)
                await reader.readuntil(b"\0")
                found.append(time.perf_counter() - start)
            found = [statistics.median(found) * 1e6]
        elif what == "receipt":
            frames = _frames(count, receipt="1")
            with cpu(count, found):
                for frame in [*frames, last]:
                    writer.write(frame)
                    await reader.readuntil(b"\0")
        else:
            frames, waiting = _frames(count), []

            async def put(frame: bytes) -> None:
                waiting.append(frame)

            with cpu(count, found):
                for at in range(0, count, 100):
                    await asyncio.gather(*[put(frame) for frame in frames[at : at + 100]])
                    writer.write(b"".join(waiting))
                    waiting.clear()
                    await writer.drain()
                writer.write(last)
                await reader.readuntil(b"\0")
        writer.close()
        return found

    return asyncio.run(run())


Drive = Callable[[int, str, int], list[float]]
DRIVERS: dict[str, Drive] = {
    SYNC: sync_drive,
    ASYNC: async_drive,
    "stomp.py": stomp_py_drive,
    "stompman": stompman_drive,
    BARE: bare_drive,
    STREAMS: streams_drive,
}
#: What a client has no way to do, or what says nothing about it; 1,000 clients of the peers take over a minute.
LACKS = {
    ("stompman", "receipt"),
    *((who, "clients") for who in ("stomp.py", "stompman", BARE, STREAMS)),
    *((BARE, what) for what in ("burst", "receipt", "ping")),
    (STREAMS, "send"),
}


def drive(who: str, port: int, what: str, count: int) -> list[float]:
    """In the process of a client: return its numbers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    return DRIVERS[who](port, what, count)
