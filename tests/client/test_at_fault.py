"""A request whose reply the broker refuses becomes a dead letter; the service goes on, and all others are answered."""

import asyncio
import logging
import socket

import pytest
from client.broker import BrokerThread
from client.shells import QUICK, Seen
from crash.process import BrokerProcess
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, Parser, serialize
from stompcodec.client.dialects import BROKERS
from stompcodec.errors import LocalProtocolError, StompError

ATTEMPTS, COUNT = 3, 100
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


def reply(client, message):
    message.reply(message.body)


def send(client, message):
    client.send(message.get("reply-to"), message.body)


def send_with_receipt(client, message):
    client.send(message.get("reply-to"), message.body, receipt=True)


def send_many(client, message):
    client.send_many([(message.get("reply-to"), message.body)], receipt_every=0)


def commit(client, message):
    with client.transaction() as transaction:
        transaction.send(message.get("reply-to"), message.body)
        transaction.ack(message)


def processing(client, message):
    with message.processing():
        client.send(message.get("reply-to"), message.body)


WAYS = (reply, send, send_with_receipt, send_many, commit, processing)
#: What `reply` itself refuses; the broker, all.
CASES = [(way, LONG) for way in WAYS] + [(reply, RESERVED), (send, RESERVED), (reply, FORBIDDEN), (send, FORBIDDEN)]


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


@pytest.mark.parametrize(("way", "reply_to"), CASES, ids=lambda value: getattr(value, "__name__", str(value)[:20]))
def test_one_dead_letter_and_all_others_answered(shell, broker, way, reply_to):
    name = f"{shell.name}-{way.__name__}-{reply_to[7:11]}"
    ask(broker, name, reply_to)
    client, seen = shell.connect(url(broker), reconnect=QUICK), Seen()

    def handle(message):
        seen.add(message.body)
        way(client, message)

    handler = handle if shell.name == "sync" else in_loop(shell, seen, way)
    client.subscribe(f"/queue/{name}", prefetch=COUNT, handler=handler, attempts=ATTEMPTS)
    is_refused_here = way is reply and reply_to != FORBIDDEN  # then the handler is called again in place
    check(broker, name, 1 if is_refused_here else ATTEMPTS)
    assert seen.bodies.count(POISON) == ATTEMPTS


def in_loop(shell, seen, way):
    """A handler in the event loop, that does the same as one of `WAYS`."""
    client = shell.clients[-1].target

    async def handle(message):
        seen.add(message.body)
        to, body = message.get("reply-to"), message.body
        if way is reply:
            await message.reply(body)
        elif way is commit:
            async with client.transaction() as transaction:
                await transaction.send(to, body)
                await transaction.ack(message)
        elif way is send_many:
            await client.send_many([(to, body)], receipt_every=0)
        elif way is processing:
            async with message.processing():
                await client.send(to, body)
        else:
            await client.send(to, body, receipt=way is send_with_receipt)

    return handle


def test_of_several_calls_of_a_handler_only_the_one_that_is_refused_counts(shell, broker):
    name, calls = f"{shell.name}-several", 8
    ask(broker, name, LONG)
    client, seen = shell.connect(url(broker), reconnect=QUICK), Seen()
    client.subscribe(
        f"/queue/{name}",
        ack="client-individual",
        prefetch=COUNT,
        concurrency=calls,
        handler=in_loop(shell, seen, send) if shell.name == "async" else lambda message: send(client, message),
    )
    check(broker, name)


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


def test_the_headers_that_name_a_message_reach_no_consumer(shell):
    with BrokerThread() as broker:
        client = shell.connect(broker.url)
        client.send("/queue/a", b"q", {"reply-to": "/queue/b"})
        client.subscribe("/queue/a", ack="client-individual", handler=shell.handler(lambda m: m.reply(b"a")))
        answer = client.subscribe("/queue/b").get(patience(10))
        assert answer.get("ack") is None
        assert answer.get("subscription") != "s1"


@pytest.mark.parametrize("dialect", sorted(BROKERS))
def test_reply_checks_what_it_can(shell, dialect):
    ours, row = dialect == "stompcodec", BROKERS[dialect]
    for fine in ("/queue/a", "a", "queue://a", "/temp-queue/x", "x" * 4096):
        assert row.fault_of(fine) is None
    for wrong in ("", "/queue/a\nb", "\0"):
        assert row.fault_of(wrong)
    for name in ("x" * 4097, RESERVED):
        assert bool(row.fault_of(name)) is ours


def test_reply_says_what_is_wrong(shell):
    with BrokerThread() as broker:
        client = shell.connect(broker.url)
        client.send("/queue/a", b"", {"reply-to": RESERVED})
        message = client.subscribe("/queue/a").get(patience(10))
        with pytest.raises(LocalProtocolError, match="the reply-to '/management/x' begins with /management/"):
            message.reply(b"")
        assert client.ping() >= 0


@pytest.mark.slow
def test_the_attempts_survive_a_crash(tmp_path):
    with BrokerProcess(tmp_path, config=RULES) as broker:
        ask(broker, "rpc", FORBIDDEN)
        seen = Seen()
        for life in range(1, ATTEMPTS + 1):
            with stomp.connect(url(broker), reconnect=QUICK) as client:
                client.subscribe("/queue/rpc", ack="client-individual", handler=handler_of(client, seen))
                if life == ATTEMPTS:
                    dead = client.subscribe("/queue/DLQ.rpc")
                    assert dead.get(patience(20)).body == POISON
                else:
                    seen.wait(life)
                    broker.kill()
            if life < ATTEMPTS:
                broker.start()
        assert seen.bodies.count(POISON) <= ATTEMPTS + 2  # an attempt just before the kill may not be stored


def handler_of(client, seen):
    def handle(message):
        if message.body == POISON:
            seen.add(message.body)
        send(client, message)

    return handle


class Foreign:
    """A client of someone else: a socket, and frames."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), patience(10))
        self.parser, self.frames = Parser("1.2"), []
        self.send(Frame("CONNECT", {"accept-version": "1.2", "host": "/"}))
        assert self.next().command == "CONNECTED"

    def send(self, *frames):
        self.socket.sendall(b"".join(serialize(frame, "1.2") for frame in frames))

    def next(self):
        while not self.frames:
            data = self.socket.recv(65536)
            assert data
            self.frames += self.parser.feed(data)
        return self.frames.pop(0)

    def serve(self, queue):
        """Answer requests one after the other until an ERROR comes, or all are answered; return whether that is so."""
        self.send(Frame("SUBSCRIBE", {"id": "1", "destination": queue, "ack": "client-individual"}))
        while (frame := self.next()).command != "ERROR":
            if frame.command == "MESSAGE":
                answer = Frame("SEND", {"destination": frame.headers["reply-to"]}, frame.body)
                last = {"receipt": "last"} if frame.body == b"%d" % (COUNT - 1) else {}
                self.send(answer, Frame("ACK", {"id": frame.headers["ack"], **last}))
            elif frame.command == "RECEIPT":
                return True
        return False


def test_a_client_of_someone_else_is_served_as_well(broker):
    ask(broker, "foreign", FORBIDDEN)
    for _ in range(ATTEMPTS):
        foreign = Foreign(broker.port)
        assert not foreign.serve("/queue/foreign")
        foreign.socket.close()
    foreign = Foreign(broker.port)
    assert foreign.serve("/queue/foreign")
    check(broker, "foreign")
    foreign.socket.close()
