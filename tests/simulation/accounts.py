"""What the broker holds, counted anew, and compared with its own account."""

from __future__ import annotations

from broker.audit import audit, difference

from stompcodec.broker.core import Broker

_THOROUGH = 16  # Every so many turns each message is looked at; in the others, each queue.


class Accounts:
    """The memory account, checked after each turn."""

    def __init__(self) -> None:
        self._turns = 0

    def __call__(self, broker: Broker) -> str:
        """What is wrong; "" if nothing is."""
        self._turns += 1
        account = broker.account
        if not self._turns % _THOROUGH:
            found = difference(broker)
            return f"(account, held): {found}" if found else ""
        held = sum(audit(broker))
        return f"{held} bytes are held, and the account has {account.used}" if held != account.used else ""
