"""`install()`: heart-beats of stomp.py go on while a listener blocks, on real sockets to our broker."""

import contextlib
import functools
import itertools
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from compat.stomppy_peer import Listener, Server, compat, needs_stomppy, stomp

import stompcodec.compat

pytestmark = needs_stomppy
WAIT = 30.0
#: Milliseconds between heart-beats. A busy machine may break a short promise; then a longer one is tried.
BEATS = (150, 1000, 5000)
#: Reads of the client, each of one heart-beat or more, while its listener blocks: longer than stomp.py's patience.
READS = 5
NAME = "stompcodec-beats"
ONE = b"MESSAGE\n\none\0"
#: Of queues: none has a subscriber that an earlier connection has left.
numbers = itertools.count()


def wait_until(condition):
    done = threading.Event()
    return any(condition() or done.wait(0.01) for _ in range(int(WAIT / 0.01)))


@pytest.fixture(scope="module")
def brokers(certificates):
    with contextlib.ExitStack() as stack:

        @functools.cache
        def broker(beats):
            tls = {"tls_port": 0, "tls_cert": certificates.server}
            return stack.enter_context(BrokerThread(heart_beat=(beats, beats), ws_port=0, **tls))

        yield broker


# ---- a listener that blocks, and a broker that counts ----
def dial(broker, certificates, kind, beats, classes, **options):
    address = ("127.0.0.1", {"ws": broker.ws_port, "tls": broker.tls_port}.get(kind, broker.port))
    name = {"1.1": "Connection11", "ws": "WSConnection"}.get(kind, "Connection12")
    connection = getattr(classes, name)([address], reconnect_attempts_max=1, heartbeats=beats, **options)
    if kind == "tls":
        connection.set_ssl([address], ca_certs=certificates.ca)
    listener = Listener(blocks=True)
    connection.set_listener("test", listener)
    connection.connect("guest", "guest", wait=True)
    return connection, listener


def survives(connection, listener):
    """Let the listener block until heart-beats of several intervals have come, or the connection is cut."""
    reads, receive = [], connection.transport.receive

    def counted():
        data = receive()
        if data and listener.of("message"):
            reads.append(data)
            if len(reads) > READS:
                listener.note("reads")
        return data

    def comes(what):
        listener.wait(what, "timeout", "disconnected")
        return not listener.of("timeout") and not listener.of("disconnected")

    connection.transport.receive = counted
    queue = f"/queue/beats.{next(numbers)}"
    try:
        connection.subscribe(queue, id="1", ack="auto")
        connection.send(queue, "one")
        alive = comes("message") and comes("reads")
        listener.release.set()
        connection.send(queue, "two", receipt="r")  # it works on, and the broker has not ended it
        if not (alive and comes("receipt")):
            return False
    except stomp.exception.NotConnectedException:
        return False
    finally:
        listener.release.set()
    listener.wait("done", count=2)
    assert listener.bodies() == ["one", "two"]
    assert len(listener.threads("message")) == 1
    connection.disconnect()
    listener.wait("disconnected")
    return True


TOP = Path(__file__).parents[2]
PAGES = [page for page in ("README.md", "docs/coming-from-stomp-py.md") if (TOP / page).is_file()]


def install_as_told(page):
    blocks = re.findall(r"^```python\n(.*?)^```", (TOP / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(compile(next(block for block in blocks if "compat.install(" in block), page, "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_a_listener_may_block_with_the_first_lines_of_a_page(brokers, certificates, page, request):
    request.addfinalizer(stompcodec.compat.undo)
    install_as_told(page)
    assert any(survives(*dial(brokers(beats), certificates, "1.2", (beats, beats), stomp)) for beats in BEATS)


@pytest.mark.peer("activemq6")
@pytest.mark.parametrize("page", [None, *PAGES])
def test_a_listener_that_blocks_keeps_its_connection_to_activemq(peer, page, request):
    request.addfinalizer(stompcodec.compat.undo)
    if page is not None:
        install_as_told(page)
    place = SimpleNamespace(port=peer.ports["stomp"], ws_port=0, tls_port=0)
    assert survives(*dial(place, None, "1.2", (1500, 1500), stomp)) is (page is not None)


ROADS = ["installed-strict", "taken-over", "class", "class-taken-over"]


@pytest.mark.parametrize(
    ("road", "kind"),
    [*((road, "1.2") for road in ROADS), *(("installed", kind) for kind in ("1.2", "1.1", "ws", "tls"))],
)
def test_a_listener_may_block_longer_than_the_beats(brokers, certificates, road, kind):
    for beats in BEATS:
        pair = (beats, beats)
        given, own = (None, pair) if road.endswith("over") else (pair, (0, 0))
        with contextlib.ExitStack() as stack:
            options = {"classes": compat, "heart_beats": given}
            if not road.startswith("class"):
                stack.enter_context(compat.install(not road.endswith("strict"), heart_beats=given))
                options = {"classes": stomp}
            if survives(*dial(brokers(beats), certificates, kind, own, **options)):
                return
    pytest.fail("cut, however long the interval")


@pytest.mark.parametrize("patched", [False, True], ids=["as-it-is", "patched"])
def test_without_them_it_is_cut(brokers, certificates, patched):
    """The fault that is repaired: if this fails, stomp.py has repaired it."""
    with compat.install(heart_beats=False) if patched else contextlib.nullcontext():
        assert not survives(*dial(brokers(150), certificates, "1.2", (150, 150), stomp))


@pytest.mark.parametrize("promised", [0, 1000])
def test_a_dead_server_is_noticed_while_a_listener_blocks(promised):
    with compat.install(heart_beats=(0, 50)), Server(b"%d,0" % promised) as server:
        connection, listener = server.dial(blocks=True)
        server.peer.sendall(ONE)
        listener.wait("message")
        if promised:
            listener.wait("timeout")
        assert connection.is_connected() is not bool(promised)
        listener.release.set()
        if promised:
            listener.wait("disconnected")


def ends_after(monkeypatch, came, scale, until, interval=10.0):
    """When a connection is cut, in intervals, if octets come at these times; None if it is not, up to `until`."""
    from stompcodec.compat import stomppy

    now, waiting, threads, told = 0.0, [interval * at for at in came], [], []
    peer = SimpleNamespace(on_heartbeat_timeout=lambda: told.append(now / interval))
    nothing = lambda *_: None  # noqa: E731
    transport = SimpleNamespace(socket="socket", listeners={"test": peer}, set_connected=nothing)
    transport.disconnect_socket = transport.stop = nothing

    def wait(seconds):
        """Let time go on to the next octet, or until it is over."""
        nonlocal now
        due = now + seconds
        if waiting and waiting[0] <= due:
            now = waiting.pop(0)
            beats.received()
        else:
            now = due
        return now >= until * interval

    monkeypatch.setattr(stomp.utils, "default_create_thread", threads.append)
    monkeypatch.setattr(stomppy, "monotonic", lambda: now)
    stop = SimpleNamespace(set=nothing, wait=wait)
    monkeypatch.setattr(stomppy, "threading", SimpleNamespace(Event=lambda: stop))
    theirs = SimpleNamespace(heart_beat_receive_scale=scale)
    beats = stomppy.Beats(transport, (0, int(interval * 1000)), (0, 0), theirs)
    beats.on_connected(SimpleNamespace(headers={"heart-beat": f"{interval * 1000:.0f},0"}))
    threads[0]()
    return told[0] if told else None


@pytest.mark.parametrize(
    ("came", "scale", "cut"),
    [
        ([2.01, 2.1, 4.09, 6.1], 1.5, None),  # ActiveMQ: the first beat, and one behind a frame
        *(([], 1.5, 2.5), ([1, 2], 1.5, 4.5)),
        ([2.01, 3], 1.2, 4.2),  # what a program chooses holds from the first beat on
        *(([], 1.2, 2.5), ([2.9, 5.8], 3.0, None), ([], 3.0, 3.0)),
    ],
)
def test_how_long_a_server_may_be_silent(monkeypatch, came, scale, cut):
    with monkeypatch.context() as patch:
        assert ends_after(patch, came, scale, until=came[-1] if cut is None else cut + 1) == pytest.approx(cut)


@pytest.mark.parametrize(
    ("heart_beats", "own", "header", "offer", "ours"),
    [
        *((None, (0, 0), None, None, False), (None, (1000, 2000), None, "1000,2000", True)),
        *((None, (0, 0), "5,6", "5,6", True), (None, (0, 0), "0,0", "0,0", False)),
        *((None, (0, 0), "soon", "soon", False), (None, ("5", "6"), None, "5,6", False)),
        *((False, (1000, 2000), None, "1000,2000", False), ((7, 9), (0, 0), None, "7,9", True)),
        *(((7, 9), (0, 0), "0,0", "0,0", True), ((7, 9), (1000, 2000), None, "1000,2000", True)),
    ],
)
@pytest.mark.parametrize("road", ["installed", "class"])
def test_only_connections_that_ask_for_beats_are_taken_over(road, heart_beats, own, header, offer, ours):
    """The others say the same as before, and their listeners are called in stomp.py's thread."""
    with contextlib.ExitStack() as stack:
        options = {"heartbeats": own}
        if road == "installed":
            stack.enter_context(compat.install(heart_beats=heart_beats))
        else:
            options |= {"heart_beats": heart_beats, "classes": compat}
        server = stack.enter_context(Server())
        connection, listener = server.dial(headers=header and {"heart-beat": header}, **options)
        server.peer.sendall(ONE)
        listener.wait("done")
        assert server.last_offer() == offer
        server.end(listener)
        assert (listener.threads("message") != listener.threads("disconnected")) is ours
        assert (NAME in connection.transport.listeners) is ours


def test_a_connection_made_before_is_taken_over_and_given_back():
    with Server(b"30,30") as server:
        connection = stomp.Connection12([server.address], heartbeats=(30, 0))
        with compat.install():
            _, listener = server.dial(connection=connection)
            assert wait_until(lambda: connection.heartbeats == (30, 0))
            assert connection.heartbeat_thread is None
            server.end(listener)
            connection.heartbeats = (10, 0)  # the program changes its mind
        assert connection.heartbeats == (10, 0)
        with compat.install():
            server.dial(connection=connection)
            assert NAME in connection.transport.listeners
            server.end(listener, 2)
        assert connection.heartbeats == (10, 0)
        assert NAME not in connection.transport.listeners
        server.dial(connection=connection)
        assert server.last_offer() == "10,0"
        assert wait_until(lambda: connection.heartbeat_thread is not None)


@pytest.mark.parametrize(
    ("heart_beats", "own", "given"), [((7000, 9000), (0, 0), "7000,9000"), (None, (1000, 2000), "1000,2000")]
)
def test_a_second_connection_offers_the_same(heart_beats, own, given):
    """stomp.py by itself offers what was agreed the first time: with 0,0 nothing any more."""
    with compat.install(heart_beats=heart_beats), Server() as server:
        connection, offers = None, []
        for change in (None, None, (3, 4)):
            if change is not None:
                connection.heartbeats = change  # the program changes its mind
            connection, listener = server.dial(connection=connection, heartbeats=own)
            offers.append(server.last_offer())
            server.end(listener, len(offers))
        server.dial("Connection10")
        offers.append(server.last_offer())
    assert offers == [given, given, "3,4", None]


def test_what_asks_for_no_beats_any_more_has_none():
    with compat.install(), Server(b"0,30") as server:
        connection, listener = server.dial(heartbeats=(30, 0))
        assert wait_until(lambda: connection.heartbeats == (30, 0))
        server.end(listener)
        connection.heartbeats = (0, 0)
        server.dial(connection=connection)
        assert server.last_offer() is None
        assert NAME not in connection.transport.listeners


@pytest.mark.parametrize("own", [(0, 0), (30, 0)])
def test_stomp_py_goes_on_with_the_beats_of_an_open_connection_after_undo(own):
    with Server(b"0,30") as server, Server() as second:
        with compat.install(heart_beats=None if own[0] else (30, 0)):
            connection, _ = server.dial(heartbeats=own)
            other, _ = second.dial(classes=compat, heartbeats=(1000, 0))
            assert wait_until(lambda: connection.heartbeats == (30, 0))
            ours = connection.transport.listeners[NAME]
        assert NAME in other.transport.listeners, "the connections of our classes stay as they are"
        assert NAME not in connection.transport.listeners
        assert ours._stop.is_set()
        assert wait_until(lambda: connection.heartbeat_thread is not None)
        server.peer.recv(65536)  # those that were on their way
        assert [server.peer.recv(1) for _ in range(3)] == [b"\n"] * 3
    connection.heartbeat_terminate_event.set()


def test_who_connects_again_in_on_disconnected_has_beats():
    """stomp.py's own thread of the first connection is still there then, and none begins."""
    with compat.install(heart_beats=(30, 0)), Server(b"0,30") as server:
        connection, listener = server.dial()
        again, told = threading.Event(), listener.on_disconnected

        def reconnect():
            told()
            if not again.is_set():
                again.set()
                server.dial(connection=connection)

        listener.on_disconnected = reconnect
        first = server.peer
        assert first.recv(1) == b"\n"
        first.close()
        assert again.wait(WAIT)
        assert wait_until(lambda: server.peer is not first)
        assert [server.peer.recv(1) for _ in range(3)] == [b"\n"] * 3


def test_a_pool_without_a_thread_left_is_used_as_by_stomp_py(monkeypatch, caplog):
    monkeypatch.setattr(compat, "_BEGINS", 0.05)
    with ThreadPoolExecutor(1) as pool, compat.install(), Server(b"0,30") as server:
        connection = stomp.Connection12([server.address], heartbeats=(30, 0))
        connection.transport.override_threading(pool.submit)
        _, listener = server.dial(connection=connection)
        assert server.peer.recv(1) == b"\n"
        server.peer.sendall(ONE + b"MESSAGE\n\ntwo\0")
        listener.wait("done", count=2)
        server.end(listener)
    assert listener.bodies() == ["one", "two"]
    assert "override_threading gave no thread for listeners" in caplog.text


def test_an_override_of_threads_holds_for_ours():
    made = []

    def create(callback):
        made.append(threading.Thread(target=callback, daemon=True))
        made[-1].start()
        return made[-1]

    with compat.install(heart_beats=(1000, 1000)), Server(b"1000,1000") as server:
        connection = stomp.Connection12([server.address])
        connection.transport.override_threading(create)
        _, listener = server.dial(connection=connection)
        server.peer.sendall(b"".join(b"MESSAGE\n\n%d\0" % number for number in range(500)))
        server.end(listener)
        assert listener.bodies() == [str(number) for number in range(500)]
        assert len(made) == 2  # the one that reads, and the one for listeners; stomp.py's heart-beats have their own
        for thread in made:
            thread.join(WAIT)
            assert not thread.is_alive()


def test_what_waits_is_bounded_and_a_server_that_waits_is_alive(monkeypatch):
    monkeypatch.setattr(compat, "_AHEAD", 10_000)
    monkeypatch.setattr(compat, "_TICK", 0.01)
    message = b"MESSAGE\n\n" + b"x" * 1000 + b"\0"
    with compat.install(heart_beats=(0, 100)), Server(b"1000,0") as server:
        connection, listener = server.dial(auto_decode=False, blocks=True)
        server.peer.settimeout(None)
        sender = threading.Thread(target=server.peer.sendall, args=(message * 20_000,), daemon=True)
        sender.start()
        listener.wait("message")
        turns, marks = connection.transport._stompcodec_turns, []
        seen = connection.transport.listeners[NAME]
        alive = lambda self: (marks.append(1), setattr(self, "_received", 1e6 + time.monotonic()))  # noqa: E731
        monkeypatch.setattr(type(seen), "received", alive)
        assert wait_until(lambda: len(marks) > 20)  # it looks again and again, and calls that a sign of life
        assert not turns.has_room(0)
        assert len(turns._waiting) < 100
        assert sender.is_alive()  # 20 MB do not fit into the sockets
        listener.release.set()
        assert wait_until(lambda: len(listener.told) >= 40_000)
        sender.join(WAIT)
        assert turns._size == 0
        assert connection.is_connected()


@pytest.mark.parametrize("beats", [None, (0, 0)], ids=["as-before", "own-thread"])
def test_what_a_listener_raises_ends_the_connection(beats, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # before 9.0 the thread ends by it
    with compat.install(heart_beats=beats), Server() as server:
        _, listener = server.dial()

        def on_message(frame):
            listener.note(frame.body)
            raise RuntimeError("a listener's mistake")

        listener.on_message = on_message
        server.peer.sendall(ONE)
        listener.wait("one")
        listener.wait("disconnected")
