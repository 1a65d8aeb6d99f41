"""bluesky-stomp, a library on stomp.py, on `install()` without a change to it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

SCRIPT = Path(__file__).parents[2] / "scripts" / "compat_bluesky.py"


@pytest.mark.slow
@pytest.mark.skipif(not SCRIPT.is_file(), reason="without scripts/")
@pytest.mark.skipif(importlib.util.find_spec("bluesky_stomp") is None, reason="pip install bluesky-stomp")
def test_bluesky_stomp():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=patience(120))
    assert done.returncode == 0, done.stderr
    assert "names replaced" in done.stdout
    assert "20 requests answered over temporary queues\n  disconnected" in done.stdout
