"""stomp.py (package stomp-py), over TCP or WebSocket."""

import threading
import uuid
from importlib.metadata import version as version_of
from typing import Any
from urllib.parse import urlsplit

import adapter
import stomp

_CONNECTIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


class Link(adapter.Link, stomp.ConnectionListener):
    def open(self, host, port, url, login, passcode, vhost, heart_beat, version):
        self.version, self.refused, self.gone = version, "", threading.Event()
        self.connected: dict[str, str] = {}
        self.receipts: dict[str, threading.Event] = {}
        options: dict[str, Any] = {"reconnect_attempts_max": 1, "auto_decode": False}
        if version != "1.0":
            options |= {"vhost": vhost, "heartbeats": tuple(heart_beat)}
        if url:
            parts = urlsplit(url)
            options |= {"ws_path": parts.path or "/", "header": ["Sec-WebSocket-Protocol: v12.stomp"]}
            # In a text message, its default, a body would have to be UTF-8.
            self.connection = stomp.WSConnection([(parts.hostname, parts.port)], binary_mode=True, **options)
        else:
            self.connection = _CONNECTIONS[version]([(host, port)], **options)
        self.connection.set_listener("link", self)
        try:
            self.connection.connect(login, passcode, wait=True)
        except Exception as error:
            raise ConnectionError(f"{type(error).__name__} {self.refused}") from None
        return self.connected

    def on_connected(self, frame):
        self.connected = dict(frame.headers)

    def on_message(self, frame):
        body = frame.body if isinstance(frame.body, bytes) else frame.body.encode()
        self.put(frame.headers["subscription"], dict(frame.headers), frame.headers, body)

    def on_receipt(self, frame):
        self.receipts[frame.headers["receipt-id"]].set()

    def on_disconnected(self):
        self.gone.set()

    def on_error(self, frame):
        self.refused = frame.headers.get("message", "ERROR")

    def confirmed(self, call, **arguments):
        """Call, and wait for the RECEIPT."""
        name = uuid.uuid4().hex
        event = self.receipts[name] = threading.Event()
        call(**arguments, receipt=name)
        if not event.wait(10):
            raise TimeoutError(f"no receipt came {self.refused}{' (disconnected)' * self.gone.is_set()}")

    def send(self, destination, headers, body, text, transaction, receipt):
        if transaction:
            headers["transaction"] = transaction
        arguments = {"destination": destination, "body": body.decode() if text else body, "headers": headers}
        if receipt:
            self.confirmed(self.connection.send, **arguments)
        else:
            self.connection.send(**arguments)

    def subscribe(self, **arguments):
        self.confirmed(self.connection.subscribe, **arguments)

    def settle(self, verb, headers, transaction):
        arguments = [headers["ack"]] if self.version == "1.2" else [headers["message-id"]]
        if self.version == "1.1":
            arguments.append(headers["subscription"])
        getattr(self.connection, verb)(*arguments, transaction=transaction)

    def unsubscribe(self, id, destination):
        self.connection.unsubscribe(id=id)

    def begin(self, transaction):
        self.connection.begin(transaction)

    def commit(self, transaction):
        self.connection.commit(transaction)

    def abort(self, transaction):
        self.connection.abort(transaction)

    def alive(self):
        return {"alive": self.connection.is_connected()}

    def close(self):
        if isinstance(self.connection, stomp.WSConnection) and self.connected.get("server", "").startswith("RabbitMQ"):
            self.connection.disconnect()  # RabbitMQ closes a WebSocket without the RECEIPT of DISCONNECT
            if not self.gone.wait(10):
                raise TimeoutError("the WebSocket was not closed")
        else:
            self.confirmed(self.connection.disconnect)


adapter.serve(Link, version_of("stomp-py"))
