"""Lists of destinations: RECEIVE with `browser:names` is answered by their names, not by a message.

A page has at most `PAGE` names, in alphabetical order. Only those are named that the session may subscribe to.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stompcodec.broker.config.settings import Address, Kind
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.queues.consumer import EOL
from stompcodec.broker.sessions.receipts import confirm
from stompcodec.codec import Frame, serialize

if TYPE_CHECKING:
    from stompcodec.broker.sessions.session import Session

#: The value of the header `browser` that asks for names.
NAMES = "names"
#: The most names in one answer.
PAGE = 1000
#: Names that are looked at in one turn.
_LOOKS = 500


def list_names(session: Session, frame: Frame, pattern: str, key: str | None) -> Iterator[Line]:
    """Answer a RECEIVE that asks for names, in steps.

    Args:
        session: the session that asks.
        frame: the RECEIVE; `from-name` says after which name to go on.
        pattern: a name, or the beginning of names and a star.
        key: the id of the RECEIVE.
    """
    after = session.header(frame, "from-name") or ""
    destinations = session.virtual_host.destinations
    head, star = pattern.removesuffix("*"), pattern.endswith("*")
    seen = []  # `next` is a name, too
    for count, (kind, name) in enumerate(
        [(Kind.QUEUE, name) for name in destinations.queues]
        + [(Kind.TOPIC, name) for name in destinations.topics.by_name],
        1,
    ):
        if name > after and name.startswith(head) and (star or name == pattern) and _may_see(session, kind, name):
            seen.append(name)
        if not count % _LOOKS:
            yield session.broker.quota
            if session.ended:
                return
    names = heapq.nsmallest(PAGE + 1, seen)
    page = {
        "destinations": [_row(session, name) for name in names[:PAGE]],
        "next": names[PAGE - 1] if len(names) > PAGE else None,
        "management": session.broker.config.management_prefix,
    }
    headers = [] if key is None else [("subscription", key)]
    number = session.next_number
    session.next_number += 1
    headers += [("message-id", f"{session.id}-{number}-names"), ("destination", pattern)]
    headers += [("browser", NAMES), ("content-type", "application/json")]
    answer = Frame("MESSAGE", headers, json.dumps(page, separators=(",", ":")).encode())
    session.reply(serialize(answer, session.version) + EOL)
    confirm(session, frame)


def _may_see(session: Session, kind: Kind, name: str) -> bool:
    destinations = session.virtual_host.destinations
    if not name.isprintable() or destinations.naming.is_temporary(name) or name in destinations.owners:
        return False
    return destinations.why_unseen(session, Address(kind, *destinations.naming.split(name)[1:], literal=True)) is None


def _row(session: Session, name: str) -> dict[str, str | int]:
    queue = session.virtual_host.destinations.queues.get(name)
    if queue is None:
        return {"destination": name, "kind": "topic", "ready": 0, "messages": 0}
    paged = queue.total - queue.count
    return {"destination": name, "kind": "queue", "ready": len(queue.messages) + paged, "messages": queue.total}
