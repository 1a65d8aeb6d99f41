"""The plain road: SENDs and ACKs without special headers are done in C, while the parser reads them.

The extension `_plain_c` (src/plain/) sees each complete frame before it is made. It takes a SEND that `_send` of
commands.py would put into a queue or topic at once, or add to a transaction, and the ACK of one delivery; it leaves all
other frames to Python, in order. In the same way, `deliver_ready` delivers READY messages, and `join` writes what a
topic has gathered. It may only skip work: the handlers say what happens, and all tests pass without it.
docs/decisions/0011-plain-road.md lists what it takes.

The environment variable STOMPCODEC_PLAIN=0 switches it off. It needs the C backend of the codec.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from stompcodec.broker.memory import MESSAGE, OPERATION, Account
from stompcodec.broker.message import WITHOUT, Message, shared
from stompcodec.broker.queues import quick
from stompcodec.broker.queues.backlog import Fifo
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.dispatcher import Dispatcher
from stompcodec.broker.queues.paging import NO_LINE, Bound, Paging, ReadyMessages, Span, Window
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.sessions.outbox import Outbox
from stompcodec.broker.sessions.send import check_space
from stompcodec.broker.sessions.session import EACH, Footprint, Session
from stompcodec.broker.sessions.subscribe import PendingCommit, hold_receipts_of, send_receipt
from stompcodec.broker.sessions.transaction import QueueOrTopic, Sending, Target, Transaction
from stompcodec.broker.storage import folder
from stompcodec.broker.storage.journal import Batch, Intake
from stompcodec.codec import BACKEND, Frame

Handler = Callable[[Session, Frame], None]
#: Versions whose frames the road reads as Python does: in others, values are trimmed or names folded.
_VERSIONS = ("1.1", "1.2")
#: The classes whose fields it reads and writes.
_CLASSES = (
    *(Session, Queue, Topic, Consumer, Dispatcher, Outbox, Account, Bound, Message, PendingCommit),
    *(ReadyMessages, Fifo, Window),
    *(Footprint, Transaction, Target, Sending, Batch, Intake, Paging, Span),
)


def _load(setting: str) -> ModuleType | None:
    if setting not in ("", "0", "1"):
        raise ImportError(f"STOMPCODEC_PLAIN is {setting!r}: set it to 1 or 0, or not at all")
    if setting == "0" or BACKEND != "c":
        return None
    try:
        return import_module("stompcodec.broker._plain_c")
    except ImportError:
        if setting == "1":
            raise
        return None


#: The extension; None to do without.
EXTENSION = _load(os.environ.get("STOMPCODEC_PLAIN", ""))


def prepare(send: Handler, ack: Handler, slow_headers: tuple[str, ...]) -> None:
    """Tell the extension what it has to know of the broker: `send` handles SEND, and those with `slow_headers` are left
    to it; `ack` handles ACK.
    """
    if EXTENSION is not None:
        classes = {each.__name__: each for each in _CLASSES}
        functions = (send, ack, send_receipt, hold_receipts_of, put_persistent, _record_put, _failed, shared)
        EXTENSION.prepare(classes, slow_headers, WITHOUT, functions, NO_LINE, EACH, MESSAGE, OPERATION)
        if hasattr(EXTENSION, "are_at"):
            folder.use(EXTENSION.are_at)
        quick.use(EXTENSION.deliver_ready, EXTENSION.join, EXTENSION.Tally)


def begin(session: Session) -> None:
    """Let a session that has just connected take the plain road."""
    if EXTENSION is None or not session.plain or session.version not in _VERSIONS:
        return
    road = EXTENSION.Road(session, session.broker)
    if session.connection.offer_frames(road):
        road.begin(EACH)
        session.road = road


def put_persistent(session: Session, target: QueueOrTopic, message: Message, receipt: str | None) -> None:
    """Put a persistent message that needs no special treatment. The caller sends the receipt, which waits for the
    commit. Raise Refused if the disk is full.
    """
    journal, pending = session.broker.journal, session.pending_commit
    if journal.short:
        check_space(session, (target,))
    if pending is None or pending.batch is not journal.batch or journal.busy is not None:
        hold_receipts_of(session, receipt)
    elif target.__class__ is Queue and target.paging is not None:
        journal.open_intake(target)
    if target.put_new(message) if target.__class__ is Queue else target.put(message):
        target.block(session)


def _record_put(session: Session, queue: Queue, message: Message, receipt: str | None) -> None:
    """Do what `put_persistent` does before a queue takes the message: the extension does the rest."""
    journal, pending = session.broker.journal, session.pending_commit
    if journal.short:
        check_space(session, (queue,))
    if pending is None or pending.batch is not journal.batch or journal.busy is not None:
        hold_receipts_of(session, receipt)
    journal.append(queue, message)
    queue.newest = message.seq


def _failed(session: Session, error: Exception, command: str, receipt: str | None) -> None:
    """End a session as after an error in the handler of a frame with that receipt."""
    session.answer_error(error, Frame(command, {} if receipt is None else {"receipt": receipt}))
