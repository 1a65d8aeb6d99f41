"""The damage found in a store: logged up to a bound, and counted."""

from __future__ import annotations

import logging

#: Number of findings that are logged. Later ones are only counted.
_MOST_LINES = 100


class Damage:
    """The damage found since the store was opened. Each finding is logged as an error.

    >>> damage = Damage(logging.getLogger("example"))
    >>> damage.messages, damage.findings
    (0, 0)
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        #: Messages that are damaged or missing.
        self.messages = 0
        #: All findings, including those that are not logged.
        self.findings = 0

    def message(self, ident: str, destination: str, why: str) -> None:
        """Report a damaged message, which is set aside."""
        self.messages += 1
        self.found(f"message {shown(ident)} of {shown(destination)} is lost: {why} (kept aside for broker salvage)")

    def missing(self, count: int, queue: str) -> None:
        """Report that a queue holds fewer messages than its total says, or more if the count is negative."""
        self.messages += max(count, 0)
        name = shown(queue.replace("\0", " ", 1))
        if count > 0:
            self.found(f"{count} messages of the queue {name} are missing: its total is {count} higher than its rows")
        else:
            self.found(f"the queue {name} holds {-count} rows more than its total says")

    def found(self, what: str) -> None:
        """Report any other damage."""
        self.findings += 1
        if self.findings <= _MOST_LINES:
            self._log.error("the store is damaged: %s", what)
        if self.findings == _MOST_LINES:
            self._log.error("the store is damaged: no more is logged; stompcodec broker check lists everything")


def shown(name: str) -> str:
    """Return a name as printable text for the log.

    >>> shown("/queue/a"), shown("a\\nb")
    ('/queue/a', "'a\\\\nb'")
    """
    return name if name.isprintable() else ascii(name)
