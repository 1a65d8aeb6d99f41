"""The kinds of brokers: which show the messages of a queue, select, and acknowledge in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from stompcodec.bridge.headers import TAKERS
from stompcodec.bridge.sources import GIVERS
from stompcodec.cli.screen import printable
from stompcodec.client.dialects import BROKERS, BrokerDialect, row_of

if TYPE_CHECKING:
    from stompcodec.client import Client, Message

#: Brokers that know selectors. Others ignore them, and deliver everything.
_SELECTING = ("stompcodec", "activemq", "artemis")
#: Brokers that commit SENDs and ACKs together, so that a crash of the tool or of the broker undoes both or neither.
_ATOMIC = ("stompcodec", "activemq")


class Kind(NamedTuple):
    """A kind of broker, as these tools see it."""

    name: str
    title: str
    shows: bool
    """A browser shows the messages of a queue and leaves them there."""
    selects: bool
    atomic: bool
    """SENDs and ACKs of a transaction take effect together. Otherwise the ACKs follow the confirmed SENDs."""
    jms: bool
    """A SEND without content-length becomes a text message."""
    dead_letters: str = ""
    """The queue of dead letters by default; a star stands for any rest, where the broker lists its queues."""
    row: BrokerDialect = BROKERS["unknown"]
    """Its dialect, which says when two names mean one queue."""
    management: str = ""
    """The prefix of the names that our broker takes as requests: it answers them and stores nothing. Else empty."""

    @property
    def is_ours(self) -> bool:
        """True for our own broker, in every dialect."""
        return self.name == "stompcodec"

    def answers(self, destination: str) -> bool:
        """Return whether a destination is that of a request, so that a message sent to it would be lost."""
        return bool(self.management) and destination.startswith(self.management)

    def check_keeps(self, destination: str) -> None:
        """Check that the broker keeps what is sent to a destination.

        Raises:
            click.UsageError: it answers it.
        """
        if self.answers(destination):
            what = f"names with {printable(self.management)} are requests to the broker"
            raise click.UsageError(f"{printable(destination)!r} is not a queue: {what}")

    def check_differ(self, source: str, target: str) -> None:
        """Check that two names mean two queues.

        Raises:
            click.UsageError: they mean one.
        """
        if self.row.is_same(source, target):
            names = f"{printable(source)} and {printable(target)}"
            raise click.UsageError(f"{names} are one queue: name another one to send the messages to")

    def is_end(self, message: Message) -> bool:
        """Return whether a browser's message marks its end. The message-ids of no other message look like this."""
        if message.get("browser") != "end" or message.body:
            return False
        return message.id.endswith("-end") if self.is_ours else not message.id.startswith("ID:")

    def check_shows(self, queue: str, why: str) -> None:
        """Check that the broker can show the messages of a queue.

        Raises:
            click.UsageError: it cannot.
        """
        if not self.shows:
            raise click.UsageError(f"{self.title} cannot show the messages of {queue} without taking them: {why}")

    def check_selects(self, selector: str | None) -> None:
        """Check that the broker knows selectors, if there is one.

        Raises:
            click.UsageError: it ignores them.
        """
        if selector is not None and not self.selects:
            raise click.UsageError(f"{self.title} ignores selectors, and would give all messages: leave out --selector")


def kind_of(client: Client) -> Kind:
    """Return the kind of the broker that a client is connected to."""
    server = (client.connected.get("server") if client.connected is not None else None) or ""
    row = row_of(client.dialect, server)
    ours = server.startswith("stompcodec/")
    name = "stompcodec" if ours else client.dialect if client.dialect in GIVERS else "unknown"
    atomic = name in _ATOMIC and not (ours and client.dialect == "artemis")  # whose ACKs ignore their transaction
    letters = {"stompcodec": "/queue/DLQ.*", "activemq": "/queue/ActiveMQ.DLQ"}.get(name, "")
    giver = GIVERS[name]
    return Kind(name, giver.title, bool(giver.browse), name in _SELECTING, atomic, TAKERS[name].jms, letters, row)
