"""A short run of the fuzz target over sockets; and faults that are planted in the broker are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click")

from patience import patience

import stompcodec

FUZZ = Path(__file__).parents[2] / "fuzz"

pytestmark = [
    pytest.mark.long,
    pytest.mark.no_asan,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the CPU time of a process from /proc"),
    pytest.mark.skipif(not (FUZZ / "tcp.py").is_file(), reason="the fuzz targets are not here"),
]

#: The faults are those of the Python road, so all frames take that.
PYTHON_ROAD = "import os\nos.environ['STOMPCODEC_PLAIN'] = '0'\n"
#: What is put into every Python process of a run, before anything else.
PLANTS = {
    "a message twice": """
from stompcodec.broker.queues.queue import Queue
plain = Queue.put_plain
def put_plain(self, destination, ident, seq, tail):
    if seq % 100 == 99:
        plain(self, destination, ident, seq, tail)
    return plain(self, destination, ident, seq, tail)
Queue.put_plain = put_plain
""",
    "a receipt too early": """
from stompcodec.broker.sessions import commands, receipts
plain = receipts.send_receipt
def send_receipt(session, value):
    plain(session, value.replace("topic-9", "topic-10"))
commands.send_receipt = receipts.send_receipt = send_receipt
""",
    "a session that cannot be written to": """
from stompcodec.broker.message import Message
plain = Message.tail_for
def tail_for(self, version):
    if version == "1.0":
        raise OSError("planted")
    return plain(self, version)
Message.tail_for = tail_for
""",
    "an internal error": """
from stompcodec.broker.sessions.commands import HANDLERS
plain = HANDLERS["UNSUBSCRIBE"]
def unsubscribe(session, frame):
    if frame.get("id") == "2":
        raise OSError("planted")
    plain(session, frame)
HANDLERS["UNSUBSCRIBE"] = unsubscribe
""",
}


def run(seconds, folder=None):
    """A run of the target: its exit status, and what it says."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    paths = [str(Path(stompcodec.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths if folder is None else [str(folder), *paths])
    command = [sys.executable, str(FUZZ / "tcp.py"), "--seconds", str(seconds), "--seed", "7"]
    if folder is not None:
        command += ["--findings", str(folder / "findings")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience(300))
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("seconds", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_a_short_run_finds_nothing(seconds):
    status, text = run(seconds)
    assert status == 0, text[-8000:]
    assert text.endswith(" 0 findings\n")


@pytest.mark.parametrize(
    "plant", ["an internal error", *(pytest.param(plant, marks=pytest.mark.slow) for plant in list(PLANTS)[:-1])]
)
def test_planted_faults_are_found(plant, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(PYTHON_ROAD + PLANTS[plant])
    status, text = run(20, tmp_path)
    assert status == 1, text[-8000:]
    assert "1 findings" in text
    (finding,) = (tmp_path / "findings").iterdir()
    assert "sessions" in finding.read_text()


@pytest.fixture
def hostile(monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZ))
    yield pytest.importorskip("hostile")
    for name in ("hostile", "mutate", "case"):
        sys.modules.pop(name, None)


def test_one_key_makes_the_same_choices(hostile):
    def choices(key):
        stream = hostile.Stream(key, [b"SEND\n\n\0"], hostile.Names("1"))
        octets = stream.octets()
        pieces = stream.cuts(octets)
        return stream.transport, stream.end, stream.version, octets, pieces, hostile.ws_frames(stream.random, pieces)

    assert [choices(str(key)) for key in range(50)] == [choices(str(key)) for key in range(50)]
    assert len({choices(str(key))[3] for key in range(50)}) > 45


def test_nobody_consumes_the_queue_of_the_model(hostile):
    names = hostile.Names("123")
    seen = 0
    for key in range(500):
        octets = hostile.Stream(str(key), [], names).octets()
        for frame in octets.split(b"\0"):
            if names.queue in frame and not frame.lstrip(b"\r\n").startswith(b"SEND\n"):
                seen += 1
                refused = b"\ninclude-seq:s:eq\n" in frame and b"accept-version" not in octets.partition(b"\0")[0]
                assert b"\nbrowser:true\n" in frame or refused
    assert seen > 100
