"""The proxy between real peers: nothing that passes is changed, delayed or lost, and what passes is told."""

import json
import socket
import struct
import subprocess
import threading
import time
from itertools import product

import pytest
from cli.proxied import proxied, raw
from cli.running import objects, run, started
from client.feeding import wait_for
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec.capture import CaptureWriter
from stompcodec.cli.proxying.telling import chain_of
from stompcodec.errors import StoreError
from stompcodec.testing import StompBroker

CONNECT = b"CONNECT\naccept-version:1.2\nhost:a\nlogin:ann\npasscode:hunter2\nx-authorization:hunter2\n\n\0"
CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"
SEND = b"SEND\ndestination:/queue/a\ncontent-type:text/plain\ncontent-length:5\n\nhello\0"


# Byte for byte


@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=2000)), max_size=12))
def test_any_bytes_in_both_directions(shared, pieces):
    _, connect = shared
    near, far = connect()
    up, down = (b"".join(data for side, data in pieces if side is wanted) for wanted in (True, False))
    for side, data in pieces:
        (near if side else far).send(data)
    assert far.read(len(up)) == up
    assert near.read(len(down)) == down
    near.end()
    far.end()
    assert far.rest() == near.rest() == b""
    near.sock.close()
    far.sock.close()


@pytest.fixture(scope="module")
def shared():
    with raw() as made:
        yield made


def test_a_reset_is_passed_on():
    with raw() as (proxy, connect):
        near, far = connect()
        near.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.sock.close()
        with pytest.raises(ConnectionResetError):
            far.rest()
        assert "the client was lost" in proxy.closed()


def test_a_slow_reader_stops_the_sender():
    """Back-pressure is end to end: what nobody reads is not read either, beyond the buffers of the sockets."""
    with raw() as (proxy, connect):
        near, far = connect()
        for peer in (near, far):
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        near.sock.setblocking(False)
        head = b"SEND\ndestination:/queue/a\ncontent-length:100000000\n\n"
        near.sock.send(head)
        sent, stuck = len(head), 0
        while stuck <= 30:
            try:
                sent += near.sock.send(b"x" * 65536)
                stuck = 0
            except BlockingIOError:
                stuck += 1
            assert sent < 40_000_000
            time.sleep(0.01)
        assert proxy.tally.octets["client"] < sent
        near.sock.setblocking(True)
        assert len(far.read(sent)) == sent


def test_a_large_body_streams():
    size = 3 * 2**20
    frame = b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % size + bytes(size) + b"\0"
    with raw() as (proxy, connect):
        near, far = connect()
        sender = threading.Thread(target=near.send, args=(frame + SEND,))
        sender.start()
        assert far.read(len(frame) + len(SEND)) == frame + SEND
        sender.join()
        large, small = proxy.frame("SEND"), proxy.frame("SEND", 2)
    assert (large.streamed, large.size, large.begin) == (True, size, bytes(256))
    assert (small.streamed, small.size) == (False, 5)
    line = next(line for line in proxy.lines() if line.get("size"))
    assert (line["body"], line["size"]) == (None, size)


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as running:
        yield running


# What is not STOMP, and findings


def test_rules_of_the_conversation_of_both_directions():
    subscribe = b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0"
    message = b"MESSAGE\nsubscription:1\nmessage-id:7\ndestination:/queue/a\n\n\0"
    with raw() as (proxy, connect):
        near, far = connect()
        for data in (CONNECT, CONNECTED, subscribe * 2, message):
            peer, reader = (far, near) if data in (CONNECTED, message) else (near, far)
            peer.send(data)
            reader.read(len(data))
        near.send(b"ACK\nid:1\ntransaction:t\n\n\0")
        proxy.frame("ACK")
        proxy.frame("MESSAGE")
        other, _ = connect()
        other.send(CONNECT + subscribe)  # no rule of another connection holds for it
        proxy.frame("SUBSCRIBE", 3)
    found = {
        (entry.connection, entry.frame.command, finding.rule)
        for entry in proxy.entries
        for finding in entry.findings
        if entry.frame is not None
    }
    assert found >= {(1, "SUBSCRIBE", "S12-SUB-06"), (1, "MESSAGE", "S12-MSG-05"), (1, "ACK", "S12-TX-02")}
    assert not [rule for number, command, rule in found if (number, command) == (2, "SUBSCRIBE")]
    assert proxy.tally.rules["S12-SUB-06"] == 1
    assert not any(rule.endswith(("FRM-06", "FRM-07")) for rule in proxy.tally.rules)


@pytest.mark.parametrize("shown", [False, True])
def test_heart_beats_and_findings_are_shown_if_asked(shown):
    with raw(heart_beats=shown, lint=shown) as (proxy, connect):
        near, _ = connect()
        near.send(b"\n\r\n" + SEND + b"?\n")
        proxy.wait(lambda entry: entry.kind == "not-stomp")
    assert ("heart-beats" in [entry.kind for entry in proxy.entries]) is shown
    assert proxy.tally.heart_beats["client"] == 2
    assert bool(proxy.tally.rules) is shown


# The capture


def test_the_capture_holds_what_is_shown(tmp_path, broker):
    """`decode` shows of the capture what the proxy has shown, and `inspect` reads it."""
    folder = tmp_path / "a.stompcap"
    with proxied(broker.url, folder=folder) as proxy:
        for number in range(2):
            with stomp.connect(proxy.url, login="ann", passcode="hunter2") as client:
                messages = client.subscribe("/queue/captured")
                client.send("/queue/captured", b"\0binary\xff", {"x-token": "hunter2", "n": f"a:\n{number}"})
                assert messages.get(timeout=patience(10)) is not None

    def told(line):
        return {name: line[name] for name in ("command", "headers", "body", "body_b64") if name in line}

    frames = [line for line in proxy.lines() if line["event"] == "frame"]
    for connection, side in product((1, 2), ("client", "broker")):
        (segment,) = folder.glob(f"{chain_of(connection, side)}-*.stomp")
        decoded = run("decode", "--json", segment)
        shown = [told(line) for line in frames if (line["connection"], line["from"]) == (connection, side)]
        assert (decoded.exit_code, [told(line) for line in objects(decoded)]) == (0, shown), decoded.output
        assert shown
    assert not [path for path in folder.iterdir() if b"hunter2" in path.read_bytes()]
    inspected = run("inspect", "--json", folder)
    assert inspected.exit_code == 0
    assert len(objects(inspected)) == proxy.tally.recorded == sum(proxy.tally.frames.values())


def test_a_body_that_is_too_large_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("stompcodec.cli.proxying.wire.KEEP_WHOLE", 4)
    with raw(folder=tmp_path / "a.stompcap") as (proxy, connect):
        near, far = connect()
        near.send(SEND + CONNECT)
        far.read(len(SEND) + len(CONNECT))
        proxy.frame("CONNECT")
    assert (proxy.tally.recorded, proxy.tally.not_recorded) == (1, 1)


def test_a_capture_that_fails_does_not_end_the_stream(tmp_path, monkeypatch):
    def full(*_):
        raise StoreError("no space left")

    monkeypatch.setattr(CaptureWriter, "append", full)
    with raw(folder=tmp_path / "a.stompcap") as (proxy, connect):
        near, far = connect()
        near.send(CONNECT)
        assert far.read(len(CONNECT)) == CONNECT
        wait_for(lambda: proxy.errors)
        near.send(SEND)
        assert far.read(len(SEND)) == SEND
        proxy.frame("SEND")
        assert [(what, str(error)) for what, error in proxy.errors] == [("nothing more is recorded", "no space left")]
        proxy.errors.clear()
    assert (proxy.tally.recorded, proxy.tally.not_recorded) == (0, 1)


# Slow output


@pytest.mark.long
def test_a_slow_output_does_not_hold_up_the_stream(broker):
    """The output is a pipe that nobody reads, until the end. Frames that were not shown are counted."""
    with started("proxy", "0", broker.url, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        with stomp.connect(process.stderr.readline().split()[2].decode()) as client:
            for _ in range(16):
                client.send("/topic/nobody", b"x" * 400_000)
            client.send("/topic/nobody", b"the last one", receipt=True, timeout=patience(20))
        shown = []
        reader = threading.Thread(target=lambda: shown.extend(process.stdout))
        reader.start()
        process.terminate()
        assert process.wait(patience(20)) == 0
        reader.join()
    lines = [json.loads(line) for line in shown]
    summary, frames = lines[-1], [line for line in lines if line["event"] == "frame"]
    assert (summary["event"], summary["frames"]["client"]) == ("summary", 19)
    assert summary["not_shown"] > 0
    assert len(frames) + summary["not_shown"] == sum(summary["frames"].values())
    assert next(line for line in frames if line["command"] == "SEND")["body"] == "x" * 400_000
