"""The sources and the jobs with a session of Spark Connect."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import patience

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
import pyspark

NEEDED = ["grpc", "grpc_status", "google.rpc", "pandas"]
if not pyspark.__version__.startswith("4.0."):
    NEEDED.append("zstandard")


def missing() -> list[str]:
    found = []
    for name in NEEDED:
        try:
            there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            there = False
        if not there:
            found.append(name)
    return found


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing()), reason=f"Spark Connect needs {', '.join(missing())}: pip install pyspark[connect]"
    ),
]

from spark.live_making import LiveBroker, publish
from spark.making import make_capture, message


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program says. It starts a server of Spark Connect by itself; all tests share it."""
    from stompcodec.spark import spark_env

    folder = tmp_path_factory.mktemp("connect")
    frames = [*(message(number) for number in range(40)), message(7), message(40, body=b"{"), b"bad\n\n\0"]
    capture = make_capture(folder / "feed.stompcap", frames)
    with LiveBroker() as broker:
        publish(broker.url, "/queue/in", 5, body=b'{"n": 1}')
        program = [sys.executable, "-P", str(Path(__file__).with_name("connect_driver.py"))]
        environment = {**os.environ, **spark_env(), "SPARK_LOCAL_IP": "127.0.0.1"}
        for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED"):
            environment.pop(name, None)
        result = subprocess.run(
            [*program, str(capture), str(folder / "out"), broker.url],
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience(300),
            check=False,
        )
        assert result.returncode == 0, "\n".join(line for line in result.stderr.splitlines() if "\tat " not in line)[
            -6000:
        ]
        assert broker.count("/queue/in") == 0
        assert broker.count("/queue/out") == 8
    value = json.loads(result.stdout.strip().splitlines()[-1])
    assert isinstance(value, dict)
    return value


def test_batches(found: dict[str, Any]) -> None:
    """archive, explode, metrics, report and dead letters of what is complete."""
    batches = found["batches"]
    assert batches["frames"] == 43
    assert batches["archived"] == batches["read"] == 42  # one message came twice
    assert batches["exploded"] == {"frames": 43, "good": 41, "quarantined": 2, "rows": 41, "quarantine": 2}
    assert batches["metrics"] >= 1
    assert batches["again"] == ["AnalysisException"] * 3  # errorifexists
    assert batches["appended"] == 42
    assert batches["report"] == {"frames": 84, "duplicates": 41, "records": 43, "quarantined": 2}
    assert batches["deadletters"] == 43
    assert batches["functions"] == [43, 42, 2]  # octets and back; one is null


def test_streams(found: dict[str, Any]) -> None:
    """The same as streams: started twice, each frame is there once."""
    assert found["streams"] == {"archived": 42, "rows": 41, "quarantine": 2, "counted": 43}


def test_a_broker_as_source_and_sink(found: dict[str, Any]) -> None:
    assert found["live"] == {"rows": 5, "replayed": 5}
