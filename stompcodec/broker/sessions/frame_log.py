"""The frame log: what comes from each client and goes to it, one line a frame, for whoever looks for a fault.

A session that is logged is of a class of its own, so that the others do not even ask. A line has the id of the session,
which is that of the connection, the address, a direction (< from the client, > to it), and the frame as its repr shows
it: long things cut, passcodes and other secrets masked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from stompcodec.broker.sessions.session import Session
from stompcodec.codec import Frame, Parser
from stompcodec.errors import FrameError
from stompcodec.frame import frame_repr
from stompcodec.spec import Limits

if TYPE_CHECKING:
    from stompcodec.broker.context import Handlers, Host

__all__ = ["LoggedSession", "logged", "session_class"]

_LOG = logging.getLogger("stompcodec.broker.frames")
#: Octets of a body of ours from which on it is read in pieces.
_APART = 4096
#: What we write has our own sizes: these only keep the reader from refusing it.
_LIMITS = Limits(max_header_line=2**20, max_headers=4000, max_body=2**62)


def logged(handlers: Handlers) -> Handlers:
    """Return what frames do where each is logged before."""
    return {command: partial(_logged, handler) for command, handler in handlers.items()}


def _logged(handler: Callable[[Session, Frame], None], session: Session, frame: Frame) -> None:
    """Do what a frame asks for, and say so before."""
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
        """As in Session; and what goes out is logged."""
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
        except FrameError as error:  # the log must not be what fails
            _LOG.warning("%s %s: the log can read no more of what goes out: %s", self.id, self.peer, error.kind)
            self._reader = None

    def note(self, direction: str, frame: Frame) -> None:
        """One line."""
        body: bytes | None = frame.body if self.broker.config.log_frames == "all" else b""
        _LOG.info("%s %s %s %s", self.id, self.peer, direction, frame_repr(frame.command, frame.headers.pairs(), body))


def session_class(log_frames: str) -> type[Session]:
    """What the sessions of a broker are.

    Args:
        log_frames: "off", "heads" or "all".

    >>> session_class("off").__name__, session_class("all").__name__
    ('Session', 'LoggedSession')
    """
    return Session if log_frames == "off" else LoggedSession
