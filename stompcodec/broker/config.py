"""The broker's configuration: one frozen dataclass, whose fields are the table of keys; reading and listing files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from stompcodec.arguments import check_fields, checked, meant, names_checked
from stompcodec.broker import settings as values
from stompcodec.broker.auth import Rule, User, fault_of
from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.settings import EXCHANGES, Pauses, Preset, Setting
from stompcodec.errors import ConfigError
from stompcodec.spec import DEFAULT_LIMITS, Limits, checked_limits
from stompcodec.values import boolean, shown_duration, shown_size

_MIB = 2**20
#: Limits before login, when a client needs to send little more than a CONNECT frame.
_FIRST_LIMITS = Limits(max_command_line=64, max_header_line=8192, max_headers=100, max_body=65536)
#: By default, six attempts take 3.1 s.
_PAUSES = Pauses(0.1, 2.0, 30.0)
_COUNT = values.whole(1, 2**40)
_SIZE = values.octets()
_T = TypeVar("_T")

#: Values by dialect and field of `Config`, each with a scenario of tests/interop that the real broker played.
DIALECTS: Mapping[str, Mapping[str, Any]] = {
    "stompcodec": {},
    "rabbitmq": {
        "redelivery_delay": Pauses(),  # HA-59
        "max_attempts": 2**40,  # HA-59
        "letters": "none",  # HA-67
        "limits": DEFAULT_LIMITS._replace(max_headers=99, max_body=4 * _MIB),  # HA-54
        "priority": False,  # HA-24
        "durable": "persistent",  # restart
        "wildcards": "rabbitmq",  # HA-52
        "exchanges": EXCHANGES,  # HA-49
        "exclusive": "session",  # HA-44
        "reply_to_subscribes": True,  # HA-55
        "refuse_message_id": True,  # HA-53
        "same_client": "allow",  # HA-15
        "routing_headers": False,  # AR-03
        "prefetch": 100_000,  # HA-60
        "heart_beat": (1000, 1000),  # HA-28
        "mirrors": (1000, 0),  # HA-28
        "queue_arguments": "refuse",  # HA-47
        "forbidden": ("/", "RabbitMQ has no slashes in names: write %2F."),  # AR-05
        "ack_after_unsubscribe": True,  # HA-21
        "receipts_at_commit": True,  # HA-33
    },
    "activemq": {
        "max_attempts": 1,  # HA-01
        "dead_letter": "/queue/ActiveMQ.DLQ",  # HA-01
        "dead_letter_expired": True,  # HA-58
        "letters": "persistent",  # HA-58
        "jms": True,  # MS-43
        "priority": False,  # HA-24
        "durable": "persistent",  # restart
        "wildcards": "activemq",  # HA-52
        "composite": True,  # HA-51
        "virtual_topics": True,  # HA-50
        "routing_headers": False,  # AR-03
        "prefetch": 1000,  # HA-60
        "page": 200,  # HA-60
        "heart_beat": (100, 100),  # HA-28 (ActiveMQ offers 1 on request)
        "mirrors": (1, 2**63 - 1),  # HA-28
        "queue_arguments": "ignore",  # HA-48
        "limits": DEFAULT_LIMITS._replace(max_headers=1000, max_header_line=10 * 1024),  # HA-62
        "durable_queues": False,  # HA-18
        "refuse_ended": True,  # HA-55
        "nack_in_transaction": False,  # HA-34
        "utf8_texts": True,  # HA-61
    },
    "artemis": {
        "max_attempts": 10,  # HA-05
        "counts_losses": True,  # HA-05
        "dead_letter": "DLQ",  # HA-05
        "nack": "drop",  # HA-01
        "queue_prefixes": (),  # HA-14
        "topic_prefixes": (),  # HA-36
        "one_address": True,  # HA-10
        "same_client": "allow",  # HA-15
        "durable": "persistent",  # restart
        "wildcards": "artemis",  # HA-52
        "routing": "MULTICAST",  # HA-49
        "transactional_acks": False,  # HA-34
        "prefetch_octets": True,  # HA-37
        "window": 10_240,  # HA-38
        "window_overhead": 176,  # HA-38
        "ttl": 60_000,  # HA-28
        "queue_arguments": "ignore",  # HA-48
        "forbidden": ("::", "Queues of an address cannot be named here: Artemis would use the one behind ::."),  # HA-13
        "utf8_texts": True,  # HA-61
    },
}


class _Unset(Enum):
    """The value of a field that was not set, which cannot be confused with an argument."""

    UNSET = "by dialect"


class Key(NamedTuple):
    """A key of the file."""

    name: str
    """With dots, as in `limits.max_body`."""
    read: Callable[[Any], Any]
    """Converts a TOML value; raises ValueError if it is not allowed."""
    doc: str
    default: Any
    """The value of its field without an entry in the file."""
    target: str = ""
    """The field of `Config` that it sets, if needed with a field of `Limits` after a dot."""
    also: tuple[str, ...] = ()
    """Further fields that it sets. `read` then returns `Several`."""
    example: str = ""
    """A value as it is written in a file, for keys without a default or with several fields."""


def _by_dialect(usual: _T) -> _T:
    """Declare a field without a key, whose default depends on the dialect; `usual` is for those that do not set it."""
    return cast("_T", field(default=_Unset.UNSET, metadata={"usual": usual}))


def _key(usual: _T, name: str, read: Callable[[Any], Any], doc: str, *also: str, example: str = "") -> _T:
    entry = Key(name, read, doc, usual, also=also, example=example)
    return field(default=usual, repr=name != "users", metadata={"keys": (entry,)})


def _key_by_dialect(usual: _T, name: str, read: Callable[[Any], Any], doc: str, *also: str, example: str = "") -> _T:
    """Declare a field with its key, whose default depends on the dialect."""
    entry = Key(name, read, doc, usual, also=also, example=example)
    return cast("_T", field(default=_Unset.UNSET, metadata={"usual": usual, "keys": (entry,)}))


def _limit(part: str, read: Callable[[Any], Any], doc: str) -> Key:
    return Key(f"limits.{part}", read, doc, getattr(DEFAULT_LIMITS, part), f"limits.{part}")


@names_checked
@dataclass(frozen=True)
class Config:
    """The configuration of a broker. Sizes are in bytes, times in seconds, heart-beats in milliseconds.

    Fields with a key can be set in a file; `KEYS` has these keys. `dialect` sets the defaults of other fields, as
    listed in `DIALECTS`; explicit values take precedence.

    Raises:
        ConfigError: the values contradict each other.

    >>> Config(port=0).replace(prefetch=1).prefetch
    1
    >>> Config(dialect="activemq").prefetch, Config(dialect="activemq", prefetch=1).prefetch
    (1000, 1)
    """

    host: str = _key(
        "127.0.0.1", "listen.host", values.text, "Address to listen on. 0.0.0.0 or :: opens the broker to the network."
    )
    port: int | None = _key(
        61613,
        "listen.port",
        values.listening,
        "Port of plain STOMP, or a list of ports, such as [61613, 61616]. 0 picks a free one, false disables it.",
        "ports",
        example="61613",
    )
    ws_port: int | None = _key(
        None, "listen.ws_port", values.port, "Port of STOMP over WebSocket, on any path.", example="15674"
    )
    tls_port: int | None = _key(
        None, "listen.tls_port", values.port, "Port of STOMP over TLS. It needs tls.cert.", example="61614"
    )
    legacy_port: int | None = _key(
        None,
        "listen.legacy",
        values.legacy,
        "Where the older worker dialect is accepted: true on the other ports, or a port for this dialect only.",
        "detect_legacy",
        example="false",
    )
    tls_cert: str | None = _key(
        None, "tls.cert", values.text, "File of the certificate and its chain, PEM.", example='"server.pem"'
    )
    tls_key: str | None = _key(
        None,
        "tls.key",
        values.text,
        "File of the private key, PEM, unless the file of the certificate contains it.",
        example='"server.key"',
    )
    tls_ca: str | None = _key(
        None,
        "tls.ca",
        values.text,
        "File of certificate authorities, PEM. With it, clients must present a certificate.",
        example='"clients.pem"',
    )
    ws_origins: tuple[str, ...] | None = _key(
        None,
        "websocket.origins",
        partial(values.texts, example="https://app.example", least=0),
        "Origins of pages that may use WebSocket: scheme, host and port; port `*` is any, `null` a file. By default "
        "those of localhost and loopback addresses, if the broker listens on loopback only.",
        example='["https://app.example", "http://localhost:*"]',
    )
    ws_hosts: tuple[str, ...] = _key(
        (),
        "websocket.hosts",
        partial(values.texts, example="broker.example", least=0),
        "Names by which WebSocket clients reach the broker, without ports, beside listen.host and, unless a "
        "proxy passed the request on, localhost and the address of the connection.",
        example='["broker.example"]',
    )
    data: str | None = _key(
        None,
        "store.data",
        values.text,
        "Folder for durable messages and subscriptions. Without it nothing is stored, but `stompcodec broker` uses "
        "./stompcodec-data without --memory.",
        example='"stompcodec-data"',
    )
    group: str | None = _key(
        None,
        "store.group",
        values.text,
        "Group that may read the files that hold messages, a name or a number. Without it, only the broker's user can.",
        example='"stomp"',
    )
    durable: str = _key_by_dialect(
        "all",
        "store.durable",
        values.one_of("persistent", "all", "none"),
        "Which messages are stored: all of queues but those with persistent:false, and of topics those with "
        "persistent:true; or only persistent ones, the default of other dialects; or none.",
    )
    dialect: str = _key(
        "stompcodec",
        "broker.dialect",
        values.one_of(*DIALECTS),
        "The broker to imitate. It changes other defaults, see docs/broker-extensions.md.",
    )
    memory: int = _key(1024 * _MIB, "limits.memory", _SIZE, "Memory for everything that clients make the broker keep.")
    limits: Limits = field(
        default=cast("Limits", _Unset.UNSET),
        metadata={
            "usual": DEFAULT_LIMITS,
            "keys": (
                _limit("max_header_line", _SIZE, "Longest header line, in bytes."),
                _limit("max_headers", values.whole(1, 100_000), "Most headers of a frame."),
                _limit("max_body", values.octets(0), "Largest body, in bytes."),
            ),
        },
    )
    heart_beat: tuple[int, int] = _key_by_dialect(
        (500, 1000),
        "sessions.heart_beat",
        values.heart_beat,
        "How often the broker can send heart-beats, and how often it wants them, in milliseconds; 0 is never.",
    )
    ttl: int = _key_by_dialect(
        0,
        "sessions.ttl",
        values.ttl,
        "Silence that ends a client without heart-beats, as in Artemis: see docs/broker-extensions.md. A text such as "
        '"60s" is usual.',
        "ttl_override",
        "ttl_min",
        "ttl_max",
        "ttl_modifier",
        example='{ usual = "0s", override = "0s", least = "1s", most = "2147483647ms", factor = 2 }',
    )
    login_timeout: float = _key(
        10.0, "sessions.login_timeout", values.seconds, "Time that a new connection has for its CONNECT."
    )
    max_connections: int = _key(
        10_000,
        "sessions.max_connections",
        _COUNT,
        "Connections at one time. One of several users may have half of them, one address three quarters, unless it "
        "is loopback; a quarter may wait for their login.",
    )
    max_subscriptions: int = _key(1000, "sessions.max_subscriptions", _COUNT, "Subscriptions of a session.")
    max_unacked: int = _key(
        100_000, "sessions.max_unacked", _COUNT, "Unacknowledged messages of a session, over all subscriptions."
    )
    max_transaction_octets: int = _key(
        64 * _MIB,
        "sessions.max_transaction_octets",
        _SIZE,
        "Bytes that the open transactions of a session, 100 at most, may hold together.",
    )
    version_header: bool = _key(
        False,
        "sessions.wire",
        values.table("{ trailing_lf = false }", boolean, "version_header", "trailing_lf"),
        "Whether a CONNECT without accept-version, which gets 1.0, may name its highest version in the header version; "
        "and whether an EOL follows each frame.",
        "trailing_lf",
        example="{ version_header = false, trailing_lf = true }",
    )
    transactional_acks: bool = _key_by_dialect(
        True, "sessions.transactional_acks", boolean, "Whether ACK and NACK obey transactions."
    )
    same_client: str = _key_by_dialect(
        "refuse",
        "sessions.same_client",
        values.one_of("refuse", "replace", "allow"),
        "A CONNECT with the client-id of another session is refused, ends that session, or both stay.",
    )
    prefetch: int = _key_by_dialect(
        100,
        "queues.prefetch",
        values.prefetch,
        'What a subscription without a limit of its own may have unacknowledged: messages, or bytes such as "10KiB", '
        'as in Artemis; "0B" is one message at a time.',
        "window",
        "prefetch_octets",
        example="100",
    )
    max_attempts: int = _key_by_dialect(
        6, "queues.max_attempts", _COUNT, "Deliveries of a message before it becomes a dead letter."
    )
    redelivery_delay: Pauses = _key_by_dialect(  # noqa: RUF009 (it cannot be changed)
        _PAUSES,
        "queues.redelivery_delay",
        values.pauses,
        "Pause before a message is delivered again after a NACK: the first, the factor of the next ones, the longest. "
        "0s is none.",
    )
    dead_letter: str = _key_by_dialect(
        "/queue/DLQ.{name}",
        "queues.dead_letter",
        values.dead_letter,
        "Where dead letters go; {name} is the queue's name.",
    )
    dead_letter_expired: bool = _key_by_dialect(
        False, "queues.dead_letter_expired", boolean, "Whether expired messages go there, too."
    )
    max_queue_messages: int | None = _key(
        None,
        "queues.max_messages",
        values.optional(_COUNT),
        "Messages in a queue. Above that, its senders wait. With false, that holds for 1,000,000 in memory.",
        example="false",
    )
    max_queue_octets: int = _key(
        256 * _MIB, "queues.max_octets", _SIZE, "Bytes of a queue in memory. Above that, its senders wait."
    )
    window_messages: int = _key(
        4000,
        "queues.window",
        _COUNT,
        "Messages of a queue in memory, at most those of 4 MiB or a 16th of limits.memory. Later persistent ones wait "
        "in the store.",
    )
    transient: str = _key(
        "stop",
        "queues.transient",
        values.one_of("stop", "spool"),
        "What messages that are not persistent do where a queue is full: stop their senders, or spool: wait in the "
        "store; a restart drops them.",
    )
    max_destinations: int = _key(
        10_000,
        "queues.max_destinations",
        _COUNT,
        "Queues, topics and durable subscriptions at one time. A session may create half of them, and so may a user; "
        "without users, an address three quarters.",
    )
    topic_backlog_octets: int = _key(
        64 * _MIB,
        "topics.backlog_octets",
        _SIZE,
        "Bytes that may wait for a slow subscriber, in 100,000 messages at most.",
    )
    slow_consumer: str = _key(
        "disconnect",
        "topics.slow_consumer",
        values.one_of("disconnect", "drop", "block"),
        "What happens beyond that: the subscriber gets an ERROR, its oldest messages are dropped, or senders wait.",
    )
    retain: bool = _key_by_dialect(
        False, "topics.retain", boolean, "Whether the header retain of SEND, set or remove, has an effect."
    )
    durable_overflow: str = _key(
        "block",
        "topics.durable_overflow",
        values.one_of("block", "drop"),
        "Where the queue of a durable subscription is full, senders wait, or its oldest messages are dropped.",
    )
    large: int = _key(
        102_400, "messages.large", _SIZE, "Bodies of at least this many bytes are kept in files, not in memory."
    )
    large_folder: str | None = _key(
        None,
        "messages.large_folder",
        values.text,
        "Folder for these files, used by this broker alone. By default they are in store.data, or without that in a "
        "temporary folder.",
        example='"large"',
    )
    max_large_octets: int = _key(
        16 * 1024 * _MIB,
        "messages.max_large_octets",
        _SIZE,
        "Bytes in all these files together. Above that, large messages are refused.",
    )
    jms: bool = _key_by_dialect(
        False,
        "messages.jms",
        boolean,
        "Whether a message sent without content-length is a text message, and is delivered without, as in Artemis.",
    )
    message_id_header: bool = _key(
        False,
        "messages.message_id_header",
        boolean,
        "Whether every message gets the header amqMessageId: STOMP and the number that the broker gave it.",
    )
    key_window: float = _key(
        3600.0,
        "idempotency.window",
        values.seconds_or_0,
        "How long the broker remembers the idempotency-key (or _AMQ_DUPL_ID) of a SEND. 0 turns this off.",
    )
    anycast_prefix: str = _key(
        "",
        "addresses.prefixes",
        values.table('{ anycast = "queue/" }', values.line, "anycast_prefix", "multicast_prefix"),
        "Prefixes, which are removed: names with that of anycast are queues, with that of multicast topics.",
        "multicast_prefix",
        example='{ anycast = "", multicast = "" }',
    )
    wildcards: str = _key_by_dialect(
        "none",
        "addresses.wildcards",
        values.wildcards,
        "Wildcards of topic subscriptions: * is one word, > (activemq) or # (rabbitmq, artemis) any number. A dot "
        'separates words, here and in addresses.settings, or a delimiter: { syntax = "artemis", delimiter = "/" }.',
        "delimiter",
        example='"none"',
    )
    address_settings: tuple[Setting, ...] = _key(
        (),
        "addresses.settings",
        values.settings,
        "Settings of names without a prefix: tables [[addresses.settings]] with match (# is any number of words, * is "
        "one), default_address_routing_type (for SEND), default_queue_routing_type (for SUBSCRIBE); for all names "
        "auto_create_addresses, auto_create_queues, auto_delete_addresses, auto_delete_queues. First match decides.",
        example='[{ match = "prices.#", default_address_routing_type = "MULTICAST" }]',
    )
    presets: tuple[Preset, ...] = _key(
        (),
        "addresses.preset",
        values.presets,
        "Queues and topics that exist from the start: tables [[addresses.preset]] with name, routing (ANYCAST or "
        "MULTICAST) and queues: the durable subscriptions of a topic, each as CLIENT-ID.NAME.",
        example='[{ name = "prices", routing = "MULTICAST", queues = ["desk.prices"] }]',
    )
    exchanges: Mapping[str, str] = _key_by_dialect(
        {},
        "addresses.exchanges",
        values.exchanges,
        "The type of each exchange in /exchange/NAME/KEY: topic, direct or fanout. With at least one, amq.topic, "
        "amq.direct, amq.fanout and /amq/queue/NAME exist as well, and orders is /queue/orders.",
        example='{ orders = "topic" }',
    )
    virtual_hosts: tuple[str, ...] | None = _key(
        None,
        "access.virtual_hosts",
        values.texts,
        "Hosts that CONNECT may name; the first is the default. By default all names mean the same host.",
        example='["/", "orders.example"]',
    )
    web_health: bool = _key(
        False,
        "web.health",
        boolean,
        "Whether GET /healthz and /readyz on listen.ws_port say if the broker is well. They need no login.",
    )
    web_metrics: bool = _key(
        False,
        "web.metrics",
        boolean,
        "Whether GET /metrics there has metrics for Prometheus, for those who may manage the broker.",
    )
    web_page: bool = _key(
        False,
        "web.page",
        boolean,
        "Whether GET / there is a page that shows and manages the broker. websocket.origins need not list its origin.",
    )
    log_frames: str = _key(
        "off",
        "log.frames",
        values.one_of("off", "heads", "all"),
        "Which frames are logged: none, all without bodies, or with their beginnings. Never a passcode.",
    )
    users: Mapping[str, User] | None = _key(
        None,
        "users",
        values.users,
        'Who may connect: a line NAME = "HASH", or a table [users.NAME] with passcode (the hash), groups and vhosts '
        "(lists). Without users, any login is accepted, or none. `stompcodec broker --hash-passcode` makes a hash.",
        example='[users.guest]\npasscode = "scrypt$16384$8$1$..."\ngroups = ["staff"]\nvhosts = ["/"]',
    )
    rules: tuple[Rule, ...] = _key(
        (),
        "rules",
        values.rules,
        "Who may do what: tables [[rules]] with who (a user, @GROUP, or *), action (send, subscribe, * for both, or "
        "manage), destination (* stands for any characters), vhost, and allow (true or false). The first match "
        "decides; what no rule allows is refused. Without rules about sending and subscribing, both are allowed. "
        "Management needs a rule with manage; without users it is open to clients of this machine.",
        example='[[rules]]\nwho = "@staff"\naction = "send"\ndestination = "/queue/orders.*"\n'
        'vhost = "*"\nallow = true',
    )

    # Set by the keys above that set several fields.
    ports: tuple[int, ...] = ()
    detect_legacy: bool = False
    trailing_lf: bool = True
    ttl_override: int = 0
    ttl_min: int = 1000
    ttl_max: int = 2**31 - 1
    ttl_modifier: float = 2.0
    window: int | None = _by_dialect(None)
    prefetch_octets: bool = _by_dialect(False)
    multicast_prefix: str = ""
    delimiter: str = ""

    # Without a key, by dialect.
    #: Intervals of the client are the answer, rounded down to a multiple of the first number, at most the second.
    mirrors: tuple[int, int] | None = _by_dialect(None)
    routing: str = _by_dialect("ANYCAST")
    routing_headers: bool = _by_dialect(True)
    composite: bool = _by_dialect(False)
    virtual_topics: bool = _by_dialect(False)
    exclusive: str = _by_dialect("consumer")
    queue_arguments: str = _by_dialect("first")
    reply_to_subscribes: bool = _by_dialect(False)
    refuse_message_id: bool = _by_dialect(False)
    nack: str = _by_dialect("requeue")
    letters: str = _by_dialect("all")
    counts_losses: bool = _by_dialect(False)
    one_address: bool = _by_dialect(False)
    priority: bool = _by_dialect(True)
    queue_prefixes: tuple[str, ...] = _by_dialect(("/queue/",))
    topic_prefixes: tuple[str, ...] = _by_dialect(("/topic/",))
    forbidden: tuple[str, str] = _by_dialect(("", ""))
    durable_queues: bool = _by_dialect(True)
    refuse_ended: bool = _by_dialect(False)
    ack_after_unsubscribe: bool = _by_dialect(False)
    nack_in_transaction: bool = _by_dialect(True)
    receipts_at_commit: bool = _by_dialect(False)
    window_overhead: int = _by_dialect(0)
    page: int = _by_dialect(0)
    utf8_texts: bool = _by_dialect(False)

    # Without a key; 0 and None are a share of the key of the whole.
    mode: int | None = None
    force_fs: bool = False
    store_free: int = 64 * _MIB
    first_limits: Limits = _FIRST_LIMITS
    ws_frame: int = 128 * _MIB
    drain_timeout: float = 5.0
    user_connections: int = 0
    address_connections: int = 0
    max_before_login: int = 0
    max_transactions: int = 100
    write_high: int = 256 * 1024
    commands: tuple[str, ...] = ("PING", "RECEIVE")
    temp_queue_prefix: str = "/temp-queue/"
    temp_topic_prefix: str = "/temp-topic/"
    max_delayed: int = 100_000
    window_octets: int | None = None
    session_destinations: int = 0
    user_destinations: int = 0
    topic_backlog: int = 100_000
    max_retained_octets: int = 64 * _MIB
    max_uploads: int = 500
    user_uploads: int = 0
    upload_timeout: float = 60.0
    upload_rate: int = 1024
    max_keys: int = 20_000
    max_transformed: int = 256 * 1024
    max_inflated: int = _MIB
    management_prefix: str = "/management/"
    web_metrics_destinations: int = 100

    def __post_init__(self) -> None:
        paths = {name: os.fspath(value) for name, value in vars(self).items() if isinstance(value, os.PathLike)}
        for name, value in (_usual(self.dialect) | paths).items():
            if name in paths or getattr(self, name) is _Unset.UNSET:
                object.__setattr__(self, name, value)  # the only way into a frozen dataclass
        check_fields(self)
        for fault, target, message in self._faults():
            if fault:
                raise ConfigError(message, key=target)

    def _faults(self) -> list[tuple[bool, str, str]]:
        ports = [self.port, *self.ports, self.ws_port, self.tls_port, self.legacy_port]
        taken = [port for port in ports if port]
        matching = values.Wildcards(values.SYNTAXES["artemis"], self.delimiter)
        origins, hosts = fault_of(self.ws_origins or (), ()), fault_of((), self.ws_hosts)
        users = self.users or {}  # if any login is accepted, anyone could use a login named in a rule
        known = {"*", *users, *("@" + group for user in users.values() for group in user.groups)}
        stranger = next((rule.who for rule in self.rules if rule.who not in known), None)
        too_long = not all(matching.words("", setting.match) for setting in self.address_settings)
        anycast = any(preset.queues and preset.routing == "ANYCAST" for preset in self.presets)
        made = sum(1 + len(preset.queues) for preset in self.presets)
        return [
            (all(port is None for port in ports), "port", "there is no port to listen on"),
            (len(set(taken)) < len(taken), "port", "two listeners cannot share a port"),
            (self.tls_port is not None and not self.tls_cert, "tls_port", "TLS needs a certificate: set tls.cert"),
            (bool(self.tls_key) and not self.tls_cert, "tls_key", "a key needs its certificate: set tls.cert"),
            (self.tls_port is None and bool(self.tls_cert), "tls_cert", "TLS needs a port: set listen.tls_port"),
            (self.tls_port is None and bool(self.tls_ca), "tls_ca", "TLS needs a port: set listen.tls_port"),
            (too_long, "address_settings", "match has at most 64 words"),
            (anycast, "presets", "queues are for MULTICAST: an ANYCAST address has one queue, with its own name"),
            (made > self.max_destinations, "presets", f"there can be {self.max_destinations}, max_destinations"),
            (origins is not None, "ws_origins", origins or ""),
            (hosts is not None, "ws_hosts", hosts or ""),
            *self._faults_of_management(),
            (self.ttl_min > self.ttl_max, "ttl", f"least cannot be above most, {self.ttl_max} ms"),
            (_unusable(self.limits), "limits", "headers times header line must be less than 4 GiB"),
            (
                self.memory < largest_frame(self.limits, self.large),
                "memory",
                f"it must be at least {largest_frame(self.limits, self.large)} bytes: the largest frame that "
                "limits.max_headers, limits.max_header_line, limits.max_body and messages.large allow has to fit",
            ),
            *self._faults_of_window(),
            (_unusable(self.first_limits), "first_limits", "headers times header line must be less than 4 GiB"),
            (self.prefetch > self.max_unacked, "prefetch", f"it cannot be above max_unacked, {self.max_unacked}"),
            (stranger is not None, "rules", f"unknown user or group {stranger!r}: add it to the users"),
        ]

    def _faults_of_window(self) -> list[tuple[bool, str, str]]:
        octets, memory = self.window_octets, self.memory
        most = max(Config.window_messages, memory // MESSAGE)
        room = f"it must be at least 1 message, and at most {most}, for which limits.memory, {memory}, has room"
        wrong = octets is not None and not 0 < octets <= memory
        return [
            (not 0 < self.window_messages <= most, "window_messages", room),
            (wrong, "window_octets", f"it must be at least 1 byte, and at most limits.memory, {memory}"),
        ]

    def _faults_of_management(self) -> list[tuple[bool, str, str]]:
        served = self.web_health or self.web_metrics or self.web_page
        prefixes = (*self.queue_prefixes, *self.topic_prefixes, self.temp_queue_prefix, self.temp_topic_prefix)
        taken = self.management_prefix.startswith(tuple(filter(None, prefixes)))
        return [
            (taken, "management_prefix", "it cannot begin with the prefix of other destinations"),
            (served and self.ws_port is None, "ws_port", "web.health, web.metrics and web.page need it: set it"),
        ]

    def replace(self, **changes: Any) -> Config:
        """Return a copy with other values, checked like a new configuration.

        Changing the dialect replaces only the defaults set by the old dialect. Without `tls_port`, no file of TLS is
        kept.

        >>> Config(retain=True).replace(dialect="activemq").replace(dialect="rabbitmq").composite
        False
        """
        if changes.get("tls_port", 0) is None:
            changes = {"tls_cert": None, "tls_key": None, "tls_ca": None} | changes
        dialect = changes.get("dialect", self.dialect)
        if dialect == self.dialect:
            return replace(self, **changes)
        before, after = _usual(self.dialect), _usual(dialect)
        usual = {name: after[name] for name in before if getattr(self, name) == before[name]}
        return replace(self, **{**usual, **changes})


def largest_frame(limits: Limits, large: int = 2**62) -> int:
    """Return the size in bytes of the largest frame, of which bodies from `large` on are stored in files."""
    head = limits.max_command_line + limits.max_headers * (limits.max_header_line + 2)
    return head + min(limits.max_body, large) + 5


def _unusable(limits: Limits) -> bool:
    try:
        checked_limits(limits)
    except ValueError:
        return True
    return False


#: Fields that a dialect may set, with their defaults for other dialects.
_PLAIN = {each.name: each.metadata["usual"] for each in fields(Config) if "usual" in each.metadata}


def _usual(dialect: str) -> dict[str, Any]:
    """Return the defaults of a dialect, for all fields that a dialect may set."""
    if dialect not in DIALECTS:
        raise ConfigError(f"{dialect!r} is not a dialect: use {', '.join(DIALECTS)}", key="dialect")
    return {**_PLAIN, **DIALECTS[dialect]}


#: All keys of a file, in the order of the documentation.
KEYS: tuple[Key, ...] = tuple(
    key._replace(target=key.target or each.name) for each in fields(Config) for key in each.metadata.get("keys", ())
)
_BY_NAME = {key.name: key for key in KEYS}


@checked
def load_config(path: str | os.PathLike[str], **over: Any) -> Config:
    """Read a configuration file.

    Args:
        path: of the TOML file. Relative paths in it are relative to its folder.
        over: fields of `Config` that take precedence over the file, before it is checked as a whole.

    Raises:
        ConfigError: the file cannot be read, or has an error; the message says where.

    >>> load_config("no/such.toml")
    Traceback (most recent call last):
        ...
    stompcodec.errors.ConfigError: no/such.toml: it cannot be read: No such file or directory
    """
    file = os.fspath(path)
    try:
        with open(file, encoding="utf-8") as stream:
            source = stream.read()
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {error.start} is not UTF-8", file=file) from error
    config = parse_config(source, file, **over)
    folder = os.path.dirname(os.path.abspath(file))
    paths = {name: getattr(config, name) for name in ("data", "large_folder", "tls_cert", "tls_key", "tls_ca")}
    return config.replace(**{name: os.path.join(folder, value) for name, value in paths.items() if value})


def parse_config(source: str, file: str = "", **over: Any) -> Config:
    """Parse the text of a file. Relative paths are kept. `over` are fields that take precedence; with `tls_cert`, the
    default of `tls_port` is 61614. Its errors are those of `load_config`.

    >>> parse_config("[listen]\\nport = 0").port
    0
    >>> parse_config("[listen]\\n\\nhost = 1", "broker.toml")
    Traceback (most recent call last):
        ...
    stompcodec.errors.ConfigError: broker.toml, line 3: listen.host: it must be a text without control characters, \
and not empty
    """
    _usual(over.get("dialect", "stompcodec"))  # else the error would name the file
    changes = dict(over)
    for name, value in sorted(_leaves(_parse_toml(source, file)), key=lambda leaf: leaf[0] != "broker.dialect"):
        _put(changes, name, value, source, file)
        changes = changes | over  # its dialect, too, before the limits
    if over.get("tls_cert") and changes.get("tls_port") is None:
        changes["tls_port"] = 61614
    try:
        return Config(**changes)
    except ConfigError as error:
        names = [key.name for key in KEYS if error.key in (key.target.split(".")[0], *key.also)] or [error.key]
        name = names[0].rpartition(".")[0] if len(names) > 1 else names[0]
        message = str(error).removeprefix(f"{error.key}: ")
        raise ConfigError(message, file=file, line=_line_of(source, name), key=name) from None


def _parse_toml(source: str, file: str) -> dict[str, Any]:
    import tomllib  # only a broker with a file needs it

    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else source.rstrip().count("\n") + 1  # at the end
        raise ConfigError(f"it is not valid TOML: {error}", file=file, line=line) from None


def _leaves(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a file and their values, descending into tables."""
    for key, value in table.items():
        name = above + key
        if name not in _BY_NAME and isinstance(value, dict) and _is_table(name):
            yield from _leaves(value, name + ".")
        else:
            yield name, value


def _is_table(name: str) -> bool:
    return any(key.startswith(name + ".") for key in _BY_NAME)


def read_fields(given: Mapping[str, Any], base: Config | None = None) -> dict[str, Any]:
    """Return fields of `Config`, to replace those of `base`. Names are those of fields, or of keys, without their table
    if no other field has that name; values those of a file, or of fields. Fields win over what keys set beside them.
    Raise ConfigError for a value that a file may not have.

    >>> read_fields({"max_messages": 9, "login_timeout": "2m", "heart_beat": (0, 0)})
    {'max_queue_messages': 9, 'login_timeout': 120.0, 'heart_beat': (0, 0)}
    """
    keys: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, value in given.items():
        key = _key_called(name)
        if key is None or not _is_of_file(value):
            plain[key.target if key else name] = value
        else:
            is_millis = name == "ttl" and type(value) in (int, float)  # the field's unit; a file's is seconds
            keys[key.name] = value / 1000 if is_millis else value
    changes = {"limits": plain.pop("limits")} if "limits" in plain else {}
    for name, value in sorted(keys.items(), key=lambda pair: pair[0] != "broker.dialect"):
        _put(changes, name, value, base=base)
    return changes | plain


def _key_called(name: str) -> Key | None:
    """Return the key of a name in full, of its only field, or without the table; None if the name is another field."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    is_field = name in Config.__dataclass_fields__
    found = [key for key in KEYS if name == key.name.rpartition(".")[2] or (name == key.target and not key.also)]
    return next((key for key in found if name == key.target or not is_field), None)


def _is_of_file(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_is_of_file, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int | float)


def _put(
    changes: dict[str, Any], name: str, value: Any, source: str = "", file: str = "", base: Config | None = None
) -> None:
    try:
        if name not in _BY_NAME:
            raise ValueError(_unknown(name))
        key = _BY_NAME[name]
        value = key.read(value)
    except ValueError as error:
        where = f"{name}.{error.name}" if isinstance(error, values.NestedError) else name
        raise ConfigError(str(error), file=file, line=_line_of(source, where), key=where) from None
    field, _, part = key.target.partition(".")
    if part:
        base = base or Config()
        before, after = (_usual(dialect)[field] for dialect in (base.dialect, changes.get("dialect", base.dialect)))
        kept = getattr(base, field)
        value = changes.get(field, after if kept == before else kept)._replace(**{part: value})
    changes.update(value if isinstance(value, values.Several) else {field: value})


def _unknown(name: str) -> str:
    if _is_table(name):
        return f"it must be a table: write [{name}] on a line of its own, and its keys below"
    table, _, last = name.rpartition(".")
    close = next((key for key in _BY_NAME if key.endswith("." + last)), None) or meant(name, _BY_NAME)
    beside = [key.rpartition(".")[2] for key in _BY_NAME if key.rpartition(".")[0] == table]
    tables = list(dict.fromkeys(key.partition(".")[0] for key in _BY_NAME))
    hint = f"; did you mean {close}?" if close else "."
    return f"unknown key{hint} Allowed here: " + ", ".join(beside if table and beside else tables)


def _line_of(source: str, name: str) -> int | None:
    """Return the line, from 1, of a key's value, as well as it can be found without a TOML parser of our own."""
    best, length, inside = None, 0, None
    for number, here in _places(source):
        if (name == here or name.startswith(here + ".")) and len(here) > length:
            best, length = number, len(here)
        if inside is None and here.startswith(name + "."):
            inside = number
    return best or inside


def _places(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin a table or a key, with its name; tables of a list are numbered from 0."""
    table = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(source.splitlines(), 1):
        head = re.match(r"\s*(\[\[?)([^\]]+)\]", line)
        pair = re.match(r"\s*([\w.\"' -]+?)\s*=", line)
        if head:
            table = _plain(head[2])
            if head[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}.{counts[table]}"
            yield number, table
        elif pair:
            yield number, f"{table}.{_plain(pair[1])}".lstrip(".")


def _plain(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def explain() -> str:
    """Return every key with its default and meaning, as a usable configuration file.

    >>> explain().splitlines()[2:5]
    ['[listen]', '# Address to listen on. 0.0.0.0 or :: opens the broker to the network.', '# host = "127.0.0.1"']
    """
    import textwrap

    lines, table = (["# Configuration of `stompcodec broker`. A line after # shows a default, or an example."], "")
    for key in KEYS:
        above, _, name = key.name.rpartition(".")
        if not above:  # users and rules
            lines += ["", *textwrap.wrap(key.doc, 118, initial_indent="# ", subsequent_indent="# ")]
            lines += [f"# {line}" for line in key.example.splitlines()]
            continue
        if above != table:
            lines += ["", f"[{above}]"]
            table = above
        lines += textwrap.wrap(key.doc, 118, initial_indent="# ", subsequent_indent="# ")
        lines.append(f"# {name} = {key.example or _toml(key.default, key.read)}")
    return "\n".join(lines) + "\n"


def page_of(page: str) -> str:
    """Return docs/broker.md with the keys of now, between the head of its configuration and the values without a key.

    >>> page_of("## Keys\\n\\n### `[old]`\\n\\n### Values without a key\\n").splitlines()[2]
    '### `[listen]`'
    """
    lines, table = [page[: page.index("\n\n### `[")]], ""
    for key in KEYS:
        above, _, name = key.name.rpartition(".")
        if above != table or not above:
            title = f"[{above}]" if above else f"[{name}]" if name == "users" else f"[[{name}]]"
            lines += ["", f"### `{title}`", ""]
        if not above:
            lines.append(key.doc)
        else:
            default = key.example if key.also else _toml(key.default, key.read)
            default = "" if key.default is None and not key.also else f" = {default}"
            lines.append(f"- `{name}{default}`: {key.doc}")
        table = above
    return "\n".join([*lines, page[page.index("\n### Values without a key") :]])


def _toml(value: Any, read: Any = None) -> str:
    if read in (values.seconds, values.seconds_or_0):
        return f'"{shown_duration(value)}"'
    if read is values.millis:
        return f'"{shown_duration(value / 1000)}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | values.Pauses):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    text = shown_size(value) if type(value) is int else str(value)
    return text if text == str(value) else f'"{text}"'
