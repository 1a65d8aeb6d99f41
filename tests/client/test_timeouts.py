"""Time-outs of any size, heart-beats while handlers block, the silence of a peer, too much of everything, probes."""

import contextlib
import math
import threading
import time

import pytest
from client.scripted import Scripted
from client.shells import QUICK
from patience import interval, patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client.link import health_of
from stompcodec.testing import StompBroker

TIMEOUTS = ("startup_timeout", "connect_timeout", "receipt_timeout", "close_timeout")


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as broker:
        yield broker


#: Beyond what `poll` takes (24.8 days), what locks take (292 years), and what a float holds.
@pytest.mark.parametrize("timeout", [3e8, 1e10, 1e300, math.inf])
def test_a_very_long_timeout_works(shell, broker, timeout):
    async def passcode():
        return "x"

    credentials = {"login": lambda: "ann", "passcode": passcode if shell.name == "async" else "x"}
    client = shell.connect(broker.url, heart_beat=(0, 0), **credentials, **dict.fromkeys(TIMEOUTS, timeout))
    client.send("/queue/long", b"1", receipt=True, timeout=timeout)
    client.send_many([("/queue/long", b"2")], timeout=timeout)
    subscription = client.subscribe("/queue/long", ack="client-individual", timeout=timeout)
    for body in (b"1", b"2"):
        message = subscription.get(timeout)
        assert message.body == body
        message.ack(receipt=True, timeout=timeout)
    client.ping(timeout)
    subscription.unsubscribe(timeout=timeout)
    subscription.join(timeout)
    client.drain(timeout)
    client.close(timeout)


@pytest.mark.parametrize("timeout", [0, -1, -6, -math.inf, -1e300])
def test_a_timeout_that_has_passed_is_over_at_once(shell, peer, timeout):
    peer.rules["SEND"] = lambda side, frame: None
    client = shell.connect(peer.url)
    with pytest.raises(stomp.ReceiptTimeoutError):
        client.send("/queue/past", receipt=True, timeout=timeout)
    with client.subscribe("/queue/nothing") as subscription:
        assert subscription.get(timeout) is None
    client.ping()
    client.close()


def test_a_receipt_that_never_comes_is_named_with_its_remedy_until_one_has_come(shell, peer):
    """go-stomp's server answers a SEND, and no SUBSCRIBE; Spring's simple broker answers none of both."""
    answers, remedy = peer.on_send, "; no {} has been answered yet: if the server sends no receipts, connect with"
    peer.rules |= dict.fromkeys(("SEND", "SUBSCRIBE", "BEGIN"), lambda side, frame: None)
    client = shell.connect(peer.url)
    calls = {
        "SEND": lambda: client.send("/queue/a", b"x", receipt=True, timeout=0.1),
        "SUBSCRIBE": lambda: client.subscribe("/queue/a", timeout=0.1).join(patience(5)),
        "BEGIN": lambda: client.ping(0.1),
    }
    for known in ([], ["SEND"]):
        for command, call in calls.items():
            with pytest.raises(stomp.ReceiptTimeoutError) as late:
                call()
            assert (remedy.format(command) + " receipts=False" in str(late.value)) == (command not in known)
        peer.rules["SEND"] = answers
        client.send("/queue/a", b"x", receipt=True)
        peer.rules["SEND"] = lambda side, frame: None
    with pytest.raises(stomp.ReceiptTimeoutError, match=r"no answer in 0.1 s$"):
        client.request("/queue/b", timeout=0.1)
    remedy = f"for replies: no answer in 0.2 s{remedy.format('SUBSCRIBE')}"
    with pytest.raises(stomp.ReceiptTimeoutError, match=remedy):
        shell.connect(peer.url, receipt_timeout=0.2).request("/queue/b", timeout=patience(10))


@pytest.mark.long
@pytest.mark.req("S12-HB-09", "S12-HB-10")
def test_a_handler_that_blocks_keeps_its_connection(shell, peer):
    beat = interval(200)
    peer.heart_beat = beat, beat
    client = shell.connect(peer.url, heart_beat=peer.heart_beat)

    def block(message):
        time.sleep(6 * beat / 1000)

    async def block_the_loop(message):
        block(message)

    client.subscribe("/queue/a", ack="client-individual", handler=block if shell.name == "sync" else block_the_loop)
    peer.deliver("s1", b"x")
    peer.wait(lambda peer: peer.got("ACK"), 20)
    time.sleep(3 * beat / 1000)
    client.ping()
    assert (client.epoch, peer.dead, len(peer.sides)) == (1, [], 1)


@pytest.mark.long
def test_a_slow_consumer_stops_the_server_not_the_memory(shell, peer):
    client = shell.connect(peer.url, inbox_messages=100, heart_beat=(0, 0))
    subscription, total = client.subscribe("/queue/a"), 3000
    frame = Frame("MESSAGE", {"subscription": "s1", "message-id": "m", "destination": "/queue/a"}, bytes(6000))
    side, data = peer.side(), serialize(frame) * total
    sender = threading.Thread(target=lambda: side.sock.sendall(data))
    sender.start()
    time.sleep(interval(300) / 1000)
    assert sender.is_alive()
    assert client._link.core.inbound.backlog < 1000
    for _ in range(total):
        assert subscription.get(patience(5)) is not None
    sender.join(patience(10))
    assert not sender.is_alive()


@pytest.mark.long
def test_a_full_outbox_blocks_and_goes_on_or_raises_in_time(shell, peer):
    blocking, raising = (shell.connect(peer.url, outbox_frames=50, outbox_full=full) for full in ("block", "raise"))
    go_on, sent = threading.Event(), []
    peer._todo.append(lambda: go_on.wait(patience(20)))  # the server stops reading
    peer._wake()

    def produce(client, count, **options):
        for number in range(count):
            client.send("/queue/a", bytes(100_000), **options)
            sent.append(number)

    producer = threading.Thread(target=produce, args=(blocking, 300))
    producer.start()
    time.sleep(0.3)
    assert producer.is_alive()
    assert blocking._link.core.link.outbox.frames <= 51
    for client in (blocking, raising):
        with pytest.raises(stomp.OutboxFullError):
            produce(client, 1000, timeout=0.2)
    go_on.set()
    producer.join(patience(30))
    blocking.ping()
    assert len(sent) >= 300


@pytest.mark.long
def test_many_threads_at_once(peer):
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


def test_only_a_client_with_a_session_is_alive(shell, peer):
    lost = threading.Event()
    client = shell.connect(peer.url, reconnect=QUICK, on_state=lambda state, _: state == "reconnecting" and lost.set())
    health = client.is_alive()
    assert health
    assert (health.alive, health.state, health.outstanding, health.reconnecting_since) == (True, "connected", 0, None)
    assert 0 <= health.last_received < patience(10)
    started = time.monotonic()
    peer.stop()
    assert lost.wait(patience(10))
    health = client.is_alive()
    assert (bool(health), health.state) == (False, "reconnecting")
    assert 0 <= health.reconnecting_since <= time.monotonic() - started
    client.close()
    health = client.is_alive()
    assert (bool(health), health.state, health.reconnecting_since) == (False, "closed", None)


def test_a_probe_hears_bytes_of_any_kind_and_counts_frames_that_wait_and_calls_without_an_answer():
    client = Scripted(heart_beat=(0, 1000), server_beat=(1000, 0)).connect()

    def health():
        return health_of(client.core.link, client.now, True)

    client.wait(2.0)
    assert health().last_received >= 2.0
    client.core.inbound.receive(b"\n", client.now)
    assert (health().last_received, health().outstanding) == (0.0, 0)
    call = client.send(receipt=True)
    assert health().outstanding == 1
    client.core.link.writable(False)
    client.send()
    assert health().outstanding == 2
    client.core.link.finish(call)
    assert health().outstanding == 1
