"""Messages carried from one queue to another of the same broker, or removed: each batch as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompcodec.cli.queues.headers import body_of, kept
from stompcodec.cli.queues.kinds import Kind
from stompcodec.cli.queues.taking import Taking

if TYPE_CHECKING:
    from stompcodec.client import Client, Message

#: Returns where a message goes; None to leave it.
Target = Callable[["Message"], "str | None"]


class Tally:
    """Counts of messages that were carried or removed, and of those that were left."""

    def __init__(self) -> None:
        self.messages = 0
        self.octets = 0
        self.left = 0

    def add(self, batch: list[Message]) -> None:
        self.messages += len(batch)
        self.octets += sum(len(message.body) for message in batch)


def carry(taking: Taking, target_of: Target, tally: Tally, moved: Callable[[], None]) -> None:
    """Move messages until `taking` ends. Those without a target stay in their queue.

    Args:
        taking: the queue. Its client does not reconnect, so no message is delivered to it twice.
        target_of: returns where a message goes.
        tally: counts.
        moved: called after each batch.

    Raises:
        StompError: a batch was not moved, or its outcome is unknown. Where SENDs and ACKs are committed together, each
            of its messages is in one of both queues.
    """
    client, kind, subscription = taking.looking.client, taking.looking.kind, taking.subscribe()
    for batch in taking.batches(subscription):
        aims = [(message, target_of(message)) for message in batch]
        going = [(message, target) for message, target in aims if target is not None and not kind.answers(target)]
        taking.held += len(aims) - len(going)
        tally.left += len(aims) - len(going)
        if going:
            _move(client, kind, going)
            tally.add([message for message, _ in going])
        moved()


def _move(client: Client, kind: Kind, going: list[tuple[Message, str]]) -> None:
    """Send messages and acknowledge them: together, or else each once the broker has confirmed its copy."""
    sends = [(target, body_of(message, kind), kept(message.headers.pairs())) for message, target in going]
    if kind.atomic:
        with client.transaction() as transaction:
            for send in sends:
                transaction.send(*send)
            for message, _target in going:
                transaction.ack(message)
        return
    receipts = [client.send_for_receipt(*send) for send in sends]
    for receipt, (message, _target) in zip(receipts, going):
        receipt.wait()
        message.ack()
    client.ping()  # the broker has the ACKs


def remove(taking: Taking, tally: Tally, moved: Callable[[], None]) -> None:
    """Acknowledge messages until `taking` ends. Arguments and errors: `carry`."""
    lenient = taking.looking.passed is not None
    # An ACK of mode `client` covers those before it, but not a last one that cannot be read.
    subscription = taking.subscribe("client-individual", "ack") if lenient else taking.subscribe("client")
    for batch in taking.batches(subscription):
        for message in batch[:-1] if lenient else ():
            message.ack()
        batch[-1].ack(receipt=True)
        tally.add(batch)
        moved()
