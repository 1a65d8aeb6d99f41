"""Our client beside stomp.py and stompman, and both of them on our codec: `make bench WHAT=client`.

Each client runs in a process of its own, driven as its documentation shows it, and measures its own CPU time. It is fed
encoded frames as fast as it takes them, so that no broker's speed plays a part. What it receives is checked first.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import statistics
import threading
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from importlib import metadata
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any

import contestants
import corpus
from load import BLOCK, KIB, PREFETCH, body

from stompcodec import compat

SYNC, ASYNC, STOMP_PY, STOMPMAN = "ours, sync", "ours, async", "stomp.py", "stompman"
LIBRARIES = (STOMP_PY, STOMPMAN)
QUEUE = "/queue/bench"
LIMIT = 60.0  # seconds for a client to take what is sent
CHECKED = 3000  # messages of the run that looks at every body
END = b"END"  # the body of the last message
#: What is received: bytes of the body, and how it is acknowledged.
LOADS = {"100 B": (100, "auto"), "1 KiB": (KIB, "auto"), "1 KiB, each acknowledged": (KIB, "client-individual")}
#: Offers heart-beats: without them stompman sends its own without a pause.
CONNECTED = b"CONNECTED\nversion:1.2\nheart-beat:10000,10000\n\n\0"
#: A message as ActiveMQ and our broker write it, to be parsed by a library as it is and on our codec.
MESSAGE = (
    b"MESSAGE\nsubscription:0\nmessage-id:ID\\cbroker-41523-1718000000000-2\\c1\\c-1\\c1\\c1\ndestination:/queue/bench\n"
    b"timestamp:1718000000000\nexpires:0\npriority:4\ncontent-length:200\n\n" + b"x" * 200 + b"\0"
)
PARSED = 20_000  # of these messages
#: How messages are recorded: by how many processes and connections of each, and on how many cores; 0: CPU time counts.
RECORD = {"per CPU second": (1, 1, 0), "1 core": (1, 1, 1), "2 cores, threads": (1, 2, 2), "processes": (2, 1, 2)}
_RECEIPT = re.compile(rb"\nreceipt:([^\n\r]*)")
_SUBSCRIBE = re.compile(rb"SUBSCRIBE\n[^\0]*?\bid:([^\n\r]*)[^\0]*\0")


def receipts(data: bytes) -> bytes:
    """Return the receipts that some frames ask for."""
    return b"".join(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt for receipt in _RECEIPT.findall(data))


def subscribed(client: socket.socket) -> bytes:
    """Answer a client until it subscribes. Return the id of its subscription."""
    said = b""
    while not (found := _SUBSCRIBE.search(said)):
        more = client.recv(64 * KIB)
        if not more:
            raise ConnectionError("the client went away before it subscribed")
        client.sendall((CONNECTED if b"CONNECT\n" in more or b"STOMP\n" in more else b"") + receipts(more))
        said += more
    return found[1]


class Feeder:
    """Feeds one client: CONNECTED, receipts, then MESSAGEs as fast as it takes them until time is over, then END."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def serve(self, size: int, ack: str, seconds: float, count: int | None, is_alive: Callable[[], bool]) -> int:
        """Feed one client for some seconds, or `count` messages that all differ. Return how many it was sent."""
        while not select.select([self.listener], [], [], 0.1)[0]:
            if not is_alive():
                raise ConnectionError("the client did not come")
        client, _ = self.listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(LIMIT)
        with client:
            sent = self._feed(client, subscribed(client), size, ack, seconds, count)
            client.settimeout(LIMIT)
            while more := client.recv(64 * KIB):  # ACKs, UNSUBSCRIBE, DISCONNECT
                client.sendall(receipts(more))
        return sent

    @staticmethod
    def _frame(name: bytes, number: int, ack: str, text: bytes) -> bytes:
        lines = b"MESSAGE\nsubscription:%s\nmessage-id:m-%08d\n" % (name, number)
        if ack != "auto":
            lines += b"ack:a-%08d\n" % number
        return lines + b"destination:/queue/bench\ncontent-length:%d\n\n%s\0" % (len(text), text)

    def _feed(self, client: socket.socket, name: bytes, size: int, ack: str, seconds: float, count: int | None) -> int:
        client.setblocking(False)
        deadline, number, acked = time.perf_counter() + seconds, 0, 0
        each = min(BLOCK // (size + 120), PREFETCH)
        while (number < count) if count else (time.perf_counter() < deadline):
            if ack != "auto" or number == 0 or count:  # marks of a delivery are not used twice
                numbers = range(number, number + each)
                block = b"".join(self._frame(name, at, ack, body(size, 0, at)) for at in numbers)
            number += each
            waiting = memoryview(block)
            while waiting or (ack != "auto" and number - acked > 2 * PREFETCH):
                reads, writes, _ = select.select([client], [client] if waiting else [], [], LIMIT)
                if not reads and not writes:
                    raise ConnectionError("the client takes nothing more")
                if reads:
                    more = client.recv(64 * KIB)
                    if not more:
                        raise ConnectionError("the client went away")
                    acked += more.count(b"\0")
                if writes:
                    waiting = waiting[client.send(waiting) :]
        client.setblocking(True)
        client.sendall(self._frame(name, number, ack, END))
        return number


class Task:
    """The messages that a client receives, up to the first body of another size, their number, and the bodies if they
    are looked at. `start` is the CPU time of this process, in seconds, once it has connected and imported everything.
    """

    def __init__(self, port: int, size: int, ack: str, check: bool) -> None:
        self.port, self.size, self.ack, self.count = port, size, ack, 0
        self.kept = deque[bytes](maxlen=None if check else 0)

    def begin(self) -> None:
        self.start = time.process_time()


def receive_sync(task: Task) -> None:
    """Ours: a for loop."""
    import stompcodec.client as stomp

    size, ack, kept, count = task.size, task.ack, task.kept, 0
    with stomp.connect(f"stomp://127.0.0.1:{task.port}") as client:
        task.begin()
        for message in client.subscribe(QUEUE, ack=ack, prefetch=PREFETCH):
            text = message.body
            if ack != "auto":
                message.ack()
            if len(text) != size:
                break
            count += 1
            kept.append(text)
    task.count = count


def receive_async(task: Task) -> None:
    """Ours: an async for loop."""
    import stompcodec.client as stomp

    async def run() -> None:
        size, ack, kept, count = task.size, task.ack, task.kept, 0
        async with stomp.connect_async(f"stomp://127.0.0.1:{task.port}") as client:
            task.begin()
            async for message in client.subscribe(QUEUE, ack=ack, prefetch=PREFETCH):
                text = message.body
                if ack != "auto":
                    await message.ack()
                if len(text) != size:
                    break
                count += 1
                kept.append(text)
        task.count = count

    asyncio.run(run())


def receive_stomp_py(task: Task) -> None:
    """A listener; bodies stay bytes, which is its faster way."""
    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
    import stomp

    connection = stomp.Connection12([("127.0.0.1", task.port)], auto_decode=False)
    done = threading.Event()
    size, ack, kept, count = task.size, task.ack, task.kept, 0

    class Listener(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            nonlocal count
            text = frame.body
            if ack != "auto":
                connection.ack(frame.headers["ack"])
            if len(text) != size:
                done.set()
                return
            count += 1
            kept.append(text)

    connection.set_listener("", Listener())
    connection.connect("guest", "guest", wait=True)
    task.begin()
    connection.subscribe(QUEUE, id="0", ack=ack)
    done.wait(LIMIT)
    task.count = count
    connection.disconnect()


def receive_stompman(task: Task) -> None:
    import stompman

    async def run() -> None:
        done = asyncio.Event()
        size, ack, kept, count = task.size, task.ack, task.kept, 0

        async def handle(frame: Any) -> None:
            nonlocal count
            text = frame.body
            if ack != "auto":
                await frame.ack()
            if len(text) != size:
                done.set()
                return
            count += 1
            kept.append(text)

        server = stompman.ConnectionParameters("127.0.0.1", task.port, "guest", "guest")
        async with stompman.Client([server]) as client:
            task.begin()
            if ack == "auto":
                ignore = {"on_suppressed_exception": lambda error, frame: None}
                subscription = await client.subscribe(QUEUE, handle, ack="auto", **ignore)
            else:
                subscription = await client.subscribe_with_manual_ack(QUEUE, handle, ack=ack)
            await asyncio.wait_for(done.wait(), LIMIT)
            await subscription.unsubscribe()
        task.count = count

    asyncio.run(run())


RECEIVE = {SYNC: receive_sync, ASYNC: receive_async, STOMP_PY: receive_stomp_py, STOMPMAN: receive_stompman}


def parse(library: str, patched: bool, count: int) -> float:
    """Read messages with a library and hand them to nobody. Return how many it read per CPU second."""
    if patched:
        compat.install(library)
    if patched and library == STOMP_PY:  # the reader that takes the place of the transport's own
        from stompcodec.compat.stomppy_codec import Reader

        def run(pieces: list[bytes], keep: Callable[[Any], None]) -> None:
            feed = Reader(None).feed
            for piece in pieces:
                for frame in feed(piece):
                    keep(frame)
    else:
        contestant = contestants.MAKERS[library]()
        run = partial(contestant.decode("keep(frame)"), contestant.parser("1.2"))

    pieces, sizes = list(corpus.fragments(MESSAGE * count, 16384)), []
    start = time.process_time()
    run(pieces, lambda frame: sizes.append(len(frame.body)))
    spent = time.process_time() - start
    assert sizes == [200] * count, "not all was read"
    return count / spent


def drive(who: str, port: int, size: int, ack: str, check: bool, patched: bool) -> tuple[int, float]:
    """Run one client. Return the messages that it received, and their CPU seconds."""
    if patched:
        compat.install(who)
    task = Task(port, size, ack, check)
    RECEIVE[who](task)
    spent = time.process_time() - task.start
    if check and list(task.kept) != [body(size, 0, number) for number in range(max(task.count, CHECKED))]:
        raise RuntimeError(f"bodies were lost, changed or reordered: {task.count} of {CHECKED} came")
    return task.count, spent


#: Processes for clients.
spawned = partial(ProcessPoolExecutor, mp_context=get_context("spawn"))


def received(feeder: Feeder, seconds: float, who: str, size: int, ack: str, patched: bool, check: bool) -> float:
    """Return the messages per CPU second of one run of one client."""
    sent = None
    with spawned(1) as pool:
        client = pool.submit(drive, who, feeder.port, size, ack, check, patched)
        with suppress(OSError):  # the client says what it was
            sent = feeder.serve(size, ack, seconds, CHECKED if check else None, lambda: not client.done())
        count, spent = client.result()
    if count != sent:
        raise RuntimeError(f"{count} messages were received of {sent}")
    return count / spent


def parsed(who: str, patched: bool, count: int, _check: bool) -> float:
    """Return how many messages a library parses per CPU second."""
    with spawned(1) as pool:
        return pool.submit(parse, who, patched, count).result()


def record(port: int, dedupe: str, connections: int, count: int) -> tuple[float, float]:
    """Record what some connections receive, in memory. Return the CPU seconds of that, and the time of its end."""
    import stompcodec.client as stomp
    from stompcodec.capture import CaptureWriter
    from stompcodec.client.hub import apart
    from stompcodec.client.recorder import Dedupe, Recorder

    with ExitStack() as stack, CaptureWriter(stack.enter_context(TemporaryDirectory(dir="/dev/shm"))) as capture:
        with apart():
            opened = (stomp.connect(f"stomp://127.0.0.1:{port}", dialect="stompcodec") for _ in range(connections))
            clients = [*map(stack.enter_context, opened)]
        recorder = Recorder(clients, capture, dedupe=Dedupe.of(dedupe), most=connections * count)
        start = time.process_time()
        recorder.subscribe(QUEUE)
        recorder.run()
        return time.process_time() - start, time.time()


def recorded(feeder: Feeder, dedupe: str, processes: int, each: int, cores: int, count: int, _check: bool) -> float:
    """Feed recorders `count` messages of 200 B by each connection. Return how many they took in a second."""
    connections, all_cores = processes * each, os.sched_getaffinity(0)
    ready = Barrier(connections)

    def feed(client: socket.socket, first: int) -> float:
        name = subscribed(client)
        block = b"".join(feeder._frame(name, at, "client", body(200, 0, at)) for at in range(first, first + count))
        ready.wait(LIMIT)
        start = time.time()
        client.sendall(block)
        while more := client.recv(64 * KIB):
            client.sendall(receipts(more))
        return start

    with spawned(processes) as pool, ThreadPoolExecutor() as threads, ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, all_cores)
        os.sched_setaffinity(0, range(cores or 2))  # of the feeder, too, whose work is a part of each message
        done = [pool.submit(record, feeder.port, dedupe, each, count) for _ in range(processes)]
        feeder.listener.settimeout(LIMIT)
        comings = (stack.enter_context(feeder.listener.accept()[0]) for _ in range(connections))
        feeds = [threads.submit(feed, client, number * count) for number, client in enumerate(comings)]
        spent, end = map(max, zip(*(each.result() for each in done)))
        return connections * count / (end - min(each.result() for each in feeds) if cores else spent)


Key = tuple[str, str, str]  # table, row, column


def tasks(feeder: Feeder, seconds: float, count: int) -> dict[Key, Callable[[bool], float]]:
    """Return the tasks to measure. A task that is called with True checks the messages that it receives."""
    found: dict[Key, Callable[[bool], float]] = {}
    for row, (size, ack) in LOADS.items():
        for who in RECEIVE:
            found["received", row, who] = partial(received, feeder, seconds, who, size, ack, False)
    for who in LIBRARIES:
        for column, patched in (("on its own", False), ("on our codec", True)):
            found["compat", f"{who}, parsed", column] = partial(parsed, who, patched, count)
            found["compat", f"{who}, received", column] = partial(received, feeder, seconds, who, 200, "auto", patched)
    for row, dedupe in (("as they come", "none"), ("deduplicated", "messageId")):
        for column, how in RECORD.items():
            found["recorded", row, column] = partial(recorded, feeder, dedupe, *how, 50 * count)
    return found


def measure(args: Namespace) -> dict[str, Any]:
    """Each task is checked; then all take turns, round after round. The medians count."""
    feeder = Feeder()
    values: dict[Key, list[float]] = {}
    faults: dict[str, str] = {}
    with feeder.listener:
        todo = tasks(feeder, args.seconds or (0.2 if args.quick else 1.0), PARSED // (20 if args.quick else 1))
        for turn in range(-1, args.rounds or (1 if args.quick else 5)):
            for key, task in todo.items():
                if ": ".join(key) not in faults and (not args.only or key[0] in args.only):
                    try:
                        values.setdefault(key, []).append(task(turn < 0))
                    except Exception as error:
                        faults[": ".join(key)] = f"{type(error).__name__}: {error}"
                        print(f"{': '.join(key)}: {error}", flush=True)
            print("checked" if turn < 0 else f"round {turn + 1} is done", flush=True)
    tables: dict[str, dict[str, dict[str, float]]] = {"received": {}, "compat": {}, "recorded": {}}
    for (table, row, column), (_checked, *found) in values.items():
        if found and ": ".join((table, row, column)) not in faults:
            tables[table].setdefault(row, {})[column] = statistics.median(found)
    peers = ", ".join(f"{who} {metadata.version(who)}" for who in LIBRARIES)
    ours = {name: text for name, text in faults.items() if not name.endswith((*LIBRARIES, "on its own"))}
    return {"facts": {"peers": peers}, "tables": tables, "wrong": [], "faults": ours}
