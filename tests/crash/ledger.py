"""What was sent, confirmed, delivered and acknowledged; workers write here, and `balance` closes the books."""

from collections import Counter
from dataclasses import dataclass, field


def body_of(key: str, size: int) -> bytes:
    """The body of a message. What stands before a slash tells copies of it apart, for the books.

    >>> body_of("a-1", 9), body_of("b/a-1", 4)
    (b'a-1\\x00a-1\\x00a', b'a-1\\x00')
    """
    unit = f"{key.rpartition('/')[2]}\0".encode()
    return (unit * (size // len(unit) + 1))[:size]


@dataclass(slots=True)
class Record:
    queue: str
    group: str | None = None  # The transaction it was sent in.
    source: str | None = None  # The message it was made of, by a worker that moves messages in transactions.
    receipted: bool = False
    acking: bool = False  # An acknowledgement is on its way, or its fate is unknown: it may come again or not.
    acked: bool = False
    deliveries: int = 0
    drained: bool = False  # It was in its queue, or the dead-letter queue, when all was over.


@dataclass
class Books:
    problems: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def problem(self, kind: str, example: object) -> None:
        self.problems[kind] += 1
        if self.problems[kind] <= 5:
            self.examples.append(f"{kind}: {example}"[:500])

    def counts(self) -> dict[str, int]:
        """What was done, for people."""
        return {}

    def figures(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self.counts().items())
        return f"{counts}; {dict(self.problems) or 'no problems'}"


@dataclass
class Ledger(Books):
    """The books of a run. `strict`: nothing that was sent before a connection was lost is read after the message went
    to another one. Where that can happen (the proxy cuts, both ends notice in their own time) a delivery that breaks a
    rule is only held against the broker when the connection it came on proves to be alive afterwards: see `confirm`."""

    strict: bool = True
    moved_from: frozenset[str] = frozenset()  # The queues whose messages are moved in transactions.
    records: dict[str, Record] = field(default_factory=dict)
    late: int = 0  # Deliveries that were read after their connection was lost and the message was given to another one.
    dead: int = 0  # Messages that went to a dead-letter queue.
    ends: dict[str, int] = field(default_factory=dict)  # Who emptied a queue -> the seq of what was sent there last.

    # ---- producers ----
    def sent(self, key: str, queue: str, *, group: str | None = None, source: str | None = None) -> None:
        self.records[key] = Record(queue, group, source)

    def receipted(self, keys: list[str]) -> None:
        for key in keys:
            self.records[key].receipted = True

    # ---- consumers ----
    def delivered(self, key: str, queue: str, body: bytes, size: int, redelivered: bool) -> str | None:
        """Note a delivery; returns the rule it seems to break, when that cannot be held against the broker yet."""
        record = self.records.get(key)
        if record is None:
            self.problem("never sent", key)
            return None
        if record.queue != queue:
            self.problem("wrong queue", f"{key} on {queue}")
        if body != body_of(key, size):
            self.problem("wrong body", f"{key}, {len(body)} octets for {size}")
        suspicion = None
        if record.acked:
            suspicion = "acknowledged message came back"
        elif record.deliveries and not redelivered:
            suspicion = "duplicate without redelivered:true"
        record.deliveries += 1
        if suspicion and self.strict:
            self.problem(suspicion, key)
            return None
        return suspicion

    def confirm(self, suspicion: str, key: str) -> None:
        """The connection that gave a suspicious delivery answered afterwards: the broker meant it."""
        self.problem(suspicion, key)

    def acking(self, keys: list[str]) -> None:
        for key in keys:
            self.records[key].acking = True

    def acked(self, keys: list[str]) -> None:
        for key in keys:
            self.records[key].acked = True

    def drained(self, key: str, dead: bool) -> None:
        record = self.records.get(key)
        if record is not None:
            record.drained = True
            self.dead += dead

    def ended(self, name: str, seq: int) -> None:
        """A queue is empty: the seq of what stands behind all is higher than any before, also before a restart."""
        if seq <= self.ends.get(name, 0):
            self.problem("seqs do not rise", f"{name}: {seq} after {self.ends[name]}")
        self.ends[name] = seq

    # ---- the end ----
    @property
    def backlog(self) -> int:
        """Messages that must be in the queues."""
        return sum(record.receipted and not record.acking for record in self.records.values())

    def balance(self) -> None:
        groups, moved = {}, Counter()
        for key, record in self.records.items():
            if record.receipted and not record.deliveries:
                self.problem("lost", f"{key} of {record.queue}: receipted, never delivered")
            elif record.receipted and not (record.acked or record.acking):
                self.problem("lost", f"{key} of {record.queue}: delivered once, not acknowledged, not there at the end")
            if record.group is not None:
                groups.setdefault(record.group, set()).add(record.deliveries > 0)
            if record.source is not None and record.deliveries:
                moved[record.source] += 1
        for group, seen in groups.items():
            if len(seen) > 1:
                self.problem("transaction by half", group)
        for key, record in self.records.items():
            if record.queue in self.moved_from:
                times = moved[key] + record.drained
                if times > 1:
                    self.problem("moved twice", f"{key}, {times} times")
                elif times == 0 and record.receipted:
                    self.problem("lost", f"{key}: its transaction acknowledged it, what was sent in it is not there")

    def counts(self) -> dict[str, int]:
        found = Counter({"sent": len(self.records), "dead-lettered": self.dead, "late": self.late})
        for record in self.records.values():
            found.update(receipted=record.receipted, acknowledged=record.acked, again=record.deliveries > 1)
        return found
