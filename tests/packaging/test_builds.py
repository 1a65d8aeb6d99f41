"""The builds: what sdist and wheels hold, and what happens where the extension cannot be built."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "*.so", "*.pyd", "codec.c", "work")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (TOP / "pyproject.toml").exists(), reason="only tests/ is here, nothing to build"),
    pytest.mark.skipif(sys.platform == "win32", reason="CC= does not choose the compiler on Windows"),
]


class Build(NamedTuple):
    status: int
    output: str
    file: Path | None


def without(*names: str) -> dict[str, str]:
    """The environment without variables that say how to build, and which backend to take."""
    left_out = {*names, *(name for name in os.environ if name.startswith("STOMPCODEC_"))}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def build(what: str, source: Path, out: Path, **environment: str) -> Build:
    """python -m build --sdist or --wheel; the variables that matter are only what the caller sets."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check"]
    command += [what, str(source), "--outdir", str(out)]
    environment = {**without("CC", "CFLAGS", "LDFLAGS", "PYTHONPATH"), **environment}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return Build(done.returncode, done.stdout, next(iter(out.glob("*")), None))


def build_wheel(source: Path, tmp_path: Path, **environment: str) -> Build:
    copy = tmp_path / "source"
    shutil.copytree(source, copy)
    # What is tested is whether it builds, so it may build fast.
    return build("--wheel", copy, tmp_path / "out", **{"STOMPCODEC_CFLAGS_EXTRA": "-O0", **environment})


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def ran(folder: Path, code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**without(), "PYTHONPATH": str(folder), **environment}
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)


def backend_of(wheel: Path, folder: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    path, backend = ran(folder, "import stompcodec; print(stompcodec.__file__, stompcodec.BACKEND)").stdout.split()
    assert Path(path).is_relative_to(folder)
    return backend


def start(folder: Path, *options: str, **environment: str) -> str:
    """What is said when the unpacked wheel is imported twice, and parses a frame."""
    code = "import stompcodec.codec, stompcodec\nassert stompcodec.parse(b'BEGIN\\n\\n\\0')"
    return ran(folder, code, *options, **environment).stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(TOP, folder / "source", ignore=IGNORED)
    (folder / "nothing").mkdir()
    made = build("--sdist", folder / "source", folder / "out", PATH=str(folder / "nothing"))
    assert made.status == 0, made.output
    assert made.file is not None
    assert made.file.stat().st_size <= 1_200_000
    return made.file


@pytest.fixture(scope="module")
def source(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder / sdist.name.removesuffix(".tar.gz")


def test_sdist_holds_all_sources_and_nothing_generated(source: Path) -> None:
    files = (path for path in source.rglob("*") if path.is_file() and "egg-info" not in str(path))
    names = {path.relative_to(source).as_posix() for path in files}
    for folder in ("src", "stompcodec", "tests/vectors"):
        wanted = {
            path.relative_to(TOP).as_posix()
            for path in (TOP / folder).rglob("*")
            if path.suffix in (".py", ".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".json", ".dict", ".sh")
            and "work" not in path.relative_to(TOP).parts
            and path.name != "codec.c"
        }
        assert wanted, folder
        assert wanted <= names
    assert {"LICENSE", "CHANGELOG.md", "setup.py", "src/codec.pyx", "tests/packaging/run_backends.py"} <= names
    assert "src/codec.c" not in names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".o"))]


def test_two_sdists_are_equal(source: Path, tmp_path: Path) -> None:
    made = []
    for name, mode in (("one", 0o644), ("another-folder", 0o600)):
        copy = tmp_path / name
        shutil.copytree(source, copy)
        for path in copy.rglob("*"):
            if path.is_file() and not path.stat().st_mode & 0o100:
                path.chmod(mode)
            os.utime(path, (mode, mode))
        made.append(build("--sdist", copy, tmp_path / f"out-{name}", SOURCE_DATE_EPOCH="1700000000"))
    first, second = (one.file for one in made)
    assert first is not None, made[0].output
    assert second is not None, made[1].output
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        members = archive.getmembers()
    assert {member.mtime for member in members} == {1700000000}
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert [member.name for member in members] == sorted(
        (member.name for member in members), key=lambda name: name.split("/")
    )


def test_binary_wheel_is_whole(source: Path, tmp_path: Path) -> None:
    made = build_wheel(source, tmp_path, STOMPCODEC_BUILD_EXTENSION="yes")
    assert made.file is not None, made.output
    names = names_in(made.file)
    files = {path for path in (source / "stompcodec").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    modules = {path.relative_to(source).as_posix() for path in files if path.suffix not in (".so", ".pxd")}
    assert {Path(name).suffix for name in modules} >= {".py", ".pyi", ".typed", ".json", ".css"}
    assert modules | {"stompcodec/py.typed"} <= names
    assert "stompcodec/_fallback.py" not in names
    assert len([name for name in names if name.startswith("stompcodec/_codec_c.") and name.endswith(".so")]) == 1
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        *("stompcodec", "pyspark_stomp.py", "pyspark_stompfile.py")  # Spark finds sources by such names
    }
    assert not made.file.name.endswith("-any.whl")
    assert backend_of(made.file, tmp_path / "unpacked") == "c"
    for path in (tmp_path / "unpacked").rglob("*.so"):
        data = path.read_bytes()
        assert os.fsencode(tmp_path) not in data
        assert os.fsencode(sys.base_prefix) + b"/" not in data  # the rpath of some builds of Python


@pytest.mark.parametrize(
    ("wanted", "lacks"), [*product(("", "yes"), ["Cython"]), *product(("", "yes", "no", "any"), ["compiler"])]
)
def test_what_keeps_the_extension_from_being_built(source: Path, tmp_path: Path, wanted: str, lacks: str) -> None:
    """Then there is a pure wheel and a warning: no warning where it is off, and no wheel where it must be there."""
    (tmp_path / "hidden" / "Cython").mkdir(parents=True)
    (tmp_path / "hidden" / "Cython" / "__init__.py").write_text("raise ImportError('Cython is hidden')\n")
    harms = {"PYTHONPATH": str(tmp_path / "hidden")} if lacks == "Cython" else {"CC": "false"}
    made = build_wheel(source, tmp_path, STOMPCODEC_BUILD_EXTENSION=wanted, **harms)
    if wanted == "yes":
        assert made.status != 0
        assert made.file is None
        return
    assert made.file is not None, made.output
    assert made.file.name.endswith("-py3-none-any.whl")
    assert "stompcodec/py.typed" in names_in(made.file)
    assert ("WARNING: stompcodec is built WITHOUT its C extension" in made.output) is (wanted == "")
    unpacked = tmp_path / "unpacked"
    assert backend_of(made.file, unpacked) == "python"
    assert start(unpacked, "-W", "ignore:stompcodec uses its Python backend") == ""
    said = start(unpacked)
    if wanted == "no":
        assert said == ""  # as it was asked for
        return
    # pip shows none of that, so the package says it.
    assert said.startswith("<string>:1: RuntimeWarning: ")  # where the program imports it
    if wanted == "any":
        assert "there is no wheel with C extensions for this platform" in said
    else:
        assert said.count("could not be built when it was installed: ") == 1
        assert harms.get("CC", "") in said
    assert start(unpacked, STOMPCODEC_PURE="1") == ""
