"""The fuzz targets run: they use modules of the tests, which move, and names of the package that are not public."""

import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
TARGETS = sorted(path.stem for path in FUZZ.glob("fuzz_*.py"))
#: Some seeds of each target, whole, cut and with a bit changed.
PROGRAM = """
import case, sys

for name in {targets}:
    inputs = case.selector_seeds() if name == "fuzz_selector" else case.seeds()
    for data in inputs[:: len(inputs) // 8]:
        for changed in (data, data[:-5], data[:9] + bytes([data[-1] ^ 1]) + data[9:]):
            sys.modules[name].check(changed)
    print(name)
"""


@pytest.mark.long
@pytest.mark.skipif(not FUZZ.is_dir(), reason="fuzz/ is not in the sdist")
def test_every_target_runs() -> None:
    begin = f"import sys; sys.path.insert(0, {str(FUZZ)!r}); import {', '.join(TARGETS)}"
    program = begin + PROGRAM.format(targets=TARGETS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(60))
    assert len(TARGETS) > 4
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == TARGETS
