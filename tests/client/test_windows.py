"""Windows in bytes, as of Artemis, and what waits for the end of a transaction, with a scripted server."""

import asyncio
import logging
import random
from collections import deque
from contextvars import Context

import pytest
from client.broker import BrokerThread
from client.scripted import Scripted, outcome
from patience import patience

import stompcodec.client as stomp
from stompcodec.errors import LocalProtocolError

ARTEMIS = "ActiveMQ-Artemis/2.40.0"
TYPED = {"subscription-type": "ANYCAST"}


class ByteWindows:
    """A queue whose consumers have windows in bytes: a message goes to each in turn that has a byte left.

    An ACK gives back what its messages took, in mode `client` those before it of the same consumer.
    """

    def __init__(self, client, sizes):
        self.client, self.sizes = client, deque(enumerate(sizes))
        self.credit, self.unacked, self.modes, self.turns = {}, {}, {}, deque()

    def serve(self):
        for frame in self.client.frames():
            headers = frame.headers
            if frame.command == "SUBSCRIBE":
                id = headers["id"]
                self.modes[id], self.unacked[id] = headers["ack"], {}
                self.credit[id] = int(headers["consumer-window-size"])
                self.turns.append(id)
            elif frame.command == "ACK":
                self._acked(headers)
            if frame.get("receipt") is not None:
                self.client.receipt(frame)
        while self.sizes and (id := self._next()) is not None:
            number, size = self.sizes.popleft()
            pairs = {"subscription": id, "message-id": f"m{number}", "destination": "/queue/a"}
            if self.client.version == "1.2":
                pairs["ack"] = f"m{number}"
            self.credit[id] -= size + 100
            self.unacked[id][f"m{number}"] = size + 100
            self.client.answer("MESSAGE", pairs, bytes(size))

    def _next(self):
        for _ in range(len(self.turns)):
            self.turns.rotate(-1)
            if self.credit[self.turns[0]] > 0:
                return self.turns[0]
        return None

    def _acked(self, headers):
        name = headers.get("id") or headers["message-id"]
        (id,) = [id for id, held in self.unacked.items() if name in held]
        assert headers.get("subscription") in (None, id)
        earlier = list(self.unacked[id])[: list(self.unacked[id]).index(name) + 1]
        for each in earlier if self.modes[id] == "client" else [name]:
            self.credit[id] += self.unacked[id].pop(each)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("seed", range(8))
def test_a_program_that_holds_less_than_its_prefetch_gets_the_next_message(ack, version, seed):
    """Whatever the sizes, and whatever it acknowledges meanwhile; all come in order, and all are acknowledged."""
    chance = random.Random(seed)
    prefetch, most = chance.randint(1, 12), chance.choice([10, 3_000, 1_000_000])
    client = Scripted(server=ARTEMIS, version=version).connect()
    queue = ByteWindows(client, [chance.randint(0, most) for _ in range(60)])
    subscription = client.subscribe(ack, prefetch=prefetch, headers=TYPED)
    queue.serve()
    held, seen = deque(), []
    for _ in range(60):
        if not subscription.batch:
            client.core.inbound.take(subscription)
        if not subscription.batch:
            client.core.waits(subscription, client.now, polls=False)
            queue.serve()
            client.core.inbound.take(subscription)
        assert subscription.batch, f"it stalls with {len(held)} of {prefetch}"
        held.append(subscription.batch.popleft())
        seen.append(held[-1].id)
        while held and (len(held) == prefetch or chance.random() < 0.3):
            message = held.pop() if ack == "client" else held[chance.randrange(len(held))]
            client.ack(message)
            held.clear() if ack == "client" else message in held and held.remove(message)
            queue.serve()
    for message in list(held)[-1:] if ack == "client" else held:
        client.ack(message)
    queue.serve()
    assert seen == [f"m{number}" for number in range(60)]
    assert not any(queue.unacked.values())
    assert len(queue.modes) <= prefetch


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_one_more_consumer_serves_batches_of_one_size(ack):
    """While it can deliver, the program may wait as often as it likes: an empty queue is no reason for another one."""
    client = Scripted(server=ARTEMIS).connect()
    queue = ByteWindows(client, [])
    subscription = client.subscribe(ack, prefetch=5, headers=TYPED)
    queue.serve()
    for _ in range(4):
        held = []
        for number in range(5):
            queue.sizes.append((number, 100_000))
            for _ in range(3):
                client.core.waits(subscription, client.now, polls=False)
                queue.serve()
            held += client.take(subscription)
        assert len(held) == 5
        for message in held[-1:] if ack == "client" else held:
            assert client.core.acknowledge(message) or client.ack(message) is None
        queue.serve()
    assert len(queue.modes) == 2


def test_a_window_full_of_headers_grows_after_a_while():
    """Headers are not measured; the broker that delivers nothing tells."""
    client = Scripted(server=ARTEMIS).connect()
    subscription = client.subscribed("client-individual", prefetch=5, headers=TYPED)
    client.deliver(subscription, long="x" * 6_000)
    client.core.waits(subscription, client.now, polls=False)
    assert client.commands() == []
    client.wait(31)
    assert client.commands() == ["SUBSCRIBE"]
    client.wait(300)
    assert client.commands() == []


@pytest.mark.parametrize("typed", [True, False])
def test_more_consumers_only_where_they_share_the_messages(typed):
    """To another consumer of a topic each message comes again."""
    client = Scripted(server=ARTEMIS).connect()
    subscription = client.subscribed("client-individual", prefetch=5, destination="/queue/a" if typed else "a")
    client.deliver(subscription, body=bytes(100_000))
    client.core.waits(subscription, client.now, polls=False)
    assert client.commands() == ["SUBSCRIBE"] * typed


def test_the_consumers_of_a_subscription_end_with_it():
    client = Scripted(server=ARTEMIS).connect()
    subscription = client.subscribed("client-individual", prefetch=5, headers=TYPED)
    message = client.deliver(subscription, body=bytes(100_000))
    client.core.waits(subscription, client.now, polls=False)
    (spare,) = client.frames()
    client.lose()
    client.connect()
    assert [frame.get("id") for _, frame in client.seen if frame.command == "SUBSCRIBE"] == [
        "s1",
        spare.get("id"),
        "s1",
    ]
    assert not client.core.inbound.windows.spares
    message = client.deliver(subscription, body=bytes(100_000))
    client.core.waits(subscription, client.now, polls=False)
    client.frames()
    client.core.inbound.unsubscribe(subscription, client.now)
    assert sorted(frame.get("id") for frame in client.frames()) == ["s1", spare.get("id")]
    assert client.core.is_stale(message)


def test_a_large_prefetch_is_a_window_that_brokers_read():
    client = Scripted(server=ARTEMIS).connect()
    client.subscribe("client", prefetch=2**31 - 1)
    assert client.frames()[0].get("consumer-window-size") == str(2**31 - 1)


@pytest.mark.parametrize("server", [ARTEMIS, "stompcodec/1 as artemis"])
def test_mode_auto_has_no_window_in_bytes(server):
    client = Scripted(server=server).connect()
    client.subscribe("auto", prefetch=5)
    assert client.frames()[0].get("consumer-window-size") is None


def test_windows_that_mean_never_are_refused():
    """Also if the broker is known only later: then the subscription ends with the error."""
    for server, name, values in [
        ("ActiveMQ/6.3.1", "activemq.prefetchSize", ("0", "-1", "abc", "")),
        (ARTEMIS, "consumer-window-size", ("-2", "abc", "99999999999")),
    ]:
        for value in values:
            client = Scripted(server=server)
            early = client.subscribe("client", headers={name: value})
            client.connect(confirm=False)
            assert isinstance(early.error, ValueError)
            with pytest.raises(ValueError, match=f"{name}.* as {value!r}"):
                client.subscribe("client", headers={name: value})
            assert client.commands() == []


def test_a_subscription_that_holds_messages_and_gets_none_is_named_once(caplog):
    client = Scripted(server=ARTEMIS, heart_beat=(0, 0)).connect()
    subscription, other = client.subscribed("client-individual", prefetch=3), client.subscribed("client-individual")
    client.ack(client.deliver(other))
    client.deliver(subscription, body=bytes(2_000))
    client.deliver(subscription, "m2", body=bytes(1_000))
    client.wait(59)
    with caplog.at_level(logging.WARNING):
        assert not caplog.records
        client.wait(600)
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith("/queue/s1: no message came for 60 s, while 2 unsettled messages of about 3000 bytes")
    assert "3 messages (consumer-window-size:3072)" in said


def test_nothing_ticks_without_acknowledgements():
    client = Scripted(server=ARTEMIS).connect()
    client.deliver(client.subscribed("auto"))
    client.core.inbound.unsubscribe(client.subscribed("client"), client.now)
    client.wait(20)
    assert client.core.link.next_deadline() is None


# ---- transactions of brokers where ACK is never part of one ----


@pytest.fixture(params=["client", "client-individual"])
def held(request):
    """Two messages that an open transaction acknowledges."""
    client = Scripted(server=ARTEMIS).connect()
    subscription = client.subscribed(request.param, prefetch=3)
    messages = [client.deliver(subscription, f"m{number}") for number in range(3)]
    transaction = client.begin()
    for message in messages[:2]:
        client.ack(message, transaction=transaction)
    assert client.commands() == ["BEGIN"]
    return client, subscription, messages, transaction


def test_acks_of_a_transaction_follow_the_receipt_of_its_commit(held):
    client, _, messages, transaction = held
    call = client.finish(transaction)
    (commit,) = client.frames()
    client.receipt(commit)
    assert outcome(call) == "accepted"
    assert [(frame.command, frame.get("id")) for frame in client.frames()] == [("ACK", "am0"), ("ACK", "am1")]
    assert [message.settled for message in messages] == ["ACK", "ACK", ""]
    assert not messages[0].is_confirmed


@pytest.mark.parametrize("end", ["abort", "refused", "lost", "unknown", "closed", "ended"])
def test_acks_of_a_transaction_are_not_sent_unless_it_is_committed(held, end):
    client, subscription, messages, transaction = held
    if end == "abort":
        client.finish(transaction, "ABORT")
        client.confirm_all()
    elif end == "ended":  # the broker has the messages back before the answer comes
        client.finish(transaction)
        (commit,) = client.frames()
        client.core.inbound.unsubscribe(subscription, client.now)
        client.receipt(commit)
    elif end != "closed":
        if end != "lost":
            client.finish(transaction)
            (commit,) = client.frames()
        if end == "refused":
            client.version = "1.1"
            client.error(commit)
        elif end == "unknown":
            client.wait(31)
            assert transaction.state == "unknown"
        if end != "refused":
            client.lose()
            client.connect()
    else:
        client.core.close(client.now, client.call())
    assert "ACK" not in [*client.commands(), *(frame.command for _, frame in client.seen)]
    if end == "abort":
        assert [message.settled for message in messages] == ["", "", ""]
        client.ack(messages[1])
        assert client.commands() == ["ACK"]


def test_a_late_answer_to_commit_releases_the_acks(held):
    client, _, _, transaction = held
    client.finish(transaction)
    (commit,) = client.frames()
    client.wait(31)
    assert transaction.state == "unknown"
    assert client.commands() == []
    client.receipt(commit)
    assert client.commands() == ["ACK", "ACK"]


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_a_later_ack_outside_does_not_cover_one_that_is_held(held, command):
    """In mode `client` it waits as well, and an ABORT leaves all unsettled."""
    client, subscription, messages, transaction = held
    if subscription.cumulative:
        with pytest.raises(LocalProtocolError, match="commit or abort first"):
            client.ack(messages[2], call=client.call())
    client.ack(messages[2])
    assert client.commands() == ["ACK"] * (not subscription.cumulative)
    client.finish(transaction, command)
    client.confirm_all()
    last = [frame.get("id") for frame in client.frames()][-1:]
    if command == "COMMIT":
        assert last == ["am2" if subscription.cumulative else "am1"]
    else:
        assert last == []
        assert subscription.open == (3 if subscription.cumulative else 2)


def test_a_receive_that_waits_for_its_own_transaction_is_an_error(held):
    client, subscription, _, transaction = held
    with pytest.raises(LocalProtocolError, match=r"acknowledges 2, fill the prefetch of 3.* a larger prefetch="):
        client.core.waits(subscription, client.now, polls=False)
    client.core.waits(subscription, client.now, polls=True)
    Context().run(client.core.waits, subscription, client.now, polls=False)  # another thread commits it
    client.finish(transaction)
    client.confirm_all()
    client.core.waits(subscription, client.now, polls=False)


def test_a_task_that_waits_for_its_own_transaction_gets_an_error():
    async def main(url):
        async with stomp.connect_async(url) as client:
            await client.send_many([("/queue/a", b"1"), ("/queue/a", b"2")])
            subscription = client.subscribe("/queue/a", ack="client-individual", prefetch=1)
            async with client.transaction() as transaction:
                await transaction.ack(await subscription.get(patience(10)))
                assert await subscription.get(0) is None
                with pytest.raises(LocalProtocolError, match="prefetch of 1"):
                    await subscription.get(patience(10))
            return (await subscription.get(patience(10))).body

    with BrokerThread(dialect="artemis") as broker:
        assert asyncio.run(main(broker.url)) == b"2"
