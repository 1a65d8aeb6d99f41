"""The I/O thread gets the client's lock from threads that take it again and again."""

from __future__ import annotations

import threading
import time

import pytest
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.io.hub import Turns

LONG = 60.0


def wait_for(done) -> None:
    until = time.monotonic() + patience(LONG)
    while not done():
        assert time.monotonic() < until
        time.sleep(0.0005)


def test_who_lets_it_pass_comes_behind() -> None:
    """And so it needs no luck: without that, the lock is taken again before it wakes."""
    lock = threading.Lock()
    turns, order, go_on = Turns(lock), [], threading.Event()

    def work() -> None:
        with turns:
            assert go_on.wait(patience(LONG))
            order.append("the waiting one")

    for number in range(1, 20):
        with lock:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            wait_for(lambda: turns.waits)
            go_on.set()
        turns.let_pass()
        with lock:
            order.append("the busy one")
        thread.join(patience(LONG))
        go_on.clear()
        assert not turns.waits
        assert order == ["the waiting one", "the busy one"] * number
    turns.let_pass()  # nothing holds it up


def test_a_free_lock_has_no_gate() -> None:
    lock = threading.Lock()
    turns = Turns(lock)
    with turns:
        assert lock.locked()
        assert not turns.waits
        turns.let_pass()
    assert not lock.locked()


def test_an_error_frees_the_lock() -> None:
    lock = threading.Lock()
    turns = Turns(lock)
    for _ in range(2):
        with pytest.raises(KeyError), turns:
            raise KeyError
        assert not lock.locked()


def test_callers_let_the_io_thread_pass() -> None:
    """Whatever they do with each message."""
    with Peer() as peer, stomp.connect(peer.url, heart_beat=(0, 0)) as client:
        engine = client._link.engine
        subscription = client.subscribe("/queue/b", id="s", ack="client-individual")
        peer.deliver("s", b"x", count=2)
        first, second = subscription.get(patience(LONG)), subscription.get(patience(LONG))
        for call in (
            lambda: client.send("/queue/a", b"x"),
            lambda: client.send("/queue/a", b"x", {"a": "b"}),
            first.ack,
            lambda: second.ack(receipt=True),
        ):
            with engine.lock:
                engine._task.wake()
                wait_for(lambda: engine._turns.waits)
                thread = threading.Thread(target=call, daemon=True)
                passed = Passing(engine, thread)
                engine._turns = passed
                thread.start()
                wait_for(lambda passed=passed: passed.asked)
            thread.join(patience(LONG))
            assert not thread.is_alive()
            engine._turns = passed.turns


class Passing:
    """Turns that tell that a thread has let the other one pass."""

    def __init__(self, engine, thread) -> None:
        self.turns, self.thread, self.asked = engine._turns, thread, False

    @property
    def waits(self) -> bool:
        return self.turns.waits

    def let_pass(self) -> None:
        self.asked |= threading.current_thread() is self.thread
        self.turns.let_pass()

    def __enter__(self) -> None:
        self.turns.__enter__()

    def __exit__(self, *_: object) -> None:
        self.turns.__exit__()
