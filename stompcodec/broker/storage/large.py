"""Large messages: their bodies stay in files from the first byte to the last, and are never in memory as a whole.

    SEND, content-length:2147483648
        |  the parser emits the frame before its body (Connection: stream_over), and commands.py begins an Upload
        v
    Upload: each piece is written to a file of the spool (Draft)
        |  at the end of the body, the SEND is processed as usual, with a Body; no part was visible before
        v
    Message with `body`: its tail has no body; queues, topics, transactions and the store treat it like any other
        |  Consumer.send: first what the outbox holds, then the head, then the file
        v
    Download: while it is being sent, the session gets no other message, and its responses wait;
        each turn reads as much of the file as the transport accepts

The file is removed with the last Message that holds it; the copy that the store has adopted, with its row.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable
from io import FileIO
from typing import Any

from stompcodec.broker.message import LargeBody, text_tail
from stompcodec.broker.storage.body_files import Body
from stompcodec.broker.storage.spool import Draft, Spool
from stompcodec.codec import END_OF_BODY, Frame
from stompcodec.disk import NO_FOLLOW
from stompcodec.transport.owner import Part

_LOG = logging.getLogger("stompcodec.broker")

#: Bytes read from a file in one turn.
_PULL = 256 * 1024
#: Over WebSocket, a body of at most this many bytes is sent as one message, as text if possible. Larger ones are sent
#: as a binary message of many frames.
_WHOLE = 2**20
#: The end of a frame with a body.
_END = b"\0\n"


class Upload:
    """A large body that is being received, and written to a spool. It counts towards the share of `owner`.

    `done` is called at the end of the body with the SEND, without its content-length, and the body. Raise Refused if it
    cannot be kept.

    >>> upload = Upload(Spool(None, 100), Frame("SEND", {"destination": "/queue/a"}), print)
    >>> for piece in (b"hel", b"lo", END_OF_BODY): upload.take(piece)
    <Frame SEND destination='/queue/a'> <Body of 5 bytes>
    """

    __slots__ = ("_done", "_draft", "came", "cost", "frame", "looked", "still", "time")

    def __init__(self, spool: Spool, frame: Frame, done: Callable[[Frame, Body], object], owner: str = "") -> None:
        self.frame = without_body(frame)
        #: Memory used by the head, in bytes.
        self.cost = 3 * sum(len(name) + len(value) for name, value in self.frame.headers.pairs())
        #: Bytes received, and seconds during which the sender was read, since `why_stuck` began to measure.
        self.came, self.time = 0, 0.0
        #: Seconds since the last byte, not counting pauses; and the time of the last check.
        self.still = 0.0
        self.looked: float | None = None
        self._done = done
        self._draft: Draft | None = spool.draft(owner)

    def take(self, piece: Any) -> None:
        """Write the next piece, or finish with END_OF_BODY. Raise Refused if it cannot be kept, or if the SEND is
        refused.
        """
        draft = self._draft
        if draft is None:
            return
        if piece is END_OF_BODY:
            self._draft = None
            self._done(self.frame, draft.done())
        else:
            self.came += len(piece)
            self.still = -1.0
            draft.write(piece)

    def drop(self) -> None:
        """Discard what was received."""
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.drop()


def is_streamed(frame: Any) -> bool:
    """Return whether the body of a frame is still to come.

    >>> is_streamed(Frame("SEND", {"destination": "/queue/a"}))
    False
    """
    return frame.body is None


def without_body(frame: Frame) -> Frame:
    """Return a SEND without its content-length, as if it had no body.

    >>> without_body(Frame("SEND", {"destination": "/queue/a", "content-length": "7"}))
    <Frame SEND destination='/queue/a'>
    """
    return Frame(frame.command, [pair for pair in frame.headers.pairs() if pair[0] != "content-length"])


def head_of(tail: bytes, body: LargeBody) -> bytes:
    """Return the part of a frame before the body: the tail of a large message, with its content-length.

    >>> head_of(b"a:b\\n\\n\\0", Body(None, 7, 0))
    b'a:b\\ncontent-length:7\\n\\n'
    """
    return b"%bcontent-length:%d\n\n" % (text_tail(tail)[:-2], body.size)


def why_stuck(upload: Upload, now: float, timeout: float, rate: int, paused: bool) -> str | None:
    """Return why a body arrives too slowly; None if it does not. Call it about once per second.

    After `timeout` seconds, a body without progress is stuck; over this time its average must reach `rate` bytes per
    second. While `paused`, the sender is not being read, and the time does not count.

    >>> upload = Upload(Spool(None, 100), Frame("SEND", {"destination": "/queue/a"}), print)
    >>> [why_stuck(upload, now, 10.0, 100, False) for now in (1.0, 10.5, 11.0)]
    [None, None, 'No data came for 10 s']
    >>> upload.drop()
    """
    looked, upload.looked = upload.looked, now
    if looked is None:
        upload.still = 0.0
    if looked is None or paused:
        return None
    upload.time += now - looked
    upload.still = 0.0 if upload.still < 0 else upload.still + now - looked
    if upload.still >= timeout:
        return f"No data came for {timeout:g} s"
    if upload.time >= timeout:
        if upload.came < rate * upload.time:
            return f"Less than {rate} bytes per second came for {timeout:g} s"
        upload.came, upload.time = 0, 0.0
    return None


class Download:
    """A large message that is being sent to a session: the chunks `before` it, its frame up to the body, and the body.

    If `whole_frames`, chunks must be whole frames or marked parts, as on WebSocket. `failed` is called if the file
    cannot be read to its end.
    """

    __slots__ = (*("_before", "_body", "_crc", "_head", "_left", "_whole_frames", "done", "failed", "moved"), "waiting")

    def __init__(
        self,
        before: list[bytes],
        head: bytes,
        body: LargeBody,
        whole_frames: bool,
        failed: Callable[[Exception], object],
    ) -> None:
        self._before = before
        self._head = head
        self._body = body  # keeps the file
        self._left = body.size
        self._crc = 0
        self._whole_frames = whole_frames
        self.failed = failed
        self.done = False
        #: Bytes in memory to send before the body.
        self.waiting = sum(map(len, before)) + len(head)
        #: True if anything was sent since this was last set to False.
        self.moved = True

    def check(self) -> None:
        """Raise OSError unless the file exists and has the size of its body."""
        if self._body.path.stat().st_size != self._body.size:
            raise OSError(f"{self._body.path} does not have the {self._body.size} bytes of its message")

    def take(self) -> list[bytes]:
        """Return the next chunks, limited in size. The file is open only meanwhile. Raise OSError if it cannot be read,
        or is too short. If no file descriptor was available, it can be retried.
        """
        with open(self._body.path, "rb", buffering=0, opener=_opener) as file:
            octets = self._read(file)
        chunks, self._before, self.moved = self._before, [], True
        self._left -= len(octets)
        self._crc = zlib.crc32(octets, self._crc)
        self.done = self._left == 0
        if self.done and self._crc != self._body.crc:  # the end of the frame is not sent
            self.done, self._body.damaged = False, True
            raise OSError(f"{self._body.path} is damaged: it does not have its checksum")
        end = _END if self.done else b""
        if self._whole_frames:
            piece = b"%b%b%b" % (self._head, octets, end)
            chunks.append(piece if self.done else Part(piece))
        else:
            chunks += (chunk for chunk in (self._head, octets, end) if chunk)
        self._head, self.waiting = b"", 0
        return chunks

    def _read(self, file: FileIO) -> bytes:
        most = _WHOLE if self._whole_frames and self._body.size <= _WHOLE else _PULL
        file.seek(self._body.size - self._left)
        octets = file.read(min(most, self._left))
        if len(octets) == 0 < self._left:
            raise OSError(f"{self._body.path} is too short")
        return octets


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | NO_FOLLOW)
