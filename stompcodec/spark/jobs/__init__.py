"""Jobs on frames, as functions on DataFrames. `stompcodec pipeline` runs them; docs/pipeline.md describes their output.

frames = spark.read.format("stompfile").load("feed.stompcap")
jobs.archive(frames, "archive")
jobs.write_exploded(jobs.explode(frames, "networkrail-td"), "td")
jobs.write_metrics(jobs.metrics(frames), "metrics")
"""

from stompcodec.spark.jobs.explode import Preset, explode, preset_names, read_quarantine, write_exploded
from stompcodec.spark.jobs.frames import (
    archive,
    deadletters,
    metrics,
    paced,
    read_archive,
    read_metrics,
    replay,
    sequence_gaps,
    unique,
    write_metrics,
)
from stompcodec.spark.jobs.output import Job, SourceDiedError, supervise

__all__ = [
    "Job",
    "Preset",
    "SourceDiedError",
    "archive",
    "deadletters",
    "explode",
    "metrics",
    "paced",
    "preset_names",
    "read_archive",
    "read_metrics",
    "read_quarantine",
    "replay",
    "sequence_gaps",
    "supervise",
    "unique",
    "write_exploded",
    "write_metrics",
]
