"""A program with a session of Spark Connect: it runs the jobs, and prints what came out as JSON."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stompcodec.spark import from_stomp, jobs, to_stomp
from stompcodec.spark.report import report

#: Spark gives each of its Python processes 10 s to start, and no setting changes that.
SLOW = "Python worker failed to connect back"


def ended(write, *frames_and_out):
    """Start a query, and wait for its end; again where the machine was too slow for Spark."""
    for last in (False, False, False, True):
        try:
            query = write(*frames_and_out)
            query.awaitTermination()
            return
        except Exception as error:
            if last or SLOW not in str(error):
                raise


def jobs_of(frames, out):
    """The three jobs that write: what they take, and where they put it."""
    return [
        (jobs.archive, frames, str(out / "archive")),
        (jobs.write_exploded, jobs.explode(frames, schema="n long"), str(out / "rows")),
        (jobs.write_metrics, jobs.metrics(frames), str(out / "metrics")),
    ]


def batches(spark, source, out):
    frames = spark.read.format("stompfile").load(source)
    made = [write(*what).counts for write, *what in jobs_of(frames, out)]
    found = {"frames": frames.count(), "made": made, "again": []}
    found["read"] = jobs.read_archive(spark, str(out / "archive")).count()
    for write, *what in jobs_of(frames, out):
        try:
            write(*what)
        except Exception as error:
            found["again"].append(type(error).__name__)
    found["appended"] = jobs.archive(frames, str(out / "archive"), mode="append").counts
    paths = {"exploded": str(out / "rows"), "metrics": str(out / "metrics"), "spool": source}
    figures = report(spark, str(out / "archive"), str(out / "report"), **paths)["figures"]
    found["report"] = {name: figures[name] for name in ("frames", "duplicates", "records", "quarantined")}
    found["deadletters"] = jobs.deadletters(frames).agg(F.sum("count")).first()[0]
    octets = frames.select(to_stomp(F.struct("command", "headers", "body", "error")).alias("value"))
    ids = octets.select(from_stomp("value", "message_id string").alias("frame")).select("frame.message_id")
    found["functions"] = [ids.count(), ids.distinct().count(), ids.where("message_id = 'id-7'").count()]
    return found


def streams(spark, source, out):
    frames = spark.readStream.format("stompfile").load(source)
    for _ in range(2):  # the second time there is nothing new
        for write, *what in jobs_of(frames, out):
            ended(write, *what)
    return {
        "archived": spark.read.parquet(str(out / "archive")).count(),
        "rows": spark.read.parquet(str(out / "rows" / "rows")).count(),
        "quarantine": jobs.read_quarantine(spark, str(out / "rows")).count(),
        "counted": jobs.read_metrics(spark, str(out / "metrics")).agg(F.sum("count")).first()[0],
    }


def live(spark, url, out):
    options = {"url": url, "destination": "/queue/in", "spoolDir": str(out / "spool"), "idleTimeout": "500ms"}
    frames = spark.readStream.format("stomp").options(**options).schema("n int, body binary").load()
    ended(jobs.write_exploded, jobs.explode(frames, schema="n long"), str(out / "live"))
    sent = spark.range(3).selectExpr("'/queue/out' as destination", "cast(id as string) as body")
    sent.write.format("stomp").mode("append").options(url=url).save()
    spool = spark.read.format("stompfile").load(str(out / "spool"))
    replayed = jobs.replay(spool, {"url": url}, destination="/queue/out")
    return {"rows": spark.read.parquet(str(out / "live" / "rows")).count(), "replayed": replayed}


def main():
    source, out, url = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.session.timeZone", "UTC")
    for key in ("spark.sql.shuffle.partitions", "spark.default.parallelism"):
        builder = builder.config(key, "2")
    spark = builder.getOrCreate()
    found = {"batches": batches(spark, source, out / "batch"), "streams": streams(spark, source, out / "stream")}
    print(json.dumps({**found, "live": live(spark, url, out / "live")}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
