"""Headers that are booleans or numbers: one that is understood takes effect; no other one is silently confirmed."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Bench, Peer, bench_with_two
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker import values
from stompcodec.broker.errors import Refused
from stompcodec.broker.sessions import plain

LONG, INT = 2**63 - 1, 2**31 - 1
DIALECTS = ("stompcodec", "rabbitmq", "activemq", "artemis")
EACH = [(command, name) for command, names in values.NAMES.items() for name in names]
#: Neither a boolean nor a number, though other programs read them as one.
ODD = (
    *("maybe", "", "1.5", "tru", "yes", "+", "1e3", "--1", "truefalse", "1_0", "0x1", "\u0665", "fal\u017fe"),
    *("t\u0280ue", "true,true", "y" * 5000, "9" * 400, str(10**19), " true", "5\t", "'\u202e"),
)
truths = st.sampled_from(["true", "false"]).flatmap(
    lambda word: st.tuples(*(st.sampled_from([letter, letter.upper()]) for letter in word)).map("".join)
)
EDGES = [0, 9, 10, 100_000, 10**9, INT, 2**31, 2**62, LONG, 2**63, -1, -2, -INT - 1, -INT - 2]
spellings = st.one_of(truths, st.sampled_from(EDGES).map(str), st.sampled_from(ODD), st.text(max_size=6))


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


@given(
    *map(st.sampled_from, (DIALECTS, EACH)), spellings, *map(st.sampled_from, (" ", ["1.0", "1.1", "1.2"])), st.data()
)
def test_so_in_each_version_on_each_road(dialect, which, text, pad, version, data):
    command, name = which
    value = pad * data.draw(st.integers(0, 2)) + text + pad * data.draw(st.integers(0, 2))
    if (version == "1.0" and command == "NACK") or set(value) & set(
        {"1.0": "\n\r\0", "1.1": "\r\0"}.get(version, "\0")
    ):
        return
    if name != "credit":
        try:
            assert values.read_value(name, value) == meaning(name, value) is not None
        except Refused:
            assert meaning(name, value) is None
    switch(data.draw(st.booleans(), label="in C"))
    within = data.draw(st.booleans()) and command in ("SEND", "ACK", "NACK")
    check(dialect, command, name, value, version, data.draw(st.sampled_from(["auto", "client"])), within)


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


@pytest.mark.parametrize("row", SEEN.strip().splitlines())
def test_a_dialect_does_what_its_broker_does(row: str) -> None:
    header, *outcomes = row.split()
    name, _, value = header.partition(":")
    for dialect, outcome in zip(DIALECTS[1:], outcomes, strict=True):
        try:
            found = values.read_value(name, value, dialect)
        except Refused:
            assert outcome == "!"
        else:
            assert ("-" if found is None else f"={found}") == outcome


# ---- what is understood takes effect ----


@pytest.mark.parametrize("road", [True, False])
@pytest.mark.parametrize("within", [False, True])
@given(word=truths)
def test_persistent_in_any_case_is_stored(road: bool, within: bool, word: str) -> None:
    switch(road)
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "before")  # the session knows the queue now
    if within:
        peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", "x", persistent=word, receipt="r", **({"transaction": "t"} if within else {}))
    if within:
        peer.send("COMMIT", transaction="t", receipt="c")
    assert [frame.command for frame in peer.take()] == ["RECEIPT"] * (1 + within)
    stored = [message.tail for message in bench.store.load()]
    assert len(stored) == (word.lower() == "true")
    assert all(f"persistent:{word}".encode() in tail for tail in stored)  # passed on as it came


def sent(line: str, version: str = "1.0") -> Bench:
    """A broker that has a message with these headers, after a restart."""
    bench = Bench()
    bench.peer(version).raw(f"SEND\ndestination:/queue/a\npersistent: TRUE \n{line}\n\nx\0".encode())
    date, bench = bench.date, Bench(bench.store)
    bench.date = date
    return bench


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("priority: 7 ", "priority", 7),
        ("expires: 1000005000 ", "expires", 1000005.0),
        ("expiration: 5000", "expires", 1000005.0),
        (f"expires:{LONG}", "expires", None),  # what Java writes for never
        ("JMSXGroupID:g\nJMSXGroupSeq: -1 ", "closes_group", True),
    ],
)
def test_spaces_around_values_of_1_0_are_no_part_of_them(line: str, field: str, value: object) -> None:
    (message,) = sent(line).broker.queues["/", "/queue/a"].messages
    assert getattr(message, field) == value


@pytest.mark.parametrize("line", ["delay: 30000 ", "AMQ_SCHEDULED_DELAY:   30000", f"x-delay:{LONG}"])
def test_a_delay_that_is_understood_is_so_after_a_restart(line: str) -> None:
    assert len(sent(line).broker.delayed) == 1


@pytest.mark.parametrize("name", ["durable", "persistent"])
def test_a_durable_subscription_in_any_case_keeps_messages(name: str) -> None:
    bench = Bench()
    for word in ("True", "TRUE"):
        peer = bench.peer()
        peer.subscribe("/topic/a", **{name: word})
        assert peer.bodies() == ([b"while away"] if word == "TRUE" else [])
        peer.lose()
        bench.peer().put("/topic/a", "while away")


@pytest.mark.parametrize(("value", "letters"), [("False", 1), ("false", 1), ("TRUE", 0), (None, 0)])
def test_requeue_in_any_case(value: str | None, letters: int) -> None:
    _bench, peer, other = bench_with_two()
    peer.put("/queue/a", "x")
    peer.subscribe("/queue/a", ack="client-individual")
    peer.nack(peer.next("MESSAGE"), **({} if value is None else {"requeue": value}))
    other.subscribe("/queue/DLQ.a")
    assert (len(other.take()), len(peer.take())) == (letters, 1 - letters)


def test_an_ignored_header_leaves_the_place_to_another_of_its_meaning() -> None:
    peer = Bench(dialect="activemq").peer()
    peer.send("SUBSCRIBE", **{"destination": "/queue/a", "id": "1", "exclusive": "maybe", "activemq.exclusive": "True"})
    (consumer,) = peer.session.consumers.values()
    assert consumer.request.exclusive is True


def test_credit_takes_a_boolean_in_any_case() -> None:
    _bench, peer, sender = bench_with_two()
    peer.subscribe("/queue/a", ack="client-individual", credit="1,,FALSE")
    for _ in range(3):
        sender.put("/queue/a", "x")
    peer.ack(peer.next("MESSAGE"))
    assert peer.take() == []


@pytest.mark.parametrize("name", ["x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes"])
@pytest.mark.parametrize("dialect", ["stompcodec", "rabbitmq"])
def test_a_bad_argument_of_a_new_queue_names_header_and_value(name: str, dialect: str) -> None:
    for number, value in enumerate(["", "many", "-1", "+5", "5.0", "\u0665", "9" * 400]):
        peer = Bench(dialect=dialect).peer()
        peer.send("SUBSCRIBE" if number % 2 else "SEND", destination="/queue/a", id="1", **{name: value})
        error = peer.error()
        assert error.headers["message"] == f"bad {name}"
        assert ascii(value[:40]) in error.text()


def test_a_bad_value_is_refused_before_a_large_body_and_of_a_request() -> None:
    peer = Bench(large=1000).peer()
    peer.raw(b"SEND\ndestination:/queue/a\npersistent:maybe\ncontent-length:5000\n\nx")
    assert peer.error().headers["message"] == "bad persistent"
    peer = Bench().peer()
    peer.put("/management/destinations", "{}", reply_to="/temp-queue/a", priority="high")
    assert peer.error().headers["message"] == "bad priority"


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


def test_one_warning_for_each_session_without_the_value(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stompcodec.broker")
    bench = Bench(dialect="activemq")
    for _ in range(3):
        peer = bench.peer()
        for number in range(5):
            peer.put("/queue/a", "x", persistent=f"sesame{number}")
    own = Bench().peer()
    own.put("/queue/a", "x", persistent="sesame")
    own.error()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 3
    assert "persistent of a SEND is ignored, as activemq does" in lines[0]
    assert "sesame" not in caplog.text


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
