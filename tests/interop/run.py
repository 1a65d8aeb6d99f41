"""Run checks: every client against one broker, several at a time, for they mostly wait; and through `stompcodec proxy`.

The same checks have to pass through it, since it changes nothing.
"""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

from crash.process import environment
from interop.checks import CHECKS
from interop.driver import Failed, NotThere, Program, Target
from interop.rows import OTHERS, OURS, Row
from patience import patience


class Outcome(NamedTuple):
    word: Literal["ok", "FAIL", "n/a"]
    why: str = ""


Outcomes = dict[str, dict[str, Outcome]]


def _run(program: Program, check: str, row: Row, target: Target) -> Outcome:
    reasons = dict(row.lacks) | {name: why for who, name, why in target.lacks if who in ("*", row.version, row.name)}
    if check in reasons:
        return Outcome("n/a", reasons[check])
    try:
        CHECKS[check](program, target)
        for link in tuple(program.links):
            link.close()
    except NotThere as error:
        outcome = Outcome("n/a", str(error))
    except Failed as error:
        outcome = Outcome("FAIL", str(error))
    else:
        return Outcome("ok")
    program.kill()  # the next check starts afresh
    return outcome


def run_row(row: Row, target: Target, checks: Iterable[str]) -> dict[str, Outcome]:
    place = {"": target.port, "ws": target.url, "sockjs": target.sockjs}[row.over]
    missing = row.missing() or ("" if place else f"{target.name} has no {row.over or 'TCP'} here")
    if missing:
        return {check: Outcome("n/a", missing) for check in checks}
    program = row.start()
    try:
        return {check: _run(program, check, row, target) for check in checks}
    finally:
        program.kill()


def run_rows(rows: Iterable[Row], target: Target, checks: Iterable[str] = tuple(CHECKS)) -> Outcomes:
    """Row name -> check -> outcome, in the order of the rows."""
    names = tuple(checks)
    with ThreadPoolExecutor(4) as pool:
        futures = {row.name: pool.submit(run_row, row, target, names) for row in rows}
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:  # Ctrl-C too
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_NAMES = ("stomp.py 1.2", "stomp.py 1.2 ws", "ruby-stomp 1.2", "stomp-php 1.1", "stompjs 1.2 ws", "sync 1.2")
#: A client for each kind of library and transport.
THROUGH = tuple(row for row in (*OTHERS, *OURS) if row.name in _NAMES)
_LISTENS = re.compile(r"stompcodec proxy: (?P<url>\S+) passes on to ")
_COUNTS = re.compile(r"from clients (?P<up>[\d,]+) frames?.*from the broker (?P<down>[\d,]+) frames?")
_TROUBLE = re.compile(r"not STOMP|did not reach the target|cannot ")


class ProxyProcess:
    def __init__(self, scheme: str, target: str, faults: tuple[str, ...] = ()) -> None:
        command = [sys.executable, "-m", "stompcodec.cli", "proxy", f"{scheme}://127.0.0.1:0", target, "--quiet"]
        command += [word for text in faults for word in ("--fault", text)]
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        said = {**environment(), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        self._process: Any = subprocess.Popen(command, env=said, text=True, errors="replace", **pipes)
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
            self._process.stderr.close()
        if status:
            return f"its exit status is {status}: {' '.join(self.lines[-3:])}"
        return next((line for line in self.lines if _TROUBLE.search(line)), "")

    @property
    def frames(self) -> tuple[int, int]:
        """How many frames clients and broker sent, once it has ended."""
        found = next(filter(None, map(_COUNTS.search, self.lines)), None)
        return (0, 0) if found is None else (int(found["up"].replace(",", "")), int(found["down"].replace(",", "")))


class Passed(NamedTuple):
    """What came through proxies."""

    outcomes: Outcomes
    trouble: list[str]  # What was wrong with the proxies: one did not end in order, or could not read all as STOMP.
    frames: tuple[int, int]  # How many frames clients and broker sent through the proxy for TCP.


def run_through(rows, direct, checks=tuple(CHECKS), faults=()):
    """Run checks through proxies, one for each listener. A broker without WebSocket gets it from the proxy.

    What fails is run once more without other clients beside it, since some clients have short time-outs. What fails
    again is run without the proxy, too: what fails there as well is no fault of the proxy, and counts as "n/a".
    """
    proxies: list[ProxyProcess] = []

    def behind(host: str, port: int, url: str) -> tuple[str, int, str]:
        proxies.append(ProxyProcess("stomp", f"stomp://{host}:{port}", faults))
        proxies.append(ProxyProcess("ws", url or f"{host}:{port}", faults))
        return "127.0.0.1", proxies[-2].port, proxies[-1].url + "/"

    try:
        host, port, url = behind(direct.host, direct.port, direct.url)
        refuses = direct.refuses
        if refuses is not None:
            refuses = (host, port, url) if refuses[:2] == (direct.host, direct.port) else behind(*refuses)
        target = direct._replace(host=host, port=port, url=url, refuses=refuses)
        outcomes = _judged(tuple(rows), target, direct, tuple(checks))
    finally:
        trouble = [f"{proxy.url}: {word}" for proxy in proxies if (word := proxy.stop())]
    return Passed(outcomes, trouble, proxies[0].frames)


def _judged(rows: tuple[Row, ...], target: Target, direct: Target, checks: tuple[str, ...]) -> Outcomes:
    outcomes = run_rows(rows, target, checks)
    for row in rows:
        for place in (target, direct):
            failed = [check for check in checks if outcomes[row.name][check].word == "FAIL"]
            if not failed or (row.over and not place.url):
                continue
            for check, outcome in run_row(row, place, failed).items():
                if place is target:
                    outcomes[row.name][check] = outcome
                elif outcome.word == "FAIL":
                    outcomes[row.name][check] = Outcome("n/a", f"it fails without the proxy, too: {outcome.why}")
    return outcomes
