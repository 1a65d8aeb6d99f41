"""Time-outs and intervals of any size: very long ones wait, nan is refused, and none of them ends the I/O thread."""

import math
import threading

import pytest
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.receipts import Calls
from stompcodec.testing import StompBroker

#: Beyond what `poll` takes (24.8 days), what locks take (292 years), and what a float holds.
LONG = [3e8, 1e10, 1e300, math.inf]


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as broker:
        yield broker


@pytest.mark.parametrize("timeout", LONG)
def test_a_very_long_timeout_works(shell, broker, timeout):
    async def passcode():
        return "x"

    names = ("startup_timeout", "connect_timeout", "receipt_timeout", "close_timeout")
    credentials = {"login": lambda: "ann", "passcode": passcode if shell.name == "async" else "x"}
    client = shell.connect(broker.url, heart_beat=(0, 0), **credentials, **dict.fromkeys(names, timeout))
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


def test_the_io_thread_survives_a_wait_for_nothing(shell):
    """The server keeps the receipt back while the I/O thread waits until the timeout; another call ends that wait."""
    kept = []
    with Peer(rules={"SEND": lambda side, frame: kept.append((side, frame))}) as peer:
        client = shell.connect(peer.url, heart_beat=(0, 0))
        receipt = client.send_for_receipt("/queue/a", timeout=math.inf)
        peer.wait(lambda peer: peer.got("SEND"))
        client.ping()
        side, frame = kept[0]
        peer.do(lambda: side.receipt(frame))
        receipt.wait()
        client.close()


@pytest.mark.parametrize("offer", [(0, 2**31), (2**31, 0), (10**99, 10**99)])
def test_a_server_may_offer_any_interval_of_heart_beats(shell, offer):
    with Peer(heart_beat=offer) as peer:
        client = shell.connect(peer.url, heart_beat=(1000, 1000))
        client.send("/queue/a", receipt=True)
        assert client.state == "connected"
        client.close()


@pytest.mark.parametrize("timeout", [0, -1, -6, -math.inf, -1e300])
def test_a_timeout_that_has_passed_is_over_at_once(shell, timeout):
    with Peer(rules={"SEND": lambda side, frame: None}) as peer:
        client = shell.connect(peer.url)
        with pytest.raises(stomp.ReceiptTimeoutError):
            client.send("/queue/past", receipt=True, timeout=timeout)
        with client.subscribe("/queue/nothing") as subscription:
            assert subscription.get(timeout) is None
        client.ping()
        client.close()


@pytest.mark.parametrize(("timeout", "why"), [(math.nan, "is nan"), (10**400, "is too large")])
def test_no_number_of_seconds_is_refused_at_once(shell, broker, timeout, why):
    """For all calls see `test_nothing_left.py`."""
    client = shell.connect(broker.url)
    with pytest.raises(ValueError, match=f"timeout {why}"):
        client.send("/queue/a", receipt=True, timeout=timeout)
    client.ping()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *(
            (name, [math.nan, -1, 10**400])
            for name in ("startup_timeout", "connect_timeout", "receipt_timeout", "close_timeout")
        ),
        (
            "heart_beat",
            [(-1, 0), (0, -1), (math.nan, 0), (math.inf, 0), (1.5, 0), (2**63, 0), (0, 10**400), (1000,)],
        ),
    ],
)
def test_an_option_that_is_no_time_is_refused_by_name(name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            stomp.Options(**{name: value})


def test_delays_may_grow_without_end_and_are_numbers():
    delays = stomp.Backoff(first=1e300, factor=math.inf, most=math.inf, jitter=0.5).delays(lambda: 0.0)
    assert [next(delays), next(delays)] == [5e299, math.inf]
    for wrong in ({"factor": math.nan}, {"first": math.nan}, {"most": math.nan}, {"first": math.inf, "most": math.inf}):
        with pytest.raises(ValueError, match=r"first is|factor is"):
            stomp.Backoff(**wrong)
    assert Calls().make("SEND", 2**70).timeout == 2.0**70


def test_a_client_that_waits_for_its_next_attempt_can_be_closed(shell):
    """The wait between two attempts is as long as `Backoff` says."""
    reconnecting = threading.Event()

    def seen(state, error):
        if state == "reconnecting":
            reconnecting.set()

    with Peer() as peer:
        client = shell.connect(peer.url, reconnect=stomp.Backoff(first=1e300, most=1e300), on_state=seen)
        peer.stop()
        assert reconnecting.wait(patience(10))
        client.close()
        assert client.state == "closed"
