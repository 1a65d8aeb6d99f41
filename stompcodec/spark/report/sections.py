"""The sections of the page of a report: a plot each, the table behind it, and a sentence. Each is a function of what
stands in report.json, and returns HTML; nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stompcodec.spark.report.plot import Series, bars, histogram, lines, stacked, timeline
from stompcodec.spark.report.text import count, duration, escape, finite, moment, octets, share
from stompcodec.spark.report.verdict import LEVELS, Threshold, level_of

__all__ = ["SECTIONS"]

_MICRO = 1e6


def _card(title: str, *inner: str, note: str = "", half: bool = False) -> str:
    said = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="card{" half" * half}"><h2>{title}</h2>{said}{"".join(inner)}</section>\n'


def _plot(svg: str) -> str:
    return f'<div class="scroll">{svg}</div>'


def _legend(named: Iterable[tuple[str, object]]) -> str:
    items = "".join(f'<li><i style="--c:var(--{style})"></i>{escape(label, 60)}</li>' for style, label in named)
    return f'<ul class="legend">{items}</ul>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """A table; `numbers` are the columns that stand to the right. Cells are HTML: escape what goes in."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[str]) -> str:
        style = [' class="num"' if index in right else "" for index in range(len(row))]
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(style, row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table></div>'


def _details(table: str, summary: str = "The numbers") -> str:
    return f"<details><summary>{summary}</summary>{table}</details>"


def _when(micros: object) -> str:
    """A time that is not broken over two lines."""
    return f'<span class="when">{moment(micros)}</span>'


def _name(destination: Any) -> str:
    return "(no destination)" if destination is None else str(destination)


def _styles(rate: Mapping[str, Any]) -> list[str]:
    many = len(rate["destinations"]) - rate["other"]
    return [f"s{index + 1}" for index in range(many)] + ["s0"] * rate["other"]


def _starts(rate: Mapping[str, Any]) -> list[float]:
    return [rate["start"] + index * rate["bucket_seconds"] * _MICRO for index in range(rate["buckets"])]


def _covered(found: Mapping[str, Any]) -> list[float]:
    """The seconds of each bar in which the feed ran: the first and the last one are not whole. So a feed that goes on
    does not look as if it were about to end."""
    rate, figures = found["rate"], found["figures"]
    width, many = rate["bucket_seconds"], rate["buckets"]
    spans = [width] * many
    if many >= 10:
        begin = (figures["first"] - rate["start"]) / _MICRO
        end = (figures["last"] - rate["start"]) / _MICRO - (many - 1) * width
        spans[0], spans[-1] = (min(width, max(width / 10, span)) for span in (width - begin, end))
    return spans


def _proof(found: Mapping[str, Any]) -> str:
    proof = found["proof"]
    if not proof:
        return ""
    words = {"in_sink": "in the sink"}
    rows = [(escape(words.get(name, name.replace("_", " ")), 60), count(value)) for name, value in proof.items()]
    wrong = ' class="unhealthy"'
    bad = any(proof.get(name) for name in ("missing", "duplicates"))
    said = "Not every message is in the sink exactly once." if bad else "Every message is in the sink exactly once."
    known = {"missing", "duplicates"} <= proof.keys()
    items = "".join(
        f"<div{wrong if value and name in ('missing', 'duplicates') else ''}><dt>{label}</dt><dd>{text}</dd></div>"
        for (name, value), (label, text) in zip(proof.items(), rows)
    )
    return _card("Proof", f'<dl class="proof">{items}</dl>', note=said if known else "")


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
    svg = stacked(series, rate["start"], width * _MICRO, title="Frames a second over time", unit="frames/s")
    legend = _legend(zip(_styles(rate), names)) if len(names) > 1 else ""
    heads = ["From (UTC)", *(escape(name, 40) for name in names), "Octets"]
    rows = [
        [_when(at), *(count(column[index]) for column in rate["frames"]), octets(rate["octets"][index])]
        for index, at in enumerate(_starts(rate))
    ]
    table = _details(_table(heads, rows, range(1, len(heads))), f"Frames by {duration(width)}")
    return _card("Rate", legend, _plot(svg), table, note=f"Frames a second by destination; a bar is {duration(width)}.")


def _lag(found: Mapping[str, Any]) -> str:
    lag, rate, figures = found["lag"], found["rate"], found["figures"]
    if not lag:
        return _card("Lag", note="No frame says when it was sent and when it came.")
    spans = _covered(found)
    few = spans[-1] < rate["bucket_seconds"] / 5  # quantiles of a moment would look like a change
    series = [
        Series(label, [*lag[name][:-1], None] if few else lag[name], style)
        for label, name, style in (("50 %", "p50", "q1"), ("95 %", "p95", "q2"), ("99 %", "p99", "q3"))
    ]
    svg = lines(
        series, rate["start"], rate["bucket_seconds"] * _MICRO, title="Lag over time by quantile", kind="seconds"
    )
    rows = [
        [_when(at), *(duration(lag[name][index]) for name in ("p50", "p95", "p99"))]
        for index, at in enumerate(_starts(rate))
        if lag["p50"][index] is not None
    ]
    note = f"From sending to arrival. The longest is {duration(figures['lag_max_seconds'])}"
    if figures["sent_ahead"]:
        note += f"; {count(figures['sent_ahead'])} frames came over a second before they were sent: clocks disagree"
    table = _details(_table(["From (UTC)", "50 %", "95 %", "99 %"], rows, (1, 2, 3)))
    return _card("Lag", _plot(svg), table, note=note + ".")


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
    svg = timeline(rows, rate["start"], width, title="When frames came", silences=silences)
    long = duration(figures["silence_seconds"])
    if not figures["silences"]:
        note = f"No silence was longer than {long}; the longest was {duration(figures['longest_silence_seconds'])}."
        return _card("Gaps and silences", _plot(svg), _sequences(found), note=note)
    many, whole = figures["silences"], duration(figures["silent_seconds"])
    note = f"{count(many)} silence{'' if many == 1 else 's'} longer than {long}, {whole} in all: marked in red."
    listed = [(_when(each["start"]), _when(each["end"]), duration(each["seconds"])) for each in found["silences"]]
    heads = ["From (UTC)", "To (UTC)", "For"]
    table = _details(_table(heads, listed, (2,)), "The longest silences")
    return _card("Gaps and silences", _plot(svg), table, _sequences(found), note=note)


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
    svg = bars(rows, title="Frames by destination", unit="frames", styles=styles)
    heads = ["Destination", "Frames", "Octets", "Redelivered", "Malformed", "Lag, 95 %", "First (UTC)", "Last (UTC)"]
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
    return _card(
        "Destinations", _plot(svg), behind, note=note if figures["destinations"] > len(rows) else "", half=True
    )


def _sizes(found: Mapping[str, Any]) -> str:
    sizes = found["sizes"]
    labels = [octets(each["from"]) for each in sizes] + [octets(each["below"]) for each in sizes[-1:]]
    svg = histogram(labels, [each["frames"] for each in sizes], title="Frames by size", unit="frames")
    rows = [(octets(each["from"]), octets(each["below"]), count(each["frames"])) for each in sizes]
    figures = found["figures"]
    mean = octets(figures["octets"] / figures["frames"]) if figures["frames"] else "–"
    table = _details(_table(["From", "Below", "Frames"], rows, (0, 1, 2)))
    return _card("Sizes", _plot(svg), table, note=f"Octets of a whole frame; the mean is {mean}.", half=True)


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
    svg = stacked(
        series, rate["start"], width, title="Duplicates and redeliveries over time", unit="frames", height=170
    )
    rows = [
        (_when(at), count(rate["duplicates"][index]), count(rate["redelivered"][index]))
        for index, at in enumerate(_starts(rate))
        if rate["duplicates"][index] or rate["redelivered"][index]
    ]
    table = _details(_table(["From (UTC)", "Duplicates", "Redelivered"], rows, (1, 2)))
    legend = _legend([("s2", "duplicates"), ("s4", "redelivered")])
    return _card("Duplicates and redeliveries", legend, _plot(svg), table, note=note)


def _reasons(title: str, what: str, found: Mapping[str, Any], whole: object, heads: Sequence[str]) -> str:
    """Reasons with their numbers, and samples, which are the octets of a feed: cut, and escaped."""
    rows = [(each["reason"], each["count"], f"{count(each['count'])}") for each in found["reasons"]]
    svg = bars(rows, title=title, unit=what, styles=["s2"] * len(rows), width=1032, label=420)
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
    return _card(title, _plot(svg), table, note=note)


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
    heads = ["Kind", "Came (UTC)", "Destination", "Error", "Octets"]
    return _reasons("Malformed frames", "frames", bad, found["figures"]["frames"], heads)


def _spool(found: Mapping[str, Any]) -> str:
    spool = found["spool"]
    if not spool:
        return ""
    problems = "".join(f'<p class="note">{escape(each, 300)}</p>' for each in spool["problems"])
    if not spool["chains"]:
        return _card("Spool", problems, note=escape(spool["path"], 200))
    heads = ["Chain", "Segments", "Octets", "Oldest (UTC)", "Newest (UTC)", "State", "Committed", "Not yet taken"]
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
    return _card("Spool", _table(heads, rows, (1, 2, 6, 7)), problems, note=escape(spool["path"], 200))


def _thresholds(found: Mapping[str, Any]) -> str:
    write: dict[str, Callable[[Any], str]] = {
        "count": count,
        "seconds": duration,
        "share": lambda value: share(value, 1),
    }
    rows = []
    for each in found["thresholds"]:
        threshold = Threshold(**each)
        value = finite(found["figures"].get(threshold.name))
        if value is not None and threshold.unit == "share":
            whole = found["figures"]["records" if threshold.name == "quarantined" else "frames"]
            value = value / whole if whole else 0.0
        level = level_of(threshold, found["figures"])
        said = write[threshold.unit]
        limits = ["never" if limit is None else said(limit) for limit in (threshold.look, threshold.bad)]
        state = "not known" if value is None else f'<span class="level {level}">{LEVELS[level]}</span>'
        rows.append([escape(threshold.meaning), "–" if value is None else said(value), *limits, state])
    heads = ["Figure", "Here", "Look here above", "Unhealthy above", "So"]
    return _card("What the verdict looks at", _details(_table(heads, rows, (1, 2, 3)), "The thresholds"))


#: In the order in which they stand on the page.
SECTIONS: tuple[Callable[[Mapping[str, Any]], str], ...] = (
    _proof,
    _rate,
    _lag,
    _silences,
    _destinations,
    _sizes,
    _repeats,
    _quarantine,
    _malformed,
    _spool,
    _thresholds,
)
