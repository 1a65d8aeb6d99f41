"""What ends each connection of other people's brokers on being sent again, and how they refuse a login."""

from uuid import uuid4

import pytest
from client.shells import QUICK, Shell
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.dialects import BROKERS


@pytest.fixture(params=["sync", "async"])
def shell(request):
    shell = Shell(request.param)
    yield shell
    shell.stop()


@pytest.mark.peer("activemq5", "activemq6")
def test_a_message_that_is_answered_by_closing_is_given_up_and_the_others_arrive(peer, shell):
    destination = peer.row.queue.format(uuid4().hex)
    client = shell.connect(
        peer.url, reconnect=QUICK, resend=True, dialect="unknown"
    )  # that of theirs refuses the value
    receipts = [
        client.send_for_receipt(destination, b"1"),
        client.send_for_receipt(destination, b"bad", {"priority": "high"}, timeout=patience(60)),
        client.send_for_receipt(destination, b"2", timeout=patience(60)),
    ]
    receipts[0].wait()
    with pytest.raises(stomp.ConnectionLostError, match="the outcome is unknown") as unknown:
        receipts[1].wait()
    assert unknown.value.sent
    receipts[2].wait()
    subscription = client.subscribe(destination)
    assert [subscription.get(patience(30)).body for _ in range(2)] == [b"1", b"2"]


@pytest.mark.peer("spring", "activemq5", "activemq6", "artemis")
def test_a_subscribe_that_is_refused_without_a_receipt_ends_and_the_others_go_on(peer, shell):
    client = shell.connect(peer.ws_url or peer.url, reconnect=QUICK)
    good = client.subscribe(peer.row.queue.format(uuid4().hex), confirm=False)
    destination, selector = ("/topic/refused", None) if peer.row.name == "spring" else ("/queue/refused", "((")
    bad = client.subscribe(destination, selector=selector, confirm=False)
    with pytest.raises(stomp.RejectedError, match=f"SUBSCRIBE to {bad.destination} was rejected"):
        bad.get(patience(60))
    client.wait_connected(patience(30))
    message = None
    while message is None:  # without a receipt of SUBSCRIBE, a message may overtake it
        client.send(good.destination, b"on")
        message = good.get(1)
    assert (message.body, good.error) == (b"on", None)


@pytest.mark.peer("activemq5", "activemq6", "rabbitmq3", "rabbitmq4")
def test_a_refused_login_is_known_by_its_words(peer, shell):
    with pytest.raises(stomp.RejectedError) as refused:
        shell.connect(peer.url, login="guest", passcode="wrong")
    assert BROKERS[peer.row.dialect].refuses_login(str(refused.value))


@pytest.mark.peer("artemis", access="require-login")
def test_a_refused_login_of_artemis(peer, shell):
    with pytest.raises(stomp.RejectedError) as refused:
        shell.connect(peer.url, login="guest", passcode="wrong")
    assert BROKERS["artemis"].refuses_login(str(refused.value))
