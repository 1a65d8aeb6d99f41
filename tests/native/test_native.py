"""The C code without Python, in every way to look for line ends, with the sanitizers, between pages that trap."""

import json
import os
import shlex
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from model.reference import Reference
from patience import patience
from run_vectors import wire

from stompcodec.spec import DIALECTS, LENIENCIES, Limits

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
VECTORS = HERE.parent / "vectors"
WITHOUT_PYTHON = ("columns", "ends", "scan", "select", "text", "websocket")
RENAMED = [f"-D{name}=failing_{name}" for name in ("malloc", "calloc", "realloc")]
WARNINGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
KINDS = {
    **{"plain": ["-O2"], "sse2": ["-O2", "-DSTOMP_NO_AVX2"], "no-simd": ["-O2", "-DSTOMP_NO_SIMD"]},
    "sanitized": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
}
#: What most machines have, and what any machine has, is quick enough.
_QUICK = ("plain", "no-simd")
_MARKED = [pytest.param(kind, marks=() if kind in _QUICK else pytest.mark.slow) for kind in KINDS]
#: The order of enum in checks.h, and of the table of limits in it.
VERSIONS = ("1.2", "1.1", "1.0", "legacy", None)
LIMITS = {7: Limits(), 0: Limits(7, 24, 3, 12), 3: Limits(16, 64, 2, 100), 6: Limits(300, 150, 70, 70000)}
LONGEST = 4000  # octets of a stream
Program = Callable[[str, str], Path]


def _run(*command: str | Path) -> str:
    # A preloaded sanitizer is meant for the Python that runs the tests.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=patience(300))
    assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def compiler() -> list[str]:
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[:1]
    if os.name != "posix":
        pytest.skip("the programs need mmap")
    if not SRC.is_dir():
        pytest.skip("there is no src/ beside tests/")
    if not shutil.which(command[0]):
        pytest.skip(f"there is no C compiler: {command[0]} is not installed")
    return command


@pytest.fixture(scope="session")
def program(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder, include = tmp_path_factory.mktemp("native"), ["-I", str(SRC), "-I", str(HERE)]
    objects = {}

    def sources(kind: str) -> list[Path]:
        if kind not in objects:
            if kind == "sanitized":
                _skip_without_sanitizers(compiler, folder)
            objects[kind] = [folder / f"{name}-{kind}.o" for name in WITHOUT_PYTHON]
            for target in objects[kind]:
                path = SRC / f"{target.stem.removesuffix('-' + kind)}.c"
                _run(*compiler, *WARNINGS, *KINDS[kind], *RENAMED, *include, "-c", path, "-o", target)
        return objects[kind]

    def build(name: str, kind: str) -> Path:
        target = folder / f"{name}-{kind}"
        if not target.exists():
            parts = [HERE / f"{name}.c", HERE / "memory.c", *sources(kind)]
            _run(*compiler, *WARNINGS, *KINDS[kind], *include, *parts, "-pthread", "-o", target)
        return target

    return build


def _skip_without_sanitizers(compiler: list[str], folder: Path) -> None:
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    try:
        _run(*compiler, *KINDS["sanitized"], source, "-o", folder / "empty")
        _run(folder / "empty")
    except AssertionError:
        pytest.skip("this compiler has no AddressSanitizer")


@pytest.mark.parametrize("kind", _MARKED)
@pytest.mark.parametrize("name", ["test_scan", "test_columns", "test_changing"])
def test_program(program: Program, name: str, kind: str) -> None:
    assert "as wanted" in _run(program(name, kind))


def _inputs() -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Every wire of the vectors under its version, strict and lenient, with several limits; as checks.h reads it."""
    for path in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(path.read_text("utf-8"))["vectors"]:
            octets = wire(vector) if vector["kind"] == "decode" else b""
            version = None if vector.get("version") == "none" else vector.get("version")
            if not 0 < len(octets) <= LONGEST:
                continue
            for lenient in (False, True):
                for number, limits in LIMITS.items():
                    options = {"version": version, "lenient": lenient, "limits": limits}
                    yield bytes((VERSIONS.index(version) + 5 * lenient + 10, number, 0, 0)) + octets, options


def _trace(octets: bytes, options: dict[str, Any]) -> bytes:
    words, model = [], Reference(options.pop("version"), **options)
    model.dialect = model.dialect._replace(mends_length=False, skips_idle_length=False)
    for event in model.read(octets):
        if event[0] == "heartbeat":
            words.append(b"~")
        elif event[0] == "error":
            words.append(f"!{event[1]}@{event[2]}".encode())
        else:
            head = [event[1], *[f"{name}={value}" for name, value in event[2]]]
            words += ["".join(f"{{{word}}}" for word in head).encode("utf-8", "surrogateescape"), b"[", event[3], b"]"]
    return b"".join(words)


@pytest.mark.parametrize("kind", _MARKED)
def test_vectors_at_every_cut(program: Program, kind: str, tmp_path: Path) -> None:
    count = 0
    with tmp_path.joinpath("records").open("wb") as file:
        for octets, options in _inputs():
            want = _trace(octets[4:], options)
            file.write(struct.pack("<II", len(octets), len(want)) + octets + want)
            count += 1
    assert _run(program("test_scan", kind), tmp_path / "records").startswith(f"{count} records")


def test_dialects_are_those_of_spec(program: Program) -> None:
    flags = ("crlf", "any_body", "trims_lines", "trims_headers", "any_command", "keeps_bad_escapes", "keeps_bad_utf8")
    flags += ("skips_bad_lines", "skips_nul")
    more = ("mends_length", "skips_idle_length", "keeps_login_escapes")  # behind the bits of the padding
    lines = _run(program("test_scan", "plain"), "--dialects").splitlines()
    assert len(lines) == len(DIALECTS)
    for line in lines:
        version, lenient, bits, escapes, *commands = line.split()
        dialect = DIALECTS[VERSIONS[int(version)], LENIENCIES[int(lenient)]]
        assert set(commands) == dialect.commands
        assert int(escapes) == (0 if not dialect.escapes else 2 if b"r" in dialect.escapes else 1)
        padding = (b" " in dialect.length_padding, b"\t" in dialect.length_padding)
        wanted = [bool(getattr(dialect, name)) for name in flags] + list(padding)
        wanted += [getattr(dialect, name) for name in more]
        assert [bool(int(bits) >> bit & 1) for bit in range(len(wanted))] == wanted
