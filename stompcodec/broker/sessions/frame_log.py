"""The frame log, for debugging: one line for each frame from and to each client.

Logged sessions have a class of their own, so that logging costs nothing when it is off. A line holds the id of the
session, the address, a direction (< from the client, > to it), and the repr of the frame, in which long values are cut
and secrets are masked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from stompcodec.broker.context import Handlers, Host
from stompcodec.broker.sessions.session import Session
from stompcodec.codec import Frame, Parser
from stompcodec.errors import FrameError
from stompcodec.frame import frame_repr
from stompcodec.spec import Limits

_LOG = logging.getLogger("stompcodec.broker.frames")
#: Bytes from which the body of a written frame is read in pieces.
_APART = 4096
#: Large enough that the reader accepts every frame that the broker writes.
_LIMITS = Limits(max_header_line=2**20, max_headers=4000, max_body=2**62)


def logged(handlers: Handlers) -> Handlers:
    """Return handlers that log each frame first."""
    return {command: partial(_logged, handler) for command, handler in handlers.items()}


def _logged(handler: Callable[[Session, Frame], None], session: Session, frame: Frame) -> None:
    """Log a frame, then handle it."""
    if isinstance(session, LoggedSession):
        session.note("<", frame)
    handler(session, frame)


class LoggedSession(Session):
    """A session whose frames are logged."""

    __slots__ = ("_reader",)

    def __init__(self, broker: Host, id: str, now: float, **options: Any) -> None:
        super().__init__(broker, id, now, **options)
        self._reader: Any = self._new_reader(None)

    def _new_reader(self, version: str | None) -> Any:
        return Parser(version, limits=_LIMITS, stream_over=_APART, commands=self.broker.config.commands)

    def take_output(self) -> list[bytes]:
        """Return the chunks to write, after logging their frames."""
        chunks = super().take_output()
        if self._reader is not None:
            for chunk in chunks:
                self._read(chunk)
        return chunks

    def _read(self, chunk: bytes) -> None:
        try:
            for frame in self._reader.feed(chunk):
                if isinstance(frame, Frame):
                    self.note(">", frame)
                    if frame.command == "CONNECTED":
                        self._reader = self._new_reader(self.version)
        except FrameError as error:  # a fault of the log must not end the session
            _LOG.warning("%s %s: the log can read no more of what goes out: %s", self.id, self.peer, error.kind)
            self._reader = None

    def note(self, direction: str, frame: Frame) -> None:
        """Log one frame."""
        body: bytes | None = frame.body if self.broker.config.log_frames == "all" else b""
        _LOG.info("%s %s %s %s", self.id, self.peer, direction, frame_repr(frame.command, frame.headers.pairs(), body))
