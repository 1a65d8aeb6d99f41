"""An invented feed in the shape of the British railway's, for demonstrations.

Train describer (TD) and train movement (TRUST) messages: JSON arrays, with headers like those of the real feeds. Some
are sent twice, some have an invalid body, and some have an old timestamp. Their numbers are exact: they depend only on
the number of messages.
"""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

TD = "/queue/TD_ALL_SIG_AREA"
TRUST = "/queue/TRAIN_MVT_ALL_TOC"
#: Header with an id of the message, which ends in a number that grows by one per destination. Copies share it.
ID_HEADER = "feed-id"

#: Shares of all messages that are sent twice, invalid, late.
TWICE, MALFORMED, LATE = 0.01, 0.005, 0.01
_TD_SHARE = 0.7
#: Most messages before the second copy, and age of a late message in ms.
_LATER = 400
_LATE_FROM, _LATE_TO = 5 * 60_000, 90 * 60_000

_AREAS = tuple(f"{letter}{digit}" for letter in "DGKQRWYZ" for digit in "0135")
_SIGNALS = {"SF": 2, "SG": 8, "SH": 8}  # number of hexadecimal digits
_HTML = b"<html><head><title>503 Service Unavailable</title></head><body>Try again later.</body></html>"


@dataclass(frozen=True)
class FeedMessage:
    """A message of the feed.

    Attributes:
        events: number of items in a valid body; 0 for an invalid one.
        again: True for the second copy, which has the same headers and body as the first.
    """

    id: str
    destination: str
    headers: dict[str, str]
    body: bytes
    events: int
    malformed: bool = False
    late: bool = False
    again: bool = False


@dataclass
class Ledger:
    """Account of sent messages, with which the sink is compared.

    >>> ledger = Ledger()
    >>> for message in feed(200, clock=lambda: 1_700_000_000_000):
    ...     ledger.add(message)
    >>> ledger.sent, len(ledger.bodies), ledger.twice, len(ledger.malformed), len(ledger.late)
    (200, 198, 2, 1, 2)
    """

    sent: int = 0
    twice: int = 0
    events: int = 0
    bodies: dict[str, int] = field(default_factory=dict)
    """CRC-32 of the body of each id."""
    malformed: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)

    def add(self, message: FeedMessage) -> None:
        """Add a message that the broker has confirmed."""
        self.sent += 1
        if message.again:
            self.twice += 1
            return
        self.events += message.events
        self.bodies[message.id] = zlib.crc32(message.body)
        if message.malformed:
            self.malformed.add(message.id)
        if message.late:
            self.late.add(message.id)


def feed(frames: int, *, clock: Callable[[], int], seed: int = 0) -> Iterator[FeedMessage]:
    """Yield the messages of the feed, second copies included. The same arguments and times give the same messages.

    `clock` returns the time in ms since 1970; it is called for each message.

    >>> first, *others = feed(1000, clock=lambda: 1_700_000_000_000)
    >>> first.destination, sorted(first.headers)
    ('/queue/TD_ALL_SIG_AREA', ['content-type', 'feed-id', 'persistent', 'priority', 'timestamp'])
    >>> len(others), sum(message.again for message in others)
    (999, 10)
    """
    dice = random.Random(seed)
    twice = round(frames * TWICE)
    distinct = frames - twice
    repeated = set(dice.sample(range(distinct), twice))
    malformed = set(dice.sample(range(distinct), round(frames * MALFORMED)))
    late = set(dice.sample(range(distinct), round(frames * LATE)))
    copies: dict[int, list[FeedMessage]] = {}
    counts = Counter[str]()
    for number in range(distinct):
        message = _message(dice, counts, clock(), number in malformed, number in late)
        yield message
        if number in repeated:
            due = min(number + dice.randint(0, _LATER), distinct - 1)
            copies.setdefault(due, []).append(message)
        for copy in copies.pop(number, ()):
            yield FeedMessage(**(vars(copy) | {"again": True}))


def _message(dice: random.Random, counts: Counter[str], now: int, malformed: bool, late: bool) -> FeedMessage:
    sent = now - (dice.randint(_LATE_FROM, _LATE_TO) if late else dice.randint(0, 400))
    if dice.random() < _TD_SHARE:
        destination, items = TD, [_describer(dice, sent) for _ in range(dice.randint(1, 12))]
    else:
        destination, items = TRUST, [_movement(dice, sent) for _ in range(dice.randint(1, 4))]
    body = json.dumps(items, separators=(", ", ": ")).encode()
    if malformed:
        body, items = _spoiled(dice, body), []
    counts[destination] += 1
    own = f"{'td' if destination == TD else 'trust'}-{counts[destination]:08}"
    headers = {ID_HEADER: own, "timestamp": str(sent), "persistent": "true", "priority": "4"}
    headers["content-type"] = "application/json"
    return FeedMessage(headers[ID_HEADER], destination, headers, body, len(items), malformed, late)


def _spoiled(dice: random.Random, body: bytes) -> bytes:
    """Return an invalid body as real feeds send them at times: half a body, an error page, binary data, or none."""
    cut = body[: dice.randint(1, len(body) - 1)]
    return dice.choice((cut, _HTML, b"\xff\xfe\0" + cut, b""))


def _train(dice: random.Random) -> str:
    return f"{dice.randint(1, 9)}{dice.choice('ABCKMSV')}{dice.randint(0, 99):02}"


def _describer(dice: random.Random, now: int) -> dict[str, Any]:
    """Return a TD item. C class: a train steps to a berth, appears or is cancelled. S class: state of signals."""
    kind = dice.choice(("CA", "CA", "CB", "CC", "SF", "SF", "SF", "SG", "SH"))
    told = {"time": str(now - dice.randint(0, 2000)), "area_id": dice.choice(_AREAS), "msg_type": kind}
    if kind in _SIGNALS:
        digits = _SIGNALS[kind]
        told |= {"address": f"{dice.randint(0, 80):02X}", "data": f"{dice.getrandbits(4 * digits):0{digits}X}"}
    else:
        berth = dice.randint(100, 900)
        places = {"from": f"{berth:04}", "to": f"{berth + 1:04}"}
        told |= {"CA": places, "CB": {"from": places["from"]}, "CC": {"to": places["to"]}}[kind]
        told["descr"] = _train(dice)
    return {f"{kind}_MSG": told}


def _movement(dice: random.Random, now: int) -> dict[str, Any]:
    """Return a TRUST item. 0001: a train is activated. 0003: it passed a location."""
    stanox, toc = f"{dice.randint(10000, 89999)}", f"{dice.randint(20, 88)}"
    train = f"{stanox[:2]}{_train(dice)}M{dice.choice('JKLMNP')}{dice.randint(10, 31)}"
    shared = {"train_id": train, "train_file_address": None, "train_service_code": f"{dice.randrange(10**8):08}"}
    header = {"source_dev_id": "", "user_id": "", "msg_queue_timestamp": str(now), "source_system_id": "TRUST"}
    if dice.random() < 0.1:
        kind, body = "0001", _activation(dice, now, stanox)
    else:
        kind, body = "0003", _passing(dice, now, stanox)
    source = "TSIA" if kind == "0001" else "SMART"
    return {
        "header": header | {"msg_type": kind, "original_data_source": source},
        "body": shared | {"toc_id": toc} | body,
    }


def _activation(dice: random.Random, now: int, stanox: str) -> dict[str, Any]:
    return {
        "schedule_source": "C",
        "schedule_type": dice.choice("OPV"),
        "train_uid": f"{dice.choice('CGLWY')}{dice.randrange(100000):05}",
        "train_call_type": "AUTOMATIC",
        "train_call_mode": "NORMAL",
        "creation_timestamp": str(now),
        "origin_dep_timestamp": str(now + 7_200_000),
        "tp_origin_stanox": "",
        "sched_origin_stanox": stanox,
        "d1266_record_number": "00000",
    }


def _passing(dice: random.Random, now: int, stanox: str) -> dict[str, Any]:
    late = dice.choice((0, 0, 0, 1, 2, 7))
    event = dice.choice(("ARRIVAL", "DEPARTURE"))
    return {
        "event_type": event,
        "planned_event_type": event,
        "planned_timestamp": str(now - 60_000 * late),
        "actual_timestamp": str(now),
        "gbtt_timestamp": "",
        "timetable_variation": str(late),
        "variation_status": "LATE" if late else "ON TIME",
        "loc_stanox": stanox,
        "reporting_stanox": stanox,
        "next_report_stanox": f"{dice.randint(10000, 89999)}",
        "next_report_run_time": str(dice.randint(1, 20)),
        "platform": f" {dice.randint(1, 9)}",
        "train_terminated": "false",
        "offroute_ind": "false",
        "correction_ind": "false",
        "event_source": "AUTOMATIC",
    }
