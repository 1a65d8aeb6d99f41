"""Bridges between our broker and those of other people, under cuts and kills."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.taking import held
from patience import patience

pytest.importorskip("click")

from bridge.running import Running, carry, end, fill, request, take_all
from client.feeding import wait_for
from crash.bridged import first_of_each
from crash.process import BrokerProcess, Verb

import stompcodec.client as stomp
from stompcodec.bridge import UnsuitableError
from stompcodec.testing import FaultProxy, StompBroker

pytestmark = pytest.mark.no_asan

COUNT = 400


both = pytest.mark.peer("rabbitmq", "activemq")
on_rabbitmq, on_activemq = pytest.mark.peer("rabbitmq"), pytest.mark.peer("activemq")


def through(peer: Any, proxy: FaultProxy) -> str:
    return str(peer.url).replace(str(peer.ports["stomp"]), str(proxy.port))


@pytest.fixture
def ours() -> Iterator[StompBroker]:
    with StompBroker() as broker:
        yield broker


def numbers(messages: list[stomp.Message]) -> list[int]:
    return [int(message.body) for message in messages]


@both
def test_there_and_back_with_all_headers(ours: StompBroker, peer: Any) -> None:
    soon = str(round(time.time() * 1000) + 600_000)
    headers = {
        **{"persistent": "true", "priority": "7", "expires": soon, "correlation-id": "c1", "type": "order"},
        **{"reply-to": "/temp-queue/x", "kind": "a:b\nc", "content-type": "application/json"},
    }
    with stomp.connect(ours.url) as client:
        client.send("/queue/there", b'{"a":1}', headers, receipt=True)
    assert carry(ours.url, peer.url, "/queue/there=/queue/bridge.there").carried == 1
    back = carry(peer.url, end(ours.url, name="another"), "/queue/bridge.there=/queue/back", way={"idle": patience(2)})
    assert (back.carried, back.refused) == (1, 0)
    (message,) = take_all(ours.url, "/queue/back")
    assert message.body == b'{"a":1}'
    got = message.headers
    same = ("persistent", "priority", "correlation-id", "type", "kind", "content-type")
    assert {name: got[name] for name in same} == {name: headers[name] for name in same}
    assert got["original-destination"] == "/queue/there"  # the first origin
    assert got["original-reply-to"].endswith("x")
    assert "reply-to" not in got
    assert got["bridge-path"].count(":") == 2
    if peer.row.dialect == "activemq":
        assert got["expires"] == soon
    else:
        assert 0 < int(got["expiration"]) <= 600_000


@both
def test_cuts_between_ours_and_others(ours: StompBroker, peer: Any) -> None:
    """To others at least once, in order; from ActiveMQ to ours once."""
    there, back = f"/queue/cut.{peer.row.dialect}", "/queue/back"
    fill(ours.url, "/queue/cut", COUNT, persistent="true")
    with FaultProxy(("127.0.0.1", ours.port)) as near, FaultProxy(("127.0.0.1", peer.ports["stomp"])) as far:
        mine = f"stomp://127.0.0.1:{near.port}"
        _cut_while(Running(mine, end(through(peer, far)), request(f"/queue/cut={there}"), prefetch=10), near, far)
        assert ours.queued("/queue/cut") == 0
        ends = end(through(peer, far)), end(mine, name="another")
        _cut_while(Running(*ends, request(f"{there}={back}"), prefetch=10), near, far)
    got = numbers(take_all(ours.url, back))
    assert set(got) == set(range(COUNT))
    if peer.row.dialect == "activemq":
        assert first_of_each(got) == list(range(COUNT))
    assert held(peer.url, there, patience(2)) == []


def _cut_while(running: Running, *proxies: FaultProxy) -> None:
    with running:
        for number in range(6):
            aim = min(COUNT, (number + 1) * COUNT // 7)
            wait_for(lambda aim=aim: running.tally.carried >= aim)
            proxies[number % 2].cut()
        wait_for(lambda: running.tally.carried >= COUNT)
        quiet = time.monotonic()
        seen = -1
        while time.monotonic() - quiet < 2 or running.bridge.waiting:
            if running.tally.carried + running.tally.again != seen:
                seen, quiet = running.tally.carried + running.tally.again, time.monotonic()
            time.sleep(0.05)
    assert running.tally.refused == 0


@both
def test_from_ours_under_kills(peer: Any, tmp_path: Path) -> None:
    """kill -9 of our broker, of the other and of the bridge: nothing is lost; first copies are in order."""
    there = f"/queue/killed.{peer.row.dialect}"
    with BrokerProcess(tmp_path / "ours") as ours, FaultProxy(("127.0.0.1", ours.port)) as near:
        mine = f"stomp://127.0.0.1:{near.port}"
        fill(mine, "/queue/killed", 3000, persistent="true")
        _kill_while([mine, peer.url, "-m", f"/queue/killed={there}"], ours, near, peer, tmp_path)
        assert take_all(mine, "/queue/killed") == []
    assert first_of_each(numbers(held(peer.url, there, patience(2)))) == list(range(3000))


@both
def test_to_ours_under_kills(peer: Any, tmp_path: Path) -> None:
    """From ActiveMQ each message is stored once, and in order."""
    there = f"/queue/direct.{peer.row.dialect}"
    fill(peer.url, there, 3000, persistent="true")
    with BrokerProcess(tmp_path / "ours") as ours, FaultProxy(("127.0.0.1", ours.port)) as near:
        mine = f"stomp://127.0.0.1:{near.port}"
        _kill_while([peer.url, mine, "-m", f"{there}=/queue/back"], ours, near, peer, tmp_path)
        got = numbers(take_all(mine, "/queue/back"))
    assert set(got) == set(range(3000))
    assert got == list(range(3000)) or peer.row.dialect == "rabbitmq"


def _kill_while(arguments: list[str], ours: BrokerProcess, near: FaultProxy, peer: Any, folder: Path) -> None:
    bridge = Verb("bridge", *arguments, "--prefetch", "10", "--json", log=folder / "bridge.log")
    try:
        for which in ("bridge", "ours", "other", "bridge"):
            bridge.keep()
            time.sleep(patience(1.5))
            if which == "bridge":
                bridge.kill()
            elif which == "ours":
                ours.kill()
                ours.start()
                near.upstream = ("127.0.0.1", ours.port)
            else:
                peer.kill()
                peer.start()
        with (folder / "bridge.log").open("ab") as log:
            command = [*bridge.command, "--drain", "--idle", str(patience(4))]
            assert subprocess.run(command, stdout=log, stderr=log, check=False).returncode == 0
    finally:
        bridge.kill()


@on_rabbitmq
def test_rabbitmq_refuses_a_destination(ours: StompBroker, peer: Any) -> None:
    fill(ours.url, "/queue/a", 2)
    tally = carry(ours.url, peer.url, "/queue/a=/nowhere/at/all")
    assert (tally.carried, tally.refused) == (0, 2)
    reasons = {letter.get("dead-letter-reason") for letter in take_all(ours.url, "/queue/bridge-dead-letters")}
    assert len(reasons) == 1
    assert "nowhere" in reasons.pop()


@on_activemq
def test_activemq_is_drained_by_pattern(ours: StompBroker, peer: Any) -> None:
    for name in "abc":
        fill(peer.url, f"/queue/area.{name}", 5, persistent="true")
    fill(peer.url, "/queue/other", 1)
    tally = carry(peer.url, ours.url, "/queue/area.*=/queue/new.*", way={"idle": patience(2)})
    assert tally.carried == 15
    assert [numbers(take_all(ours.url, f"/queue/new.{name}")) for name in "abc"] == [[0, 1, 2, 3, 4]] * 3
    assert len(held(peer.url, "/queue/other", patience(2))) == 1


@pytest.mark.peer("activemq", transport="stomp")  # options of its own: no other test has left messages there
def test_refused_messages_of_activemq_do_not_come_round(ours: StompBroker, peer: Any) -> None:
    fill(peer.url, "/queue/round.a", 3)
    ours.faults.error("SEND", "no", times=1)
    tally = carry(peer.url, ours.url, "/queue/*", way={"idle": patience(2)})
    assert tally.refused == 1
    (letter,) = held(peer.url, "/queue/bridge-dead-letters", patience(2))
    assert letter.get("original-destination") == "/queue/round.a"


@on_activemq
def test_a_queue_of_activemq_is_mirrored_once(ours: StompBroker, peer: Any) -> None:
    fill(peer.url, "/queue/shown", 5)
    assert carry(peer.url, ours.url, "/queue/shown", mirror=True).carried == 5
    assert numbers(take_all(ours.url, "/queue/shown")) == [0, 1, 2, 3, 4]
    assert len(held(peer.url, "/queue/shown", patience(2))) == 5


@on_rabbitmq
@pytest.mark.parametrize(("maps", "options"), [("/queue/*", {}), ("/queue/a", {"mirror": True})])
def test_rabbitmq_says_what_it_cannot_do(ours: StompBroker, peer: Any, maps: str, options: dict[str, bool]) -> None:
    with pytest.raises(UnsuitableError, match="RabbitMQ"):
        carry(peer.url, ours.url, maps, **options)


@both
def test_topics_by_pattern(ours: StompBroker, peer: Any) -> None:
    with (
        Running(peer.url, ours.url, request("/topic/news.*", mirror=True)) as running,
        stomp.connect(ours.url) as client,
    ):
        subscription = client.subscribe("/topic/news.eu")
        subscription.receipt.wait()
        wait_for(lambda: running.bridge.is_ready)
        fill(peer.url, "/topic/news.eu", 3)
        assert [int(subscription.get(patience(10)).body) for _ in range(3)] == [0, 1, 2]


@both
def test_transactions_at_both_ends(ours: StompBroker, peer: Any) -> None:
    fill(ours.url, "/queue/tx", 100)
    there = f"/queue/tx.{peer.row.dialect}"
    assert carry(ours.url, peer.url, f"/queue/tx={there}", way={"batch": 30}).carried == 100
    tally = carry(
        peer.url, end(ours.url, name="another"), f"{there}=/queue/back", way={"batch": 30, "idle": patience(2)}
    )
    assert tally.carried == 100
    assert numbers(take_all(ours.url, "/queue/back")) == list(range(100))
