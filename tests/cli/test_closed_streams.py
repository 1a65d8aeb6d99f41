"""Verbs that are started with closed standard streams, as by some supervisors: nothing else gets their descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import patience

pytest.importorskip("click")

from cli.test_unread_output import ended, is_served, serving

from stompcodec.client import connect

if TYPE_CHECKING:
    from cli.at_broker import Runner

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.name != "posix", reason="shells of POSIX")]

STREAMS = ("<&-", ">&-", "2>&-")
#: Each combination of closed streams, for a shell.
CLOSED = [" ".join(some) for count in (1, 2, 3) for some in combinations(STREAMS, count)]
closed = pytest.mark.parametrize("closing", CLOSED)


def shell(closing: str) -> list[str]:
    return ["sh", "-c", f'exec "$@" {closing}', "sh"]


def run(at: Runner, closing: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [*shell(closing), sys.executable, "-m", "stompcodec.cli", *arguments]
    environment = at.environment(**environment)
    return subprocess.run(command, capture_output=True, env=environment, timeout=patience(60), check=False)


@closed
def test_a_broker_serves(closing: str, tmp_path: Path) -> None:
    flags = ("--log-level", "info")
    with serving(tmp_path, *flags, before=shell(closing), stderr=subprocess.PIPE, stdin=None) as (process, port):
        is_served(port, 3)
        assert ended(process) == 0
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert (lines != []) == ("2>&-" not in closing)
    assert not any(b"Traceback" in line for line in lines)


@closed
def test_pub_sends_and_sub_acknowledges_what_it_could_write(closing: str, at: Runner, fresh: str) -> None:
    sent = run(at, closing, "pub", fresh, "body")
    assert (sent.returncode, b"Traceback" in sent.stderr) == (0, False)
    shown = run(at, closing, "sub", fresh, "-n", "1")
    if ">&-" in closing.split():
        assert (shown.returncode, shown.stdout) == (1, b"")
        assert shown.stderr in (b"", b"stompcodec: cannot write: Bad file descriptor\n")
        assert at.good("sub", fresh, "-n", "1") == b"body\n"
    else:
        assert (shown.returncode, shown.stdout, shown.stderr) == (0, b"body\n", b"")


@closed
def test_a_bridge_carries(closing: str, at: Runner, fresh: str) -> None:
    at.good("pub", fresh, "body")
    ends = (at.url, at.guarded_url.replace("//", "//guest@"), "-m", fresh, "-n", "1", "--json")
    done = run(at, closing, "bridge", *ends, STOMPCODEC_TO_PASSCODE="guest")
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    with connect(at.guarded_url, login="guest", passcode="guest") as client:
        message = client.subscribe(fresh).get(patience(20))
        assert message is not None
        assert message.body == b"body"


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_command_of_sub_gets_them(stream: str, at: Runner, fresh: str) -> None:
    """Else the first file that it opens would."""
    at.good("pub", fresh, "body")
    check = f"test -e /dev/fd/{stream}"
    closing = {"1": ">&-", "2": "2>&-"}[stream]
    assert run(at, closing, "sub", fresh, "-n", "1", "--exec", check).returncode == 0
