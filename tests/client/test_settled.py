"""What the client says of messages and transactions is what the broker does, in all orders of ACK, COMMIT, ABORT."""

import contextlib
import itertools
import logging
from contextvars import Context

import pytest
from client.scripted import Scripted, outcome
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import stompcodec.client as stomp
from stompcodec.errors import LocalProtocolError, ReceiptTimeoutError, StaleAckError
from stompcodec.testing import StompBroker

ARTEMIS = "ActiveMQ-Artemis/2.40.0"
modes = pytest.mark.parametrize("mode", ["client", "client-individual"])
COUNT = 5
numbers, names = st.integers(0, COUNT - 1), st.integers(0, 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), numbers, st.booleans()),
        st.tuples(st.just("in transaction"), numbers, names),
        st.tuples(st.sampled_from(["commit", "abort"]), names),
    ),
    max_size=12,
)
queues = itertools.count()


def walk(client, messages, steps):
    transactions, said = {}, set()
    for kind, number, *more in steps:
        with contextlib.suppress(LocalProtocolError):  # another transaction has it
            if kind == "ack":
                messages[number].ack(receipt=more[0])
                said.add(messages[number])
            elif kind == "in transaction":
                if more[0] not in transactions:
                    transactions[more[0]] = client.transaction().begin()
                transactions[more[0]].ack(messages[number])
            elif number in transactions:
                getattr(transactions.pop(number), kind)()
    return said


def is_settled(message):
    subscription = message.subscription
    covered = subscription.cumulative and not subscription.covered(message.seq)
    return message.seq not in subscription.claims and (bool(message.settled) or covered)


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as broker:
        yield broker


@modes
def test_what_the_client_says_is_what_the_broker_does(broker, mode):
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps)
    def check(steps):
        queue = f"/queue/{mode}{next(queues)}"
        with stomp.connect(broker.url, reconnect=None) as client:
            client.send_many([(queue, b"%d" % number) for number in range(COUNT)])
            subscription = client.subscribe(queue, ack=mode)
            messages = [subscription.get(5) for _ in range(COUNT)]
            said = walk(client, messages, steps)
            client.ping()
            assert client.epoch == 1, "the client sent what the broker refused"
            settled = {message.body for message in messages if is_settled(message)}
        assert {message.body for message in said} <= settled
        with stomp.connect(broker.url) as client:
            again = set()
            while (message := client.receive(queue)) is not None:
                again.add(message.body)
        assert again == {message.body for message in messages} - settled
        event(f"settled: {len(settled)}")

    check()


# ---- a COMMIT without answer ----
def held(client, mode="client-individual", commit=True, count=1):
    subscription = client.subscribed(mode)
    messages = [client.deliver(subscription, f"m{number}") for number in range(count)]
    transaction = client.begin()
    client.ack(messages[-1], transaction=transaction)
    call = client.finish(transaction) if commit else None
    return messages, transaction, call, client.frames()[-1]


def raises(client, message, error, words, **options):
    for command in ("ACK", "NACK"):
        with pytest.raises(error, match=words):
            client.ack(message, command, **options)
    with pytest.raises(error, match=words):
        client.ack(message, call=client.call("ACK", 30.0, "ACK"))
    assert client.commands() == []


def asks_again(client, message):
    call = client.call("ACK", 30.0, "ACK")
    client.ack(message, call=call)
    assert (outcome(call), client.commands()) == ("accepted", [])


@modes
def test_the_outcome_of_a_commit_without_answer_is_unknown(client, mode):
    messages, transaction, call, _ = held(client, mode, count=2 if mode == "client" else 1)
    client.wait(31)
    assert (outcome(call), call.error.sent, transaction.state) == ("ReceiptTimeoutError", True, "unknown")
    assert messages[-1].settled == "unknown"
    assert "unknown" in repr(messages[-1])
    for message in messages:
        raises(client, message, ReceiptTimeoutError, "transaction t1, whose outcome is unknown")
    with pytest.raises(LocalProtocolError, match="outcome of the transaction is unknown"):
        client.finish(transaction)
    with pytest.raises(LocalProtocolError, match="BEGIN not sent"):
        client.core.begin(transaction, client.now)
    client.again()
    for message in messages:
        raises(client, message, StaleAckError, "connection or subscription has ended")
    assert transaction.state == "unknown"


def test_a_late_receipt_resolves_it(client):
    (message,), transaction, _, commit = held(client)
    client.wait(31)
    client.receipt(commit)
    assert message.settled == "ACK"
    for end in (lambda: None, client.lose):
        end()
        assert transaction.state == "committed"
        asks_again(client, message)


@pytest.mark.parametrize("late", [True, False])
def test_a_refused_commit_settles_nothing(late):
    client = Scripted(version="1.1").connect()
    (message,), transaction, _, commit = held(client)
    client.wait(31 * late)
    client.error(commit)
    assert (transaction.state, message.settled) == ("aborted", "")
    client.ack(message)
    assert client.commands() == ["ACK"]


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_what_was_not_sent_in_time_is_aborted_for_good(client, command):
    (message,), transaction, _, _ = held(client, commit=False)
    client.core.link.writable(False)
    call = client.finish(transaction, command)
    client.wait(31)
    assert (outcome(call), call.error.sent, transaction.state) == ("ReceiptTimeoutError", False, "aborted")
    client.ack(message)
    client.core.link.writable(True)
    assert client.commands() == ["ABORT", "ACK"]


def test_a_message_of_an_open_transaction_is_not_settled(client):
    messages, transaction, _, _ = held(client, "client", commit=False, count=2)
    other = client.begin("t2")
    client.frames()
    for message in messages:
        raises(client, message, LocalProtocolError, "settled in transaction t1, which is open")
        raises(client, message, LocalProtocolError, "settled in transaction t1", transaction=other)
        client.ack(message, transaction=transaction)
    assert client.commands() == []
    client.finish(transaction, "ABORT")
    client.ack(messages[0])
    assert client.commands() == ["ABORT", "ACK"]


def test_a_receipt_of_an_ack_that_may_be_lost_is_not_invented(client):
    subscription = client.subscribed("client-individual")
    sure, unsure = client.deliver(subscription, "m1"), client.deliver(subscription, "m2")
    client.ack(sure, call=client.call("ACK", 30.0, "ACK"))
    client.ack(unsure)
    client.confirm_all()
    client.lose()
    client.ack(unsure)  # asks for nothing
    with pytest.raises(StaleAckError, match="nobody knows whether the earlier ACK arrived"):
        client.ack(unsure, call=client.call("ACK", 30.0, "ACK"))
    asks_again(client, sure)


def begun(mode, acknowledged=2, prefetch=3, **options):
    client = Scripted(server=ARTEMIS, **options).connect()
    subscription = client.subscribed(mode, prefetch=prefetch)
    messages = [client.deliver(subscription, f"m{number}") for number in range(3)]
    transaction = client.begin()
    for message in messages[:acknowledged]:
        client.ack(message, transaction=transaction)
    assert client.commands() == ["BEGIN"]
    return client, subscription, messages, transaction


def committing(mode="client-individual", **options):
    client, subscription, _, transaction = begun(mode, **options)
    call = client.finish(transaction)
    (commit,) = client.frames()
    return client, subscription, call, commit


@modes
@pytest.mark.parametrize("late", [False, True])
def test_acks_of_a_transaction_follow_the_receipt_of_its_commit(mode, late):
    client, _, messages, transaction = begun(mode)
    call = client.finish(transaction)
    (commit,) = client.frames()
    if late:
        client.wait(31)
        assert (transaction.state, client.commands()) == ("unknown", [])
    client.receipt(commit)
    assert outcome(call) == ("ReceiptTimeoutError" if late else "accepted")
    assert [(frame.command, frame.get("id")) for frame in client.frames()] == [("ACK", "am0"), ("ACK", "am1")]
    assert [message.settled for message in messages] == ["ACK", "ACK", ""]
    assert not messages[0].is_confirmed


@modes
@pytest.mark.parametrize("end", ["abort", "refused", "lost", "unknown", "closed", "ended"])
def test_acks_of_a_transaction_are_not_sent_unless_it_is_committed(mode, end):
    client, subscription, messages, transaction = begun(mode)
    if end in ("refused", "unknown", "ended"):
        client.finish(transaction)
        (commit,) = client.frames()
    if end == "abort":
        client.finish(transaction, "ABORT")
        client.confirm_all()
    elif end == "ended":  # the broker has the messages back before the answer comes
        client.core.inbound.unsubscribe(subscription, client.now)
        client.receipt(commit)
    elif end == "refused":
        client.version = "1.1"
        client.error(commit)
    elif end == "closed":
        client.core.close(client.now, client.call())
    else:
        client.wait(31 if end == "unknown" else 0)
        assert transaction.state == ("unknown" if end == "unknown" else "open")
        client.again()
    assert "ACK" not in [*client.commands(), *(frame.command for _, frame in client.seen)]
    if end == "abort":
        assert [message.settled for message in messages] == ["", "", ""]
        client.ack(messages[1])
        assert client.commands() == ["ACK"]


@modes
@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_a_later_ack_outside_does_not_cover_one_that_is_held(mode, command):
    client, subscription, messages, transaction = begun(mode)
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
        assert (last, subscription.open) == ([], 3 if subscription.cumulative else 2)


@modes
def test_a_receive_that_waits_for_its_own_transaction_is_an_error(mode):
    client, subscription, _, transaction = begun(mode)
    with pytest.raises(LocalProtocolError, match=r"acknowledges 2, fill the prefetch of 3.* a larger prefetch="):
        client.core.waits(subscription, client.now, polls=False)
    client.core.waits(subscription, client.now, polls=True)
    Context().run(client.core.waits, subscription, client.now, polls=False)  # another thread commits it
    client.finish(transaction)
    client.confirm_all()
    client.core.waits(subscription, client.now, polls=False)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(("acknowledged", "prefetch"), [(2, 3), (3, 3), (3, 4)])
def test_acks_of_a_commit_without_answer_that_fill_the_window_are_named_once(waits, acknowledged, prefetch, caplog):
    client, subscription, call, _ = committing(acknowledged=acknowledged, prefetch=prefetch)
    with caplog.at_level(logging.WARNING):
        client.core.waits(subscription, client.now, polls=False)
        client.wait(29)
        assert not caplog.records
        client.wait(1.5)
        assert outcome(call) == "ReceiptTimeoutError"
        for _ in range(3):
            if waits:
                client.core.waits(subscription, client.now, polls=False)
            client.wait(20)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (prefetch == 3)
    for part in ("transaction t1", "prefetch of 3", f"{acknowledged} of them"):
        assert all(part in text for text in said)


@modes
def test_close_waits_for_the_answer_to_commit_and_sends_the_acks(mode):
    client, _, call, commit = committing(mode)
    closing = [client.call("close") for _ in range(2)]
    for each in closing:
        client.core.close(client.now, each)
    assert client.frames() == []
    client.receipt(commit)
    frames = client.frames()
    assert [frame.command for frame in frames] == ["ACK", "ACK", "DISCONNECT"]
    client.receipt(frames[-1])
    assert {outcome(each) for each in (call, *closing)} == {"accepted"}
    assert client.core.link.state == "closed"


@pytest.mark.parametrize("end", ["refused", "lost", "silent", "silent later"])
def test_close_waits_no_longer_than_its_time(end):
    client, _, call, commit = committing(close_timeout=5.0)
    closing = client.call("close", 60.0)
    client.core.close(client.now, closing)
    if end == "refused":
        client.error(commit)
    elif end == "lost":
        client.lose()
    elif end == "silent later":
        client.wait(3)
        client.receipt(commit)
        assert client.commands() == ["ACK", "ACK", "DISCONNECT"]
        client.wait(1.9)
        assert client.core.link.state == "closing"
        client.wait(0.2)
    else:
        client.wait(5.1)
    assert (client.core.link.state, outcome(closing)) == ("closed", "accepted")
    assert outcome(call) == {"refused": "RejectedError", "silent later": "accepted"}.get(end, "ConnectionLostError")
    assert (client.commands(), client.core.link.next_deadline()) == ([], None)


def test_close_does_not_wait_for_a_commit_that_holds_nothing():
    client, _, _, _ = committing(acknowledged=0)
    client.core.close(client.now, client.call())
    assert client.commands() == ["DISCONNECT"]
