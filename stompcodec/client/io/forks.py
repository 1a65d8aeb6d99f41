"""Forks and the end of the interpreter: what refuses all calls of a client that has no I/O thread any more.

A client belongs to the process that opened it; its copy in a child process has no I/O thread. Nor has any client once
the interpreter finalizes: then daemon threads are gone, and may have left their locks held, while `__del__` methods and
unfinished generators still run. Until then, in functions of `atexit`, clients work.
"""

from __future__ import annotations

import atexit
import os
import weakref
from sys import is_finalizing as is_finalizing  # for those that ask it beside these
from typing import Protocol

from stompcodec.errors import LocalProtocolError


class Forkable(Protocol):
    """An object that is told when it is a copy in a child process, and when the interpreter begins to end."""

    def forked(self) -> None:
        """Note that this is the child process. It must not take a lock. To be told of the next fork, watch again."""

    def ending(self) -> None:
        """Note that `is_finalizing` has to be asked from now on."""


class _Process:
    """A mark of this process, which differs in each child."""

    def __init__(self) -> None:
        self.mark = object()
        self.watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
        self.is_ending = False

    def ending(self) -> None:
        """Note that the functions of `atexit` have their turns. Those that follow this one may still use clients."""
        self.is_ending = True
        for each in list(self.watched):
            each.ending()

    def forked(self) -> None:
        """Give the child process its own mark. Its only thread is the one that forked."""
        self.mark = object()
        watched, self.watched = list(self.watched), weakref.WeakSet()
        for each in watched:
            each.forked()


#: `process.mark` stays the same object within a process.
process = _Process()
atexit.register(process.ending)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.forked)


def watch(forkable: Forkable) -> None:
    """Call `forkable.forked` in child processes."""
    process.watched.add(forkable)


def refuse() -> LocalProtocolError:
    """Return the error for a call in a child process.

    >>> raise refuse()
    Traceback (most recent call last):
        ...
    stompcodec.errors.LocalProtocolError: this client was opened before a fork, and belongs to the parent process: \
open another client in the child
    """
    return LocalProtocolError(
        "this client was opened before a fork, and belongs to the parent process: open another client in the child"
    )


def ended() -> LocalProtocolError:
    """Return the error for a call while the interpreter finalizes.

    >>> raise ended()
    Traceback (most recent call last):
        ...
    stompcodec.errors.LocalProtocolError: the interpreter is shutting down, and the client's I/O thread has ended: \
close the client before the program ends, by `with` or `atexit`
    """
    return LocalProtocolError(
        "the interpreter is shutting down, and the client's I/O thread has ended: "
        "close the client before the program ends, by `with` or `atexit`"
    )
