"""Starts client programs and brokers, and speaks to them. No stompcodec in here: what is tested runs in processes."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Literal, NamedTuple

Over = Literal["", "ws", "sockjs"]  # "" is TCP.
_ANSWER_SECONDS = 60.0  # Longer than any client's own time-out.
_READS, _PAUSE = 0.1, 0.005  # Seconds that a program may wait for a message, and between two questions for messages.
_UNCONFIRMED = 0.5  # In which a SUBSCRIBE without RECEIPT has been read.


class Failed(AssertionError):
    """The client and the broker did not do together what they should."""


class NotThere(Exception):
    """This client, or this broker, has no such thing."""


class Target(NamedTuple):
    """A broker that runs, and what is known about it."""

    name: str
    host: str
    port: int
    url: str = ""
    """Of its WebSocket; "" if it has none."""
    sockjs: str = ""
    login: str = "guest"
    passcode: str = "guest"
    vhost: str = "/"
    refuses: tuple[str, int, str] | None = None  # Host, port and WebSocket of a listener that refuses wrong passcodes.
    nack: str = "again"
    """What becomes of a message after NACK: it is delivered "again", "dropped", or moved to this destination."""
    headers: tuple[tuple[str, str], ...] = ()  # For SUBSCRIBE, so that several messages without ACK are delivered.
    lacks: tuple[tuple[str, str, str], ...] = ()
    """(version or name of a row, or *, check, why): what cannot be asked of this broker."""
    marks: bool = True  # It marks each message that comes again as redelivered.
    confirms: bool = True  # It answers SUBSCRIBE by a RECEIPT.
    keeps_order: bool = True


class Message(NamedTuple):
    """A MESSAGE as the client handed it out."""

    handle: str
    headers: dict[str, str]
    body: bytes


class Program:
    def __init__(self, command: list[str], environment: dict[str, str], version: str, over: Over) -> None:
        self._command, self._environment = command, environment
        self.version, self.over = version, over
        self._process: Any = None
        self.links: list[Link] = []

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="stompcodec-interop-")
        self._log = open(Path(self._folder, "stderr"), "w+b")  # noqa: SIM115 - closed with the process
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        environment = {**os.environ, **self._environment, "TMPDIR": self._folder}
        self._process = subprocess.Popen(self._command, env=environment, start_new_session=True, **pipes)

    def kill(self) -> None:
        """End it and all its children at once: its connections break without a DISCONNECT."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._log.close()
        self._process = None
        self.links.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer; start the program, unless it runs."""
        if self._process is None:
            self._start()
        if "body" in order:
            order["body"] = b64encode(order["body"]).decode()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
            self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready = selector.select(_ANSWER_SECONDS)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._log.seek(0)
            words = self._log.read().decode("utf-8", "replace").strip()[-600:] or "it said nothing"
            why = "the program has ended" if ready else f"no answer in {_ANSWER_SECONDS:g} s"
            raise Failed(f"{do}: {why}: {words}")
        answer = json.loads(line)
        if "na" in answer:
            raise NotThere(answer["na"])
        if "error" in answer:
            raise Failed(f"{do}: {answer['error']}")
        ok: dict[str, Any] = answer["ok"]
        return ok

    def open(self, target: Target, *, passcode: str | None = None, heart_beat: tuple[int, int] = (0, 0)) -> Link:
        """A connection to the target; with a passcode, to the listener that looks at it."""
        host, port, url = target.host, target.port, target.url
        if passcode is not None:
            assert target.refuses is not None
            host, port, url = target.refuses
        if self.over == "sockjs":  # beside the WebSocket, also for passcodes
            url = target.sockjs
        name = uuid.uuid4().hex[:8]
        secret = target.passcode if passcode is None else passcode
        who = {"login": target.login, "passcode": secret, "vhost": target.vhost, "version": self.version}
        where = {"host": host, "port": port, "url": url if self.over else "", "heart_beat": list(heart_beat)}
        connected = self.ask("open", link=name, **where, **who)
        self.links.append(Link(self, name, target, connected))
        return self.links[-1]


class Link:
    def __init__(self, program: Program, name: str, target: Target, connected: dict[str, str]) -> None:
        self.program, self.target, self.connected = program, target, connected
        self._name = name

    def _ask(self, do: str, **order: Any) -> dict[str, Any]:
        return self.program.ask(do, link=self._name, **order)

    def send(self, destination: str, body: bytes, headers: dict[str, str] | None = None, **options: Any) -> None:
        """With `text`, a `transaction` or a `receipt`."""
        how = {"text": False, "transaction": None, "receipt": False, **options}
        self._ask("send", destination=destination, body=body, headers=headers or {}, **how)

    def subscribe(self, destination: str, ack: str = "auto", id: str | None = None) -> Subscription:
        name = id or f"s{uuid.uuid4().hex[:8]}"
        headers = {} if ack == "auto" else dict(self.target.headers)
        unconfirmed = {} if self.target.confirms else {"confirm": False}  # our client alone knows this word
        self._ask("subscribe", id=name, destination=destination, ack=ack, headers=headers, **unconfirmed)
        if unconfirmed:
            time.sleep(_UNCONFIRMED)
        return Subscription(self, name, destination)

    def receive(self, id: str, count: int, seconds: float) -> list[Message]:
        """Return so many messages; fewer after the seconds."""
        end, found = time.monotonic() + seconds, []
        while len(found) < count:
            found += self._ask("receive", id=id, count=count - len(found), seconds=_READS)["messages"]
            if time.monotonic() > end:
                break
            time.sleep(_PAUSE if len(found) < count else 0.0)
        return [Message(entry["handle"], entry["headers"], b64decode(entry["body"])) for entry in found]

    def ack(self, message: Message, transaction: str | None = None) -> None:
        self._ask("ack", handle=message.handle, transaction=transaction)

    def nack(self, message: Message) -> None:
        self._ask("nack", handle=message.handle, transaction=None)

    def unsubscribe(self, id: str, destination: str) -> None:
        self._ask("unsubscribe", id=id, destination=destination)

    def begin(self) -> str:
        transaction = f"t{uuid.uuid4().hex[:8]}"
        self._ask("begin", transaction=transaction)
        return transaction

    def commit(self, transaction: str) -> None:
        self._ask("commit", transaction=transaction)

    def abort(self, transaction: str) -> None:
        self._ask("abort", transaction=transaction)

    def alive(self) -> bool:
        return bool(self._ask("alive")["alive"])

    def close(self) -> None:
        self.program.links.remove(self)
        self._ask("close")

    def settle(self) -> None:
        """Come back when the broker has dealt with all that was sent on this link: a message has gone round."""
        destination = f"/queue/interop-round-{uuid.uuid4().hex[:8]}"
        subscription = self.subscribe(destination)
        self.send(destination, b"round")
        subscription.take(1)
        subscription.cancel()


class Subscription:
    def __init__(self, link: Link, id: str, destination: str) -> None:
        self._link = link
        self.id, self.destination = id, destination

    def take(self, count: int, seconds: float = 15.0) -> list[Message]:
        """The next messages, exactly so many."""
        found = self._link.receive(self.id, count, seconds)
        if len(found) != count:
            raise Failed(f"{len(found)} of {count} messages came in {seconds:g} s from {self.destination}")
        return found

    def bodies(self, count: int, seconds: float = 15.0) -> list[bytes]:
        return [message.body for message in self.take(count, seconds)]

    def cancel(self) -> None:
        self._link.unsubscribe(self.id, self.destination)
