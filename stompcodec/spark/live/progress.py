"""Metrics of a live source in Spark's progress: backlog, spool, unacknowledged messages, age of the last frame.

Spark takes metrics only from Java sources, and shows a Python source by the name of a Java object. So the metrics are
part of the latest offset that the source reports, which Spark only displays: `sources[].latestOffset` of the progress.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

#: Key of the metrics in a reported offset. No chain has this name.
METRICS = "#metrics"
_log = logging.getLogger("stompcodec.spark")
_told: list[str] = []


def with_metrics(offset: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return an offset to report, with the metrics of the source.

    >>> with_metrics({"frames": 7}, {"backlogBytes": 3})
    {'frames': 7, '#metrics': {'backlogBytes': 3}}
    """
    return {**offset, METRICS: dict(metrics)}


def source_metrics(progress: Any) -> list[dict[str, Any]]:
    """Return the metrics of each live source "stomp" in a progress of Spark, in the order of the sources.

    Each is a dictionary: `description`; `backlogBytes`, received but not in a batch yet; `spoolBytes`;
    `unacknowledged`, messages delivered but not acknowledged; `lastFrameAgeSeconds`, None without a frame; `connected`;
    and `stalled`, the reason why nothing is written, None while all is well.

    Args:
        progress: a `StreamingQueryProgress`, from `query.lastProgress` or a listener, or a dictionary or JSON of one;
            None, as before the first batch, gives an empty list.

    Raises:
        ValueError: a text that is not JSON.

    >>> latest = json.dumps({"frames": 7, "#metrics": {"backlogBytes": 3}})
    >>> source_metrics({"sources": [{"latestOffset": latest}, {"latestOffset": None}]})
    [{'backlogBytes': 3}]
    """
    if progress is None:
        return []
    if not isinstance(progress, (str, Mapping)):
        progress = progress.json
    found = json.loads(progress) if isinstance(progress, str) else progress
    metrics = []
    for source in found.get("sources") or []:
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            try:
                latest = json.loads(latest)
            except ValueError:  # another source
                continue
        if isinstance(latest, Mapping) and isinstance(latest.get(METRICS), Mapping):
            metrics.append(dict(latest[METRICS]))
    return metrics


def tell_once() -> None:
    """Log once where this PySpark shows the metrics of a source, or that it shows none."""
    if _told:
        return
    if hasattr(DataSourceStreamReader, "reportLatestOffset"):
        text = "PySpark %s takes no metrics from Python sources: they are in sources[].latestOffset of the progress"
        level = logging.INFO
    else:
        text = "PySpark %s shows nothing of a Python source in the progress: PySpark 4.2 shows backlog, spool and age"
        level = logging.WARNING
    _told.append(text)
    _log.log(level, text + " (docs/spark-semantics.md)", pyspark.__version__)
