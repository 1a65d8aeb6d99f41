"""The broker's configuration: a TOML file to one frozen dataclass. What the keys mean stands in `keys.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stompcodec.broker.auth import Rule, User
from stompcodec.errors import ConfigError
from stompcodec.spec import DEFAULT_LIMITS, Limits, checked_limits

__all__ = ["Config"]

_MIB = 2**20
#: A stranger has a CONNECT frame to send, and little else.
_FIRST_LIMITS = Limits(max_command_line=64, max_header_line=8192, max_headers=100, max_body=65536)


@dataclass(frozen=True)
class Config:
    """Everything that can be set. Sizes are in octets, times in seconds, heart-beats in milliseconds.

    What each field means stands in `stompcodec.broker.keytable.KEYS`, beside its name in a file.

    Raises:
        ConfigError: values that do not go together.

    >>> Config(port=0).replace(prefetch=1).prefetch
    1
    """

    host: str = "127.0.0.1"
    port: int | None = 61613
    ws_port: int | None = None
    tls_port: int | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    data: str | None = None
    durable: str = "persistent"
    limits: Limits = DEFAULT_LIMITS
    first_limits: Limits = _FIRST_LIMITS
    heart_beat: tuple[int, int] = (500, 1000)
    login_timeout: float = 10.0
    drain_timeout: float = 5.0
    max_connections: int = 10_000
    max_subscriptions: int = 1000
    max_unacked: int = 100_000
    max_transactions: int = 100
    max_transaction_octets: int = 64 * _MIB
    write_high: int = 256 * 1024
    transactional_acks: bool = True
    queue_prefixes: tuple[str, ...] = ("/queue/",)
    temp_queue_prefix: str = "/temp-queue/"
    prefetch: int = 100
    max_attempts: int = 6
    dead_letter: str = "/queue/DLQ.{name}"
    dead_letter_expired: bool = False
    max_queue_messages: int = 1_000_000
    max_queue_octets: int = 256 * _MIB
    max_octets: int = 1024 * _MIB
    max_destinations: int = 10_000
    topic_prefixes: tuple[str, ...] = ("/topic/",)
    temp_topic_prefix: str = "/temp-topic/"
    topic_backlog: int = 100_000
    topic_backlog_octets: int = 64 * _MIB
    slow_consumer: str = "disconnect"
    virtual_hosts: tuple[str, ...] | None = None
    users: Mapping[str, User] | None = field(default=None, repr=False)
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for fault, target, message in self._faults():
            if fault:
                raise ConfigError(message, key=target)

    def _faults(self) -> list[tuple[bool, str, str]]:
        ports = [self.port, self.ws_port, self.tls_port]
        taken = [port for port in ports if port]
        strangers = [rule.who for rule in self.rules if not self._knows(rule.who)]
        return [
            (all(port is None for port in ports), "port", "no port is left to listen on"),
            (len(set(taken)) < len(taken), "port", "two listeners cannot share a port"),
            (self.tls_port is not None and not self.tls_cert, "tls_port", "TLS needs a certificate, and its key"),
            (bool(self.tls_key) and not self.tls_cert, "tls_key", "a key needs its certificate, tls_cert"),
            (_unusable(self.limits), "limits", "headers times header line must be less than 4 GiB"),
            (_unusable(self.first_limits), "first_limits", "headers times header line must be less than 4 GiB"),
            (self.prefetch > self.max_unacked, "prefetch", f"it cannot be above max_unacked, {self.max_unacked}"),
            (bool(strangers), "rules", f"nobody is called {strangers[0] if strangers else ''!r}: add it to the users"),
        ]

    def _knows(self, who: str) -> bool:
        users = (
            self.users or {}
        )  # where any login will do, a rule for one of them would be for whoever calls himself so
        return who == "*" or who in users or any(who == "@" + group for user in users.values() for group in user.groups)

    def replace(self, **changes: Any) -> Config:
        """A copy with other values, checked as a new one is."""
        return replace(self, **changes)


def _unusable(limits: Limits) -> bool:
    try:
        checked_limits(limits)
    except ValueError:
        return True
    return False
