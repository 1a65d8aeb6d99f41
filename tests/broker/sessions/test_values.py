"""The values of known headers: one is understood, or refused by name; it never silently means something else."""

import logging

import pytest
from broker.harness import Bench
from crash.process import BrokerProcess
from hypothesis import given
from hypothesis import strategies as st

import stompcodec.client as stomp
from stompcodec.broker.sessions.values import NUMBERS
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.codec import Frame, serialize

DIALECTS = ("rabbitmq", "activemq")
#: Headers of SUBSCRIBE that are true or false, with what else they need.
ON_SUBSCRIBE = {
    "durable": {"durable-subscription-name": "d"},
    "exclusive": {},
    "browser": {},
    "browser-end": {"browser": "true"},
    "auto-delete": {},
}

truths = st.sampled_from(["true", "false"]).flatmap(
    lambda word: st.tuples(*(st.sampled_from([letter, letter.upper()]) for letter in word)).map("".join)
)
#: What no broker should take for true or false.
ODD = ("1", "0", "yes", "", " true", "true ", "maybe", "tru", "ｔｒｕｅ", "truefalse", "x" * 200)


def stored(bench, persistent, road="plain", **headers):
    """SEND twice, so that the second one may take the fast roads; the messages that are to be stored."""
    peer = bench.peer()
    peer.put("/queue/a", receipt="warm", persistent="true", **headers)
    if road == "transaction":
        peer.send("BEGIN", transaction="t")
        headers = {**headers, "transaction": "t"}
    peer.put("/queue/a", b"x", receipt="r", persistent=persistent, **headers)
    if road == "transaction":
        peer.send("COMMIT", transaction="t", receipt="c")
    queue = bench.broker.virtual_host("/").destinations.queue("/queue/a")
    return peer, len(list(bench.broker.journal.store.load(queue.key))) - 1


@pytest.mark.parametrize("road", ["plain", "transaction"])
@given(word=truths)
def test_true_in_any_case_is_stored(road, word):
    peer, count = stored(Bench(store=MemoryStore()), word, road)
    assert count == (word.lower() == "true")
    assert peer.take()[-1].command == "RECEIPT"


@pytest.mark.parametrize("road", ["plain", "transaction"])
@pytest.mark.parametrize("value", ODD)
def test_any_other_value_is_refused_by_name(road, value):
    bench = Bench(store=MemoryStore())
    peer, count = stored(bench, value, road)
    error = peer.error()
    assert error.headers["message"] == "bad persistent"
    assert f"persistent is {value[:40]!a}: write true or false.".encode() in error.body
    assert count <= 0
    assert not any(frame.command == "RECEIPT" and frame.headers["receipt-id"] == "r" for frame in peer.take())


@pytest.mark.parametrize("name", ON_SUBSCRIBE)
@pytest.mark.parametrize("value", ["yes", "1", "Tru", ""])
def test_a_subscription_with_a_value_that_is_not_understood_is_refused(name, value):
    peer = Bench(store=MemoryStore()).peer(connect=False)
    peer.connect(client_id="me")
    peer.subscribe("/topic/a" if name == "durable" else "/queue/a", receipt="s", **{name: value}, **ON_SUBSCRIBE[name])
    assert peer.error().headers["message"] == f"bad {name}"


def test_a_durable_subscription_may_say_True():
    bench = Bench(store=MemoryStore())
    peer = bench.peer(connect=False)
    peer.connect(client_id="me")
    peer.subscribe("/topic/a", id="d", durable="True")
    peer.lose()
    bench.peer().put("/topic/a", b"while away", persistent="true")
    peer = bench.peer(connect=False)
    peer.connect(client_id="me")
    peer.subscribe("/topic/a", id="d", durable="TRUE")
    assert peer.bodies() == [b"while away"]


@pytest.mark.parametrize(("value", "letters"), [("False", 1), ("FALSE", 1), ("true", 0), ("True", 0), (None, 0)])
def test_requeue_in_any_case(value, letters):
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", b"x")
    peer.subscribe("/queue/a", ack="client-individual")
    peer.nack(peer.next("MESSAGE"), **({} if value is None else {"requeue": value}))
    assert len(bench.peer().take()) == 0
    other = bench.peer()
    other.subscribe("/queue/DLQ.a")
    assert len(other.take()) == letters
    assert len(peer.take()) == 1 - letters


def test_another_value_of_requeue_is_refused():
    peer = Bench().peer()
    peer.put("/queue/a", b"x")
    peer.subscribe("/queue/a", ack="client-individual")
    peer.nack(peer.next("MESSAGE"), requeue="no")
    assert peer.error().headers["message"] == "bad requeue"


@pytest.mark.parametrize("name", NUMBERS)
@given(value=st.sampled_from(["-1", "x", "", "1.5", "+1", "1e3", "٣", " 1", "9" * 30]))
def test_a_number_that_is_none_is_refused_by_name(name, value):
    peer = Bench().peer()
    peer.raw(serialize(Frame("SEND", {"destination": "/queue/a", "receipt": "r", name: value}, b"x"), "1.2"))
    error = peer.error()
    assert error.headers["message"] == f"bad {name}"
    assert f"{name} is {value!a}".encode() in error.body


@pytest.mark.parametrize(
    ("name", "value"), [("priority", "0"), ("priority", "9"), ("expires", "0"), ("delay", "9" * 15)]
)
def test_numbers_at_their_limits(name, value):
    peer = Bench().peer()
    peer.put("/queue/a", b"x", receipt="r", **{name: value})
    assert peer.next("RECEIPT").headers["receipt-id"] == "r"


@pytest.mark.parametrize(
    ("name", "value"), [("priority", "10"), ("expires", "1" + "0" * 15), ("delay", "1" + "0" * 15)]
)
def test_numbers_one_past_their_limits(name, value):
    peer = Bench().peer()
    peer.put("/queue/a", b"x", receipt="r", **{name: value})
    assert peer.error().headers["message"] == f"bad {name}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_goes_on_and_warns_once_per_connection(dialect, caplog):
    caplog.set_level(logging.WARNING, "stompcodec")
    bench = Bench(dialect=dialect, store=MemoryStore())
    for turn in range(2):
        peer = bench.peer()
        for number in range(3):
            peer.put("/queue/a", b"x", receipt=str(number), persistent="maybe")
            assert peer.next("RECEIPT").headers["receipt-id"] == str(number)
        told = [record for record in caplog.records if "is ignored" in record.message]
        assert len(told) == turn + 1
        assert "persistent is 'maybe'" in told[-1].message
        assert dialect in told[-1].message


def test_spaces_of_STOMP_1_0_do_not_count():
    bench = Bench(store=MemoryStore())
    peer = bench.peer("1.0")
    peer.raw(b"SEND\ndestination:/queue/a\npersistent: True \npriority: 9 \nreceipt:r\n\nx\0")
    assert peer.next("RECEIPT").headers["receipt-id"] == "r"
    queue = bench.broker.virtual_host("/").destinations.queue("/queue/a")
    assert len(list(bench.broker.journal.store.load(queue.key))) == 1


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize("dialect", ["stompcodec", *DIALECTS])
def test_an_empty_destination_is_refused(command, dialect):
    peer = Bench(dialect=dialect).peer()
    peer.send(command, destination="", id="1", receipt="r")
    assert peer.error().headers["message"] == "bad destination"


@pytest.mark.long
def test_a_message_with_persistent_TRUE_survives_a_kill(tmp_path):
    broker = BrokerProcess(tmp_path / "b")
    with broker, stomp.connect(f"stomp://127.0.0.1:{broker.port}") as client:
        for word in ("true", "True", "TRUE"):
            client.send("/queue/a", word, {"persistent": word}, receipt=True)
        broker.kill()
    with broker, stomp.connect(f"stomp://127.0.0.1:{broker.port}") as client:
        subscription = client.subscribe("/queue/a")
        assert [subscription.get(20).body for _ in range(3)] == [b"true", b"True", b"TRUE"]
