"""Builds what the fuzz targets run on, inside fuzz/work: atheris, and the package with its extensions under sanitizers.

Without Linux, gcc or atheris it ends with a line that says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FUZZ = ROOT / "fuzz"
WORK = FUZZ / "work"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-fno-wrapv"]
#: Python leaks by design, and a small quarantine and short stacks make it three times as fast.
ASAN_OPTIONS = (
    "detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1:quarantine_size_mb=16:malloc_context_size=4"
)
TRACE = "-fsanitize-coverage=trace-pc"  # gcc's; gcc_coverage.c makes use of it


def build() -> tuple[Path, Path]:
    """Build everything, and return where atheris is, and the package. CalledProcessError: something does not build."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        sys.exit("the fuzz targets need Linux and gcc, for the C backend and its sanitizers")
    WORK.mkdir(exist_ok=True)
    atheris = _atheris()
    _run("gcc", "-O2", "-shared", "-fPIC", FUZZ / "gcc_coverage.c", "-o", WORK / "gcc_coverage.so")
    return atheris, _site()


def _run(*command: str | Path, check: bool = True) -> bool:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT)
    if done.returncode and check:
        print(done.stdout, done.stderr, sep="")
        done.check_returncode()
    return done.returncode == 0


def _atheris() -> Path:
    """The folder that atheris is in, installed there if it is not."""
    folder = WORK / f"packages-{sys.implementation.cache_tag}"
    if not (folder / "atheris").is_dir():
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--only-binary=:all:")
        if not _run(*pip, "--target", folder, "atheris", check=False):
            shutil.rmtree(folder, ignore_errors=True)
            sys.exit("no atheris for this Python and machine: see https://pypi.org/project/atheris")
    version = next(folder.glob("atheris-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    print(f"atheris {version}, with libFuzzer; the extension is built by gcc under AddressSanitizer and UBSan")
    return folder


#: A file of the codec that is in the broker's extension, too: see setup.py.
SHARED = ("text.c",)


def _site() -> Path:
    """A copy of the package with its extension, linked without a sanitizer runtime: one is preloaded."""
    site, objects = WORK / "site", WORK / "objects"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(ROOT / "stompcodec", site / "stompcodec", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    objects.mkdir(exist_ok=True)
    generated = objects / "_codec_c.c"
    cython = (sys.executable, "-m", "cython", "-3", "--module-name", "stompcodec._codec_c")
    _run(*cython, ROOT / "src" / "codec.pyx", "-o", generated)
    flags = ["-O1", "-g", *SANITIZE, TRACE]
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


def environment(atheris: Path, site: Path) -> dict[str, str]:
    """What the Python targets run with."""
    paths = [str(site), str(atheris)]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    # libstdc++ comes first too, or a C++ exception (pyarrow's) finds the sanitizer without its hook.
    libstdc = subprocess.run(["gcc", "-print-file-name=libstdc++.so"], capture_output=True, text=True).stdout.strip()
    preload = [str(WORK / "gcc_coverage.so"), str(atheris / "asan_with_fuzzer.so"), libstdc]
    return variables | {
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": ASAN_OPTIONS,
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
