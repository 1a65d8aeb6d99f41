"""The headers that middleware may change, and a table of those that it may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping

from stompcodec.client.owned import OWNED, WRITTEN
from stompcodec.errors import LocalProtocolError

_CODEC = {"content-length": "the codec writes it"}
_BROKER = "it belongs to the broker"
_SETTLE = "it names the message to the broker"

#: Command -> the headers that middleware must not set or remove -> the reason, or what to use instead.
FIXED: dict[str, dict[str, str]] = {
    "CONNECT": {name: f"use the option {option}" for name, option in WRITTEN.items()} | OWNED["CONNECT"] | _CODEC,
    "SEND": {**OWNED["SEND"], "ack": _BROKER, "destination": "the caller chooses it"} | _CODEC,
    "MESSAGE": {
        "ack": _SETTLE,
        "destination": _BROKER,
        "message-id": _SETTLE,
        "subscription": _SETTLE,
    }
    | _CODEC,
    "ACK": {**OWNED["ACK"], "ack": _SETTLE} | _CODEC,
}
FIXED["NACK"] = FIXED["ACK"]


class EditableHeaders(MutableMapping[str, str]):
    """The headers of a frame as middleware sees them: a mapping that refuses to change those of a table.

    As in frames, the first entry of a repeated name counts. Setting a name replaces all its entries; `add` repeats it.

    Args:
        command: the command of the frame, for errors.
        pairs: the headers.
        fixed: the names that must not change, with reasons.

    >>> headers = EditableHeaders("SEND", [("destination", "/queue/a")], FIXED["SEND"])
    >>> headers["signature"] = "1f"
    >>> headers.pairs(), headers.changed
    ([('destination', '/queue/a'), ('signature', '1f')], True)
    >>> headers["subscription"] = "1"
    Traceback (most recent call last):
        ...
    stompcodec.errors.LocalProtocolError: middleware must not change the header subscription of SEND: only a received \
message has it: leave it out
    """

    __slots__ = ("_command", "_fixed", "_pairs", "changed")

    def __init__(self, command: str, pairs: Iterable[tuple[str, str]], fixed: Mapping[str, str]) -> None:
        self._command = command
        self._pairs = list(pairs)
        self._fixed = fixed
        self.changed = False
        """Whether a header was changed."""

    def __getitem__(self, name: str) -> str:
        for each, value in self._pairs:
            if each == name:
                return value
        raise KeyError(name)

    def __setitem__(self, name: str, value: str) -> None:
        self._check(name, value)
        at = next((index for index, (each, _) in enumerate(self._pairs) if each == name), len(self._pairs))
        rest = [pair for pair in self._pairs[at:] if pair[0] != name]
        self._pairs[at:] = [(name, value), *rest]
        self.changed = True

    def __delitem__(self, name: str) -> None:
        self._check(name, "")
        kept = [pair for pair in self._pairs if pair[0] != name]
        if len(kept) == len(self._pairs):
            raise KeyError(name)
        self._pairs[:] = kept
        self.changed = True

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._pairs))

    def __len__(self) -> int:
        return len(dict(self._pairs))

    def __repr__(self) -> str:
        names = ", ".join(self)
        return f"<EditableHeaders of {self._command}: {names}>"

    def add(self, name: str, value: str) -> None:
        """Append an entry, also if there is one of this name, which then counts.

        Raises:
            LocalProtocolError, TypeError: as to set it.
        """
        self._check(name, value)
        self._pairs.append((name, value))
        self.changed = True

    def pairs(self) -> list[tuple[str, str]]:
        """Return all entries in their order."""
        return list(self._pairs)

    def _check(self, name: str, value: str) -> None:
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"the header {name!r:.60} of {self._command} is {type(value).__name__}: use str for both")
        why = self._fixed.get(name)
        if why is not None:
            raise LocalProtocolError(f"middleware must not change the header {name} of {self._command}: {why}")
