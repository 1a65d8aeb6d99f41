"""Archives and quarantines as the jobs write them, made by hand with pyarrow: what the report is tested on."""

import math
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

START = 1_763_730_000_000_000  # 21 November 2025, 13:00 UTC, in µs

ARCHIVE = pa.schema(
    [
        ("message_id", pa.string()),
        ("received_at", pa.timestamp("us", "UTC")),
        ("sent_at", pa.timestamp("us", "UTC")),
        ("redelivered", pa.bool_()),
        ("body", pa.binary()),
        ("length", pa.int32()),
        ("error", pa.string()),
    ]
)
HELD = pa.schema(
    [
        ("destination", pa.string()),
        ("message_id", pa.string()),
        ("received_at", pa.timestamp("us", "UTC")),
        ("_reason", pa.string()),
        ("_raw", pa.binary()),
    ]
)
HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\x00\u202e]]>" + "x" * 5000


def write_archive(folder, frames):
    """`frames`: dicts with destination and the columns of ARCHIVE; those that are left out are null."""
    by_place = {}
    for frame in frames:
        by_place.setdefault(frame.get("destination"), []).append(frame)
    for destination, rows in by_place.items():
        name = "__HIVE_DEFAULT_PARTITION__" if destination is None else _escaped(destination)
        path = Path(folder, "date=2025-11-21", f"destination={name}")
        path.mkdir(parents=True, exist_ok=True)
        columns = {field.name: [row.get(field.name) for row in rows] for field in ARCHIVE}
        pq.write_table(pa.table(columns, ARCHIVE), path / f"part-{len(list(path.iterdir()))}.parquet")
    Path(folder).mkdir(parents=True, exist_ok=True)
    return folder


def _escaped(name):
    """As Hive writes values into names of folders."""
    return "".join(char if char.isalnum() or char in "._-" or ord(char) > 127 else f"%{ord(char):02X}" for char in name)


def write_exploded(folder, good, held):
    for name, table in (
        ("rows", pa.table({"item": list(range(good))})),
        ("_quarantine", pa.Table.from_pylist(held, HELD)),
    ):
        path = Path(folder, name)
        path.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path / "part-0.parquet")
    return folder


def frame(at, **columns):
    """A frame that came `at` seconds after START, and was sent 0.2 s before."""
    micros = START + round(at * 1e6)
    lag = columns.pop("lag", 0.2)
    return {
        "destination": "/topic/A",
        "message_id": f"ID:{at}",
        "received_at": micros,
        "sent_at": None if lag is None else micros - round(lag * 1e6),
        "redelivered": False,
        "body": b"{}",
        "length": 300,
        **columns,
    }


PLACES = [
    "/topic/TD_ALL_SIG_AREA",
    "/topic/TRAIN_MVT_ALL_TOC",
    "/topic/VSTP_ALL",
    "/topic/RTPPM_ALL",
    "/topic/TSR_ALL_ROUTE",
    "/queue/darwin.pushport-v16",
    "/queue/apel.accounting",
    "/queue/Consumer.report.VirtualTopic.eng.brew.build.complete",
    "/queue/DLQ",
]


def feed(frames=20_000, seconds=3600, *, sick=False, seed=1):
    """A feed like that of a railway; a sick one is slow, silent, doubled and broken."""
    rng = random.Random(seed)
    found = []
    for index in range(frames):
        at = seconds * index / frames + rng.random()
        part = at / seconds
        if sick and 0.42 < part < 0.54:
            continue
        if rng.random() < 0.25 + 0.25 * math.sin(6.3 * part):
            continue
        place = PLACES[min(len(PLACES) - 1, int(rng.expovariate(0.9)))]
        slow = 900 * max(0.0, part - 0.55) if sick else 0.0
        one = frame(
            at,
            destination=place,
            message_id=f"ID:host-{index}",
            lag=rng.lognormvariate(-1.6, 0.9) + slow * rng.random(),
            length=int(rng.lognormvariate(6.4, 1.1)),
            redelivered=sick and part > 0.54 and rng.random() < 0.4,
        )
        found.append(one)
        if sick and rng.random() < 0.004:
            found.append(dict(one, redelivered=True))
        if sick and rng.random() < 0.006:
            kind = rng.choice(["bad-header-line", "truncated", "missing-null", "unexpected-nul"])
            broken = {"destination": None, "message_id": None, "body": HOSTILE.encode(), "sent_at": None}
            found.append({**one, **broken, "error": f"{kind}: the line has no colon, at {index}"})
    return found


def held(many, seed=1):
    rng = random.Random(seed)
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
