"""The command `stompcodec`. Needs click and rich: the extra `cli`."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from stompcodec.errors import MissingExtraError

__all__ = ["main"]


def require_extra() -> None:
    """End with status 2 and a line that names the extra, where its packages are not installed."""
    for package in ("click", "rich"):
        if find_spec(package) is None:
            print(f"stompcodec: {MissingExtraError('cli', package)}", file=sys.stderr)
            sys.exit(2)


def main() -> None:
    """The entry point of the command `stompcodec`. Ends the process: 0 all was well, 1 it was not, 2 wrong usage."""
    require_extra()
    from stompcodec.cli.app import app

    try:
        app(prog_name="stompcodec")
    except OSError as error:  # of the output: what is read has errors of its own
        print(f"stompcodec: cannot write: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python flushes at the end
        sys.exit(1)
