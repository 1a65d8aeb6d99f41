"""stompcodec.client, by threads or by asyncio as STOMPCODEC_SHELL says: both have the same names."""

import os
import time
from contextlib import suppress
from typing import Any

import adapter
from adapter import done

import stompcodec
import stompcodec.client as stomp

_CONNECT: Any = stomp.connect_async if os.environ["STOMPCODEC_SHELL"] == "asyncio" else stomp.connect


class Link(adapter.Link):
    async def open(self, host, port, url, heart_beat, version, **who):
        how = {"heart_beat": tuple(heart_beat), "versions": [version], "reconnect": None, "receipt_timeout": 15}
        self.client = await done(_CONNECT(url or f"stomp://{host}:{port}", **who, **how))
        return dict(self.client.connected.headers.pairs())

    def send(self, destination, headers, body, text, transaction, receipt):
        content = body.decode() if text else body
        if transaction:
            return self.transactions[transaction].send(destination, content, headers)
        return self.client.send(destination, content, headers, receipt=receipt)

    async def subscribe(self, id, destination, ack, headers, confirm=True):
        # The dialect of the client has its own words for `headers`.
        self.subscriptions[id] = await done(self.client.subscribe(destination, ack=ack, id=id, confirm=confirm))

    async def receive(self, id, count, seconds):
        end = time.monotonic() + seconds
        while len(self.waiting.get(id, ())) < count:
            message = None
            with suppress(stomp.LocalProtocolError):  # it was unsubscribed from
                message = await done(self.subscriptions[id].get(max(0.0, end - time.monotonic())))
            if message is None:
                break
            self.put(id, message, dict(message.headers), message.body)
        return await super().receive(id, count, 0)

    async def settle(self, verb, message, transaction):
        if transaction:
            await done(getattr(self.transactions[transaction], verb)(message))
            return
        try:
            await done(getattr(message, verb)())
        except stomp.LocalProtocolError:
            if verb == "ack":
                raise
            await done(message.nack(discard=True))  # the broker drops it, which has to be meant

    def unsubscribe(self, id, destination):
        subscription = self.subscriptions[id]
        return subscription.unsubscribe(wait=subscription.confirm)  # as SUBSCRIBE: with a RECEIPT or without

    async def begin(self, transaction):
        self.transactions[transaction] = await done(self.client.transaction().begin())

    def commit(self, transaction):
        return self.transactions.pop(transaction).commit()

    def abort(self, transaction):
        return self.transactions.pop(transaction).abort()

    def alive(self):
        return {"alive": self.client.state == "connected"}

    def close(self):
        return self.client.close()


adapter.serve(Link, stompcodec.__version__)
