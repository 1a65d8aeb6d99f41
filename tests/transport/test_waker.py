"""The waker by itself: none of its wakes is lost. How it ends the wait of a wire: test_sync.py."""

import pytest

from stompcodec.transport import sync


@pytest.fixture
def waker():
    with sync.Waker() as waker:
        yield waker


def test_a_wake_that_came_before_is_not_lost(waker):
    assert waker.wait(0) is False
    waker.wake()
    waker.wake()
    assert waker.wait(None) is True
    assert waker.wait(0) is False


def test_many_wakes_cost_one_call_of_the_kernel(waker):
    for _ in range(5):
        waker.wake()
    assert waker._here.recv(100) == b"\0"


def test_a_wake_while_it_is_cleared_does_not_silence_it(waker):
    class Racing:
        """Another thread wakes at the worst moments."""

        def __init__(self, inner):
            self.inner = inner

        def recv(self, size):
            waker.wake()
            return self.inner.recv(size)

    waker.wake()
    inner, waker._here = waker._here, Racing(waker._here)
    waker.clear()
    waker._here = inner
    waker.wake()
    assert waker.wait(0)


def test_a_closed_waker_may_still_be_called():
    waker = sync.Waker()
    waker.close()
    waker.wake()
