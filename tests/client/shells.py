"""Both shells by one interface, so that each case is written once: asyncio's client is driven from outside its loop."""

import asyncio
import contextlib
import inspect
import threading
from concurrent.futures import TimeoutError as FutureTimeout

from patience import patience

import stompcodec.client as stomp
from stompcodec.client import hub

_WRAPPED = (
    *(stomp.AsyncClient, stomp.AsyncReceipt, stomp.AsyncTransaction, stomp.AsyncMessage, stomp.AsyncSubscription),
    *(stomp.AsyncBodyReader, contextlib.AbstractAsyncContextManager),
)
QUICK = stomp.Backoff(first=0.01, most=0.05)
#: Seconds on a quiet machine. Nothing in these tests takes so long.
_HANGS = 60


class Shell:
    def __init__(self, name):
        self.name, self.clients = name, []
        if name == "async":
            self.loop = asyncio.new_event_loop()
            self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
            self.thread.start()

    def connect(self, url, **options):
        options = {"connect_timeout": patience(10), "receipt_timeout": patience(30), **options}
        if self.name == "sync":
            client = stomp.connect(url, **options)
        else:
            client = self.run(self._connect, url, options)
        self.clients.append(client)
        return client

    async def _connect(self, url, options):
        return await stomp.connect_async(url, **options)

    def stop(self):
        for client in self.clients:
            client.close()
        if self.name == "async":
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(patience(10))
            pending = asyncio.all_tasks(self.loop)
            self.loop.close()
            assert not pending

    def handler(self, function):
        if self.name == "sync":
            return function

        async def handle(message):
            # In a thread, since the proxy blocks; the order of messages stays, for the task waits for it.
            await self.loop.run_in_executor(None, function, Proxy(self, message))

        return handle

    # ---- asyncio ----
    def run(self, function, *args, **kwargs):
        """Call in the loop, await what comes back if that can be awaited, and wrap it."""

        async def call():
            result = function(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
            return result

        future = asyncio.run_coroutine_threadsafe(call(), self.loop)
        try:
            return self.wrap(future.result(patience(_HANGS)))
        except FutureTimeout:
            if future.done():
                raise
            raise AssertionError(f"{function} hangs") from None

    def wrap(self, value):
        if isinstance(value, list):
            return [self.wrap(each) for each in value]
        return Proxy(self, value) if isinstance(value, _WRAPPED) else value


class Proxy:
    def __init__(self, shell, target):
        object.__setattr__(self, "shell", shell)
        object.__setattr__(self, "target", target)

    def __getattr__(self, name):
        value = getattr(self.target, name)
        if not callable(value) or isinstance(value, _WRAPPED):
            return self.shell.wrap(value)

        def call(*args, **kwargs):
            args = [each.target if isinstance(each, Proxy) else each for each in args]
            kwargs = {key: each.target if isinstance(each, Proxy) else each for key, each in kwargs.items()}
            return self.shell.run(value, *args, **kwargs)

        return call

    def __enter__(self):
        return self.shell.run(self.target.__aenter__)

    def __exit__(self, *error):
        return self.shell.run(self.target.__aexit__, *error)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self.shell.run(self.target.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __repr__(self):
        return repr(self.target)


@contextlib.contextmanager
def busy_hub():
    """Keep the I/O thread busy, to prove what is done without it."""
    begun, go_on = threading.Event(), threading.Event()

    def steps():
        begun.set()
        go_on.wait(patience(_HANGS))
        yield from ()

    task = hub.run(steps())
    assert begun.wait(patience(_HANGS))
    try:
        yield
    finally:
        go_on.set()
        task.join(patience(_HANGS))


class Seen:
    def __init__(self):
        self.bodies, self.changed = [], threading.Condition()

    def add(self, body):
        with self.changed:
            self.bodies.append(body)
            self.changed.notify_all()

    def handler(self, shell, fails=None, error=None):
        def handle(message):
            self.add(message.body)
            if fails is not None and fails(message.body):
                raise error or ValueError("no")

        return shell.handler(handle)

    def wait(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.bodies) >= count, patience(10)), self.bodies
        return self.bodies
