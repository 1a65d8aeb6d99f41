"""Brokers to test with: ours, the servers of scripts/peers, and those that run already; what each cannot do."""

import contextlib
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from crash.process import BrokerProcess
from interop.checks import CHECKS
from interop.driver import Target
from interop.rows import OTHERS
from interop.run import ProxyProcess
from patience import patience
from peering import FOLDER, load

from stompcodec import Frame, serialize
from stompcodec.uri import parse_uri

UNKNOWN = "unknown/0"  # What `server_of` returns for a broker that does not say what it is.
AUTH = Path(__file__).parents[2] / "examples" / "brokers" / "auth.toml"
SERVERS: dict[str, str] = {}  # Title of a broker that was entered -> what it says it is.
Lacks = tuple[tuple[str, str, str], ...]


def _lacks(who: str, why: str, *checks: str) -> Lacks:
    return tuple((who, check, why) for check in checks)


#: Clients that check whether text messages of WebSocket are UTF-8, as the standard wants it.
_CHECK_TEXT = ("stomp.py 1.2", "stompjs 1.0", "stompjs 1.1", "stompjs 1.2", "chromium 1.2")
_TEXT = "RabbitMQ sends bodies in text messages, unless web_stomp.ws_frame is binary, and this client takes only UTF-8"
#: What Artemis has no answer for, whatever its acceptor says. Our client holds such an ACK until the COMMIT, unless
#: STOMP 1.0 hides from it which broker it is.
_AT_ONCE = "an ACK takes effect at once, also in a transaction"
_ARTEMIS_LACKS: Lacks = (
    *((row.name, "ack-in-transaction", _AT_ONCE) for row in OTHERS),
    ("1.0", "ack-in-transaction", _AT_ONCE),
)
_STORED = ("queues", "ack-client", "ack-client-individual", "redelivery", "receipts", "unsubscribe")
_UNTYPED = "without prefixes an untyped name is multicast, and keeps nothing for those who subscribe later"
#: Artemis without prefixes: our client writes the type, unless STOMP 1.0 hides from it which broker it is.
_PLAIN_LACKS: Lacks = (
    *_ARTEMIS_LACKS,
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
#: Dialect -> what `Target` says of its broker.
_KINDS: dict[str, dict[str, Any]] = {
    "rabbitmq": {
        "lacks": (
            *_lacks("1.0", "RabbitMQ escapes in 1.0 too", "escapes"),
            *(lack for name in _CHECK_TEXT for lack in _lacks(f"{name} ws", _TEXT, "binary", "one-mebibyte")),
        )
    },
    "artemis": {"nack": "dropped", "marks": False, "lacks": _ARTEMIS_LACKS},
    # By default ActiveMQ sends the next message after an ACK only.
    "activemq": {"nack": "/queue/ActiveMQ.DLQ", "headers": (("activemq.prefetchSize", "100"),)},
}
_SPRING_LACKS = _lacks(
    _ANY,
    "it has no receipts, acknowledgements or transactions, keeps no order, and takes bytes for text",
    *(check for check in CHECKS if check not in _SPRING_HAS),
)
_LOGIN = {"access": "require-login"}
#: Server of scripts/peers -> its title, its options, and what `Target` says besides.
_PEERS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "rabbitmq": ("RabbitMQ", {}, {}),
    "activemq": ("ActiveMQ Classic", {}, {}),
    "activemq5": ("ActiveMQ Classic {}", {}, {}),
    "activemq6": ("ActiveMQ Classic {}", {}, {}),
    "artemis": ("Artemis {} with prefixes", _LOGIN, {}),
    "artemis-plain": ("Artemis {} without prefixes", _LOGIN, {"lacks": _PLAIN_LACKS}),
    "rabbitmq3": ("RabbitMQ of Debian {}", {}, {}),
    "rabbitmq4": ("RabbitMQ of Debian {}", {}, {}),
    "spring": (
        "the simple broker of Spring Boot {}",
        {},
        {"confirms": False, "keeps_order": False, "lacks": _SPRING_LACKS},
    ),
    "vertx": ("Vert.x {}", {"secured": "1"}, {"nack": "dropped", "lacks": _VERTX_LACKS}),
    "gostomp": ("stompd of go-stomp {}", {}, {"confirms": False, "refuses": None, "lacks": _GOSTOMP_LACKS}),
}


class Broker(NamedTuple):
    """A broker that can be tested with: `with broker.start() as target:`."""

    title: str
    start: Callable[[], contextlib.AbstractContextManager[Target]]
    missing: Callable[[], str] = lambda: ""
    """Why it cannot run here, or ""."""
    whole: bool = True  # It keeps messages, and knows ACK.


@contextlib.contextmanager
def _ours() -> Iterator[Target]:
    """`stompcodec broker`, twice: one that takes any login, and one that has users."""
    folder = Path(tempfile.mkdtemp(prefix="stompcodec-interop-"))
    try:
        closed = BrokerProcess(folder / "users", memory=True, config=AUTH)
        with BrokerProcess(folder / "open") as ours, closed:
            urls = [f"ws://127.0.0.1:{broker.ws_port}/" for broker in (ours, closed)]
            refuses = ("127.0.0.1", closed.port, urls[1])
            yield _noted("our broker", Target("stompcodec", "127.0.0.1", ours.port, urls[0], refuses=refuses))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _relayed() -> Iterator[Target]:
    """Our broker behind Spring's relay, which has logins of its own."""
    with _ours() as ours:
        options = {"relay": str(ours.port), "limit": str(4 << 20)}
        with load().Server("spring", options, limit=patience(120)) as server:
            url = f"ws://127.0.0.1:{server.ports['ws']}/stomp"
            lacks = _lacks("1.0", "Spring escapes in 1.0 too", "escapes")
            yield ours._replace(port=0, url=url, sockjs=_sockjs(url), refuses=("127.0.0.1", 0, url), lacks=lacks)


def _sockjs(url: str) -> str:
    """Return the SockJS endpoint of Spring beside a WebSocket."""
    return url.replace("ws:", "http:").replace("/stomp", "/sockjs")


def _noted(title: str, target: Target) -> Target:
    SERVERS[title] = server_of(target) if target.port else UNKNOWN
    return target


def _peer(name: str) -> Broker:
    """A server of scripts/peers."""
    if not FOLDER.is_dir() or sys.platform == "win32":
        return Broker(name, contextlib.nullcontext, lambda: "scripts/peers is for Linux")  # type: ignore[arg-type]
    peers, (title, options, known) = load(), _PEERS[name]
    row = peers.PEERS[name]
    title = title.format(row.version)

    @contextlib.contextmanager
    def start() -> Iterator[Target]:
        with peers.Server(name, options, limit=patience(120)) as server:
            port = server.ports["stomp"] if row.stomp else 0
            url = row.ws.format(**server.ports).replace("guest:guest@", "").partition("?")[0]
            kind = {"refuses": ("127.0.0.1", port, url), **_KINDS.get(row.dialect, {}), **known}
            sockjs = _sockjs(url) if name == "spring" else ""
            yield _noted(title, Target(row.dialect, "127.0.0.1", port, url, sockjs, **kind))

    return Broker(title, start, lambda: str(peers.missing(row)), name not in ("spring", "vertx", "gostomp"))


def named(texts: list[str]) -> dict[str, Broker]:
    """The brokers of `NAME` or `NAME=URL` texts; a name may have one URL of TCP or TLS and one of WebSocket."""
    found: dict[str, Broker] = {}
    urls: dict[str, dict[bool, str]] = {}
    for text in texts:
        name, _, url = text.partition("=")
        if "=" in text:
            first, *others = parse_uri(url)
            if not name or others or first.sockjs or first.websocket in urls.setdefault(name, {}):
                raise ValueError(f"{name}: one URL of TCP or TLS, and one of WebSocket")
            urls[name][first.websocket] = url
        elif name not in STARTED:
            raise ValueError(f"no broker {name!r}: {', '.join(STARTED)} are started here; others are NAME=URL")
        else:
            found[name] = STARTED[name]
    for name, both in urls.items():
        if False not in both:
            raise ValueError(f"{name}: a URL of TCP or TLS is missing, as in {name}=stomp://host:61613")
        found[name] = _running(name, both[False], both.get(True, ""))
    return found


def _running(name: str, url: str, websocket: str) -> Broker:
    """A broker that runs already."""
    parts = urlsplit(websocket)  # the login is that of the other URL
    websocket = websocket and f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path or '/'}"

    @contextlib.contextmanager
    def start() -> Iterator[Target]:
        (address,) = parse_uri(url)
        host, port = address.host, address.port
        with contextlib.ExitStack() as stack:
            if address.tls:  # the clients of other people would each want it in another way
                with socket.create_connection((host, port), patience(15)) as plain:
                    ssl.create_default_context().wrap_socket(plain, server_hostname=host).close()
                proxy = ProxyProcess("stomp", f"stomp+ssl://{host}:{port}")
                stack.callback(proxy.stop)
                host, port = "127.0.0.1", proxy.port
            target = Target(name, host, port, websocket, vhost=address.vhost or "/")
            if address.login is not None:
                refuses = (host, port, websocket)
                target = target._replace(login=address.login, passcode=address.passcode or "", refuses=refuses)
            kind = kind_of(_noted(name, target) and SERVERS[name]) or kind_of(name)
            yield target._replace(name=kind or name, **_KINDS.get(kind, {}))

    return Broker(name, start)


def kind_of(text: str) -> str:
    """Return the dialect that a server header or a name tells; "" for none.

    >>> kind_of("ActiveMQ-Artemis/2.37.0 ActiveMQ Artemis Messaging Engine"), kind_of("stompcodec/0.1 as artemis")
    ('artemis', 'stompcodec')
    """
    said = text.lower()
    return next((kind for kind in ("stompcodec", "artemis", "activemq", "rabbitmq") if kind in said), "")


def server_of(target: Target) -> str:
    """The `server` header of CONNECTED, as in RabbitMQ/3.10.8."""
    headers = {"accept-version": "1.1", "host": target.vhost, "login": target.login, "passcode": target.passcode}
    frame = serialize(Frame("CONNECT", headers), "1.1")
    with socket.create_connection((target.host, target.port), patience(5)) as connection:
        connection.sendall(frame)
        said = b""
        while b"\0" not in said:
            more = connection.recv(4096)
            if not more:
                raise ConnectionError("it hung up")
            said += more
    if not said.startswith(b"CONNECTED"):
        raise ConnectionError("it refused")
    told = dict(line.split(":", 1) for line in said.decode(errors="replace").splitlines() if ":" in line)
    return told.get("server", UNKNOWN)


#: Name -> a broker that can be started here.
STARTED = {"stompcodec": Broker("our broker", _ours), **{name: _peer(name) for name in _PEERS}}
STARTED["relay"] = Broker("our broker behind Spring's relay", _relayed, STARTED["spring"].missing, whole=False)
BROKERS = {name: STARTED[name] for name in ("stompcodec", "rabbitmq", "activemq")}  # Those that the tests run with.
