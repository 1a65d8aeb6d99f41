"""A body for which there is no memory left. Run by test_isolated.py, for C alone: the Python backend moves no body."""

import mmap
import resource
import sys

from stompcodec.codec import backend
from stompcodec.spec import Limits

MIB = 2**20
ROOM = 64 * MIB


def is_limited():
    """Return whether the system heeds the limit; qemu does not, for the programs that it runs."""
    resource.setrlimit(resource.RLIMIT_AS, (MIB, resource.RLIM_INFINITY))
    try:
        mmap.mmap(-1, ROOM).close()
    except OSError:
        return True
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return False


def main():
    for head in (b"SEND\n\n", b"SEND\ncontent-length:1000000000\n\n"):
        parser = backend("c").Parser("1.2", limits=Limits(max_body=2**40))
        list(parser.feed(head))
        piece = b"x" * MIB
        with open("/proc/self/statm") as statm:
            now = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, resource.RLIM_INFINITY))
        fed = 0
        try:
            while fed < ROOM:
                list(parser.feed(piece))
                fed += MIB
        except MemoryError:
            print("no memory", end="")
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for _ in range(2):
            try:
                print(list(parser.feed(b"\0")))
            except MemoryError:
                print(", dead", end="")
        print(f", {parser.buffered} kept")


if not is_limited():
    print("no limit of memory")
    sys.exit()
main()
