"""A generated capture for demonstrations, in the format of the British railway feeds. All values are invented.

It contains two connections, one after the other, as received by a client: STOMP 1.1 with train describer (TD) and train
movement (TRUST) messages as JSON arrays, then 1.2 with forecasts in XML, compressed with gzip. Message-ids are escaped,
and there are heart-beats between the frames.

    python -m stompcodec.cli.demonstration.sample railway.stomp
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from stompcodec import Frame, serialize
from stompcodec.content import encode_content

_START = 1_700_000_000_000  # ms
_AREAS = ("Q1", "R3", "WX", "ZK", "G7", "LN")
_PLACES = ("ALDERN", "BRAYTN", "CORWEN", "DUNSTR", "ELMHAM", "FENBRG", "GRTHRP", "HOLTJN")


def sample(size: int = 4_000_000, seed: int = 0) -> Iterator[bytes]:
    """Yield a capture of about `size` bytes, frame by frame. The same arguments give the same frames.

    >>> first = next(sample())
    >>> print(first.split(b"\\0")[0].decode(), end="")
    CONNECTED
    heart-beat:10000,10000
    session:ID:rail-example-39841-1700000000000-2:1
    server:ExampleMQ/5.17
    version:1.1
    <BLANKLINE>
    """
    dice = random.Random(seed)
    for version, share in (("1.1", 0.8), ("1.2", 0.2)):
        session = f"ID:rail-example-39841-{_START}-{2 if version == '1.1' else 3}:1"
        greeting = {"heart-beat": "10000,10000", "session": session, "server": "ExampleMQ/5.17", "version": version}
        yield serialize(Frame("CONNECTED", greeting), version) + b"\n"
        octets = number = 0
        while octets < size * share:
            number += 1
            frame = _message(dice, version, f"{session}:-1:1:{number}", number)
            beats = b"\n" * (1 + (dice.random() < 0.03))  # the broker ends each frame with an EOL
            octets += len(piece := serialize(frame, version, content_length="auto") + beats)
            yield piece
        yield serialize(Frame("RECEIPT", {"receipt-id": f"bye-{version}"}), version) + b"\n"


def _message(dice: random.Random, version: str, message_id: str, number: int) -> Frame:
    now = _START + 250 * number
    headers = {"message-id": message_id, "timestamp": str(now), "expires": str(now + 300_000)}
    if version == "1.2":
        headers |= {"destination": "/topic/forecasts", "subscription": "3", "content-type": "application/xml"}
        return Frame("MESSAGE", headers | {"content-encoding": "gzip"}, encode_content("gzip", _forecasts(dice, now)))
    if dice.random() < 0.75:
        destination, subscription = "/topic/TD_ALL_SIG_AREA", "1"
        items = [_describer(dice, now) for _ in range(dice.randint(1, 16))]
    else:
        destination, subscription = "/topic/TRAIN_MVT_ALL_TOC", "2"
        items = [_movement(dice, now) for _ in range(dice.randint(1, 4))]
    headers |= {"destination": destination, "subscription": subscription, "persistent": "true", "priority": "4"}
    headers["content-type"] = "application/json"
    return Frame("MESSAGE", headers, json.dumps(items, separators=(",", ":")).encode())


def _train(dice: random.Random) -> str:
    return f"{dice.randint(1, 9)}{dice.choice('ABCKSV')}{dice.randint(0, 99):02}"


def _describer(dice: random.Random, now: int) -> dict[str, Any]:
    """Return a C class message, a train moving from berth to berth, or an S class message, the state of signals."""
    area, time = dice.choice(_AREAS), str(now - dice.randint(0, 2000))
    if dice.random() < 0.5:
        berth = dice.randint(100, 900)
        step = {"to": f"{berth + 1:04}", "time": time, "area_id": area, "msg_type": "CA", "from": f"{berth:04}"}
        return {"CA_MSG": step | {"descr": _train(dice)}}
    state = {"time": time, "area_id": area, "address": f"{dice.randint(0, 80):02X}", "msg_type": "SF"}
    return {"SF_MSG": state | {"data": f"{dice.randint(0, 255):02X}"}}


def _movement(dice: random.Random, now: int) -> dict[str, Any]:
    """Return a message 0003: a train passed a place."""
    late, stanox = dice.choice((0, 0, 0, 1, 2, 7)), str(dice.randint(10000, 89999))
    event = dice.choice(("ARRIVAL", "DEPARTURE"))
    header = {"msg_type": "0003", "source_dev_id": "", "user_id": "", "original_data_source": "SMART"}
    body: dict[str, Any] = {
        "event_type": event,
        "planned_event_type": event,
        "planned_timestamp": str(now - 60_000 * late),
        "actual_timestamp": str(now),
        "timetable_variation": str(late),
        "variation_status": "LATE" if late else "ON TIME",
        "loc_stanox": stanox,
        "reporting_stanox": stanox,
        "train_id": f"{stanox[:2]}{_train(dice)}MX{dice.randint(10, 31)}",
        "train_file_address": None,
        "train_terminated": "false",
        "event_source": "AUTOMATIC",
        "platform": f" {dice.randint(1, 9)}",
        "toc_id": str(dice.randint(20, 88)),
    }
    return {"header": header | {"msg_queue_timestamp": str(now), "source_system_id": "TRUST"}, "body": body}


def _forecasts(dice: random.Random, now: int) -> bytes:
    """Return the next calls of a train."""
    calls = []
    minute = now // 60_000 % 1440
    for place in dice.sample(_PLACES, dice.randint(1, 6)):
        minute += dice.randint(2, 15)
        clock = f"{minute // 60 % 24:02}:{minute % 60:02}"
        calls.append(f'<Location tpl="{place}" pta="{clock}"><arr et="{clock}" src="Example"/></Location>')
    train = f'<TS rid="{now}" uid="{_train(dice)}">{"".join(calls)}</TS>'
    return f'<?xml version="1.0" encoding="UTF-8"?><Pport version="12.0"><uR>{train}</uR></Pport>'.encode()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m stompcodec.cli.demonstration.sample FILE")
    with open(sys.argv[1], "wb") as file:
        file.writelines(sample())
