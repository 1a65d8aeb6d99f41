"""What every client and broker must do together. Each check drives a real client by a `Program`."""

import random
import threading
import uuid
from collections.abc import Callable
from typing import Any

from interop.driver import Failed, NotThere, Program, Target

CHECKS: dict[str, Callable[[Program, Target], None]] = {}
_BYTES = {"content-type": "application/octet-stream"}  # Spring takes what has no type for text, in UTF-8.
_DEAD_LETTERS = threading.Lock()  # The clients share one queue of dead letters.


def check(function: Callable[[Program, Target], None]) -> Callable[[Program, Target], None]:
    """A function is the check of its name. The links that it leaves open are closed in good order behind it."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


def queue(name: str) -> str:
    return f"/queue/interop-{name}-{uuid.uuid4().hex[:12]}"


def same(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise Failed(f"{what}: {str(found)[:200]!r} instead of {str(expected)[:200]!r}")


@check
def connect(program: Program, target: Target) -> None:
    link = program.open(target)
    version = link.connected.get("version")
    if version is not None:
        same(version, program.version, "version")
    link.close()
    program.open(target).close()


@check
def queues(program: Program, target: Target) -> None:
    """What was sent before and after the subscription comes, with its destination and its own headers."""
    link, name = program.open(target), queue("queues")
    link.send(name, b"before", {"colour": "red"})
    subscription = link.subscribe(name)
    link.send(name, b"after")
    first, second = subscription.take(2)
    same((first.body, second.body), (b"before", b"after"), "bodies")
    same(first.headers["destination"], name, "destination")
    same(first.headers.get("colour"), "red", "header")


@check
def order_of_1000(program: Program, target: Target) -> None:
    link, name = program.open(target), queue("order")
    subscription = link.subscribe(name)
    expected = [b"message %d" % number for number in range(1000)]
    for body in expected:
        link.send(name, body)
    same(subscription.bodies(1000, 30), expected, "bodies")


@check
def binary(program: Program, target: Target) -> None:
    """Every octet, NUL among them, comes as it was sent."""
    link, name = program.open(target), queue("binary")
    subscription = link.subscribe(name)
    body = bytes(range(256)) + b"\0\n\0\r\n" + bytes(reversed(range(256)))
    link.send(name, body, _BYTES)
    link.send(name, b"\0", _BYTES)
    same(subscription.bodies(2), [body, b"\0"], "bodies")


@check
def utf_8(program: Program, target: Target) -> None:
    """Text beyond ASCII, in a body and in a header."""
    link, name = program.open(target), queue("text")
    subscription = link.subscribe(name)
    body = "Grüße aus 東京 😀".encode()
    link.send(name, body, {"title": "Zoë ✓ 東京"}, text=True)
    (message,) = subscription.take(1)
    same(message.body, body, "body")
    same(message.headers.get("title"), "Zoë ✓ 東京", "header")


@check
def escapes(program: Program, target: Target) -> None:
    """Colons, backslashes and line feeds in the values of headers; in 1.0, which has no escapes, a colon."""
    link, name = program.open(target), queue("escapes")
    subscription = link.subscribe(name)
    value = "a:b:c" if program.version == "1.0" else "C:\\dir\nline: 2"
    link.send(name, b"x", {"odd": value})
    (message,) = subscription.take(1)
    same(message.headers.get("odd"), value, "header")


@check
def one_mebibyte(program: Program, target: Target) -> None:
    link, name = program.open(target), queue("large")
    subscription = link.subscribe(name)
    body = random.Random(1).randbytes(2**20)
    link.send(name, body, _BYTES)
    link.send(name, b"small")
    first, second = subscription.bodies(2, 60)
    if first != body:
        raise Failed(f"another body came, of {len(first)} octets")
    same(second, b"small", "second body")


def _three(program: Program, target: Target, name: str, ack: str) -> tuple[Any, list[Any]]:
    link = program.open(target)
    for body in (b"1", b"2", b"3", b"4"):
        link.send(name, body)
    subscription = link.subscribe(name, ack)
    found = subscription.take(4)
    same([message.body for message in found], [b"1", b"2", b"3", b"4"], "bodies")
    return link, found


@check
def ack_client(program: Program, target: Target) -> None:
    """ack:client is cumulative: after an ACK of the third, only the fourth comes again."""
    name = queue("client")
    link, found = _three(program, target, name, "client")
    link.ack(found[2])
    link.settle()
    program.kill()
    link = program.open(target)
    subscription = link.subscribe(name)
    same(subscription.bodies(1), [b"4"], "what was left")
    link.send(name, b"5")
    same(subscription.bodies(1), [b"5"], "what followed")


@check
def ack_client_individual(program: Program, target: Target) -> None:
    """ack:client-individual: after an ACK of the second and fourth, the others come again, in order."""
    name = queue("individual")
    link, found = _three(program, target, name, "client-individual")
    link.ack(found[3])
    link.ack(found[1])
    link.settle()
    program.kill()
    link = program.open(target)
    subscription = link.subscribe(name)
    same(subscription.bodies(2), [b"1", b"3"], "what was left")


@check
def nack(program: Program, target: Target) -> None:
    """A message that was refused comes again and says so, goes where the broker puts such messages, or is dropped."""
    if program.version == "1.0":
        raise NotThere("1.0 has no NACK")
    link, name = program.open(target), queue("nack")
    body = uuid.uuid4().hex.encode()
    subscription = link.subscribe(name, "client-individual")
    link.send(name, body, {"persistent": "true"})
    (message,) = subscription.take(1)
    if target.nack == "dropped":
        link.nack(message)
        link.send(name, b"next")
        same(subscription.bodies(1), [b"next"], "what follows a refused message, which is dropped")
        link.close()
        return
    if target.nack != "again":
        with _DEAD_LETTERS:
            link.nack(message)
            same(link.subscribe(target.nack).bodies(1), [body], "dead letter")
            link.close()
        return
    link.nack(message)
    (again,) = subscription.take(1)
    same((again.body, again.headers.get("redelivered")), (body, "true"), "body and redelivered")
    link.ack(again)
    link.send(name, b"next")
    same(subscription.bodies(1), [b"next"], "what followed")


@check
def redelivery(program: Program, target: Target) -> None:
    """The client is killed: what it had not acknowledged comes again, in order, and marked if the broker does."""
    name = queue("redelivery")
    _three(program, target, name, "client-individual")
    program.kill()
    link = program.open(target)
    found = link.subscribe(name).take(4)
    same([message.body for message in found], [b"1", b"2", b"3", b"4"], "what came again")
    if target.marks:
        same([message.headers.get("redelivered") for message in found], ["true"] * 4, "whether it is marked")


@check
def commit(program: Program, target: Target) -> None:
    """What is sent in a transaction comes after COMMIT, in order, and not before."""
    link, name = program.open(target), queue("commit")
    subscription = link.subscribe(name)
    transaction = link.begin()
    link.send(name, b"1", transaction=transaction)
    link.send(name, b"outside")
    link.send(name, b"2", transaction=transaction)
    same(subscription.bodies(1), [b"outside"], "before the commit")
    link.commit(transaction)
    same(subscription.bodies(2), [b"1", b"2"], "after the commit")


@check
def abort(program: Program, target: Target) -> None:
    link, name = program.open(target), queue("abort")
    subscription = link.subscribe(name)
    transaction = link.begin()
    link.send(name, b"lost", transaction=transaction)
    link.abort(transaction)
    link.send(name, b"marker")
    same(subscription.bodies(1), [b"marker"], "after the abort")


@check
def ack_in_transaction(program: Program, target: Target) -> None:
    """An ACK in a transaction counts after COMMIT; one in an aborted transaction does not."""
    name = queue("tx-ack")
    link, found = _three(program, target, name, "client-individual")
    kept, dropped = link.begin(), link.begin()
    link.ack(found[0], kept)
    link.ack(found[1], dropped)
    link.ack(found[2], kept)
    link.commit(kept)
    link.abort(dropped)
    link.settle()
    program.kill()
    link = program.open(target)
    same(link.subscribe(name).bodies(2), [b"2", b"4"], "what was left")


@check
def receipts(program: Program, target: Target) -> None:
    link, name = program.open(target), queue("receipts")
    for number in range(20):
        link.send(name, b"message %d" % number, {"persistent": "true"}, receipt=True)
    same(link.subscribe(name).bodies(20), [b"message %d" % number for number in range(20)], "bodies")


@check
def heart_beats(program: Program, target: Target) -> None:
    """Heart-beats every 500 ms keep a connection through 3 s without a frame, and it works afterwards."""
    if program.version == "1.0":
        raise NotThere("1.0 has no heart-beats")
    link, name = program.open(target, heart_beat=(500, 500)), queue("idle")
    offered = link.connected.get("heart-beat")
    if offered == "0,0":
        raise Failed("the broker agreed to no heart-beats")
    subscription = link.subscribe(name)
    same(link.receive(subscription.id, 1, 3.0), [], "for 3 s")  # some clients beat only while they read
    same(link.alive(), True, "alive after 3 s")
    link.send(name, b"still here")
    same(subscription.bodies(1), [b"still here"], "after 3 s")


@check
def topics(program: Program, target: Target) -> None:
    """Every subscriber gets what is sent after it subscribed, in order if the broker keeps one."""
    name = queue("topic").replace("/queue/", "/topic/")
    sender, first, second = (program.open(target) for _ in range(3))
    sender.send(name, b"nobody listens")
    sender.settle()
    subscriptions = [first.subscribe(name), second.subscribe(name)]
    first.settle()
    second.settle()
    for body in (b"1", b"2", b"3"):
        sender.send(name, body)
    for subscription in subscriptions:
        found = subscription.bodies(3)
        same(found if target.keeps_order else sorted(found), [b"1", b"2", b"3"], "bodies")


@check
def unsubscribe(program: Program, target: Target) -> None:
    """After UNSUBSCRIBE nothing more comes by it; the queue keeps what is sent then."""
    link, name = program.open(target), queue("unsubscribe")
    first = link.subscribe(name)
    link.send(name, b"1")
    same(first.bodies(1), [b"1"], "before")
    first.cancel()
    link.settle()
    link.send(name, b"2")
    link.settle()
    second = link.subscribe(name)
    same(second.bodies(1), [b"2"], "after")
    same(link.receive(first.id, 1, 0.0), [], "by the old subscription")


@check
def bad_credentials(program: Program, target: Target) -> None:
    if target.refuses is None:
        raise NotThere(f"{target.name} takes any passcode here")
    program.open(target, passcode=target.passcode).close()
    try:
        program.open(target, passcode="wrong")
    except Failed:
        program.kill()
        return
    raise Failed("a wrong passcode was taken")
