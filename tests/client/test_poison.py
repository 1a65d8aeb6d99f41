"""A message that cannot be processed gives its credit back, on every road by which it can fail: the rest comes."""

import asyncio
import itertools
import logging

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.scripted import Scripted
from client.shells import Seen, Shell
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.config.config import DIALECTS
from stompcodec.client.handlers import WITHOUT_NACK, leave

#: More messages than may be unacknowledged at one time, and how often each is delivered.
COUNT, PREFETCH, ATTEMPTS = 8, 3, 2
#: Three of them fill a window that is counted in bytes.
BODIES = [b"%d" % number + bytes(1100) for number in range(COUNT)]
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=DIALECTS)
def broker(request):
    with BrokerThread(dialect=request.param, max_attempts=ATTEMPTS) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain():
    with BrokerThread(max_attempts=ATTEMPTS, detect_legacy=True) as broker:
        yield broker


@pytest.fixture
def sync():
    shell = Shell("sync")
    yield shell
    shell.stop()


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("stompcodec.client").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("stompcodec.client").setLevel(logging.NOTSET)


def filled(client):
    """A queue with messages."""
    name = f"/queue/poison-{next(_numbers)}"
    client.send_many((name, body) for body in BODIES)
    return name


def letters(client, name, count):
    """Exactly so many dead letters are there."""
    subscription = client.subscribe(f"/queue/DLQ.{name.removeprefix('/queue/')}")
    found = [subscription.get(patience(10)).body for _ in range(count)]
    assert sorted(found) == BODIES[:count]
    client.ping()
    assert subscription.get(0) is None
    subscription.unsubscribe()


def failing(shell, seen, error=ValueError):
    def fail(message):
        seen.add(message.body)
        raise error("no")

    return shell.handler(fail)


@pytest.mark.parametrize("policy", ["nack", "requeue", "discard", "ack", None])
def test_every_policy_frees_the_way_in_every_dialect(sync, broker, policy):
    client, seen = sync.connect(broker.url), Seen()
    name, mode = filled(client), "client-individual" if policy else "auto"
    client.subscribe(name, ack=mode, prefetch=PREFETCH, handler=failing(sync, seen), attempts=1, on_error=policy)
    seen.wait(COUNT * (ATTEMPTS if policy in ("nack", "requeue") else 1))
    letters(client, name, 0 if policy in ("ack", None) else COUNT)


@pytest.mark.parametrize("version", ["legacy", "1.0", "1.1", "1.2"])
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_discarded_messages_free_the_way_in_every_version(sync, plain, version, mode):
    client, seen = sync.connect(plain.url, versions=[version], login="ann", passcode="secret"), Seen()
    name = filled(client)
    client.subscribe(name, ack=mode, prefetch=PREFETCH, handler=failing(sync, seen), on_error="discard", attempts=1)
    seen.wait(COUNT)
    letters(client, name, 0 if version in WITHOUT_NACK else COUNT)  # there an ACK drops them


@pytest.mark.parametrize(
    "options",
    [
        {"on_error": lambda message, error: "discard"},
        {"on_error": "discard", "concurrency": 3},
        {"on_error": "discard", "concurrency": 3, "key": lambda message: message.body},
        {"on_error": "ack", "key": lambda message: 1 / 0, "concurrency": 2},
    ],
    ids=["function", "workers", "lanes", "broken key"],
)
def test_every_way_to_call_handlers_frees_the_way(shell, plain, options):
    client, seen = shell.connect(plain.url), Seen()
    name = filled(client)
    on_error = options["on_error"]
    if "key" in options and on_error == "ack":  # the handler is not called then
        options = {**options, "on_error": lambda message, error: seen.add(message.body) or "ack"}
    client.subscribe(
        name, ack="client-individual", prefetch=PREFETCH, handler=failing(shell, seen), attempts=1, **options
    )
    seen.wait(COUNT)
    letters(client, name, 0 if on_error == "ack" else COUNT)


def test_messages_that_are_taken_one_by_one_free_the_way(shell, plain):
    client = shell.connect(plain.url)
    name = filled(client)
    with client.subscribe(name, ack="client-individual", prefetch=1) as subscription:
        for number in range(COUNT):
            message = subscription.get(patience(10))
            if number % 3 == 0:
                message.nack(requeue=False, receipt=True)
            elif number % 3 == 1:
                with pytest.raises(ValueError, match="no"), message.processing(requeue=False):
                    raise ValueError("no")
            else:
                with client.transaction() as transaction:
                    transaction.nack(message, requeue=False)
    letters(client, name, COUNT)


def test_what_would_end_the_worker_is_a_failure_like_others(shell, plain):
    """SystemExit in a thread, CancelledError of another task in a loop."""
    client, seen = shell.connect(plain.url), Seen()
    name = filled(client)

    async def wait_for_a_cancelled_task(message):
        seen.add(message.body)
        other = asyncio.ensure_future(asyncio.sleep(60))
        other.cancel()
        await other

    handler = failing(shell, seen, SystemExit) if shell.name == "sync" else wait_for_a_cancelled_task
    options = {"ack": "client-individual", "prefetch": PREFETCH, "on_error": "discard", "attempts": 1}
    client.subscribe(name, handler=handler, **options)
    seen.wait(COUNT)
    letters(client, name, COUNT)


# ---- what cannot be had is said ----


def test_requeue_is_refused_where_messages_would_stay_unsettled(shell):
    with Peer(server="ActiveMQ-Artemis/2.31.0") as peer:
        client = shell.connect(peer.url)
        with pytest.raises(stomp.LocalProtocolError, match=r"on_error=.requeue.: the NACK of \S+ cannot requeue"):
            client.subscribe("/queue/a", ack="client", handler=shell.handler(print), on_error="requeue")
        assert not peer.got("SUBSCRIBE")
        subscription = client.subscribe("/queue/b", id="b", ack="client")
        peer.deliver("b", b"x")
        with pytest.raises(stomp.LocalProtocolError, match="cannot requeue"):
            subscription.get(patience(10)).processing(requeue=True)


def test_messages_that_are_left_and_hold_the_whole_prefetch_are_told(caplog):
    logging.getLogger("stompcodec.client").setLevel(logging.ERROR)
    client = Scripted().connect()
    settled, subscription = (client.subscribed("client-individual", prefetch=2) for _ in range(2))
    for number in range(10):
        message = client.deliver(settled, f"m{number}")
        leave(message)
        client.ack(message)  # it holds nothing
    first, second = (client.deliver(subscription, name) for name in ("m1", "m2"))
    leave(first)
    assert not caplog.records
    leave(second)
    assert "hold the whole prefetch of 2" in caplog.text
    caplog.clear()
    client.lose()
    client.connect()
    first, second = (client.deliver(subscription, name) for name in ("m1", "m2"))
    leave(first)
    assert not caplog.records  # the other one is being processed
    client.ack(second)
    leave(client.deliver(subscription, "m3"))
    assert "hold the whole prefetch of 2" in caplog.text
