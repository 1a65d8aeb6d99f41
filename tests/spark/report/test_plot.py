"""The plots and texts of the report: well-formed and bounded whatever the numbers and labels are. No Spark."""

import math
import re
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec import shown
from stompcodec.spark.report import page as plot
from stompcodec.spark.report.page import MOST_POINTS, MOST_SERIES, Series, escape, moment, visible

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</title><script>alert("1")</script>&\x00\x1b[31m\u202e\ud800]]><!--'

numbers = st.one_of(
    st.none(),
    st.integers(),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e308, 5e-324, True, "7"]),
)
columns = st.lists(numbers, max_size=30)
labels = st.one_of(st.text(max_size=40), st.just(HOSTILE), st.none(), st.binary(max_size=20))
series = st.lists(st.builds(Series, labels, columns, st.sampled_from(["s0", "s1", 'x" onload="'])), max_size=12)
kinds = st.sampled_from(["count", "seconds"])
sizes = st.sampled_from([320, 488, 1032])


def checked(both):
    """The root of a plot, and that nothing in it or in the small one is off the sheet, no number, or what runs."""
    wide, narrow = re.findall("<svg.*?</svg>", both, re.DOTALL)
    check(narrow.replace("</title>", "</title><desc>small</desc>", 1))
    assert "hover" not in narrow
    return check(wide)


def check(svg):
    root = ET.fromstring(svg)
    assert root.tag == SVG + "svg"
    assert root.find(SVG + "title").text
    assert root.find(SVG + "desc").text
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in {
            "svg", "title", "desc", "text", "line", "rect", "path", "circle",
        }  # fmt: skip
        assert not [name for name in element.attrib if name.startswith("on") or name == "href"]
        for name in ("x", "x1", "x2", "cx"):
            assert -1 <= float(element.get(name, 0)) <= width + 1
        for name in ("y", "y1", "y2", "cy"):
            assert -1 <= float(element.get(name, 0)) <= height + 12 * MOST_SERIES
        for name in ("width", "height"):
            assert float(element.get(name, 0)) >= 0
        assert not re.search(r"nan|inf", element.get("d", ""))
    assert len(svg) < 250_000
    return root


def found(root, style):
    return [element for element in root.iter() if style in (element.get("class") or "").split()]


@given(series, numbers, numbers, kinds, sizes, st.booleans(), st.lists(st.tuples(numbers, numbers), max_size=9))
@example([Series("a", [])], 0, 1, "count", 488, False, [])
@example([Series("a", [0, 0])], 0, 1, "count", 488, False, [])
@example([Series("a", [5])], 1.7e15, 1e6, "count", 488, False, [(1.7e15, 1.7e15 + 5e5)])
@example([Series("a", [1, 2])], 1.7e15, 0, "count", 488, True, [])
@example([Series("a", [math.nan])], 0, 1, "seconds", 488, True, [])
@example([Series("a", [5e-324, 1e308])], 0, 1, "seconds", 488, True, [])
def test_a_plot_over_time_whatever_comes(many, start, step, kind, width, as_lines, silences):
    how = {"start": start, "step": step, "kind": kind, "as_lines": as_lines, "silences": silences}
    checked(plot.plot(many, title=HOSTILE, unit=HOSTILE, width=width, **how))


@given(st.lists(labels, max_size=40), columns)
def test_a_plot_by_classes_whatever_comes(names, values):
    checked(plot.plot([Series("frames", values)], title="sizes", classes=names, width=488))


def test_nothing_is_drawn_by_a_number_of_the_feed():
    many = 10**6
    rows = [Series("/queue/a", [1.0] * many)] * many
    for how in ({"start": 0, "step": 1e6, "silences": [(0, 1)] * many}, {"classes": ["/queue/a"] * many}):
        for as_lines in (False, True):
            root = checked(plot.plot(rows, title="t", as_lines=as_lines, **how))
            drawn = [element for element in root.iter() if element.tag in (SVG + "rect", SVG + "path")]
            assert len(drawn) <= MOST_POINTS + MOST_SERIES + plot.MOST_MARKS


def test_stacked_bars_stand_on_each_other():
    two = [Series("a", [3, 0], "s1"), Series("b", [1, 2], "s2")]
    root = checked(plot.plot(two, start=1_700_000_000_000_000, step=60e6, title="t", unit="frames"))
    low, high = (
        re.findall(r"M[\d.]+ ([\d.]+)h[\d.]+V([\d.]+)", found(root, style)[0].get("d")) for style in ("s1", "s2")
    )
    assert len(low) == 1  # nothing is drawn for a 0
    assert len(high) == 2
    assert low[0][1] == high[0][0]
    assert high[1][0] == low[0][0]  # where a is 0, b stands on the axis
    tips = [each.find(SVG + "title").text for each in found(root, "hover")]
    assert tips == ["2023-11-14 22:13:20 UTC\na: 3 frames\nb: 1 frames", "2023-11-14 22:14:20 UTC\nb: 2 frames"]


def test_lines_break_where_nothing_is_known():
    root = checked(
        plot.plot([Series("p50", [1, 2, None, 3, math.nan, 4, 5])], start=0, step=1e6, title="t", as_lines=True)
    )
    (path,) = found(root, "line")
    assert path.get("d").count("M") == 3
    assert len(found(root, "dot")) == 1  # the 3 stands alone


def test_lines_that_differ_much_have_a_logarithmic_axis():
    def written(values):
        how = {"start": 0, "step": 1e6, "kind": "seconds", "as_lines": True}
        root = checked(plot.plot([Series("x", values)], title="t", **how))
        ticks = [text.text for text in found(root, "tick") if text.get("text-anchor") == "end"]
        return [tick for tick in ticks if ":" not in tick and tick != "UTC"]

    assert written([0.1, 3600]) == ["100 ms", "1 s", "10 s", "1 min", "10 min", "1 h"]
    assert written([10, 20]) == ["0 s", "5 s", "10 s", "15 s", "20 s"]


def test_silences_are_marked_where_they_were():
    how = {"start": 0, "step": 1e6, "silences": [(2e6, 5e6)]}
    root = checked(plot.plot([Series("all", [1] * 10)], title="t", **how))
    (band,) = found(root, "silent")
    (axis,) = found(root, "axis")[:1]
    x0, wide = float(axis.get("x1")), float(axis.get("x2")) - float(axis.get("x1"))
    assert float(band.get("x")) == pytest.approx(x0 + 0.2 * wide, abs=0.2)
    assert float(band.get("width")) == pytest.approx(0.3 * wide, abs=0.2)
    assert "silent for 3 s" in band.find(SVG + "title").text


@given(numbers, numbers, st.sampled_from(["count", "seconds", "time"]))
def test_ticks_are_few_in_order_and_inside(low, high, kind):
    ticks = plot.ticks(low, high, kind)
    values = [tick.value for tick in ticks]
    assert len(ticks) <= 7
    assert values == sorted(set(values))
    a, b = shown.finite(low), shown.finite(high)
    if a is not None and b is not None and b > a:
        room = (b - a) * 1e-9 + max(abs(a), abs(b)) * 1e-9
        assert all(a - room <= value <= b + room for value in values)


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9990, 1, 1)),
    st.one_of(
        st.timedeltas(timedelta(milliseconds=1), timedelta(days=3)), st.timedeltas(timedelta(1), timedelta(3000))
    ),
    st.integers(2, 12),
)
def test_time_ticks_are_round_times_of_the_calendar(start, span, most):
    epoch = datetime(1970, 1, 1)
    low = (start - epoch) / timedelta(seconds=1)
    ticks = plot.ticks(low, low + span / timedelta(seconds=1), "time", most)
    assert len(ticks) <= most + 2
    for tick in ticks:
        at = epoch + timedelta(seconds=tick.value)
        if ":" in tick.label:
            clock = [float(part) for part in tick.label.split(":")]
            assert clock[:2] == [at.hour, at.minute]
            assert clock[2:] == ([] if len(clock) == 2 else [pytest.approx(at.second + at.microsecond / 1e6, abs=2e-5)])
        else:
            assert (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0)


@given(st.one_of(st.text(), st.binary(), st.just(HOSTILE), st.integers()), st.integers(2, 50))
def test_texts_are_one_visible_line_of_bounded_length(value, most):
    line = visible(value, most)
    assert len(line) <= 10 * most
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", line)
    escaped = escape(value, most)
    assert not set("<>\"'") & set(escaped)
    ET.fromstring(f'<a b="{escaped}">{escaped}</a>')


@pytest.mark.parametrize("write", [shown.count, shown.octets, shown.duration, moment])
@given(numbers)
def test_numbers_are_short(write, value):
    assert 1 <= len(write(value)) <= 24


@given(st.floats(0.001, 1e9))
def test_durations_are_near_to_what_they_say(seconds):
    units = {"d": 86400, "h": 3600, "min": 60, "s": 1, "ms": 1e-3}
    parts = shown.duration(seconds).replace(",", "").split()
    said = sum(float(number) * units[unit] for number, unit in zip(parts[::2], parts[1::2]))
    assert said == pytest.approx(seconds, rel=0.022)  # two units: half an hour of a day


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_shares_never_round_to_nothing_or_to_all(part, whole):
    said = shown.share(min(part, whole), whole)
    assert (said == "0 %") == (part == 0)
    assert (said == "100 %") == (part >= whole)


@given(st.integers(300, 1100), st.floats(1e4, 1e10), st.integers(0, 10**10))
@example(348, 2e5, 700_000)
def test_labels_of_times_do_not_overlap(width, step, offset):
    """Wherever the first tick is: a digit is at least 6.2 px wide."""
    start = 1_763_730_000_000_000 + offset
    bars = [Series("/queue/TRAIN_MVT_ALL_TOC", [1] * 177)]
    both = plot.plot(bars, start=start, step=step, title="t", width=width)
    for drawn in re.findall("<svg.*?</svg>", both, re.DOTALL):
        end = 0.0
        labels = re.findall(
            r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)" class="tick">(\d[\d:. A-Za-z]*)<', drawn
        )
        for x, anchor, words in (each for each in labels if ":" in each[2]):
            left = float(x) - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * 6.2 * len(words)
            assert left > end, labels
            end = left + 6.2 * len(words)
