"""coilmq as a process of its own, on a free port: as it is, or on our codec.

Run as a program it is that process: coilmq_server.py MODE, MODE one of MODES; it prints its port.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

__all__ = ["MODES", "CoilmqProcess"]

MODES = ("as-it-is", "quirks", "strict")


class CoilmqProcess:
    """A context manager; `port` is where it listens. Its log goes nowhere."""

    def __init__(self, mode: str) -> None:
        import stompcodec

        paths = [str(Path(stompcodec.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), mode],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._process.stdout.close()
            raise RuntimeError(f"coilmq {mode} did not start: run python {__file__} {mode}")
        self.port = int(line)

    def __enter__(self) -> CoilmqProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def _serve(mode: str) -> None:
    if mode != "as-it-is":
        import stompcodec.compat.coilmq

        stompcodec.compat.coilmq.install(quirks=mode == "quirks")
    from coilmq.config import config, init_config
    from coilmq.start import server_from_config

    logging.disable()
    init_config(None)
    config.set("coilmq", "listen_port", "0")
    server = server_from_config()
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.path.pop(0)
    _serve(sys.argv[1])
