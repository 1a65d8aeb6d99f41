"""Both shells: many messages in one go, against a scripted server and our own broker."""

import threading

import pytest
from client.peer import Peer
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client.shell import BLOCK


def numbered(count, destination="/queue/a"):
    return ((destination, b"%d" % number, {"n": str(number)}) for number in range(count))


def numbers(peer):
    return [int(frame.body) for frame in peer.got("SEND")]


def failed(client, messages, **options):
    with pytest.raises(stomp.SendManyError) as caught:
        client.send_many(messages, **options)
    return caught.value


@pytest.mark.req("S12-SND-01", "S12-RCP-01")
def test_all_arrive_in_order_with_few_receipts(shell, peer):
    seen = []
    client = shell.connect(peer.url, on_frame=lambda direction, frame: seen.append((direction, frame.command)))
    assert client.send_many(numbered(2500)) == 2500
    assert client.send_many(numbered(3, "/queue/each"), receipt_every=1) == 3
    assert client.send_many(numbered(1500, "/queue/none"), receipt_every=0) == 1500
    assert client.send_many([]) == 0
    client.send_many(("/queue/large", bytes(BLOCK // 4)) for _ in range(10))
    found = {name: peer.got("SEND", destination=f"/queue/{name}") for name in ("a", "each", "none", "large")}
    for name, count in (("a", 2500), ("each", 3), ("none", 1500)):
        assert [int(frame.body) for frame in found[name]] == list(range(count))
    receipts = {name: [at for at, frame in enumerate(frames) if frame.get("receipt")] for name, frames in found.items()}
    assert receipts == {"a": [999, 1999, 2499], "each": [0, 1, 2], "none": [], "large": [3, 7, 9]}
    client.close()
    assert seen.count(("out", "SEND")) == 4013


@pytest.mark.parametrize("server", ["test/1", "ActiveMQ/5.17"])
def test_every_form_of_a_message_is_as_send_writes_it(shell, server):
    """Text for JMS goes without content-length."""
    forms = [
        ("/queue/a", b"\0octets"),
        ("/queue/a", "grüße", None),
        ("/queue/a", b"x", [("x", "1"), ("x", "2"), ("größe: \\ \n", "a:b")]),
        ("/queue/a", "x", {"content-type": "application/json"}),
        ("/queue/a", b""),
        ("/queue/a", "nul \0"),
    ]
    frames = [Frame("SEND", {"destination": "/queue/b", "y": "z"}, b"a frame")]
    with Peer(server=server) as peer:
        client = shell.connect(peer.url)
        for form in forms:
            client.send(*form, receipt=True)
        one_by_one = [serialize(without_receipt(frame)) for frame in peer.got("SEND")]
        client.send_many([*forms, *frames])
        *same, frame = peer.got("SEND")[len(forms) :]
        assert [serialize(frame) for frame in same] == one_by_one
        assert [frame.get("content-length") for frame in same][-1] == "5"
    assert (frame.headers["destination"], frame.headers["y"], frame.body) == ("/queue/b", "z", b"a frame")


def without_receipt(frame):
    pairs = [pair for pair in frame.headers.pairs() if pair[0] != "receipt"]
    return Frame(frame.command, pairs, frame.body)


def test_what_waits_is_bounded(shell):
    """A server that gives no receipts holds the sender: so much is taken, and no more."""
    with Peer(rules={"SEND": lambda side, frame: None}) as peer:
        client = shell.connect(peer.url, outbox_frames=100, close_timeout=0.1)
        taken = []

        def messages():
            for message in numbered(10_000):
                taken.append(client._link.core.link.outbox.frames)
                yield message

        error = failed(client, messages(), receipt_every=10, timeout=0.3)
        assert isinstance(error.reason, stomp.ReceiptTimeoutError)
        assert len(taken) <= 120
        assert max(taken) <= 100
        assert error.outcomes == [(range(len(taken)), "unknown")]


def test_room_in_octets(shell):
    """A server that does not read: no more than the outbox allows, and the kernel, is taken."""
    stop = threading.Event()
    with Peer(rules={"SEND": lambda side, frame: stop.wait(patience(20))}) as peer:
        client = shell.connect(peer.url, outbox_octets=200_000, close_timeout=0.1)
        taken = []

        def messages():
            while True:
                taken.append(client._link.core.link.outbox.octets)
                yield ("/queue/a", bytes(50_000))

        error = failed(client, messages(), receipt_every=0, timeout=0.3)
        stop.set()
        assert isinstance(error.reason, stomp.OutboxFullError)
        assert max(taken) < 450_000  # a block that is too large may come alone
        assert error.outcomes == [(range(error.outcomes[0][0].stop), "unknown")]


# ---- rejected ----


def refuse(number, named):
    def on_send(side, frame):
        if frame.body == b"%d" % number:
            side.error(frame if named else None, "not allowed")
        else:
            side.receipt(frame)

    return {"SEND": on_send}


def test_a_refused_message_is_named(shell):
    """Also as the last of its block."""
    with Peer(rules=refuse(19, named=True)) as peer:
        error = failed(shell.connect(peer.url), numbered(25), receipt_every=10)
        assert error.outcomes[:3] == [(range(10), "accepted"), (range(10, 19), "unknown"), (range(19, 20), "rejected")]
    with Peer(rules=refuse(7, named=True)) as peer:
        client = shell.connect(peer.url, reconnect=QUICK)
        error = failed(client, numbered(20), receipt_every=1)
        assert isinstance(error.reason, stomp.RejectedError)
        assert error.reason.frame.headers["message"] == "not allowed"
        assert str(error) == "message 7 was rejected: not allowed"
        assert (error.accepted, error.outcome(7)) == (7, "rejected")
        assert {error.outcome(number) for number in range(8, 20)} <= {"unknown", "unsent"}
        client.wait_connected()
        assert client.send_many(numbered(7), receipt_every=2) == 7


def test_a_refusal_that_names_nothing_is_about_a_block(shell):
    with Peer(rules=refuse(14, named=False)) as peer:
        client = shell.connect(peer.url, reconnect=QUICK, resend=True)
        error = failed(client, numbered(20), receipt_every=10)
        assert str(error) == "messages 10 to 19, or a later message, was rejected: not allowed"
        assert isinstance(error.reason, stomp.RejectedError)
        assert error.outcomes == [(range(10), "accepted"), (range(10, 20), "unknown")]
        client.wait_connected()
        assert len(peer.got("SEND")) <= 20  # nothing is sent again: it would be refused again


# ---- unwritable ----


@pytest.mark.parametrize(
    "bad",
    [
        ("/queue/a", b"", {"x": 1}),
        ("/queue/a\ud800", b""),
        ("/queue/a", b"", {"": "x"}),
        ("/queue/a", 7),
        ("/queue/a",),
        ("/queue/a", b"", {}, "more"),
        ("/queue/a", b"x", {"content-length": "2"}),
        Frame("MESSAGE", {"destination": "/queue/a"}),
        Frame("SEND"),
        None,
    ],
)
def test_what_cannot_be_written_is_named(shell, peer, bad):
    client = shell.connect(peer.url)
    error = failed(client, [*numbered(12), bad, *numbered(5)], receipt_every=10)
    assert str(error).startswith("message 12 cannot be written: ")
    assert error.outcomes == [(range(10), "accepted"), (range(12, 13), "unwritable")]
    assert (error.outcome(11), error.outcome(13)) == ("unsent", "unsent")
    assert numbers(peer) == list(range(10))
    assert client.epoch == 1


# ---- losses ----


def cut_at(number):
    """A server that is gone with this message, on its first connection."""

    def on_send(side, frame):
        if frame.body == b"%d" % number and side.number == 1:
            side.close()
        else:
            side.receipt(frame)

    return {"SEND": on_send}


def test_a_loss_leaves_no_doubt_about_what_is_in_doubt(shell):
    with Peer(rules=cut_at(25)) as peer:
        client = shell.connect(peer.url, reconnect=QUICK)
        error = failed(client, numbered(100), receipt_every=10)
        assert isinstance(error.reason, stomp.ConnectionLostError)
        assert error.outcomes[0] == (range(20), "accepted")
        assert error.outcome(25) == "unknown"
        client.wait_connected()
        client.send("/queue/a", b"100", receipt=True)
        assert numbers(peer) == [*range(26), 100]  # what had not left did not leave later


def test_resend_after_a_loss(shell):
    with Peer(rules=cut_at(25)) as peer:
        client = shell.connect(peer.url, reconnect=QUICK)
        assert client.send_many(numbered(100), receipt_every=10, resend=True) == 100
        seen = list(dict.fromkeys(numbers(peer)))
        assert seen == list(range(100))
        keys = {}
        for frame in peer.got("SEND"):
            keys.setdefault(int(frame.body), set()).add(frame.headers["idempotency-key"])
        assert all(len(each) == 1 for each in keys.values())
        assert len(set.union(*keys.values())) == 100


# ---- transactions ----


def test_a_transaction_that_fails_is_aborted(shell, peer):
    client = shell.connect(peer.url)
    with pytest.raises(stomp.SendManyError), client.transaction() as transaction:
        client.send_many([*numbered(20), ("/queue/a", b"", {"x": 1})], transaction=transaction, receipt_every=10)
    peer.wait(lambda peer: peer.got("ABORT"))
    assert not peer.got("COMMIT")
    with pytest.raises(stomp.LocalProtocolError, match="resend"):
        client.send_many([], transaction=transaction, resend=True)


def test_a_transaction_that_ends_on_the_way(shell):
    """Refused, or lost with the connection: what comes behind is not sent, and there is no COMMIT."""
    for rules, says in ((refuse(15, named=False), "not allowed"), (cut_at(15), "closed by the server")):
        with Peer(rules=rules) as peer:
            client = shell.connect(peer.url, reconnect=QUICK)

            def messages(client=client):
                yield from numbered(20)
                while client.epoch == 1:
                    threading.Event().wait(0.005)
                yield from numbered(1000)

            with (
                pytest.raises(stomp.SendManyError, match=rf"took no effect .*{says}") as caught,
                client.transaction() as transaction,
            ):
                client.send_many(messages(), transaction=transaction, receipt_every=10)
            assert isinstance(caught.value.reason, stomp.ConnectionLostError)
            assert (caught.value.accepted, transaction.state) == (0, "lost")
            client.wait_connected()
            client.ping()
            assert len(peer.got("SEND")) <= 20
            assert not peer.got("COMMIT")
