"""Management: questions to a broker and orders to it, by whatever way they come: STOMP, HTTP, or a call.

Destinations may be searched, and messages moved, for longer than one turn of the loop may take. So an answer is made by
a generator, which yields where it waits for its next turn.

Management over STOMP: a SEND to a reserved destination, answered to its reply-to.

SEND                                     MESSAGE
destination:/management/destinations     destination:/temp-queue/SESSION-answers
reply-to:/temp-queue/answers             correlation-id:1
correlation-id:1                         content-type:application/json

{"limit": 10}                            {"ask": "destinations", "time": ..., "rows": [...], "next": null}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

from stompcodec.broker.auth import is_loopback
from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line, LoopQuota, Work
from stompcodec.broker.management import schema
from stompcodec.broker.management.orders import Orders
from stompcodec.broker.management.questions import Ages, Questions
from stompcodec.broker.message import DELAYS, message_of, milliseconds
from stompcodec.broker.sessions.receipts import confirm
from stompcodec.broker.sessions.send import put, queue_of
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.subscribe import reply_address
from stompcodec.broker.sessions.transaction import QueueOrTopic, Target
from stompcodec.broker.storage.large import is_streamed
from stompcodec.broker.values import Refused
from stompcodec.codec import Frame

#: The texts that a form keeps, and the longest one in characters: 4 MiB. They are dropped after
#: some seconds without such an answer.
_MOST_KEPT, _LONGEST_KEPT, _KEPT_FOR = 4096, 1024, 10
#: Writes any value as JSON, in ASCII.
_json = json.JSONEncoder(separators=(",", ":")).encode
#: Many numbers of an answer are alike: a rate of 0.0, the age of messages that were sent in one second, null.
_number = lru_cache(maxsize=1024)(_json)


def _text(value: str | None) -> str:
    return "null" if value is None else encode_basestring_ascii(value)


#: What writes a value, by the kind of its column; `_json` writes the others.
_WRITERS: dict[str, Callable[[Any], str]] = {"whole": str, "text": _text}


class Form:
    """How rows of queues are written, of which an answer has up to a thousand.

    Most of them differ from those of the answer before in their age and rates only, which come last. So what is
    written of the other columns is kept, by their values: that takes a third of the time.

    >>> numbers = [schema.Column(name, "number?", "") for name in ("oldest", "received_rate", "delivered_rate")]
    >>> Form([schema.Column("name", "text", ""), *numbers]).json(("/queue/a", None, 0.5, 0.0))
    '{"name":"/queue/a","oldest":null,"received_rate":0.5,"delivered_rate":0.0}'
    """

    def __init__(self, columns: Sequence[schema.Column]) -> None:
        steady = columns[: -schema.MOVING]
        self._names = [column.name for column in steady]
        self._writers = [_WRITERS.get(column.kind, _json) for column in steady]
        self._kept: dict[tuple[Any, ...], str] = {}

    def json(self, row: tuple[Any, ...]) -> str:
        steady = row[: -schema.MOVING]
        oldest, received, delivered = map(_number, row[-schema.MOVING :])
        text = self._kept.get(steady) or self._written(steady)
        return f'{text}"oldest":{oldest},"received_rate":{received},"delivered_rate":{delivered}}}'

    def _written(self, steady: tuple[Any, ...]) -> str:
        columns = zip(self._names, self._writers, steady, strict=True)
        text = "".join(["{", *(f'"{name}":{write(value)},' for name, write, value in columns)])
        if len(text) <= _LONGEST_KEPT:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[steady] = text
        return text

    def forget(self) -> None:
        self._kept.clear()


#: The columns of the lists, by request.
_LISTS = {name: request.columns for name, request in schema.REQUESTS.items() if request.is_list}


def named(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer with its rows as dicts.

    >>> named({"ask": "transactions", "time": 0.5, "rows": [("s", "t", 1, 10)], "next": None})["rows"]
    [{'session': 's', 'transaction': 't', 'messages': 1, 'bytes': 10}]
    """
    if "rows" not in answer:
        return {**answer}
    names = [column.name for column in _LISTS[answer["ask"]]]
    return {**answer, "rows": [dict(zip(names, row, strict=True)) for row in answer["rows"]]}


class Writer:
    """Writes answers as JSON."""

    def __init__(self, quota: LoopQuota) -> None:
        self._quota = quota
        self._forms = {name: Form(_LISTS[name]) for name in ("destinations", "durables")}
        #: Seconds since the forms were used.
        self._unused = 0

    def json(self, answer: Mapping[str, Any]) -> Generator[Line, None, bytes]:
        form, rows = self._forms.get(answer["ask"]), answer.get("rows")
        if form is None or rows is None:
            return _json(named(answer)).encode()
        self._unused = 0
        texts = yield from schema.map_in_turns(form.json, rows, self._quota, schema.ROWS_AT_ONCE)
        empty = _json({**answer, "rows": []})
        before, middle, after = empty.partition('"rows":[')
        return f"{before}{middle}{','.join(texts)}{after}".encode()

    def tick(self) -> None:
        self._unused += 1
        if self._unused > _KEPT_FOR:
            for form in self._forms.values():
                form.forget()


_LOG = logging.getLogger("stompcodec.broker.management")
_Found = dict[str, Any]
_Handler = Callable[[schema.Asker, dict[str, Any]], _Found | Generator[Line, None, _Found]]


class Management:
    """The management of one broker, from its start on.

    >>> from stompcodec.broker.config import Config
    >>> management = Management(Broker(Config()))
    >>> management.ask("broker")["result"]["queues"]
    0
    >>> management.ask("purge", destination="/queue/a")["error"]
    {'field': 'destination', 'message': 'there is no queue or durable subscription of this name'}
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.ages = Ages(broker.now, broker.seq)
        self._questions, self._orders = Questions(broker, self.ages), Orders(broker)
        self._handlers: dict[str, _Handler] = {
            name: getattr(self._orders if request.is_order else self._questions, name.replace("-", "_"))
            for name, request in schema.REQUESTS.items()
        }
        broker.each_second.append(self._tick)

    def _tick(self) -> None:
        self.ages.note(self.broker.now, self.broker.seq)
        self._questions.note()
        self._questions.forget()

    def ask(self, name: str, /, *, host: str = "/", **fields: Any) -> dict[str, Any]:
        """Return the answer to a request of this process. Raise RuntimeError if it has to wait: see `begin`."""
        answers: list[dict[str, Any]] = []
        self.begin(name, fields, schema.Asker(self.broker.virtual_host(host), "this process"), answers.append)
        for _ in range(1_000_000):
            if answers or not self.broker.quota.waiting:
                break
            self.broker.quota.next(self.broker.now)
        if not answers:
            raise RuntimeError("the answer has to wait for the store")
        return answers[0]

    def begin(
        self, name: str, given: Mapping[str, Any], asker: schema.Asker, done: Callable[[dict[str, Any]], object]
    ) -> None:
        def steps() -> Generator[Line, None, None]:
            done(named((yield from self.answering(name, given, asker))))

        Work(steps()).take_turn(self.broker.now)
        self.broker.wake()

    def answering(
        self, name: str, given: Mapping[str, Any] | schema.BadRequest, asker: schema.Asker
    ) -> Generator[Line, None, dict[str, Any]]:
        """Yield where a request waits, and return its answer, with rows as tuples. Each order is logged."""
        answer: dict[str, Any] = {"ask": name[:100], "time": round(self.broker.wall(), 3)}
        request = schema.REQUESTS.get(name)
        try:
            if request is None:
                raise schema.BadRequest("ask", f"there is no such request; there are: {', '.join(schema.REQUESTS)}")
            if isinstance(given, schema.BadRequest):
                raise given
            fields = schema.read_fields(given, request.by_name)
            found = self._handlers[name](asker, fields)
            if not isinstance(found, dict):
                found = yield from (_with_note(found, name, given, asker) if request.is_order else found)
        except schema.BadRequest as error:
            answer["error"] = {"field": error.field, "message": error.message}
        except Exception:
            _LOG.exception("the request %r of %s has failed", name, asker.who)
            answer["error"] = {"field": "ask", "message": "internal error: see the broker's log"}
        else:
            if request.is_list:
                answer.update(found)
            else:
                answer["result"] = found
        if request is not None and request.is_order and not isinstance(given, schema.BadRequest):
            outcome = answer.get("error") or answer.get("result")
            _LOG.warning("order %s %s of %s: %s", name, _said(given), asker.who, _said(outcome))
        return answer


def _with_note(
    steps: Generator[Line, None, _Found], name: str, given: Mapping[str, Any], asker: schema.Asker
) -> Generator[Line, None, _Found]:
    """Carry out an order. If it has to wait, log it before: the broker may be killed before it is done."""
    try:
        line = next(steps)
    except StopIteration as end:
        found: _Found = end.value
        return found
    _LOG.warning("order %s %s of %s has begun", name, _said(given), asker.who)
    yield line
    return (yield from steps)


def _said(what: Any) -> str:
    text = ascii(what)
    return text if len(text) <= 500 else text[:500] + "..."


# ---- over STOMP ----
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
        """Handle a SEND to a reserved destination. Raise Refused if a bridge carries it, or there is no reply-to."""
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
        asker = schema.Asker(host, f"user {session.user.name!r} of {session.peer}, session {session.id}", session.id)
        session.work(frame, self._answering(session, frame, address, name, given, asker))

    def _given(self, session: Session, frame: Frame, destination: str) -> Mapping[str, Any] | schema.BadRequest:
        local = is_loopback(host_of_peer(session.peer)) and not session.foreign  # that is a page of another site
        if not self._broker.auth.may_manage(session.user, destination, local=local):
            why = (
                "no rule allows it" if self._broker.config.users is not None else "only this machine may, without users"
            )
            return schema.BadRequest("destination", f"not allowed: {why}")
        if session.header(frame, "transaction") is not None:
            return schema.BadRequest("transaction", "a request cannot be in a transaction")
        for name in DELAYS:
            if milliseconds(session.header(frame, name) or ""):
                return schema.BadRequest(name, "a request cannot be delayed")
        if is_streamed(frame):
            return schema.BadRequest("body", "it is too long")
        try:
            return schema.read_json(frame.body or b"")
        except schema.BadRequest as error:
            return error

    def _answering(
        self,
        session: Session,
        frame: Frame,
        address: str,
        name: str,
        given: Mapping[str, Any] | schema.BadRequest,
        asker: schema.Asker,
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


def host_of_peer(peer: str) -> str:
    """Return the host of an address that a listener has given.

    >>> host_of_peer("[::1]:9"), host_of_peer("127.0.0.1:9")
    ('::1', '127.0.0.1')
    """
    return peer.rpartition(":")[0].strip("[]")


def _target(session: Session, address: str) -> QueueOrTopic | None:
    """Return the queue or topic of an answer; None if it has ended. Raise Refused if it is not allowed."""
    host = session.virtual_host
    if host.owners.get(address) is not session:
        return queue_of(session, Target(address))
    found = host.queues.get(address) or host.topics.get(address)
    holders = () if found is None else found.holders()
    if any(each.full and session.acknowledges(each) and not each.may_grow for each in holders):
        raise Refused("the queue is full", "Acknowledge the answers before you ask more.")
    return found
