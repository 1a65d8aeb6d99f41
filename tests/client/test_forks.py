"""A client in a child process: every call is refused at once, closing is quick, and the parent notices nothing."""

import asyncio
import contextlib
import gc
import os
import signal
import time
import traceback
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
from client.calls import CALLS
from client.feeding import wait_for
from client.peer import Peer

import stompcodec.client as stomp
from stompcodec.client.hub import process
from stompcodec.errors import LocalProtocolError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
#: Seconds: far less than any time-out of a call, far more than a refusal takes.
LONG, QUICK = 60, 20
OPTIONS = {"receipt_timeout": LONG, "close_timeout": LONG, "heart_beat": (0, 0)}


def child(work):
    """What `work` returns in a child process, which does nothing else; it may not take long."""
    near, far = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads: that is what this is about
        pid = os.fork()
    if not pid:
        try:
            os.write(far, work().encode())
        except BaseException:
            os.write(far, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(far)
    timer = time.monotonic() + QUICK
    try:
        while not os.waitpid(pid, os.WNOHANG)[0]:
            assert time.monotonic() < timer, "the child hangs"
            time.sleep(0.01)
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    text = b""
    while piece := os.read(near, 65536):
        text += piece
    os.close(near)
    return text.decode()


def refusals(calls):
    """The names of calls that are not refused, with what came instead."""
    wrong = []
    for name, call in calls.items():
        try:
            call()
            wrong.append(f"{name}: nothing")
        except BaseException as error:
            if not isinstance(error, LocalProtocolError) or "fork" not in str(error):
                wrong.append(f"{name}: {error!r}")
    return " ".join(wrong) or "all refused"


def all_refused(**objects):
    """Whether every call is."""
    return refusals({name: partial(call, SimpleNamespace(**objects)) for name, call in CALLS.items()})


def no_answer(side, frame):
    """Of a rule: a SEND gets its receipt, if it does not say that it wants none."""
    if frame.get("quiet") is None:
        side.receipt(frame)


@pytest.fixture
def peer():
    with Peer(rules={"SEND": no_answer}) as peer:
        yield peer


def test_every_call_of_a_thread_s_client_is_refused(peer):
    """Also what was begun in the parent: receipts, messages, transactions, what is there to be taken."""
    with stomp.connect(peer.url, **OPTIONS) as client:
        subscription = client.subscribe("/queue/a", ack="client-individual", id="s")
        peer.deliver("s", b"one", count=5, **{"reply-to": "/queue/r"})
        message = subscription.get(LONG)
        while not (subscription.inbox or subscription.batch):
            time.sleep(0.001)
        receipt = client.send_for_receipt("/queue/a", b"x", {"quiet": "1"})
        transaction = client.transaction().begin()
        objects = {"client": client, "subscription": subscription, "handled": subscription, "message": message}
        objects |= {"receipt": receipt, "transaction": transaction}
        assert child(lambda: all_refused(**objects)) == "all refused"
        assert child(lambda: refusals({"iterating": lambda: next(subscription)})) == "all refused"
        assert child(lambda: client.state) == "closed"
        # The parent goes on as if nothing had been.
        assert client.state == "connected"
        transaction.send("/queue/a", b"in it")
        transaction.commit()
        for _ in range(4):
            subscription.get(LONG).ack(receipt=True)
        client.send("/queue/a", b"y", receipt=True)
        assert len(peer.sides) == 1


def test_every_call_of_asyncio_s_client_is_refused(peer):
    async def main():
        async with stomp.connect_async(peer.url, **OPTIONS) as client:
            subscription = await client.subscribe("/queue/a", ack="client-individual", id="s")
            await asyncio.to_thread(peer.deliver, "s", b"one", count=5, **{"reply-to": "/queue/r"})
            message = await subscription.get(LONG)
            receipt = await client.send_for_receipt("/queue/a", b"x", {"quiet": "1"})
            transaction = await client.transaction().begin()
            objects = {"client": client, "subscription": subscription, "handled": subscription, "message": message}
            of = SimpleNamespace(**objects, receipt=receipt, transaction=transaction)

            def in_the_child():
                def run(call):
                    async def await_it():
                        await call(of)

                    asyncio._set_running_loop(None)
                    return lambda: asyncio.new_event_loop().run_until_complete(await_it())

                return refusals({name: run(call) for name, call in CALLS.items()})

            def leave():
                asyncio._set_running_loop(None)
                loop = asyncio.new_event_loop()
                for _ in range(2):
                    loop.run_until_complete(client.close())
                return client.state

            assert child(in_the_child) == "all refused"
            assert child(lambda: child(in_the_child)) == "all refused"  # a grandchild is a child
            assert child(leave) == "closed"
            await transaction.commit()
            for _ in range(4):
                await (await subscription.get(LONG)).ack(receipt=True)
            await client.send("/queue/a", b"y", receipt=True)
            assert len(peer.sides) == 1

    asyncio.run(main())


@pytest.mark.parametrize("held", [False, True])
def test_closing_a_copy_is_quick_and_harmless(peer, held):
    """Also when the I/O thread held the client's lock in the moment of the fork; and twice."""

    def leave():
        with client:
            with subscription:
                pass
            client.close()
        client.close()
        return f"{client._link.engine.is_copy} {client.state}"

    with stomp.connect(peer.url, **OPTIONS) as client:
        subscription = client.subscribe("/queue/a", id="s")
        with client._link.engine.lock if held else contextlib.nullcontext():
            assert child(leave) == "True closed"
            assert child(lambda: refusals({"send": lambda: client.send("/queue/a")})) == "all refused"
        peer.deliver("s", b"after")
        assert subscription.get(LONG).body == b"after"
        assert client.state == "connected"
        assert len(peer.sides) == 1
    assert peer.commands().count("DISCONNECT") == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc here")
def test_a_copy_that_is_closed_holds_no_descriptors(peer):
    def leave():
        client.close()
        return " ".join(os.listdir("/proc/self/fd"))

    before = len(child(lambda: " ".join(os.listdir("/proc/self/fd"))).split())
    with stomp.connect(peer.url, **OPTIONS) as client:
        assert len(child(leave).split()) == before + 1  # the server's end, which is in this process, too


def test_the_child_may_have_a_client_of_its_own(peer):
    """And one that was made before the fork but not opened is nobody's yet."""
    waiting = stomp.connect_async(peer.url, **OPTIONS)

    def talk():
        with stomp.connect(peer.url, **OPTIONS) as own:
            own.send("/queue/a", b"child", receipt=True)

        async def main():
            async with waiting as client:
                await client.send("/queue/a", b"child", receipt=True)

        asyncio.run(main())
        return own.state

    with stomp.connect(peer.url, **OPTIONS) as client:
        assert child(talk) == "closed"
        client.send("/queue/a", b"parent", receipt=True)
    assert [frame.body for frame in peer.got("SEND")] == [b"child", b"child", b"parent"]


def test_clients_that_are_gone_are_not_kept():
    """Those that look for forks do not live longer for that. The I/O thread forgets the last one a moment later."""
    before = len(process.watched)
    with Peer() as peer:
        for _ in range(3):
            stomp.connect(peer.url, **OPTIONS).close()
    wait_for(lambda: gc.collect() >= 0 and len(process.watched) <= before)
