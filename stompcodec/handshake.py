"""Negotiation by CONNECT and CONNECTED: the version and the heart-beats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stompcodec.codec import Frame
from stompcodec.errors import FrameError
from stompcodec.heartbeat import negotiate_heart_beat
from stompcodec.spec import VERSIONS
from stompcodec.states import negotiate, negotiate_client, negotiate_wishlist

#: Versions without heart-beats.
_WITHOUT_BEATS = ("1.0", "legacy")


def protocol_value(frame: Frame, name: str) -> str | None:
    """Return the value of a header of the first frame that belongs to the protocol, without blanks around it; None if
    it is missing. Examples in specifications have such blanks.

    >>> protocol_value(Frame("CONNECT", {"version": " 1.1"}), "version")
    '1.1'
    """
    value = frame.get(name)
    return None if value is None else value.strip(" \t")


class Handshake:
    """One side of the negotiation. A client calls `connect_frame`, then `on_connected`; a server calls `on_connect`,
    then `connected_frame`. In 1.0, which has no heart-beats, the header heart-beat has no meaning.

    `versions` are those we speak: some of "1.0", "1.1", "1.2", or "legacy", which is never negotiated. `heart_beat` is
    our offer in ms: how often we can send, and how often we want to receive; 0 for never. Others raise ValueError.

    With `version_header`, a server reads the header version of a CONNECT without accept-version, as the wish-list for
    1.1 proposed (WISH-NEG-01 to WISH-NEG-03). A client reads it if its CONNECT has the header.

    >>> client, server = Handshake(["1.1", "1.2"], (500, 0)), Handshake(["1.0", "1.1"], (0, 1000))
    >>> connect = client.connect_frame(Frame("CONNECT", {"host": "a"}))
    >>> server.on_connect(connect)
    '1.1'
    >>> connected = server.connected_frame("1.1", {"session": "7"})
    >>> connected
    <Frame CONNECTED version='1.1' heart-beat='0,1000' session='7'>
    >>> client.on_connected(connected), client.beats("1.1", connected), server.beats("1.1", connected)
    ('1.1', (1000, 0), (1000, 0))
    """

    __slots__ = ("_connect_beat", "_heart_beat", "_highest", "_offered", "_version_header", "first", "versions")

    def __init__(self, versions: Sequence[str], heart_beat: tuple[int, int], version_header: bool = False) -> None:
        if isinstance(versions, str) or not versions or not set(versions) <= {*VERSIONS, "legacy"}:
            raise ValueError(f"versions is {versions!r}: give some of {', '.join(VERSIONS)}, or legacy")
        if len(heart_beat) != 2 or any(type(ms) is not int or ms < 0 for ms in heart_beat):
            raise ValueError(f"heart_beat is {heart_beat!r}: give two numbers of milliseconds, 0 or more")
        #: In the order of `VERSIONS`.
        self.versions = tuple(version for version in VERSIONS if version in versions)
        #: The dialect of the first frame: "legacy", or None for the common rules of the other versions.
        self.first = None if self.versions else "legacy"
        self._version_header = version_header
        self._highest: str | None = None  # the version header of CONNECT
        self._heart_beat = f"{heart_beat[0]},{heart_beat[1]}"
        self._offered: Sequence[str] = self.versions
        self._connect_beat: str | None = None  # the heart-beat header of CONNECT

    def connect_frame(self, frame: Frame) -> Frame:
        """Return a client's CONNECT, with accept-version and heart-beat added unless it has them. Raise FrameError
        "no-common-version" if its header version is malformed, or lower than all our versions.
        """
        if self.first is not None:
            return frame
        more: list[tuple[str, str]] = []
        self._highest = frame.get("version")
        versions = _up_to(self._highest, self.versions)
        if frame.get("accept-version") is None and versions != ["1.0"]:
            more.append(("accept-version", ",".join(versions)))
        if frame.get("heart-beat") is None and self._heart_beat != "0,0":
            more.append(("heart-beat", self._heart_beat))
        if more:
            frame = Frame(frame.command, [*more, *frame.headers.pairs()], frame.body)
        offered = frame.get("accept-version", "1.0").split(",")
        self._offered = [version for version in self.versions if version in offered]
        self._connect_beat = frame.get("heart-beat")
        return frame

    def on_connect(self, frame: Frame) -> str:
        """Return the version of the session, on a server that has received CONNECT. Raise FrameError:
        "no-common-version" or "bad-heart-beat".
        """
        accept, highest = protocol_value(frame, "accept-version"), protocol_value(frame, "version")
        if self._version_header and accept is None and highest is not None:
            version = _up_to(highest, self.versions)[-1]
        else:
            version = negotiate(accept, self.versions)
        beat = protocol_value(frame, "heart-beat") if version != "1.0" else None
        negotiate_heart_beat(beat, None)
        self._connect_beat = beat
        return version

    def connected_frame(
        self,
        version: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        heart_beat: tuple[int, int] | None = None,
    ) -> Frame:
        """Return a server's CONNECTED. It always has the header heart-beat, which some clients require."""
        given = headers.items() if isinstance(headers, Mapping) else headers
        if version == "legacy":
            return Frame("CONNECTED", given)
        offer = self._heart_beat if heart_beat is None else f"{heart_beat[0]},{heart_beat[1]}"
        if version == "1.0":
            offer = "0,0"
        return Frame("CONNECTED", [("version", version), ("heart-beat", offer), *given])

    def on_connected(self, frame: Frame) -> str:
        """Return the version of the session, on a client that has received CONNECTED. Raise FrameError
        "no-common-version" if the server chose one that was not offered.
        """
        if self.first is not None:
            return self.first
        version = protocol_value(frame, "version")
        if self._highest is not None:
            version = negotiate_wishlist(self._highest, version)
        return negotiate_client(version, self._offered)

    def beats(self, version: str, connected: Frame) -> tuple[int, int]:
        """Return the negotiated intervals in ms, from client to server and from server to client; 0 for none. Raise
        FrameError: "bad-heart-beat".
        """
        if version in _WITHOUT_BEATS:
            return 0, 0
        return negotiate_heart_beat(self._connect_beat, protocol_value(connected, "heart-beat"))


def _up_to(highest: str | None, versions: Sequence[str]) -> list[str]:
    """Return our versions up to `highest`; all for None. Raise FrameError "no-common-version" if all are higher, or
    `highest` is not a version.
    """
    found = [version for version in versions if highest is None or negotiate_wishlist(version, highest) == version]
    if not found:
        raise FrameError("no-common-version", detail=f"we speak {', '.join(versions)}")
    return found
