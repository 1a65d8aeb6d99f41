"""Sending by both shells: outcomes, transactions, the end; many messages in one go; blocks of frames in the core."""

import io
import threading
import time

import pytest
from client.shells import QUICK
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patience
from profiles import examples

import stompcodec.client as stomp
from stompcodec import Frame, FrameError, parse, serialize, serialize_many
from stompcodec.client.outbox import Block
from stompcodec.client.shell import BLOCK


@pytest.mark.req("S12-SND-01", "S12-SND-03", "S12-RCP-01", "S12-CT-01", "S12-CT-07")
def test_send_returns_when_the_server_has_it(shell, peer):
    client = shell.connect(peer.url)
    assert (client.state, client.version, client.dialect) == ("connected", "1.2", "unknown")
    client.send("/queue/a", b"hello", {"priority": "4"}, receipt=True)
    client.send("/queue/a", "grüße", [("x", "1"), ("x", "2")], receipt=True)
    first, second = peer.got("SEND")
    assert (first.body, first.headers["priority"], first.get("content-type")) == (b"hello", "4", None)
    assert (second.text(), second.headers.getall("x")) == ("grüße", ["1", "2"])


@pytest.mark.parametrize("body", [{"a": 1}, [1], [{"a": 1}], {"a"}, (1, 2), 5, None])
def test_what_was_meant_as_json_is_named(shell, peer, body):
    client = shell.connect(peer.url)
    for call in (client.send, client.send_for_receipt, client.request, client.transaction().send):
        with pytest.raises(TypeError, match=r"send JSON as json\.dumps\(\.\.\.\)"):
            call("/queue/a", body)
    with pytest.raises(stomp.SendManyError, match=r"message 0 .*send JSON as json\.dumps\(\.\.\.\)"):
        client.send_many([("/queue/a", body)])


@pytest.mark.parametrize(("charset", "octets"), [("latin-1", b"\xe9"), ("UTF-8", b"\xc3\xa9"), ("utf-16le", b"\xe9\0")])
def test_text_is_sent_in_the_charset_of_its_content_type(shell, peer, charset, octets):
    peer.server, kind = "ActiveMQ/6.3.1", f"text/plain; Charset={charset}"
    client = shell.connect(peer.url)
    client.send("/queue/a", "é", content_type=kind, receipt=True)
    client.send_many([("/queue/a", "é", {"content-type": kind})])
    lengths = {None} if charset == "UTF-8" else {str(len(octets))}  # other octets are no text for JMS
    assert {(frame.body, frame.get("content-length")) for frame in peer.got("SEND")} == {(octets, *lengths)}
    for wrong in ("klingon", "ascii"):
        with pytest.raises(ValueError, match=wrong):
            client.send("/queue/a", "é", content_type=f"text/plain;charset={wrong}")


def test_content_type(shell, peer):
    client = shell.connect(peer.url)
    client.send("/queue/a", '{"a": 1}', content_type="application/json")
    client.send("/queue/a", b"1", {"content-type": "application/json"}, content_type="application/json")
    client.send("/queue/a", io.BytesIO(b"1"), content_type="application/json")
    client.send_for_receipt("/queue/a", b"1", content_type="application/json").wait()
    with client.transaction() as transaction:
        transaction.send("/queue/a", b"1", content_type="application/json")
    peer.rules["SEND"] = lambda side, frame: side.deliver(frame.get("reply-to"))
    client.request("/queue/a", b"1", patience(20), content_type="application/json")
    assert [frame.headers.getall("content-type") for frame in peer.got("SEND")] == [["application/json"]] * 6
    with pytest.raises(ValueError, match="content_type is 'text/x', and headers= says 'text/y': give one"):
        client.send("/queue/a", b"x", {"content-type": "text/y"}, content_type="text/x")


@pytest.mark.parametrize("query", ["", "?receipts=FALSE"])
def test_a_server_that_answers_no_receipts_is_asked_for_that_of_disconnect_alone(shell, peer, query):
    client = shell.connect(peer.url + query, **({} if query else {"receipts": False}))
    subscription = client.subscribe("/queue/a", ack="client-individual")
    client.send("/queue/a", b"1", receipt=True)
    client.send("/queue/a", "2", {"n": "2"}, receipt=True)
    client.send_for_receipt("/queue/a", b"3").wait()
    client.send("/queue/a", io.BytesIO(b"4"), receipt=True)
    client.send_for_receipt("/queue/a", io.BytesIO(b"5")).wait()
    assert client.send_many([("/queue/a", b"6")]) == 1
    for number in range(1, 7):
        message = subscription.get(patience(5))
        assert message.body == b"%d" % number
        message.ack(receipt=True)
    with client.transaction() as transaction:
        transaction.send("/queue/a", b"7")
    assert transaction.state == "committed"
    transaction = client.transaction()
    with pytest.raises(KeyError), transaction:
        raise KeyError
    assert transaction.state == "aborted"
    handler = shell.handler(lambda message: message.reply(message.body.upper()))
    client.subscribe("/queue/upper", handler=handler)
    assert client.request("/queue/upper", b"abc", patience(10)).body == b"ABC"
    subscription.unsubscribe()
    for call in (client.ping, lambda: client.send("/queue/a", b"x", receipt=True, resend=True)):
        with pytest.raises(stomp.LocalProtocolError, match="receipts=False"):
            call()
    client.close()
    assert [frame.command for _, frame in peer.frames if frame.get("receipt")] == ["DISCONNECT"]
    with pytest.raises(ValueError, match="resend"):
        shell.connect(peer.url, receipts=False, resend=True)


def test_close_is_idempotent_and_final(shell, peer):
    peer.rules["DISCONNECT"] = lambda side, frame: None
    client = shell.connect(peer.url, close_timeout=0.3)
    subscription = client.subscribe("/queue/b")
    reader = threading.Thread(target=lambda: list(subscription))
    reader.start()
    client.send("/queue/a", b"last")
    for _ in range(2):
        client.close()
    reader.join(patience(5))
    assert (reader.is_alive(), client.state) == (False, "closed")
    peer.wait(lambda peer: peer.commands()[-2:] == ["SEND", "DISCONNECT"])
    for call in (lambda: client.send("/queue/a"), lambda: client.subscribe("/queue/a"), client.wait_connected):
        with pytest.raises(stomp.LocalProtocolError, match="closed"):
            call()


def test_drain_takes_its_time_and_no_more(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/a", ack="client-individual")
    peer.deliver("s1", b"never settled")
    assert subscription.get(patience(5)).body == b"never settled"
    with pytest.raises(stomp.ReceiptTimeoutError):
        client.drain(0.1)
    assert client.state == "closed"


# ---- many messages in one go ----
def numbered(count, destination="/queue/a"):
    return ((destination, b"%d" % number, {"n": str(number)}) for number in range(count))


def numbers(frames):
    return [int(frame.body) for frame in frames]


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
    assert all(numbers(found[name]) == [*range(count)] for name, count in (("a", 2500), ("each", 3), ("none", 1500)))
    receipts = {name: [at for at, frame in enumerate(frames) if frame.get("receipt")] for name, frames in found.items()}
    assert receipts == {"a": [999, 1999, 2499], "each": [0, 1, 2], "none": [], "large": [3, 7, 9]}
    client.close()
    assert seen.count(("out", "SEND")) == 4013


@pytest.mark.parametrize("server", ["test/1", "ActiveMQ/5.17"])
def test_every_form_of_a_message_is_as_send_writes_it(shell, peer, server):
    """Text for JMS goes without content-length."""

    def written(frame):
        return serialize(Frame(frame.command, [p for p in frame.headers.pairs() if p[0] != "receipt"], frame.body))

    forms = [
        *(("/queue/a", b"\0octets"), ("/queue/a", "grüße", None)),
        ("/queue/a", b"x", [("x", "1"), ("x", "2"), ("größe: \\ \n", "a:b")]),
        *(("/queue/a", "x", {"content-type": "application/json"}), ("/queue/a", b""), ("/queue/a", "nul \0")),
    ]
    peer.server = server
    client = shell.connect(peer.url)
    for form in forms:
        client.send(*form, receipt=True)
    one_by_one = [written(frame) for frame in peer.got("SEND")]
    client.send_many([*forms, Frame("SEND", {"destination": "/queue/b", "y": "z"}, b"a frame")])
    *same, frame = peer.got("SEND")[len(forms) :]
    assert ([serialize(frame) for frame in same], same[-1].get("content-length")) == (one_by_one, "5")
    assert (frame.headers["destination"], frame.headers["y"], frame.body) == ("/queue/b", "z", b"a frame")


@pytest.mark.parametrize(
    ("room", "body", "most", "error", "options"),
    [
        ({"outbox_frames": 100}, b"x", 100, stomp.ReceiptTimeoutError, {"receipt_every": 10}),
        # A server that does not read: a block that is too large may come alone.
        ({"outbox_octets": 200_000}, bytes(50_000), 450_000, stomp.OutboxFullError, {"receipt_every": 0}),
    ],
)
def test_what_waits_is_bounded(shell, peer, room, body, most, error, options):
    stop, sizes = threading.Event(), []
    peer.rules["SEND"] = lambda side, frame: stop.wait(patience(20) if "outbox_octets" in room else 0)
    client = shell.connect(peer.url, close_timeout=0.1, **room)

    def messages():
        outbox = client._link.core.link.outbox
        while True:
            sizes.append(getattr(outbox, next(iter(room)).removeprefix("outbox_")))
            yield "/queue/a", body

    caught = failed(client, messages(), timeout=0.3, **options)
    stop.set()
    assert isinstance(caught.reason, error)
    assert max(sizes) <= most
    assert "outbox_octets" in room or len(sizes) <= 120
    assert caught.outcomes == [(range(caught.outcomes[0][0].stop), "unknown")]


def refuse(number, named):
    def on_send(side, frame):
        if frame.body == b"%d" % number:
            side.error(frame if named else None, "not allowed")
        else:
            side.receipt(frame)

    return on_send


def test_a_refused_message_is_named(shell, peer):
    peer.rules["SEND"] = refuse(7, named=True)
    client = shell.connect(peer.url, reconnect=QUICK)
    error = failed(client, numbered(20), receipt_every=1)
    assert isinstance(error.reason, stomp.RejectedError)
    assert error.reason.frame.headers["message"] == "not allowed"
    assert str(error) == "message 7 was rejected: not allowed"
    assert (error.accepted, error.outcome(7)) == (7, "rejected")
    assert {error.outcome(number) for number in range(8, 20)} <= {"unknown", "unsent"}
    client.wait_connected()
    assert client.send_many(numbered(7), receipt_every=2) == 7
    peer.rules["SEND"] = refuse(19, named=True)  # the last of its block
    error = failed(client, numbered(25), receipt_every=10)
    assert error.outcomes[:3] == [(range(10), "accepted"), (range(10, 19), "unknown"), (range(19, 20), "rejected")]


def test_a_refusal_that_names_nothing_is_about_a_block(shell, peer):
    peer.rules["SEND"] = refuse(14, named=False)
    client = shell.connect(peer.url, reconnect=QUICK, resend=True)
    error = failed(client, numbered(20), receipt_every=10)
    assert str(error) == "messages 10 to 19, or a later message, was rejected: not allowed"
    assert isinstance(error.reason, stomp.RejectedError)
    assert error.outcomes == [(range(10), "accepted"), (range(10, 20), "unknown")]
    client.wait_connected()
    assert len(peer.got("SEND")) <= 20  # nothing is sent again: it would be refused again


@pytest.mark.parametrize(
    "bad",
    [
        *(("/queue/a\ud800", b""), ("/queue/a", b"", {"": "x"}), ("/queue/a",)),
        *(("/queue/a", b"x", {"content-length": "2"}), Frame("SEND"), None),
        *({"destination": "/queue/a", "body": b"x"}, dict.fromkeys("abc", b""), "ab", "abc", ("/queue/a", b"x", {}, 1)),
    ],
)
def test_what_cannot_be_written_is_named(shell, peer, bad):
    client = shell.connect(peer.url)
    error = failed(client, [*numbered(12), bad, *numbered(5)], receipt_every=10)
    assert str(error).startswith("message 12 cannot be written: ")
    assert type(bad) in (tuple, Frame) or "give a Frame, (destination, body) or" in str(error)
    assert error.outcomes == [(range(10), "accepted"), (range(12, 13), "unwritable")]
    assert (error.outcome(11), error.outcome(13)) == ("unsent", "unsent")
    assert (numbers(peer.got("SEND")), client.epoch) == ([*range(10)], 1)


def cut_at(number):
    def on_send(side, frame):
        if frame.body == b"%d" % number and side.number == 1:
            side.close()
        else:
            side.receipt(frame)

    return on_send


def test_resend_after_a_loss(shell, peer):
    peer.rules["SEND"] = cut_at(25)
    client = shell.connect(peer.url, reconnect=QUICK)
    assert client.send_many(numbered(100), receipt_every=10, resend=True) == 100
    frames = peer.got("SEND")
    assert list(dict.fromkeys(numbers(frames))) == list(range(100))
    keys = {(int(frame.body), frame.headers["idempotency-key"]) for frame in frames}
    assert len(keys) == len({key for _, key in keys}) == 100


def test_a_transaction_that_fails_is_aborted(shell, peer):
    client = shell.connect(peer.url)
    with pytest.raises(stomp.SendManyError), client.transaction() as transaction:
        client.send_many([*numbered(20), ("/queue/a", b"", {"x": 1})], transaction=transaction, receipt_every=10)
    peer.wait(lambda peer: peer.got("ABORT"))
    assert not peer.got("COMMIT")
    with pytest.raises(stomp.LocalProtocolError, match="resend"):
        client.send_many([], transaction=transaction, resend=True)


@pytest.mark.parametrize(
    ("rule", "says"), [(refuse(15, named=False), "not allowed"), (cut_at(15), "closed by the server")]
)
def test_a_transaction_that_ends_on_the_way(shell, peer, rule, says):
    peer.rules["SEND"] = rule
    client = shell.connect(peer.url, reconnect=QUICK)

    def messages():
        yield from numbered(20)
        while client.epoch == 1:
            time.sleep(0.005)
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


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
PAIRS = st.lists(st.tuples(TEXT.filter(lambda name: name and name != "content-length"), TEXT), max_size=3)
SENDS = st.builds(lambda pairs, b: Frame("SEND", [("destination", "d"), *pairs], b), PAIRS, st.binary(max_size=20))


@settings(max_examples=examples(60))
@given(st.lists(SENDS, min_size=1, max_size=5))
def test_a_block_is_its_frames_for_any_connection(frames):
    octets, whole = serialize_many(frames), [serialize(frame) for frame in frames]
    block = Block(octets, len(frames), "1.2", len(octets) - len(whole[-1]))
    assert b"".join(block.chunks("1.2", False)) == octets
    assert block.chunks("1.2", True) == [serialize(frame) for frame in block.frames()] == whole
    try:
        others = [serialize(frame, "1.1") for frame in frames]
    except FrameError:
        with pytest.raises(FrameError):
            block.chunks("1.1", False)
    else:
        assert block.chunks("1.1", False) == others
    *same, last = parse(block.with_receipt("r7").body)
    assert serialize_many(same) == octets[: block.last]
    assert serialize(Frame("SEND", last.headers.pairs()[1:], last.body)) == octets[block.last :]
    assert last.headers.pairs()[0] == ("receipt", "r7")
