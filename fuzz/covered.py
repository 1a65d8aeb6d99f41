"""Imported before stompcodec: where atheris is installed, the package's Python code then reports its coverage."""

import sys
from contextlib import suppress
from importlib.util import find_spec

#: Atheris drives, and not `mutate.py`.
COVERED = "--plain" not in sys.argv[1:] and find_spec("atheris") is not None

if COVERED:
    import atheris

    with atheris.instrument_imports(include=["stompcodec"]):
        import stompcodec._codec_py
        import stompcodec.capture
        import stompcodec.columns
        import stompcodec.connection
        import stompcodec.content
        import stompcodec.heartbeat

        with suppress(ImportError):  # the extra ws
            import stompcodec.transport.websocket
        with suppress(ImportError):  # the extra broker
            import stompcodec.broker.bodies.xml_json
            import stompcodec.broker.core
            import stompcodec.broker.selectors.selector  # noqa: F401
