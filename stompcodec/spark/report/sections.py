"""The sections of a report's page: a plot each, its table, and a sentence.

Each function takes the contents of report.json and returns HTML, or "" if it has nothing to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stompcodec.spark.report.plot import Series, bars, histogram, lines, stacked, timeline
from stompcodec.spark.report.text import count, duration, escape, moment, octets, plural, share
from stompcodec.spark.report.verdict import LEVELS, Threshold, level_of, value_of, written

_MICRO = 1e6


def _card(title: str, *inner: str, note: str = "", half: bool = False) -> str:
    said = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="card{" half" * half}"><h2>{title}</h2>{said}{"".join(inner)}</section>\n'


#: Widths of plots in pixels: whole page, half page, phone.
_WIDE, _HALF, _NARROW = 1032, 488, 348
_DESCRIBED = re.compile(r"<desc>[^<]*</desc>")
_HOVER = re.compile(r'<rect [^>]*class="hover"><title>[^<]*</title></rect>')


def _plot(draw: Callable[[int], str], width: int = _WIDE) -> str:
    """Return a plot twice, as wide as a desk and as a phone; the style sheet shows one of them.

    The small one has no hover texts, and screen readers skip it.
    """
    small = _HOVER.sub("", _DESCRIBED.sub("", draw(_NARROW)))
    small = small.replace('class="plot"', 'class="plot narrow" aria-hidden="true"', 1)
    return f'<div class="scroll">{draw(width)}{small}</div>'


def _label(width: int, most: int = 190) -> int:
    """Return the pixels for the labels of rows."""
    return min(most, width * 2 // 5)


def _legend(named: Iterable[tuple[str, object]]) -> str:
    items = "".join(f'<li><i style="--c:var(--{style})"></i>{escape(label, 60)}</li>' for style, label in named)
    return f'<ul class="legend">{items}</ul>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Return a table; `numbers` are right-aligned columns. Cells are HTML, so escape their contents."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[str]) -> str:
        style = [' class="num"' if index in right else "" for index in range(len(row))]
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(style, row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'


def _details(table: str, summary: str = "The numbers") -> str:
    return f"<details><summary>{summary}</summary>{table}</details>"


def _when(micros: object) -> str:
    """Return a time that is not broken over two lines."""
    return f'<span class="when">{moment(micros)}</span>'


def _name(destination: Any) -> str:
    return "(no destination)" if destination is None else str(destination)


def _styles(rate: Mapping[str, Any]) -> list[str]:
    many = len(rate["destinations"]) - rate["other"]
    return [f"s{index + 1}" for index in range(many)] + ["s0"] * rate["other"]


def _starts(rate: Mapping[str, Any]) -> list[float]:
    return [rate["start"] + index * rate["bucket_seconds"] * _MICRO for index in range(rate["buckets"])]


def _covered(found: Mapping[str, Any]) -> list[float]:
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


def _proof(found: Mapping[str, Any]) -> str:
    proof = found["proof"]
    if not proof:
        return ""
    known = {name for group in _PROOF.values() for name in group}
    others = {name: escape(name.replace("_", " "), 60) for name in proof if name not in known}
    groups = []
    for title, names in {**_PROOF, "Others": others}.items():
        items = "".join(
            f'<div class="{_proven(name, proof[name])}"><dt>{label}</dt><dd>{count(proof[name])}</dd></div>'
            for name, label in names.items()
            if name in proof
        )
        groups.append(f'<div><p class="group">{title}</p><dl class="proof">{items}</dl></div>' if items else "")
    bad = any(proof.get(name) for name in _FAULTS)
    said = "Not every message is in the sink exactly once." if bad else "Every message is in the sink exactly once."
    told = {"missing", "duplicates"} <= proof.keys()
    note = f"{said} The sender’s account against the files of the sink." if told else ""
    return _card("Proof", f'<div class="groups">{"".join(groups)}</div>', note=note)


def _proven(name: str, value: object) -> str:
    if name not in _FAULTS:
        return ""
    return "unhealthy" if value else "healthy"


def _rate(found: Mapping[str, Any]) -> str:
    rate = found["rate"]
    if not rate:
        return _card("Rate", note="No frame says when it came.")
    width = rate["bucket_seconds"]
    names = [_name(each) for each in rate["destinations"]]
    spans = _covered(found)
    series = [
        Series(name, [value / span for value, span in zip(column, spans)], style)
        for name, column, style in zip(names, rate["frames"], _styles(rate))
    ]
    begin, unit = rate["start"], "frames/s"
    title = "Frames per second over time"
    legend = _legend(zip(_styles(rate), names)) if len(names) > 1 else ""
    heads = ["From (UTC)", *(escape(name, 40) for name in names), "Bytes"]
    rows = [
        [_when(at), *(count(column[index]) for column in rate["frames"]), octets(rate["octets"][index])]
        for index, at in enumerate(_starts(rate))
    ]
    table = _details(_table(heads, rows, range(1, len(heads))), f"Frames by {duration(width)}")
    plot = _plot(lambda wide: stacked(series, begin, width * _MICRO, title=title, unit=unit, width=wide))
    note = f"Frames per second by destination; a bar is {duration(width)}."
    return _card("Rate", legend, plot, table, note=note)


def _lag(found: Mapping[str, Any]) -> str:
    lag, rate, figures = found["lag"], found["rate"], found["figures"]
    if not lag:
        return _card("Lag", note="No frame says when it was sent and when it came.")
    spans = _covered(found)
    few = spans[-1] < rate["bucket_seconds"] / 5  # too few frames: their quantiles would look like a change
    series = [
        Series(label, [*lag[name][:-1], None] if few else lag[name], style)
        for label, name, style in (("p50", "p50", "q1"), ("p95", "p95", "q2"), ("p99", "p99", "q3"))
    ]
    begin, width = rate["start"], rate["bucket_seconds"] * _MICRO
    title = "Lag over time: p50, p95 and p99"
    rows = [
        [_when(at), *(duration(lag[name][index]) for name in ("p50", "p95", "p99"))]
        for index, at in enumerate(_starts(rate))
        if lag["p50"][index] is not None
    ]
    known = " · ".join(f"{name} {duration(figures[f'lag_{name}_seconds'])}" for name in ("p50", "p95", "p99"))
    note = f"From sending to arrival: {known}. The longest is {duration(figures['lag_max_seconds'])}"
    if figures["sent_ahead"]:
        note += f"; {count(figures['sent_ahead'])} frames came over a second before they were sent: clocks disagree"
    table = _details(_table(["From (UTC)", "p50", "p95", "p99"], rows, (1, 2, 3)))
    plot = _plot(lambda wide: lines(series, begin, width, title=title, kind="seconds", width=wide))
    return _card("Lag", plot, table, note=note + ".")


def _silences(found: Mapping[str, Any]) -> str:
    rate, figures = found["rate"], found["figures"]
    if not rate:
        return ""
    names = [_name(each) for each in rate["destinations"]]
    total = [sum(column) for column in zip(*rate["frames"])]
    rows = [Series("all", total, "all")] if len(names) != 1 else []
    rows += [Series(*each) for each in zip(names, rate["frames"], _styles(rate))]
    silences = [(each["start"], each["end"]) for each in found["silences"]]
    width = rate["bucket_seconds"] * _MICRO
    begin, title = rate["start"], "When frames came"
    plot = _plot(
        lambda wide: timeline(rows, begin, width, title=title, silences=silences, width=wide, label=_label(wide))
    )
    long = duration(figures["silence_seconds"])
    if not figures["silences"]:
        note = f"No silence was longer than {long}; the longest was {duration(figures['longest_silence_seconds'])}."
        return _card("Gaps and silences", plot, _sequences(found), note=note)
    many, whole = plural(figures["silences"], "silence"), duration(figures["silent_seconds"])
    note = f"{many} longer than {long}, {whole} in all: marked in red."
    listed = [(_when(each["start"]), _when(each["end"]), duration(each["seconds"])) for each in found["silences"]]
    heads = ["From (UTC)", "To (UTC)", "For"]
    table = _details(_table(heads, listed, (2,)), "The longest silences")
    return _card("Gaps and silences", plot, table, _sequences(found), note=note)


def _sequences(found: Mapping[str, Any]) -> str:
    rows = [
        [
            escape(_name(each["destination"]), 80),
            escape(each["name"], 80),
            _when(each["at"]),
            *(count(each[name]) for name in ("after", "before", "missing")),
        ]
        for each in found["gaps"]
    ]
    heads = ["Destination", "Sequence", "Until (UTC)", "After", "Before", "Missing"]
    return _details(_table(heads, rows, (3, 4, 5)), "The largest gaps between windows") if rows else ""


def _destinations(found: Mapping[str, Any]) -> str:
    top, figures = found["destinations"], found["figures"]
    if not top:
        return ""
    many = found["rate"]["frames"] if found["rate"] else []
    styles = [*(f"s{index + 1}" for index in range(min(6, len(many)))), *["s0"] * len(top)][: len(top)]
    rows = [
        (
            _name(each["destination"]),
            each["frames"],
            f"{count(each['frames'])} · {share(each['frames'], figures['frames'])}",
        )
        for each in top[:10]
    ]
    title = "Frames by destination"
    heads = ["Destination", "Frames", "Bytes", "Redelivered", "Malformed", "Lag p95", "First (UTC)", "Last (UTC)"]
    table = [
        [
            escape(_name(each["destination"]), 100),
            count(each["frames"]),
            octets(each["octets"]),
            count(each["redelivered"]),
            count(each["malformed"]),
            duration(each["lag_p95_seconds"]),
            _when(each["first"]),
            _when(each["last"]),
        ]
        for each in top
    ]
    note = f"The largest {len(rows)} of {count(figures['destinations'])}."
    behind = _details(_table(heads, table, range(1, 8)), f"The largest {len(top)}")
    plot = _plot(
        lambda wide: bars(rows, title=title, unit="frames", styles=styles, width=wide, label=_label(wide)), _HALF
    )
    return _card("Destinations", plot, behind, note=note if figures["destinations"] > len(rows) else "", half=True)


def _sizes(found: Mapping[str, Any]) -> str:
    sizes = found["sizes"]
    labels = [octets(each["from"]) for each in sizes] + [octets(each["below"]) for each in sizes[-1:]]
    values = [each["frames"] for each in sizes]
    plot = _plot(lambda wide: histogram(labels, values, title="Frames by size", unit="frames", width=wide), _HALF)
    rows = [(octets(each["from"]), octets(each["below"]), count(each["frames"])) for each in sizes]
    figures = found["figures"]
    mean = octets(figures["octets"] / figures["frames"]) if figures["frames"] else "–"
    table = _details(_table(["From", "Below", "Frames"], rows, (0, 1, 2)))
    return _card("Sizes", plot, table, note=f"Size of a whole frame; the mean is {mean}.", half=True)


def _repeats(found: Mapping[str, Any]) -> str:
    rate, figures = found["rate"], found["figures"]
    if not figures["duplicates"] and not figures["redelivered"]:
        return _card("Duplicates and redeliveries", note="There are none in the archive.")
    note = (
        f"{count(figures['duplicates'])} frames have a destination, message-id and body that came before; "
        f"the broker marked {count(figures['redelivered'])} as redelivered."
    )
    if not rate:
        return _card("Duplicates and redeliveries", note=note)
    series = [Series("duplicates", rate["duplicates"], "s2"), Series("redelivered", rate["redelivered"], "s4")]
    width = rate["bucket_seconds"] * _MICRO
    begin, title = rate["start"], "Duplicates and redeliveries over time"
    plot = _plot(lambda wide: stacked(series, begin, width, title=title, unit="frames", width=wide, height=170))
    rows = [
        (_when(at), count(rate["duplicates"][index]), count(rate["redelivered"][index]))
        for index, at in enumerate(_starts(rate))
        if rate["duplicates"][index] or rate["redelivered"][index]
    ]
    table = _details(_table(["From (UTC)", "Duplicates", "Redelivered"], rows, (1, 2)))
    legend = _legend([("s2", "duplicates"), ("s4", "redelivered")])
    return _card("Duplicates and redeliveries", legend, plot, table, note=note)


def _reasons(title: str, what: str, found: Mapping[str, Any], whole: object, heads: Sequence[str]) -> str:
    """Return reasons with their counts, and samples, which are raw bytes of a feed: cut and escaped."""
    rows = [(each["reason"], each["count"], f"{count(each['count'])}") for each in found["reasons"]]
    styles = ["s2"] * len(rows)
    plot = _plot(lambda wide: bars(rows, title=title, unit=what, styles=styles, width=wide, label=_label(wide, 420)))
    samples = [
        [
            escape(each["reason"], 80),
            _when(each["time"]),
            escape(_name(each["destination"]), 60),
            escape(each["id"], 80),
            f"<code>{escape(each['raw'], 240)}</code>",
        ]
        for each in found["samples"]
    ]
    more = found["kinds"] - len(rows)
    note = f"{count(found['total'])} {what} ({share(found['total'], whole)})"
    note += f"; {count(more)} more reasons are not shown." if more > 0 else "."
    table = _details(_table(heads, samples), "The first and the last of each")
    return _card(title, plot, table, note=note)


def _quarantine(found: Mapping[str, Any]) -> str:
    bad = found["quarantine"]
    if bad is None:
        return ""
    if not bad["total"]:
        return _card("Quarantine", note="It is empty: every record fitted its schema.")
    heads = ["Reason", "Came (UTC)", "Destination", "Message-id", "Record"]
    return _reasons("Quarantine", "records", bad, found["figures"]["records"], heads)


def _malformed(found: Mapping[str, Any]) -> str:
    bad = found["malformed"]
    if not bad or not bad["total"]:
        return ""
    heads = ["Kind", "Came (UTC)", "Destination", "Error", "Bytes"]
    return _reasons("Malformed frames", "frames", bad, found["figures"]["frames"], heads)


def _spool(found: Mapping[str, Any]) -> str:
    spool = found["spool"]
    if not spool:
        return ""
    title = "Backlog" if spool["behind"] is not None else "Spool"
    problems = "".join(f'<p class="note">{escape(each, 300)}</p>' for each in spool["problems"])
    if not spool["chains"]:
        return _card(title, problems, note=escape(spool["path"], 200))
    heads = ["Chain", "Segments", "Bytes", "Oldest (UTC)", "Newest (UTC)", "State", "Committed", "Not yet read"]
    rows = []
    for chain in spool["chains"]:
        taken = "–" if chain["committed"] is None else count(chain["committed"])
        behind = "–" if chain["behind"] is None else octets(chain["behind"])
        state = "open" if chain["open"] else "sealed"
        times = [_when(chain["oldest"]), _when(chain["newest"])]
        rows.append(
            [escape(chain["chain"]), count(chain["segments"]), octets(chain["octets"]), *times, state, taken, behind]
        )
    if spool["behind"] is None:
        rows = [row[:6] for row in rows]
        heads = heads[:6]
    note = escape(spool["path"], 200)
    if spool["behind"] is not None:
        ahead = f"{octets(spool['behind'])} are not read yet" if spool["behind"] else "The query has read everything"
        note = f"{ahead}, of {octets(spool['octets'])} in {note}."
    return _card(title, problems, _details(_table(heads, rows, (1, 2, 6, 7)), "The chains"), note=note)


def _thresholds(found: Mapping[str, Any]) -> str:
    rows = []
    for each in found["thresholds"]:
        threshold = Threshold(**each)
        value = value_of(threshold, found["figures"])
        level = level_of(threshold, found["figures"])
        limits = ["never" if limit is None else written(threshold, limit) for limit in (threshold.look, threshold.bad)]
        state = "not known" if value is None else f'<span class="level {level}">{LEVELS[level]}</span>'
        if threshold.look is None and threshold.bad is None:
            state = "for information"
        here = "–" if value is None else written(threshold, value)
        rows.append([escape(threshold.meaning), here, *limits, state])
    heads = ["Figure", "Here", "Look here above", "Unhealthy above", "So"]
    return _card("What the verdict looks at", _table(heads, rows, (1, 2, 3)))


#: Sections in page order.
SECTIONS: tuple[Callable[[Mapping[str, Any]], str], ...] = (
    _spool,
    _proof,
    _rate,
    _lag,
    _silences,
    _destinations,
    _sizes,
    _repeats,
    _quarantine,
    _malformed,
    _thresholds,
)
