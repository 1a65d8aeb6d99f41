"""Both shells: what happens when connections are lost."""

import threading
import time

import pytest
from client.peer import Peer, closed_port
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp


def test_failover_list(shell):
    with closed_port() as closed, Peer() as first, Peer() as second:
        url = f"failover:(stomp://127.0.0.1:{closed},{first.url},{second.url})"
        client = shell.connect(url, reconnect=QUICK)
        subscription = client.subscribe("/queue/a")
        first.stop()
        second.wait(lambda peer: peer.got("SUBSCRIBE"))
        client.wait_connected()
        client.send("/queue/a", b"over there", receipt=True)
        assert subscription.get(patience(5)).body == b"over there"


def test_a_server_that_takes_sessions_and_drops_them_is_left(shell):
    with Peer(rules={"SUBSCRIBE": lambda side, frame: side.close()}) as bad, Peer() as good:
        client = shell.connect(f"failover:({bad.url},{good.url})", reconnect=QUICK)
        client.subscribe("/queue/a", timeout=patience(20))
        assert len(good.got("SUBSCRIBE")) == 1
        assert len(bad.sides) < 3


def test_a_client_that_does_not_reconnect(shell, peer):
    client = shell.connect(peer.url, reconnect=None)
    subscription = client.subscribe("/queue/a")
    peer.cut()
    with pytest.raises(stomp.ConnectionLostError):
        next(subscription)
    assert client.state == "closed"
    with pytest.raises(stomp.LocalProtocolError):
        client.send("/queue/a")


def test_giving_up_after_so_many_attempts(shell):
    with Peer() as peer:
        client = shell.connect(peer.url, reconnect=stomp.Backoff(first=0.01, most=0.02, attempts=3))
        subscription = client.subscribe("/queue/a", ack="client")
        peer.stop()
        with pytest.raises(stomp.ConnectionLostError):
            next(subscription)
        assert client.state == "closed"


def test_what_was_waiting_comes_after_the_subscriptions(shell):
    with Peer() as peer:
        client = shell.connect(peer.url, reconnect=QUICK)
        subscription = client.subscribe("/queue/a", ack="client-individual")
        peer.deliver("s1", b"old")
        message = subscription.get(patience(5))
        states = []
        refuse = threading.Event()
        peer.rules["CONNECT"] = lambda side, frame: peer.on_connect(side, frame) if refuse.is_set() else side.close()
        peer.cut()
        while client.state == "connected":
            time.sleep(0.001)
        client.send("/queue/a", b"waited")
        states.append(client.state)
        refuse.set()
        assert subscription.get(patience(5)).body == b"waited"
        assert states == ["reconnecting"]
        with pytest.raises(stomp.StaleAckError):
            message.ack()
        last = peer.sides[-1].number
        assert peer.commands(last)[:3] == ["CONNECT", "SUBSCRIBE", "SEND"]


@pytest.mark.parametrize("seed", range(2))
def test_nothing_with_a_receipt_is_lost_whenever_it_is_cut(shell, seed):
    """Cuts at any octet, both ways. A receipt means that it came; what is unknown is sent again by the program."""
    from stompcodec.testing.faults import FaultProxy

    with Peer() as peer, FaultProxy(("127.0.0.1", peer.port), seed=seed) as proxy:
        client = shell.connect(f"stomp://127.0.0.1:{proxy.port}", reconnect=QUICK)
        proxy.rules.up.cut_after = (10, 3000)
        proxy.rules.down.cut_after = (10, 3000)
        proxy.rules.up.piece = 50
        got = []
        client.subscribe("/queue/a", ack="client-individual", handler=shell.handler(lambda m: got.append(int(m.body))))
        for number in range(100):
            while True:
                try:
                    client.send("/queue/a", b"%d" % number, receipt=True, timeout=patience(10))
                    break
                except stomp.ConnectionLostError:
                    continue
        proxy.rules.up.cut_after = proxy.rules.down.cut_after = None
        accepted = [int(frame.body) for frame in peer.got("SEND")]
        assert set(accepted) == set(range(100))
        assert sorted(set(accepted), key=accepted.index) == list(range(100))
        assert client.epoch > 3
        # `Peer.on_ack` fails the connection with an assertion where an ACK is stale.
        assert peer.thread.is_alive()


@pytest.mark.long
def test_resend_through_cuts_at_least_once(shell):
    from stompcodec.testing.faults import FaultProxy

    with Peer() as peer, FaultProxy(("127.0.0.1", peer.port), seed=7) as proxy:
        client = shell.connect(f"stomp://127.0.0.1:{proxy.port}", reconnect=QUICK, resend=True)
        proxy.rules.up.cut_after = (200, 8000)
        for start in range(0, 200, 5):
            numbers = range(start, start + 5)
            receipts = [client.send_for_receipt("/queue/a", b"%d" % number) for number in numbers]
            for receipt in receipts:
                receipt.wait()
        proxy.rules.up.cut_after = None
        assert client.epoch > 3
        keys = {}
        for frame in peer.got("SEND"):
            keys.setdefault(frame.headers["idempotency-key"], set()).add(frame.body)
        assert len(keys) == 200
        assert all(len(bodies) == 1 for bodies in keys.values())
