"""Received messages: MESSAGE frames with their subscription and connection."""

from __future__ import annotations

from stompcodec.client.bodies import BodyReader, ReceivedBody
from stompcodec.client.dialects import BrokerDialect, lasting_identity
from stompcodec.client.owned import HeaderSource, pairs_of
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame, Headers
from stompcodec.content import decode_content, json_value, text_of
from stompcodec.errors import LocalProtocolError


class BaseMessage:
    """The base of `Message` and `AsyncMessage`.

    `epoch` is the number of the connection that delivered it: on another one, acknowledging raises StaleAckError.
    """

    __slots__ = ("_failed", "_proof", "_received", "epoch", "frame", "seq", "settled", "subscription")
    _received: ReceivedBody
    _failed: int  # calls of its handler; set only if there is one
    _proof: Call  # of the ACK or NACK, or of the COMMIT; set only if there is one

    def __init__(self, frame: Frame, subscription: Subscription, epoch: int, seq: int) -> None:
        self.frame = frame
        self.subscription = subscription
        self.epoch = epoch
        self.seq = seq
        self.settled = ""
        """"ACK" or "NACK", also while their transaction is open; "unknown" after a COMMIT without answer; else ""."""

    @property
    def is_confirmed(self) -> bool:
        """True if the broker has confirmed that it is settled: the receipt of its ACK or NACK came."""
        proof = getattr(self, "_proof", None)
        return proof is not None and proof.done and proof.error is None

    def confirm_by(self, call: Call) -> None:
        """Take the outcome of a call as that of its ACK or NACK."""
        self._proof = call

    @property
    def headers(self) -> Headers:
        """The headers; the first entry of a repeated name counts."""
        return self.frame.headers

    @property
    def body(self) -> bytes:
        """The bytes as they were received, before a content-encoding is undone.

        Raises:
            LocalProtocolError: the body is in a file (option `stream_over`): use `open`.
        """
        body: bytes | None = self.frame.body
        if body is None:
            raise LocalProtocolError(f"the body of {self.size} bytes is in a file: read it by message.open()")
        return body

    @property
    def is_streamed(self) -> bool:
        """True if the body is in a file, because it is longer than the option `stream_over`. `open` reads it."""
        return self.frame.body is None

    @property
    def size(self) -> int:
        """The bytes of the body, in memory or in a file."""
        received = self.received
        return len(self.frame.body) if received is None else received.size

    @property
    def received(self) -> ReceivedBody | None:
        """The body in a file; None for one in memory. For `open` and the receiving half."""
        return self._received if self.frame.body is None else None

    @received.setter
    def received(self, body: ReceivedBody) -> None:
        self._received = body

    def reader(self) -> BodyReader:
        """Return a reader of the body, for `open`; raise OSError if the body could not be kept."""
        received = self.received
        return BodyReader(self.frame.body if received is None else received)

    @property
    def id(self) -> str:
        """The message-id."""
        return self.frame.headers["message-id"]

    @property
    def identity(self) -> str | None:
        """What stays the same when the broker delivers the message again, also after a restart; None if nothing does.

        It tells the messages of one subscription apart: the copies of a topic's message have one identity.
        """
        return lasting_identity(self.subscription.dialect, self.frame.headers)

    @property
    def destination(self) -> str:
        """The destination, in the broker's spelling."""
        return self.frame.headers["destination"]

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a header's first entry, or `default`.

        Names are case-sensitive, except in the legacy dialect.
        """
        return self.frame.get(name.lower() if self.subscription.folds_case else name, default)

    def value(self, name: str, default: object = None) -> object:
        """Return a header's first entry as a JSON value, as text if it is not valid JSON, or `default`.

        Thus 9 is a number, "9" in quotes a text, and true a bool.
        """
        text = self.get(name)
        return default if text is None else json_value(text)

    def text(self, charset: str | None = None) -> str:
        """Return the body as text, by content-type and charset, after undoing a content-encoding.

        Args:
            charset: that of the body, whatever its content-type says. Without both it is read as UTF-8.

        Raises:
            ContentError: the content-type does not name text, or the bytes are invalid in the charset.
            TypeError, ValueError: `charset` is not a charset that Python knows.
            LocalProtocolError: as `body`.
            FrameError: "bad-content-encoding", or "limit-exceeded" for over 100 MiB.
        """
        self.body  # noqa: B018  # raises if it is in a file
        return text_of(self.frame, charset, untyped="utf_8")

    def content(self, max_size: int = 100 * 2**20) -> bytes:
        """Return the body without its content-encoding (gzip, deflate, base64), inflated to at most `max_size` bytes.

        Raises:
            FrameError: "bad-content-encoding", or "limit-exceeded".
            LocalProtocolError: as `body`.
        """
        return decode_content(self.frame.get("content-encoding"), self.body, max_size)

    @property
    def redelivered(self) -> bool:
        """True if the broker says that it was delivered before. ActiveMQ and Artemis do not always say so."""
        return self.frame.get("redelivered") == "true"

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1 on: deliveries, and calls of a handler that failed.

        If the broker does not count deliveries, all later ones count as the second.
        """
        failed = getattr(self, "_failed", 0)
        for name in self.subscription.dialect.attempts:
            count = self.frame.get(name)
            if count is not None and count.isascii() and count.isdigit() and len(count) < 10:
                return int(count) + 1 + failed
        return (2 if self.redelivered else 1) + failed

    def count_calls(self, failed: int) -> None:
        """Note how many calls of its handler have failed."""
        self._failed = failed

    def answer(
        self, body: bytes | str, headers: HeaderSource | None, dialect: BrokerDialect
    ) -> tuple[str, bytes | str, list[tuple[str, str]]]:
        """Return destination, body and headers of a reply.

        Raises:
            LocalProtocolError: the message has no reply-to, or one that no message can be sent to.
            ValueError: the headers have another correlation-id than the message.
        """
        destination = self.frame.get("reply-to")
        if destination is None:
            raise LocalProtocolError("the message has no reply-to header, so it cannot be replied to")
        fault = dialect.fault_of(destination)
        if fault is not None:
            raise LocalProtocolError(f"the reply-to {destination!r:.60} {fault}: the message cannot be replied to")
        key = self.frame.get("correlation-id")
        pairs = [] if headers is None else list(pairs_of("reply", headers))
        given = next((value for name, value in pairs if name == "correlation-id"), key)
        if key is not None and given != key:
            raise ValueError(f"headers= holds 'correlation-id' as {given!r:.60}: the reply has that of the message")
        return destination, body, pairs if key is None else [("correlation-id", key), *pairs]

    def __repr__(self) -> str:
        settled = f" {self.settled}" if self.settled else ""
        return f"<Message{settled} {self.frame!r}>"
