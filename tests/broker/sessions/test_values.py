"""Headers that are booleans or numbers: one that is understood takes effect; no other one is silently confirmed."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Bench, Peer

from stompcodec.broker import values
from stompcodec.broker.sessions import plain
from stompcodec.broker.values import Refused

LONG, INT = 2**63 - 1, 2**31 - 1
DIALECTS = ("stompcodec", "rabbitmq", "activemq", "artemis")
EACH = [(command, name) for command, names in values.NAMES.items() for name in names]
#: Neither a boolean nor a number, though other programs read them as one.
ODD = (
    *("maybe", "", "1.5", "tru", "yes", "+", "1e3", "--1", "truefalse", "1_0", "0x1", "\u0665", "fal\u017fe"),
    *("t\u0280ue", "true,true", "y" * 5000, "9" * 400, str(10**19), " true", "5\t", "'\u202e"),
)


def switch(on: bool) -> None:
    if plain.EXTENSION is not None:
        plain.EXTENSION.switch(on)


def meaning(name: str, text: str) -> Any:
    """What a value says in our own dialect; None if nothing. `credit` has its own tests."""
    least, most = values.KNOWN[name][1:3]
    if least is None:
        return {"true": True, "false": False}.get(text.lower()) if text.isascii() else None
    return int(text) if re.fullmatch("-?[0-9]{1,19}", text) and least <= int(text) <= most else None


def octets(version: str, command: str, pairs: list[tuple[str, str]]) -> bytes:
    """A frame, whatever its values."""
    escapes = {"1.0": "", "1.1": "\\\n:"}.get(version, "\\\n:\r")
    codes = {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"}
    lines = [f"{name}:{''.join(codes[c] if c in escapes else c for c in value)}" for name, value in pairs]
    return "\n".join([command, *lines, "", ""]).encode() + b"\0"


def pairs_for(peer: Peer, command: str, mode: str) -> list[tuple[str, str]]:
    """The other headers of a frame that is right without the one under test; what it needs is there."""
    if command in ("SEND", "RECEIVE"):
        return [("destination", "/queue/a"), *([("id", "9")] if command == "RECEIVE" else [])]
    if command == "SUBSCRIBE":
        return [("destination", "/queue/b"), ("id", "2"), ("ack", mode)]
    peer.subscribe("/queue/a", ack="client-individual")
    if command == "UNSUBSCRIBE":
        return [("id", "1")]
    message = peer.next("MESSAGE")
    if peer.version == "1.2":
        return [("id", message.headers["ack"])]
    return [("message-id", message.headers["message-id"]), ("subscription", "1")]


def check(
    dialect: str, command: str, name: str, value: str, version: str = "1.2", mode: str = "auto", within: bool = False
) -> None:
    """A frame with this value does what the table says, and an ERROR or the log says so."""
    bench = Bench(dialect=dialect, commands=("RECEIVE",))
    warned: list[str] = []
    with_notes = logging.Logger("notes", logging.WARNING)
    with_notes.addFilter(lambda record: warned.append(record.getMessage()))
    bench.broker.log = with_notes
    peer = bench.peer(version)
    for _ in range(2):
        peer.put("/queue/a", "before")
    pairs = pairs_for(peer, command, mode)
    if within:
        peer.send("BEGIN", transaction="t")
        pairs.append(("transaction", "t"))
    peer.take()
    peer.raw(octets(version, command, [*pairs, (name, value), ("receipt", "r")]))
    frames, given = peer.take(), value.strip(" ") if version == "1.0" else value
    is_other = values.KNOWN[name].word == (command, given)
    try:
        said = True if is_other else values.read_value(name, given, dialect)
    except Refused:
        assert [frame.command for frame in frames] == ["ERROR"], frames
        assert (frames[0].headers["message"], frames[0].headers["receipt-id"]) == (f"bad {name}", "r")
        assert f"{name} is {given[:40]!a}" in frames[0].text()
        assert len(frames[0].body) < 1000
        assert warned == []
        return
    assert dialect != "stompcodec" or said is not None
    assert not any(frame.get("message") == f"bad {name}" for frame in frames)
    assert [line for line in warned if f"header {name} of a {command} is ignored" in line] == warned
    assert len(warned) == (said is None)
    assert not any(given in line for line in warned if len(given) > 20)
    if said is None:
        assert "RECEIPT" in [frame.command for frame in frames]


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "UNSUBSCRIBE", "RECEIVE", "ACK", "NACK"])
def test_each_header_is_understood_or_refused_or_its_loss_is_logged(command: str) -> None:
    for number, name in enumerate(values.NAMES[command]):
        for at, dialect in enumerate(DIALECTS):
            switch((at + number) % 2 == 0)
            check(
                dialect, command, name, "maybe" if at == number % len(DIALECTS) else ODD[(number * 2 + at) % len(ODD)]
            )


#: What RabbitMQ 4, ActiveMQ 6.3 and Artemis 2.40 do: a value counts (=), is ignored (-), or is refused (!).
SEEN = """
persistent:True           =True    -        =True
persistent:TRUE           !        -        =True
persistent:1              !        -        -
persistent:               !        -        -
priority:high             !        !        !
priority:+5               =5       =5       =5
priority:12               =9       =9       =9
priority:-1               =0       =0       =0
expires:abc               -        !        !
expires:-5                =0       =0       =0
expiration:abc            !        -        -
expiration:-5             !        -        -
AMQ_SCHEDULED_DELAY:abc   -        !        !
JMSXGroupSeq:abc          -        !        -
delay:abc                 -        -        -
durable:True              =True    -        =True
durable:maybe             !        -        -
auto-delete:maybe         -        -        -
activemq.exclusive:True   =True    =True    =True
prefetch-count:abc        !        -        -
activemq.prefetchSize:abc -        -        !
consumer-window-size:abc  -        -        !
activemq.priority:abc     -        -        -
x-priority:abc            !        -        -
from-seq:abc              -        -        -
credit:abc                -        -        -
requeue:False             =False   -        =False
requeue:FALSE             -        -        =False
"""


# ---- what is understood takes effect ----


def sent(line: str, version: str = "1.0") -> Bench:
    """A broker that has a message with these headers, after a restart."""
    bench = Bench()
    bench.peer(version).raw(f"SEND\ndestination:/queue/a\npersistent: TRUE \n{line}\n\nx\0".encode())
    date, bench = bench.date, Bench(bench.store)
    bench.date = date
    return bench


@pytest.mark.parametrize("line", ["delay: 30000 ", "AMQ_SCHEDULED_DELAY:   30000", f"x-delay:{LONG}"])
def test_a_delay_that_is_understood_is_so_after_a_restart(line: str) -> None:
    assert len(sent(line).broker.delayed) == 1


def test_an_ignored_header_leaves_the_place_to_another_of_its_meaning() -> None:
    peer = Bench(dialect="activemq").peer()
    peer.send("SUBSCRIBE", **{"destination": "/queue/a", "id": "1", "exclusive": "maybe", "activemq.exclusive": "True"})
    (consumer,) = peer.session.consumers.values()
    assert consumer.request.exclusive is True


@pytest.mark.parametrize("name", ["x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize("dialect", ["stompcodec", "rabbitmq"])
def test_a_bad_argument_of_a_new_queue_names_header_and_value(name: str, dialect: str) -> None:
    for number, value in enumerate(["", "many", "-1", "+5", "5.0", "\u0665", "9" * 400]):
        peer = Bench(dialect=dialect).peer()
        peer.send("SUBSCRIBE" if number % 2 else "SEND", destination="/queue/a", id="1", **{name: value})
        error = peer.error()
        assert error.headers["message"] == f"bad {name}"
        assert ascii(value[:40]) in error.text()


# ---- destinations without a name ----


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("destination", ["", "/queue/", "/topic/", "/temp-queue/", "/queue/a,", "/queue/a,,/queue/b"])
def test_a_destination_without_a_name_is_refused(dialect: str, destination: str) -> None:
    for command in ("SEND", "SUBSCRIBE"):
        bench = Bench(dialect=dialect)
        if "," in destination and not bench.config.composite:
            return
        peer = bench.peer()
        peer.send(command, destination=destination, id="1", receipt="r")
        error = peer.error()
        assert (error.headers["message"], error.headers["receipt-id"]) == ("no destination", "r")
        assert not any(queue.count or queue.consumers for queue in bench.broker.queues.values())


# ---- the log and the page ----


def test_the_page_has_the_table() -> None:
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
    powers = {
        LONG: "2^63 - 1",
        2**62: "2^62",
        -INT - 1: "-2^31",
        INT: "2^31 - 1",
        10**15 - 1: "10^15 - 1",
        10**9: "10^9",
    }
    for name, known in values.KNOWN.items():
        kind = re.sub("-?[0-9]+", lambda number: powers.get(int(number[0]), number[0]), known.kind)
        assert found[name][0].strip("`") == kind.removeprefix("a whole number, ")
        assert found[name][1] == set(known.refused_by if known.commands else ["rabbitmq"])
