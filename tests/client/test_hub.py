"""The hub: one thread for all clients of a process, in which no client holds up another."""

import asyncio
import contextlib
import socket
import threading
import time
from functools import partial

import pytest
from client.broker import BrokerThread
from client.feeding import wait_for
from client.peer import Peer
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client import hub
from stompcodec.transport import websocket

_LONG = 60.0


@pytest.fixture
def threads():
    """The threads of clients. A hub of an earlier test that has yet to end would take those of this one."""
    wait_for(lambda: not hub._hubs._hubs)
    old = set(threading.enumerate())
    return lambda: [each for each in threading.enumerate() if each.name == "stompcodec-client" and each not in old]


def test_one_thread_serves_all_clients_and_ends_with_the_last(threads, peer):
    async def main():
        clients = await asyncio.gather(*[stomp.connect_async(peer.url).open() for _ in range(20)])
        wait_for(lambda: threads() == [first])
        for client in clients:
            await client.send("/queue/a", b"x", receipt=True)
        assert threads() == [first]
        for client in clients:
            await client.close()

    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(stomp.connect(peer.url))
        first = threads()[0]
        asyncio.run(main())
        assert first.is_alive()
        stack.close()
        assert not first.is_alive()
        with stomp.connect(peer.url) as client:
            client.send("/queue/a", b"x", receipt=True)
        wait_for(lambda: not threads())  # that which has connected may still be ending


def test_a_selector_that_takes_few_sockets_has_few_clients(threads, peer, monkeypatch):
    monkeypatch.setattr(hub, "_MOST", 2)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(stomp.connect(peer.url))
        assert len(threads()) == 3
    wait_for(lambda: not threads())


@pytest.fixture
def other():
    with Peer() as peer, stomp.connect(peer.url) as client:
        yield client


def ping_while(other, is_so):
    while is_so():
        other.ping(patience(_LONG))
        time.sleep(0.02)


@contextlib.contextmanager
def background(work, *args, **options):
    def run():
        with contextlib.suppress(stomp.StompError, OSError):
            work(*args, **options)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(patience(_LONG))


@pytest.mark.parametrize("scheme", ["stomp", "stomp+ssl", "ws", "wss"])
def test_a_server_that_says_nothing_holds_up_nobody(other, scheme):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        with background(stomp.connect, url, connect_timeout=0.3) as connecting:
            ping_while(other, connecting.is_alive)


@pytest.mark.parametrize("which", ["login", "getaddrinfo", "on_state", "on_frame", "handler"])
def test_what_blocks_in_the_program_holds_up_nobody(other, peer, monkeypatch, which):
    blocked, go_on, resolve = threading.Event(), threading.Event(), socket.getaddrinfo

    def block(*args, **options):
        blocked.set()
        go_on.wait(patience(_LONG))
        return "x" if which == "login" else resolve(*args, **options) if which == "getaddrinfo" else None

    def talk():
        with stomp.connect(peer.url, connect_timeout=patience(_LONG), **options) as client:
            if which == "handler":
                client.subscribe("/queue/a", id="s", handler=block)
                peer.deliver("s", b"x")
            client.ping(patience(_LONG))
            done.set()

    options = {which: block} if which not in ("getaddrinfo", "handler") else {}
    options |= {"passcode": "y"} if which == "login" else {}
    done = threading.Event()
    if which == "getaddrinfo":
        monkeypatch.setattr(socket, "getaddrinfo", block)
    with background(talk):
        try:
            assert blocked.wait(patience(_LONG))
            other.ping(patience(_LONG))
            assert which in ("login", "getaddrinfo") or done.wait(patience(_LONG))
        finally:
            go_on.set()
    assert done.is_set()


_HEAD = {"subscription": "s", "message-id": "m", "destination": "/queue/a"}
_FLOODS = {
    **{"messages": serialize(Frame("MESSAGE", _HEAD)) * 2000, "beats": b"\n" * 100_000},
    "receipts": serialize(Frame("RECEIPT", {"receipt-id": "none"})) * 2000,
}


@pytest.mark.parametrize("flood", _FLOODS.values(), ids=_FLOODS)
def test_a_server_that_never_stops_holds_up_nobody(other, flood):
    stop = threading.Event()

    def pour(side):
        while not stop.is_set():
            side.sock.send(flood)

    with Peer() as peer, stomp.connect(peer.url, heart_beat=(0, 0), close_timeout=0.1, reconnect=None) as client:
        subscription, side = client.subscribe("/queue/a", id="s"), peer.side()
        side.silent = True
        with background(pour, side):
            try:
                for _ in range(8):
                    other.ping(patience(_LONG))
                    subscription.take(10_000, 0)
            finally:
                stop.set()
                side.sock.shutdown(socket.SHUT_RDWR)


def test_tiny_websocket_frames_are_handled_in_shares(other):
    """All of one read would take a second; others are served between two shares."""
    count = 3 * websocket.SHARE
    with BrokerThread(ws_port=0) as broker, stomp.connect(f"ws://127.0.0.1:{broker.ws_port}/stomp") as client:
        subscription = client.subscribe("/queue/a")
        client.send_many([("/queue/a", b"%d" % number) for number in range(count)])
        other.ping(patience(_LONG))
        for number in range(count):
            assert subscription.get(patience(_LONG)).body == b"%d" % number


@pytest.mark.parametrize("whose", ["client", "hub"])
def test_an_error_of_one_client_is_its_own_and_one_of_the_hub_ends_its_clients(other, monkeypatch, caplog, whose):
    silent = {"SEND": lambda side, frame: None}
    options = {"heart_beat": (0, 0), "receipt_timeout": patience(_LONG)}
    with Peer(rules=silent) as peer, stomp.connect(peer.url, **options) as client:
        receipt = client.send_for_receipt("/queue/a", b"x")
        if whose == "client":
            monkeypatch.setattr(client._link.engine, "_turn", lambda owner: 1 / 0)
        else:
            client._link.engine._work._hub._timers.insert(0, None)
        client._link.engine._work.wake()
        with pytest.raises(stomp.ConnectionLostError):
            receipt.wait()
        assert client.state == "closed"
        monkeypatch.undo()
        with other if whose == "client" else stomp.connect(peer.url) as another:
            another.ping(patience(_LONG))
    assert f"the I/O {'of the client' if whose == 'client' else 'thread'} failed" in caplog.text


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.floats(0, 1e9)), max_size=400))
def test_timers_are_those_of_a_model_and_few(steps):
    """Each task is due at the time that it yielded last, however often that changed, and outdated entries are few."""
    test = hub.Hub()
    tasks = [hub.Task(test, None) for _ in range(6)]  # their steps do not run
    test._tasks.update(tasks)
    try:
        for number, due in steps:
            tasks[number].due = due
            test._set_timer(tasks[number])
            assert len(test._timers) <= 2 * 6 + hub._TIDY
        for task in tasks:
            live = [at for at, _, each in test._timers if each is task and at == task.timer]
            assert task.due is None or live[0] <= task.due
    finally:
        test.close()


def test_callers_let_the_io_thread_pass(peer):
    asked = []

    class Waiting(hub.Turns):
        """Turns at which the I/O thread always waits."""

        waits = property(lambda _: True, lambda _, value: None)

        def let_pass(self):
            asked.append(1)

        def __exit__(self, *_):
            self._lock.release()

    with stomp.connect(peer.url, heart_beat=(0, 0)) as client:
        subscription = client.subscribe("/queue/b", id="s", ack="client-individual")
        peer.deliver("s", b"x")
        message, engine = subscription.get(patience(_LONG)), client._link.engine
        turns, engine._turns = engine._turns, Waiting(engine.lock)
        for count, call in enumerate((partial(client.send, "/queue/a"), message.ack), 1):
            call()
            assert len(asked) >= count
        engine._turns = turns
