"""Middleware for tests: it notes what it sees, in order, and does what a test tells it."""

import asyncio
import contextlib

from stompcodec.client.middleware import PLACES, AsyncMiddleware, Middleware


def _place(name):
    return lambda self, event: self._around(name, event)


class Notes(Middleware):
    """Notes each place that is entered and left, as `name>place` and `name<place`. `before_PLACE` and `after_PLACE` are
    functions of the event that are called there."""

    def __init__(self, name="a", notes=None, **actions):
        self.name, self.actions = name, actions
        self.notes, self.events = [] if notes is None else notes, []

    @contextlib.contextmanager
    def _around(self, place, event):
        self.notes.append(f"{self.name}>{place}")
        self.events.append((place, event))
        self.actions.get(f"before_{place}", lambda event: None)(event)
        try:
            yield
        except BaseException as error:
            self.notes.append(f"{self.name}!{place} {type(error).__name__}")
            raise
        self.actions.get(f"after_{place}", lambda event: None)(event)
        self.notes.append(f"{self.name}<{place}")

    connect, send, send_many, receive, process, settle = (_place(name) for name in PLACES)

    def of(self, place):
        return [event for name, event in list(self.events) if name == place]

    @property
    def steps(self):
        """The notes but those of connecting, which is left in a thread of its own, at any time."""
        return [note for note in list(self.notes) if "connect" not in note]


class AsyncNotes(AsyncMiddleware):
    def __init__(self, name="a", notes=None, **actions):
        self.inner = Notes(name, notes, **actions)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    @contextlib.asynccontextmanager
    async def _around(self, place, event):
        await asyncio.sleep(0)
        with self.inner._around(place, event):
            yield
        await asyncio.sleep(0)

    connect, send, send_many, receive, process, settle = (_place(name) for name in PLACES)


def layer_for(shell, *args, **actions):
    return (Notes if shell.name == "sync" else AsyncNotes)(*args, **actions)
