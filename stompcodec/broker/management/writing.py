"""Answers as JSON, or as objects of Python. The rows of lists are tuples until then."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

from stompcodec.broker.loop_quota import Line, LoopQuota
from stompcodec.broker.management.pages import ROWS_AT_ONCE, map_in_turns
from stompcodec.broker.management.schema import MOVING, REQUESTS, Column

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

    >>> numbers = [Column(name, "number?", "") for name in ("oldest", "received_rate", "delivered_rate")]
    >>> Form([Column("name", "text", ""), *numbers]).json(("/queue/a", None, 0.5, 0.0))
    '{"name":"/queue/a","oldest":null,"received_rate":0.5,"delivered_rate":0.0}'
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        steady = columns[:-MOVING]
        self._names = [column.name for column in steady]
        self._writers = [_WRITERS.get(column.kind, _json) for column in steady]
        self._kept: dict[tuple[Any, ...], str] = {}

    def json(self, row: tuple[Any, ...]) -> str:
        """Return a row as JSON."""
        steady = row[:-MOVING]
        oldest, received, delivered = map(_number, row[-MOVING:])
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
        """Drop what is kept."""
        self._kept.clear()


#: The columns of the lists, by request.
_LISTS = {name: request.columns for name, request in REQUESTS.items() if request.is_list}


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
        """Return an answer as JSON, of which some rows are written in each turn."""
        form, rows = self._forms.get(answer["ask"]), answer.get("rows")
        if form is None or rows is None:
            return _json(named(answer)).encode()
        self._unused = 0
        texts = yield from map_in_turns(form.json, rows, self._quota, ROWS_AT_ONCE)
        empty = _json({**answer, "rows": []})
        before, middle, after = empty.partition('"rows":[')
        return f"{before}{middle}{','.join(texts)}{after}".encode()

    def tick(self) -> None:
        """Note that a second has passed, and forget what is not used any more."""
        self._unused += 1
        if self._unused > _KEPT_FOR:
            for form in self._forms.values():
                form.forget()
