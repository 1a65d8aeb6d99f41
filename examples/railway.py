"""An invented feed in the shape of the British railway's, for the examples: JSON in two queues.

    python examples/railway.py railway.stomp                         a capture of what a subscriber receives
    python examples/railway.py --send stomp://localhost:61613     to a broker

Of the train describer (TD) and train movement (TRUST) messages exact shares are sent twice, invalid, and late.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import stompcodec.client as stomp
from stompcodec import Frame, serialize

TD = "/queue/TD_ALL_SIG_AREA"
TRUST = "/queue/TRAIN_MVT_ALL_TOC"
#: Header with an id of the message, which ends in a number that grows by one per destination. Copies share it.
ID_HEADER = "feed-id"

#: Shares of all messages that are sent twice, invalid, late.
TWICE, MALFORMED, LATE = 0.01, 0.005, 0.01
_TD_SHARE = 0.7
#: Most messages in flight without a receipt.
_WINDOW = 200
#: Most messages before the second copy, and age of a late message in ms.
_LATER = 400
_LATE_FROM, _LATE_TO = 5 * 60_000, 90 * 60_000

_AREAS = tuple(f"{letter}{digit}" for letter in "DGKQRWYZ" for digit in "0135")
_SIGNALS = {"SF": 2, "SG": 8, "SH": 8}  # number of hexadecimal digits
_HTML = b"<html><head><title>503 Service Unavailable</title></head><body>Try again later.</body></html>"


@dataclass(frozen=True)
class FeedMessage:
    """A message of the feed; `again` marks the second copy, which has the same headers and body as the first."""

    id: str
    destination: str
    headers: dict[str, str]
    body: bytes
    events: int  # items in a valid body
    malformed: bool = False
    late: bool = False
    again: bool = False


@dataclass
class Ledger:
    """Account of sent messages, with which the sink is compared."""

    sent: int = 0
    twice: int = 0
    events: int = 0
    bodies: dict[str, int] = field(default_factory=dict)  # id: CRC-32 of the body
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


def capture(frames: int = 5000, seed: int = 0) -> Iterator[bytes]:
    """Yield the feed as a subscriber receives it from a broker: STOMP 1.2, with heart-beats between the frames."""
    session = "ID:rail-example-39841-1700000000000-2:1"
    greeting = {"heart-beat": "10000,10000", "session": session, "server": "ExampleMQ/5.17", "version": "1.2"}
    yield serialize(Frame("CONNECTED", greeting), "1.2") + b"\n"
    now = iter(range(1_700_000_000_000, 2**63, 250))
    for number, message in enumerate(feed(frames, clock=lambda: next(now), seed=seed)):
        topic = message.destination.replace("/queue/", "/topic/")
        headers = {"message-id": f"{session}:-1:1:{number}", "subscription": topic[-1:], "destination": topic}
        frame = Frame("MESSAGE", headers | message.headers, message.body)
        yield serialize(frame, "1.2", content_length="auto") + b"\n" * (1 + (number % 33 == 0))


def send(
    url: str, frames: int, ledger: Ledger, *, rate: float = 1000, before: Callable[[int], object] = lambda number: None
) -> None:
    """Send the feed, at most `rate` messages per second, and enter in the ledger what the broker has confirmed.
    `before` is called with the number of each message, before it is sent.
    """
    waiting: deque[tuple[FeedMessage, stomp.Receipt]] = deque()
    due = time.monotonic()

    def settle(most: int) -> None:
        while len(waiting) > most:
            message, receipt = waiting.popleft()
            receipt.wait()
            ledger.add(message)

    with stomp.connect(url) as client:
        for number, message in enumerate(feed(frames, clock=lambda: time.time_ns() // 1_000_000)):
            before(number)
            waiting.append((message, client.send_for_receipt(message.destination, message.body, message.headers)))
            settle(min(_WINDOW, frames // 10))
            due += 1 / rate
            if (ahead := due - time.monotonic()) > 0.02:
                time.sleep(ahead)
        settle(0)


def _message(dice: random.Random, counts: Counter[str], now: int, malformed: bool, late: bool) -> FeedMessage:
    sent = now - (dice.randint(_LATE_FROM, _LATE_TO) if late else dice.randint(0, 400))
    if dice.random() < _TD_SHARE:
        destination, items = TD, [describer(dice, sent) for _ in range(dice.randint(1, 12))]
    else:
        destination, items = TRUST, [_movement(dice, sent) for _ in range(dice.randint(1, 4))]
    body = json.dumps(items, separators=(", ", ": ")).encode()
    if malformed:
        body, items = _spoiled(dice, body), []
    counts[destination] += 1
    own = f"{'td' if destination == TD else 'trust'}-{counts[destination]:08}"
    headers = {ID_HEADER: own, "timestamp": str(sent), "persistent": "true", "priority": "4"}
    headers["content-type"] = "application/json"
    return FeedMessage(own, destination, headers, body, len(items), malformed, late)


def _spoiled(dice: random.Random, body: bytes) -> bytes:
    """Return an invalid body as real feeds send them at times: half a body, an error page, binary data, or none."""
    cut = body[: dice.randint(1, len(body) - 1)]
    return dice.choice((cut, _HTML, b"\xff\xfe\0" + cut, b""))


def _train(dice: random.Random) -> str:
    return f"{dice.randint(1, 9)}{dice.choice('ABCKMSV')}{dice.randint(0, 99):02}"


def describer(dice: random.Random, now: int) -> dict[str, Any]:
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
    kind, source, make = ("0001", "TSIA", _activation) if dice.random() < 0.1 else ("0003", "SMART", _passing)
    header |= {"msg_type": kind, "original_data_source": source}
    return {"header": header, "body": shared | {"toc_id": toc} | make(dice, now, stanox)}


def _activation(dice: random.Random, now: int, stanox: str) -> dict[str, Any]:
    found = {"schedule_source": "C", "schedule_type": dice.choice("OPV")}
    found["train_uid"] = f"{dice.choice('CGLWY')}{dice.randrange(100000):05}"
    found |= {"train_call_type": "AUTOMATIC", "train_call_mode": "NORMAL", "creation_timestamp": str(now)}
    found |= {"origin_dep_timestamp": str(now + 7_200_000), "tp_origin_stanox": "", "sched_origin_stanox": stanox}
    return found | {"d1266_record_number": "00000"}


def _passing(dice: random.Random, now: int, stanox: str) -> dict[str, Any]:
    late = dice.choice((0, 0, 0, 1, 2, 7))
    event = dice.choice(("ARRIVAL", "DEPARTURE"))
    found = {"event_type": event, "planned_event_type": event, "planned_timestamp": str(now - 60_000 * late)}
    found |= {"actual_timestamp": str(now), "gbtt_timestamp": "", "timetable_variation": str(late)}
    found |= {"variation_status": "LATE" if late else "ON TIME", "loc_stanox": stanox, "reporting_stanox": stanox}
    found["next_report_stanox"] = f"{dice.randint(10000, 89999)}"
    found["next_report_run_time"] = str(dice.randint(1, 20))
    found["platform"] = f" {dice.randint(1, 9)}"
    found |= dict.fromkeys(("train_terminated", "offroute_ind", "correction_ind"), "false")
    return found | {"event_source": "AUTOMATIC"}


def main() -> None:
    """Write a capture, or send the feed."""
    parser = argparse.ArgumentParser(description="Write a feed of invented railway messages, or send it.")
    parser.add_argument("file", nargs="?", metavar="FILE", help="write a capture here")
    parser.add_argument("--send", metavar="URL", help="send the feed to this broker")
    parser.add_argument("--frames", type=int, default=5000, metavar="N", help="number of messages (5000)")
    parser.add_argument("--rate", type=float, default=1000, metavar="N", help="messages per second (1000)")
    options = parser.parse_args()
    if options.file:
        with open(options.file, "wb") as file:
            file.writelines(capture(options.frames))
    elif options.send:
        ledger = Ledger()
        send(options.send, options.frames, ledger, rate=max(options.rate, 0.1))
        told = f"{ledger.twice:,} of them twice, {len(ledger.malformed):,} with an invalid body"
        print(f"{ledger.sent:,} messages sent and confirmed, {told}")
    else:
        parser.error("give FILE or --send URL")


if __name__ == "__main__":
    main()
