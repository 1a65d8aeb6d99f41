"""stompcodec record, and a capture that is removed below it: it ends, says why, and the broker keeps its messages."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from client.feeding import left, publish, wait_for
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

from capture.removing import DEEDS
from cli.at_broker import Runner

from stompcodec.capture import Capture

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows removes no open files")


@pytest.mark.parametrize("deed", ["folder removed", "segment removed", "index removed", "folder renamed"])
def test_a_capture_that_is_removed_ends_record_with_status_1(at: Runner, fresh: str, tmp_path: Path, deed: str) -> None:
    path = tmp_path / "a.stompcap"
    publish(at.url, fresh, 20)
    with at.process("record", fresh, "-o", path, "-q", stderr=subprocess.PIPE) as process:
        wait_for(lambda: path.exists() and len(list(Capture(path).frames())) == 20)
        process.send_signal(signal.SIGSTOP)  # what comes now finds it removed
        DEEDS[deed](path)
        publish(at.url, fresh, 30, first=20)
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=patience(60))
    assert process.returncode == 1
    assert said.decode().count("\n") == 1
    assert f"{path}" in said.decode()
    assert "removed, renamed or replaced while it was being written (start again" in said.decode()
    assert left(at.url, fresh) >= 30
