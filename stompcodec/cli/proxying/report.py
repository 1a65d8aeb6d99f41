"""The reporter: checks and masks what has passed, and hands it to the output. It runs in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stompcodec import Frame
from stompcodec.cli.linting.checks import check_frame
from stompcodec.cli.linting.conversation import Conversation
from stompcodec.cli.linting.rules import Finding, finding_of
from stompcodec.cli.linting.subject import subject_of
from stompcodec.cli.proxying.entry import Entry, masked
from stompcodec.cli.proxying.observer import Beats, Direction, Foreign, Passed
from stompcodec.cli.proxying.tally import Tally
from stompcodec.cli.screen import mask_lines, printable
from stompcodec.states import Sender

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


class Reporter:
    """Makes entries of notes.

    Args:
        tally: where findings are counted.
        outputs: called with each entry.
        heart_beats: whether they are entries, too.
        lint: whether frames are checked.

    >>> from stompcodec.cli.proxying.observer import Observer
    >>> entries = []
    >>> reporter = Reporter(Tally(), [entries.append])
    >>> event, = Observer().feed(b"CONNECT\\npasscode:x\\naccept-version:1.2\\nhost:a\\nreceipt:7\\n\\n\\0")
    >>> reporter.work([Note(0, 1, "client", event)])
    >>> entries[0].frame.get("passcode"), [finding.rule for finding in entries[0].findings]
    ('***', ['S12-RCP-01'])
    """

    def __init__(
        self,
        tally: Tally,
        outputs: list[Callable[[Entry], object]],
        *,
        heart_beats: bool = False,
        lint: bool = True,
    ) -> None:
        self._tally = tally
        self._outputs = outputs
        self._heart_beats = heart_beats
        self._lint = lint
        self._conversations: dict[int, Conversation] = {}

    def work(self, notes: list[Note]) -> None:
        """Hand on the entries of these notes: the work of a `Lane`."""
        for note in notes:
            entry = self._entry(note)
            if entry is not None:
                self._tally.rules.update(finding.rule for finding in entry.findings)
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
        findings = (finding_of(broken._replace(resumed=broken.start)),) if self._lint else ()
        begin = mask_lines(broken.head)
        return Entry(
            *("not-stomp", note.time, note.connection, note.direction, text, broken.start),
            begin=begin,
            findings=findings,
            faults=note.faults,
        )

    def _passed(self, note: Note, event: Passed) -> Entry:
        place = event.place
        findings: tuple[Finding, ...] = ()
        if self._lint and note.direction is not None:
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


def _shown(event: Passed) -> Frame:
    """Return the frame, without a body that was not kept."""
    frame = event.place.frame
    return Frame(frame.command, frame.headers.pairs()) if event.streamed else frame
