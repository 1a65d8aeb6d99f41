"""Prints which of the modules that `import stompcodec` must not load are loaded. Run by test_isolated.py."""

import sys

HEAVY = ["asyncio", "ssl", "sqlite3", "socket", "pyarrow", "pyspark", "click", "rich", "numpy", "ctypes", "threading"]
before = set(sys.modules)
import stompcodec

frame = stompcodec.Frame("SEND", {"destination": "/queue/a"}, b"hello")
(read,) = stompcodec.Parser("1.2").feed(stompcodec.serialize(frame))
assert read.get("destination") == "/queue/a"
loaded = set(sys.modules) - before
print(stompcodec.BACKEND, *sorted(name for name in HEAVY if name in loaded))
