"""Bring Python to the page that reads frames in the browser: Pyodide, the pure wheel, and the packages it needs.

Pyodide comes from npm, one version whose archive has a known digest. Nothing of it is in the tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from base64 import b64encode
from hashlib import sha512
from importlib.metadata import distribution
from pathlib import Path

from sitepages.staging import ROOT

#: `npm view pyodide@VERSION dist.integrity` says what the digest is, as the page of the version does.
VERSION = "314.0.7"
INTEGRITY = "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
#: What the page loads of it. README.md names the licence.
_WANTED = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"),
    *("package.json", "README.md"),
)
#: Packages of the extra `cli` that linting and inspecting import; all are pure Python.
_PACKAGES = ("click", "rich")


def checked(archive: bytes) -> bytes:
    """Return the archive of Pyodide, or raise ValueError if its digest is another one.

    >>> checked(b"another")
    Traceback (most recent call last):
    ValueError: pyodide 314.0.7 has another digest than scripts/sitepages/playground.py says
    """
    if "sha512-" + b64encode(sha512(archive).digest()).decode() != INTEGRITY:
        raise ValueError(f"pyodide {VERSION} has another digest than scripts/sitepages/playground.py says")
    return archive


def fetched(work: Path, package: str, *files: str) -> list[bytes]:
    """Return files of a package, name@version, of an archive that is kept or that npm fetches."""
    folder = work / "npm" / package
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("*.tgz")):
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, stdout=sys.stderr, check=True)
    [archive] = folder.glob("*.tgz")
    if package == f"pyodide@{VERSION}":
        checked(archive.read_bytes())
    with tarfile.open(archive) as members:
        return [source.read() for file in files if (source := members.extractfile(f"package/{file}"))]


def build_wheel(target: Path) -> None:
    """Build the pure wheel of this tree."""
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # it would keep modules that the tree no longer has
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--no-build-isolation", "--wheel-dir", folder, str(ROOT)]
        subprocess.run([*command, *options], env={**os.environ, "STOMPCODEC_BUILD_EXTENSION": "no"}, check=True)
        [wheel] = Path(folder).glob("stompcodec-*-py3-none-any.whl")
        shutil.copyfile(wheel, target)


def pack_packages(target: Path) -> None:
    """Pack the packages that stompcodec needs there, with their licences, from the environment of this Python."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for package in _PACKAGES:
            for file in sorted(distribution(package).files or [], key=str):
                licence = "licenses" in file.parts or file.name == "METADATA"
                if (file.parts[0] == package and file.suffix != ".pyc") or licence:
                    member = zipfile.ZipInfo(file.as_posix(), (1980, 1, 1, 0, 0, 0))
                    member.compress_type = zipfile.ZIP_DEFLATED
                    packed.writestr(member, Path(str(file.locate())).read_bytes())


def rule_sources() -> dict[str, str]:
    """Return for each rule of a protocol its level and its place in the specification.

    >>> rule_sources()["S12-ESC-05"]
    'MUST, STOMP 1.2, Value Encoding'
    """
    lines = (ROOT / "stompcodec" / "cli" / "rules.tsv").read_text("utf-8").splitlines()
    places = {}
    for rule, protocol, level, _, _, source in (line.split("\t") for line in lines[1:]):
        if protocol in ("1.0", "1.1", "1.2"):
            places[rule] = f"{level}, STOMP {protocol}, {source.partition(' / ')[2]}"
    return places


def install(work: Path, site: Path) -> int:
    """Add to the page in a built site what it loads, from what is kept in `work`. Return how many bytes a browser
    loads, before compression."""
    page = site / "playground"
    (page / "rules.json").write_text(json.dumps(rule_sources(), indent=0), "utf-8")
    (page / "pyodide").mkdir()
    for name, file in zip(_WANTED, fetched(work, f"pyodide@{VERSION}", *_WANTED), strict=True):
        (page / "pyodide" / name).write_bytes(file)
    build_wheel(page / "stompcodec.whl")
    pack_packages(page / "packages.zip")
    return sum(each.stat().st_size for each in page.rglob("*") if each.is_file())
