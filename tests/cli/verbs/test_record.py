"""stompcodec record and replay: on the disk first, acknowledged then; and the same messages again, at their pace."""

import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections import Counter

import pytest
from capture.capturing import DEEDS
from capture.storing import object_store
from cli.packets import CLIENT, SERVER, ethernet, pcapng, tcp
from cli.running import Terminal, ended, run
from client.feeding import left, publish, wait_for
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.cli.verbs import record
from stompcodec.client.recorder import Recorder
from stompcodec.testing import StompBroker

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX, and files that can be removed while open")
GROUP = str(os.getegid()) if hasattr(os, "getegid") else "0"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.stompcap"


def bodies(path):
    return [frame.body for _, _, frame in Capture(path).frames()] if path.exists() else []


@pytest.mark.parametrize("single", [False, True])
def test_messages_with_their_times(at, fresh, path, single):
    before = time.time()
    at.good("pub", fresh, "-l", "-H", "kind:a:b", input=b"1\n2\n3\n")
    if single:
        CaptureWriter(path, single=True).close()
    at.good("record", fresh, "-o", path, "-n", "2")
    assert (path.is_file(), bodies(path)) == (single, [b"1", b"2"])
    for _, micros, frame in Capture(path).frames():
        assert before - 1 < micros / 1e6 < time.time() + 1
        assert (frame.headers["kind"], frame.headers["destination"]) == ("a:b", fresh)
    result = at("record", at.url, fresh, "-o", path, "-n", "1")  # the URL may come first; what was there stays
    assert (result.exit_code, result.stderr.startswith("1 message recorded, 0.0 MB, ")) == (0, True)
    assert bodies(path) == [b"1", b"2", b"3"]


def test_full_segments_move_to_an_object_store(at, fresh, path):
    at.good("pub", fresh, "-l", input=b"1\n2\n3\n")
    with object_store() as store:
        uri = store.uri("a.stompcap")
        at.good("record", fresh, "-o", path, "--archive", uri, "--segment", "1", "-n", "3")
        assert [frame.body for _, _, frame in Capture(uri).frames()] == bodies(path) == [b"1", b"2", b"3"]
        assert len(list(path.glob("*.stomp"))) == 1


def test_several_destinations_and_an_end_by_time(at, fresh, path):
    for name in "ab":
        at.good("pub", f"{fresh}.{name}", name)
    at.good("record", f"{fresh}.a", f"{fresh}.b", "-o", path, "-n", "2", "-w", f"{patience(60):.0f}", "-q")
    assert sorted(bodies(path)) == [b"a", b"b"]
    ended(at("record", fresh, "-o", path, "-n", "2", "-w", "0.2"), 1, "0 of 2 messages came in 0.2 s")
    assert at("record", fresh, "-o", path, "-w", "0.2").exit_code == 0
    later = threading.Timer(0.5, publish, (at.url, fresh, 1))
    later.start()
    at.good("record", fresh, "-o", path, "-n", "1", "-w", f"{patience(60):.0f}", "-q")
    later.join()


@posix
def test_a_signal_seals_the_capture_and_a_terminal_shows_progress(at, fresh, path):
    at.good("pub", fresh, "-l", input=b"x\n" * 50)
    with Terminal("record", fresh, "-o", path, "-u", at.url) as terminal:
        terminal.until("recording /queue/", "Ctrl-C ends")
        terminal.until("50 messages recorded")
        terminal.until("silence 2 s")
        terminal.process.send_signal(signal.SIGINT)
        terminal.end(0)
    assert next(path.glob("*.idx")).read_bytes()[-24:][7] & 0x80  # a seal
    assert at.good("sub", fresh, "-w", "0.2") == b""  # all were acknowledged


@pytest.mark.parametrize(("quiet", "lines"), [(False, 2), (True, 0)])
def test_a_log_gets_a_line_each_minute(path, monkeypatch, capsys, quiet, lines):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with CaptureWriter(path) as capture:
        progress = record.Progress(capture, {}, ([], 0), quiet)
        progress.recorder = Recorder([], capture)
        for _ in range(150):
            now += 1.0
            progress.turn()
    assert capsys.readouterr().err.count("0 messages recorded") == lines


@posix
def test_kill_9_neither_loses_nor_doubles(at, fresh, path):
    total, arguments = 4000, ["record", fresh, "-o", path, "-q", "--segment", "100K", "--dedupe", "messageId"]
    publish(at.url, fresh, total)
    for enough in (1, 900, 2100):
        with at.process(*arguments) as process:
            wait_for(lambda enough=enough: len(set(bodies(path))) >= enough)
            process.send_signal(signal.SIGKILL)
            process.wait(patience(60))
    publish(at.url, fresh, 1, first=total)  # it comes last, so the process that records it has been given all
    with at.process(*arguments) as process:
        wait_for(lambda: len(bodies(path)) > total)
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience(60)) == 0
    assert Counter(map(int, bodies(path))) == Counter(range(total + 1))
    assert len(Capture(path).segments()) > 1
    assert left(at.url, fresh) == 0


def test_duplicates_are_counted(at, fresh, path):
    """Two messages with the same id of their sender and the same octets are one, two with other octets are not."""
    for body in ("1", "1", "2", "3"):
        at.good("pub", fresh, body, "-H", "uuid:x")
    result = at("record", fresh, "-o", path, "-n", "3", "--dedupe", "header:uuid")
    assert bodies(path) == [b"1", b"2", b"3"]
    assert "1 more were recorded already" in result.stderr


@posix
@pytest.mark.parametrize("deed", ["folder removed", "segment removed", "index removed", "folder renamed"])
def test_a_capture_that_is_removed_ends_record_with_status_1(at, fresh, path, deed):
    publish(at.url, fresh, 20)
    with at.process("record", fresh, "-o", path, "-q", stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(bodies(path)) >= 20)
        process.send_signal(signal.SIGSTOP)  # what comes now finds it removed
        DEEDS[deed](path)
        publish(at.url, fresh, 30, first=20)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=patience(60))
    (line,) = said.decode().splitlines()
    assert (process.returncode, f"{path}" in line) == (1, True)
    assert "removed, renamed or replaced while it was being written (start again" in line
    assert left(at.url, fresh) >= 30


@posix
@pytest.mark.parametrize(("options", "wanted"), [([], {0o600, 0o700}), (["--group", GROUP], {0o640, 0o750})])
def test_who_may_read_what_is_recorded(at, fresh, tmp_path, options, wanted):
    at.good("pub", fresh, "-l", input=b"1\n2\n")
    at.good("record", fresh, "-o", tmp_path / "deep" / "a.stompcap", "-n", "2", *options)
    assert {stat.S_IMODE(path.lstat().st_mode) for path in tmp_path.rglob("*")} == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("stomp://127.0.0.1:1 /queue/a -o {}", "is the broker running there?"),
        ("/queue/a -o {}.held", "another process writes this capture"),
        ("{url} /queue/closed -o {}", "SUBSCRIBE"),
    ],
)
def test_what_cannot_be_recorded(at, path, arguments, said):
    url = at.guarded_url.replace("//", "//guest:guest@")
    with CaptureWriter(f"{path}.held", holder="me"):
        result = at("record", *arguments.format(path, url=url).split())
    assert (result.exit_code, said in result.stderr, "Traceback" in result.stderr) == (1, True, False), result.output


@pytest.mark.parametrize(
    ("options", "committed", "left", "said"),
    [
        ("--keep=30", [], "34", ""),
        ("--segment=22", ['v1\n{}\n{"frames": 55}'], "34", ""),
        ("--keep-time=100", [], "4", ""),
        ("--keep=until-committed:none-there", [], "01234", "No such file"),
        ("", [None], "01234", "no batch is committed yet"),
        ("", ["v1\n{}\n{"], "01234", "offsets/10 is damaged"),
        ("", ['v9\n{}\n{"frames": 44}'], "01234", "'v9'"),
        ("", ['v1\n{}\n5\n-\n{"logOffset": 9}\n{"frames": {"0": 9}}\n{"frames": 33}'], "34", ""),
        ("", ['v1\n{}\n{"z/a.stompcap/frames": 1, "a.stompcap/frames": 32}'], "234", ""),
        ("", ['v1\n{}\n{"frames": 22}\n{"frames": 55}'], "234", ""),
        ("", ['v1\n{}\n{"%s/frames": 55}'], "4", ""),
        ("", ['v1\n{}\n{"frames": 56}'], "01234", "another recording"),
        ("", ['v1\n{}\n{"b.stompcap/frames": 55}\n{"#spool": "5", "frames": 55}'], "01234", "not read this capture"),
        ("", ['v1\n{}\n{"frames": 55}', 'v1\n{}\n{"frames": 33}'], "34", ""),
        ("", ['v1\n{}\n{"frames": 55}', None], "01234", "no batch is committed yet"),
        ("--keep=30", ['v1\n{}\n{"frames": 22}'], "234", ""),
        ("--keep=30", ['v1\n{}\n{"frames": 55}'], "34", ""),
        ("--keep-time=100", ['v1\n{}\n{"frames": 22}'], "234", ""),
    ],
)
def test_old_segments_are_deleted(at, fresh, path, monkeypatch, options, committed, left, said):
    """Batch 10 is the last one that a query has committed; batch 11 is planned. The last segment always stays."""
    monkeypatch.setattr("stompcodec.cli.verbs.record._CLEAN", 0.0)  # it looks several times, and complains once
    with CaptureWriter(path, segment_octets=1) as writer:
        for number in range(5):
            writer.append(b"MESSAGE\n\n%d\0" % number, number + 1)
    for number, offset in enumerate(committed):
        checkpoint = path.with_name(f"checkpoint-{number}")
        options += f" --keep=until-committed:{checkpoint}"
        for log, batches in (("commits", (9, 10) if offset else ()), ("offsets", (9, 10, 11))):
            (checkpoint / log).mkdir(parents=True)
            for batch in batches:
                text = offset.replace("%s", str(path)) if offset and batch == 10 else 'v1\n{}\n{"frames": 55}'
                (checkpoint / log / f"{batch}").write_text(text)
    result = at("record", fresh, "-o", path, "-q", "-w", "0.3", "--segment=11", *options.split())
    assert (result.exit_code, b"".join(bodies(path)).decode()) == (0, left)
    assert (said in result.stderr, len(result.stderr.splitlines())) == (True, bool(said))


# replay
SECOND = 10**6
TIME = 1_700_000_000 * SECOND


def recorded(path, destination, *seconds):
    with CaptureWriter(path, single=True) as writer:
        for number, second in enumerate(seconds):
            headers = [("destination", destination), ("message-id", f"old-{number}"), ("subscription", "s")]
            headers += [("ack", "7"), ("redelivered", "true"), ("n:1", "a\n"), ("content-type", "text/x")]
            headers += [("expires", f"{TIME // 1000}")]  # long ago
            time = TIME + round(second * SECOND) if second >= 0 else 0
            writer.append(octets_of(Frame("MESSAGE", headers, b"%d" % number)), time)
    return path


def shown(at, destination, number):
    return [body for body, _ in at.taken(destination, number)]


def test_messages_go_in_order_with_their_headers(at, fresh, path):
    result = at("replay", recorded(path, fresh, *[0.001 * n for n in range(700)]), at.url, "--speed", "max")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("700 messages sent, 700 confirmed")
    messages = at.taken(fresh, 700)
    assert [body for body, _ in messages] == [str(n) for n in range(700)]
    headers = messages[0][1]
    assert (headers["n:1"], headers["content-type"], "redelivered" in headers) == ("a\n", "text/x", False)
    assert not headers["message-id"].startswith("old")


@pytest.mark.parametrize(("speed", "least"), [("1", 0.8), ("2x", 0.4), ("max", 0.0)])
def test_the_pace(at, fresh, path, speed, least):
    recorded(path, fresh, 0, 0.4, -1, 0.8)
    start = time.monotonic()
    at.good("replay", path, "--speed", speed, "-q")
    assert time.monotonic() - start >= least
    assert shown(at, fresh, 4) == ["0", "1", "2", "3"]


def test_what_has_no_time_is_told_where_time_matters(at, fresh, path):
    result = at("replay", recorded(path, fresh, 0, -1, -1), "--to", "+5")
    assert result.exit_code == 1
    assert "2 messages were left out, because their time is unknown" in result.stderr
    assert shown(at, fresh, 1) == ["0"]


def test_other_destinations(at, fresh, path):
    recorded(path, "/topic/some.where", 0)
    at.good("replay", path, "-d", "/queue/none=/queue/x", "-d", f"/topic/*={fresh}.*", "-d", "/queue/late")
    assert shown(at, f"{fresh}.some.where", 1) == ["0"]
    at.good("replay", path, "-d", f"{fresh}.all")
    assert shown(at, f"{fresh}.all", 1) == ["0"]


def test_forms_of_files(at, fresh, tmp_path):
    send = serialize(Frame("SEND", {"destination": fresh, "transaction": "t", "receipt": "r"}, b"sent"))
    message = serialize(Frame("MESSAGE", {"destination": fresh, "message-id": "1", "subscription": "1"}, b"got"))
    there = serialize(Frame("BEGIN", {"transaction": "t"})) + send
    packets = [tcp(CLIENT, SERVER, 1, there), tcp(SERVER, CLIENT, 1, message)]
    (tmp_path / "a.pcapng").write_bytes(pcapng([(TIME, ethernet(each)) for each in packets]))
    (tmp_path / "a.stomp").write_bytes(message)
    at.good("replay", tmp_path / "a.pcapng")
    at.good("replay", tmp_path / "a.pcapng", "--only", "SEND")
    at.good("replay", tmp_path / "a.stomp")
    line = json.dumps({"command": "SEND", "headers": [["destination", fresh]]})
    at.good("replay", "-", "--format", "json", input=f"{line}\n")
    assert shown(at, fresh, 5) == ["sent", "got", "sent", "got", ""]


def orders(path, *destinations, command="SEND"):
    with CaptureWriter(path, single=True) as writer:
        for destination in destinations:
            headers = [("destination", destination), ("message-id", "1"), ("reply-to", "/queue/answers")]
            writer.append(octets_of(Frame(command, headers, b'{"destination":"/queue/a"}')), TIME)
    return path


@pytest.mark.parametrize("prefix", ["/management/", "/ops/"])
@pytest.mark.parametrize(("command", "version"), [("SEND", "1.2"), ("MESSAGE", "1.0")])
def test_requests_are_left_out_and_reported(prefix, tmp_path, command, version):
    with StompBroker(management_prefix=prefix) as managed:
        with stomp.connect(managed.url) as client:
            client.send("/queue/a", b"x", receipt=True)
        names = ("/queue/b", f"{prefix}purge", f" {prefix}purge", "/queue/b")
        path = orders(tmp_path / "a.stompcap", *names, command=command)
        result = run("replay", path, managed.url, "--version", version)
        said = f"2 messages were left out: they are requests to manage the broker (names with {prefix})"
        assert (result.exit_code, said in result.stderr) == (1, True)
        assert "2 messages sent, 2 confirmed" in result.stderr
        assert [managed.queued(name) for name in ("/queue/a", "/queue/b", "/queue/answers")] == [1, 2, 0]
        # A rule for destinations does not lead there either.
        path = orders(tmp_path / "b.stompcap", "/topic/purge")
        result = run("replay", path, managed.url, "-d", f"/topic/*={prefix}*")
        assert (result.exit_code, managed.queued("/queue/a")) == (1, 1)
        # They are sent if the user says so.
        path = orders(tmp_path / "c.stompcap", f"{prefix}purge")
        assert run("replay", path, managed.url, "--management").exit_code == 0
        managed.wait_queued("/queue/answers", 1, timeout=patience(20))
        assert managed.queued("/queue/a") == 0


@pytest.mark.parametrize(("server", "sent"), [("RabbitMQ/3.10.8", 1), ("what/1", 0), ("", 0)])
def test_another_broker_may_have_such_a_queue(path, server, sent):
    with Peer(server=server) as peer:
        run("replay", orders(path, "/management/purge"), peer.url)
        assert len(peer.got("SEND")) == sent
