"""Runs a parser and writes down its answers as tuples, pieces of a body joined, so that runs can be compared."""

from collections.abc import Iterable, Iterator
from typing import Any

from stompcodec.errors import FrameError
from stompcodec.frame import END_OF_BODY, HEARTBEAT

Answer = tuple[Any, ...]


def answer_of(item: Any) -> Answer:
    if item is HEARTBEAT:
        return ("heartbeat",)
    if item is END_OF_BODY:
        return ("end",)
    if type(item) is bytes:
        assert item, "an empty piece of a body"
        return ("piece", item)
    return ("frame", item.command, item.headers.pairs(), item.body)


def error_of(error: FrameError) -> Answer:
    return ("error", error.kind, error.offset, error.limit)


def add(answers: list[Answer], answer: Answer) -> None:
    if answer[0] == "piece" and answers and answers[-1][0] == "piece":
        answer = ("piece", answers.pop()[1] + answer[1])
    answers.append(answer)


def feed(parser: Any, data: bytes) -> Iterator[Any]:
    return iter(parser.feed(data))


def feed_bytearray(parser: Any, data: bytes) -> Iterator[Any]:
    """Octets are taken in at once: what happens to the object afterwards does not matter."""
    room = bytearray(data)
    found = parser.feed(room)
    room[:] = b"\xaa" * len(room)
    room.clear()
    return iter(found)


def feed_buffer(parser: Any, data: bytes) -> Iterator[Any]:
    """The way of asyncio.BufferedProtocol. Views are kept, to see that nothing depends on their end."""
    views, rest = [], data
    while rest or not views:
        views.append(parser.get_buffer(len(rest)))
        count = min(len(views[-1]), len(rest))
        views[-1][:count] = rest[:count]
        yield from parser.buffer_updated(count)
        rest = rest[count:]


WAYS = {"feed": feed, "bytearray": feed_bytearray, "buffer": feed_buffer}


def run(codec, chunks, *, close=True, way="feed", **options):
    """All answers of a new parser that is fed `chunks`, and what it called `buffered` after each of them."""
    parser = codec.Parser(options.pop("version", "1.2"), **options)
    answers, buffered, take = [], [], WAYS[way]
    try:
        for chunk in chunks:
            for item in take(parser, chunk):
                add(answers, answer_of(item))
            buffered.append(parser.buffered)
        if close:
            parser.close()
    except FrameError as error:
        answers.append(error_of(error))
        buffered.append(parser.buffered)
    return answers, buffered


def answers_of(codec: Any, data: bytes | Iterable[bytes], **options: Any) -> list[Answer]:
    """The answers alone; `data` in one piece, or in chunks."""
    return run(codec, [data] if isinstance(data, bytes) else data, **options)[0]


def each_cut(data: bytes) -> Iterator[list[bytes]]:
    """The whole, each octet, and every cut into two."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def same_in_every_cut(codec: Any, data: bytes, **options: Any) -> list[Answer]:
    """The answers, which must be the same however `data` is cut."""
    whole = answers_of(codec, data, **options)
    for chunks in each_cut(data):
        got = answers_of(codec, chunks, **options)
        assert got == whole, f"cut into {[len(chunk) for chunk in chunks]}"
    return whole
