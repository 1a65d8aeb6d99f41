"""Windows in bytes, as of Artemis, with a scripted server."""

import logging
import random
from collections import deque

import pytest
from client.scripted import Scripted

from stompcodec.client.handlers import holding

ARTEMIS = "ActiveMQ-Artemis/2.40.0"
TYPED = {"subscription-type": "ANYCAST"}
versions = pytest.mark.parametrize("version", ["1.1", "1.2"])


def full(client, subscription, number="m1"):
    """What the client sends once its window is full, while the program holds fewer messages than its prefetch."""
    client.deliver(subscription, number, body=bytes(100_000))
    client.core.waits(subscription, client.now, polls=False)
    return client.frames()


def spared(version="1.2", server=ARTEMIS, **options):
    client = Scripted(server=server, version=version).connect()
    options = {"ack": "client-individual", "prefetch": 5, "headers": TYPED, **options}
    subscription = client.subscribed(**options)
    (spare,) = full(client, subscription)
    return client, subscription, spare


class ByteWindows:
    """A queue whose consumers have windows in bytes: a message goes to each in turn that has a byte left. An ACK gives
    back what its messages took, in mode `client` those before it of the same consumer."""

    def __init__(self, client, sizes):
        self.client, self.sizes = client, deque(enumerate(sizes))
        self.credit, self.unacked, self.modes, self.turns = {}, {}, {}, deque()

    def serve(self):
        for frame in self.client.confirm_all():
            headers = frame.headers
            if frame.command == "SUBSCRIBE":
                id = headers["id"]
                self.modes[id], self.unacked[id] = headers["ack"], {}
                self.credit[id] = int(headers["consumer-window-size"])
                self.turns.append(id)
            elif frame.command == "ACK":
                self._acked(headers)
        while self.sizes and any(credit > 0 for credit in self.credit.values()):
            self.turns.rotate(-1)
            if self.credit[id := self.turns[0]] > 0:
                number, size = self.sizes.popleft()
                pairs = {"subscription": id, "message-id": f"m{number}", "destination": "/queue/a"}
                more = {"ack": f"m{number}"} if self.client.version == "1.2" else {}
                self.credit[id] -= size + 100
                self.unacked[id][f"m{number}"] = size + 100
                self.client.answer("MESSAGE", {**pairs, **more}, bytes(size))

    def _acked(self, headers):
        name = headers.get("id") or headers["message-id"]
        (id,) = [id for id, held in self.unacked.items() if name in held]
        assert headers.get("subscription") in (None, id)
        earlier = list(self.unacked[id])[: list(self.unacked[id]).index(name) + 1]
        for each in earlier if self.modes[id] == "client" else [name]:
            self.credit[id] += self.unacked[id].pop(each)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@versions
@pytest.mark.parametrize("seed", range(8))
def test_a_program_that_holds_less_than_its_prefetch_gets_the_next_message(ack, version, seed):
    chance = random.Random(seed)
    prefetch, most = chance.randint(1, 12), chance.choice([10, 3_000, 1_000_000])
    client = Scripted(server=ARTEMIS, version=version).connect()
    queue = ByteWindows(client, [chance.randint(0, most) for _ in range(60)])
    subscription = client.subscribe(ack, prefetch=prefetch, headers=TYPED)
    queue.serve()
    held, seen, inbound = deque(), [], client.core.inbound

    def is_there():
        if seed % 2 and subscription.inbox:  # as for middleware
            subscription.batch.append(inbound.take_one(subscription))
        elif not subscription.batch:
            inbound.take(subscription)
        return subscription.batch

    for _ in range(60):
        if not is_there():
            client.core.waits(subscription, client.now, polls=False)
            queue.serve()
            assert is_there(), f"it stalls with {len(held)} of {prefetch}"
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


@pytest.mark.parametrize(
    ("destination", "headers", "shares"),
    [
        *(("/queue/a", {}, True), ("a", {}, False), ("a", TYPED, True), ("a", {**TYPED, "browser": "true"}, False)),
        ("a", {**TYPED, "browser": "TRUE"}, False),
    ],
)
def test_more_consumers_only_where_they_share_the_messages(destination, headers, shares):
    """To another consumer of a topic, and to another browser, each message comes again."""
    client = Scripted(server=ARTEMIS).connect()
    subscription = client.subscribed("client-individual", prefetch=5, destination=destination, headers=headers)
    assert [frame.command for frame in full(client, subscription)] == ["SUBSCRIBE"] * shares


def test_the_consumers_of_a_subscription_end_with_it():
    client, subscription, spare = spared(ack="client")
    client.receipt(spare)
    for id, number in ((spare.headers["id"], "m2"), ("s1", "m3")):
        pairs = {"subscription": id, "message-id": number, "ack": number, "destination": "/queue/s1"}
        client.answer("MESSAGE", pairs)
    client.core.link.writable(False)
    client.ack(client.take(subscription)[-1])  # and one for the last message of the other consumer
    client.again()
    asked = [frame.get("id") for _, frame in client.seen if frame.command == "SUBSCRIBE"]
    assert asked == ["s1", spare.get("id"), "s1"]
    assert not client.core.inbound.windows.spares
    message = client.deliver(subscription, "m2", body=bytes(100_000))
    client.core.waits(subscription, client.now, polls=False)
    client.frames()
    client.core.inbound.unsubscribe(subscription, client.now)
    assert sorted(frame.get("id") for frame in client.frames()) == ["s1", spare.get("id")]
    assert client.core.is_stale(message)
    assert "ACK" not in [frame.command for _, frame in client.seen]


@pytest.mark.parametrize(
    ("server", "ack", "prefetch", "window"),
    [
        (ARTEMIS, "client", 2**31 - 1, str(2**31 - 1)),  # that brokers read
        *((ARTEMIS, "auto", 5, None), ("stompcodec/1 as artemis", "auto", 5, None)),
    ],
)
def test_the_largest_window_in_bytes_and_none(server, ack, prefetch, window):
    client = Scripted(server=server).connect()
    client.subscribe(ack, prefetch=prefetch)
    assert client.frames()[0].get("consumer-window-size") == window


@pytest.mark.parametrize(
    ("server", "name", "value"),
    [
        *(("ActiveMQ/6.3.1", "activemq.prefetchSize", value) for value in ("0", "-1", "abc", "")),
        *((ARTEMIS, "consumer-window-size", value) for value in ("-2", "abc", "99999999999")),
    ],
)
def test_windows_that_mean_never_are_refused(server, name, value):
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


def refuse(client, spare, how):
    if how == "named":
        client.error(spare)
    elif how == "said":  # as Artemis 2.40
        client.error(message=f"AMQ339016 Error creating subscription {spare.headers['id']}")
    elif how == "alone":
        client.error(message="no")
    if client.core.link.connection is not None and (how == "closed" or client.version == "1.2"):
        client.lose()


@versions
@pytest.mark.parametrize("how", ["named", "said", "alone", "closed"])
def test_a_further_consumer_that_the_broker_refuses_is_not_asked_for_again(how, version, caplog):
    client, subscription, spare = spared(version)
    asked, most = 1, 2 if how == "closed" else 1  # a connection may be lost by chance
    with caplog.at_level(logging.WARNING):
        refuse(client, spare, how)
        for number in range(5):
            if client.core.link.connection is None:
                client.connect()
            again = full(client, subscription, f"n{number}")
            asked += len(again)
            for frame in again:
                refuse(client, frame, how)
    assert asked == most
    said = [record.getMessage() for record in caplog.records if "further consumer" in record.getMessage()]
    assert len(said) == 1
    assert "consumer-window-size:-1" in said[0]
    assert subscription.news is subscription.error is None  # iterators do not raise it
    client.core.inbound.unsubscribe(subscription, client.now)
    assert [frame.get("id") for frame in client.frames()] == [subscription.id]
    anew = client.subscribed("client-individual", prefetch=5, headers=TYPED)
    assert len(full(client, anew)) == 1


@versions
def test_a_message_of_a_further_consumer_that_cannot_be_read_is_passed_over_as_its_subscription_says(version):
    client, subscription, spare = spared(version, on_unreadable="skip")
    id = spare.headers["id"]
    client.receipt(spare)
    head = f"MESSAGE\nsubscription:{id}\nmessage-id:m2\nack:am2\ndestination:/queue/s1\n"
    client.core.inbound.receive(f"{head}bad\\escape:\\x\n\n\0".encode(), client.now)
    assert client.core.link.connection is not None
    (ack,) = client.frames()
    assert ack.command in ("ACK", "NACK")
    assert dict(ack.headers) == ({"id": "am2"} if version == "1.2" else {"message-id": "m2", "subscription": id})
    assert subscription.open == 1


def test_what_is_sent_for_a_message_names_the_consumer_that_it_came_by():
    client, subscription, spare = spared(server="stompcodec/1 as artemis")
    client.receipt(spare)
    client.core.link.expect_handlers()
    pairs = {"subscription": spare.headers["id"], "message-id": "m2", "ack": "am2", "destination": "/queue/s1"}
    client.answer("MESSAGE", pairs, b"x")
    (message,) = client.take(subscription)
    with holding(message):
        client.send()
    (sent,) = client.frames()
    assert (sent.get("ack"), sent.get("subscription")) == ("m2", spare.headers["id"])
