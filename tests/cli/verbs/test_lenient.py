"""--lenient of the verbs that receive: what ActiveMQ writes against the rules of STOMP is named, and passed over."""

import itertools
import json
import re

import pytest
from patience import patience

pytest.importorskip("click")

from click.testing import CliRunner
from client.peer import Peer

from stompcodec.cli.app import app

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
def activemq():
    with ActiveMQ(QUEUE) as peer:
        yield peer


def run(peer, *arguments):
    return CliRunner().invoke(app, [*arguments, "-u", peer.url, "--timeout", str(patience(10))])


VERBS = [
    ("browse", "/queue/a"),
    ("dlq", "list", "/queue/ActiveMQ.DLQ"),
    ("dlq", "show", "/queue/ActiveMQ.DLQ"),
    ("dlq", "retry", "/queue/ActiveMQ.DLQ", "--yes"),
    ("move", "/queue/a", "/queue/b", "--yes"),
    ("purge", "/queue/a", "--yes"),
    ("purge", "/queue/a", "--dry-run"),
    ("sub", "/queue/a", "-n", "2"),
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_without_it_the_error_names_the_message_and_the_option(activemq, verb):
    result = run(activemq, *verb)
    assert result.exit_code == 1
    line = next(line for line in result.stderr.splitlines() if "malformed" in line and "--lenient" in line)
    assert "message-id 'ID:m-1'" in line
    assert "octet" in line
    assert line.endswith("(pass over such messages with --lenient)")
    assert list(activemq.held.values()) == QUEUE or verb[0] in ("sub", "move")  # whose good one before it is gone


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_each_message_is_named_once(activemq, verb):
    result = run(activemq, *verb, "--lenient")
    lines = [line for line in result.stderr.splitlines() if "passed over" in line]
    named = sorted(re.search(r"message-id '(.*?)'", line)[1] for line in lines)
    assert named == ["ID:m-1", "ID:m-2", "ID:m-4", "ID:m-5"][: len(named)]
    assert len(named) == 4 or verb[0] == "sub"  # which may end before the last one


def test_browse_shows_the_others(activemq):
    result = run(activemq, "browse", "/queue/a", "--lenient", "--json")
    assert result.exit_code == 0
    shown = [dict(json.loads(line)["headers"])["message-id"] for line in result.stdout.splitlines()]
    assert shown == ["ID:m-0", "ID:m-3"]
    assert not activemq.got("ACK")
    assert not activemq.got("NACK")


def test_dlq_list_counts_the_others(activemq):
    result = run(activemq, "dlq", "list", "/queue/ActiveMQ.DLQ", "--lenient", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["messages"] == 2


@pytest.mark.parametrize(
    "verb", [("dlq", "retry", "/queue/ActiveMQ.DLQ"), ("move", "/queue/a", "/queue/b")], ids=" ".join
)
def test_what_cannot_be_read_stays_where_it_is(activemq, verb):
    only = ("--only", "/queue/orders") if verb[0] == "dlq" else ()
    result = run(activemq, *verb, *only, "--yes", "--lenient")
    assert result.exit_code == 1
    assert f"4 messages stayed in {verb[-1] if verb[0] == 'dlq' else verb[1]}: they cannot be read" in result.stderr
    assert len(activemq.got("SEND")) == 2
    assert list(activemq.held.values()) == [kind for kind in QUEUE if kind != "good"]
    assert activemq.dead_letters == []


def test_purge_removes_it(activemq):
    result = run(activemq, "purge", "/queue/a", "--yes", "--lenient", "--json")
    assert result.exit_code == 0, result.output
    assert activemq.held == {}
    assert activemq.dead_letters == []
    assert json.loads(result.stdout)["messages"] == len(QUEUE)


@pytest.mark.parametrize("kinds", [["lf"], ["nul"], ["nul", "lf"], ["good", "good", "lf"]], ids="-".join)
def test_purge_removes_it_from_any_place(kinds):
    with ActiveMQ(kinds) as peer:
        result = run(peer, "purge", "/queue/a", "--yes", "--lenient")
        assert result.exit_code == 0, result.output
        assert peer.held == {}


def test_a_dry_run_counts_it(activemq):
    result = run(activemq, "purge", "/queue/a", "--dry-run", "--lenient")
    assert result.exit_code == 0
    assert "would remove 6 messages" in result.output
    assert list(activemq.held.values()) == QUEUE


def test_sub_refuses_it(activemq):
    result = run(activemq, "sub", "/queue/a", "-n", "2", "--lenient")
    assert result.exit_code == 0
    assert result.stdout == "good\ngood\n"
    activemq.wait(lambda peer: peer.dead_letters[:2] == ["ID:m-1", "ID:m-2"])
    assert "ID:m-0" not in activemq.held


def test_record_refuses_it(activemq, tmp_path):
    arguments = ["record", "/queue/a", "-o", str(tmp_path / "a.stompcap"), "-n", "2"]
    result = run(activemq, *arguments, "--lenient")
    assert result.exit_code == 0, result.output
    assert "2 messages recorded" in result.stderr
    activemq.wait(lambda peer: peer.dead_letters[:2] == ["ID:m-1", "ID:m-2"])
