"""Messages that cannot be handled, and requests whose reply is refused, become dead letters; the rest goes on."""

import asyncio
import itertools
import logging

import pytest
from client.broker import BrokerThread
from client.scripted import Scripted
from client.shells import QUICK, Seen
from crash.process import BrokerProcess
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.dialects import BROKERS
from stompcodec.client.handlers import WITHOUT_NACK, leave

pytestmark = pytest.mark.usefixtures("quiet")
ATTEMPTS, COUNT = 3, 60
POISON = b"50"
#: What a stranger may ask for as the address of the answer.
LONG, RESERVED, FORBIDDEN = "/queue/" + "x" * 5000, "/management/x", "/queue/closed"
ALLOW = '[[rules]]\nwho = "*"\naction = "{}"\ndestination = "{}"\nallow = {}\n'
RULES = "[queues]\nmax_attempts = 3\n" + ALLOW.format("send", FORBIDDEN, "false") + ALLOW.format("*", "*", "true")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=RULES) as broker:
        yield broker


def url(broker):
    return f"stomp://127.0.0.1:{broker.port}"


def ask(broker, name, reply_to):
    """Requests to a service, one of which wants its answer where it cannot go."""
    with stomp.connect(url(broker)) as client:
        addresses = {b"%d" % number: f"/queue/answers-{name}" for number in range(COUNT)} | {POISON: reply_to}
        client.send_many(
            (f"/queue/{name}", body, {"reply-to": to, "persistent": "true"}) for body, to in addresses.items()
        )


def check(broker, name, attempts=ATTEMPTS):
    """All but one were answered, and the one is the only dead letter, after so many attempts that the broker knows of.
    Some are answered twice: what a handler sends after the ERROR goes out on the next connection, as its message
    comes."""
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


async def commit(client, message, to):
    async with client.transaction() as transaction:
        await transaction.send(to, message.body)
        await transaction.ack(message)


async def process(client, message, to):
    async with message.processing():
        await client.send(to, message.body)


#: `reply` refuses a long address itself, the broker all. The thread has the code of the event loop: it tries one way.
WAYS = {
    "send": lambda client, message, to: client.send(to, message.body),
    "reply": lambda client, message, to: message.reply(message.body),
    "receipt": lambda client, message, to: client.send(to, message.body, receipt=True),
    "send_many": lambda client, message, to: client.send_many([(to, message.body)], receipt_every=0),
    **{"commit": commit, "processing": process},
}


@pytest.mark.parametrize(
    ("shell", "way", "reply_to", "options"),
    [
        *(("sync", "send", LONG, {}), ("sync", "send", LONG, {"concurrency": 8})),
        *(("async", way, LONG, {}) for way in WAYS),
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
    inner = client if shell.name == "sync" else client.target

    def handle(message):
        seen.add(message.body)
        return WAYS[way](inner, message, message.get("reply-to"))

    async def handle_async(message):
        await handle(message)

    handler = handle if shell.name == "sync" else handle_async
    client.subscribe(f"/queue/{name}", prefetch=COUNT, handler=handler, attempts=ATTEMPTS, **options)
    is_refused_here = way == "reply" and reply_to == LONG  # then the handler is called again in place
    check(broker, name, 1 if is_refused_here else ATTEMPTS)
    assert options or seen.bodies.count(POISON) == ATTEMPTS


def test_a_task_that_outlives_its_handler_counts_against_no_later_message():
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


@pytest.mark.parametrize("dialect", sorted(BROKERS))
def test_reply_checks_what_it_can(dialect):
    row = BROKERS[dialect]
    for fine in ("/queue/a", "a", "/queue/a.b:c", "/temp-queue/x", "/reply-queue/x", "x" * 4096):
        assert row.fault_of(fine) is None
    for wrong in ("", "/queue/", "/queue/a\nb", "\0", "/queue/a,/queue/b", "x" * 4097, "queue://", "amqp://a", "://a"):
        assert row.fault_of(wrong), wrong
    assert bool(row.fault_of("queue://a")) is (dialect not in ("activemq", "artemis"))


#: Dialect -> names that stand for more than a queue or topic.
POWERS = {
    "stompcodec": [RESERVED, f" {RESERVED}"],
    "rabbitmq": ["/exchange/amq.rabbitmq.trace/a"],
    "artemis": ["activemq.management", "/queue/activemq.management", "queue://activemq.notifications::a"],
    "activemq": [
        "/queue/ActiveMQ.a",
        "queue://ActiveMQ.a",
        "ActiveMQ.a",
        "/queue/topic://ActiveMQ.Agent",
        "/topic/a.>",
    ],
    "vertx": [],
}


@pytest.mark.parametrize("dialect", sorted(BROKERS))
def test_no_reply_goes_to_a_name_that_has_a_power(dialect):
    every = [name for names in POWERS.values() for name in names if not name.startswith("queue:")]
    for name in POWERS.get(dialect, every):
        assert "more than a queue" in BROKERS[dialect].fault_of(name), name


#: More messages than may be unacknowledged at one time, and how often each is delivered.
MESSAGES, PREFETCH, DELIVERIES = 8, 3, 2
#: Three of them fill a window that is counted in bytes.
BODIES = [b"%d" % number + bytes(1100) for number in range(MESSAGES)]
#: The handler raises what would end its worker: that is a failure like others.
ENDS = {"concurrency": 1}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def plain():
    with BrokerThread(max_attempts=DELIVERIES, detect_legacy=True) as broker:
        yield broker


@pytest.mark.parametrize(
    ("version", "ack", "options"),
    [
        *((version, ack, {}) for version in ("legacy", "1.0", "1.1", "1.2") for ack in ("client", "client-individual")),
        ("1.2", "client-individual", {"on_error": lambda message, error: "discard"}),
        ("1.2", "client-individual", {"concurrency": 3}),
        ("1.2", "client-individual", {"concurrency": 3, "key": lambda message: message.body}),
        ("1.2", "client-individual", {"concurrency": 2, "key": lambda message: 1 / 0}),  # the handler is not called
        ("1.2", "client-individual", ENDS),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_every_way_to_call_handlers_frees_the_way(shell, plain, version, ack, options):
    client, seen = shell.connect(plain.url, versions=[version], login="ann", passcode="secret"), Seen()
    errors = {"none": ValueError, "sync": SystemExit, "async": asyncio.CancelledError}
    error = errors[shell.name if options is ENDS else "none"]("no")
    handler, name = seen.handler(shell, bool, error), f"poison-{next(_numbers)}"
    client.send_many((f"/queue/{name}", body) for body in BODIES)
    if options.get("concurrency") == 2:
        options = {**options, "on_error": lambda message, error: seen.add(message.body) or "discard"}
    options = {"on_error": "discard", "attempts": 1, "prefetch": PREFETCH, **options}
    client.subscribe(f"/queue/{name}", ack=ack, handler=handler, **options)
    seen.wait(MESSAGES)
    dead = client.subscribe(f"/queue/DLQ.{name}")
    count = 0 if version in WITHOUT_NACK else MESSAGES  # there an ACK drops them
    assert sorted(dead.get(patience(10)).body for _ in range(count)) == BODIES[:count]
    client.ping()
    assert dead.get(0) is None


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
    client.again()
    first, second = (client.deliver(subscription, name) for name in ("m1", "m2"))
    leave(first)
    assert not caplog.records  # the other one is being processed
    client.ack(second)
    leave(client.deliver(subscription, "m3"))
    assert "hold the whole prefetch of 2" in caplog.text
