"""Jobs on frames, as functions on DataFrames. `stompcodec pipeline` runs them; docs/pipeline.md describes their output.

frames = spark.read.format("stompfile").load("feed.stompcap")
jobs.archive(frames, "archive")
jobs.write_exploded(jobs.explode(frames, "networkrail-td"), "td")
jobs.write_metrics(jobs.metrics(frames), "metrics")
"""

from stompcodec.spark.jobs.archive import archive, read_archive, unique
from stompcodec.spark.jobs.deadletters import deadletters
from stompcodec.spark.jobs.explode import explode, read_quarantine, write_exploded
from stompcodec.spark.jobs.metrics import metrics, read_metrics, sequence_gaps, write_metrics
from stompcodec.spark.jobs.presets import Preset, preset_names
from stompcodec.spark.jobs.replay import paced, replay
from stompcodec.spark.jobs.supervise import SourceDiedError, supervise

__all__ = [
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
