"""The connection TTL of Artemis: what CONNECTED says, and after how much silence a client is dead."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Bench, Peer
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

BOUNDS = {"ttl": 60_000, "ttl_min": 1000, "ttl_max": 30_000}


def fall_silent(peer: Peer) -> None:
    """Let time pass until the broker gives the peer up."""
    bench = peer.bench
    while not peer.closed:
        bench.now = max(bench.now, bench.broker._deadlines._times[peer.session.id])  # past the sweeps, which are many
        bench.broker.tick(bench.now)
        bench.turn()


def lifetime(peer: Peer) -> float:
    """Seconds of silence until the broker gives the peer up."""
    bench = peer.bench
    start = bench.now
    fall_silent(peer)
    assert "heart-beats are missing" in peer.error().headers["message"]
    return bench.now - start


def connected(version: str = "1.2", heart_beat: str | None = None, **config: Any) -> tuple[Peer, str | None]:
    """A peer, and the heart-beat header of its CONNECTED."""
    peer = Bench(**config).peer(version, connect=False)
    headers = {} if heart_beat is None else {"heart-beat": heart_beat}
    return peer, peer.connect(**headers).get("heart-beat")


@pytest.mark.req("ART-TTL-02", "ART-TTL-03", "ART-TTL-04", "ART-TTL-05", "ART-TTL-06", "ART-TTL-07", "ART-TTL-08")
@pytest.mark.parametrize(
    ("version", "heart_beat", "config", "answer", "seconds"),
    [
        *[("1.2", offer, {"ttl": 60_000}, "0,0", 60.0) for offer in (None, "0,0")],
        ("1.1", "0,700", {"ttl": 60_000}, "700,0", 60.0),
        ("1.2", None, {"ttl": 5000, "ttl_override": 7000}, "0,0", 5.0),
        ("1.2", None, {"ttl_override": 7000}, "0,0", 7.0),
        *[("1.0", offer, {"ttl": 9000}, "0,0", 9.0) for offer in ("100,100", "x", "")],
        ("1.2", "2000,0", {"ttl": 60_000}, "0,2000", 4.0),
        ("1.2", "2000,0", {"ttl": 60_000, "ttl_modifier": 3.0}, "0,2000", 6.0),
        *[("1.2", f"{offer},0", BOUNDS, "0,500", 1.0) for offer in (100, 500)],
        *[("1.2", f"{offer},0", BOUNDS, "0,15000", 30.0) for offer in (20_000, 15_000)],
        ("1.2", "50000000,0", {"ttl": 60_000}, "0,50000000", 100_000.0),
    ],
)
def test_how_long_a_silent_client_lives(
    version: str, heart_beat: str | None, config: dict[str, Any], answer: str, seconds: float
) -> None:
    """CONNECTED says it: the TTL without heart-beats, and always in 1.0; else so many intervals, within the bounds."""
    peer, said = connected(version, heart_beat, **config)
    assert said == answer
    assert lifetime(peer) == pytest.approx(seconds)


@pytest.mark.req("ART-TTL-05", "ART-TTL-06", "ART-TTL-07", "ART-TTL-08")
@given(
    interval=st.integers(1, 10**6), least=st.integers(1, 10**5), span=st.integers(0, 10**6), modifier=st.floats(0.1, 10)
)
@settings(max_examples=examples(60))
def test_a_client_that_does_what_connected_says_lives(interval: int, least: int, span: int, modifier: float) -> None:
    """As long as it keeps to the larger of its own interval and the one that it is told, as STOMP has it, it is fine;
    unless the settings leave less than one interval."""
    config: dict[str, Any] = {"ttl": 60_000, "ttl_min": least, "ttl_max": least + span, "ttl_modifier": modifier}
    peer, answer = connected(heart_beat=f"{interval},0", **config)
    assert answer is not None
    told = int(answer.split(",")[1])
    ttl = lifetime(peer) * 1000
    wanted = min(max(int(interval * modifier), least), least + span)
    assert ttl == pytest.approx(wanted, abs=2)
    assert told == (interval if int(interval * modifier) == wanted else int(wanted / modifier))


@pytest.mark.parametrize(
    ("version", "heart_beat", "words"),
    [
        ("1.2", None, ["60 s", "no heart-beats", "heart-beat:10000,10000", "sessions.ttl"]),
        ("1.1", "0,500", ["60 s", "no heart-beats", "heart-beat:10000,10000", "sessions.ttl"]),
        ("1.0", "100,100", ["60 s", "STOMP 1.1", "heart-beat:10000,10000", "sessions.ttl"]),
        ("1.2", "2000,0", ["4 s", "agreed", "factor of"]),
    ],
)
def test_who_is_cut_off_is_told_what_to_configure(version: str, heart_beat: str | None, words: list[str]) -> None:
    peer, _answer = connected(version, heart_beat, ttl=60_000)
    fall_silent(peer)
    error = peer.error()
    assert error.headers["message"] == "heart-beats are missing"
    assert all(word in error.body.decode() for word in words)
