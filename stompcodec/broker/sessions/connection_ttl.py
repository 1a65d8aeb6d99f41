"""The connection TTL of Artemis: the silence after which a client counts as dead, from the broker's settings.

It is off unless `sessions.ttl` is set. Without them only the rules of STOMP apply.
"""

from __future__ import annotations

from typing import NamedTuple

from stompcodec.broker.config.config import Config
from stompcodec.heartbeat import artemis_server_ping, artemis_ttl


class Terms(NamedTuple):
    """The intervals that a client must keep, in ms."""

    heart_beat: tuple[int, int]
    """The heart-beat header of CONNECTED: how often the broker sends, and how often it expects bytes."""
    silence: int
    """The silence after which the client is dead."""


def terms(config: Config, version: str, heart_beat: str | None) -> Terms | None:
    """Return the terms of a new session; None if only the rules of STOMP apply. Rules: ART-TTL-02 to ART-TTL-09.

    `heart_beat` is the header of CONNECT. In 1.0 and in the legacy dialect it is ignored.

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
    """Return the remedy for a client that was silent for too long, by its terms (None for those of STOMP) and version.

    >>> remedy(Terms((0, 0), 60_000), "1.2")[:69]
    'Nothing was received for 60 s, and this client offers no heart-beats:'
    """
    if terms is None:
        return "Nothing was received for twice the agreed interval."
    silence = f"Nothing was received for {terms.silence / 1000:g} s"
    if terms.heart_beat[1]:
        return f"{silence}: the agreed heart-beat interval times the factor of the broker's sessions.ttl."
    how = "use STOMP 1.1 or 1.2 and" if version == "1.0" else "have it"
    return (
        f"{silence}, and this client offers no heart-beats: {how} offer some in CONNECT, such as "
        "heart-beat:10000,10000, or raise sessions.ttl in the broker's configuration."
    )
