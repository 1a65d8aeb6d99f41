"""Messages carried from one queue to another of the same broker, or removed: each batch as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from stompcodec.cli.queues.headers import body_of, kept
from stompcodec.cli.queues.kinds import Kind
from stompcodec.cli.queues.taking import Taking
from stompcodec.cli.screen import printable
from stompcodec.errors import ConnectionLostError, FrameError, RejectedError

if TYPE_CHECKING:
    from stompcodec.client import Client, Message, Receipt


class Aim(NamedTuple):
    """Where a message goes."""

    queue: str | None
    """None if it stays."""
    why: str | None = None
    """Why it stays; None also if it is not meant."""


#: Returns where a message goes.
Target = Callable[["Message"], Aim]


class RefusedQueue(Exception):
    """Raised when the broker refuses the messages for one of several queues. The connection has ended."""


class Tally:
    """Counts of messages that were carried or removed, and of those that were left."""

    def __init__(self) -> None:
        self.messages = 0
        self.octets = 0
        #: Messages that were left, by the reason.
        self.stays: Counter[str] = Counter()
        #: Why queues refuse messages.
        self.refused: dict[str, str] = {}

    @property
    def left(self) -> int:
        """Messages that were left."""
        return sum(self.stays.values())

    def add(self, batch: list[Message]) -> None:
        self.messages += len(batch)
        self.octets += sum(len(message.body) for message in batch)


def carry(taking: Taking, target_of: Target, tally: Tally, moved: Callable[[], None], one_target: bool = True) -> None:
    """Move messages until `taking` ends. Those without a target stay in their queue.

    Args:
        taking: the queue. Its client does not reconnect, so no message is delivered to it twice.
        target_of: returns where a message goes.
        tally: counts.
        moved: called after each batch.
        one_target: all go to the same queue.

    Raises:
        RefusedQueue: the broker refuses messages for a queue, which `tally.refused` has from now on, and others may be
            moved over a new connection.
        StompError: a batch was not moved, or its outcome is unknown. Where SENDs and ACKs are committed together, each
            of its messages is in one of both queues.
    """
    client, kind, subscription = taking.looking.client, taking.looking.kind, taking.subscribe()
    tally.stays.clear()
    for batch in taking.batches(subscription):
        going: dict[str, list[Message]] = {}
        for message in batch:
            queue, why = target_of(message)
            if queue is not None and queue not in tally.refused:
                going.setdefault(queue, []).append(message)
                continue
            if queue is not None:
                why = f"{printable(queue)} takes none: {tally.refused[queue]}"
            taking.held += 1
            tally.stays.update([] if why is None else [why])
        for queue, messages in going.items():
            try:
                done = _move(client, kind, queue, messages, taking.returns)
            except (ConnectionLostError, RejectedError) as error:
                why = None if one_target else _refusal(error, kind)
                if why is None:
                    raise
                tally.refused[queue] = why
                raise RefusedQueue from error
            tally.add(done)
            taking.held += len(messages) - len(done)
            if len(done) < len(messages):
                tally.stays[f"a SEND to {printable(queue)} cannot carry them"] += len(messages) - len(done)
        moved()


def _refusal(error: BaseException, kind: Kind) -> str | None:
    """Return why the broker refused messages for their queue; None if it did not.

    An ERROR for a SEND in a transaction ends the connection, and then the COMMIT took no effect, or its ACKs did.
    """
    found: BaseException | None = error
    while kind.atomic and found is not None and not isinstance(found, RejectedError):
        found = found.__cause__
    if not isinstance(found, RejectedError) or "transaction" in str(found).lower():  # which is too large
        return None
    return printable(str(found).removeprefix("the server sent an ERROR: "))


def _move(client: Client, kind: Kind, queue: str, messages: list[Message], returns: bool) -> list[Message]:
    """Send messages and acknowledge them: together, or else each once the broker has confirmed its copy. Return those
    that could be sent.
    """
    done: list[Message] = []
    asked = [client.options.artemis_types, *(each.options.get("artemis_types") != "false" for each in client.addresses)]
    typed = kind.row.types and all(asked)

    def sent(send: Callable[..., object]) -> None:
        for message in messages:
            try:
                headers = kept(message.headers.pairs(), kind.name, returns=returns, typed=typed)
                send(queue, body_of(message, kind), headers)
            except FrameError:  # such a header cannot be written in this version of STOMP
                continue
            done.append(message)

    if kind.atomic:
        with client.transaction() as transaction:
            sent(transaction.send)
            for message in done:
                transaction.ack(message)
        return done
    receipts: list[Receipt] = []
    sent(lambda *send: receipts.append(client.send_for_receipt(*send)))
    for receipt, message in zip(receipts, done):
        receipt.wait()
        message.ack()
    client.ping()  # the broker has the ACKs
    return done


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
