"""Invariant: whatever a program does with the codec, in whatever order, the interpreter goes on, only documented errors
and those of the program's own objects are raised, each text and each dict is sound, and where an answer is defined,
both backends give it.

The octets are the program: each step takes some. Views are kept and written late, headers are written by `eval`,
`__dict__` and dict.__setitem__, subclasses of str lie, parsers are fed inside of their own iteration, and threads write
what is read.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from case import LIMITS, STREAM_OVER, VERSIONS
from engine import drive

from stompcodec import _codec_c, _codec_py
from stompcodec.column_filter import Condition
from stompcodec.errors import FrameError

BACKENDS = (_codec_c, _codec_py)
WIDTH = 16  # octets of a step, the first of which says what it does; those that are missing are 0
STEPS = 60  # of one input: more only takes time
KEPT = 12  # frames, views and headers that stay alive
PIECES = (
    *(b"SEND\n", b"k:" + b"a" * 60 + b"\n", b"content-length:3\n", b"\n", b"\0", b"abc\0", b"a:b\\c\\n\\\\\n", b"\r\n"),
    *(
        "ü:é€\n".encode(),
        b"content-length:20000\n\n",
        b"x" * 9000,
        b"y" * 11000 + b"\0",
        b"MESSAGE\nid:1\n\nhi\0",
        b"PING\n\n\0",
    ),
    *(
        b"SEND\n\n" + b"z" * 5000 + b"\0",
        b"SEND\nz:" + b"v" * 5000,
        b"\n\nhello\0",
        b"a:\r\n",
        b"\xff",
        b"SEND\na:1\na:2\n\n\0" * 9,
    ),
)
TEXTS = ("x", "a", "destination", "", "a:b\n", "é€", "\ud800", "content-length", "3", "/queue/a", "x" * 300)


class Bad(Exception):
    """Raised by objects of the program."""


class Lying(str):
    """A str whose methods say something else, or raise."""

    answer: Any = None

    def _say(self, *_: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    encode = __str__ = __iter__ = __len__ = __getitem__ = _say  # type: ignore[assignment]


class Claiming(str):
    """A str that claims to equal all others."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("x")


class Other:
    """An object with one method that gives or raises what it was told, after running something."""

    def __init__(self, answer: Any, run: Callable[[], object] | None = None) -> None:
        self.answer, self.run = answer, run

    def _say(self, *_: Any) -> Any:
        if self.run is not None:
            self.run()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    __index__ = __iter__ = __len__ = __hash__ = keys = __getitem__ = _say  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return bool(self._say(other))


class Octets(bytes):
    """A subclass of bytes."""

    def __len__(self) -> int:
        return 2**40


#: What may be raised: those of the package, of Python for wrong arguments, and of the program.
DOCUMENTED = (
    FrameError,
    TypeError,
    ValueError,
    RuntimeError,
    OverflowError,
    BufferError,
    IndexError,
    KeyError,
    AttributeError,
    Bad,
)


def sound(text: str) -> None:
    """A str is what it says: broken ones show here, or end the process."""
    octets = text.encode("utf-8", "surrogatepass")
    assert text.isascii() == (not octets or max(octets) < 128), f"a broken str {octets!r}"
    assert sum(map(ord, text)) == sum(map(ord, octets.decode("utf-8", "surrogatepass")))


def told(event: Any) -> Any:
    """An event in plain values."""
    if isinstance(event, (bytes, type(None))) or not hasattr(event, "command"):
        return repr(event) if not isinstance(event, bytes) else event
    pairs = event.headers.pairs()
    for text in (event.command, *(text for pair in pairs for text in pair)):
        sound(text)
    assert dict(event.headers) == dict(reversed(pairs)), "headers differ from their pairs"
    return event.command, pairs, event.body


class World:
    """The objects that a program has made in one backend. Both backends run the same steps."""

    def __init__(self, codec: Any) -> None:
        self.codec = codec
        self.octets: Iterator[int] = iter(b"")
        self.parser = codec.Parser("1.2")
        self.frames: list[Any] = [codec.Frame("SEND", {"a": "1"}, b"x")]
        self.views: list[Any] = []
        self.current: Any = None  # the view of the last get_buffer, until it is void
        self.columns: list[Any] = []
        self.written: list[Any] = []  # headers that were written into
        self.answers: list[Any] = []

    def roll(self, most: int) -> int:
        return next(self.octets, 0) % most

    def text(self, odd: bool = True) -> Any:
        text = TEXTS[self.roll(len(TEXTS))]
        kind = self.roll(8) if odd else 0
        if kind == 5:
            lying = Lying(text)
            lying.answer = (1.5, 7, None, b"x", "x", [b"x"], Bad())[self.roll(7)]
            return lying
        return Claiming(text) if kind == 6 else (None, 5, b"x", Other(Bad()))[self.roll(4)] if kind == 7 else text

    def texts(self) -> Any:
        some = [self.text() for _ in range(self.roll(4))]
        return (some, tuple(some), iter(some), "x", Other(iter(some)), Other(Bad()), None)[self.roll(7)]

    def keep(self, some: list[Any], one: Any) -> None:
        some.append(one)
        del some[:-KEPT]

    # ---- steps: each returns what both backends agree about; ... if they may differ from here on ----

    def new_parser(self) -> Any:
        options: dict[str, Any] = {
            "version": VERSIONS[self.roll(5)],
            "limits": LIMITS[self.roll(8)],
            "lenient": self.roll(2) == 1,
        }
        options |= {
            "stream_over": STREAM_OVER[self.roll(8)],
            "heartbeats": self.roll(2) == 1,
            "commands": self.texts() or (),
        }
        self.current = None
        self.parser = self.codec.Parser(options.pop("version"), **options)
        return "made"

    def half_made(self) -> None:
        parser = self.codec.Parser.__new__(self.codec.Parser)
        with suppress(*DOCUMENTED):
            parser.__init__(commands=Other(iter([self.text()]), lambda: setattr(parser, "version", "1.1")))
        for use in (
            lambda: setattr(parser, "version", "1.0"),
            lambda: list(parser.feed(b"PING\n\n\0")),
            parser.get_buffer,
            parser.close,
        ):
            with suppress(*DOCUMENTED):
                use()

    def feed(self) -> Any:
        piece = PIECES[self.roll(len(PIECES))]
        self.current = None
        kind = self.roll(5)
        given = (piece, bytearray(piece), memoryview(piece), Octets(piece), b"" + piece)[kind]
        self.parser.feed(given)
        if kind == 1:
            given[:] = b"\xff" * len(given)
        return self.parser.buffered

    def iterate(self) -> Any:
        """A few steps, between which the consumer uses the parser."""
        most, how, answers = self.roll(6), self.roll(8), []
        for event in self.parser:
            answers.append(told(event))
            if hasattr(event, "command"):
                self.keep(self.frames, event)
            if len(answers) > most:
                break
            if how == 1:
                self.feed()
            elif how == 2:
                self.lend()
            elif how == 3:
                self.parser.version = VERSIONS[self.roll(5)]
            elif how == 4:
                answers.append(told(next(self.parser, None)))
            elif how == 5:
                self.parser.close()
            elif how == 6:
                self.scribble()
        return ... if any(type(each) is bytes for each in answers) else answers  # where a body is cut is free

    def lend(self) -> None:
        self.current = self.parser.get_buffer(self.roll(256) * 300 - 1)
        self.keep(self.views, self.current)
        if self.roll(3) == 0 and hasattr(self.current, "obj"):
            self.keep(self.views, self.current.obj)  # who lends

    def lent(self) -> Any:
        piece = PIECES[self.roll(len(PIECES))]
        view, odd = self.current, self.roll(8)
        if view is None:
            return None
        self.current = None
        if odd == 1:
            self.parser.buffer_updated(Other(0, lambda: self.parser.feed(b"")))
        if odd == 2:
            self.parser.buffer_updated(Other(Bad()))
        while len(piece) > len(view):  # a body is lent in parts as large as a backend likes
            size = len(view)
            view[:] = piece[:size]
            piece = piece[size:]
            self.parser.buffer_updated(size)
            view = self.parser.get_buffer()
        view[: len(piece)] = piece
        self.parser.buffer_updated(len(piece))
        return self.parser.buffered

    def scribble(self) -> None:
        """Old views are written: what was taken in must not change."""
        if self.current is not None:
            return
        for view in self.views:
            with suppress(TypeError, ValueError):
                view = memoryview(view)
                some = min(len(view), 300)
                view[:some] = bytes(range(130, 190)) * 5 if some == 300 else b"\xaa" * some

    def drop(self) -> None:
        for view in self.views[: self.roll(KEPT)]:
            with suppress(AttributeError, BufferError):
                view.release()
        if self.current is not None and self.roll(2):
            self.current = None
        self.views = self.views[self.roll(KEPT) :]

    def collect(self) -> None:
        del self.written[:], self.frames[: self.roll(KEPT)]
        self.frames = self.frames or [self.codec.Frame("SEND", {"a": "1"}, b"x")]
        gc.collect(self.roll(3))

    def make(self) -> Any:
        pairs = [(self.text(), self.text()) for _ in range(self.roll(4))]
        kind = self.roll(8)
        headers: Any = (
            pairs,
            tuple(pairs),
            iter(pairs),
            pairs[:1] * 3,
            [Other(iter(pair)) for pair in pairs],
            "ab",
            Other(Bad()),
            None,
        )[kind]
        if self.roll(3) == 0:
            headers = {name: value for name, value in pairs if type(name) is str}
        body: Any = (b"", b"b\0c", bytearray(b"x"), Octets(b"x" * 9), "x", None, memoryview(b"abc"))[self.roll(7)]
        frame = self.codec.Frame(self.text() if self.roll(2) else "SEND", headers, body)
        self.keep(self.frames, frame)
        return told(frame)

    def write_headers(self) -> None:
        """Only frames that are seen no more: these headers say something else now."""
        frame = self.codec.Frame("SEND", {f"k{i}": "v" for i in range(self.roll(3))})
        headers, how = frame.headers, self.roll(6)
        with suppress(NameError, TypeError):
            if how == 0:
                eval("k0", headers)
            elif how == 1:
                owner = type("Owner", (), {})()
                owner.__dict__ = headers
                owner.x = [headers]
            elif how == 2:
                dict.__setitem__(headers, "x", [headers])
            elif how == 3:
                dict.__setitem__(headers, "x", 1.5)
            elif how == 4:
                dict.__setitem__(headers, Other(Bad(), None).__class__, lambda: headers)
            else:
                dict.__ior__(headers, {"x": {}})
        headers.pairs(), headers.getall("x"), headers == {}, headers == Other(("x",))
        if self.roll(2):
            self.keep(self.written, headers)
        if self.roll(3) == 0:
            del frame, headers
            gc.collect()

    def look(self) -> Any:
        """Check that kept frames and headers have not changed, and that each is an object of its own."""
        frame = self.frames[self.roll(len(self.frames))]
        name = self.text(odd=self.roll(4) == 0)
        fresh = [self.codec.Frame("SEND", {"n": str(i)}).headers for i in range(4)]
        live = [*fresh, *self.written, *(each.headers for each in self.frames)]
        assert len({id(each) for each in live}) >= 4 + len({id(each) for each in self.written}), "two headers are one"
        assert [dict(each) for each in fresh] == [{"n": str(i)} for i in range(4)], "headers have become others"
        if type(name) is not str:  # it may say anything of itself
            with suppress(*DOCUMENTED):
                frame.get(name), frame.has_any(name, name), frame.headers.getall(name), frame.headers.get(name)
            return None
        return (
            frame.get(name),
            frame.has_any(name),
            frame.headers.getall(name),
            hash(frame) == hash(frame),
            frame == frame.__copy__(),
        )

    def write(self) -> Any:
        frame, version = self.frames[self.roll(len(self.frames))], VERSIONS[self.roll(5)]
        how = self.roll(5)
        length = ("auto", "always", "never", self.text(odd=False))[self.roll(4)]
        options = {"content_length": length, "lenient": self.roll(2) == 1, "commands": self.texts() or ()}
        if how == 0:
            return self.codec.serialize(frame, version, **options)
        if how == 1:
            return b"".join(self.codec.serialize_parts(frame, version, **options))
        if how == 2:
            frames = (
                self.frames,
                tuple(self.frames),
                iter(self.frames),
                [frame, self.text()],
                Other(iter(self.frames)),
            )[self.roll(5)]
            return self.codec.serialize_many(frames, version, **options)
        without = self.texts() or ()
        tail = self.codec.serialize_tail(frame, version, without=without)
        # In C, tuples that equal each other are one: who claims that gets the answer of the other.
        return None if type(without) is tuple and any(type(each) is Claiming for each in without) else tail

    def condition(self) -> Any:
        values = [self.text() for _ in range(self.roll(3))]
        kind = self.roll(6)
        if kind < 2:
            return Condition(
                (b"a", "a", 1.5)[self.roll(3)],
                (True, False, None)[self.roll(3)],
                ((b"1", b"2"), (b"2", b"1"), ("1",), [b"1"], 7)[self.roll(5)],
            )  # type: ignore[arg-type]
        return (self.text(), ("in", "prefix", "x")[self.roll(3)], values) if kind < 5 else self.text()

    def wire(self) -> bytes:
        return b"".join(PIECES[self.roll(len(PIECES))] for _ in range(self.roll(6)))

    def read_columns(self) -> Any:
        where = [self.condition() for _ in range(self.roll(3))]
        wanted = (None, ["body"], ["headers", "error"], [self.text()])[self.roll(4)]
        options = {
            "where": where,
            "columns": wanted,
            "repeats": self.roll(2) == 1,
            "lenient": self.roll(2) == 1,
            "limits": LIMITS[self.roll(8)],
        }
        read = self.codec.parse_columns(self.wire(), VERSIONS[self.roll(5)], self.texts(), **options)
        self.keep(self.columns, read)
        return read.rows, read.consumed, read.error

    def export(self) -> None:
        for read in self.columns[: self.roll(3)]:
            with suppress(ValueError, ImportError):
                read.__arrow_c_schema__()
                read.__arrow_c_array__()
        if self.codec is _codec_c:
            empty = _codec_c.Columns.__new__(_codec_c.Columns)
            empty.__arrow_c_schema__(), empty.__arrow_c_array__()

    def ends(self) -> Any:
        most = (None, 0, 1, 10**30, -1, Other(3))[self.roll(6)]
        return list(self.codec.frame_ends(self.wire(), self.roll(3), most, limits=LIMITS[self.roll(8)]))

    def websocket(self) -> Any:
        chunks = [PIECES[self.roll(len(PIECES))] for _ in range(self.roll(4))]
        masks = b"\1\2\3\4" * (len(chunks) - self.roll(2)) if self.roll(2) else b""
        written = self.codec.write_websocket(tuple(chunks) if self.roll(2) else chunks, masks)
        cut = written[: len(written) - self.roll(4)]
        at = (0, 1, len(cut), -1)[self.roll(4)]
        return self.codec.read_websocket(
            bytearray(cut), at, masked=bool(masks), utf8=True, longest=self.roll(256) * 100, most=self.roll(5)
        )

    def race(self) -> None:
        """A thread writes what others read."""
        data, wire, over = bytearray(self.wire() or b"\n"), self.wire() or b"\0", threading.Event()

        def write() -> None:
            for _ in range(20):
                for at in range(min(len(data), 40)):
                    data[at] = wire[at % len(wire)]
                    data[-1 - at] = wire[at % len(wire)]
            over.set()

        thread = threading.Thread(target=write)
        thread.start()
        while True:
            self.codec.parse_columns(data, names=["a"])
            self.codec.frame_ends(data)
            self.codec.read_websocket(data, masked=False, utf8=True, longest=10**6, most=9)
            if over.is_set():
                break
        thread.join()

    def share(self) -> None:
        """Two threads use one parser: each frame comes to one of them."""
        parser = self.codec.Parser("1.2")
        taken: list[Any] = []

        def use() -> None:
            for _ in range(3):
                with suppress(*DOCUMENTED):
                    taken.extend(parser.feed(b"SEND\nk:1\n\nhi\0" * 5))
                    parser.get_buffer()[:2] = b"\n\n"
                    parser.buffer_updated(2)

        threads = [threading.Thread(target=use) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for frame in taken:
            assert told(frame) == ("SEND", [("k", "1")], b"hi")


#: The steps, more often those that go before others.
STEPS_OF = (
    *(World.feed, World.iterate, World.lend, World.lent, World.scribble, World.make, World.look, World.write_headers)
    * 3,
    *(World.write, World.read_columns, World.drop, World.collect) * 2,
    *(World.new_parser, World.half_made, World.export, World.ends, World.websocket, World.race, World.share),
)


def answers(codec: Any, data: bytes) -> Iterator[tuple[str, Any]]:
    """Run the program in a backend; yield what each step answered."""
    world = World(codec)
    for at in range(0, min(len(data), STEPS * WIDTH), WIDTH):
        world.octets = iter(data[at + 1 : at + WIDTH])
        step = STEPS_OF[data[at] % len(STEPS_OF)]
        try:
            yield step.__name__, step(world)
        except DOCUMENTED as error:
            yield step.__name__, kind_of(error)


def kind_of(error: Exception) -> Any:
    """Return the part of an outcome that both backends share. Either may find any of several wrong arguments first."""
    return (error.kind, error.offset) if isinstance(error, FrameError) else "an error"


def check(data: bytes) -> None:
    c, python = (list(answers(codec, data)) for codec in BACKENDS)
    for at, (ours, theirs) in enumerate(zip(c, python, strict=False)):
        if ours[1] is ... or theirs[1] is ...:
            return
        if ours != theirs and None not in (ours[1], theirs[1]):
            raise AssertionError(f"step {at}: C answers {ours}, Python {theirs}, after {[name for name, _ in c[:at]]}")


if __name__ == "__main__":
    drive(check)
