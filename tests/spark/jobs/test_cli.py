"""stompcodec pipeline from a capture to tables, in the session of the other tests."""

import json
import threading

import pytest

pytest.importorskip("click")

from click.testing import CliRunner
from patience import patience
from spark.live_making import goes_on_when_killed, live_broker
from spark.making import make_capture, message

from stompcodec.cli.verbs.pipeline import command
from stompcodec.spark import jobs

EVENT = b'[{"CA_MSG": {"time": "1647015981000", "area_id": "X1", "msg_type": "CA"}}]'


def run(*arguments):
    return CliRunner().invoke(command, list(map(str, arguments)))


def good(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, (result.stderr, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def wrong(said, *arguments):
    """A command that fails says so in one line."""
    result = run(*arguments)
    assert result.exit_code == 1, result.stdout
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_from_a_capture_to_tables(spark, tmp_path):
    frames = [message(n, f"/topic/TD_{n % 2}", b"oops" if n % 10 == 0 else EVENT) for n in range(40)]
    frames += [b"MESSAGE\nbroken\n\nx\0", message(1, body=b"x")]
    capture, archive = make_capture(tmp_path / "feed.stompcap", frames), tmp_path / "archive"
    assert good("archive", capture, "-o", archive) == [{"archive": str(archive), "frames": 42}]
    assert jobs.read_archive(spark, str(archive)).count() == 42

    for how, said in ((["-p", "none"], "preset 'none'"), (["-s", "n odd odd"], "neither Spark's JSON")):
        wrong(said, "explode", capture, "-o", tmp_path / "td", *how)
    assert not (tmp_path / "td/rows").exists()
    out = ["-o", tmp_path / "td", "-p", "networkrail-td", "-d", "/topic/TD_*"]
    for source in (capture, archive):
        (counts,) = good("explode", source, *out, "--existing", "overwrite")
        del counts["output"]
        assert counts == {"frames": 41, "good_frames": 36, "quarantined_frames": 5, "rows": 36, "quarantine": 5}
    assert spark.read.parquet(str(tmp_path / "td/rows")).count() == 36
    wrong("already exists", "explode", capture, *out)

    rows = good("metrics", capture, "--window", "1 hour", "--sequence", "message-id")
    counts = {row["destination"]: row["count"] for row in rows}
    assert counts == {"/topic/TD_0": 20, "/topic/TD_1": 20, "/topic/a": 1, None: 1}
    assert [row["gaps"] for row in rows if row["count"] == 20] == [19, 19]
    table = run("metrics", archive)
    assert table.exit_code == 0
    assert "\x1b" not in table.stdout
    assert table.stdout.splitlines()[0].split()[:3] == ["start", "destination", "count"]


@pytest.mark.slow
def test_a_stream_goes_on_when_its_source_is_killed(spark, tmp_path):
    out, spool, results = tmp_path / "out", tmp_path / "spool", []
    with live_broker() as broker:
        arguments = ("explode", broker.url, "-d", "/queue/a", "--spool", spool, "-o", out, "-p", "networkrail-td")
        thread = threading.Thread(target=lambda: results.extend(good(*arguments)))
        thread.start()

        def check():
            assert thread.is_alive(), results

        try:
            goes_on_when_killed(spark, broker, "/queue/a", spool, check, EVENT)
        finally:
            for query in spark.streams.active:
                query.stop()
            thread.join(patience(120))
    assert not thread.is_alive()
    assert results[0]["frames"] == 40
    assert spark.read.parquet(str(out / "rows")).count() == results[0]["rows"] == 40
