"""Lists of destinations: RECEIVE with `browser:names` is answered by their names, not by a message.

A page has at most `PAGE` names, in alphabetical order. Only those are named that the session may subscribe to.
"""

from __future__ import annotations

import heapq
import itertools
import json
from typing import TYPE_CHECKING

from stompcodec.broker.queues.consumer import EOL
from stompcodec.broker.routing.durable import owner_of
from stompcodec.broker.sessions.receipts import confirm
from stompcodec.codec import Frame, serialize

if TYPE_CHECKING:
    from stompcodec.broker.sessions.session import Session

#: The value of the header `browser` that asks for names.
NAMES = "names"
#: The most names in one answer.
PAGE = 1000


def list_names(session: Session, frame: Frame, pattern: str, key: str | None) -> None:
    """Answer a RECEIVE that asks for names.

    Args:
        session: the session that asks.
        frame: the RECEIVE; `from-name` says after which name to go on.
        pattern: a name, or the beginning of names and a star.
        key: the id of the RECEIVE.
    """
    after = session.header(frame, "from-name") or ""
    destinations = session.virtual_host.destinations
    head, star = pattern.removesuffix("*"), pattern.endswith("*")
    fitting = (
        name
        for name in itertools.chain(destinations.queues, destinations.topics.by_name)
        if name > after and name.startswith(head) and (star or name == pattern)
    )
    names = heapq.nsmallest(PAGE + 1, fitting)
    rows = [_row(session, name) for name in names[:PAGE] if _may_see(session, name)]
    page = {
        "destinations": rows,
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


def _may_see(session: Session, name: str) -> bool:
    destinations = session.virtual_host.destinations
    if not name.isprintable() or destinations.naming.is_temporary(name) or name in destinations.owners:
        return False
    owner = owner_of(destinations.naming.of_letters(name) or "")
    if owner is not None and session.owner not in (None, owner):
        return False
    return session.broker.auth.may(session.user, "subscribe", name)


def _row(session: Session, name: str) -> dict[str, str | int]:
    queue = session.virtual_host.destinations.queues.get(name)
    if queue is None:
        return {"destination": name, "kind": "topic", "ready": 0, "messages": 0}
    paged = queue.total - queue.count
    return {"destination": name, "kind": "queue", "ready": len(queue.messages) + paged, "messages": queue.total}
