"""The deadline of a wire is a time of the clock or None, on each transport and in each state."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from patience import patience
from transport.endpoints import Endpoint
from transport.wires import KINDS, Peer, Place, in_thread

from stompcodec.transport import sync

#: More than a layer handles in one turn.
BURST = 1500
#: Steps of our own, by name.
OURS: dict[str, Callable[[Any, Any], object]] = {
    "poll": lambda wire, borrower: wire.poll(0.02),
    "lend": lambda wire, borrower: wire.lend(borrower),
    "read_ahead": lambda wire, borrower: wire.is_lent and wire.read_ahead(),
    "read_now": lambda wire, borrower: wire.read_now(),
    "take_back": lambda wire, borrower: wire.lend(None),
    "write": lambda wire, borrower: wire.write([b"hello"] * 3),
    "pause": lambda wire, borrower: (wire.pause_reading(), wire.watch()),
    "resume": lambda wire, borrower: (wire.resume_reading(), wire.watch()),
    "close": lambda wire, borrower: wire.close(0.01),
    "abort": lambda wire, borrower: wire.abort(),
}
steps = st.lists(st.sampled_from((*OURS, "poll", "burst", "burst", "end", "reset")), max_size=12)
few = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def walk(wire: Any, there: Callable[[str], None], steps: list[str]) -> None:
    """Take these steps, then go on to the end. A deadline is as it was, or not before the last look."""
    at, known = time.monotonic(), None

    def look() -> None:
        nonlocal at, known
        due = wire.deadline
        assert due is None or due == known or due >= at, f"{due} is no time: the clock was at {at}"
        if wire._deadline is not None or due is None:
            known = wire._deadline
        at = time.monotonic()

    with selectors.DefaultSelector() as borrower:
        try:
            for step in ["burst", "poll", "poll", *steps, "resume", "take_back", "end"]:
                if step not in OURS:
                    there(step)
                elif not wire._dead:
                    OURS[step](wire, borrower)
                look()
                if wire._is_held() or wire.ahead or wire._broken:
                    event("there is something to do at once")
            until = time.monotonic() + patience(2)
            while wire.poll(0.05):
                look()
                assert time.monotonic() < until
            look()
        finally:
            wire.abort()


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_is_a_time(kind: str, contexts_of: Any) -> None:
    context = contexts_of(kind)

    @few
    @given(steps)
    def check(steps: list[str]) -> None:
        with in_thread(kind, context.server, echo=False) as server, sync.Waker() as waker:

            async def do(step: str) -> None:
                wire = (await server.first()).wire
                if step == "burst":
                    for _ in range(BURST):
                        wire.write([b"x"])
                elif step == "end":
                    wire.close()
                else:
                    with contextlib.suppress(OSError):
                        sock = wire._transport.get_extra_info("socket")
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    wire.abort()

            wire = sync.connect(server.place, Peer(), ssl=context.client, waker=waker)
            walk(wire, lambda step: server.run(do(step)), steps)

    check()


def test_a_deadline_of_sockjs_is_a_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        @settings(few, max_examples=6)
        @given(steps)
        def check(steps: list[str]) -> None:
            with Endpoint(listener.getsockname()[1]) as endpoint, sync.Waker() as waker:
                place = Place("127.0.0.1", endpoint.port, path="/stomp", websocket=True, sockjs=True)
                wire = sync.connect(place, Peer(), waker=waker)
                behind, _ = listener.accept()

                def do(step: str) -> None:
                    with contextlib.suppress(OSError):  # the endpoint may be gone
                        if step == "burst":
                            behind.sendall(bytes(30_000))
                        else:
                            behind.shutdown(socket.SHUT_WR)

                walk(wire, do, steps)
                behind.close()

        check()
