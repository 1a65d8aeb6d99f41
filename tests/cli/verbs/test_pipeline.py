"""stompcodec pipeline, as far as it gets without Spark. The rest is in tests/spark/jobs/test_jobs.py."""

import gzip
import os
import sys
import time

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
from cli.packets import pcapng
from cli.running import ended, run

from stompcodec.cli.verbs.pipeline import Input, is_broker, one_line, waited


@pytest.mark.parametrize("verb", ["archive {} -o a", "replay {} stomp://127.0.0.1:1"])
@pytest.mark.parametrize(
    ("name", "content", "held"),
    [
        *(("t.pcapng", pcapng([]), "packets"), ("t.stomp", pcapng([]), "packets")),
        *(("t.pcap.gz", gzip.compress(pcapng([]), mtime=0), "packets"), ("t.jsonl", b"{}\n", "JSON")),
    ],
)
def test_files_that_the_source_does_not_read_are_refused_before_spark_starts(
    verb, name, content, held, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    result = run("pipeline", *verb.format(name).split())
    said = f"{name} holds {held}: stompcodec convert {name} FILE.stompcap makes a capture of it"
    assert (result.exit_code, said in result.stderr) == (2, True)


def test_the_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended(run("pipeline", "metrics", "."), 2, "this needs the package pyarrow")
    assert "Count frames" in run("pipeline", "metrics", "--help").output


EXISTS = "Path x already exists: name another output, or give --existing append or overwrite"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[DATA_SOURCE] failed. SQLSTATE: 1\nTraceback (last):\n  x\nstompcodec.errors.StoreError: it\n", "it"),
        ("Traceback (most recent call last):\n  x\nOSError: no disk\n", "no disk"),
        *(("[A_B.C] said so. SQLSTATE: 42K03;\n'Project", "said so."), ("a\x1b[2J", "a\\x1b[2J")),
        ('[A_B] Path x already exists. Set mode as "overwrite" to overwrite it. SQLSTATE: 42K04', EXISTS),
        *(("", "ValueError"), ("x" * 400, "x" * 400), ("x" * 401, "x" * 399 + "…")),
    ],
)
def test_errors_of_spark_are_one_line(text, line):
    assert one_line(ValueError(text)) == line


@pytest.fixture
def given(monkeypatch):
    from stompcodec.cli import connecting

    monkeypatch.setenv("STOMPCODEC_PASSCODE", "x")  # so that what the verb sets is removed at the end
    os.environ.pop("STOMPCODEC_PASSCODE")
    monkeypatch.setattr(connecting, "_has_terminal", lambda: True)
    monkeypatch.setattr("click.termui.hidden_prompt_func", lambda _text: "prompted")
    options = ("stream", "checkpoint", "destinations", "spool", "login", "passcode_file")
    return {**dict.fromkeys(options), "destinations": ("/queue/a",), "spool": "s", "login": "ann"}


def test_a_passcode_is_asked_for_before_spark_starts(given):
    assert is_broker("localhost:61613")
    assert not is_broker("feed.stompcap")
    reading = Input("localhost:61613", given)
    assert (reading.source, os.environ["STOMPCODEC_PASSCODE"]) == ("localhost:61613", "prompted")
    assert reading.credentials == {"login": "ann", "passcodeEnv": "STOMPCODEC_PASSCODE"}
    os.environ.pop("STOMPCODEC_PASSCODE")
    assert Input(".", {**given, "destinations": ()}, broker="stomp://localhost").credentials["login"] == "ann"
    assert os.environ.pop("STOMPCODEC_PASSCODE") == "prompted"
    Input(".", {**given, "destinations": ()})  # no broker: nobody is asked
    assert "STOMPCODEC_PASSCODE" not in os.environ


def test_a_passcode_file_wins(given, tmp_path):
    (tmp_path / "secret").write_text("x\n")
    reading = Input("stomp://localhost", {**given, "passcode_file": str(tmp_path / "secret")})
    assert reading.credentials == {"login": "ann", "passcodeFile": str(tmp_path / "secret")}
    assert "STOMPCODEC_PASSCODE" not in os.environ


class Query:
    """A stream that makes batches of 10 frames, then ends, or fails."""

    def __init__(self, batches, error=None):
        rows = {"processedRowsPerSecond": 1.0, "stateOperators": [{"numRowsDroppedByWatermark": 1}]}
        self.recentProgress = [{"batchId": number, "numInputRows": 10, **rows} for number in batches]
        self.lastProgress = self.recentProgress[-1]
        self.isActive, self.error = True, error

    def awaitTermination(self, seconds=None):
        from pyspark.errors import StreamingQueryException

        if self.error is not None:
            raise StreamingQueryException(self.error)
        self.isActive = False


def test_a_stream_whose_source_is_killed_starts_again(caplog, monkeypatch):
    from stompcodec.spark.jobs import Job

    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    left = [Query(range(3), "Connection reset"), Query(range(2, 4), "java.io.EOFException"), Query(range(4, 5))]
    assert waited(lambda: Job({}, left.pop(0))) == {"batches": 5, "frames": 50, "late": 5}
    assert (caplog.text.count("starts again"), left) == (2, [])
