"""A disk in memory that keeps what was synced. A crash keeps, loses or tears what was written since, by its seed."""

import random

_SECTOR = 512


class DiskError(Exception):
    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class File:
    __slots__ = ("data", "durable", "named", "pending")

    def __init__(self) -> None:
        self.data, self.durable = bytearray(), bytearray()
        self.pending = []  # (offset, bytes), or (size, None) for a truncate.
        #: Its name is on the disk. A new file gets it by its first sync, as SQLite syncs the folder then.
        self.named = False

    def write(self, offset: int, octets: bytes) -> None:
        _put(self.data, offset, octets)
        self.pending.append((offset, octets))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        for offset, octets in self.pending:
            _apply(self.durable, offset, octets)
        self.pending.clear()
        self.named = True

    def crash(self, rng: random.Random) -> bool:
        """What is left of it. False: nothing, not even its name."""
        if not self.named and rng.random() < 0.5:
            return False
        fate = rng.random()  # all lost, all kept, or each write by itself
        for offset, octets in self.pending:
            if fate < 0.25:
                break
            if fate < 0.4 or rng.random() < 0.5:
                _apply(self.durable, offset, octets)
            elif octets is not None and rng.random() < 0.5:
                _tear(self.durable, offset, octets, rng)
        self.pending.clear()
        self.data, self.named = bytearray(self.durable), True
        return True


class Disk:
    """Files by name, and what is wrong with the disk just now."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.files = rng, {}
        self.generation = 0  # Handles of an earlier one are dead: their program has crashed.
        self.down = False  # The machine is down: nothing can be opened.
        self.spent = 0.0  # Seconds that operations took which nobody has waited for yet.
        self.sync_cost = self.write_cost = 0.0
        self.full = False  # Nothing that makes a file longer succeeds.
        self.full_for = 0  # Writes that fail until somebody makes room; 0: nobody does.
        self.failing = 0.0  # The part of writes and syncs that fail.
        self.faults = 0
        #: Called before every sync: for crashes in the middle of a commit.
        self.on_sync = None

    def take_spent(self) -> float:
        """Seconds since this was asked for the last time."""
        spent, self.spent = self.spent, 0.0
        return spent

    def write(self, file: File, offset: int, octets: bytes) -> None:
        self.spent += self.write_cost
        if self.full and offset + len(octets) > len(file.data):
            self.faults += 1
            self.full_for -= 1
            self.full = self.full_for != 0
            raise DiskError("full")
        self._may_fail()
        file.write(offset, octets)

    def sync(self, file: File) -> None:
        self.spent += self.sync_cost
        if self.on_sync is not None:
            self.on_sync()
        self._may_fail()
        file.sync()

    def _may_fail(self) -> None:
        if self.failing and self.rng.random() < self.failing:
            self.faults += 1
            raise DiskError("io")

    def crash(self) -> None:
        """The power is gone: only what was synced is sure to be left, and nobody's handles work any more."""
        self.generation += 1
        self.down = True
        self.files = {name: file for name, file in sorted(self.files.items()) if file.crash(self.rng)}


def _put(data: bytearray, offset: int, octets: bytes) -> None:
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(octets)] = octets


def _apply(data: bytearray, offset: int, octets: bytes | None) -> None:
    if octets is None:
        del data[offset:]
    else:
        _put(data, offset, octets)


def _tear(data: bytearray, offset: int, octets: bytes, rng: random.Random) -> None:
    """Some sectors of a write only."""
    at = 0
    while at < len(octets):
        end = min(len(octets), at + _SECTOR - (offset + at) % _SECTOR)
        if rng.random() < 0.5:
            _put(data, offset + at, octets[at:end])
        at = end
