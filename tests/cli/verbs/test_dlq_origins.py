"""dlq retry, move and dlq list: a letter goes back to its queue, and the broker or the user says which that is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")
pty = pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

from cli.at_broker import Runner, read_until
from client.peer import Peer
from crash.process import BrokerProcess

import stompcodec.client as stomp
from stompcodec.cli.looking import kind_of
from stompcodec.cli.verbs.queues import MOST_LISTED, Returning
from stompcodec.testing import StompBroker

#: eve may not send to /queue/secret, clerk not to /queue/closed; the passcode of all is guest.
HASH = "scrypt$16384$8$1$nCg0MPa9EL6fOeJv2j7z6w==$Pq5fbnVFyrkPTlMrOHQRy6yHh4h3D9HuvI6/uPhKfMM="
RULES = "".join(f'[users.{name}]\npasscode = "{HASH}"\n' for name in ("eve", "clerk", "chief"))
for who, destination in (("eve", "/queue/secret"), ("clerk", "/queue/closed")):
    RULES += f'[[rules]]\nwho = "{who}"\naction = "send"\ndestination = "{destination}"\nallow = false\n'
RULES += '[[rules]]\nwho = "chief"\naction = "manage"\n[[rules]]\nwho = "*"\n'


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), memory=True, config=RULES) as broker:
        yield Runner(broker, broker)


def by(at: Runner, who: str, **options: Any) -> stomp.Client:
    return stomp.connect(at.url, login=who, passcode="guest", receipt_timeout=patience(20), **options)


def run(at: Runner, who: str, *arguments: str) -> Any:
    return at(arguments[0], *arguments[1:], "--login", who, STOMPCODEC_PASSCODE="guest")


@contextmanager
def left_lying(at: Runner, **expected: int) -> Iterator[None]:
    """Check how many messages wait in each queue at the end, and remove them."""
    try:
        yield
        with by(at, "chief") as client:
            rows = json.loads(client.request("/management/destinations", "{}", timeout=patience(20)).body)["rows"]
        ready = {row["destination"]: row["ready"] for row in rows}
        assert {name: ready.get(f"/queue/{name.replace('DLQ_', 'DLQ.')}", 0) for name in expected} == expected
    finally:
        for name in expected:
            run(at, "chief", "purge", f"/queue/{name.replace('DLQ_', 'DLQ.')}", "--yes")


def bury(client: stomp.Client, queue: str) -> None:
    """Make a dead letter of a message in a queue."""
    client.send(queue, b"job", {"persistent": "true"}, receipt=True)
    with client.subscribe(queue, ack="client-individual") as subscription:
        message = subscription.get(patience(20))
        assert message is not None
        message.nack(requeue=False, receipt=True)


@pytest.mark.parametrize("queue", ["orders", "jms.queue.orders", "/queue/orders", "/foo/orders"])
def test_a_letter_goes_back_to_the_queue_it_was_in(at: Runner, queue: str) -> None:
    """`orders` and `/queue/orders` are two queues at our broker."""
    letters = f"/queue/DLQ.{queue.removeprefix('/queue/')}"
    with stomp.connect(at.url) as client:
        bury(client, queue)
        result = at("dlq", "retry", letters, "--yes")
        assert (result.exit_code, result.stderr) == (0, "1 message sent back to where they came from\n")
        message = client.receive(queue)
        assert message is not None
        assert message.body == b"job"
        assert client.receive(letters) is None
        assert client.receive("/queue/orders") is None


@pytest.mark.parametrize("tool", ["dlq retry", "move"])
def test_a_refused_move_is_no_attempt_of_a_message_and_leaves_it(guarded: Runner, tool: str) -> None:
    """Otherwise the tool would make dead letters of messages that nobody handled."""
    with by(guarded, "chief") as client:
        client.send("/queue/unmoved", b"x", receipt=True)
        where = ["--to", "/queue/secret"] if tool == "dlq retry" else ["/queue/secret"]
        for _ in range(3):
            result = run(guarded, "eve", *tool.split(), "/queue/unmoved", *where, "--yes")
            assert (result.exit_code, "not allowed to send there" in result.stderr) == (1, True)
        assert "0 messages" in result.stderr
        message = client.receive("/queue/unmoved")
        assert message is not None
        assert message.get("redelivery-count") == "1"  # for redelivered:true, however often


@pytest.mark.parametrize("dialect", ["rabbitmq", "activemq", "artemis", "stompcodec"])
@pytest.mark.parametrize("verb", [["move", "/queue/a", "a"], ["dlq", "retry", "/queue/a", "--to", "a"]], ids=" ".join)
def test_the_dialect_says_whether_two_names_are_one_queue(at: Runner, dialect: str, verb: list[str]) -> None:
    """As the broker does: a message sent to `a` is in `/queue/a`, or not."""
    with StompBroker(dialect=dialect, routing="ANYCAST") as broker:
        with stomp.connect(broker.url) as client:
            client.send("/queue/a", b"x", receipt=True)
            client.send("a", b"x", receipt=True)
        is_one = broker.queued("/queue/a") == 2
        assert is_one is (dialect in ("rabbitmq", "activemq"))
        result = at(*verb, "--yes", "-u", broker.url)
        assert ("are one queue" in result.stderr) is is_one, result.stderr
        assert result.exit_code == (2 if is_one else 0)


@pytest.mark.parametrize("server", ["RabbitMQ/3.10.8", "what/1"])
def test_other_brokers_do_not_tell_the_two_names_apart(at: Runner, server: str) -> None:
    with Foreign(server, []) as peer:
        assert at("move", "/queue/a", "a", "--yes", "-u", peer.url).exit_code == 2
        assert peer.sent == []


# The deputy: eve wants a message in a queue that she may not send to


@pytest.mark.parametrize("tool", ["dlq retry", "move"])
def test_the_operator_is_not_the_deputy_of_a_sender(guarded: Runner, tool: str) -> None:
    with left_lying(guarded, secret=0, pub=1, DLQ_pub=1):
        with by(guarded, "eve") as eve:
            bury(eve, "/queue/pub")
            forged = {"original-destination": "/queue/secret", "dead-letter-reason": "rejected"}
            eve.send("/queue/DLQ.pub", b"evil", forged, receipt=True)
        if tool == "move":
            with by(guarded, "chief") as chief:
                body = json.dumps({"destination": "/queue/DLQ.pub"})
                answer = json.loads(chief.request("/management/move", body, timeout=patience(20)).body)["result"]
            assert (answer["messages"], answer["skipped"]) == (1, 1)
        else:
            result = run(guarded, "chief", "dlq", "retry", "/queue/DLQ.pub", "--yes")
            assert result.exit_code == 1
            assert "1 to /queue/secret (as a header says, which any sender could have written)" in result.stderr
            assert "1 message stayed in /queue/DLQ.pub: any sender could have written" in result.stderr


def test_dlq_list_and_show_mark_what_a_sender_wrote(at: Runner) -> None:
    with stomp.connect(at.url) as client:
        bury(client, "/queue/seen")
        client.send("/queue/DLQ.seen", b"x", {"original-destination": "/queue/secret"}, receipt=True)
    rows = [json.loads(line) for line in at.good("dlq", "list", "/queue/DLQ.seen", "--json").splitlines()]
    assert {row["from"]: row.get("claimed") for row in rows} == {"/queue/seen": None, "/queue/secret": True}
    shown = at.good("dlq", "show", "/queue/DLQ.seen").decode()
    assert shown.count("(claimed)") == shown.count("/queue/secret (claimed)") == 1


# One letter does not stop the others


IMPOSSIBLE = {
    "too long": "/queue/" + "x" * 4_100,
    "to manage": "/management/purge",
    "temporary": "/temp-queue/a",
    "a topic": "/topic/a",
    "refused": "/queue/closed",
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_one_letter_that_cannot_be_moved_does_not_stop_the_other_99(guarded: Runner, name: str) -> None:
    with left_lying(guarded, many=0, DLQ_many=1):
        with by(guarded, "eve") as eve:
            origins = [IMPOSSIBLE[name] if number == 41 else "/queue/many" for number in range(100)]
            eve.send_many(
                [("/queue/DLQ.many", b"%d" % n, {"original-destination": to}) for n, to in enumerate(origins)]
            )
        result = run(guarded, "clerk", "dlq", "retry", "/queue/DLQ.many", "--only", "*", "--yes")
        assert result.exit_code == 1, result.stderr
        assert "99 messages sent back to where they came from" in result.stderr
        assert "1 message stayed in /queue/DLQ.many: " in result.stderr
        with by(guarded, "chief") as chief:
            assert [message.body for message in iter(lambda: chief.receive("/queue/many"), None)] == [
                b"%d" % number for number in range(100) if number != 41
            ]


def test_letters_for_several_queues_that_refuse_them_stop_no_others(guarded: Runner) -> None:
    long = "/queue/" + "y" * 4_100
    with left_lying(guarded, good=8, fine=7, DLQ_mixed=15):
        with by(guarded, "eve") as eve:
            for number in range(30):
                to = ("/queue/closed", "/queue/good", long, "/queue/fine")[number % 4]
                eve.send("/queue/DLQ.mixed", b"%d" % number, {"original-destination": to}, receipt=True)
        result = run(guarded, "clerk", "dlq", "retry", "/queue/DLQ.mixed", "--only", "/queue/*", "--yes", "--json")
        assert result.exit_code == 1
        counts = {"verb": "send back", "queue": "/queue/DLQ.mixed", "messages": 15, "left": 15, "dry_run": False}
        assert json.loads(result.stdout).items() >= counts.items()
        assert "8 messages stayed in /queue/DLQ.mixed: /queue/closed takes none: " in result.stderr


def test_many_letters_that_stay_do_not_hide_those_behind_them(guarded: Runner) -> None:
    with left_lying(guarded, deep=1, secret=0, DLQ_deep=350):
        with by(guarded, "eve") as eve:
            eve.send_many([("/queue/DLQ.deep", b"x" * 100, {"original-destination": "/queue/secret"})] * 350)
            bury(eve, "/queue/deep")
        result = run(guarded, "chief", "dlq", "retry", "/queue/DLQ.deep", "--yes")
        assert (result.exit_code, "350 messages stayed" in result.stderr) == (1, True)


def test_only_sends_those_of_the_named_queues_and_the_others_do_not_count(at: Runner) -> None:
    letters = "/queue/DLQ.only"
    with stomp.connect(at.url) as client:
        for queue in ("/queue/shop.a", "/queue/shop.b", "/queue/[x]", "/queue/bank"):
            client.send(letters, queue.encode(), {"original-destination": queue}, receipt=True)
        for pattern in ("/queue/shop", "queue/*", "", "/queue/shop.?"):
            assert at("dlq", "retry", letters, "--only", pattern, "--yes").exit_code == 0
        assert client.receive("/queue/shop.a") is None
        planned = at.good("dlq", "retry", letters, "--only", "/queue/shop.*", "--dry-run").decode().splitlines()
        assert planned[0] == "would send back 2 messages to where they came from"
        assert "bank" not in str(planned)
        for pattern in ("/queue/shop.*", "/queue/[x]"):
            assert at("dlq", "retry", letters, "--only", pattern, "--yes").exit_code == 0
        assert [message.body for message in iter(lambda: client.receive(letters), None)] == [b"/queue/bank"]


@pytest.mark.long
def test_the_origin_survives_kill_9(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, config="[queues]\nwindow = 4\n") as broker:
        with stomp.connect(Runner(broker, broker).url) as client:
            for _ in range(8):
                bury(client, "orders")
            client.send("/queue/DLQ.orders", b"x", {"original-destination": "a", "persistent": "true"}, receipt=True)
        broker.kill()
        broker.start()
        at = Runner(broker, broker)
        result = at("dlq", "retry", "/queue/DLQ.orders", "--yes")
        assert result.exit_code == 1
        assert "8 messages sent back" in result.stderr
        assert "1 message stayed" in result.stderr
        with stomp.connect(at.url) as client:
            assert len(list(iter(lambda: client.receive("orders"), None))) == 8


# Other brokers, where the origin is what a header says


class Foreign(Peer):
    """Enough of another broker: it shows and delivers a queue, and forgets what is acknowledged."""

    def __init__(self, server: str, origins: list[str], header: str = "original-destination") -> None:
        self.held = {f"ID:m-{number}": origin for number, origin in enumerate(origins)}
        self.header = header
        super().__init__(server=server)

    def on_subscribe(self, side: Any, frame: Any) -> None:
        side.receipt(frame)
        heads = {"subscription": frame.headers["id"], "destination": frame.headers["destination"]}
        for id, origin in self.held.items():
            side.send("MESSAGE", {**heads, "message-id": id, "ack": id, self.header: origin}, b"x")
        if frame.get("browser") is not None:
            side.send("MESSAGE", {**heads, "message-id": "1", "browser": "end"})

    def on_ack(self, side: Any, frame: Any) -> None:
        self.held.pop(frame.headers["id"])
        side.receipt(frame)

    @property
    def sent(self) -> list[str]:
        return [frame.headers["destination"] for frame in self.got("SEND")]


ORIGINS = ["/queue/orders", "/queue/secret", "/queue/orders"]
ACTIVEMQ, ARTEMIS = "ActiveMQ/6.1", "ActiveMQ-Artemis/2.30 ActiveMQ Artemis Messaging Engine"
MARK = "(as a header says, which any sender could have written)"


@pytest.mark.parametrize(
    ("server", "header", "prefix"),
    [(ACTIVEMQ, "original-destination", "/queue/"), (ARTEMIS, "_AMQ_ORIG_ADDRESS", "")],
    ids=["activemq", "artemis"],
)
@pytest.mark.parametrize(
    ("options", "sent", "status"),
    [
        ("", [], 1),
        ("--only /queue/orders", ["/queue/orders"] * 2, 0),
        ("--only /queue/o*", ["/queue/orders"] * 2, 0),
        ("--only *", ["/queue/orders", "/queue/orders", "/queue/secret"], 0),
        ("--to /queue/b", ["/queue/b"] * 3, 0),
    ],
)
def test_yes_alone_sends_only_to_queues_that_are_named(
    at: Runner, server: str, header: str, prefix: str, options: str, sent: list[str], status: int
) -> None:
    origins = [prefix + origin.removeprefix("/queue/") for origin in ORIGINS]
    with Foreign(server, origins, header) as peer:
        result = at("dlq", "retry", "/queue/DLA", "--yes", "--idle", "0.05", *options.split(), "-u", peer.url)
        assert result.exit_code == status, result.stderr
        assert sorted(peer.sent) == sent
        assert len(peer.held) == 3 - len(sent)
    if not options:
        assert "3 messages stayed in /queue/DLA: any sender could have written where they came" in result.stderr
        if server == ACTIVEMQ:  # which shows a queue before the tool takes from it
            assert result.stderr.splitlines()[:2] == [f"  2 to /queue/orders {MARK}", f"  1 to /queue/secret {MARK}"]


@pytest.mark.long
@pytest.mark.parametrize("answer", [b"y\n", b"n\n"])
def test_a_terminal_shows_the_list_and_yes_agrees_to_it(answer: bytes, at: Runner) -> None:
    with Foreign(ACTIVEMQ, ORIGINS) as peer:
        near, far = pty.openpty()
        process = at.process("dlq", "retry", "/queue/ActiveMQ.DLQ", "-u", peer.url, stdin=far, stderr=far)
        shown = read_until(near, b"[y/N]:", patience(60))
        assert b"1 to /queue/secret (as a header says" in shown
        os.write(near, answer)
        status = process.wait(patience(60))
        os.close(near)
        os.close(far)
        assert (status, len(peer.sent)) == ((0, 3) if answer == b"y\n" else (1, 0))


def letter_of(id: str, origin: str) -> Any:
    return SimpleNamespace(id=id, body=b"x", get={"original-destination": origin}.get)


def kind_at(server: str, dialect: str) -> Any:
    client: Any = SimpleNamespace(connected={"server": server}, dialect=dialect)
    return kind_of(client)


def test_an_agreement_covers_only_what_was_listed() -> None:
    kind = kind_at(ACTIVEMQ, "activemq")
    returning = Returning("/queue/DLQ", None)
    letters = [letter_of("ID:1", f"/queue/{number}") for number in range(5_000)]
    returning.survey(letters, kind)
    returning.agree()
    going = [letter for letter in letters if returning.aim(letter, kind).queue is not None]
    assert len(going) == MOST_LISTED == len(list(returning.listed())) - 1
    assert returning.staying() == (5_000 - MOST_LISTED, 5_000 - MOST_LISTED)
