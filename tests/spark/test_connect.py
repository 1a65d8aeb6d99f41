"""The sources and the jobs with a session of Spark Connect."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience
from spark.live_making import live_broker, publish
from spark.making import make_capture, message

from stompcodec.spark import spark_env


def missing(name):
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


NEEDED = ["grpc", "grpc_status", "google.rpc", "pandas"]
if not pytest.importorskip("pyspark").__version__.startswith("4.0."):
    NEEDED.append("zstandard")
LACKING = ", ".join(filter(missing, NEEDED))


@pytest.mark.slow
@pytest.mark.skipif(bool(LACKING), reason=f"Spark Connect needs {LACKING}: pip install pyspark[connect]")
def test_sources_sink_and_jobs(tmp_path):
    """A program starts a server of Spark Connect by itself; its streams are started twice."""
    frames = [*map(message, range(40)), message(7), message(40, body=b"{"), b"bad\n\n\0"]
    capture = make_capture(tmp_path / "feed.stompcap", frames)
    environment = {**os.environ, **spark_env(), "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED"):
        environment.pop(name, None)
    with live_broker() as broker:
        publish(broker.url, "/queue/in", 5, body=b'{"n": 1}')
        program = [sys.executable, "-P", str(Path(__file__).with_name("connect_driver.py"))]
        program += [str(capture), str(tmp_path / "out"), broker.url]
        how = {"env": environment, "capture_output": True, "text": True, "timeout": patience(300)}
        result = subprocess.run(program, check=False, **how)
        lines = [line for line in result.stderr.splitlines() if "\tat " not in line]
        assert result.returncode == 0, "\n".join(lines)[-6000:]
        assert (broker.queued("/queue/in"), broker.queued("/queue/out")) == (0, 8)
    found = json.loads(result.stdout.strip().splitlines()[-1])
    batches, exploded = found["batches"], {"frames": 43, "good": 41, "quarantined": 2, "rows": 41, "quarantine": 2}
    assert batches["frames"] == batches["deadletters"] == 43
    assert batches["made"][:2] == [42, exploded]  # one message came twice
    assert batches["made"][2] >= 1
    assert batches["read"] == batches["appended"] == 42
    assert batches["again"] == ["AnalysisException"] * 3  # errorifexists
    assert batches["report"] == {"frames": 84, "duplicates": 41, "records": 43, "quarantined": 2}
    assert batches["functions"] == [43, 42, 2]  # octets and back; one is null
    assert found["streams"] == {"archived": 42, "rows": 41, "quarantine": 2, "counted": 43}
    assert found["live"] == {"rows": 5, "replayed": 5}
