"""Spark Connect, executors in processes of their own, `spark-submit`, and docs/spark-cluster.md taken literally."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import venv
import zipfile
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from pathlib import Path

import installed
import pytest
from patience import patience

pyspark = pytest.importorskip("pyspark")
from spark.live_rounds import live_broker, publish
from spark.making import make_capture, message

from stompcodec.spark import java_home, spark_env

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "spark-cluster.md"
HOME = Path(pyspark.__file__).parent
FRAMES = 3000
SUBMITTED = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frames = spark.read.format("stompfile").load(sys.argv[1])
count = frames.where("destination = '/topic/b'").count()

from stompcodec.spark import session

print(json.dumps([count, session("another name") is spark, spark.conf.get("spark.app.name")]))
spark.stop()
"""


def run(command, env, cwd=None):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=env, cwd=cwd, start_new_session=True, **pipes)
    try:
        out, err = process.communicate(timeout=patience(300))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"not done in {patience(300)} s:\n{process.communicate()[1][-4000:]}") from None
    lines = [line for line in err.splitlines() if "\tat " not in line]
    assert process.returncode == 0, "\n".join(lines)[-6000:]
    return out


@pytest.fixture
def environment():
    pythons = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    return installed.environment(**pythons, SPARK_LOCAL_IP="127.0.0.1")


def test_spark_submit_finds_the_source_by_itself(tmp_path, environment):
    """Nothing is registered, and `session` gives the session that spark-submit made."""
    frames = [message(number, "/topic/b" if number % 3 else "/topic/a") for number in range(FRAMES)]
    capture = make_capture(tmp_path / "feed.stompcap", frames, group=50, segment_octets=256 * 1024)
    program = tmp_path / "job.py"
    program.write_text(SUBMITTED)
    settings = ("spark.ui.enabled=false", "spark.app.name=submitted", "spark.sql.shuffle.partitions=2")
    options = ["--master", "local[2]", *(part for setting in settings for part in ("--conf", setting))]
    command = [str(HOME / "bin" / "spark-submit"), *options, str(program), str(capture)]
    found = json.loads(run(command, {**environment, "JAVA_HOME": str(java_home())}).splitlines()[-1])
    assert found == [FRAMES * 2 // 3, True, "submitted"]


def missing(name):
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


NEEDED = ["grpc", "grpc_status", "google.rpc", "pandas"]
if not pyspark.__version__.startswith("4.0."):
    NEEDED.append("zstandard")
LACKING = ", ".join(filter(missing, NEEDED))


@pytest.mark.skipif(bool(LACKING), reason=f"Spark Connect needs {LACKING}: pip install pyspark[connect]")
def test_sources_sink_and_jobs_with_spark_connect(tmp_path):
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
        found = json.loads(run(program, environment).splitlines()[-1])
        assert (broker.queued("/queue/in"), broker.queued("/queue/out")) == (0, 8)
    batches, exploded = found["batches"], {"frames": 43, "good": 41, "quarantined": 2, "rows": 41, "quarantine": 2}
    assert batches["frames"] == batches["deadletters"] == 43
    assert batches["made"][:2] == [{"frames": 42}, exploded]  # one message came twice
    assert batches["made"][2]["windows"] >= 1
    assert (batches["read"], batches["appended"]) == (42, {"frames": 42})
    assert batches["again"] == ["AnalysisException"] * 3  # what exists is an error
    assert batches["report"] == {"frames": 84, "duplicates": 41, "records": 43, "quarantined": 2}
    assert batches["functions"] == [43, 42, 2]  # octets and back; one is null
    assert found["streams"] == {"archived": 42, "rows": 41, "quarantine": 2, "counted": 43}
    assert found["live"] == {"rows": 5, "replayed": 5}


CONF = """
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.memory 700m
spark.executor.memory 700m
spark.executor.cores 1
spark.ui.enabled false
spark.sql.shuffle.partitions 2
spark.scheduler.minRegisteredResourcesRatio 1.0
spark.scheduler.maxRegisteredResourcesWaitingTime 120s
"""


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def wheel(folder, name):
    """An installed distribution as a wheel again, so that pip needs no network."""
    found = distribution(name)
    tag = next(line for line in (found.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")).split()[1]
    with zipfile.ZipFile(folder / f"{name}-{found.version}-{tag}.whl", "w") as packed:
        for path in found.files or ():
            if ".." not in path.parts and path.suffix != ".pyc" and "tests" not in path.parts:
                packed.write(found.locate_file(path), str(path))


@contextmanager
def running(command, env, log, text):
    with log.open("wb") as stream:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": stream, "stderr": stream}
        process = subprocess.Popen(command, env=env, start_new_session=True, **pipes)
        try:
            until = time.monotonic() + patience(120)
            while text not in log.read_text(errors="replace"):
                assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
                time.sleep(0.1)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_commands_of_the_page_run_on_a_cluster_without_the_package(tmp_path):
    pytest.importorskip("pip")
    install, submit = blocks("sh")
    job = next(block for block in blocks("python") if block.startswith("# job.py"))
    names = ("shared", "wheels", "bare", "spark", "conf", "driver")
    shared, house, bare, home, conf, work = (tmp_path / name for name in names)
    for folder in (shared / "spool", house, home, conf, work):
        folder.mkdir(parents=True)
    frames = map(message, range(FRAMES))
    make_capture(shared / "spool" / "rail.stompcap", frames, group=100, segment_octets=100_000)
    for name in ("stompcodec", "pyarrow", "numpy"):
        wheel(house, name)
    venv.create(bare, symlinks=True, with_pip=False)
    there = subprocess.run([bare / "bin" / "python3", "-c", "import stompcodec"], cwd=bare, capture_output=True)
    assert b"ModuleNotFoundError" in there.stderr
    for path in HOME.iterdir():
        (home / path.name).symlink_to(path)
    (conf / "spark-defaults.conf").write_text(CONF)
    (work / "job.py").write_text(job.replace("/mnt/shared", str(shared)))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    env |= {"PATH": f"{bare}/bin:{home}/bin:{os.environ['PATH']}", "JAVA_HOME": str(java_home())}
    env |= {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= {"SPARK_DAEMON_MEMORY": "256m", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(house)}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    master, start = f"spark://127.0.0.1:{port}", [str(home / "bin" / "spark-class")]
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        command = [*start, "org.apache.spark.deploy.master.Master", *here, "--port", port]
        stack.enter_context(running(command, env, tmp_path / "master.log", "Starting Spark master"))
        for number in (1, 2):
            command = [*start, "org.apache.spark.deploy.worker.Worker", master, "--cores", "1", "--memory", "800m"]
            command += [*here, "--work-dir", str(tmp_path / f"work{number}")]
            log = tmp_path / f"worker{number}.log"
            stack.enter_context(running(command, env, log, "Successfully registered with master"))
        with_pip = install.replace("python3 -m pip", f"{sys.executable} -m pip")  # that of the workers has no pip
        script = f"set -eu\n{with_pip}\n{submit.replace('spark://master:7077', master)}"
        assert f"{FRAMES} frames\n{FRAMES} frames archived" in run(["bash", "-c", script], env, cwd=work)
    assert len(list(tmp_path.glob("work*/app-*/*/deps/stompcodec"))) >= 2
    packed = (work / "deps.tar.gz").stat().st_size
    assert packed < 100 * 2**20, f"{packed / 2**20:.0f} MB: the page says about 75"
