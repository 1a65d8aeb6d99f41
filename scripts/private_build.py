"""Build the package in a folder of its own, with other flags or another compiler. What is installed stays as it is."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Everything that is built here; `make clean` removes it.
FOLDER = ROOT / "build" / "private"
#: Those of setup.py, but quicker to compile.
FLAGS = ("-O2", "-g0", "-fvisibility=hidden", "-fPIC", "-DNDEBUG")
#: For the sources by hand; Cython's have warnings.
WARNINGS = ("-Wall", "-Wextra", "-Werror")
#: As in setup.py: a source of the codec that the broker's extension has, too.
SHARED = ("src/text.c",)


def compiler() -> tuple[str, ...]:
    """Return the C compiler of this machine: CC, or else the one that built Python."""
    return tuple(shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1])


@dataclass(frozen=True)
class Kind:
    """What is built.

    Args:
        name: of its folder.
        flags: options of the compiler, beside `FLAGS`.
        compiler: the program, with its first options.
        include: folders with Python.h and pyconfig.h.
        suffix: how the names of the extensions end.
    """

    name: str
    flags: tuple[str, ...] = ()
    compiler: tuple[str, ...] = field(default_factory=compiler)
    include: tuple[str, ...] = field(default_factory=lambda: (sysconfig.get_path("include"),))
    suffix: str = field(default_factory=lambda: sysconfig.get_config_var("EXT_SUFFIX"))


def build(kind: Kind) -> Path:
    """Build the package, and return the folder that PYTHONPATH needs.

    Raises:
        CalledProcessError: Cython, the compiler or the linker failed; its output was printed.
    """
    site = FOLDER / kind.name / "site"
    shutil.rmtree(site, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "stompcodec", site / "stompcodec", ignore=ignored)
    installed = Path(str(importlib.metadata.distribution("stompcodec").locate_file("")))
    for metadata in installed.glob("stompcodec-*.dist-info"):  # with the entry points, for pytest's plugin
        shutil.copytree(metadata, site / metadata.name)
    codec: list[tuple[Path, tuple[str, ...]]] = [(_generated(), ("-DSTOMP_PYTHON=1",))]
    codec += [(path, ("-DSTOMP_PYTHON=1", *WARNINGS)) for path in sorted(ROOT.glob("src/*.c")) if path.stem != "codec"]
    plain = [(path, WARNINGS) for path in [*sorted(ROOT.glob("src/plain/*.c")), *(ROOT / name for name in SHARED)]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda part: _object(kind, *part), codec + plain))
    _link(kind, objects[: len(codec)], site / "stompcodec" / "_codec_c")
    _link(kind, objects[len(codec) :], site / "stompcodec" / "broker" / "_plain_c")
    return site


def _generated() -> Path:
    """Return the C that Cython makes of the .pyx, made anew if a part of it has changed."""
    target = FOLDER / "_codec_c.c"
    parts = [path for pattern in ("*.pyx", "*.px[id]") for path in ROOT.glob(f"src/{pattern}")]
    if not target.exists() or target.stat().st_mtime < max(path.stat().st_mtime for path in parts):
        FOLDER.mkdir(parents=True, exist_ok=True)
        cython = (sys.executable, "-m", "cython", "-3", "--module-name", "stompcodec._codec_c")
        run(*cython, ROOT / "src" / "codec.pyx", "-o", target)
    return target


def _object(kind: Kind, source: Path, flags: tuple[str, ...]) -> Path:
    """Compile a source, unless an earlier build had the same preprocessed source and command."""
    command = [*kind.compiler, *FLAGS, *flags, *kind.flags, "-I", str(ROOT / "src")]
    for folder in kind.include:
        command += ["-isystem", folder]
    text = subprocess.run([*command, "-E", "-P", str(source)], stdout=subprocess.PIPE, check=True).stdout
    digest = hashlib.sha256("\0".join(command).encode() + text).hexdigest()
    target = FOLDER / "objects" / f"{source.stem}-{digest[:16]}.o"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        run(*command, "-c", source, "-o", partial)
        partial.replace(target)
    return target


def _link(kind: Kind, objects: list[Path], extension: Path) -> None:
    run(*kind.compiler, "-shared", *objects, "-o", f"{extension}{kind.suffix}")


def run(*command: str | Path) -> str:
    """Run a command and return its output; print it if the command fails.

    Raises:
        CalledProcessError: the command failed.
    """
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout, flush=True)
        done.check_returncode()
    return done.stdout
