"""Imported before stompcodec: where atheris is installed, the package's Python code then reports its coverage."""

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

#: Atheris drives, and not `mutate.py`.
COVERED = "--plain" not in sys.argv[1:] and find_spec("atheris") is not None
#: What the targets call; some of it needs extras.
MODULES = ("_codec_py", "connection", "heartbeat", "transport.websocket", "broker.core", "broker.selectors.selector")

if COVERED:
    import atheris

    with atheris.instrument_imports(include=["stompcodec"]):
        for name in MODULES:
            with suppress(ImportError):
                import_module(f"stompcodec.{name}")
