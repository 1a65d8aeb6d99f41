"""Draw the life of a message by living it, as a block of ARCHITECTURE.md.

    draw_message.py            write the block
    draw_message.py --check    exit status 1 if the block is not what a broker does

Each line of `LIVES` is played on a broker in this process. After each step the script looks where the message is; the
states before and after, and the step between, are one arrow.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from in_process import Client, InProcess
from page_blocks import run

from stompcodec.broker.sessions.transaction import Sending

QUEUE = "/queue/a"
BODY = b"the message"

#: What a state means, in the order of a life.
STATES = {
    "IN_TRANSACTION": "a session holds it until COMMIT",
    "DELAYED": "its queue holds it until its time has come",
    "READY": "its queue has it, in order, and no consumer can take it now",
    "UNACKED": "it was written to a consumer, which has not acknowledged it",
    "HELD": "its consumer sent NACK, and the pause before the next attempt is not over",
    "SETTLING": "its ACK or NACK is in a transaction",
    "DEAD_LETTER": "a new message, made of it, is in the dead letter queue",
    "GONE": "the broker does not have it any more",
}


class Life:
    """One message, and those who have to do with it."""

    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        self.sender = Client(broker)
        self.consumer = Client(broker)

    @property
    def state(self) -> str:
        """Where the message is; "[*]" before it was sent."""
        found = list(self._states())
        if len(found) > 1:
            raise AssertionError(f"the message is in several states: {found}")
        return found[0] if found else "GONE"

    def _states(self) -> Iterator[str]:
        for session in self.broker.clients:
            for transaction in session.transactions.values():
                for operation in transaction.operations:
                    yield "IN_TRANSACTION" if isinstance(operation, Sending) else "SETTLING"
        for (_, name), queue in self.broker.core.queues.items():
            yield from ["DEAD_LETTER" if "DLQ" in name else "READY"] * len(queue.messages)
            yield from ["DELAYED"] * len(queue.deferred)
            yield from ["HELD"] * len(queue.returned.held)
            for consumer in queue.consumers:
                yield from ["UNACKED"] * len(consumer.unacked)

    def sent(self, **headers: str) -> None:
        self.sender.send("SEND", BODY, destination=QUEUE, **headers)

    def subscribe(self, ack: str = "client-individual") -> None:
        self.consumer.send("SUBSCRIBE", id="1", destination=QUEUE, ack=ack)

    def answer(self, command: str, **headers: str) -> None:
        """ACK or NACK of the latest delivery."""
        (*_, message) = (frame for frame in self.consumer.inbox if frame.command == "MESSAGE")
        self.consumer.send(command, id=message.headers["ack"], **headers)

    def transaction(self, command: str, client: Client) -> None:
        client.send(command, transaction="t")

    def lose(self) -> None:
        """The connection of the consumer is lost."""
        self.consumer.session.lost(self.broker.now, None)
        del self.broker.clients[self.consumer.session]
        self.broker.settle()


Step = tuple[str, Callable[[Life], object]]

SENT: Step = ("SEND", Life.sent)
IN_TRANSACTION: tuple[Step, ...] = (
    ("", lambda life: life.transaction("BEGIN", life.sender)),
    ("SEND with transaction", lambda life: life.sent(transaction="t")),
)
DELAYED: Step = ("SEND with delay", lambda life: life.sent(delay="5000"))
EXPIRING: Step = ("SEND", lambda life: life.sent(expires=str(int(life.broker.date * 1000) + 2000)))
TAKEN: Step = ("a consumer has credit and room", Life.subscribe)
NACK: Step = ("NACK", lambda life: life.answer("NACK"))
DEAD_LETTERS: dict[str, Any] = {"max_attempts": 1}


def _wait(life: Life) -> None:
    life.broker.wait(6.0)


def _ended(command: str) -> tuple[Step, ...]:
    """Return the steps of an ACK or NACK in a transaction that ends in some way."""
    return (
        ("", lambda life: life.transaction("BEGIN", life.consumer)),
        ("ACK or NACK with transaction", lambda life: life.answer("ACK", transaction="t")),
        (command, lambda life: life.transaction(command, life.consumer)),
    )


#: What the broker's configuration says, and the steps. A step without a name is not drawn.
LIVES: list[tuple[dict[str, Any], tuple[Step, ...]]] = [
    ({}, (*IN_TRANSACTION, ("COMMIT", lambda life: life.transaction("COMMIT", life.sender)))),
    ({}, (*IN_TRANSACTION, ("ABORT", lambda life: life.transaction("ABORT", life.sender)))),
    ({}, (DELAYED, ("its time has come", _wait))),
    ({}, (SENT, TAKEN, ("ACK", lambda life: life.answer("ACK")))),
    ({}, (("", Life.subscribe), ("SEND, a consumer has credit and room", Life.sent))),
    ({}, (("", lambda life: life.subscribe("auto")), ("SEND, to a consumer with ack:auto", Life.sent))),
    ({}, (SENT, ("a consumer with ack:auto has room", lambda life: life.subscribe("auto")))),
    ({}, (EXPIRING, ("it has expired", _wait))),
    ({"dead_letter_expired": True}, (EXPIRING, ("it has expired, and such messages are kept", _wait))),
    ({}, (SENT, TAKEN, ("UNSUBSCRIBE", lambda life: life.consumer.send("UNSUBSCRIBE", id="1")))),
    ({}, (SENT, TAKEN, ("the connection is lost", Life.lose))),
    ({}, (SENT, TAKEN, NACK, ("the pause is over, a consumer has credit and room", _wait))),
    ({}, (SENT, TAKEN, NACK, ("", Life.lose), ("the pause is over", _wait))),
    (DEAD_LETTERS, (SENT, TAKEN, ("NACK, the last attempt", lambda life: life.answer("NACK")))),
    ({}, (SENT, TAKEN, *_ended("COMMIT"))),
    ({}, (SENT, TAKEN, *_ended("ABORT"))),
]


def arrows() -> dict[tuple[str, str], list[str]]:
    """Return (state before, state after) -> the steps that lead there."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for config, steps in LIVES:
        with InProcess(**config) as broker:
            life, before = Life(broker), "[*]"
            for label, act in steps:
                act(life)
                if label:
                    after = life.state
                    if label not in found[before, after]:
                        found[before, after].append(label)
                    before = after
    return found


def draw() -> str:
    """Return the block."""
    found = arrows()
    names = list(STATES)
    lines = ["```mermaid", "stateDiagram-v2"]
    for (before, after), labels in sorted(
        found.items(), key=lambda item: [names.index(name) if name in names else -1 for name in item[0]]
    ):
        lines.append(f"    {before} --> {after} : {'<br/>'.join(labels)}")
    lines += ["    GONE --> [*]", "```", "", "| state | meaning |", "| --- | --- |"]
    lines += [f"| {name} | {meaning} |" for name, meaning in STATES.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run("message", draw, sys.argv[1:]))
