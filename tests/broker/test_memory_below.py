"""What layers of the transport keep, as an unfinished frame of WebSocket, is in the memory account of its session."""

import itertools

import pytest
from broker.audit import difference
from broker.harness import FaultyStore
from broker.sockets import CONFIG, Client, browser, masked, run, send, served, until
from transport.messages import BINARY, frame

from stompcodec.broker.memory import below_cost
from stompcodec.broker.server import _Peer
from stompcodec.broker.sessions.session import Session
from stompcodec.spec import Limits

pytest.importorskip("websockets")
MIB = 2**20
HEAD = 14  # bytes of a frame's own head, with a long length and a mask
CONFIG = CONFIG.replace(ws_port=0)
#: Sessions may hold 6.75 MiB: some frames of WebSocket, but not many.
SMALL = CONFIG.replace(
    memory=24 * MIB, large=20_000, limits=Limits(max_headers=20, max_header_line=500, max_body=4 * MIB)
)


def whole(size, *headers):
    """A SEND in one frame of WebSocket, which has so many bytes with its head; its length is written in 8 bytes."""
    text = send("/queue/a", "", *headers).encode()[:-1]
    return masked(text + b"x" * (size - HEAD - len(text) - 1) + b"\0")


def held(server):
    assert difference(server.broker) == {}
    return server.broker.account.held


async def holds(server, count):
    await until(lambda: server.broker.account.held == count)
    assert held(server) == count


@pytest.mark.parametrize("size", [HEAD + 40, 20_000, 3 * MIB])
@served(CONFIG)
async def test_an_unfinished_frame_is_counted_until_it_is_whole(server, size):
    octets = whole(size, "receipt:r")
    async with browser(server) as raw:
        assert held(server) == 0
        for begin, end in itertools.pairwise([0, HEAD + 1, size // 2 + HEAD // 2, size - 1]):
            await raw.send(octets[begin:end])
            await holds(server, below_cost(end - HEAD))
        await raw.send(octets[-1:])
        await raw.until(b"receipt-id:r")
        assert held(server) == 0
        await raw.send(octets + octets[:-1])  # what stands behind a whole frame
        await raw.until(b"receipt-id:r")
        await holds(server, below_cost(size - 1 - HEAD))
        (peer,) = server.peers.values()
        layer = peer.wire._layer
    await until(lambda: not server.peers)
    assert held(server) == 0
    assert layer.buffered == 0, "it would stay until the next garbage collection"


def test_nothing_more_comes_in_while_an_error_waits_for_the_disk():
    """The ERROR goes out behind a receipt, and that behind a commit. The peer sends an endless frame meanwhile."""
    store = FaultyStore(background=True)

    async def main(server):
        async with browser(server) as raw:
            (peer,) = server.peers.values()
            persistent = frame(BINARY, send("/queue/a", "", "persistent:true", "receipt:r").encode())
            await raw.send(persistent + whole(MIB)[:50_000])
            await until(lambda: store.job is not None)
            await until(lambda: peer.session.memory.below > 0)
            peer.session.fail("the test says so")
            assert (peer.session.ended, peer.session.closing) == (True, False)
            layer = peer.wire._layer
            assert layer.buffered == 0
            await raw.send(b"x" * 100_000)
            async with browser(server):  # when it is there, the loop has read what the others have sent
                assert layer.buffered == 0
            assert held(server) == 0
            store.finish()
            answer = await raw.rest()
            assert answer.index(b"receipt-id:r") < answer.index(b"the test says so")

    run(main, CONFIG, store=store)


@served(CONFIG)
async def test_what_waits_for_its_turn_is_counted(server, monkeypatch):
    seen, told = [], []
    original, note = _Peer.wait, Session.note_below

    def wait(peer):
        original(peer)
        seen.append(peer.wire._layer.buffered)
        assert peer.session.memory.below == seen[-1]
        assert difference(server.broker) == {}

    monkeypatch.setattr(_Peer, "wait", wait)
    monkeypatch.setattr(Session, "note_below", lambda session, octets: (told.append(octets), note(session, octets)))
    async with browser(server) as raw:
        await raw.send(frame(BINARY, b"\n") * 5000)
        await raw.send(frame(BINARY, send("/queue/a", "x", "receipt:last").encode()))
        await raw.until(b"receipt-id:last")
        assert max(seen) > 5000
        assert told[-1] == 0
        assert held(server) == 0


@served(SMALL)
async def test_the_session_that_holds_most_is_ended_and_others_go_on(server):
    async with browser(server) as small, browser(server) as large, browser(server) as late:
        client = await Client.connect(server)
        octets = whole(MIB, "receipt:small")
        await small.send(octets[: MIB // 2])
        await large.send(whole(4 * MIB)[: 2 * MIB])
        await holds(server, below_cost(MIB // 2 + 2 * MIB - 2 * HEAD))
        await late.send(whole(4 * MIB)[: MIB - 1])  # too much, together
        assert b"message:the broker is short of memory" in await large.rest()
        await holds(server, below_cost(MIB // 2 + MIB - 1 - 2 * HEAD))
        await small.send(octets[MIB // 2 :])
        await small.until(b"receipt-id:small")
        assert (await client.ask(send("/queue/a", "x", "receipt:tcp"))).headers["receipt-id"] == "tcp"


@served(SMALL)
async def test_a_frame_that_comes_to_its_end_is_not_counted_twice(server):
    """It fits as long as it is unfinished; then it is with the session, and no more with the layer."""
    async with browser(server) as raw:
        head = send("/queue/a", "", "receipt:r").encode()[:-1]
        await raw.send(masked(head + b"x" * 3 * MIB))  # of a body that goes on in the next frame
        await raw.send(masked(b"\0"))
        await raw.until(b"receipt-id:r")
