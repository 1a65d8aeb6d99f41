"""Heart-beats as arithmetic: the header, the negotiated intervals, and when a beat is due.

No clock is read. Intervals are in milliseconds, as on the wire; times are in seconds of the caller's clock.

The rules are S12-HB-02 to S12-HB-12, and ART-TTL-02 to ART-TTL-09 for Artemis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from stompcodec.errors import FrameError

#: Leading zeros are allowed. More than 100 digits after them are refused, since int() takes quadratic time and a float
#: overflows at 309. Zeros can be matched in one way only, so that matching is linear.
_NUMBER = "0*(0|[1-9][0-9]{0,99})"
_HEART_BEAT = re.compile(f"{_NUMBER},{_NUMBER}")


def parse_heart_beat(value: str) -> tuple[int, int]:
    """Return the two numbers of a heart-beat header in ms: how often its sender can send, and wants to receive.

    They are ASCII digits, with a comma and no spaces between them. Anything else, and more than 100 digits, raises
    FrameError: "bad-heart-beat".
    """
    match = _HEART_BEAT.fullmatch(value)
    if match is None:
        raise FrameError("bad-heart-beat")
    return int(match[1]), int(match[2])


def _offer(header: str | None) -> tuple[int, int]:
    return (0, 0) if header is None else parse_heart_beat(header)


def _agreed(offer: int, wish: int) -> int:
    return max(offer, wish) if offer and wish else 0


def negotiate_heart_beat(connect: str | None, connected: str | None) -> tuple[int, int]:
    """Return the intervals of a session in ms, from client to server and from server to client; 0 for none.

    They follow from the heart-beat headers of CONNECT and CONNECTED. Raise FrameError: "bad-heart-beat".
    """
    client_sends, client_wants = _offer(connect)
    server_sends, server_wants = _offer(connected)
    return _agreed(client_sends, server_wants), _agreed(server_sends, client_wants)


class Heartbeat(NamedTuple):
    """The negotiated heart-beats of one side. Intervals in ms, 0 for none.

    A client passes the result of `negotiate_heart_beat`, a server its two numbers swapped.
    """

    send_every: int
    """The interval that we promised."""
    receive_every: int
    """The interval that the peer promised."""

    def next_send_at(self, last_sent: float) -> float | None:
        """Return when to send an EOL unless something else is sent before, in seconds; None for never.

        That is after half of the interval since the last byte was sent, so that a late timer still keeps the promise
        (S12-HB-09).
        """
        return last_sent + self.send_every / 2000 if self.send_every else None

    def dead_at(self, last_received: float) -> float | None:
        """Return when the peer is dead unless a byte is received before, in seconds; None for never.

        That is after twice the interval since the last byte of any kind (S12-HB-08), since timing is inexact
        (S12-HB-12).
        """
        return last_received + self.receive_every / 500 if self.receive_every else None


#: The defaults of Artemis, in ms.
_ARTEMIS_TTL = 60_000
_ARTEMIS_TTL_MIN = 1_000
_ARTEMIS_TTL_MAX = 2**63 - 1
_ARTEMIS_MODIFIER = 2.0
_ARTEMIS_SERVER_PING = 500


def artemis_ttl(version: str, connect: str | None, acceptor: Mapping[str, object]) -> dict[str, int]:
    """Return after how many ms of silence Artemis drops a client, and the interval that it requests from the client.

    Args:
        version: the version of the session. In 1.0 and the legacy dialect the header heart-beat has no meaning.
        connect: the heart-beat header of CONNECT; None if absent.
        acceptor: connectionTtl, connectionTtlMin, connectionTtlMax (ms), heartBeatToConnectionTtlModifier, and the
            broker-wide connection-ttl-override (ms, -1 for unset), as numbers or text.

    Returns:
        "connection_ttl"; if the client sends heart-beats also "connected_client_to_server", the second number of the
        heart-beat header of CONNECTED.

    Raises:
        FrameError: "bad-heart-beat".
        ValueError: a setting is not a number, or the modifier is not positive and finite.
    """
    client_sends = 0 if version in ("1.0", "legacy") else _offer(connect)[0]
    if not client_sends:
        override = int(str(acceptor.get("connection-ttl-override", -1)))
        default = _ARTEMIS_TTL if override == -1 else override
        return {"connection_ttl": int(str(acceptor.get("connectionTtl", default)))}
    modifier = float(str(acceptor.get("heartBeatToConnectionTtlModifier", _ARTEMIS_MODIFIER)))
    if not 0 < modifier < math.inf:
        raise ValueError(f"heartBeatToConnectionTtlModifier is {modifier}: it must be above 0, and finite")
    ttl = int(client_sends * modifier)
    least = int(str(acceptor.get("connectionTtlMin", _ARTEMIS_TTL_MIN)))
    most = int(str(acceptor.get("connectionTtlMax", _ARTEMIS_TTL_MAX)))
    if least <= ttl <= most:
        return {"connection_ttl": ttl, "connected_client_to_server": client_sends}
    bound = least if ttl < least else most
    return {"connection_ttl": bound, "connected_client_to_server": int(bound / modifier)}


def artemis_server_ping(connect: str | None) -> int:
    """Return the interval in ms at which Artemis sends heart-beats to a client; 0 for none. `connect` is the heart-beat
    header of CONNECT. Raise FrameError: "bad-heart-beat".
    """
    wanted = _offer(connect)[1]
    return max(wanted, _ARTEMIS_SERVER_PING) if wanted else 0
