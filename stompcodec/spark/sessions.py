"""A Spark session that needs nothing but `pip install` and knows our sources."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stompcodec.errors import ConfigError, MissingExtraError
from stompcodec.spark.java import spark_env
from stompcodec.values import size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("stompcodec.spark")
#: Module and class of our sources. They are above this module, so they are imported on use.
_SOURCES = (("stompcodec.spark.reading.source", "StompFile"), ("stompcodec.spark.live.source", "Stomp"))
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: Settings that can be changed while Spark runs.
_RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
}
#: Arrow's Java checks bounds and null flags on each access, which takes a fifth of the time of reading. Spark looks for
#: nulls itself, and the offsets come from pyarrow.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def session(
    name: str = "stompcodec",
    *,
    cores: int | None = None,
    memory: str | int | None = None,
    **conf: str | int | bool,
) -> SparkSession:
    """Return a Spark session with the sources "stomp" and "stompfile", on this machine or where `spark-submit` puts it.

    A new session gets a Java (see `java_home`), listens on the loopback interface only, has no web page, and uses UTC.
    An existing session is returned with its settings unchanged; it only learns our sources.

    Args:
        name: application name, as Spark's pages show it.
        cores: CPU cores to use on this machine; None for all. Ignored under `spark-submit`.
        memory: memory of Spark on this machine, such as "2GiB", or bytes; None for 1GiB.
        conf: further settings, which override ours, as in `session(**{"spark.ui.enabled": True})`. An existing session
            gets only these.

    Raises:
        MissingExtraError: PySpark is not installed.
        ConfigError: PySpark is older than 4.0.
        JavaError: no Java was found that Spark can use.

    >>> spark = session(cores=2)                                                      # doctest: +SKIP
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("spark", "pyspark") from None
    _check_version()
    spark = existing_session(SparkSession)
    if spark is None:
        spark = _start(SparkSession.builder.appName(name), cores, memory, conf)
    else:
        _change_settings(spark, conf)
    register(spark)
    return spark


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


def _check_version() -> None:
    import pyspark

    if find_spec("pyspark.sql.datasource") is None:
        raise ConfigError(
            f"PySpark {pyspark.__version__} has no Python data sources: install PySpark 4.0 or newer, as with "
            "pip install 'stompcodec[spark]'"
        )


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


def register(spark: SparkSession) -> None:
    """Register the sources "stomp" and "stompfile" with a session.

    That is only needed if Spark's search for data sources is switched off; otherwise it finds them by itself.

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
