"""stompcodec pub and ping: what they send and tell, and that pub ends well only when the broker has it all."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from cli.running import Terminal

pytest.importorskip("pty")  # there are no terminals of POSIX on Windows

from cli.running import run
from client.peer import closed_port

from stompcodec.testing import StompBroker


def test_bodies_from_arguments_files_and_standard_input(at, fresh, tmp_path):
    (tmp_path / "body").write_bytes(b"\xff\n\xfe")
    at.good("pub", fresh, "grün")
    at.good("pub", fresh, f"@{tmp_path / 'body'}")
    at.good("pub", fresh, "-", input=b"a\r\nb")
    at.good("pub", fresh, input=b"not named")
    at.good("pub", fresh, "x", "-p", "-H", "colour:red", "-H", "odd: a:b ")
    found = at.taken(fresh, 5)
    assert [body for body, _ in found] == ["grün", "/wr+", "a\r\nb", "not named", "x"]
    assert found[-1][1].items() >= {"colour": "red", "odd": " a:b ", "persistent": "true"}.items()


@pytest.mark.parametrize(
    ("body", "more", "kind"),
    [
        ("é".encode(), "", "text/plain;charset=utf-8"),
        ("é".encode(), "-l", "text/plain;charset=utf-8"),
        (b"\xff", "", None),
        (b"a\0", "", None),
        (b"a", "-H content-encoding:gzip", None),
    ],
)
def test_utf_8_is_sent_as_text(at, fresh, body, more, kind):
    at.good("pub", fresh, "-", *more.split(), input=body)
    assert at.taken(fresh, 1)[0][1].get("content-type") == kind


@pytest.mark.parametrize("more", [[], ["--tx"]])
def test_a_message_for_each_line(at, fresh, more):
    result = at("pub", fresh, "-l", *more, input=b"one\r\n\nthree\nlast")
    assert (result.exit_code, result.stdout_bytes) == (0, b"")
    assert "4 messages sent, 4 confirmed" in result.stderr
    assert [body for body, _ in at.taken(fresh, 4)] == ["one", "", "three", "last"]


def test_lines_of_json_are_what_sub_wrote(at, fresh):
    at.good("pub", fresh, "text", "-H", "content-type:text/plain", "-H", "k:v")
    at.good("pub", fresh, "-", input=b"\0\xff")
    lines = at.good("sub", fresh, "-n", "2", "-w", "10", "--json")
    at.good("pub", fresh, "--json", "-H", "k:w", input=lines)
    (first, headers), (second, _) = at.taken(fresh, 2)
    assert (headers["content-type"], headers["k"], first, second) == ("text/plain", "w", "text", "AP8=")


def test_a_broken_line_ends_it(at, fresh):
    good = b'{"command":"SEND","headers":[],"body":"1"}\n'
    result = at("pub", fresh, "--json", "--tx", input=good + b"nonsense\n" + good)
    assert (result.exit_code, "line 2" in result.stderr) == (1, True)
    at.good("pub", fresh, "marker")
    assert at.taken(fresh, 1)[0][0] == "marker"  # the transaction was aborted


def test_repeated_at_a_rate(at, fresh):
    start = time.monotonic()
    at.good("pub", fresh, "x", "--count", "6", "--rate", "50", "-q")
    assert time.monotonic() - start >= 5 / 50
    assert [body for body, _ in at.taken(fresh, 6)] == ["x"] * 6


@contextmanager
def answering(answer):
    """The URL of a server that answers, and closes after one octet more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(answer)
                connection.recv(1)

        server = threading.Thread(target=serve)
        server.start()
        yield f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        server.join()


def test_brokers_that_are_none(at, fresh):
    with answering(b"CONNECTED\nversion:1.2\n\n\0") as url:
        result = at("pub", fresh, "x", "--count", "1000000", "-u", url, "--timeout", "5")
    assert (result.exit_code, "stopped: " in result.stderr) == (1, True)
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        result = at("pub", fresh, "x", "-u", url)
    assert (result.exit_code, "is it a STOMP broker, and the right port? see --url" in result.stderr) == (1, True)
    with closed_port() as port:
        result = at("pub", "/queue/a", "x", "--url", f"stomp://ann:secret@127.0.0.1:{port}")
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, "is the broker running there" in line, "secret" in line) == (1, True, False)
    result = at("pub", "/queue/a", "@/no/such/file")
    assert (result.exit_code, "cannot be read" in result.stderr) == (1, True)
    for url in ("http://localhost", "stomp://[", "localhost:nonsense"):
        result = at("pub", "/queue/a", "x", "--url", url)
        assert (result.exit_code, "see --url" in result.stderr) == (1, True)


def test_a_terminal_is_asked_for_the_passcode_and_shows_progress(at, fresh):
    url = at.guarded_url.replace("//", "//guest@")
    with Terminal("pub", fresh, "x", "--count", "20", "--rate", "50", "-u", url) as terminal:
        terminal.until("guest: ")
        terminal.press("guest\n", "20 messages sent, 20 confirmed")
        assert "guest\r\n" not in terminal.end(0)


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
def test_a_name_that_lacks_its_slash_is_one_line(name, dialect, likely, tmp_path):
    line = f"stompcodec: warning: {name} has no leading slash, so it is not {likely}; did you mean that?"
    verbs = [f"pub {name} x", f"sub {name} -n 1 -w 0", f"req {name} x --timeout 0.01", f"reply {name} -w 0 -f x"]
    verbs += [f"record {name} -o {tmp_path}/a.stompcap -w 0", f"browse {name}", f"purge {name} --yes --idle 0.01"]
    verbs += [f"move {name} /queue/b --yes --idle 0.01", f"move /queue/b {name} --yes --idle 0.01"]
    with StompBroker(dialect=dialect) as broker:
        for verb in verbs:
            result = run(*verb.split(), "-u", broker.url)
            assert [each for each in result.stderr.splitlines() if "warning" in each] == ([line] if likely else [])
        assert run("pub", name, "x", "-q", "-u", broker.url).stderr == ""


# ping


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_ping(at, version):
    found = json.loads(at.good("ping", "--json", "-c", "2", "--version", version))
    assert (found["version"], found["dialect"]) == (version, "stompcodec")
    assert found["server"].startswith("stompcodec/")
    assert len(found["round_trips_ms"]) == 2
    assert all(trip > 0 for trip in found["round_trips_ms"])
    shown = at.good("ping", "-c", "2", "--version", version).decode()
    for words in (f"STOMP {version}", "receipt 1: ", "receipt 2: ", "min "):
        assert words in shown


def test_the_address_wins_over_the_environment(at):
    assert at("ping", at.url, "-c", "0", STOMPCODEC_URL="stomp://127.0.0.1:1").exit_code == 0
    assert at("ping", "-c", "0", STOMPCODEC_URL="stomp://127.0.0.1:1").exit_code == 1
    url = f"ws://127.0.0.1:{at.broker.ws_port}/any/path"
    assert json.loads(at.good("ping", url, "--json"))["version"] == "1.2"
