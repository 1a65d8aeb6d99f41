"""Invariant: WebSocket of any octets, from either side, never raises; what is handed over does not depend on the cuts,
and is what the messages hold; replies stay in proportion; after an error or a close nothing more happens; quick road
and library agree on all of it."""

from __future__ import annotations

from collections.abc import Iterator

from case import case_of, drive, pieces, rolls
from transport.messages import BINARY, CONT, PING, PONG, TEXT, accept_of, frame, request

from stompcodec.frame import is_utf8
from stompcodec.transport import websocket
from stompcodec.transport.websocket import WebSocketLayer, client_layer, server_layer

MOST = 1000  # octets of a message


def check(data: bytes) -> None:
    case = case_of(data)
    how = data[0] if data else 0
    server, written, shaken = bool(how & 1), bool(how & 2), bool(how & 4) or bool(how & 2)
    wire, expected = framed(case.wire, masked=server) if written else (case.wire, None)
    whole = run(server, shaken, wire, 0)
    assert whole == run(server, shaken, wire, case.plan or 1)
    websocket._QUICK = False
    try:
        assert whole == run(server, shaken, wire, case.plan)
    finally:
        websocket._QUICK = True
    received, *_, broken = whole
    if expected is not None:
        assert (received, broken) == (expected, False)
    meddle(server, shaken, wire, case.plan)


def made(server: bool, shaken: bool) -> WebSocketLayer:
    """A layer, before or behind its handshake."""
    layer = server_layer(MOST) if server else client_layer("a", 80, max_message=MOST)
    layer.start()
    asked = b"".join(layer.take_output()).decode()
    if shaken and server:
        layer.receive(request())
    elif shaken:
        answer = "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n"
        layer.receive(answer.format(accept_of(asked.partition("Sec-WebSocket-Key: ")[2].partition("\r\n")[0])).encode())
    layer.take_output()
    assert layer.opened is shaken
    return layer


def run(server: bool, shaken: bool, wire: bytes, plan: int) -> tuple[bytes, bool, bool, bool]:
    """Feed the wire as the plan says. Return what was received, if it was opened, has ended, is broken."""
    layer = made(server, shaken)
    received = b""
    for piece in pieces(wire, plan):
        done = layer.ended or layer.error is not None
        got = b"".join(map(bytes, layer.receive(memoryview(piece))))
        while layer.waiting:
            got += b"".join(map(bytes, layer.receive(b"")))
        said = b"".join(layer.take_output())
        assert not (done and (got or said))
        # A ping of 2 octets costs a masked pong of 6; a refusal of the handshake is a page.
        assert len(said) <= 3 * len(piece) + 2000
        received += got
        assert layer.opened or not received
    return received, layer.opened, layer.ended, layer.error is not None


def meddle(server: bool, shaken: bool, wire: bytes, plan: int) -> None:
    """Write and close in between: nothing is raised then either."""
    layer, roll = made(server, shaken), rolls(plan)
    for piece in pieces(wire, plan):
        layer.receive(piece)
        chance = next(roll)
        if chance < 60:
            layer.send([piece, b"\n"])
        elif chance > 250:
            layer.close()
        elif chance > 240:
            layer.bound(chance)
        layer.take_output()
    layer.close()
    layer.close()
    layer.receive(wire)
    layer.take_output()


def framed(wire: bytes, masked: bool) -> tuple[bytes, bytes]:
    """Octets as good WebSocket frames, small ones, pings between; and what they hold."""
    parts, holds, held, how = [], [], 0, {} if masked else {"mask": None}
    pending = False  # a message is not finished
    for kind, payload in steps(wire):
        if kind % 4 == 3:
            # The library counts pings towards the size of the message that they come in between.
            most = min(125, MOST - held) if pending else 125
            parts.append(frame(PING if kind < 128 else PONG, payload[:most], **how))
            continue
        held = (held if pending else 0) + len(payload)
        if held > MOST:
            payload, held = b"", held - len(payload)
        fin = kind % 4 != 2
        # What clients send as text is UTF-8.
        opcode = CONT if pending else BINARY if masked and not (fin and is_utf8(payload)) else TEXT + kind % 2
        parts.append(frame(opcode, payload, fin=fin, **how))
        holds.append(payload)
        pending = not fin
    return b"".join(parts), b"".join(holds)


def steps(wire: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and payload of each frame: two octets choose kind and size."""
    at = 0
    while at + 1 < len(wire):
        size = wire[at + 1] * (3 if wire[at] & 64 else 1)
        yield wire[at], wire[at + 2 : at + 2 + size]
        at += 2 + size


if __name__ == "__main__":
    drive(check)
