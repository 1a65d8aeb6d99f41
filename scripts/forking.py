"""Run pytest for scripts/mutations.py: collect the tests once, then try each fault in a fork of this process.

    python -P scripts/forking.py 0 ARGUMENT-OF-PYTEST ...

Each line of its input is a request, and each line of its output the answer, both JSON: see `Forking._answer`. In place
of 0, a process that it starts for one fault gets the descriptor to which it writes which test begins.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

#: Seconds that tests may take to be collected, and each one of them, with those that it took before so many times.
_COLLECTED, _ONE, _TIMES = 180, 10, 5


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def planted(functions: list[FunctionType], file: str) -> bool:
    """Give functions of a file the code that the file has now, and return whether those that changed could take it. A
    function is known by its name and first line: those around the fault have kept theirs, and no others have changed.
    """
    code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    new = {(each.co_qualname, each.co_firstlineno): each for each in _codes(code)}
    pairs = [(each, new.get((each.__code__.co_qualname, each.__code__.co_firstlineno))) for each in functions]
    changed = [(function, now) for function, now in pairs if now and now != function.__code__]
    if not all(now.co_freevars == function.__code__.co_freevars for function, now in changed):
        return False  # its cells would get other names
    for function, now in changed:
        function.__code__ = now
    return bool(changed)


class Forking:
    """A plugin that runs tests when it is asked to, each time in another fork of the process that collected them. With
    `sink`, the descriptor where it says which test begins, it runs all of them at once.
    """

    def __init__(self, sink: int) -> None:
        self._sink, self._failed = sink, False
        self._items: dict[str, list[pytest.Item]] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        if not sink:
            self._requests, self._answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Import the whole package, or each fork would do so; conftest.py then freezes what there is."""
        package = importlib.import_module("stompcodec")
        for each in pkgutil.walk_packages(package.__path__, "stompcodec.", lambda name: None):
            if not each.name.endswith("__main__"):
                with contextlib.suppress(Exception, SystemExit):
                    importlib.import_module(each.name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:  # a file cannot be imported
            return True
        if self._sink:
            self._run(session.items, self._sink)
        for item in session.items:
            for name in {item.nodeid, item.nodeid.partition("[")[0]}:
                self._items.setdefault(name, []).append(item)
        gc.unfreeze()
        for each in (each for each in gc.get_objects() if type(each) is FunctionType):
            self._functions.setdefault(each.__code__.co_filename, []).append(each)
        gc.freeze()
        for line in self._requests:
            print(json.dumps(self._answer(*json.loads(line))), file=self._answers, flush=True)
        return True

    def _answer(self, tests: dict[str, float], file: str, anew: bool) -> tuple[str, str, dict[str, float]]:
        """Return the verdict on tests (all without names), the last one that began, and the seconds of each. A fault of
        `file` is planted in this process, unless they are run `anew`, in one that comes across it by itself.
        """
        source, sink = os.pipe()
        process = os.fork()
        if not process:
            self._try(tests, file, anew, sink)
        os.close(sink)
        times: dict[str, float] = defaultdict(float)
        last, began, done, status = "", time.monotonic(), 0, 0
        try:
            while not done and (not tests or time.monotonic() - began < _limit(tests, last)):
                done, status = os.waitpid(process, os.WNOHANG)
                said = os.read(source, 1 << 16) if select.select([source], [], [], 0.1)[0] else b""
                for line in said.decode().splitlines():
                    now, _, name = line.partition(" ")
                    times[last.partition("[")[0]] += float(now) - began
                    last, began = name or last, float(now)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.close(source)
        if not done:
            os.waitpid(process, 0)
        return "timeout" if not done else "killed" if status else "alive", last, times

    def _try(self, tests: dict[str, float], file: str, anew: bool, sink: int) -> None:
        """Run tests on a fault in this process, or in a new one where it cannot be planted, and end it."""
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            names = [name for name in tests or self._items if name in self._items and (tests or "[" not in name)]
            functions = self._functions.get(file, [])
            if not names or (not anew and (not functions or planted(functions, file))):
                self._run([each for name in names for each in self._items[name]], sink, whole=not tests)
            options = [each for each in sys.argv[2:] if not each.startswith("tests/")]
            os.set_inheritable(sink, True)
            os.execv(sys.executable, [sys.executable, "-P", __file__, str(sink), *options, *names])
        finally:
            os._exit(1)

    def _run(self, items: list[pytest.Item], sink: int, whole: bool = False) -> None:
        """Run tests, all if it is to be the `whole`, and end this process."""
        status = 1
        try:
            for item, following in zip(items, [*items[1:], None]):
                os.write(sink, f"{time.monotonic()} {item.nodeid}\n".encode())
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed and not whole:
                    return
            os.write(sink, f"{time.monotonic()} \n".encode())
            status = 0
        finally:
            os._exit(status)


def _limit(tests: dict[str, float], name: str) -> float:
    return _ONE + _TIMES * (tests.get(name) or tests.get(name.partition("[")[0]) or 0.0) if name else _COLLECTED


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
    sys.exit(pytest.main(sys.argv[2:], [Forking(int(sys.argv[1]))]))
