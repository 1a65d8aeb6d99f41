"""The page of the report, its verdict, and the state of a spool: from figures, without Spark."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec.capture import CaptureWriter
from stompcodec.errors import ConfigError, StoreError
from stompcodec.spark import report as spool
from stompcodec.spark.receiver import identify, stamped
from stompcodec.spark.report.page import LEVELS, THRESHOLDS, level_of, page_of, thresholds_of, verdict_of, written

HOSTILE = (
    '</style></title><script>alert("1")</script><img src=x onerror=alert(1)>&\x00\x1b[31m\u202e]]><!--' + "x" * 3000
)
EMPTY = {
    "frames": 0, "octets": 0, "destinations": 0, "first": None, "last": None, "seconds": None, "per_second": None,
    "per_second_peak": None, "without_time": 0, "with_lag": 0, "lag_p50_seconds": None, "lag_p95_seconds": None,
    "lag_p99_seconds": None, "lag_max_seconds": None, "sent_ahead": 0, "redelivered": 0, "duplicates": 0,
    "malformed": 0, "silence_seconds": 60.0, "silences": 0, "silent_seconds": 0.0, "longest_silence_seconds": None,
    "sequence_gaps": None, "records": None, "quarantined": None, "missing": None, "sink_duplicates": None,
    "stale_seconds": None,
}  # fmt: skip
START = 1_763_730_000_000_000


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
    figures = dict.fromkeys(EMPTY, number)
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
    found = nothing(**figures)
    found |= {
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
    return found


VOID = {"meta"}
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
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


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


def test_each_number_has_one_meaning():
    """No two figures of the page have one name: not those of the tiles, and not those of the proof."""
    page = page_of({**everything("a", 5, buckets=4), "proof": PROOF})
    tiles = re.findall(r'<li class="tile [a-z]*"><span>([^<]*)</span>', page)
    proven = re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", page)
    names = [name.lower() for name in [*tiles, *(label for label, _ in proven)]]
    assert len(names) == len(set(names)) == 12 + len(PROOF)
    assert sorted(int(value.replace(",", "")) for _, value in proven) == sorted(PROOF.values())
    assert ("sent with an invalid body", "100") in proven
    assert not {"malformed", "duplicates", "quarantined"} & {label.lower() for label, _ in proven}
    assert page.count('class="group"') == 4  # three of the demonstration, and what it does not know


@pytest.mark.parametrize("name", ["missing", "duplicates", "damaged", "left_in_broker"])
def test_a_fault_in_the_proof_is_told(name):
    page = page_of({**nothing(frames=5), "proof": {**PROOF, name: 3}})
    assert "Not every message is in the sink exactly once" in page
    assert page.count('<div class="unhealthy">') == 1
    assert "Every message is in the sink exactly once" in page_of({**nothing(frames=5), "proof": PROOF})


def test_a_feed_that_lags_is_not_healthy_and_the_limit_is_shown():
    figures = {**EMPTY, "frames": 100, "seconds": 5.0, "lag_p50_seconds": 9.0, "lag_p99_seconds": 28.0}
    found = nothing(**{**figures, "lag_p95_seconds": 27.0})
    assert found["verdict"]["level"] == "look"
    (reason,) = found["verdict"]["reasons"]
    assert (reason["name"], reason["limit"]) == ("lag_p95_seconds", "look here above 15 s")
    text = "".join(Checked(page_of(found)).text)
    assert "p95 lag 27 s: 5 % of the frames took longerlook here above 15 s" in text
    assert "p50\N{NO-BREAK SPACE}9\N{NO-BREAK SPACE}s · p99\N{NO-BREAK SPACE}28\N{NO-BREAK SPACE}s" in text


def test_the_thresholds_are_shown_and_not_folded():
    page = page_of(nothing(frames=10, seconds=5.0))
    table = page[page.index("<h2>What the verdict looks at") :]
    assert "<details" not in table
    for threshold in THRESHOLDS:
        for limit in (threshold.look, threshold.bad):
            shown = "never" if limit is None else written(threshold, limit)
            assert re.search(f"{re.escape(threshold.meaning)}</td>.*?{re.escape(shown)}", table), threshold


def test_the_backlog_comes_first_and_the_age_is_that_of_the_newest_frame():
    last = START - 90_000_000
    found = nothing(frames=10, seconds=5.0, first=last, last=last, age_seconds=90.0, backlog_octets=100 * 2**20)
    chain = {"chain": "frames", "segments": 1, "octets": 9, "oldest": last, "newest": last, "open": True,
             "committed": 4, "behind": 5}  # fmt: skip
    found["spool"] = {**chain, "path": "s", "chains": [chain], "problems": []}
    found["proof"] = PROOF
    page = page_of(found)
    assert re.findall(r'<li class="tile ([a-z]*)"><span>([^<]*)</span><b>([^<]*)</b>', page)[:2] == [
        ("look", "Backlog", "100 MiB"),
        ("", "Newest frame", "1 min 30 s ago"),
    ]
    assert re.findall(r"<h2>([^<]*)</h2>", page)[:2] == ["Backlog", "Proof"]
    assert "the newest frame was 1 min 30 s old then" in page
    assert found["verdict"]["reasons"][0]["name"] == "backlog_octets"


def test_each_chart_has_one_that_fits_a_phone():
    page = page_of(everything("/topic/" + "a" * 100, 5, buckets=180))
    wide = re.findall(r'<svg [^>]*class="plot" [^>]*width="(\d+)"', page)
    narrow = re.findall(r'<svg [^>]*class="plot narrow" aria-hidden="true" [^>]*width="(\d+)"', page)
    assert len(wide) == len(narrow) == 5
    assert {int(width) for width in narrow} == {348}  # 400 less the edges of the page and of a card
    for plot in re.findall(r'<svg [^>]*class="plot narrow".*?</svg>', page):
        places = [float(x) for x in re.findall(r'<(?:text|rect|circle)[^>]* c?x="(-?[\d.]+)"', plot)]
        assert all(0 <= x <= 348 for x in places)
        assert 'class="hover"' not in plot
    phone = page[page.index("@media (max-width: 760px)") :].split("\n")[0]
    assert ".plot { display: none; } .plot.narrow { display: block; }" in phone


@settings(max_examples=examples(30))
@given(st.text(max_size=50), st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_any_text_and_number_make_a_page(text, number):
    Checked(page_of(everything(text, number, buckets=3)))


def test_a_page_of_nothing_and_a_healthy_one_say_so_in_words_and_colour():
    text = " ".join(Checked(page_of(nothing())).text)
    assert "Unhealthy" in text
    assert "there are no frames at all" in text
    page = page_of(nothing(frames=10, seconds=5.0))
    assert '<section class="verdict healthy"' in page
    assert "10 frames in 5 s: no threshold was crossed." in page
    assert "tile look" not in page
    assert "tile unhealthy" not in page


def test_each_part_has_its_title_and_each_plot_its_table():
    page = page_of(everything("a", 5, buckets=4))
    assert page.count('class="plot"') == page.count("<desc>") == 5
    assert page.count("<table>") == 5 + 8  # and chains, gaps, destinations, reasons and samples twice, limits
    assert {"p50", "p95", "p99", "Lag p95"} <= set(re.findall(r"<(?:th|text|span|h2|dt)[^>]*>([^<]*)<", page))
    titles = ["Backlog", "Proof", "Rate", "Lag", "Gaps and silences", "Destinations", "Sizes"]
    titles += ["Duplicates and redeliveries", "Quarantine", "Malformed frames", "What the verdict looks at"]
    assert re.findall("<h2>(.*?)</h2>", page) == titles
    for title, what in (("Quarantine", "records"), ("Malformed frames", "frames")):
        assert f'<h2>{title}</h2><p class="note">5 {what} (100 %).</p>' in page
        assert f'<th class="num">{what.capitalize()}</th>' in page


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda threshold: threshold.name)
def test_each_threshold_at_its_limits(threshold):
    unit = 1000 if threshold.unit == "share" else 1
    figures = {**EMPTY, "frames": 1000, "records": 1000}
    for limit, level in ((threshold.look, "look"), (threshold.bad, "unhealthy")):
        if limit is None:
            continue
        at, above = ({**figures, threshold.name: value} for value in (limit * unit, limit * unit + 1))
        assert list(LEVELS).index(level_of(threshold, at)) < list(LEVELS).index(level)
        assert list(LEVELS).index(level_of(threshold, above)) >= list(LEVELS).index(level)
        verdict = verdict_of(above)
        assert verdict["reasons"][0]["name"] == threshold.name
        assert verdict["word"] == LEVELS[verdict["level"]]
        page = page_of(nothing(**above))
        assert f'<section class="verdict {verdict["level"]}"' in page
        assert verdict["reasons"][0]["text"] in " ".join(Checked(page).text)
        assert level_of(threshold, {**figures, threshold.name: None}) == "healthy"


def test_the_worst_comes_first():
    verdict = verdict_of({**EMPTY, "frames": 100, "malformed": 1, "missing": 3, "silences": 2})
    assert [each["level"] for each in verdict["reasons"]] == ["unhealthy", "look", "look"]
    assert [each["text"] for each in verdict["reasons"]] == [
        "3 messages missing in the sink",
        "1 frame malformed (1 %)",
        "2 silences longer than 1 min",
    ]


@pytest.mark.parametrize("wrong", [{"nonsense": (1, 2)}, {"missing": (1,)}, {"missing": ("a", 2)}])
def test_other_thresholds_and_wrong_ones(wrong):
    table = thresholds_of({"malformed": (0.5, None)})
    assert verdict_of({**EMPTY, "frames": 100, "malformed": 50}, table)["level"] == "healthy"
    assert verdict_of({**EMPTY, "frames": 100, "malformed": 100}, table)["level"] == "look"
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        thresholds_of(wrong)


FRAME = b"MESSAGE\ndestination:/queue/a\n\n" + b"x" * 100 + b"\0"


@pytest.mark.parametrize("single", [False, True])
def test_the_state_of_a_spool(tmp_path, single):
    with CaptureWriter(tmp_path / "s.stompcap", segment_octets=1000, single=single) as writer:
        for index in range(20):
            writer.append(FRAME, START + index)
            writer.append(FRAME, START + 100 + index, chain="frames" if single else "frames.1")
        writer.sync()
        assert spool.spool_state(tmp_path / "s.stompcap")["open"]
    state = spool.spool_state(tmp_path / "s.stompcap")
    assert (state["open"], state["octets"], state["behind"], state["problems"]) == (False, 40 * len(FRAME), None, [])
    assert (state["oldest"], state["newest"]) == (START, START + 119)
    if not single:
        assert [chain["chain"] for chain in state["chains"]] == ["frames", "frames.1"]
        assert state["segments"] == len(list((tmp_path / "s.stompcap").glob("*.stomp"))) > 4


def checkpoint(folder, batch, offset, done=True):
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}')
    if done:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_how_far_a_query_has_come(tmp_path):
    with CaptureWriter(tmp_path / "s.stompcap") as writer:
        for _ in range(10):
            writer.append(FRAME, START)
    assert spool.committed(tmp_path / "none") == (None, {})
    checkpoint(tmp_path / "c", 9, {"frames": 3 * len(FRAME)})
    checkpoint(tmp_path / "c", 10, {"frames": 7 * len(FRAME), "#tick": 1})
    checkpoint(tmp_path / "c", 11, {"frames": 9 * len(FRAME)}, done=False)
    (tmp_path / "c" / "commits" / ".10.crc").write_text("")
    state = spool.spool_state(tmp_path / "s.stompcap", tmp_path / "c")
    assert state["behind"] == 3 * len(FRAME)
    assert state["chains"][0]["committed"] == 7 * len(FRAME)


def test_a_checkpoint_of_an_identified_spool(tmp_path):
    with CaptureWriter(tmp_path / "s.stompcap") as writer:
        for _ in range(10):
            writer.append(FRAME, START)
    identity = identify(str(tmp_path / "s.stompcap"))
    checkpoint(tmp_path / "c", 0, stamped({"frames": 7 * len(FRAME)}, identity))
    state = spool.spool_state(tmp_path / "s.stompcap", tmp_path / "c")
    assert (state["behind"], state["problems"]) == (3 * len(FRAME), [])
    checkpoint(tmp_path / "d", 0, stamped({"frames": 7 * len(FRAME)}, "0" * 32))
    state = spool.spool_state(tmp_path / "s.stompcap", tmp_path / "d")
    assert state["behind"] is None
    assert "belongs to another spool" in state["problems"][0]


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}\n-", "v1\n{}\nnot json", 'v1\n{}\n{"a": "b"}', "v1\n{}\n[1]"])
def test_a_checkpoint_that_is_not_understood(tmp_path, text):
    checkpoint(tmp_path, 0, {})
    (tmp_path / "offsets" / "0").write_text(text)
    assert spool.committed(tmp_path) == (None, {})


def test_a_damaged_spool_is_told(tmp_path):
    with CaptureWriter(tmp_path / "s.stompcap") as writer:
        writer.append(FRAME, START)
    (index,) = (tmp_path / "s.stompcap").glob("*.idx")
    index.write_bytes(b"nonsense" * 9)
    state = spool.spool_state(tmp_path / "s.stompcap")
    assert state["problems"]
    assert state["octets"] == len(FRAME)
    with pytest.raises(StoreError):
        spool.spool_state(tmp_path / "none")


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
