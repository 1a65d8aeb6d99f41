"""Invariant: a connection of either role hears what the model of a conversation hears (`tests/model/conversation.py`),
however the octets were cut; only RemoteProtocolError is raised, once, and its answer is an ERROR that can be sent and
read; nothing comes behind it; no passcode is shown; and deadlines never lie in the way of `tick`."""

from __future__ import annotations

from typing import Any

from case import LIMITS, Case, case_of, drive, pieces, rolls
from model.conversation import converse

from stompcodec.codec import Frame, parse
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.spec import VERSIONS
from stompcodec.states import State

SECRET = "hunter2-geheim"
#: What comes before the wire, so that it reaches further than negotiation.
FIRST = {
    Role.SERVER: b"CONNECT\nhost:a\naccept-version:%b\nheart-beat:70,90\npasscode:" + SECRET.encode() + b"\n\n\0",
    Role.CLIENT: b"CONNECTED\nsession:1\nversion:%b\nheart-beat:70,90\n\n\0",
}


def check(data: bytes) -> None:
    case = case_of(data)
    how = data[2] if len(data) > 2 else 0
    role = (Role.SERVER, Role.CLIENT)[how % 2]
    wire = case.wire
    if how // 2 % 4:
        wire = FIRST[role] % VERSIONS[how // 2 % 4 - 1].encode() + wire
    options = {
        "limits": case.options["limits"],
        "first_limits": (None, None, LIMITS[(how + 3) % 8], LIMITS[7])[how // 8 % 4],
        "lenient": case.options["lenient"],
        "versions": (VERSIONS, VERSIONS, ("1.0", "1.2"), ("1.1",))[how // 32 % 4],
    }
    model = converse(role.value, wire, **options)
    plan = case.plan or len(wire) % 255 + 1
    for cuts in (0, plan):
        heard = listen(role, options, case._replace(wire=wire, plan=cuts))
        assert heard == (model.frames, model.fault, model.version), (
            f"{role} differs from the model, {options}, cuts {cuts}, {wire!r}\nmodel: {model}\nheard: {heard}"
        )


def listen(role: Role, options: dict[str, Any], case: Case) -> tuple[Any, ...]:
    """Feed the wire as its plan says; frames, fault and version."""
    connection = Connection(role, heart_beat=(50, 60), **options)
    if role is Role.CLIENT:
        connection.send(Frame("CONNECT", {"host": "a"}))
    frames: list[Any] = []
    fault = None
    now = 0.0
    for piece, roll in zip(pieces(case.wire, case.plan), rolls(case.plan)):
        now += roll / 1000
        try:
            for frame in connection.receive(piece if roll % 2 else memoryview(piece), now):
                frames.append(frame)
                if frame.command in ("CONNECT", "STOMP") and role is Role.SERVER:
                    connection.accept({"session": "1"})
        except RemoteProtocolError as error:
            assert fault is None, "a second error"
            fault = check_error(connection, error)
        check_time(connection, now)
    check_end(connection, case, now)
    return frames, fault, connection.version


def check_error(connection: Connection, error: RemoteProtocolError) -> tuple[Any, ...]:
    """What the error says, in the words of the model."""
    shown = f"{error} {error!r} {error.cause} {error.reply!r} {error.reply and error.reply.body!r} {connection!r}"
    assert SECRET not in shown, "a passcode is shown"
    assert (error.reply is None) is (connection.role is Role.CLIENT)
    if error.reply is not None:
        connection.take_output()
        connection.send(error.reply)
        sent = b"".join(connection.take_output())
        assert sent.endswith(b"\0\n")
        assert b"\0" not in sent[:-2]
        assert b"\ncontent-length:" not in sent.partition(b"\n\n")[0]
        (reply,) = parse(sent, connection.version, lenient=True)
        assert reply.command == "ERROR"
        assert reply.get("message")
    assert connection.next_deadline() is None
    if error.cause is None:
        return ("headers",) if " lacks " in str(error) else ("order",)
    return error.cause.kind, error.cause.offset, error.cause.limit


def check_time(connection: Connection, now: float) -> None:
    """Once a deadline was served there is a later one, or none, or the peer is dead."""
    due = connection.next_deadline()
    if due is None:
        return
    alive = connection.tick(max(now, due))
    connection.take_output(max(now, due))
    after = connection.next_deadline()
    assert not alive or after is None or after > due
    if not alive:
        connection.excuse(1.0)


def check_end(connection: Connection, case: Case, now: float) -> None:
    """The stream may end inside a frame, and nothing is due or heard then."""
    try:
        connection.close(now)
    except RemoteProtocolError as error:
        found = error.reply, error.cause and (error.cause.kind, error.cause.offset)
        assert found == (None, ("truncated", len(case.wire)))
    assert connection.state is State.CLOSED
    assert list(connection.receive(b"SEND\ndestination:a\n\n\0", now)) == []
    assert connection.next_deadline() is None
    assert connection.tick(now + 1e9)


if __name__ == "__main__":
    drive(check)
