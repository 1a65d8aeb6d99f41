"""Verbs that reconnect say why there still is no session."""

import signal
import subprocess
from pathlib import Path

import pytest
from cli.at_broker import Runner
from client.peer import Peer
from patience import patience

RECORD = ("record", "/queue/a", "-o", "a.stompcap")


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [("sub", "/queue/a"), ("sub", "/queue/a", "--ack", "auto"), ("reply", "/queue/a", "pong"), RECORD],
    ids=["sub", "sub auto", "reply", "record"],
)
def test_a_verb_tells_that_its_login_is_refused_after_a_reconnect(
    at: Runner, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with Peer(server="RabbitMQ/3.10.8") as peer:
        process = at.process(*arguments, "-u", peer.url, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
        peer.wait(lambda peer: peer.got("SUBSCRIBE"), 30)
        peer.rules["CONNECT"] = lambda side, frame: side.error(frame, "Access refused for user 'ann'")
        peer.cut()
        assert process.stderr is not None
        first, second = process.stderr.readline(), process.stderr.readline()
        peer.wait(lambda peer: len(peer.got("CONNECT")) > 3, 30)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        process.communicate(timeout=patience(30))
    assert b"the connection was lost" in first
    assert second.endswith(b"CONNECT was rejected: Access refused for user 'ann'; connecting again\n")
    assert b"refused" not in said  # once, since the reason stays the same
