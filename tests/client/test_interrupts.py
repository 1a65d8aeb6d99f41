"""Ctrl-C in `get`, `ack` and `wait`: KeyboardInterrupt comes out, nothing else, and the client goes on."""

import dis
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from client.feeding import wait_for
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import engine
from stompcodec.client.middleware import Middleware

#: Where interrupts come; the folder that the project lies in may have any name.
_CLIENT = Path(stomp.__file__).parent
_TRACED = (_CLIENT, _CLIENT / "sync", _CLIENT / "io", _CLIENT.parent / "transport", Path(__file__).parent)
#: The interpreter looks for signals when it has done one of these.
_LOOKS = ("RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_METHOD")
_JUMPS = ("JUMP_BACKWARD", "JUMP_ABSOLUTE")
#: From Python 3.12 on, the first run of a function under the tracer is not traced instruction by instruction. Nor is
#: RESUME ever: the event of the call stands for it.
_FIRST_IS_MISSED = sys.version_info >= (3, 12)
_seen: set[Any] = set()
pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces")


@cache
def names_of(code: Any) -> dict[int, str]:
    return {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}


class Interrupter:
    """Raises KeyboardInterrupt at one place, counted from 1, in the code of the client and of threading."""

    def __init__(self, place: int) -> None:
        self.left = place
        self.fired = self.missed = False
        self._last = {}

    def __call__(self, frame: Any, event: str, _arg: object) -> Any:
        if event == "call":
            file = Path(frame.f_code.co_filename)
            if file.parent not in _TRACED and file.name != "threading.py":
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if _FIRST_IS_MISSED:
                self.missed |= frame.f_code not in _seen
                _seen.add(frame.f_code)
                self._pass()
        elif event == "opcode":
            last, self._last[frame] = self._last.get(frame), names_of(frame.f_code).get(frame.f_lasti, "")
            if last in _LOOKS or last in _JUMPS:
                self._pass()
        return self

    def _pass(self) -> None:
        self.left -= 1
        if not self.left:
            self.fired = True
            raise KeyboardInterrupt


def interrupted(call: Any, place: int) -> bool:
    """Call, with an interrupt at that place. False: there are fewer places. True may also mean that some were missed.
    Other errors come out."""
    interrupter = Interrupter(place)
    sys.settrace(interrupter)
    try:
        call()
    except KeyboardInterrupt:
        assert interrupter.fired
    finally:
        sys.settrace(None)
    return interrupter.fired or interrupter.missed


@pytest.fixture
def client(peer: Any) -> Any:
    with stomp.connect(peer.url, heart_beat=(0, 0)) as client:
        yield client


def is_sound(client: Any) -> None:
    assert client._link.engine.lock.acquire(timeout=patience(30)), "the lock is held for ever"
    client._link.engine.lock.release()


def every_place(client: Any, call: Any, prepare: Any = lambda place: None, least: int = 6) -> int:
    """Call with an interrupt at each place in turn; return how many there are: not fewer than the least."""
    place, going_on = 0, True
    while going_on:
        place += 1
        prepare(place)
        going_on = interrupted(call, place)
        is_sound(client)
        assert place < 5000
    assert place >= least
    return place


@pytest.mark.parametrize("is_woken", [False, True])
def test_get_with_a_time_out(client: Any, is_woken: bool) -> None:
    """Nothing comes: it waits, and gives up. Also when it is woken just before, while or just after it begins."""
    subscription, stop = client.subscribe("/queue/a", id="s"), threading.Event()

    def wake() -> None:
        while is_woken and not stop.is_set():
            with client._link.engine.lock:
                subscription.wake()

    waking = threading.Thread(target=wake, daemon=True)
    waking.start()
    try:
        every_place(client, lambda: subscription.get(0.001), least=11)
    finally:
        stop.set()
        waking.join(patience(30))
    assert not waking.is_alive()
    assert subscription.get(0.001) is None
    assert len(subscription._waiters._locks) <= 5, "who has given up waits no more"


@pytest.mark.parametrize("receipt", [False, True])
def test_ack(client: Any, peer: Any, receipt: bool) -> None:
    subscription = client.subscribe("/queue/a", id="s", ack="client-individual", prefetch=5000)
    peer.deliver("s", b"x", count=1500)
    taken = []
    every_place(
        client,
        lambda: taken[-1].ack(receipt=receipt, timeout=patience(30)),
        lambda place: taken.append(subscription.get(patience(30))),
    )


@pytest.mark.parametrize("gather", [-1.0, 1e9], ids=["written by the caller", "by the I/O thread"])
@pytest.mark.parametrize("headers", [None, {"a": "b"}], ids=["plain", "with headers"])
def test_send(client: Any, peer: Any, gather: float, headers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_GATHER", gather)
    texts = [b"0"]
    count = every_place(
        client, lambda: client.send("/queue/a", texts[-1], headers), lambda place: texts.append(b"%d" % place)
    )
    client.send("/queue/a", b"last", receipt=True)
    *numbers, last = [frame.body for frame in peer.got("SEND")]
    assert last == b"last"
    assert [int(number) for number in numbers] == sorted({int(number) for number in numbers})
    assert (int(numbers[-1]), client.epoch) == (count, 1)


@pytest.mark.parametrize("middleware", [(), (Middleware(),)], ids=["plain", "through middleware"])
def test_reading_goes_on(peer: Any, middleware: Any) -> None:
    with stomp.connect(peer.url, heart_beat=(0, 0), inbox_messages=2, middleware=middleware) as client:
        subscription = client.subscribe("/queue/a", id="s", ack="client-individual", prefetch=1000)
        engine = client._link.engine

        def get() -> None:
            while subscription.inbox:
                subscription._refill(None)
                subscription.batch.clear()

        def pause(place: int) -> None:
            get()
            wait_for(lambda: not engine._owner.paused, 3)  # else the last interrupt has paused it for ever
            peer.deliver("s", b"x", count=2)
            wait_for(lambda: engine._owner.paused)

        every_place(client, get, pause)
