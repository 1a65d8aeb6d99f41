"""stompcodec replay: the same messages again, in order, at their pace, to where they shall go."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner
from cli.packets import ethernet, pcapng, tcp

from stompcodec import Frame, serialize
from stompcodec.capture import CaptureWriter, octets_of

SECOND = 10**6
TIME = 1_700_000_000 * SECOND


def recorded(path: Path, destination: str, *seconds: float) -> Path:
    """A capture with a message for each time; its body is its number."""
    with CaptureWriter(path, single=True) as writer:
        for number, second in enumerate(seconds):
            headers = [("destination", destination), ("message-id", f"old-{number}"), ("subscription", "s")]
            headers += [("ack", "7"), ("redelivered", "true"), ("n:1", "a\n"), ("content-type", "text/x")]
            headers += [("expires", f"{TIME // 1000}")]  # long ago
            time = TIME + round(second * SECOND) if second >= 0 else 0
            writer.append(octets_of(Frame("MESSAGE", headers, b"%d" % number)), time)
    return path


def taken(at: Runner, destination: str, number: int) -> list[dict[str, object]]:
    output = at.good("sub", destination, "-n", str(number), "-w", "20", "--json")
    return [json.loads(line) for line in output.splitlines()]


def bodies(at: Runner, destination: str, number: int) -> list[object]:
    return [message["body"] for message in taken(at, destination, number)]


@pytest.mark.parametrize("receipts", [[], ["--receipts"]])
def test_messages_go_in_order_with_their_headers(at: Runner, fresh: str, tmp_path: Path, receipts: list[str]) -> None:
    path = recorded(tmp_path / "a.stompcap", fresh, *[0.001 * n for n in range(700)])
    result = at("replay", path, at.url, "--speed", "max", *receipts)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("700 messages sent, 700 confirmed")
    messages = taken(at, fresh, 700)
    assert [message["body"] for message in messages] == [str(n) for n in range(700)]
    headers = dict(messages[0]["headers"])
    assert headers["n:1"] == "a\n"
    assert headers["content-type"] == "text/x"
    assert not headers["message-id"].startswith("old")
    assert "redelivered" not in headers


def test_the_pace(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.stompcap", fresh, 0, 0.4, -1, 0.8)
    for speed, least in (("1", 0.8), ("2x", 0.4), ("max", 0.0)):
        start = time.monotonic()
        at.good("replay", path, "--speed", speed, "-q")
        assert time.monotonic() - start >= least
        assert bodies(at, fresh, 4) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "+10"], "123"),
        (["--to", "+30"], "012"),
        (["--from", "+9.5", "--to", "+30"], "12"),
        (["--from", "2023-11-14T22:13:40Z"], "23"),  # TIME is 22:13:20
        (["--to", "2023-11-14T23:13:30+01:00"], "0"),
    ],
)
def test_a_part_by_time(at: Runner, fresh: str, tmp_path: Path, options: list[str], expected: str) -> None:
    path = recorded(tmp_path / "a.stompcap", fresh, 0, 10, 20, 30)
    at.good("replay", path, "--speed", "max", *options)
    assert bodies(at, fresh, len(expected)) == list(expected)
    assert at.good("sub", fresh, "-w", "0.1") == b""


def test_what_has_no_time_is_told_where_time_matters(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.stompcap", fresh, 0, -1, -1)
    result = at("replay", path, "--to", "+5")
    assert result.exit_code == 1
    assert "2 messages were left out, because their time is unknown" in result.stderr
    assert bodies(at, fresh, 1) == ["0"]


def test_other_destinations(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.stompcap", "/topic/some.where", 0)
    at.good("replay", path, "-d", "/queue/none=/queue/x", "-d", f"/topic/*={fresh}.*", "-d", "/queue/late")
    assert bodies(at, f"{fresh}.some.where", 1) == ["0"]
    at.good("replay", path, "-d", f"{fresh}.all")
    assert bodies(at, f"{fresh}.all", 1) == ["0"]


def test_a_conversation_in_packets(at: Runner, fresh: str, tmp_path: Path) -> None:
    a, b = (b"\x0a\0\0\x01", 5), (b"\x0a\0\0\x02", 61613)
    send = serialize(Frame("SEND", {"destination": fresh, "transaction": "t", "receipt": "r"}, b"sent"))
    message = serialize(Frame("MESSAGE", {"destination": fresh, "message-id": "1", "subscription": "1"}, b"got"))
    packets = [tcp(a, b, 1, serialize(Frame("BEGIN", {"transaction": "t"})) + send), tcp(b, a, 1, message)]
    path = tmp_path / "a.pcapng"
    path.write_bytes(pcapng([(TIME, ethernet(each)) for each in packets]))
    at.good("replay", path)
    assert bodies(at, fresh, 2) == ["sent", "got"]
    at.good("replay", path, "--only", "SEND")
    assert bodies(at, fresh, 1) == ["sent"]


def test_raw_streams_and_lines(at: Runner, fresh: str, tmp_path: Path) -> None:
    frame = Frame("SEND", {"destination": fresh}, b"1")
    (tmp_path / "a.stomp").write_bytes(serialize(frame))
    at.good("replay", tmp_path / "a.stomp")
    at.good(
        "replay", "-", "--format", "json", input=json.dumps({"command": "SEND", "headers": [["destination", fresh]]})
    )
    assert bodies(at, fresh, 2) == ["1", ""]


def test_what_is_broken_is_told(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.stompcap", fresh, 0)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)  # the index at its end is none any more
    result = at("replay", path)
    assert result.exit_code == 1
    assert "are not whole frames: skipped" in result.stderr
    assert bodies(at, fresh, 1) == ["0"]
    assert at("replay", tmp_path / "none.stompcap").exit_code == 1


@pytest.mark.parametrize("receipts", [[], ["--receipts"]])
def test_a_broker_that_refuses(at: Runner, tmp_path: Path, receipts: list[str]) -> None:
    path = recorded(tmp_path / "a.stompcap", "/queue/closed", 0)
    result = at("replay", path, at.guarded_url.replace("//", "//guest:guest@"), *receipts)
    assert result.exit_code == 1
    assert "stopped: 1 message sent, 0 confirmed" in result.stderr


def test_wrong_usage(at: Runner, fresh: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.stompcap", fresh, 0)
    for options in (["--speed", "0"], ["--speed", "fast"], ["--from", "noon"], ["-d", "a="], ["-d", ""]):
        assert at("replay", path, *options).exit_code == 2, options
    assert at("replay", path, "stomp://127.0.0.1:1").exit_code == 1
