"""The connection TTL of Artemis: after how much silence a client is dead, by the settings of the broker.

Off unless `sessions.ttl` or `sessions.ttl_override` is set: then the rules of STOMP alone hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stompcodec.heartbeat import artemis_server_ping, artemis_ttl

if TYPE_CHECKING:
    from stompcodec.broker.config.config import Config

__all__ = ["Terms", "remedy", "terms"]


class Terms(NamedTuple):
    """What a client is told, and held to. In ms."""

    heart_beat: tuple[int, int]
    """For CONNECTED: how often we send, and how often we want something."""
    silence: int
    """After so much of it the client is dead."""


def terms(config: Config, version: str, heart_beat: str | None) -> Terms | None:
    """The terms of a new session; None for those of STOMP alone.

    Args:
        config: of the broker.
        version: of the session.
        heart_beat: the header of CONNECT; None if there is none. In 1.0 and in the legacy dialect it means nothing, and
            may be anything.

    Rules: ART-TTL-02 to ART-TTL-09.

    >>> from stompcodec.broker.config.config import Config
    >>> terms(Config(ttl=60_000), "1.2", "100,100"), terms(Config(), "1.2", "100,100")
    (Terms(heart_beat=(500, 500), silence=1000), None)
    """
    if not (config.ttl or config.ttl_override):
        return None
    if version in ("1.0", "legacy"):
        heart_beat = None
    acceptor: dict[str, object] = {
        "connectionTtlMin": config.ttl_min,
        "connectionTtlMax": config.ttl_max,
        "heartBeatToConnectionTtlModifier": config.ttl_modifier,
    }
    if config.ttl:
        acceptor["connectionTtl"] = config.ttl
    if config.ttl_override:
        acceptor["connection-ttl-override"] = config.ttl_override
    found = artemis_ttl(version, heart_beat, acceptor)
    beats = artemis_server_ping(heart_beat), found.get("connected_client_to_server", 0)
    return Terms(beats, max(found["connection_ttl"], 1))


def remedy(terms: Terms | None, version: str) -> str:
    """Return what to tell a client that was silent for too long.

    Args:
        terms: of its session; None for those of STOMP.
        version: of its session.

    >>> remedy(Terms((0, 0), 60_000), "1.2")[:73]
    'Nothing came for 60 s, and this client offers no heart-beats: have it off'
    """
    if terms is None:
        return "Nothing came for twice the interval that was agreed."
    silence = f"Nothing came for {terms.silence / 1000:g} s"
    if terms.heart_beat[1]:
        return f"{silence}: the heart-beat interval that was agreed, times sessions.ttl_modifier of the broker."
    how = "use STOMP 1.1 or 1.2 and" if version == "1.0" else "have it"
    return (
        f"{silence}, and this client offers no heart-beats: {how} offer some in CONNECT, such as "
        "heart-beat:10000,10000, or raise sessions.ttl (or ttl_override) in the broker's configuration."
    )
