"""stompcodec record: on the disk first, acknowledged then, whatever happens."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from client.feeding import wait_for
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner, read_until
from crash.process import BrokerProcess

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.capture import Capture, CaptureWriter
from stompcodec.client.recorder import Recorder
from stompcodec.errors import StoreError

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def bodies(path: Path) -> list[bytes]:
    return [frame.body for _, _, frame in Capture(path).frames()]


def count(path: Path) -> int:
    return len(bodies(path)) if path.exists() else 0


def wait_until_recorded(path: Path, number: int) -> None:
    wait_for(lambda: count(path) >= number)


@pytest.mark.parametrize("kind", ["folder", "single"])
def test_messages_with_their_times(at: Runner, fresh: str, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.stompcap"
    before = time.time()
    at.good("pub", fresh, "-l", "-H", "kind:a:b", input=b"1\n2\n3\n")
    at.good("record", fresh, "-o", path, "-n", "2", *(["--single"] if kind == "single" else []))
    assert path.is_file() == (kind == "single")
    assert bodies(path) == [b"1", b"2"]
    for _, micros, frame in Capture(path).frames():
        assert before - 1 < micros / 1e6 < time.time() + 1
        assert frame.headers["kind"] == "a:b"
        assert frame.headers["destination"] == fresh
    result = at("record", at.url, fresh, "-o", path, "-n", "1")  # the URL may come first; what was there stays
    assert result.exit_code == 0
    assert result.stderr.startswith("1 message recorded, 0.0 MB, ")
    assert bodies(path) == [b"1", b"2", b"3"]


def test_several_destinations_and_an_end_by_time(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = tmp_path / "a.stompcap"
    for name in "ab":
        at.good("pub", f"{fresh}.{name}", name)
    at.good("record", f"{fresh}.a", f"{fresh}.b", "-o", path, "-n", "2", "-w", f"{patience(60):.0f}", "-q")
    assert sorted(bodies(path)) == [b"a", b"b"]
    result = at("record", fresh, "-o", path, "-n", "2", "-w", "0.2")
    assert result.exit_code == 1
    assert "0 of 2 messages came in 0.2 s" in result.stderr
    assert at("record", fresh, "-o", path, "-w", "0.2").exit_code == 0


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_seals_the_capture(at: Runner, fresh: str, tmp_path: Path, number: int) -> None:
    path = tmp_path / "a.stompcap"
    with at.process("record", fresh, "-o", path, stderr=subprocess.PIPE) as process:
        at.good("pub", fresh, "-l", input=b"x\n" * 50)
        wait_until_recorded(path, 50)
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(patience(60)) == 0
    assert said.startswith(b"50 messages recorded")
    index = next(path.glob("*.idx"))
    assert index.read_bytes()[-24:][7] & 0x80  # a seal
    assert at.good("sub", fresh, "-w", "0.2") == b""  # all were acknowledged


@posix
def test_kill_9_loses_nothing(at: Runner, fresh: str, tmp_path: Path) -> None:
    """Whatever the broker has given up is in the capture: in the end all is there."""
    path, total, roll = tmp_path / "a.stompcap", 6000, random.Random(3)

    def publish() -> None:
        with stomp.connect(at.url) as client:
            for number in range(total):
                client.send(fresh, b"%d" % number)
                if number % 100 == 99:
                    client.ping()
                    time.sleep(0.01)

    publisher = threading.Thread(target=publish)
    publisher.start()
    for _ in range(4):  # the broker gives up a message that was delivered six times
        before = count(path)
        with at.process("record", fresh, "-o", path, "-q", "--segment", "100K") as process:
            wait_until_recorded(path, min(before + roll.randrange(1, 1200), total))
            process.kill()
            process.wait(patience(60))
    publisher.join()
    with at.process("record", fresh, "-o", path, "-q", "--segment", "100K") as process:
        with stomp.connect(at.url) as client:
            client.send(fresh, b"%d" % total)  # only this process can have it: once it has, it listens to signals
        wait_for(lambda: len(set(bodies(path))) == total + 1)
        process.terminate()
        assert process.wait(patience(60)) == 0
    assert {int(body) for body in bodies(path)} == set(range(total + 1))
    assert at.good("sub", fresh, "-w", "0.2") == b""
    assert len(Capture(path).segments()) > 1


def test_a_full_disk_acknowledges_nothing(at: Runner, fresh: str, tmp_path: Path) -> None:
    """Files may not grow beyond 60 kB: it is told, it ends with 1, and another one gets everything."""
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("only Linux sets limits of other processes")
    path = tmp_path / "a.stompcap"
    arguments = ["record", fresh, "-o", path, "--prefetch", "20"]
    with at.process(*arguments, stderr=subprocess.PIPE) as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (60_000, 60_000))
        at.good("pub", fresh, "-l", input=b"".join(b"%d %s\n" % (n, b"x" * 1000) for n in range(200)))
        assert process.stderr is not None
        said = process.stderr.readline()
        assert b"cannot be written: File too large; nothing is acknowledged" in said
        process.terminate()
        assert process.wait(patience(60)) == 1
    assert 0 < count(path) < 60
    at.good("record", fresh, "-o", path, "-n", str(200 - count(path)), "-q")
    assert {int(body.split()[0]) for body in bodies(path)} == set(range(200))
    assert len(bodies(path)) == 200
    assert at.good("sub", fresh, "-w", "0.2") == b""


@posix
def test_a_broker_that_comes_back(at: Runner, tmp_path: Path) -> None:
    path = tmp_path / "a.stompcap"
    with BrokerProcess(tmp_path / "broker") as broker:
        port = broker.port
        url = f"stomp://127.0.0.1:{port}"
        with at.process("record", url, "/queue/a", "-o", path, stderr=subprocess.PIPE) as process:
            at.good("pub", "-u", url, "/queue/a", "one", "-p")
            wait_until_recorded(path, 1)
            broker.kill()
            assert process.stderr is not None
            assert b"connecting again" in process.stderr.readline()
            broker._command[broker._command.index("--port") + 1] = str(port)
            broker.start()
            at.good("pub", "-u", url, "/queue/a", "two", "-p")
            wait_for(lambda: b"two" in bodies(path))
            process.terminate()
            process.stderr.read()
            assert process.wait(patience(60)) == 0
    assert set(bodies(path)) == {b"one", b"two"}  # one may be there twice: its ACK may have been lost


@posix
def test_progress_is_shown_on_a_terminal(at: Runner, fresh: str, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    at.good("pub", fresh, "hello")
    terminal, inner = pty.openpty()
    with at.process("record", fresh, "-o", tmp_path / "a.stompcap", stderr=inner) as process:
        os.close(inner)
        assert b"recording /queue/" in read_until(terminal, b"Ctrl-C ends")
        read_until(terminal, b"1 message recorded")
        process.terminate()
        assert process.wait(patience(60)) == 0
    os.close(terminal)


def test_wrong_usage(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = tmp_path / "a.stompcap"
    assert at("record", fresh).exit_code == 2
    assert at("record", "stomp://h", "-o", path).exit_code == 2
    assert at("record", fresh, "-o", path, "--segment", "many").exit_code == 2
    assert at("record", fresh, "-o", path, "--single", "--keep", "1G").exit_code == 2
    result = at("record", "stomp://127.0.0.1:1", fresh, "-o", path)
    assert result.exit_code == 1
    assert "is the broker running there?" in result.stderr
    with CaptureWriter(path, holder="me"):
        result = at("record", fresh, "-o", path)
    assert result.exit_code == 1
    assert "another process writes this capture" in result.stderr
    assert "held by me" in result.stderr
    result = at("record", at.guarded_url.replace("//", "//guest:guest@"), "/queue/closed", "-o", path)
    assert result.exit_code == 1
    assert "SUBSCRIBE" in result.stderr


def test_old_segments_are_deleted(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = tmp_path / "a.stompcap"
    with CaptureWriter(path, segment_octets=1) as writer:
        for number in range(5):
            writer.append(b"MESSAGE\n\n%d\0" % number, number + 1)
    at.good("record", fresh, "-o", path, "--keep", "30", "-w", "0.3")
    assert bodies(path) == [b"3", b"4"]
    at.good("record", fresh, "-o", path, "--keep-time", "100", "-w", "0.3")
    assert bodies(path) == [b"4"]


# ---- the recorder itself ----


def recording(recorder: Recorder) -> threading.Thread:
    thread = threading.Thread(target=recorder.run)
    thread.start()
    return thread


def test_nothing_is_acknowledged_before_it_is_synced(at: Runner, fresh: str, tmp_path: Path) -> None:
    at.good("pub", fresh, "-l", input=b"1\n2\n3\n")
    acks: list[str] = []
    syncing, may_sync = threading.Event(), threading.Event()

    class Slow(CaptureWriter):
        def sync(self) -> None:
            syncing.set()
            assert may_sync.wait(patience(60))
            super().sync()

    def see(direction: str, frame: Frame) -> None:
        if frame.command == "ACK":
            acks.append(direction)

    with Slow(tmp_path / "a.stompcap") as capture, stomp.connect(at.url, on_frame=see) as client:
        recorder = Recorder(client, capture, most=3)
        recorder.subscribe(fresh)
        thread = recording(recorder)
        assert syncing.wait(patience(60))
        client.ping()  # whatever was sent before has come to `see`, too
        assert acks == []
        assert recorder.messages == 0
        may_sync.set()
        thread.join(patience(60))
        assert recorder.messages == 3
        client.ping()
        wait_for(lambda: len(acks) == 3)


def test_what_cannot_be_written_is_tried_again(at: Runner, fresh: str, tmp_path: Path) -> None:
    at.good("pub", fresh, "-l", input=b"1\n2\n3\n")
    troubles: list[Exception] = []

    class Full(CaptureWriter):
        def sync(self) -> None:
            if not troubles:
                for segment in self._open.values():  # as a disk that is full would
                    segment._undone(OSError(28, "No space left"))
                raise StoreError("full")
            super().sync()

    with Full(tmp_path / "a.stompcap") as capture, stomp.connect(at.url) as client:
        recorder = Recorder(client, capture, most=3, on_trouble=troubles.append)
        recorder.subscribe(fresh)
        recorder.run()
    assert [str(error) for error in troubles] == ["full"]
    assert bodies(tmp_path / "a.stompcap") == [b"1", b"2", b"3"]


def test_chains_and_hold(at: Runner, fresh: str, tmp_path: Path) -> None:
    for name in "ab":
        at.good("pub", f"{fresh}.{name}", name)
    held = threading.Event()
    with CaptureWriter(tmp_path / "a.stompcap") as capture, stomp.connect(at.url) as client:
        recorder = Recorder(client, capture, most=2, hold=lambda: not held.is_set())
        for name in "ab":
            recorder.subscribe(f"{fresh}.{name}", chain=name)
        thread = recording(recorder)
        time.sleep(0.3)
        assert recorder.messages == 0
        held.set()
        thread.join(patience(60))
    read = Capture(tmp_path / "a.stompcap")
    assert {chain: [frame.body for _, _, frame in read.frames(chain)] for chain in read.chains()} == {
        "a": [b"a"],
        "b": [b"b"],
    }


def test_a_subscription_that_ends_ends_the_recording(at: Runner, fresh: str, tmp_path: Path) -> None:
    with CaptureWriter(tmp_path / "a.stompcap") as capture, stomp.connect(at.url) as client:
        recorder = Recorder(client, capture)
        recorder.subscribe(fresh)
        thread = recording(recorder)
        client.close()
        thread.join(patience(60))
        assert not thread.is_alive()
