"""Costs in turns of a broker's loop, of which each is looked at, and in bytecode instructions."""

import gc
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from broker.harness import Bench, FaultyStore

from stompcodec.broker.loop_quota import AT_ONCE

#: What one turn may do, in operations of the store or messages: some shares, whatever there is.
MOST = 3 * AT_ONCE
QUEUE = "/queue/a"


class Counting(FaultyStore):
    def __init__(self, background: bool = False) -> None:
        super().__init__(background)
        self.counts, self.largest = Counter(), 0

    def append(self, queue: str, message: Any) -> None:
        self.counts["append"] += 1
        super().append(queue, message)

    def remove(self, queue: str, message: Any) -> None:
        self.counts["remove"] += 1
        super().remove(queue, message)

    def update(self, queue: str, message: Any) -> None:
        self.counts["update"] += 1
        super().update(queue, message)

    def commit_later(self, done: Any, call_soon: Any) -> None:
        self.largest = max(self.largest, self.pending)
        super().commit_later(done, call_soon)


class Loop(Bench):
    """A broker whose turns are looked at one by one, beside a session that asks for a receipt in each of them."""

    def __init__(self, background: bool = False, **config: Any) -> None:
        config = {"prefetch": 100_000, "max_unacked": 10**6, "max_subscriptions": 10**4, **config}
        super().__init__(Counting(background), **config)
        self.other, self.turns, self.seen = self.peer(), 0, 0

    def turn(self) -> None:
        super().turn()
        self.seen = sum(self.store.counts.values())

    def one_turn(self) -> int:
        """Returns how much it did, with what was done since the last one."""
        while self.soon:
            self.soon.pop(0)()
        self.other.session.receive(b"SEND\ndestination:/queue/other\nreceipt:r\n\n\0", self.now)
        messages = 0
        for session in self.broker.turn(self.now):
            peer = self.peers.get(session)
            if peer is not None and peer.reading:
                had = len(peer.inbox)
                peer.flush()
                messages += len(peer.inbox) - had
        assert [frame.command for frame in self.other.take()] == ["RECEIPT"], "the other session is served"
        self.turns += 1
        before, self.seen = self.seen, sum(self.store.counts.values())
        return self.seen - before + messages

    @property
    def rests(self) -> bool:
        broker = self.broker
        return not (broker.dirty or broker._resumable or broker._opened or broker.quota.waiting or self.soon)

    def watch(self, most: int = MOST) -> None:
        for _ in range(1000):
            work = self.one_turn()
            assert work <= most, f"turn {self.turns} did {work}"
            if self.rests:
                return
        raise AssertionError("the broker never rests")


def bytecodes(do: Callable[[], object]) -> int:
    """Count the bytecode instructions that a call executes, in functions that C calls, too. The garbage collector
    rests meanwhile: hypothesis has it call a function of Python, at moments that depend on the tests before."""
    count = 0

    def trace(frame: Any, event: str, _arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count
