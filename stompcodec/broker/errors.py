"""Errors that the broker reports with ERROR."""

from __future__ import annotations


class Refused(Exception):
    """A frame that the broker refuses: its sender gets ERROR, and the session ends.

    `message` is short, for the header of that name. The client may see it, so it must not contain secrets. `remedy`
    says what to do about it, for the body.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Unready(Refused):
    """A frame that the broker refuses for its own state, as on a full disk: no message of the session is at fault."""
