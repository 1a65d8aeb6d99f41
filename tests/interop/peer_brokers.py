"""The servers of scripts/peers as brokers of the runner, and what cannot be asked of each."""

from __future__ import annotations

import sys
from functools import partial
from types import TracebackType
from typing import Any

from interop.brokers import RABBITMQ_LACKS
from interop.checks import CHECKS
from interop.driver import NotThere, Target
from interop.rows import OTHERS
from patience import patience
from peering import FOLDER, load

__all__ = ["ARTEMIS_LACKS", "NOT_WHOLE", "PEER_BROKERS", "PLAIN_LACKS", "PeerBroker"]

Lacks = tuple[tuple[str, str, str], ...]


def _lacks(who: str, why: str, *checks: str) -> Lacks:
    return tuple((who, check, why) for check in checks)


#: What Artemis has no answer for, whatever its acceptor says. Our client holds such an ACK until the COMMIT, unless
#: STOMP 1.0 hides from it which broker it is.
_AT_ONCE = "an ACK takes effect at once, also in a transaction"
_HINT = "it marks the first of several messages only"
ARTEMIS_LACKS: Lacks = (
    *((row.name, "ack-in-transaction", _AT_ONCE) for row in OTHERS),
    ("1.0", "ack-in-transaction", _AT_ONCE),
)
_STORED = ("queues", "ack-client", "ack-client-individual", "redelivery", "receipts", "unsubscribe")
_UNTYPED = "without prefixes an untyped name is multicast, and keeps nothing for those who subscribe later"
#: Artemis without prefixes: our client writes the type, unless STOMP 1.0 hides from it which broker it is.
PLAIN_LACKS: Lacks = (
    *ARTEMIS_LACKS,
    *(lack for who in ("1.0", *(row.name for row in OTHERS)) for lack in _lacks(who, _UNTYPED, *_STORED)),
)
_ANY = "*"
_SPRING_HAS = ("connect", "utf-8", "escapes", "heart-beats", "topics", "bad-credentials")
_GOSTOMP_LACKS: Lacks = (
    *_lacks("1.0", "it refuses STOMP 1.0", *CHECKS),
    *_lacks(
        _ANY,
        "its ACK and NACK of 1.2 ask for message-id, and those of 1.1 end the server",
        *("ack-client", "ack-client-individual", "ack-in-transaction", "nack", "redelivery"),
    ),
    *_lacks(_ANY, "it takes any passcode here", "bad-credentials"),
)
_VERTX_LACKS: Lacks = (
    *_lacks(_ANY, "it keeps nothing for those who subscribe later", *_STORED, "ack-in-transaction"),
    *_lacks("1.0", "it escapes in 1.0 too", "escapes"),
    *_lacks("1.1", "its ACK and NACK of 1.1 ask for id", "nack"),
)
#: Server -> options, title, what `Target` says of it.
_KNOWN: dict[str, tuple[dict[str, str], str, dict[str, Any]]] = {
    "activemq5": ({}, "ActiveMQ Classic {}", {"nack": "/queue/ActiveMQ.DLQ"}),
    "activemq6": ({}, "ActiveMQ Classic {}", {"nack": "/queue/ActiveMQ.DLQ"}),
    "artemis": (
        {"access": "require-login"},
        "Artemis {} with prefixes",
        {"nack": "dropped", "marks": False, "lacks": ARTEMIS_LACKS},
    ),
    "artemis-plain": (
        {"access": "require-login"},
        "Artemis {} without prefixes",
        {"nack": "dropped", "marks": False, "lacks": PLAIN_LACKS},
    ),
    "rabbitmq3": ({}, "RabbitMQ of Debian {}", {"lacks": RABBITMQ_LACKS}),
    "rabbitmq4": ({}, "RabbitMQ of Debian {}", {"lacks": RABBITMQ_LACKS}),
    "spring": (
        {},
        "the simple broker of Spring Boot {}",
        {
            "confirms": False,
            "lacks": _lacks(
                _ANY,
                "it has no receipts, acknowledgements or transactions, keeps no order, and takes bytes for text",
                *(check for check in CHECKS if check not in _SPRING_HAS),
            ),
        },
    ),
    "vertx": ({"secured": "1"}, "Vert.x {}", {"nack": "dropped", "lacks": _VERTX_LACKS}),
    "gostomp": ({}, "stompd of go-stomp {}", {"confirms": False, "lacks": _GOSTOMP_LACKS}),
}
_NO_LOGIN = ("gostomp",)
#: Those that cannot be asked for the fields of the dialects, nor by Spark, and why.
_PARTIAL, NOT_WHOLE = ("spring", "vertx", "gostomp"), "it keeps no messages, or has no ACK"


class PeerBroker:
    """A server of scripts/peers: enter it for its `Target`."""

    def __init__(self, peer: str) -> None:
        self.peer, self.name = peer, peer
        self.options, title, self._known = _KNOWN[peer]
        self.version, self.whole = "", peer not in _PARTIAL
        self.missing = "" if FOLDER.is_dir() and sys.platform == "linux" else "scripts/peers is for Linux"
        if not self.missing:
            peers = load()
            self.version = peers.PEERS[peer].version
            self.missing = peers.missing(peers.PEERS[peer])
        self.title = title.format(self.version)
        self._server: Any = None

    def __enter__(self) -> Target:
        if self.missing:
            raise NotThere(self.missing)
        peers = load()
        self._server = peers.Server(self.peer, self.options, limit=patience(120))
        try:
            self._server.start()
        except peers.PeerError as error:
            self._server.close()
            raise OSError(str(error)) from error
        ports, row = self._server.ports, self._server.row
        port = ports["stomp"] if row.stomp else 0
        url = row.ws.format(**ports).replace("guest:guest@", "").partition("?")[0]
        refuses = None if self.peer in _NO_LOGIN else ("127.0.0.1", port, url)
        # ActiveMQ would send the next message after an ACK only.
        headers = (("activemq.prefetchSize", "100"),) if row.dialect == "activemq" else ()
        return Target(row.dialect, "127.0.0.1", port, url, refuses=refuses, headers=headers, **self._known)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()


#: Name -> what makes the broker.
PEER_BROKERS = {name: partial(PeerBroker, name) for name in _KNOWN}
