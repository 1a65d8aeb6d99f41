"""Executors in processes of their own, and `spark-submit`: each test is a Spark of its own, and none of the suite's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from patience import patience

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyspark
from spark.making import make_capture, message

import stompcodec
from stompcodec.spark import java_home

FRAMES = 6000
HOME = Path(pyspark.__file__).parent

SUBMITTED = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frames = spark.read.format("stompfile").load(sys.argv[1])
found = {"count": frames.count(), "some": frames.where("destination = '/topic/b'").count()}
found["app"] = spark.conf.get("spark.app.name")

from stompcodec.spark import session

again = session("another name")
rows = again.read.format("stompfile").schema("destination string, nth int").load(sys.argv[1])
found["sum"] = rows.selectExpr("sum(nth)").first()[0]
found["same"] = again is spark
print(json.dumps(found))
spark.stop()
"""

FROZEN = """
import os, signal, subprocess, sys, time
from stompcodec.spark import session

settings = {"executor.heartbeatInterval": "2s", "executor.heartbeat.maxFailures": 2, "network.timeout": "3s"}
settings |= {"network.timeoutInterval": "100ms", "ui.enabled": False}
spark = session("frozen", cores=1, **{f"spark.{name}": value for name, value in settings.items()})
java = spark._jvm.java.lang.ProcessHandle.current().pid()
for _ in range(4):
    os.kill(java, signal.SIGSTOP)
    time.sleep(4)  # longer than network.timeout
    os.kill(java, signal.SIGCONT)
    time.sleep(1)
time.sleep(8)  # more than maxFailures heartbeats
print(spark.range(10).count())
spark.stop()
"""


def run(command: list[str], env: Mapping[str, str]) -> Any:
    """What a program prints last, as JSON. It is ended with all that it started."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=patience(240))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"not done in {patience(240)} s:\n{process.communicate()[1][-4000:]}") from None
    assert process.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1])


@pytest.fixture
def environment() -> dict[str, str]:
    """Variables by which Spark finds a Java, this Python, and what is tested."""
    places = [str(Path(stompcodec.__file__).parent.parent), os.environ.get("PYTHONPATH")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    frames = [message(number, "/topic/b" if number % 3 else "/topic/a", nth=str(number)) for number in range(FRAMES)]
    return make_capture(tmp_path / "feed.stompcap", frames, group=50, segment_octets=256 * 1024)


@pytest.mark.slow
def test_a_machine_that_sleeps_does_not_end_spark(tmp_path: Path, environment: dict[str, str]) -> None:
    """Spark would take its one executor for lost, find no way to register it again, and exit after some heartbeats."""
    program = tmp_path / "frozen.py"
    program.write_text(FROZEN)
    assert run([sys.executable, str(program)], environment) == 10


@pytest.mark.slow
def test_spark_submit_finds_the_source_by_itself(tmp_path: Path, capture: Path, environment: dict[str, str]) -> None:
    """Nothing is registered, and `session` gives the session that spark-submit made."""
    program = tmp_path / "job.py"
    program.write_text(SUBMITTED)
    settings = ("spark.ui.enabled=false", "spark.app.name=submitted", "spark.sql.shuffle.partitions=2")
    options = ["--master", "local[2]", *(part for setting in settings for part in ("--conf", setting))]
    command = [str(HOME / "bin" / "spark-submit"), *options, str(program), str(capture)]
    found = run(command, {**environment, "JAVA_HOME": str(java_home())})
    numbers = range(FRAMES)
    some = sum(1 for number in numbers if number % 3)
    assert found == {"count": FRAMES, "some": some, "app": "submitted", "sum": sum(numbers), "same": True}
