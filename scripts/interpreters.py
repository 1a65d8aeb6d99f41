"""The interpreters on this machine that the project supports: those on PATH, those that pyenv holds, then those that
scripts/debian_pythons.py unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14", "3.14t", "3.15", "3.15t")
#: Where scripts/debian_pythons.py unpacks Pythons.
DEBIAN = Path(__file__).resolve().parents[1] / "build" / "private" / "debian" / "root"

PROBE = """
import sys, sysconfig, venv
print("%d.%d" % sys.version_info[:2] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))
"""


def candidates(version: str) -> Iterator[str]:
    found = shutil.which(f"python{version}")
    if found:
        yield found
    number, suffix = version.rstrip("t"), "t" if version.endswith("t") else ""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for folder in sorted(root.glob(f"versions/{number}.*{suffix}"), reverse=True):
        yield str(folder / "bin" / f"python{version}")
    yield str(DEBIAN / "usr" / "bin" / f"python{version}")


def runs(python: str, version: str) -> bool:
    """Whether this is that version and starts; a shim may be there and lead nowhere."""
    try:
        answer = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=60)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def find() -> dict[str, str | None]:
    """Version -> path of its interpreter, or None where it is not installed."""
    return {version: next((path for path in candidates(version) if runs(path, version)), None) for version in SUPPORTED}


if __name__ == "__main__":
    for version, path in find().items():
        print(f"{version:6} {path or 'not installed'}")
