"""stompcodec browse, move, purge and dlq: what they do, and that no message is lost or doubled by them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner, read_until
from click.testing import CliRunner, Result
from client.feeding import wait_for
from client.peer import Peer
from crash.process import ROOT

import stompcodec.client as stomp
from stompcodec.cli.app import app
from stompcodec.cli.queues.looking import Origin, body_of, kind_of, origin_of
from stompcodec.cli.queues.tools import BATCH, _split
from stompcodec.testing import FaultProxy, StompBroker
from stompcodec.testing.faults import Direction, Rules

pty = pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

#: Three batches and some.
COUNT = 350


@pytest.fixture(scope="module")
def broker() -> Iterator[StompBroker]:
    with StompBroker() as broker:
        yield broker


@pytest.fixture
def queues(broker: StompBroker) -> Iterator[tuple[str, str]]:
    """Two queues, empty before and after."""
    yield "/queue/from", "/queue/to"
    for queue in ("/queue/from", "/queue/to"):
        bodies(broker, queue)


def run(broker: StompBroker, *arguments: str, url: str | None = None, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments, "-u", url or broker.url, "--timeout", str(patience(10))], input=input)


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


# What they do


def test_browse_shows_and_takes_nothing(broker: StompBroker, queues: tuple[str, str]) -> None:
    source, _ = queues
    fill(broker, source, 12, colour="red")
    lines = good(broker, "browse", source).splitlines()
    assert [line.split()[0] for line in lines] == ["NUMBER", *map(str, range(1, 13)), "12"]
    assert "colour=red" in lines[1]
    assert good(broker, "browse", source, "-f", "{body},", "-q") == "".join(f"{number}," for number in range(12))
    assert good(broker, "browse", source, "-f", "{body}", "-q", "--selector", "n > 9") == "1011"
    assert good(broker, "browse", source, "-f", "{body}", "-q", "-n", "2") == "01"
    assert json.loads(good(broker, "browse", source, "--json", "-q", "-n", "1"))["body"] == "0"
    assert "n: 0" in good(broker, "browse", source, "--pretty", "-q")
    assert broker.queued(source) == 12
    with stomp.connect(broker.url) as client:
        assert client.receive(source).redelivered is False


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1, COUNT])
def test_move_keeps_order_headers_and_bodies(broker: StompBroker, queues: tuple[str, str], count: int) -> None:
    source, target = queues
    fill(broker, source, count, priority="7", **{"content-type": "text/plain", "idempotency-key": "", "k:\n": "v\\"})
    said = good(broker, "move", source, target, "--yes")
    assert said == f"{count:,} message{'s' * (count != 1)} moved to {target}\n"
    assert broker.queued(source) == 0
    with stomp.connect(broker.url) as client:
        moved = taken(client, target)
    assert [message.body for message in moved] == [b"%d" % number for number in range(count)]
    for number, message in enumerate(moved):
        assert message.headers["n"] == str(number)
        assert (message.headers["priority"], message.headers["k:\n"]) == ("7", "v\\")
        assert message.headers["content-type"] == "text/plain"
        assert not message.redelivered


def test_move_selects_and_limits(broker: StompBroker, queues: tuple[str, str]) -> None:
    source, target = queues
    fill(broker, source, 250)
    good(broker, "move", source, target, "--selector", "n >= 240", "--yes")
    assert bodies(broker, target) == [b"%d" % number for number in range(240, 250)]
    counts = json.loads(good(broker, "move", source, target, "--limit", "120", "--yes", "--json"))
    assert counts == {"verb": "move", "queue": source, "messages": 120, "bytes": 250, "left": 0, "dry_run": False}
    assert bodies(broker, target) == [b"%d" % number for number in range(120)]
    with stomp.connect(broker.url) as client:
        rest = taken(client, source)
    assert [message.body for message in rest] == [b"%d" % number for number in range(120, 240)]
    assert not any(message.redelivered for message in rest)  # --limit took none that it did not move


@pytest.mark.parametrize("verb", [["move"], ["dlq", "retry", "--to"]], ids=" ".join)
def test_a_broker_with_small_transactions_needs_small_batches(verb: list[str]) -> None:
    with StompBroker(max_transaction_octets=2**16) as small:
        queues = ["/queue/from", "/queue/to"] if verb == ["move"] else ["/queue/to", "/queue/from"]
        with stomp.connect(small.url) as client:
            client.send_many([("/queue/from", b"x" * 4000) for _ in range(40)])
        result = run(small, *verb, *queues, "--yes")
        assert result.exit_code == 1
        assert "smaller --batch" in result.output
        assert small.queued("/queue/from") == 40
        good(small, *verb, *queues, "--yes", "--batch", "10")
        assert (small.queued("/queue/from"), small.queued("/queue/to")) == (0, 40)


def test_headers_that_would_take_effect_again_are_renamed(broker: StompBroker, queues: tuple[str, str]) -> None:
    """With its idempotency-key a message that comes back would be dropped as a duplicate."""
    source, target = queues
    fill(broker, source, 1, **{"idempotency-key": "once", "x-message-ttl": "90000000", "delay": "1"})
    wait_for(lambda: broker.queued(source) == 1)
    good(broker, "move", source, target, "--yes")
    wait_for(lambda: broker.queued(target) == 1)
    good(broker, "move", target, source, "--yes")
    with stomp.connect(broker.url) as client:
        (message,) = taken(client, source)
    got = dict(message.headers.pairs())
    assert (got["original-idempotency-key"], got["original-delay"]) == ("once", "1")
    assert not {"idempotency-key", "delay", "x-message-ttl"} & set(got)


def test_large_bodies_make_small_batches(broker: StompBroker, queues: tuple[str, str]) -> None:
    source, target = queues
    body = bytes(3 * 2**20)
    with stomp.connect(broker.url) as client:
        for _ in range(4):
            client.send(source, body, receipt=True)
    good(broker, "move", source, target, "--yes")
    assert bodies(broker, target) == [body] * 4
    message = SimpleNamespace(body=bytes(5 * 2**20))
    assert [len(batch) for batch in _split([message] * 3)] == [1, 1, 1]  # type: ignore[list-item]
    assert [len(batch) for batch in _split([SimpleNamespace(body=b"")] * 3)] == [3]  # type: ignore[list-item]


def test_purge_removes_what_is_there(broker: StompBroker, queues: tuple[str, str]) -> None:
    source, _ = queues
    fill(broker, source, COUNT)
    assert good(broker, "purge", source, "--dry-run") == f"would remove {COUNT} messages\n"
    assert broker.queued(source) == COUNT
    assert good(broker, "purge", source, "--yes") == f"{COUNT} messages removed\n"
    assert broker.queued(source) == 0
    assert good(broker, "purge", source, "--yes") == "0 messages removed\n"


@pytest.fixture
def letters(broker: StompBroker) -> Iterator[str]:
    """A queue with three dead letters."""
    fill(broker, "/queue/work", 3)
    with stomp.connect(broker.url) as client, client.subscribe("/queue/work", ack="client-individual") as subscription:
        for message in subscription.take(3, patience(10)):
            message.nack(requeue=False, receipt=True)
    wait_for(lambda: broker.queued("/queue/DLQ.work") == 3)
    yield "/queue/DLQ.work"
    with stomp.connect(broker.url) as client:
        for queue in ("/queue/DLQ.work", "/queue/work"):
            taken(client, queue)


def test_dead_letters_are_listed_shown_and_sent_back(broker: StompBroker, letters: str) -> None:
    rows = [json.loads(line) for line in good(broker, "dlq", "list", "--json").splitlines()]
    assert rows == [{"queue": letters, "from": "/queue/work", "reason": "rejected", "messages": 3}]
    assert "rejected" in good(broker, "dlq", "list", letters).splitlines()[1]
    shown = good(broker, "dlq", "show", letters, "--selector", "n = 1", "-q").splitlines()
    assert shown[1].split()[:4] == ["1", "/queue/work", "rejected", "1"]
    assert len(shown) == 2
    planned = good(broker, "dlq", "retry", letters, "--dry-run").splitlines()
    assert planned == ["would send back 3 messages to where they came from", "  3 to /queue/work"]
    assert broker.queued(letters) == 3
    good(broker, "dlq", "retry", letters, "--selector", "n = 1", "--yes")
    good(broker, "dlq", "retry", letters, "--limit", "1", "--yes")
    assert bodies(broker, "/queue/work") == [b"1", b"0"]
    assert broker.queued(letters) == 1


def test_letters_of_unknown_origin_stay_and_make_the_status_1(broker: StompBroker, letters: str) -> None:
    for origin in ({}, {"original-destination": "/topic/a"}, {"original-destination": letters}):
        fill(broker, letters, 1, **origin)
    result = run(broker, "dlq", "retry", letters, "--yes")
    assert result.exit_code == 1
    assert f"3 messages stayed in {letters}: " in result.stderr
    assert "name one with --to" in result.stderr
    assert len(bodies(broker, "/queue/work")) == 3
    wait_for(lambda: broker.queued(letters) == 3)
    good(broker, "dlq", "retry", letters, "--to", "/queue/work", "--yes")
    assert len(bodies(broker, "/queue/work")) == 3


def test_a_consumer_that_rejects_again_does_not_keep_retry_busy(broker: StompBroker, letters: str) -> None:
    def reject(message: stomp.Message) -> None:
        message.nack(requeue=False)

    with stomp.connect(broker.url) as client:
        client.subscribe("/queue/work", ack="client-individual", handler=reject)
        assert good(broker, "dlq", "retry", letters, "--yes").startswith("3 messages sent back")
        wait_for(lambda: broker.queued(letters) == 3)


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
    letter = SimpleNamespace(id="1", get=headers.get)
    kind = kind_of(client_of("ActiveMQ/6.1", "activemq"))._replace(management="/management/")
    assert origin_of(letter, "/queue/DLQ", kind) == Origin(origin)  # type: ignore[arg-type]


# What other brokers cannot do


def client_of(server: str, dialect: str) -> stomp.Client:
    return SimpleNamespace(connected={"server": server}, dialect=dialect)  # type: ignore[return-value]


def test_the_kinds_of_brokers() -> None:
    ours = kind_of(client_of("stompcodec/1.0", "stompcodec"))
    assert (ours.shows, ours.selects, ours.atomic, ours.jms) == (True, True, True, False)
    assert kind_of(client_of("stompcodec/1.0 as rabbitmq", "rabbitmq")).shows
    assert not kind_of(client_of("stompcodec/1.0 as artemis", "artemis")).atomic
    rabbitmq = kind_of(client_of("RabbitMQ/3.10.8", "rabbitmq"))
    assert (rabbitmq.shows, rabbitmq.selects, rabbitmq.atomic) == (False, False, False)
    activemq = kind_of(client_of("ActiveMQ/5.17.2", "activemq"))
    assert (activemq.shows, activemq.selects, activemq.atomic, activemq.jms) == (True, True, True, True)
    assert not kind_of(client_of("", "unknown")).shows
    text = SimpleNamespace(body=b"caf\xc3\xa9", get=lambda _name: None)
    assert (body_of(text, activemq), body_of(text, ours)) == ("café", text.body)  # type: ignore[arg-type]
    assert body_of(SimpleNamespace(body=b"\xff", get=lambda _name: None), activemq) == b"\xff"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["browse", "/queue/a"], "cannot show the messages of /queue/a without taking them"),
        (["dlq", "show", "/queue/a"], "cannot show the messages of /queue/a"),
        (["dlq", "list", "/queue/a"], "cannot show the messages of /queue/a"),
        (["dlq", "list"], "does not say which queues have dead letters"),
        (["move", "/queue/a", "/queue/b", "--dry-run"], "cannot show the messages of /queue/a"),
        (["move", "/queue/a", "/queue/b", "--yes", "--selector", "a = 1"], "ignores selectors"),
        (["dlq", "retry", "/queue/a", "--yes", "--selector", "a = 1"], "ignores selectors"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_rabbitmq_is_told_apart_and_nothing_is_taken(arguments: list[str], said: str) -> None:
    with Peer(server="RabbitMQ/3.10.8") as peer:
        result = CliRunner().invoke(app, [*arguments, "-u", peer.url])
        assert result.exit_code == 2, result.output
        assert f"RabbitMQ {said}" in " ".join(result.output.split())
        assert "SUBSCRIBE" not in peer.commands()


# Consent and wrong usage


@pytest.mark.parametrize(
    "arguments", [["move", "/queue/from", "/queue/to"], ["purge", "/queue/from"], ["dlq", "retry", "/queue/from"]]
)
def test_without_a_terminal_and_yes_nothing_happens(
    arguments: list[str], broker: StompBroker, queues: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, "/queue/from", 1)
    monkeypatch.setattr("stompcodec.client.connect", lambda *_arguments, **_options: pytest.fail("connected"))
    result = CliRunner().invoke(app, [*arguments, "-u", broker.url], input="y\n")
    assert result.exit_code == 2
    assert "give --yes" in result.output
    assert broker.queued("/queue/from") == 1


def press_until_it_ends(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C, and again where Python began to wait for the answer just then, and did not see it."""
    for _ in range(100):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
            return


@pytest.mark.long
@pytest.mark.parametrize(("answer", "status", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 3), (b"\x03", 130, 3)])
def test_a_terminal_is_asked(
    broker: StompBroker, queues: tuple[str, str], answer: bytes, status: int, left: int
) -> None:
    fill(broker, "/queue/from", 3)
    near, far = pty.openpty()
    process = started(broker.url, "move", *queues, stdin=far, stderr=far, start_new_session=False)
    assert b"Move 3 messages of /queue/from to /queue/to?" in read_until(near, b"[y/N]:")
    if answer == b"\x03":
        press_until_it_ends(process)
    else:
        os.write(near, answer)
    assert process.wait(patience(60)) == status
    os.close(near)
    os.close(far)
    assert (broker.queued("/queue/from"), broker.queued("/queue/to")) == (left, 3 - left)


@pytest.mark.parametrize(
    "arguments",
    [
        ["move", "/queue/a", "/queue/a", "--yes"],
        ["move", "/topic/a", "/queue/a", "--yes"],
        ["move", "/queue/a", "/topic/a", "--yes"],
        ["move", "/queue/a", "/temp-queue/a", "--yes"],
        ["move", "/queue/a", "", "--yes"],
        ["move", "/queue/a", "/management/purge", "--yes"],
        ["move", "/queue/a", "/queue/b", "--limit", "0", "--yes"],
        ["purge", "/topic/a", "--yes"],
        ["purge", "/queue/>", "--yes"],
        ["move", "/queue/a.*", "/queue/b", "--yes"],
        ["browse", "/topic/a"],
        ["browse", "/queue/a", "-f", "{nope}"],
        ["dlq", "retry", "/queue/a", "--to", "/topic/a", "--yes"],
        ["dlq", "retry", "/queue/a", "--to", "/queue/a", "--yes"],
        ["dlq", "list", "/topic/a"],
    ],
    ids=" ".join,
)
def test_wrong_names_are_2_before_connecting(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, [*arguments, "-u", "127.0.0.1:1"])
    assert result.exit_code == 2, result.output


def test_a_refused_target_leaves_all_where_it_was(at: Runner, fresh: str) -> None:
    with stomp.connect(at.guarded_url, login="guest", passcode="guest") as client:
        for number in range(3):
            client.send(fresh, b"%d" % number, receipt=True)
        login = ["-u", at.guarded_url, "--login", "guest"]
        result = at("move", fresh, "/queue/closed", "--yes", *login, STOMPCODEC_PASSCODE="guest")
        assert result.exit_code == 1
        assert f"0 messages moved before this error; the others are in {fresh}" in result.stderr
        assert [message.body for message in taken(client, fresh)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "verb", [["browse"], ["purge", "--yes"], ["move", "--yes", "/queue/to"]], ids=lambda verb: verb[0]
)
def test_a_queue_that_may_not_be_read_is_1(at: Runner, verb: list[str]) -> None:
    where = ["-u", at.guarded_url, "--login", "guest"]
    result = at(verb[0], "/queue/closed", *verb[1:], *where, STOMPCODEC_PASSCODE="guest")
    assert result.exit_code == 1, result.output
    assert "SUBSCRIBE to /queue/closed was rejected" in result.stderr


def test_messages_for_an_exclusive_consumer_are_not_passed_over_in_silence(
    broker: StompBroker, queues: tuple[str, str]
) -> None:
    with stomp.connect(broker.url) as client:
        options = {"exclusive": "true", "consumer-priority": "9"}
        client.subscribe(queues[0], ack="client-individual", prefetch=1, headers=options)
        fill(broker, queues[0], 3)
        result = run(broker, "move", *queues, "--yes", "--idle", "0.5")
    assert result.exit_code == 1
    assert f"{queues[0]} has messages that did not come in 0.5 s" in result.stderr
    wait_for(lambda: broker.queued(queues[0]) == 3)


# Neither lost nor doubled


def started(url: str, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": ROOT, "STOMPCODEC_URL": url}
    return subprocess.Popen([sys.executable, "-m", "stompcodec.cli", *arguments], env=environment, **options)


def check_all_there(broker: StompBroker, queues: tuple[str, str], expected: list[bytes]) -> tuple[int, int]:
    """Each message is in one of both queues, once, and in order. Return how many are in each."""
    broker.wait_disconnected(timeout=patience(30))
    source, target = (bodies(broker, queue) for queue in queues)
    assert Counter(source + target) == Counter(expected)
    assert target + source == expected
    return len(source), len(target)


def cut(broker: StompBroker, queues: tuple[str, str], points: list[int], direction: str) -> set[int]:
    """Move, with the connection cut after so many bytes of one direction; how many were moved each time."""
    reached = set()
    for point in points:
        expected = fill(broker, queues[0], COUNT)
        with FaultProxy((broker.host, broker.port)) as proxy:
            proxy.rules = Rules(**{direction: Direction(cut_after=point)})
            result = run(broker, "move", *queues, "--yes", url=f"stomp://127.0.0.1:{proxy.port}")
        _, moved = check_all_there(broker, queues, expected)
        assert result.exit_code == (1 if moved < COUNT else result.exit_code), result.output
        if "before this error" in result.output:  # whether the broker has the last COMMIT is not known
            assert "but the last batch may be moved, too" in result.output
        reached.add(moved)
    return reached


#: Bytes that a move of COUNT messages sends: about 40 for each SEND and ACK.
_UP = 62_000
_DOWN = 60_000


@pytest.mark.long
def test_a_cut_connection_loses_and_doubles_nothing(broker: StompBroker, queues: tuple[str, str]) -> None:
    """From the broker's side, this is what a killed process looks like: its frames end anywhere."""
    reached = cut(broker, queues, [600, *range(5_000, _UP, 11_000)], "up")
    assert len(reached) > 2  # some cuts came between two batches
    cut(broker, queues, [100, 20_000, 40_000], "down")


@pytest.mark.slow
def test_a_connection_cut_at_many_points_loses_and_doubles_nothing(
    broker: StompBroker, queues: tuple[str, str]
) -> None:
    assert len(cut(broker, queues, list(range(0, _UP, 997)), "up")) > 2
    assert len(cut(broker, queues, list(range(0, _DOWN, 1_999)), "down")) > 2


def end_at(broker: StompBroker, queues: tuple[str, str], commits: int, number: int) -> tuple[int, int, int]:
    """Move in a process that gets a signal after so many COMMITs. The status, and how many are in each queue."""
    expected = fill(broker, queues[0], COUNT)
    before = sum(frame.command == "COMMIT" for frame in broker.frames)
    with FaultProxy((broker.host, broker.port)) as proxy:
        proxy.rules = Rules(down=Direction(delay=0.005))  # else it may be over before the signal
        process = started(f"stomp://127.0.0.1:{proxy.port}", "move", *queues, "--yes", stderr=subprocess.DEVNULL)
        wait_for(
            lambda: (
                process.poll() is not None
                or sum(frame.command == "COMMIT" for frame in broker.frames) >= before + commits
            )
        )
        process.send_signal(number)
        status = process.wait(patience(60))
    return (status, *check_all_there(broker, queues, expected))


@pytest.mark.long
@pytest.mark.parametrize("commits", [1, 3])
def test_kill_9_loses_and_doubles_nothing(broker: StompBroker, queues: tuple[str, str], commits: int) -> None:
    status, _, moved = end_at(broker, queues, commits, signal.SIGKILL)
    assert status == -signal.SIGKILL or moved == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("commits", range(8))
def test_kill_9_at_many_points_loses_and_doubles_nothing(
    broker: StompBroker, queues: tuple[str, str], commits: int
) -> None:
    for _ in range(5):
        end_at(broker, queues, commits, signal.SIGKILL)


def buried(broker: StompBroker, queue: str, count: int) -> list[bytes]:
    """Make dead letters."""
    expected = fill(broker, queue, count)
    with stomp.connect(broker.url) as client, client.subscribe(queue, ack="client-individual") as subscription:
        for _ in expected:
            subscription.get(patience(30)).nack(requeue=False)
    wait_for(lambda: broker.queued(f"/queue/DLQ.{queue.removeprefix('/queue/')}") == count)
    return expected


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["move", "dlq retry"])
@pytest.mark.parametrize("commits", range(4))
def test_kill_9_beside_another_consumer_loses_and_doubles_nothing(
    broker: StompBroker, queues: tuple[str, str], verb: str, commits: int
) -> None:
    dead = verb == "dlq retry"
    source, target = ("/queue/DLQ.from", "/queue/from") if dead else queues
    arguments = ["dlq", "retry", source] if dead else ["move", source, target]
    expected = buried(broker, target, COUNT) if dead else fill(broker, source, COUNT)
    before = sum(frame.command == "COMMIT" for frame in broker.frames)
    others: list[bytes] = []
    with FaultProxy((broker.host, broker.port)) as proxy, stomp.connect(broker.url) as client:
        proxy.rules = Rules(down=Direction(delay=0.005))  # else it may be over before the kill
        process = started(f"stomp://127.0.0.1:{proxy.port}", *arguments, "--yes", stderr=subprocess.DEVNULL)
        broker.wait_subscribed(source, timeout=patience(30))
        client.subscribe(
            source, ack="client-individual", prefetch=1, handler=lambda message: others.append(message.body)
        )
        wait_for(
            lambda: (
                process.poll() is not None
                or sum(frame.command == "COMMIT" for frame in broker.frames) >= before + commits
            )
        )
        process.kill()
        process.wait(patience(60))
        broker.wait_queued(source, 0, timeout=patience(60))  # the consumer takes what comes back
    moved = bodies(broker, target)
    assert Counter(others + moved) == Counter(expected)
    assert moved == sorted(moved, key=int)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_between_two_batches(broker: StompBroker, queues: tuple[str, str], number: int) -> None:
    status, left, moved = end_at(broker, queues, 1, number)
    assert (status, left > 0) in ((130, True), (130, False), (0, False), (-number, False))  # at the very end
    assert moved > 0


def test_beside_another_consumer_each_message_goes_to_one(broker: StompBroker, queues: tuple[str, str]) -> None:
    expected = fill(broker, queues[0], COUNT)
    others: list[bytes] = []

    def take(message: stomp.Message) -> None:
        others.append(message.body)

    with stomp.connect(broker.url) as client:
        begun = threading.Event()
        client.subscribe(
            queues[0], ack="client-individual", prefetch=5, handler=lambda message: (take(message), begun.set())
        )
        assert begun.wait(patience(10))
        assert run(broker, "move", *queues, "--yes").exit_code == 0
        wait_for(lambda: len(others) + broker.queued(queues[1]) >= COUNT)
        client.drain(patience(10))
    assert Counter(others + bodies(broker, queues[1])) == Counter(expected)


def test_a_purge_that_is_cut_removes_only_what_it_counts_or_more(broker: StompBroker, queues: tuple[str, str]) -> None:
    """What is left is the end of the queue: no message comes back that was removed."""
    for point in (600, 1_200, 1_500):
        expected = fill(broker, queues[0], COUNT)
        with FaultProxy((broker.host, broker.port)) as proxy:
            proxy.rules = Rules(up=Direction(cut_after=point))
            run(broker, "purge", queues[0], "--yes", url=f"stomp://127.0.0.1:{proxy.port}")
        broker.wait_disconnected(timeout=patience(30))
        left = bodies(broker, queues[0])
        assert left == expected[COUNT - len(left) :]


def test_messages_that_come_meanwhile_stay(broker: StompBroker, queues: tuple[str, str], tmp_path: Path) -> None:
    """Each one that is moved makes another one come: the tool ends after those that were there."""
    fill(broker, queues[0], 150)
    with stomp.connect(broker.url) as client:

        def send_again(message: stomp.Message) -> None:
            client.send(queues[0], b"new " + message.body)

        client.subscribe(queues[1], ack="client-individual", handler=send_again)
        assert good(broker, "move", *queues, "--yes") == f"150 messages moved to {queues[1]}\n"
        wait_for(lambda: broker.queued(queues[0]) == 150)
