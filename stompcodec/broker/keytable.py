"""The keys of a configuration file, each documented once, beside what it sets and what its value may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stompcodec.broker import values
from stompcodec.broker.config import Config

__all__ = ["KEYS", "Key"]


class Key(NamedTuple):
    """One key of the file."""

    name: str
    """With dots between, as in `limits.max_body`."""
    target: str
    """The field of `Config` that it sets, perhaps with a field of `Limits` behind a dot."""
    read: Callable[[Any], Any]
    """Turns what TOML gave into the value; ValueError says what is allowed."""
    doc: str

    @property
    def default(self) -> Any:
        """What holds when the file does not say."""
        value: Any = _DEFAULTS
        for part in self.target.split("."):
            value = getattr(value, part)
        return value


def _limits(table: str, target: str, when: str) -> list[Key]:
    size, count = values.octets(), values.whole(1, 100_000)
    return [
        Key(
            f"{table}.max_command_line", f"{target}.max_command_line", size, f"Longest command line {when}, in octets."
        ),
        Key(f"{table}.max_header_line", f"{target}.max_header_line", size, f"Longest header line {when}, in octets."),
        Key(f"{table}.max_headers", f"{target}.max_headers", count, f"Most headers of a frame {when}."),
        Key(f"{table}.max_body", f"{target}.max_body", values.octets(0), f"Largest body {when}, in octets."),
    ]


_DEFAULTS = Config()
_COUNT = values.whole(1, 2**40)
_SIZE = values.octets()
_DURABLE = values.one_of("persistent", "all", "none")
_SLOW = values.one_of("disconnect", "drop", "block")

#: Every key that a file may hold, in the order of the documentation.
KEYS: tuple[Key, ...] = (
    Key("listen.host", "host", values.text, "Address to listen on. 0.0.0.0 or :: opens the broker to the network."),
    Key("listen.port", "port", values.port, "Port of plain STOMP. 0 takes any free port, false none."),
    Key("listen.ws_port", "ws_port", values.port, "Port of STOMP over WebSocket, on any path."),
    Key("listen.tls_port", "tls_port", values.port, "Port of STOMP over TLS. It needs tls.cert."),
    Key("tls.cert", "tls_cert", values.text, "File of the certificate and its chain, PEM."),
    Key(
        "tls.key",
        "tls_key",
        values.text,
        "File of the private key, PEM, where that of the certificate does not hold it.",
    ),
    Key("tls.ca", "tls_ca", values.text, "File of the authorities whose certificates clients must show, PEM."),
    Key(
        "store.data",
        "data",
        values.text,
        "Folder for what must outlive the broker. Without it, nothing does; but `stompcodec broker` then takes "
        "./stompcodec-data, unless --memory is given or store.durable is none.",
    ),
    Key(
        "store.durable",
        "durable",
        _DURABLE,
        "Which messages are stored: those that say persistent:true, all, or none.",
    ),
    *_limits("limits", "limits", "of a client that has connected"),
    *_limits("limits.before_login", "first_limits", "before CONNECTED was sent"),
    Key(
        "sessions.heart_beat",
        "heart_beat",
        values.heart_beat,
        "How often the broker can send heart-beats, and how often it wants them, in milliseconds; 0 is never.",
    ),
    Key(
        "sessions.login_timeout", "login_timeout", values.seconds, "Seconds that a new connection has for its CONNECT."
    ),
    Key("sessions.drain_timeout", "drain_timeout", values.seconds, "Seconds that sessions have when the broker stops."),
    Key("sessions.max_connections", "max_connections", _COUNT, "Connections at one time."),
    Key("sessions.max_subscriptions", "max_subscriptions", _COUNT, "Subscriptions of a session."),
    Key("sessions.max_unacked", "max_unacked", _COUNT, "Unacknowledged messages of a session, over all subscriptions."),
    Key("sessions.max_transactions", "max_transactions", _COUNT, "Open transactions of a session."),
    Key(
        "sessions.max_transaction_octets",
        "max_transaction_octets",
        _SIZE,
        "Octets that the open transactions of a session may hold, together.",
    ),
    Key(
        "sessions.write_high",
        "write_high",
        _SIZE,
        "Octets that may wait to be written to a client. Above, it gets no more messages until they are gone.",
    ),
    Key("sessions.transactional_acks", "transactional_acks", values.flag, "Whether ACK and NACK obey transactions."),
    Key(
        "queues.prefixes",
        "queue_prefixes",
        values.prefixes,
        "What the names of queues begin with. A name without any prefix is a queue, too.",
    ),
    Key("queues.temp_prefix", "temp_queue_prefix", values.prefix, "What the names of temporary queues begin with."),
    Key(
        "queues.prefetch", "prefetch", _COUNT, "Unacknowledged messages of a subscription that names no number itself."
    ),
    Key("queues.max_attempts", "max_attempts", _COUNT, "Deliveries of a message before it becomes a dead letter."),
    Key("queues.dead_letter", "dead_letter", values.dead_letter, "Where dead letters go; {name} is the queue's name."),
    Key("queues.dead_letter_expired", "dead_letter_expired", values.flag, "Whether expired messages go there, too."),
    Key("queues.max_messages", "max_queue_messages", _COUNT, "Messages in a queue. Above, its senders wait."),
    Key("queues.max_octets", "max_queue_octets", _SIZE, "Octets in a queue. Above, its senders wait."),
    Key("queues.max_total_octets", "max_octets", _SIZE, "Octets in all queues together. Above, all senders wait."),
    Key("queues.max_destinations", "max_destinations", _COUNT, "Queues and topics at one time."),
    Key("topics.prefixes", "topic_prefixes", values.prefixes, "What the names of topics begin with."),
    Key("topics.temp_prefix", "temp_topic_prefix", values.prefix, "What the names of temporary topics begin with."),
    Key("topics.backlog", "topic_backlog", _COUNT, "Messages that may wait for a slow subscriber."),
    Key("topics.backlog_octets", "topic_backlog_octets", _SIZE, "Octets that may wait for a slow subscriber."),
    Key(
        "topics.slow_consumer",
        "slow_consumer",
        _SLOW,
        "What happens then: the subscriber is sent an ERROR, its oldest messages are dropped, or senders wait.",
    ),
    Key(
        "access.virtual_hosts",
        "virtual_hosts",
        values.texts,
        "Hosts that CONNECT may name; the first is the default. Without the key any name will do, and all are one.",
    ),
    Key(
        "users",
        "users",
        values.users,
        'Who may connect: a line NAME = "HASH", or a table [users.NAME] with passcode (the hash), groups and vhosts '
        "(lists). Without users any login will do, or none. `stompcodec broker --hash-passcode` makes a hash.",
    ),
    Key(
        "rules",
        "rules",
        values.rules,
        "Who may do what: tables [[rules]] with who (a user, @GROUP, or *), action (send, subscribe, or *), "
        "destination (* stands for any characters), vhost, and allow (true or false). The first that fits decides; "
        "what none allows is refused. Without rules everything is allowed.",
    ),
)
