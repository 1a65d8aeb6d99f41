"""aiostomp on our codec: the frames of its protocol, and its client against a server on loopback."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

if importlib.util.find_spec("aiostomp") is None:
    pytest.skip("aiostomp is not installed: pip install aiostomp", allow_module_level=True)

import aiostomp.aiostomp
import aiostomp.protocol

from stompcodec import FrameError
from stompcodec.compat import aiostomp as compat

THEIRS = aiostomp.protocol.StompProtocol

names = st.text(st.sampled_from("abc-xyz"), min_size=1, max_size=8)
values = st.text(st.one_of(st.sampled_from(":\\\r\n"), st.characters(exclude_characters="\0", codec="utf-8")))
bodies = st.one_of(st.binary(max_size=40), st.text(st.characters(codec="utf-8"), max_size=20))
frames = st.tuples(
    st.sampled_from(["SEND", "MESSAGE", "ERROR"]), st.dictionaries(names, values, min_size=1, max_size=4), bodies
)


def plain(frame: Any) -> tuple[str, dict[str, str], bytes | None]:
    return frame.command, frame.headers, frame.body


def built(protocol: Any, sent: list[Any]) -> list[bytes]:
    octets = []
    for command, headers, body in sent:
        size = len(body if isinstance(body, bytes) else body.encode())
        octets.append(protocol.build_frame(command, {**headers, "content-length": size}, body))
    return octets


@given(st.lists(frames, min_size=1, max_size=4), st.data())
def test_with_quirks_it_is_as_theirs(sent: list[Any], data: st.DataObject) -> None:
    theirs, ours = THEIRS(), compat.StompProtocol()
    octets = built(ours, sent)
    assert octets == built(theirs, sent)

    stream = b"\n".join(octets) + b"\n"
    theirs.feed_data(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    for begin, end in zip([0, *cuts], [*cuts, len(stream)]):
        ours.feed_data(stream[begin:end])
    assert [plain(frame) for frame in ours.pop_frames()] == [plain(frame) for frame in theirs.pop_frames()]
    assert ours.error is None


@given(frames)
def test_strict_comes_back(sent: Any) -> None:
    protocol = compat.StrictStompProtocol()
    (octets,) = built(protocol, [sent])
    protocol.feed_data(octets)
    (found,) = protocol.pop_frames()
    assert found.headers == {**sent[1], "content-length": found.headers["content-length"]}
    assert (found.body or b"") == (sent[2] if isinstance(sent[2], bytes) else sent[2].encode())


def test_what_was_no_utf8_is_written_as_it_came() -> None:
    protocol = compat.StompProtocol()
    octets = b"MESSAGE\nid:\xff\xc3\n\nbody\0"
    protocol.feed_data(octets)
    (frame,) = protocol.pop_frames()
    assert protocol.build_frame(frame.command, frame.headers, frame.body) == octets


def test_the_beginning_of_a_frame_can_be_seen() -> None:
    protocol = compat.StompProtocol()
    protocol.feed_data(b"RECEIPT\nreceipt-id:1\n\n\0MESS")
    assert len(protocol.pop_frames()) == 1
    assert bytes(protocol.current_command) == b"MESS"


def test_what_is_read_otherwise() -> None:
    protocol = compat.StompProtocol()
    protocol.feed_data(b"RECEIPT\r\na\\cb:1\r\nc:\\q\r\nc:2\r\n\r\nbody\0")
    (frame,) = protocol.pop_frames()
    assert plain(frame) == ("RECEIPT", {"a:b": "1", "c": "\\q"}, b"body")
    strict = compat.StrictStompProtocol()
    strict.feed_data(b"RECEIPT\nreceipt-id:1\n\nbody\0")
    assert strict.error is not None
    assert strict.error.kind == "body-not-allowed"


@pytest.mark.parametrize("protocol", [compat.StompProtocol, compat.StrictStompProtocol])
@pytest.mark.parametrize(
    ("octets", "kind"),
    [(b"content-length:x\n\n\0", "bad-content-length"), (b"content-length:%d\n\n" % (1 << 40), "limit-exceeded")],
)
def test_good_frames_come_before_the_error(protocol: Any, octets: bytes, kind: str) -> None:
    found = protocol()
    found.feed_data(b"RECEIPT\nreceipt-id:1\n\n\0MESSAGE\n" + octets)
    assert [frame.command for frame in found.pop_frames()] == ["RECEIPT"]
    assert found.error.kind == kind
    found.feed_data(b"RECEIPT\nreceipt-id:2\n\n\0")
    assert found.pop_frames() == []


@pytest.mark.req("S12-ESC-01", "S11-ESC-06")
@pytest.mark.parametrize(("version", "value"), [("1.0", "a\\cb"), ("1.1", "a:b"), ("1.2", "a:b")])
def test_strict_reads_the_version_of_connected(version: str, value: str) -> None:
    protocol = compat.StrictStompProtocol()
    line = f"version:{version}\n" if version != "1.0" else ""
    protocol.feed_data(f"CONNECTED\n{line}x:y\n\n\0MESSAGE\nnote:a\\cb\n\n\0".encode())
    assert protocol.error is None
    assert protocol.pop_frames()[1].headers == {"note": value}


def test_strict_refuses_a_version_that_was_not_offered() -> None:
    protocol = compat.StrictStompProtocol()
    protocol.feed_data(b"CONNECTED\nversion:7\n\n\0")
    assert protocol.error is not None
    assert protocol.error.kind == "no-common-version"


def test_strict_writes_the_rules() -> None:
    protocol = compat.StrictStompProtocol()
    assert b"login:a:b\n" in protocol.build_frame("CONNECT", {"login": "a:b"})
    assert b"login:a\\cb\n" in compat.StompProtocol().build_frame("CONNECT", {"login": "a:b"})
    with pytest.raises(FrameError, match="content-length"):
        protocol.build_frame("SEND", {"content-length": 3}, "hello")
    with pytest.raises(FrameError, match="HELLO"):
        protocol.build_frame("HELLO")
    assert b"content-length" not in protocol.build_frame("SEND", {"destination": "/queue/a"}, "hello")


@pytest.mark.parametrize("quirks", [True, False])
def test_install_and_undo(quirks: bool) -> None:
    reader = aiostomp.aiostomp.StompReader
    before = reader.data_received
    with compat.install(quirks):
        assert aiostomp.aiostomp.sp is (compat.StompProtocol if quirks else compat.StrictStompProtocol)
        compat.self_test(quirks)
    assert aiostomp.protocol.StompProtocol is THEIRS
    assert aiostomp.aiostomp.sp is THEIRS
    assert reader.data_received is before
    with pytest.raises(AssertionError, match="not patched"):
        compat.self_test(quirks)


@pytest.mark.parametrize("quirks", [True, False])
def test_a_broken_stream_ends_the_connection(quirks: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The message before the nonsense arrives, then aiostomp connects again."""
    with compat.install(quirks):
        bodies, connections = asyncio.run(_conversation())
    assert bodies == [b"one", b"two"]
    assert connections == 2
    assert "content-length" in caplog.text


async def _conversation() -> tuple[list[bytes], int]:
    bodies: list[bytes] = []
    closed: list[asyncio.StreamWriter] = []
    done = asyncio.Event()
    answers = [b"one\0MESSAGE\nsubscription:1\ncontent-length:x\n\n", b"two\0"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closed.append(writer)
        assert (await reader.readuntil(b"\0")).startswith(b"CONNECT\n")
        writer.write(b"CONNECTED\nversion:1.1\n\n\0\n")
        assert b"SUBSCRIBE\n" in await reader.readuntil(b"\0")
        writer.write(b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\n\n" + answers[len(closed) - 1])

    async def handler(_frame: Any, body: bytes) -> bool:
        bodies.append(body)
        if body == b"two":
            done.set()
        return True

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = aiostomp.aiostomp.AioStomp(
            "127.0.0.1", port, heartbeat=False, loop=asyncio.get_running_loop(), reconnect_max_attempts=3
        )
        client.subscribe("/queue/a", handler=handler)
        await client.connect()
        await asyncio.wait_for(done.wait(), patience(10))
        client.close()
        for writer in closed:
            writer.close()
        await asyncio.sleep(0)
    return bodies, len(closed)
