"""Memory of a process, what C takes from malloc included. Run by test_isolated.py.

Prints how many octets a million headers took at the most, for each octet that came; or how many a kept frame takes that
has a body of 100.
"""

import resource
import sys

from stompcodec.codec import backend
from stompcodec.spec import Limits

codec = backend(sys.argv[1])


def peak():
    """Octets; ru_maxrss counts KiB, and octets on macOS."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def headers():
    list(codec.Parser("1.2").feed(b"SEND\n\nwarm\0"))
    limits = Limits(max_headers=10**6, max_header_line=1000)
    before = peak()
    parser = codec.Parser("1.2", limits=limits)
    parser.feed(b"SEND\n")
    line = b"name:value and more\n"
    size = 0
    for _ in range(1000):
        for _ in parser.feed(line * 1000):
            pass
        size += 1000 * len(line)
    print(round((peak() - before) / size, 1))


def bodies():
    parser = codec.Parser("1.2")
    frames, others, before = [], [], peak()
    for _ in range(20_000):
        parser.feed(b"SEND\n\n" + b"x" * 50)
        frames += parser
        others.append(bytearray(600))  # behind the room for the body
        frames += parser.feed(b"x" * 50 + b"\0")
    assert {len(frame.body) for frame in frames} == {100}
    print((peak() - before) // len(frames))


{"headers": headers, "bodies": bodies}[sys.argv[2]]()
