"""Management over STOMP: a SEND to a reserved destination, answered to its reply-to.

SEND                                     MESSAGE
destination:/management/destinations     destination:/temp-queue/SESSION-answers
reply-to:/temp-queue/answers             correlation-id:1
correlation-id:1                         content-type:application/json

{"limit": 10}                            {"ask": "destinations", "time": ..., "rows": [...], "next": null}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stompcodec.broker.auth import is_loopback
from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.management import Management, Writer
from stompcodec.broker.management.schema import Asker, BadRequest, read_json
from stompcodec.broker.message import DELAYS, message_of, milliseconds
from stompcodec.broker.sessions.send import put, queue_of
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.subscribe import confirm, reply_address
from stompcodec.broker.sessions.transaction import QueueOrTopic, Target
from stompcodec.broker.storage.large import is_streamed
from stompcodec.codec import Frame

#: The headers of an answer that are those of its request.
_COPIED = ("correlation-id",)
#: The header of messages that a bridge carries.
_CARRIED = "bridge-path"


class OverStomp:
    """The requests of the sessions of a broker. While it is there, SENDs to its `management_prefix` come here."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._broker = management.broker
        self._writer = Writer(self._broker.quota)
        self._prefix = self._broker.config.management_prefix
        if self._prefix:
            self._broker.manage = self._manage
            self._broker.each_second.append(self._writer.tick)

    def _manage(self, session: Session, frame: Frame, destination: str) -> None:
        """Handle a SEND to a reserved destination. Raise Refused if it says nowhere where its answer can go, or if it
        is a message that a bridge carries: such a one would have the rights of the bridge, and be lost.
        """
        if frame.get(_CARRIED) is not None:
            raise Refused(
                "a request cannot come through a bridge", f"Map its destination to one without {self._prefix}."
            )
        reply_to = frame.get("reply-to")
        if not reply_to:
            raise Refused("reply-to is missing", "A request to the broker needs a reply-to, for the answer.")
        address = reply_address(session, reply_to) or reply_to
        _target(session, address)  # before anything is done
        name = destination[len(self._prefix) :]
        given = self._given(session, frame, destination)
        host = session.virtual_host
        asker = Asker(host, f"user {session.user.name!r} of {session.peer}, session {session.id}", session.id)
        session.work(frame, self._answering(session, frame, address, name, given, asker))

    def _given(self, session: Session, frame: Frame, destination: str) -> Mapping[str, Any] | BadRequest:
        """Return the fields of a request, or why they cannot be read."""
        local = is_local(session)
        if not self._broker.auth.may_manage(session.user, destination, local=local):
            why = (
                "no rule allows it" if self._broker.config.users is not None else "only this machine may, without users"
            )
            return BadRequest("destination", f"not allowed: {why}")
        if session.header(frame, "transaction") is not None:
            return BadRequest("transaction", "a request cannot be in a transaction")
        for name in DELAYS:
            if milliseconds(session.header(frame, name) or ""):
                return BadRequest(name, "a request cannot be delayed")
        if is_streamed(frame):
            return BadRequest("body", "it is too long")
        try:
            return read_json(frame.body or b"")
        except BadRequest as error:
            return error

    def _answering(
        self,
        session: Session,
        frame: Frame,
        address: str,
        name: str,
        given: Mapping[str, Any] | BadRequest,
        asker: Asker,
    ) -> Iterator[Line]:
        answer = yield from self._management.answering(name, given, asker)
        body = yield from self._writer.json(answer)
        if session.ended:
            return
        target = _target(session, address)
        if target is not None:
            pairs = [("destination", address), ("content-type", "application/json")]
            pairs += [(copied, value) for copied in _COPIED if (value := session.header(frame, copied)) is not None]
            put(session, target, message_of(Frame("SEND", pairs, body), address, False, self._broker.wall))
        confirm(session, frame)


def is_local(session: Session) -> bool:
    """Return whether a session is of this machine: of a program, or of the page of the broker itself."""
    return is_loopback(host_of_peer(session.peer)) and not session.foreign


def host_of_peer(peer: str) -> str:
    """Return the host of an address that a listener has given.

    >>> host_of_peer("[::1]:9"), host_of_peer("127.0.0.1:9")
    ('::1', '127.0.0.1')
    """
    return peer.rpartition(":")[0].strip("[]")


def _target(session: Session, address: str) -> QueueOrTopic | None:
    """Return the queue or topic that an answer goes to; None if it has ended. Raise Refused if the session may not send
    there.
    """
    host = session.virtual_host
    if host.owners.get(address) is not session:
        return queue_of(session, Target(address))
    found = host.queues.get(address) or host.topics.get(address)
    holders = () if found is None else found.holders()
    if any(each.full and session.acknowledges(each) and not each.may_grow for each in holders):
        raise Refused("the queue is full", "Acknowledge the answers before you ask more.")
    return found
