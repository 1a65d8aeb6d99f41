"""Archives and quarantines as the jobs write them, made by hand with pyarrow, and a reader of the report's page."""

import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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
    """A file of these columns; those that a row leaves out are null."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(name, KINDS[name]) for name in names])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / f"part-{len(list(folder.iterdir()))}.parquet")


def write_archive(folder, frames):
    """`frames`: dicts with destination and the columns of ARCHIVE."""
    by_place = {}
    for frame in frames:
        by_place.setdefault(frame.get("destination"), []).append(frame)
    for destination, rows in by_place.items():
        name = "__HIVE_DEFAULT_PARTITION__" if destination is None else _escaped(destination)
        _write(Path(folder, "date=2025-11-21", f"destination={name}"), rows, ARCHIVE)
    return folder


def _escaped(name):
    """As Hive writes values into names of folders."""
    return "".join(char if char.isalnum() or char in "._-" or ord(char) > 127 else f"%{ord(char):02X}" for char in name)


def write_exploded(folder, good, held):
    _write(Path(folder, "rows"), [{}] * good, ("destination",))
    _write(Path(folder, "_quarantine"), held, HELD)
    return folder


def frame(at, lag=0.2, **columns):
    """A frame that came `at` seconds after START, and was sent 0.2 s before."""
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
    rng = random.Random(1)
    found = []
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
            "destination": HOSTILE if index == 3 else rng.choice(PLACES),
            "message_id": f"ID:bad-{index}",
            "received_at": START + index * 1_000_000,
            "_reason": rng.choices(reasons, [9, 4, 1, 2])[0],
            "_raw": HOSTILE.encode() if index % 3 else b'{"header": {"msg_type": "0003"}, "body": {"train_id": 5}}',
        }
        for index in range(many)
    ]
