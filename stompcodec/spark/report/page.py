"""The page of a report: the contents of report.json as one self-contained HTML file. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from stompcodec.spark.report.sections import SECTIONS
from stompcodec.spark.report.text import count, duration, escape, moment, octets, plural, share
from stompcodec.spark.report.verdict import LEVELS, Threshold, limit_of

_MARKS = {"healthy": "M11.5 20l5.5 5.5 10-11", "look": "M19 10v11M19 27v.6", "unhealthy": "M13 13l12 12M25 13l-12 12"}
_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="generator" content="stompcodec">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<main>
"""


def page_of(found: Mapping[str, Any]) -> str:
    """Return the whole page for the contents of report.json.

    Every text is escaped and cut, with control characters made visible; the page stays below 1 MB.
    """
    title = found["title"]
    parts = [_HEAD.format(title=escape(title), css=_css()), _header(found), _verdict(found), _tiles(found)]
    parts.append('<div class="cards">')
    parts += [section(found) for section in SECTIONS]
    parts += ["</div>\n", _footer(found), "</main>\n</body>\n</html>\n"]
    return "".join(parts)


@cache
def _css() -> str:
    return files("stompcodec.spark.report").joinpath("report.css").read_text(encoding="utf-8")


def _header(found: Mapping[str, Any]) -> str:
    figures = found["figures"]
    span = "no times are known"
    if figures["first"] is not None:
        span = f"{moment(figures['first'])} to {moment(figures['last'])} UTC, {duration(figures['seconds'])}"
    age = figures.get("age_seconds")
    old = "" if age is None else f"; the newest frame was {duration(age)} old then"
    made = f'<p class="made">As of <b>{moment(found["generated"])} UTC</b>, when this page was made{old}.</p>'
    return f"<header><h1>{escape(found['title'])}</h1><p>{span}</p>{made}</header>\n"


def _footer(found: Mapping[str, Any]) -> str:
    return (
        f"<footer><p>Made {moment(found['generated'])} UTC from {escape(found['archive'], 200)}. "
        "All times are UTC. The same figures stand in report.json.</p></footer>\n"
    )


def _verdict(found: Mapping[str, Any]) -> str:
    verdict, figures = found["verdict"], found["figures"]
    level = verdict["level"]
    reasons = "".join(
        f'<li class="{escape(each["level"])}"><span>{escape(each["text"])}'
        f"<small>{escape(each.get('limit', ''))}</small></span></li>"
        for each in verdict["reasons"]
    )
    if reasons:
        said = f"<ul>{reasons}</ul>"
    else:
        proof = "nothing is missing, " if found.get("proof") else ""
        said = (
            f"<p>{count(figures['frames'])} frames in {duration(figures['seconds'])}: "
            f"{proof}no threshold was crossed.</p>"
        )
        said += (
            '<p class="note">Each limit stands below its figure, and all of them under “What the verdict looks at”.</p>'
        )
    mark = (
        '<svg class="mark" viewBox="0 0 38 38" aria-hidden="true"><circle cx="19" cy="19" r="18"/>'
        f'<path d="{_MARKS[level]}"/></svg>'
    )
    return (
        f'<section class="verdict {level}" aria-label="Verdict">{mark}<div><h2 class="word">{LEVELS[level]}</h2>'
        f"{said}</div></section>\n"
    )


def _tiles(found: Mapping[str, Any]) -> str:
    f = found["figures"]
    width = duration(found["rate"]["bucket_seconds"]) if found["rate"] else ""
    numbers = "no sequence is known" if f["sequence_gaps"] is None else "numbers left out"
    backlog, newest = f.get("backlog_octets"), f.get("age_seconds")
    spooled = "no spool and checkpoint given" if backlog is None else "in the spool, not read yet"
    tiles = [
        ("Backlog", octets(backlog), spooled, ("backlog_octets",)),
        ("Newest frame", _ago(newest), _until(f), ("stale_seconds", "age_seconds")),
        ("Lag p95", duration(f["lag_p95_seconds"]), _lags(f), ("lag_p95_seconds", "sent_ahead")),
        ("Missing", count(f["missing"]), _missing(f), ("missing", "sink_duplicates")),
        ("Frames", count(f["frames"]), f"{octets(f['octets'])} · {plural(f['destinations'], 'destination')}", ()),
        ("Frames per second", count(f["per_second"]), f"{count(f['per_second_peak'])} at most (in {width})", ()),
        ("Silences", count(f["silences"]), _longest(f), _SILENT),
        ("Sequence gaps", count(f["sequence_gaps"]), numbers, ("sequence_gaps",)),
        ("Duplicates", count(f["duplicates"]), f"same id and body, {_of_frames(f, 'duplicates')}", ("duplicates",)),
        ("Redelivered", count(f["redelivered"]), f"by the broker, {_of_frames(f, 'redelivered')}", ("redelivered",)),
        ("Malformed", count(f["malformed"]), f"break the protocol, {_of_frames(f, 'malformed')}", ("malformed",)),
        ("Quarantined", count(f["quarantined"]), _of_records(f), ("quarantined",)),
    ]
    drawn = "".join(
        f'<li class="tile {_worst(found, names)}"><span>{name}</span><b>{value}</b><small>{below}</small>'
        f"{_limit(found, names)}</li>"
        for name, value, below, names in tiles
    )
    return f'<ul class="tiles" aria-label="Key figures">{drawn}</ul>\n'


_SILENT = ("silences", "longest_silence_seconds")


def _longest(figures: Mapping[str, Any]) -> str:
    return f"over {duration(figures['silence_seconds'])}; longest {duration(figures['longest_silence_seconds'])}"


def _ago(seconds: Any) -> str:
    return "–" if seconds is None else f"{duration(seconds)} ago"


def _limit(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the limits of the first of these figures that has any, as in the table of thresholds."""
    for each in found["thresholds"]:
        threshold = Threshold(**each)
        limits = [limit_of(threshold, level) for level in ("look", "unhealthy")]
        if threshold.name in names and any(limits):
            if threshold.look == threshold.bad:
                limits = limits[1:]
            return f'<small class="limit">{", ".join(filter(None, limits))}</small>'
    return ""


def _missing(figures: Mapping[str, Any]) -> str:
    if figures["missing"] is None:
        return "the sender gave no account"
    return "sent, and not in the sink"


def _of_frames(figures: Mapping[str, Any], name: str) -> str:
    return f"{share(figures[name], figures['frames'])} of frames"


def _lags(figures: Mapping[str, Any]) -> str:
    if figures["lag_p50_seconds"] is None:
        return "no sending times"
    return " · ".join(
        f"p{name} {duration(figures[f'lag_p{name}_seconds'])}".replace(" ", "\N{NO-BREAK SPACE}") for name in (50, 99)
    )


def _until(figures: Mapping[str, Any]) -> str:
    if figures["without_time"]:
        return f"{plural(figures['without_time'], 'frame')} without time"
    return f"{moment(figures['last'])} UTC"


def _of_records(figures: Mapping[str, Any]) -> str:
    if figures["quarantined"] is None:
        return "nothing was exploded"
    return f"invalid body, {share(figures['quarantined'], figures['records'])} of {count(figures['records'])} records"


def _worst(found: Mapping[str, Any], names: Sequence[str]) -> str:
    levels = [each["level"] for each in found["verdict"]["reasons"] if each["name"] in names]
    return max(levels, key=list(LEVELS).index, default="")
