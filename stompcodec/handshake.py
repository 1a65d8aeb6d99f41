"""CONNECT and CONNECTED: what each side offers, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stompcodec.codec import Frame
from stompcodec.heartbeat import negotiate_heart_beat
from stompcodec.spec import VERSIONS
from stompcodec.states import negotiate, negotiate_client

__all__ = ["Handshake"]


class Handshake:
    """One side's part in the negotiation.

    Args:
        versions: what we speak, a selection of "1.0", "1.1", "1.2".
        heart_beat: what we offer, in ms: how often we can send, and how often we want to receive; 0 for not at all.

    Raises:
        ValueError: they are nothing of the kind.

    A client calls `ask`, then `answered`; a server `asked`, then `answer`. 1.0 has no heart-beats: in such a session
    the header is like any other.

    >>> client, server = Handshake(["1.1", "1.2"], (500, 0)), Handshake(["1.0", "1.1"], (0, 1000))
    >>> connect = client.ask(Frame("CONNECT", {"host": "a"}))
    >>> server.asked(connect)
    '1.1'
    >>> connected = server.answer("1.1", {"session": "7"})
    >>> connected
    <Frame CONNECTED version='1.1' heart-beat='0,1000' session='7'>
    >>> client.answered(connected), client.beats("1.1", connected), server.beats("1.1", connected)
    ('1.1', (1000, 0), (1000, 0))
    """

    __slots__ = ("_connect_beat", "_heart_beat", "_offered", "versions")

    def __init__(self, versions: Sequence[str], heart_beat: tuple[int, int]) -> None:
        if not versions or not set(versions) <= set(VERSIONS):
            raise ValueError(f"versions is {versions!r}: give some of {', '.join(VERSIONS)}")
        if len(heart_beat) != 2 or any(type(ms) is not int or ms < 0 for ms in heart_beat):
            raise ValueError(f"heart_beat is {heart_beat!r}: give two numbers of milliseconds, 0 or more")
        #: In the order of `VERSIONS`.
        self.versions = tuple(version for version in VERSIONS if version in versions)
        self._heart_beat = f"{heart_beat[0]},{heart_beat[1]}"
        self._offered: Sequence[str] = self.versions
        self._connect_beat: str | None = None  # the heart-beat header of CONNECT

    def ask(self, frame: Frame) -> Frame:
        """A client's CONNECT, with accept-version and heart-beat where it has none."""
        more: list[tuple[str, str]] = []
        if frame.get("accept-version") is None and self.versions != ("1.0",):
            more.append(("accept-version", ",".join(self.versions)))
        if frame.get("heart-beat") is None and self._heart_beat != "0,0":
            more.append(("heart-beat", self._heart_beat))
        if more:
            frame = Frame(frame.command, [*more, *frame.headers.pairs()], frame.body)
        offered = frame.get("accept-version", "1.0").split(",")
        self._offered = [version for version in self.versions if version in offered]
        self._connect_beat = frame.get("heart-beat")
        return frame

    def asked(self, frame: Frame) -> str:
        """A server has CONNECT: the version of the session.

        Raises:
            FrameError: "no-common-version", "bad-heart-beat".
        """
        version = negotiate(frame.get("accept-version"), self.versions)
        beat = frame.get("heart-beat") if version != "1.0" else None
        negotiate_heart_beat(beat, None)
        self._connect_beat = beat
        return version

    def answer(self, version: str, headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> Frame:
        """A server's CONNECTED. It always carries heart-beat, for some clients want it."""
        given = headers.items() if isinstance(headers, Mapping) else headers
        heart_beat = self._heart_beat if version != "1.0" else "0,0"
        return Frame("CONNECTED", [("version", version), ("heart-beat", heart_beat), *given])

    def answered(self, frame: Frame) -> str:
        """A client has CONNECTED: the version of the session.

        Raises:
            FrameError: "no-common-version": the server picked what was not offered.
        """
        return negotiate_client(frame.get("version"), self._offered)

    def beats(self, version: str, connected: Frame) -> tuple[int, int]:
        """The intervals in ms, from client to server and from server to client; 0 for none.

        Raises:
            FrameError: "bad-heart-beat".
        """
        if version == "1.0":
            return 0, 0
        return negotiate_heart_beat(self._connect_beat, connected.get("heart-beat"))
