"""The C files without Python.h are compiled for other platforms by Zig's compiler, where that is installed."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"

pytestmark = pytest.mark.skipif(not SRC.is_dir(), reason="there is no src/ beside tests/")
with_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")


@pytest.fixture
def cross(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("cross_compile")


def test_the_scanner_is_among_the_files(cross: ModuleType) -> None:
    names = {path.name for path in cross.sources()}
    assert names == {"columns.c", "ends.c", "scan.c", "select.c", "text.c", "websocket.c"}
    assert cross.needs_python(SRC / "headers.c")  # by a header


def test_each_system_has_a_target(cross: ModuleType) -> None:
    systems = {tuple(target.split("-")[:2]) for target in cross.TARGETS}
    for system in ("windows", "macos", "linux"):
        assert {("x86_64", system), ("aarch64", system)} <= systems
    assert ("wasm32", "wasi") in systems


@pytest.mark.long
@with_zig
@pytest.mark.parametrize("target", ["aarch64-windows-gnu", "wasm32-wasi"])
def test_a_file_compiles_without_a_warning(cross: ModuleType, target: str) -> None:
    assert cross.compile_for(target, [SRC / "ends.c"]) == ""


@pytest.mark.long
@with_zig
def test_what_only_one_platform_lacks_is_found(cross: ModuleType, tmp_path: Path) -> None:
    """A long has 32 bits on Windows alone, and fork() is missing there."""
    narrow = tmp_path / "narrow.c"
    narrow.write_text("long wide(void) { return 1L << 40; }\n")
    posix = tmp_path / "posix.c"
    posix.write_text("#include <unistd.h>\nint child(void) { return fork() == 0; }\n")
    assert cross.compile_for("x86_64-linux-musl", [narrow, posix]) == ""
    assert "narrow.c" in cross.compile_for("x86_64-windows-gnu", [narrow])
    assert "posix.c" in cross.compile_for("x86_64-windows-gnu", [posix])
