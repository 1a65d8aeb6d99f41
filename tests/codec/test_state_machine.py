"""Two parsers, one of each backend, are driven through the same calls and must give the same answers at every step."""

import conftest
import pytest
from codec import strategies as some
from codec.lockstep import add, answer_of, error_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import examples

from stompcodec.errors import FrameError

pytestmark = pytest.mark.c_only
sizes = st.sampled_from([None, None, 0, 1, 2, 3, 5, 8, 20, 70, 1000])


class Lockstep(RuleBasedStateMachine):
    """Calls in any order, sensible or not: feeding while iterating, buffers that are lent and not used."""

    def __init__(self):
        super().__init__()
        self.parsers = []
        self.rest = b""  # of the stream, to be fed
        self.views = []  # the buffers lent last, one of each parser
        self.kept = []  # older ones, which must do no harm
        self.void = True  # nothing may be written into `views` any more

    @initialize(options=some.parser_options(), stream=some.good_streams)
    def begin(self, options, stream):
        self.rest = self.stream = stream
        self.parsers = [conftest.backend(name).Parser(**options) for name in ("c", "py")]

    def same(self, call):
        answers = []
        for parser in self.parsers:
            try:
                answers.append(call(parser))
            except FrameError as error:
                answers.append(error_of(error))
            except (RuntimeError, ValueError, StopIteration) as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
        return answers[0]

    def take(self, size):
        """The next octets of the stream, which repeats itself. None: up to the next NUL and with it."""
        while len(self.rest) < 2000:
            self.rest += self.stream
        size = self.rest.find(b"\0") + 1 if size is None else size
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    @rule(size=sizes, used=st.none() | st.integers(0, 3))
    def feed(self, size, used):
        data = self.take(size)

        def call(parser):
            octets = data if used is None else bytearray(data)
            parser.feed(octets)
            if used is not None:
                octets[: len(data) // 2] = b"?" * used

        self.void = True
        self.same(call)

    @rule(data=some.wires)
    def what_comes_next(self, data):
        self.rest = data + self.rest

    @rule(hint=st.sampled_from([-1, 0, 1, 5, 4096, 10**6]))
    def lend(self, hint):
        self.kept += self.views
        self.views = [parser.get_buffer(hint) for parser in self.parsers]
        self.void = False
        for view in self.views:
            assert not view.readonly
            assert view.nbytes

    @rule(size=sizes)
    @precondition(lambda self: self.views)
    def use(self, size):
        data = self.take(min(size or 100, *map(len, self.views)))
        if not self.void:
            for view in self.views:
                view[: len(data)] = data
        self.same(lambda parser: iter(parser.buffer_updated(len(data))) is not None)
        self.void = True

    @rule(count=st.sampled_from([-1, 10**9]))
    def claim_nonsense(self, count):
        assert self.same(lambda parser: parser.buffer_updated(count)) in (ValueError, RuntimeError)

    @rule(drains=st.booleans())
    def step(self, drains):
        """One step, or all; a run of pieces counts as one, for pieces are cut as they come."""

        def call(parser):
            answers = []
            try:
                while drains or not answers or answers[-1][0] == "piece":
                    add(answers, answer_of(next(parser)))
            except StopIteration:
                answers.append(("stop",))
            except FrameError as error:
                answers.append(error_of(error))
            return answers

        self.same(call)

    @rule(version=some.versions)
    def negotiate(self, version):
        self.same(lambda parser: setattr(parser, "version", version))

    @rule(version=st.sampled_from(["1.3", "", 12, b"1.2", []]))
    def negotiate_nonsense(self, version):
        assert self.same(lambda parser: setattr(parser, "version", version)) is ValueError

    @rule()
    def close(self):
        self.same(lambda parser: parser.close())

    @rule()
    def let_go(self):
        self.kept.clear()

    @invariant()
    def same_attributes(self):
        if self.parsers:
            self.same(lambda parser: parser.version)
            self.same(lambda parser: parser.buffered)


TestLockstep = Lockstep.TestCase
TestLockstep.settings = settings(max_examples=examples(500))
