"""The connection TTL of Artemis: what CONNECTED says, and after how much silence a client is dead."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Bench, Peer
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples


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


@pytest.mark.req("ART-TTL-02")
@pytest.mark.parametrize("heart_beat", [None, "0,0", "0,700"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_client_without_heart_beats_has_the_ttl(version: str, heart_beat: str | None) -> None:
    peer, answer = connected(version, heart_beat, ttl=60_000)
    assert answer == ("700,0" if heart_beat == "0,700" else "0,0")
    assert lifetime(peer) == pytest.approx(60.0)


@pytest.mark.req("ART-TTL-03")
def test_the_ttl_goes_before_the_override() -> None:
    assert lifetime(connected(ttl=5000, ttl_override=7000)[0]) == pytest.approx(5.0)
    assert lifetime(connected(ttl_override=7000)[0]) == pytest.approx(7.0)


@pytest.mark.req("ART-TTL-04")
@pytest.mark.parametrize("heart_beat", ["100,100", "x", ""])
def test_1_0_always_has_the_ttl(heart_beat: str) -> None:
    peer, answer = connected("1.0", heart_beat, ttl=9000)
    assert answer == "0,0"
    assert lifetime(peer) == pytest.approx(9.0)


@pytest.mark.req("ART-TTL-05")
def test_a_client_with_heart_beats_has_as_many_intervals_as_the_modifier_says() -> None:
    peer, answer = connected(heart_beat="2000,0", ttl=60_000)
    assert (answer, lifetime(peer)) == ("0,2000", pytest.approx(4.0))
    peer, answer = connected(heart_beat="2000,0", ttl=60_000, ttl_modifier=3.0)
    assert (answer, lifetime(peer)) == ("0,2000", pytest.approx(6.0))


@pytest.mark.req("ART-TTL-06", "ART-TTL-07", "ART-TTL-08")
@pytest.mark.parametrize(
    ("heart_beat", "answer", "seconds"),
    [("100,0", "0,500", 1.0), ("500,0", "0,500", 1.0), ("20000,0", "0,15000", 30.0), ("15000,0", "0,15000", 30.0)],
)
def test_where_a_bound_applies_connected_says_so(heart_beat: str, answer: str, seconds: float) -> None:
    peer, said = connected(heart_beat=heart_beat, ttl=60_000, ttl_min=1000, ttl_max=30_000)
    assert (said, lifetime(peer)) == (answer, pytest.approx(seconds))


@pytest.mark.req("ART-TTL-07")
def test_without_ttl_max_there_is_practically_none() -> None:
    assert lifetime(connected(heart_beat="50000000,0", ttl=60_000)[0]) == pytest.approx(100_000)


@pytest.mark.req("ART-TTL-09")
@pytest.mark.parametrize(("wanted", "interval"), [(100, 500), (500, 500), (501, 501), (0, 0)])
def test_the_broker_sends_no_faster_than_every_500_ms(wanted: int, interval: int) -> None:
    peer, answer = connected(heart_beat=f"0,{wanted}", ttl=60_000)
    assert answer == f"{interval},0"
    peer.chunks.clear()
    peer.bench.wait(10.0)
    beats = b"".join(peer.chunks).count(b"\n")
    least = 10_000 // interval if interval else 0
    assert least <= beats <= 2 * least + 1


@pytest.mark.req("ART-TTL-10")
def test_a_dead_client_loses_all_that_it_holds() -> None:
    bench = Bench(ttl=5000)
    dead, other = bench.peer(), bench.peer()
    dead.subscribe("/queue/a", ack="client")
    other.put("/queue/a", "x")
    assert dead.bodies() == [b"x"]
    for _ in range(4):
        bench.wait(2.0)
        other.raw(b"\n")
    assert dead.closed
    assert not other.closed
    other.subscribe("/queue/a")
    assert other.next("MESSAGE").headers["redelivered"] == "true"


@pytest.mark.req("ART-TTL-01")
def test_goodbye_cleans_up_at_once() -> None:
    bench = Bench(ttl=60_000)
    leaving, other = bench.peer(), bench.peer()
    leaving.subscribe("/queue/a", ack="client")
    other.put("/queue/a", "x")
    leaving.send("DISCONNECT", receipt="r")
    assert bench.broker.queues["/", "/queue/a"].consumers == []
    other.subscribe("/queue/a")
    assert other.next("MESSAGE").body == b"x"


def test_any_octet_is_a_sign_of_life() -> None:
    peer, _ = connected(ttl=5000)
    for _ in range(5):
        peer.bench.wait(4.9)
        assert not peer.closed
        peer.raw(b"\n")
    assert lifetime(peer) == pytest.approx(5.0)


def test_without_the_keys_a_client_without_heart_beats_lives_for_ever() -> None:
    peer, answer = connected(heart_beat="0,0")
    assert answer == "500,1000"
    peer.bench.wait(1000)
    assert not peer.closed
    assert peer.session.connection.next_deadline() is None


@pytest.mark.req("ART-TTL-05", "ART-TTL-06", "ART-TTL-07", "ART-TTL-08")
@given(
    interval=st.integers(1, 10**6),
    least=st.integers(1, 10**5),
    span=st.integers(0, 10**6),
    modifier=st.floats(0.1, 10),
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
