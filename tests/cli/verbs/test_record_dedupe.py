"""stompcodec record --dedupe: once in the capture, over kill -9 of recorder and broker."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner

import stompcodec.client as stomp
from stompcodec.capture import Capture


def bodies(path: Path) -> list[int]:
    return [int(frame.body) for _, _, frame in Capture(path).frames()] if path.exists() else []


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_kill_9_doubles_nothing(at: Runner, fresh: str, tmp_path: Path) -> None:
    path, total, roll = tmp_path / "a.stompcap", 4000, random.Random(4)
    arguments = ["record", fresh, "-o", path, "-q", "--segment", "100K", "--dedupe", "messageId"]

    def publish() -> None:
        with stomp.connect(at.url) as client:
            for number in range(total):
                client.send(fresh, b"%d" % number)
                if number % 100 == 99:
                    client.ping()
                    time.sleep(0.01)

    publisher = threading.Thread(target=publish)
    publisher.start()
    rounds = 0
    while rounds < 4 or len(set(bodies(path))) < total:
        enough = len(bodies(path)) + roll.randrange(1, 900)
        with at.process(*arguments) as process:
            until = time.monotonic() + patience(60)
            while len(bodies(path)) < min(enough, total):
                assert time.monotonic() < until
                time.sleep(0.01)
            if rounds < 4:
                process.kill()
            else:
                process.terminate()
            process.wait(patience(60))
        rounds += 1
    publisher.join()
    assert {body: count for body, count in Counter(bodies(path)).items() if count > 1} == {}
    assert set(bodies(path)) == set(range(total))


def test_duplicates_are_counted(at: Runner, fresh: str, tmp_path: Path) -> None:
    """Two messages with the same id of their sender and the same octets are one, two with other octets are not."""
    path = tmp_path / "a.stompcap"
    for body in ("1", "1", "2", "3"):
        at.good("pub", fresh, body, "-H", "uuid:x")
    result = at("record", fresh, "-o", path, "-n", "3", "--dedupe", "header:uuid")
    assert bodies(path) == [1, 2, 3]
    assert "1 more were recorded already" in result.stderr


def test_wrong_usage(at: Runner, fresh: str, tmp_path: Path) -> None:
    for options in (["--dedupe", "uuid"], ["--dedupe", "header:"]):
        result = at("record", fresh, "-o", tmp_path / "a.stompcap", *options)
        assert result.exit_code == 2
        assert "Traceback" not in result.stderr
