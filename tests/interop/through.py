"""Brokers behind `stompcodec proxy`: the same checks have to pass through it, since it changes nothing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol

from crash.process import ROOT
from interop.checks import CHECKS
from interop.driver import Target
from interop.rows import OTHERS, OURS, Row
from interop.run import Outcome, run_row, run_rows
from patience import patience

__all__ = ["THROUGH", "ProxyProcess", "Through", "run_through"]

_NAMES = ("stomp.py 1.2", "stomp.py 1.2 ws", "ruby-stomp 1.2", "php-stomp 1.1", "stompjs 1.2 ws", "sync 1.2")
#: A client for each kind of library and transport.
THROUGH = tuple(row for row in (*OTHERS, *OURS) if row.name in _NAMES)
_LISTENS = re.compile(r"stompcodec proxy: (?P<url>\S+) passes on to ")
_COUNTS = re.compile(r"from clients (?P<up>[\d,]+) frames?.*from the broker (?P<down>[\d,]+) frames?")
_TROUBLE = re.compile(r"not STOMP|did not reach the target|cannot ")


class Candidate(Protocol):
    """A broker of `interop.brokers` or `interop.running`."""

    title: str
    missing: str

    def __enter__(self) -> Target: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ProxyProcess:
    """`stompcodec proxy` on a free port.

    Args:
        scheme: of the listener, stomp or ws.
        target: what it passes on to.
        faults: texts for --fault.
    """

    def __init__(self, scheme: str, target: str, faults: tuple[str, ...] = ()) -> None:
        command = [sys.executable, "-m", "stompcodec.cli", "proxy", f"{scheme}://127.0.0.1:0", target, "--quiet"]
        command += [word for text in faults for word in ("--fault", text)]
        paths = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
            text=True,
            errors="replace",
        )
        self.lines: list[str] = []
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listens.wait(patience(60))
        found = _LISTENS.match(self.lines[0]) if self.lines else None
        if found is None:
            self.stop()
            raise OSError(f"the proxy did not start: {' '.join(self.lines)}")
        self.url = found["url"]
        self.port = int(self.url.rpartition(":")[2])

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))
            self._listens.set()
        self._listens.set()

    def stop(self) -> str:
        """End it, and return what was wrong: it did not end in order, or could not read all as STOMP."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(patience(30))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return "it did not end after SIGTERM"
        finally:
            self._reader.join()
            if self._process.stderr is not None:
                self._process.stderr.close()
        if status:
            return f"its exit status is {status}: {' '.join(self.lines[-3:])}"
        return next((line for line in self.lines if _TROUBLE.search(line)), "")

    @property
    def frames(self) -> tuple[int, int]:
        """How many frames clients and broker sent, once it has ended."""
        found = next(filter(None, map(_COUNTS.search, self.lines)), None)
        return (0, 0) if found is None else (int(found["up"].replace(",", "")), int(found["down"].replace(",", "")))


class Through:
    """A broker behind proxies, one for each of its listeners. Enter it for its `Target`.

    A broker without WebSocket gets it from the proxy, which passes the bytes on over TCP.

    Args:
        candidate: the broker.
        faults: texts for --fault.

    Attributes:
        direct: the target without the proxies, while this is entered.
        proxies: their processes.
        trouble: what was wrong with them, once this has ended.
    """

    def __init__(self, candidate: Candidate, faults: tuple[str, ...] = ()) -> None:
        self.candidate = candidate
        self.title = f"{candidate.title} through stompcodec proxy"
        self.missing = candidate.missing
        self.direct: Target | None = None
        self.proxies: list[ProxyProcess] = []
        self.trouble: list[str] = []
        self._faults = faults
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Target:
        self.proxies, self.trouble = [], []
        with contextlib.ExitStack() as stack:
            self.direct = target = stack.enter_context(self.candidate)
            stack.callback(self._stop)
            host, port, url = self._both(target.host, target.port, target.url)
            refuses = target.refuses
            if refuses is not None:
                refuses = (host, port, url) if refuses[:2] == (target.host, target.port) else self._both(*refuses)
            self._stack = stack.pop_all()
        return target._replace(host=host, port=port, url=url, refuses=refuses)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.direct = None
        self._stack.close()

    def _both(self, host: str, port: int, url: str) -> tuple[str, int, str]:
        """A proxy for TCP and one for WebSocket."""
        tcp, websocket = self._proxy("stomp", f"stomp://{host}:{port}"), self._proxy("ws", url or f"{host}:{port}")
        return "127.0.0.1", tcp.port, websocket.url + "/"

    def _proxy(self, scheme: str, target: str) -> ProxyProcess:
        self.proxies.append(ProxyProcess(scheme, target, self._faults))
        return self.proxies[-1]

    def _stop(self) -> None:
        self.trouble = [f"{proxy.url}: {word}" for proxy in self.proxies if (word := proxy.stop())]


def run_through(
    rows: Iterable[Row],
    broker: Through,
    checks: Iterable[str] = tuple(CHECKS),
    said: Callable[[str], None] = lambda line: None,
    jobs: int = 4,
) -> dict[str, dict[str, Outcome]]:
    """Row name -> check -> outcome through the proxies.

    What fails is run once more without other clients beside it, since some clients have short time-outs. What fails
    again is run without the proxy, too: what fails there as well is no fault of the proxy, and counts as "n/a".
    """
    names, some = tuple(checks), list(rows)
    with broker as target:
        outcomes = run_rows(some, target, names, said, jobs)
        direct: Any = broker.direct
        for row in some:
            for place in (target, direct):
                failed = [check for check in names if outcomes[row.name][check].word == "FAIL"]
                if not failed or (row.websocket and not place.url):
                    continue
                for check, outcome in run_row(row, place, failed, said, threading.Event()).items():
                    if place is target:
                        outcomes[row.name][check] = outcome
                    elif outcome.word == "FAIL":
                        outcomes[row.name][check] = Outcome("n/a", f"it fails without the proxy, too: {outcome.why}")
    return outcomes
