"""Our own broker in a thread, for tests of the client that want a real one."""

import asyncio
import threading

from patience import patience

from stompcodec.broker import Config, serve
from stompcodec.broker.settings import Pauses


class BrokerThread:
    """`with BrokerThread() as broker:` gives one with `.port`, `.ws_port` and `.url`."""

    def __init__(self, **config):
        self.config = Config(**{"port": 0, "redelivery_delay": Pauses(), **config})
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        self._thread, self._failure = threading.Thread(target=self._run, daemon=True), None

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(patience(10))
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patience(20))

    @property
    def url(self):
        return f"stomp://127.0.0.1:{self.port}"

    def _run(self):
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self):
        self._stop = asyncio.Event()
        async with serve(self.config) as server:
            self.port, self.ws_port, self.tls_port = server.port, server.ws_port, server.tls_port
            self._ready.set()
            await self._stop.wait()
