"""dlq retry, move and dlq list: a letter goes back to its queue, and the broker or the user says which that is."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from cli.foreign import Foreign
from cli.running import Runner, Terminal
from crash.process import BrokerProcess
from patience import patience

import stompcodec.client as stomp
from stompcodec.cli.looking import kind_of
from stompcodec.cli.verbs.queues import MOST_LISTED, Returning
from stompcodec.testing import StompBroker

pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

#: eve may not send to /queue/secret, clerk not to /queue/closed; the passcode of all is guest.
HASH = "scrypt$16384$8$1$nCg0MPa9EL6fOeJv2j7z6w==$Pq5fbnVFyrkPTlMrOHQRy6yHh4h3D9HuvI6/uPhKfMM="
RULES = "".join(f'[users.{name}]\npasscode = "{HASH}"\n' for name in ("eve", "clerk", "chief"))
for who, destination in (("eve", "/queue/secret"), ("clerk", "/queue/closed")):
    RULES += f'[[rules]]\nwho = "{who}"\naction = "send"\ndestination = "{destination}"\nallow = false\n'
RULES += '[[rules]]\nwho = "chief"\naction = "manage"\n[[rules]]\nwho = "*"\n'
LETTERS = "/queue/DLQ.a"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("guarded"), memory=True, config=RULES) as broker:
        yield Runner(broker, broker)


def by(at, who):
    return stomp.connect(at.url, login=who, passcode="guest", receipt_timeout=patience(20))


def run(at, who, *arguments):
    return at(*arguments, "--login", who, STOMPCODEC_PASSCODE="guest")


def retry(at, who, *arguments):
    """Send letters back, by one who gets an error."""
    result = run(at, who, "dlq", "retry", LETTERS, "--yes", *arguments)
    assert result.exit_code == 1, result.stderr
    return result


def send(at, who, *messages):
    """Send (destination, origin, body)."""
    with by(at, who) as client:
        client.send_many([(to, body, {"original-destination": origin}) for to, origin, body in messages])
        client.ping()


@contextmanager
def left_lying(at, **expected):
    """Check how many messages wait in each queue at the end, and remove them."""
    queues = {name: f"/queue/{name.replace('DLQ_', 'DLQ.')}" for name in expected}
    try:
        yield
        with by(at, "chief") as client:
            rows = json.loads(client.request("/management/destinations", "{}", timeout=patience(20)).body)["rows"]
        ready = {row["destination"]: row["ready"] for row in rows}
        assert {name: ready.get(queue, 0) for name, queue in queues.items()} == expected
    finally:
        for queue in queues.values():
            run(at, "chief", "purge", queue, "--yes")


def bury(client, queue):
    """Make a dead letter of a message in a queue."""
    client.send(queue, b"job", {"persistent": "true"}, receipt=True)
    with client.subscribe(queue, ack="client-individual") as subscription:
        subscription.get(patience(20)).nack(requeue=False, receipt=True)


def bodies(client, queue):
    return [message.body for message in iter(lambda: client.receive(queue), None)]


@pytest.mark.parametrize("queue", ["orders", "jms.queue.orders", "/queue/orders", "/foo/orders"])
def test_a_letter_goes_back_to_the_queue_it_was_in(at, queue):
    """`orders` and `/queue/orders` are two queues at our broker."""
    letters = f"/queue/DLQ.{queue.removeprefix('/queue/')}"
    with stomp.connect(at.url) as client:
        bury(client, queue)
        result = at("dlq", "retry", letters, "--yes")
        assert (result.exit_code, result.stderr) == (0, "1 message sent back to where they came from\n")
        assert [bodies(client, name) for name in (queue, letters, "/queue/orders")] == [[b"job"], [], []]


@pytest.mark.parametrize("tool", ["dlq retry /queue/unmoved --to /queue/secret", "move /queue/unmoved /queue/secret"])
def test_a_refused_move_is_no_attempt_of_a_message_and_leaves_it(guarded, tool):
    """Otherwise the tool would make dead letters of messages that nobody handled."""
    with by(guarded, "chief") as client:
        client.send("/queue/unmoved", b"x", receipt=True)
        for _ in range(3):
            result = run(guarded, "eve", *tool.split(), "--yes")
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


# The deputy: eve wants a message in a queue that she may not send to


@pytest.mark.parametrize("tool", ["dlq retry", "move"])
def test_the_operator_is_not_the_deputy_of_a_sender(guarded, tool):
    with left_lying(guarded, secret=0, a=1, DLQ_a=1):
        with by(guarded, "eve") as eve:
            bury(eve, "/queue/a")
            forged = {"original-destination": "/queue/secret", "dead-letter-reason": "rejected"}
            eve.send(LETTERS, b"evil", forged, receipt=True)
        if tool == "move":
            with by(guarded, "chief") as chief:
                body = json.dumps({"destination": LETTERS})
                answer = json.loads(chief.request("/management/move", body, timeout=patience(20)).body)["result"]
            assert (answer["messages"], answer["skipped"]) == (1, 1)
        else:
            said = retry(guarded, "chief").stderr
            assert "1 to /queue/secret (as a header says, which any sender could have written)" in said
            assert f"1 message stayed in {LETTERS}: any sender could have written" in said


def test_dlq_list_and_show_mark_what_a_sender_wrote(at):
    with stomp.connect(at.url) as client:
        bury(client, "/queue/seen")
        client.send("/queue/DLQ.seen", b"x", {"original-destination": "/queue/secret"}, receipt=True)
    rows = [json.loads(line) for line in at.good("dlq", "list", "/queue/DLQ.seen", "--json").splitlines()]
    assert {row["from"]: row.get("claimed") for row in rows} == {"/queue/seen": None, "/queue/secret": True}
    shown = at.good("dlq", "show", "/queue/DLQ.seen").decode()
    assert shown.count("(claimed)") == shown.count("/queue/secret (claimed)") == 1


# One letter does not stop the others

LONG = "/queue/" + "x" * 4_100
IMPOSSIBLE = {"too long": LONG, "to manage": "/management/purge", "temporary": "/temp-queue/a"}
IMPOSSIBLE |= {"a topic": "/topic/a", "refused": "/queue/closed"}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_one_letter_that_cannot_be_moved_does_not_stop_the_other_99(guarded, name):
    with left_lying(guarded, many=0, DLQ_a=1):
        origins = ["/queue/many"] * 41 + [IMPOSSIBLE[name]] + ["/queue/many"] * 58
        send(guarded, "eve", *((LETTERS, origin, b"%d" % n) for n, origin in enumerate(origins)))
        said = retry(guarded, "clerk", "--only", "*").stderr
        assert "99 messages sent back to where they came from" in said
        assert f"1 message stayed in {LETTERS}: " in said
        with by(guarded, "chief") as chief:
            assert bodies(chief, "/queue/many") == [b"%d" % number for number in range(100) if number != 41]


def test_many_letters_that_stay_do_not_hide_those_behind_them(guarded):
    with left_lying(guarded, a=1, secret=0, DLQ_a=350):
        send(guarded, "eve", *[(LETTERS, "/queue/secret", b"x" * 100)] * 350)
        with by(guarded, "eve") as eve:
            bury(eve, "/queue/a")
        assert "350 messages stayed" in retry(guarded, "chief").stderr


def test_only_sends_those_of_the_named_queues_and_the_others_do_not_count(at):
    letters, sent = "/queue/DLQ.only", ["/queue/shop.a", "/queue/shop.b", "/queue/[x]", "/queue/bank"]
    with stomp.connect(at.url) as client:
        for queue in sent:
            client.send(letters, queue.encode(), {"original-destination": queue}, receipt=True)
        for pattern in ("/queue/shop", "queue/*", "", "/queue/shop.?"):
            assert at("dlq", "retry", letters, "--only", pattern, "--yes").exit_code == 0
        assert client.receive("/queue/shop.a") is None
        planned = at.good("dlq", "retry", letters, "--only", "/queue/shop.*", "--dry-run").decode().splitlines()
        assert planned[0] == "would send back 2 messages to where they came from"
        assert "bank" not in str(planned)
        for pattern in ("/queue/shop.*", "/queue/[x]"):
            assert at("dlq", "retry", letters, "--only", pattern, "--yes").exit_code == 0
        assert bodies(client, letters) == [b"/queue/bank"]


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
        ("", [], 1),
        ("--only /queue/orders", ["/queue/orders"] * 2, 0),
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
