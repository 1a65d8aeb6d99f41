"""The checks of `lint` that need several frames. One side of the conversation may be missing from the stream."""

from __future__ import annotations

from collections.abc import Iterator

from stompcodec.cli.linting.rules import Finding, Severity, ids
from stompcodec.cli.linting.subject import Subject, sender_of
from stompcodec.cli.screen import cut, printable
from stompcodec.states import Sender

#: Most subscription and transaction ids to remember. Beyond that, checks that depend on them are skipped.
_MOST = 10_000

_ANOTHER_SIDE = {
    "client": ids("1.0:FRM-09", "1.1:FRM-08", "1.2:FRM-06", "legacy:CMD-04"),
    "server": ids("1.0:FRM-10", "1.1:FRM-09", "1.2:FRM-07", "legacy:CMD-04"),
}
_NOT_OFFERED = ids("1.1:NEG-03", "1.2:NEG-04")
_AFTER_DISCONNECT = ids("1.1:DIS-02", "1.2:DIS-02")
_AFTER_ERROR = ids("1.2:ERR-02")
_SAME_ID = ids("1.1:SUB-05", "1.2:SUB-06")
_NOT_SUBSCRIBED = ids("1.1:UNS-01", "1.2:UNS-01")
_NO_ACK = ids("1.2:MSG-05")
_SAME_TRANSACTION = ids("1.2:TX-04")
_NO_TRANSACTION = {
    "COMMIT": ids("1.0:TX-04", "1.1:TX-05", "1.2:TX-06"),
    "ABORT": ids("1.0:TX-05", "1.1:TX-06", "1.2:TX-07"),
}
_NOT_BEGUN = ids("1.0:TX-02", "1.1:TX-02", "1.2:TX-02")


class Conversation:
    """A conversation as far as a stream has shown it, against which each frame is checked.

    Args:
        both: the stream has both sides of the conversation in their order; each frame is checked with its `sender`.
    """

    def __init__(self, *, both: bool = False) -> None:
        self._both = both
        self._sides: set[str] = set()
        self._begin(None)

    def _begin(self, offered: str | None) -> None:
        self._offered = offered
        self._modes: dict[str, str] = {}  # ack mode by subscription
        self._transactions: set[str] = set()
        self._ended = ""  # the command that ended the conversation
        self._whole = offered is not None  # everything since CONNECT was seen and remembered

    def check(self, subject: Subject, sender: Sender | None = None) -> Iterator[Finding]:
        """Yield a finding for each rule that a frame breaks at its place in the conversation."""
        command = subject.command
        if self._both:
            self._sides = {sender or sender_of(command)}
        for rules, severity, text, remedy in self._look(subject, command):
            rule = rules.get(subject.version, "")
            if rule:
                yield Finding(rule, subject.place.start, severity, text, remedy, command, subject.version)

    def _look(self, subject: Subject, command: str) -> Iterator[tuple[dict[str, str], Severity, str, str]]:
        side = sender_of(command)
        if self._sides and side not in self._sides:
            text = f"a frame of the {side} in the stream of the other side"
            yield _ANOTHER_SIDE[side], "note", text, "look at each direction by itself"
        self._sides.add(side)
        if command in ("CONNECT", "STOMP"):
            self._begin(subject.get("accept-version") or "1.0")
        elif command == "CONNECTED":
            offered = None if self._offered is None else self._offered.split(",")
            if offered is not None and subject.get("version") not in (None, *offered):
                yield (
                    _NOT_OFFERED,
                    "error",
                    "the server picked a version that was not offered",
                    "pick one of the offers",
                )
            if not self._both:  # a client need not wait for CONNECTED before it subscribes
                self._begin(self._offered)
        elif self._ended == "DISCONNECT" and side == "client":
            yield _AFTER_DISCONNECT, "error", "a frame after DISCONNECT", "send nothing more"
        elif self._ended == "ERROR" and side == "server":
            yield _AFTER_ERROR, "error", "a frame after ERROR", "close the connection after ERROR"
        if command in ("DISCONNECT", "ERROR"):
            self._ended = command
        yield from self._subscriptions(subject, command)
        yield from self._transaction(subject, command)

    def _subscriptions(self, subject: Subject, command: str) -> Iterator[tuple[dict[str, str], Severity, str, str]]:
        name = subject.get("subscription" if command == "MESSAGE" else "id")
        if name is None:
            return
        shown = cut(printable(name), 40)
        if command == "SUBSCRIBE":
            if name in self._modes:
                yield _SAME_ID, "error", f"another subscription has the id {shown}", "give each an id of its own"
            self._modes[name] = subject.get("ack") or "auto"
            self._bound()
        elif command == "UNSUBSCRIBE":
            known = self._modes.pop(name, None) is not None
            if not known and self._whole:
                yield _NOT_SUBSCRIBED, "error", f"no subscription has the id {shown}", "use the id of a SUBSCRIBE"
        elif command == "MESSAGE" and self._modes.get(name, "auto") != "auto" and subject.get("ack") is None:
            yield _NO_ACK, "error", f"MESSAGE has no header ack, and the subscription {shown} needs it", "add it"

    def _transaction(self, subject: Subject, command: str) -> Iterator[tuple[dict[str, str], Severity, str, str]]:
        name = subject.get("transaction")
        if name is None or sender_of(command) == "server":
            return
        known = name in self._transactions
        if command == "BEGIN":
            if known:
                yield _SAME_TRANSACTION, "error", "a transaction of this name has begun", "give each its own name"
            self._transactions.add(name)
            self._bound()
        elif not known and self._whole:
            rules = _NO_TRANSACTION.get(command, _NOT_BEGUN)
            yield rules, "error", f"{command} names a transaction that has not begun", "send BEGIN first"
        elif command in ("COMMIT", "ABORT"):
            self._transactions.discard(name)

    def _bound(self) -> None:
        if len(self._modes) + len(self._transactions) > _MOST:
            self._modes.clear()
            self._transactions.clear()
            self._whole = False
