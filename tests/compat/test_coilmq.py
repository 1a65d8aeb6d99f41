"""coilmq on our codec: what its buffer gives, and coilmq itself under the scenarios that it fails as it is."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

if importlib.util.find_spec("coilmq") is None:
    pytest.skip("coilmq is not installed: pip install coilmq", allow_module_level=True)

import coilmq.server.socket_server
import coilmq.util.frames
from compat.coilmq_server import MODES, CoilmqProcess

import stompcodec
from stompcodec.compat import coilmq as compat

TESTS = Path(__file__).resolve().parents[1]
#: EOLs before frames, heart-beats: what coilmq fails as it is.
EOLS = ("HT-06", "HT-14", "MS-26")
#: Split frames. Whether coilmq fails these depends on when it reads; `test_it_was_broken` does not.
SPLIT = ("CN-15", "MS-24")
REPAIRED = (*EOLS, *SPLIT)
THEIRS = coilmq.util.frames.FrameBuffer

names = st.text(st.sampled_from("abc-xyz"), min_size=1, max_size=8).filter(lambda name: name != "content-length")
values = st.text(st.characters(exclude_characters="\r\n\0: \t\x0b\x0c\x1c\x1d\x1e\x1f\x85", exclude_categories=["Cs"]))
frames = st.tuples(
    st.sampled_from(["SEND", "SUBSCRIBE", "MESSAGE", "ACK"]),
    st.dictionaries(names, values.map(str.strip), max_size=4),
    st.binary(max_size=40),
)


def plain(frame: Any) -> tuple[str, dict[str, str], bytes]:
    """What a frame of coilmq holds. Its empty body is a str."""
    headers = {name: str(value) for name, value in frame.headers.items()}
    return frame.cmd, headers, frame.body or b""


@given(st.lists(frames, min_size=1, max_size=4), st.data())
def test_any_cut_gives_what_coilmq_reads_in_one_piece(sent: list[Any], data: st.DataObject) -> None:
    octets = [coilmq.util.frames.Frame(command, dict(headers), body).pack() for command, headers, body in sent]
    theirs = THEIRS()
    theirs.append(b"".join(octets))
    wanted = [plain(frame) for frame in theirs]
    assert len(wanted) == len(sent)

    stream = b"\n".join(octets) + b"\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    ours, found = compat.FrameBuffer(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)]):
        ours.append(stream[begin:end])
        found += [plain(frame) for frame in ours]
    assert found == wanted
    assert ours.buffer_len() == 0
    assert ours.buffer_empty()


def test_frames_are_theirs() -> None:
    buffer = compat.FrameBuffer()
    buffer.append(b"BEGIN\ntransaction:t\n\n\0ME")
    assert not buffer.buffer_empty()
    frame = buffer.extract_frame()
    assert type(frame) is coilmq.util.frames.Frame
    assert frame.transaction == "t"
    assert frame.body == ""  # a str, as theirs
    assert buffer.extract_frame() is None
    assert buffer.buffer_len() == 2
    buffer.clear()
    assert buffer.buffer_empty()


def test_escapes_are_passed_on_with_quirks() -> None:
    octets = b"SEND\nnote:a\\cb\\\\\\q\ncontent-length:1\n\nx\0"
    buffer = compat.FrameBuffer()
    buffer.append(octets)
    assert buffer.extract_frame().pack() == octets


def test_what_is_passed_over() -> None:
    buffer = compat.FrameBuffer()
    buffer.append(b"SEND\r\n a : 1 \r\nno colon\r\na:2\r\nb:x:y\r\n\r\nhello\0")
    assert buffer.extract_frame().headers == {"a": "1", "b": "x:y"}


@pytest.mark.parametrize(
    ("octets", "kind"),
    [
        (b"SEND\nna\xffme:x\n\n\0", "invalid-utf8"),  # its subscriber could not be written to
        (b"SEND\nname:\xc3\n\n\0", "invalid-utf8"),
        (b"SEND\ncontent-length:-5\n\nhello\0", "bad-content-length"),
        (b"SEND\ncontent-length:2\n\nhello\0", "missing-null"),
        (b"SEND\na:" + b"x" * 70000, "limit-exceeded"),
    ],
)
def test_what_is_refused(octets: bytes, kind: str) -> None:
    buffer = compat.FrameBuffer()
    buffer.append(b"ACK\n\n\0" + octets)
    assert buffer.extract_frame().cmd == "ACK"
    with pytest.raises(stompcodec.FrameError) as caught:
        buffer.extract_frame()
    assert caught.value.kind == kind


@pytest.mark.parametrize("quirks", [True, False])
def test_install_and_undo(quirks: bool) -> None:
    handler = coilmq.server.socket_server.StompRequestHandler
    before = coilmq.server.socket_server.FrameBuffer, handler.send_frame, handler.handle
    with compat.install(quirks):
        wanted = compat.FrameBuffer if quirks else compat.StrictFrameBuffer
        assert coilmq.server.socket_server.FrameBuffer is wanted
        assert coilmq.util.frames.FrameBuffer is wanted
        compat.self_test(quirks)
    assert (coilmq.server.socket_server.FrameBuffer, handler.send_frame, handler.handle) == before
    assert coilmq.util.frames.FrameBuffer is THEIRS
    with pytest.raises(AssertionError, match="not patched"):
        compat.self_test(quirks)


@pytest.fixture(scope="module", params=MODES)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """The mode, and for each scenario of `REPAIRED` "pass" or "FAIL"."""
    folder = tmp_path_factory.mktemp("scenarios")
    for path in (TESTS / "scenarios").glob("*.json"):
        scenarios = json.loads(path.read_text(encoding="utf-8"))["scenarios"]
        chosen = [scenario for scenario in scenarios if scenario["id"] in REPAIRED]
        if chosen:
            (folder / path.name).write_text(json.dumps({"scenarios": chosen}), encoding="utf-8")
    with CoilmqProcess(request.param) as server:
        # coilmq takes no other host.
        options = ["--port", str(server.port), "--vhost", socket.getfqdn(), "--jobs", str(len(REPAIRED))]
        command = [sys.executable, str(TESTS / "run_scenarios.py"), *options, str(folder)]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False).stdout
    return request.param, {line[2]: line[1] for line in re.finditer(r"^(pass|FAIL) [\w-]+/([\w-]+) ", shown, re.M)}


@pytest.mark.parametrize("scenario", REPAIRED)
def test_repaired_scenarios(outcomes: tuple[str, dict[str, str]], scenario: str) -> None:
    """Unpatched they fail: this test tells when a newer coilmq needs no repair any more."""
    mode, found = outcomes
    if mode == "as-it-is":
        assert scenario in SPLIT or found[scenario] == "FAIL"
    else:
        assert found[scenario] == "pass"


def pieces(buffer: Any, octets: bytes, cut: int) -> list[Any]:
    found: list[Any] = []
    with contextlib.suppress(Exception):  # as theirs ends a connection
        for piece in (octets[:cut], octets[cut:]):
            buffer.append(piece)
            found += [plain(frame) for frame in buffer]
    return found


def test_it_was_broken() -> None:
    octets = b"SEND\ndestination:/queue/a\n\nhello\0"
    wanted = [("SEND", {"destination": "/queue/a"}, b"hello")]
    for cut in range(1, len(octets)):
        assert pieces(compat.FrameBuffer(), octets, cut) == wanted
        assert pieces(THEIRS(), octets, cut) != wanted, f"a frame that is cut at {cut} needs no repair any more"


class Peer:
    """A client in few lines: octets out, frames in."""

    def __init__(self, port: int, version: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience(10))
        self.parser = stompcodec.Parser(version)
        self.frames: Iterator[stompcodec.Frame] = iter(())
        self.send(f"CONNECT\naccept-version:{version}\nhost:{socket.getfqdn()}\n\n\0".encode())
        assert self.frame().command == "CONNECTED"

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> stompcodec.Frame:
        while (found := next(self.frames, None)) is None:
            data = self.socket.recv(65536)
            assert data, "coilmq closed the connection"
            self.frames = self.parser.feed(data)
        return found


@contextlib.contextmanager
def peer(port: int, version: str) -> Iterator[Peer]:
    client = Peer(port, version)
    with client.socket:
        yield client


def relayed(mode: str, sent: bytes, of: str = "1.2", to: str = "1.2") -> stompcodec.Frame:
    """What a subscriber gets of a message; the versions are those of the sender's and of the subscriber's session."""
    with CoilmqProcess(mode) as server, peer(server.port, to) as subscriber, peer(server.port, of) as sender:
        subscriber.send(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nreceipt:r\n\n\0")
        assert subscriber.frame().command == "RECEIPT"
        sender.send(sent)
        return subscriber.frame()


@pytest.mark.req("S12-ESC-06", "S11-ESC-05")
@pytest.mark.parametrize(
    ("version", "wanted"), [("1.2", "a:b\r\n\\"), ("1.1", "a:b\r\n\\"), ("1.0", None)], ids=["1.2", "1.1", "1.0"]
)
def test_strict_writes_each_session_its_version(version: str, wanted: str | None) -> None:
    """1.0 cannot carry a line feed in a header: it is left out, never written raw."""
    sent = b"SEND\ndestination:/queue/a\nnote:a\\cb\\r\\n\\\\\nplain:x\n\nhello\0"
    message = relayed("strict", sent, to=version)
    assert message.command == "MESSAGE"
    assert message.headers["plain"] == "x"
    assert message.get("note") == wanted
    assert message.body == b"hello"


@pytest.mark.parametrize(("version", "wanted"), [("1.0", "a\\cb"), ("1.1", "a:b")])
def test_strict_reads_each_session_by_its_version(version: str, wanted: str) -> None:
    message = relayed("strict", b"SEND\ndestination:/queue/a\nnote:a\\cb\n\nhello\0", of=version)
    assert message.headers["note"] == wanted


def test_quirks_pass_headers_on_as_they_came() -> None:
    message = relayed("quirks", b"SEND\ndestination:/queue/a\nnote:a\\cb\n\nhello\0", of="1.2", to="1.0")
    assert message.headers["note"] == "a\\cb"


def test_strict_answers_what_is_no_stomp() -> None:
    with CoilmqProcess("strict") as server, peer(server.port, "1.2") as client:
        client.send(b"SEND\ndestination:/queue/a\nbad:\\q\n\nhello\0")
        frame = client.frame()
        assert frame.command == "ERROR"
        assert "escape" in frame.text()
        assert client.socket.recv(1) == b""
