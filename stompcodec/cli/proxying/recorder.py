"""The recorder of a proxy: frames with masked secrets, in a capture with a chain for each direction of a connection."""

from __future__ import annotations

from pathlib import Path

from stompcodec import FrameError
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.cli.proxying.entry import masked
from stompcodec.cli.proxying.observer import DIRECTIONS, Direction, Passed
from stompcodec.cli.proxying.tally import Tally
from stompcodec.disk import PRIVATE, Access
from stompcodec.errors import StoreError

#: A frame with its connection, direction and time in µs; None for the end of a connection.
Taken = tuple[int, Direction, int, Passed | None]


def chain_of(connection: int, direction: Direction) -> str:
    """Return the name of a chain.

    >>> chain_of(1, "client")
    '000001.client'
    """
    return f"{connection:06}.{direction}"


class Recorder:
    """Writes frames to a capture; `work` is that of a `Lane`. Frames are on the disk after each call.

    Args:
        folder: the capture, which must not exist, or be an empty folder.
        tally: where frames are counted.
        access: the permissions of new files.

    Raises:
        StoreError: the folder cannot be used.

    >>> import tempfile
    >>> from stompcodec.cli.proxying.observer import Observer
    >>> event, = Observer().feed(b"ACK\\nid:7\\n\\n\\0")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recorder = Recorder(f"{folder}/a.stompcap", Tally())
    ...     recorder.work([(1, "client", 0, event), (1, "client", 0, None)])
    ...     recorder.close()
    ...     sorted(path.name for path in Path(folder, "a.stompcap").glob("0*.stomp"))
    ['000001.client-00000000000000000000.stomp']
    """

    def __init__(self, folder: str, tally: Tally, access: Access = PRIVATE) -> None:
        path = Path(folder)
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise StoreError(f"{folder}: it exists: name a new folder, since connections are counted from 1")
        self._writer = CaptureWriter(folder, single=False, access=access, holder="stompcodec proxy")
        self._tally = tally

    def work(self, taken: list[Taken]) -> None:
        """Write frames, and close the chains of connections that have ended."""
        written = 0
        ended: list[int] = []
        for connection, direction, time, event in taken:
            if event is None:
                ended.append(connection)
            elif self._write(connection, direction, time, event):
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
        """Seal the capture. Raise StoreError if that fails."""
        self._writer.close()
