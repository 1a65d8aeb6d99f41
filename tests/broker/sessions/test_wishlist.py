"""What the wish-list for 1.1 proposed: RECEIVE, PING, negotiation by the header version, keep-alives."""

import pytest
from broker.harness import Bench
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.codec import Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.spec import VERSIONS


def peers(bench, *versions):
    """Peers whose parsers know the further commands."""
    made = [bench.peer(version, connect=False) for version in versions]
    for peer in made:
        peer.parser = type(peer.parser)(None, commands=("PONG", "EMPTY"))
        peer.connect()
    return made


def receive(peer, destination="/queue/a", id="1", **headers):
    """RECEIVE, and its one answer."""
    send(peer, "RECEIVE", destination=destination, id=id, **headers)
    return peer.next()


def send(peer, command, **headers):
    pairs = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items() if value is not None)
    peer.raw(f"{command}\n{pairs}\n\0".encode())


def queue_of(bench):
    return bench.broker.virtual_host("/").destinations.queue("/queue/a")


# ---- PING ----


@pytest.mark.req("WISH-PNG-01")
@pytest.mark.parametrize("version", VERSIONS)
def test_ping_is_answered_by_pong(version):
    bench = Bench()
    (peer,) = peers(bench, version)
    send(peer, "PING")
    pong = peer.next("PONG")
    assert (list(pong.headers.pairs()), pong.body) == ([], b"")
    send(peer, "PING", receipt="7")
    assert [frame.command for frame in peer.take()] == ["PONG", "RECEIPT"]


def test_what_is_offered_is_named_and_what_is_not_is_refused():
    assert Bench().peer(connect=False).connect().headers["commands"] == "PING,RECEIVE"
    assert Bench(commands=()).peer(connect=False).connect().get("commands") is None
    bench = Bench(commands=("PING",))
    (peer,) = peers(bench, "1.2")
    assert peer.session.connection.state.value == "connected"
    send(peer, "RECEIVE", destination="/queue/a", id="1")
    assert "unknown-command" in peer.error().headers["message"]


def test_a_peer_that_pings_and_does_not_read_is_not_read_either():
    bench = Bench()
    (peer,) = peers(bench, "1.2")
    peer.session.writable(False, 0.0)
    for _ in range(200):
        peer.session.receive(b"PING\n\n\0" * 1000, 0.0)
        if peer.session.paused:
            break
    assert peer.session.paused


# ---- RECEIVE ----


@pytest.mark.req("WISH-RCV-01", "WISH-RCV-02")
@pytest.mark.parametrize("version", VERSIONS)
def test_receive_takes_one_message_or_says_that_there_is_none(version):
    bench = Bench()
    peer, sender = peers(bench, version, "1.2")
    empty = receive(peer)
    assert empty.command == "EMPTY"
    assert dict(empty.headers.pairs()) == {"destination": "/queue/a", "subscription": "1"}
    sender.put("/queue/a", b"1")
    sender.put("/queue/a", b"2")
    message = receive(peer)
    assert (message.command, message.body, message.headers["subscription"]) == ("MESSAGE", b"1", "1")
    assert peer.take() == []
    assert message.get("ack") is None
    assert receive(peer).body == b"2"
    assert receive(peer).command == "EMPTY"
    assert bench.broker.queues["/", "/queue/a"].count == 0
    assert not peer.session.consumers


@pytest.mark.req("WISH-RCV-01")
@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_received_is_acknowledged(version, mode):
    bench = Bench()
    (peer,) = peers(bench, version)
    queue = queue_of(bench)
    for body in (b"1", b"2", b"3"):
        peer.put("/queue/a", body)
    one, two = receive(peer, ack=mode), receive(peer, ack=mode, id="2")
    assert (one.body, two.body, queue.count, len(queue.messages)) == (b"1", b"2", 3, 1)
    peer.ack(two, receipt="r")
    assert peer.next("RECEIPT").headers["receipt-id"] == "r"
    assert (queue.count, len(peer.session.consumers), peer.session.windows.total) == (2, 1, 1)
    assert peer.take() == []  # ACK gives no credit for another one
    peer.ack(one)
    assert (queue.count, len(queue.messages)) == (1, 1)
    assert (peer.session.consumers, peer.session.by_number, queue.consumers) == ({}, {}, [])
    assert peer.session.windows.total == 0


@pytest.mark.req("S12-TX-03", "S11-TX-03", "S10-TX-03", "S10-TX-05", "WISH-RCV-01")
@pytest.mark.parametrize(("mode", "persistent"), [("client", "true"), ("client-individual", "false")])
@pytest.mark.parametrize(("version", "command"), [("1.0", "ACK"), ("1.1", "NACK"), ("1.2", "ACK"), ("1.2", "NACK")])
def test_a_received_message_in_a_transaction(version, command, mode, persistent):
    bench = Bench(store=MemoryStore())
    (peer,) = peers(bench, version)
    queue, session = queue_of(bench), peer.session
    for body in (b"1", b"2"):
        peer.put("/queue/a", body, persistent=persistent)
    before = session.memory.spare
    message = receive(peer, ack=mode)
    for end in ("ABORT", "ABORT", "COMMIT"):
        send(peer, "BEGIN", transaction="t")
        peer.ack(message, command, transaction="t")
        session.outbox.starved = True
        session.refill()  # it gets no further message
        assert (queue.count, len(queue.messages), len(session.consumers)) == (2, 1, 1)
        send(peer, end, transaction="t", receipt="r")
        assert [frame.command for frame in peer.take()] == ["RECEIPT"]
        if end == "ABORT":  # it is unacknowledged again
            (consumer,) = session.consumers.values()
            assert (list(consumer.unacked), len(queue.messages), session.windows.total) == ([1], 1, 1)
    again = command == "NACK"
    assert (queue.count, len(queue.messages)) == (1 + again, 1 + again)
    assert (session.consumers, session.by_number, queue.consumers) == ({}, {}, [])
    assert (session.windows.total, session.memory.spare) == (0, before)
    assert [receive(peer).body for _ in range(queue.count)] == ([b"1", b"2"] if again else [b"2"])


@pytest.mark.req("S12-TX-05")
@pytest.mark.parametrize("aborted", [False, True])
def test_a_received_message_returns_when_its_session_ends_in_a_transaction(aborted):
    bench = Bench()
    peer, other = peers(bench, "1.2", "1.2")
    for body in (b"1", b"2"):
        other.put("/queue/a", body)
    message = receive(peer, ack="client-individual")
    send(peer, "BEGIN", transaction="t")
    peer.ack(message, transaction="t")
    if aborted:
        send(peer, "ABORT", transaction="t")
    peer.lose()
    assert queue_of(bench).consumers == []
    assert [receive(other).body, receive(other).body] == [b"1", b"2"]


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_a_long_transaction_ends_what_was_received(command, persistent):
    bench = Bench(store=MemoryStore())
    (peer,) = peers(bench, "1.2")
    peer.put("/queue/a", b"1", persistent=persistent)
    message = receive(peer, ack="client-individual")
    send(peer, "BEGIN", transaction="t")
    for _ in range(AT_ONCE):
        peer.put("/queue/b", b"x", transaction="t", persistent=persistent)
    peer.ack(message, command, transaction="t")
    send(peer, "COMMIT", transaction="t", receipt="r")
    bench.turn()
    assert [frame.command for frame in peer.take()] == ["RECEIPT"]
    queue = queue_of(bench)
    assert (queue.count, len(queue.messages)) == ((1, 1) if command == "NACK" else (0, 0))
    assert (peer.session.consumers, queue.consumers, peer.session.windows.total) == ({}, [], 0)


def test_receive_and_subscriptions_share_a_queue():
    bench = Bench()
    one, other = peers(bench, "1.2", "1.2")
    other.subscribe("/queue/a", ack="client-individual", prefetch_count="1")
    for body in (b"1", b"2", b"3"):
        one.put("/queue/a", body)
    assert receive(one).body == b"2"
    message = other.next("MESSAGE")
    assert message.body == b"1"
    other.ack(message)
    assert other.next("MESSAGE").body == b"3"


@pytest.mark.parametrize("end", ["ack", "nack", "lose"])
def test_receive_beside_consumers_that_pick(end):
    pytest.importorskip("lark")
    bench = Bench()
    peer, other = peers(bench, "1.2", "1.2")
    other.subscribe("/queue/a", selector="n > 2", ack="client-individual")
    for n in ("1", "2", "3"):
        peer.put("/queue/a", n, n=n)
    assert other.next("MESSAGE").body == b"3"
    message = receive(peer, ack="client-individual", selector="n = 2")
    assert message.body == b"2"
    getattr(peer, end)(*([message] if end != "lose" else []))
    (again,) = peers(bench, "1.2")
    bodies = [receive(again).body, receive(again).body]
    assert bodies == ([b"1", b""] if end == "ack" else [b"1", b"2"])
    assert len(queue_of(bench).consumers) == 1


def test_receive_keeps_nobody_from_the_queue():
    pytest.importorskip("lark")
    bench = Bench()
    peer, other = peers(bench, "1.2", "1.2")
    for n in ("1", "2"):
        peer.put("/queue/a", n, n=n)
    receive(peer, ack="client-individual", exclusive="true")
    other.subscribe("/queue/a", selector="n > 0")
    assert other.next("MESSAGE").body == b"2"


@pytest.mark.parametrize("headers", [{}, {"selector": "n = 1"}])
def test_expired_messages_are_not_received(headers):
    pytest.importorskip("lark")
    bench = Bench()
    (peer,) = peers(bench, "1.2")
    peer.put("/queue/a", b"old", expiration="1000", n="1")
    peer.put("/queue/a", b"new", n="1")
    bench.date += 2
    assert receive(peer, **headers).body == b"new"


def test_receive_from_a_durable_subscription():
    bench = Bench()

    def client():
        peer = bench.peer(connect=False)
        peer.parser = type(peer.parser)(None, commands=("PONG", "EMPTY"))
        peer.connect(**{"client-id": "me"})
        return peer

    peer, names = client(), {"durable-subscription-name": "daily"}
    send(peer, "SUBSCRIBE", destination="/topic/t", id="1", **names)
    send(peer, "DISCONNECT")
    bench.peer().put("/topic/t", b"1")
    peer = client()
    message = receive(peer, "/topic/t", ack="client-individual", **names)
    assert message.body == b"1"
    peer.ack(message)
    assert receive(peer, "/topic/t", **names).command == "EMPTY"
    assert not peer.session.consumers
    bench.peer().put("/topic/t", b"2")
    assert receive(peer, "/topic/t", **names).body == b"2"


def test_receive_of_a_topic_finds_nothing_for_nothing_is_kept():
    bench = Bench()
    (peer,) = peers(bench, "1.2")
    peer.put("/topic/t", b"1")
    assert receive(peer, "/topic/t").command == "EMPTY"
    assert receive(peer, "/topic/t", ack="client").command == "EMPTY"


@pytest.mark.parametrize(
    ("config", "headers", "why"),
    [
        ({}, {"destination": None}, "RECEIVE lacks destination"),
        ({}, {"ack": "sometimes"}, "unknown ack mode"),
        ({}, {"browser": "true"}, "RECEIVE cannot browse"),
        ({"max_unacked": 1, "prefetch": 1}, {"ack": "client"}, "too many unacknowledged messages"),
        ({"max_subscriptions": 1}, {"ack": "client"}, "too many unacknowledged RECEIVEs"),
    ],
)
def test_what_cannot_be_received_is_refused(config, headers, why):
    bench = Bench(**config)
    (peer,) = peers(bench, "1.2")
    for _ in range(2):
        peer.put("/queue/a", b"x")
    send(peer, "RECEIVE", **{"destination": "/queue/a", "id": "1", **headers})
    if not peer.closed:
        send(peer, "RECEIVE", **{"destination": "/queue/a", "id": "1", **headers})
    assert peer.error().headers["message"] == why


def test_every_version_is_answered_without_an_id():
    bench = Bench()
    for version in VERSIONS:
        (peer,) = peers(bench, version)
        peer.put("/queue/a", b"1")
        message = receive(peer, id=None)
        assert message.get("subscription") == (None if version == "1.0" else "/queue/a")
        assert receive(peer, id=None).get("subscription") == (None if version == "1.0" else "/queue/a")


@given(st.lists(st.sampled_from(["put", "take", "hold", "ack", "nack", "lose"]), max_size=30), st.sampled_from([1, 3]))
def test_no_message_is_lost_or_doubled(steps, window):
    bench = Bench(max_attempts=1000, window_messages=window)
    (sender,) = peers(bench, "1.2")
    queue = queue_of(bench)
    ready, held, count = [], [], 0
    (peer,) = peers(bench, "1.2")
    for step in steps:
        if step == "put":
            count += 1
            sender.put("/queue/a", str(count), persistent="true" if count % 3 else "false")
            ready.append(count)
        elif step in ("take", "hold"):
            answer = receive(peer, ack="auto" if step == "take" else "client-individual")
            assert answer.command == ("MESSAGE" if ready else "EMPTY")
            if ready:
                assert int(answer.body) == ready.pop(0)
                if step == "hold":
                    held.append(answer)
        elif step == "lose":
            peer.lose()
            ready = sorted(ready + [int(each.body) for each in held])
            held = []
            (peer,) = peers(bench, "1.2")
        elif held:
            message = held.pop()
            (peer.ack if step == "ack" else peer.nack)(message)
            if step == "nack":
                ready = sorted([*ready, int(message.body)])
        assert queue.total == len(ready) + len(held)
        assert len(peer.session.consumers) == len(held)
    assert peer.take() == []


# ---- negotiation by the header version, and keep-alives ----


@pytest.mark.req("WISH-NEG-01", "WISH-NEG-02", "WISH-NEG-03")
@pytest.mark.parametrize(
    ("headers", "version"),
    [
        *((f"version:{offered}\n", taken) for offered, taken in {"1.1": "1.1", "1.7": "1.2", "2.0": "1.2"}.items()),
        *(("version:1.0\n", "1.0"), ("", "1.0"), ("version:1.1\naccept-version:1.2\n", "1.2")),
        *((f"version:{offered}\n", None) for offered in ("0.9", "", "x", "1 .1", "1")),
    ],
)
def test_the_highest_version_of_both(headers, version):
    for on in (True, False):
        peer = Bench(version_header=on).peer(connect=False)
        peer.raw(f"CONNECT\nlogin:a\nhost:/\n{headers}\n\0".encode())
        if on and version is None:
            error = peer.error()
            assert (error.headers["message"], error.headers["version"]) == ("no common version", "1.0,1.1,1.2")
        else:  # without the option the header means nothing
            wanted = version if on or "accept-version" in headers else "1.0"
            assert peer.next("CONNECTED").headers["version"] == peer.session.version == wanted


@pytest.mark.req("WISH-NEG-01", "WISH-NEG-03")
@given(st.sampled_from(VERSIONS), st.lists(st.sampled_from(VERSIONS), min_size=1, unique=True))
def test_a_client_that_names_its_highest_version(highest, versions):
    client = Connection(Role.CLIENT, versions=VERSIONS)
    client.send(Frame("CONNECT", {"host": "a", "version": highest}))
    server = Connection(Role.SERVER, versions=versions, version_header=True)
    lower = [version for version in VERSIONS if version in versions and version <= highest]
    try:
        for _frame in server.receive(b"".join(client.take_output()), 0.0):
            server.accept({"session": "1"})
    except RemoteProtocolError:
        assert not lower
        return
    list(client.receive(b"".join(server.take_output()), 0.0))
    assert (client.version, server.version) == (lower[-1], lower[-1])


@pytest.mark.req("WISH-KAL-01", "WISH-KAL-02")
def test_keep_alives_are_heart_beats_and_who_sends_none_is_dropped():
    bench = Bench(version_header=True, heart_beat=(1000, 1000))
    peer = bench.peer(connect=False)
    peer.raw(b"CONNECT\nversion:1.1\nhost:/\nheart-beat:1000,2000\n\n\0")
    connected = peer.next("CONNECTED")
    assert (connected.headers["version"], connected.headers["heart-beat"]) == ("1.1", "1000,1000")
    for _ in range(5):
        bench.wait(1.0)
        peer.raw(b"\n")
    assert not peer.closed
    assert peer.octets.endswith(b"\n\n")
    bench.wait(3.0)
    assert peer.error().headers["message"] == "heart-beats are missing"
