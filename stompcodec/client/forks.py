"""Forks: a client belongs to the process that opened it, and its copy in a child process refuses all calls."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from stompcodec.errors import LocalProtocolError


class Forkable(Protocol):
    """An object that is told when it is a copy in a child process."""

    def forked(self) -> None:
        """Note that this is the child process. It must not take a lock. To be told of the next fork, watch again."""


class _Process:
    """A mark of this process, which differs in each child."""

    def __init__(self) -> None:
        self.mark = object()
        self.watched: weakref.WeakSet[Forkable] = weakref.WeakSet()

    def forked(self) -> None:
        """Give the child process its own mark. Its only thread is the one that forked."""
        self.mark = object()
        watched, self.watched = list(self.watched), weakref.WeakSet()
        for each in watched:
            each.forked()


#: `process.mark` stays the same object within a process.
process = _Process()
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
