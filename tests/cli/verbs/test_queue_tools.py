"""stompcodec browse, move, purge and dlq: what they do, and that no message is lost or doubled by them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")
pty = pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

from cli.at_broker import Runner, read_until
from cli.running import COMMAND
from cli.running import run as run_verb
from click.testing import Result
from client.feeding import wait_for
from client.peer import Peer
from crash.process import ROOT

import stompcodec.client as stomp
from stompcodec.cli.looking import Origin, body_of, kind_of, origin_of
from stompcodec.cli.verbs.queues import BATCH, _split
from stompcodec.testing import FaultProxy, StompBroker
from stompcodec.testing.faults import Direction, Rules

#: Three batches and some.
COUNT = 350
FROM, TO = "/queue/from", "/queue/to"
MOVE = ("move", FROM, TO)
each_verb = pytest.mark.parametrize(
    "verb", [["browse", FROM], ["purge", FROM, "--yes"], ["move", FROM, TO, "--yes"]], ids=lambda verb: verb[0]
)


@pytest.fixture(scope="module")
def running() -> Iterator[StompBroker]:
    with StompBroker() as broker:
        yield broker


@pytest.fixture
def broker(running: StompBroker) -> Iterator[StompBroker]:
    """A broker whose queues are empty before and after."""
    yield running
    for queue in (FROM, TO, "/queue/DLQ.from"):
        bodies(running, queue)


def run(broker: StompBroker, *arguments: str, url: str | None = None) -> Result:
    return run_verb(*arguments, "-u", url or broker.url, "--timeout", str(patience(10)))


def good(broker: StompBroker, *arguments: str) -> str:
    result = run(broker, *arguments)
    assert result.exit_code == 0, result.output
    return str(result.output)


def fill(broker: StompBroker, queue: str, count: int, **headers: str) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    with stomp.connect(broker.url) as client:
        client.send_many([(queue, body, {"n": body.decode(), **headers}) for body in bodies])
    return bodies


def taken(client: stomp.Client, queue: str) -> list[stomp.Message]:
    """Take what is in a queue."""
    return list(iter(lambda: client.receive(queue), None))


def bodies(broker: StompBroker, queue: str) -> list[bytes]:
    with stomp.connect(broker.url) as client:
        return [message.body for message in taken(client, queue)]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


# What they do


def test_browse_shows_and_takes_nothing(broker: StompBroker) -> None:
    fill(broker, FROM, 12, colour="red")
    lines = good(broker, "browse", FROM).splitlines()
    assert [line.split()[0] for line in lines] == ["NUMBER", *map(str, range(1, 13)), "12"]
    assert "colour=red" in lines[1]
    assert good(broker, "browse", FROM, "-f", "{body},").startswith("".join(f"{number}," for number in range(12)))
    assert good(broker, "browse", FROM, "-f", "{body}", "--selector", "n > 9").startswith("1011")
    assert json.loads(good(broker, "browse", FROM, "--json", "-n", "1").splitlines()[0])["body"] == "0"
    assert "n: 0" in good(broker, "browse", FROM, "--pretty")
    assert broker.queued(FROM) == 12
    with stomp.connect(broker.url) as client:
        assert client.receive(FROM).redelivered is False


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1, COUNT])
def test_move_keeps_order_headers_and_bodies(broker: StompBroker, count: int) -> None:
    fill(broker, FROM, count, priority="7", **{"content-type": "text/plain", "idempotency-key": "", "k:\n": "v\\"})
    assert good(broker, *MOVE, "--yes") == f"{count:,} message{'s' * (count != 1)} moved to {TO}\n"
    assert broker.queued(FROM) == 0
    with stomp.connect(broker.url) as client:
        moved = taken(client, TO)
    assert [message.body for message in moved] == numbers(0, count)
    for number, message in enumerate(moved):
        found = [message.headers[name] for name in ("n", "priority", "k:\n", "content-type")]
        assert (found, message.redelivered) == ([str(number), "7", "v\\", "text/plain"], False)


def test_move_selects_and_limits(broker: StompBroker) -> None:
    fill(broker, FROM, 250)
    good(broker, *MOVE, "--selector", "n >= 240", "--yes")
    assert bodies(broker, TO) == numbers(240, 250)
    counts = json.loads(good(broker, *MOVE, "--limit", "120", "--yes", "--json"))
    assert counts == {"verb": "move", "queue": FROM, "messages": 120, "bytes": 250, "left": 0, "dry_run": False}
    assert bodies(broker, TO) == numbers(0, 120)
    with stomp.connect(broker.url) as client:
        rest = taken(client, FROM)
    assert [message.body for message in rest] == numbers(120, 240)
    assert not any(message.redelivered for message in rest)  # --limit took none that it did not move


@pytest.mark.parametrize("verb", [["move", FROM, TO], ["dlq", "retry", FROM, "--to", TO]], ids=lambda verb: verb[0])
def test_a_broker_with_small_transactions_needs_small_batches(verb: list[str]) -> None:
    with StompBroker(max_transaction_octets=2**16) as small:
        with stomp.connect(small.url) as client:
            client.send_many([(FROM, b"x" * 4000) for _ in range(40)])
        result = run(small, *verb, "--yes")
        assert (result.exit_code, "smaller --batch" in result.output, small.queued(FROM)) == (1, True, 40)
        good(small, *verb, "--yes", "--batch", "10")
        assert (small.queued(FROM), small.queued(TO)) == (0, 40)


def test_headers_that_would_take_effect_again_are_renamed(broker: StompBroker) -> None:
    """With its idempotency-key a message that comes back would be dropped as a duplicate."""
    fill(broker, FROM, 1, **{"idempotency-key": "once", "x-message-ttl": "90000000", "delay": "1"})
    for source, target in ((FROM, TO), (TO, FROM)):
        broker.wait_queued(source, 1, timeout=patience(20))
        good(broker, "move", source, target, "--yes")
    with stomp.connect(broker.url) as client:
        (message,) = taken(client, FROM)
    got = dict(message.headers.pairs())
    assert (got["original-idempotency-key"], got["original-delay"]) == ("once", "1")
    assert not {"idempotency-key", "delay", "x-message-ttl"} & set(got)


@pytest.mark.parametrize(("size", "count", "batches"), [(5 * 2**20, 3, [1, 1, 1]), (0, 3, [3])])
def test_large_bodies_make_small_batches(size: int, count: int, batches: list[int]) -> None:
    message: Any = SimpleNamespace(body=bytes(size))
    assert [len(batch) for batch in _split([message] * count)] == batches


def test_purge_removes_what_is_there(broker: StompBroker) -> None:
    fill(broker, FROM, COUNT)
    assert good(broker, "purge", FROM, "--dry-run") == f"would remove {COUNT} messages\n"
    assert broker.queued(FROM) == COUNT
    assert good(broker, "purge", FROM, "--yes") == f"{COUNT} messages removed\n"
    assert broker.queued(FROM) == 0
    assert good(broker, "purge", FROM, "--yes") == "0 messages removed\n"


@pytest.fixture
def letters(broker: StompBroker) -> str:
    """A queue with three dead letters."""
    buried(broker, FROM, 3)
    return "/queue/DLQ.from"


def buried(broker: StompBroker, queue: str, count: int) -> list[bytes]:
    """Make dead letters."""
    expected = fill(broker, queue, count)
    with stomp.connect(broker.url) as client, client.subscribe(queue, ack="client-individual") as subscription:
        for _ in expected:
            subscription.get(patience(30)).nack(requeue=False)
    wait_for(lambda: broker.queued(f"/queue/DLQ.{queue.removeprefix('/queue/')}") == count)
    return expected


def test_dead_letters_are_listed_shown_and_sent_back(broker: StompBroker, letters: str) -> None:
    rows = [json.loads(line) for line in good(broker, "dlq", "list", "--json").splitlines()]
    assert rows == [{"queue": letters, "from": FROM, "reason": "rejected", "messages": 3}]
    assert "rejected" in good(broker, "dlq", "list", letters).splitlines()[1]
    shown = good(broker, "dlq", "show", letters, "--selector", "n = 1").splitlines()
    assert shown[1].split()[:4] == ["1", FROM, "rejected", "1"]
    planned = good(broker, "dlq", "retry", letters, "--dry-run").splitlines()
    assert planned == ["would send back 3 messages to where they came from", f"  3 to {FROM}"]
    assert broker.queued(letters) == 3
    good(broker, "dlq", "retry", letters, "--selector", "n = 1", "--yes")
    good(broker, "dlq", "retry", letters, "--limit", "1", "--yes")
    assert bodies(broker, FROM) == [b"1", b"0"]
    assert broker.queued(letters) == 1


def test_no_message_becomes_a_request() -> None:
    """Our broker answers what is sent to `management_prefix`, to the reply-to of the message, and keeps nothing."""
    request = {"original-destination": "/ops/broker", "reply-to": "/queue/answers"}
    with StompBroker(management_prefix="/ops/") as broker:
        with stomp.connect(broker.url) as client:
            for headers in (request, request, {"original-destination": "/queue/a"}):
                client.send("/queue/DLQ.a", b"x", headers, receipt=True)
        for verb in (["move", "/queue/DLQ.a", "/ops/broker"], ["dlq", "retry", "/queue/DLQ.a", "--to", "/ops/broker"]):
            result = run(broker, *verb, "--dry-run")
            assert result.exit_code == 2
            assert "'/ops/broker' is not a queue: names with /ops/ are requests to the broker" in result.stderr
        result = run(broker, "dlq", "retry", "/queue/DLQ.a", "--only", "*", "--yes")
        assert result.exit_code == 1
        assert "2 messages stayed in /queue/DLQ.a" in result.stderr
        assert [broker.queued(name) for name in ("/queue/DLQ.a", "/queue/a", "/queue/answers")] == [2, 1, 0]


# What brokers can do


def client_of(server: str, dialect: str) -> Any:
    return SimpleNamespace(connected={"server": server}, dialect=dialect)


@pytest.mark.parametrize(
    ("server", "dialect", "shows", "selects", "atomic", "jms"),
    [
        ("stompcodec/1.0", "stompcodec", True, True, True, False),
        ("stompcodec/1.0 as rabbitmq", "rabbitmq", True, True, True, False),
        ("stompcodec/1.0 as artemis", "artemis", True, True, False, False),
        ("RabbitMQ/3.10.8", "rabbitmq", False, False, False, False),
        ("ActiveMQ/5.17.2", "activemq", True, True, True, True),
    ],
)
def test_the_kinds_of_brokers(server: str, dialect: str, shows: bool, selects: bool, atomic: bool, jms: bool) -> None:
    kind = kind_of(client_of(server, dialect))
    assert (kind.shows, kind.selects, kind.atomic, kind.jms) == (shows, selects, atomic, jms)
    text: Any = SimpleNamespace(body=b"caf\xc3\xa9", get=lambda _name: None)
    assert body_of(text, kind) == ("café" if jms else text.body)
    assert body_of(SimpleNamespace(body=b"\xff", get=lambda _name: None), kind) == b"\xff"  # type: ignore[arg-type]


ORIGINS = {
    "ActiveMQ": ({"original-destination": "/queue/a"}, "/queue/a"),
    "ActiveMQ's API": ({"originalDestination": "queue://a"}, "/queue/a"),
    "Artemis": ({"_AMQ_ORIG_ADDRESS": "a"}, "/queue/a"),
    "a topic": ({"original-destination": "/topic/a"}, None),
    "a topic of ActiveMQ": ({"originalDestination": "topic://a"}, None),
    "a temporary queue": ({"original-destination": "/temp-queue/a"}, None),
    "a request to manage": ({"original-destination": "/management/purge"}, None),
    "itself": ({"original-destination": "/queue/DLQ"}, None),
    "itself, by another name": ({"_AMQ_ORIG_ADDRESS": "DLQ"}, None),
    "nothing": ({}, None),
    "an empty name": ({"original-destination": ""}, None),
}


@pytest.mark.parametrize(("headers", "origin"), ORIGINS.values(), ids=ORIGINS)
def test_where_a_dead_letter_came_from(headers: dict[str, str], origin: str | None) -> None:
    letter: Any = SimpleNamespace(id="1", get=headers.get)
    kind = kind_of(client_of("ActiveMQ/6.1", "activemq"))._replace(management="/management/")
    assert origin_of(letter, "/queue/DLQ", kind) == Origin(origin)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("browse /queue/a", "cannot show the messages of /queue/a without taking them"),
        ("dlq show /queue/a", "cannot show the messages of /queue/a"),
        ("dlq list /queue/a", "cannot show the messages of /queue/a"),
        ("dlq list", "does not say which queues have dead letters"),
        ("move /queue/a /queue/b --dry-run", "cannot show the messages of /queue/a"),
        ("move /queue/a /queue/b --yes --selector a=1", "ignores selectors"),
        ("dlq retry /queue/a --yes --selector a=1", "ignores selectors"),
    ],
)
def test_rabbitmq_is_told_apart_and_nothing_is_taken(arguments: str, said: str) -> None:
    with Peer(server="RabbitMQ/3.10.8") as peer:
        result = run_verb(*arguments.split(), "-u", peer.url)
        assert result.exit_code == 2, result.output
        assert f"RabbitMQ {said}" in " ".join(result.output.split())
        assert "SUBSCRIBE" not in peer.commands()


# Consent and wrong usage


@pytest.mark.parametrize("verb", [MOVE, ("purge", FROM), ("dlq", "retry", FROM)], ids=lambda verb: verb[0])
def test_without_a_terminal_and_yes_nothing_happens(verb: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompcodec.client.connect", lambda *_arguments, **_options: pytest.fail("connected"))
    result = run_verb(*verb, input="y\n")
    assert (result.exit_code, "give --yes" in result.output) == (2, True)


@pytest.mark.long
@pytest.mark.parametrize(("answer", "status", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 3), (b"\x03", 130, 3)])
def test_a_terminal_is_asked(broker: StompBroker, answer: bytes, status: int, left: int) -> None:
    fill(broker, FROM, 3)
    near, far = pty.openpty()
    process = started(broker.url, *MOVE, stdin=far, stderr=far)
    assert f"Move 3 messages of {FROM} to {TO}?".encode() in read_until(near, b"[y/N]:")
    if answer == b"\x03":
        for _ in range(100):  # Ctrl-C, again where Python began to wait for the answer just then, and did not see it
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
                break
    else:
        os.write(near, answer)
    assert process.wait(patience(60)) == status
    os.close(near)
    os.close(far)
    assert (broker.queued(FROM), broker.queued(TO)) == (left, 3 - left)


@pytest.mark.parametrize(
    "arguments",
    [
        "move /queue/a /queue/a --yes",
        "move /topic/a /queue/a --yes",
        "move /queue/a /topic/a --yes",
        "move /queue/a /temp-queue/a --yes",
        "move /queue/a /management/purge --yes",
        "move /queue/a /queue/b --limit 0 --yes",
        "purge /topic/a --yes",
        "purge /queue/> --yes",
        "move /queue/a.* /queue/b --yes",
        "browse /topic/a",
        "browse /queue/a -f {nope}",
        "dlq retry /queue/a --to /topic/a --yes",
        "dlq retry /queue/a --to /queue/a --yes",
        "dlq retry /queue/a --only x --to /queue/b --yes",
        "dlq list /topic/a",
    ],
)
def test_wrong_names_are_2_before_connecting(arguments: str) -> None:
    result = run_verb(*arguments.split(), "-u", "127.0.0.1:1")
    assert result.exit_code == 2, result.output


@each_verb
def test_a_queue_that_may_not_be_read_is_1(at: Runner, verb: list[str]) -> None:
    where = ["-u", at.guarded_url, "--login", "guest"]
    result = at(verb[0], "/queue/closed", *verb[2:], *where, STOMPCODEC_PASSCODE="guest")
    assert result.exit_code == 1, result.output
    assert "SUBSCRIBE to /queue/closed was rejected" in result.stderr


def test_messages_for_an_exclusive_consumer_are_not_passed_over_in_silence(broker: StompBroker) -> None:
    with stomp.connect(broker.url) as client:
        options = {"exclusive": "true", "consumer-priority": "9"}
        client.subscribe(FROM, ack="client-individual", prefetch=1, headers=options)
        fill(broker, FROM, 3)
        result = run(broker, *MOVE, "--yes", "--idle", "0.5")
    assert result.exit_code == 1
    assert f"{FROM} has messages that did not come in 0.5 s" in result.stderr
    broker.wait_queued(FROM, 3, timeout=patience(20))


# Neither lost nor doubled


def started(url: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": ROOT, "STOMPCODEC_URL": url}
    return subprocess.Popen([*COMMAND, *arguments], env=environment, **options)


def check_all_there(broker: StompBroker, expected: list[bytes]) -> tuple[int, int]:
    """Each message is in one of both queues, once, and in order. Return how many are in each."""
    broker.wait_disconnected(timeout=patience(30))
    source, target = bodies(broker, FROM), bodies(broker, TO)
    assert Counter(source + target) == Counter(expected)
    assert target + source == expected
    return len(source), len(target)


def cut(broker: StompBroker, points: list[int], direction: str) -> set[int]:
    """Move, with the connection cut after so many bytes of one direction; how many were moved each time."""
    reached = set()
    for point in points:
        expected = fill(broker, FROM, COUNT)
        with FaultProxy((broker.host, broker.port)) as proxy:
            proxy.rules = Rules(**{direction: Direction(cut_after=point)})
            result = run(broker, *MOVE, "--yes", url=f"stomp://127.0.0.1:{proxy.port}")
        _, moved = check_all_there(broker, expected)
        assert result.exit_code == (1 if moved < COUNT else result.exit_code), result.output
        if "before this error" in result.output:  # whether the broker has the last COMMIT is not known
            assert "but the last batch may be moved, too" in result.output
        reached.add(moved)
    return reached


#: Bytes that a move of COUNT messages sends: about 40 for each SEND and ACK.
_UP = 62_000
_DOWN = 60_000


@pytest.mark.long
def test_a_cut_connection_loses_and_doubles_nothing(broker: StompBroker) -> None:
    """From the broker's side, this is what a killed process looks like: its frames end anywhere."""
    assert len(cut(broker, [600, *range(5_000, _UP, 11_000)], "up")) > 2  # some cuts came between two batches
    cut(broker, [100, 20_000, 40_000], "down")


@pytest.mark.slow
def test_a_connection_cut_at_many_points_loses_and_doubles_nothing(broker: StompBroker) -> None:
    assert len(cut(broker, list(range(0, _UP, 997)), "up")) > 2
    assert len(cut(broker, list(range(0, _DOWN, 1_999)), "down")) > 2


@contextlib.contextmanager
def ending_at(broker: StompBroker, arguments: tuple[str, ...], commits: int, number: int) -> Iterator[Any]:
    """Run a tool in a process that gets a signal after so many COMMITs of this block; the process afterwards."""

    def count() -> int:
        return sum(frame.command == "COMMIT" for frame in broker.frames)

    before = count()
    with FaultProxy((broker.host, broker.port)) as proxy:
        proxy.rules = Rules(down=Direction(delay=0.005))  # else it may be over before the signal
        process = started(f"stomp://127.0.0.1:{proxy.port}", *arguments, "--yes", stderr=subprocess.DEVNULL)
        yield process
        wait_for(lambda: process.poll() is not None or count() >= before + commits)
        process.send_signal(number)
        process.wait(patience(60))


def end_at(broker: StompBroker, commits: int, number: int) -> tuple[int, int, int]:
    """Move, to a signal after so many COMMITs. The status, and how many are in each queue."""
    expected = fill(broker, FROM, COUNT)
    with ending_at(broker, MOVE, commits, number) as process:
        pass
    return (process.returncode, *check_all_there(broker, expected))


@pytest.mark.long
@pytest.mark.parametrize("commits", [1, 3])
def test_kill_9_loses_and_doubles_nothing(broker: StompBroker, commits: int) -> None:
    status, _, moved = end_at(broker, commits, signal.SIGKILL)
    assert status == -signal.SIGKILL or moved == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("commits", range(8))
def test_kill_9_at_many_points_loses_and_doubles_nothing(broker: StompBroker, commits: int) -> None:
    for _ in range(5):
        end_at(broker, commits, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["move", "dlq retry"])
@pytest.mark.parametrize("commits", range(4))
def test_kill_9_beside_another_consumer_loses_and_doubles_nothing(broker: StompBroker, verb: str, commits: int) -> None:
    dead = verb == "dlq retry"
    source, target = ("/queue/DLQ.from", FROM) if dead else (FROM, TO)
    expected = buried(broker, target, COUNT) if dead else fill(broker, source, COUNT)
    others: list[bytes] = []
    with stomp.connect(broker.url) as client:
        with ending_at(broker, ("dlq", "retry", source) if dead else MOVE, commits, signal.SIGKILL):
            broker.wait_subscribed(source, timeout=patience(30))
            client.subscribe(
                source, ack="client-individual", prefetch=1, handler=lambda message: others.append(message.body)
            )
        client.drain(patience(30))  # closed at once, it would not acknowledge the last message that it handled
    broker.wait_disconnected(timeout=patience(30))
    with stomp.connect(broker.url) as client:  # takes what comes back
        others += [message.body for message in taken(client, source)]
    moved = bodies(broker, target)
    assert Counter(others + moved) == Counter(expected)
    assert moved == sorted(moved, key=int)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_between_two_batches(broker: StompBroker, number: int) -> None:
    status, left, moved = end_at(broker, 1, number)
    assert (status, left > 0) in ((130, True), (130, False), (0, False), (-number, False))  # at the very end
    assert moved > 0


def test_beside_another_consumer_each_message_goes_to_one(broker: StompBroker) -> None:
    expected = fill(broker, FROM, COUNT)
    others: list[bytes] = []
    begun = threading.Event()

    def take(message: stomp.Message) -> None:
        others.append(message.body)
        begun.set()

    with stomp.connect(broker.url) as client:
        client.subscribe(FROM, ack="client-individual", prefetch=5, handler=take)
        assert begun.wait(patience(10))
        assert run(broker, *MOVE, "--yes").exit_code == 0
        wait_for(lambda: len(others) + broker.queued(TO) >= COUNT)
        client.drain(patience(10))
    assert Counter(others + bodies(broker, TO)) == Counter(expected)


@pytest.mark.parametrize("point", [600, 1_200, 1_500])
def test_a_purge_that_is_cut_removes_only_what_it_counts_or_more(broker: StompBroker, point: int) -> None:
    """What is left is the end of the queue: no message comes back that was removed."""
    expected = fill(broker, FROM, COUNT)
    with FaultProxy((broker.host, broker.port)) as proxy:
        proxy.rules = Rules(up=Direction(cut_after=point))
        run(broker, "purge", FROM, "--yes", url=f"stomp://127.0.0.1:{proxy.port}")
    broker.wait_disconnected(timeout=patience(30))
    left = bodies(broker, FROM)
    assert left == expected[COUNT - len(left) :]


# --lenient: what ActiveMQ writes against the rules of STOMP is named, and passed over

#: As ActiveMQ 6 writes a JMS message with the property "new\nline", and a text with a NUL. `{0}` are its usual headers.
WIRES = {
    "good": "MESSAGE\n{0}content-length:4\n\ngood\0\n",
    "lf": "MESSAGE\n{0}new\nline:v\n\nbody\0\n",
    "nul": "MESSAGE\n{0}\nnul\0in text\0\n",
}
QUEUE = ["good", "nul", "lf", "good", "lf", "nul"]


class ActiveMQ(Peer):
    """Enough of ActiveMQ for the queue tools: it shows a queue, delivers it, and forgets what is acknowledged."""

    def __init__(self, kinds):
        self.held = {f"ID:m-{number}": kind for number, kind in enumerate(kinds)}
        self.dead_letters = []
        self.browsers = itertools.count()
        super().__init__(server="ActiveMQ/6.3.1")

    def wire(self, side, frame, id, kind):
        heads = {"expires": "0", "destination": frame.headers["destination"], "subscription": frame.headers["id"]}
        if frame.get("browser") is None:
            heads["ack"] = f"{side.number}-{id}"
        heads |= {"original-destination": "/queue/orders", "message-id": id, "timestamp": "1764361234567"}
        return WIRES[kind].format("".join(f"{name}:{value}\n" for name, value in heads.items())).encode()

    def on_subscribe(self, side, frame):
        side.receipt(frame)
        self.waiting = dict(self.held)
        self.hand_out(side, frame, None if frame.get("browser") else int(frame.headers["activemq.prefetchSize"]))
        if frame.get("browser"):
            end = "MESSAGE\nbrowser:end\nsubscription:{}\nmessage-id:{}\ndestination:x\n\n\0\n"
            side.connection.output.append(end.format(frame.headers["id"], next(self.browsers)).encode())

    def hand_out(self, side, frame, window=1):
        """Deliver as many as the prefetch allows."""
        self.asked = frame
        for id in [*self.waiting][:window]:
            side.connection.output.append(self.wire(side, frame, id, self.waiting.pop(id)))

    def on_ack(self, side, frame):
        self.held.pop(frame.headers["id"].partition("-")[2])
        side.receipt(frame)
        self.hand_out(side, self.asked)

    def on_nack(self, side, frame):
        self.dead_letters.append(frame.headers["id"].partition("-")[2])
        self.on_ack(side, frame)


@pytest.fixture
def activemq() -> Iterator[Any]:
    with ActiveMQ(QUEUE) as peer:
        yield peer


#: Verb, its status with --lenient, how many are left, and what it says then.
LENIENT = [
    ("browse /queue/a --json", 0, QUEUE, '["message-id","ID:m-3"]'),
    ("dlq list /queue/DLQ --json", 0, QUEUE, '"messages": 2'),
    ("dlq show /queue/DLQ", 0, QUEUE, "ID:m"),
    (
        "dlq retry /queue/DLQ --yes --only /queue/orders",
        1,
        ["nul", "lf"] * 2,
        "4 messages stayed in /queue/DLQ: they",
    ),
    ("move /queue/a /queue/b --yes", 1, ["nul", "lf"] * 2, "4 messages stayed in /queue/a: they"),
    ("purge /queue/a --yes --json", 0, [], '"messages": 6'),
    ("purge /queue/a --dry-run", 0, QUEUE, "would remove 6 messages"),
    ("sub /queue/a -n 2", 0, None, "good\n"),
    ("record /queue/a -o {0}/a.stompcap -n 2", 0, None, "2 messages recorded"),
]


@pytest.mark.parametrize(("verb", "status", "left", "said"), LENIENT, ids=[case[0] for case in LENIENT])
def test_each_message_that_cannot_be_read_is_named_once(
    activemq: Any, verb: str, status: int, left: list[str] | None, said: str, tmp_path: Path
) -> None:
    result = run(activemq, *verb.format(tmp_path).split(), "--lenient")
    assert result.exit_code == status, result.output
    assert said in result.output
    lines = [line for line in result.stderr.splitlines() if "passed over" in line]
    named = sorted(re.search(r"message-id '(.*?)'", line)[1] for line in lines)
    assert named == ["ID:m-1", "ID:m-2", "ID:m-4", "ID:m-5"][: len(named)]
    if left is None:  # sub and record refuse them, and may end before the last one
        activemq.wait(lambda peer: peer.dead_letters[:2] == ["ID:m-1", "ID:m-2"])
    else:
        assert len(named) == 4
        assert sorted(activemq.held.values()) == sorted(left)
        assert activemq.dead_letters == []


@pytest.mark.parametrize("verb", [case[0] for case in LENIENT[:-1] if "--dry-run" not in case[0]])
def test_without_it_the_error_names_the_message_and_the_option(activemq: Any, verb: str) -> None:
    result = run(activemq, *verb.split())
    assert result.exit_code == 1
    line = next(line for line in result.stderr.splitlines() if "malformed" in line and "--lenient" in line)
    assert "message-id 'ID:m-1'" in line
    assert line.endswith("(pass over such messages with --lenient)")
    assert list(activemq.held.values()) == QUEUE or verb.startswith(("sub", "move"))  # whose good one is gone


@pytest.mark.parametrize("kinds", [["lf"], ["nul"], ["nul", "lf"], ["good", "good", "lf"]], ids="-".join)
def test_purge_removes_it_from_any_place(kinds: list[str]) -> None:
    with ActiveMQ(kinds) as peer:
        result = run(peer, "purge", "/queue/a", "--yes", "--lenient")
        assert (result.exit_code, peer.held) == (0, {}), result.output
