"""The command `stompcodec`. It needs click and rich, the extra `cli`."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from stompcodec.errors import MissingExtraError

__all__ = ["main"]


def require_extra() -> None:
    """Exit with status 2 and name the extra if its packages are not installed."""
    for package in ("click", "rich"):
        if find_spec(package) is None:
            print(f"stompcodec: {MissingExtraError('cli', package)}", file=sys.stderr)
            sys.exit(2)


def _reopen_streams() -> None:
    """Open closed standard streams as the null device, which cannot be written: a result that is lost is an error."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, errors="backslashreplace", closefd=False))


def main() -> None:
    """Run the command `stompcodec`, and exit: 0 on success, 1 on failure, 2 for wrong usage, 130 after Ctrl-C."""
    _reopen_streams()
    try:
        require_extra()
        from stompcodec.cli import streams
        from stompcodec.cli.app import app
    except KeyboardInterrupt:  # click handles it from here on
        sys.exit(130)
    streams.begin()
    try:
        app(prog_name="stompcodec")
    except OSError as error:  # on output; reading has errors of its own
        print(f"stompcodec: cannot write: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python flushes at exit
        sys.exit(130 if streams.is_stuck() else 1)  # a signal ended a wait for the reader
    except Exception:  # a fault of ours: the interpreter would tell it only after the streams have ended
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        streams.end()
