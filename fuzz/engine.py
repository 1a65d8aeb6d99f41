"""Drives a target by atheris (libFuzzer). Imported before stompcodec, whose Python code then reports its coverage, and
before modules of the tests, which are found by it.

    fuzz_NAME.py [libFuzzer options] [CORPUS ...]     a FILE instead of a folder is run once

Without atheris a target can be imported and its check called, but not driven.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

#: What the targets call; some of it needs extras.
MODULES = ("_codec_py", "connection", "transport.websocket", "broker.core", "broker.selectors")

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
if find_spec("atheris"):
    import atheris

    with atheris.instrument_imports(include=["stompcodec"]):
        for name in MODULES:
            with suppress(ImportError):
                import_module(f"stompcodec.{name}")


def drive(check: Callable[[bytes], object]) -> None:
    """Run a check, which raises where its invariant does not hold, on as many inputs as the command line asks for."""
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()
