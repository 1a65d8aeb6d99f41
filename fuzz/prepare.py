"""Builds what the fuzz targets run on, inside fuzz/work: atheris, the package with its extension under sanitizers, and
the C target. What is missing is said, and done without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FUZZ = ROOT / "fuzz"
WORK = FUZZ / "work"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-fno-wrapv"]
#: Python leaks by design, and a small quarantine and short stacks make it three times as fast.
ASAN_OPTIONS = (
    *("detect_leaks=0", "verify_asan_link_order=0", "allocator_may_return_null=1"),
    *("quarantine_size_mb=16", "malloc_context_size=4"),
)
TRACE = "-fsanitize-coverage=trace-pc"  # gcc's; gcc_coverage.c and standalone.c make use of it


class Built(NamedTuple):
    """What there is to run."""

    fast: bool
    """Without sanitizers and coverage."""
    atheris: Path | None
    """Where atheris is installed."""
    site: Path
    """Where the package is."""
    scan: Path | None
    """The C target."""
    libfuzzer: bool
    """It is driven by libFuzzer, not by standalone.c."""


def build(fast: bool) -> Built:
    """Build everything; raises CalledProcessError with the output shown when something that is there does not build."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        sys.exit("the fuzz targets need Linux and gcc, for the C backend and its sanitizers")
    WORK.mkdir(exist_ok=True)
    atheris = None if fast else _atheris()
    site = _site(fast, covered=atheris is not None)
    if atheris:
        _run("gcc", "-O2", "-shared", "-fPIC", FUZZ / "gcc_coverage.c", "-o", WORK / "gcc_coverage.so")
    clang = bool(shutil.which("clang")) and not fast
    scan = _scan(clang)
    if scan is None and clang:
        clang, scan = False, _scan(False)
    print(f"fuzz_scan is driven by {'libFuzzer, built by clang' if clang else 'standalone.c, built by gcc'}")
    return Built(fast, atheris, site, scan, clang)


def _run(*command: str | Path, check: bool = True) -> bool:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT)
    if done.returncode and check:
        print(done.stdout, done.stderr, sep="")
        done.check_returncode()
    return done.returncode == 0


def _atheris() -> Path | None:
    """The folder that atheris is in, None where there is none for this Python."""
    folder = WORK / f"packages-{sys.implementation.cache_tag}"
    if not (folder / "atheris").is_dir():
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--only-binary=:all:")
        if not _run(*pip, "--target", folder, "atheris", check=False):
            shutil.rmtree(folder, ignore_errors=True)
            print("no atheris for this Python and machine: the Python targets run on mutate.py, without coverage")
            return None
    version = next(folder.glob("atheris-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    print(f"atheris {version}, with libFuzzer; the extension is built by gcc under AddressSanitizer and UBSan")
    return folder


#: A file of the codec that is in the broker's extension, too: see setup.py.
SHARED = ("text.c",)

#: The files that need no Python.h.
WITHOUT_PYTHON = ("columns.c", "ends.c", "scan.c", "select.c", "text.c", "websocket.c")


def _site(fast: bool, covered: bool) -> Path:
    """A copy of the package with its extension, linked without a sanitizer runtime: one is preloaded."""
    kind = "fast" if fast else "covered" if covered else "sanitized"
    site, objects = WORK / f"site-{kind}", WORK / f"objects-{kind}"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(ROOT / "stompcodec", site / "stompcodec", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    objects.mkdir(exist_ok=True)
    generated = objects / "_codec_c.c"
    cython = (sys.executable, "-m", "cython", "-3", "--module-name", "stompcodec._codec_c")
    _run(*cython, ROOT / "src" / "codec.pyx", "-o", generated)
    flags = ["-O2"] if fast else ["-O1", "-g", *SANITIZE, *[TRACE] * covered]
    include = ["-I", "src", "-isystem", sysconfig.get_path("include")]
    codec, broker = site / "stompcodec" / "_codec_c", site / "stompcodec" / "broker" / "_plain_c"
    for extension, sources in (
        (codec, [generated, *sorted((ROOT / "src").glob("*.c"))]),
        (broker, [*sorted((ROOT / "src" / "plain").glob("*.c")), *(ROOT / "src" / name for name in SHARED)]),
    ):
        linked = []
        for source in sources:
            linked.append(objects / f"{source.stem}.o")
            _run("gcc", "-c", "-fPIC", "-DNDEBUG", *flags, *include, source, "-o", linked[-1])
        _run("gcc", "-shared", *linked, "-o", f"{extension}{sysconfig.get_config_var('EXT_SUFFIX')}")
    return site


def _scan(clang: bool) -> Path | None:
    """The C target, None where clang has no libFuzzer."""
    program = WORK / ("fuzz_scan-libfuzzer" if clang else "fuzz_scan-standalone")
    sources = [ROOT / "src" / name for name in WITHOUT_PYTHON]
    include = ["-I", "src", "-I", "tests/native"]
    if clang:
        flags = ["-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
        built = _run("clang", *flags, *include, FUZZ / "fuzz_scan.c", *sources, "-o", program, check=False)
        return program if built else None
    objects = []
    for source in sources:
        objects.append(WORK / f"{source.stem}.o")
        _run("gcc", "-c", "-O1", "-g", *SANITIZE, TRACE, *include, source, "-o", objects[-1])
    _run("gcc", "-O1", "-g", *SANITIZE, *include, FUZZ / "fuzz_scan.c", FUZZ / "standalone.c", *objects, "-o", program)
    return program


def environment(built: Built) -> dict[str, str]:
    """What the Python targets run with."""
    paths = [str(built.site), *([str(built.atheris)] if built.atheris else [])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    if built.fast:
        return variables
    # libstdc++ comes first too, or a C++ exception (pyarrow's) finds the sanitizer without its hook.
    preload = [_of_gcc("libstdc++.so")]
    if built.atheris:
        preload = [str(WORK / "gcc_coverage.so"), str(built.atheris / "asan_with_fuzzer.so"), *preload]
    else:
        preload = [_of_gcc("libasan.so"), _of_gcc("libubsan.so"), *preload]
    return variables | {
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": ":".join(ASAN_OPTIONS),
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }


def _of_gcc(library: str) -> str:
    return subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True).stdout.strip()
