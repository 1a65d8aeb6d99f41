"""A feed like Network Rail's train describer: the workload of the Spark benchmarks.

python benchmarks/spark_feed.py FOLDER [--gigabytes 1]     writes a capture there
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from stompcodec.capture import CaptureWriter

#: As many as the real feed has, about.
AREAS = [f"{letter}{digit}" for letter in "ABDGKMNPRSTWXYZ" for digit in "0123456789"][:60]
START = 1_700_000_000_000
DESTINATION = "/topic/TD_ALL_SIG_AREA"
#: Frames that get a row of the index together, as a recorder that is busy writes them.
TOGETHER = 100
#: Octets of a frame, about.
SIZE = 690
_HEAD = (
    "MESSAGE\nmessage-id:ID:opendata-backend.rockshore.net-35170-1645015525532-11:1:2:1:%d\ntransformation:jms-xml\n"
    "destination:" + DESTINATION + "\ntimestamp:%d\nexpires:%d\nsubscription:1\npersistent:true\npriority:4\n"
    "content-type:application/json\n"
)


def frames(count: int, first: int = 0, *, length: bool = False) -> Iterator[bytes]:
    """Frames of about 690 octets with 9 headers and a JSON body, and the LF that ActiveMQ adds.

    Args:
        first: number of the first frame.
        length: with content-length; the real feed has none.
    """
    events = _events(4096)
    draw = random.Random(first)
    for number in range(first, first + count):
        time = START + number * 20
        body = f"[{', '.join(draw.choices(events, k=4))}]"
        counted = f"content-length:{len(body)}\n" if length else ""
        yield (_HEAD % (1_000_000 + number, time, time + 300_000) + f"{counted}\n{body}\0\n").encode()


def _events(count: int) -> list[str]:
    draw = random.Random(4)
    made = []
    for _ in range(count):
        time, area = START + draw.randrange(10**7) * 1000, draw.choice(AREAS)
        kind, first, second = draw.choice(("SF", "SF", "SF", "CA")), draw.randrange(10000), draw.randrange(10000)
        if kind == "SF":
            told = f'"address": "{first % 256:02X}", "msg_type": "SF", "data": "{second % 256:02X}"'
        else:
            train = f"{draw.randrange(10)}{draw.choice('ABCDEFGHJKLMNOPSTYZ')}{draw.randrange(100):02}"
            told = f'"to": "{first:04}", "msg_type": "CA", "from": "{second:04}", "descr": "{train}"'
        made.append(f'{{"{kind}_MSG": {{"time": "{time}", "area_id": "{area}", {told}}}}}')
    return made


def capture(path: Path, count: int) -> None:
    """Write a capture of so many frames, or keep the one that is there."""
    if _begin(path, f"capture of {count} frames"):
        each = frames(count)
        with CaptureWriter(path) as writer:
            number = 0
            while block := b"".join(islice(each, TOGETHER)):
                writer.append(block, (START + number * 20) * 1000)
                number += TOGETHER
            writer.sync()
        _end(path, f"capture of {count} frames")


def files(path: Path, count: int, parts: int = 2) -> None:
    """Write a folder of so many files of frames, or keep the one that is there."""
    what = f"{count} frames in {parts} files"
    if _begin(path, what):
        for part in range(parts):
            first, last = (count * edge // parts for edge in (part, part + 1))
            with open(path / f"td-{part:04}.stomp", "wb") as file:
                file.writelines(frames(last - first, first))
        _end(path, what)


def _stamp(path: Path) -> Path:
    return path.with_name(path.name + ".stamp")


def _begin(path: Path, what: str) -> bool:
    """Make room, unless it is there already and newer than this file."""
    stamp = _stamp(path)
    if stamp.is_file() and stamp.read_text() == what and stamp.stat().st_mtime > Path(__file__).stat().st_mtime:
        return False
    stamp.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return True


def _end(path: Path, what: str) -> None:
    _stamp(path).write_text(what)


def forget(path: Path) -> None:
    """Say that a capture, or folder of files, is not there any more."""
    _stamp(path).unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    args = parser.parse_args()
    capture(args.folder, round(args.gigabytes * 1e9 / SIZE))
    octets = sum(path.stat().st_size for path in args.folder.glob("*.stomp"))
    print(f"{octets:,} octets of frames")


if __name__ == "__main__":
    main()
