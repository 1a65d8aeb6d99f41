"""What the wish-list for 1.1 proposed: RECEIVE, PING, negotiation by the header version, keep-alives."""

import pytest
from broker.harness import Bench
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker.storage.store import MemoryStore
from stompcodec.codec import Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.spec import VERSIONS


def peers(bench, *versions, **headers):
    made = [bench.peer(version, connect=False) for version in versions]
    for peer in made:
        peer.parser = type(peer.parser)(None, commands=("PONG", "EMPTY"))
        peer.connect(**headers)
    return made


def receive(peer, destination="/queue/a", id="1", **headers):
    send(peer, "RECEIVE", destination=destination, id=id, **headers)
    return peer.next()


def send(peer, command, **headers):
    pairs = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items() if value is not None)
    peer.raw(f"{command}\n{pairs}\n\0".encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_receive_without_an_id_is_answered_in_every_version(version):
    (peer,) = peers(Bench(), version)
    peer.put("/queue/a", b"1")
    for command in ("MESSAGE", "EMPTY"):
        answer = receive(peer, id=None)
        assert (answer.command, answer.get("subscription")) == (command, None if version == "1.0" else "/queue/a")


@pytest.mark.req("S12-TX-03", "S11-TX-03", "S10-TX-03", "S10-TX-05", "WISH-RCV-01")
@pytest.mark.parametrize(("mode", "persistent"), [("client", "true"), ("client-individual", "false")])
@pytest.mark.parametrize(("version", "command"), [("1.0", "ACK"), ("1.1", "NACK"), ("1.2", "ACK"), ("1.2", "NACK")])
def test_a_received_message_in_a_transaction(version, command, mode, persistent):
    bench = Bench(store=MemoryStore())
    (peer,) = peers(bench, version)
    queue, session = bench.broker.virtual_host("/").destinations.queue("/queue/a"), peer.session
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
    assert len(bench.broker.virtual_host("/").destinations.queue("/queue/a").consumers) == 1


@pytest.mark.parametrize("headers", [{}, {"selector": "n = 1"}])
def test_expired_messages_are_not_received(headers):
    pytest.importorskip("lark")
    bench = Bench()
    (peer,) = peers(bench, "1.2")
    peer.put("/queue/a", b"old", expiration="1000", n="1")
    peer.put("/queue/a", b"new", n="1")
    bench.date += 2
    assert receive(peer, **headers).body == b"new"
    assert (bench.queue().count, bench.ready()) == (0, [])


def test_receive_from_a_durable_subscription():
    bench, names = Bench(), {"durable-subscription-name": "daily"}
    (peer,) = peers(bench, "1.2", client_id="me")
    send(peer, "SUBSCRIBE", destination="/topic/t", id="1", **names)
    send(peer, "DISCONNECT")
    bench.peer().put("/topic/t", b"1")
    (peer,) = peers(bench, "1.2", client_id="me")
    message = receive(peer, "/topic/t", ack="client-individual", **names)
    assert message.body == b"1"
    peer.ack(message)
    assert receive(peer, "/topic/t", **names).command == "EMPTY"
    assert not peer.session.consumers
    bench.peer().put("/topic/t", b"2")
    assert receive(peer, "/topic/t", **names).body == b"2"


@pytest.mark.parametrize(
    ("config", "headers", "why"),
    [
        ({}, {"destination": None}, "no destination"),
        ({"dialect": "activemq"}, {"destination": "/queue/a,/queue/b"}, "RECEIVE takes one destination"),
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
    for _ in range(2):
        if not peer.closed:
            send(peer, "RECEIVE", **{"destination": "/queue/a", "id": "1", **headers})
    assert peer.error().headers["message"] == why


@given(st.lists(st.sampled_from(["put", "take", "hold", "ack", "nack", "lose"]), max_size=30), st.sampled_from([1, 3]))
def test_no_message_is_lost_or_doubled(steps, window):
    bench = Bench(max_attempts=1000, window_messages=window)
    (sender,) = peers(bench, "1.2")
    queue = bench.broker.virtual_host("/").destinations.queue("/queue/a")
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
