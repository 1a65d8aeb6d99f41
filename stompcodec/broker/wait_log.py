"""WaitLog: lines in the log about queues whose senders wait for room."""

from __future__ import annotations

from logging import Logger

from stompcodec.broker.memory import Account, Holder

#: Seconds before a wait is logged: short waits are ordinary back-pressure.
_PATIENCE = 5.0
#: Seconds between two such lines about one queue.
_PAUSE = 60.0
#: The most queues whose waits are logged at a time.
_MOST = 20


class WaitLog:
    """The log of queues whose senders wait for room: a line after five seconds, and one when the senders continue.

    A sender that waits gets neither a RECEIPT nor an ERROR, so only these lines show why.

    Args:
        account: knows the queues.
        log: receives the lines.
    """

    __slots__ = ("_account", "_log", "_logged", "_quiet")

    def __init__(self, account: Account, log: Logger) -> None:
        self._account = account
        self._log = log
        #: The queues with a first line but no second one, and since when their senders wait.
        self._logged: dict[Holder, float] = {}
        #: The time before which a queue gets no further first line.
        self._quiet: dict[Holder, float] = {}

    def look(self, now: float) -> None:
        """Log what has changed. Call it once per second, with the time in seconds."""
        waiting = self._account.waiting
        for holder, since in list(self._logged.items()):
            if waiting.get(holder) != since or not holder.blocked:
                del self._logged[holder]
                self._log.warning("senders waited %.0f s for room in %s", now - since, holder)
        self._quiet = {holder: until for holder, until in self._quiet.items() if until > now}
        for holder, known in waiting.items():
            since = waiting[holder] = now if known is None or not holder.blocked else known
            if now - since < _PATIENCE or holder in self._logged or holder in self._quiet:
                continue
            if len(self._logged) < _MOST:
                self._logged[holder], self._quiet[holder] = since, now + _PAUSE
                self._log.warning("senders wait for room in %s: %d", holder, len(holder.blocked))
