"""The bytes of message-ids and of MESSAGE heads. The compiled broker has these functions from `src/hot/heads.pyx`."""

from __future__ import annotations

from collections.abc import Sequence

from stompcodec.broker.message import Message


def ident_of(epoch: bytes, seq: int) -> bytes:
    """Return the message-id of a seq, for ids that begin with `epoch`.

    >>> ident_of(b"e-", 7)
    b'e-7'
    """
    return b"%b%d" % (epoch, seq)


def head_of(before: bytes, ident: bytes, after: bytes, tag: int) -> bytes:
    r"""Return the head of a MESSAGE: what stands before and behind its message-id, and the number of the delivery,
    which is 0 where that does not belong there.

    >>> head_of(b"MESSAGE\nmessage-id:", b"e-7", b"\n", 0), head_of(b"", b"e-7", b"\nack:1-", 3)
    (b'MESSAGE\nmessage-id:e-7\n', b'e-7\nack:1-3\n')
    """
    return b"%b%b%b%d\n" % (before, ident, after, tag) if tag else before + ident + after


def frame_of(head: bytes, tail: bytes) -> bytes:
    r"""Return a MESSAGE as one piece, with the end of line that follows each frame.

    >>> frame_of(b"MESSAGE\n", b"\nhi\0")
    b'MESSAGE\n\nhi\x00\n'
    """
    return head + tail + b"\n"


def joined(start: bytes, messages: Sequence[Message]) -> bytes:
    r"""Return the MESSAGEs that begin with `start` as one piece.

    >>> joined(b"MESSAGE\n", [Message(b"e-7", 7, "/queue/a", b"\nhi\0")])
    b'MESSAGE\nmessage-id:e-7\n\nhi\x00\n'
    """
    return b"".join([b"%bmessage-id:%b\n%b\n" % (start, message.ident, message.tail) for message in messages])
