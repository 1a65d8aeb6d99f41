"""The report: its page, its plots, its verdict, the state of a spool; and what it counts is what Python counts."""

import itertools
import json
import math
import random
import re
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")
from spark.making import pa

from stompcodec.capture import CaptureWriter
from stompcodec.errors import ConfigError, StoreError
from stompcodec.spark import report as spool
from stompcodec.spark.receiver import identify, stamped
from stompcodec.spark.report import data, report
from stompcodec.spark.report import page as plot
from stompcodec.spark.report.page import LEVELS, MOST_SERIES, THRESHOLDS, Series, escape, page_of, verdict_of, visible

START = 1_763_730_000_000_000  # 21 November 2025, 13:00 UTC, in µs
KINDS = {
    **{"destination": pa.string(), "message_id": pa.string(), "received_at": pa.timestamp("us", "UTC")},
    **{"sent_at": pa.timestamp("us", "UTC"), "redelivered": pa.bool_(), "body": pa.binary(), "length": pa.int32()},
    **{"error": pa.string(), "_reason": pa.string(), "_raw": pa.binary()},
}
ARCHIVE = ("message_id", "received_at", "sent_at", "redelivered", "body", "length", "error")
HELD = ("destination", "message_id", "received_at", "_reason", "_raw")
#: Its first letters already are what has to be escaped.
HOSTILE = (
    '&\x00\x1b[31m\u202e]]><!--\'"</style></title><script>alert("1")</script><img src=x onerror=alert(1)>' + "x" * 3000
)
KNOWN = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section", "div", "p", "h1", "h2",
    "ul", "li", "i", "b", "small", "span", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "code",
    "details", "summary", "svg", "desc", "text", "line", "rect", "path", "circle",
}  # fmt: skip


class Checked(HTMLParser):
    """What elements a page has; they are closed in order, and none of them runs or loads anything."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.text, self.page = [], [], [], page
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in KNOWN, tag
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("href", "src")
            assert name in ("content", "xmlns") or "http" not in (value or "")
            assert name != "style" or re.fullmatch(r"(--w:[\d.]+%;)?--c:var\(--\w+\)", value)
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def _write(folder, rows, names):
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(name, KINDS[name]) for name in names])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"part-{len(list(folder.iterdir()))}.parquet")


def write_archive(folder, frames):
    by_place = {}
    for frame in frames:
        by_place.setdefault(frame.get("destination"), []).append(frame)
    for destination, rows in by_place.items():
        name = "__HIVE_DEFAULT_PARTITION__" if destination is None else _escaped(destination)
        _write(Path(folder, "date=2025-11-21", f"destination={name}"), rows, ARCHIVE)
    return folder


def _escaped(name):
    return "".join(char if char.isalnum() or char in "._-" or ord(char) > 127 else f"%{ord(char):02X}" for char in name)


def write_exploded(folder, good, held):
    _write(Path(folder, "rows"), [{}] * good, ("destination",))
    _write(Path(folder, "_quarantine"), held, HELD)
    return folder


def frame(at, lag=0.2, **columns):
    came = START + round(at * 1e6)
    sent = None if lag is None else came - round(lag * 1e6)
    usual = {"destination": "/topic/A", "message_id": f"ID:{at}", "received_at": came, "sent_at": sent}
    return {**usual, "redelivered": False, "body": b"{}", "length": 300, **columns}


PLACES = [
    *("/topic/TD_ALL_SIG_AREA", "/topic/TRAIN_MVT_ALL_TOC", "/topic/VSTP_ALL", "/topic/RTPPM_ALL"),
    *("/topic/TSR_ALL_ROUTE", "/queue/darwin.pushport-v16", "/queue/apel.accounting"),
    *("/queue/Consumer.report.VirtualTopic.eng.brew.build.complete", "/queue/DLQ"),
]


def sick_feed(frames):
    """An hour of a feed like that of a railway, which is slow, silent, doubled and broken."""
    rng, found = random.Random(1), []
    for index in range(frames):
        at = 3600 * index / frames + rng.random()
        part = at / 3600
        if 0.42 < part < 0.54 or rng.random() < 0.25 + 0.25 * math.sin(6.3 * part):
            continue
        one = frame(
            at,
            destination=PLACES[min(len(PLACES) - 1, int(rng.expovariate(0.9)))],
            message_id=f"ID:host-{index}",
            lag=rng.lognormvariate(-1.6, 0.9) + 900 * max(0.0, part - 0.55) * rng.random(),
            length=int(rng.lognormvariate(6.4, 1.1)),
            redelivered=part > 0.54 and rng.random() < 0.4,
        )
        found.append(one)
        if rng.random() < 0.004:
            found.append(dict(one, redelivered=True))
        if rng.random() < 0.006:
            kind = rng.choice(["bad-header-line", "truncated", "missing-null", "unexpected-nul"])
            broken = {"destination": None, "message_id": None, "body": HOSTILE.encode(), "sent_at": None}
            found.append({**one, **broken, "error": f"{kind}: the line has no colon, at {index}"})
    return found


def held(many):
    rng = random.Random(1)
    reasons = ["not JSON: Expecting value, at 0", "field body.train_id: no string", HOSTILE[:60], "gzip: truncated"]
    return [
        {
            **{"destination": HOSTILE if index == 3 else rng.choice(PLACES), "message_id": f"ID:bad-{index}"},
            **{"received_at": START + index * 1_000_000, "_reason": rng.choices(reasons, [9, 4, 1, 2])[0]},
            "_raw": HOSTILE.encode() if index % 3 else b'{"header": {"msg_type": "0003"}, "body": {"train_id": 5}}',
        }
        for index in range(many)
    ]


UNKNOWN = (
    "first last seconds per_second per_second_peak lag_p50_seconds lag_p95_seconds lag_p99_seconds lag_max_seconds"
    " longest_silence_seconds sequence_gaps records quarantined missing sink_duplicates stale_seconds"
)
COUNTS = "frames octets destinations without_time with_lag sent_ahead redelivered duplicates malformed silences"
EMPTY = {**dict.fromkeys(UNKNOWN.split()), **dict.fromkeys(COUNTS.split(), 0), "silence_seconds": 60.0}
EMPTY["silent_seconds"] = 0.0


def nothing(**figures):
    figures = {**EMPTY, **figures}
    return {
        "report": 1, "title": "t", "archive": "archive", "generated": START, "verdict": verdict_of(figures),
        "figures": figures, "rate": None, "lag": None, "destinations": [], "silences": [], "gaps": [],
        "malformed": None, "quarantine": None, "spool": None, "proof": None,
        "thresholds": [threshold._asdict() for threshold in THRESHOLDS],
    }  # fmt: skip


def everything(text=HOSTILE, number=2**62, buckets=180):
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
            "frames": [column] * 7, "octets": column,
        },
        "lag": {"p50": column, "p95": column, "p99": column},
        "gaps": [{"destination": text, "name": text, "at": START, "after": number, "before": 1, "missing": 5}] * 50,
        "silences": [{"start": START, "end": START + 10**8, "seconds": 100.0}] * 50,
        "spool": {**chain, "path": text, "chains": [chain] * 100, "problems": [text] * 20},
        "proof": {"produced": number, "in_sink": number, "missing": number, "duplicates": number, text: number},
    }  # fmt: skip


def test_a_page_stays_small_and_inert_whatever_the_feed_sent():
    page = page_of(everything())
    checked = Checked(page)
    assert len(page.encode()) < 1_000_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    assert "script" not in checked.tags
    assert "␛[31m\\u202e" in "".join(checked.text)
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
    assert "x" * 400 not in page


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


def test_a_tile_tells_the_limit_of_what_is_known():
    """A feed whose spool is closed may be old and healthy."""
    for open_since, told in ((None, False), (5.0, True)):
        page = page_of(nothing(age_seconds=800.0, stale_seconds=open_since))
        assert ('<small class="limit">look here above 10 min' in page) == told


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
        assert verdict["reasons"][0]["text"] in "".join(Checked(page).text)


def test_the_worst_comes_first_and_thresholds_can_be_others():
    verdict = verdict_of({**EMPTY, "frames": 100, "malformed": 1, "missing": 3, "silences": 2})
    assert [(each["level"], each["text"]) for each in verdict["reasons"]] == [
        *(("unhealthy", "3 messages missing in the sink"), ("look", "1 frame malformed (1 %)")),
        ("look", "2 silences longer than 1 min"),
    ]
    table = plot.thresholds_of({"malformed": (0.5, None)})
    for malformed, level in ((50, "healthy"), (100, "look")):
        assert verdict_of({**EMPTY, "frames": 100, "malformed": malformed}, table)["level"] == level
    for name, limits in (("nonsense", (1, 2)), ("missing", (1,)), ("missing", ("a", 2))):
        with pytest.raises(ConfigError, match=name):
            plot.thresholds_of({name: limits})


FRAME = b"MESSAGE\ndestination:/queue/a\n\n" + b"x" * 100 + b"\0"


@pytest.fixture
def capture(tmp_path):
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


SVG = "{http://www.w3.org/2000/svg}"
ODD = [math.nan, math.inf, -math.inf, 10**400, -(10**400), 1e308, 5e-324, True, "7"]
numbers = st.one_of(st.none(), st.integers(), st.floats(), st.sampled_from(ODD))
columns = st.lists(numbers, max_size=30)
labels = st.one_of(st.text(max_size=40), st.just(HOSTILE + "\ud800"), st.none(), st.binary(max_size=20))
series = st.lists(st.builds(Series, labels, columns, st.sampled_from(["s0", "s1", 'x" onload="'])), max_size=12)
kinds = st.sampled_from(["count", "seconds"])


def drawn(many, start=0, step=1e6, title="t", **how):
    """The root of a plot; nothing in it or in the small one is off the sheet, no number, or what runs."""
    wide, narrow = re.findall("<svg.*?</svg>", plot.plot(many, title=title, start=start, step=step, **how), re.DOTALL)
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


@given(series, numbers, numbers, kinds, st.booleans(), st.lists(st.tuples(numbers, numbers), max_size=9))
@example([Series("a", [])], 0, 1, "count", False, [])
@example([Series("a", [0, 0])], 0, 1, "count", False, [])
@example([Series("a", [5])], 1.7e15, 1e6, "count", False, [(1.7e15, 1.7e15 + 5e5)])
@example([Series("a", [1, 2])], 1.7e15, 0, "count", True, [])
@example([Series("a", [math.nan])], 0, 1, "seconds", True, [])
@example([Series("a", [5e-324, 1e308])], 0, 1, "seconds", True, [])
def test_a_plot_over_time_whatever_comes(many, start, step, kind, as_lines, silences):
    how = {"kind": kind, "as_lines": as_lines, "silences": silences}
    drawn(many, start, step, HOSTILE, unit=HOSTILE, **how)


@pytest.mark.parametrize("as_lines", [False, True])
def test_nothing_is_drawn_by_a_number_of_the_feed(as_lines):
    silences = [(0, 1)] * 10**6
    root = drawn([Series("/queue/a", [1.0] * 10**6)] * 10**6, as_lines=as_lines, silences=silences)
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


@given(st.one_of(st.text(), st.binary(), st.just(HOSTILE), st.integers()), st.integers(2, 50))
def test_texts_are_one_visible_line_of_bounded_length(value, most):
    line = visible(value, most)
    assert len(line) <= 10 * most
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", line)
    escaped = escape(value, most)
    assert not set("<>\"'") & set(escaped)
    ET.fromstring(f'<a b="{escaped}">{escaped}</a>')


# ---- with Spark: what it counts is what a few lines of Python count ----
def silences_of(times):
    return [(a, b) for a, b in itertools.pairwise(sorted(times)) if b - a > 60e6]


def check_files(folder, found):
    assert json.loads((folder / "report.json").read_text()) == found
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert len(page) < 1_000_000
    assert {"main", "table"} <= set(Checked(page).tags)


def test_figures_of_a_sick_feed_are_those_python_counts(spark, tmp_path):
    frames = sick_feed(4000)
    archive = write_archive(tmp_path / "archive", frames)
    more = {"exploded": write_exploded(tmp_path / "exploded", 1000, held(200)), "spool": tmp_path / "s.stompcap"}
    more |= {"proof": {"produced": 4000, "in_sink": 3999, "missing": 1, "duplicates": 0}, "title": "Sick <feed>"}
    with CaptureWriter(tmp_path / "s.stompcap") as writer:
        writer.append(b"MESSAGE\n\n\0", START)
    found = report(spark, archive, tmp_path / "out", now=START / 1e6 + 7200, **more)
    figures, rate = found["figures"], found["rate"]
    times = [each["received_at"] for each in frames]
    lags = sorted((each["received_at"] - each["sent_at"]) / 1e6 for each in frames if each["sent_at"] is not None)
    ids = Counter((each["destination"], each["message_id"], each["body"]) for each in frames if each["message_id"])
    quiet = silences_of(times)
    wanted = {
        **{"frames": len(frames), "octets": sum(each["length"] for each in frames), "with_lag": len(lags)},
        **{"first": min(times), "last": max(times), "redelivered": sum(each["redelivered"] for each in frames)},
        **{"malformed": sum("error" in each for each in frames), "duplicates": sum(ids.values()) - len(ids)},
        **{"longest_silence_seconds": max(b - a for a, b in quiet) / 1e6, "quarantined": 200, "records": 1200},
        "age_seconds": max(0.0, 7200 - (max(times) - START) / 1e6),
    }
    assert {name: figures[name] for name in wanted} == pytest.approx(wanted)
    assert figures["duplicates"] > 0
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        near = [lags[min(len(lags) - 1, max(0, round(len(lags) * at)))] for at in (share - 0.01, share + 0.01)]
        assert near[0] <= figures[f"lag_{name}_seconds"] <= near[1]
    longest_first = sorted(quiet, key=lambda each: each[0] - each[1])
    assert [(each["start"], each["end"]) for each in found["silences"]] == longest_first
    width = rate["bucket_seconds"] * 1e6
    by_bar = Counter(math.floor((time - rate["start"]) / width) for time in times)
    assert [sum(column) for column in zip(*rate["frames"])] == [by_bar[bar] for bar in range(rate["buckets"])]
    assert rate["start"] % width == 0
    places = Counter(each["destination"] for each in frames)
    assert {each["destination"]: each["frames"] for each in found["destinations"]} == places
    assert list(zip(rate["destinations"], map(sum, rate["frames"])))[:3] == places.most_common(3)
    reasons = Counter(each["_reason"] for each in held(200))
    assert {each["reason"]: each["count"] for each in found["quarantine"]["reasons"]} == reasons
    kinds = Counter(each["error"].partition(":")[0] for each in frames if "error" in each)
    assert {each["reason"]: each["count"] for each in found["malformed"]["reasons"]} == kinds
    assert found["verdict"]["level"] == "unhealthy"
    assert "1 message missing in the sink" in [each["text"] for each in found["verdict"]["reasons"]]
    check_files(tmp_path / "out", found)


@pytest.mark.slow
def test_hostile_times_names_and_numbers(spark, tmp_path):
    far = 9_223_372_036_854_775_807
    frames = [
        *(frame(0, destination=HOSTILE[:60], message_id=HOSTILE), frame(1, destination="007")),
        frame(2, destination=None, message_id=None, error="truncated: " + HOSTILE, body=b"\xff" * 10_000),
        *(frame(3, length=2**31 - 1), frame(4, length=-5), frame(5, length=None, redelivered=None)),
        *(frame(6, received_at=None, sent_at=None), frame(7, received_at=None), frame(8, sent_at=-far)),
        frame(9, sent_at=far),
    ]
    found = report(spark, write_archive(tmp_path / "archive", frames), tmp_path / "out", now=START / 1e6)
    wanted = {"frames": 10, "without_time": 1, "sent_ahead": 1, "seconds": 9, "lag_p50_seconds": 0.2}
    assert {name: found["figures"][name] for name in wanted} == pytest.approx(wanted)
    assert "007" in [each["destination"] for each in found["destinations"]]
    assert len(found["malformed"]["samples"][0]["raw"]) <= 500
    check_files(tmp_path / "out", found)
    # times of a feed that has none of its own are those of sending, and may be anywhere
    frames += [frame(9, received_at=None, sent_at=sent) for sent in (-far, far)]
    found = report(spark, write_archive(tmp_path / "archive2", frames), tmp_path / "out2", now=START / 1e6)
    assert sum(map(sum, found["rate"]["frames"])) == 11
    assert found["rate"]["buckets"] <= 181
    check_files(tmp_path / "out2", found)


def test_silences_in_and_between_chunks(spark):
    hour = 3600
    seconds = [0, 1, 200, 3599, 3601, 3602.5, 7300, 7301, 5 * hour, 5 * hour + 59, 5 * hour + 119.5]
    times = [START // (hour * 10**6) * hour * 10**6 + round(each * 1e6) for each in seconds]
    rows = spark.createDataFrame([(float(time),) for time in times], "time double")
    total, expected = {"silence_seconds": 60.0}, silences_of(times)
    found = data._silences(rows, total, float(times[0]), float(times[-1]))
    assert {(each["start"], each["end"]) for each in found} == set(expected)
    assert total["silences"] == len(expected) == 5
    assert total["silent_seconds"] == pytest.approx(sum(b - a for a, b in expected) / 1e6)
    assert total["longest_silence_seconds"] == pytest.approx(max(b - a for a, b in expected) / 1e6)


def test_part_of_an_archive_and_other_thresholds(spark, tmp_path):
    archive = write_archive(tmp_path / "archive", [frame(second, redelivered=second == 30) for second in range(100)])
    begin = datetime.fromtimestamp(START / 1e6, timezone.utc)
    absent = {"exploded": [tmp_path / "none"], "metrics": tmp_path / "none", "spool": tmp_path / "none"}
    part = {"since": begin + timedelta(seconds=20), "until": begin + timedelta(seconds=50)}
    found = report(spark, archive, tmp_path / "out", **absent, **part, thresholds={"redelivered": (0.01, 0.02)})
    assert [found["figures"][name] for name in ("frames", "records", "sequence_gaps")] == [30, None, None]
    assert found["quarantine"] is None
    assert found["spool"]["problems"]
    assert [each["name"] for each in found["verdict"]["reasons"]] == ["redelivered"]
    assert found["verdict"]["level"] == "unhealthy"


def test_an_archive_that_is_empty_or_not_there(spark, tmp_path):
    (tmp_path / "archive").mkdir()
    found = report(spark, tmp_path / "archive", tmp_path / "out")
    assert found["figures"]["frames"] == 0
    assert found["verdict"]["reasons"][0]["text"] == "there are no frames at all"
    check_files(tmp_path / "out", found)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="there is no archive"):
        report(spark, tmp_path / "none", tmp_path / "out")
    with pytest.raises(ConfigError, match="nonsense"):
        report(spark, tmp_path / "archive", tmp_path / "out", thresholds={"nonsense": (1, 2)})
    with pytest.raises(StoreError, match="cannot be written"):
        report(spark, tmp_path / "archive", tmp_path / "file" / "out")
