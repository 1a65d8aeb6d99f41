"""Headers that are booleans or numbers: one that is understood takes effect; no other one is silently confirmed."""

import logging
import re
from pathlib import Path

import pytest
from broker.harness import Bench, switch

from stompcodec.broker import values
from stompcodec.broker.values import Refused

LONG, INT = 2**63 - 1, 2**31 - 1
DIALECTS = ("stompcodec", "rabbitmq", "activemq", "artemis")
#: Neither a boolean nor a number, though other programs read them as one.
ODD = (
    *("maybe", "", "1.5", "tru", "yes", "+", "1e3", "--1", "truefalse", "1_0", "0x1", "\u0665", "fal\u017fe"),
    *("t\u0280ue", "true,true", "y" * 5000, "9" * 400, str(10**19), " true", "5\t", "'\u202e"),
)


def octets(command, pairs):
    codes = str.maketrans({"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"})
    return "\n".join([command, *(f"{name}:{value.translate(codes)}" for name, value in pairs), "", ""]).encode() + b"\0"


def pairs_for(peer, command):
    """The other headers of a frame that is right without the one under test; what it needs is there."""
    if command in ("SEND", "RECEIVE"):
        return [("destination", "/queue/a"), *([("id", "9")] if command == "RECEIVE" else [])]
    if command == "SUBSCRIBE":
        return [("destination", "/queue/b"), ("id", "2")]
    peer.subscribe("/queue/a", ack="client-individual")
    return [("id", "1" if command == "UNSUBSCRIBE" else peer.next("MESSAGE").headers["ack"])]


def check(dialect, command, name, value):
    """A frame with this value does what the table says, and an ERROR or the log says so."""
    bench, warned = Bench(dialect=dialect, commands=("RECEIVE",)), []
    bench.broker.log = logging.Logger("notes", logging.WARNING)
    bench.broker.log.addFilter(lambda record: warned.append(record.getMessage()))
    peer = bench.peer()
    for _ in range(2):
        peer.put("/queue/a", "before")
    pairs = pairs_for(peer, command)
    peer.take()
    peer.raw(octets(command, [*pairs, (name, value), ("receipt", "r")]))
    frames = peer.take()
    is_other = values.KNOWN[name].word == (command, value)
    try:
        said = True if is_other else values.read_value(name, value, dialect)
        said = said if is_other or values.is_read(name, dialect) else None
    except Refused:
        assert [frame.command for frame in frames] == ["ERROR"], frames
        assert (frames[0].headers["message"], frames[0].headers["receipt-id"]) == (f"bad {name}", "r")
        assert f"{name} is {value[:40]!a}" in frames[0].text()
        assert len(frames[0].body) < 1000
        assert warned == []
        return
    assert dialect != "stompcodec" or said is not None
    assert not any(frame.get("message") == f"bad {name}" for frame in frames)
    assert [line for line in warned if f"header {name} of a {command} is ignored" in line] == warned
    assert len(warned) == (said is None)
    assert not any(value in line for line in warned if len(value) > 20)
    if said is None:
        assert "RECEIPT" in [frame.command for frame in frames]


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "RECEIVE", "ACK", "NACK"])
def test_each_header_is_understood_or_refused_or_its_loss_is_logged(command):
    for number, name in enumerate(values.NAMES[command]):
        for at, dialect in enumerate(DIALECTS):
            switch((at + number) % 2 == 0)
            odd = "maybe" if at == number % len(DIALECTS) else ODD[(number * 2 + at) % len(ODD)]
            check(dialect, command, name, odd)


def test_an_ignored_header_leaves_the_place_to_another_of_its_meaning():
    peer = Bench(dialect="activemq").peer()
    peer.send("SUBSCRIBE", **{"destination": "/queue/a", "id": "1", "exclusive": "maybe", "activemq.exclusive": "True"})
    (consumer,) = peer.session.consumers.values()
    assert consumer.request.exclusive is True


@pytest.mark.parametrize("name", ["x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize("dialect", ["stompcodec", "rabbitmq"])
def test_a_bad_argument_of_a_new_queue_names_header_and_value(name, dialect):
    for number, value in enumerate(["", "many", "-1", "+5", "5.0", "\u0665", "9" * 400]):
        peer = Bench(dialect=dialect).peer()
        peer.send("SUBSCRIBE" if number % 2 else "SEND", destination="/queue/a", id="1", **{name: value})
        error = peer.error()
        assert error.headers["message"] == f"bad {name}"
        assert ascii(value[:40]) in error.text()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "destination",
    [
        *("", "/queue/", "/topic/", "/temp-queue/", "/queue/a,", "/queue/a,,/queue/b", " ", "/", "//", "/queue/ "),
        *("/topic/\t", "/temp-topic/ ", "/queue//"),
    ],
)
def test_a_destination_without_a_name_is_refused(dialect, destination):
    there, id, receipt = (("destination", destination), ("id", "1"), ("receipt", "r"))
    frames = [(command, [there, id, receipt]) for command in ("SEND", "SUBSCRIBE", "RECEIVE")]
    frames.append(("SEND", [there, ("transaction", "t"), receipt]))
    if destination.startswith("/temp-"):  # the broker gives it another name
        frames.append(("SEND", [("destination", "/queue/a"), ("reply-to", destination), receipt]))
    for command, pairs in frames:
        bench = Bench(dialect=dialect, commands=("RECEIVE",))
        if "," in destination and not bench.config.composite:
            return
        peer = bench.peer()
        peer.send("BEGIN", transaction="t")
        peer.raw(octets(command, pairs))
        error = peer.error()
        assert error.headers["message"] in ("no destination", "invalid destination")
        assert error.headers["receipt-id"] == "r"
        assert not any(queue.count or queue.consumers for queue in bench.broker.queues.values())


def test_the_page_has_the_table():
    page = (Path(__file__).parents[3] / "docs" / "broker.md").read_text("utf-8")
    letters = {"R": "rabbitmq", "M": "activemq", "A": "artemis"}
    part = page.partition("## Values of headers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| (`.*) \|$", part, re.MULTILINE)
    found = {
        name: (kind, {letters[each] for each in refused.split()})
        for kind, names in rows
        for name, refused in re.findall(r"`([^`]+)`([RMA ]*)", names)
    }
    assert set(found) == set(values.KNOWN)
    powers = {LONG: "2^63 - 1", 2**62: "2^62", -INT - 1: "-2^31", INT: "2^31 - 1"}
    powers |= {10**15 - 1: "10^15 - 1", 10**9: "10^9"}
    for name, known in values.KNOWN.items():
        kind = re.sub("-?[0-9]+", lambda number: powers.get(int(number[0]), number[0]), known.kind)
        assert found[name][0].strip("`") == kind.removeprefix("a whole number, ")
        assert found[name][1] == set(known.refused_by if known.commands else ["rabbitmq"])
