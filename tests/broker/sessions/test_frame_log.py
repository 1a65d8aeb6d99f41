"""The frame log: who sent what to whom, without secrets, and nothing when it is off."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from broker.harness import Bench, Peer

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


@pytest.mark.parametrize("kind", ["heads", "all"])
def test_no_secret_is_logged(log: Any, kind: str) -> None:
    bench = Bench(log_frames=kind)
    peer = bench.peer(connect=False)
    peer.connect(login="ann", passcode="s3cr3t")
    peer.put("/queue/a", "x", auth_token="s3cr3t")
    assert "login='ann'" in log.text
    assert "s3cr3t" not in log.text
