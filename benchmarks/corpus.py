"""The workloads of the benchmarks and of the tests of the codec: seeded streams of frames, kept in build/corpus.

Each function of `WORKLOADS` takes a random generator and a scale, and returns a `Stream`: the bytes on the wire beside
the frames that they were made from. The same seed always gives the same bytes; at scale 1.0 a workload has 1 to 17 MB.
"""

# ruff: noqa: SIM905, UP031

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SEED = 20240914
CACHE = Path(__file__).resolve().parent.parent / "build" / "corpus"
Pairs = list[tuple[str, str]]
Frame = tuple[str, Pairs, bytes]

_ESCAPES = {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"}
_SYMBOLS = "AAPL MSFT VOD.L BARC.L SIE.DE 7203.T EURUSD GBPJPY ESZ4 CLX4 BTC-USD NESN.S".split()
_OPERATORS = "20 21 23 25 30 61 65 71 79 80 88".split()
_WORDS = (
    "queue broker payload straße signal café order delivery naïve the a of and platform 東京 train late by minutes"
    " cancelled reinstated"
).split()
_NAMES = (
    "x-request-id x-correlation-id x-trace-id x-span-id x-tenant x-region x-zone x-shard x-user x-session x-schema"
    " x-schema-version x-source x-target x-route x-retry x-deadline x-created x-updated x-checksum x-encoding"
    " x-language x-feature JMSType _type"
).split()
_STAMP = 1_726_300_800_000


def fragments(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


class Stream:
    """A workload: wire bytes, and what was put into them."""

    def __init__(self, version: str, eol: str = "\n") -> None:
        self.version, self.eol = version, eol
        self.wire: list[bytes] = []
        self.frames: list[Frame] = []

    def frame(self, command: str, headers: Pairs, body: bytes = b"", eols: int = 0, eol: str = "") -> None:
        """Add a frame, and line ends after its NUL. CONNECT and CONNECTED are never escaped."""
        eol, lines = eol or self.eol, [command]
        for pair in headers:
            if command not in ("CONNECT", "CONNECTED"):
                pair = tuple("".join(_ESCAPES.get(letter, letter) for letter in text) for text in pair)
            lines.append(":".join(pair))
        self.wire.append((eol.join(lines) + eol + eol).encode() + body + b"\0")
        self.frames.append((command, headers, body))
        self.beat(eols, eol)

    def beat(self, count: int, eol: str = "") -> None:
        """Add line ends between frames."""
        self.wire.append((eol or self.eol).encode() * count)

    def data(self) -> bytes:
        return b"".join(self.wire)


def _pairs(**headers: object) -> Pairs:
    return [(name.replace("_", "-"), str(value)) for name, value in headers.items()]


def _hex(rng: random.Random, digits: int) -> str:
    return "%0*x" % (digits, rng.getrandbits(4 * digits))


def _tick_body(rng: random.Random, seq: int) -> bytes:
    bid = rng.randrange(10_000, 9_999_999)
    ask, symbol = bid + 3, rng.choice(_SYMBOLS)
    text = f'{{"s":"{symbol}","t":{_STAMP + 7 * seq},"b":{bid // 100}.{bid % 100:02},"a":{ask // 100}.{ask % 100:02}'
    text += f',"v":{rng.randrange(1, 90_000)}'
    if rng.random() < 0.5:
        text += f',"x":"{rng.choice("ABCDNPQ")}","c":[{rng.randrange(9)},{rng.randrange(99)}]'
    return (text + "}").encode()


def _tick_headers(rng: random.Random, seq: int, body: bytes, client: bool) -> Pairs:
    destination = "/topic/ticks." + rng.choice(_SYMBOLS)
    typed = {"content_type": "application/json", "content_length": len(body)}
    if client:
        return _pairs(destination=destination, **typed, transaction=f"tx-{seq // 64}", receipt=f"r-{seq}")
    name = f"ID:mq-7f-{seq // 1000}-1:1:{seq}"
    return _pairs(destination=destination, message_id=name, subscription=seq % 4, **typed)


def _movement(rng: random.Random, seq: int) -> str:
    stamp = _STAMP + 1000 * seq
    head = {"msg_type": "0003", "source_dev_id": "", "user_id": "", "original_data_source": "SMART"}
    head |= {"msg_queue_timestamp": str(stamp), "source_system_id": "TRUST"}
    body = {"event_type": rng.choice(("ARRIVAL", "DEPARTURE"))}
    body |= {"gbtt_timestamp": "" if rng.random() < 0.3 else str(stamp - 60_000), "original_loc_stanox": ""}
    body |= {"planned_timestamp": str(stamp - 30_000), "timetable_variation": str(rng.randrange(12))}
    body |= {"current_train_id": "", "delay_monitoring_point": "true", "next_report_run_time": str(rng.randrange(20))}
    body |= {"reporting_stanox": "%05d" % rng.randrange(100_000), "actual_timestamp": str(stamp)}
    body |= {"correction_ind": "false", "event_source": "AUTOMATIC", "platform": " %d" % rng.randrange(12)}
    body |= {"train_terminated": "false", "offroute_ind": "false"}
    body |= {"variation_status": rng.choice(("EARLY", "ON TIME", "LATE"))}
    body |= {"train_service_code": str(rng.randrange(10**7, 10**8)), "toc_id": rng.choice(_OPERATORS)}
    body["loc_stanox"] = "%05d" % rng.randrange(100_000)
    train = rng.randrange(100), rng.randrange(10), rng.choice("ABCDEFS"), rng.randrange(100)
    body["train_id"] = "%02d%d%s%02dM%s%02d" % (*train, rng.choice("ABCD"), rng.randrange(32))
    body["division_code"] = rng.choice(_OPERATORS)
    return json.dumps({"header": head, "body": body}, separators=(",", ":"))


def _prose(rng: random.Random, low: int, high: int) -> bytes:
    """UTF-8 text of `low` to `high` bytes without NULs, with line ends."""
    want, out = rng.randrange(low, high + 1), b""
    while len(out) < want:
        out += (rng.choice(_WORDS) + rng.choice((" ", " ", " ", ", ", ":\n", "\r\n"))).encode()
    return out


def _binary(rng: random.Random, size: int, nuls: bool = True) -> bytes:
    """Incompressible bytes; about one in 256 is NUL, or none is."""
    raw = rng.getrandbits(8 * size).to_bytes(size, "little")
    return raw if nuls else raw.replace(b"\0", b"\1")


def ticks(rng: random.Random, scale: float, eol: str = "\n") -> Stream:
    """Market ticks: MESSAGE (3 in 4) and SEND, 5 headers, JSON of 60 to 120 bytes."""
    out = Stream("1.2", eol)
    for seq in range(round(20_000 * scale)):
        body = _tick_body(rng, seq)
        client = rng.random() < 0.25
        out.frame("SEND" if client else "MESSAGE", _tick_headers(rng, seq, body, client), body)
    return out


def trains(rng: random.Random, scale: float) -> Stream:
    """Train movements: MESSAGE, 8 headers, JSON arrays of 1 to 8 KiB, no content-length."""
    out = Stream("1.1")
    for seq in range(round(1_500 * scale)):
        count = rng.randrange(2, 14)
        body = "[" + ",".join(_movement(rng, seq) for _ in range(count)) + "]"
        stamp, name = _STAMP + 1000 * seq, "ID:feeds.example-41%03d-1:%d:1:1:%d" % (seq % 977, seq % 13, seq)
        headers = _pairs(destination="/topic/TRAIN_MVT_ALL_TOC", message_id=name, subscription="train-mvt-1")
        headers += _pairs(timestamp=stamp, expires=stamp + 300_000, persistent="true", priority=4)
        out.frame("MESSAGE", [*headers, ("content-type", "application/json")], body.encode(), 1)
    return out


def headers30(rng: random.Random, scale: float) -> Stream:
    """Header-heavy: 30 headers, one in ten needs \\c, \\n, \\\\ or \\r."""
    out = Stream("1.2")
    for seq in range(round(4_000 * scale)):
        body = _hex(rng, rng.randrange(8, 64)).encode()
        headers = _pairs(destination=f"/queue/jobs/{seq % 50}", message_id=seq, subscription="sub-0")
        headers += _pairs(content_type="text/plain;charset=utf-8", content_length=len(body))
        for name in _NAMES:
            values = _hex(rng, 16), _hex(rng, 32), str(rng.randrange(10**6)), rng.choice(_WORDS), "true", ""
            value = rng.choice(values)
            if rng.random() < 0.12:
                mark = rng.choice((":", "\n", "\\", "\r"))
                at = rng.randrange(len(value) + 1)
                value = value[:at] + mark + value[at:]
            headers.append((name, value))
        out.frame("MESSAGE", headers, body)
    return out


def crlf(rng: random.Random, scale: float) -> Stream:
    """Ticks with CRLF line ends."""
    return ticks(rng, scale, "\r\n")


def text(rng: random.Random, scale: float) -> Stream:
    """UTF-8 text of 200 to 2,000 bytes, 4 headers, no content-length."""
    out = Stream("1.2")
    for seq in range(round(4_000 * scale)):
        headers = _pairs(destination=f"/queue/notes.{seq % 20}", message_id=f"T_{seq:x}@@session-{seq % 7}")
        headers += _pairs(subscription="notes", content_type="text/plain")
        out.frame("MESSAGE", headers, _prose(rng, 200, 2000))
    return out


def binary16k(rng: random.Random, scale: float) -> Stream:
    """16 KiB of binary with NULs, content-length."""
    out = Stream("1.2")
    for seq in range(round(500 * scale)):
        size = 16_384 + rng.randrange(-64, 65)
        headers = _pairs(subscription="blob", message_id=f"{seq % 3}-{seq}", destination="/queue/blobs")
        headers += _pairs(content_type="application/octet-stream", content_length=size)
        out.frame("MESSAGE", headers, _binary(rng, size))
    return out


def big1m(rng: random.Random, scale: float) -> Stream:
    """1 MiB of binary with NULs, content-length."""
    out = Stream("1.2")
    for seq in range(max(1, round(16 * scale))):
        headers = _pairs(destination="/queue/images", content_type="image/x-raw", content_length=1 << 20)
        out.frame("SEND", [*headers, ("receipt", f"img-{seq}")], _binary(rng, 1 << 20))
    return out


def big1m_nolen(rng: random.Random, scale: float) -> Stream:
    """1 MiB without NULs and without content-length."""
    out = Stream("1.2")
    for seq in range(max(1, round(16 * scale))):
        headers = _pairs(destination="/queue/dumps", content_type="text/plain", receipt=f"dump-{seq}")
        out.frame("SEND", headers, _binary(rng, 1 << 20, nuls=False))
    return out


def acks(rng: random.Random, scale: float) -> Stream:
    """ACK and RECEIPT, one or two headers, no body."""
    out = Stream("1.2")
    for seq in range(round(50_000 * scale)):
        if rng.random() < 0.6:
            more = _pairs(transaction=f"tx-{seq // 64}") if rng.random() < 0.2 else []
            out.frame("ACK", [("id", f"ack-{seq % 5}-{seq}"), *more])
        else:
            out.frame("RECEIPT", [("receipt-id", f"r-{seq}")])
    return out


def heartbeats(rng: random.Random, scale: float) -> Stream:
    """Ticks between runs of 0 to 60 line ends, LF and CRLF."""
    out = Stream("1.2")
    out.beat(3)
    for seq in range(round(12_000 * scale)):
        body = _tick_body(rng, seq)
        out.frame("MESSAGE", _tick_headers(rng, seq, body, False), body)
        out.beat(rng.choice((0, 1, 1, 2, 5, 20, 60)), rng.choice(("\n", "\n", "\r\n")))
    return out


def _any_frame(rng: random.Random, seq: int) -> Frame:
    """A frame of a busy session."""
    pick = rng.random()
    if pick < 0.55:
        body = _tick_body(rng, seq)
        client = pick >= 0.40
        return "SEND" if client else "MESSAGE", _tick_headers(rng, seq, body, client), body
    if pick < 0.80:
        return ("ACK", [("id", f"ack-{seq}")], b"") if pick < 0.70 else ("RECEIPT", [("receipt-id", f"r-{seq}")], b"")
    if pick < 0.90:
        body = _prose(rng, 100, 3000)
        headers = _pairs(destination=f"/queue/a:b\\{seq % 9}", message_id=seq, subscription="m")
        return "MESSAGE", [*headers, ("note", "line 1\nline 2"), ("note", "repeated: first wins")], body
    if pick < 0.94:
        body = _binary(rng, rng.randrange(1, 4096))
        return "SEND", _pairs(destination="/queue/bin", content_length=len(body)), body
    transaction = _pairs(transaction=f"tx-{seq}")
    others = (
        ("SUBSCRIBE", _pairs(id=seq, destination="/queue/x", ack="client-individual")),
        ("UNSUBSCRIBE", _pairs(id=seq)),
        ("NACK", _pairs(id=f"ack-{seq}")),
        *((command, transaction) for command in ("BEGIN", "COMMIT", "ABORT")),
    )
    return *rng.choice(others), b""


def mixed(rng: random.Random, scale: float) -> Stream:
    """A busy session: every command, all kinds of bodies, LF and CRLF, heart-beats."""
    out, beats = Stream("1.2"), _pairs(heart_beat="10000,10000")
    hello = _pairs(accept_version="1.0,1.1,1.2", host="broker:61613", login="guest\\user", passcode="p:ss")
    out.frame("CONNECT", hello + beats)
    out.frame("CONNECTED", _pairs(version="1.2", session="s-1", server="example/1.0") + beats, eols=1)
    for seq in range(round(12_000 * scale)):
        eol = "\r\n" if rng.random() < 0.1 else "\n"
        eols = rng.choice((0, 0, 0, 1, 2))
        out.frame(*_any_frame(rng, seq), eols, eol)
    out.frame("DISCONNECT", [("receipt", "bye")])
    out.frame("ERROR", _pairs(message="connection closed", content_type="text/plain"), b"closing: bye\n", 1)
    return out


_MAKERS = (ticks, trains, headers30, crlf, text, binary16k, big1m, big1m_nolen, acks, heartbeats, mixed)
WORKLOADS: dict[str, Callable[[random.Random, float], Stream]] = {make.__name__: make for make in _MAKERS}


def stream(name: str, scale: float) -> Stream:
    """Make a workload. Each has a seed of its own, so that a change of one moves no other."""
    return WORKLOADS[name](random.Random(f"{SEED}/{name}"), scale)


class Workload(NamedTuple):
    """One stream of frames: the STOMP version whose rules it follows, its bytes, and how many frames they are."""

    version: str
    data: bytes
    frames: int

    def pieces(self, size: int) -> list[bytes]:
        """The bytes as a reader gets them, `size` at a time."""
        return list(fragments(self.data, size))


def load(scale: float, names: Iterable[str] = WORKLOADS) -> dict[str, Workload]:
    """Return workloads by name. They are made once for each scale; the name of a file has what is not in its bytes."""
    folder, found = CACHE / f"{scale:g}", {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        files = [path for path in folder.glob(f"{name}-*.stomp") if path.stat().st_mtime > os.stat(__file__).st_mtime]
        if not files:
            made = stream(name, scale)
            files = [folder / f"{name}-{made.version}-{len(made.frames)}.stomp"]
            part = folder / f"{name}.{os.getpid()}"
            part.write_bytes(made.data())
            part.replace(files[0])
        _name, version, frames = files[0].stem.split("-")
        found[name] = Workload(version, files[0].read_bytes(), int(frames))
    return found
