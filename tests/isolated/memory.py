"""Memory of a process, what C takes from malloc included. Run by test_isolated.py."""

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
    before, parser = peak(), codec.Parser("1.2", limits=Limits(max_headers=10**6, max_header_line=1000))
    parser.feed(b"SEND\n")
    line, size = b"name:value and more\n", 0
    for _ in range(1000):
        for _ in parser.feed(line * 1000):
            pass
        size += 1000 * len(line)
    print(round((peak() - before) / size, 1))


headers()
