"""Runs, which a recorder takes: the same messages as one by one, whatever comes and however it is cut."""

from unittest import mock

import pytest
from client.scripted import Scripted
from codec import strategies as some
from hypothesis import given
from hypothesis import strategies as st
from protocol.talking import EXCERPT

from stompcodec.capture import octets_of
from stompcodec.client import inbound, runs
from stompcodec.client.owner import WireOwner
from stompcodec.client.runs import Run
from stompcodec.codec import frame_ends, parse
from stompcodec.spec import Limits

MESSAGE = b"MESSAGE\nsubscription:s1\nmessage-id:%d\nack:a%d\ndestination:/queue/s1\n%b\n%b\0"
ODD = [
    *(b"\n", b"\r\n\n", b"RECEIPT\nreceipt-id:7\n\n\0", b"ERROR\nmessage:no\n\n\0", b"\0", b"MESSAGE\n"),
    MESSAGE.replace(b"n:s1", b"n:s2") % (1, 1, b"", b""),
    MESSAGE.replace(b"subscription:s1\n", b"") % (1, 1, b"", b""),
    MESSAGE.replace(b"ack:a%d\n", b"redelivered:%d\n") % (1, 1, b"", b""),
    MESSAGE.replace(b"message-id:%d\n", b"x:%d\n") % (1, 1, b"", b""),
]
HEADERS = [b"", b"redelivered:true\n", b"a:b\\nc\n", b"a:\\q\n", b"a: b\r\n", b"h:" + b"y" * 60 + b"\n"]
headers = st.just(b"") | st.sampled_from(HEADERS)
bodies = st.sampled_from([b"", b"x", b"one\ntwo\n", b"z" * 90, b"z" * 101])


@st.composite
def streams(draw):
    """Messages of a subscription, with ids from 0 on, and other things among them."""
    parts = []
    for number in range(draw(st.integers(0, 8))):
        body = draw(bodies)
        counted = b"content-length:%d\n" % len(body) if draw(st.booleans()) else b""
        parts.append(MESSAGE % (number, number, draw(headers) + counted, body))
        if draw(st.integers(0, 5)) == 0:
            parts.append(draw(st.sampled_from(ODD)))
    wire = b"".join(parts)
    return draw(st.just(wire) | some.mutated(st.just(wire)))


def subscribed(takes_runs, **options):
    client = Scripted(limits=Limits(max_header_line=60, max_body=100), **options).connect()
    subscription = client.subscribed("client", id="s1", on_unreadable=options.get("on_unreadable", "raise"))
    if takes_runs:
        client.core.inbound.give_runs(subscription)
    return client, subscription


def heard(takes_runs, pieces, lenient):
    """Receive a stream. Return the number of runs, the messages, what is counted, and how the connection ends."""
    client, subscription = subscribed(takes_runs, lenient=lenient)
    inbound, found, runs = client.core.inbound, [], 0
    for piece in [*pieces, None]:
        if piece is None:  # what is malformed in an incomplete frame is noticed with its end
            piece = inbound.runs.let_go(b"") if takes_runs else b""
            inbound.runs = None
        if inbound.runs is not None:
            room = inbound.runs.room()
            if len(piece) % 3:  # others are not read into it
                room[: len(piece)] = piece
                piece = room[: len(piece)]
        inbound.receive(memoryview(piece), client.now)
        for message in client.take(subscription):
            runs += message.run is not None
            found.append(message.run or Run(octets_of(message.frame), 1, message.frame))
            assert found[-1].last == message.frame
    for run in found:  # also those whose memory could have been used for another
        assert run.last == run.frames()[-1]
        assert run.octets[0] == ord("M")
        assert len(run.frames()) == run.messages
        assert run.redelivered == sum(frame.get("redelivered") == "true" for frame in run.frames())
    found = [frame for run in found for frame in run.frames()]
    link = client.core.link
    events = [(state, EXCERPT.sub("", str(error))) for state, error in link.events]
    return runs, found, (subscription.seq, subscription.open, inbound.backlog_octets, link.state, events)


@given(streams(), st.booleans(), st.sampled_from([runs._LONG, 1]), st.data())
def test_runs_hold_what_comes_one_by_one(wire, lenient, long, data):
    pieces = data.draw(some.cut(wire))
    with mock.patch.object(runs, "_LONG", long):
        _, taken, ended = heard(True, pieces, lenient)
    _, one_by_one, expected = heard(False, pieces, lenient)
    assert (taken[: len(one_by_one)], ended) == (one_by_one, expected)
    if ended[-2] == "connected":  # else those before the fault may have been taken before it was noticed
        assert len(taken) == len(one_by_one)


def test_messages_of_one_read_are_one_run():
    wire = b"".join(MESSAGE % (number, number, b"", b"x") for number in range(9))
    assert heard(True, [wire], False)[0] == 1
    end = frame_ends(wire)[4]
    assert heard(True, [wire[:end], b"\n", wire[end:]], False)[0] == 2


def test_memory_is_used_again_once_a_run_is_dropped(monkeypatch):
    monkeypatch.setattr(runs, "_LONG", 1)
    taker, wire = runs.Runs("s1"), b"".join(MESSAGE % (number, number, b"", b"x") for number in range(20))

    def taken(piece):
        room = taker.room()
        room[: len(piece)] = piece
        return taker.take(room[: len(piece)], None)[0]

    for _ in range(2):
        found = [run for at in range(0, len(wire), 99) if (run := taken(wire[at : at + 99]))]
        assert b"".join(run.octets for run in found) == wire
        assert len({id(run.octets.obj) for run in found if type(run.octets) is memoryview}) == runs._BUFFERS
        del found
    assert len(taker._buffers) == runs._BUFFERS


def test_reading_pauses_while_a_long_run_waits(monkeypatch):
    monkeypatch.setattr(inbound, "_RUNS", 100)
    for takes_runs in (True, False):
        client, subscription = subscribed(takes_runs)
        client.core.inbound.receive(MESSAGE % (1, 1, b"", b"x" * 100), client.now)
        assert client.core.inbound.paused is takes_runs
        client.take(subscription)
        assert not client.core.inbound.paused


@pytest.mark.req("S11-SUB-08")
def test_one_ack_settles_a_run_and_a_part_of_it():
    client, subscription = subscribed(True)
    client.core.inbound.receive(b"".join(MESSAGE % (number, number, b"", b"x") for number in range(9)), client.now)
    (message,) = client.take(subscription)
    first, others = message.run.divided(4)
    assert (first.messages, others.messages, first.last.headers["ack"], others.last) == (4, 5, "a3", message.frame)
    assert parse(first.octets) + parse(others.octets) == parse(message.run.octets)
    part = type(message)(first.last, subscription, message.epoch, message.seq - others.messages)
    for each, left in ((part, 5), (message, 0)):
        client.ack(each)
        assert subscription.open == left
    assert [frame.headers["id"] for frame in client.frames()] == ["a3", "a8"]


@pytest.mark.parametrize("size", [-1, 0])
def test_a_frame_that_is_too_long_to_wait_for_is_left_to_the_connection(monkeypatch, size):
    wire = MESSAGE % (1, 1, b"", b"x" * 90)
    monkeypatch.setattr(runs, "_LARGEST", len(wire) - 1 + size)
    client, subscription = subscribed(True)
    for piece in (wire[:-1], wire[-1:] + wire):
        client.core.inbound.receive(piece, client.now)
    found = client.take(subscription)
    assert [message.run is not None for message in found] == ([True] if size == 0 else [False, False])


def test_no_thread_that_waits_reads_the_rest_of_what_waits_for_its_end():
    """It may look like a message."""
    client, _ = subscribed(True)
    owner = WireOwner(client.core)
    owner.connection = client.core.link.connection
    for piece, is_between in ((MESSAGE % (1, 1, b"", b"x"), True), (MESSAGE[:30], False)):
        client.core.inbound.receive(piece, client.now)
        client.core.inbound.backlog = 0
        assert owner._is_between(owner.connection) is is_between


def test_what_waits_for_its_end_goes_with_the_connection():
    client, subscription = subscribed(True)
    client.core.inbound.receive(MESSAGE[:30], client.now)
    client.lose()
    client.wait(60)
    client.connect()
    client.core.inbound.receive(MESSAGE % (1, 1, b"", b"x"), client.now)
    assert [message.id for message in client.take(subscription)] == ["1"]
