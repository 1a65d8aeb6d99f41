"""sub --exec and reply --exec: a command that fails runs again for the same message, after pauses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner
from client.peer import Peer

import stompcodec.client as stomp
from stompcodec.client.handlers import Retries

#: Fails once.
ONCE = 'test -e "{0}" || {{ : > "{0}"; exit 3; }}'


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retries, "pause", lambda _retries, _before: 0.0)


def test_what_fails_once_is_done_the_second_time(at: Runner, fresh: str, tmp_path: Path) -> None:
    for body in ("1", "2"):
        at.good("pub", fresh, body)
    command = f"{ONCE.format(tmp_path / 'ran')}; cat"
    result = at("sub", fresh, "-n", "2", "-w", "30", "--exec", command)
    assert result.exit_code == 0
    assert result.stderr.count("status 3; it runs again in 0 s, 6 times in all at most") == 1


def test_what_always_fails_is_a_dead_letter_and_the_next_one_follows(at: Runner, fresh: str, tmp_path: Path) -> None:
    for body in ("bad", "good"):
        at.good("pub", fresh, body)
    command = f'echo >> "{tmp_path}/ran"; ! grep -q bad'
    result = at("sub", fresh, "-n", "2", "-w", "30", "--exec", command)
    assert result.exit_code == 1
    assert (tmp_path / "ran").read_text().count("\n") == 6 + 1
    assert result.stderr.count("status 1") == 2
    assert "; given up after 6 calls" in result.stderr
    assert at.good("sub", f"/queue/DLQ.{fresh.removeprefix('/queue/')}", "-n", "1", "-w", "30") == b"bad\n"


def test_a_request_is_answered_by_a_later_run(at: Runner, fresh: str, tmp_path: Path) -> None:
    with stomp.connect(at.url) as client:
        client.send(fresh, b"x", {"reply-to": f"{fresh}-answers"}, receipt=True)
        result = at("reply", fresh, "-n", "1", "-w", "30", "--exec", f"{ONCE.format(tmp_path / 'ran')}; echo done")
        assert (result.exit_code, "1 request answered" in result.stderr) == (0, True)
        answer = client.subscribe(f"{fresh}-answers").get(30)
    assert answer is not None
    assert answer.body == b"done\n"


@pytest.mark.parametrize("verb", ["sub", "reply"])
def test_with_one_attempt_the_broker_delivers_it_again(at: Runner, fresh: str, verb: str) -> None:
    with stomp.connect(at.url) as client:
        client.send(fresh, b"x", {"reply-to": "/queue/answers"}, receipt=True)
    result = at(verb, fresh, "-n", "1", "-w", "30", "--exec", "exit 3", "--attempts", "1")
    assert (result.exit_code, "runs again" in result.stderr) == (1, False)
    (kept,) = at.good("sub", fresh, "-n", "1", "--json").splitlines()
    assert dict(json.loads(kept)["headers"])["redelivered"] == "true"


@pytest.mark.parametrize("verb", ["sub", "reply"])
def test_a_dead_letter_goes_where_the_option_says(at: Runner, fresh: str, verb: str) -> None:
    with stomp.connect(at.url) as client:
        client.send(fresh, b"x", {"reply-to": "/queue/answers"}, receipt=True)
    dead = f"{fresh}-dead"
    result = at(verb, fresh, "-n", "1", "-w", "30", "--exec", "exit 3", "--attempts", "2", "--dead-letter", dead)
    assert (result.exit_code, "given up after 2 calls" in result.stderr) == (1, True)
    (letter,) = at.good("sub", dead, "-n", "1", "--json").splitlines()
    headers = dict(json.loads(letter)["headers"])
    assert (headers["original-destination"], headers["persistent"]) == (fresh, "true")
    assert headers["dead-letter-reason"].startswith("CommandError(")


def test_a_broker_without_a_place_for_dead_letters_keeps_the_message(at: Runner) -> None:
    with Peer() as peer:
        peer.queues["/queue/a"].append(b"x")
        result = at("sub", "/queue/a", "-u", peer.url, "-w", "30", "--exec", "exit 3", "--attempts", "1")
        assert (result.exit_code, "name a queue by --dead-letter" in result.stderr) == (1, True)
        assert not peer.got("ACK") + peer.got("NACK")
        result = at("sub", "/queue/a", "-u", peer.url, "--exec", "exit 3", "--dead-letter", "a")
        assert (result.exit_code, "is the same queue" in result.stderr) == (1, True)
