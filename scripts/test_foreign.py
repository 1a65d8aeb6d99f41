"""Run the tests of the C backend as if on another machine, under qemu: with NEON, 32 bits, big-endian.

    python scripts/test_foreign.py {arm64,armhf,s390x} [--jobs N] [PYTEST ARGUMENTS]

Python and its headers come from Debian's packages of that architecture, unpacked into build/private/ARCHITECTURE; the
extension is built by Debian's cross compiler. Nothing is installed: apt works on lists and a status file of its own.
The programs of `TOOLS` must be there; docs/development.md says how to get them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import debian
import private_build
from private_build import FOLDER, ROOT, run

#: Only wheels without machine code: an older Hypothesis than ours, perhaps.
PURE = ("pytest>=8.3", "pytest-timeout", "pytest-xdist", "hypothesis>=6.100", "websockets>=14", "lark>=1.2")
#: What runs by default: the codec, the connection, and the programs in C.
TESTS = ("tests/codec", "tests/protocol")
#: pytest, which must find neither this tree nor what is installed for the host.
PYTEST = "import sys; sys.path = [*filter(None, sys.path)]; import pytest; sys.exit(pytest.main())"


@dataclass(frozen=True)
class Machine:
    """An architecture by its names at Debian and at qemu, and how gcc calls its ABI."""

    debian: str
    cpu: str
    abi: str = "gnu"

    @property
    def compiler(self) -> str:
        return f"{self.cpu}-linux-{self.abi}-gcc"

    @property
    def emulator(self) -> str:
        return f"qemu-{self.cpu}-static"

    @property
    def folder(self) -> Path:
        return FOLDER / self.debian

    @property
    def root(self) -> Path:
        return self.folder / "root"


MACHINES = {
    machine.debian: machine
    for machine in (Machine("arm64", "aarch64"), Machine("armhf", "arm", "gnueabihf"), Machine("s390x", "s390x"))
}


def check_tools(machine: Machine) -> None:
    """Exit with the missing Debian packages, if any."""
    wanted = {
        machine.compiler: f"gcc-{machine.compiler.removesuffix('-gcc')}",
        machine.emulator: "qemu-user-static",
        "apt-get": "apt",
        "dpkg": "dpkg",
    }
    missing = [package for program, package in wanted.items() if not shutil.which(program)]
    if missing:
        sys.exit(f"missing packages of Debian: apt-get install {' '.join(missing)}")


def unpack(machine: Machine) -> None:
    """Unpack Python of that architecture into `machine.root`, unless it is there."""
    if (machine.root / "usr" / "bin" / "python3").exists():
        return
    print(f"fetching Debian's Python for {machine.debian}", flush=True)
    debian.unpack(machine.root, ("python3", "libpython3-dev"), machine.debian)


def version_of(machine: Machine) -> str:
    """Return the version of the unpacked Python, such as "3.11"."""
    return (machine.root / "usr" / "bin" / "python3").readlink().name.removeprefix("python")


def pure_packages(version: str) -> Path:
    """Return a folder with pytest and what the tests import, for a version of Python."""
    folder = FOLDER / f"pure-{version}"
    if not folder.exists():
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        wheels = ("--only-binary=:all:", "--platform=any", f"--python-version={version}")
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        run(*pip, "--target", partial, *wheels, *PURE)
        partial.rename(folder)
    return folder


def build(machine: Machine, version: str) -> Path:
    """Build the extensions by the cross compiler, and return the folder of the package."""
    include = machine.root / "usr" / "include"
    kind = private_build.Kind(
        machine.debian,
        compiler=(machine.compiler,),
        include=(str(include / f"python{version}"), str(include)),
        suffix=".so",
    )
    return private_build.build(kind)


def interpreter(machine: Machine, version: str) -> Path:
    """Return a program that starts Python under the emulator, and that Python takes for itself: tests start others."""
    program = machine.folder / "python"
    python = machine.root / "usr" / "bin" / f"python{version}"
    program.write_text(f'#!/bin/sh\nexec {machine.emulator} -L "{machine.root}" -0 "{program}" "{python}" "$@"\n')
    program.chmod(0o755)
    return program


def test_programs(machine: Machine) -> int:
    """Run the tests in C on this machine's pytest, with the cross compiler and the emulator."""
    command = [
        sys.executable,
        "-c",
        PYTEST,
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "tests/native/test_native.py",
    ]
    variables = {"CC": f"{machine.compiler}", "STOMP_NATIVE_LINK": "-static", "STOMP_NATIVE_RUN": machine.emulator}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", choices=MACHINES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of pytest")
    options, arguments = parser.parse_known_args()
    machine = MACHINES[options.machine]
    check_tools(machine)
    unpack(machine)
    version = version_of(machine)
    python = interpreter(machine, version)
    paths = [build(machine, version), pure_packages(version)]
    environment = {
        **os.environ,
        "PYTHONHOME": str(machine.root / "usr"),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "STOMPCODEC_PURE": "0",
        "HYPOTHESIS_PROFILE": os.environ.get("HYPOTHESIS_PROFILE", "light"),
    }
    said = "import platform, sys, stompcodec; print(platform.machine(), sys.byteorder, stompcodec.BACKEND)"
    subprocess.run([python, "-c", said], cwd=machine.folder, env=environment, check=True)
    vectors = [python, "tests/packaging/run_backends.py", "--backend", "c"]
    pytest = [python, "-c", PYTEST, "-q", "-p", "no:cacheprovider", "-m", "not slow", "--only-c"]
    pytest += [f"--numprocesses={options.jobs}"] * (options.jobs > 1)
    failed = [] if arguments else ["programs"] * (test_programs(machine) != 0)
    for name, command in (("vectors", vectors), ("tests", [*pytest, *(arguments or TESTS)])):
        if name == "tests" or not arguments:
            done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
            failed += [name] * (done.returncode != 0)
    print(f"{machine.debian}: {'failed: ' + ', '.join(failed) if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
