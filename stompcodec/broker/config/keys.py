"""The keys of a configuration file, each with its field, its allowed values and its documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stompcodec.broker.config import readers as values
from stompcodec.broker.config.config import Config
from stompcodec.broker.config.heart_beats import ANSWERS
from stompcodec.broker.config.presets import DIALECTS
from stompcodec.broker.config.settings import ARGUMENTS, ROUTING
from stompcodec.broker.wildcards import SYNTAXES
from stompcodec.disk import mode_of


class Key(NamedTuple):
    """A key of the file."""

    name: str
    """With dots, as in `limits.max_body`."""
    read: Callable[[Any], Any]
    """Converts a TOML value; raises ValueError if it is not allowed."""
    doc: str
    field: str = ""
    """The field that it sets, unless that has the last part of the name."""

    @property
    def target(self) -> str:
        """The field of `Config` that it sets, if needed with a field of `Limits` after a dot."""
        return self.field or self.name.rpartition(".")[2]

    @property
    def default(self) -> Any:
        """The value without an entry in the file."""
        value: Any = _DEFAULTS
        for part in self.target.split("."):
            value = getattr(value, part)
        return value


def _limits(table: str, target: str, when: str) -> list[Key]:
    size, count = values.octets(), values.whole(1, 100_000)
    return [
        Key(f"{table}.max_command_line", size, f"Longest command line {when}, in bytes.", f"{target}.max_command_line"),
        Key(f"{table}.max_header_line", size, f"Longest header line {when}, in bytes.", f"{target}.max_header_line"),
        Key(f"{table}.max_headers", count, f"Most headers of a frame {when}.", f"{target}.max_headers"),
        Key(f"{table}.max_body", values.octets(0), f"Largest body {when}, in bytes.", f"{target}.max_body"),
    ]


_DEFAULTS = Config()
_COUNT = values.whole(1, 2**40)
_COUNT_OR_0 = values.whole(0, 2**40)
_SIZE = values.octets()
_ROUTING = values.one_of(*ROUTING)
_DURABLE = values.one_of("persistent", "all", "none")
_SLOW = values.one_of("disconnect", "drop", "block")
_TRANSIENT = values.one_of("stop", "spool")

#: All keys of a file, in the order of the documentation.
KEYS: tuple[Key, ...] = (
    Key("listen.host", values.text, "Address to listen on. 0.0.0.0 or :: opens the broker to the network."),
    Key("listen.port", values.port, "Port of plain STOMP. 0 picks a free one, false disables it."),
    Key("listen.ports", values.ports, "Further ports of plain STOMP, for instance [61616]."),
    Key("listen.ws_port", values.port, "Port of STOMP over WebSocket, on any path."),
    Key("listen.tls_port", values.port, "Port of STOMP over TLS. It needs tls.cert."),
    Key("listen.legacy_port", values.port, "Port of the older worker dialect only."),
    Key(
        "listen.detect_legacy",
        values.flag,
        "Whether the other ports also accept the older worker dialect. They recognize it by a CONNECT with username "
        "but without login and accept-version, or by a command that is not in upper case.",
    ),
    Key("tls.cert", values.text, "File of the certificate and its chain, PEM.", "tls_cert"),
    Key(
        "tls.key",
        values.text,
        "File of the private key, PEM, unless the file of the certificate contains it.",
        "tls_key",
    ),
    Key(
        "tls.ca",
        values.text,
        "File of certificate authorities, PEM. With it, clients must present a certificate.",
        "tls_ca",
    ),
    Key(
        "websocket.origins",
        values.origins,
        "Pages that may use the broker over WebSocket, by origin: scheme, host and port; port `*` is any. By default, "
        "those of localhost and of loopback addresses if the broker listens on loopback only, otherwise none. "
        "Programs that send no Origin need no entry.",
        "ws_origins",
    ),
    Key(
        "websocket.hosts",
        values.hosts,
        "Names and addresses by which WebSocket clients reach the broker, without ports. listen.host, localhost, "
        "loopback addresses, and the local address of the connection are always accepted; behind a proxy, only these "
        "entries and listen.host are.",
        "ws_hosts",
    ),
    Key(
        "store.data",
        values.text,
        "Folder for durable messages and subscriptions. Without it nothing is stored, but `stompcodec broker` then "
        "uses ./stompcodec-data, unless --memory is given or store.durable is none.",
    ),
    Key(
        "store.mode",
        mode_of,
        'Permissions of the files that hold messages, as an octal text such as "0640", regardless of the umask. New '
        "folders can be entered by those who may read. Default: 0600, or 0640 with store.group.",
    ),
    Key(
        "store.group",
        values.text,
        "Group of these files and folders, a name or a number. The broker's user must be a member.",
    ),
    Key(
        "store.durable",
        _DURABLE,
        "Which messages are stored: all of queues except those with persistent:false, and those of topics with "
        "persistent:true; or persistent, those with persistent:true only, the default of other dialects; or none.",
    ),
    Key(
        "store.free",
        values.octets(0),
        "Least free space on the disk of store.data, in bytes. Below that, messages to be stored are refused, while "
        "acknowledgements continue. 0 disables the check.",
        "store_free",
    ),
    Key(
        "broker.dialect",
        values.one_of(*DIALECTS),
        "The broker to imitate. It changes the defaults of other keys, see docs/broker-extensions.md.",
    ),
    Key(
        "limits.memory",
        _SIZE,
        "Memory for everything that clients make the broker keep, in bytes: messages, unfinished frames, "
        "transactions, output, subscriptions, destinations. When it runs short, senders to the largest queues wait, "
        "and the sessions that hold most in unfinished frames and transactions are ended.",
    ),
    *_limits("limits", "limits", "of a client that has connected"),
    Key("limits.ws_frame", _SIZE, "Longest frame of WebSocket; a message may have many of them."),
    *_limits("limits.before_login", "first_limits", "before CONNECTED was sent"),
    Key(
        "sessions.heart_beat",
        values.heart_beat,
        "How often the broker can send heart-beats, and how often it wants them, in milliseconds; 0 is never.",
    ),
    Key(
        "sessions.heart_beat_answer",
        values.one_of(*ANSWERS),
        "What CONNECTED answers to the heart-beats that a client offers: heart_beat itself (own), the client's own "
        "intervals (mirror, as ActiveMQ does), or those in whole seconds (seconds, as RabbitMQ does). A mirrored "
        "interval is never below heart_beat.",
    ),
    Key(
        "sessions.ttl",
        values.millis,
        "Silence after which a client without heart-beats is disconnected: the connection TTL of "
        "Artemis. For a client with heart-beats it is its own interval times ttl_modifier. 0 disables these rules.",
    ),
    Key("sessions.ttl_override", values.millis, "Like ttl, but used if ttl is 0; 0 for none."),
    Key("sessions.ttl_min", values.millis, "Least TTL of a client with heart-beats."),
    Key("sessions.ttl_max", values.millis, "Greatest TTL of a client with heart-beats."),
    Key("sessions.ttl_modifier", values.factor, "How many of its intervals make the TTL of a client."),
    Key("sessions.login_timeout", values.seconds, "Time that a new connection has for its CONNECT."),
    Key("sessions.drain_timeout", values.seconds, "Time that sessions have when the broker stops."),
    Key("sessions.max_connections", _COUNT, "Connections at one time, at most those that ulimit -n allows."),
    Key(
        "sessions.user_connections",
        _COUNT_OR_0,
        "How many of them one user may have; 0 for half of max_connections, or for all if there is only one user.",
    ),
    Key(
        "sessions.address_connections",
        _COUNT_OR_0,
        "How many of them one address may have, IPv6 by its /64; 0 for three quarters of max_connections, or for all "
        "on loopback. The address is that of the TCP connection, so behind a proxy that of the proxy.",
    ),
    Key(
        "sessions.max_before_login",
        _COUNT_OR_0,
        "How many connections may be waiting for their login; 0 for a quarter of max_connections. Above that, the "
        "oldest one of the address with most of them is closed; also for a new one that finds no room otherwise.",
    ),
    Key("sessions.max_subscriptions", _COUNT, "Subscriptions of a session."),
    Key("sessions.max_unacked", _COUNT, "Unacknowledged messages of a session, over all subscriptions."),
    Key(
        "sessions.window",
        values.window,
        "Unacknowledged bytes of a subscription that does not set its own limit, in client and client-individual "
        "mode: 0 for one message at a time, -1 for no limit, false to use queues.prefetch instead.",
    ),
    Key("sessions.max_transactions", _COUNT, "Open transactions of a session."),
    Key("sessions.max_transaction_octets", _SIZE, "Bytes that the open transactions of a session may hold together."),
    Key(
        "sessions.write_high",
        _SIZE,
        "Bytes that may wait to be written to a client. Above that, it gets no more messages until they are written.",
    ),
    Key(
        "sessions.commands",
        values.some_of("PING", "RECEIVE"),
        "Which commands of the wish-list for 1.1 a client may use: PING, RECEIVE, both, or none ([]).",
    ),
    Key(
        "sessions.version_header",
        values.flag,
        "Whether a CONNECT without accept-version may name its highest version in the header version, as the "
        "wish-list for 1.1 proposed. Otherwise it gets 1.0.",
    ),
    Key("sessions.transactional_acks", values.flag, "Whether ACK and NACK obey transactions."),
    Key(
        "sessions.same_client",
        values.one_of("refuse", "replace", "allow"),
        "What happens to a CONNECT with the client-id of another session: it is refused, it ends the other session, "
        "or both stay.",
    ),
    Key(
        "queues.prefixes",
        values.prefixes,
        "Prefixes of queue names. A name without any prefix is also a queue.",
        "queue_prefixes",
    ),
    Key("queues.temp_prefix", values.prefix, "Prefix of the names of temporary queues.", "temp_queue_prefix"),
    Key("queues.prefetch", _COUNT, "Unacknowledged messages of a subscription that does not set its own limit."),
    Key(
        "queues.prefetch_octets",
        values.flag,
        "Whether activemq.prefetchSize is a number of bytes, as in Artemis, rather than of messages.",
    ),
    Key("queues.priority", values.flag, "Whether messages of higher priority are delivered first."),
    Key("queues.max_delayed", _COUNT, "Scheduled messages that may be waiting in memory, over all queues."),
    Key("queues.max_attempts", _COUNT, "Deliveries of a message before it becomes a dead letter."),
    Key(
        "queues.redelivery_delay",
        values.pauses,
        "Pause before a message is delivered again after a NACK: the first pause, the factor of the next ones, and the "
        "longest. Other messages are delivered meanwhile. With 0s it is delivered again at once.",
    ),
    Key("queues.dead_letter", values.dead_letter, "Where dead letters go; {name} is the queue's name."),
    Key("queues.dead_letter_expired", values.flag, "Whether expired messages go there, too."),
    Key(
        "queues.max_messages",
        values.optional(_COUNT),
        "Messages in a queue. Above that, its senders wait. With false, that holds for 1,000,000 in memory.",
        "max_queue_messages",
    ),
    Key(
        "queues.max_octets",
        _SIZE,
        "Bytes of a queue in memory. Above that, its senders wait.",
        "max_queue_octets",
    ),
    Key(
        "queues.window",
        _COUNT,
        "Messages of a queue in memory, at most as many as limits.memory has room for. Later persistent ones stay in "
        "the store until their turn comes.",
        "window_messages",
    ),
    Key(
        "queues.window_octets",
        values.optional(_SIZE),
        "Bytes of a queue in memory from which on that holds, too. With false, 4 MiB or a 16th of limits.memory.",
        "window_octets",
    ),
    Key(
        "queues.transient",
        _TRANSIENT,
        "What messages that are not persistent do where a queue is full: stop their senders, or go beyond the window, "
        "too. With spool they stay in the store until their turn comes, and a restart drops them.",
        "transient",
    ),
    Key("queues.max_destinations", _COUNT, "Queues, topics and durable subscriptions at one time."),
    Key(
        "queues.session_destinations",
        _COUNT_OR_0,
        "How many of them one session may create; 0 for half of max_destinations.",
    ),
    Key(
        "queues.user_destinations",
        _COUNT_OR_0,
        "How many of them the sessions of one user may create together; 0 for half of max_destinations. Without "
        "users, the limit is per address, and 0 means three quarters.",
    ),
    Key(
        "queues.exclusive",
        values.one_of("consumer", "session"),
        "What exclusive:true on SUBSCRIBE means: that consumer alone gets messages, or a new queue belongs to the "
        "session and ends with it.",
    ),
    Key(
        "queues.arguments",
        values.one_of(*ARGUMENTS),
        "What happens if queue arguments in x- headers, such as x-max-length, differ from those of an existing queue: "
        "they are ignored (first), or the frame is refused unless its session has used the queue before (refuse, as "
        "RabbitMQ does). With ignore, arguments have no effect even on new queues, as in ActiveMQ.",
        "queue_arguments",
    ),
    Key(
        "queues.reply_to_subscribes",
        values.flag,
        "Whether a reply-to with a temporary queue subscribes its sender to it, with the name as the id.",
    ),
    Key("topics.prefixes", values.prefixes, "Prefixes of topic names.", "topic_prefixes"),
    Key("topics.temp_prefix", values.prefix, "Prefix of the names of temporary topics.", "temp_topic_prefix"),
    Key("topics.backlog", _COUNT, "Messages that may wait for a slow subscriber.", "topic_backlog"),
    Key("topics.backlog_octets", _SIZE, "Bytes that may wait for a slow subscriber.", "topic_backlog_octets"),
    Key(
        "topics.slow_consumer",
        _SLOW,
        "What happens beyond that: the subscriber is sent an ERROR, its oldest messages are dropped, or senders wait.",
    ),
    Key("topics.retain", values.flag, "Whether the header retain of SEND, set or remove, has an effect."),
    Key("topics.max_retained_octets", _SIZE, "Bytes of all retained messages together."),
    Key(
        "topics.durable_overflow",
        values.one_of("block", "drop"),
        "What happens when the queue of a durable subscription is full: senders wait, or its oldest messages are "
        "dropped.",
    ),
    Key("messages.large", _SIZE, "Bodies of at least this many bytes are kept in files, not in memory."),
    Key(
        "messages.large_folder",
        values.text,
        "Folder for these files, used by this broker alone. The broker marks it, and refuses an unmarked folder with "
        "foreign files. By default the files are in store.data, or in a temporary folder if that is not set.",
    ),
    Key(
        "messages.max_large_octets", _SIZE, "Bytes in all these files together. Above that, large messages are refused."
    ),
    Key(
        "messages.max_uploads",
        _COUNT,
        "Large messages that may be received at the same time, at most a quarter of the file descriptors that the "
        "broker may open. Above that, large messages are refused.",
    ),
    Key(
        "messages.user_uploads",
        _COUNT_OR_0,
        "How many of them the sessions of one user may send at the same time; 0 for half of max_uploads. Without "
        "users, the limit is per address, and 0 means three quarters.",
    ),
    Key(
        "messages.upload_timeout",
        values.seconds,
        "Time after which a client that stalls in a large message is sent an ERROR.",
    ),
    Key(
        "messages.upload_rate",
        values.octets(0),
        "Least rate of a large message in bytes per second, averaged over upload_timeout. 0 accepts any progress.",
    ),
    Key(
        "messages.jms",
        values.flag,
        "Whether a message sent without content-length is a text message, and is delivered without, as in Artemis.",
    ),
    Key(
        "messages.message_id_header",
        values.flag,
        "Whether every message gets the header amqMessageId: STOMP and the number that the broker gave it.",
    ),
    Key(
        "messages.max_transformed",
        values.octets(0),
        "Largest body, in bytes before and after, that is transformed for a subscription with the header "
        "transformation. Bodies of messages.large bytes or more are never transformed. 0 disables transformations.",
    ),
    Key(
        "messages.max_inflated",
        values.octets(0),
        "Largest decoded body, in bytes, that is converted for a subscription with the header content-encoding. "
        "Bodies of messages.large bytes or more are never converted. 0 disables this.",
    ),
    Key(
        "messages.refuse_message_id",
        values.flag,
        "Whether a SEND with a message-id is refused. Otherwise the header is replaced.",
    ),
    Key(
        "idempotency.window",
        values.seconds_or_0,
        "How long the broker remembers the idempotency-key (or _AMQ_DUPL_ID) of a SEND. A second SEND with "
        "the same key gets its RECEIPT but is not stored. 0 turns this off.",
        "key_window",
    ),
    Key(
        "idempotency.max_keys",
        _COUNT,
        "How many idempotency keys the broker remembers for each sender and destination. A sender is a user, virtual "
        "host and client-id. Above that, it forgets the oldest key.",
    ),
    Key("addresses.anycast_prefix", values.line, "Destinations with this prefix are queues. The prefix is removed."),
    Key("addresses.multicast_prefix", values.line, "Destinations with this prefix are topics. The prefix is removed."),
    Key(
        "addresses.routing",
        _ROUTING,
        "The meaning of a name without a prefix that matches no setting: ANYCAST is a queue, MULTICAST a topic.",
    ),
    Key(
        "addresses.routing_headers",
        values.flag,
        "Whether destination-type on SEND and subscription-type on SUBSCRIBE decide what a name without a prefix "
        "means. If not, messages to such names are processed faster.",
    ),
    Key(
        "addresses.wildcards",
        values.one_of("none", *SYNTAXES),
        "The wildcards that topic subscriptions may use: * is one word; any number of words is > (activemq), # "
        "(rabbitmq, artemis) or ** (apollo).",
    ),
    Key("addresses.delimiter", values.line, "Separator of words in wildcards and settings; by default a dot."),
    Key(
        "addresses.settings",
        values.settings,
        "Settings of names without a prefix: tables [[addresses.settings]] with match (# is any number of words, * is "
        "one), default_address_routing_type (for SEND), default_queue_routing_type (for SUBSCRIBE), "
        "auto_create_addresses, auto_create_queues, auto_delete_addresses and auto_delete_queues (true or false; they "
        "apply to all names). The first match decides.",
        "address_settings",
    ),
    Key(
        "addresses.preset",
        values.presets,
        "Queues and topics that exist from the start: tables [[addresses.preset]] with name, routing (ANYCAST or "
        "MULTICAST) and queues: the durable subscriptions of a topic, each as CLIENT-ID.NAME.",
        "presets",
    ),
    Key(
        "addresses.composite",
        values.flag,
        "Whether a destination may be a list separated by commas. Otherwise a comma is part of the name.",
    ),
    Key(
        "addresses.virtual_topics",
        values.flag,
        "Whether there are virtual topics, as in ActiveMQ: the queue Consumer.NAME.VirtualTopic.X gets a copy of each "
        "message that is sent to the topic VirtualTopic.X. This begins with the first SUBSCRIBE or SEND to the queue, "
        "and goes on while it has no consumer. X may contain wildcards. A destination without a prefix, such as "
        "orders, is then the queue /queue/orders.",
    ),
    Key(
        "addresses.exchanges",
        values.exchanges,
        "The type of each exchange in /exchange/NAME/KEY: topic, direct or fanout. With at least one exchange, "
        "amq.topic, amq.direct, amq.fanout and /amq/queue/NAME exist as well, and a destination without a prefix, "
        "such as orders, is the queue /queue/orders.",
    ),
    Key(
        "addresses.dsub_prefix",
        values.line,
        "Prefix, such as /dsub/, of the destinations by which durable subscriptions are consumed as queues. With it, "
        "persistent:true names a durable subscription by its id alone.",
    ),
    Key(
        "access.virtual_hosts",
        values.texts,
        "Hosts that CONNECT may name; the first is the default. By default any name is accepted, and all mean the "
        "same host.",
    ),
    Key(
        "management.prefix",
        values.line,
        "Destinations with this prefix are requests about the broker, see docs/management.md. An empty one turns them "
        "off.",
        "management_prefix",
    ),
    Key(
        "web.health",
        values.flag,
        "Whether GET /healthz and /readyz on listen.ws_port say if the broker is well. They need no login.",
        "web_health",
    ),
    Key(
        "web.metrics",
        values.flag,
        "Whether GET /metrics on listen.ws_port has metrics for Prometheus, for those who may manage the broker. It "
        "needs the extra metrics.",
        "web_metrics",
    ),
    Key(
        "web.metrics_destinations",
        values.whole(0, 10_000),
        "How many destinations have metrics of their own. Those of all others are summed up as _other.",
        "web_metrics_destinations",
    ),
    Key(
        "web.page",
        values.flag,
        "Whether GET / on listen.ws_port is a page that shows and manages the broker. Its origin counts as listed in "
        "websocket.origins.",
        "web_page",
    ),
    Key(
        "log.frames",
        values.one_of("off", "heads", "all"),
        "Which frames are logged, with the session and the address of the client: none, all without their bodies, or "
        "all with the beginnings of bodies. Never a passcode.",
        "log_frames",
    ),
    Key(
        "users",
        values.users,
        'Who may connect: a line NAME = "HASH", or a table [users.NAME] with passcode (the hash), groups and vhosts '
        "(lists). Without users, any login is accepted, or none. `stompcodec broker --hash-passcode` makes a hash.",
    ),
    Key(
        "rules",
        values.rules,
        "Who may do what: tables [[rules]] with who (a user, @GROUP, or *), action (send, subscribe, * for both, or "
        "manage), destination (* stands for any characters), vhost, and allow (true or false). The first match "
        "decides; anything that no rule allows is refused. Without rules about sending and subscribing, both are "
        "allowed. "
        "Management needs a rule with manage; without users it is open to clients of this machine.",
    ),
)
