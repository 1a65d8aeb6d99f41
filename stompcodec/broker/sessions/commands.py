"""Handlers of client frames. `HANDLERS` maps commands to functions of the session and the frame.

The connection has already checked the order of frames and the required headers. Handlers raise Refused for the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from stompcodec import __version__
from stompcodec.broker import hot
from stompcodec.broker.auth import User, far_network_of
from stompcodec.broker.config import Config
from stompcodec.broker.message import (
    DELAYS,
    GROUPS,
    LIFE_HEADERS,
    SEQ,
    WITHOUT,
    LargeBody,
    is_text,
    message_of,
    schedule,
    tail_with_reply,
    text_tail,
)
from stompcodec.broker.routing.idempotency import KEY_HEADERS, Mark, body_crc, key_of
from stompcodec.broker.sessions import plain
from stompcodec.broker.sessions.commit import abort, ack, begin, commit, defer, nack
from stompcodec.broker.sessions.host import Handlers, Host, terms
from stompcodec.broker.sessions.receipts import confirm, hold_receipts
from stompcodec.broker.sessions.send import cached_target, check_space, is_stored, parts_of, put, put_keyed, targets_of
from stompcodec.broker.sessions.session import EACH, Refusal, Session
from stompcodec.broker.sessions.subscribe import ping, receive, reply_address, subscribe, unsubscribe
from stompcodec.broker.sessions.transaction import Sending
from stompcodec.broker.storage.large import is_streamed
from stompcodec.broker.values import Refused, read_values
from stompcodec.codec import Frame, Parser, serialize_tail
from stompcodec.connection import protocol_value
from stompcodec.errors import FrameError
from stompcodec.frame import frame_repr
from stompcodec.spec import Limits
from stompcodec.states import parse_heart_beat

_LOG = logging.getLogger("stompcodec.broker.frames")
#: Bytes from which the body of a written frame is read in pieces.
_APART = 4096
#: Large enough that the reader accepts every frame that the broker writes.
_LIMITS = Limits(max_header_line=2**20, max_headers=4000, max_body=2**62)


def logged(handlers: Handlers) -> Handlers:
    """Return handlers that log each frame first."""
    return {command: partial(_logged, handler) for command, handler in handlers.items()}


def _logged(handler: Callable[[Session, Frame], None], session: Session, frame: Frame) -> None:
    """Log a frame, then handle it."""
    if isinstance(session, LoggedSession):
        session.note("<", frame)
    handler(session, frame)


class LoggedSession(Session):
    """A session whose frames are logged."""

    __slots__ = ("_reader",)

    def __init__(self, broker: Host, id: str, now: float, **options: Any) -> None:
        super().__init__(broker, id, now, **options)
        self._reader: Any = self._new_reader(None)

    def _new_reader(self, version: str | None) -> Any:
        return Parser(version, limits=_LIMITS, stream_over=_APART, commands=self.broker.config.commands)

    def take_output(self) -> list[bytes]:
        """Return the chunks to write, after logging their frames."""
        chunks = super().take_output()
        if self._reader is not None:
            for chunk in chunks:
                self._read(chunk)
        return chunks

    def _read(self, chunk: bytes) -> None:
        try:
            for frame in self._reader.feed(chunk):
                if isinstance(frame, Frame):
                    self.note(">", frame)
                    if frame.command == "CONNECTED":
                        self._reader = self._new_reader(self.version)
        except FrameError as error:  # a fault of the log must not end the session
            _LOG.warning("%s %s: the log can read no more of what goes out: %s", self.id, self.peer, error.kind)
            self._reader = None

    def note(self, direction: str, frame: Frame) -> None:
        body: bytes | None = frame.body if self.broker.config.log_frames == "all" else b""
        _LOG.info("%s %s %s %s", self.id, self.peer, direction, frame_repr(frame.command, frame.headers.pairs(), body))


#: Headers of a SEND that is not plain. Each feature names its own.
_SPECIAL_HEADERS = (*LIFE_HEADERS, *GROUPS, SEQ, *DELAYS, *KEY_HEADERS)
#: The values of `persistent` in a plain SEND.
_WORDS = {None: None, "true": True, "false": False}


def _connect(session: Session, frame: Frame) -> None:
    broker, config = session.broker, session.broker.config
    host, hosts = frame.get("host"), config.virtual_hosts
    if hosts is None:
        vhost = "/"
    elif host is None:
        vhost = hosts[0]
    elif host in hosts:
        vhost = host
    else:
        raise Refused("unknown virtual host", "The host header names a virtual host that this broker does not have.")
    user = _user(session, frame, vhost)
    if user is None:
        broker.connections.refuse_login(frame.get("login") or frame.get("username"), session.peer, broker.now)
        raise Refused("login refused", "login or passcode is wrong, or the virtual host is not open to this user.")
    session.user = user
    session.owner = broker.auth.owner(user)
    broker.connections.join(session, broker.now)
    session.virtual_host = broker.virtual_host(vhost)
    session.version = session.connection.version or ""
    session.exact = session.version != "1.0"
    session.plain = session.exact and broker.plain
    session.virtual_host.join(session, session.header(frame, "client-id"))
    manner = "" if config.dialect == "stompcodec" else f" as {config.dialect}"
    headers = [("session", session.id), ("server", f"stompcodec/{__version__}{manner}")]
    if config.commands:
        headers.append(("commands", ",".join(config.commands)))
    beat = protocol_value(frame, "heart-beat")
    agreed = session.ttl = terms(config, session.version, beat)
    if agreed is None:
        session.connection.accept(headers, heart_beat=_answer(config, session.version, beat))
    else:
        session.connection.accept(headers, heart_beat=agreed.heart_beat, silence=agreed.silence)
    broker.connected(session)
    hot.begin(session, EACH)


def _answer(config: Config, version: str, heart_beat: str | None) -> tuple[int, int] | None:
    """Return the heart-beat header of CONNECTED, in ms, or None to send `sessions.heart_beat`.

    Mirrored intervals are at least those of `sessions.heart_beat`, except that 0 on either side stays 0. Raise Refused
    if an interval is longer than brokers of this dialect accept.
    """
    if config.mirrors is None or version not in ("1.1", "1.2"):
        return None
    unit, most = config.mirrors
    sends, wants = (0, 0) if heart_beat is None else parse_heart_beat(heart_beat)
    if most and max(sends, wants) > most:
        raise Refused("bad heart-beat", f"An interval has at most {most} milliseconds.")
    can_send, wishes = config.heart_beat
    return _met(wants, can_send, unit), _met(sends, wishes, unit)


def _met(asked: int, least: int, unit: int) -> int:
    return max(asked // unit * unit, least) if asked and least else 0


_RAW = {10: r"\n", 13: r"\r"}


def _user(session: Session, frame: Frame, vhost: str) -> User | None:
    """Return the user of a CONNECT, or None if login or passcode is wrong.

    They are compared as they are written. A client of 1.0, or of the older dialect, may write a blank behind each
    colon, as the examples of their specifications do; then they are compared without it as well. A client may not
    escape the command STOMP, as stomp.py; then both are compared as it wrote them. A colon in a passcode stays one.
    """
    auth, now, address = session.broker.auth, session.broker.now, far_network_of(session.peer)
    written = frame.get("username" if session.connection.version == "legacy" else "login"), frame.get("passcode")
    user = auth.login(*written, vhost, now, address)
    if user is not None:
        return user
    login, passcode = written
    if frame.get("accept-version") is None:
        login, passcode = login and login.removeprefix(" "), passcode and passcode.removeprefix(" ")
    elif frame.command == "STOMP":
        login, passcode = login and login.translate({**_RAW, 58: r"\c"}), passcode and passcode.translate(_RAW)
    return None if (login, passcode) == written else auth.login(login, passcode, vhost, now, address)


def _send(session: Session, frame: Frame) -> None:
    """Handle SEND. Those without special headers take the road of plain.py; `_send_any` handles all others."""
    get = frame.get
    destination, broker = get("destination", ""), session.broker
    queue = session.cached_targets.get(destination)
    if queue is None:
        queue = cached_target(session, frame, destination)
    said, transaction, reply_to = get("persistent"), get("transaction"), get("reply-to")
    if (
        queue is None
        or not (session.plain or (transaction is not None and session.exact and broker.plain))
        or broker.journal.short
        or said not in _WORDS
        or frame.has_any(*_SPECIAL_HEADERS)
        or frame.body is None  # it is still arriving
    ):
        _send_any(session, frame)
        return
    persistent = broker.stores_some and is_stored(session, _WORDS[said], queue)
    address = None if reply_to is None else reply_address(session, reply_to)
    tail = serialize_tail(frame, "1.2", without=WITHOUT) if address is None else tail_with_reply(frame, address)
    if transaction is None:
        plain.send(session, queue, destination, tail, persistent, get("receipt"))
    else:
        plain.defer(session, transaction, queue, destination, tail, persistent, get("receipt"))


def _send_any(session: Session, frame: Frame, body: LargeBody | None = None) -> None:
    """Handle any SEND. A large one comes twice: first without its body, then with the file that holds it."""
    transaction, reply_to = session.header(frame, "transaction"), frame.get("reply-to")
    broker, values = session.broker, read_values(session, frame)
    if broker.manage is not None:
        destination = session.header(frame, "destination") or ""
        if destination.startswith(broker.config.management_prefix):
            broker.manage(session, frame, destination)
            return
    marks = _marks(session, frame, body) if broker.sent.window else None
    if marks and transaction is None and None not in map(broker.sent.find, marks):
        for known in marks:
            broker.sent.is_known(session, known, frame)
        confirm(session, frame)
        return
    targets = targets_of(session, frame)
    said = values.get("persistent")
    if broker.journal.short and (is_streamed(frame) or any(is_stored(session, said, each.queue) for each in targets)):
        check_space(session, [target.queue if transaction is None else None for target in targets])
    if is_streamed(frame):
        session.take_large(frame, partial(_send_any, session))
        return
    session.received += 1
    reply_to = None if reply_to is None else reply_address(session, reply_to)
    for number, target in enumerate(targets):
        mark = marks[number] if marks is not None else None
        if mark is not None and transaction is None and broker.sent.is_known(session, mark, frame):
            continue
        persistent = is_stored(session, said, target.queue)
        message = message_of(frame, target.destination, persistent, broker.wall, reply_to, values)
        if body is not None:
            message.with_body(body)
        elif broker.config.jms and is_text(frame):
            message.tail = text_tail(message.tail)
            message.size = len(message.tail)
        message = schedule(message, frame, values, broker.wall, broker.config.dialect)
        if message.due is not None:
            broker.delayed.check_room(1)
        if transaction is not None:
            defer(session, transaction, Sending(target, message, mark))
            continue
        if target.queue is not None:
            if persistent or (target.retain is not None and broker.stores_some):  # it replaces a stored one
                hold_receipts(session, frame)
            (put if mark is None else put_keyed)(session, target.queue, message)
        if mark is not None:
            if persistent:
                hold_receipts(session, frame)
            broker.sent.enter(mark, broker.now, stored=persistent, batch=session.behind)
    _confirm(session, frame, transaction)


def _confirm(session: Session, frame: Frame, transaction: str | None) -> None:
    """Send the receipt of a SEND, or keep it until COMMIT."""
    receipt = session.header(frame, "receipt")
    if receipt is None or transaction is None or not session.broker.config.receipts_at_commit:
        confirm(session, frame)
    else:
        plain.hold(session, session.transactions[transaction].keep_receipt(receipt))


def _marks(session: Session, frame: Frame, body: LargeBody | None) -> list[Mark] | None:
    """Return the idempotency mark for each destination of a SEND; None if it has no key, or no body yet."""
    key = key_of(session, frame)
    if key is None or (body is None and is_streamed(frame)):
        return None
    crc, routing = body_crc(frame, body), session.header(frame, "destination-type")
    parts = parts_of(session.header(frame, "destination") or "", session.broker.config.composite)
    return [session.broker.sent.mark(session, part, routing, key, crc) for part in parts]


def _disconnect(session: Session, frame: Frame) -> None:
    confirm(session, frame)
    session.refusal = Refusal(counts=False)  # what it has not handled goes back uncounted
    session.close()


#: The handler of each command.
HANDLERS: dict[str, Callable[[Session, Frame], None]] = {
    "CONNECT": _connect,
    "STOMP": _connect,
    "SEND": _send,
    "ACK": ack,
    "NACK": nack,
    "SUBSCRIBE": subscribe,
    "UNSUBSCRIBE": unsubscribe,
    "BEGIN": begin,
    "COMMIT": commit,
    "ABORT": abort,
    "DISCONNECT": _disconnect,
    "PING": ping,
    "RECEIVE": receive,
}

hot.prepare(_send, ack, ("reply-to", *_SPECIAL_HEADERS), WITHOUT)
