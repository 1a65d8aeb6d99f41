"""The page of a report: the contents of report.json as one self-contained HTML file. Pure functions.

Each section is a function from those contents to HTML, or to "" if it has nothing to say: a sentence, a plot, a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from stompcodec.shown import count, duration, finite, octets, plural, share
from stompcodec.spark.report.plot import HALF, Series, plot
from stompcodec.spark.report.text import escape, moment
from stompcodec.spark.report.verdict import LEVELS, Threshold, level_of, limit_of, value_of, written

Found = Mapping[str, Any]
_MICRO = 1e6
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


def page_of(found: Found) -> str:
    """Return the whole page for the contents of report.json.

    Every text is escaped and cut, with control characters made visible; the page stays below 1 MB.
    """
    parts = [_HEAD.format(title=escape(found["title"]), css=_css()), _header(found), _verdict(found), _tiles(found)]
    cards = "".join(section(found) for section in SECTIONS)
    foot = (
        f"<footer><p>Made {moment(found['generated'])} UTC from {escape(found['archive'], 200)}. "
        "All times are UTC. The same figures stand in report.json.</p></footer>\n"
    )
    return "".join([*parts, f'<div class="cards">{cards}</div>\n', foot, "</main>\n</body>\n</html>\n"])


@cache
def _css() -> str:
    return files("stompcodec.spark.report").joinpath("report.css").read_text(encoding="utf-8")


def _header(found: Found) -> str:
    figures, span = found["figures"], "no times are known"
    if figures["first"] is not None:
        span = f"{moment(figures['first'])} to {moment(figures['last'])} UTC, {duration(figures['seconds'])}"
    age = figures.get("age_seconds")
    old = "" if age is None else f"; the newest frame was {duration(age)} old then"
    made = f'<p class="made">As of <b>{moment(found["generated"])} UTC</b>, when this page was made{old}.</p>'
    return f"<header><h1>{escape(found['title'])}</h1><p>{span}</p>{made}</header>\n"


def _verdict(found: Found) -> str:
    verdict, figures = found["verdict"], found["figures"]
    said = "".join(
        f'<li class="{escape(each["level"])}"><span>{escape(each["text"])}'
        f"<small>{escape(each.get('limit', ''))}</small></span></li>"
        for each in verdict["reasons"]
    )
    if said:
        said = f"<ul>{said}</ul>"
    else:
        proof = "nothing is missing, " if found.get("proof") else ""
        said = (
            f"<p>{count(figures['frames'])} frames in {duration(figures['seconds'])}: {proof}no threshold was crossed."
            '</p><p class="note">Each limit stands below its figure, and all of them under “What the verdict looks '
            "at”.</p>"
        )
    mark = f'<circle cx="19" cy="19" r="18"/><path d="{_MARKS[verdict["level"]]}"/>'
    return (
        f'<section class="verdict {verdict["level"]}" aria-label="Verdict"><svg class="mark" viewBox="0 0 38 38" '
        f'aria-hidden="true">{mark}</svg><div><h2 class="word">{LEVELS[verdict["level"]]}</h2>{said}</div></section>\n'
    )


def _tiles(found: Found) -> str:
    f = found["figures"]
    width = duration(found["rate"]["bucket_seconds"]) if found["rate"] else ""
    backlog, newest, lag = f.get("backlog_octets"), f.get("age_seconds"), f["lag_p50_seconds"]
    no_time = f"{plural(f['without_time'], 'frame')} without time" if f["without_time"] else f"{moment(f['last'])} UTC"
    named = (f"p{name} {duration(f[f'lag_p{name}_seconds'])}" for name in (50, 99))
    quantiles = " · ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in named)
    bad = f"{share(f['quarantined'], f['records'])} of {count(f['records'])} records"
    silent = f"over {duration(f['silence_seconds'])}; longest {duration(f['longest_silence_seconds'])}"

    def part(name: str) -> str:
        return f"{share(f[name], f['frames'])} of frames"

    rows: list[tuple[str, str, str, tuple[str, ...]]] = [
        ("Backlog", octets(backlog),
         "no spool and checkpoint given" if backlog is None else "in the spool, not read yet", ("backlog_octets",)),
        ("Newest frame", "–" if newest is None else f"{duration(newest)} ago", no_time,
         ("stale_seconds", "age_seconds")),
        ("Lag p95", duration(f["lag_p95_seconds"]),
         "no sending times" if lag is None else quantiles,
         ("lag_p95_seconds", "sent_ahead")),
        ("Missing", count(f["missing"]),
         "the sender gave no account" if f["missing"] is None else "sent, and not in the sink",
         ("missing", "sink_duplicates")),
        ("Frames", count(f["frames"]), f"{octets(f['octets'])} · {plural(f['destinations'], 'destination')}", ()),
        ("Frames per second", count(f["per_second"]), f"{count(f['per_second_peak'])} at most (in {width})", ()),
        ("Silences", count(f["silences"]), silent, ("silences", "longest_silence_seconds")),
        ("Sequence gaps", count(f["sequence_gaps"]),
         "no sequence is known" if f["sequence_gaps"] is None else "numbers left out", ("sequence_gaps",)),
        ("Duplicates", count(f["duplicates"]), f"same id and body, {part('duplicates')}", ("duplicates",)),
        ("Redelivered", count(f["redelivered"]), f"by the broker, {part('redelivered')}", ("redelivered",)),
        ("Malformed", count(f["malformed"]), f"break the protocol, {part('malformed')}", ("malformed",)),
        ("Quarantined", count(f["quarantined"]),
         "nothing was exploded" if f["quarantined"] is None else f"invalid body, {bad}", ("quarantined",)),
    ]  # fmt: skip
    drawn = "".join(
        f'<li class="tile {_worst(found, names)}"><span>{name}</span><b>{value}</b><small>{below}</small>'
        f"{_limit(found, names)}</li>"
        for name, value, below, names in rows
    )
    return f'<ul class="tiles" aria-label="Key figures">{drawn}</ul>\n'


def _limit(found: Found, names: Sequence[str]) -> str:
    """Return the limits of the first of these figures that has any, as in the table of thresholds."""
    for each in found["thresholds"]:
        threshold = Threshold(**each)
        limits = [limit_of(threshold, level) for level in ("look", "unhealthy")]
        if threshold.name in names and any(limits):
            shown = limits[1:] if threshold.look == threshold.bad else filter(None, limits)
            return f'<small class="limit">{", ".join(shown)}</small>'
    return ""


def _worst(found: Found, names: Sequence[str]) -> str:
    levels = [each["level"] for each in found["verdict"]["reasons"] if each["name"] in names]
    return max(levels, key=list(LEVELS).index, default="")


# ---- parts of a section ----


def _card(title: str, *inner: str, note: str = "", half: bool = False) -> str:
    said = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="card{" half" * half}"><h2>{title}</h2>{said}{"".join(inner)}</section>\n'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (), folded: str = "") -> str:
    """Return a table, `folded` behind that summary; `numbers` are right-aligned columns. Cells are HTML: escape it."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[str]) -> str:
        style = [' class="num"' if index in right else "" for index in range(len(row))]
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(style, row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    table = (
        f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'
    )
    return f"<details><summary>{folded}</summary>{table}</details>" if folded else table


def _bar(value: object, whole: object, style: str) -> str:
    """Return a bar for a cell of a table, as long as a part of the largest."""
    a, b = finite(value), finite(whole)
    part = 100 * min(a / b, 1.0) if a and b and a > 0 and b > 0 else 0.0
    return f'<i class="bar" style="--w:{part:.1f}%;--c:var(--{style})"></i>'


def _when(micros: object) -> str:
    return f'<span class="when">{moment(micros)}</span>'


def _name(destination: Any) -> str:
    return "(no destination)" if destination is None else str(destination)


def _styles(rate: Found) -> list[str]:
    many = len(rate["destinations"]) - rate["other"]
    return [f"s{index + 1}" for index in range(many)] + ["s0"] * rate["other"]


def _legend(named: Iterable[tuple[str, object]]) -> str:
    items = "".join(f'<li><i style="--c:var(--{style})"></i>{escape(label, 60)}</li>' for style, label in named)
    return f'<ul class="legend">{items}</ul>'


def _over_time(rate: Found, heads: Sequence[str], cells: Callable[[int], Sequence[str]], folded: str) -> str:
    """Return a table of the bars of a plot over time; `cells` returns those of a bar, none for a row to be left out."""
    starts = (rate["start"] + index * rate["bucket_seconds"] * _MICRO for index in range(rate["buckets"]))
    rows = [[_when(at), *cells(index)] for index, at in enumerate(starts)]
    heads = ["From (UTC)", *heads]
    return _table(heads, [row for row in rows if len(row) > 1], range(1, len(heads)), folded)


def _covered(found: Found) -> list[float]:
    """Return the seconds of each bar in which the feed ran; the first and the last bar are incomplete.

    So a feed that goes on does not seem to be ending. No bar is higher than the peak rate in the tiles.
    """
    rate, figures = found["rate"], found["figures"]
    width, many = rate["bucket_seconds"], rate["buckets"]
    spans = [width] * many
    if many >= 10:
        begin = (figures["first"] - rate["start"]) / _MICRO
        end = (figures["last"] - rate["start"]) / _MICRO - (many - 1) * width
        peak = figures["per_second_peak"] or 0
        for index, span in ((0, width - begin), (-1, end)):
            frames = sum(column[index] for column in rate["frames"])
            spans[index] = min(width, max(width / 10, span, frames / peak if peak > 0 else width))
    return spans


# ---- the sections ----

#: Figures of a sender's account, by group: name -> meaning.
_PROOF: dict[str, dict[str, str]] = {
    "Delivered": {
        "produced": "different messages confirmed to the sender",
        "in_sink": "messages in the sink",
        "missing": "confirmed, and not in the sink",
        "duplicates": "more than once in the sink",
        "damaged": "in the sink with another body",
        "left_in_broker": "still in the broker at the end",
    },
    "Done by the sender": {
        "sent_twice": "sent once more on purpose",
        "late": "sent with an old time",
        "malformed": "sent with an invalid body",
    },
    "Found on the way": {
        "redelivered": "redelivered by the broker",
        "quarantined": "messages in quarantine",
        "events": "records in valid bodies",
        "typed_rows": "rows of the typed tables",
    },
}
#: Figures that must be 0.
_FAULTS = ("missing", "duplicates", "damaged", "left_in_broker")


def _proof(found: Found) -> str:
    proof = found["proof"]
    if not proof:
        return ""
    known = {name for group in _PROOF.values() for name in group}
    others = {name: escape(name.replace("_", " "), 60) for name in proof if name not in known}
    groups = ""
    for title, names in {**_PROOF, "Others": others}.items():
        level = {name: "unhealthy" if proof.get(name) else "healthy" for name in _FAULTS}
        items = "".join(
            f'<div class="{level.get(name, "")}"><dt>{label}</dt><dd>{count(proof[name])}</dd></div>'
            for name, label in names.items()
            if name in proof
        )
        groups += f'<div><p class="group">{title}</p><dl class="proof">{items}</dl></div>' if items else ""
    bad = any(proof.get(name) for name in _FAULTS)
    said = f"{'Not every' if bad else 'Every'} message is in the sink exactly once."
    told = {"missing", "duplicates"} <= proof.keys()
    note = f"{said} The sender’s account against the files of the sink." if told else ""
    return _card("Proof", f'<div class="groups">{groups}</div>', note=note)


def _rate(found: Found) -> str:
    rate = found["rate"]
    if not rate:
        return _card("Rate", note="No frame says when it came.")
    width, spans = rate["bucket_seconds"], _covered(found)
    names, styles = [_name(each) for each in rate["destinations"]], _styles(rate)
    series = [
        Series(name, [value / span for value, span in zip(column, spans)], style)
        for name, column, style in zip(names, rate["frames"], styles)
    ]
    over = {"start": rate["start"], "step": width * _MICRO}
    drawn = plot(series, title="Frames per second over time", unit="frames/s", **over)
    heads = [*(escape(name, 40) for name in names), "Bytes"]
    table = _over_time(
        rate,
        heads,
        lambda at: [*(count(column[at]) for column in rate["frames"]), octets(rate["octets"][at])],
        f"Frames by {duration(width)}",
    )
    note = f"Frames per second by destination; a bar is {duration(width)}."
    return _card("Rate", _legend(zip(styles, names)) if len(names) > 1 else "", drawn, table, note=note)


def _lag(found: Found) -> str:
    lag, rate, figures = found["lag"], found["rate"], found["figures"]
    if not lag:
        return _card("Lag", note="No frame says when it was sent and when it came.")
    few = _covered(found)[-1] < rate["bucket_seconds"] / 5  # too few frames: their quantiles would look like a change
    series = [
        Series(name, [*lag[name][:-1], None] if few else lag[name], f"q{number}") for number, name in enumerate(lag, 1)
    ]
    over = {"start": rate["start"], "step": rate["bucket_seconds"] * _MICRO}
    drawn = plot(series, title="Lag over time: p50, p95 and p99", kind="seconds", as_lines=True, **over)
    known = " · ".join(f"{name} {duration(figures[f'lag_{name}_seconds'])}" for name in lag)
    note = f"From sending to arrival: {known}. The longest is {duration(figures['lag_max_seconds'])}"
    if figures["sent_ahead"]:
        note += f"; {count(figures['sent_ahead'])} frames came over a second before they were sent: clocks disagree"

    def cells(at: int) -> list[str]:
        return [] if lag["p50"][at] is None else [duration(column[at]) for column in lag.values()]

    return _card("Lag", drawn, _over_time(rate, [*lag], cells, "The numbers"), note=note + ".")


def _silences(found: Found) -> str:
    rate, figures = found["rate"], found["figures"]
    if not rate:
        return ""
    total = Series("all", [sum(column) for column in zip(*rate["frames"])], "all")
    spans = [(each["start"], each["end"]) for each in found["silences"]]
    over = {"start": rate["start"], "step": rate["bucket_seconds"] * _MICRO}
    drawn = plot([total], title="When frames came", unit="frames", silences=spans, height=150, **over)
    long = duration(figures["silence_seconds"])
    listed = [(_when(each["start"]), _when(each["end"]), duration(each["seconds"])) for each in found["silences"]]
    table = _table(["From (UTC)", "To (UTC)", "For"], listed, (2,), "The longest silences") if listed else ""
    note = f"No silence was longer than {long}; the longest was {duration(figures['longest_silence_seconds'])}."
    if figures["silences"]:
        many, whole = plural(figures["silences"], "silence"), duration(figures["silent_seconds"])
        note = f"{many} longer than {long}, {whole} in all: marked in red."
    gaps = [
        [escape(_name(each["destination"]), 80), escape(each["name"], 80), _when(each["at"])]
        + [count(each[name]) for name in ("after", "before", "missing")]
        for each in found["gaps"]
    ]
    heads = ["Destination", "Sequence", "Until (UTC)", "After", "Before", "Missing"]
    left_out = _table(heads, gaps, (3, 4, 5), "The largest gaps between windows") if gaps else ""
    return _card("Gaps and silences", drawn, table, left_out, note=note)


def _destinations(found: Found) -> str:
    top, figures = found["destinations"], found["figures"]
    if not top:
        return ""
    coloured = len(_styles(found["rate"])) - found["rate"]["other"] if found["rate"] else 0
    styles = [f"s{index + 1}" if index < coloured else "s0" for index in range(len(top))]
    rows = [
        [
            escape(_name(each["destination"]), 100) + _bar(each["frames"], top[0]["frames"], style),
            f"{count(each['frames'])} · {share(each['frames'], figures['frames'])}",
            *(octets(each["octets"]), count(each["redelivered"]), count(each["malformed"])),
            *(duration(each["lag_p95_seconds"]), _when(each["first"]), _when(each["last"])),
        ]
        for each, style in zip(top, styles)
    ]
    heads = ["Destination", "Frames", "Bytes", "Redelivered", "Malformed", "Lag p95", "First (UTC)", "Last (UTC)"]
    note = f"The largest {len(rows)} of {count(figures['destinations'])}."
    table = _table(heads, rows, range(1, 8))
    return _card("Destinations", table, note=note if figures["destinations"] > len(rows) else "")


def _sizes(found: Found) -> str:
    sizes, figures = found["sizes"], found["figures"]
    classes = [octets(each["from"]) for each in sizes] + [octets(each["below"]) for each in sizes[-1:]]
    frames = Series("frames", [each["frames"] for each in sizes])
    drawn = plot([frames], title="Frames by size", classes=classes, width=HALF)
    rows = [(octets(each["from"]), octets(each["below"]), count(each["frames"])) for each in sizes]
    mean = octets(figures["octets"] / figures["frames"]) if figures["frames"] else "–"
    table = _table(["From", "Below", "Frames"], rows, (0, 1, 2), "The numbers")
    return _card("Sizes", drawn, table, note=f"Size of a whole frame; the mean is {mean}.", half=True)


def _repeats(found: Found) -> str:
    rate, figures = found["rate"], found["figures"]
    title = "Duplicates and redeliveries"
    if not figures["duplicates"] and not figures["redelivered"]:
        return _card(title, note="There are none in the archive.", half=True)
    note = (
        f"{count(figures['duplicates'])} frames have a destination, message-id and body that came before; "
        f"the broker marked {count(figures['redelivered'])} as redelivered."
    )
    if not rate:
        return _card(title, note=note, half=True)
    named = {"duplicates": "s2", "redelivered": "s4"}
    series = [Series(name, rate[name], style) for name, style in named.items()]
    over = {"start": rate["start"], "step": rate["bucket_seconds"] * _MICRO}
    drawn = plot(series, title=f"{title} over time", unit="frames", width=HALF, **over)

    def cells(at: int) -> list[str]:
        return [count(rate[name][at]) for name in named] if any(rate[name][at] for name in named) else []

    table = _over_time(rate, ["Duplicates", "Redelivered"], cells, "The numbers")
    return _card(title, _legend((style, name) for name, style in named.items()), drawn, table, note=note, half=True)


def _reasons(title: str, what: str, bad: Found, whole: object, heads: Sequence[str]) -> str:
    """Return reasons with their counts, and samples, which are raw bytes of a feed: cut and escaped."""
    most = bad["reasons"][0]["count"] if bad["reasons"] else 0
    rows = [[escape(each["reason"]) + _bar(each["count"], most, "s2"), count(each["count"])] for each in bad["reasons"]]
    samples = [
        [
            *(escape(each["reason"], 80), _when(each["time"]), escape(_name(each["destination"]), 60)),
            *(escape(each["id"], 80), f"<code>{escape(each['raw'], 240)}</code>"),
        ]
        for each in bad["samples"]
    ]
    more = bad["kinds"] - len(rows)
    note = f"{count(bad['total'])} {what} ({share(bad['total'], whole)})"
    note += f"; {count(more)} more reasons are not shown." if more > 0 else "."
    table = _table([heads[0], what.capitalize()], rows, (1,))
    return _card(title, table, _table(heads, samples, folded="The first and the last of each"), note=note)


def _quarantine(found: Found) -> str:
    bad = found["quarantine"]
    if bad is None:
        return ""
    if not bad["total"]:
        return _card("Quarantine", note="It is empty: every record fitted its schema.")
    heads = ["Reason", "Came (UTC)", "Destination", "Message-id", "Record"]
    return _reasons("Quarantine", "records", bad, found["figures"]["records"], heads)


def _malformed(found: Found) -> str:
    bad = found["malformed"]
    heads = ["Kind", "Came (UTC)", "Destination", "Error", "Bytes"]
    if not bad or not bad["total"]:
        return ""
    return _reasons("Malformed frames", "frames", bad, found["figures"]["frames"], heads)


def _spool(found: Found) -> str:
    spool = found["spool"]
    if not spool:
        return ""
    is_read, path = spool["behind"] is not None, escape(spool["path"], 200)
    title = "Backlog" if is_read else "Spool"
    problems = "".join(f'<p class="note">{escape(each, 300)}</p>' for each in spool["problems"])
    if not spool["chains"]:
        return _card(title, problems, note=path)
    heads = ["Chain", "Segments", "Bytes", "Oldest (UTC)", "Newest (UTC)", "State", "Committed", "Not yet read"]
    rows = [
        [
            *(escape(chain["chain"]), count(chain["segments"]), octets(chain["octets"]), _when(chain["oldest"])),
            *(_when(chain["newest"]), "open" if chain["open"] else "sealed"),
            *((count(chain["committed"]), octets(chain["behind"])) if is_read else ()),
        ]
        for chain in spool["chains"]
    ]
    ahead = f"{octets(spool['behind'])} are not read yet" if spool["behind"] else "The query has read everything"
    note = f"{ahead}, of {octets(spool['octets'])} in {path}." if is_read else path
    table = _table(heads if is_read else heads[:6], rows, (1, 2, 6, 7), "The chains")
    return _card(title, problems, table, note=note)


def _thresholds(found: Found) -> str:
    rows = []
    for each in found["thresholds"]:
        threshold = Threshold(**each)
        value, level = value_of(threshold, found["figures"]), level_of(threshold, found["figures"])
        limits = ["never" if limit is None else written(threshold, limit) for limit in (threshold.look, threshold.bad)]
        state = "not known" if value is None else f'<span class="level {level}">{LEVELS[level]}</span>'
        state = "for information" if threshold.look is threshold.bad is None else state
        rows.append([escape(threshold.meaning), "–" if value is None else written(threshold, value), *limits, state])
    heads = ["Figure", "Here", "Look here above", "Unhealthy above", "So"]
    return _card("What the verdict looks at", _table(heads, rows, (1, 2, 3)))


#: In page order.
SECTIONS: tuple[Callable[[Found], str], ...] = (
    *(_spool, _proof, _rate, _lag, _silences, _destinations, _sizes, _repeats, _quarantine, _malformed, _thresholds),
)
