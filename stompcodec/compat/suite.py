"""A pytest plug-in that runs a library's own test suite on our codec.

    STOMPCODEC_COMPAT=stompman pytest -p stompcodec.compat.suite

`STOMPCODEC_COMPAT` names the library; with ":strict" after it, STOMP is as specified. Plug-ins named with -p are loaded
first, so that names are replaced before the suite imports them.
"""

from __future__ import annotations

import os

from stompcodec.compat import install

_peer, _, _mode = os.environ.get("STOMPCODEC_COMPAT", "").partition(":")
_installed = None
if _peer:
    _installed = install(_peer, quirks=_mode != "strict")


def pytest_report_header() -> str:
    """Return the line that pytest prints at its start."""
    return f"stompcodec.compat: {_peer or 'nothing'} {_installed or ''}"
