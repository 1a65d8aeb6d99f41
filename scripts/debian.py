"""Packages of Debian, unpacked into a folder: apt works on lists and a status file of its own, and installs nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from private_build import run

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def unpack(
    root: Path, packages: tuple[str, ...], architecture: str, suite: str = "", without: tuple[str, ...] = ()
) -> None:
    """Fetch packages and what they need, and unpack them.

    Args:
        root: the folder that the packages' files come into; one that is there is replaced.
        packages: their names.
        architecture: as Debian calls it, such as "arm64".
        suite: where they come from, such as "sid"; by default where this machine's own packages come from.
        without: how names of packages begin that are left out, although another package needs them.

    Raises:
        CalledProcessError: apt or dpkg failed; what it said was printed.
    """
    apt = root.with_name("apt")
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    options: dict[str, object] = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Acquire::Retries": 3,
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "Debug::NoLocking": 1,
    }
    if suite:
        text = f"Types: deb\nURIs: http://deb.debian.org/debian\nSuites: {suite}\nComponents: main\nSigned-By: {KEYS}\n"
        (apt / "suite.sources").write_text(text)
        options |= {"Dir::Etc::SourceList": apt / "suite.sources", "Dir::Etc::SourceParts": apt / "none"}
    command = ["apt-get", "--quiet", "--yes", *(f"-o{key}={value}" for key, value in options.items())]
    try:
        run(*command, "update")
    except subprocess.CalledProcessError:  # a mirror is brought up to date: the other lists may do
        print("not all lists could be fetched: going on with the others", flush=True)
    run(*command, "install", "--no-install-recommends", "--download-only", *packages)
    partial = root.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    for package in sorted((apt / "archives").glob("*.deb")):
        if not package.name.startswith(without or ("\0",)):
            run("dpkg", "--extract", package, partial)
    shutil.rmtree(root, ignore_errors=True)
    partial.rename(root)
    shutil.rmtree(apt)
