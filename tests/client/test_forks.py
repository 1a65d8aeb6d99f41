"""A client in a child process: every call is refused at once, closing is quick, and the parent notices nothing."""

import asyncio
import contextlib
import gc
import os
import signal
import threading
import traceback
import warnings
from functools import partial

import pytest
from client.calls import CALLS, objects, objects_async
from client.feeding import wait_for
from patience import patience

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
    timer = threading.Timer(patience(QUICK), os.kill, (pid, signal.SIGKILL))
    timer.start()
    with open(near) as said:
        text = said.read()
    timer.cancel()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child hangs"
    return text


def refusals(calls):
    wrong = []
    for name, call in calls.items():
        try:
            call()
            wrong.append(f"{name}: nothing")
        except BaseException as error:
            if not isinstance(error, LocalProtocolError) or "fork" not in str(error):
                wrong.append(f"{name}: {error!r}")
    return " ".join(wrong) or "all refused"


def test_every_call_of_a_thread_s_client_is_refused(peer):
    with stomp.connect(peer.url, **OPTIONS) as client:
        of = objects(client)
        peer.deliver(of.subscription.id, b"one", count=4)
        wait_for(lambda: of.subscription.inbox or of.subscription.batch)
        calls = {name: partial(call, of) for name, call in CALLS.items()}
        assert child(lambda: refusals({**calls, "iterating": lambda: next(of.subscription)})) == "all refused"
        assert child(lambda: f"{client.state} {bool(it := client.is_alive())} {it.state}") == "closed False closed"
        # The parent goes on as if nothing had been.
        assert (client.state, bool(client.is_alive())) == ("connected", True)
        of.transaction.send("/queue/a", b"in it")
        of.transaction.commit()
        of.message.ack(receipt=True)
        assert [of.subscription.get(LONG).body for _ in range(4)] == [b"one"] * 4
        client.send("/queue/a", b"y", receipt=True)
        assert len(peer.sides) == 1


def test_every_call_of_asyncio_s_client_is_refused(peer):
    async def main():
        async with stomp.connect_async(peer.url, **OPTIONS) as client:
            of = await objects_async(client)

            async def await_it(call):
                await call(of)

            def in_another_loop(call):
                asyncio._set_running_loop(None)
                return asyncio.new_event_loop().run_until_complete(await_it(call))

            def in_the_child():
                return refusals({name: partial(in_another_loop, call) for name, call in CALLS.items()})

            def leave():
                for _ in range(2):
                    in_another_loop(lambda o: o.client.close())
                return client.state

            assert child(in_the_child) == "all refused"
            assert child(lambda: child(in_the_child)) == "all refused"  # a grandchild is a child
            assert child(leave) == "closed"
            await of.transaction.commit()
            await of.message.ack(receipt=True)
            await client.send("/queue/a", b"y", receipt=True)
            assert len(peer.sides) == 1

    asyncio.run(main())


@pytest.mark.parametrize("held", [False, True])
def test_closing_a_copy_is_quick_and_harmless(peer, held):
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
        assert (subscription.get(LONG).body, client.state, len(peer.sides)) == (b"after", "connected", 1)
    assert peer.commands().count("DISCONNECT") == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc here")
def test_a_copy_that_is_closed_holds_no_descriptors(peer):
    before = int(child(lambda: str(len(os.listdir("/proc/self/fd")))))
    with stomp.connect(peer.url, **OPTIONS) as client:
        left = int(child(lambda: str(client.close() or len(os.listdir("/proc/self/fd")))))
    assert left == before + 1  # the server's end, which is in this process, too


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


def test_clients_that_are_gone_are_not_kept(peer):
    before = len(process.watched)
    for _ in range(3):
        stomp.connect(peer.url, **OPTIONS).close()
    wait_for(lambda: gc.collect() >= 0 and len(process.watched) <= before)
