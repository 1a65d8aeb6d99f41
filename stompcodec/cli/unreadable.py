"""The option --lenient of verbs that receive: messages that cannot be read are passed over, and each is reported."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from stompcodec.cli.inputs import complain
from stompcodec.cli.screen import printable
from stompcodec.errors import RemoteProtocolError

#: How the client says that a message was not settled.
_STAYS = "not settled"
#: Headers that differ each time a message is delivered.
_OF_DELIVERY = ("ack", "subscription", "redelivered")

lenient_option = click.option(
    "--lenient", is_flag=True, help="Pass over messages that the broker cannot write as STOMP, and say which."
)


class PassedOver(logging.Handler):
    """The messages that clients of this process passed over: each is reported, once if it stays.

    Args:
        removes: whether the verb removes them, so that what it sees before is not worth a line.
    """

    def __init__(self, removes: bool) -> None:
        super().__init__()
        self.settled = 0
        self.removes = removes
        self._staying: dict[object, str] = {}

    @property
    def count(self) -> int:
        """How many stay in their queues."""
        return len(self._staying)

    def emit(self, record: logging.LogRecord) -> None:
        """Note a message; the client logs them."""
        how, error = record.args if isinstance(record.args, tuple) else ("", None)
        key, text = _key(error), printable(record.getMessage())
        if how != _STAYS:
            self.settled += 1
            self._staying.pop(key, None)
            complain(text)
        elif key not in self._staying:
            self._staying[key] = text
            if not self.removes:
                complain(text)

    def report(self) -> None:
        """Report those that were not removed, though they should be."""
        for text in self._staying.values() if self.removes else ():
            complain(text)


def _key(error: Any) -> object:
    """Return what is the same of a message on every connection, or in every look at its queue."""
    frame = getattr(error, "frame", None)
    if frame is None:
        return str(error)
    id = frame.get("message-id")
    return id or frozenset(pair for pair in frame.headers.items() if pair[0] not in _OF_DELIVERY)


@contextmanager
def passing_over(lenient: bool, removes: bool = False) -> Iterator[PassedOver | None]:
    """Report the messages that clients pass over in this block; nothing without `lenient`. Arguments: `PassedOver`."""
    if not lenient:
        yield None
        return
    passed, log = PassedOver(removes), logging.getLogger("stompcodec.client.unreadable")
    log.addHandler(passed)
    try:
        yield passed
    finally:
        log.removeHandler(passed)
        passed.report()


def way_round(error: Exception) -> str:
    """Return the remedy for an error because of a message that cannot be read; "" for another error, or verb."""
    context = click.get_current_context(silent=True)
    options: list[Any] = [] if context is None else context.command.params
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, RemoteProtocolError):
        cause = cause.__cause__
    has_it = any(option.name == "lenient" for option in options)
    return "pass over such messages with --lenient" if has_it and cause is not None and cause.frame is not None else ""
