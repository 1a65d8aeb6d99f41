"""A request whose reply the broker refuses becomes a dead letter; the service goes on, and all others are answered."""

import asyncio
import logging

import pytest
from client.broker import BrokerThread
from client.shells import QUICK, Seen
from crash.process import BrokerProcess
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.dialects import BROKERS
from stompcodec.errors import StompError

ATTEMPTS, COUNT = 3, 60
POISON = b"50"
#: What a stranger may ask for as the address of the answer.
LONG, RESERVED, FORBIDDEN = "/queue/" + "x" * 5000, "/management/x", "/queue/closed"
RULES = """
[queues]
max_attempts = 3
[[rules]]
who = "*"
action = "send"
destination = "/queue/closed"
allow = false
[[rules]]
who = "*"
action = "*"
destination = "*"
allow = true
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=RULES) as broker:
        yield broker


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("stompcodec.client").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("stompcodec.client").setLevel(logging.NOTSET)


def url(broker):
    return f"stomp://127.0.0.1:{broker.port}"


def ask(broker, name, reply_to):
    """Requests to a service, one of which wants its answer where it cannot go."""
    with stomp.connect(url(broker)) as client:
        client.send_many(
            (
                f"/queue/{name}",
                b"%d" % number,
                {"reply-to": reply_to if b"%d" % number == POISON else f"/queue/answers-{name}", "persistent": "true"},
            )
            for number in range(COUNT)
        )


def check(broker, name, attempts=ATTEMPTS):
    """All but one were answered, and the one is the only dead letter, after so many attempts that the broker knows of.

    Some are answered twice: what a handler sends after the ERROR goes out on the next connection, as its message comes.
    """
    with stomp.connect(url(broker)) as client:
        dead = client.subscribe(f"/queue/DLQ.{name}")
        letter = dead.get(patience(20))
        assert (letter.body, letter.headers["dead-letter-attempts"]) == (POISON, str(attempts))
        answers, bodies = client.subscribe(f"/queue/answers-{name}"), set()
        while len(bodies) < COUNT - 1:
            bodies.add(answers.get(patience(20)).body)
        assert POISON not in bodies
        client.ping()
        assert dead.get(0) is None


def handler_of(shell, seen, way):
    """A handler of the shell, that notes the body and then answers in one of several ways."""
    if shell.name == "sync":
        client = shell.clients[-1]

        def send(message):
            seen.add(message.body)
            client.send(message.get("reply-to"), message.body)

        return send
    client = shell.clients[-1].target

    async def handle(message):
        seen.add(message.body)
        to, body = message.get("reply-to"), message.body
        if way == "reply":
            await message.reply(body)
        elif way == "commit":
            async with client.transaction() as transaction:
                await transaction.send(to, body)
                await transaction.ack(message)
        elif way == "send_many":
            await client.send_many([(to, body)], receipt_every=0)
        elif way == "processing":
            async with message.processing():
                await client.send(to, body)
        else:
            await client.send(to, body, receipt=way == "receipt")

    return handle


#: `reply` refuses a long address itself, the broker all. The thread has the code of the event loop: it tries one way.
@pytest.mark.parametrize(
    ("shell", "way", "reply_to", "options"),
    [
        ("sync", "send", LONG, {}),
        ("sync", "send", LONG, {"concurrency": 8}),
        *(("async", way, LONG, {}) for way in ("reply", "send", "receipt", "send_many", "commit", "processing")),
        *(("async", way, FORBIDDEN, {}) for way in ("reply", "send")),
        ("async", "send", LONG, {"concurrency": 8}),
    ],
    indirect=["shell"],
    ids=lambda value: value[:12] if isinstance(value, str) else len(value),
)
def test_one_dead_letter_and_all_others_answered(shell, broker, way, reply_to, options):
    name = f"{shell.name}-{way}-{reply_to[7:11]}-{len(options)}"
    ask(broker, name, reply_to)
    client, seen = shell.connect(url(broker), reconnect=QUICK), Seen()
    handler = handler_of(shell, seen, way)
    client.subscribe(f"/queue/{name}", prefetch=COUNT, handler=handler, attempts=ATTEMPTS, **options)
    is_refused_here = way == "reply" and reply_to == LONG  # then the handler is called again in place
    check(broker, name, 1 if is_refused_here else ATTEMPTS)
    assert options or seen.bodies.count(POISON) == ATTEMPTS


def test_a_program_that_takes_messages_itself(shell, broker):
    name = f"{shell.name}-loop"
    ask(broker, name, FORBIDDEN)
    client = shell.connect(url(broker), reconnect=QUICK)
    subscription = client.subscribe(f"/queue/{name}", ack="client-individual", prefetch=COUNT)
    settled = set()
    while len(settled) < COUNT - 1:
        message = subscription.get(patience(20))
        message.reply(message.body)
        try:
            message.ack(receipt=True)
        except StompError:  # it comes again
            continue
        settled.add(message.body)
    check(broker, name)


def test_what_is_sent_outside_of_handlers_counts_against_nobody(shell):
    with BrokerThread(max_attempts=1) as broker:
        client, seen = shell.connect(broker.url, reconnect=QUICK), Seen()
        client.send("/queue/a", b"in hand", receipt=True)
        client.subscribe(
            "/queue/a", ack="client-individual", on_error="ignore", handler=shell.handler(lambda m: fail(seen, m))
        )
        for epoch in range(1, 4):
            seen.wait(epoch)
            client.send(RESERVED, b"")
        seen.wait(4)
        assert client.receive("/queue/DLQ.a") is None


def test_a_task_that_outlives_its_handler_counts_against_no_later_message():
    """Nor does it count against its own message, which was acknowledged when its handler returned."""
    tasks = []

    async def run(url):
        went_on, handled = asyncio.Event(), asyncio.Event()
        async with stomp.connect_async(url, reconnect=QUICK) as client:

            async def later():
                await went_on.wait()
                await client.send(RESERVED, b"", receipt=True)

            async def handle(message):
                if message.body == b"first":
                    tasks.append(asyncio.create_task(later()))
                elif not went_on.is_set():
                    went_on.set()
                    await asyncio.gather(*tasks, return_exceptions=True)  # the refusal ends the session
                else:
                    handled.set()

            await client.subscribe("/queue/a", ack="client-individual", handler=handle)
            for body in (b"first", b"second"):
                await client.send("/queue/a", body)
            await asyncio.wait_for(handled.wait(), patience(10))

    with BrokerThread(max_attempts=1) as broker:
        asyncio.run(run(broker.url))
        with stomp.connect(broker.url) as client:
            assert client.receive("/queue/DLQ.a") is None


def fail(seen, message):
    seen.add(message.body)
    raise ValueError("no")


@pytest.mark.parametrize("dialect", sorted(BROKERS))
def test_reply_checks_what_it_can(dialect):
    ours, row = dialect == "stompcodec", BROKERS[dialect]
    for fine in ("/queue/a", "a", "queue://a", "/temp-queue/x", "x" * 4096):
        assert row.fault_of(fine) is None
    for wrong in ("", "/queue/a\nb", "\0"):
        assert row.fault_of(wrong)
    for name in ("x" * 4097, RESERVED):
        assert bool(row.fault_of(name)) is ours


@pytest.mark.slow
def test_the_attempts_survive_a_crash(tmp_path):
    with BrokerProcess(tmp_path, config=RULES) as broker:
        ask(broker, "rpc", FORBIDDEN)
        seen = Seen()

        def handle(message):
            if message.body == POISON:
                seen.add(message.body)
            client.send(message.get("reply-to"), message.body)

        for life in range(1, ATTEMPTS + 1):
            with stomp.connect(url(broker), reconnect=QUICK) as client:
                client.subscribe("/queue/rpc", ack="client-individual", handler=handle)
                if life == ATTEMPTS:
                    dead = client.subscribe("/queue/DLQ.rpc")
                    assert dead.get(patience(20)).body == POISON
                else:
                    seen.wait(life)
                    broker.kill()
            if life < ATTEMPTS:
                broker.start()
        assert seen.bodies.count(POISON) <= ATTEMPTS + 2  # an attempt just before the kill may not be stored
