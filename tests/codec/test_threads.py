"""Threads that run at the same time: a parser for each, frames, columns and a client that all of them share."""

import pickle
import sys
import threading

import pytest
from patience import patience

import stompcodec.client as stomp

THREADS = 6
ROUNDS = 40


@pytest.fixture(autouse=True)
def switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(function):
    barrier = threading.Barrier(THREADS)
    results, errors = [None] * THREADS, []

    def run(number):
        try:
            barrier.wait(patience(60))
            results[number] = function(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(120))
    assert errors == []
    return results


def wire(number, count=50):
    head = "MESSAGE\ndestination:/queue/{0}\nmessage-id:{1}\nescaped:a\\cb\\nü{1}\ncontent-length:{1}\n\n"
    return b"".join(head.format(number, i).encode() + b"x" * i + b"\0" for i in range(count))


def test_a_parser_for_each_thread(codec):
    def parse(number):
        parser, octets, size = codec.Parser("1.2"), wire(number), 97 + number
        pieces = (octets[at : at + size] for at in range(0, len(octets), size))
        return [(dict(frame.headers), frame.body) for piece in pieces for frame in parser.feed(piece)]

    for number, found in enumerate(at_once(parse)):
        assert [len(body) for _, body in found] == list(range(50))
        assert {headers["destination"] for headers, _ in found} == {f"/queue/{number}"}
        assert found[7][0]["escaped"] == "a:b\nü7"


#: What threads do with one frame. Its headers are made when they are first asked for.
USES = {
    "headers": lambda _codec, frame: dict(frame.headers),
    "get": lambda _codec, frame: [frame.get(name) for name in ("escaped", "message-id", "destination", "none")],
    "repr": lambda _codec, frame: repr(frame),
    "hash, ==": lambda _codec, frame: frame == pickle.loads(pickle.dumps(frame)),
    "serialize": lambda codec, frame: codec.serialize(frame),
    "all headers": lambda _, f: (list(f.headers), f.headers == dict(f.headers), "x" in f.headers),
}


@pytest.mark.parametrize("use", USES)
def test_a_frame_that_threads_share(codec, use):
    octets = wire(1, 8).split(b"\0")[7] + b"\0"
    wanted = USES[use](codec, next(codec.Parser("1.2").feed(octets)))
    for _ in range(ROUNDS):
        (frame,) = codec.Parser("1.2").feed(octets)
        assert at_once(lambda _number, frame=frame: USES[use](codec, frame)) == [wanted] * THREADS


def test_names_that_threads_leave_out(codec):
    """Names are kept for the next call, of 100 tuples at most: threads that bring more throw out each other's."""
    frame = codec.Frame("SEND", {"destination": "/queue/a", **{f"x{i}": "1" for i in range(5)}}, b"hi")
    wanted = [codec.serialize_tail(frame, without=(f"x{i}", "y")) for i in range(5)]

    def leave_out(_number):
        for at in range(ROUNDS * 50):  # all threads want the same tuples at the same time
            assert codec.serialize_tail(frame, without=(f"x{at % 5}", f"y{at % 150}")) == wanted[at % 5]

    at_once(leave_out)


def test_a_pair_of_headers_that_another_thread_changes(codec):
    pair = ["name", "value"]

    def make_or_change(number):
        for at in range(ROUNDS * 50):
            if number == 0:
                pair[:] = [] if at % 2 else [f"name{at}", f"value{at}"]
                continue
            try:
                ((name, value),) = codec.Frame("SEND", [pair]).headers.items()
            except TypeError:  # it was empty
                continue
            assert name.replace("name", "value") == value

    at_once(make_or_change)


def test_columns_go_to_one_thread(codec):
    """The same without pyarrow, which that Python does not have: its own code is not built for ThreadSanitizer."""
    for _ in range(ROUNDS):
        shared = codec.parse_columns(wire(1), "1.2", ["destination"])

        def export(_number, shared=shared):
            try:
                return str(len(shared.__arrow_c_array__()))
            except ValueError as error:
                return str(error)

        told = "the columns were exported already: parse again"
        assert sorted(at_once(export)) == ["2", *[told] * (THREADS - 1)]


def test_a_client_that_threads_share(stomp_broker):
    with stomp.connect(stomp_broker.url) as client:

        def talk(number):
            queue, bodies = f"/queue/thread-{number}", [b"%d %d" % (number, at) for at in range(20)]
            subscription = client.subscribe(queue, ack="client-individual")
            for body in bodies:
                client.send(queue, body, receipt=body.endswith(b"5"))
            found = []
            for message in subscription:
                with message.processing():
                    found.append(message.body)
                if len(found) == len(bodies):
                    break
            subscription.unsubscribe()
            assert found == bodies
            return found

        found = at_once(talk)
    assert len({body for bodies in found for body in bodies}) == 20 * THREADS


def test_columns_for_each_thread(codec):
    pyarrow = pytest.importorskip("pyarrow")
    found = at_once(lambda number: pyarrow.record_batch(codec.parse_columns(wire(number), "1.2")).to_pydict())
    for number, columns in enumerate(found):
        assert columns == pyarrow.record_batch(codec.parse_columns(wire(number), "1.2")).to_pydict()
