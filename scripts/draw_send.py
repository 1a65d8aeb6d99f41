"""Draw the way of a SEND through the broker from a trace of its calls, as a block of ARCHITECTURE.md.

    draw_send.py            write the block
    draw_send.py --check    exit status 1 if the block is not what the trace says, or a file is entered too often
    draw_send.py --count    print how often each file is entered

A broker in this process gets one SEND that is not stored and one that is, from a client that has sent before, to a
queue with a consumer. `sys.setprofile` sees each Python call; calls from one file into another are drawn. Left out are
the codec, which is C or Python, calls that only read a value (properties, `len`), and the steps of a generator: the
first step counts, unless a function of the same file made the generator, for then that function was entered already.

No file may be entered more than twice by the plain SEND, and three times by the other one.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from in_process import Client, InProcess
from page_blocks import run

import stompcodec
from stompcodec.broker.sessions import plain

PACKAGE = Path(stompcodec.__file__).parent
SHELL = "shell"
#: How often a file may be entered, by whether the SEND is persistent.
MOST_ENTRIES = {False: 2, True: 3}
#: Modules of the ground floor that make up the codec, and those that look up words and rules for all others.
CODEC = {"_codec_py", "_ends_py", "_scan_py", "_serialize_py", "codec", "columns", "content", "errors", "frame", "spec"}


class Call(NamedTuple):
    """A call from one file into another."""

    caller: str
    file: str
    name: str
    is_reading: bool
    """It reads a value."""


class Note(NamedTuple):
    """What happens next."""

    text: str


def file_of(frame: FrameType) -> str | None:
    """Return the file of a call, as the page names it; None outside the broker and the ground floor."""
    path = Path(frame.f_code.co_filename)
    if path == Path(__file__) or path.stem == "in_process":
        return SHELL
    if PACKAGE not in path.parents:
        return None
    inner = path.relative_to(PACKAGE)
    if len(inner.parts) == 1 and inner.stem in CODEC:
        return None
    return inner.as_posix().removeprefix("broker/")


def is_reading(frame: FrameType) -> bool:
    """Return whether a call reads a value: a property or the length of something."""
    code, me = frame.f_code, frame.f_locals.get("self")
    if me is None or code.co_name == "__len__":
        return me is not None
    found = inspect.getattr_static(type(me), code.co_name, None)
    return isinstance(found, property) and found.fget is not None and found.fget.__code__ is code


def is_inner(frame: FrameType) -> bool:
    """Return True for a generator that a function of its file has made: one with a private name."""
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and frame.f_code.co_name.startswith("_")


def name_of(frame: FrameType) -> str:
    """Return the name of what is called; that of a class for its __init__."""
    name = frame.f_code.co_name
    if name == "__init__":
        return type(frame.f_locals["self"]).__name__
    return "a callback" if name.startswith("<") else name


class Trace:
    """The calls between files while it is entered."""

    def __init__(self) -> None:
        self.steps: list[Call | Note] = []
        self._seen: dict[int, FrameType] = {}  # kept, so that no other frame gets the id of one

    def __enter__(self) -> Trace:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)
        self._seen.clear()

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or id(frame) in self._seen:
            return
        self._seen[id(frame)] = frame
        file, caller = file_of(frame), frame.f_back
        while caller is not None and file_of(caller) is None:
            caller = caller.f_back
        if file is None or file == SHELL or caller is None or file_of(caller) == file or is_inner(frame):
            return
        self.steps.append(Call(file_of(caller) or SHELL, file, name_of(frame), is_reading(frame)))


def send(broker: InProcess, sender: Client, octets: bytes, note: Callable[[str], None]) -> None:
    """Give a SEND to the broker, and take all turns that follow."""
    note("bytes have come")
    sender.session.receive(octets, broker.now)
    note("the turn of the loop ends")
    broker.turn()
    while broker.helper.jobs:
        note("in the helper thread of the store")
        broker.helper.wait()
        note("back in the loop")
        while broker.soon:
            broker.soon.pop(0)()
        note("the next turn ends")
        broker.turn()


@contextmanager
def in_python() -> Iterator[None]:
    """Switch off the plain road in C, which does the same: it has no Python calls to see."""
    before = plain.EXTENSION is not None and plain.EXTENSION.switch(False)
    try:
        yield
    finally:
        if plain.EXTENSION is not None:
            plain.EXTENSION.switch(before)


def trace(persistent: bool) -> list[Call | Note]:
    """Return the steps of one SEND."""
    with in_python(), tempfile.TemporaryDirectory() as folder, InProcess(folder) as broker:
        sender, consumer = Client(broker), Client(broker)
        consumer.send("SUBSCRIBE", id="1", destination="/queue/a", ack="client-individual")
        headers = {"persistent": "true", "receipt": "r"} if persistent else {"persistent": "false"}
        octets = sender.frame("SEND", b"hello", destination="/queue/a", **headers)
        for _ in range(2):  # what is asked once and then remembered is behind us
            send(broker, sender, octets, lambda _text: None)
        read, wrote = len(consumer.inbox), len(sender.inbox)
        with Trace() as found:
            send(broker, sender, octets, lambda text: found.steps.append(Note(text)))
        commands = [frame.command for frame in (*consumer.inbox[read:], *sender.inbox[wrote:])]
        assert commands == ["MESSAGE", "RECEIPT"][: 1 + persistent], commands
        return found.steps


def picture(steps: list[Call | Note]) -> Iterator[str]:
    """Yield a Mermaid sequence diagram."""
    calls = [step for step in steps if isinstance(step, Call)]
    drawn = [call for call in calls if not call.is_reading]
    files = list(dict.fromkeys(file for call in drawn for file in (call.caller, call.file)))
    short = {file: f"f{number}" for number, file in enumerate(files)}
    yield "```mermaid"
    yield "sequenceDiagram"
    for file in files:
        label = "server.py, the shell" if file == SHELL else file
        yield f"    participant {short[file]} as {label}"
    for step in steps:
        if isinstance(step, Note):
            yield f"    Note over {short[SHELL]}: {step.text}"
        elif not step.is_reading:
            yield f"    {short[step.caller]}->>{short[step.file]}: {step.name}"
    yield "```"


def entered(steps: list[Call | Note]) -> Counter[str]:
    """Return how often each file is entered, without calls that only read a value."""
    return Counter(step.file for step in steps if isinstance(step, Call) and not step.is_reading)


def too_often(steps: list[Call | Note], most: int) -> dict[str, int]:
    """Return the files that are entered more than `most` times, and how often they are."""
    return {file: times for file, times in entered(steps).items() if times > most}


def draw() -> str:
    """Return the block.

    Raises:
        ValueError: a file is entered too often.
    """
    lines = []
    for title, persistent in (("A plain SEND", False), ("A persistent SEND with a receipt", True)):
        steps = trace(persistent)
        if excess := too_often(steps, MOST_ENTRIES[persistent]):
            raise ValueError(f"{title} enters files more than {MOST_ENTRIES[persistent]} times: {excess}")
        counts = entered(steps)
        most = max(counts.values())
        names = ", ".join(file for file, count in counts.items() if count == most)
        lines += [f"### {title}", "", *picture(steps), ""]
        lines += [f"{sum(counts.values())} calls enter {len(counts)} files, {names} {most} times.", ""]
    return "\n".join(lines)


def count() -> int:
    """Print how often each file is entered."""
    for persistent in (False, True):
        steps = trace(persistent)
        readings = Counter(step.file for step in steps if isinstance(step, Call) and step.is_reading)
        print("persistent" if persistent else "plain")
        for file, times in (entered(steps) + Counter(dict.fromkeys(readings, 0))).most_common():
            print(f"    {times:3} {file}" + (f", and {readings[file]} values read" if readings[file] else ""))
    return 0


if __name__ == "__main__":
    sys.exit(count() if "--count" in sys.argv[1:] else run("send", draw, sys.argv[1:]))
