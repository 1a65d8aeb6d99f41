"""What only some brokers offer, by the header `commands` of CONNECTED: PING, and RECEIVE for a single message."""

from __future__ import annotations

from stompcodec.client.inbound import Intake
from stompcodec.client.receipts import Call
from stompcodec.client.subscription import Subscription
from stompcodec.codec import Frame
from stompcodec.errors import LocalProtocolError

__all__ = ["Offers"]


class Offers(Intake):
    """The part of the core for commands beside those of STOMP."""

    def _offers(self, command: str) -> bool:
        """A connection is there, and the broker named the command in CONNECTED."""
        offered = None if self.server is None else self.server.get("commands")
        return self._phase == "up" and offered is not None and command in offered.split(",")

    def ping(self, now: float, call: Call) -> bool:
        """PING; the call is accepted by its receipt. False where there is no connection, or the broker has no PING."""
        self._now = now
        self._check_open()
        if not self._offers("PING"):
            return False
        self._put(Frame("PING", [("receipt", call.id)]), call, bound=True)
        return True

    def fetch(self, subscription: Subscription, now: float, call: Call) -> bool:
        """RECEIVE; the call's result is a message, or None for none. False where there is no connection just now.

        Args:
            subscription: for this one message; it is not entered anywhere.

        Raises:
            LocalProtocolError: the broker does not offer it, or the client is closed.
        """
        self._now = now
        self._check_open()
        if self._phase != "up":
            return False
        if not self._offers("RECEIVE"):
            raise LocalProtocolError("this broker offers no RECEIVE: subscribe, and take one message")
        subscription.attempt_headers = self.dialect.attempts
        subscription.folds_case = self.version == "legacy"
        call.command, call.subject = "RECEIVE", subscription
        self._fetches[subscription.id] = call
        headers = self._subscribe_headers(subscription)
        self._put(Frame("RECEIVE", [*headers, ("receipt", call.id)]), call, bound=True)
        return True
