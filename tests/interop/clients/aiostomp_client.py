"""aiostomp. It speaks 1.1, and has no receipts and no transactions."""

import asyncio
import uuid
from importlib.metadata import version as version_of

import adapter
from adapter import NotThere
from aiostomp import AioStomp


class Link(adapter.Link):
    async def open(self, host, port, login, passcode, heart_beat, **_rest):
        async def failed(error):
            self.refused = str(error) or type(error).__name__

        self.refused = ""
        beats = {"heartbeat_interval_cx": heart_beat[0], "heartbeat_interval_cy": heart_beat[1]}
        how = {"heartbeat": heart_beat != [0, 0], "reconnect_max_attempts": 1, "error_handler": failed}
        self.client = AioStomp(host, port, **beats, **how)
        await self.client.connect(login, passcode)
        # It does not say when it is connected: a message that goes round does.
        name = f"/queue/aiostomp-{uuid.uuid4().hex}"
        self.subscribe(name, name, "auto", {})
        self.client.send(name, b"round")
        for _ in range(5000):
            came = await self.receive(name, 1, 0.002)
            if self.refused:
                self.client.close()
                raise ConnectionError(self.refused)
            if came["messages"]:
                self.unsubscribe(name, name)
                return
        raise TimeoutError("nothing came back")

    def send(self, destination, headers, body, text, transaction, receipt):
        if receipt:
            raise NotThere("it passes RECEIPT over")
        self.client.send(destination, body, headers=headers)

    def subscribe(self, id, destination, ack, headers):
        async def keep(frame, body):
            self.put(id, frame, frame.headers, body or b"")
            return True

        how = {"ack": ack, "extra_headers": headers, "handler": keep, "auto_ack": False}
        self.subscriptions[id] = self.client.subscribe(destination, **how)

    def settle(self, verb, frame, transaction):
        getattr(self.client, verb)(frame)

    def unsubscribe(self, id, destination):
        self.client.unsubscribe(self.subscriptions.pop(id))

    def begin(self, transaction):
        raise NotThere("it has no transactions")

    def alive(self):
        return {"alive": self.client._connected and not self.refused}

    async def close(self):
        self.client.close()
        await asyncio.sleep(0)


adapter.serve(Link, version_of("aiostomp"))
