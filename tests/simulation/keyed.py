"""SENDs with idempotency keys, and their ledger: clients that send again what had no receipt, two with equal keys."""

from collections.abc import Callable
from functools import partial
from typing import Any

from simulation.clients import RawClient
from simulation.records import Seen, Violation

from stompcodec import Frame

#: One has a consumer all the time, in auto mode. From the other one nobody takes anything before the end.
READ, KEPT = "/queue/once", "/queue/kept"
KEYED = (READ, KEPT)


class Resender(RawClient):
    """A client that sends groups of messages, each again until it has a receipt for it."""

    def __init__(self, net: Any, name: str, spec: dict[str, Any]) -> None:
        super().__init__(net, name, spec)
        #: What has no receipt: by number, the keys, where to, more headers, and how it ends if it is a transaction.
        self.pending: dict[int, tuple[list[str], str, dict[str, str], str]] = {}
        self.groups = 0

    def give(self, keys: list[str], to: str, headers: dict[str, str], end: str) -> None:
        """Send messages with these keys; `end` is COMMIT, ABORT, or "" for no transaction."""
        self.groups += 1
        self.pending[self.groups] = keys, to, headers, end
        if self.up:
            self._write_group(self.groups)

    def _write_group(self, number: int) -> None:
        keys, to, headers, end = self.pending[number]
        name, receipt = f"t{number}", ("receipt", f"k{number}")
        if end:
            self._send("BEGIN", {"transaction": name})
        for key in keys:
            spelled = "_AMQ_DUPL_ID" if len(key) % 2 else "idempotency-key"
            pairs = [("destination", to), (spelled, key), *headers.items()]
            pairs += [("transaction", name)] if end else [receipt] if key == keys[-1] else []
            self._send("SEND", pairs, b"%b.x" % key.encode())
        if end:
            self._send(end, [("transaction", name), receipt])
        if end == "ABORT":
            del self.pending[number]

    def _got(self, frame: Frame) -> None:
        super()._got(frame)
        if frame.command == "CONNECTED":
            for number in list(self.pending):
                self._write_group(number)
        elif frame.command == "RECEIPT":
            self.pending.pop(int(frame.headers["receipt-id"][1:]), None)


class Keyed:
    def __init__(self) -> None:
        self.life = 0
        #: Whether it was sent as persistent, by key; and those that came only in transactions without a COMMIT.
        self.sent: dict[str, bool] = {}
        self.open: dict[tuple[Seen, str], list[str]] = {}
        self.promised: set[str] = set()
        #: By key, and by the life of the broker where it does not outlive that.
        self.ids: dict[tuple[str, int], str] = {}

    def came(self, seen: Seen, frame: Frame) -> Callable[[], object] | None:
        key = frame.get("idempotency-key") or frame.headers["_AMQ_DUPL_ID"]
        transaction = frame.get("transaction")
        if transaction is not None:
            self.open.setdefault((seen, transaction), []).append(key)
            if frame.get("persistent") == "true":
                self.sent.setdefault(f"persistent {key}", True)
            return None
        self.sent[key] = frame.get("persistent") == "true"
        return partial(self.promised.update, [key])

    def ended(self, seen: Seen, frame: Frame, promise: Callable[[], object] | None) -> Callable[[], object] | None:
        keys = self.open.pop((seen, frame.get("transaction", "")), [])
        if frame.command == "ABORT" or not keys:
            return promise
        for key in keys:
            self.sent[key] = f"persistent {key}" in self.sent

        def committed() -> None:
            if promise is not None:
                promise()
            self.promised.update(keys)

        return committed

    def delivered(self, seen: Seen, frame: Frame) -> None:
        key = frame.get("idempotency-key") or frame.headers["_AMQ_DUPL_ID"]
        if key not in self.sent:
            raise Violation("a key that nobody sent", f"{seen.name} got {key}, which came in no COMMIT")
        ident = frame.headers["message-id"]
        first = self.ids.setdefault((key, 0 if self.sent[key] else self.life), ident)
        if first != ident:
            raise Violation("a key is stored twice", f"{seen.name} got {key} as {ident}, and it was {first} before")

    def balance(self, destinations: dict[str, str]) -> None:
        """All is over, and what was kept has been taken."""
        for key in sorted(self.promised):
            if destinations.get(key) == KEPT and self.sent[key] and (key, 0) not in self.ids:
                raise Violation("a key without its message", f"{key} has a receipt, and never came")
