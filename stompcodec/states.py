"""The states of a connection, the frames and headers that each version allows, and heart-beats: tables and arithmetic.

The tables hold for both sides. A server that has sent ERROR stops reading: frames that were already on their way are
dropped, and are not violations.

No clock is read. Intervals are in milliseconds, as on the wire; times are in seconds of the caller's clock.

The rules are those of CON, DIS, ERR, NEG and CTD in each version, LEG-CON-05, WISH-NEG-01 to WISH-NEG-03, and the MUST
rows about headers of commands, such as S12-SND-01 and S10-UNS-01; for heart-beats S12-HB-02 to S12-HB-12, and
ART-TTL-02 to ART-TTL-09 for Artemis.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from stompcodec.errors import FrameError
from stompcodec.spec import CLIENT_1_1, dialect_of

Sender = Literal["client", "server"]


class State(enum.Enum):
    """A state of a connection.

    >>> State.CONNECTED.value
    'connected'
    """

    NEW = "new"
    """The transport is open; no frame was sent."""
    CONNECTING = "connecting"
    """The client has sent CONNECT; the server has not answered."""
    CONNECTED = "connected"
    """The version is negotiated; both sides send frames."""
    DISCONNECTING = "disconnecting"
    """The client has sent DISCONNECT; the server may still send receipts and messages."""
    FAILED = "failed"
    """The server has sent ERROR; the end of the stream follows."""
    CLOSED = "closed"
    """The stream has ended. No frame leads to this state."""


def _transitions(after_error: State | None) -> dict[tuple[Sender, State, str], State]:
    """Return the table of allowed frames. An ERROR in a session leads to `after_error`; None keeps the state."""
    table: dict[tuple[Sender, State, str], State] = {
        ("client", State.NEW, "CONNECT"): State.CONNECTING,
        ("client", State.NEW, "STOMP"): State.CONNECTING,
        # The answer to another first frame, or to none within the time allowed.
        ("server", State.NEW, "ERROR"): State.FAILED,
        ("server", State.CONNECTING, "CONNECTED"): State.CONNECTED,
        ("server", State.CONNECTING, "ERROR"): State.FAILED,
        ("client", State.CONNECTED, "DISCONNECT"): State.DISCONNECTING,
    }
    for command in set(CLIENT_1_1) - {"CONNECT", "STOMP", "DISCONNECT"}:
        table["client", State.CONNECTED, command] = State.CONNECTED
    for state in (State.CONNECTED, State.DISCONNECTING):
        table["server", state, "MESSAGE"] = state
        table["server", state, "RECEIPT"] = state
        table["server", state, "ERROR"] = after_error or state
    return table


_V1_2 = _transitions(State.FAILED)
#: Only in 1.2 does the server close after each ERROR (S12-ERR-02). Older brokers continue, and so do we.
_OLDER = _transitions(None)


def next_state(sender: Sender, state: State, command: str, version: str | None = "1.2") -> State | None:
    """Return the state after a frame, or None if the frame is not allowed.

    The codec checks whether a version has the command (in upper case); here NACK is allowed in any session. The version
    is None before negotiation.
    """
    table = _OLDER if version in ("1.0", "1.1", "legacy") else _V1_2
    return table.get((sender, state, command))


_TRANSACTION = dict.fromkeys(("BEGIN", "COMMIT", "ABORT"), ("transaction",))
_CLIENT_1_0: dict[str, tuple[str, ...]] = {
    **_TRANSACTION,
    "SEND": ("destination",),
    "SUBSCRIBE": ("destination",),
    "UNSUBSCRIBE": ("destination|id",),
    "ACK": ("message-id",),
}
_CLIENT_1_1: dict[str, tuple[str, ...]] = {
    **_TRANSACTION,
    "CONNECT": ("accept-version", "host"),
    "STOMP": ("accept-version", "host"),
    "SEND": ("destination",),
    "SUBSCRIBE": ("destination", "id"),
    "UNSUBSCRIBE": ("id",),
    "ACK": ("message-id", "subscription"),
    "NACK": ("message-id", "subscription"),
}
_SERVER_1_0: dict[str, tuple[str, ...]] = {
    "CONNECTED": ("session",),
    "MESSAGE": ("destination", "message-id"),
    "RECEIPT": ("receipt-id",),
}
_SERVER_1_1: dict[str, tuple[str, ...]] = {
    "CONNECTED": ("version",),
    "MESSAGE": ("destination", "message-id", "subscription"),
    "RECEIPT": ("receipt-id",),
}

#: (version, sender) -> command -> required headers; "a|b" means one of the two. The specification of the legacy dialect
#: does not describe ACK and transactions, which have the rules of 1.0.
REQUIRED_HEADERS: dict[tuple[str, Sender], dict[str, tuple[str, ...]]] = {
    ("1.0", "client"): _CLIENT_1_0,
    ("1.0", "server"): _SERVER_1_0,
    ("1.1", "client"): _CLIENT_1_1,
    ("1.1", "server"): _SERVER_1_1,
    ("1.2", "client"): {**_CLIENT_1_1, "ACK": ("id",), "NACK": ("id",)},
    ("1.2", "server"): _SERVER_1_1,
    ("legacy", "client"): {**_CLIENT_1_0, "CONNECT": ("username", "passcode")},
    ("legacy", "server"): _SERVER_1_0,
}


def missing_headers(version: str | None, sender: Sender, command: str, headers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of required headers that a frame lacks, in the order of the specification. An empty value counts
    as present, and commands of the other side require nothing.

    Before negotiation (None), the rules of 1.2 hold. Raise ValueError for an unknown version.
    """
    folds_case = dialect_of(version).folds_case
    required = REQUIRED_HEADERS[version or "1.2", sender].get(command.upper() if folds_case else command, ())
    present = {name.lower() if folds_case else name for name, _value in headers}
    return [names for names in required if present.isdisjoint(names.split("|"))]


#: Bounded, since a peer may have sent the numbers.
_VERSION = re.compile(r"(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})")


def _rank(version: str) -> tuple[int, int]:
    """Return a version as numbers, since 1.10 is higher than 1.9."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise FrameError("no-common-version", detail="a version is two numbers with a dot between")
    return int(match[1]), int(match[2])


def negotiate(accept_version: str | None, server: Sequence[str]) -> str:
    """Return the version that a server chooses: the highest that both sides list.

    Entries of the header accept-version are compared exactly, without trimming; unknown ones are ignored. Without it
    (None) the client speaks 1.0. Raise FrameError: "no-common-version".
    """
    accepted = {"1.0"} if accept_version is None else set(accept_version.split(","))
    common = accepted.intersection(server)
    if not common:
        raise FrameError("no-common-version", detail=f"the server speaks {', '.join(server)}")
    return max(common, key=_rank)


def negotiate_client(connected_version: str | None, offered: Sequence[str]) -> str:
    """Return the version that a client has to use after CONNECTED, by its version header; without it, 1.0. Raise
    FrameError "no-common-version" if the server chose one that was not offered.
    """
    version = "1.0" if connected_version is None else connected_version
    if version not in offered:
        raise FrameError("no-common-version", detail=f"the client offered {', '.join(offered)}")
    return version


def negotiate_wishlist(client_version: str | None, server_version: str | None) -> str:
    """Return the version by the wish-list for 1.1, in which each side names the highest that it supports.

    The two are the version headers of CONNECT and CONNECTED; without one (None), it means 1.0. Raise FrameError
    "no-common-version" if one of them is not a version.
    """
    versions = ["1.0" if version is None else version for version in (client_version, server_version)]
    return min(versions, key=_rank)


# ---- heart-beats: the header, the negotiated intervals, and when a beat is due ----
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
