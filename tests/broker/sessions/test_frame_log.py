"""The frame log: who sent what to whom, without secrets, and nothing when it is off."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from broker.harness import Bench, Peer

from stompcodec.broker.sessions.commands import LoggedSession
from stompcodec.broker.sessions.session import Session

LOGGER = "stompcodec.broker.frames"


@pytest.fixture
def log(caplog: Any) -> Any:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def lines(log: Any) -> list[str]:
    return [record.getMessage() for record in log.records if record.name == LOGGER]


def talk(bench: Bench, version: str = "1.2") -> Peer:
    peer = bench.peer(version, peer="10.1.2.3:4711")
    peer.subscribe("/queue/a", ack="client")
    peer.put("/queue/a", "the body", color="red")
    peer.ack(peer.next("MESSAGE"), receipt="r")
    assert peer.next("RECEIPT")
    return peer


@pytest.mark.req("ART-LOG-01")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_every_frame_of_both_sides_with_address_and_connection_id(log: Any, version: str) -> None:
    bench = Bench(log_frames="all")
    peer = talk(bench, version)
    found = [line.split(" ", 3) for line in lines(log)]
    assert {(ident, address) for ident, address, *_ in found} == {(peer.session.id, "10.1.2.3:4711")}
    shown = [(direction, frame.split(" ")[1].rstrip(">")) for _, _, direction, frame in found]
    assert shown == [
        ("<", "CONNECT"),
        (">", "CONNECTED"),
        ("<", "SUBSCRIBE"),
        ("<", "SEND"),
        (">", "MESSAGE"),
        ("<", "ACK"),
        (">", "RECEIPT"),
    ]
    assert "body=8 bytes b'the body'" in found[4][3]
    assert "color='red'" in found[4][3]


def test_off_is_off_and_heads_are_without_bodies(log: Any) -> None:
    assert type(talk(Bench()).session) is Session
    assert lines(log) == []
    bench = Bench(log_frames="heads")
    one = talk(bench)
    one.send("UNSUBSCRIBE", id="1")
    two = talk(bench)
    by_session = [[line for line in lines(log) if line.startswith(peer.session.id + " ")] for peer in (one, two)]
    assert [len(found) for found in by_session] == [8, 7]
    text = "\n".join(lines(log))
    assert "SEND destination='/queue/a' color='red'" in text
    assert "body" not in text


@pytest.mark.parametrize("kind", ["heads", "all"])
def test_no_secret_is_logged(log: Any, kind: str) -> None:
    bench = Bench(log_frames=kind)
    peer = bench.peer(connect=False)
    peer.connect(login="ann", passcode="s3cr3t")
    peer.put("/queue/a", "x", auth_token="s3cr3t")
    assert "login='ann'" in log.text
    assert "s3cr3t" not in log.text


def test_large_messages_are_streamed_past_it(log: Any) -> None:
    bench = Bench(log_frames="all", large=1000)
    peer = bench.peer()
    peer.subscribe("/queue/a")
    peer.put("/queue/a", b"y" * 500_000)
    peer.put("/queue/a", "after")
    assert [len(frame.body) for frame in peer.take()] == [500_000, 5]
    shown = [line for line in lines(log) if "MESSAGE" in line]
    assert "body=streamed" in shown[0]
    assert "body=5 bytes" in shown[1]


def test_an_error_is_logged_and_what_is_long_or_odd_stays_in_its_line(log: Any) -> None:
    bench = Bench(log_frames="all")
    peer = bench.peer()
    assert isinstance(peer.session, LoggedSession)
    peer.put("/queue/a", b"y" * 50_000, long="z" * 5000, odd="a\nb")
    peer.raw(b"ACK\nid:9-9\n\n\0")
    bench.peer().raw(b"\0\0nonsense\n\n")
    found = lines(log)
    assert any("> <Frame ERROR" in line for line in found)
    assert max(map(len, found)) < 1000
    assert all("\n" not in line for line in found)
