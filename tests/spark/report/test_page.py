"""The page of the report, its plots, its verdict, and the state of a spool: from figures, without Spark."""

import json
import math
import re
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import examples

pytest.importorskip("pyspark")

from spark.report.making import HOSTILE, START, Checked

from stompcodec import shown
from stompcodec.capture import CaptureWriter
from stompcodec.errors import ConfigError, StoreError
from stompcodec.spark import report as spool
from stompcodec.spark.receiver import identify, stamped
from stompcodec.spark.report import page as plot
from stompcodec.spark.report.page import LEVELS, MOST_SERIES, THRESHOLDS, Series, escape, page_of, verdict_of, visible

UNKNOWN = (
    "first last seconds per_second per_second_peak lag_p50_seconds lag_p95_seconds lag_p99_seconds lag_max_seconds"
    " longest_silence_seconds sequence_gaps records quarantined missing sink_duplicates stale_seconds"
)
COUNTS = "frames octets destinations without_time with_lag sent_ahead redelivered duplicates malformed silences"
EMPTY = {**dict.fromkeys(UNKNOWN.split()), **dict.fromkeys(COUNTS.split(), 0), "silence_seconds": 60.0}
EMPTY["silent_seconds"] = 0.0


def nothing(**figures):
    """What stands in report.json when nothing was found."""
    figures = {**EMPTY, **figures}
    return {
        "report": 1, "title": "t", "archive": "archive", "generated": START, "verdict": verdict_of(figures),
        "figures": figures, "rate": None, "lag": None, "sizes": [], "destinations": [], "silences": [], "gaps": [],
        "malformed": None, "quarantine": None, "spool": None, "proof": None,
        "thresholds": [threshold._asdict() for threshold in THRESHOLDS],
    }  # fmt: skip


def everything(text=HOSTILE, number=2**62, buckets=180):
    """As much as a report can hold, with the same text and number all over."""
    destination = {"destination": text, **dict.fromkeys(
        ["frames", "octets", "redelivered", "malformed", "lag_p95_seconds", "first", "last"], number
    )}  # fmt: skip
    held = {
        "total": number, "kinds": number, "reasons": [{"reason": text, "count": number}] * 20,
        "samples": [{"reason": text, "time": START, "destination": text, "id": text, "raw": text}] * 40,
    }  # fmt: skip
    chain = {"chain": text, "open": True, "oldest": START, "newest": START, **dict.fromkeys(
        ["segments", "start", "end", "octets", "committed", "behind"], number
    )}  # fmt: skip
    column = [number] * buckets
    return nothing(**dict.fromkeys(EMPTY, number)) | {
        "title": text, "archive": text, "destinations": [destination] * 20, "malformed": held, "quarantine": held,
        "rate": {
            "start": START, "bucket_seconds": 30.0, "buckets": buckets, "destinations": [text] * 7, "other": True,
            "frames": [column] * 7, "octets": column, "redelivered": column, "duplicates": column,
        },
        "lag": {"p50": column, "p95": column, "p99": column},
        "sizes": [{"from": 2**power, "below": 2 ** (power + 1), "frames": number} for power in range(63)],
        "gaps": [{"destination": text, "name": text, "at": START, "after": number, "before": 1, "missing": 5}] * 50,
        "silences": [{"start": START, "end": START + 10**8, "seconds": 100.0}] * 50,
        "spool": {**chain, "path": text, "chains": [chain] * 100, "problems": [text] * 20},
        "proof": {"produced": number, "in_sink": number, "missing": number, "duplicates": number, text: number},
    }  # fmt: skip


def words_of(page):
    return "".join(Checked(page).text)


# ---- the page ----


def test_a_page_stays_small_and_inert_whatever_the_feed_sent():
    page = page_of(everything())
    checked = Checked(page)
    assert len(page.encode()) < 1_000_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    assert "script" not in checked.tags
    assert "␛[31m\\u202e" in "".join(checked.text)
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
    assert "x" * 400 not in page


@settings(max_examples=examples(30))
@given(st.text(max_size=50), st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_any_text_and_number_make_a_page(text, number):
    Checked(page_of(everything(text, number, buckets=3)))


PROOF = {
    "produced": 19_800, "in_sink": 19_800, "missing": 0, "duplicates": 0, "damaged": 0, "left_in_broker": 0,
    "sent_twice": 200, "redelivered": 176, "late": 200, "malformed": 100, "quarantined": 100, "events": 104_560,
    "typed_rows": 104_560, "of my own": 7,
}  # fmt: skip


@pytest.mark.parametrize("name", ["missing", "duplicates", "damaged", "left_in_broker"])
def test_a_fault_in_the_proof_is_told(name):
    page = page_of({**nothing(frames=5), "proof": {**PROOF, name: 3}})
    assert "Not every message is in the sink exactly once" in page
    assert page.count('<div class="unhealthy">') == 1
    assert "Every message is in the sink exactly once" in page_of({**nothing(frames=5), "proof": PROOF})


@pytest.mark.parametrize(("first", "last"), [(100, 50), (900, 100), (10, 900), (500, 1000)])
def test_no_bar_is_higher_than_the_highest_rate(first, last):
    """The first and the last bar stand for a part of their time, and are drawn as a rate, at most that of the tile."""
    frames = [first, *[500] * 10, last]
    found = everything(text="/queue/a", buckets=12)
    found["rate"] |= {"bucket_seconds": 0.2, "destinations": ["/queue/a"], "frames": [frames], "other": False}
    found["figures"] |= {"first": START + 190_000, "last": START + 11 * 200_000 + 10_000}
    found["figures"]["per_second_peak"] = peak = max(frames) / 0.2
    (highest,) = set(re.findall(r"highest ([\d,]+) frames/s", page_of(found)))
    assert float(highest.replace(",", "")) == peak


# ---- the verdict ----


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda threshold: threshold.name)
def test_each_threshold_at_its_limits(threshold):
    unit, levels = 1000 if threshold.unit == "share" else 1, list(LEVELS)
    figures = {**EMPTY, "frames": 1000, "records": 1000}
    assert plot.level_of(threshold, {**figures, threshold.name: None}) == "healthy"
    for limit, level in ((threshold.look, "look"), (threshold.bad, "unhealthy")):
        if limit is None:
            continue
        at, above = ({**figures, threshold.name: value} for value in (limit * unit, limit * unit + 1))
        assert (
            levels.index(plot.level_of(threshold, at))
            < levels.index(level)
            <= levels.index(plot.level_of(threshold, above))
        )
        verdict = verdict_of(above)
        assert verdict["reasons"][0]["name"] == threshold.name
        assert verdict["word"] == LEVELS[verdict["level"]]
        page = page_of(nothing(**above))
        assert f'<section class="verdict {verdict["level"]}"' in page
        assert verdict["reasons"][0]["text"] in words_of(page)


def test_the_worst_comes_first():
    verdict = verdict_of({**EMPTY, "frames": 100, "malformed": 1, "missing": 3, "silences": 2})
    assert [(each["level"], each["text"]) for each in verdict["reasons"]] == [
        ("unhealthy", "3 messages missing in the sink"),
        ("look", "1 frame malformed (1 %)"),
        ("look", "2 silences longer than 1 min"),
    ]


def test_other_thresholds_and_wrong_ones():
    table = plot.thresholds_of({"malformed": (0.5, None)})
    for malformed, level in ((50, "healthy"), (100, "look")):
        assert verdict_of({**EMPTY, "frames": 100, "malformed": malformed}, table)["level"] == level
    for name, limits in (("nonsense", (1, 2)), ("missing", (1,)), ("missing", ("a", 2))):
        with pytest.raises(ConfigError, match=name):
            plot.thresholds_of({name: limits})


# ---- the spool ----

FRAME = b"MESSAGE\ndestination:/queue/a\n\n" + b"x" * 100 + b"\0"


@pytest.fixture
def capture(tmp_path):
    """A capture of ten frames."""
    with CaptureWriter(tmp_path / "s.stompcap") as writer:
        for _ in range(10):
            writer.append(FRAME, START)
    return tmp_path / "s.stompcap"


@pytest.mark.parametrize("single", [False, True])
def test_the_state_of_a_spool(tmp_path, single):
    path = tmp_path / "s.stompcap"
    with CaptureWriter(path, segment_octets=1000, single=single) as writer:
        for index in range(20):
            writer.append(FRAME, START + index)
            writer.append(FRAME, START + 100 + index, chain="frames" if single else "frames.1")
        writer.sync()
        assert spool.spool_state(path)["open"]
    state = spool.spool_state(path)
    assert (state["open"], state["octets"], state["behind"], state["problems"]) == (False, 40 * len(FRAME), None, [])
    assert (state["oldest"], state["newest"]) == (START, START + 119)
    if not single:
        assert [chain["chain"] for chain in state["chains"]] == ["frames", "frames.1"]
        assert state["segments"] == len(list(path.glob("*.stomp"))) > 4


def checkpoint(folder, batch, offset, done=True):
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}')
    if done:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_how_far_a_query_has_come(tmp_path, capture):
    assert spool.committed(tmp_path / "none") == (None, {})
    checkpoint(tmp_path / "c", 9, {"frames": 3 * len(FRAME)})
    checkpoint(tmp_path / "c", 10, {"frames": 7 * len(FRAME), "#tick": 1})
    checkpoint(tmp_path / "c", 11, {"frames": 9 * len(FRAME)}, done=False)
    (tmp_path / "c" / "commits" / ".10.crc").write_text("")
    state = spool.spool_state(capture, tmp_path / "c")
    assert (state["behind"], state["chains"][0]["committed"]) == (3 * len(FRAME), 7 * len(FRAME))
    checkpoint(tmp_path / "c", 11, stamped({"frames": 8 * len(FRAME)}, identify(str(capture))))
    state = spool.spool_state(capture, tmp_path / "c")
    assert (state["behind"], state["problems"]) == (2 * len(FRAME), [])
    checkpoint(tmp_path / "c", 12, stamped({"frames": 7 * len(FRAME)}, "0" * 32))
    state = spool.spool_state(capture, tmp_path / "c")
    assert state["behind"] is None
    assert "belongs to another spool" in state["problems"][0]


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}\n-", "v1\n{}\nnot json", 'v1\n{}\n{"a": "b"}', "v1\n{}\n[1]"])
def test_a_checkpoint_that_is_not_understood(tmp_path, text):
    checkpoint(tmp_path, 0, {})
    (tmp_path / "offsets" / "0").write_text(text)
    assert spool.committed(tmp_path) == (None, {})


def test_a_damaged_spool_is_told(tmp_path, capture):
    next(capture.glob("*.idx")).write_bytes(b"nonsense" * 9)
    state = spool.spool_state(capture)
    assert state["problems"]
    assert state["octets"] == 10 * len(FRAME)
    with pytest.raises(StoreError):
        spool.spool_state(tmp_path / "none")


# ---- plots and texts: well-formed and bounded whatever the numbers and labels are ----

SVG = "{http://www.w3.org/2000/svg}"
ODD = [math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e308, 5e-324, True, "7"]
numbers = st.one_of(st.none(), st.integers(), st.floats(), st.sampled_from(ODD))
columns = st.lists(numbers, max_size=30)
labels = st.one_of(st.text(max_size=40), st.just(HOSTILE + "\ud800"), st.none(), st.binary(max_size=20))
series = st.lists(st.builds(Series, labels, columns, st.sampled_from(["s0", "s1", 'x" onload="'])), max_size=12)
kinds = st.sampled_from(["count", "seconds"])
sizes = st.sampled_from([320, 488, 1032])


def drawn(many, start=0, step=1e6, title="t", **how):
    """The root of a plot; nothing in it or in the small one is off the sheet, no number, or what runs."""
    if "classes" not in how:
        how |= {"start": start, "step": step}
    wide, narrow = re.findall("<svg.*?</svg>", plot.plot(many, title=title, **how), re.DOTALL)
    assert "hover" not in narrow
    check(narrow.replace("</title>", "</title><desc>small</desc>", 1))
    return check(wide)


def check(svg):
    root = ET.fromstring(svg)
    assert root.tag == SVG + "svg"
    assert root.find(SVG + "title").text
    assert root.find(SVG + "desc").text
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in {"svg", "title", "desc", "text", "line", "rect", "path", "circle"}
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
    how = {"kind": kind, "as_lines": as_lines, "silences": silences}
    drawn(many, start, step, HOSTILE, unit=HOSTILE, width=width, **how)


@pytest.mark.parametrize("as_lines", [False, True])
@pytest.mark.parametrize("how", [{"silences": [(0, 1)] * 10**6}, {"classes": ["/queue/a"] * 10**6}])
def test_nothing_is_drawn_by_a_number_of_the_feed(how, as_lines):
    root = drawn([Series("/queue/a", [1.0] * 10**6)] * 10**6, as_lines=as_lines, **how)
    shapes = [element for element in root.iter() if element.tag in (SVG + "rect", SVG + "path")]
    assert len(shapes) <= plot.MOST_POINTS + MOST_SERIES + plot.MOST_MARKS


def test_stacked_bars_stand_on_each_other():
    two = [Series("a", [3, 0], "s1"), Series("b", [1, 2], "s2")]
    root = drawn(two, 1_700_000_000_000_000, 60e6, unit="frames")
    low, high = (
        re.findall(r"M[\d.]+ ([\d.]+)h[\d.]+V([\d.]+)", found(root, style)[0].get("d")) for style in ("s1", "s2")
    )
    assert (len(low), len(high)) == (1, 2)  # nothing is drawn for a 0
    assert low[0][1] == high[0][0]
    assert high[1][0] == low[0][0]  # where a is 0, b stands on the axis
    tips = [each.find(SVG + "title").text for each in found(root, "hover")]
    assert tips == ["2023-11-14 22:13:20 UTC\na: 3 frames\nb: 1 frames", "2023-11-14 22:14:20 UTC\nb: 2 frames"]


@given(numbers, numbers, st.sampled_from(["count", "seconds", "time"]))
def test_ticks_are_few_in_order_and_inside(low, high, kind):
    values = [tick.value for tick in plot.ticks(low, high, kind)]
    assert len(values) <= 7
    assert values == sorted(set(values))
    a, b = shown.finite(low), shown.finite(high)
    if a is not None and b is not None and b > a:
        room = (b - a) * 1e-9 + max(abs(a), abs(b)) * 1e-9
        assert all(a - room <= value <= b + room for value in values)


spans = st.timedeltas(timedelta(milliseconds=1), timedelta(days=3)) | st.timedeltas(timedelta(1), timedelta(3000))


@given(st.datetimes(datetime(1, 1, 2), datetime(9990, 1, 1)), spans, st.integers(2, 12))
def test_time_ticks_are_round_times_of_the_calendar(start, span, most):
    epoch = datetime(1970, 1, 1)
    low = (start - epoch) / timedelta(seconds=1)
    ticks = plot.ticks(low, low + span / timedelta(seconds=1), "time", most)
    assert len(ticks) <= most + 2
    for tick in ticks:
        at = epoch + timedelta(seconds=tick.value)
        seconds = at.second + at.microsecond / 1e6
        if ":" in tick.label:
            clock = [float(part) for part in tick.label.split(":")]
            assert clock[:2] == [at.hour, at.minute]
            assert clock[2:] in ([], [pytest.approx(seconds, abs=2e-5)])
        else:
            assert (at.hour, at.minute, seconds) == (0, 0, 0)


@given(st.one_of(st.text(), st.binary(), st.just(HOSTILE), st.integers()), st.integers(2, 50))
def test_texts_are_one_visible_line_of_bounded_length(value, most):
    line = visible(value, most)
    assert len(line) <= 10 * most
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", line)
    escaped = escape(value, most)
    assert not set("<>\"'") & set(escaped)
    ET.fromstring(f'<a b="{escaped}">{escaped}</a>')


@given(numbers)
def test_numbers_are_short(value):
    assert all(1 <= len(write(value)) <= 24 for write in (shown.count, shown.octets, shown.duration, plot.moment))


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_shares_never_round_to_nothing_or_to_all(part, whole):
    said = shown.share(min(part, whole), whole)
    assert (said == "0 %") == (part == 0)
    assert (said == "100 %") == (part >= whole)
