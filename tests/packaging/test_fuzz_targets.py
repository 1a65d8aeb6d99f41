"""The fuzz targets can be imported: they use modules of the tests, which move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

from stompcodec.broker.sessions.plain import EXTENSION

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
#: `plain` needs the broker's extension.
TARGETS = sorted({path.stem for path in FUZZ.glob("fuzz_*.py")} - ({"fuzz_plain"} if EXTENSION is None else set()))


@pytest.mark.long
@pytest.mark.skipif(not FUZZ.is_dir(), reason="fuzz/ is not in the sdist")
def test_every_target_can_be_imported() -> None:
    """In one process: most of the time goes into starting it. Without coverage, which instruments what is imported."""
    program = f"import sys; sys.argv = ['x', '--plain']; sys.path.insert(0, {str(FUZZ)!r}); import {', '.join(TARGETS)}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=patience(60)
    )
    assert len(TARGETS) > 10
    assert done.returncode == 0, done.stderr
