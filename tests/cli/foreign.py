"""A broker of others, for the tools that look at queues."""

from __future__ import annotations

import itertools

from client.peer import Peer

__all__ = ["WIRES", "Foreign"]

#: As ActiveMQ 6 writes a JMS message with the property "new\nline", and a text with a NUL. `{0}` are its usual headers.
WIRES = {
    "good": "MESSAGE\n{0}content-length:4\n\ngood\0\n",
    "lf": "MESSAGE\n{0}new\nline:v\n\nbody\0\n",
    "nul": "MESSAGE\n{0}\nnul\0in text\0\n",
}


class Foreign(Peer):
    """Enough of another broker: it shows a queue, delivers it, and forgets what is acknowledged.

    Its messages are kinds of WIRES, or good ones that came from a queue, which stands in a header.
    """

    def __init__(self, messages: list[str], server: str = "ActiveMQ/6.3.1", header: str = "original-destination"):
        self.held = {f"ID:m-{number}": message for number, message in enumerate(messages)}
        self.header = header
        self.dead_letters = []
        self.browsers = itertools.count()
        super().__init__(server=server)

    @property
    def sent(self):
        return [frame.headers["destination"] for frame in self.got("SEND")]

    def wire(self, side, frame, id, message):
        heads = {"expires": "0", "destination": frame.headers["destination"], "subscription": frame.headers["id"]}
        if frame.get("browser") is None:
            heads["ack"] = f"{side.number}-{id}"
        kind, origin = (message, "/queue/orders") if message in WIRES else ("good", message)
        heads |= {self.header: origin, "message-id": id, "timestamp": "1764361234567"}
        return WIRES[kind].format("".join(f"{name}:{value}\n" for name, value in heads.items())).encode()

    def on_subscribe(self, side, frame):
        side.receipt(frame)
        self.waiting, self.asked = dict(self.held), frame
        self.hand_out(side, None if frame.get("browser") else int(frame.get("activemq.prefetchSize") or 1000))
        if frame.get("browser"):
            end = "MESSAGE\nbrowser:end\nsubscription:{}\nmessage-id:{}\ndestination:x\n\n\0\n"
            side.connection.output.append(end.format(frame.headers["id"], next(self.browsers)).encode())

    def hand_out(self, side, window=1):
        """Deliver as many as the prefetch allows."""
        for id in [*self.waiting][:window]:
            side.connection.output.append(self.wire(side, self.asked, id, self.waiting.pop(id)))

    def on_ack(self, side, frame):
        self.held.pop(frame.headers["id"].partition("-")[2])
        side.receipt(frame)
        self.hand_out(side)

    def on_nack(self, side, frame):
        self.dead_letters.append(frame.headers["id"].partition("-")[2])
        self.on_ack(side, frame)
