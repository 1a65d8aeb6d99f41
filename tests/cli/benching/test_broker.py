"""stompcodec bench at a broker: what it counts is what went over the wire, and its figures agree with each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import read_until
from cli.benches import agrees, bench, good, lines_of
from client.peer import closed_port

import stompcodec
from stompcodec.cli.benching import broker as bench_broker
from stompcodec.testing import StompBroker

PATIENT = ("--timeout", f"{patience(60):.0f}")
SHORT = ("--duration", "0.2", *PATIENT)
COMMAND = [sys.executable, "-m", "stompcodec.cli", "bench"]
posix = pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")


def frames(broker: StompBroker, command: str) -> list[Any]:
    return [seen for seen in broker.frames if seen.command == command]


@pytest.mark.parametrize("clients", [1, 3])
def test_pub_counts_what_the_broker_has(stomp_broker: StompBroker, clients: int) -> None:
    address = ("--url", stomp_broker.url, "--clients", str(clients))
    row = json.loads(good("pub", "/queue/a", "--json", "--size", "37", "-H", "x:1", *address, *SHORT))
    agrees(row)
    sent = frames(stomp_broker, "SEND")
    assert row["messages"] == len(sent) == stomp_broker.queued("/queue/a")
    assert row["octets"] == sum(len(seen.body) for seen in sent) == 37 * len(sent)
    assert {(seen.headers["destination"], seen.headers["x"]) for seen in sent} == {("/queue/a", "1")}
    assert len({seen.connection for seen in sent}) == row["clients"] == clients
    assert 0 < sum("receipt" in seen.headers for seen in sent) < len(sent)
    assert row["server"].startswith("stompcodec/")


def test_pub_with_a_receipt_for_each(stomp_broker: StompBroker) -> None:
    (row,) = lines_of(good("pub", "--csv", "--receipt", "--url", stomp_broker.url, *SHORT))
    sent = frames(stomp_broker, "SEND")
    assert int(row["messages"]) == len(sent) > 0
    assert {seen.headers["destination"] for seen in sent} == {"/topic/stompcodec.bench"} == {row["destination"]}
    assert all("receipt" in seen.headers for seen in sent)
    assert float(row["messages_per_s"]) == pytest.approx(len(sent) / float(row["seconds"]))
    assert row["receipt"] == "True"


@pytest.mark.parametrize("receipt", [[], ["--receipt"]])
@pytest.mark.stomp_faults(delay={"command": "RECEIPT", "seconds": 0.5, "times": None})
def test_time_counts_until_the_last_one_is_confirmed(stomp_broker: StompBroker, receipt: list[str]) -> None:
    row = json.loads(good("pub", "--json", *receipt, "--url", stomp_broker.url, "--duration", "0.1", *PATIENT))
    agrees(row)
    assert row["seconds"] >= 0.5


def test_a_table_at_a_broker(stomp_broker: StompBroker) -> None:
    shown = good("pub", "--receipt", "--url", stomp_broker.url, *SHORT)
    assert "\x1b" not in shown
    assert "a receipt for each" in shown
    assert all(text in shown for text in ("/topic/stompcodec.bench", "of 100 bytes", "1 client", "messages/s", "MB/s"))
    shown = good("rtt", "--url", stomp_broker.url, *SHORT)
    assert all(text in shown for text in ("min ms", "p50", "p90", "p99", "max"))
    assert max(map(len, shown.splitlines()[1:])) <= 80


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_sub_counts_what_comes_and_leaves_nothing(stomp_broker: StompBroker, ack: str) -> None:
    arguments = ("--feed", "--ack", ack, "--clients", "2", "--size", "20", "--json", "--url", stomp_broker.url)
    row = json.loads(good("sub", "/queue/a", *arguments, *SHORT))
    agrees(row)
    assert row["octets"] == 20 * row["messages"]
    assert (row["ack"], row["fed"], row["clients"], row["size"]) == (ack, True, 2, 20)
    delivered = len(frames(stomp_broker, "MESSAGE"))
    assert row["messages"] <= delivered
    stomp_broker.wait_queued("/queue/a", 0)
    acked = len(frames(stomp_broker, "ACK"))
    assert {"auto": acked == 0, "client": 0 < acked < delivered, "client-individual": acked == delivered}[ack]
    assert {seen.headers["ack"] for seen in frames(stomp_broker, "SUBSCRIBE")} == {ack}


def test_sub_counts_what_others_send(stomp_broker: StompBroker, stomp_client: Any) -> None:
    def send() -> None:
        stomp_broker.wait_subscribed("/topic/stompcodec.bench", timeout=patience(20))
        with stomp_client.transaction() as transaction:
            for body in (b"12", b"345", b""):
                transaction.send("/topic/stompcodec.bench", body)

    sender = threading.Thread(target=send)
    sender.start()
    row = json.loads(good("sub", "--json", "--url", stomp_broker.url, "--duration", "1"))
    sender.join()
    agrees(row)
    assert (row["messages"], row["octets"], row["size"], row["fed"]) == (3, 5, None, False)
    assert row["seconds"] >= 1
    assert 0 < row["silent_s"] < row["seconds"]


def test_sub_where_nobody_sends(stomp_broker: StompBroker) -> None:
    result = bench("sub", "--url", stomp_broker.url, "--timeout", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no message came in 1 s" in result.stderr
    assert "--feed" in result.stderr


def test_a_feed_is_not_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what it sends piles up in the broker."""
    crew = bench_broker.Crew([])
    now, sent, seen = 0.0, 0, set[int]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        seen.add(sent)
        assert now < 10 * bench_broker._QUIET

    class Client:
        def send_many(self, messages: Any) -> int:
            nonlocal sent
            for _message in messages:
                sent += 1
                if sent == 17:  # the first 16 were taken for lost: nothing came of them
                    crew.over.set()
            return sent

    monkeypatch.setattr(bench_broker, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    message = stompcodec.Frame("SEND", {"destination": "/queue/a"}, bytes(2**20))
    bench_broker.feed(bench_broker.Worker(Client()), crew, message)  # a stand-in
    assert seen == {16}
    assert sent == 17
    assert now > bench_broker._QUIET


@pytest.mark.parametrize("destination", [None, "/queue/r"])
def test_rtt(stomp_broker: StompBroker, destination: str | None) -> None:
    named = [] if destination is None else [destination]
    row = json.loads(good("rtt", *named, "--json", "--clients", "2", "--size", "9", "--url", stomp_broker.url, *SHORT))
    agrees(row)
    sent = frames(stomp_broker, "SEND")
    assert 0 <= len(sent) - row["messages"] - 2 <= 2  # the first of each is not counted, nor what came too late
    assert {len(seen.body) for seen in sent} == {9}
    destinations = {seen.headers["destination"] for seen in sent}
    assert destinations == {f"{row['destination']}.1", f"{row['destination']}.2"}
    assert row["destination"].startswith(destination or "/topic/stompcodec.bench.")
    assert 0 < row["min_ms"] <= row["median_ms"] <= row["p90_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert row["max_ms"] < row["seconds"] * 1000


def test_rtt_waits_for_its_own_message(stomp_broker: StompBroker, stomp_client: Any) -> None:
    stomp_client.send("/queue/r", b"somebody else's", receipt=True)
    stomp_broker.faults.lose("MESSAGE", nth=2, times=None)
    result = bench("rtt", "/queue/r", "--url", stomp_broker.url, *SHORT, "--timeout", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no message came back from /queue/r in 1 s" in result.stderr


# ---- what goes wrong ----


@pytest.mark.parametrize("verb", ["pub", "sub", "rtt"])
def test_no_broker(verb: str) -> None:
    with closed_port() as port:
        result = bench(verb, STOMPCODEC_URL=f"stomp://127.0.0.1:{port}")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("stompcodec: cannot connect to")
    assert "see --url" in line


@pytest.mark.parametrize("arguments", [["pub"], ["pub", "--receipt"], ["sub", "--feed"], ["rtt"]])
@pytest.mark.stomp_faults(cut={"command": "SEND", "nth": 50})
def test_a_connection_that_is_lost(stomp_broker: StompBroker, arguments: list[str]) -> None:
    result = bench(*arguments, "--url", stomp_broker.url, "--duration", "20", "--timeout", "5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("stompcodec: ")
    assert "Traceback" not in result.stderr


# ---- on a terminal ----


@posix
@pytest.mark.parametrize("verb", ["codec", "pub", "rtt"])
def test_an_interrupt_ends_it_with_the_figures_so_far(stomp_broker: StompBroker, verb: str) -> None:
    url = [] if verb == "codec" else ["--url", stomp_broker.url, "--size", "8K"]
    command = [*COMMAND, verb, "--json", "--duration", "300", *url, *([] if verb == "codec" else PATIENT)]
    process, main = _on_a_terminal(command, subprocess.PIPE)
    try:
        read_until(main, b"round 2" if verb == "codec" else b" messages, ")
        process.send_signal(signal.SIGINT)
        threading.Thread(target=_swallow, args=(main,), daemon=True).start()
        out, _ = process.communicate(timeout=patience(30))
    finally:
        process.kill()
        os.close(main)
    assert process.returncode == 130
    found = json.loads(out)
    for row in found.get("results", [found]):
        agrees(row, "frames" if verb == "codec" else "messages")


@posix
@pytest.mark.parametrize(("environment", "shown"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_the_current_rate_is_shown_on_a_terminal(
    stomp_broker: StompBroker, environment: dict[str, str], shown: bool
) -> None:
    command = [*COMMAND, "rtt", "--duration", "0.7", "--url", stomp_broker.url, "--json", *PATIENT]
    process, main = _on_a_terminal(command, subprocess.PIPE, **environment)
    seen = _swallow(main)
    out, _ = process.communicate(timeout=patience(30))
    os.close(main)
    assert process.returncode == 0
    assert b"\x1b" not in out
    agrees(json.loads(out))
    assert (b"/s, " in seen and b"\x1b[" in seen) if shown else seen == b""


def _on_a_terminal(command: list[str], stdout: int, **environment: str) -> tuple[subprocess.Popen[bytes], int]:
    """Its standard error is a terminal."""
    import pty

    main, side = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    environment = {**plain, "TERM": "xterm-256color", "COLUMNS": "200", **environment}
    process = subprocess.Popen(command, stdout=stdout, stderr=side, env=environment)
    os.close(side)
    return process, main


def _swallow(main: int) -> bytes:
    """What comes until the other end is closed."""
    seen = b""
    try:
        while data := os.read(main, 65536):
            seen += data
    except OSError:  # how Linux says so
        pass
    return seen
