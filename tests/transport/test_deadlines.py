"""The deadline of a wire is a time of the clock or None, on each transport and in each state."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
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


class Watched:
    """A client's wire whose deadline is looked at after each step."""

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.at = time.monotonic()  # of the last look
        self.known: float | None = None  # the deadline that was set before
        self.borrower = selectors.DefaultSelector()

    def look(self) -> None:
        """Check the invariant: a deadline is as it was, or not before the last look."""
        due = self.wire.deadline
        assert due is None or due == self.known or due >= self.at, f"{due} is no time: the clock was at {self.at}"
        if self.wire._deadline is not None or due is None:
            self.known = self.wire._deadline
        self.at = time.monotonic()

    # ---- the steps ----

    def poll(self) -> None:
        self.wire.poll(0.02)

    def lend(self) -> None:
        self.wire.lend(self.borrower)

    def read_ahead(self) -> None:
        if self.wire.is_lent:
            self.wire.read_ahead()

    def read_now(self) -> None:
        self.wire.read_now()

    def take_back(self) -> None:
        self.wire.lend(None)

    def write(self) -> None:
        self.wire.write([b"hello"] * 3)

    def pause(self) -> None:
        self.wire.pause_reading()
        self.wire.watch()

    def resume(self) -> None:
        self.wire.resume_reading()
        self.wire.watch()

    def close(self) -> None:
        self.wire.close(0.01)

    def abort(self) -> None:
        self.wire.abort()


OURS = ("poll", "poll", "lend", "read_ahead", "read_now", "take_back", "write", "pause", "resume", "close", "abort")
steps = st.lists(st.sampled_from((*OURS, "burst", "burst", "end", "reset")), max_size=12)
each_kind = pytest.mark.parametrize("kind", KINDS)
few = settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def walk(wire: Any, server: Any, steps: list[str]) -> None:
    """Take these steps, then go on to the end of the connection; look at the deadline after each."""
    watched = Watched(wire)
    try:
        for step in ["burst", "poll", "poll", *steps, "resume", "take_back", "end"]:
            if not wire._dead or step in ("burst", "end", "reset"):
                getattr(server if step in ("burst", "end", "reset") else watched, step)()
            watched.look()
            if wire._is_held() or wire.ahead or wire._broken:
                event("there is something to do at once")
        until = time.monotonic() + patience(2)
        while wire.poll(0.05):
            watched.look()
            assert time.monotonic() < until
        watched.look()
    finally:
        wire.abort()
        watched.borrower.close()


class Remote:
    """The server's end, on one of our own transports."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def _do(self, work: Any) -> None:
        work((await self.server.first()).wire)

    def burst(self) -> None:
        def work(wire: Any) -> None:
            for _ in range(BURST):
                wire.write([b"x"])

        self.server.run(self._do(work))

    def end(self) -> None:
        self.server.run(self._do(lambda wire: wire.close()))

    def reset(self) -> None:
        def work(wire: Any) -> None:
            sock = wire._transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.abort()

        self.server.run(self._do(work))


@each_kind
def test_a_deadline_is_a_time(kind: str, contexts_of: Any) -> None:
    context = contexts_of(kind)

    @few
    @given(steps)
    def check(steps: list[str]) -> None:
        with in_thread(kind, context.server, echo=False) as server, sync.Waker() as waker:
            walk(sync.connect(server.place, Peer(), ssl=context.client, waker=waker), Remote(server), steps)

    check()


class Behind:
    """A plain socket behind a SockJS endpoint."""

    def __init__(self, listener: socket.socket) -> None:
        self.sock, _ = listener.accept()

    def burst(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(bytes(30_000))

    def end(self) -> None:
        with contextlib.suppress(OSError):  # the endpoint may be gone
            self.sock.shutdown(socket.SHUT_WR)

    reset = end


def test_a_deadline_of_sockjs_is_a_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        @settings(few, max_examples=6)
        @given(steps)
        def check(steps: list[str]) -> None:
            with Endpoint(listener.getsockname()[1]) as endpoint, sync.Waker() as waker:
                place = Place("127.0.0.1", endpoint.port, path="/stomp", websocket=True, sockjs=True)
                wire = sync.connect(place, Peer(), waker=waker)
                behind = Behind(listener)
                walk(wire, behind, steps)
                behind.sock.close()

        check()
