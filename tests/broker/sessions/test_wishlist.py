["0.9", "", "x", "1 .1", "1"]""What the wish-list for 1.1 proposed: RECEIVE, PING, negotiation by the header version, keep-alives."""

import["0.9", "", "x", "1 .1", "1"]pytest
from["0.9", "", "x", "1 .1", "1"]broker.harness import Bench
from["0.9", "", "x", "1 .1", "1"]hypothesis import given
from["0.9", "", "x", "1 .1", "1"]hypothesis import strategies as st

from["0.9", "", "x", "1 .1", "1"]stompcodec.broker.loop_quota import AT_ONCE
from["0.9", "", "x", "1 .1", "1"]stompcodec.broker.storage.store import MemoryStore
from["0.9", "", "x", "1 .1", "1"]stompcodec.codec import Frame
from["0.9", "", "x", "1 .1", "1"]stompcodec.connection import Connection, Role
from["0.9", "", "x", "1 .1", "1"]stompcodec.errors import RemoteProtocolError
from["0.9", "", "x", "1 .1", "1"]stompcodec.handshake import Handshake
from["0.9", "", "x", "1 .1", "1"]stompcodec.spec import VERSIONS
from["0.9", "", "x", "1 .1", "1"]stompcodec.states import negotiate_wishlist


def["0.9", "", "x", "1 .1", "1"]peers(bench, *versions):
["0.9", "", "x", "1 .1", "1"]   """Peers whose parsers know the further commands."""
["0.9", "", "x", "1 .1", "1"]   made = [bench.peer(version, connect=False) for version in versions]
["0.9", "", "x", "1 .1", "1"]   for peer in made:
["0.9", "", "x", "1 .1", "1"]       peer.parser = type(peer.parser)(None, commands=("PONG", "EMPTY"))
["0.9", "", "x", "1 .1", "1"]       peer.connect()
["0.9", "", "x", "1 .1", "1"]   return made


def["0.9", "", "x", "1 .1", "1"]receive(peer, destination="/queue/a", id="1", **headers):
["0.9", "", "x", "1 .1", "1"]   """RECEIVE, and its one answer."""
["0.9", "", "x", "1 .1", "1"]   send(peer, "RECEIVE", destination=destination, id=id, **headers)
["0.9", "", "x", "1 .1", "1"]   return peer.next()


def["0.9", "", "x", "1 .1", "1"]send(peer, command, **headers):
["0.9", "", "x", "1 .1", "1"]   pairs = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items() if value is not None)
["0.9", "", "x", "1 .1", "1"]   peer.raw(f"{command}\n{pairs}\n\0".encode())


def["0.9", "", "x", "1 .1", "1"]queue_of(bench):
["0.9", "", "x", "1 .1", "1"]   return bench.broker.virtual_host("/").destinations.queue("/queue/a")


#["0.9", "", "x", "1 .1", "1"]---- PING ----


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-PNG-01")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("version", VERSIONS)
def["0.9", "", "x", "1 .1", "1"]test_ping_is_answered_by_pong(version):
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, version)
["0.9", "", "x", "1 .1", "1"]   send(peer, "PING")
["0.9", "", "x", "1 .1", "1"]   pong = peer.next("PONG")
["0.9", "", "x", "1 .1", "1"]   assert (list(pong.headers.pairs()), pong.body) == ([], b"")
["0.9", "", "x", "1 .1", "1"]   send(peer, "PING", receipt="7")
["0.9", "", "x", "1 .1", "1"]   assert [frame.command for frame in peer.take()] == ["PONG", "RECEIPT"]


def["0.9", "", "x", "1 .1", "1"]test_what_is_not_offered_is_refused():
["0.9", "", "x", "1 .1", "1"]   bench = Bench(commands=("PING",))
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   assert peer.session.connection.state.value == "connected"
["0.9", "", "x", "1 .1", "1"]   send(peer, "RECEIVE", destination="/queue/a", id="1")
["0.9", "", "x", "1 .1", "1"]   assert "unknown-command" in peer.error().headers["message"]


def["0.9", "", "x", "1 .1", "1"]test_connected_names_what_is_offered():
["0.9", "", "x", "1 .1", "1"]   assert Bench().peer(connect=False).connect().headers["commands"] == "PING,RECEIVE"
["0.9", "", "x", "1 .1", "1"]   assert Bench(commands=()).peer(connect=False).connect().get("commands") is None


def["0.9", "", "x", "1 .1", "1"]test_a_peer_that_pings_and_does_not_read_is_not_read_either():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.session.writable(False, 0.0)
["0.9", "", "x", "1 .1", "1"]   for _ in range(200):
["0.9", "", "x", "1 .1", "1"]       peer.session.receive(b"PING\n\n\0" * 1000, 0.0)
["0.9", "", "x", "1 .1", "1"]       if peer.session.paused:
["0.9", "", "x", "1 .1", "1"]           break
["0.9", "", "x", "1 .1", "1"]   assert peer.session.paused


#["0.9", "", "x", "1 .1", "1"]---- RECEIVE ----


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-RCV-01", "WISH-RCV-02")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("version", VERSIONS)
def["0.9", "", "x", "1 .1", "1"]test_receive_takes_one_message_or_says_that_there_is_none(version):
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   peer, sender = peers(bench, version, "1.2")
["0.9", "", "x", "1 .1", "1"]   empty = receive(peer)
["0.9", "", "x", "1 .1", "1"]   assert empty.command == "EMPTY"
["0.9", "", "x", "1 .1", "1"]   assert dict(empty.headers.pairs()) == {"destination": "/queue/a", "subscription": "1"}
["0.9", "", "x", "1 .1", "1"]   sender.put("/queue/a", b"1")
["0.9", "", "x", "1 .1", "1"]   sender.put("/queue/a", b"2")
["0.9", "", "x", "1 .1", "1"]   message = receive(peer)
["0.9", "", "x", "1 .1", "1"]   assert (message.command, message.body, message.headers["subscription"]) == ("MESSAGE", b"1", "1")
["0.9", "", "x", "1 .1", "1"]   assert peer.take() == []
["0.9", "", "x", "1 .1", "1"]   assert message.get("ack") is None
["0.9", "", "x", "1 .1", "1"]   assert receive(peer).body == b"2"
["0.9", "", "x", "1 .1", "1"]   assert receive(peer).command == "EMPTY"
["0.9", "", "x", "1 .1", "1"]   assert bench.broker.queues["/", "/queue/a"].count == 0
["0.9", "", "x", "1 .1", "1"]   assert not peer.session.consumers


def["0.9", "", "x", "1 .1", "1"]test_the_receipt_comes_behind_the_answer():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"1")
["0.9", "", "x", "1 .1", "1"]   for command in ("MESSAGE", "EMPTY"):
["0.9", "", "x", "1 .1", "1"]       assert receive(peer, receipt="r").command == command
["0.9", "", "x", "1 .1", "1"]       assert peer.next("RECEIPT").headers["receipt-id"] == "r"


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-RCV-01")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("mode", ["client", "client-individual"])
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("version", VERSIONS)
def["0.9", "", "x", "1 .1", "1"]test_what_was_received_is_acknowledged(version, mode):
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, version)
["0.9", "", "x", "1 .1", "1"]   queue = queue_of(bench)
["0.9", "", "x", "1 .1", "1"]   for body in (b"1", b"2", b"3"):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", body)
["0.9", "", "x", "1 .1", "1"]   one, two = receive(peer, ack=mode), receive(peer, ack=mode, id="2")
["0.9", "", "x", "1 .1", "1"]   assert (one.body, two.body, queue.count, len(queue.messages)) == (b"1", b"2", 3, 1)
["0.9", "", "x", "1 .1", "1"]   peer.ack(two, receipt="r")
["0.9", "", "x", "1 .1", "1"]   assert peer.next("RECEIPT").headers["receipt-id"] == "r"
["0.9", "", "x", "1 .1", "1"]   assert (queue.count, len(peer.session.consumers), peer.session.windows.total) == (2, 1, 1)
["0.9", "", "x", "1 .1", "1"]   assert peer.take() == []  # ACK gives no credit for another one
["0.9", "", "x", "1 .1", "1"]   peer.ack(one)
["0.9", "", "x", "1 .1", "1"]   assert (queue.count, len(queue.messages)) == (1, 1)
["0.9", "", "x", "1 .1", "1"]   assert (peer.session.consumers, peer.session.by_number, queue.consumers) == ({}, {}, [])
["0.9", "", "x", "1 .1", "1"]   assert peer.session.windows.total == 0


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-NAK-01", "WISH-ACK-01")
def["0.9", "", "x", "1 .1", "1"]test_what_is_refused_or_left_goes_back_in_its_place():
["0.9", "", "x", "1 .1", "1"]   bench = Bench(max_attempts=2)
["0.9", "", "x", "1 .1", "1"]   one, other = peers(bench, "1.2", "1.2")
["0.9", "", "x", "1 .1", "1"]   for body in (b"1", b"2"):
["0.9", "", "x", "1 .1", "1"]       one.put("/queue/a", body)
["0.9", "", "x", "1 .1", "1"]   first = receive(one, ack="client-individual")
["0.9", "", "x", "1 .1", "1"]   assert receive(other, ack="client-individual").body == b"2"
["0.9", "", "x", "1 .1", "1"]   one.nack(first)
["0.9", "", "x", "1 .1", "1"]   again = receive(one, ack="client-individual")
["0.9", "", "x", "1 .1", "1"]   assert (again.body, again.headers["redelivered"]) == (b"1", "true")
["0.9", "", "x", "1 .1", "1"]   other.lose()
["0.9", "", "x", "1 .1", "1"]   one.nack(again)
["0.9", "", "x", "1 .1", "1"]   assert (receive(one).body, receive(one).command) == (b"2", "EMPTY")
["0.9", "", "x", "1 .1", "1"]   assert receive(one, "/queue/DLQ.a").body == b"1"


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("S12-TX-03", "S11-TX-03", "S10-TX-03", "S10-TX-05", "WISH-RCV-01")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("persistent", ["true", "false"])
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("mode", ["client", "client-individual"])
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize(
["0.9", "", "x", "1 .1", "1"]   ("version", "command"), [("1.0", "ACK"), ("1.1", "ACK"), ("1.1", "NACK"), ("1.2", "ACK"), ("1.2", "NACK")]
)
def["0.9", "", "x", "1 .1", "1"]test_a_received_message_in_a_transaction(version, command, mode, persistent):
["0.9", "", "x", "1 .1", "1"]   bench = Bench(store=MemoryStore())
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, version)
["0.9", "", "x", "1 .1", "1"]   queue, session = queue_of(bench), peer.session
["0.9", "", "x", "1 .1", "1"]   for body in (b"1", b"2"):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", body, persistent=persistent)
["0.9", "", "x", "1 .1", "1"]   before = session.memory.spare
["0.9", "", "x", "1 .1", "1"]   message = receive(peer, ack=mode)
["0.9", "", "x", "1 .1", "1"]   for end in ("ABORT", "ABORT", "COMMIT"):
["0.9", "", "x", "1 .1", "1"]       send(peer, "BEGIN", transaction="t")
["0.9", "", "x", "1 .1", "1"]       peer.ack(message, command, transaction="t")
["0.9", "", "x", "1 .1", "1"]       session.outbox.starved = True
["0.9", "", "x", "1 .1", "1"]       session.refill()  # it gets no further message
["0.9", "", "x", "1 .1", "1"]       assert (queue.count, len(queue.messages), len(session.consumers)) == (2, 1, 1)
["0.9", "", "x", "1 .1", "1"]       send(peer, end, transaction="t", receipt="r")
["0.9", "", "x", "1 .1", "1"]       assert [frame.command for frame in peer.take()] == ["RECEIPT"]
["0.9", "", "x", "1 .1", "1"]       if end == "ABORT":  # it is unacknowledged again
["0.9", "", "x", "1 .1", "1"]           (consumer,) = session.consumers.values()
["0.9", "", "x", "1 .1", "1"]           assert (list(consumer.unacked), len(queue.messages), session.windows.total) == ([1], 1, 1)
["0.9", "", "x", "1 .1", "1"]   again = command == "NACK"
["0.9", "", "x", "1 .1", "1"]   assert (queue.count, len(queue.messages)) == (1 + again, 1 + again)
["0.9", "", "x", "1 .1", "1"]   assert (session.consumers, session.by_number, queue.consumers) == ({}, {}, [])
["0.9", "", "x", "1 .1", "1"]   assert (session.windows.total, session.memory.spare) == (0, before)
["0.9", "", "x", "1 .1", "1"]   assert [receive(peer).body for _ in range(queue.count)] == ([b"1", b"2"] if again else [b"2"])


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("S10-TX-05", "WISH-RCV-01")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("command", ["ACK", "NACK"])
def["0.9", "", "x", "1 .1", "1"]test_a_received_message_is_acknowledged_after_an_abort(command):
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"1")
["0.9", "", "x", "1 .1", "1"]   message = receive(peer, ack="client-individual")
["0.9", "", "x", "1 .1", "1"]   send(peer, "BEGIN", transaction="t")
["0.9", "", "x", "1 .1", "1"]   peer.ack(message, command, transaction="t")
["0.9", "", "x", "1 .1", "1"]   send(peer, "ABORT", transaction="t")
["0.9", "", "x", "1 .1", "1"]   peer.ack(message, receipt="r")
["0.9", "", "x", "1 .1", "1"]   assert peer.next("RECEIPT").headers["receipt-id"] == "r"
["0.9", "", "x", "1 .1", "1"]   assert (queue_of(bench).count, peer.session.consumers) == (0, {})


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("S12-TX-05")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("aborted", [False, True])
def["0.9", "", "x", "1 .1", "1"]test_a_received_message_returns_when_its_session_ends_in_a_transaction(aborted):
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   peer, other = peers(bench, "1.2", "1.2")
["0.9", "", "x", "1 .1", "1"]   for body in (b"1", b"2"):
["0.9", "", "x", "1 .1", "1"]       other.put("/queue/a", body)
["0.9", "", "x", "1 .1", "1"]   message = receive(peer, ack="client-individual")
["0.9", "", "x", "1 .1", "1"]   send(peer, "BEGIN", transaction="t")
["0.9", "", "x", "1 .1", "1"]   peer.ack(message, transaction="t")
["0.9", "", "x", "1 .1", "1"]   if aborted:
["0.9", "", "x", "1 .1", "1"]       send(peer, "ABORT", transaction="t")
["0.9", "", "x", "1 .1", "1"]   peer.lose()
["0.9", "", "x", "1 .1", "1"]   assert queue_of(bench).consumers == []
["0.9", "", "x", "1 .1", "1"]   assert [receive(other).body, receive(other).body] == [b"1", b"2"]


@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("persistent", ["true", "false"])
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("command", ["ACK", "NACK"])
def["0.9", "", "x", "1 .1", "1"]test_a_long_transaction_ends_what_was_received(command, persistent):
["0.9", "", "x", "1 .1", "1"]   bench = Bench(store=MemoryStore())
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"1", persistent=persistent)
["0.9", "", "x", "1 .1", "1"]   message = receive(peer, ack="client-individual")
["0.9", "", "x", "1 .1", "1"]   send(peer, "BEGIN", transaction="t")
["0.9", "", "x", "1 .1", "1"]   for _ in range(AT_ONCE):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/b", b"x", transaction="t", persistent=persistent)
["0.9", "", "x", "1 .1", "1"]   peer.ack(message, command, transaction="t")
["0.9", "", "x", "1 .1", "1"]   send(peer, "COMMIT", transaction="t", receipt="r")
["0.9", "", "x", "1 .1", "1"]   bench.turn()
["0.9", "", "x", "1 .1", "1"]   assert [frame.command for frame in peer.take()] == ["RECEIPT"]
["0.9", "", "x", "1 .1", "1"]   queue = queue_of(bench)
["0.9", "", "x", "1 .1", "1"]   assert (queue.count, len(queue.messages)) == ((1, 1) if command == "NACK" else (0, 0))
["0.9", "", "x", "1 .1", "1"]   assert (peer.session.consumers, queue.consumers, peer.session.windows.total) == ({}, [], 0)


def["0.9", "", "x", "1 .1", "1"]test_receive_and_subscriptions_share_a_queue():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   one, other = peers(bench, "1.2", "1.2")
["0.9", "", "x", "1 .1", "1"]   other.subscribe("/queue/a", ack="client-individual", prefetch_count="1")
["0.9", "", "x", "1 .1", "1"]   for body in (b"1", b"2", b"3"):
["0.9", "", "x", "1 .1", "1"]       one.put("/queue/a", body)
["0.9", "", "x", "1 .1", "1"]   assert receive(one).body == b"2"
["0.9", "", "x", "1 .1", "1"]   message = other.next("MESSAGE")
["0.9", "", "x", "1 .1", "1"]   assert message.body == b"1"
["0.9", "", "x", "1 .1", "1"]   other.ack(message)
["0.9", "", "x", "1 .1", "1"]   assert other.next("MESSAGE").body == b"3"


def["0.9", "", "x", "1 .1", "1"]test_receive_finds_by_selector():
["0.9", "", "x", "1 .1", "1"]   pytest.importorskip("lark")
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   for n in ("1", "2", "3"):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", n, n=n)
["0.9", "", "x", "1 .1", "1"]   assert receive(peer, selector="n = 2").body == b"2"
["0.9", "", "x", "1 .1", "1"]   assert receive(peer, selector="n > 7").command == "EMPTY"
["0.9", "", "x", "1 .1", "1"]   assert [receive(peer).body, receive(peer).body] == [b"1", b"3"]


@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("end", ["ack", "nack", "lose"])
def["0.9", "", "x", "1 .1", "1"]test_receive_beside_consumers_that_pick(end):
["0.9", "", "x", "1 .1", "1"]   pytest.importorskip("lark")
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   peer, other = peers(bench, "1.2", "1.2")
["0.9", "", "x", "1 .1", "1"]   other.subscribe("/queue/a", selector="n > 2", ack="client-individual")
["0.9", "", "x", "1 .1", "1"]   for n in ("1", "2", "3"):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", n, n=n)
["0.9", "", "x", "1 .1", "1"]   assert other.next("MESSAGE").body == b"3"
["0.9", "", "x", "1 .1", "1"]   message = receive(peer, ack="client-individual", selector="n = 2")
["0.9", "", "x", "1 .1", "1"]   assert message.body == b"2"
["0.9", "", "x", "1 .1", "1"]   getattr(peer, end)(*([message] if end != "lose" else []))
["0.9", "", "x", "1 .1", "1"]   (again,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   bodies = [receive(again).body, receive(again).body]
["0.9", "", "x", "1 .1", "1"]   assert bodies == ([b"1", b""] if end == "ack" else [b"1", b"2"])
["0.9", "", "x", "1 .1", "1"]   assert len(queue_of(bench).consumers) == 1


def["0.9", "", "x", "1 .1", "1"]test_receive_keeps_nobody_from_the_queue():
["0.9", "", "x", "1 .1", "1"]   pytest.importorskip("lark")
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   peer, other = peers(bench, "1.2", "1.2")
["0.9", "", "x", "1 .1", "1"]   for n in ("1", "2"):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", n, n=n)
["0.9", "", "x", "1 .1", "1"]   receive(peer, ack="client-individual", exclusive="true")
["0.9", "", "x", "1 .1", "1"]   other.subscribe("/queue/a", selector="n > 0")
["0.9", "", "x", "1 .1", "1"]   assert other.next("MESSAGE").body == b"2"


def["0.9", "", "x", "1 .1", "1"]test_expired_messages_are_not_picked():
["0.9", "", "x", "1 .1", "1"]   pytest.importorskip("lark")
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"old", expiration="1000", n="1")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"new", n="1")
["0.9", "", "x", "1 .1", "1"]   bench.date += 2
["0.9", "", "x", "1 .1", "1"]   assert receive(peer, selector="n = 1").body == b"new"


def["0.9", "", "x", "1 .1", "1"]test_receive_from_a_durable_subscription():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.lose()
["0.9", "", "x", "1 .1", "1"]   peer = bench.peer(connect=False)
["0.9", "", "x", "1 .1", "1"]   peer.parser = type(peer.parser)(None, commands=("PONG", "EMPTY"))
["0.9", "", "x", "1 .1", "1"]   peer.connect(**{"client-id": "me"})
["0.9", "", "x", "1 .1", "1"]   names = {"durable-subscription-name": "daily"}
["0.9", "", "x", "1 .1", "1"]   send(peer, "SUBSCRIBE", destination="/topic/t", id="1", **names)
["0.9", "", "x", "1 .1", "1"]   send(peer, "DISCONNECT")
["0.9", "", "x", "1 .1", "1"]   bench.peer().put("/topic/t", b"1")
["0.9", "", "x", "1 .1", "1"]   peer = bench.peer(connect=False)
["0.9", "", "x", "1 .1", "1"]   peer.parser = type(peer.parser)(None, commands=("PONG", "EMPTY"))
["0.9", "", "x", "1 .1", "1"]   peer.connect(**{"client-id": "me"})
["0.9", "", "x", "1 .1", "1"]   message = receive(peer, "/topic/t", ack="client-individual", **names)
["0.9", "", "x", "1 .1", "1"]   assert message.body == b"1"
["0.9", "", "x", "1 .1", "1"]   peer.ack(message)
["0.9", "", "x", "1 .1", "1"]   assert receive(peer, "/topic/t", **names).command == "EMPTY"
["0.9", "", "x", "1 .1", "1"]   assert not peer.session.consumers
["0.9", "", "x", "1 .1", "1"]   bench.peer().put("/topic/t", b"2")
["0.9", "", "x", "1 .1", "1"]   assert receive(peer, "/topic/t", **names).body == b"2"


def["0.9", "", "x", "1 .1", "1"]test_receive_of_a_topic_finds_nothing_for_nothing_is_kept():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.put("/topic/t", b"1")
["0.9", "", "x", "1 .1", "1"]   assert receive(peer, "/topic/t").command == "EMPTY"
["0.9", "", "x", "1 .1", "1"]   assert receive(peer, "/topic/t", ack="client").command == "EMPTY"


def["0.9", "", "x", "1 .1", "1"]test_expired_messages_are_not_received():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"old", expiration="1000")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"new")
["0.9", "", "x", "1 .1", "1"]   bench.date += 2
["0.9", "", "x", "1 .1", "1"]   assert receive(peer).body == b"new"


@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize(
["0.9", "", "x", "1 .1", "1"]   ("config", "headers", "why"),
["0.9", "", "x", "1 .1", "1"]   [
["0.9", "", "x", "1 .1", "1"]       ({}, {"destination": None}, "RECEIVE lacks destination"),
["0.9", "", "x", "1 .1", "1"]       ({}, {"ack": "sometimes"}, "unknown ack mode"),
["0.9", "", "x", "1 .1", "1"]       ({}, {"browser": "true"}, "RECEIVE cannot browse"),
["0.9", "", "x", "1 .1", "1"]       ({"max_unacked": 1, "prefetch": 1}, {"ack": "client"}, "too many unacknowledged messages"),
["0.9", "", "x", "1 .1", "1"]       ({"max_subscriptions": 1}, {"ack": "client"}, "too many unacknowledged RECEIVEs"),
["0.9", "", "x", "1 .1", "1"]   ],
)
def["0.9", "", "x", "1 .1", "1"]test_what_cannot_be_received_is_refused(config, headers, why):
["0.9", "", "x", "1 .1", "1"]   bench = Bench(**config)
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   for _ in range(2):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", b"x")
["0.9", "", "x", "1 .1", "1"]   send(peer, "RECEIVE", **{"destination": "/queue/a", "id": "1", **headers})
["0.9", "", "x", "1 .1", "1"]   if not peer.closed:
["0.9", "", "x", "1 .1", "1"]       send(peer, "RECEIVE", **{"destination": "/queue/a", "id": "1", **headers})
["0.9", "", "x", "1 .1", "1"]   assert peer.error().headers["message"] == why


def["0.9", "", "x", "1 .1", "1"]test_a_flood_of_receives_gets_all_and_pauses_who_does_not_read():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   for _ in range(100):
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", bytes(40_000))
["0.9", "", "x", "1 .1", "1"]   peer.raw(b"RECEIVE\nid:1\ndestination:/queue/a\n\n\0" * 50)
["0.9", "", "x", "1 .1", "1"]   assert [frame.command for frame in peer.take()] == ["MESSAGE"] * 50
["0.9", "", "x", "1 .1", "1"]   peer.session.writable(False, 0.0)
["0.9", "", "x", "1 .1", "1"]   peer.session.receive(b"RECEIVE\nid:1\ndestination:/queue/a\n\n\0" * 40, 0.0)
["0.9", "", "x", "1 .1", "1"]   assert peer.session.paused


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-RCV-02")
def["0.9", "", "x", "1 .1", "1"]test_a_persistent_message_that_was_received_is_gone_from_the_store():
["0.9", "", "x", "1 .1", "1"]   store = MemoryStore()
["0.9", "", "x", "1 .1", "1"]   bench = Bench(store=store)
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"1", persistent="true")
["0.9", "", "x", "1 .1", "1"]   peer.put("/queue/a", b"2", persistent="true")
["0.9", "", "x", "1 .1", "1"]   assert receive(peer).body == b"1"
["0.9", "", "x", "1 .1", "1"]   message = receive(peer, ack="client-individual")
["0.9", "", "x", "1 .1", "1"]   bench.turn()
["0.9", "", "x", "1 .1", "1"]   assert len(list(store.load())) == 1
["0.9", "", "x", "1 .1", "1"]   peer.ack(message)
["0.9", "", "x", "1 .1", "1"]   assert list(store.load()) == []


def["0.9", "", "x", "1 .1", "1"]test_every_version_is_answered_without_an_id():
["0.9", "", "x", "1 .1", "1"]   bench = Bench()
["0.9", "", "x", "1 .1", "1"]   for version in VERSIONS:
["0.9", "", "x", "1 .1", "1"]       (peer,) = peers(bench, version)
["0.9", "", "x", "1 .1", "1"]       peer.put("/queue/a", b"1")
["0.9", "", "x", "1 .1", "1"]       message = receive(peer, id=None)
["0.9", "", "x", "1 .1", "1"]       assert message.get("subscription") == (None if version == "1.0" else "/queue/a")
["0.9", "", "x", "1 .1", "1"]       assert receive(peer, id=None).get("subscription") == (None if version == "1.0" else "/queue/a")


@given(st["0.9", "", "x", "1 .1", "1"]lists(st.sampled_from(["put", "take", "hold", "ack", "nack", "lose"]), max_size=30), st.sampled_from([1, 3]))
def["0.9", "", "x", "1 .1", "1"]test_no_message_is_lost_or_doubled(steps, window):
["0.9", "", "x", "1 .1", "1"]   bench = Bench(max_attempts=1000, window_messages=window)
["0.9", "", "x", "1 .1", "1"]   (sender,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   queue = queue_of(bench)
["0.9", "", "x", "1 .1", "1"]   ready, held, count = [], [], 0
["0.9", "", "x", "1 .1", "1"]   (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]   for step in steps:
["0.9", "", "x", "1 .1", "1"]       if step == "put":
["0.9", "", "x", "1 .1", "1"]           count += 1
["0.9", "", "x", "1 .1", "1"]           sender.put("/queue/a", str(count), persistent="true" if count % 3 else "false")
["0.9", "", "x", "1 .1", "1"]           ready.append(count)
["0.9", "", "x", "1 .1", "1"]       elif step in ("take", "hold"):
["0.9", "", "x", "1 .1", "1"]           answer = receive(peer, ack="auto" if step == "take" else "client-individual")
["0.9", "", "x", "1 .1", "1"]           assert answer.command == ("MESSAGE" if ready else "EMPTY")
["0.9", "", "x", "1 .1", "1"]           if ready:
["0.9", "", "x", "1 .1", "1"]               assert int(answer.body) == ready.pop(0)
["0.9", "", "x", "1 .1", "1"]               if step == "hold":
["0.9", "", "x", "1 .1", "1"]                   held.append(answer)
["0.9", "", "x", "1 .1", "1"]       elif step == "lose":
["0.9", "", "x", "1 .1", "1"]           peer.lose()
["0.9", "", "x", "1 .1", "1"]           ready = sorted(ready + [int(each.body) for each in held])
["0.9", "", "x", "1 .1", "1"]           held = []
["0.9", "", "x", "1 .1", "1"]           (peer,) = peers(bench, "1.2")
["0.9", "", "x", "1 .1", "1"]       elif held:
["0.9", "", "x", "1 .1", "1"]           message = held.pop()
["0.9", "", "x", "1 .1", "1"]           (peer.ack if step == "ack" else peer.nack)(message)
["0.9", "", "x", "1 .1", "1"]           if step == "nack":
["0.9", "", "x", "1 .1", "1"]               ready = sorted([*ready, int(message.body)])
["0.9", "", "x", "1 .1", "1"]       assert queue.total == len(ready) + len(held)
["0.9", "", "x", "1 .1", "1"]       assert len(peer.session.consumers) == len(held)
["0.9", "", "x", "1 .1", "1"]   assert peer.take() == []


#["0.9", "", "x", "1 .1", "1"]---- negotiation by the header version, and keep-alives ----


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-NEG-01", "WISH-NEG-02", "WISH-NEG-03")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize(
["0.9", "", "x", "1 .1", "1"]   ("headers", "version"),
["0.9", "", "x", "1 .1", "1"]   [
["0.9", "", "x", "1 .1", "1"]       ("version:1.1\n", "1.1"),
["0.9", "", "x", "1 .1", "1"]       ("version:1.2\n", "1.2"),
["0.9", "", "x", "1 .1", "1"]       ("version:1.7\n", "1.2"),
["0.9", "", "x", "1 .1", "1"]       ("version:2.0\n", "1.2"),
["0.9", "", "x", "1 .1", "1"]       ("version:1.0\n", "1.0"),
["0.9", "", "x", "1 .1", "1"]       ("", "1.0"),
["0.9", "", "x", "1 .1", "1"]       ("version:1.1\naccept-version:1.2\n", "1.2"),
["0.9", "", "x", "1 .1", "1"]   ],
)
def["0.9", "", "x", "1 .1", "1"]test_the_highest_version_of_both(headers, version):
["0.9", "", "x", "1 .1", "1"]   bench = Bench(version_header=True)
["0.9", "", "x", "1 .1", "1"]   peer = bench.peer(connect=False)
["0.9", "", "x", "1 .1", "1"]   peer.raw(f"CONNECT\nlogin:a\nhost:/\n{headers}\n\0".encode())
["0.9", "", "x", "1 .1", "1"]   assert peer.next("CONNECTED").headers["version"] == version
["0.9", "", "x", "1 .1", "1"]   assert peer.session.version == version


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-NEG-02")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize("version", ["0.9", "", "x", "1.1 ", "1"])
def["0.9", "", "x", "1 .1", "1"]test_a_version_below_ours_or_none_is_refused(version):
["0.9", "", "x", "1 .1", "1"]   peer = Bench(version_header=True).peer(connect=False)
["0.9", "", "x", "1 .1", "1"]   peer.raw(f"CONNECT\nversion:{version}\nhost:/\n\n\0".encode())
["0.9", "", "x", "1 .1", "1"]   error = peer.error()
["0.9", "", "x", "1 .1", "1"]   assert (error.headers["message"], error.headers["version"]) == ("no common version", "1.0,1.1,1.2")


def["0.9", "", "x", "1 .1", "1"]test_without_the_option_the_header_means_nothing():
["0.9", "", "x", "1 .1", "1"]   peer = Bench().peer(connect=False)
["0.9", "", "x", "1 .1", "1"]   peer.raw(b"CONNECT\nversion:1.1\nhost:/\n\n\0")
["0.9", "", "x", "1 .1", "1"]   assert peer.next("CONNECTED").headers["version"] == "1.0"


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-NEG-01", "WISH-NEG-03")
@given(st["0.9", "", "x", "1 .1", "1"]sampled_from(VERSIONS), st.lists(st.sampled_from(VERSIONS), min_size=1, unique=True))
def["0.9", "", "x", "1 .1", "1"]test_a_client_that_names_its_highest_version(highest, versions):
["0.9", "", "x", "1 .1", "1"]   client = Connection(Role.CLIENT, versions=VERSIONS)
["0.9", "", "x", "1 .1", "1"]   client.send(Frame("CONNECT", {"host": "a", "version": highest}))
["0.9", "", "x", "1 .1", "1"]   server = Connection(Role.SERVER, versions=versions, version_header=True)
["0.9", "", "x", "1 .1", "1"]   lower = [version for version in VERSIONS if version in versions and version <= highest]
["0.9", "", "x", "1 .1", "1"]   try:
["0.9", "", "x", "1 .1", "1"]       for _frame in server.receive(b"".join(client.take_output()), 0.0):
["0.9", "", "x", "1 .1", "1"]           server.accept({"session": "1"})
["0.9", "", "x", "1 .1", "1"]   except RemoteProtocolError:
["0.9", "", "x", "1 .1", "1"]       assert not lower
["0.9", "", "x", "1 .1", "1"]       return
["0.9", "", "x", "1 .1", "1"]   list(client.receive(b"".join(server.take_output()), 0.0))
["0.9", "", "x", "1 .1", "1"]   assert (client.version, server.version) == (lower[-1], lower[-1])


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-NEG-02", "WISH-NEG-03")
@pytest["0.9", "", "x", "1 .1", "1"]mark.parametrize(("answer", "version"), [("1.1", "1.1"), ("1.3", "1.2"), (None, "1.0"), ("1.0", "1.0")])
def["0.9", "", "x", "1 .1", "1"]test_a_client_and_a_server_of_the_wish_list(answer, version):
["0.9", "", "x", "1 .1", "1"]   client = Handshake(VERSIONS, (0, 0))
["0.9", "", "x", "1 .1", "1"]   client.connect_frame(Frame("CONNECT", {"host": "a", "version": "1.2"}))
["0.9", "", "x", "1 .1", "1"]   assert client.on_connected(Frame("CONNECTED", {} if answer is None else {"version": answer})) == version
["0.9", "", "x", "1 .1", "1"]   assert negotiate_wishlist("1.2", answer) == version


@pytest["0.9", "", "x", "1 .1", "1"]mark.req("WISH-KAL-01", "WISH-KAL-02")
def["0.9", "", "x", "1 .1", "1"]test_keep_alives_are_heart_beats_and_who_sends_none_is_dropped():
["0.9", "", "x", "1 .1", "1"]   bench = Bench(version_header=True, heart_beat=(1000, 1000))
["0.9", "", "x", "1 .1", "1"]   peer = bench.peer(connect=False)
["0.9", "", "x", "1 .1", "1"]   peer.raw(b"CONNECT\nversion:1.1\nhost:/\nheart-beat:1000,2000\n\n\0")
["0.9", "", "x", "1 .1", "1"]   connected = peer.next("CONNECTED")
["0.9", "", "x", "1 .1", "1"]   assert (connected.headers["version"], connected.headers["heart-beat"]) == ("1.1", "1000,1000")
["0.9", "", "x", "1 .1", "1"]   for _ in range(5):
["0.9", "", "x", "1 .1", "1"]       bench.wait(1.0)
["0.9", "", "x", "1 .1", "1"]       peer.raw(b"\n")
["0.9", "", "x", "1 .1", "1"]   assert not peer.closed
["0.9", "", "x", "1 .1", "1"]   assert peer.octets.endswith(b"\n\n")
["0.9", "", "x", "1 .1", "1"]   bench.wait(3.0)
["0.9", "", "x", "1 .1", "1"]   assert peer.error().headers["message"] == "heart-beats are missing"
