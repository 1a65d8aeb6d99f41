"""Failed deliveries: messages that could not be written to a consumer, and the users that are not offered them again.

An exception while a message is written to a consumer ends that consumer's session. It never reaches the sender, the
turn or another consumer:

    Consumer.send raises, or one of the quick roads does
        |  Queue.delivery_failed: the session gets no more; it ends with an ERROR when the turn ends
        v
    READY again, in its old place, with its attempts unchanged. The copy in the queue remembers the pair of user and
        version for which it failed: that pair is skipped, others get it, and the messages behind it are delivered
        |  it has failed for MOST_USERS users, or expires
        v
    a dead letter with the reason UNDELIVERABLE

The pairs are part of the message in memory. They are not stored: after a restart all are offered the message again.
"""

from __future__ import annotations

from stompcodec.broker.message import Message, Pair
from stompcodec.broker.queues.consumer import Consumer

#: The reason of the dead letter.
UNDELIVERABLE = "undeliverable"
#: A message that fails for this many users is itself at fault.
_MOST_USERS = 3


class Undelivered(Exception):
    """A delivery failed, and no other consumer can take the message now. `message` is the one that the queue keeps in
    its place; None if it became a dead letter.
    """

    def __init__(self, message: Message | None) -> None:
        super().__init__()
        self.message = message


def pair_of(consumer: Consumer) -> Pair:
    """Return the user and the version of a consumer. Without configured users, all sessions are one user."""
    return consumer.session.owner or "", consumer.session.version


def is_barred(consumer: Consumer, message: Message) -> bool:
    """Return whether a message has failed for the user and the version of this consumer."""
    return pair_of(consumer) in message.faults


def is_undeliverable(message: Message) -> bool:
    """Return whether a message has failed for enough users to be at fault itself.

    >>> from stompcodec.broker.queues.scheduling import with_fault
    >>> message = Message(b"m-1", 1, "/queue/a", b"\\n\\0")
    >>> for pair in (("ada", "1.0"), ("ada", "1.1"), ("bob", "1.0"), ("eve", "1.2")):
    ...     message = with_fault(message, pair)
    ...     print(is_undeliverable(message))
    False
    False
    False
    True
    """
    return len({user for user, _version in message.faults}) >= _MOST_USERS
