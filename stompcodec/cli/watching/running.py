"""The runs of `stompcodec top`: once, as a stream for programs and pipes, and on the screen of a terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live

from stompcodec.cli.connecting import report_reconnect
from stompcodec.cli.inputs import complain
from stompcodec.cli.screen import printable
from stompcodec.cli.signals import stop_on_signals
from stompcodec.cli.streams import is_stuck
from stompcodec.cli.watching.asking import Asker, Snapshot, Wish
from stompcodec.cli.watching.choice import Choice
from stompcodec.cli.watching.drawing import AROUND, History, head, screen_of, table
from stompcodec.cli.watching.keys import SUSPEND, Terminal
from stompcodec.errors import StompError

if TYPE_CHECKING:
    from stompcodec.client import Client

#: The least seconds over which the broker takes a rate.
_LEAST = 1.0
#: Seconds between two attempts to ask a broker that does not answer.
_AGAIN = 0.5


class Connection:
    """The state of the connection: an `on_state` of clients."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """Why the connection was lost; None while there is one."""
        self.changed: Callable[[], None] = lambda: None
        self.report = False
        """Lost connections are reported on standard error."""

    def __call__(self, state: str, error: Exception | None) -> None:
        self.lost = None if state == "connected" else str(error) if error is not None else state
        if self.report:
            report_reconnect(state, error)
        self.changed()


class Watcher:
    """Asks in a thread of its own: each interval, and whenever the wish changes."""

    def __init__(self, client: Client, asker: Asker, wish: Wish, interval: float, changed: Callable[[], None]) -> None:
        self._client = client
        self._asker = asker
        self._interval = interval
        self._changed = changed
        self._look = threading.Event()
        self._over = False
        self.wish = wish
        self.shown: Snapshot | None = None
        self.answers = 0
        self.error: BaseException | None = None
        """What ended it."""
        self.silence: str | None = None
        """Why the last question has no answer."""
        self._thread = threading.Thread(target=self._run, name="stompcodec-top", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more, once the present question is answered."""
        self._over = True
        self._look.set()

    def look(self, wish: Wish, *, now: bool = False) -> None:
        """Ask for something else, or at once."""
        if wish != self.wish or now:
            self.wish = wish
            self._look.set()

    def _run(self) -> None:
        while not self._over:
            self._look.clear()
            began = time.monotonic()
            try:
                self.shown = self._asker.ask(self.wish)
                self.answers, self.silence = self.answers + 1, None
                rest = self._interval
            except StompError as error:
                if self.shown is None or self._client.state == "closed":
                    self.error = error
                self.silence, rest = str(error), _AGAIN
            except BaseException as error:  # the main thread raises it
                self.error = error
            self._changed()
            if self.error is not None:
                return
            self._look.wait(max(0.0, rest - (time.monotonic() - began)))


def show(console: Console, shown: Snapshot, history: History, address: str) -> None:
    """Print a snapshot, for pipes and `--once`."""
    history.add(shown)
    for line in (*head(shown, history, address, None, console.width), *table(shown, history, console.width)):
        line.rstrip()
        console.print(line, soft_wrap=True)


class Stream:
    """Writes a snapshot each interval. A lost connection leaves some out."""

    def __init__(
        self, client: Client, connection: Connection, asker: Asker, wish: Wish, write: Callable[[Snapshot], None]
    ) -> None:
        self._client = client
        self._connection = connection
        self._asker = asker
        self._wish = wish
        self._write = write
        self._look = threading.Event()
        self._stopped = False
        self._written = 0
        self._silence: str | None = None

    def run(self, interval: float, *, once: bool) -> bool:
        """Write until a signal ends it. Return whether there was a snapshot.

        Args:
            interval: seconds between two questions.
            once: write the second answer only, and end. The rates are taken between the two.

        Raises:
            StompError, CannotAskError: the broker cannot be asked.
        """
        wait = max(interval, _LEAST) if once else interval
        watcher = Watcher(self._client, self._asker, self._wish, wait, self._look.set)
        with stop_on_signals(self._stop):
            watcher.start()
            try:
                while not self._stopped and not (once and self._written):
                    self._look.wait()
                    self._look.clear()
                    if not self._stopped:
                        self._take(watcher, after=1 if once else 0)
            except OSError:
                if not is_stuck():  # by then a signal has ended it
                    raise
            finally:
                watcher.stop()
        return bool(self._written)

    def _stop(self) -> None:
        self._stopped = True
        self._look.set()

    def _take(self, watcher: Watcher, after: int) -> None:
        """Write the latest answer if it is new, and not one of the first `after`."""
        if watcher.error is not None:
            raise watcher.error
        if watcher.silence != self._silence:
            self._silence = watcher.silence
            if self._silence is not None and self._client.state == "connected":  # a lost connection was reported
                complain(f"{printable(self._silence)}; asking again")
        if watcher.shown is not None and watcher.answers > max(self._written, after):
            self._written, self._connection.report = watcher.answers, True
            self._write(watcher.shown)
            sys.stdout.flush()


class Screen:
    """The screen of a terminal, which keys change."""

    def __init__(
        self, console: Console, client: Client, asker: Asker, choice: Choice, connection: Connection, address: str
    ) -> None:
        self._console = console
        self._client = client
        self._asker = asker
        self._choice = choice
        self._connection = connection
        self._address = address
        self._history = History()
        self._stopped = False
        self._answers = 0

    def run(self, interval: float) -> bool:
        """Show it until a key or a signal ends it. Return whether there was anything to show.

        Raises:
            StompError, CannotAskError: the broker cannot be asked.
        """
        with Terminal() as terminal:
            self._choice.fit(self._console.height - AROUND)
            watcher = Watcher(self._client, self._asker, self._choice.wish(), interval, terminal.wake)
            self._connection.changed = terminal.wake

            def stop() -> None:
                self._stopped = True
                terminal.wake()

            live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stdout=False)
            with stop_on_signals(stop):
                watcher.start()
                try:
                    while watcher.shown is None and watcher.error is None and not self._stopped:
                        terminal.wait()  # before the screen is taken, for the first answer may be a refusal
                    if watcher.error is None and not self._stopped:
                        with live:
                            self._loop(watcher, terminal, live)
                except OSError:
                    if not is_stuck():  # by then a signal has ended it
                        raise
                finally:
                    watcher.stop()
                    self._connection.changed = lambda: None
        if watcher.error is not None and not self._stopped:
            raise watcher.error
        return watcher.shown is not None

    def _loop(self, watcher: Watcher, terminal: Terminal, live: Live) -> None:
        while not self._stopped and watcher.error is None:
            self._draw(watcher, live)
            for key in terminal.wait():
                if key == SUSPEND:
                    self._suspend(terminal, live)
                elif not self._choice.press(key, watcher.shown):
                    return
                watcher.look(self._choice.wish(), now=key == " " and self._choice.typed is None)

    def _draw(self, watcher: Watcher, live: Live) -> None:
        width, height = self._console.size
        self._choice.fit(height - AROUND)
        watcher.look(self._choice.wish())
        shown = watcher.shown
        if shown is not None and watcher.answers != self._answers:
            self._answers = watcher.answers
            self._history.add(shown)
        lost = self._connection.lost
        trouble = watcher.silence if lost is None else f"reconnecting: {lost}"
        lines = screen_of(shown, self._choice, self._history, self._address, trouble, width, height)
        live.update(Group(*lines), refresh=True)

    def _suspend(self, terminal: Terminal, live: Live) -> None:
        """Leave the screen, stop as Ctrl-Z does, and come back."""
        live.stop()
        terminal.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        terminal.take()
        live.start()
