"""The verdict on a feed: the table of thresholds, and the result of applying it to the figures of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stompcodec.errors import ConfigError
from stompcodec.shown import count, duration, finite, octets, plural, share
from stompcodec.spark.report.text import visible

#: Levels from good to bad, with the word that the page shows.
LEVELS = {"healthy": "Healthy", "look": "Look here", "unhealthy": "Unhealthy"}


class Threshold(NamedTuple):
    """Two upper limits of a figure: above `look` it needs a look, above `bad` it is unhealthy."""

    name: str
    meaning: str
    unit: str
    """"count", "share" (of 1), "seconds", "octets"."""
    look: float | None
    """Look here above this; None for never."""
    bad: float | None
    """Unhealthy above this; None for never."""


#: Default thresholds. `report(thresholds={"lag_p95_seconds": (10, 60)})` replaces some.
THRESHOLDS: tuple[Threshold, ...] = (
    Threshold("backlog_octets", "bytes in the spool that the query has not read yet", "octets", 64 * 2**20, 2**30),
    Threshold("age_seconds", "from the newest frame to the time of this page", "seconds", None, None),
    Threshold("missing", "messages that were produced and are not in the sink (proof)", "count", 0, 0),
    Threshold("sink_duplicates", "messages that are in the sink twice (proof)", "count", 0, 0),
    Threshold(
        "duplicates", "frames in the archive with a destination, message-id and body seen before", "share", 0, 0.01
    ),
    Threshold("redelivered", "frames the broker marked as redelivered", "share", 0.05, 0.5),
    Threshold("malformed", "frames that break the STOMP protocol (malformed)", "share", 0, 0.01),
    Threshold("quarantined", "records whose body did not fit the schema (quarantined)", "share", 0.001, 0.05),
    Threshold("lag_p95_seconds", "p95 lag: 95 % of the frames came so soon after they were sent", "seconds", 15, 120),
    Threshold("sent_ahead", "frames that came before they were sent: clocks disagree", "share", 0.01, None),
    Threshold("silences", "silences: long times without any frame", "count", 0, None),
    Threshold("longest_silence_seconds", "the longest time without any frame", "seconds", None, 300),
    Threshold("sequence_gaps", "numbers left out in the sequence of a destination (metrics)", "count", 0, None),
    Threshold("stale_seconds", "since the last frame, while the spool is still open", "seconds", 600, 3600),
)


def thresholds_of(changed: Mapping[str, tuple[float | None, float | None]] | None = None) -> tuple[Threshold, ...]:
    """Return the thresholds with some limits replaced; raise ConfigError for unknown names and non-numeric limits.

    >>> {each[0]: each[3:] for each in thresholds_of({"missing": (5, 10)})}["missing"]
    (5.0, 10.0)
    """
    changed = dict(changed or {})
    found = []
    for threshold in THRESHOLDS:
        if threshold.name in changed:
            limits = changed.pop(threshold.name)
            if len(limits) != 2 or any(limit is not None and finite(limit) is None for limit in limits):
                raise ConfigError(f"threshold {threshold.name}: must be two numbers (look, bad), or None for never")
            threshold = threshold._replace(look=finite(limits[0]), bad=finite(limits[1]))
        found.append(threshold)
    if changed:
        names = ", ".join(threshold.name for threshold in THRESHOLDS)
        raise ConfigError(f"threshold {visible(next(iter(changed)))}: unknown; use one of {names}")
    return tuple(found)


def _rare(part: str, word: str, what: str) -> Callable[[Mapping[str, Any]], str]:
    def say(figures: Mapping[str, Any]) -> str:
        many, whole = figures[part], figures["records" if part == "quarantined" else "frames"]
        return f"{plural(many, word)} {what} ({share(many, whole)})"

    return say


#: Texts for crossed thresholds.
_SAY: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "backlog_octets": lambda f: f"backlog: {octets(f['backlog_octets'])} in the spool are not read yet",
    "age_seconds": lambda f: f"the newest frame is {duration(f['age_seconds'])} old",
    "missing": lambda f: plural(f["missing"], "message") + " missing in the sink",
    "sink_duplicates": lambda f: plural(f["sink_duplicates"], "message") + " more than once in the sink",
    "duplicates": _rare("duplicates", "duplicate", "in the archive"),
    "redelivered": _rare("redelivered", "frame", "redelivered"),
    "malformed": _rare("malformed", "frame", "malformed"),
    "quarantined": _rare("quarantined", "record", "in quarantine"),
    "lag_p95_seconds": lambda f: f"p95 lag {duration(f['lag_p95_seconds'])}: 5 % of the frames took longer",
    "sent_ahead": _rare("sent_ahead", "frame", "that came before they were sent: clocks disagree"),
    "silences": lambda f: plural(f["silences"], "silence") + f" longer than {duration(f['silence_seconds'])}",
    "longest_silence_seconds": lambda f: f"nothing came for {duration(f['longest_silence_seconds'])}",
    "sequence_gaps": lambda f: f"{count(f['sequence_gaps'])} left out in sequences: messages may be lost",
    "stale_seconds": lambda f: f"the spool is open, and nothing came for {duration(f['stale_seconds'])}",
}


def verdict_of(figures: Mapping[str, Any], thresholds: tuple[Threshold, ...] = THRESHOLDS) -> dict[str, Any]:
    """Return `level` (a key of `LEVELS`), `word`, and `reasons`, the worst first, each with level, name, text and
    limit.

    A figure that is None or missing is unknown and crosses no threshold.

    >>> verdict_of({"frames": 100, "malformed": 0})["level"]
    'healthy'
    >>> verdict_of({"frames": 100, "malformed": 2})["reasons"]
    [{'level': 'unhealthy', 'name': 'malformed', 'text': '2 frames malformed (2 %)', 'limit': 'unhealthy above 1 %'}]
    """
    reasons = []
    if not figures.get("frames"):
        reasons.append({"level": "unhealthy", "name": "frames", "text": "there are no frames at all", "limit": ""})
    for threshold in thresholds:
        level = level_of(threshold, figures)
        if level != "healthy":
            said = {"text": _SAY[threshold.name](figures), "limit": limit_of(threshold, level)}
            reasons.append({"level": level, "name": threshold.name, **said})
    order = list(LEVELS)
    reasons.sort(key=lambda reason: -order.index(reason["level"]))
    level = reasons[0]["level"] if reasons else "healthy"
    return {"level": level, "word": LEVELS[level], "reasons": reasons}


def written(threshold: Threshold, value: float) -> str:
    """Return a figure or limit of a threshold in its unit.

    >>> written(THRESHOLDS[0], 1536), written(Threshold("malformed", "", "share", 0, 0.01), 0.01)
    ('1.5 KiB', '1 %')
    """
    if threshold.unit == "share":
        return share(value, 1)
    return {"seconds": duration, "octets": octets}.get(threshold.unit, count)(value)


def limit_of(threshold: Threshold, level: str) -> str:
    """Return a text that says where a level begins.

    >>> limit_of(Threshold("silences", "", "count", 0, None), "look")
    'look here above 0'
    """
    limit = threshold.bad if level == "unhealthy" else threshold.look
    return "" if limit is None else f"{LEVELS[level].lower()} above {written(threshold, limit)}"


def value_of(threshold: Threshold, figures: Mapping[str, Any]) -> float | None:
    """Return a figure as its threshold sees it, as a share of 1 for that unit; None if unknown."""
    value = finite(figures.get(threshold.name))
    if value is None or threshold.unit != "share":
        return value
    whole = finite(figures.get("records" if threshold.name == "quarantined" else "frames"))
    return value / whole if whole else 0.0


def level_of(threshold: Threshold, figures: Mapping[str, Any]) -> str:
    """Return the level of one figure."""
    value = value_of(threshold, figures)
    if value is None:
        return "healthy"
    if threshold.bad is not None and value > threshold.bad:
        return "unhealthy"
    return "look" if threshold.look is not None and value > threshold.look else "healthy"
