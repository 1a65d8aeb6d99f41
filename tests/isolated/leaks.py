"""Every operation, errors too, is run many times, and nothing may grow. Arguments: {c|python} [ROUNDS]"""

import copy
import gc
import itertools
import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from codec.test_surface import CALLS, call_it

from stompcodec.codec import backend
from stompcodec.errors import FrameError
from stompcodec.spec import Limits

codec = backend(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
BODY = bytes(1000)
WIRE = b"SEND\na:1\nb\\c:\\n\n\xc3\xa9:x\na:2\n\nhello\0\n"
BIG = b"SEND\ncontent-length:20000\n\n" + bytes(20000) + b"\0"
HEADS = b"SEND\n" + b"".join(b"h%d:v\n" % i for i in range(100)) + b"\n\0"


def attempt(call, *args, **named):
    try:
        return call(*args, **named)
    except (FrameError, TypeError, ValueError, RuntimeError, KeyError, AttributeError, BufferError):
        return None


def read_frames():
    for frame in codec.Parser("1.2", heartbeats=True).feed(WIRE * 3):
        repr(frame)


def read_in_pieces():
    parser = codec.Parser("1.2", limits=Limits(max_headers=500), commands=["PING"])
    for stream in (BIG, HEADS, b"SEND\n\n" + BIG[30:40].replace(b"\0", b"x") * 900 + b"\0"):
        for at in range(0, len(stream), 3000):
            list(parser.feed(bytearray(stream[at : at + 3000])))
    parser.version = "1.1"
    parser.feed(BIG[:9000])
    attempt(parser.close)


def read_streamed():
    parser = codec.Parser("1.2", stream_over=10)
    for at in range(0, len(BIG), 3000):
        list(parser.feed(BIG[at : at + 3000]))
    parser.feed(b"SEND\n\n" + b"x" * 50)
    next(parser)


def read_into_buffers():
    parser, views, at = codec.Parser("1.2"), [], 0
    while at < len(BIG):
        view = parser.get_buffer(4000)
        count = min(len(view), 4000, len(BIG) - at)
        view[:count] = BIG[at : at + count]
        at += count
        views.append(view)
        list(parser.buffer_updated(count))
    parser.get_buffer()
    attempt(parser.buffer_updated, -1)
    parser.feed(b"x")
    attempt(parser.buffer_updated, 1)


MALFORMED = [
    *(b"NONSENSE\n", b"SEND\n\xff:x\n", b"SEND\na:\\q\n", b"SEND\nx\n", b"\0", b"ACK\n\nx", b"X" * 300),
    *(b"SEND\ncontent-length:x\n", b"SEND\ncontent-length:1\n\nabc\0", b"SEND\n" + b"x" * 70_000),
    b"SEND\n" + b"a:b\n" * 1001,
]


def read_errors():
    for wrong in MALFORMED:
        parser = codec.Parser("1.2")
        parser.feed(WIRE + wrong)
        for _ in range(3):
            attempt(list, parser)
        attempt(parser.close)
        attempt(parser.feed, 5)


def call_wrongly():
    for call in CALLS:
        attempt(call_it, codec, call.id)


def look_at_frames():
    made = codec.Frame("SEND", [("a", "1"), ("b:", "\n"), ("é", "x"), ("a", "2")], b"hello")
    for frame in (made, *codec.Parser("1.2").feed(WIRE)):
        headers = frame.headers
        (
            *(dict(headers), list(headers), headers.items(), headers.values(), headers.pairs()),
            *(headers.getall("a"), len(headers)),
        )
        frame.get("a"), frame.get("x", 5), headers.get("é"), headers["b:"], "a" in headers, 5 in headers
        attempt(headers.__getitem__, "nothing")
        attempt(setattr, frame, "body", b"")
        frame == made, frame != made, frame == 5, headers == headers, headers == {}, hash(frame)
        repr(frame), repr(headers), copy.deepcopy(frame), next(iter(headers))
        attempt(frame.text)
        pickle.loads(pickle.dumps(frame))


def make_frames():
    text = type("Text", (str,), {})
    codec.Frame(text("SEND"), {text("a"): text("b")}, bytearray(b"x"))
    attempt(codec.Frame, "SEND", iter([("a", "b"), ("c", 5)]))
    attempt(codec.Headers)


def write_frames():
    frames = [
        *(codec.Frame("SEND", {"a": "1:\n"}, BODY), codec.Frame("SEND", {"é": "x"}, bytes(9000))),
        codec.Frame("ACK"),
    ]
    frames += codec.Parser("1.2").feed(WIRE + HEADS + BIG)
    for version in ("1.0", "1.1", "1.2", "legacy", None):
        for frame in frames:
            attempt(codec.serialize, frame, version, content_length="always")
            attempt(codec.serialize_parts, frame, version)
            attempt(codec.serialize_tail, frame, version, without=("a", "receipt"))
        attempt(codec.serialize_many, frames, version, commands=["PING"])


def write_errors():
    frames = [codec.Frame("ACK", {"": ""}), codec.Frame("ACK", {"good": "1", "a": "\ud800"}), codec.Frame("\udcff")]
    frames += [codec.Frame("CONNECT", {"a": "\n" * 5000}), codec.Frame("SEND", {"\udcff": "a"}, bytes(9000))]
    for frame in frames:
        for lenient in (False, True):
            attempt(codec.serialize, frame, lenient=lenient)
            attempt(codec.serialize_parts, frame, lenient=lenient)
            attempt(codec.serialize_tail, frame, without=["x"])
            attempt(codec.serialize_many, [codec.Frame("ACK"), frame], lenient=lenient)
    attempt(codec.serialize, codec.Frame("SEND", body=b"\0"), content_length="never")


def read_columns():
    for data in (WIRE * 20, WIRE + b"NONSENSE\n", HEADS, b"", BIG):
        columns = codec.parse_columns(data, names=["a", "é"])
        columns.__arrow_c_schema__()
        attempt(columns.__arrow_c_array__)
        attempt(columns.__arrow_c_array__)
    codec.parse_columns(WIRE, names=["a"])


def read_what_was_never_seen():
    """Tables of texts that come again and again have an end."""
    number = next(NUMBERS)
    for frame in codec.Parser("1.2").feed(b"SEND\nname-%d:%d\ndestination:/queue/%d\n\n\0" % (number, number, number)):
        assert dict(frame.headers) == {f"name-{number}": f"{number}", "destination": f"/queue/{number}"}
        frame.get("destination"), frame.headers.pairs()


NUMBERS = itertools.count()
OPERATIONS = [read_what_was_never_seen, read_frames, read_in_pieces, read_streamed, read_into_buffers, read_errors]
OPERATIONS += [look_at_frames, make_frames, write_frames, write_errors, call_wrongly, read_columns]


def resident():
    try:
        with open("/proc/self/statm") as source:
            return int(source.read().split()[1]) * 4096
    except OSError:
        return 0


def counts():
    gc.collect()
    references = sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0
    blocks = sys.getallocatedblocks()
    return {"objects": len(gc.get_objects()), "references": references, "blocks": blocks, "resident": resident()}


ALLOWED = {"objects": 50, "references": 200, "blocks": 200, "resident": 2**20}


def main():
    leaks = []
    for operation in OPERATIONS:
        weight = 1 if operation in (read_what_was_never_seen, read_frames, make_frames, write_errors) else 5
        rounds = max(ROUNDS // weight, 20)
        for _ in range(max(rounds // 5, 20)):  # fills caches, settles the allocators
            operation()
        for _ in range(3):  # a leak goes on; a table of the interpreter that grows once does not
            before = counts()
            for _ in range(rounds):
                operation()
            after = counts()
            grown = {name: after[name] - before[name] for name in before if after[name] - before[name] > ALLOWED[name]}
            if not grown:
                break
        else:
            leaks.append(f"{operation.__name__}: {grown} in {rounds} rounds")
    print("\n".join(leaks) or "nothing leaks")
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
