"""The states of a connection, and the frames and headers that each version allows: tables and their look-ups.

The tables hold for both sides. A server that has sent ERROR stops reading: frames that were already on their way are
dropped, and are not violations.

The rules are those of CON, DIS, ERR, NEG and CTD in each version, LEG-CON-05, WISH-NEG-01 to WISH-NEG-03, and the MUST
rows about headers of commands, such as S12-SND-01 and S10-UNS-01.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from typing import Literal

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
