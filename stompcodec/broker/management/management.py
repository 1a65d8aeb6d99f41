"""Management: questions to a broker and orders to it, by whatever way they come: STOMP, HTTP, or a call.

Destinations may be searched, and messages moved, for longer than one turn of the loop may take. So an answer is made by
a generator, which yields where it waits for its next turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line, Work
from stompcodec.broker.management.asker import Asker
from stompcodec.broker.management.orders import Orders
from stompcodec.broker.management.questions import Questions
from stompcodec.broker.management.rates import Ages
from stompcodec.broker.management.reading import BadRequest, read_fields
from stompcodec.broker.management.schema import REQUESTS
from stompcodec.broker.management.writing import named

_LOG = logging.getLogger("stompcodec.broker.management")

_Found = dict[str, Any]
_Handler = Callable[[Asker, dict[str, Any]], _Found | Generator[Line, None, _Found]]


class Management:
    """The management of one broker, from its start on.

    >>> from stompcodec.broker.config.config import Config
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
            for name, request in REQUESTS.items()
        }
        broker.each_second.append(self._tick)

    def _tick(self) -> None:
        self.ages.note(self.broker.now, self.broker.seq)
        self._questions.forget()

    def ask(self, name: str, /, *, host: str = "/", **fields: Any) -> dict[str, Any]:
        """Return the answer to a question or an order of this process.

        Args:
            name: one of `schema.REQUESTS`.
            host: the virtual host.
            fields: of the request, as docs/management.md lists them.

        Raises:
            RuntimeError: the answer has to wait for the store. Use `begin` then.
        """
        answers: list[dict[str, Any]] = []
        self.begin(name, fields, Asker(self.broker.virtual_host(host), "this process"), answers.append)
        for _ in range(1_000_000):
            if answers or not self.broker.quota.waiting:
                break
            self.broker.quota.next(self.broker.now)
        if not answers:
            raise RuntimeError("the answer has to wait for the store")
        return answers[0]

    def begin(
        self, name: str, given: Mapping[str, Any], asker: Asker, done: Callable[[dict[str, Any]], object]
    ) -> None:
        """Begin a request. `done` gets the answer, now or in a later turn."""

        def steps() -> Generator[Line, None, None]:
            done(named((yield from self.answering(name, given, asker))))

        Work(steps()).take_turn(self.broker.now)
        self.broker.wake()

    def answering(
        self, name: str, given: Mapping[str, Any] | BadRequest, asker: Asker
    ) -> Generator[Line, None, dict[str, Any]]:
        """Yield where a request waits, and return its answer: an error for a bad one. Rows are tuples, see
        `writing.py`. Each order is logged, and one that waits is logged at its beginning, too.
        """
        answer: dict[str, Any] = {"ask": name[:100], "time": round(self.broker.wall(), 3)}
        request = REQUESTS.get(name)
        try:
            if request is None:
                raise BadRequest("ask", f"there is no such request; there are: {', '.join(REQUESTS)}")
            if isinstance(given, BadRequest):
                raise given
            fields = read_fields(given, request.by_name)
            found = self._handlers[name](asker, fields)
            if not isinstance(found, dict):
                found = yield from (_with_note(found, name, given, asker) if request.is_order else found)
        except BadRequest as error:
            answer["error"] = {"field": error.field, "message": error.message}
        except Exception:
            _LOG.exception("the request %r of %s has failed", name, asker.who)
            answer["error"] = {"field": "ask", "message": "internal error: see the broker's log"}
        else:
            if request.is_list:
                answer.update(found)
            else:
                answer["result"] = found
        if request is not None and request.is_order and not isinstance(given, BadRequest):
            outcome = answer.get("error") or answer.get("result")
            _LOG.warning("order %s %s of %s: %s", name, _said(given), asker.who, _said(outcome))
        return answer


def _with_note(
    steps: Generator[Line, None, _Found], name: str, given: Mapping[str, Any], asker: Asker
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
    """Return a short text for the log, without control characters."""
    text = ascii(what)
    return text if len(text) <= 500 else text[:500] + "..."
