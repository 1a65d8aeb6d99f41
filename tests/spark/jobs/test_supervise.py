"""A query whose source was killed starts again, and what a live source tells in the progress."""

import json
import logging
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import patience

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamReader
from spark.live_making import goes_on_when_killed, live_broker, wait_for

from stompcodec.spark import live as progress
from stompcodec.spark.jobs.output import SourceDiedError, has_died, supervise
from stompcodec.spark.live import source_metrics, tell_once

PAGE = Path(__file__).parents[3] / "docs" / "spark-semantics.md"
PLAN = "\n=== Streaming Query ===\nCurrent State: ACTIVE\nLogical Plan: Connection reset"
FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
#: What PySpark 4.3 says when the process of the source got kill -9 while it worked, between two batches, and so on.
DEAD = [
    f"Connection reset{PLAN}",
    f"{FAILED} Connection reset SQLSTATE: XXKST{PLAN}",
    f"{FAILED}  SQLSTATE: XXKST (no cause message){PLAN}",
    f"{FAILED}  SQLSTATE: XXKST{PLAN}",
    f"java.io.EOFException{PLAN}",
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
]
ALIVE = [
    f"{FAILED} the sink fails SQLSTATE: XXKST{PLAN}",
    f"Traceback (most recent call last):\n  stompcodec.errors.ConnectionLostError: Connection reset{PLAN}",
    f"{FAILED} Python worker exited: Traceback (most recent call last)",
    "",
]


def supervised(*errors, **options):
    """How often a query was started that ends with these errors, or, with None, is stopped."""
    left, started = list(errors), []

    def start():
        started.append(left.pop(0))

        def ends():
            if started[-1] is not None:
                raise StreamingQueryException(started[-1])

        return SimpleNamespace(awaitTermination=ends)

    supervise(start, **{"pause": 0.0, **options})
    assert not left
    return len(started)


def test_a_query_starts_again_as_often_as_its_source_is_gone(caplog):
    assert [has_died(RuntimeError(text)) for text in DEAD + ALIVE] == [True] * len(DEAD) + [False] * len(ALIVE)
    with caplog.at_level(logging.WARNING, "stompcodec.spark"):
        assert supervised(*DEAD, None) == len(DEAD) + 1
    assert caplog.text.count("The query starts again from its checkpoint") == len(DEAD)
    assert "it was killed, or ran out of memory" in caplog.text
    assert supervised(None) == 1


@pytest.mark.parametrize("error", ALIVE)
def test_another_failure_is_not_hidden(error):
    with pytest.raises(PySparkException) as caught:
        supervised(DEAD[0], error)
    assert str(caught.value) == error


def test_a_source_that_is_gone_each_time_ends_it():
    with pytest.raises(SourceDiedError, match=r"It ended 4 times within 60 s: look at .*: Connection reset$") as caught:
        supervised(*[DEAD[0]] * 4, restarts=3, within=60)
    assert isinstance(caught.value.__cause__, StreamingQueryException)
    assert supervised(*[DEAD[0]] * 9, None, restarts=1, within=0.0) == 10  # those were long ago


# ---- progress ----


def test_metrics_are_found_in_a_progress_of_any_form():
    offset = json.dumps({"a": 1, "#metrics": {"backlogBytes": 3}})
    found = {"sources": [{"latestOffset": offset}, {"latestOffset": "x"}]}
    for each in (found, json.dumps(found), SimpleNamespace(json=json.dumps(found))):
        assert source_metrics(each) == [{"backlogBytes": 3}]
    for nothing in (None, {}, {"sources": [{"latestOffset": None}, {"latestOffset": '{"frames": 1}'}, {}]}):
        assert source_metrics(nothing) == []


@pytest.mark.parametrize("able", [True, False])
def test_where_metrics_are_is_told_once(able, monkeypatch, caplog):
    reader = type("Reader", (), {"reportLatestOffset": None} if able else {})
    monkeypatch.setattr(progress, "DataSourceStreamReader", reader)
    monkeypatch.setattr(progress, "_told", [])
    with caplog.at_level(logging.INFO, "stompcodec.spark"):
        for _ in range(3):
            tell_once()
    (record,) = caplog.records
    assert record.levelname == ("INFO" if able else "WARNING")
    assert ("sources[].latestOffset" in record.message) is able


# ---- with Spark ----


@pytest.mark.slow
def test_the_supervisor_of_the_page_survives_kills_of_the_source(spark, tmp_path):
    """Its code, taken literally: rows are there once, and the progress tells of the source."""
    if not hasattr(DataSourceStreamReader, "reportLatestOffset"):
        pytest.skip("PySpark before 4.2 asks a source for nothing that the progress could show")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "jobs.supervise(" in block]
    failures = []
    with live_broker() as broker:
        code = code.replace("stomp://localhost:61613", broker.url)
        for before, name in (('frames, "', "archive"), ('checkpoint="', "checkpoint"), ('"spoolDir", "', "spool")):
            code = code.replace(f'{before}{name}"', f'{before}{tmp_path / name}"')
        assert code.count(str(tmp_path)) == 3

        def run():
            try:
                exec(compile(code, "supervised.py", "exec"), {"__name__": "supervised"})
            except BaseException as error:
                failures.append(error)

        def check():
            assert not failures, failures

        thread = threading.Thread(target=run)
        thread.start()
        try:
            query = goes_on_when_killed(spark, broker, "/queue/orders", tmp_path / "spool", check)
            wait_for(lambda: source_metrics(query.lastProgress)[0]["unacknowledged"] == 0)
            (metrics,) = source_metrics(query.lastProgress)
        finally:
            for query in spark.streams.active:
                query.stop()
            thread.join(patience(120))
        assert not failures
        assert not thread.is_alive()
    rows = spark.read.parquet(str(tmp_path / "archive")).select("message_id").collect()
    assert len({row.message_id for row in rows}) == len(rows) == 40
    assert metrics["description"] == f"stomp: /queue/orders at {broker.url}, spool {tmp_path / 'spool'}"
    assert (metrics["backlogBytes"], metrics["unacknowledged"], metrics["stalled"]) == (0, 0, None)
    assert metrics["connected"] is True
    assert metrics["spoolBytes"] > 0
    assert 0 <= metrics["lastFrameAgeSeconds"] < patience(120)
