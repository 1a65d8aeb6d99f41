"""What it costs to fill bytes before their length is known: new pages of memory. Run by test_isolated.py.

Prints how many of its pages a body that was read, or what was written, has touched for the first time, in percent, for
each size.
"""

import resource
import subprocess
import sys

from stompcodec.codec import backend

KIB = 1024
ROUNDS = 40
codec = backend("c")


def reading(size):
    """Parse a body that ends at its NUL."""
    data = b"SEND\n\n" + b"x" * size + b"\0"
    pieces = [data[at : at + 64 * KIB] for at in range(0, len(data), 64 * KIB)]
    parser = codec.Parser("1.2")

    def work():
        for piece in pieces:
            for frame in parser.feed(piece):
                assert len(frame.body) == size

    return work


def writing(size):
    """Write many frames at once."""
    frame = codec.Frame("SEND", {"destination": "/queue/a"}, b"x" * 100)
    frames = [frame] * (size // len(codec.serialize(frame)))
    return lambda: codec.serialize_many(frames)


def new_pages(work, size):
    """In percent, of all rounds but the first few."""
    before = 0
    for number in range(ROUNDS + 4):
        if number == 4:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        work()
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return 100 * touched * resource.getpagesize() // (ROUNDS * size)


def main():
    if sys.argv[1:]:
        work, size = sys.argv[1], int(sys.argv[2]) * KIB
        print(new_pages({"reading": reading, "writing": writing}[work](size), size))
        return
    for work in ("reading", "writing"):
        for size in (300, 700, 1024, 1500, 3000, 6000):  # each as the first large thing that a process has
            subprocess.run([sys.executable, __file__, work, str(size)], check=True)


main()
