"""bluesky-stomp, which is built on stomp.py, on our codec without a change to it: against our broker.

    python scripts/compat_bluesky.py [--as-it-is]

Needs `pip install bluesky-stomp`. It sends, receives and answers as its documentation shows, over topics, queues and
temporary queues, and prints what came. --as-it-is does the same without `install()`.
"""

import argparse
import asyncio
import os
import queue
import sys
import threading
from typing import Any

os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
WAIT = 20.0
COUNT = 200


class Broker:
    """Ours, in a thread."""

    def __init__(self) -> None:
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        from stompcodec.broker import Config, serve

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serve(Config(port=0)) as server:
            self.port = server.port
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> "Broker":
        self._thread.start()
        if not self._ready.wait(WAIT):
            raise RuntimeError("the broker did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT)


def drive(port: int) -> list[str]:
    """What bluesky-stomp is for. Returns what was done; raises where something did not come, or came otherwise."""
    from bluesky_stomp.messaging import MessageContext, StompClient
    from bluesky_stomp.models import BasicAuthentication, Broker, MessageQueue, MessageTopic
    from pydantic import BaseModel

    class Measurement(BaseModel):  # bluesky-stomp looks at annotations: they must be no strings in this file
        name: str
        values: list[float]

    done = []
    auth = BasicAuthentication(username="guest", password="guest")
    client = StompClient.for_broker(Broker(host="127.0.0.1", port=port, auth=auth))
    came: queue.Queue[Any] = queue.Queue()

    def on_measurement(message: Measurement, context: MessageContext) -> None:
        came.put((message, context.correlation_id))

    def on_text(message: str, context: MessageContext) -> None:
        came.put(message)

    client.subscribe(MessageTopic(name="measurements"), on_measurement)  # before there is a connection
    client.connect()
    try:
        sent = [Measurement(name=f"m:{number}\\é\n", values=[number / 3] * 40) for number in range(COUNT)]
        for number, measurement in enumerate(sent):
            client.send(MessageTopic(name="measurements"), measurement, correlation_id=f"id:{number}\n")
        got = [came.get(timeout=WAIT) for _ in sent]
        assert got == [(measurement, f"id:{number}\n") for number, measurement in enumerate(sent)]
        done.append(f"{COUNT} objects over a topic, each with its correlation id, in order")

        text = client.subscribe(MessageQueue(name="text"), on_text)
        client.send(MessageQueue(name="text"), "héllo: \n\\")
        assert came.get(timeout=WAIT) == "héllo: \n\\"
        client.unsubscribe(text)
        done.append("text over a queue")

        @client.listener(MessageQueue(name="double"))
        def double(message: int, context: MessageContext) -> None:
            assert context.reply_destination is not None
            client.send(context.reply_destination, 2 * message, correlation_id=context.correlation_id)

        answers = [client.send_and_receive(MessageQueue(name="double"), number, int) for number in range(20)]
        assert [answer.result(timeout=WAIT) for answer in answers] == [2 * number for number in range(20)]
        done.append("20 requests answered over temporary queues")
    finally:
        client.disconnect()
    assert not client.is_connected()
    done.append("disconnected")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as-it-is", action="store_true", help="without our codec")
    args = parser.parse_args()
    try:
        import bluesky_stomp
        import stomp
    except ImportError as error:
        print(f"skipped: {error}: pip install bluesky-stomp")
        return 0
    if not args.as_it_is:
        from stompcodec.compat import stomppy

        print(stomppy.install())
    with Broker() as broker:
        done = drive(broker.port)
    print(f"bluesky-stomp {bluesky_stomp.__version__} on stomp.py {stomp.__version__}:", *done, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
