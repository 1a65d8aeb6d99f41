"""stompcodec pub, sub, reply, req and ping: what they send, show, keep, run and answer, and that no message is lost."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from cli.running import Terminal, ended, objects, run, started, terminal
from client.feeding import wait_for
from client.peer import Peer, closed_port
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.cli.show import FIELDS, Template
from stompcodec.cli.streams import ENDING
from stompcodec.client.handlers import Retries
from stompcodec.client.messages import BaseMessage
from stompcodec.testing import StompBroker

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def message(body, **headers):
    subscription = SimpleNamespace(folds_case=False)
    frame = Frame("MESSAGE", {"destination": "/queue/a", "message-id": "7", **headers}, body)
    return BaseMessage(frame, subscription, 1, 1)


@pytest.mark.parametrize(
    ("form", "made"),
    [
        ("{body} {destination} {id} {size} {number}", b"red /queue/a 7 3 2"),
        *(("{headers[k]}{headers[none]}", b"v"), ("{headers}", b"destination:/queue/a message-id:7 k:v")),
        *(("{headers[message-id]}\\t\\n\\0\\\\", b"7\t\n\0\\"), ('{{"a": "{body}"}}', b'{"a": "red"}')),
        *(("100% {body} %", b"100% red %"), ("%b", b"%b")),
    ],
)
def test_a_template(form, made):
    assert Template(form).render(message(b"red", k="v"), 2) == made


#: What str.format would take, and other unknown fields.
REFUSED = ["{}", "{0}", "{nope}", "{BODY}", "{body!r}", "{body:>9}", "{body.__class__}", "{message}", "{headers.pairs}"]
REFUSED += ["{headers[]}", "{headers[a][b]}", "{headers[a].x}", "{body", "{body}}", "{ body }", "{body} \\q"]
REFUSED += ["{headers[a}]}"]


@pytest.mark.parametrize("form", REFUSED)
def test_an_unknown_field_is_2_before_connecting(form, monkeypatch):
    monkeypatch.setattr("stompcodec.client.Client", lambda *_arguments, **_options: pytest.fail("connected"))
    result = run("sub", "/queue/a", "-u", "127.0.0.1:1", "-f", form)
    assert result.exit_code == 2, result.output
    assert "'-f' / '--format'" in result.output
    if form == "{nope}":
        assert f"{{nope}} is unknown: use {FIELDS}" in " ".join(result.output.split())


def test_messages_stay_that_were_not_asked_for(at, fresh):
    at.good("pub", fresh, "-l", input=b"1\n2\n3\n4\n5\n")
    assert at.good("sub", fresh, "-n", "2") == b"1\n2\n"
    assert at.good("sub", fresh, "-n", "3", "-w", "10") == b"3\n4\n5\n"
    at.good("pub", fresh, "a")
    at.good("pub", f"{fresh}2", "b")
    found = at.good("sub", fresh, f"{fresh}2", "-n", "2", "-w", "10", "-f", "{destination} {body}\\n").splitlines()
    assert sorted(found) == [f"{fresh} a".encode(), f"{fresh}2 b".encode()]


def test_octets_come_as_they_are_and_pretty_masks_secrets(at, fresh):
    at.good("pub", fresh, "-", input=b"\x1b[2J\0\xff\r\n")
    assert at.good("sub", fresh, "-n", "1", "-f", "{body}") == b"\x1b[2J\0\xff\r\n"
    at.good("pub", fresh, '{"a":1}', "-H", "passcode:secret", "-H", "content-type:application/json")
    shown = at.good("sub", fresh, "-n", "1", "--pretty").decode()
    assert ('{\n  "a": 1\n}' in shown, "secret" in shown) == (True, False)


def test_a_reader_that_goes_away_loses_nothing(at, fresh):
    at.good("pub", fresh, "-l", input=b"1\n2\n3\n")
    with at.process("sub", fresh, **PIPES) as process:
        assert process.stdout.readline() == b"1\n"
        process.stdout.close()
        at.good("pub", fresh, "4")  # sub notices when it writes
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(patience(30)) == 1
    rest = at.good("sub", fresh, "-n", "1", "-w", "10")
    assert rest in (b"2\n", b"3\n", b"4\n")  # what a pipe had taken was acknowledged; the rest is there


@pytest.mark.long
@pytest.mark.parametrize("arguments", ["sub /queue/a", "reply /queue/a pong", "record /queue/a -o a.stompcap"])
def test_a_verb_tells_that_its_login_is_refused_after_a_reconnect(at, tmp_path, arguments):
    with Peer(server="RabbitMQ/3.10.8") as peer:
        process = at.process(*arguments.split(), "-u", peer.url, cwd=tmp_path, **PIPES)
        peer.wait(lambda peer: peer.got("SUBSCRIBE"), 30)
        peer.rules["CONNECT"] = lambda side, frame: side.error(frame, "Access refused for user 'ann'")
        peer.cut()
        first, second = process.stderr.readline(), process.stderr.readline()
        peer.wait(lambda peer: len(peer.got("CONNECT")) > 3, 30)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        process.communicate(timeout=patience(30))
    assert b"the connection was lost" in first
    assert second.endswith(b"CONNECT was rejected: Access refused for user 'ann'; connecting again\n")
    assert b"refused" not in said  # once, since the reason stays the same


@pytest.mark.parametrize("arguments", ["sub {}", "reply {} pong", "record {} -o a.stompcap", "bridge {} -m {}"])
def test_a_feed_that_is_silent_for_too_long_is_status_4(at, fresh, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    at.good("pub", fresh, "x", "-H", "reply-to:/queue/none")
    arguments = arguments.replace("bridge {}", f"bridge {at.url} {at.guarded_url.replace('//', '//guest:guest@')}")
    result = at(*arguments.format(fresh).split(), "--expect-every", "400ms")
    said = "stompcodec: no message came for 400ms: is the destination right, and does its sender run?\n"
    assert (result.exit_code, said in result.stderr) == (4, True)
    assert at.good("sub", fresh, "-w", "0.2") == b""  # what came before was acknowledged


@pytest.mark.parametrize("arguments", ["sub {}", "reply {} pong", "record {} -o {}/a.stompcap"])
def test_the_silence_of_a_feed_is_served_to_prometheus(at, fresh, tmp_path, arguments):
    pytest.importorskip("prometheus_client")
    with closed_port() as port:
        place = f"127.0.0.1:{port}"
    sign = f'stompcodec_client_silence_seconds{{destination="{fresh}"}} '
    with started(
        *arguments.format(fresh, tmp_path).split(), env=at.environment(STOMPCODEC_METRICS=place), **PIPES
    ) as process:

        def scraped():
            with suppress(OSError), urlopen(f"http://{place}/metrics", timeout=patience(10)) as answer:
                return sign in answer.read().decode()

        try:
            wait_for(scraped)
            for wrong in (place, "here", "1:99999"):  # there is one; no port
                result = run("sub", fresh, "-u", at.url, STOMPCODEC_METRICS=wrong)
                assert (result.exit_code, f"STOMPCODEC_METRICS: {wrong} cannot be used" in result.stderr) == (2, True)
        finally:
            process.terminate()


def test_a_command_that_takes_long_is_no_silence(at, fresh):
    at.good("pub", fresh, "x")
    at.good("sub", fresh, "-n", "1", "--exec", "sleep 0.6", "--expect-every", "0.3")


#: Verbs that connect to a host which accepts connections and says nothing, and what they say at their end.
CONNECTING = [
    (f"{verb} -u {{0}} --timeout 1h", "") for verb in ("sub a", "reply a pong", "record a -o a", "top --json")
]
CONNECTING += [
    (f"bridge {ends} -m a", f"stompcodec: ended before it was connected to {end} ({{0}})\n")
    for ends, end in (("{0} {1}", "FROM"), ("{1} {0}", "TO"))
]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize(("arguments", "said"), CONNECTING)
def test_a_signal_ends_a_verb_that_connects(at, tmp_path, monkeypatch, arguments, said, number):
    monkeypatch.chdir(tmp_path)
    with Peer(rules={"CONNECT": lambda _side, _frame: os.kill(os.getpid(), number)}) as peer:
        result = run(*arguments.format(peer.url, at.url).split())
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", said.format(peer.url))


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(Retries, "pause", lambda _retries, _before: 0.0)


def test_sigterm_waits_for_the_command(at, fresh, tmp_path):
    """So a supervisor that starts another consumer does not have the same message handled by two at once."""
    begun, go, over = (tmp_path / name for name in ("begun", "go", "over"))
    os.mkfifo(begun)
    os.mkfifo(go)
    process = at.process("sub", fresh, "--exec", f"echo > {begun}; read x < {go}; touch {over}")
    at.good("pub", fresh, "one")
    begun.read_text()
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    go.write_text("\n")
    assert process.wait(patience(30)) == 130
    assert over.exists()
    assert at("sub", fresh, "-n", "1", "-w", "0.2").exit_code == 1  # it was acknowledged


def test_what_fails_once_is_done_again_and_what_always_fails_is_a_dead_letter(at, fresh, tmp_path, no_pauses):
    at.good("pub", fresh, "-l", input=b"1\n2\n")
    once = f'test -e "{tmp_path}/once" || {{ : > "{tmp_path}/once"; exit 3; }}; cat'
    result = at("sub", fresh, "-n", "2", "-w", "30", "--exec", once)
    assert result.exit_code == 0
    assert result.stderr.count("status 3; it runs again in 0 s, 6 times in all at most") == 1
    at.good("pub", fresh, "-l", input=b"bad\ngood\n")
    result = at("sub", fresh, "-n", "2", "-w", "30", "--exec", f'echo >> "{tmp_path}/ran"; ! grep -q bad')
    assert (result.exit_code, (tmp_path / "ran").read_text().count("\n")) == (1, 6 + 1)  # the next one follows
    assert result.stderr.count("status 1") == 2
    assert "; given up after 6 calls" in result.stderr
    assert at.good("sub", f"/queue/DLQ.{fresh.removeprefix('/queue/')}", "-n", "1", "-w", "30") == b"bad\n"


@pytest.mark.parametrize("verb", ["sub", "reply"])
def test_with_one_attempt_the_broker_delivers_it_again(at, fresh, verb):
    at.good("pub", fresh, "x", "-H", "reply-to:/queue/answers")
    result = at(verb, fresh, "-n", "1", "-w", "30", "--exec", "exit 3", "--attempts", "1")
    assert (result.exit_code, "runs again" in result.stderr) == (1, False)
    assert "the command ended with status 3" in result.stderr
    assert at.taken(fresh, 1)[0][1]["redelivered"] == "true"


@pytest.mark.parametrize("verb", ["sub", "reply"])
def test_a_dead_letter_goes_where_the_option_says(at, fresh, verb, no_pauses):
    at.good("pub", fresh, "x", "-H", "reply-to:/queue/answers")
    dead = f"{fresh}-dead"
    result = at(verb, fresh, "-n", "1", "-w", "30", "--exec", "exit 3", "--attempts", "2", "--dead-letter", dead)
    assert (result.exit_code, "given up after 2 calls" in result.stderr) == (1, True)
    ((_, found),) = at.taken(dead, 1)
    assert (found["original-destination"], found["persistent"]) == (fresh, "true")
    assert found["dead-letter-reason"].startswith("CommandError(")


def test_a_broker_without_a_place_for_dead_letters_keeps_the_message(at):
    with Peer() as peer:
        peer.queues["/queue/a"].append(b"x")
        result = at("sub", "/queue/a", "-u", peer.url, "-w", "30", "--exec", "exit 3", "--attempts", "1")
        assert (result.exit_code, "name a queue by --dead-letter" in result.stderr) == (1, True)
        assert not peer.got("ACK") + peer.got("NACK")
        ended(at("sub", "/queue/a", "-u", peer.url, "--exec", "exit 3", "--dead-letter", "a"), 1, "is the same queue")


# reply and req
@contextmanager
def replying(at, destination, *arguments, **environment):
    results = []
    whole = ["reply", destination, "-u", at.url, "--wait", str(patience(60)), *arguments]
    # CliRunner replaces the standard streams, so requests are sent by a client.
    thread = threading.Thread(target=lambda: results.append(run(*whole, **environment)))
    thread.start()
    yield results
    thread.join(patience(60))
    assert results


@pytest.mark.parametrize(
    ("arguments", "answers"),
    [
        *((["pong"], [b"pong", b"pong"]), (["--format", "{number}: {body} {headers[k]}"], [b"1: a v", b"2: b v"])),
        *((["--exec", "tr ab xy"], [b"x", b"y"]), (["--exec", 'printf %s "$STOMP_NUMBER"'], [b"1", b"2"])),
    ],
    ids=["body", "template", "command", "environment"],
)
def test_answers(at, fresh, arguments, answers):
    with replying(at, fresh, *arguments, "-n", "2", "-H", "by:me") as results, stomp.connect(at.url) as client:
        for question, answer in zip((b"a", b"b"), answers):
            found = client.request(fresh, question, patience(30), {"k": "v"})
            assert (found.body, found.get("by")) == (answer, "me")
    assert (results[0].exit_code, results[0].stderr) == (0, "2 requests answered\n")


def test_a_request_without_an_address_is_taken_and_counted_as_failed(at, fresh):
    at.good("pub", fresh, "nowhere")
    ended(at("reply", fresh, "x", "-n", "1", "-w", "30"), 1, "it has no reply-to")
    assert at.good("sub", fresh, "-w", "0.1") == b""


def test_a_refused_answer_does_not_come_round_for_ever(at, fresh):
    """Our broker ends the session with its ERROR, so the request is delivered again."""
    with stomp.connect(at.guarded_url, login="guest", passcode="guest") as client:
        client.send(fresh, b"x", {"reply-to": "/queue/closed"}, receipt=True)
        login = ["--login", "guest", "-u", at.guarded_url]
        with replying(at, fresh, "y", "-n", "3", *login, STOMPCODEC_PASSCODE="guest") as results:
            assert client.request(fresh, b"z", patience(30)).body == b"y"
        assert results[0].exit_code == 1
        assert "the answer was refused" in results[0].stderr
        assert client.receive(fresh) is None


def test_an_answer(at, fresh):
    def answer(message):
        message.reply(message.body[::-1], {"asked": message.get("asked", "")})

    with stomp.connect(at.url) as client:
        client.subscribe(fresh, ack="client-individual", handler=answer)
        assert at.good("req", fresh, "abc") == b"cba"
        assert at.good("req", fresh, "-", input=b"\0\xff\n") == b"\n\xff\0"
        assert at.good("req", fresh, input=b"12") == b"21"
        found = at.good("req", fresh, "abc", "-H", "asked:twice", "--json")
        shown = terminal("req", fresh, "]\x1b[", "-u", at.url)
    assert ("[" in shown, "\x1b" in shown) == (True, False)
    (answer,) = objects(found)
    assert (answer["body"], dict(answer["headers"])["asked"]) == ("cba", "twice")


@pytest.mark.parametrize(("option", "seconds"), [("-w", "1"), ("--timeout", "1")])
def test_nobody_answers(at, fresh, option, seconds):
    result = at("req", fresh, "hello?", option, seconds)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"no answer came in {seconds} s (does anything answer at {fresh}? wait longer with" in result.stderr
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it bounds connecting, too
        result = at("req", fresh, "x", option, seconds, "-u", f"127.0.0.1:{silent.getsockname()[1]}")
    assert (result.exit_code, f"no CONNECTED in {seconds} s" in result.stderr) == (1, True)


# ---- pub and ping ----
pytest.importorskip("pty")  # there are no terminals of POSIX on Windows


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


@pytest.mark.parametrize("more", [[], ["--tx"]])
def test_a_message_for_each_line(at, fresh, more):
    result = at("pub", fresh, "-l", *more, input=b"one\r\n\nthree\nlast")
    assert (result.exit_code, result.stdout_bytes) == (0, b"")
    assert "4 messages sent, 4 confirmed" in result.stderr
    assert [body for body, _ in at.taken(fresh, 4)] == ["one", "", "three", "last"]


def test_lines_of_json_are_what_sub_wrote(at, fresh):
    at.good("pub", fresh, "text", "-H", "content-type:text/plain", "-H", "k:v")
    at.good("pub", fresh, "-", input=b"\0\xff")
    at.good("pub", fresh, "--json", "-H", "k:w", input=at.good("sub", fresh, "-n", "2", "-w", "10", "--json"))
    (first, headers), (second, _) = at.taken(fresh, 2)
    assert (headers["content-type"], headers["k"], first, second) == ("text/plain", "w", "text", "AP8=")


def test_a_broken_line_ends_it(at, fresh):
    good = b'{"command":"SEND","headers":[],"body":"1"}\n'
    ended(at("pub", fresh, "--json", "--tx", input=good + b"nonsense\n" + good), 1, "line 2")
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
    assert (result.exit_code, "(this is HTTP: use ws://" in result.stderr) == (1, True)
    with closed_port() as port:
        result = at("pub", "/queue/a", "x", "--url", f"stomp://ann:secret@127.0.0.1:{port}")
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, "is the broker running there" in line, "secret" in line) == (1, True, False)
    ended(at("pub", "/queue/a", "@/no/such/file"), 1, "cannot be read")
    for url in ("http://localhost", "stomp://[", "localhost:nonsense"):
        ended(at("pub", "/queue/a", "x", "--url", url), 1, "see --url")


def test_a_server_that_answers_no_receipts(at, fresh, tmp_path):
    """Nor does Spring's relay end `pub` by the ERROR with which it answers DISCONNECT."""
    silent = dict.fromkeys(("SEND", "SUBSCRIBE", "BEGIN", "COMMIT"), lambda side, frame: None)
    with Peer(rules=silent) as peer:
        where = ("-u", peer.url, "--timeout", "1")
        for verb in ("pub {} x", "pub {} x -l", "pub {} x --tx", "sub {}", "req {} x"):
            ended(at(*verb.format(fresh).split(), *where), 1, "with --timeout, or give --no-receipts)")
        peer.rules = {"DISCONNECT": lambda side, frame: side.error(None, "Connection to broker closed.")}
        where = ("-u", peer.url, "--timeout", "9", "--no-receipts")
        for more in ((), ("-l",), ("--tx",)):
            result = at("pub", fresh, "x", *where, *more)
            assert (result.exit_code, "1 message sent, 0 confirmed" in result.stderr) == (0, more == ("-l",)), (
                result.stderr
            )
        at.good("sub", fresh, *where, "-n", "2")  # the server keeps none of the transaction
        at.good("pub", fresh, "x", *where)
        at.good("record", fresh, *where, "-n", "1", "-o", str(tmp_path / "capture"))
        assert {frame.command for _, frame in peer.frames if frame.get("receipt")} == {"DISCONNECT", *silent}


def test_headers_of_the_http_handshake(at):
    def pub(url, *headers):
        return at("pub", "/queue/a", "x", "-u", url, *(word for each in headers for word in ("--http-header", each)))

    with pytest.importorskip("transport.endpoints").Endpoint(login="none") as endpoint:
        result = pub(f"http://127.0.0.1:{endpoint.port}/stomp", "X-Y: s3cret: z", "authorization:s3cret")
    assert (result.exit_code, "not accept this login" in result.stderr, "s3cret" in result.stderr) == (1, True, False)
    assert [endpoint.heads[0][name] for name in ("X-Y", "authorization")] == ["s3cret: z", "s3cret"]
    for header, said in (("Host: s3cret", "'Host'"), ("s3cret", "NAME:VALUE"), ("X: s3cret\n2", "'X'")):
        result = pub("ws://127.0.0.1:9/", header)
        assert (result.exit_code, said in result.stderr, "s3cret" in result.stderr) == (2, True, False)
    assert pub("stomp://127.0.0.1:9", "X-Y: z").exit_code == 1


def test_a_terminal_is_asked_for_the_passcode_and_shows_progress(at, fresh):
    url = at.guarded_url.replace("//", "//guest@")
    with Terminal("pub", fresh, "x", "--count", "20", "--rate", "50", "-u", url) as terminal:
        terminal.until("guest: ")
        terminal.press("guest\n", "20 messages sent, 20 confirmed")
        assert "guest\r\n" not in terminal.end(0)


@pytest.mark.parametrize(
    ("name", "dialect", "likely"),
    [
        *(("queue/a", "stompcodec", "/queue/a"), ("exchange/amq.direct/a", "rabbitmq", "/exchange/amq.direct/a")),
        *(("queue/a", "artemis", None), ("orders", "stompcodec", None), ("queue.a", "activemq", None)),
    ],
)
def test_a_name_that_lacks_its_slash_is_one_line(name, dialect, likely, tmp_path):
    line = f"stompcodec: warning: {name} has no leading slash, so it is not {likely}; did you mean that?"
    verbs = [f"pub {name} x", f"sub {name} -n 1 -w 0", f"req {name} x --timeout {patience(0.5)}"]
    verbs += [f"reply {name} -w 0 -f x", f"record {name} -o {tmp_path}/a.stompcap -w 0", f"browse {name}"]
    verbs += [f"purge {name} --yes --idle 0.01", f"move {name} /queue/b --yes --idle 0.01"]
    verbs += [f"move /queue/b {name} --yes --idle 0.01"]
    with StompBroker(dialect=dialect) as broker:
        for verb in verbs:
            result = run(*verb.split(), "-u", broker.url)
            assert [each for each in result.stderr.splitlines() if "warning" in each] == ([line] if likely else [])
        assert "warning" not in run("pub", name, "x", "-q", "-u", broker.url).stderr


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
