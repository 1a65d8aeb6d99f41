"""Both shells: heart-beats while handlers block, and too much of everything."""

import asyncio
import contextlib
import threading
import time

import pytest
from client.peer import Peer
from client.shells import QUICK
from patience import interval, patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize

pytestmark = pytest.mark.long

# ---- heart-beats ----


def sleeps(seconds):
    time.sleep(seconds)


def computes(seconds):
    """The interpreter's lock is shared, yet the I/O thread gets its turns."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


@pytest.mark.req("S12-HB-09", "S12-HB-10")
@pytest.mark.parametrize(("shell_name", "work"), [("sync", sleeps), ("async", sleeps), ("sync", computes)])
def test_a_handler_that_blocks_keeps_its_connection(shell_name, work):
    """Its thread, or the whole event loop; and so does an idle connection."""
    beat = interval(100)

    def blocking(message):
        work(6 * beat / 1000)

    async def blocking_loop(message):
        blocking(message)

    async def asynchronous(peer):
        async with stomp.connect_async(peer.url, heart_beat=(beat, beat)) as client:
            await client.subscribe("/queue/a", ack="client-individual", handler=blocking_loop)
            peer.deliver("s1", b"x")
            await asyncio.to_thread(peer.wait, lambda peer: peer.got("ACK"), 20)
            await asyncio.sleep(3 * beat / 1000)
            await client.ping()
            return client.epoch

    with Peer(heart_beat=(beat, beat)) as peer:
        if shell_name == "async":
            epoch = asyncio.run(asynchronous(peer))
        else:
            with stomp.connect(peer.url, heart_beat=(beat, beat)) as client:
                client.subscribe("/queue/a", ack="client-individual", handler=blocking)
                peer.deliver("s1", b"x")
                peer.wait(lambda peer: peer.got("ACK"), 20)
                time.sleep(3 * beat / 1000)
                client.ping()
                epoch = client.epoch
        assert (epoch, peer.dead, len(peer.sides)) == (1, [], 1)


@pytest.mark.req("S12-HB-11", "S12-HB-12")
def test_a_dead_server_is_noticed_in_time(shell):
    with Peer(heart_beat=(200, 200)) as peer:
        client = shell.connect(peer.url, heart_beat=(200, 200), reconnect=QUICK)
        side = peer.side()
        side.silent = True
        started = time.monotonic()
        peer.wait(lambda peer: len(peer.got("CONNECT")) == 2)
        assert 0.3 < time.monotonic() - started < patience(2.9)  # 2 * 0.2 + 1, and as much again
        client.wait_connected()
        client.ping()


# ---- too much ----


def test_a_slow_consumer_stops_the_server_not_the_memory(shell):
    beat = interval(300)
    with Peer(heart_beat=(beat, 0)) as peer:
        client = shell.connect(peer.url, inbox_messages=100, heart_beat=(0, beat))
        subscription = client.subscribe("/queue/a")
        total = 3000
        frame = Frame("MESSAGE", {"subscription": "s1", "message-id": "m", "destination": "/queue/a"}, bytes(6000))
        data = serialize(frame) * total
        peer.side().silent = True  # no heart-beats from its own thread in the middle of a frame
        sender = threading.Thread(target=lambda: peer.side().sock.sendall(data))
        sender.start()
        time.sleep(4 * beat / 1000)  # longer than the heart-beats: the pause is not held against the server
        assert sender.is_alive()
        assert client._link.core.inbound.backlog < 1000
        assert client.epoch == 1
        for _ in range(total):
            assert subscription.get(patience(5)) is not None
        assert client.epoch == 1
        sender.join(patience(10))
        assert not sender.is_alive()


def hold(peer):
    """Let the server stop reading; returns what makes it go on."""
    go_on = threading.Event()
    peer._todo.append(lambda: go_on.wait(patience(20)))
    peer._wake()
    return go_on


def test_a_full_outbox_blocks_and_goes_on_or_raises_in_time(shell):
    with Peer() as peer:
        client, raising = (shell.connect(peer.url, outbox_frames=50, outbox_full=full) for full in ("block", "raise"))
        go_on = hold(peer)
        body, sent = bytes(100_000), []

        def produce(client, count, **options):
            for number in range(count):
                client.send("/queue/a", body, **options)
                sent.append(number)

        producer = threading.Thread(target=produce, args=(client, 300))
        producer.start()
        time.sleep(0.3)
        assert producer.is_alive()
        assert client._link.core.link.outbox.frames <= 51
        for full in (client, raising):
            with pytest.raises(stomp.OutboxFullError):
                produce(full, 1000, timeout=0.2)
        go_on.set()
        producer.join(patience(30))
        client.ping()
        assert len(sent) >= 300


def test_a_body_over_the_limit_ends_the_connection_with_a_typed_error(shell, peer):
    from stompcodec import Limits

    client = shell.connect(peer.url, limits=Limits(max_body=1000), reconnect=None)
    subscription = client.subscribe("/queue/a")
    peer.deliver("s1", bytes(6000))
    with pytest.raises(stomp.RemoteProtocolError, match="limit-exceeded"):
        next(subscription)


def test_many_threads_at_once(peer):
    """Whatever threads do while connections are cut and the client is closed: each call ends, in time."""
    allowed = (stomp.ConnectionLostError, stomp.StaleAckError, stomp.ReceiptTimeoutError, stomp.LocalProtocolError)
    client = stomp.connect(peer.url, reconnect=QUICK, receipt_timeout=5, close_timeout=1)
    counts, failures = [0] * 6, []

    def work(number):
        subscription = None
        try:
            while client.state != "closed":
                with contextlib.suppress(*allowed):
                    subscription = subscription or client.subscribe(f"/queue/{number}", ack="client-individual")
                    client.send(f"/queue/{number}", b"x", receipt=True)
                    message = subscription.get(0.5)
                    if message is not None:
                        message.ack(receipt=number % 2 == 0)
                    with client.transaction() as transaction:
                        transaction.send("/queue/t", b"x")
                    counts[number] += 1
        except Exception as error:  # the test tells it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for cut in range(60):
        time.sleep(0.1 * (1 + cut // 8))  # on a slow machine there is more time between two cuts
        peer.cut()
        if cut >= 7 and min(counts) > 0:
            break
    client.close()
    for thread in threads:
        thread.join(patience(10))
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    assert min(counts) > 0
    assert not client._link.engine.running
