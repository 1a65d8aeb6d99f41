"""The table of servers: what each is made of, what it needs here, and how it is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

__all__ = ["PEERS", "TOOLS", "Peer"]

#: Program -> the Debian package that has it. What a server needs beside these is in CONDITIONS of fetching.py.
TOOLS = {
    "setpriv": "util-linux",
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang-go",
    "unshare": "util-linux",
    "mount": "mount",
    "chroot": "coreutils",
    "debootstrap": "debootstrap",
}
_JAVA = ("linux", "setpriv", "java", "java 17", "javac", "mvn")
_DEBIAN = ("linux", "setpriv", "unshare", "mount", "chroot", "root", "apt", "debootstrap")


@dataclass(frozen=True)
class Peer:
    """A server, or one way to set it up.

    Args:
        name: as the mark `peer` and the command take it.
        title: what it is.
        version: of the artifact, the module or Debian.
        kind: how it is fetched and started: "jars", "artemis", "debian" or "go".
        needs: tools and conditions, each checked before anything is fetched.
        dialect: of `stompcodec.client`.
        ports: names of the ports it gets, all on 127.0.0.1.
        stomp: its URL for TCP, with ports by their names in braces; "" if it has none.
        ws: its URL for WebSocket; "" if it has none.
        queue: a destination that one consumer gets each message of; {} is any word.
        receipts: commands that it answers by RECEIPT.
        keeps: it has its durable messages again after `Server.kill` and `Server.start`.
        artifacts: Maven's coordinates; versions that are not named are those of `bom`.
        bom: the coordinates of a list of versions.
        main: the Java file that starts it, in java/; it finds the options in its environment, as PEER_NAME.
        arguments: what it is given, with ports and options by their names in braces.
        options: name -> default; "" is off.
    """

    name: str
    title: str
    version: str
    kind: str
    needs: tuple[str, ...]
    dialect: str
    ports: tuple[str, ...]
    stomp: str = "stomp://guest:guest@127.0.0.1:{stomp}"
    ws: str = ""
    queue: str = "/queue/{}"
    receipts: frozenset[str] = frozenset({"SEND", "SUBSCRIBE"})
    keeps: bool = False
    artifacts: tuple[str, ...] = ()
    bom: str = ""
    main: str = ""
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _activemq(name: str, version: str) -> Peer:
    parts = ("activemq-stomp", "activemq-kahadb-store", "activemq-jaas")
    jars = tuple(f"org.apache.activemq:{part}:{version}" for part in parts)
    return Peer(
        name,
        "ActiveMQ Classic",
        version,
        "jars",
        _JAVA,
        "activemq",
        ("stomp", "openwire"),
        keeps=True,
        artifacts=(*jars, "org.slf4j:slf4j-simple:2.0.16"),
        main="ActiveMQ",
        arguments=("{transport}://127.0.0.1:{stomp}", "tcp://127.0.0.1:{openwire}"),
        options={"transport": "stomp"},  # or stomp+nio
    )


_ARTEMIS = Peer(
    "artemis",
    "ActiveMQ Artemis, /queue/ anycast, /topic/ multicast",
    "2.40.0",
    "artemis",
    _JAVA,
    "artemis",
    ("stomp", "core"),  # JMS and AMQP clients find the same addresses at the port "core"
    ws="ws://guest:guest@127.0.0.1:{stomp}/stomp",
    keeps=True,
    options={"prefixes": "anycastPrefix=/queue/;multicastPrefix=/topic/;", "journal": "nio"},
)
_RABBITMQ = Peer(
    "rabbitmq4",
    "RabbitMQ 4",
    "sid",
    "debian",
    _DEBIAN,
    "rabbitmq",
    ("stomp", "ws", "mapper", "nodes"),
    stomp="stomp://guest:guest@127.0.0.1:{stomp}/%2F",
    ws="ws://guest:guest@127.0.0.1:{ws}/ws?vhost=/",
)

_ALL = (
    _activemq("activemq5", "5.18.6"),
    _activemq("activemq6", "6.3.1"),
    _ARTEMIS,
    replace(
        _ARTEMIS,
        name="artemis-plain",
        title="ActiveMQ Artemis without prefixes: destinations are multicast",
        queue="{}",
        options={**_ARTEMIS.options, "prefixes": ""},
    ),
    replace(_RABBITMQ, name="rabbitmq3", title="RabbitMQ 3", version="bookworm"),
    _RABBITMQ,
    Peer(
        "spring",
        "Spring Boot, its simple broker or a relay; what it answers is in java/Spring.java",
        "4.0.7",
        "jars",
        _JAVA,
        "unknown",
        ("ws",),
        stomp="",
        ws="ws://guest:guest@127.0.0.1:{ws}/stomp",
        receipts=frozenset(),
        artifacts=(
            "org.springframework.boot:spring-boot-starter-websocket",
            "org.springframework.boot:spring-boot-starter-security",
            "io.projectreactor.netty:reactor-netty-core",
        ),
        bom="org.springframework.boot:spring-boot-dependencies:4.0.7",
        main="Spring",
        arguments=("--server.address=127.0.0.1", "--server.port={ws}", "--spring.main.banner-mode=off"),
        options={
            "relay": "",  # the port of a STOMP broker
            "relay_login": "guest",
            "relay_passcode": "guest",
            "relay_vhost": "",
            "heart_beat": "10000",  # ms
            "limit": "",  # bytes of a message, for Spring's and Tomcat's limits
        },
    ),
    Peer(
        "vertx",
        "Vert.x STOMP, in memory",
        "5.0.7",
        "jars",
        _JAVA,
        "unknown",
        ("stomp", "ws"),
        ws="ws://guest:guest@127.0.0.1:{ws}/stomp",
        artifacts=("io.vertx:vertx-stomp",),
        bom="io.vertx:vertx-stack-depchain:5.0.7",
        main="VertxStomp",
        arguments=("{stomp}", "{ws}"),
        options={"heart_beat": "1000", "secured": ""},  # secured=1: it takes guest/guest alone
    ),
    Peer(
        "gostomp",
        "stompd of go-stomp, in memory; it knows no ACK of 1.2",
        "v3.1.5",
        "go",
        ("linux", "setpriv", "go"),
        "unknown",
        ("stomp",),
        receipts=frozenset({"SEND"}),
    ),
)
#: All servers, by name.
PEERS = {peer.name: peer for peer in _ALL}
