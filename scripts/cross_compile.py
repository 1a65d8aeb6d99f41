"""Compile the C files that need no Python.h for other platforms, by Zig's C compiler, and allow no warning.

    python scripts/cross_compile.py [TARGET ...]

Nothing is linked or run: this finds headers, types and builtins that another platform does not have. The compiler is
the package ziglang, which `make cross` installs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
#: As Zig calls them.
TARGETS = (
    "x86_64-windows-gnu",
    "aarch64-windows-gnu",
    "x86_64-macos",
    "aarch64-macos",
    "x86_64-linux-musl",
    "aarch64-linux-musl",
    "arm-linux-musleabihf",
    "wasm32-wasi",
)
#: Those of `make check`.
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")


def needs_python(path: Path) -> bool:
    """Return whether a file includes Python.h, by itself or by a header of this tree."""
    names = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(encoding="utf-8"), re.MULTILINE)
    return "Python.h" in names or any(needs_python(SRC / name) for name in names if (SRC / name).is_file())


def sources() -> list[Path]:
    """Return the C files that need no Python.h."""
    return [path for path in sorted(SRC.glob("*.c")) if path.stem != "codec" and not needs_python(path)]


def compile_for(target: str, paths: list[Path]) -> str:
    """Compile files for a target, and return what the compiler said of the first that has a fault."""
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS, f"-I{SRC}", "-c"]
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            done = subprocess.run(
                [*command, path, "-o", Path(folder, "object.o")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                return f"{path.name}: {done.stdout.strip() or f'exit status {done.returncode}'}"
    return ""


def main(targets: list[str]) -> int:
    if importlib.util.find_spec("ziglang") is None:
        print("ziglang is not installed: run `make cross`, or pip install ziglang")
        return 2
    failed = 0
    paths = sources()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for target, said in zip(targets, pool.map(lambda target: compile_for(target, paths), targets)):
            print(f"{target}: {said or f'{len(paths)} files without a warning'}", flush=True)
            failed += bool(said)
    print(f"{len(targets) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(TARGETS)))
