"""stompcodec pub: what it sends, and that it ends well only when the broker has it all."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner, read_until
from click.testing import CliRunner
from client.peer import closed_port

from stompcodec.cli.app import app
from stompcodec.testing import StompBroker

pty = pytest.importorskip("pty")  # there are no terminals of POSIX on Windows


def bodies(at: Runner, queue: str, count: int) -> list[bytes]:
    """The next messages of a queue."""
    return at.good("sub", queue, "-n", str(count), "-w", "10", "-f", "{body}\\0").split(b"\0")[:-1]


def headers(at: Runner, queue: str) -> dict[str, str]:
    return dict(json.loads(at.good("sub", queue, "-n", "1", "-w", "10", "--json"))["headers"])


def test_bodies_from_arguments_files_and_standard_input(at: Runner, fresh: str, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\n\xfe")
    at.good("pub", fresh, "grün")
    at.good("pub", fresh, f"@{file}")
    at.good("pub", fresh, "-", input=b"a\r\nb")
    at.good("pub", fresh, input=b"not named")
    assert bodies(at, fresh, 4) == ["grün".encode(), b"\xff\n\xfe", b"a\r\nb", b"not named"]


def test_headers(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "x", "-p", "-H", "colour:red", "-H", "odd: a:b ")
    found = headers(at, fresh)
    assert (found["colour"], found["odd"], found["persistent"]) == ("red", " a:b ", "true")


@pytest.mark.parametrize("more", [[], ["--receipt"], ["--tx"]])
def test_a_message_for_each_line(at: Runner, fresh: str, more: list[str]) -> None:
    result = at("pub", fresh, "-l", *more, input=b"one\r\n\nthree\nlast")
    assert result.exit_code == 0
    assert result.stdout_bytes == b""
    assert "4 messages sent, 4 confirmed" in result.stderr
    assert bodies(at, fresh, 4) == [b"one", b"", b"three", b"last"]


def test_lines_of_json_are_what_sub_wrote(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "text", "-H", "content-type:text/plain", "-H", "k:v")
    at.good("pub", fresh, "-", input=b"\0\xff")
    lines = at.good("sub", fresh, "-n", "2", "-w", "10", "--json")
    at.good("pub", fresh, "--json", "-H", "k:w", input=lines)
    again = [json.loads(line) for line in at.good("sub", fresh, "-n", "2", "-w", "10", "--json").splitlines()]
    first = dict(again[0]["headers"])
    assert (first["content-type"], first["k"], again[0]["body"]) == ("text/plain", "w", "text")
    assert again[1]["body_b64"] == "AP8="
    names = [name for name, _ in again[0]["headers"]]
    assert len(names) == len(set(names))  # no message-id, subscription or ack of the first delivery


def test_a_broken_line_ends_it(at: Runner, fresh: str) -> None:
    good = b'{"command":"SEND","headers":[],"body":"1"}\n'
    result = at("pub", fresh, "--json", "--tx", input=good + b"nonsense\n" + good)
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    at.good("pub", fresh, "marker")
    assert bodies(at, fresh, 1) == [b"marker"]  # the transaction was aborted


def test_repeated_at_a_rate(at: Runner, fresh: str) -> None:
    start = time.monotonic()
    at.good("pub", fresh, "x", "--count", "6", "--rate", "50", "-q")
    assert time.monotonic() - start >= 5 / 50
    assert bodies(at, fresh, 6) == [b"x"] * 6


@pytest.mark.parametrize("more", [["x"], ["x", "--count", "3"], ["x", "--count", "3", "--receipt"], ["x", "--tx"]])
def test_what_the_broker_refuses(at: Runner, more: list[str]) -> None:
    result = at("pub", "/queue/closed", *more, "-u", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest")
    assert result.exit_code == 1
    assert "stompcodec: " in result.stderr
    assert "Traceback" not in result.stderr


def test_nobody_listens(at: Runner) -> None:
    with closed_port() as port:
        result = at("pub", "/queue/a", "x", "--url", f"stomp://ann:secret@127.0.0.1:{port}")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "is the broker running there" in line
    assert "secret" not in line


def test_a_connection_that_breaks(at: Runner, fresh: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"CONNECTED\nversion:1.2\n\n\0")
                connection.recv(1)

        server = threading.Thread(target=serve)
        server.start()
        url = f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        result = at("pub", fresh, "x", "--count", "1000000", "-u", url, "--timeout", "5")
        server.join()
    assert result.exit_code == 1
    assert "stopped: " in result.stderr


def test_a_server_that_is_not_a_broker(at: Runner, fresh: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1)

        server = threading.Thread(target=serve)
        server.start()
        result = at("pub", fresh, "x", "-u", f"stomp://127.0.0.1:{listener.getsockname()[1]}")
        server.join()
    assert result.exit_code == 1
    assert "is it a STOMP broker, and the right port? see --url" in result.stderr


def test_passcodes(at: Runner) -> None:
    guest = f"stomp://guest@{at.guarded_url.removeprefix('stomp://')}"
    assert at("pub", "/queue/p", "x", "-u", guest, STOMPCODEC_PASSCODE="guest").exit_code == 0
    wrong = at("pub", "/queue/p", "x", "-u", guest, STOMPCODEC_PASSCODE="S3cret")
    assert wrong.exit_code == 1
    assert "check --login and the passcode" in wrong.stderr
    assert "S3cret" not in wrong.output + wrong.stderr


def test_a_passcode_is_asked_for_on_a_terminal(at: Runner) -> None:
    near, far = pty.openpty()
    try:
        guest = f"stomp://guest@{at.guarded_url.removeprefix('stomp://')}"
        process = at.process(
            "pub", "/queue/p", "x", "-u", guest, stdin=far, stdout=far, stderr=far, start_new_session=True
        )
        os.close(far)
        seen = read_until(near, b"guest: ")
        os.write(near, b"guest\n")
        assert process.wait(patience(30)) == 0
        assert b"guest\r\n" not in seen
    finally:
        os.close(near)


@pytest.mark.parametrize("plain", [False, True])
def test_a_progress_line_on_a_terminal(at: Runner, fresh: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1" if plain else "")
    near, far = pty.openpty()
    try:
        process = at.process("pub", fresh, "x", "--count", "20", "--rate", "50", stderr=far)
        os.close(far)
        seen = read_until(near, b"20 messages sent, 20 confirmed")
        assert process.wait(patience(30)) == 0
    finally:
        os.close(near)
    assert (b"\x1b" in seen) is not plain


def test_wrong_usage(at: Runner) -> None:
    for arguments in (
        [],
        ["/queue/a", "x", "-H", "no colon"],
        ["/queue/a", "x", "-l", "--count", "2"],
        ["/queue/a", "x", "--tx", "--receipt"],
        ["/queue/a", "x", "--rate", "0"],
        ["/queue/a", "x", "--version", "2.0"],
    ):
        assert at("pub", *arguments).exit_code == 2
    missing = at("pub", "/queue/a", "@/no/such/file")
    assert missing.exit_code == 1
    assert "cannot be read" in missing.stderr


@pytest.mark.parametrize("url", ["http://localhost", "stomp://[", "localhost:nonsense"])
def test_urls_that_mean_nothing(at: Runner, url: str) -> None:
    result = at("pub", "/queue/a", "x", "--url", url)
    assert result.exit_code == 1
    assert "see --url" in result.stderr


# Names without a slash


def _others(name: str, folder: Path) -> list[list[str]]:
    """Return other verbs with that destination, none of which finds anything there."""
    return [
        ["req", name, "x", "--timeout", "0.01"],
        ["reply", name, "-w", "0", "-f", "x"],
        ["record", name, "-o", str(folder / "a.stompcap"), "-w", "0"],
        ["browse", name],
        ["purge", name, "--yes", "--idle", "0.01"],
        ["move", name, "/queue/b", "--yes", "--idle", "0.01"],
        ["move", "/queue/b", name, "--yes", "--idle", "0.01"],
    ]


@pytest.mark.parametrize(
    ("name", "dialect", "likely"),
    [
        ("queue/a", "stompcodec", "/queue/a"),
        ("topic/a", "activemq", "/topic/a"),
        ("exchange/amq.direct/a", "rabbitmq", "/exchange/amq.direct/a"),
        ("queue/a", "artemis", None),
        ("/queue/a", "stompcodec", None),
        ("orders", "stompcodec", None),
        ("queue.a", "activemq", None),
    ],
)
def test_a_name_that_lacks_its_slash_is_one_line(name: str, dialect: str, likely: str | None, tmp_path: Path) -> None:
    line = f"stompcodec: warning: {name} has no leading slash, so it is not {likely}; did you mean that?\n"
    with StompBroker(dialect=dialect) as broker:
        for verb in (["pub", name, "x"], ["sub", name, "-n", "1", "-w", "0"], *_others(name, tmp_path)):
            result = CliRunner().invoke(app, [*verb, "-u", broker.url])
            warnings = [each for each in result.stderr.splitlines(keepends=True) if "warning" in each]
            assert warnings == ([line] if likely else [])
            assert verb[0] != "pub" or result.exit_code == 0
        assert CliRunner().invoke(app, ["pub", name, "x", "-q", "-u", broker.url]).stderr == ""
