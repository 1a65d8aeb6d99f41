"""The plots and texts of the report: well-formed and bounded whatever the numbers and labels are. No Spark."""

import math
import re
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec.spark.report import axis, plot, text
from stompcodec.spark.report.plot import MOST_POINTS, MOST_ROWS, MOST_SERIES, Series

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
kinds = st.sampled_from(["count", "octets", "seconds"])
sizes = st.sampled_from([320, 488, 1032])


def checked(svg):
    """The root of a plot, and that nothing in it is off the sheet, no number, or something that runs."""
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


@given(series, numbers, numbers, sizes)
@example([Series("a", [])], 0, 1, 488)
@example([Series("a", [0, 0])], 0, 1, 488)
@example([Series("a", [5])], 1.7e15, 1e6, 488)
@example([Series("a", [1, 2])], 1.7e15, 0, 488)
def test_stacked_whatever_comes(many, start, step, width):
    checked(plot.stacked(many, start, step, title=HOSTILE, unit=HOSTILE, width=width))


@given(series, numbers, numbers, kinds, sizes)
@example([Series("a", [math.nan])], 0, 1, "seconds", 488)
@example([Series("a", [5e-324, 1e308])], 0, 1, "count", 488)
def test_lines_whatever_comes(many, start, step, kind, width):
    checked(plot.lines(many, start, step, title="lag", kind=kind, width=width))


@given(st.lists(labels, max_size=40), columns)
def test_histogram_whatever_comes(names, values):
    checked(plot.histogram(names, values, title="sizes", unit="frames"))


@given(st.lists(st.tuples(labels, numbers, labels), max_size=40), sizes)
def test_bars_whatever_comes(rows, width):
    checked(plot.bars(rows, title="bars", unit="frames", width=width))


@given(series, numbers, numbers, st.lists(st.tuples(numbers, numbers), max_size=20))
def test_timeline_whatever_comes(rows, start, step, silences):
    checked(plot.timeline(rows, start, step, title="when", silences=silences))


def test_nothing_is_drawn_by_a_number_of_the_feed():
    many = 10**6
    names, values = ["/queue/a"] * many, [1.0] * many
    rows = [Series("/queue/a", values)] * many
    for svg in (
        plot.stacked(rows, 0, 1e6, title="t", unit="u"),
        plot.lines(rows, 0, 1e6, title="t", kind="count"),
        plot.histogram(names, values, title="t", unit="u"),
        plot.bars([("/queue/a", 1.0, "")] * many, title="t", unit="u"),
        plot.timeline(rows, 0, 1e6, title="t", silences=[(0, 1)] * many),
    ):
        root = checked(svg)
        drawn = [element for element in root.iter() if element.tag in (SVG + "rect", SVG + "path")]
        assert len(drawn) <= max(MOST_POINTS + MOST_SERIES, MOST_ROWS * 2 + 400)


def test_bars_are_as_high_as_their_numbers():
    root = checked(plot.histogram(["1", "2", "4"], [100, 50], title="t", unit="u"))
    full, half = (float(rect.get("height")) for rect in found(root, "bar"))
    assert full == pytest.approx(2 * half, abs=0.2)
    assert [rect.find(SVG + "title").text for rect in found(root, "bar")] == ["1 to 2: 100 u", "2 to 4: 50 u"]


def test_stacked_bars_stand_on_each_other():
    two = [Series("a", [3, 0], "s1"), Series("b", [1, 2], "s2")]
    root = checked(plot.stacked(two, 1_700_000_000_000_000, 60e6, title="t", unit="frames"))
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
    root = checked(plot.lines([Series("p50", [1, 2, None, 3, math.nan, 4, 5])], 0, 1e6, title="t", kind="count"))
    (path,) = found(root, "line")
    assert path.get("d").count("M") == 3
    assert len(found(root, "dot")) == 1  # the 3 stands alone


def test_lines_that_differ_much_have_a_logarithmic_axis():
    def written(values):
        root = checked(plot.lines([Series("x", values)], 0, 1e6, title="t", kind="seconds"))
        ticks = [text.text for text in found(root, "tick") if text.get("text-anchor") == "end"]
        return [tick for tick in ticks if ":" not in tick and tick != "UTC"]

    assert written([0.1, 3600]) == ["100 ms", "1 s", "10 s", "1 min", "10 min", "1 h"]
    assert written([10, 20]) == ["0 s", "5 s", "10 s", "15 s", "20 s"]


def test_silences_are_marked_where_they_were():
    root = checked(plot.timeline([Series("all", [1] * 10)], 0, 1e6, title="t", silences=[(2e6, 5e6)], width=1032))
    (band,) = found(root, "silent")
    (track,) = found(root, "track")
    x0, wide = float(track.get("x")), float(track.get("width"))
    assert float(band.get("x")) == pytest.approx(x0 + 0.2 * wide, abs=0.2)
    assert float(band.get("width")) == pytest.approx(0.3 * wide, abs=0.2)
    assert "silent for 3 s" in band.find(SVG + "title").text


@given(numbers, numbers, kinds, st.booleans())
def test_value_ticks_are_few_in_order_and_inside(low, high, kind, log):
    ticks = axis.value_ticks(low, high, kind, log=log)
    values = [tick.value for tick in ticks]
    assert len(ticks) <= 25
    assert values == sorted(set(values))
    a, b = text.finite(low), text.finite(high)
    if a is not None and b is not None and b > a:
        room = (b - a) * 1e-9 + abs(b) * 1e-9
        assert all(a - room <= value <= b + room for value in values)


@given(st.floats(1e-3, 1e12), kinds)
def test_axes_from_zero_have_round_ticks_up_to_the_top(high, kind):
    top = axis.top_of([high], kind, 1e-3)
    ticks = axis.value_ticks(0, top, kind)
    assert high <= top * (1 + 1e-9)
    assert ticks[-1].value == pytest.approx(top)
    assert 2 <= len(ticks) <= 7
    assert len({tick.label for tick in ticks}) == len(ticks)
    assert all(len(tick.label) <= 16 for tick in ticks)


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9990, 1, 1)),
    st.one_of(st.timedeltas(timedelta(0), timedelta(days=3)), st.timedeltas(timedelta(0), timedelta(days=3000))),
    st.integers(2, 12),
)
def test_time_ticks_are_round_times_of_the_calendar(start, span, most):
    epoch = datetime(1970, 1, 1)
    low = (start - epoch) / timedelta(microseconds=1)
    high = low + span / timedelta(microseconds=1)
    ticks = axis.time_ticks(low, high, most)
    assert len(ticks) <= most + 2
    assert [tick.value for tick in ticks] == sorted({tick.value for tick in ticks})
    for tick in ticks:
        assert low - 1 <= tick.value <= high + 1
        at = epoch + timedelta(microseconds=tick.value)
        if ":" in tick.label:
            clock = [float(part) for part in tick.label.split(":")]
            assert clock[:2] == [at.hour, at.minute]
            assert clock[2:] == ([] if len(clock) == 2 else [pytest.approx(at.second + at.microsecond / 1e6)])
        else:
            assert (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0)


@given(numbers, numbers)
def test_time_ticks_whatever_comes(start, end):
    assert len(axis.time_ticks(start, end)) <= 10


@given(st.one_of(st.text(), st.binary(), st.just(HOSTILE), st.integers()), st.integers(2, 50))
def test_texts_are_one_visible_line_of_bounded_length(value, most):
    shown = text.visible(value, most)
    assert len(shown) <= 10 * most
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    escaped = text.escape(value, most)
    assert not set("<>\"'") & set(escaped)
    ET.fromstring(f'<a b="{escaped}">{escaped}</a>')


@pytest.mark.parametrize("write", [text.count, text.octets, text.duration, text.moment])
@given(numbers)
def test_numbers_are_short(write, value):
    assert 1 <= len(write(value)) <= 24


@given(st.floats(0.001, 1e9))
def test_durations_are_near_to_what_they_say(seconds):
    units = {"d": 86400, "h": 3600, "min": 60, "s": 1, "ms": 1e-3}
    parts = text.duration(seconds).replace(",", "").split()
    said = sum(float(number) * units[unit] for number, unit in zip(parts[::2], parts[1::2]))
    assert said == pytest.approx(seconds, rel=0.022)  # two units: half an hour of a day


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_shares_never_round_to_nothing_or_to_all(part, whole):
    said = text.share(min(part, whole), whole)
    assert (said == "0 %") == (part == 0)
    assert (said == "100 %") == (part >= whole)


def test_moments_are_utc():
    at = datetime(2024, 2, 29, 23, 59, 58, tzinfo=timezone.utc)
    assert text.moment(at.timestamp() * 1e6) == "2024-02-29 23:59:58"


@given(st.integers(300, 1100), st.floats(1e4, 1e10), st.integers(0, 10**10))
@example(348, 2e5, 700_000)
def test_labels_of_times_do_not_overlap(width, step, offset):
    """Wherever the first tick is: a digit is at least 6.2 px wide."""
    start = 1_763_730_000_000_000 + offset
    bars = [Series("/queue/TRAIN_MVT_ALL_TOC", [1] * 177)]
    for drawn in (
        plot.timeline(bars, start, step, title="t", width=width),
        plot.stacked(bars, start, step, title="t", unit="", width=width),
    ):
        end = 0.0
        labels = re.findall(
            r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)" class="tick">(\d[\d:. A-Za-z]*)<', drawn
        )
        for x, anchor, words in (each for each in labels if ":" in each[2]):
            left = float(x) - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * 6.2 * len(words)
            assert left > end, labels
            end = left + 6.2 * len(words)
