"""One Parser in several threads at once is misuse: nonsense may come out, but no crash. Run by test_isolated.py."""

import sys
import threading

from stompcodec.codec import backend
from stompcodec.errors import FrameError

codec = backend(sys.argv[1])
STREAM = b"SEND\na:1\n\nhello\0\nSEND\ncontent-length:5000\n\n" + bytes(5000) + b"\0SEND\n\n" + b"x" * 5000 + b"\0"
sys.setswitchinterval(1e-6)


def drive(parser, stop):
    at = 0
    while not stop.is_set():
        size = 1 + at % 4999
        try:
            if at % 3:
                parser.feed(STREAM[at % len(STREAM) :][:size])
            else:
                parser.get_buffer(size)[:1] = b"\n"
                parser.buffer_updated(1)
            for _ in parser:
                pass
            parser.version = ("1.2", "1.1")[at % 2]
            parser.buffered  # noqa: B018
        except (FrameError, RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            pass
        at += 1


for _ in range(10):
    parser = codec.Parser("1.2", lenient=True, stream_over=None)
    stop = threading.Event()
    threads = [threading.Thread(target=drive, args=(parser, stop)) for _ in range(4)]
    for thread in threads:
        thread.start()
    stop.wait(0.1)
    stop.set()
    for thread in threads:
        thread.join()
print("no crash")
