"""stomp.py (package stomp-py), over TCP or WebSocket."""

from __future__ import annotations

import threading
import uuid
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import stomp
from adapter import Inbox, serve

_CONNECTIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


class Link(stomp.ConnectionListener):
    """One connection, and what came in by it."""

    def __init__(self, version: str, connection: Any) -> None:
        self.version, self.connection = version, connection
        self.inbox = Inbox()
        self.connected: dict[str, str] = {}
        self.receipts: dict[str, threading.Event] = {}
        self.refused = ""
        self.gone = threading.Event()
        connection.set_listener("link", self)

    def on_connected(self, frame: Any) -> None:
        self.connected = dict(frame.headers)

    def on_message(self, frame: Any) -> None:
        body = frame.body if isinstance(frame.body, bytes) else frame.body.encode()
        self.inbox.put(frame.headers["subscription"], dict(frame.headers), frame.headers, body)

    def on_receipt(self, frame: Any) -> None:
        self.receipts[frame.headers["receipt-id"]].set()

    def on_disconnected(self) -> None:
        self.gone.set()

    def on_error(self, frame: Any) -> None:
        self.refused = frame.headers.get("message", "ERROR")

    def settle(self, call: Any, **arguments: Any) -> None:
        name = uuid.uuid4().hex
        event = self.receipts[name] = threading.Event()
        call(**arguments, receipt=name)
        if not event.wait(10):
            raise TimeoutError(f"no receipt came {self.refused}")


class Program:
    def __init__(self) -> None:
        self.links: dict[str, Link] = {}

    def about(self) -> dict[str, str]:
        return {"library": version("stomp-py")}

    def open(self, link, host, port, url, login, passcode, vhost, heart_beat, version):
        options: dict[str, Any] = {"reconnect_attempts_max": 1, "auto_decode": False}
        if version != "1.0":
            options |= {"vhost": vhost, "heartbeats": tuple(heart_beat)}
        if url:
            parts = urlsplit(url)
            options |= {"ws_path": parts.path or "/", "header": ["Sec-WebSocket-Protocol: v12.stomp"]}
            # In a text message, its default, a body would have to be UTF-8.
            connection = stomp.WSConnection([(parts.hostname, parts.port)], binary_mode=True, **options)
        else:
            connection = _CONNECTIONS[version]([(host, port)], **options)
        made = self.links[link] = Link(version, connection)
        try:
            connection.connect(login, passcode, wait=True)
        except Exception as error:
            raise ConnectionError(f"{type(error).__name__} {made.refused}") from None
        return made.connected

    def send(self, link, destination, headers, body, text, transaction, receipt):
        made = self.links[link]
        if transaction:
            headers["transaction"] = transaction
        arguments = {"destination": destination, "body": body.decode() if text else body, "headers": headers}
        if receipt:
            made.settle(made.connection.send, **arguments)
        else:
            made.connection.send(**arguments)

    def subscribe(self, link: str, id: str, destination: str, ack: str, headers: dict[str, str]) -> None:
        made = self.links[link]
        made.settle(made.connection.subscribe, destination=destination, id=id, ack=ack, headers=headers)

    def receive(self, link: str, id: str, count: int, seconds: float) -> dict[str, Any]:
        return self.links[link].inbox.receive(id, count, seconds)

    def ack(self, link: str, handle: str, transaction: str | None) -> None:
        self._answer(link, "ack", handle, transaction)

    def nack(self, link: str, handle: str, transaction: str | None) -> None:
        self._answer(link, "nack", handle, transaction)

    def _answer(self, link: str, verb: str, handle: str, transaction: str | None) -> None:
        made = self.links[link]
        headers = made.inbox.message(handle)
        arguments = [headers["ack"]] if made.version == "1.2" else [headers["message-id"]]
        if made.version == "1.1":
            arguments.append(headers["subscription"])
        getattr(made.connection, verb)(*arguments, transaction=transaction)

    def unsubscribe(self, link: str, id: str, destination: str) -> None:
        self.links[link].connection.unsubscribe(id=id)

    def begin(self, link: str, transaction: str) -> None:
        self.links[link].connection.begin(transaction)

    def commit(self, link: str, transaction: str) -> None:
        self.links[link].connection.commit(transaction)

    def abort(self, link: str, transaction: str) -> None:
        self.links[link].connection.abort(transaction)

    def alive(self, link: str) -> dict[str, Any]:
        return {"alive": self.links[link].connection.is_connected()}

    def close(self, link: str) -> None:
        made = self.links.pop(link)
        if isinstance(made.connection, stomp.WSConnection) and made.connected.get("server", "").startswith("RabbitMQ"):
            made.connection.disconnect()  # RabbitMQ closes a WebSocket without the RECEIPT of DISCONNECT
            if not made.gone.wait(10):
                raise TimeoutError("the WebSocket was not closed")
        else:
            made.settle(made.connection.disconnect)


serve(Program())
