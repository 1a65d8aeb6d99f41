"""The conformance suite: vectors for codecs, scenarios for brokers, and their runners.

In a wheel they are in stompcodec/testing/suite.zip, where the build puts them; in a source tree, in tests/.
"""

from __future__ import annotations

import importlib
import re
import socket
import sys
import tempfile
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import stompcodec
from stompcodec import Frame
from stompcodec.errors import ConfigError, ConnectionLostError, RejectedError

if TYPE_CHECKING:
    from stompcodec.uri import Address

_PACKAGE = Path(stompcodec.__file__).parent
_ARCHIVE = _PACKAGE / "testing" / "suite.zip"
_TREE = _PACKAGE.parent / "tests"


#: Seconds that a broker has at least for its first answer.
_GREETING = 5.0


class Result(NamedTuple):
    """The result of a vector or scenario.

    >>> Result("escapes", "ESC-01", ("S12-ESC-01",), "failed", "event 0: nothing").outcome
    'failed'
    """

    topic: str
    """Its file."""
    id: str
    requirements: tuple[str, ...]
    """The requirements that it covers."""
    outcome: str
    """passed, failed or skipped."""
    reason: str = ""
    """Why it failed or was skipped."""
    title: str = ""
    """Its description; for scenarios."""
    level: str = ""
    """MUST, SHOULD, ...; for scenarios."""


@lru_cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with the suite of a wheel, which is removed at the end of the process."""
    folder = tempfile.TemporaryDirectory(prefix="stompcodec-suite-")
    with zipfile.ZipFile(_ARCHIVE) as archive:
        archive.extractall(folder.name)
    return folder


def suite_folder() -> Path:
    """Return the folder of the suite; raise ConfigError if it is not installed."""
    if _ARCHIVE.is_file():
        return Path(_unpacked().name)
    if (_TREE / "run_vectors.py").is_file():
        return _TREE
    raise ConfigError("this installation lacks the conformance suite: install a wheel or the sdist of stompcodec")


def _runner(name: str) -> Any:
    """Import a runner under its own name, because adapters import `Refused` from run_vectors."""
    folder = str(suite_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def adapter_of(target: str) -> Any:
    """Return the adapter named by "module:name", calling it if it is a class; "stompcodec" names our own.

    Modules may also be in the working directory. Raises ConfigError if it does not exist, or does not work.
    """
    _runner("run_vectors")
    if target == "stompcodec":
        return _runner("conformance").Adapter()
    module, _, name = target.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        adapter = getattr(importlib.import_module(module), name or "Adapter")
        return adapter() if isinstance(adapter, type) else adapter
    except Exception as error:  # of any kind, from foreign code
        words = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{target} is not an adapter: {words}; give module:name, see run_vectors.py") from error


def vectors(adapter: Any, folders: list[Path], *, lenient: bool, only: str) -> Iterator[Result]:
    """Run the vectors whose topic, id or requirements contain the text `only`; by default the suite's own.

    run_vectors.py describes the methods of an adapter.
    """
    runner = _runner("run_vectors")
    for topic, vector, problem in runner.run(adapter, folders or [suite_folder() / "vectors"], lenient, only):
        ident, rules = vector["id"], tuple(vector["requirements"])
        if problem is None:
            yield Result(topic, ident, rules, "passed")
        elif problem == "skipped":
            yield Result(topic, ident, rules, "skipped", f"the adapter has no {vector['kind']}")
        else:
            yield Result(topic, ident, rules, "failed", problem)


def scenarios(
    address: Address,
    folders: list[Path],
    *,
    only: str,
    features: tuple[str, ...] = (),
    everything: bool = False,
    timeout: float = 3.0,
    jobs: int = 4,
    options: dict[str, str] | None = None,
    begun: Callable[[int], object] = lambda total: None,
) -> Iterator[Result]:
    """Run scenarios against a broker, over TCP or WebSocket without TLS, several (`jobs`) in parallel.

    `only` also searches titles; scenarios that need any of `features`, or with `everything` any features at all, run
    too. `timeout` is how long to wait for an expected frame; `options` may have queue_prefix and topic_prefix. `begun`
    is called with the number of scenarios before they run.

    Raises:
        ConfigError: the address uses TLS.
        ConnectionLostError: no STOMP broker answers, or it went away.
        RejectedError: the broker refuses the login or CONNECT.
    """
    if address.tls:
        raise ConfigError(f"{address}: scenarios run over stomp: and ws: only")
    runner = _runner("run_scenarios")
    chosen_by = {"filter": only, "feature": list(features), "all": everything}
    settings = Namespace(**{**_connection(address), **(options or {})}, **chosen_by, timeout=timeout)
    chosen = list(runner.selected(folders or [suite_folder() / "scenarios"], settings))
    if any(wanted for _topic, _scenario, wanted in chosen):
        _greet(runner, settings, address, lasting=not features and not everything)
    begun(len(chosen))
    with ThreadPoolExecutor(jobs) as pool:
        problems = pool.map(lambda item: runner.run(item[1], settings) if item[2] else None, chosen)
        for (topic, scenario, wanted), problem in zip(chosen, problems):
            outcome = "skipped" if not wanted else "passed" if problem is None else "failed"
            reason = problem or ("" if wanted else f"needs {', '.join(scenario['features'])}")
            rules = tuple(scenario["requirements"])
            yield Result(topic, scenario["id"], rules, outcome, reason, scenario["title"], scenario["level"])
            if problem is not None and (gone := _gone(address, timeout)):
                pool.shutdown(cancel_futures=True)
                raise ConnectionLostError(f"the broker went away: {gone}")


def _connection(address: Address) -> dict[str, Any]:
    """Return the settings of run_scenarios.py for the broker's address and login."""
    return {
        "host": address.host,
        "port": address.port,
        "ws": address.path if address.websocket else None,
        "login": address.login or "guest",
        "passcode": address.passcode or "guest",
        "vhost": address.vhost or "/",
        "queue_prefix": "/queue/spec-",
        "topic_prefix": "/topic/spec-",
    }


def _gone(address: Address, timeout: float) -> str:
    """Return why connections to an address fail; "" if they do not."""
    try:
        socket.create_connection((address.host, address.port), max(timeout, _GREETING)).close()
    except OSError as error:
        return f"cannot connect to {address}: {error.strerror or error}"
    return ""


def _greet(runner: Any, settings: Namespace, address: Address, *, lasting: bool) -> None:
    """Send CONNECT once, so that a missing broker is one error rather than a failure of every scenario.

    With `lasting` it raises on ERROR. Brokers that need another CONNECT, such as legacy ones, may refuse ours.
    """
    seconds = max(settings.timeout, _GREETING)
    try:
        connection = runner.Connection(settings, seconds)
    except OSError as error:
        raise ConnectionLostError(f"cannot connect to {address}: {error.strerror or error}", sent=False) from error
    try:
        who = [("login", settings.login), ("passcode", settings.passcode)]
        headers = [("accept-version", "1.0,1.1,1.2"), ("host", settings.vhost), ("heart-beat", "0,0"), *who]
        connection.send_frame("CONNECT", headers, b"")
        frame = connection.frame(seconds)
        begin, ended = connection.buffer, connection.closed
    finally:
        connection.close()
    if frame is None and not re.match(rb"[A-Z]+\r?\n", begin):
        what = "it closed the connection" if ended else f"no CONNECTED came in {seconds:g} s"
        if begin:
            what = f"no CONNECTED, but {begin[:60]!r} came"
        raise ConnectionLostError(f"cannot connect to {address}: {what}", sent=False)
    if frame is not None and frame[0] == "ERROR" and lasting:
        text = runner.first(frame[1], "message") or frame[2].decode("utf-8", "replace").strip()[:200]
        raise RejectedError(f"CONNECT was rejected: {text}", Frame("ERROR", frame[1], frame[2]))


def requirements_of(results: list[Result]) -> dict[str, str]:
    """Return the covered requirements: "failed" if one of its cases failed, otherwise "passed".

    >>> requirements_of([Result("a", "1", ("R1", "R2"), "passed"), Result("a", "2", ("R2",), "failed")])
    {'R1': 'passed', 'R2': 'failed'}
    """
    found: dict[str, str] = {}
    for result in results:
        for rule in result.requirements:
            if result.outcome == "failed" or (result.outcome == "passed" and rule not in found):
                found[rule] = result.outcome
    return {rule: found[rule] for rule in sorted(found, key=_by_number)}


def _by_number(rule: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(\d*)", rule)
    assert match is not None
    return match[1], int(match[2] or 0)
