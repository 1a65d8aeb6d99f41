"""Who writes and reads: callers, threads that wait, and the I/O thread, which all clients share."""

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
from client.shells import busy_hub
from client.test_interrupts import interrupted, is_sound
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, Limits, serialize
from stompcodec.client import engine, hub
from stompcodec.client.core import ClientCore
from stompcodec.client.link import _HEADS, _LONGEST
from stompcodec.client.messages import Subscription
from stompcodec.client.owner import WireOwner
from stompcodec.client.sync import waiting
from stompcodec.transport import sync, websocket
from stompcodec.transport.owner import BIG
from stompcodec.transport.sync import AHEAD

LONG = 60.0
OPTIONS = {"heart_beat": (0, 0), "receipt_timeout": LONG, "reconnect": stomp.Backoff(first=0.01, most=0.02)}


@pytest.fixture
def client(peer):
    with stomp.connect(peer.url, **OPTIONS) as client:
        yield client


@pytest.fixture(params=[-1.0, 50e-6, 1e9], ids=["callers write", "both write", "the I/O thread writes"])
def gather(request, monkeypatch):
    monkeypatch.setattr(engine, "_GATHER", request.param)


def test_order_is_kept_whoever_writes(shell, peer, gather):
    client, sizes = shell.connect(peer.url), [1, 10, BIG, 0, 300_000]
    for number in range(60):
        body = b"%d " % number + bytes(sizes[number % 5])
        if number % 7 == 2:
            client.send_many([("/queue/a", body)], receipt_every=number % 2)
        else:
            client.send("/queue/a", body, **{0: {"receipt": True}, 1: {"headers": {"a": "b"}}}.get(number % 7, {}))
    client.ping()
    assert [int(frame.body.partition(b" ")[0]) for frame in peer.got("SEND")] == list(range(60))


def test_a_caller_needs_no_other_thread(peer, monkeypatch):
    """To send, and for an ACK that the consumer waits behind; an ACK before others of its batch goes with the last. An
    ACK does not start a burst, and what is sent right after it does not wait."""
    with stomp.connect(peer.url) as client:
        subscription = client.subscribe("/queue/a", id="s", ack="client-individual", prefetch=10)
        peer.deliver("s", b"x", count=3)
        client.ping()  # all are there
        messages = [subscription.get(patience(LONG)) for _ in range(2)]
        with busy_hub():
            messages[0].ack()
            messages.append(subscription.get(patience(LONG)))
            client.send("/queue/b", b"y", {"a": "b"})
            for message in messages[1:]:
                message.ack()
            peer.wait(lambda peer: len(peer.got("ACK")) == 3)
            assert peer.commands()[-4:] == ["ACK", "SEND", "ACK", "ACK"]
        assert [frame.headers["id"] for frame in peer.got("ACK")] == [message.get("ack") for message in messages]
        monkeypatch.setattr(engine, "_GATHER", patience(1))
        peer.deliver("s", b"x")
        message = subscription.get(patience(LONG))
        with busy_hub():
            message.ack()
            client.send("/queue/b", b"reply")
            peer.wait(lambda peer: len(peer.got("SEND")) == 2)
        assert peer.commands()[-2:] == ["ACK", "SEND"]


def opened(core=None, version="1.2", beat="0,0", **options):
    core = core or ClientCore(stomp.Options(**{"heart_beat": (0, 0), **options}), lambda: "id")
    core.link.opened(0.0, host="h", login="a", passcode="b", whole_frames=False)
    core.link.take_output(0.0)
    core.inbound.receive(f"CONNECTED\nversion:{version}\nheart-beat:{beat}\n\n\0".encode(), 0.0)
    assert core.link.phase == "up"
    core.link.take_output(0.0)
    return core


def test_the_fast_path_is_taken_and_counts():
    link = opened().link
    assert link.put_plain("/queue/a", b"hello")
    assert (link.outbox.frames, link.outbox.octets) == (1, 5 + 256)
    assert [link.put_plain("/queue/a", body) for body in (bytes(BIG - 1), bytes(BIG), b"")] == [True, False, False]
    link.take_output(0.0)
    link.writable(False)
    assert not link.put_plain("/queue/a", b"hello")
    link.writable(True)
    link.lost(None, 0.0)
    assert not link.put_plain("/queue/a", b"hello")
    link = opened().link
    link.outbox._most_frames = 2
    assert [link.put_plain("/queue/a", b"x") for _ in range(3)] == [True, True, False]


def test_few_heads_are_kept_and_none_for_another_version():
    core = opened()
    for number in range(_HEADS + 10):
        assert core.link.put_plain(f"/queue/{number}", b"x")
        assert len(core.link._heads) <= _HEADS
        core.link.take_output(0.0)
    for name, is_kept in (("x" * (_LONGEST + 1), False), ("x" * _LONGEST, True)):
        assert core.link.put_plain(name, b"x")
        assert (name in core.link._heads) is is_kept
    core.link.lost(None, 0.0)
    assert opened(core, "1.0").link._heads == {}


def test_what_a_caller_writes_counts_for_heart_beats_and_room():
    core = opened(beat="0,1000", heart_beat=(1000, 0), outbox_frames=1)
    assert core.link.next_deadline() == 0.5
    core.link.now = 0.4
    assert core.link.put_plain("/queue/a", b"x")
    call = core.link.calls.make("room", 5.0)
    core.when_room(call, 0.4, 1)
    core.link.connection.output.clear()
    core.link.written()
    assert (call.done, call.error, core.link.outbox.frames, core.link.next_deadline()) == (True, None, 0, 0.9)


class Socket:
    def __init__(self, sizes):
        self.sizes, self.sent = list(sizes), b""

    def send(self, data):
        size = self.sizes.pop(0) if self.sizes else len(data)
        if size is None:
            raise BlockingIOError
        self.sent += data[:size]
        return min(size, len(data))


@given(st.lists(st.tuples(st.lists(st.binary(max_size=20), max_size=3), st.none() | st.integers(0, 30), st.booleans())))
def test_no_byte_is_lost_or_repeated(steps):
    wire = sync.SyncWire.__new__(sync.SyncWire)
    wire._layer, wire.buffered, wire._closing, wire._broken, wire._sent = None, 0, False, False, []
    fake = wire._socket = Socket([size for _, size, _ in steps])
    chunks, whole, settle = [], b"", sync.SyncWire.settle
    for pieces, _, is_interrupted in steps:
        chunks += pieces
        whole += b"".join(pieces)
        wire.settle = (lambda chunks: None) if is_interrupted else settle.__get__(wire)
        if not wire._sent or not is_interrupted:
            wire.send_now(chunks)
    settle(wire, chunks)
    assert fake.sent + b"".join(chunks) == whole


@pytest.fixture
def lends(monkeypatch):
    """Callers always write themselves, and read if there is `poll`."""
    monkeypatch.setattr(engine, "_GATHER", -1.0)
    if not hasattr(waiting.select, "poll"):
        pytest.skip("no poll here")


@pytest.fixture
def kept(lends, monkeypatch):
    """A lent socket stays with the waiting threads. Not for ever: a poll may begin just after the I/O thread took the
    socket back, and then finds nothing."""
    monkeypatch.setattr(engine, "_IDLE", patience(5))


def is_lent(client):
    return client._link.engine.look(lambda: (owner := client._link.engine._owner) and owner.wire.is_lent)


def talk(client):
    wait_for(lambda: is_lent(client) or client.send("/queue/a", b"x", receipt=True))


def test_an_interrupt_at_each_place_loses_nothing(lends, client, peer):
    place, lent, going_on = 1, 0, True
    while going_on:
        talk(client)
        going_on = interrupted(partial(client.send, "/queue/b", b"%d" % place, receipt=True), place)
        lent += is_lent(client)
        is_sound(client)
        place += 1
        assert place < 1500
    client.send("/queue/b", b"last", receipt=True)
    *numbers, last = [frame.body for frame in peer.got("SEND", destination="/queue/b")]
    assert last == b"last"
    assert [int(number) for number in numbers] == sorted({int(number) for number in numbers})
    assert int(numbers[-1]) == place - 1
    assert lent > 5
    assert client.epoch == 1
    assert not client._link.core.link.calls.sent


class Ahead:
    def __init__(self, octets):
        self.octets, self.ahead = octets, [len(octets)]

    def read_ahead(self):
        return self.octets


def receiving(stream_over, ahead):
    core, subscription = opened(stream_over=stream_over), Subscription("/queue/a", id="s")
    core.inbound.subscribe(subscription, 0.1, core.link.calls.make("SUBSCRIBE", 30.0, "SUBSCRIBE"))
    owner = WireOwner(core)
    owner.connection, owner.wire = core.link.connection, Ahead(ahead)
    return core, subscription, owner


@pytest.mark.parametrize("behind", [b"", b"x"])
@pytest.mark.parametrize("subscription", ["s", "gone"])
def test_a_streamed_body_may_look_like_a_receipt(subscription, behind):
    core, _, owner = receiving(4096, b"")
    call = core.link.calls.make("SEND", 30.0, "SEND")
    core.send(Frame("SEND", {"destination": "/queue/a", "receipt": call.id}, b"x"), 0.1, call)
    receipt = b"RECEIPT\nreceipt-id:%b\n\n\0" % call.id.encode()
    owner.wire = Ahead(receipt)
    size = 4096 + len(receipt)
    head = f"MESSAGE\nsubscription:{subscription}\nmessage-id:1\ndestination:/queue/a\ncontent-length:{size}\n\n"
    core.inbound.receive(head.encode() + behind, 0.2)
    assert not owner.take_receipt(call, 0.3)
    core.inbound.receive(receipt + b"x" * (4096 - len(behind)) + b"\0", 0.4)
    assert not call.done
    assert owner.take_receipt(call, 0.5) is (subscription == "gone")  # else a message waits to be taken


def message(body, **headers):
    pairs = {"subscription": "s", "message-id": "m", "destination": "/queue/b", "ack": "a", **headers}
    return serialize(Frame("MESSAGE", {name: value for name, value in pairs.items() if value is not None}, body))


@pytest.mark.parametrize(
    ("before", "taken"),
    [
        (b"", True),
        (message(b"before"), False),  # it waits in the inbox
        (message(b"before")[:20], False),
        (message(b"x" * 5000, subscription="gone")[:-10], False),  # a streamed body
    ],
)
def test_only_what_begins_with_a_frame_is_taken(before, taken):
    core, subscription, owner = receiving(AHEAD, message(b"x"))
    subscription.confirmed = True
    core.inbound.receive(before, 0.2)
    assert owner.take_messages(subscription, 0.3) is taken
    assert [each.body for each in subscription.batch] == [b"x"] * taken
    assert owner.wire.ahead == [len(message(b"x"))] * (not taken)
    owner.wire.ahead = [1]
    subscription.deaf = True
    assert not owner.take_messages(subscription, 0.3)


@pytest.fixture
def subscription(client):
    return client.subscribe("/queue/b", id="s", ack="client-individual")


def take(subscription):
    message = subscription.get(patience(LONG))
    assert message is not None
    return message.body


def converse(client, subscription, peer):
    """Get messages one by one until the waiting thread reads."""
    peer.rules.setdefault("SEND", lambda side, frame: side.deliver("s", b"talk"))
    until = time.monotonic() + patience(LONG)
    while not is_lent(client):
        assert time.monotonic() < until
        client.send("/queue/a", b"x")
        assert take(subscription) == b"talk"


def sends(peer, octets):
    peer.do(lambda: peer.side().sock.sendall(octets))


@pytest.mark.parametrize(
    "octets",
    [
        *(message(b"x", destination=None), message(b"x", **{"message-id": None})),
        message(b"x" * 10_001),  # limits hold
        *(b"NONSENSE\n\n\0", b"MESSAGE\nno colon\n\n\0", b"ERROR\nmessage:no\n\n\0", None),
    ],
)
def test_wrong_frames_errors_and_cuts_end_the_connection(kept, peer, octets):
    with stomp.connect(peer.url, **OPTIONS, limits=Limits(max_body=10_000)) as client:
        subscription = client.subscribe("/queue/b", id="s", ack="client-individual")
        for epoch in (1, 2):
            converse(client, subscription, peer)
            peer.cut() if octets is None else sends(peer, octets)
            # The thread that waits ends up with the next connection.
            wait_for(lambda epoch=epoch: subscription.get(0.01) is None and client.epoch != epoch)
            client.wait_connected()
            assert client.epoch == epoch + 1
        assert isinstance(client.error, stomp.StompError)


def test_who_is_left_with_a_message_is_woken(kept, client, subscription, peer):
    """The thread that reads takes one of two; the other one sleeps, and nothing else would wake it."""
    got, gate = [], threading.Event()
    converse(client, subscription, peer)

    def work():
        got.append(take(subscription))
        gate.wait(patience(LONG))

    with background(work), background(work):
        wait_for(lambda: len(subscription.waiting) == 2)
        with busy_hub():
            sends(peer, message(b"1") + message(b"2"))
            wait_for(lambda: len(got) == 2)
        gate.set()
    assert sorted(got) == [b"1", b"2"]


def test_an_interrupt_at_each_place_loses_no_message(kept, client, subscription, peer):
    place, fired, lent = 1, True, 0
    while fired:
        converse(client, subscription, peer)
        sends(peer, message(b"%d" % place, ack=None))
        fired = interrupted(lambda: subscription._refill(time.monotonic() + patience(LONG)), place)
        is_sound(client)
        lent += is_lent(client)
        if not subscription.batch:
            client._link.engine.stop_reading()  # as the I/O thread does after a while
        assert take(subscription) == b"%d" % place
        place += 1
        assert place < 1500
    assert subscription.get(0.001) is None
    assert lent > 20
    assert client.epoch == 1


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


def test_a_client_that_is_opened_apart_has_a_thread_of_its_own(threads, peer):
    with contextlib.ExitStack() as stack:
        for is_apart in (True, False, True, False):
            with hub.apart() if is_apart else contextlib.nullcontext():
                stack.enter_context(stomp.connect(peer.url))
        assert len(threads()) == 3
    wait_for(lambda: not threads())


@pytest.fixture
def other():
    with Peer() as peer, stomp.connect(peer.url) as client:
        yield client


def ping_while(other, is_so):
    while is_so():
        other.ping(patience(LONG))
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
        thread.join(patience(LONG))


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
        go_on.wait(patience(LONG))
        return "x" if which == "login" else resolve(*args, **options) if which == "getaddrinfo" else None

    def talk():
        with stomp.connect(peer.url, connect_timeout=patience(LONG), **options) as client:
            if which == "handler":
                client.subscribe("/queue/a", id="s", handler=block)
                peer.deliver("s", b"x")
            client.ping(patience(LONG))
            done.set()

    options = {which: block} if which not in ("getaddrinfo", "handler") else {}
    options |= {"passcode": "y"} if which == "login" else {}
    done = threading.Event()
    if which == "getaddrinfo":
        monkeypatch.setattr(socket, "getaddrinfo", block)
    with background(talk):
        try:
            assert blocked.wait(patience(LONG))
            other.ping(patience(LONG))
            assert which in ("login", "getaddrinfo") or done.wait(patience(LONG))
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
                    other.ping(patience(LONG))
                    subscription.take(10_000, 0)
            finally:
                stop.set()
                side.sock.shutdown(socket.SHUT_RDWR)


def test_tiny_websocket_frames_are_handled_in_shares(other):
    count = 3 * websocket.SHARE
    with BrokerThread(ws_port=0) as broker, stomp.connect(f"ws://127.0.0.1:{broker.ws_port}/stomp") as client:
        subscription = client.subscribe("/queue/a")
        client.send_many([("/queue/a", b"%d" % number) for number in range(count)])
        other.ping(patience(LONG))
        for number in range(count):
            assert subscription.get(patience(LONG)).body == b"%d" % number


@pytest.mark.parametrize("whose", ["client", "hub"])
def test_an_error_of_one_client_is_its_own_and_one_of_the_hub_ends_its_clients(other, monkeypatch, caplog, whose):
    silent = {"SEND": lambda side, frame: None}
    options = {"heart_beat": (0, 0), "receipt_timeout": patience(LONG)}
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
            another.ping(patience(LONG))
    assert f"the I/O {'of the client' if whose == 'client' else 'thread'} failed" in caplog.text


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.floats(0, 1e9)), max_size=400))
def test_timers_are_those_of_a_model_and_few(steps):
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
        waits = property(lambda _: True, lambda _, value: None)

        def let_pass(self):
            asked.append(1)

        def __exit__(self, *_):
            self._lock.release()

    with stomp.connect(peer.url, heart_beat=(0, 0)) as client:
        subscription = client.subscribe("/queue/b", id="s", ack="client-individual")
        peer.deliver("s", b"x")
        message, engine = subscription.get(patience(LONG)), client._link.engine
        turns, engine._turns = engine._turns, Waiting(engine.lock)
        for count, call in enumerate((partial(client.send, "/queue/a"), message.ack), 1):
            call()
            assert len(asked) >= count
        engine._turns = turns
