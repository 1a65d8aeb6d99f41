"""A driver to be killed. Its argument is JSON: `{"folder", "lanes": {name: {"format", "options"}}}`."""

import json
import os
import select
import sys
from pathlib import Path

from stompcodec.spark import session

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main():
    order = json.loads(sys.argv[1])
    settings = {"spark.driver.extraJavaOptions": QUICK, "spark.sql.shuffle.partitions": 2}
    spark = session("live", cores=2, memory="600m", **settings)
    queries = [_query(spark, Path(order["folder"], name), lane) for name, lane in order["lanes"].items()]
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    print(json.dumps({"driver": os.getpid(), "jvm": jvm}), flush=True)
    told = False
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        if not told and any(query.lastProgress and query.lastProgress["numInputRows"] for query in queries):
            told = True
            print(json.dumps({"batch": True}), flush=True)
        for query in queries:
            if not query.isActive:
                print(json.dumps({"failed": str(query.exception())[:2000]}), flush=True)
                os._exit(1)
    for query in queries:
        query.stop()
    spark.stop()


def _query(spark, folder, lane):
    frames = spark.readStream.format(lane["format"]).options(**lane["options"])
    writer = frames.schema("n long, redelivered boolean").load().writeStream.format("parquet")
    writer = writer.option("path", str(folder / "sink")).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime="0 seconds").start()


if __name__ == "__main__":
    main()
