"""docs/spark-cluster.md, taken literally: its commands and its job, on a master and two workers without the package."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import distribution
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("pip")

import pyspark
from spark.making import make_capture, message

from stompcodec.spark import java_home

PAGE = Path(__file__).parents[2] / "docs" / "spark-cluster.md"
HOME = Path(pyspark.__file__).parent
FRAMES = 3000
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


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def wheel(folder: Path, name: str) -> None:
    """An installed distribution as a wheel again, so that pip needs no network."""
    found = distribution(name)
    tag = next(line for line in (found.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")).split()[1]
    with zipfile.ZipFile(folder / f"{name}-{found.version}-{tag}.whl", "w") as packed:
        for path in found.files or ():
            if ".." not in path.parts and path.suffix != ".pyc" and "tests" not in path.parts:
                packed.write(found.locate_file(path), str(path))


@contextmanager
def running(command: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(log: Path, text: str) -> None:
    until = time.monotonic() + patience(120)
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_the_commands_of_the_page_run_on_a_cluster_without_the_package(tmp_path: Path) -> None:
    install, submit = blocks("sh")
    job = next(block for block in blocks("python") if block.startswith("# job.py"))
    shared, house = tmp_path / "shared", tmp_path / "wheels"
    (shared / "spool").mkdir(parents=True)
    house.mkdir()
    make_capture(
        shared / "spool" / "rail.stompcap",
        [message(number) for number in range(FRAMES)],
        group=100,
        segment_octets=100_000,
    )
    for name in ("stompcodec", "pyarrow", "numpy"):
        wheel(house, name)
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True, with_pip=False)
    there = subprocess.run([bare / "bin" / "python3", "-c", "import stompcodec"], cwd=bare, capture_output=True)
    assert b"ModuleNotFoundError" in there.stderr
    home = tmp_path / "spark"
    home.mkdir()
    for path in HOME.iterdir():
        (home / path.name).symlink_to(path)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(CONF)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    env |= {
        "PATH": f"{bare}/bin:{home}/bin:{os.environ['PATH']}",
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(house),
    }
    master = f"spark://127.0.0.1:{free_port()}"
    spark_class = str(home / "bin" / "spark-class")
    work = tmp_path / "driver"
    work.mkdir()
    (work / "job.py").write_text(job.replace("/mnt/shared", str(shared)))
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        port = master.rpartition(":")[2]
        command = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port]
        stack.enter_context(running([*command, "--webui-port", "0"], env, log))
        wait_for(log, "Starting Spark master")
        for number in (1, 2):
            log = tmp_path / f"worker{number}.log"
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", master, "--cores", "1", "--memory", "800m"]
            command += ["--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(tmp_path / f"work{number}")]
            stack.enter_context(running(command, env, log))
            wait_for(log, "Successfully registered with master")
        with_pip = install.replace("python3 -m pip", f"{sys.executable} -m pip")  # that of the workers has no pip
        script = f"set -eu\n{with_pip}\n{submit.replace('spark://master:7077', master)}"
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=patience(300))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, err[-4000:]
    assert f"{FRAMES} frames\n{FRAMES} frames archived" in out
    executors = sorted({path.parent.parent.name for path in tmp_path.glob("work*/app-*/*/deps")})
    assert len(list(tmp_path.glob("work*/app-*/*/deps/stompcodec"))) >= 2, executors
    packed = (work / "deps.tar.gz").stat().st_size
    assert packed < 100 * 2**20, f"{packed / 2**20:.0f} MB: the page says about 75"
