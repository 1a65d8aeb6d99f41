"""Every allocation of the C backend fails once, one after the other. Run by test_isolated.py:

    failing_memory.py {parser | values} [NAME ...]

`_testcapi.set_nomemory(n, stop)` lets n allocations of Python's allocators succeed and fails those behind them, up to
`stop`. Each operation is run for n = 0, 1, ... until it needs no more than n, with a single failure and with a lasting
one. It may answer with a MemoryError or with the right result. Afterwards a parser either is dead, and says so each
time, or goes on as if nothing had happened; all other objects can be used again.
"""

import gc
import itertools
import sys
import tracemalloc
from _testcapi import remove_mem_hooks, set_nomemory
from pathlib import Path
from types import MappingProxyType, NoneType

sys.path.insert(0, str(Path(__file__).parents[1]))
from codec.lockstep import add, answer_of, error_of

from stompcodec.codec import backend
from stompcodec.errors import FrameError
from stompcodec.spec import Limits

C, TWIN = backend("c"), backend("python")
DEAD = ("dead",)


def failing(perform, argument, n, stop):
    """Call with failing memory. Returns what was raised, and whether memory was left (only for stop == 0)."""
    raised = left = None
    set_nomemory(n, stop)
    try:
        perform(argument)
    except BaseException as error:
        raised = error
    try:
        bytearray(1)
        left = True
    except MemoryError:
        left = False
    remove_mem_hooks()
    if raised is not None:  # Python has few MemoryErrors in store: no cycle may keep one
        raised.__traceback__ = raised.__context__ = None
    if isinstance(raised, SystemError):  # CPython says so where it has no memory for a traceback of Python code
        assert str(raised).startswith(("error return without exception set", "<function ")), raised
        raised = MemoryError()
    if not isinstance(raised, (MemoryError, FrameError, NoneType)):
        raise raised
    return raised, left


class Driver:
    def __init__(self, codec, options):
        self.parser = codec.Parser(options.get("version", "1.2"), **{k: options[k] for k in options if k != "version"})
        self.answers, self.views, self.rest = [], [], b""
        self.others = [codec.Parser("1.2"), codec.Parser("1.2")]  # with the blocks that parsers without octets leave
        for parser, size in zip(self.others, (1, 5000)):
            parser.feed(bytearray(b"SEND\na:" + b"b" * size))
        self.items, self.count = [None] * 200, 0

    def perform(self, operation):
        kind, data = operation
        if kind == "iterate":
            items, count = self.items, 0
            try:
                for item in self.parser:
                    items[count] = item
                    count += 1
            finally:
                self.count = count
        elif kind == "feed":
            self.parser.feed(data)
        elif kind == "lend":
            self.views[-1] = self.parser.get_buffer(data)
        elif kind == "update":
            self.parser.buffer_updated(data)

    def prepare(self, operation):
        """The operation with all that it needs made before."""
        kind, data = operation
        if kind == "array":
            return "feed", bytearray(data)
        if kind == "rest":
            return "feed", self.rest
        if kind == "lend":
            self.views.append(None)
        if kind == "update":
            view = self.views[-1]
            count = min(len(view), len(data))
            view[:count] = data[:count]
            self.rest = data[count:]
            return "update", count
        return operation

    def note(self, raised=None):
        for item in self.items[: self.count]:
            add(self.answers, answer_of(item))
        self.count = 0
        if isinstance(raised, FrameError):
            self.answers.append(error_of(raised))
        elif raised is not None:
            self.answers.append(DEAD)

    def run(self, operation):
        """With all memory there is. False: the stream has ended."""
        try:
            self.perform(self.prepare(operation))
        except (FrameError, MemoryError) as error:
            self.note(error)
            return False
        self.note()
        return True

    def run_failing(self, operation, n, stop):
        """Returns whether the stream goes on, and whether there was memory left."""
        prepared, before = self.prepare(operation), self.parser.buffered
        raised, left = failing(self.perform, prepared, n, stop)
        self.note(raised if isinstance(raised, FrameError) else None)
        if isinstance(raised, FrameError):
            return False, left
        if raised is None:
            return True, left
        after = self.parser.buffered
        if not self.run(("iterate", None)):
            return False, left
        assert prepared[0] not in ("feed", "update"), f"goes on after bytes were lost: {prepared}"
        if prepared[0] == "lend":
            assert after == before, (prepared, after, before)
            self.perform(prepared)
        return True, left

    def end(self):
        try:
            self.parser.close()
        except (FrameError, MemoryError) as error:
            self.note(error)


def check_dead(driver, operations):
    """It says so each time, and keeps nothing."""
    parser = driver.parser
    for data in (b"SEND\n\nx\0", b"\0", bytearray(b"x" * 5000)):
        parser.feed(data)
        for call in (lambda: list(parser), lambda: next(parser), parser.close):
            try:
                found = call()
            except MemoryError:
                continue
            raise AssertionError(f"{found} after a MemoryError; {operations}")
    assert parser.buffered == 0


def check_parser(operations, options):
    """Every allocation of every operation."""
    usual, twin = Driver(C, options), Driver(TWIN, options)
    for driver in (usual, twin):
        if all(driver.run(operation) for operation in operations):
            driver.end()
    assert usual.answers == twin.answers
    died = went_on = 0
    for at in range(len(operations)):
        most = None
        for n in itertools.count():
            for stop in (0, n + 1):
                driver = Driver(C, options)
                if not all(driver.run(operation) for operation in operations[:at]):
                    return died, went_on
                more, left = driver.run_failing(operations[at], n, stop)
                if stop == 0 and left:
                    most = n
                if more and all(driver.run(operation) for operation in operations[at + 1 :]):
                    driver.end()
                if driver.answers[-1:] == [DEAD]:
                    died += 1
                    assert_begins(usual.answers, driver.answers[:-1], (at, operations[at], n, stop))
                    check_dead(driver, operations)
                else:
                    went_on += 1
                    assert driver.answers == usual.answers, (at, operations[at], n, stop, driver.answers)
            if most is not None:
                break
    return died, went_on


def assert_begins(answers, begin, where):
    """With half a body at the end, if it came in pieces."""
    last = len(begin) - 1
    for i, answer in enumerate(begin):
        if i == last and answer[0] == "piece":
            assert answers[i][1].startswith(answer[1]), where
        else:
            assert answer == answers[i], (where, i, answer, answers[i])


def cut(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


def fed(chunks, kind="feed"):
    return [operation for chunk in chunks for operation in ((kind, chunk), ("iterate", None))]


def lent(chunks):
    """By way of asyncio.BufferedProtocol, with views that are kept."""
    return [
        operation
        for chunk in chunks
        for operation in (("lend", len(chunk)), ("update", chunk), ("rest", None), ("iterate", None))
    ]


def lent_late(chunks):
    """The parser is iterated while a buffer is lent, and fed while views of the one before are kept."""
    return [
        operation
        for one, other in itertools.zip_longest(chunks[::2], chunks[1::2], fillvalue=b"\n")
        for operation in (
            *(("feed", one), ("lend", len(other)), ("iterate", None), ("update", other), ("rest", None)),
            *(("iterate", None), ("array", b"\n")),
        )
    ]


SMALL = b"\nSEND\na:1\nb\\c:\\n\n\xc3\xa9:x\na:2\n\nhello\0\n\nACK\nid:1\n\n\0SEND\ncontent-length:3\n\na\0b\0"
HEADS = b"SEND\n" + b"".join(b"h%d:v\n" % i for i in range(100)) + b"\n\0"
WIDE = b"SEND\na:" + b"x" * 40_000 + b"\nb:" + b"y" * 40_000 + b"\nd\\c:\\n" + b"z" * 300 + b"\n\nhello\0"
COUNTED = b"SEND\nn:1\ncontent-length:20000\n\n" + bytes(range(250)) * 80 + b"\0"
OPEN = b"SEND\nn:2\n\n" + b"0123456789" * 2000 + b"\0"
LARGE = (COUNTED + OPEN) * 3
ODD = b"SEND\r\n a : b \r\nno colon\nc:\\x\xff\n\nx\0\0" + b"WHAT\xc3\xa9\xff\n\n\0"
LEGACY = b"send \nDestination:  /queue/a\n Content-Length : 3\n\na\0b\0 \r\n" + HEADS.replace(b"h", b"H")
PARSERS = {
    "small": (fed(cut(SMALL, 1000)) + fed(cut(SMALL, 7)), {"heartbeats": True}),
    "small-buffers": (lent(cut(SMALL, 40)), {}),
    "headers": (fed(cut(HEADS, 97)) + fed([HEADS]), {}),
    "wide": (fed([WIDE, WIDE[:30_000], WIDE[30_000:] + SMALL]), {"limits": Limits(max_header_line=70_000)}),
    "counted": (fed(cut(COUNTED, 3000)) + fed([COUNTED[:40] + COUNTED[40:], COUNTED + SMALL]), {}),
    "counted-buffers": (lent(cut(COUNTED, 3000)), {}),
    "open": (fed(cut(OPEN, 3000)) + fed([OPEN + SMALL, OPEN[:9000], OPEN[9000:]]), {}),
    "open-late": (lent_late(cut(OPEN + SMALL, 3500)), {}),
    "large-arrays": (
        *(fed([LARGE + SMALL[:20], SMALL[20:] + LARGE + OPEN[:8], OPEN[8:] + SMALL[:5], SMALL[5:]], "array"), {}),
    ),
    "large-buffers": (lent([*cut(LARGE, 65_536), LARGE[:20_000], LARGE[20_000:60_000], LARGE[60_000:]]), {}),
    "small-behind-large": (fed([SMALL[:60], *cut(SMALL[60:] + COUNTED + SMALL[:20], 5000), SMALL[20:]]), {}),
    "not-iterated": (
        [("feed", SMALL[:20]), ("feed", SMALL[20:] + OPEN), ("array", COUNTED), ("feed", COUNTED + b"SEND\n")]
        + [("iterate", None), ("array", b"\nx\0"), ("feed", OPEN), ("iterate", None)],
        {},
    ),
    "pieces": (fed(cut(SMALL + COUNTED + OPEN, 3000)), {"stream_over": 2}),
    "lenient": (fed(cut(ODD, 200)) + fed(cut(ODD + HEADS, 50)), {"lenient": True}),
    "legacy": (fed(cut(LEGACY, 33)) + fed([LEGACY]), {"version": "legacy"}),
    "bad-line": (fed([SMALL + b"SEND\n", b"a:b\nnonsense\n", b"\n\0", SMALL]), {}),
    "bad-escape": (fed([b"SEND\na:\\x\n\n\0"]), {}),
    "too-long": (fed(cut(OPEN, 3000)), {"limits": Limits(max_body=10_000)}),
    "no-body": (fed([SMALL + b"ACK\n\nx\0"]), {}),
    "truncated": (fed([SMALL, COUNTED[:500]]), {}),
}


class Text(str):
    """A str that is not exact."""


def tries(perform, make):
    """Perform with what `make` returns, again and again. Yields what fails, the argument, and what was raised."""
    for n in itertools.count():
        for stop in (0, n + 1):
            argument = make()
            raised, left = failing(perform, argument, n, stop)
            yield (n, stop), argument, raised
            if stop == 0:
                enough = left
        if enough:
            return


def check_value(name, make, call):
    results = [None]

    def perform(subject):
        results[0] = call(subject)

    def usual(subject):
        try:
            return call(subject)
        except (FrameError, TypeError) as error:
            return type(error), str(error)

    wanted, failures = plain(usual(make())), 0
    for where, subject, raised in tries(perform, make):
        found, results[0] = results[0], None
        if raised is None:
            assert plain(found) == wanted, (name, where, found)
        elif isinstance(raised, FrameError):
            assert (type(raised), str(raised)) == wanted, (name, where, raised)
        else:
            failures += 1
        del found, raised
        assert plain(usual(subject)) == wanted, (name, where)
    return failures


def plain(value):
    """What can be compared of it, for frames of either backend."""
    if hasattr(value, "pairs"):
        return value.pairs()
    if hasattr(value, "command"):
        return value.command, value.headers.pairs(), value.body
    return value


PAIRS = [("destination", "/queue/a"), ("é", "東:\n"), ("a\\b", "x" * 300 + "\n"), ("destination", "\udcff")]
CLEAN = [("destination", "/queue/a"), ("n", "1"), ("long", "x" * 1200), ("é", "東:\n")]


def parsed(stream, **options):
    def make():
        parser = C.Parser(
            options.get("version", "1.2"), lenient=options.get("lenient", False), limits=Limits(max_header_line=70_000)
        )
        return next(parser.feed(stream))

    return make


SOURCES = {
    **{"plain": parsed(b"SEND\ndestination:/queue/a\nn:1\nsome:thing\n\nhello\0"), "escaped": parsed(SMALL)},
    **{"headers": parsed(HEADS), "wide": parsed(WIDE), "lenient": parsed(ODD, lenient=True)},
    **{"legacy": parsed(LEGACY, version="legacy"), "counted": parsed(COUNTED)},
    **{"made": lambda: C.Frame("SEND", PAIRS, b"hello"), "clean": lambda: C.Frame("SEND", CLEAN, b"hello" * 300)},
}
READING = {
    **{"headers": lambda frame: frame.headers, "pairs": lambda frame: frame.headers.pairs()},
    **{"dict": lambda frame: dict(frame.headers), "getall": lambda frame: frame.headers.getall("a")},
    **{"names": lambda frame: list(frame.headers), "get": lambda frame: frame.get("destination")},
    **{"get-none": lambda frame: frame.get("è"), "repr": repr, "repr-headers": lambda frame: repr(frame.headers)},
    **{"hash": hash, "same": lambda frame: frame == frame.__copy__() and frame == parsed(SMALL)()},
    "same-mapping": lambda frame: frame.headers == MappingProxyType(dict(frame.headers)),
    **{"reduce": lambda frame: frame.__reduce__()[1], "command": lambda frame: frame.command},
}
MAKING = {
    "pairs": lambda: lambda _: C.Frame("SEND", PAIRS, b"x"),
    "dict": lambda: lambda _: C.Frame("SEND", dict(PAIRS)),
    "dict and body": lambda: lambda _: C.Frame("SEND", dict(CLEAN), b"x"),
    "odd dict": lambda: lambda _: C.Frame("SEND", {"a": "1", "b": Text("2")}, b"x"),
    "keywords": lambda: lambda _: C.Frame("SEND", body=b"x", headers=dict(CLEAN)),
    "mapping": lambda: lambda _: C.Frame("SEND", MappingProxyType(dict(PAIRS)), bytearray(b"x" * 1000)),
    "headers": lambda: lambda _: C.Frame("SEND", SOURCES["clean"]().headers, memoryview(b"x")),
    "generator": lambda: lambda _: C.Frame(Text("SEND"), ((Text(n), Text(v)) for n, v in PAIRS)),
}
MODES = {
    **{"1.1": {"version": "1.1"}, "1.0": {"version": "1.0"}, "legacy": {"version": "legacy"}},
    **{"always": {"content_length": "always"}, "never": {"content_length": "never"}},
    "lenient": {"lenient": True, "commands": ("PING", "WHAT")},
}


def check_reading():
    for source, make in SOURCES.items():
        for name, call in READING.items():
            yield check_value(f"{source} {name}", make, call)


def check_making():
    for name, make in MAKING.items():
        yield check_value(name, lambda: None, make())


def check_writing():
    for source, make in SOURCES.items():
        for mode, options in MODES.items():
            yield check_value(f"{source} {mode}", make, lambda frame, options=options: C.serialize(frame, **options))
        yield check_value(f"{source} parts", make, C.serialize_parts)
        yield check_value(f"{source} many", make, lambda frame: C.serialize_many([frame] * 20))
        yield check_value(f"{source} many in turn", make, lambda frame: C.serialize_many(iter([frame] * 20)))
        for version in ("1.2", "1.1", "1.0"):
            without = ("destination", "a") if version == "1.2" else ["n"]
            yield check_value(
                f"{source} tail", make, lambda frame, v=version, w=without: C.serialize_tail(frame, v, without=w)
            )


def check_ends():
    data = SMALL * 50 + LARGE
    yield check_value("ends", lambda: None, lambda _: list(C.frame_ends(data)))
    yield check_value("ends-array", lambda: bytearray(data), lambda data: list(C.frame_ends(data, 1000, 50)))


def check_columns():
    import pyarrow

    class Exported:
        def __init__(self, capsules):
            self.capsules = capsules

        def __arrow_c_array__(self, requested_schema=None):
            return self.capsules

    def table(columns):
        batch = pyarrow.record_batch(Exported(columns.__arrow_c_array__()))
        batch.validate(full=True)
        return columns.rows, columns.consumed, columns.error, batch.to_pylist()

    long = SMALL * 400
    streams = {
        "small": {"data": SMALL},
        "names": {"data": SMALL * 3 + HEADS, "names": ["a", "b:", "h7"], "repeats": False},
        "where": {"data": SMALL * 3, "where": [("a", "in", ["1", "2"]), ("command", "prefix", ["S"])], "names": ["a"]},
        "bad": {"data": SMALL + b"SEND\nx\n", "columns": ["error", "offset"]},
        "lenient": {"data": ODD + HEADS, "lenient": True, "names": ["c"], "commands": ["PING"]},
        "legacy": {"data": LEGACY, "version": "legacy", "names": ["destination"]},
        **{"grown": {"data": long, "names": ["a"]}, "bodies": {"data": LARGE}},
    }
    for name, options in streams.items():
        options = {"version": "1.2", **options}
        data = options.pop("data")
        wanted, taken = table(C.parse_columns(data, **options)), [None]

        def columns(data=data, options=options):
            return C.parse_columns(data, **options)

        def parse(_, columns=columns, taken=taken):
            taken[0] = columns()

        for where, _, raised in tries(parse, lambda: None):
            assert raised is not None or table(taken[0]) == wanted, (name, where)
            yield raised is not None
        for export in ("__arrow_c_schema__", "__arrow_c_array__"):

            def perform(columns, export=export, taken=taken):
                taken[0] = getattr(columns, export)()

            for where, made, raised in tries(perform, columns):
                if raised is None and export == "__arrow_c_array__":
                    batch = pyarrow.record_batch(Exported(taken[0]))
                    batch.validate(full=True)
                    assert batch.to_pylist() == wanted[3], (name, where)
                else:
                    assert table(made) == wanted, (name, export, where)
                yield raised is not None


VALUES = {
    **{"reading": check_reading, "making": check_making, "writing": check_writing, "ends": check_ends},
    "columns": check_columns,
}


def held():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def main():
    kind, *names = sys.argv[1:]
    if kind == "parser":
        for name in names or PARSERS:
            grown = []
            for _ in range(3):
                died, went_on = check_parser(*PARSERS[name])
                grown.append(held())
            assert grown[2] - grown[1] < 10_000, (name, grown)
            print(f"{name}: dead {died} times, went on {went_on} times")
    else:
        for name in names or VALUES:
            print(f"{name}: no memory {sum(VALUES[name]())} times")


if sys.argv[1] == "parser":
    tracemalloc.start()
main()
