"""stompcodec pub and ping: what they send and tell, and that pub ends well only when the broker has it all."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")
pty = pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

from cli.at_broker import Runner, read_until
from cli.running import run
from client.peer import closed_port

from stompcodec.testing import StompBroker

TEXT = "text/plain;charset=utf-8"


def taken(at: Runner, queue: str, count: int) -> list[tuple[bytes, dict[str, str]]]:
    """The bodies and headers of the next messages of a queue."""
    lines = map(json.loads, at.good("sub", queue, "-n", str(count), "-w", "10", "--json").splitlines())
    return [(line.get("body", line.get("body_b64")), dict(line["headers"])) for line in lines]


def test_bodies_from_arguments_files_and_standard_input(at: Runner, fresh: str, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\xff\n\xfe")
    at.good("pub", fresh, "grün")
    at.good("pub", fresh, f"@{file}")
    at.good("pub", fresh, "-", input=b"a\r\nb")
    at.good("pub", fresh, input=b"not named")
    at.good("pub", fresh, "x", "-p", "-H", "colour:red", "-H", "odd: a:b ")
    found = taken(at, fresh, 5)
    assert [body for body, _ in found] == ["grün", "/wr+", "a\r\nb", "not named", "x"]
    headers = found[-1][1]
    assert (headers["colour"], headers["odd"], headers["persistent"]) == ("red", " a:b ", "true")


@pytest.mark.parametrize(
    ("body", "more", "kind"),
    [
        ("é".encode(), [], TEXT),
        ("é".encode(), ["-l"], TEXT),
        (b"\xff", [], None),
        (b"a\0", [], None),
        (b"a", ["-H", "content-encoding:gzip"], None),
    ],
    ids=["text", "line", "latin", "NUL", "gzip"],
)
def test_utf_8_is_sent_as_text(at: Runner, fresh: str, body: bytes, more: list[str], kind: str | None) -> None:
    at.good("pub", fresh, "-", *more, input=body)
    ((_, headers),) = taken(at, fresh, 1)
    assert headers.get("content-type") == kind


@pytest.mark.parametrize("more", [[], ["--tx"]])
def test_a_message_for_each_line(at: Runner, fresh: str, more: list[str]) -> None:
    result = at("pub", fresh, "-l", *more, input=b"one\r\n\nthree\nlast")
    assert (result.exit_code, result.stdout_bytes) == (0, b"")
    assert "4 messages sent, 4 confirmed" in result.stderr
    assert [body for body, _ in taken(at, fresh, 4)] == ["one", "", "three", "last"]


def test_lines_of_json_are_what_sub_wrote(at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "text", "-H", "content-type:text/plain", "-H", "k:v")
    at.good("pub", fresh, "-", input=b"\0\xff")
    lines = at.good("sub", fresh, "-n", "2", "-w", "10", "--json")
    at.good("pub", fresh, "--json", "-H", "k:w", input=lines)
    (first, headers), (second, _) = taken(at, fresh, 2)
    assert (headers["content-type"], headers["k"], first, second) == ("text/plain", "w", "text", "AP8=")


def test_a_broken_line_ends_it(at: Runner, fresh: str) -> None:
    good = b'{"command":"SEND","headers":[],"body":"1"}\n'
    result = at("pub", fresh, "--json", "--tx", input=good + b"nonsense\n" + good)
    assert (result.exit_code, "line 2" in result.stderr) == (1, True)
    at.good("pub", fresh, "marker")
    assert taken(at, fresh, 1)[0][0] == "marker"  # the transaction was aborted


def test_repeated_at_a_rate(at: Runner, fresh: str) -> None:
    start = time.monotonic()
    at.good("pub", fresh, "x", "--count", "6", "--rate", "50", "-q")
    assert time.monotonic() - start >= 5 / 50
    assert [body for body, _ in taken(at, fresh, 6)] == ["x"] * 6


@pytest.mark.parametrize("more", [["x"], ["x", "--count", "3"], ["x", "--tx"]])
def test_what_the_broker_refuses(at: Runner, more: list[str]) -> None:
    result = at("pub", "/queue/closed", *more, "-u", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest")
    assert (result.exit_code, "Traceback" in result.stderr) == (1, False)
    assert "stompcodec: " in result.stderr


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The URL of a server that answers, and closes after one octet more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(answer)
                connection.recv(1)

        server = threading.Thread(target=serve)
        server.start()
        yield f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        server.join()


def test_brokers_that_are_none(at: Runner, fresh: str) -> None:
    with answering(b"CONNECTED\nversion:1.2\n\n\0") as url:
        result = at("pub", fresh, "x", "--count", "1000000", "-u", url, "--timeout", "5")
    assert (result.exit_code, "stopped: " in result.stderr) == (1, True)
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        result = at("pub", fresh, "x", "-u", url)
    assert result.exit_code == 1
    assert "is it a STOMP broker, and the right port? see --url" in result.stderr
    with closed_port() as port:
        result = at("pub", "/queue/a", "x", "--url", f"stomp://ann:secret@127.0.0.1:{port}")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "is the broker running there" in line
    assert "secret" not in line


@pytest.mark.parametrize("url", ["http://localhost", "stomp://[", "localhost:nonsense"])
def test_urls_that_mean_nothing(at: Runner, url: str) -> None:
    result = at("pub", "/queue/a", "x", "--url", url)
    assert (result.exit_code, "see --url" in result.stderr) == (1, True)


def test_a_terminal_is_asked_for_the_passcode_and_shows_progress(at: Runner, fresh: str) -> None:
    near, far = pty.openpty()
    try:
        guest = at.guarded_url.replace("//", "//guest@")
        more = ["--count", "20", "--rate", "50", "-u", guest]
        process = at.process("pub", fresh, "x", *more, stdin=far, stdout=far, stderr=far, start_new_session=True)
        os.close(far)
        seen = read_until(near, b"guest: ")
        os.write(near, b"guest\n")
        seen += read_until(near, b"20 messages sent, 20 confirmed")
        assert process.wait(patience(30)) == 0
        assert b"guest\r\n" not in seen
    finally:
        os.close(near)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("", 2),
        ("/queue/a x -H nocolon", 2),
        ("/queue/a x -l --count 2", 2),
        ("/queue/a x --rate 0", 2),
        ("/queue/a x --version 2.0", 2),
        ("/queue/a @/no/such/file", 1),
    ],
)
def test_wrong_usage(at: Runner, arguments: str, status: int) -> None:
    result = at("pub", *arguments.split())
    assert result.exit_code == status
    assert status == 2 or "cannot be read" in result.stderr


# Names without a slash


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
    verbs = [
        ["pub", name, "x"],
        ["sub", name, "-n", "1", "-w", "0"],
        ["req", name, "x", "--timeout", "0.01"],
        ["reply", name, "-w", "0", "-f", "x"],
        ["record", name, "-o", str(tmp_path / "a.stompcap"), "-w", "0"],
        ["browse", name],
        ["purge", name, "--yes", "--idle", "0.01"],
        ["move", name, "/queue/b", "--yes", "--idle", "0.01"],
        ["move", "/queue/b", name, "--yes", "--idle", "0.01"],
    ]
    with StompBroker(dialect=dialect) as broker:
        for verb in verbs:
            result = run(*verb, "-u", broker.url)
            warnings = [each for each in result.stderr.splitlines(keepends=True) if "warning" in each]
            assert warnings == ([line] if likely else [])
        assert run("pub", name, "x", "-q", "-u", broker.url).stderr == ""


# ping


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_ping(at: Runner, version: str) -> None:
    found = json.loads(at.good("ping", "--json", "-c", "2", "--version", version))
    assert (found["version"], found["dialect"]) == (version, "stompcodec")
    assert found["server"].startswith("stompcodec/")
    assert len(found["round_trips_ms"]) == 2
    assert all(trip > 0 for trip in found["round_trips_ms"])
    shown = at.good("ping", "-c", "2", "--version", version).decode()
    for words in (f"STOMP {version}", "receipt 1: ", "receipt 2: ", "min "):
        assert words in shown


def test_the_address_wins_over_the_environment(at: Runner) -> None:
    assert at("ping", at.url, "-c", "0", STOMPCODEC_URL="stomp://127.0.0.1:1").exit_code == 0
    assert at("ping", "-c", "0", STOMPCODEC_URL="stomp://127.0.0.1:1").exit_code == 1
    url = f"ws://127.0.0.1:{at.broker.ws_port}/any/path"
    assert json.loads(at.good("ping", url, "--json"))["version"] == "1.2"
