"""The report, with Spark: what it counts is what a few lines of Python count."""

import itertools
import json
import math
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest

pytest.importorskip("pyspark")

from spark.report.making import HOSTILE, START, Checked, frame, held, sick_feed, write_archive, write_exploded

from stompcodec.capture import CaptureWriter
from stompcodec.errors import ConfigError, StoreError
from stompcodec.spark.report import data, report


def silences_of(times):
    return [(a, b) for a, b in itertools.pairwise(sorted(times)) if b - a > 60e6]


def check_files(folder, found):
    """Both files are there, say the same, are small, and hold nothing that runs."""
    assert json.loads((folder / "report.json").read_text()) == found
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert len(page) < 1_000_000
    assert {"main", "table", "details"} <= set(Checked(page).tags)


def test_figures_of_a_sick_feed_are_those_python_counts(spark, tmp_path):
    frames = sick_feed(4000)
    archive = write_archive(tmp_path / "archive", frames)
    more = {"exploded": write_exploded(tmp_path / "exploded", 1000, held(200)), "spool": tmp_path / "s.stompcap"}
    more |= {"proof": {"produced": 4000, "in_sink": 3999, "missing": 1, "duplicates": 0}, "title": "Sick <feed>"}
    with CaptureWriter(tmp_path / "s.stompcap") as writer:
        writer.append(b"MESSAGE\n\n\0", START)
    found = report(spark, archive, tmp_path / "out", now=START / 1e6 + 7200, **more)
    figures, rate = found["figures"], found["rate"]
    times = [each["received_at"] for each in frames]
    lags = sorted((each["received_at"] - each["sent_at"]) / 1e6 for each in frames if each["sent_at"] is not None)
    ids = Counter((each["destination"], each["message_id"], each["body"]) for each in frames if each["message_id"])
    quiet = silences_of(times)
    wanted = {
        **{"frames": len(frames), "octets": sum(each["length"] for each in frames), "with_lag": len(lags)},
        **{"first": min(times), "last": max(times), "redelivered": sum(each["redelivered"] for each in frames)},
        **{"malformed": sum("error" in each for each in frames), "duplicates": sum(ids.values()) - len(ids)},
        **{"longest_silence_seconds": max(b - a for a, b in quiet) / 1e6, "quarantined": 200, "records": 1200},
        "age_seconds": max(0.0, 7200 - (max(times) - START) / 1e6),
    }
    assert {name: figures[name] for name in wanted} == pytest.approx(wanted)
    assert figures["duplicates"] == sum(rate["duplicates"]) > 0
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        near = [lags[min(len(lags) - 1, max(0, round(len(lags) * at)))] for at in (share - 0.01, share + 0.01)]
        assert near[0] <= figures[f"lag_{name}_seconds"] <= near[1]
    longest_first = sorted(quiet, key=lambda each: each[0] - each[1])
    assert [(each["start"], each["end"]) for each in found["silences"]] == longest_first
    width = rate["bucket_seconds"] * 1e6
    by_bar = Counter(math.floor((time - rate["start"]) / width) for time in times)
    assert [sum(column) for column in zip(*rate["frames"])] == [by_bar[bar] for bar in range(rate["buckets"])]
    assert rate["start"] % width == 0
    sizes = Counter(each["length"].bit_length() - 1 for each in frames)
    assert {each["from"].bit_length() - 1: each["frames"] for each in found["sizes"] if each["frames"]} == sizes
    places = Counter(each["destination"] for each in frames)
    assert {each["destination"]: each["frames"] for each in found["destinations"]} == places
    first = list(zip(rate["destinations"], map(sum, rate["frames"])))[:3]
    assert first == places.most_common(3)
    reasons = Counter(each["_reason"] for each in held(200))
    assert {each["reason"]: each["count"] for each in found["quarantine"]["reasons"]} == reasons
    kinds = Counter(each["error"].partition(":")[0] for each in frames if "error" in each)
    assert {each["reason"]: each["count"] for each in found["malformed"]["reasons"]} == kinds
    assert found["verdict"]["level"] == "unhealthy"
    assert "1 message missing in the sink" in [each["text"] for each in found["verdict"]["reasons"]]
    check_files(tmp_path / "out", found)


@pytest.mark.slow
def test_hostile_times_names_and_numbers(spark, tmp_path):
    far = 9_223_372_036_854_775_807
    frames = [
        frame(0, destination=HOSTILE[:60], message_id=HOSTILE),
        frame(1, destination="007"),
        frame(2, destination=None, message_id=None, error="truncated: " + HOSTILE, body=b"\xff" * 10_000),
        frame(3, length=2**31 - 1),
        frame(4, length=-5),
        frame(5, length=None, redelivered=None),
        frame(6, received_at=None, sent_at=None),
        frame(7, received_at=None),
        frame(8, sent_at=-far),
        frame(9, sent_at=far),
    ]
    found = report(spark, write_archive(tmp_path / "archive", frames), tmp_path / "out", now=START / 1e6)
    wanted = {"frames": 10, "without_time": 1, "sent_ahead": 1, "seconds": 9, "lag_p50_seconds": 0.2}
    assert {name: found["figures"][name] for name in wanted} == pytest.approx(wanted)
    assert "007" in [each["destination"] for each in found["destinations"]]
    assert len(found["malformed"]["samples"][0]["raw"]) <= 500
    check_files(tmp_path / "out", found)
    # times of a feed that has none of its own are those of sending, and may be anywhere
    frames += [frame(9, received_at=None, sent_at=sent) for sent in (-far, far)]
    found = report(spark, write_archive(tmp_path / "archive2", frames), tmp_path / "out2", now=START / 1e6)
    assert sum(map(sum, found["rate"]["frames"])) == 11
    assert found["rate"]["buckets"] <= 181
    check_files(tmp_path / "out2", found)


def test_silences_in_and_between_chunks(spark):
    hour = 3600
    seconds = [0, 1, 200, 3599, 3601, 3602.5, 7300, 7301, 5 * hour, 5 * hour + 59, 5 * hour + 119.5]
    times = [START // (hour * 10**6) * hour * 10**6 + round(each * 1e6) for each in seconds]
    rows = spark.createDataFrame([(float(time),) for time in times], "time double")
    total, expected = {"silence_seconds": 60.0}, silences_of(times)
    found = data._silences(rows, total, float(times[0]), float(times[-1]))
    assert {(each["start"], each["end"]) for each in found} == set(expected)
    assert total["silences"] == len(expected) == 5
    assert total["silent_seconds"] == pytest.approx(sum(b - a for a, b in expected) / 1e6)
    assert total["longest_silence_seconds"] == pytest.approx(max(b - a for a, b in expected) / 1e6)


def test_ids_that_came_with_other_bodies_are_no_duplicates(spark):
    rows = [("a", "1", 5, 7, 0.0), ("a", "1", 5, 8, 0.0), ("b", "1", 5, 7, 0.0), ("a", None, 5, 7, 0.0)]
    more = [*rows, ("a", "1", 5, 7, 1.0), ("a", "1", 5, 7, 2.0)]
    schema = "destination string, id string, octets long, hash long, time double"
    for each, found in ((rows, {}), (more, {0: 2})):
        assert data._duplicates(spark.createDataFrame(each, schema), None) == found


def test_part_of_an_archive_and_other_thresholds(spark, tmp_path):
    archive = write_archive(tmp_path / "archive", [frame(second, redelivered=second == 30) for second in range(100)])
    begin = datetime.fromtimestamp(START / 1e6, timezone.utc)
    absent = {"exploded": [tmp_path / "none"], "metrics": tmp_path / "none", "spool": tmp_path / "none"}
    part = {"since": begin + timedelta(seconds=20), "until": begin + timedelta(seconds=50)}
    found = report(spark, archive, tmp_path / "out", **absent, **part, thresholds={"redelivered": (0.01, 0.02)})
    assert [found["figures"][name] for name in ("frames", "records", "sequence_gaps")] == [30, None, None]
    assert found["quarantine"] is None
    assert found["spool"]["problems"]
    assert [each["name"] for each in found["verdict"]["reasons"]] == ["redelivered"]
    assert found["verdict"]["level"] == "unhealthy"


def test_an_archive_that_is_empty_or_not_there(spark, tmp_path):
    (tmp_path / "archive").mkdir()
    found = report(spark, tmp_path / "archive", tmp_path / "out")
    assert found["figures"]["frames"] == 0
    assert found["verdict"]["reasons"][0]["text"] == "there are no frames at all"
    check_files(tmp_path / "out", found)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="there is no archive"):
        report(spark, tmp_path / "none", tmp_path / "out")
    with pytest.raises(ConfigError, match="nonsense"):
        report(spark, tmp_path / "archive", tmp_path / "out", thresholds={"nonsense": (1, 2)})
    with pytest.raises(StoreError, match="cannot be written"):
        report(spark, tmp_path / "archive", tmp_path / "file" / "out")
