"""A program that uses the client. Type checkers have to flag the lines that end with `# wrong`, and no others."""

import contextlib
from collections.abc import AsyncIterator, Iterator

import stompcodec.client as stomp
from stompcodec.client.middleware import ReceiveEvent, SendEvent, SettleEvent


class Signing(stomp.Middleware):
    @contextlib.contextmanager
    def send(self, event: SendEvent) -> Iterator[None]:
        event.headers["length"] = str(len(event.body))
        event.headers["length"] = 1  # wrong
        event.body = "text"  # wrong
        event.destination = "/queue/b"  # wrong
        yield

    def settle(self, event: SendEvent) -> contextlib.AbstractContextManager[object]:  # wrong
        return contextlib.nullcontext()

    def receive(self, event: ReceiveEvent) -> None:  # wrong
        print(event.message.headers, event.transaction)  # wrong


class Awaiting(stomp.AsyncMiddleware):
    @contextlib.asynccontextmanager
    async def settle(self, event: SettleEvent) -> AsyncIterator[None]:
        print(event.command)
        yield


def handle(message: stomp.Message) -> None:
    message.ack()


async def handle_async(message: stomp.AsyncMessage) -> None:
    await message.ack()


def threads(url: str) -> None:
    with stomp.connect(url, heart_beat=(1000, 1000), reconnect=stomp.Backoff(most=5.0), outbox_full="raise") as client:
        client.send_for_receipt("/queue/a", "hello").wait()
        for message in client.subscribe("/queue/a", ack="client-individual", prefetch=10):
            with message.processing() as same:
                body: bytes = same.body
                print(body, message.headers["destination"])
        client.subscribe("/queue/b", handler=handle, on_error="requeue")
        client.on_message("/queue/c", ack="client-individual", concurrency=2)(handle)
        one = client.receive("/queue/a")
        print(one.body if one is not None else client.request("/queue/a", b"?", timeout=1).body)
        client.send("/queue/a", 1)  # wrong
        client.send("/queue/a", b"", recipt=True)  # wrong
        client.send("/queue/a", b"", receipt=True).wait()  # wrong
        client.subscribe("/queue/b", prefetch="10")  # wrong
        client.subscribe("/queue/b", nonsense=1)  # wrong
        client.on_message("/queue/c", concurrency="2")  # wrong
        print(client.core)  # wrong
        print(one.body)  # wrong
    stomp.connect(url, nonsense=1)  # wrong
    stomp.connect(url, outbox_full="wait")  # wrong
    stomp.connect(url, heart_beat=1000)  # wrong
    stomp.connect()  # wrong
    stomp.connect(url, middleware=[Signing()]).close()
    stomp.connect(url, middleware=[Awaiting()])  # wrong
    stomp.connect(url, middleware=[Signing])  # wrong


async def asynchronous(url: str) -> None:
    async with stomp.connect_async(url, login="ann", passcode=lambda: "a token", versions=("1.2",)) as client:
        await (await client.send_for_receipt("/queue/a", "hello"))
        async with client.transaction() as transaction:
            await transaction.send("/queue/a", b"1")
        async for message in client.subscribe("/queue/a", ack="client-individual"):
            async with message.processing():
                print(message.text())
            message.ack()  # wrong
        await (await client.subscribe("/queue/b", handler=handle_async)).unsubscribe()
        client.send("/queue/a", b"hello", receipt=True)  # wrong
        transaction.commit()  # wrong
        for _ in client.subscribe("/queue/a"):  # wrong
            pass
        with client.transaction():  # wrong
            pass
    await stomp.connect_async(url, middleware=[Signing(), Awaiting()])
    stomp.connect_async(url, nonsense=1)  # wrong
    stomp.connect_async(url, middleware=[print])  # wrong
    stomp.connect_async(url).send("/queue/a", b"")  # wrong
