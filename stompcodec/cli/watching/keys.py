"""Single keys of a terminal: read without waiting for Enter, with a way to interrupt the wait."""

from __future__ import annotations

import codecs
import os
import re
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

try:
    import termios
except ImportError:  # Windows: there are no keys, and Ctrl-C ends
    termios = None  # type: ignore[assignment]

#: Escape sequences of keys, without the ESC.
_SEQUENCES = {
    **{"[A": "up", "[B": "down", "[C": "right", "[D": "left", "[H": "home", "[F": "end", "[Z": "back-tab"},
    **{"OA": "up", "OB": "down", "OC": "right", "OD": "left", "OH": "home", "OF": "end"},
    **{"[5~": "page-up", "[6~": "page-down", "[1~": "home", "[7~": "home", "[4~": "end", "[8~": "end"},
}
_SINGLE = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "rubout", "\x08": "rubout", "\x1b": "escape"}
_KEY = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.)|(.)", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(\[[0-9;?]*[ -/]*|O)?\Z")
#: Seconds in which the rest of an escape sequence follows.
_REST = 0.05
_LONGEST = 64
SUSPEND = "\x1a"


def keys_of(text: str) -> tuple[list[str], str]:
    """Return the keys of what a terminal sent, and what may be the beginning of a further one.

    >>> keys_of("q\\x1b[A\\x1b[99~/ä\\x1b[")
    (['q', 'up', '/', 'ä'], '\\x1b[')
    """
    rest = ""
    unfinished = _UNFINISHED.search(text)
    if unfinished is not None and len(unfinished[0]) < _LONGEST:
        text, rest = text[: unfinished.start()], unfinished[0]
    found = []
    for match in _KEY.finditer(text):
        sequence, letter = match.groups()
        key = (
            _SEQUENCES.get(sequence, "") if sequence else "escape" if letter == "\x1b" else _SINGLE.get(letter, letter)
        )
        found += [key] if key else []
    return found, rest


class Terminal:
    """The keys of standard input, if that is a terminal. Other threads, and signals, end a wait by `wake`."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._near, selectors.EVENT_READ)
        self._fd = sys.stdin.fileno() if termios is not None and sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._resize: Any = None
        if self._fd is not None:
            self._selector.register(self._fd, selectors.EVENT_READ)

    @property
    def has_keys(self) -> bool:
        """True if there are keys to be read."""
        return self._fd is not None

    def __enter__(self) -> Terminal:
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGWINCH"):
            self._resize = signal.signal(signal.SIGWINCH, lambda _number, _frame: self.wake())
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()
        if self._resize is not None:
            signal.signal(signal.SIGWINCH, self._resize)
        self._selector.close()
        self._near.close()
        self._far.close()

    def take(self) -> None:
        """Have the terminal send each key at once, and show none."""
        if self._fd is None:
            return
        self._before = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6] = [*mode[6]]
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        mode[6][termios.VSUSP] = b"\0"  # Ctrl-Z comes as a key, for the screen has to be left first
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)

    def give_back(self) -> None:
        """Restore the terminal."""
        if self._fd is not None and self._before is not None:
            before, self._before = self._before, None
            with suppress(termios.error):  # it was closed
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def wake(self) -> None:
        """End the wait, from any thread or a signal handler."""
        with suppress(OSError):  # full, so the wait ends anyway; or over
            self._far.send(b"x")

    def wait(self, timeout: float | None = None) -> list[str]:
        """Return the keys that were pressed, after a key, `wake`, or the time-out."""
        found: list[str] = []
        ready = self._selector.select(_REST if self._rest else timeout)
        for key, _ in ready:
            if key.fileobj is self._near:
                self._near.recv(4096)
            else:
                found += self._read()
        if not ready and self._rest:  # nothing followed
            found, self._rest = keys_of(self._rest + "\0")[0][:1], ""
        return found

    def _read(self) -> list[str]:
        assert self._fd is not None
        try:
            data = os.read(self._fd, 1024)
        except OSError:
            data = b""
        if not data:  # the terminal was closed
            self._selector.unregister(self._fd)
            return []
        found, self._rest = keys_of(self._rest + self._decoder.decode(data))
        return found
