"""stompcodec browse, move, purge and dlq: what they do, that no message is lost, where a letter goes back."""

import contextlib
import itertools
import json
import re
import signal
import subprocess
import threading
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from bridge.running import take_all
from cli.running import Runner, Terminal, ended, environment, started
from cli.running import run as run_verb
from client.feeding import wait_for
from client.peer import Peer
from crash.process import BrokerProcess
from patience import patience

import stompcodec.client as stomp
from stompcodec.cli.looking import Origin, kind_of, origin_of
from stompcodec.cli.verbs.queues import BATCH, MOST_LISTED, Returning, _split
from stompcodec.client import dialects
from stompcodec.testing import FaultProxy, StompBroker
from stompcodec.testing.faults import Direction, Rules

#: As ActiveMQ 6 writes a JMS message with the property "new\nline", and a text with a NUL. `{0}` are its usual headers.
WIRES = {
    **{"good": "MESSAGE\n{0}content-length:4\n\ngood\0\n", "lf": "MESSAGE\n{0}new\nline:v\n\nbody\0\n"},
    "empty": "MESSAGE\n{0}\n\0\n",
    "nul": "MESSAGE\n{0}\nnul\0in text\0\n",
}


class Foreign(Peer):
    """Enough of another broker: it shows a queue, delivers it, and forgets what is acknowledged. Its messages are kinds
    of WIRES, or good ones that came from a queue, which stands in a header."""

    def __init__(self, messages: list[str], server: str = "ActiveMQ/6.3.1", header: str = "original-destination"):
        self.held = {f"ID:m-{number}": message for number, message in enumerate(messages)}
        self.header, self.dead_letters, self.browsers = header, [], itertools.count()
        super().__init__(server=server)

    @property
    def sent(self):
        return [frame.headers["destination"] for frame in self.got("SEND")]

    def wire(self, side, frame, id, message):
        heads = {"expires": "0", "destination": frame.headers["destination"], "subscription": frame.headers["id"]}
        if frame.get("browser") is None:
            heads["ack"] = f"{side.number}-{id}"
        kind, origin = (message, "/queue/orders") if message in WIRES else ("good", message)
        heads |= {self.header: origin, "message-id": id, "timestamp": "1764361234567"}
        return WIRES[kind].format("".join(f"{name}:{value}\n" for name, value in heads.items())).encode()

    def on_subscribe(self, side, frame):
        self.waiting, self.asked = dict(self.held), frame
        self.hand_out(side, None if frame.get("browser") else int(frame.get("activemq.prefetchSize") or 1000))
        if frame.get("browser"):
            end = "MESSAGE\nbrowser:end\nsubscription:{}\nmessage-id:{}\ndestination:x\n\n\0\n"
            side.connection.output.append(end.format(frame.headers["id"], next(self.browsers)).encode())
        side.receipt(frame)  # behind the messages, so that all are there

    def hand_out(self, side, window=1):
        for id in [*self.waiting][:window]:
            side.connection.output.append(self.wire(side, self.asked, id, self.waiting.pop(id)))

    def on_ack(self, side, frame):
        self.held.pop(frame.headers["id"].partition("-")[2])
        side.receipt(frame)
        self.hand_out(side)

    def on_nack(self, side, frame):
        self.dead_letters.append(frame.headers["id"].partition("-")[2])
        self.on_ack(side, frame)


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


def bodies(broker, queue):
    return [message.body for message in take_all(broker.url, queue)]


def buried(broker, queue, count):
    expected = fill(broker, queue, count)
    with stomp.connect(broker.url) as client, client.subscribe(queue, ack="client-individual") as subscription:
        for _ in expected:
            subscription.get(patience(30)).nack(requeue=False)
    wait_for(lambda: broker.queued(f"/queue/DLQ.{queue.removeprefix('/queue/')}") == count)
    return expected


def test_browse_shows_and_takes_nothing(broker):
    fill(broker, FROM, 12, colour="red")
    lines = good(broker, "browse", FROM).splitlines()
    assert [line.split()[0] for line in lines] == ["NUMBER", *map(str, range(1, 13)), "12"]
    assert "colour=red" in lines[1]
    assert good(broker, "browse", FROM, "-f", "{body},").startswith("".join(f"{number}," for number in range(12)))
    assert good(broker, "browse", FROM, "-f", "{body}", "--selector", "n > 9").startswith("1011")
    assert json.loads(good(broker, "browse", FROM, "--json", "-n", "1").splitlines()[0])["body"] == "0"
    assert "n: 0" in good(broker, "browse", FROM, "--pretty")
    assert [message.redelivered for message in take_all(broker.url, FROM)] == [False] * 12


@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1, COUNT])
def test_move_keeps_order_headers_and_bodies(broker, count):
    fill(broker, FROM, count, priority="7", **{"content-type": "text/plain", "idempotency-key": "", "k:\n": "v\\"})
    assert good(broker, *MOVE, "--yes") == f"{count:,} message{'s' * (count != 1)} moved to {TO}\n"
    assert broker.queued(FROM) == 0
    moved = take_all(broker.url, TO)
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
    rest = take_all(broker.url, FROM)
    assert [message.body for message in rest] == numbers(120, 240)
    assert not any(message.redelivered for message in rest)  # --limit took none that it did not move


@pytest.mark.parametrize("verb", [MOVE, ("dlq", "retry", FROM, "--to", TO)], ids=lambda verb: verb[0])
def test_a_broker_with_small_transactions_gets_small_ones(verb):
    with StompBroker(max_transaction_octets=2**16) as small:
        with stomp.connect(small.url) as client:
            client.send_many([(FROM, b"x" * 4000) for _ in range(40)])
            client.send(FROM, b"x" * 70_000, receipt=True)
        ended(run(small, *verb, "--yes"), 1, "40 messages")
        assert (small.queued(FROM), small.queued(TO)) == (1, 40)


def test_headers_that_would_take_effect_again_are_renamed(broker):
    """With its idempotency-key a message that comes back would be dropped as a duplicate."""
    fill(broker, FROM, 1, **{"idempotency-key": "once", "x-message-ttl": "90000000", "delay": "1"})
    for source, target in ((FROM, TO), (TO, FROM)):
        broker.wait_queued(source, 1, timeout=patience(20))
        good(broker, "move", source, target, "--yes")
    (message,) = take_all(broker.url, FROM)
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


def client_of(server, dialect):
    return SimpleNamespace(connected={"server": server}, dialect=dialect)


@pytest.mark.parametrize(
    ("server", "dialect", "shows", "selects", "atomic"),
    [
        ("stompcodec/1.0", "stompcodec", True, True, True),
        ("stompcodec/1.0 as artemis", "artemis", True, True, False),
        ("RabbitMQ/3.10.8", "rabbitmq", False, False, False),
        ("ActiveMQ/5.17.2", "activemq", True, True, True),
    ],
)
def test_the_kinds_of_brokers(server, dialect, shows, selects, atomic):
    kind = kind_of(client_of(server, dialect))
    assert (kind.shows, kind.selects, kind.atomic) == (shows, selects, atomic)


def recorded(command, *pairs):
    return json.dumps({"command": command, "headers": pairs, "body": "é"}) + "\n"


PLACE, LENGTH = ("destination", "x"), ("content-length", "2")
#: A text message and bytes, as ActiveMQ and Artemis write them.
OF_ACTIVEMQ = recorded("MESSAGE", PLACE) + recorded("MESSAGE", LENGTH, PLACE)
OF_ARTEMIS = recorded("MESSAGE", PLACE, LENGTH) + recorded("MESSAGE", LENGTH, PLACE)


@pytest.mark.parametrize(
    ("verb", "read", "kinds"),
    [
        *(("move {0} {1} --yes", "", "text bytes bytes"), ("move {0} {1} --yes --text", "", "text text bytes")),
        ("dlq retry {0} --to {1} --yes", "", "text bytes bytes"),
        ("dlq retry {0} --to {1} --yes --bytes", "", "bytes bytes bytes"),
        *(("pub {1} -", "é", "text"), ("pub {1} - --bytes", "é", "bytes"), ("pub {1} - -l --bytes", "é", "bytes")),
        *(("pub {1} - --text", b"\xff", "bytes"), ("pub {1} - --text", b"a\0", "bytes")),
        ("pub {1} - -H content-encoding:gzip", b"a", "bytes"),
        *(("pub {1} - -H content-type:x/y" + more, "é", kind) for more, kind in (("", "bytes"), (" --text", "text"))),
        *(("pub {1} - --json", form, "text bytes") for form in (OF_ACTIVEMQ, OF_ARTEMIS)),
        ("pub {1} - --json --bytes", OF_ACTIVEMQ, "bytes bytes"),
        *(("replay - --format json -d {1}", form, "text bytes") for form in (OF_ACTIVEMQ, OF_ARTEMIS)),
        ("replay - --format json -d {1}", OF_ARTEMIS.replace("MESSAGE", "SEND"), "bytes bytes"),
        ("replay - --format json -d {1} --text", OF_ARTEMIS, "text text"),
        ("reply {0} -n 3 --exec cat", "", "text text bytes"),
        ("reply {0} -n 3 -f {{body}} --bytes", "", "bytes bytes bytes"),
        ("reply {0} -n 3 hello", "", "text text text"),
    ],
)
def test_text_stays_text_for_jms(verb, read, kinds):
    with StompBroker(dialect="activemq", jms=True) as jms:
        with stomp.connect(jms.url) as client:
            for body in ("a", b"b", b"\xff"):
                client.send(FROM, body, {"reply-to": TO}, receipt=True)
        result = run_verb(*verb.format(FROM, TO).split(), "-u", jms.url, input=read)
        assert result.exit_code == 0, result.output
        found = ["bytes" if "content-length" in message.headers else "text" for message in take_all(jms.url, TO)]
        assert found == kinds.split()


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({"original-destination": "/queue/a"}, "/queue/a"),
        ({"originalDestination": "queue://a"}, "/queue/a"),  # by ActiveMQ's API
        *(({"_AMQ_ORIG_ADDRESS": "a"}, "/queue/a"), ({"originalDestination": "topic://a"}, None)),
        *(({"original-destination": "/temp-queue/a"}, None), ({"original-destination": "/management/purge"}, None)),
        ({"original-destination": "/queue/DLQ"}, None),  # itself
        ({"_AMQ_ORIG_ADDRESS": "DLQ"}, None),  # by another name
        ({}, None),
    ],
)
def test_where_a_dead_letter_came_from(headers, origin):
    kind = kind_of(client_of("ActiveMQ/6.1", "activemq"))._replace(management="/management/")
    assert origin_of(SimpleNamespace(id="1", get=headers.get), "/queue/DLQ", kind) == Origin(origin)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("browse /queue/a", "cannot show the messages of /queue/a without taking them"),
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


def check_all_there(broker, expected):
    """Each message is in one of both queues, once, and in order. Return how many are in each."""
    broker.wait_disconnected(timeout=patience(30))
    source, target = bodies(broker, FROM), bodies(broker, TO)
    assert (Counter(source + target), target + source) == (Counter(expected), expected)
    return len(source), len(target)


#: Bytes that a move of COUNT messages sends, about 40 for each SEND and ACK.
_UP = 62_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("direction", "points"), [("up", [600, *range(5_000, _UP, 11_000)]), ("down", [100, 20_000, 40_000])]
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


def end_at(broker, commits, number):
    """Move in a process that gets a signal after so many COMMITs. Its status, and how many are in each queue."""

    def count():
        return sum(frame.command == "COMMIT" for frame in broker.frames)

    before, expected = count(), fill(broker, FROM, COUNT)
    with FaultProxy((broker.host, broker.port)) as proxy:
        proxy.rules = Rules(down=Direction(delay=0.005))  # else it may be over before the signal
        env = environment(STOMPCODEC_URL=f"stomp://127.0.0.1:{proxy.port}")
        process = started(*MOVE, "--yes", env=env, stderr=subprocess.DEVNULL)
        wait_for(lambda: process.poll() is not None or count() >= before + commits)
        process.send_signal(number)
        process.wait(patience(60))
    return (process.returncode, *check_all_there(broker, expected))


@pytest.mark.long
@pytest.mark.parametrize("commits", [1, 3])
def test_kill_9_loses_and_doubles_nothing(broker, commits):
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


# --lenient: what ActiveMQ writes against the rules of STOMP is named, and passed over
QUEUE = ["good", "nul", "lf", "good", "lf", "nul"]
BAD = ["nul", "lf", "lf", "nul"]
#: Verb, its status with --lenient, what is left, and what it says then. sub and record refuse those they cannot read.
LENIENT = [
    ("browse /queue/a --json", 0, QUEUE, '["message-id","ID:m-3"]'),
    *(("dlq list /queue/DLQ --json", 0, QUEUE, '"messages": 2'), ("dlq show /queue/DLQ", 0, QUEUE, "ID:m")),
    ("dlq retry /queue/DLQ --yes --only /queue/orders", 1, BAD, "4 messages stayed in /queue/DLQ: they"),
    ("move /queue/a /queue/b --yes", 1, BAD, "4 messages stayed in /queue/a: they"),
    ("purge /queue/a --yes --json", 0, [], '"messages": 6'),
    *(("purge /queue/a --dry-run", 0, QUEUE, "would remove 6 messages"), ("sub /queue/a -n 2", 0, None, "good\n")),
    ("record /queue/a -o {0}/a.stompcap -n 2", 0, None, "2 messages recorded"),
]


@pytest.mark.parametrize(("verb", "status", "left", "said"), LENIENT, ids=[case[0] for case in LENIENT])
def test_each_message_that_cannot_be_read_is_named_once(verb, status, left, said, tmp_path):
    with Foreign(QUEUE) as peer:
        result = run(peer, *verb.format(tmp_path).split(), *["--lenient"] * (not verb.startswith("dlq list")))
        assert (result.exit_code, said in result.output) == (status, True), result.output
        lines = [line for line in result.stderr.splitlines() if "passed over" in line]
        named = sorted(re.search(r"message-id '(.*?)'", line)[1] for line in lines)
        if left is None:  # they may end before the last one
            assert named == ["ID:m-1", "ID:m-2", "ID:m-4", "ID:m-5"][: len(named)]
            peer.wait(lambda peer: peer.dead_letters[:2] == ["ID:m-1", "ID:m-2"])
        else:
            assert named == ["ID:m-1", "ID:m-2", "ID:m-4", "ID:m-5"]
            assert (sorted(peer.held.values()), peer.dead_letters) == (sorted(left), [])


@pytest.mark.parametrize("verb", [case[0] for case in LENIENT[:-1] if not re.search("--dry-run|dlq list", case[0])])
def test_without_it_the_error_names_the_message_and_the_option(verb):
    with Foreign(QUEUE) as peer:
        result = run(peer, *verb.split())
        assert result.exit_code == 1
        line = next(line for line in result.stderr.splitlines() if "malformed" in line and "--lenient" in line)
        assert "message-id 'ID:m-1'" in line
        assert line.endswith("(pass over such messages with --lenient)")
        assert list(peer.held.values()) == QUEUE or verb.startswith(("sub", "move"))  # whose good one is gone


@pytest.mark.parametrize(("more", "left"), [((), ["ID:m-1"]), (("--text",), [])])
def test_what_came_without_its_body_stays(more, left, monkeypatch):
    monkeypatch.setattr(dialects, "_warned", set())
    with Foreign(["good", "empty", "good"]) as peer:
        result = run(peer, *MOVE, "--yes", *more)
        assert (result.exit_code, [*peer.held]) == (len(left), left), result.output
        assert result.stderr.count("message ID:m-1 of /queue/from has no body: activemq leaves out") == 1


@pytest.mark.parametrize("kinds", [["lf"], ["nul"], ["nul", "lf"], ["good", "good", "lf"]], ids="-".join)
def test_purge_removes_it_from_any_place(kinds):
    with Foreign(kinds) as peer:
        result = run(peer, "purge", "/queue/a", "--yes", "--lenient")
        assert (result.exit_code, peer.held) == (0, {}), result.output


# ---- dlq retry: where a letter goes, and who says so ----
#: eve may not send to /queue/secret, clerk not to /queue/closed, bob and watch nothing; the passcode of all is guest.
HASH = "scrypt$16384$8$1$nCg0MPa9EL6fOeJv2j7z6w==$Pq5fbnVFyrkPTlMrOHQRy6yHh4h3D9HuvI6/uPhKfMM="
RULES = "".join(f'[users.{name}]\npasscode = "{HASH}"\n' for name in ("eve", "clerk", "chief", "bob", "watch"))
for who, action, destination in (
    *(("eve", "send", "/queue/secret"), ("clerk", "send", "/queue/closed"), ("bob", "*", "*"), ("watch", "*", "*")),
):
    RULES += f'[[rules]]\nwho = "{who}"\naction = "{action}"\ndestination = "{destination}"\nallow = false\n'
RULES += "".join(f'[[rules]]\nwho = "{who}"\naction = "manage"\n' for who in ("chief", "watch"))
RULES += '[[rules]]\nwho = "*"\n'
DEAD = "/queue/DLQ.a"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), memory=True, config=RULES) as broker:
        yield Runner(broker, broker)


def by(at, who):
    return stomp.connect(at.url, login=who, passcode="guest", receipt_timeout=patience(20))


def run_by(at, who, *arguments):
    return at(*arguments, "--login", who, STOMPCODEC_PASSCODE="guest")


def retry(at, who, *arguments):
    result = run_by(at, who, "dlq", "retry", DEAD, "--yes", *arguments)
    assert result.exit_code == 1, result.stderr
    return result


def send(at, who, *messages):
    with by(at, who) as client:
        client.send_many([(to, body, {"original-destination": origin}) for to, origin, body in messages])
        client.ping()


@contextmanager
def left_lying(at, **expected):
    queues = {name: f"/queue/{name.replace('DLQ_', 'DLQ.')}" for name in expected}
    try:
        yield
        with by(at, "chief") as client:
            rows = json.loads(client.request("/management/destinations", "{}", timeout=patience(20)).body)["rows"]
        ready = {row["destination"]: row["ready"] for row in rows}
        assert {name: ready.get(queue, 0) for name, queue in queues.items()} == expected
    finally:
        for queue in queues.values():
            run_by(at, "chief", "purge", queue, "--yes")


def bury(client, queue):
    client.send(queue, b"job", {"persistent": "true"}, receipt=True)
    with client.subscribe(queue, ack="client-individual") as subscription:
        subscription.get(patience(20)).nack(requeue=False, receipt=True)


def received(client, queue):
    return [message.body for message in iter(lambda: client.receive(queue), None)]


@pytest.mark.parametrize("queue", ["orders", "jms.queue.orders", "/queue/orders", "/foo/orders"])
def test_a_letter_goes_back_to_the_queue_it_was_in(at, queue):
    letters = f"/queue/DLQ.{queue.removeprefix('/queue/')}"
    with stomp.connect(at.url) as client:
        bury(client, queue)
        result = at("dlq", "retry", letters, "--yes")
        assert (result.exit_code, result.stderr) == (0, "1 message sent back to where they came from\n")
        assert [received(client, name) for name in (queue, letters, "/queue/orders")] == [[b"job"], [], []]


@pytest.mark.parametrize("tool", ["dlq retry /queue/unmoved --to /queue/secret", "move /queue/unmoved /queue/secret"])
def test_a_refused_move_is_no_attempt_of_a_message_and_leaves_it(guarded, tool):
    """Otherwise the tool would make dead letters of messages that nobody handled."""
    with by(guarded, "chief") as client:
        client.send("/queue/unmoved", b"x", receipt=True)
        for _ in range(3):
            result = run_by(guarded, "eve", *tool.split(), "--yes")
            assert (result.exit_code, "not allowed to send there" in result.stderr) == (1, True)
        assert "0 messages" in result.stderr
        assert client.receive("/queue/unmoved").get("redelivery-count") == "1"  # for redelivered:true, however often


@pytest.mark.parametrize("dialect", ["rabbitmq", "activemq", "artemis", "stompcodec"])
@pytest.mark.parametrize("verb", [["move", "/queue/a", "a"], ["dlq", "retry", "/queue/a", "--to", "a"]], ids=" ".join)
def test_the_dialect_says_whether_two_names_are_one_queue(at, dialect, verb):
    """As the broker does: a message sent to `a` is in `/queue/a`, or not."""
    with StompBroker(dialect=dialect, routing="ANYCAST") as broker:
        with stomp.connect(broker.url) as client:
            client.send("/queue/a", b"x", receipt=True)
            client.send("a", b"x", receipt=True)
        is_one = broker.queued("/queue/a") == 2
        assert is_one is (dialect in ("rabbitmq", "activemq"))
        result = at(*verb, "--yes", "-u", broker.url)
        assert (result.exit_code, "are one queue" in result.stderr) == (2 if is_one else 0, is_one), result.stderr


@pytest.mark.parametrize("server", ["RabbitMQ/3.10.8", "what/1"])
def test_other_brokers_do_not_tell_the_two_names_apart(at, server):
    with Foreign([], server) as peer:
        assert (at("move", "/queue/a", "a", "--yes", "-u", peer.url).exit_code, peer.sent) == (2, [])


@pytest.mark.parametrize("tool", ["dlq retry", "move"])
def test_the_operator_is_not_the_deputy_of_a_sender(guarded, tool):
    with left_lying(guarded, secret=0, a=1, DLQ_a=1):
        with by(guarded, "eve") as eve:
            bury(eve, "/queue/a")
            forged = {"original-destination": "/queue/secret", "dead-letter-reason": "rejected"}
            eve.send(DEAD, b"evil", forged, receipt=True)
        if tool == "move":
            with by(guarded, "chief") as chief:
                body = json.dumps({"destination": DEAD})
                answer = json.loads(chief.request("/management/move", body, timeout=patience(20)).body)["result"]
            assert (answer["messages"], answer["skipped"]) == (1, 1)
        else:
            said = retry(guarded, "chief").stderr
            assert "1 to /queue/secret (as a header says, which any sender could have written)" in said
            assert f"1 message stayed in {DEAD}: any sender could have written" in said


@pytest.mark.parametrize(
    ("who", "verb", "status", "said"),
    [
        ("bob", ("dlq", "list"), 1, "rejected: not allowed to subscribe there"),
        ("bob", ("top", "--once"), 1, 'needs a rule for this user with action = "manage"'),
        *(("watch", ("top", "--once"), 0, ""), ("watch", ("req", "/management/broker", ""), 0, "")),
    ],
)
def test_who_lacks_a_right_is_told_which(guarded, who, verb, status, said):
    ended(run_by(guarded, who, *verb), status, said)


def test_dlq_list_and_show_mark_what_a_sender_wrote(at):
    with stomp.connect(at.url) as client:
        bury(client, "/queue/seen")
        client.send("/queue/DLQ.seen", b"x", {"original-destination": "/queue/secret"}, receipt=True)
    rows = [json.loads(line) for line in at.good("dlq", "list", "/queue/DLQ.seen", "--json").splitlines()]
    assert {row["from"]: row.get("claimed") for row in rows} == {"/queue/seen": None, "/queue/secret": True}
    shown = at.good("dlq", "show", "/queue/DLQ.seen").decode()
    assert shown.count("(claimed)") == shown.count("/queue/secret (claimed)") == 1


LONG = "/queue/" + "x" * 4_100
IMPOSSIBLE = {"too long": LONG, "to manage": "/management/purge", "temporary": "/temp-queue/a"}
IMPOSSIBLE |= {"a topic": "/topic/a", "refused": "/queue/closed"}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_one_letter_that_cannot_be_moved_does_not_stop_the_other_99(guarded, name):
    with left_lying(guarded, many=0, DLQ_a=1):
        origins = ["/queue/many"] * 41 + [IMPOSSIBLE[name]] + ["/queue/many"] * 58
        send(guarded, "eve", *((DEAD, origin, b"%d" % n) for n, origin in enumerate(origins)))
        said = retry(guarded, "clerk", "--only", "*").stderr
        assert "99 messages sent back to where they came from" in said
        assert f"1 message stayed in {DEAD}: " in said
        with by(guarded, "chief") as chief:
            assert received(chief, "/queue/many") == [b"%d" % number for number in range(100) if number != 41]


def test_many_letters_that_stay_do_not_hide_those_behind_them(guarded):
    with left_lying(guarded, a=1, secret=0, DLQ_a=350):
        send(guarded, "eve", *[(DEAD, "/queue/secret", b"x" * 100)] * 350)
        with by(guarded, "eve") as eve:
            bury(eve, "/queue/a")
        assert "350 messages stayed" in retry(guarded, "chief").stderr


# Other brokers, where the origin is what a header says
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
        *(("", [], 1), ("--only /queue/orders", ["/queue/orders"] * 2, 0)),
        ("--only /queue/o*", ["/queue/orders"] * 2, 0),
        ("--only *", ["/queue/orders", "/queue/orders", "/queue/secret"], 0),
        ("--to /queue/b", ["/queue/b"] * 3, 0),
    ],
)
def test_yes_alone_sends_only_to_queues_that_are_named(at, server, header, prefix, options, sent, status):
    with Foreign([prefix + origin.removeprefix("/queue/") for origin in ORIGINS], server, header) as peer:
        result = at("dlq", "retry", "/queue/DLA", "--yes", "--idle", "0.05", *options.split(), "-u", peer.url)
        assert result.exit_code == status, result.stderr
        assert (sorted(peer.sent), len(peer.held)) == (sent, 3 - len(sent))
    if not options:
        assert "3 messages stayed in /queue/DLA: any sender could have written where they came" in result.stderr
        if server == ACTIVEMQ:  # which shows a queue before the tool takes from it
            assert result.stderr.splitlines()[:2] == [f"  2 to /queue/orders {MARK}", f"  1 to /queue/secret {MARK}"]


@pytest.mark.long
@pytest.mark.parametrize(("answer", "status", "sent"), [("y\n", 0, 3), ("n\n", 1, 0)])
def test_a_terminal_shows_the_list_and_yes_agrees_to_it(answer, status, sent):
    with Foreign(ORIGINS, ACTIVEMQ) as peer, Terminal("dlq", "retry", "/queue/ActiveMQ.DLQ", "-u", peer.url) as shown:
        shown.until("1 to /queue/secret (as a header says", "[y/N]:")
        shown.press(answer)
        shown.end(status)
        assert len(peer.sent) == sent


def test_an_agreement_covers_only_what_was_listed():
    kind = kind_of(SimpleNamespace(connected={"server": ACTIVEMQ}, dialect="activemq"))
    returning = Returning("/queue/DLQ", None)
    headers = [{"original-destination": f"/queue/{number}"} for number in range(5_000)]
    letters = [SimpleNamespace(id="ID:1", body=b"x", get=each.get) for each in headers]
    returning.survey(letters, kind)
    returning.agree()
    going = [letter for letter in letters if returning.aim(letter, kind).queue is not None]
    assert len(going) == MOST_LISTED == len(list(returning.listed())) - 1
    assert returning.staying() == (5_000 - MOST_LISTED, 5_000 - MOST_LISTED)
