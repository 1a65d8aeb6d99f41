"""What a proxy tells: it counts, checks, shows and records, in threads of their own."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from rich.console import Console
from rich.text import Text

from stompcodec import Frame, FrameError
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.cli.linting import STYLES, Conversation, Finding, check_frame, finding_of, subject_of
from stompcodec.cli.proxying.bytes import DIRECTIONS, Beats, Direction, Event, Foreign, Passed, Raw
from stompcodec.cli.screen import COMMAND_STYLES, cut, hex_lines, mask_lines, pad, printable, write_json
from stompcodec.cli.show import body_begin, header_begin, json_of
from stompcodec.errors import StoreError, may_be_secret
from stompcodec.shown import plural
from stompcodec.states import Sender


def _zero() -> dict[Direction, int]:
    return dict.fromkeys(DIRECTIONS, 0)


@dataclass
class Tally:
    """The counts of a run.

    >>> Tally(connections=1).lines()[0]
    '1 connection; from clients 0 frames, 0 bytes; from the broker 0 frames, 0 bytes'
    """

    connections: int = 0
    """Accepted connections."""
    refused: int = 0
    """Those that did not reach the target."""
    frames: dict[Direction, int] = field(default_factory=_zero)
    octets: dict[Direction, int] = field(default_factory=_zero)
    """Bytes that were read."""
    heart_beats: dict[Direction, int] = field(default_factory=_zero)
    foreign: dict[Direction, int] = field(default_factory=_zero)
    """Bytes that are not STOMP."""
    rules: Counter[str] = field(default_factory=Counter)
    """Findings by rule."""
    faults: Counter[str] = field(default_factory=Counter)
    """Injected faults by their text."""
    not_shown: int = 0
    """Frames that were not shown, since the output was slower than the stream."""
    not_checked: int = 0
    """Those of them that were not checked either."""
    not_recorded: int = 0
    recorded: int = 0

    def lines(self) -> list[str]:
        sides = [
            f"from {'clients' if side == 'client' else 'the broker'} {plural(self.frames[side], 'frame')}, "
            f"{plural(self.octets[side], 'byte')}"
            + (f" ({self.foreign[side]:,} of them not STOMP)" if self.foreign[side] else "")
            for side in DIRECTIONS
        ]
        refused = f" ({self.refused:,} did not reach the target)" if self.refused else ""
        lines = ["; ".join([plural(self.connections, "connection") + refused, *sides])]
        if self.rules:
            lines.append("lint: " + ", ".join(f"{rule} {count:,}" for rule, count in sorted(self.rules.items())))
        if self.faults:
            lines.append("faults: " + ", ".join(f"{text} {count:,}" for text, count in sorted(self.faults.items())))
        if self.recorded or self.not_recorded:
            lines.append(f"recorded {plural(self.recorded, 'frame')}")
        if self.not_recorded:
            lines[-1] += f"; {self.not_recorded:,} not recorded"
        if self.not_shown:
            unchecked = f", {self.not_checked:,} of them not checked" if self.not_checked else ""
            lines.append(f"{plural(self.not_shown, 'frame')} not shown, since the output was slower{unchecked}")
        return lines

    def json(self) -> dict[str, Any]:
        return {
            "event": "summary",
            **{name: getattr(self, name) for name in ("connections", "refused", "frames")},
            "bytes": self.octets,
            "not_stomp": self.foreign,
            "heart_beats": self.heart_beats,
            "lint": dict(self.rules),
            "faults": dict(self.faults),
            **{name: getattr(self, name) for name in ("recorded", "not_recorded", "not_shown", "not_checked")},
        }


T = TypeVar("T")
#: Items that a thread takes at a time.
_BATCH = 200


class Lane(Generic[T]):
    """A bounded queue, and the thread that works on it. An item that does not fit is refused at once: `most` is the sum
    of the sizes of the items that wait, or are being worked on. `failed` is called in the thread with an exception of
    `work`; later items are refused.

    >>> done = []
    >>> lane = Lane("example", done.extend, most=10)
    >>> lane.put("a", 10), lane.close(10.0), lane.put("b", 1), done
    (True, True, False, ['a'])
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[T]], object],
        most: int,
        failed: Callable[[Exception], object] = lambda error: None,
    ) -> None:
        self._work = work
        self._most = most
        self._failed = failed
        self._items: deque[tuple[T, int]] = deque()
        self._size = 0
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"stompcodec-{name}", daemon=True)
        self._thread.start()

    def put(self, item: T, size: int) -> bool:
        with self._changed:
            if self._over or (self._size and self._size + size > self._most):
                return False
            self._items.append((item, size))
            self._size += size
            self._changed.notify()
            return True

    def close(self, seconds: float) -> bool:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._work([item for item, _ in batch])
            except Exception as error:
                with self._changed:
                    self._over = True
                    self._items.clear()
                self._failed(error)
                return
            with self._changed:
                self._size -= sum(size for _, size in batch)

    def _next(self) -> list[tuple[Any, int]]:
        with self._changed:
            while not self._items and not self._over:
                self._changed.wait()
            return [self._items.popleft() for _ in range(min(_BATCH, len(self._items)))]


_ARROWS: dict[Direction | None, str] = {"client": ">", "broker": "<", None: "-"}
_DIRECTION_STYLES: dict[Direction | None, str] = {"client": "green", "broker": "cyan", None: "dim"}
#: Columns of the time, the connection, the direction and the command; and of the number of a body's bytes.
_FIRST = 12 + 1 + 4 + 3
_COMMAND, _SIZE = 11, 8
#: Findings of a frame that are shown.
_FINDINGS = 20


class Entry(NamedTuple):
    """A frame or an event of a connection."""

    kind: str
    """"frame", "heart-beats", "not-stomp", or the name of an event, such as "opened"."""
    time: int
    """In µs since 1970, UTC."""
    connection: int
    """Counted from 1; 0 for the proxy itself."""
    direction: Direction | None = None
    text: str = ""
    """For people, safe to print; "" for frames."""
    offset: int = 0
    frame: Frame | None = None
    """With secrets masked; without its body if that was too large to keep."""
    streamed: bool = False
    """True if its body was too large to keep."""
    size: int = 0
    """Bytes of the frame's body, or the number of heart-beats."""
    begin: bytes = b""
    """The first bytes of a body, or of what is not STOMP, masked."""
    findings: tuple[Finding, ...] = ()
    faults: tuple[str, ...] = ()


def masked(frame: Frame) -> Frame:
    """Return a frame with the values of secret headers replaced.

    >>> masked(Frame("CONNECT", {"login": "ann", "passcode": "x"}))
    <Frame CONNECT login='ann' passcode='***'>
    >>> masked(Frame("CONNECT", {"passcode": "x"})).headers["passcode"]
    '***'
    """
    pairs = frame.headers.pairs()
    if not any(may_be_secret(name) for name, _ in pairs):
        return frame
    return Frame(frame.command, [(name, "***" if may_be_secret(name) else value) for name, value in pairs], frame.body)


def json_line(entry: Entry) -> bytes:
    """Return an entry as a line of JSON. Command, headers and body of a frame are those of `decode --json`.

    >>> json_line(Entry("opened", 7, 1, text="from 127.0.0.1:4711"))
    b'{"event":"opened","time":7,"connection":1,"text":"from 127.0.0.1:4711"}\\n'
    """
    before: dict[str, Any] = {"event": entry.kind, "time": entry.time, "connection": entry.connection}
    if entry.direction is not None:
        before["from"] = entry.direction
    after: dict[str, Any] = {}
    if entry.findings:
        after["lint"] = [finding.record() for finding in entry.findings]
    if entry.faults:
        after["faults"] = list(entry.faults)
    if entry.frame is None:
        line = {**before, **({"text": entry.text} if entry.text else {}), **after}
        if entry.begin:
            line["begin"] = entry.begin.hex()
        if entry.size:
            line["count"] = entry.size
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"
    before["offset"] = entry.offset
    if entry.streamed:
        after = {"body": None, "size": entry.size, **after}
    return json_of(before, entry.frame, after)


class Rows:
    """The rows of entries for a terminal, in the columns of the table of `decode`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        rest = max(console.width - _FIRST - _COMMAND - _SIZE - 8, 30)
        self._destination = min(rest * 3 // 10, 40)
        self._headers = rest * 3 // 10
        self._body = max(rest - self._destination - self._headers, 1)

    def row(self, entry: Entry) -> Text:
        clock = time.strftime("%H:%M:%S", time.localtime(entry.time // 1_000_000))
        text = Text(f"{clock}.{entry.time // 1000 % 1000:03} ", "dim")
        text.append(f"{entry.connection or '':>4} ", "bold" if entry.connection else "")
        text.append(f"{_ARROWS[entry.direction]} ", _DIRECTION_STYLES[entry.direction])
        if entry.frame is None:
            text.append(entry.text + "\n", "dim" if entry.kind != "not-stomp" else "yellow")
            if entry.begin:
                text.append("".join(f"{' ' * _FIRST}{line}\n" for line in hex_lines(entry.begin, entry.offset)), "dim")
        else:
            self._frame(text, entry, entry.frame)
        for fault in entry.faults:
            text.append(f"{' ' * _FIRST}fault: {printable(fault)}\n", "bold magenta")
        for finding in entry.findings[:_FINDINGS]:
            text.append(" " * _FIRST).append(finding.severity, STYLES[finding.severity])
            text.append(f" {finding.rule}", "bold").append(f": {finding.text} ({finding.remedy})\n")
        return text

    def _frame(self, text: Text, entry: Entry, frame: Frame) -> None:
        command = printable(frame.command)
        text.append(pad(command, _COMMAND), COMMAND_STYLES.get(command, "yellow")).append(" ")
        text.append(pad(printable(frame.get("destination", "-")[:200]), self._destination)).append("  ")
        text.append(pad(header_begin(frame, self._headers), self._headers), "dim").append(f"  {entry.size:>{_SIZE}}  ")
        text.append(cut(body_begin(entry.begin, self._body), self._body))
        text.rstrip()
        text.append("\n")


#: Largest size to which a body is decompressed to check it, in bytes.
_INFLATED = 2**20
#: Conversations to remember; the end of one may have been missed.
_CONVERSATIONS = 10_000
_SENDERS: dict[Direction, Sender] = {"client": "client", "broker": "server"}


class Note(NamedTuple):
    """Something that has passed, or happened."""

    time: int
    """In µs since 1970, UTC."""
    connection: int
    direction: Direction | None
    event: Passed | Beats | Foreign | str
    """What has passed, or the name of an event."""
    text: str = ""
    """Of an event."""
    faults: tuple[str, ...] = ()
    missed: int = 0
    """Frames of this connection that were left out before it."""


def _shown(event: Passed) -> Frame:
    frame = event.place.frame
    return Frame(frame.command, frame.headers.pairs()) if event.streamed else frame


#: Characters that wait for the output.
_MOST = 4 * 2**20


class Output:
    """Shows entries. Those that do not fit into the queue are counted and left out."""

    def __init__(self, console: Console | None, tally: Tally, failed: Callable[[Exception], object]) -> None:
        self._console = console
        self._rows = None if console is None else Rows(console)
        self._tally = tally
        self._skipped = 0
        self._lane: Lane[Text | str | bytes] = Lane("proxy-output", self._write, _MOST, failed)
        self.close = self._lane.close

    def add(self, entry: Entry) -> None:
        if self._skipped:
            text = f"{plural(self._skipped, 'frame')} not shown, since this output is slower than the stream"
            if self._put(Entry("missed", entry.time, 0, text=text, size=self._skipped)):
                self._skipped = 0
        if not self._put(entry) and entry.frame is not None:
            self._skipped += 1
            self._tally.not_shown += 1

    def add_counts(self) -> None:
        line = json.dumps(self._tally.json(), separators=(",", ":")).encode() + b"\n"
        self._lane.put(line, len(line))

    def _put(self, entry: Entry) -> bool:
        made: Text | str | bytes = json_line(entry) if self._rows is None else self._rows.row(entry)
        if isinstance(made, Text) and self._console is not None and self._console.color_system is None:
            made = made.plain
        return self._lane.put(made, len(made))

    def _write(self, lines: list[Text | str | bytes]) -> None:
        for line in lines:
            if isinstance(line, bytes):
                write_json(line)
            elif isinstance(line, str):  # much faster than the console
                sys.stdout.write(line)
            elif self._console is not None:
                self._console.print(line, soft_wrap=True, end="")
        sys.stdout.flush()


#: A frame with its connection, direction and time in µs; None for the end of a connection.
Taken = tuple[int, Direction, int, Passed | None]


def chain_of(connection: int, direction: Direction) -> str:
    """Return the name of a chain.

    >>> chain_of(1, "client")
    '000001.client'
    """
    return f"{connection:06}.{direction}"


class Recorder:
    """Writes frames to a capture; `work` is that of a `Lane`. Frames are on the disk after each call. Raises StoreError
    if the folder cannot be used.

    >>> import tempfile
    >>> from stompcodec.cli.proxying.bytes import Observer
    >>> event, = Observer().feed(b"ACK\\nid:7\\n\\n\\0")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recorder = Recorder(f"{folder}/a.stompcap", Tally())
    ...     recorder.work([(1, "client", 0, event), (1, "client", 0, None)])
    ...     recorder.close()
    ...     sorted(path.name for path in Path(folder, "a.stompcap").glob("0*.stomp"))
    ['000001.client-00000000000000000000.stomp']
    """

    def __init__(self, folder: str, tally: Tally) -> None:
        path = Path(folder)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise StoreError(f"{folder}: it exists: name a new folder, since connections are counted from 1")
        self._writer = CaptureWriter(folder, single=False, holder="stompcodec proxy")
        self._tally = tally

    def work(self, taken: list[Taken]) -> None:
        written = 0
        ended: list[int] = []
        for connection, direction, moment, event in taken:
            if event is None:
                ended.append(connection)
            elif self._write(connection, direction, moment, event):
                written += 1
        self._writer.sync()
        self._tally.recorded += written
        for connection in ended:
            for direction in DIRECTIONS:
                self._writer.finish(chain_of(connection, direction))

    def _write(self, connection: int, direction: Direction, time: int, event: Passed) -> bool:
        if not event.streamed:
            try:
                octets = octets_of(masked(event.place.frame))
            except FrameError:
                pass
            else:
                self._writer.append(octets, time, chain_of(connection, direction))
                return True
        self._tally.not_recorded += 1  # it is too large, or cannot be written by the rules of STOMP 1.2
        return False

    def close(self) -> None:
        self._writer.close()


#: Bytes that wait to be checked, and to be recorded.
_CHECKING, _RECORDING = 32 * 2**20, 64 * 2**20
#: What a note takes in memory besides its bytes.
_NOTE = 1000
#: Connections to remember whose files are to be closed.
_ENDED = 100_000


class Watcher:
    """A watcher of a proxy's connections. `outputs` get each entry, and `failed` an error of theirs, in threads."""

    def __init__(
        self,
        tally: Tally,
        outputs: list[Callable[[Entry], object]],
        recorder: Recorder | None = None,
        *,
        heart_beats: bool = False,
        failed: Callable[[str, Exception], object],
    ) -> None:
        self.tally = tally
        self._outputs = outputs
        self._heart_beats = heart_beats
        self._conversations: dict[int, Conversation] = {}  # of the thread
        self._missed: Counter[int] = Counter()
        self._ended: deque[int] = deque(maxlen=_ENDED)  # connections whose files are open still
        self._notes: Lane[Note] = Lane(
            "proxy-check", self._work, _CHECKING, lambda error: failed("nothing more is shown", error)
        )
        self._taken: Lane[Taken] | None = None
        if recorder is not None:
            self._taken = Lane(
                "proxy-record", recorder.work, _RECORDING, lambda error: failed("nothing more is recorded", error)
            )

    def say(self, connection: int, name: str, text: str = "", faults: tuple[str, ...] = ()) -> None:
        now = time.time_ns() // 1000
        if name == "closed":
            self._missed.pop(connection, None)
            self._finish(connection, now)
        self.tally.faults.update(faults)
        self._notes.put(Note(now, connection, None, name, text, faults), _NOTE)

    def _finish(self, connection: int, now: int) -> None:
        if self._taken is None:
            return
        self._ended.append(connection)
        while self._ended and self._taken.put((self._ended[0], "client", now, None), _NOTE):
            self._ended.popleft()

    def tell(self, connection: int, direction: Direction, event: Event, faults: tuple[str, ...]) -> None:
        if isinstance(event, Raw):
            return
        tally = self.tally
        if isinstance(event, Beats):
            tally.heart_beats[direction] += event.octets.count(b"\n")
            if not self._heart_beats:
                return
        now = time.time_ns() // 1000
        size = len(event.octets) + _NOTE
        if isinstance(event, Passed):
            tally.frames[direction] += 1
            tally.faults.update(faults)
            if self._taken is not None and not self._taken.put((connection, direction, now, event), size):
                tally.not_recorded += 1
        missed = self._missed[connection] if self._missed else 0
        note = Note(now, connection, direction, event, "", faults, missed)
        if self._notes.put(note, size):
            if missed:
                del self._missed[connection]
        elif isinstance(event, Passed):
            self._missed[connection] += 1
            tally.not_shown += 1
            tally.not_checked += 1

    def _work(self, notes: list[Note]) -> None:
        for note in notes:
            entry = self._entry(note)
            if entry is not None:
                self.tally.rules.update(finding.rule for finding in entry.findings)
                for output in self._outputs:
                    output(entry)

    def _entry(self, note: Note) -> Entry | None:
        event = note.event
        if note.missed:
            self._conversations.pop(note.connection, None)  # it would accuse peers of what it has not seen
        if isinstance(event, str):
            if event == "closed":
                self._conversations.pop(note.connection, None)
            text = printable(note.text)
            return Entry(event, note.time, note.connection, note.direction, text, faults=note.faults)
        if isinstance(event, Beats):
            count = event.octets.count(b"\n")
            if not self._heart_beats or not count:
                return None
            text = f"{count:,} heart-beats" if count > 1 else "heart-beat"
            return Entry("heart-beats", note.time, note.connection, note.direction, text, size=count)
        return self._foreign(note, event) if isinstance(event, Foreign) else self._passed(note, event)

    def _foreign(self, note: Note, event: Foreign) -> Entry:
        broken = event.broken
        text = "not STOMP: it passes unchanged from here on"
        if broken.error.kind == "truncated":
            text = "the stream ends inside a frame"
        return Entry(
            *("not-stomp", note.time, note.connection, note.direction, text, broken.start),
            begin=mask_lines(broken.head),
            findings=(finding_of(broken._replace(resumed=broken.start)),),
            faults=note.faults,
        )

    def _passed(self, note: Note, event: Passed) -> Entry:
        place = event.place
        findings: tuple[Finding, ...] = ()
        if note.direction is not None:
            findings = tuple(self._check(note.connection, note.direction, event))
        return Entry(
            *("frame", note.time, note.connection, note.direction, "", place.start, masked(_shown(event))),
            *(event.streamed, place.size, place.begin, findings, note.faults),
        )

    def _check(self, connection: int, direction: Direction, event: Passed) -> list[Finding]:
        conversation = self._conversations.setdefault(connection, Conversation(both=True))
        if len(self._conversations) > _CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        subject = subject_of(event.place._replace(frame=_shown(event)), event.head, None, _INFLATED)
        found = list(conversation.check(subject, _SENDERS[direction]))
        return found if event.streamed else [*check_frame(subject), *found]  # the other checks need the body

    def close(self, seconds: float) -> bool:
        done = self._notes.close(seconds)
        return (self._taken is None or self._taken.close(seconds)) and done
