"""The broker's configuration as one frozen dataclass. `keys.py` describes the keys of a file; `file.py` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, TypeVar, cast

from stompcodec.broker.auth import Rule, User, fault_of
from stompcodec.broker.config.presets import DIALECTS
from stompcodec.broker.config.settings import Pauses, Preset, Setting
from stompcodec.broker.memory import MESSAGE
from stompcodec.errors import ConfigError
from stompcodec.spec import DEFAULT_LIMITS, Limits, checked_limits

_MIB = 2**20
#: Limits before login, when a client needs to send little more than a CONNECT frame.
_FIRST_LIMITS = Limits(max_command_line=64, max_header_line=8192, max_headers=100, max_body=65536)
_T = TypeVar("_T")


class _Unset(Enum):
    """The value of a field that was not set, which cannot be confused with an argument."""

    UNSET = "by dialect"


#: By default, six attempts take 3.1 s.
_PAUSES = Pauses(0.1, 2.0, 30.0)


def _by_dialect(usual: _T) -> _T:
    """Declare a field whose default depends on the dialect; `usual` is for dialects that do not set it."""
    return cast("_T", field(default=_Unset.UNSET, metadata={"usual": usual}))


@dataclass(frozen=True)
class Config:
    """The configuration of a broker. Sizes are in bytes, times in seconds, heart-beats in milliseconds.

    `stompcodec.broker.config.keys.KEYS` describes each field, beside its name in a file. `dialect` sets the defaults of
    other fields, as listed in `stompcodec.broker.config.presets.DIALECTS`; explicit values take precedence.

    Raises:
        ConfigError: the values contradict each other.

    >>> Config(port=0).replace(prefetch=1).prefetch
    1
    >>> Config(dialect="activemq").prefetch, Config(dialect="activemq", prefetch=1).prefetch
    (1000, 1)
    """

    host: str = "127.0.0.1"
    port: int | None = 61613
    ports: tuple[int, ...] = ()
    ws_port: int | None = None
    tls_port: int | None = None
    legacy_port: int | None = None
    detect_legacy: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    data: str | None = None
    mode: int | None = None
    group: str | None = None
    durable: str = _by_dialect("all")
    store_free: int = 64 * _MIB
    large: int = 102_400
    large_folder: str | None = None
    max_large_octets: int = 16 * 1024 * _MIB
    max_uploads: int = 500
    user_uploads: int = 0
    upload_timeout: float = 60.0
    upload_rate: int = 1024
    jms: bool = False
    message_id_header: bool = False
    memory: int = 1024 * _MIB
    limits: Limits = DEFAULT_LIMITS
    first_limits: Limits = _FIRST_LIMITS
    ws_frame: int = 128 * _MIB
    ws_origins: tuple[str, ...] | None = None
    ws_hosts: tuple[str, ...] = ()
    heart_beat: tuple[int, int] = _by_dialect((500, 1000))
    heart_beat_answer: str = _by_dialect("own")
    ttl: int = _by_dialect(0)
    ttl_override: int = 0
    ttl_min: int = 1000
    ttl_max: int = 2**31 - 1
    ttl_modifier: float = 2.0
    login_timeout: float = 10.0
    drain_timeout: float = 5.0
    max_connections: int = 10_000
    user_connections: int = 0
    address_connections: int = 0
    max_before_login: int = 0
    max_subscriptions: int = 1000
    max_unacked: int = 100_000
    max_transactions: int = 100
    max_transaction_octets: int = 64 * _MIB
    write_high: int = 256 * 1024
    commands: tuple[str, ...] = ("PING", "RECEIVE")
    version_header: bool = False
    transactional_acks: bool = _by_dialect(True)
    queue_prefixes: tuple[str, ...] = ("/queue/",)
    temp_queue_prefix: str = "/temp-queue/"
    prefetch: int = _by_dialect(100)
    window: int | None = _by_dialect(None)
    prefetch_octets: bool = _by_dialect(False)
    priority: bool = True
    max_delayed: int = 100_000
    max_attempts: int = 6
    redelivery_delay: Pauses = _by_dialect(_PAUSES)  # noqa: RUF009 (it cannot be changed)
    dead_letter: str = "/queue/DLQ.{name}"
    dead_letter_expired: bool = False
    max_queue_messages: int | None = None
    max_queue_octets: int = 256 * _MIB
    window_messages: int = 4000
    window_octets: int | None = None
    transient: str = "stop"
    max_destinations: int = 10_000
    session_destinations: int = 0
    user_destinations: int = 0
    topic_prefixes: tuple[str, ...] = ("/topic/",)
    temp_topic_prefix: str = "/temp-topic/"
    topic_backlog: int = 100_000
    topic_backlog_octets: int = 64 * _MIB
    slow_consumer: str = "disconnect"
    key_window: float = 3600.0
    max_keys: int = 20_000
    max_transformed: int = 256 * 1024
    max_inflated: int = _MIB
    dialect: str = "stompcodec"
    anycast_prefix: str = ""
    multicast_prefix: str = ""
    routing: str = _by_dialect("ANYCAST")
    routing_headers: bool = _by_dialect(True)
    wildcards: str = _by_dialect("none")
    delimiter: str = ""
    address_settings: tuple[Setting, ...] = ()
    presets: tuple[Preset, ...] = ()
    composite: bool = _by_dialect(False)
    virtual_topics: bool = _by_dialect(False)
    exchanges: Mapping[str, str] = _by_dialect({})
    dsub_prefix: str = _by_dialect("")
    retain: bool = _by_dialect(False)
    max_retained_octets: int = 64 * _MIB
    durable_overflow: str = "block"
    same_client: str = _by_dialect("refuse")
    exclusive: str = _by_dialect("consumer")
    queue_arguments: str = _by_dialect("first")
    reply_to_subscribes: bool = _by_dialect(False)
    refuse_message_id: bool = _by_dialect(False)
    virtual_hosts: tuple[str, ...] | None = None
    management_prefix: str = "/management/"
    web_health: bool = False
    web_metrics: bool = False
    web_metrics_destinations: int = 100
    web_page: bool = False
    log_frames: str = "off"
    users: Mapping[str, User] | None = field(default=None, repr=False)
    rules: tuple[Rule, ...] = ()

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
            (self.ttl_min > self.ttl_max, "ttl_min", f"it cannot be above ttl_max, {self.ttl_max} ms"),
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
            (
                served and self.ws_port is None,
                "ws_port",
                "web.health, web.metrics and web.page need it: set it",
            ),
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
