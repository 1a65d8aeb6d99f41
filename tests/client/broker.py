"""Our own broker in a thread, for tests of the client that want a real one."""

from stompcodec.broker import Config, serve
from stompcodec.broker.settings import Pauses
from stompcodec.testing.faults import LoopThread


class BrokerThread:
    def __init__(self, **config):
        self.config = Config(**{"port": 0, "redelivery_delay": Pauses(), **config})

    def __enter__(self):
        self._thread = LoopThread.running("broker", self._start())
        return self

    def __exit__(self, *_):
        self._thread.end(self._server.stop())

    @property
    def url(self):
        return f"stomp://127.0.0.1:{self.port}"

    async def _start(self):
        self._server = server = serve(self.config)
        await server.start()
        self.port, self.ws_port, self.tls_port = server.port, server.ws_port, server.tls_port
