"""Errors that the broker answers with ERROR."""

from __future__ import annotations

__all__ = ["Refused"]


class Refused(Exception):
    """A frame that cannot be served: its sender gets ERROR, and the session ends.

    Args:
        message: short, for the header of that name. It may go to the peer, so it holds no secrets.
        remedy: what to do about it, for the body.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
