"""What peers wrote cannot steer a terminal: every verb that shows it escapes C0, C1 and bidi controls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.cli.screen import escape_json
from stompcodec.testing import StompBroker

pytestmark = pytest.mark.long

pty = pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

COMMAND = [sys.executable, "-m", "stompcodec.cli"]
#: 8-bit CSI, NEL, an escape sequence, a bell, DEL, overrides and isolates of direction, no width, a line separator.
CONTROLS = "\x9b\x85\x1b\x07\x7f\u202e\u202a\u2066\u2069\u200b\u200f\u2028\ufeff\U000e0001"
NASTY = "be\x9b2Jgin\x85\x1b]0;owned\x07\x7f\u202eevil\u202a\u2066\u2069\u200b\u200f\u2028\ufeff\U000e0001end"


def terminal(*arguments: str, stdin: bytes | None = None, status: int = 0) -> str:
    """What a command writes to a terminal, on both outputs. No colours, so that any escape is somebody else's."""
    near, far = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "300", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen([*COMMAND, *arguments], stdin=far, stdout=far, stderr=far, env=environment, cwd="/")
    os.close(far)
    output = b""
    try:
        while data := os.read(near, 65536):
            output += data
    except OSError:  # how Linux says that the other end was closed
        pass
    os.close(near)
    assert process.wait(patience(60)) == status, output
    return output.decode()


def is_safe(text: str) -> bool:
    assert "be" in text, text
    return not set(text) & set(CONTROLS)


def frame(command: str) -> bytes:
    return serialize(
        Frame(
            command,
            {"destination": NASTY, "subscription": "s" + NASTY, "message-id": NASTY, NASTY: NASTY},
            json.dumps({"a": NASTY}, ensure_ascii=False).encode(),
        ),
        "1.2",
    )


@pytest.mark.parametrize(
    "verb",
    [
        *(["decode"], ["decode", "--json"], ["decode", "--pretty"], ["decode", "--hex"], ["decode", "--summary"]),
        *(["lint"], ["lint", "--json"], ["inspect"], ["inspect", "--json"]),
    ],
    ids=" ".join,
)
def test_verbs_that_read_files(verb: list[str], tmp_path: Path) -> None:
    path = tmp_path / "begin.stomp"
    path.write_bytes(frame("MESSAGE") + frame("MESSAGE").replace(b"message-id", b"x"))
    status = 1 if verb[0] == "lint" else 0
    assert is_safe(terminal(*verb, str(path), status=status) + "be")


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    "view",
    [[], ["--json"], ["--pretty"], ["-f", "{destination} {id} {headers} {headers[nasty]} {body}\\n"]],
    ids=" ".join,
)
def test_sub(view: list[str], broker: StompBroker) -> None:
    with stomp.connect(broker.url) as client:
        client.send("/queue/sub", NASTY, {"nasty": NASTY, NASTY: "x"}, receipt=True)
    text = terminal("sub", "/queue/sub", "-n", "1", "-q", "-u", broker.url, *view)
    assert is_safe(text)
    if view == ["--json"]:
        found = json.loads(text)
        assert found["body"] == NASTY
        assert ["nasty", NASTY] in found["headers"]


@pytest.mark.parametrize("view", [[], ["--json"]], ids=["plain", "json"])
def test_req(view: list[str], broker: StompBroker) -> None:
    with stomp.connect(broker.url) as client:
        client.subscribe("/queue/req", handler=lambda message: message.reply(NASTY))
        text = terminal("req", "/queue/req", "x", "-u", broker.url, *view)
    assert is_safe(text)
    if view:
        assert json.loads(text)["body"] == NASTY


@pytest.mark.parametrize("view", [[], ["--json"], ["--pretty"], ["-f", "{id} {headers} {body}\\n"]], ids=" ".join)
@pytest.mark.parametrize("verb", [["browse"], ["dlq", "show"]], ids=" ".join)
def test_queue_tools(verb: list[str], view: list[str], broker: StompBroker) -> None:
    letter = {"original-destination": NASTY, "dead-letter-reason": NASTY, "dead-letter-attempts": NASTY, NASTY: "x"}
    with stomp.connect(broker.url) as client:
        if not broker.queued("/queue/letters"):
            client.send("/queue/letters", NASTY, letter, receipt=True)
    assert is_safe(terminal(*verb, "/queue/letters", "-u", broker.url, *view))
    if not view:
        assert is_safe(terminal("dlq", "list", "/queue/letters", "-u", broker.url))
        assert is_safe(terminal("dlq", "retry", "/queue/letters", "--dry-run", "-u", broker.url) + "be")


def refuse(side, frame) -> None:
    headers = {"message": NASTY, "content-type": "text/plain"}
    if frame.get("receipt") is not None:
        headers["receipt-id"] = frame.headers["receipt"]
    side.send("ERROR", headers, NASTY.encode())


@pytest.mark.parametrize(
    "verb",
    [["pub", "/queue/a", "x"], ["sub", "/queue/a", "-n", "1", "-q"], ["req", "/queue/a", "x"], ["ping"]],
    ids=lambda verb: verb[0],
)
def test_what_a_broker_answers(verb: list[str]) -> None:
    """Its name, its session and its refusals."""
    for command in ("SEND", "SUBSCRIBE", "BEGIN", "CONNECT"):
        with Peer(server=NASTY, rules={command: refuse}) as peer:
            waits = ["-w", "1"] if verb[0] in ("sub", "req") else []
            status = 0 if (verb[0], command) in OTHER else 1
            seconds = "2" if status else "20"
            text = terminal(*verb, "-u", peer.url, "--timeout", seconds, *waits, status=status)
            assert not set(text) & set(CONTROLS), text


OTHER = {("ping", "SEND"), ("ping", "SUBSCRIBE"), ("pub", "SUBSCRIBE"), ("pub", "BEGIN")}


def test_json_means_the_same() -> None:
    for text in (NASTY, "", "plain", '"\\\n\t', "caf\xe9 \U0001f600", "\ud800"):
        line = json.dumps({"a": text}, ensure_ascii=False)
        assert json.loads(escape_json(line)) == {"a": text}
        assert escape_json(line).isprintable()
    assert escape_json('{"a":"caf\xe9"}') == '{"a":"caf\xe9"}'


def test_a_pipe_gets_it_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "begin.stomp"
    path.write_bytes(frame("MESSAGE"))
    done = subprocess.run([*COMMAND, "decode", "--json", str(path)], capture_output=True, check=True, cwd="/")
    assert "\u202e" in done.stdout.decode()
