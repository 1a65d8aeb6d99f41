"""The broker's configuration: one frozen dataclass, whose fields are the table of keys. `file.py` reads a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, NamedTuple, TypeVar, cast

from stompcodec.broker.auth import Rule, User, fault_of
from stompcodec.broker.config import settings as values
from stompcodec.broker.config.settings import EXCHANGES, Pauses, Preset, Setting
from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import MESSAGE
from stompcodec.errors import ConfigError
from stompcodec.spec import DEFAULT_LIMITS, Limits, checked_limits
from stompcodec.states import parse_heart_beat

_MIB = 2**20
#: Limits before login, when a client needs to send little more than a CONNECT frame.
_FIRST_LIMITS = Limits(max_command_line=64, max_header_line=8192, max_headers=100, max_body=65536)
#: By default, six attempts take 3.1 s.
_PAUSES = Pauses(0.1, 2.0, 30.0)
_COUNT = values.whole(1, 2**40)
_SIZE = values.octets()
_T = TypeVar("_T")

#: Values by dialect and field of `Config`.
DIALECTS: Mapping[str, Mapping[str, Any]] = {
    "stompcodec": {},
    "rabbitmq": {
        "redelivery_delay": Pauses(),
        "durable": "persistent",
        "wildcards": "rabbitmq",
        "exchanges": EXCHANGES,
        "exclusive": "session",
        "reply_to_subscribes": True,
        "refuse_message_id": True,
        "same_client": "allow",
        "routing_headers": False,
        "prefetch": 100_000,
        "heart_beat": (1000, 1000),
        "heart_beat_answer": "seconds",
        "queue_arguments": "refuse",
    },
    "activemq": {
        "redelivery_delay": Pauses(),
        "durable": "persistent",
        "wildcards": "activemq",
        "composite": True,
        "virtual_topics": True,
        "routing_headers": False,
        "prefetch": 1000,
        # ActiveMQ offers heart-beats every millisecond on request; we offer at least 100 ms.
        "heart_beat": (100, 100),
        "heart_beat_answer": "mirror",
        "queue_arguments": "ignore",
    },
    "artemis": {
        "redelivery_delay": Pauses(),
        "durable": "persistent",
        "wildcards": "artemis",
        "routing": "MULTICAST",
        "transactional_acks": False,
        "prefetch_octets": True,
        "window": 10_240,
        "ttl": 60_000,
        "queue_arguments": "ignore",
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
    """Declare a field with its key."""
    entry = Key(name, read, doc, usual, also=also, example=example)
    return field(default=usual, repr=name != "users", metadata={"keys": (entry,)})


def _key_by_dialect(usual: _T, name: str, read: Callable[[Any], Any], doc: str, *also: str, example: str = "") -> _T:
    """Declare a field with its key, whose default depends on the dialect."""
    entry = Key(name, read, doc, usual, also=also, example=example)
    return cast("_T", field(default=_Unset.UNSET, metadata={"usual": usual, "keys": (entry,)}))


def _limit(part: str, read: Callable[[Any], Any], doc: str) -> Key:
    return Key(f"limits.{part}", read, doc, getattr(DEFAULT_LIMITS, part), f"limits.{part}")


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
        "Where the older worker dialect is accepted: true on the other ports, which recognize it by its CONNECT "
        "or a command not in upper case; or a port for this dialect only.",
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
        values.origins,
        "Pages that may use the broker over WebSocket, by origin: scheme, host and port; port `*` is any. By "
        "default, those of localhost and loopback addresses if the broker listens on loopback only, otherwise "
        "none. Programs send no Origin.",
        example='["https://app.example", "http://localhost:*"]',
    )
    ws_hosts: tuple[str, ...] = _key(
        (),
        "websocket.hosts",
        values.hosts,
        "Names and addresses by which WebSocket clients reach the broker, without ports. listen.host is always "
        "accepted; localhost, loopback addresses and the local address of the connection unless a proxy passed it "
        "on.",
        example='["broker.example"]',
    )
    data: str | None = _key(
        None,
        "store.data",
        values.text,
        "Folder for durable messages and subscriptions. Without it nothing is stored, but `stompcodec broker` "
        "uses ./stompcodec-data, unless --memory is given or store.durable is none.",
        example='"stompcodec-data"',
    )
    group: str | None = _key(
        None,
        "store.group",
        values.text,
        "Group that may read the files that hold messages, a name or a number, of which the broker's user is a "
        "member. Without it, only that user can, regardless of the umask.",
        example='"stomp"',
    )
    durable: str = _key_by_dialect(
        "all",
        "store.durable",
        values.one_of("persistent", "all", "none"),
        "Which messages are stored: all of queues but those with persistent:false, and those of topics with "
        "persistent:true; or persistent, those with persistent:true only, the default of other dialects; or none.",
    )
    dialect: str = _key(
        "stompcodec",
        "broker.dialect",
        values.one_of(*DIALECTS),
        "The broker to imitate. It changes other defaults, see docs/broker-extensions.md.",
    )
    memory: int = _key(
        1024 * _MIB,
        "limits.memory",
        _SIZE,
        "Memory for everything that clients make the broker keep: messages, unfinished frames, transactions, "
        "output, subscriptions, destinations. When it runs short, senders to the largest queues wait, and the "
        "sessions that hold most are ended.",
    )
    limits: Limits = field(
        default=DEFAULT_LIMITS,
        metadata={
            "keys": (
                _limit("max_header_line", _SIZE, "Longest header line, in bytes; before CONNECTED was sent, 8 KiB."),
                _limit("max_headers", values.whole(1, 100_000), "Most headers of a frame; before CONNECTED, 100."),
                _limit("max_body", values.octets(0), "Largest body, in bytes; before CONNECTED, 64 KiB."),
            )
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
        "Silence after which a client without heart-beats is disconnected: the connection TTL of Artemis. With "
        'heart-beats it is their interval times factor, within least and most. A text such as "60s" sets '
        "usual only. override is used if usual is 0; if both are 0, these rules are off.",
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
        "Connections at one time, at most those that ulimit -n allows. One of several users may have half of "
        "them, one address three quarters, unless it is loopback; and a quarter may wait for their login.",
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
        "sessions.version_header",
        values.flag,
        "Whether a CONNECT without accept-version may name its highest version in the header version, as the "
        "wish-list for 1.1 proposed. Otherwise it gets 1.0.",
    )
    transactional_acks: bool = _key_by_dialect(
        True, "sessions.transactional_acks", values.flag, "Whether ACK and NACK obey transactions."
    )
    same_client: str = _key_by_dialect(
        "refuse",
        "sessions.same_client",
        values.one_of("refuse", "replace", "allow"),
        "What happens to a CONNECT with the client-id of another session: it is refused, it ends the other session, "
        "or both stay.",
    )
    prefetch: int = _key_by_dialect(
        100,
        "queues.prefetch",
        values.prefetch,
        "What a subscription may have unacknowledged unless it sets its own limit: messages, or bytes as in "
        'Artemis, such as "10KiB". Bytes count with acknowledgements, and "0B" is one message at a time; '
        "activemq.prefetchSize then counts bytes, too.",
        "window",
        "prefetch_octets",
        example="100",
    )
    max_attempts: int = _key(
        6, "queues.max_attempts", _COUNT, "Deliveries of a message before it becomes a dead letter."
    )
    redelivery_delay: Pauses = _key_by_dialect(  # noqa: RUF009 (it cannot be changed)
        _PAUSES,
        "queues.redelivery_delay",
        values.pauses,
        "Pause before a message is delivered again after a NACK: the first, the factor of the next ones, and the "
        "longest. 0s is none.",
    )
    dead_letter: str = _key(
        "/queue/DLQ.{name}",
        "queues.dead_letter",
        values.dead_letter,
        "Where dead letters go; {name} is the queue's name.",
    )
    dead_letter_expired: bool = _key(
        False, "queues.dead_letter_expired", values.flag, "Whether expired messages go there, too."
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
        "Messages of a queue in memory, at most those of 4 MiB or a 16th of limits.memory. Later persistent ones "
        "stay in the store until their turn comes.",
    )
    transient: str = _key(
        "stop",
        "queues.transient",
        values.one_of("stop", "spool"),
        "What messages that are not persistent do where a queue is full: stop their senders; or spool, where they "
        "wait in the store until their turn comes, and a restart drops them.",
    )
    max_destinations: int = _key(
        10_000,
        "queues.max_destinations",
        _COUNT,
        "Queues, topics and durable subscriptions at one time. One session may create half of them, and so may the "
        "sessions of one user together; without users, those of one address three quarters.",
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
        "What happens beyond that: the subscriber is sent an ERROR, its oldest messages are dropped, or senders wait.",
    )
    retain: bool = _key_by_dialect(
        False,
        "topics.retain",
        values.flag,
        "Whether the header retain of SEND, set or remove, has an effect. All retained messages together have 64 MiB.",
    )
    durable_overflow: str = _key(
        "block",
        "topics.durable_overflow",
        values.one_of("block", "drop"),
        "What happens when the queue of a durable subscription is full: senders wait, or its oldest messages are "
        "dropped.",
    )
    large: int = _key(
        102_400, "messages.large", _SIZE, "Bodies of at least this many bytes are kept in files, not in memory."
    )
    large_folder: str | None = _key(
        None,
        "messages.large_folder",
        values.text,
        "Folder for these files, used by this broker alone, which refuses an unmarked one with foreign files. By "
        "default they are in store.data, or without that in a temporary folder.",
        example='"large"',
    )
    max_large_octets: int = _key(
        16 * 1024 * _MIB,
        "messages.max_large_octets",
        _SIZE,
        "Bytes in all these files together. Above that, large messages are refused.",
    )
    jms: bool = _key(
        False,
        "messages.jms",
        values.flag,
        "Whether a message sent without content-length is a text message, and is delivered without, as in Artemis.",
    )
    message_id_header: bool = _key(
        False,
        "messages.message_id_header",
        values.flag,
        "Whether every message gets the header amqMessageId: STOMP and the number that the broker gave it.",
    )
    key_window: float = _key(
        3600.0,
        "idempotency.window",
        values.seconds_or_0,
        "How long the broker remembers the idempotency-key (or _AMQ_DUPL_ID) of a SEND. A second SEND with the "
        "same key gets its RECEIPT but is not stored. 0 turns this off.",
    )
    anycast_prefix: str = _key(
        "",
        "addresses.prefixes",
        values.prefixes,
        "Destinations with the prefix anycast are queues, and those with the prefix multicast are topics. The prefix "
        "is removed.",
        "multicast_prefix",
        example='{ anycast = "", multicast = "" }',
    )
    wildcards: str = _key_by_dialect(
        "none",
        "addresses.wildcards",
        values.wildcards,
        "The wildcards of topic subscriptions: * is one word; any number of words is > (activemq) or # (rabbitmq, "
        "artemis). A dot separates words, in addresses.settings, too; a table sets another delimiter: "
        '{ syntax = "artemis", delimiter = "/" }.',
        "delimiter",
        example='"none"',
    )
    address_settings: tuple[Setting, ...] = _key(
        (),
        "addresses.settings",
        values.settings,
        "Settings of names without a prefix: tables [[addresses.settings]] with match (# is any number of words, * is "
        "one), default_address_routing_type (for SEND), default_queue_routing_type (for SUBSCRIBE), "
        "auto_create_addresses, auto_create_queues, auto_delete_addresses and auto_delete_queues (true or false; they "
        "apply to all names). The first match decides.",
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
        "amq.direct, amq.fanout and /amq/queue/NAME exist as well, and a destination without a prefix, such as "
        "orders, is /queue/orders.",
        example='{ orders = "topic" }',
    )
    virtual_hosts: tuple[str, ...] | None = _key(
        None,
        "access.virtual_hosts",
        values.texts,
        "Hosts that CONNECT may name; the first is the default. By default any name is accepted, and all mean the "
        "same host.",
        example='["/", "orders.example"]',
    )
    web_health: bool = _key(
        False,
        "web.health",
        values.flag,
        "Whether GET /healthz and /readyz on listen.ws_port say if the broker is well. They need no login.",
    )
    web_metrics: bool = _key(
        False,
        "web.metrics",
        values.flag,
        "Whether GET /metrics on listen.ws_port has metrics for Prometheus, for those who may manage the broker. "
        "It needs the extra metrics.",
    )
    web_page: bool = _key(
        False,
        "web.page",
        values.flag,
        "Whether GET / on listen.ws_port is a page that shows and manages the broker. Its origin counts as listed in "
        "websocket.origins.",
    )
    log_frames: str = _key(
        "off",
        "log.frames",
        values.one_of("off", "heads", "all"),
        "Which frames are logged, with session and address: none, all without their bodies, or all with the "
        "beginnings of bodies. Never a passcode.",
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
        "decides; anything that no rule allows is refused. Without rules about sending and subscribing, both are "
        "allowed. "
        "Management needs a rule with manage; without users it is open to clients of this machine.",
        example='[[rules]]\nwho = "@staff"\naction = "send"\ndestination = "/queue/orders.*"\n'
        'vhost = "*"\nallow = true',
    )

    # Set by the keys above that set several fields.
    ports: tuple[int, ...] = ()
    detect_legacy: bool = False
    ttl_override: int = 0
    ttl_min: int = 1000
    ttl_max: int = 2**31 - 1
    ttl_modifier: float = 2.0
    window: int | None = _by_dialect(None)
    prefetch_octets: bool = _by_dialect(False)
    multicast_prefix: str = ""
    delimiter: str = ""

    # Without a key, by dialect.
    heart_beat_answer: str = _by_dialect("own")
    routing: str = _by_dialect("ANYCAST")
    routing_headers: bool = _by_dialect(True)
    composite: bool = _by_dialect(False)
    virtual_topics: bool = _by_dialect(False)
    exclusive: str = _by_dialect("consumer")
    queue_arguments: str = _by_dialect("first")
    reply_to_subscribes: bool = _by_dialect(False)
    refuse_message_id: bool = _by_dialect(False)

    # Without a key; 0 and None are a share of the key of the whole.
    mode: int | None = None
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
    queue_prefixes: tuple[str, ...] = ("/queue/",)
    temp_queue_prefix: str = "/temp-queue/"
    priority: bool = True
    max_delayed: int = 100_000
    window_octets: int | None = None
    session_destinations: int = 0
    user_destinations: int = 0
    topic_prefixes: tuple[str, ...] = ("/topic/",)
    temp_topic_prefix: str = "/temp-topic/"
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
        for name, value in _usual(self.dialect).items():
            if getattr(self, name) is _Unset.UNSET:
                object.__setattr__(self, name, value)  # the only way into a frozen dataclass
        for fault, target, message in self._faults():
            if fault:
                raise ConfigError(message, key=target)

    def _faults(self) -> list[tuple[bool, str, str]]:
        ports = [self.port, *self.ports, self.ws_port, self.tls_port, self.legacy_port]
        taken = [port for port in ports if port]
        strangers = [rule.who for rule in self.rules if not self._knows(rule.who)]
        return [
            (all(port is None for port in ports), "port", "there is no port to listen on"),
            (len(set(taken)) < len(taken), "port", "two listeners cannot share a port"),
            (self.tls_port is not None and not self.tls_cert, "tls_port", "TLS needs a certificate, and its key"),
            (bool(self.tls_key) and not self.tls_cert, "tls_key", "a key needs its certificate, tls_cert"),
            (
                not all(setting.is_usable(self.delimiter) for setting in self.address_settings),
                "address_settings",
                "match has at most 64 words",
            ),
            (
                any(preset.queues and preset.routing == "ANYCAST" for preset in self.presets),
                "presets",
                "queues are for MULTICAST: an ANYCAST address has one queue, with its own name",
            ),
            (
                sum(1 + len(preset.queues) for preset in self.presets) > self.max_destinations,
                "presets",
                f"they cannot be more than max_destinations, {self.max_destinations}",
            ),
            *(
                (fault is not None, field, fault or "")
                for field, fault in (
                    ("ws_origins", fault_of(self.ws_origins or (), ())),
                    ("ws_hosts", fault_of((), self.ws_hosts)),
                )
            ),
            *self._faults_of_management(),
            (self.ttl_min > self.ttl_max, "ttl", f"least cannot be above most, {self.ttl_max} ms"),
            (_unusable(self.limits), "limits", "headers times header line must be less than 4 GiB"),
            (
                self.memory < _largest(self.limits, self.large),
                "memory",
                f"it must be at least {_largest(self.limits, self.large)} bytes: the largest frame that "
                "limits.max_headers, limits.max_header_line, limits.max_body and messages.large allow has to fit",
            ),
            *self._faults_of_window(),
            (_unusable(self.first_limits), "first_limits", "headers times header line must be less than 4 GiB"),
            (self.prefetch > self.max_unacked, "prefetch", f"it cannot be above max_unacked, {self.max_unacked}"),
            (
                bool(strangers),
                "rules",
                f"unknown user or group {strangers[0] if strangers else ''!r}: add it to the users",
            ),
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

    def _knows(self, who: str) -> bool:
        users = self.users or {}  # if any login is accepted, anyone could use a login named in a rule
        return who == "*" or who in users or any(who == "@" + group for user in users.values() for group in user.groups)

    def replace(self, **changes: Any) -> Config:
        """Return a copy with other values, checked like a new configuration.

        Changing the dialect replaces only the defaults set by the old dialect.

        >>> Config(retain=True).replace(dialect="activemq").replace(dialect="rabbitmq").composite
        False
        """
        dialect = changes.get("dialect", self.dialect)
        if dialect == self.dialect:
            return replace(self, **changes)
        before, after = _usual(self.dialect), _usual(dialect)
        usual = {name: after[name] for name in before if getattr(self, name) == before[name]}
        return replace(self, **{**usual, **changes})


def _largest(limits: Limits, large: int) -> int:
    """Return the size in bytes of the largest frame kept in memory; larger bodies are stored in files."""
    head = limits.max_command_line + limits.max_headers * (limits.max_header_line + 2)
    return head + min(limits.max_body, large) + 4


def _unusable(limits: Limits) -> bool:
    try:
        checked_limits(limits)
    except ValueError:
        return True
    return False


def _defaults(dialect: str) -> Mapping[str, Any]:
    if dialect not in DIALECTS:
        raise ConfigError(f"{dialect!r} is not a dialect: use {', '.join(DIALECTS)}", key="dialect")
    return DIALECTS[dialect]


#: Fields that a dialect may set, with their defaults for other dialects.
_PLAIN = {each.name: each.metadata["usual"] for each in fields(Config) if "usual" in each.metadata}


def _usual(dialect: str) -> dict[str, Any]:
    """Return the defaults of a dialect, for all fields that a dialect may set."""
    return {**_PLAIN, **_defaults(dialect)}


#: All keys of a file, in the order of the documentation.
KEYS: tuple[Key, ...] = tuple(
    key._replace(target=key.target or each.name) for each in fields(Config) for key in each.metadata.get("keys", ())
)


class Mirror(NamedTuple):
    """An answer derived from the client's own intervals, in milliseconds."""

    unit: int
    """Intervals are rounded down to a multiple of this."""
    most: int | None
    """Larger intervals are refused; None for no limit."""


#: Answers by the value of `Config.heart_beat_answer`. None sends `sessions.heart_beat`, whatever the client offers.
ANSWERS: Mapping[str, Mirror | None] = {
    "own": None,
    "mirror": Mirror(unit=1, most=2**63 - 1),
    "seconds": Mirror(unit=1000, most=None),
}


def answer(config: Config, version: str, heart_beat: str | None) -> tuple[int, int] | None:
    """Return the heart-beat header of CONNECTED, in ms, or None to send `sessions.heart_beat`.

    Mirrored intervals are at least those of `sessions.heart_beat`, except that 0 on either side stays 0. Raise Refused
    if an interval is longer than brokers of this dialect accept.

    >>> answer(Config(heart_beat_answer="seconds", heart_beat=(1000, 1000)), "1.2", "200,2500")
    (2000, 1000)
    """
    mirror = ANSWERS[config.heart_beat_answer]
    if mirror is None or version not in ("1.1", "1.2"):
        return None
    sends, wants = (0, 0) if heart_beat is None else parse_heart_beat(heart_beat)
    if mirror.most is not None and max(sends, wants) > mirror.most:
        raise Refused("bad heart-beat", f"An interval has at most {mirror.most} milliseconds.")
    can_send, wishes = config.heart_beat
    return _met(wants, can_send, mirror.unit), _met(sends, wishes, mirror.unit)


def _met(asked: int, least: int, unit: int) -> int:
    return max(asked // unit * unit, least) if asked and least else 0
