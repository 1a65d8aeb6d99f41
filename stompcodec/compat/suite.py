"""A plug-in for pytest that runs a library's own suite on our codec.

    STOMPCODEC_COMPAT=stompman pytest -p stompcodec.compat.suite

`STOMPCODEC_COMPAT` is a module of `stompcodec.compat`; with ":strict" behind it, it is STOMP as written. Plug-ins named
with -p are loaded first, so the names are replaced before the suite imports them.
"""

from __future__ import annotations

import os

from stompcodec.compat import install

__all__ = ["pytest_report_header"]

_peer, _, _mode = os.environ.get("STOMPCODEC_COMPAT", "").partition(":")
_installed = None
if _peer:
    _installed = install(_peer, quirks=_mode != "strict")


def pytest_report_header() -> str:
    """What pytest says at its start."""
    return f"stompcodec.compat: {_peer or 'nothing'} {_installed or ''}"
