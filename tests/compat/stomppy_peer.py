"""stomp.py and our module for it; the tests are skipped where it is not installed."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
try:
    import stompcodec.compat.stomppy as compat
    import stompcodec.compat.stomppy_codec

    stomp = compat.stomp
except ImportError as error:
    stomp = compat = None
    REASON = str(error)
else:
    compat.stomppy_codec = stompcodec.compat.stomppy_codec
    REASON = ""

needs_stomppy = pytest.mark.skipif(stomp is None, reason=REASON)
