"""A message that was delivered to us: a MESSAGE frame that knows which subscription and connection it came by."""

from __future__ import annotations

from collections.abc import Mapping

from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame, Headers
from stompcodec.content import decode_content, json_value, text_of
from stompcodec.errors import LocalProtocolError

__all__ = ["BaseMessage"]


class BaseMessage:
    """What messages of both shells have in common.

    `epoch` tells the connection by which it came: an acknowledgement on any other is refused (StaleAckError).
    """

    __slots__ = ("epoch", "frame", "seq", "settled", "subscription")

    def __init__(self, frame: Frame, subscription: Subscription, epoch: int, seq: int) -> None:
        self.frame = frame
        self.subscription = subscription
        self.epoch = epoch
        self.seq = seq
        self.settled = ""  # "ACK" or "NACK"

    @property
    def headers(self) -> Headers:
        """The headers; of a repeated name the first entry counts."""
        return self.frame.headers

    @property
    def body(self) -> bytes:
        """The octets as they came, also where there is a content-encoding."""
        return self.frame.body

    @property
    def id(self) -> str:
        """The message-id."""
        return self.frame.headers["message-id"]

    @property
    def destination(self) -> str:
        """Where it was sent. Brokers may spell it otherwise than the sender did."""
        return self.frame.headers["destination"]

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a header's first entry, or `default`.

        Names are case-sensitive. Only in the legacy dialect, where they come in lower case, any case finds them.
        """
        return self.frame.get(name.lower() if self.subscription.folds_case else name, default)

    def value(self, name: str, default: object = None) -> object:
        """A header's first entry as the JSON value that it says, the text where it says none; or `default`.

        So 9 is a number, "9" in quotes a text, true a truth value, and so is what is in brackets. It never raises.
        """
        text = self.get(name)
        return default if text is None else json_value(text)

    def text(self) -> str:
        """The body as text, by content-type and charset; a content-encoding is undone first.

        Raises:
            ContentError: the content-type names no text, or the octets are not of that charset.
            FrameError: "bad-content-encoding", or "limit-exceeded" for over 100 MiB.
        """
        return text_of(self.frame)

    def content(self, max_size: int = 100 * 2**20) -> bytes:
        """The body without its content-encoding (gzip, deflate, base64), never inflated beyond `max_size` octets.

        Raises:
            FrameError: "bad-content-encoding", or "limit-exceeded".
        """
        return decode_content(self.frame.get("content-encoding"), self.frame.body, max_size)

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it was delivered before."""
        return self.frame.get("redelivered") == "true"

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1 on; where the broker does not count, 2 stands for all redeliveries."""
        for name in self.subscription.attempt_headers:
            count = self.frame.get(name)
            if count is not None and count.isascii() and count.isdigit() and len(count) < 10:
                return int(count) + 1
        return 2 if self.redelivered else 1

    def answer(
        self, body: bytes | str, headers: Mapping[str, str] | None
    ) -> tuple[str, bytes | str, list[tuple[str, str]]]:
        """Destination, body and headers of an answer to it.

        Raises:
            LocalProtocolError: it has no reply-to.
        """
        destination = self.frame.get("reply-to")
        if destination is None:
            raise LocalProtocolError("the message has no reply-to: it wants no answer")
        key = self.frame.get("correlation-id")
        pairs = [] if key is None else [("correlation-id", key)]
        return destination, body, [*pairs, *(headers or {}).items()]

    def __repr__(self) -> str:
        settled = f" {self.settled}" if self.settled else ""
        return f"<Message{settled} {self.frame!r}>"
