"""Parts of the demonstration: broker and driver, which are processes, and the feed, a thread."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import stompcodec.client as stomp
from stompcodec.spark.demo.feed import TD, TRUST, FeedMessage, Ledger, feed

#: Seconds to wait for progress.
PATIENCE = 300.0
#: Most messages in flight without a receipt.
_WINDOW = 200
#: Most lines and columns of a log that are shown after a failure.
_LAST_LINES, _WIDTH = 6, 300
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b.*")


class DemoError(Exception):
    """Error for a failed part of the demonstration; its text is for users."""


def _said(log: Path) -> str:
    """Return the lines of a log that name errors, or else its last lines."""
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        named = [line for line in lines if _ERROR.match(line)]
        return "".join(f"\n    {line[:_WIDTH]}" for line in dict.fromkeys((named or lines)[-_LAST_LINES:]))
    return ""


class Broker:
    """`stompcodec broker` with a store on disk, running during a `with` block."""

    def __init__(self, folder: Path) -> None:
        self._ready = folder / "broker.json"
        self._log = folder / "broker.log"
        arguments = ["--port", "0", "--data", str(folder / "broker"), "--ready-file", str(self._ready)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stompcodec.cli", "broker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.url = ""

    def __enter__(self) -> Broker:
        until = time.monotonic() + PATIENCE
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                raise DemoError(f"the broker did not start; its log {self._log} says:{_said(self._log)}")
            time.sleep(0.02)
        self.url = f"stomp://127.0.0.1:{json.loads(self._ready.read_text())['port']}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def left(self) -> int:
        """Return the number of messages left in the broker; they are consumed."""
        count = 0
        with stomp.connect(self.url) as client:
            for destination in (TD, TRUST):
                with client.subscribe(destination, ack="client-individual", prefetch=1000) as subscription:
                    while (message := subscription.get(timeout=0.3)) is not None:
                        message.ack()
                        count += 1
        return count


class Producer:
    """Sender of the feed, at a rate per second, with an account of the messages that the broker confirmed.

    After `hold_at` messages it waits for `go_on`; with None it sends all.
    """

    def __init__(self, url: str, frames: int, seed: int, rate: float, hold_at: int | None = None) -> None:
        self._url = url
        self.frames = frames
        self._seed, self._rate, self._hold_at = seed, rate, hold_at
        self._may_go_on = threading.Event()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self.ledger = Ledger()

    def start(self) -> None:
        self._thread.start()

    def go_on(self) -> None:
        """Send the rest."""
        self._may_go_on.set()

    def check(self) -> None:
        """Raise a DemoError if the feed has failed."""
        if self._error is not None:
            raise DemoError(f"the feed broke off: {self._error}")

    @property
    def done(self) -> bool:
        """True once everything is sent and confirmed. Raises like `check`."""
        self.check()
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop sending."""
        self._stop.set()
        self._may_go_on.set()
        self._thread.join(10)

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as error:
            self._error = error

    def _send_all(self) -> None:
        waiting: deque[tuple[FeedMessage, stomp.Receipt]] = deque()

        def settle(most: int) -> None:
            while len(waiting) > most:
                message, receipt = waiting.popleft()
                receipt.wait()
                self.ledger.add(message)

        with stomp.connect(self._url) as client:
            due = time.monotonic()
            messages = feed(self.frames, clock=lambda: time.time_ns() // 1_000_000, seed=self._seed)
            for number, message in enumerate(messages):
                if number == self._hold_at and not self._may_go_on.is_set():
                    settle(0)
                    self._may_go_on.wait()
                    due = time.monotonic()
                receipt = client.send_for_receipt(message.destination, message.body, message.headers)
                waiting.append((message, receipt))
                settle(_WINDOW)
                due += 1 / self._rate
                ahead = due - time.monotonic()
                if ahead > 0.02 and self._stop.wait(ahead):
                    return
            settle(0)


class Driver:
    """The Spark program `stompcodec.spark.demo.driver`, controlled by lines of JSON and reporting by them."""

    #: Module to run.
    module = "stompcodec.spark.demo.driver"

    def __init__(self, order: dict[str, Any], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        self._news = threading.Condition()
        self._told: dict[str, dict[str, Any]] = {}
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="driver", daemon=True)
        self._reader.start()
        self.tell(order)

    def _read(self) -> None:
        for line in cast(IO[bytes], self._process.stdout):
            if not line.startswith(b'{"stage"'):
                continue  # the JVM shares standard output
            told = json.loads(line)
            with self._news:
                self._told[told["stage"]] = told
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def tell(self, order: dict[str, Any]) -> None:
        """Send one line."""
        pipe = cast(IO[bytes], self._process.stdin)
        with contextlib.suppress(BrokenPipeError):  # `wait` reports why it ended
            pipe.write(json.dumps(order).encode() + b"\n")
            pipe.flush()

    def heard(self, stage: str) -> dict[str, Any]:
        """Return its last report about a stage; empty if there is none."""
        with self._news:
            return self._told.get(stage, {})

    def wait(
        self,
        stage: str,
        enough: Callable[[dict[str, Any]], bool] = bool,
        turn: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """Wait until the last report about a stage is `enough`; `turn` is called several times per second.

        Raises a DemoError if it ended, or reported nothing for too long.
        """
        until, before = time.monotonic() + PATIENCE, ""
        while True:
            turn()
            with self._news:
                told = self._told.get(stage, {})
                if enough(told):
                    return told
                if str(self._told) != before:
                    until, before = time.monotonic() + PATIENCE, str(self._told)
                if self._ended or time.monotonic() > until:
                    what = "ended" if self._ended else f"said nothing for {PATIENCE:.0f} s"
                    raise DemoError(f"the driver {what}; its log {self._log} says:{_said(self._log)}")
                self._news.wait(0.1)

    def kill(self) -> None:
        """Send kill -9 to the driver and its JVM, so that neither can clean up."""
        pids = [self.heard("session").get(name) for name in ("jvm", "driver")]
        for pid in pids:
            if pid and self._process.poll() is None:
                with contextlib.suppress(OSError):
                    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        self._process.kill()
        self._finish()

    def end(self) -> None:
        """Wait until it has ended by itself; raise a DemoError if it failed, or does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process.wait(PATIENCE) == 0:
                return
        raise DemoError(f"the driver failed; its log {self._log} says:{_said(self._log)}")

    def close(self) -> None:
        """End it if it is still running."""
        with contextlib.suppress(OSError):
            cast(IO[bytes], self._process.stdin).close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait()
        with contextlib.suppress(OSError):
            cast(IO[bytes], self._process.stdin).close()
        self._reader.join(10)
        if not self._reader.is_alive():
            cast(IO[bytes], self._process.stdout).close()
