"""The watcher: counts what passes, and hands it to the threads that check, show and record it. It never waits."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable

from stompcodec.cli.proxying.entry import Entry
from stompcodec.cli.proxying.lane import Lane
from stompcodec.cli.proxying.observer import Beats, Direction, Event, Passed, Raw
from stompcodec.cli.proxying.recorder import Recorder, Taken
from stompcodec.cli.proxying.report import Note, Reporter
from stompcodec.cli.proxying.tally import Tally

#: Bytes that wait to be checked, and to be recorded.
_CHECKING, _RECORDING = 32 * 2**20, 64 * 2**20
#: What a note takes in memory besides its bytes.
_NOTE = 1000
#: Connections to remember whose files are to be closed.
_ENDED = 100_000


class Watcher:
    """Watches all connections of a proxy. Its methods are called in the loop's thread, and take no time.

    Args:
        tally: the counts.
        outputs: called with each entry, in a thread.
        recorder: None to record nothing.
        heart_beats, lint: as for `Reporter`.
        failed: called in a thread with an error that ends showing or recording.
    """

    def __init__(
        self,
        tally: Tally,
        outputs: list[Callable[[Entry], object]],
        recorder: Recorder | None = None,
        *,
        heart_beats: bool = False,
        lint: bool = True,
        failed: Callable[[str, Exception], object],
    ) -> None:
        self.tally = tally
        self._heart_beats = heart_beats
        self._missed: Counter[int] = Counter()
        self._ended: deque[int] = deque(maxlen=_ENDED)  # connections whose files are open still
        reporter = Reporter(tally, outputs, heart_beats=heart_beats, lint=lint)
        self._notes: Lane[Note] = Lane(
            "proxy-check", reporter.work, _CHECKING, lambda error: failed("nothing more is shown", error)
        )
        self._taken: Lane[Taken] | None = None
        if recorder is not None:
            self._taken = Lane(
                "proxy-record", recorder.work, _RECORDING, lambda error: failed("nothing more is recorded", error)
            )

    def say(self, connection: int, name: str, text: str = "", faults: tuple[str, ...] = ()) -> None:
        """Tell an event of a connection, or of the proxy."""
        now = time.time_ns() // 1000
        if name == "closed":
            self._missed.pop(connection, None)
            self._finish(connection, now)
        self.tally.faults.update(faults)
        self._notes.put(Note(now, connection, None, name, text, faults), _NOTE)

    def _finish(self, connection: int, now: int) -> None:
        """Have the files of a connection closed, as soon as there is room for the order."""
        if self._taken is None:
            return
        self._ended.append(connection)
        while self._ended and self._taken.put((self._ended[0], "client", now, None), _NOTE):
            self._ended.popleft()

    def tell(self, connection: int, direction: Direction, event: Event, faults: tuple[str, ...]) -> None:
        """Tell what has passed, and which faults it met."""
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

    def close(self, seconds: float) -> bool:
        """Wait until everything is checked and recorded. Return False if it takes longer."""
        done = self._notes.close(seconds)
        return (self._taken is None or self._taken.close(seconds)) and done
