"""What peers wrote cannot steer a terminal: every verb that shows it escapes C0, C1 and bidi controls."""

import json

import pytest
from client.peer import Peer

pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

from cli.running import terminal

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.cli.screen import escape_json
from stompcodec.testing import StompBroker

pytestmark = pytest.mark.long

#: 8-bit CSI, NEL, an escape sequence, a bell, DEL, overrides and isolates of direction, no width, a line separator.
CONTROLS = "\x9b\x85\x1b\x07\x7f\u202e\u202a\u2066\u2069\u200b\u200f\u2028\ufeff\U000e0001"
NASTY = "be\x9b2Jgin\x85\x1b]0;owned\x07\x7f\u202eevil\u202a\u2066\u2069\u200b\u200f\u2028\ufeff\U000e0001end"


def shown(*arguments, status=0):
    """What a command writes to a terminal. No colours, so that any control character is somebody else's."""
    text = terminal(*arguments, status=status, NO_COLOR="1", COLUMNS="300", TERM="xterm")
    assert not set(text) & set(CONTROLS), text
    return text


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    headers = {"destination": NASTY, "subscription": "s" + NASTY, "message-id": NASTY, NASTY: NASTY}
    data = serialize(Frame("MESSAGE", headers, json.dumps({"a": NASTY}, ensure_ascii=False).encode()), "1.2")
    path = tmp_path_factory.mktemp("frames") / "begin.stomp"
    path.write_bytes(data + data.replace(b"message-id", b"x"))
    return path


@pytest.mark.parametrize("verb", ["decode", "decode --json", "decode --pretty", "lint", "inspect"])
def test_verbs_that_read_files(verb, file):
    shown(*verb.split(), file, status=1 if verb == "lint" else 0)


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as broker:
        yield broker


@pytest.mark.parametrize(
    "view", [[], ["--json"], ["-f", "{destination} {id} {headers} {headers[nasty]} {body}\\n"]], ids=" ".join
)
def test_sub(view, broker):
    with stomp.connect(broker.url) as client:
        client.send("/queue/sub", NASTY, {"nasty": NASTY, NASTY: "x"}, receipt=True)
    text = shown("sub", "/queue/sub", "-n", "1", "-u", broker.url, *view)
    assert "evil" in text
    if view == ["--json"]:
        found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        assert found["body"] == NASTY
        assert ["nasty", NASTY] in found["headers"]


def test_queue_tools(broker):
    letter = {"original-destination": NASTY, "dead-letter-reason": NASTY, "dead-letter-attempts": NASTY, NASTY: "x"}
    with stomp.connect(broker.url) as client:
        client.send("/queue/letters", NASTY, letter, receipt=True)
    for verb in ("browse", "browse --json", "dlq show", "dlq list"):
        shown(*verb.split(), "/queue/letters", "-u", broker.url)
    shown("dlq", "retry", "/queue/letters", "--dry-run", "-u", broker.url)


def refuse(side, frame):
    headers = {"message": NASTY, "content-type": "text/plain"}
    if frame.get("receipt") is not None:
        headers["receipt-id"] = frame.headers["receipt"]
    side.send("ERROR", headers, NASTY.encode())


@pytest.mark.parametrize(
    ("verb", "command", "status"),
    [
        ("pub /queue/a x", "SEND", 1),
        ("sub /queue/a -n 1 -w 1", "SUBSCRIBE", 1),
        ("req /queue/a x --timeout 2", "CONNECT", 1),
        ("ping", "BEGIN", 1),
        ("ping", "SEND", 0),  # which it does not send: what it shows is the name of the broker
    ],
)
def test_what_a_broker_answers(verb, command, status):
    with Peer(server=NASTY, rules={command: refuse}) as peer:
        shown(*verb.split(), "-u", peer.url, status=status)


def test_json_means_the_same():
    for text in (NASTY, "", "plain", '"\\\n\t', "caf\xe9 \U0001f600", "\ud800"):
        line = json.dumps({"a": text}, ensure_ascii=False)
        assert json.loads(escape_json(line)) == {"a": text}
        assert escape_json(line).isprintable()
    assert escape_json('{"a":"caf\xe9"}') == '{"a":"caf\xe9"}'
