"""Lost connections: when and where a client tries again, when it gives up, and what is lost: nothing."""

import asyncio
import itertools
import random
import socket
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from client.feeding import wait_for
from client.peer import Peer, closed_port
from client.scripted import Scripted, outcome
from client.shells import QUICK
from crash.process import BrokerProcess
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.bridge import End
from stompcodec.bridge import sources as bridge_ends
from stompcodec.client import engine
from stompcodec.client.backoff import MOST_SHORT, STEP
from stompcodec.client.dialects import BROKERS, row_of
from stompcodec.client.handlers import leave
from stompcodec.client.outbox import Block, Group, Upload
from stompcodec.errors import ConnectionLostError, RejectedError
from stompcodec.transport.owner import CloseCodeError


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


def delays(until, seed):
    """Each delay before a point of time, with the seconds since the loss."""
    at, found = 0.0, []
    following = stomp.Backoff().delays(random.Random(seed).random, lambda: 1000.0 + at)
    while at < until:
        found.append((at, next(following)))
        at += found[-1][1]
    return found


def test_clients_are_spread_and_each_is_back_within_half_of_the_outage():
    """Of 500 that lost one broker together, no more than 60 come in any 200 ms once the delays have grown. A broker
    that was down for 8 s and is up for 3 s is found."""
    found = [delays(60.0, seed) for seed in range(500)]
    last = sorted([at for at, _ in each if at < 30.0][-1] for each in found)
    assert max(sum(1 for other in last if one <= other < one + 0.2) for one in last) <= 60
    for at, delay in itertools.chain.from_iterable(found):
        assert delay <= max(1.0, at / 2)
        assert at > 8.0 or delay <= 3.0


def accept(side):
    side.connection.accept({"session": "1", "server": side.peer.server})
    side.flush()


def test_short_sessions_use_up_the_attempts(shell, peer):
    peer.rules["CONNECT"] = lambda side, frame: (accept(side), side.close())
    states, backoff = [], stomp.Backoff(first=0.001, most=0.002, attempts=4)
    client = shell.connect(peer.url, reconnect=backoff, on_state=lambda state, error: states.append(state))
    wait_for(lambda: client.state == "closed" and "closed" in states)  # states come from a thread of their own
    assert states.count("connected") == 4 + 1


# ---- refused logins ----
RABBITMQ = "Bad CONNECT: Access refused for user 'ann'"


def refuses(words):
    def on_connect(side, frame):
        answer = words if isinstance(words, str) else words.pop(0)
        accept(side) if answer is None else side.error(frame, answer)

    return on_connect


@pytest.fixture
def rabbitmq(peer, monkeypatch):
    monkeypatch.setattr(engine, "SPAN", 0.0)
    peer.server = "RabbitMQ/3.10.8"
    return peer


def losing(shell, peer, answers, **options):
    """A client that has lost its connection, and finds these answers to its next logins; the states."""
    states = []
    client = shell.connect(peer.url, reconnect=QUICK, on_state=lambda state, _: states.append(state), **options)
    subscription = client.subscribe("/queue/a")
    peer.rules["CONNECT"] = refuses(answers)
    peer.cut()
    return client, subscription, states


def test_it_ends_the_client_after_some_attempts(shell, rabbitmq):
    client, subscription, states = losing(shell, rabbitmq, RABBITMQ, login_attempts=3)
    with pytest.raises(RejectedError, match="Access refused"):
        subscription.get(patience(30))
    wait_for(lambda: states[-1:] == ["closed"])
    assert isinstance(client.error, RejectedError)
    assert RABBITMQ in str(client.error)
    assert len(rabbitmq.got("CONNECT")) == 1 + 3


def test_a_session_or_another_answer_in_between_begins_the_count_anew(shell, rabbitmq):
    answers = [*[RABBITMQ, "the server is busy"] * 3, None]
    _, _, states = losing(shell, rabbitmq, answers, login_attempts=2)
    wait_for(lambda: len(states) > 1 and states[-1] == "connected")


def test_the_start_asks_no_more_often_than_login_attempts(shell, peer, monkeypatch):
    monkeypatch.setattr(engine, "_REFUSED", 0.01)
    peer.rules["CONNECT"] = refuses(RABBITMQ)
    with pytest.raises(RejectedError, match="Access refused"):
        shell.connect(peer.url, startup_timeout=patience(60), reconnect=QUICK, login_attempts=3)
    assert len(peer.got("CONNECT")) == 3


def test_the_start_tries_each_address_once(shell, peer):
    with Peer(rules={"CONNECT": refuses(RABBITMQ)}) as bad:
        assert shell.connect(f"failover:({bad.url},{bad.url},{peer.url})", login_attempts=1).state == "connected"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        *(("RabbitMQ/3.10.8", RABBITMQ), ("ActiveMQ/6.3.1", "User name [ann] or password is invalid.")),
        ("ActiveMQ-Artemis/2.40.0", "Security Error occurred: User name [ann] or password is invalid"),
        ("stompcodec/0.1.0", "login refused: login or passcode is wrong"),
        ("stompcodec/0.1.0 as rabbitmq", "login refused: login or passcode is wrong"),
    ],
)
def test_each_broker_has_its_words_and_an_unknown_one_all_of_them(server, words):
    assert row_of("auto", server).refuses_login(words)
    assert BROKERS["unknown"].refuses_login(words)
    assert not row_of("auto", server).refuses_login("the disk is full")


def test_an_end_of_a_bridge_gives_up_too(peer, monkeypatch):
    monkeypatch.setattr(bridge_ends, "SPAN", 0.0)
    peer.rules["CONNECT"], seen = refuses(RABBITMQ), []
    end = End(peer.url, backoff=QUICK, login_attempts=3)
    with pytest.raises(RejectedError):
        asyncio.run(end.reopen(lambda end, error: seen.append(str(error))))
    assert len(peer.got("CONNECT")) == len(seen) == 3


# ---- what ends each connection ----
def sent(client):
    return [(frame.command, frame.get("id") or frame.body) for frame in client.frames()]


def refuse(client, bad, how, answers=True, cuts=()):
    """Answer what the client sends, and end each connection at which it sends what is refused; the connections. cuts:
    ends after that many frames, too."""
    left = list(cuts)
    for number in range(1, 60):
        client.connect(confirm=False)
        seen = 0
        while client.core.link.connection is not None:
            frames = client.frames()
            if not frames:
                if client.core.link.phase == "up":
                    return number
                client.wait(STEP)
            for frame in frames:
                seen += 1
                if bad(frame):
                    how(client)
                    break
                if left and seen > left[0]:
                    left.pop(0)
                    client.lose()
                    break
                if answers and frame.get("receipt") is not None:
                    client.receipt(frame)
    raise AssertionError("for ever")


def by_error(client):
    client.error(None, "bad selector")


def by_error_and_end(client):
    """As in 1.1, where the session could go on after an ERROR."""
    client.error(None, "bad selector")
    if client.core.link.connection is not None:
        client.lose()


def by_close_code(client):
    client.lose(CloseCodeError(1008, "bad selector"))


@pytest.mark.parametrize("code", [None, 1001, 1012, 1013])
def test_ends_that_this_side_makes_and_a_server_that_goes_away_convict_nothing(client, code):
    subscriptions = [client.subscribed() for _ in range(2)]
    for _ in range(20):
        client.lose(CloseCodeError(code, "restarting") if code else ConnectionLostError("the server was silent"))
        client.connect(confirm=False)
        assert code or sent(client) == [("SUBSCRIBE", each.id) for each in subscriptions]
    client.connect()
    assert not any(each.closed for each in subscriptions)


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize(("version", "how"), [("1.1", by_error_and_end), ("1.2", by_close_code)])
def test_a_subscription_that_ends_each_connection_is_ended(version, how, confirm):
    client = Scripted(version=version).connect()
    good = [client.subscribed(confirm=False), client.subscribed()]
    bad = client.subscribed(confirm=confirm)
    good.append(client.subscribed())
    client.lose()
    assert refuse(client, lambda frame: frame.get("id") == bad.id, how) == MOST_SHORT - 1 + 2 + 1
    assert isinstance(bad.error, RejectedError if how is not by_close_code else ConnectionLostError)
    assert bad.destination in str(bad.error)
    assert "bad selector" in str(bad.error)
    assert (list(client.core.inbound.subscriptions.values()), client.core.link.state) == (good, "connected")


@pytest.mark.parametrize("how", [by_error, by_close_code, Scripted.lose])
def test_a_message_that_ends_each_connection_is_given_up_and_the_others_go_on(client, how):
    calls = [client.send(body, receipt=True, resend=True) for body in (b"1", b"bad", b"2", b"3")]
    client.frames()
    client.lose()
    assert refuse(client, lambda frame: frame.body == b"bad", how) == MOST_SHORT - 1 + 2 + 1
    assert [outcome(call) for call in (calls[0], *calls[2:])] == ["accepted"] * 3
    error = calls[1].error
    assert isinstance(error, RejectedError if how is by_error else ConnectionLostError)
    assert how is by_error or error.sent
    last = [frame for number, frame in client.seen if number == client.connections and frame.command == "SEND"]
    assert [frame.body for frame in last] == [b"2", b"3"]


def test_what_keeps_an_order_stops_there(client):
    group, calls = Group(), [client.call(f"block {number}", resend=True) for number in range(3)]
    for number, call in enumerate(calls):
        call.group = group
        octets = serialize(Frame("SEND", [("receipt", call.id), ("destination", "/queue/a")], b"%d" % number), "1.2")
        assert client.core.send_block(Block(octets, 1, "1.2"), client.now, call)
    other = client.send(b"other", receipt=True, resend=True)
    client.frames()
    client.lose()
    refuse(client, lambda frame: frame.body == b"1", Scripted.lose)
    assert [outcome(call) for call in calls] == ["accepted", "ConnectionLostError", "ConnectionLostError"]
    assert all(call.error.sent for call in calls[1:])  # the last one was sent once, before
    assert outcome(other) == "accepted"


def test_a_body_that_is_sent_again_is_under_way_alone_too(client):
    call = client.call("SEND", 1e6, resend=True)
    upload = Upload("SEND to /queue/a", [("receipt", call.id), ("destination", "/queue/a")], 1000, 30.0, call)
    client.core.upload(upload, client.now)
    client.frames()
    for _ in range(MOST_SHORT):
        client.again(confirm=False)
    client.frames()
    new = client.subscribe(confirm=False)
    client.core.feed(upload, 0, b"x" * 1000, client.now)
    client.core.feed(upload, 1000, b"", client.now)
    assert client.commands() == ["SEND"]
    client.wait(STEP)
    assert sent(client) == [("SUBSCRIBE", new.id)]
    client.wait(STEP)
    assert (new.confirmed, client.core.link.phase) == (True, "up")


@given(data=st.data())
def test_only_culprits_end_and_all_of_them_do(data):
    client = Scripted(version=data.draw(st.sampled_from(["1.1", "1.2"]))).connect()
    answers, counts = data.draw(st.booleans()), [data.draw(st.integers(0, 4)) for _ in range(2)]
    subscriptions = [client.subscribe(confirm=False) for _ in range(counts[0])]
    calls = [client.send(b"%d" % number, receipt=True, resend=True, timeout=1e6) for number in range(counts[1])]
    client.frames()
    bad_ids = data.draw(st.sets(st.sampled_from([each.id for each in subscriptions]))) if subscriptions else set()
    bad_bodies = data.draw(st.sets(st.sampled_from(range(len(calls))))) if calls else set()
    cuts = data.draw(st.lists(st.integers(0, 3), max_size=12))
    client.lose()

    def is_bad(frame):
        return frame.get("id") in bad_ids or (frame.command == "SEND" and int(frame.body) in bad_bodies)

    refuse(client, is_bad, data.draw(st.sampled_from([by_error_and_end, by_close_code])), answers, cuts)
    client.wait(2)
    assert (client.core.link.phase, {each.id for each in subscriptions if each.closed}) == ("up", bad_ids)
    failed = {number for number, call in enumerate(calls) if call.error is not None}
    assert bad_bodies <= failed
    assert len(failed - bad_bodies) <= len(cuts) // 2  # twice alone under way: the outcome is unknown
    assert all(calls[number].error.sent for number in failed - bad_bodies)


FULL, LEFT = "if a queue with overflow=reject-publish is full", "if a subscriber of the topic leaves"
BIG = Frame("SEND", {"destination": "/queue/a"}, bytes(2**22))
MAP = Frame("SEND", {"destination": "/queue/a", "transformation": "jms-map-json"})
MANY = Frame("SEND", [("destination", "/queue/a"), *((f"h{number}", "") for number in range(99))])


@pytest.mark.parametrize(
    ("server", "frame", "why"),
    [
        *(("RabbitMQ/3.10.8", "/topic/a", FULL), ("RabbitMQ/4.3.6", "/queue/a", FULL)),
        *(("RabbitMQ/4.3.6", "/topic/a", f"{FULL}, or {LEFT}"), ("RabbitMQ/3.13.7", BIG, FULL)),
        ("RabbitMQ/4.0.5", BIG, "at more than 4194304 bytes, and this frame has about 4194325"),
        ("RabbitMQ/4.0.5", MANY, FULL),
        ("RabbitMQ/4.3.6", MANY, "at more than 100 headers, and this frame has about 101"),
        ("RabbitMQ/4.3.6", Block(serialize(BIG, "1.2"), 1, "1.2"), "at more than 4194304 bytes"),
        ("RabbitMQ/4.3.6", Block(serialize(MANY, "1.2"), 1, "1.2"), f"{FULL}, or {LEFT}"),
        ("RabbitMQ/4.3.6", Upload, "at more than 4194304 bytes, and this frame has about 4194336"),
        *(("ActiveMQ/6.3.1", BIG, ""), ("stompcodec/0.1.0 as rabbitmq", BIG, "")),
        ("ActiveMQ/6.3.1", MAP, "at the header transformation if the broker has no XStream"),
    ],
)
def test_what_the_server_may_have_refused_by_closing_is_named(server, frame, why):
    client = Scripted(server=server).connect()
    where = frame if isinstance(frame, str) else "/queue/a"
    call = client.call("messages 0 to 9" if isinstance(frame, Block) else f"SEND to {where}")
    if isinstance(frame, Block):
        client.core.send_block(frame, client.now, call)
    elif frame is Upload:
        pairs = [("receipt", call.id), ("destination", where)]
        client.core.upload(Upload(call.what, pairs, 2**22, 30.0, call), client.now)
    else:
        frame = Frame("SEND", {"destination": where}) if frame is where else frame
        client.core.send(frame, client.now, call)
    client.frames()
    client.lose()
    for error in map(str, (call.error, client.core.link.error)):
        said = (
            f"closed by the server, perhaps for {call.what}: {client.core.link.dialect.name} closes without ERROR {why}"
        )
        assert said in error if why else "perhaps" not in error


def with_receipt(**options):
    client = Scripted(server="RabbitMQ/4.3.6").connect()
    call = client.call("SEND to /queue/a", **options)
    client.core.send(Frame("SEND", [*BIG.headers.pairs(), ("receipt", call.id)], BIG.body), client.now, call)
    return client, call


def test_what_the_server_has_taken_or_refused_otherwise_is_not_named():
    client, _ = with_receipt()
    client.confirm_all()
    client.lose()
    assert "perhaps" not in str(client.core.link.error)
    client.connect()
    client.send(receipt=True)
    client.frames()
    client.error(None, "the disk is full")
    assert "perhaps" not in str(client.core.link.error)
    for seconds in (1, 61):
        client.connect()
        client.core.send(BIG, client.now)
        client.frames()
        client.wait(seconds)
        client.lose()
        assert ("perhaps for SEND to /queue/a" in str(client.core.link.error)) is (seconds == 1)


def test_what_ends_two_connections_is_told_why():
    client, call = with_receipt(resend=True)
    client.frames()
    client.lose()
    refuse(client, lambda frame: frame.command == "SEND", Scripted.lose)
    assert "while SEND to /queue/a was under way: rabbitmq closes without ERROR at more than" in str(call.error)


def test_a_subscription_that_ends_each_connection_is_told_why():
    client = Scripted(server="ActiveMQ/6.3.1").connect()
    subscription = client.subscribe(headers={"transformation": "jms-json"})
    for _ in range(6):
        client.frames()
        client.again(confirm=False)
        client.wait(1)
    client.wait(30)
    assert "no answer in 30 s: the connection was lost: closed by the server" in str(subscription.error)
    assert str(subscription.error).endswith("at the header transformation if the broker has no XStream")


STREAM, OFFSET = {"x-queue-type": "stream"}, "x-stream-offset"


def stream(ack="client-individual", headers=STREAM, count=4):
    client = Scripted(server="RabbitMQ/4.3.6").connect()
    subscription = client.subscribed(ack, prefetch=10, headers=headers)
    return client, subscription, [client.deliver(subscription, f"m{n}", **{OFFSET: str(n)}) for n in range(count)]


def asked(client):
    client.again(confirm=False)
    (frame,) = client.confirm_all()
    return [value for name, value in frame.headers.pairs() if name == OFFSET]


@pytest.mark.parametrize(
    ("ack", "acked", "offset"),
    [
        *(("client-individual", [], "offset=0"), ("client-individual", [0, 1], "offset=2")),
        *(("client-individual", [0, 2, 3], "offset=1"), ("client-individual", [3, 2, 1, 0], "offset=4")),
        *(("client", [1], "offset=2"), ("client", [0, 3], "offset=4")),
    ],
)
def test_a_stream_goes_on_behind_what_is_acknowledged(ack, acked, offset):
    client, subscription, messages = stream(ack, {**STREAM, OFFSET: "first"})
    assert client.core.inbound.subscriptions[subscription.id].asked[-1] == (OFFSET, "first")
    for number in acked:
        client.ack(messages[number])
    for _ in range(2):
        assert asked(client) == [offset]


def test_a_stream_goes_on_at_what_an_open_transaction_acknowledges():
    client, _, messages = stream()
    transaction = client.begin()
    client.ack(messages[0], transaction=transaction)
    assert asked(client) == ["offset=0"]


def test_a_message_that_is_left_is_the_place_after_many_others():
    client, subscription, (left,) = stream(count=1)
    leave(left)
    for number in range(1, 1000):
        client.ack(client.deliver(subscription, f"m{number}", **{OFFSET: str(number)}))
    assert len(subscription.place._unsettled) < 300
    assert asked(client) == ["offset=0"]


@pytest.mark.parametrize(
    ("headers", "came", "place"),
    [({}, "7", []), (STREAM, "7", ["offset=8"]), (STREAM, "x", []), ({OFFSET: "next"}, None, ["next"])],
)
def test_the_place_is_that_of_streams(headers, came, place):
    """A sender may put the header on a message of any queue."""
    client, subscription, _ = stream(headers=headers, count=0)
    if came is not None:
        client.ack(client.deliver(subscription, "m1", **{OFFSET: came}))
    assert asked(client) == place


def test_a_stream_is_not_read_again_when_its_window_grows():
    client, subscription, _ = stream()
    subscription.is_narrow = True
    asked(client)
    client.ack(client.deliver(subscription, "m5", **{OFFSET: "5"}))
    client.core.inbound.begin_again(subscription, client.now, client.call(), narrow=False)
    assert [frame.get(OFFSET) for frame in client.frames() if frame.command == "SUBSCRIBE"] == ["offset=6"]


def test_a_message_that_the_waiting_thread_reads_counts_too(shell, rabbitmq):
    """Each comes after the ACK of the one before, so that the thread that waits for it reads it itself."""
    numbers = itertools.count()

    def deliver(side, frame):
        side.deliver("s", **{OFFSET: str(next(numbers))})

    rabbitmq.rules["ACK"] = deliver
    client = shell.connect(rabbitmq.url, reconnect=QUICK)
    subscription = client.subscribe("/queue/a", id="s", ack="client-individual", prefetch=5, headers=STREAM)
    rabbitmq.do(lambda: deliver(rabbitmq.side(), None))
    for _ in range(50):
        subscription.get(patience(10)).ack()
    last = subscription.get(patience(10)).get(OFFSET)
    rabbitmq.cut()
    rabbitmq.wait(lambda peer: len(peer.got("SUBSCRIBE")) == 2)
    assert rabbitmq.got("SUBSCRIBE")[1].get(OFFSET) == f"offset={last}" == "offset=50"


def gets(client, subscription, body):
    client.send(subscription.destination, body, {"persistent": "true"}, receipt=True, resend=True, timeout=patience(60))
    while (message := subscription.get(patience(60))).body != body:
        message.ack()
    message.ack()


@pytest.mark.slow
def test_kills_of_the_broker_end_nothing(shell, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with BrokerProcess(tmp_path / "broker", flags=("--port", str(port))) as broker:
        client = shell.connect(f"stomp://127.0.0.1:{broker.port}", reconnect=QUICK)
        options = {"ack": "client-individual"}
        subscriptions = [client.subscribe(f"/queue/{n}", confirm=n < 2, **options) for n in range(3)]
        for number in range(8):
            gets(client, subscriptions[number % 3], b"%d" % number)
            broker.kill()
            broker.start()
        for subscription in subscriptions:
            gets(client, subscription, b"last")
        assert [each.error for each in subscriptions] == [None] * 3


@pytest.fixture(scope="module", params=["tcp", "ws", "tls"])
def place(request):
    name, config, options = request.param, {}, {}
    if name == "tls":
        certificates = request.getfixturevalue("certificates")
        options = {"ssl": certificates.contexts.client}
        config = {"tls_port": 0, "tls_cert": certificates.server}
    elif name == "ws":
        pytest.importorskip("websockets")
        config = {"ws_port": 0}
    with BrokerThread(**config) as broker:
        ws, tls = f"ws://127.0.0.1:{broker.ws_port}/stomp", f"127.0.0.1:{broker.tls_port}"
        yield SimpleNamespace(url={"tcp": broker.url, "ws": ws, "tls": tls}[name], name=name, options=options)


@pytest.mark.req("S12-UTF-02", "S11-UTF-02")
def test_a_round_of_all_bodies(shell, place):
    client = shell.connect(place.url, heart_beat=(5000, 5000), **place.options)
    assert (client.version, client.dialect) == ("1.2", "stompcodec")
    name = f"/queue/all-{shell.name}-{place.name}"
    bodies = [b"plain", b"\0\xff", "grüße".encode(), bytes(300_000)]
    for body in bodies:
        client.send(name, body, {"a:b": "c\\d\ne", "größe": "ß"}, receipt=True)
    with client.subscribe(name, ack="client-individual", prefetch=2) as subscription:
        messages = [subscription.get(patience(5)) for _ in range(2)]
        assert subscription.get(0.05) is None
        for message in messages:
            message.ack(receipt=True)
            if len(messages) < 4:
                messages.append(subscription.get(patience(5)))
        assert [message.body for message in messages] == bodies
        assert {(message.get("a:b"), message.get("größe")) for message in messages} == {("c\\d\ne", "ß")}
    assert client.ping() < patience(5)
    with pytest.raises(RejectedError, match="selector"):
        client.receive(name, selector="((")
    client.wait_connected()
