"""JMS message types: with `messages.jms`, content-length distinguishes text from bytes messages, as in Artemis.

A SEND without content-length is a text message, and is delivered without; one with content-length is a bytes message,
and keeps it. Only the message's tail records which it is. STOMP 1.0 clients of JMS brokers rely on this. A large
message always has content-length.
"""

from __future__ import annotations

from stompcodec.codec import Frame


def is_text(frame: Frame) -> bool:
    """Return whether a SEND is a text message.

    >>> is_text(Frame("SEND", {"destination": "/queue/a"}, b"hi"))
    True
    """
    return frame.get("content-length") is None


def text_tail(tail: bytes) -> bytes:
    """Return the tail of a `Message` without its content-length, which is the last header if present.

    >>> text_tail(b"a:b\\ncontent-length:2\\n\\nhi\\0"), text_tail(b"a:b\\n\\n\\0")
    (b'a:b\\n\\nhi\\x00', b'a:b\\n\\n\\x00')
    """
    end = tail.find(b"\n\n")
    line = tail.rfind(b"\n", 0, max(end, 0)) + 1
    return tail[:line] + tail[end + 1 :] if tail.startswith(b"content-length:", line) else tail
