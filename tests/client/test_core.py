"""The core on a fake clock: calls, the outbox, transactions, losses, requests, limits, and what brokers call things."""

import contextlib
import logging
from functools import partial
from types import SimpleNamespace

import pytest
from client.scripted import Scripted, outcome

from stompcodec import Frame
from stompcodec.broker.config import DIALECTS
from stompcodec.client import dialects, handlers
from stompcodec.client.dialects import BROKERS, row_of
from stompcodec.client.messages import Subscription
from stompcodec.errors import LocalProtocolError, RejectedError, StaleAckError
from stompcodec.uri import parse_uri

LOST, LATE = "ConnectionLostError", "ReceiptTimeoutError"


def outcomes(*calls):
    return [outcome(call) for call in calls]


@pytest.mark.req("S12-CON-01", "S12-CON-06", "S12-CON-07", "S12-CON-08", "S12-CON-11", "S12-NEG-01", "S12-NEG-02")
@pytest.mark.req("S11-CON-07")
def test_connect_says_what_the_client_can_and_the_trace_masks_secrets():
    client = Scripted(heart_beat=(1000, 2000), client_id="me", headers={"x": "y"}, on_frame=lambda *_: None)
    client.open()
    (frame,) = client.frames()
    ((direction, traced),) = client.core.link.trace
    assert (frame.command, direction, traced.headers["passcode"]) == ("CONNECT", "out", "***")
    said = {"accept-version": "1.0,1.1,1.2", "heart-beat": "1000,2000", "host": "h", "login": "ann"}
    assert frame.headers.pairs() == [*said.items(), ("passcode", "s3cret"), ("client-id", "me"), ("x", "y")]


@pytest.mark.parametrize(
    ("dialect", "written", "hinted"),
    [
        *((name, "DOM\\\\ann", False) for name in ("rabbitmq", "activemq", "vertx")),
        *((name, "DOM\\ann", False) for name in ("artemis", "stompcodec")),
        ("auto", "DOM\\ann", True),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_a_backslash_in_connect_is_written_as_the_broker_reads_it(dialect, version, written, hinted):
    client = Scripted(version=version, dialect=dialect, versions=[version], headers={"login": "DOM\\ann"})
    for ends in (lambda: client.answer("ERROR", {"message": "login refused"}), client.lose):
        client.open()
        assert client.frames()[0].headers["login"] == written
        ends()
        assert ("write each backslash twice" in str(client.core.link.error)) == hinted


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_error_goes_to_the_call_that_it_names(version):
    client = Scripted(version=version).connect()
    first, second = client.send(receipt=True), client.send(receipt=True)
    client.error(client.frames()[1], "no such queue")
    # 1.2 says that the session is over then; older servers go on.
    assert outcomes(first, second) == [LOST if version == "1.2" else "waits", "RejectedError"]
    assert "no such queue" in str(second.error)
    assert (second.error.frame.command, client.core.link.connection is None) == ("ERROR", version == "1.2")


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_error_that_names_nobody_is_raised_from_iterators_and_logged(caplog, goes_on):
    client = Scripted(version="1.1").connect() if goes_on else Scripted(reconnect=None).connect()
    subscription, call = client.subscribed(), client.send(receipt=True)
    client.error(None, "something is wrong")
    assert "something is wrong" in caplog.text
    assert isinstance(subscription.news if goes_on else subscription.error, RejectedError)
    assert (client.core.link.state, outcome(call)) == (("connected", "waits") if goes_on else ("closed", LOST))
    assert goes_on or isinstance(call.error.__cause__, RejectedError)


def test_the_outbox_is_bounded_and_acknowledgements_find_room_always():
    client = Scripted(outbox_frames=3).connect()
    subscription = client.subscribed("client-individual")
    messages = [client.deliver(subscription, f"m{number}") for number in range(5)]
    client.core.link.writable(False)
    for _ in range(3):
        client.send()
    assert not client.core.send(Frame("SEND", {"destination": "a"}), client.now)
    for message in messages:
        client.ack(message)
    room = client.call("room")
    client.core.when_room(room, client.now, 10)
    client.core.link.take_output(client.now)
    assert outcome(room) == "waits"
    client.core.link.writable(True)
    assert client.commands() == ["SEND"] * 3 + ["ACK"] * 5
    assert outcome(room) == "accepted"


def test_a_frame_that_the_next_version_cannot_carry_fails_alone(client):
    client.lose()
    calls = [client.call(), client.call()]
    for call, name in zip(calls, ("a\nb", "ab"), strict=True):
        frame = Frame("SEND", [("destination", "a"), ("x", name), ("receipt", call.id)])
        assert client.core.send(frame, client.now, call)
    client.version = "1.0"
    client.connect()
    assert outcomes(*calls) == ["FrameError", "accepted"]


@pytest.mark.req("S12-DIS-01", "S12-DIS-02", "S12-DIS-04", "S12-LNG-03", "S11-DIS-01", "S11-DIS-02", "S10-DIS-01")
@pytest.mark.parametrize("last", [["RECEIPT", "ERROR"], ["ERROR", "RECEIPT"], "lost", "silent"])
def test_close_says_goodbye_behind_all_that_waits_and_copes_without_the_last_receipt(client, last, caplog):
    """Spring's relay sends an ERROR beside the receipt, since its broker closes the connection."""
    message = client.deliver(client.subscribed("client-individual"))
    client.core.link.writable(False)
    client.send(b"last")
    close = client.call("close", 60.0, command="")
    client.core.close(client.now, close)
    with pytest.raises(LocalProtocolError, match="closed"):
        client.send(b"too late")
    with pytest.raises(StaleAckError):
        client.ack(message)
    client.core.link.writable(True)
    send, disconnect = client.frames()
    assert (send.body, disconnect.command, outcome(close)) == (b"last", "DISCONNECT", "waits")
    said = {"RECEIPT": "receipt-id:" + disconnect.headers["receipt"], "ERROR": "message:Connection to broker closed."}
    octets = "".join(f"{command}\n{said[command]}\n\n\0" for command in last if command in said).encode()
    together = partial(client.core.inbound.receive, octets, client.now)
    {"lost": client.lose, "silent": lambda: client.wait(5.1)}.get(str(last), together)()
    assert (outcome(close), client.core.link.state) == ("accepted", "closed")
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize("when", ["at once", "on return", "unsubscribed"])
def test_what_is_refused_or_unsubscribed_does_not_come_back(client, when):
    good, bad = client.subscribed(), client.subscribe()
    if when == "unsubscribed":
        client.confirm_all()
        call = client.call("UNSUBSCRIBE", command="UNSUBSCRIBE")
        client.core.inbound.unsubscribe(bad, client.now, call)
        client.frames()
        client.lose()
        assert outcome(call) == "accepted"
    else:
        if when == "on return":
            client.confirm_all()
            client.again(confirm=False)
        client.error(client.frames()[-1], "access refused")
        assert isinstance(bad.error, RejectedError)
    client.connect()
    asked = [f.headers["id"] for number, f in client.seen if number == client.connections and f.command == "SUBSCRIBE"]
    assert asked == list(client.core.inbound.subscriptions) == [good.id]
    assert client.core.link.state == "connected"


def test_1_0_may_leave_the_subscription_out():
    client = Scripted(version="1.0").connect()
    subscription = client.subscribed()
    client.answer("MESSAGE", {"message-id": "m", "destination": subscription.destination}, b"hi")
    assert [message.body for message in client.take(subscription)] == [b"hi"]


def ask(client, timeout=30.0):
    call = client.call("request", timeout)
    assert client.core.request([("destination", "/queue/service")], b"?", client.now, call)
    return call


@pytest.mark.parametrize(("server", "correlated"), [("test/1", False), ("RabbitMQ/3.10.8", True)])
def test_a_reply_can_be_told_if_only_one_waits_or_it_is_correlated(server, correlated):
    client = Scripted(server=server).connect()
    call = ask(client)
    *subscribes, send = client.confirm_all()
    assert len(subscribes) == (server == "test/1")  # RabbitMQ makes the reply queue by itself
    name = send.headers["reply-to"]
    key = {"correlation-id": send.headers["correlation-id"]} if correlated else {}
    pairs = {"subscription": name, "message-id": "m", "destination": "d"}
    client.answer("MESSAGE", {**pairs, **key}, b"!")
    assert call.result.body == b"!"
    client.again(confirm=False)
    assert len(client.frames()) == len(subscribes)


def test_a_request_may_be_refused_or_time_out_and_ends_with_its_connection(client):
    late, lost, refused = ask(client, 2.0), ask(client), ask(client)
    *_, frame = client.frames()
    client.wait(3)
    client.error(frame)  # the connection ends, too
    assert outcomes(late, lost, refused) == [LATE, LOST, "RejectedError"]
    assert not client.core.inbound.replies
    client.connect(confirm=False)
    (subscribe,) = client.confirm_all()
    assert subscribe.headers["destination"].startswith("/temp-queue/replies.")
    assert outcome(ask(client)) == "waits"


@pytest.mark.parametrize(
    ("server", "name", "kind", "ends"),
    [
        ("ActiveMQ-Artemis/2.40.0", "/temp-topic/replies.", "MULTICAST", ["UNSUBSCRIBE", "DISCONNECT"]),
        ("stompcodec/1 as artemis", "/temp-queue/replies.", "ANYCAST", ["UNSUBSCRIBE", "DISCONNECT"]),
        ("test/1", "/temp-queue/replies.", None, ["UNSUBSCRIBE", "DISCONNECT"]),
        ("RabbitMQ/3.10.8", "/temp-queue/replies.", None, ["DISCONNECT"]),
    ],
)
def test_replies_come_to_a_name_that_no_other_client_has_and_end_with_the_client(server, name, kind, ends, caplog):
    client = Scripted(server=server).connect()
    for _ in range(2):
        ask(client)
    sent = client.confirm_all()
    subscribes = [frame for frame in sent if frame.command == "SUBSCRIBE"]
    (reply_to,) = {frame.headers["reply-to"] for frame in sent if frame.command == "SEND"}
    assert reply_to.startswith(name)
    assert len(reply_to) > len(name)
    assert [frame.headers["destination"] for frame in subscribes] == [reply_to] * (ends != ["DISCONNECT"])
    assert {frame.get("subscription-type") for frame in subscribes} <= {kind}
    client.core.close(client.now, client.call("close"))
    assert client.commands() == ends
    client.error(message=f"Error unsubscribing {reply_to}")  # without the right to delete it
    assert (client.core.link.state == "closed" and not caplog.text) or ends == ["DISCONNECT"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    "words", ["AMQ229032 User guest does not have permission='CREATE_ADDRESS' on address {}", "Error creating {}"]
)
def test_a_missing_right_to_create_the_address_for_replies_is_one_error_that_names_it(version, words):
    """Artemis names no receipt, and keeps a session of 1.1 open."""
    client = Scripted(server="ActiveMQ-Artemis/2.40.0", version=version).connect()
    calls = ask(client), ask(client)
    subscribe, *_ = client.frames()
    client.error(message=words.format(subscribe.headers["destination"]))
    assert outcomes(*calls) == ["RejectedError"] * 2
    assert words.partition("{}")[0] in str(calls[0].error)
    assert "for replies, which needs the rights createAddress, createNonDurableQueue and consume" in str(calls[0].error)
    if version == "1.2":
        client.connect(confirm=False)
    assert not client.frames()
    assert outcome(ask(client)) == "waits"
    assert client.commands() == ["SUBSCRIBE", "SEND"]


@pytest.mark.req("S12-HB-08", "S12-HB-09", "S12-HB-10", "S12-HB-11", "S12-HB-12")
def test_heart_beats_are_sent_and_a_dead_server_is_noticed_in_time():
    client = Scripted(heart_beat=(1000, 1000), server_beat=(1000, 1000)).connect()
    client.wait(0.6)
    assert client.core.link.take_output(client.now) == [b"\n"]
    client.core.inbound.receive(b"\n", client.now)
    at = client.now
    client.wait(2.9)
    assert client.core.link.connection is not None
    client.wait(0.2)
    assert client.core.link.connection is None
    assert client.now - at <= 3.2
    assert "silent" in str(client.core.link.error)


@pytest.mark.parametrize("how", ["stalled", "paused and ticked", "paused"])
def test_a_stall_or_a_pause_of_ours_is_not_held_against_the_server(how):
    client = Scripted(inbox_messages=10, heart_beat=(0, 1000), server_beat=(1000, 0)).connect()
    subscription = client.subscribed()
    if how == "stalled":
        client.now += 60
        client.core.link.tick(client.now, late=59.0)
    else:
        client.flood(subscription, 10)
        if how == "paused":
            client.now += 600
            client.send()  # the core learns what time it is
        else:
            client.wait(600)
        assert client.core.link.connection is not None
        client.take(subscription)
        client.wait(2.5)
    assert client.core.link.connection is not None
    client.wait(3.1 if how == "stalled" else 1)
    assert client.core.link.connection is None


_REFUSED = "login or passcode is wrong, or the virtual host is not open to this user."
_VHOST = "write the virtual host into the URL: stomp://host/%2F"


@pytest.mark.parametrize(
    ("message", "body", "said"),
    [
        ("Bad CONNECT", "Access refused for user 'ann'\n", "Bad CONNECT: Access refused for user 'ann'"),
        ("Bad CONNECT", "Virtual host '127.0.0.1' access denied", _VHOST),
        *(
            ("Virtual host 'h' is unknown", "", _VHOST),
            ("it is closed", "closed", "CONNECT was rejected: it is closed"),
        ),
        ("login refused", _REFUSED, f"CONNECT was rejected: login refused: {_REFUSED}"),
    ],
)
def test_a_refused_login_says_how_a_virtual_host_is_written(caplog, message, body, said):
    client = Scripted()
    client.open()
    client.frames()
    client.answer("ERROR", {"message": message}, body.encode())
    error = client.core.link.error
    assert client.core.link.connection is None
    assert isinstance(error, RejectedError)
    assert said in str(error)
    assert "closed: closed" not in str(error)
    assert (_VHOST in str(error)) == (said == _VHOST)
    assert "s3cret" not in caplog.text + str(error)


@pytest.mark.parametrize(("count", "size"), [(100, 10), (10, 1000)])
def test_reading_pauses_where_nobody_takes_and_goes_on_at_half(count, size):
    client = Scripted(inbox_messages=100, inbox_octets=10_000).connect()
    subscription, inbound = client.subscribed(), client.core.inbound
    client.flood(subscription, count - 1, size)
    assert not inbound.paused
    client.flood(subscription, 1, size)
    assert inbound.paused
    assert len(client.take(subscription)) == count
    assert (inbound.paused, inbound.backlog, inbound.backlog_octets) == (False, 0, 0)


def test_a_call_that_waits_for_a_receipt_does_not_wait_for_a_consumer():
    client = Scripted(inbox_messages=100).connect()
    subscription, inbound = client.subscribed(), client.core.inbound
    client.flood(subscription, 100)
    assert inbound.paused
    call = client.send(receipt=True)
    assert not inbound.paused  # its receipt is behind the messages
    (frame,) = client.frames()
    client.flood(subscription, 250)
    assert not inbound.paused
    client.flood(subscription, 50)
    assert inbound.paused  # even then there is a bound
    client.receipt(frame)
    assert outcome(call) == "accepted"


def test_drain_gives_back_what_was_not_handed_out(client):
    explicit, auto = client.subscribed("client-individual"), client.subscribed("auto")
    message = client.deliver(explicit, "m1")
    for subscription in (explicit, auto):
        client.flood(subscription, 3)
    client.core.drain(client.now)
    client.confirm_all()
    assert client.take(explicit) == []
    assert not client.core.is_quiet()  # one message is in hand, and three are to be taken
    client.ack(message)
    assert client.commands() == ["ACK"]
    assert not client.core.is_quiet()
    assert len(client.take(auto)) == 3
    assert client.core.is_quiet()
    client.flood(explicit, 1)
    assert client.core.inbound.backlog == 0


# ---- acknowledgements ----
def test_an_ack_that_waits_when_the_connection_goes_is_stale(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    client.core.link.writable(False)
    call = client.call("ACK", command="ACK")
    client.ack(message, call=call)
    client.again()
    assert outcome(call) == "StaleAckError"
    assert client.frames() == []


@pytest.mark.parametrize("mode", ["client-individual", "auto"])
def test_settling_twice(client, mode):
    message = client.deliver(client.subscribed(mode))
    client.ack(message)
    call = client.call()
    client.ack(message, call=call)
    assert outcome(call) == "accepted"
    with pytest.raises(LocalProtocolError):
        client.ack(message, "NACK")
    assert client.commands() == ["ACK"] * (mode != "auto")


@pytest.mark.req("S11-SUB-08")
def test_an_ack_in_client_mode_covers_what_came_before(client):
    subscription = client.subscribed("client")
    messages = [client.deliver(subscription, f"m{number}") for number in range(4)]
    client.ack(messages[2])
    assert subscription.open == 1
    for message in (messages[0], messages[3]):
        client.ack(message)
    assert ([frame.headers["id"] for frame in client.frames()], subscription.open) == (["am2", "am3"], 0)


def test_a_server_that_sends_no_ack_header_gets_no_ack(client):
    subscription = client.subscribed("client-individual")
    pairs = {"subscription": subscription.id, "message-id": "m", "destination": "d"}
    client.answer("MESSAGE", pairs)
    client.answer("MESSAGE", pairs)
    first, second = client.take(subscription)
    client.ack(first)
    with pytest.raises(LocalProtocolError, match=r"NACK not possible: .* without an ack header"):
        client.ack(first, "NACK")
    client.again()
    client.ack(second)  # nothing is to come again
    assert {"ACK", "NACK"}.isdisjoint(frame.command for _, frame in client.seen)


# ---- what brokers call things ----
_COUNT = {"prefetch-count": "5", "durable": "true", "auto-delete": "false"}
_ACTIVEMQ = {"activemq.prefetchSize": "5", "activemq.subscriptionName": "daily"}
_ARTEMIS = {"consumer-window-size": "8388608", "durable-subscription-name": "daily", "subscription-type": "MULTICAST"}
_DISCARD, _REFUSED = {"requeue": "false"}, "activemq does not support NACK in a transaction"
#: Server: a durable subscription, with 5 messages ahead, and what one without a client-id lacks; NACK with requeue
#: (None is refused) and without; what is sent at once of a NACK in a transaction; whether text has a content-length.
WORDS = {
    "stompcodec/1": (_COUNT, None, {}, _DISCARD, ["NACK"], True),
    "stompcodec/1 as stompcodec": (_COUNT, None, {}, _DISCARD, ["NACK"], True),
    "stompcodec/1 as rabbitmq": (_COUNT, None, {"requeue": "true"}, _DISCARD, ["NACK"], True),
    "stompcodec/1 as activemq": (_ACTIVEMQ, "client_id", None, {}, _REFUSED, False),
    "stompcodec/1 as artemis": (_ARTEMIS, "client_id", None, {}, [], False),
    "RabbitMQ/3.10.8": (_COUNT, None, {"requeue": "true"}, _DISCARD, ["NACK"], True),
    "ActiveMQ/6.1": (_ACTIVEMQ, "client_id", None, {}, _REFUSED, False),
    "ActiveMQ-Artemis/2.40": (_ARTEMIS, "client_id", None, {}, [], False),
    "?": ({}, "durable", {}, {}, ["NACK"], False),
}


@pytest.mark.parametrize("server", WORDS)
def test_everything_in_the_words_of_the_broker(server):
    durable, lacks, requeue, discard, within, counted = WORDS[server]

    def refused(said):
        return pytest.raises(LocalProtocolError, match=said) if said else contextlib.nullcontext()

    client = Scripted(server=server, client_id="me").connect()
    with refused(not durable and lacks):
        client.subscribe("client-individual", prefetch=5, durable="daily", destination="/topic/news")
    given = {"id": "daily", "destination": "/topic/news", "ack": "client-individual", "receipt": "r1"}
    assert [dict(frame.headers) for frame in client.frames()] == [{**given, **durable}] * bool(durable)
    client = Scripted(server=server).connect()
    with refused(lacks):
        client.subscribe(durable="daily")
    assert len(client.frames()) == len(client.core.inbound.subscriptions) == (lacks is None)
    for again, headers in ((True, requeue), (False, discard)):
        client = Scripted(server=server).connect()
        message = client.deliver(client.subscribed("client-individual"))
        with refused(headers is None and "cannot requeue"):
            client.ack(message, "NACK", requeue=again)
        sent = [dict(frame.headers) for frame in client.frames()]
        assert sent == [{"id": "am1", **headers}] if headers is not None else not sent
    client = Scripted(server=server).connect()
    message = client.deliver(client.subscribed("client-individual", prefetch=1))
    transaction = client.begin()
    client.frames()
    with refused(within == _REFUSED and _REFUSED):
        client.ack(message, "NACK", transaction=transaction)
    if within == _REFUSED:
        client.ack(message, "ACK", transaction=transaction)
    assert client.commands() == (["ACK"] if within == _REFUSED else within)
    assert client.core.send(Frame("SEND", {"destination": "/queue/a"}, b"text"), client.now, None, text=True)
    assert (b"content-length" in b"".join(client.core.link.take_output(client.now))) is counted


@pytest.mark.parametrize(
    ("before", "after", "names", "expected"),
    [
        ("test/1", "ActiveMQ/5.17.2", ("prefetch-count", "activemq.prefetchSize"), [("7", None), (None, "7")]),
        ("RabbitMQ/4.2.0", "RabbitMQ/4.3.1", ("prefetch-count", "exclusive"), [("7", None), ("7", "true")]),
    ],
)
def test_a_reconnect_to_another_broker_uses_its_words(before, after, names, expected):
    client = Scripted(server=before).connect()
    client.subscribed(prefetch=7, destination="/topic/a")
    client.server_name = after
    client.again()
    asked = [frame for _, frame in client.seen if frame.command == "SUBSCRIBE"]
    assert [tuple(frame.get(name) for name in names) for frame in asked] == expected


def test_each_subscription_and_connection_has_a_durable_queue_of_its_own():
    client = Scripted(server="RabbitMQ/4.3.0", topic_queues="durable").connect()
    for _ in range(2):
        client.subscribed(destination="/topic/a")
    client.again()
    names = [frame.get("x-queue-name") for _, frame in client.seen if frame.command == "SUBSCRIBE"]
    assert len(names) == len(set(names)) == 4


@pytest.mark.parametrize(
    ("server", "count", "attempt"),
    [("stompcodec/1 as artemis", "3", 4), ("stompcodec/1", "9" * 5000, 2), ("ActiveMQ/5", "7", 2)],
    ids=["ours", "odd", "others"],
)
def test_which_attempt_it_is(server, count, attempt):
    client = Scripted(server=server).connect()
    first = client.deliver(client.subscribed())
    message = client.deliver(client.subscribed(), redelivered="true", **{"redelivery-count": count})
    assert (first.attempt, message.attempt) == (1, attempt)
    message.count_calls(2)
    assert message.attempt == attempt + 2


@pytest.mark.parametrize(
    ("server", "name"),
    [
        *((f"stompcodec/12.3.dev4+g1 as {name}", name) for name in DIALECTS),
        ("stompcodec/0.1.0 as something-new", "stompcodec"),
        *((f"{name}/2.31.0", "artemis") for name in ("ActiveMQ-Artemis", "Apache-Artemis", "Artemis")),
        *((name, "unknown") for name in ("a broker as artemis", "notrabbitmq/1", "", None)),
    ],
)
def test_the_server_header_chooses_the_row(server, name):
    assert row_of("auto", server).name == name


def test_the_option_wins_at_our_own_broker():
    row = Scripted(server="stompcodec/1", dialect="activemq", client_id="me").connect().core.link.dialect
    assert (row.durable, row.discard, row.knows_keys) == (BROKERS["activemq"].durable, (), True)


_EXCLUSIVE = {"exclusive": "true"}
_OWN = ("durable", "persistent", "auto-delete", "exclusive", "x-queue-type")
_NAMED, _DURABLE = {"x-queue-name": "mine"}, {"durable": "true", "auto-delete": "true", "x-queue-name": "key1"}


@pytest.mark.parametrize(
    ("server", "choice", "given", "expected"),
    [
        *((f"RabbitMQ{version}", "auto", {}, {}) for version in ("", "/4.2.9", "/" + "9" * 5000 + ".1")),
        *((f"RabbitMQ/{version}", "auto", {}, _EXCLUSIVE) for version in ("4.3.0-rc.1", "4.12", "10.0.0")),
        *(("RabbitMQ/4.3.0", "transient", {}, {}), ("RabbitMQ/3.10.8", "exclusive", {}, _EXCLUSIVE)),
        ("RabbitMQ/3.10.8", "durable", {}, _DURABLE),
        *(("RabbitMQ/4.3.0", choice, _NAMED, {**_DURABLE, **_NAMED}) for choice in ("durable", "auto")),
        *(
            ("RabbitMQ/4.3.0", choice, {name: "true"}, {name: "true"})
            for choice, name in zip(("auto", "exclusive", "durable") * 2, _OWN)
        ),
        ("stompcodec/4.3 as rabbitmq", "auto", {}, {}),
        *(("stompcodec/0.1 as rabbitmq", "exclusive", {}, _EXCLUSIVE), ("ActiveMQ/6.1", "exclusive", {}, {})),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_the_queue_behind_a_topic(server, choice, given, expected):
    client = Scripted(server=server, topic_queues=choice).connect()
    for destination in ("/topic/a", "/queue/a", "/temp-queue/a", "/exchange/a/b"):
        subscription = Subscription(destination, id=destination, headers=given)
        client.core.inbound.subscribe(subscription, client.now, client.call())
        (frame,) = client.frames()
        asked = {name: value for name, value in frame.headers.items() if name in (*_OWN, "x-queue-name")}
        assert asked == (expected if destination == "/topic/a" else given)


def deleting(client, subscription):
    call = client.call("UNSUBSCRIBE", 30.0, "UNSUBSCRIBE")
    client.core.inbound.unsubscribe(subscription, client.now, call, delete=True)
    return call


@pytest.mark.parametrize("loss", ["before", "sent", "unsent"])
def test_a_durable_subscription_is_not_deleted_by_a_frame_without_receipt(loss):
    client = Scripted(server="RabbitMQ/3.10").connect()
    subscription = client.subscribed("client", durable="daily")
    if loss == "before":
        client.lose()
    client.core.link.writable(loss != "unsent")
    call = deleting(client, subscription)
    if loss != "before":
        client.frames() if loss == "sent" else None
        client.lose()
    assert (outcome(call), call.error.sent) == ("ConnectionLostError", loss == "sent")
    assert ("'daily' was not deleted" in str(call.error)) == (loss == "before")


def test_a_durable_subscription_is_deleted_once():
    client = Scripted(server="ActiveMQ/5.17.2", client_id="me").connect()
    subscription, left = (client.subscribed("client", durable=name) for name in ("daily", "weekly"))
    client.core.inbound.unsubscribe(left, client.now)
    client.frames()
    assert outcome(deleting(client, left)) == "LocalProtocolError"  # it is unsubscribed
    first = deleting(client, subscription)
    assert [frame.get("activemq.subscriptionName") for frame in client.confirm_all()] == [None, "daily"]
    assert [outcome(call) for call in (first, deleting(client, subscription))] == ["accepted"] * 2
    assert client.frames() == []


# ---- traps ----
@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.setattr(dialects, "_warned", set())


@pytest.mark.parametrize(
    ("server", "version", "warns"),
    [
        ("unheard of", "1.0", True),  # Artemis says nothing in 1.0
        *(("stompcodec/1 as activemq", "1.0", False), ("ActiveMQ/6.1", "1.1", False)),
    ],
)
def test_a_session_of_1_0_warns_once_where_senders_can_forge_headers(caplog, server, version, warns):
    for _ in range(2):
        Scripted(version=version, server=server, versions=(version,), reconnect=None).connect()
    assert caplog.text.count("1.1 or 1.2") == warns


@pytest.mark.parametrize(
    ("server", "headers", "says"),
    [
        ("ActiveMQ/6.1", {}, "XStream"),
        ("ActiveMQ-Artemis/2.40", {}, "If it is not an empty text, have its sender use a Text or Bytes message"),
        *(("ActiveMQ/6.1", {"content-type": "text/plain"}, None), ("ActiveMQ/6.1", {"browser": "end"}, None)),
        *(("RabbitMQ/4.3.6", {}, None), ("stompcodec/1 as activemq", {}, None)),
    ],
)
def test_a_message_without_its_body_is_named_once(caplog, server, headers, says):
    for _ in range(2):
        here = Scripted(server=server).connect()
        here.deliver(here.subscribed(), "m-7", b"", **headers)
    assert caplog.text.count("message m-7 of /queue/s1 has no body") == (says is not None)
    assert says is None or says in caplog.text


@pytest.mark.parametrize(("server", "says"), [("ActiveMQ/6.1", "activemq drops what waits"), ("stompcodec/1", None)])
def test_a_durable_name_with_a_selector_says_that_it_must_be_deleted_first(caplog, server, says):
    caplog.set_level(logging.INFO, "stompcodec.client")
    here = Scripted(server=server, client_id="me").connect()
    here.subscribed(durable="plain", destination="/topic/a")
    assert "unsubscribe(delete=True)" not in caplog.text
    here.subscribed(durable="daily", selector="n = '1'", destination="/topic/a")
    assert ("unsubscribe(delete=True)" in caplog.text) is (says is not None)
    assert f"'daily' has a selector: if it or the destination changes, {says}" in caplog.text or says is None


def test_a_selector_that_breaks_others_is_refused_at_the_call():
    converts = {"selector": "convert_string_expressions:n > 9"}
    for given in (converts, {"headers": converts}):
        here = Scripted(server="ActiveMQ/6.1").connect()
        with pytest.raises(LocalProtocolError, match="breaks 'n > 9' for all clients of activemq"):
            here.subscribe(**given)
        assert here.commands() == []
        for server in ("ActiveMQ-Artemis/2.40", "stompcodec/1 as activemq"):
            Scripted(server=server).connect().subscribed(**given)


@pytest.mark.parametrize(
    ("server", "option", "query", "pieces"),
    [
        *((None, "auto", None, "messages"), ("Other/1", "auto", None, "whole")),
        *(("vertx-stomp/5.0.7", "auto", None, "messages"), ("ActiveMQ/6.1", "auto", "auto", "whole")),
        *(("ActiveMQ/6.1", "auto", "fragments", "fragments"), ("RabbitMQ/3.10.8", "auto", None, "fragments")),
        ("RabbitMQ/3.10.8 for ann", "auto", None, "messages"),  # as Spring's relay passes it on
        ("ActiveMQ-Artemis/2.40", "whole", "messages", "whole"),
        ("stompcodec/1 as activemq", "auto", None, "fragments"),
    ],
)
def test_the_pieces_of_large_frames_over_websocket(server, option, query, pieces):
    client = Scripted(server=server, websocket_pieces=option)
    client.open()
    assert client.core.link.pieces == ("whole" if option == "auto" else option)
    if query:
        client.core.link.address = parse_uri(f"ws://h/?websocket_pieces={query}")[0]
    client.frames()
    client.server.accept(dict(zip(("server", "user-name"), server.split(" for "))) if server else {})
    client.pump()
    assert client.core.link.pieces == pieces


def test_a_queue_of_artemis_without_its_type_has_a_wide_window():
    for options, headers in (({"artemis_types": False}, {}), ({}, {"subscription-type": "MULTICAST"})):
        client = Scripted(server="ActiveMQ-Artemis/2.40", **options).connect()
        subscription = client.subscribed("client-individual", prefetch=5, destination="/queue/a", headers=headers)
        assert int(dict(subscription.asked)["consumer-window-size"]) >= 2**23


def test_the_calls_with_a_message_are_counted_over_its_deliveries():
    """Its message-id is another one in each of them, and not all are said to be redelivered."""
    retries = handlers.Retries(handlers.Handling(print, "client-individual", None, 1, None, 4, ()))
    first = SimpleNamespace(id="1,7", identity="7 5", redelivered=False, subscription=SimpleNamespace(destination="a"))
    again = SimpleNamespace(id="2,7", identity="7 5", redelivered=False)
    retries.keep(first, 3)
    assert retries.calls_of(again) == 3
