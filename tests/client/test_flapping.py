"""Delays between attempts: a session that breaks before a heart-beat is no reason to begin from the first."""

import time

import pytest
from client.peer import Peer
from client.shells import Shell
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.io.owner import WireOwner
from stompcodec.heartbeat import Heartbeat

ATTEMPTS = 4


@pytest.fixture(params=["sync", "async"])
def shell(request):
    shell = Shell(request.param)
    yield shell
    shell.stop()


def gives_up(shell, peer, **options):
    """How many sessions there were until the client gave up, which it does if delays never begin from the first."""
    states = []
    client = shell.connect(
        peer.url,
        reconnect=stomp.Backoff(first=0.001, most=0.002, attempts=ATTEMPTS),
        on_state=lambda state, error: states.append(state),
        **options,
    )
    give_up = time.monotonic() + patience(60)
    while client.state != "closed" or "closed" not in states:  # states come from a thread of their own
        assert time.monotonic() < give_up
        time.sleep(0.005)
    return states.count("connected")


@pytest.mark.parametrize("heart_beat", [(0, 0), (2_000, 2_000), (30_000, 30_000)])
def test_short_sessions_use_up_the_attempts(shell, heart_beat):
    """With heart-beats or without."""
    with Peer(heart_beat=heart_beat, rules={"SEND": lambda side, frame: side.close()}) as peer:
        peer.rules["CONNECT"] = lambda side, frame: (accept(side), side.close())
        assert gives_up(shell, peer, heart_beat=heart_beat) == ATTEMPTS + 1


def accept(side):
    side.connection.accept({"session": "1", "server": "test/1"})
    side.flush()


@pytest.mark.long
def test_sessions_that_last_for_a_heart_beat_begin_anew(shell):
    """The server closes when the client's heart-beats have come, for more sessions than there are attempts."""
    sessions = []

    class Beating(Peer):
        def _read(self, side):
            before = len(self.frames)
            data = side.sock.recv(1, 2) if not side.closed else b""  # MSG_PEEK: a heart-beat is an EOL
            super()._read(side)
            in_session = side.connection.state.value == "connected"
            if data == b"\n" and in_session and len(self.frames) == before and not side.closed:
                side.beats = getattr(side, "beats", 0) + 1
                if side.beats >= 5 and len(sessions) < 3 * ATTEMPTS:
                    sessions.append(side.number)
                    side.close()
                elif len(sessions) >= 3 * ATTEMPTS:
                    self.rules["CONNECT"] = lambda side, frame: (accept(side), side.close())
                    side.close()

    with Beating(heart_beat=(0, 20)) as peer:
        assert gives_up(shell, peer, heart_beat=(20, 0)) >= 3 * ATTEMPTS
        assert len(sessions) == 3 * ATTEMPTS


@pytest.mark.parametrize(
    ("heartbeat", "lasted", "good"),
    [
        *(((0, 0), 4.9, False), ((0, 0), 5.0, True), ((10_000, 10_000), 9.9, False), ((10_000, 10_000), 10.0, True)),
        *(((200, 0), 0.1, False), ((200, 0), 0.2, True), ((100, 3000), 2.9, False), ((100, 3000), 3.0, True)),
        ((0, 60_000), 59.0, False),
    ],
)
def test_what_a_good_session_is(heartbeat, lasted, good):
    """It lasted for the longer interval that was agreed; five seconds where there is none."""
    owner = WireOwner.__new__(WireOwner)
    owner.connection = type("Agreed", (), {"heartbeat": Heartbeat(*heartbeat)})
    owner.up_at, owner.beat = 100.0, owner._beat()
    assert owner.is_good(100.0 + lasted + 1e-9) is good


def test_what_was_no_session_is_not_good():
    owner = WireOwner.__new__(WireOwner)
    owner.up_at, owner.beat = None, 0.0
    assert not owner.is_good(1e9)
