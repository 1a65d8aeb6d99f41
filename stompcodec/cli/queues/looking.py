"""Looks at queues: their messages, how many there are, and whether one is empty. Nothing is taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stompcodec.cli.queues.kinds import Kind
from stompcodec.cli.unreadable import PassedOver
from stompcodec.errors import ConnectionLostError, LocalProtocolError, ReceiptTimeoutError, RejectedError

if TYPE_CHECKING:
    from stompcodec.client import Client, Message

#: The most pages of names; each has up to 1000.
_MOST_PAGES = 1000
#: Seconds between two looks for an interruption.
_LOOK = 0.1


class Interrupted(Exception):
    """Raised when the user ends a tool before it has changed anything."""


class Looking(NamedTuple):
    """A queue to look at."""

    client: Client
    kind: Kind
    queue: str
    selector: str | None
    stopped: Callable[[], bool]
    """Asked now and then; True raises Interrupted."""
    timeout: float
    """The longest pause between two messages, in seconds."""
    passed: PassedOver | None = None
    """Notes messages that cannot be read, which are passed over; None: they are errors."""

    def messages(self) -> Iterator[Message]:
        """Yield the messages that wait in the queue now, at a broker that shows queues.

        Raises:
            ReceiptTimeoutError: the broker shows neither a further message nor the end.
            Interrupted: `stopped` said so.
            StompError: as `Client.subscribe`.
        """
        options: Any = {"selector": self.selector, "headers": {"browser": "true"}}
        options["on_unreadable"] = "raise" if self.passed is None else "ignore"
        with self.client.subscribe(self.queue, **options) as subscription:
            waited = 0.0
            while True:
                message = subscription.get(_LOOK)
                if self.stopped():
                    raise Interrupted
                if message is None:
                    waited += _LOOK
                    if waited > self.timeout:
                        raise ReceiptTimeoutError(f"the broker showed no end of {self.queue} in {self.timeout:g} s")
                    continue
                if self.kind.is_end(message):
                    return
                waited = 0.0
                yield message

    def total(self) -> int | None:
        """Return how many messages wait in the queue; None if the broker does not show it. Errors: `messages`."""
        if self.kind.is_ours and self.selector is None:
            rows = listed(self.client, self.queue)
            if rows:  # else a browser says whether the queue is empty, or may not be read
                return sum(int(row["ready"]) for row in rows)
        if not self.kind.shows:
            return None
        number = sum(1 for _ in self.messages())
        return number + self.passed.count if self.passed is not None and self.passed.removes else number

    def is_empty(self) -> bool:
        """Return whether no message waits in the queue, at a broker that shows queues. Errors: `messages`."""
        return next(self.messages(), None) is None


def listed(client: Client, pattern: str) -> list[dict[str, Any]] | None:
    """Return the queues that our broker has for a name, or for a beginning with a star; None if it does not tell.

    Each has `destination`, `ready` and `messages`, as docs/broker-extensions.md says.
    """
    rows: list[dict[str, Any]] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        page = _page(client, pattern, after)
        if page is None:
            return None
        rows += page["destinations"]
        if page.get("next") is None:
            break
        after = str(page["next"])
    return [row for row in rows if row.get("kind") == "queue"]


def management_of(client: Client, queue: str) -> str:
    """Return the prefix of requests to our broker, as it says in an answer about a queue; "" if it does not tell."""
    page = _page(client, queue, None)
    return str(page.get("management") or "") if page is not None else ""


def _page(client: Client, pattern: str, after: str | None) -> dict[str, Any] | None:
    """Return a page of names with `destinations`, a list of objects; None if our broker does not tell."""
    headers = {"browser": "names"} if after is None else {"browser": "names", "from-name": after}
    try:
        answer = client.receive(pattern, headers=headers)
        page: dict[str, Any] = json.loads(b"" if answer is None else answer.body)
        return page if all(isinstance(row, dict) for row in page["destinations"]) else None
    except (ConnectionLostError, ReceiptTimeoutError):
        raise
    except (LocalProtocolError, RejectedError, ValueError, KeyError, TypeError):
        return None
