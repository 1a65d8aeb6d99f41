"""stompcodec browse, move, purge and dlq: what they do, and that no message is lost or doubled by them."""

import contextlib
import json
import re
import signal
import subprocess
import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from cli.foreign import Foreign
from cli.running import Terminal, environment, started
from cli.running import run as run_verb
from client.feeding import wait_for
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec.cli.looking import Origin, body_of, kind_of, origin_of
from stompcodec.cli.verbs.queues import BATCH, _split
from stompcodec.testing import FaultProxy, StompBroker
from stompcodec.testing.faults import Direction, Rules

pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

#: Three batches and some.
COUNT = 350
FROM, TO, LETTERS = "/queue/from", "/queue/to", "/queue/DLQ.from"
MOVE = ("move", FROM, TO)


@pytest.fixture(scope="module")
def running():
    with StompBroker() as broker:
        yield broker


@pytest.fixture
def broker(running):
    """A broker whose queues are empty before and after."""
    yield running
    for queue in (FROM, TO, LETTERS):
        bodies(running, queue)


def run(broker, *arguments, url=None):
    return run_verb(*arguments, "-u", url or broker.url, "--timeout", str(patience(10)))


def good(broker, *arguments):
    result = run(broker, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def numbers(first, last):
    return [b"%d" % number for number in range(first, last)]


def fill(broker, queue, count, **headers):
    with stomp.connect(broker.url) as client:
        client.send_many([(queue, body, {"n": body.decode(), **headers}) for body in numbers(0, count)])
    return numbers(0, count)


def taken(broker, queue):
    """Take what is in a queue."""
    with stomp.connect(broker.url) as client:
        return list(iter(lambda: client.receive(queue), None))


def bodies(broker, queue):
    return [message.body for message in taken(broker, queue)]


def buried(broker, queue, count):
    """Make dead letters."""
    expected = fill(broker, queue, count)
    with stomp.connect(broker.url) as client, client.subscribe(queue, ack="client-individual") as subscription:
        for _ in expected:
            subscription.get(patience(30)).nack(requeue=False)
    wait_for(lambda: broker.queued(f"/queue/DLQ.{queue.removeprefix('/queue/')}") == count)
    return expected


# What they do


def test_browse_shows_and_takes_nothing(broker):
    fill(broker, FROM, 12, colour="red")
    lines = good(broker, "browse", FROM).splitlines()
    assert [line.split()[0] for line in lines] == ["NUMBER", *map(str, range(1, 13)), "12"]
    assert "colour=red" in lines[1]
    assert good(broker, "browse", FROM, "-f", "{body},").startswith("".join(f"{number}," for number in range(12)))
    assert good(broker, "browse", FROM, "-f", "{body}", "--selector", "n > 9").startswith("1011")
    assert json.loads(good(broker, "browse", FROM, "--json", "-n", "1").splitlines()[0])["body"] == "0"
    assert "n: 0" in good(broker, "browse", FROM, "--pretty")
    assert [message.redelivered for message in taken(broker, FROM)] == [False] * 12


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1, COUNT])
def test_move_keeps_order_headers_and_bodies(broker, count):
    fill(broker, FROM, count, priority="7", **{"content-type": "text/plain", "idempotency-key": "", "k:\n": "v\\"})
    assert good(broker, *MOVE, "--yes") == f"{count:,} message{'s' * (count != 1)} moved to {TO}\n"
    assert broker.queued(FROM) == 0
    moved = taken(broker, TO)
    assert [message.body for message in moved] == numbers(0, count)
    for number, message in enumerate(moved):
        found = [message.headers[name] for name in ("n", "priority", "k:\n", "content-type")]
        assert (found, message.redelivered) == ([str(number), "7", "v\\", "text/plain"], False)


def test_move_selects_and_limits(broker):
    fill(broker, FROM, 250)
    good(broker, *MOVE, "--selector", "n >= 240", "--yes")
    assert bodies(broker, TO) == numbers(240, 250)
    counts = json.loads(good(broker, *MOVE, "--limit", "120", "--yes", "--json"))
    assert counts == {"verb": "move", "queue": FROM, "messages": 120, "bytes": 250, "left": 0, "dry_run": False}
    assert bodies(broker, TO) == numbers(0, 120)
    rest = taken(broker, FROM)
    assert [message.body for message in rest] == numbers(120, 240)
    assert not any(message.redelivered for message in rest)  # --limit took none that it did not move


@pytest.mark.parametrize("verb", [MOVE, ("dlq", "retry", FROM, "--to", TO)], ids=lambda verb: verb[0])
def test_a_broker_with_small_transactions_needs_small_batches(verb):
    with StompBroker(max_transaction_octets=2**16) as small:
        with stomp.connect(small.url) as client:
            client.send_many([(FROM, b"x" * 4000) for _ in range(40)])
        result = run(small, *verb, "--yes")
        assert (result.exit_code, "smaller --batch" in result.output, small.queued(FROM)) == (1, True, 40)
        good(small, *verb, "--yes", "--batch", "10")
        assert (small.queued(FROM), small.queued(TO)) == (0, 40)


def test_headers_that_would_take_effect_again_are_renamed(broker):
    """With its idempotency-key a message that comes back would be dropped as a duplicate."""
    fill(broker, FROM, 1, **{"idempotency-key": "once", "x-message-ttl": "90000000", "delay": "1"})
    for source, target in ((FROM, TO), (TO, FROM)):
        broker.wait_queued(source, 1, timeout=patience(20))
        good(broker, "move", source, target, "--yes")
    (message,) = taken(broker, FROM)
    got = dict(message.headers.pairs())
    assert (got["original-idempotency-key"], got["original-delay"]) == ("once", "1")
    assert not {"idempotency-key", "delay", "x-message-ttl"} & set(got)


@pytest.mark.parametrize(("size", "count", "batches"), [(5 * 2**20, 3, [1, 1, 1]), (0, 3, [3])])
def test_large_bodies_make_small_batches(size, count, batches):
    assert [len(batch) for batch in _split([SimpleNamespace(body=bytes(size))] * count)] == batches


def test_purge_removes_what_is_there(broker):
    fill(broker, FROM, COUNT)
    assert good(broker, "purge", FROM, "--dry-run") == f"would remove {COUNT} messages\n"
    assert broker.queued(FROM) == COUNT
    assert good(broker, "purge", FROM, "--yes") == f"{COUNT} messages removed\n"
    assert good(broker, "purge", FROM, "--yes") == "0 messages removed\n"


def test_dead_letters_are_listed_shown_and_sent_back(broker):
    buried(broker, FROM, 3)
    rows = [json.loads(line) for line in good(broker, "dlq", "list", "--json").splitlines()]
    assert rows == [{"queue": LETTERS, "from": FROM, "reason": "rejected", "messages": 3}]
    assert "rejected" in good(broker, "dlq", "list", LETTERS).splitlines()[1]
    shown = good(broker, "dlq", "show", LETTERS, "--selector", "n = 1").splitlines()
    assert shown[1].split()[:4] == ["1", FROM, "rejected", "1"]
    planned = good(broker, "dlq", "retry", LETTERS, "--dry-run").splitlines()
    assert planned == ["would send back 3 messages to where they came from", f"  3 to {FROM}"]
    assert broker.queued(LETTERS) == 3
    good(broker, "dlq", "retry", LETTERS, "--selector", "n = 1", "--yes")
    good(broker, "dlq", "retry", LETTERS, "--limit", "1", "--yes")
    assert (bodies(broker, FROM), broker.queued(LETTERS)) == ([b"1", b"0"], 1)


def test_no_message_becomes_a_request():
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
        assert (result.exit_code, "2 messages stayed in /queue/DLQ.a" in result.stderr) == (1, True)
        assert [broker.queued(name) for name in ("/queue/DLQ.a", "/queue/a", "/queue/answers")] == [2, 1, 0]


# What brokers can do


def client_of(server, dialect):
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
def test_the_kinds_of_brokers(server, dialect, shows, selects, atomic, jms):
    kind = kind_of(client_of(server, dialect))
    assert (kind.shows, kind.selects, kind.atomic, kind.jms) == (shows, selects, atomic, jms)
    text = SimpleNamespace(body=b"caf\xc3\xa9", get=lambda _name: None)
    assert body_of(text, kind) == ("café" if jms else text.body)
    assert body_of(SimpleNamespace(body=b"\xff", get=lambda _name: None), kind) == b"\xff"


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({"original-destination": "/queue/a"}, "/queue/a"),
        ({"originalDestination": "queue://a"}, "/queue/a"),  # by ActiveMQ's API
        ({"_AMQ_ORIG_ADDRESS": "a"}, "/queue/a"),
        ({"original-destination": "/topic/a"}, None),
        ({"originalDestination": "topic://a"}, None),
        ({"original-destination": "/temp-queue/a"}, None),
        ({"original-destination": "/management/purge"}, None),
        ({"original-destination": "/queue/DLQ"}, None),  # itself
        ({"_AMQ_ORIG_ADDRESS": "DLQ"}, None),  # by another name
        ({}, None),
        ({"original-destination": ""}, None),
    ],
)
def test_where_a_dead_letter_came_from(headers, origin):
    kind = kind_of(client_of("ActiveMQ/6.1", "activemq"))._replace(management="/management/")
    assert origin_of(SimpleNamespace(id="1", get=headers.get), "/queue/DLQ", kind) == Origin(origin)


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
def test_rabbitmq_is_told_apart_and_nothing_is_taken(arguments, said):
    with Peer(server="RabbitMQ/3.10.8") as peer:
        result = run_verb(*arguments.split(), "-u", peer.url)
        assert (result.exit_code, "SUBSCRIBE" in peer.commands()) == (2, False), result.output
        assert f"RabbitMQ {said}" in " ".join(result.output.split())


# Consent


@pytest.mark.parametrize("verb", [MOVE, ("purge", FROM), ("dlq", "retry", FROM)], ids=lambda verb: verb[0])
def test_without_a_terminal_and_yes_nothing_happens(verb, monkeypatch):
    monkeypatch.setattr("stompcodec.client.connect", lambda *_arguments, **_options: pytest.fail("connected"))
    result = run_verb(*verb, input="y\n")
    assert (result.exit_code, "give --yes" in result.output) == (2, True)


@pytest.mark.long
@pytest.mark.parametrize(("answer", "status", "left"), [("y\n", 0, 0), ("n\n", 1, 3), ("\x03", 130, 3)])
def test_a_terminal_is_asked(broker, answer, status, left):
    fill(broker, FROM, 3)
    with Terminal(*MOVE, STOMPCODEC_URL=broker.url) as terminal:
        terminal.until(f"Move 3 messages of {FROM} to {TO}?", "[y/N]:")
        if answer != "\x03":
            terminal.press(answer)
        for _ in range(100 if answer == "\x03" else 0):  # again where Python just began to wait, and did not see it
            terminal.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.process.wait(1)
                break
        terminal.end(status)
    assert (broker.queued(FROM), broker.queued(TO)) == (left, 3 - left)


def test_messages_for_an_exclusive_consumer_are_not_passed_over_in_silence(broker):
    with stomp.connect(broker.url) as client:
        options = {"exclusive": "true", "consumer-priority": "9"}
        client.subscribe(FROM, ack="client-individual", prefetch=1, headers=options)
        fill(broker, FROM, 3)
        result = run(broker, *MOVE, "--yes", "--idle", "0.5")
    assert result.exit_code == 1
    assert f"{FROM} has messages that did not come in 0.5 s" in result.stderr
    broker.wait_queued(FROM, 3, timeout=patience(20))


# Neither lost nor doubled


def check_all_there(broker, expected):
    """Each message is in one of both queues, once, and in order. Return how many are in each."""
    broker.wait_disconnected(timeout=patience(30))
    source, target = bodies(broker, FROM), bodies(broker, TO)
    assert Counter(source + target) == Counter(expected)
    assert target + source == expected
    return len(source), len(target)


#: Bytes that a move of COUNT messages sends, about 40 for each SEND and ACK, and gets.
_UP, _DOWN = 62_000, 60_000


@pytest.mark.parametrize(
    ("direction", "points"),
    [
        pytest.param("up", [600, *range(5_000, _UP, 11_000)], marks=pytest.mark.long),
        pytest.param("down", [100, 20_000, 40_000], marks=pytest.mark.long),
        pytest.param("up", range(0, _UP, 997), marks=pytest.mark.slow),
        pytest.param("down", range(0, _DOWN, 1_999), marks=pytest.mark.slow),
    ],
)
def test_a_cut_connection_loses_and_doubles_nothing(broker, direction, points):
    """From the broker's side, this is what a killed process looks like: its frames end anywhere."""
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
    assert len(reached) > 2 or len(points) == 3  # some cuts came between two batches


@contextlib.contextmanager
def ending_at(broker, arguments, commits, number):
    """Run a tool in a process that gets a signal after so many COMMITs of this block; the process afterwards."""

    def count():
        return sum(frame.command == "COMMIT" for frame in broker.frames)

    before = count()
    with FaultProxy((broker.host, broker.port)) as proxy:
        proxy.rules = Rules(down=Direction(delay=0.005))  # else it may be over before the signal
        env = environment(STOMPCODEC_URL=f"stomp://127.0.0.1:{proxy.port}")
        process = started(*arguments, "--yes", env=env, stderr=subprocess.DEVNULL)
        yield process
        wait_for(lambda: process.poll() is not None or count() >= before + commits)
        process.send_signal(number)
        process.wait(patience(60))


def end_at(broker, commits, number):
    """Move, to a signal after so many COMMITs. The status, and how many are in each queue."""
    expected = fill(broker, FROM, COUNT)
    with ending_at(broker, MOVE, commits, number) as process:
        pass
    return (process.returncode, *check_all_there(broker, expected))


@pytest.mark.parametrize(
    ("commits", "times"),
    [
        *(pytest.param(commits, 1, marks=pytest.mark.long) for commits in (1, 3)),
        *(pytest.param(commits, 5, marks=pytest.mark.slow) for commits in range(8)),
    ],
)
def test_kill_9_loses_and_doubles_nothing(broker, commits, times):
    for _ in range(times):
        status, _, moved = end_at(broker, commits, signal.SIGKILL)
        assert status == -signal.SIGKILL or moved == COUNT


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_between_two_batches(broker, number):
    status, left, moved = end_at(broker, 1, number)
    assert (status, left > 0) in ((130, True), (130, False), (0, False), (-number, False))  # at the very end
    assert moved > 0


def test_beside_another_consumer_each_message_goes_to_one(broker):
    expected, others, begun = fill(broker, FROM, COUNT), [], threading.Event()

    def take(message):
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
def test_a_purge_that_is_cut_removes_only_what_it_counts_or_more(broker, point):
    """What is left is the end of the queue: no message comes back that was removed."""
    expected = fill(broker, FROM, COUNT)
    with FaultProxy((broker.host, broker.port)) as proxy:
        proxy.rules = Rules(up=Direction(cut_after=point))
        run(broker, "purge", FROM, "--yes", url=f"stomp://127.0.0.1:{proxy.port}")
    broker.wait_disconnected(timeout=patience(30))
    left = bodies(broker, FROM)
    assert left == expected[COUNT - len(left) :]


# --lenient: what ActiveMQ writes against the rules of STOMP is named, and passed over

QUEUE = ["good", "nul", "lf", "good", "lf", "nul"]
BAD = ["nul", "lf", "lf", "nul"]
#: Verb, its status with --lenient, what is left, and what it says then. sub and record refuse those they cannot read.
LENIENT = [
    ("browse /queue/a --json", 0, QUEUE, '["message-id","ID:m-3"]'),
    ("dlq list /queue/DLQ --json", 0, QUEUE, '"messages": 2'),
    ("dlq show /queue/DLQ", 0, QUEUE, "ID:m"),
    ("dlq retry /queue/DLQ --yes --only /queue/orders", 1, BAD, "4 messages stayed in /queue/DLQ: they"),
    ("move /queue/a /queue/b --yes", 1, BAD, "4 messages stayed in /queue/a: they"),
    ("purge /queue/a --yes --json", 0, [], '"messages": 6'),
    ("purge /queue/a --dry-run", 0, QUEUE, "would remove 6 messages"),
    ("sub /queue/a -n 2", 0, None, "good\n"),
    ("record /queue/a -o {0}/a.stompcap -n 2", 0, None, "2 messages recorded"),
]


@pytest.mark.parametrize(("verb", "status", "left", "said"), LENIENT, ids=[case[0] for case in LENIENT])
def test_each_message_that_cannot_be_read_is_named_once(verb, status, left, said, tmp_path):
    with Foreign(QUEUE) as peer:
        result = run(peer, *verb.format(tmp_path).split(), "--lenient")
        assert (result.exit_code, said in result.output) == (status, True), result.output
        lines = [line for line in result.stderr.splitlines() if "passed over" in line]
        named = sorted(re.search(r"message-id '(.*?)'", line)[1] for line in lines)
        if left is None:  # they may end before the last one
            assert named == ["ID:m-1", "ID:m-2", "ID:m-4", "ID:m-5"][: len(named)]
            peer.wait(lambda peer: peer.dead_letters[:2] == ["ID:m-1", "ID:m-2"])
        else:
            assert named == ["ID:m-1", "ID:m-2", "ID:m-4", "ID:m-5"]
            assert (sorted(peer.held.values()), peer.dead_letters) == (sorted(left), [])


@pytest.mark.parametrize("verb", [case[0] for case in LENIENT[:-1] if "--dry-run" not in case[0]])
def test_without_it_the_error_names_the_message_and_the_option(verb):
    with Foreign(QUEUE) as peer:
        result = run(peer, *verb.split())
        assert result.exit_code == 1
        line = next(line for line in result.stderr.splitlines() if "malformed" in line and "--lenient" in line)
        assert "message-id 'ID:m-1'" in line
        assert line.endswith("(pass over such messages with --lenient)")
        assert list(peer.held.values()) == QUEUE or verb.startswith(("sub", "move"))  # whose good one is gone


@pytest.mark.parametrize("kinds", [["lf"], ["nul"], ["nul", "lf"], ["good", "good", "lf"]], ids="-".join)
def test_purge_removes_it_from_any_place(kinds):
    with Foreign(kinds) as peer:
        result = run(peer, "purge", "/queue/a", "--yes", "--lenient")
        assert (result.exit_code, peer.held) == (0, {}), result.output
