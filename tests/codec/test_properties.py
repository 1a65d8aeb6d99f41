"""What holds for every stream and every frame: round trips, cuts that do not matter, two backends that agree."""

import string
from contextlib import suppress

import pytest
from codec import strategies as some
from codec.lockstep import WAYS, answers_of
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from model.reference import Reference
from profiles import examples

from stompcodec.errors import FrameError
from stompcodec.spec import Limits

c_only = pytest.mark.c_only
#: For the tests that find most.
thorough = settings(max_examples=examples(500))
FOLD = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def parsed(codec, data, **options):
    frames = []
    with suppress(FrameError):
        frames.extend(codec.Parser(**{**options, "stream_over": None, "heartbeats": False}).feed(data))
    return frames


def same(one, other):
    assert (one, other) == (other, one)
    assert (hash(one), repr(one)) == (hash(other), repr(other))


WRITERS = {
    "serialize": lambda codec, frame, options: codec.serialize(frame, **options),
    "parts": lambda codec, frame, options: codec.serialize_parts(frame, **options),
    "many": lambda codec, frame, options: codec.serialize_many([frame, frame], **options),
}
writers = st.sampled_from(list(WRITERS))


def written(codec, frame, options, writer="serialize"):
    try:
        return WRITERS[writer](codec, frame, options)
    except FrameError as error:
        return ("error", error.kind, error.offset, error.limit, error.detail)


def meant(pairs, body, command, options):
    """The pairs that a reader finds: legacy folds names, and the writer has a say about content-length."""
    legacy, mode = options["version"] == "legacy", options["content_length"]
    pairs = [(name.translate(FOLD) if legacy else name, value) for name, value in pairs]
    if mode == "never":
        return [pair for pair in pairs if pair[0] != "content-length"]
    added = body or mode == "always" or (legacy and command == "SEND")
    if added and all(name != "content-length" for name, _ in pairs):
        pairs.append(("content-length", str(len(body))))
    return pairs


def read_again(codec, frame, options, cut=lambda wire: [wire]):
    options = {**options, "lenient": False}
    wire = written(codec, frame, options)
    if not isinstance(wire, bytes):
        assert wire[1] in ("unencodable", "body-not-allowed", "bad-content-length", "unknown-command")
        return False
    upper = options["version"] == "legacy" and frame.command.isascii()
    command = frame.command.upper() if upper else frame.command
    pairs = meant(frame.headers.pairs(), frame.body, command, options)
    reading = {"version": options["version"], "commands": options["commands"], "limits": some.ROOMY}
    assert answers_of(codec, cut(wire), **reading) == [("frame", command, pairs, frame.body)]
    return True


def model_of(wire, **options):
    events = Reference(options.pop("version"), **options).read(wire, eof=True)
    short = {"frame": lambda event: event[:4], "heartbeat": lambda event: event[:1], "error": lambda event: event}
    return [short[event[0]](event) for event in events]


@given(wire=some.wires, options=some.parser_options())
@example(wire=b"SENDX\n\n\0", options={"version": "1.2", "limits": None})
@example(wire=b" \r\nSEND \r\nA: 1 \r\n \r\n\0", options={"version": "legacy", "limits": None})
def test_answers_are_those_of_the_model(codec, wire, options):
    named = {name: options[name] for name in ("version", "limits", "lenient", "commands") if name in options}
    assert answers_of(codec, wire, heartbeats=True, **named) == model_of(wire, **named)


@pytest.mark.req(
    "S12-FRM-01", "S12-ESC-06", "S12-ESC-07", "S12-ESC-08", "S11-ESC-05", "S12-HDR-03", "LEG-HDR-02", "LEG-FRM-01"
)
@pytest.mark.parametrize("version", some.VERSIONS)
@given(frame=some.any_frames() | some.edged_frames(), options=some.writer_options, data=st.data())
def test_what_is_written_is_read_as_it_was(codec, version, frame, options, data):
    def cut(wire):
        return data.draw(some.cut(wire)) if len(wire) < 1000 else [wire]

    read_again(codec, codec.Frame(*frame), {**options, "version": version}, cut)


@given(wire=some.wires, lenient=st.booleans(), source=some.versions, options=some.writer_options)
def test_what_was_read_is_written_and_read_again(codec, wire, lenient, source, options):
    for frame in parsed(codec, wire, version=source, lenient=lenient, commands=options["commands"]):
        read_again(codec, frame, options)


@pytest.mark.parametrize("version", some.VERSIONS)
def test_edges_of_texts(codec, version):
    options = {"version": version, "content_length": "auto", "commands": ()}
    came_back = set()
    for edge in (" ", "\t", "\r", "\n", "\0", ":", "\\", "\x01", "\x7f", "\xa0", "  ", " \r", "\r\r"):
        for command in ("SEND", "CONNECT", "ERROR"):
            for text in (edge, f"{edge}a", f"a{edge}", f"a{edge}b"):
                for pairs in ([("x", text)], [(text, "x")], [(text, ""), ("y", text)]):
                    if read_again(codec, codec.Frame(command, pairs), options):
                        came_back.add((edge, text))
    assert (" ", "a b") in came_back
    assert ("\0", "\0") not in came_back


@thorough
@given(wire=some.wires, options=some.parser_options(), way=st.sampled_from(list(WAYS)), data=st.data())
def test_cuts_do_not_matter(codec, wire, options, way, data):
    """Frames, errors and offsets depend on the octets, never on how they came. But for one: the lenient take the only
    NUL of a body for one that was counted, if it comes last in what was read: test_lengths.py."""
    whole = answers_of(codec, wire, **options)
    bodies = [event[3] for event in whole if event[0] == "frame" and event[3]]
    assume(not (options["lenient"] and any(body.find(b"\0") == len(body) - 1 for body in bodies)))
    assert answers_of(codec, data.draw(some.cut(wire)), way=way, **options) == whole


@given(wire=some.wires, options=some.parser_options())
def test_every_frame_can_be_looked_at(codec, wire, options):
    for frame in parsed(codec, wire, **options):
        pairs = frame.headers.pairs()
        first = dict(reversed(pairs))
        assert dict(frame.headers) == first == dict(frame.headers.items())
        assert list(frame.headers.keys()) == list(frame.headers) == list(dict(pairs))
        assert len(frame.headers) == len(first)
        for name, value in first.items():
            assert frame.get(name) == frame.headers[name] == frame.headers.get(name) == value
            assert frame.headers.getall(name) == [text for key, text in pairs if key == name]
            assert name in frame.headers
        same(frame, codec.Frame(frame.command, pairs, frame.body))


@thorough
@given(wire=some.wires, options=some.parser_options(), writer=some.writer_options)
def test_parsed_frames_are_written_as_made_ones(codec, wire, options, writer):
    """The octets of a frame from the wire are taken over only where that is right."""
    for frame in parsed(codec, wire, **options):
        made = codec.Frame(frame.command, frame.headers.pairs(), frame.body)
        for name in WRITERS:
            assert written(codec, frame, writer, name) == written(codec, made, writer, name)


@given(args=some.any_frames(), options=some.writer_options)
def test_writers_agree(codec, args, options):
    frame = codec.Frame(*args)
    one, parts, many = (written(codec, frame, options, name) for name in WRITERS)
    if isinstance(one, bytes):
        assert (b"".join(parts), many, len(parts)) == (one, one + one, 1 if len(frame.body) < 8192 else 3)
        assert len(parts) == 1 or parts[1] is frame.body
    else:
        assert one == parts == many


@given(args=some.any_frames(), version=st.sampled_from(["1.0", "1.1", "1.2"]), data=st.data())
def test_a_tail_makes_a_whole_frame(codec, args, version, data):
    """Behind any command and headers; what the version cannot carry, and what was named, is not there."""
    command, pairs, body = args
    names = [name for name, _ in pairs if name.isprintable()] or ["x"]
    without = data.draw(st.lists(st.sampled_from(names), max_size=3).map(tuple))
    tail = codec.serialize_tail(codec.Frame(command, pairs, body), version, without=without)
    (frame,) = codec.Parser(version, limits=Limits(max_headers=10**5, max_header_line=10**4)).feed(
        b"MESSAGE\nours:1\n" + tail
    )
    kept = [
        pair
        for pair in pairs
        if pair[0] not in (*without, "content-length")
        and isinstance(written(codec, codec.Frame("SEND", [pair]), {"version": version}), bytes)
    ]
    if body or any(name == "content-length" for name, _ in pairs):
        kept.append(("content-length", str(len(body))))
    assert (frame.headers.pairs(), frame.body) == ([("ours", "1"), *kept], body)


# ---- both backends ----
@c_only
@thorough
@given(args=some.any_frames(), options=some.writer_options, writer=writers)
def test_backends_write_alike(both, args, options, writer):
    c, py = both
    assert written(c, c.Frame(*args), options, writer) == written(py, py.Frame(*args), options, writer)
