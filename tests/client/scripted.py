"""A `ClientCore` on a fake clock, with a server at the other end that does just what a test says."""

import itertools

from stompcodec import Frame, serialize
from stompcodec.client.core import ClientCore
from stompcodec.client.messages import BaseTransaction, Subscription
from stompcodec.client.options import Options
from stompcodec.connection import Connection, Role


class Scripted:
    def __init__(self, *, version="1.2", server="test/1", server_beat=(0, 0), **options):
        options.setdefault("heart_beat", (0, 0))
        ids = itertools.count(1)
        self.core = ClientCore(Options(**options), lambda: f"key{next(ids)}")
        self.version, self.server_name, self.server_beat = version, server, server_beat
        self.now, self.server = 100.0, None
        self.seen = []  # all frames of the client, over all connections: (connection, frame)
        self.connections, self._names = 0, itertools.count(1)

    # ---- the connection ----
    def open(self):
        self.connections += 1
        self.server = Connection(Role.SERVER, versions=[self.version], heart_beat=self.server_beat, now=self.now)
        self.core.link.opened(self.now, host="h", login="ann", passcode="s3cret", whole_frames=False)

    def connect(self, confirm=True):
        self.open()
        (frame,) = self.frames()
        assert frame.command == "CONNECT"
        self.server.accept({"server": self.server_name, "session": "1"})
        self.pump()
        if confirm:
            self.confirm_all()
            while self.core.link.phase == "restoring" and self.confirm_all():  # one at a time
                pass
        return self

    def frames(self):
        found = []
        while chunks := self.core.link.take_output(self.now):
            for frame in self.server.receive(b"".join(chunks), self.now):
                found.append(frame)
                self.seen.append((self.connections, frame))
                if frame.command == "CONNECT":
                    break
        return found

    def commands(self):
        return [frame.command for frame in self.frames()]

    def pump(self):
        self.core.inbound.receive(b"".join(self.server.take_output(self.now)), self.now)

    def answer(self, command, headers=(), body=b""):
        self.server.send(Frame(command, headers, body))
        self.pump()

    def receipt(self, frame):
        self.answer("RECEIPT", {"receipt-id": frame.headers["receipt"]})

    def confirm_all(self):
        found = self.frames()
        for frame in found:
            if frame.get("receipt") is not None:
                self.receipt(frame)
        return found

    def error(self, frame=None, message="no"):
        headers = {"message": message}
        if frame is not None:
            headers["receipt-id"] = frame.headers["receipt"]
        # Not by `server.send`: it would hear nothing more, while real servers of 1.0 and 1.1 may go on.
        self.core.inbound.receive(serialize(Frame("ERROR", headers), self.version, content_length="never"), self.now)

    def lose(self, error=None):
        self.core.link.lost(error, self.now)

    def again(self, confirm=True):
        self.lose()
        return self.connect(confirm)

    def wait(self, seconds):
        end = self.now + seconds
        for _ in range(10_000):
            due = self.core.link.next_deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.core.link.tick(self.now)
        self.now = end

    # ---- what users do ----
    def call(self, what="call", timeout=30.0, command="SEND", **options):
        return self.core.link.calls.make(what, timeout, command, **options)

    def send(self, body=b"x", receipt=False, resend=False, timeout=30.0, destination="/queue/a"):
        pairs, call = [("destination", destination)], None
        if receipt:
            call = self.call("SEND", timeout, resend=resend)
            pairs.append(("receipt", call.id))
        assert self.core.send(Frame("SEND", pairs, body), self.now, call)
        return call

    def subscribe(self, ack="auto", confirm=True, timeout=30.0, id=None, destination=None, **options):
        name = id or f"s{next(self._names)}"
        subscription = Subscription(destination or f"/queue/{name}", id=name, ack=ack, confirm=confirm, **options)
        self.core.inbound.subscribe(subscription, self.now, self.call("SUBSCRIBE", timeout, "SUBSCRIBE"))
        return subscription

    def subscribed(self, ack="auto", **options):
        subscription = self.subscribe(ack, **options)
        self.confirm_all()
        assert subscription.confirmed
        return subscription

    def deliver(self, subscription, number="m1", body=b"x", **headers):
        pairs = {"subscription": subscription.id, "message-id": number, "destination": subscription.destination}
        if subscription.explicit and self.server.version == "1.2":
            pairs["ack"] = f"a{number}"
        self.answer("MESSAGE", {**pairs, **headers}, body)
        return self.take(subscription)[-1]

    def flood(self, subscription, count, size=10):
        frame = b"MESSAGE\nsubscription:%s\nmessage-id:m\ndestination:d\nack:a\ncontent-length:%d\n\n%s\0"
        self.core.inbound.receive(frame % (subscription.id.encode(), size, bytes(size)) * count, self.now)

    def take(self, subscription):
        self.core.inbound.take(subscription)
        taken = list(subscription.batch)
        subscription.batch.clear()
        return taken

    def ack(self, message, command="ACK", **options):
        self.core.settle(message, command, self.now, **options)

    def begin(self, name="t1"):
        transaction = BaseTransaction(name)
        assert self.core.begin(transaction, self.now)
        return transaction

    def finish(self, transaction, command="COMMIT"):
        call = self.call(command, 30.0, command)
        self.core.finish_transaction(transaction, command, self.now, call)
        return call


def outcome(call):
    if not call.done:
        return "waits"
    return "accepted" if call.error is None else type(call.error).__name__
