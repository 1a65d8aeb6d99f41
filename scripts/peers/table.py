"""The table of servers: what each is made of, what it needs here, and how it is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

#: Program -> the Debian package that has it. What a server needs beside these is in CONDITIONS of fetching.py.
TOOLS = {
    "setpriv": "util-linux",
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang-go",
    "unshare": "util-linux",
    "debootstrap": "debootstrap",
    "epmd": "erlang-base",
}
_JAVA = ("linux", "setpriv", "java", "java 17", "javac", "mvn")
#: How a server is fetched and started -> what that needs, in the order in which it is checked.
NEEDS = {
    "jars": _JAVA,
    "artemis": _JAVA,
    "debian": ("linux", "setpriv", "unshare", "root", "apt", "debootstrap"),
    "go": ("linux", "setpriv", "go"),
    "rabbitmq": ("linux", "setpriv", "epmd", "rabbitmq-server"),
    "activemq": ("linux", "setpriv", "java", "java 17", "javac", "activemq jars"),
}


@dataclass(frozen=True)
class Peer:
    """A server, or one way to set it up. Texts have ports and options by their names in braces."""

    name: str  # as the mark `peer` and the command take it
    title: str
    version: str  # of the artifact, the module or Debian
    kind: str  # of NEEDS
    dialect: str  # of `stompcodec.client`
    ports: tuple[str, ...]  # names of its ports, all on 127.0.0.1
    stomp: str = "stomp://guest:guest@127.0.0.1:{stomp}"  # its URL for TCP, or ""
    ws: str = ""  # its URL for WebSocket, or ""
    queue: str = "/queue/{}"  # a destination that one consumer gets each message of; {} is any word
    receipts: frozenset[str] = frozenset({"SEND", "SUBSCRIBE"})  # frames that it answers by RECEIPT
    artifacts: tuple[str, ...] = ()  # Maven's coordinates
    bom: str = ""  # coordinates of a list of versions, for those that have none
    main: str = ""  # the Java file that starts it, in java/; it finds the options as PEER_NAME in its environment
    arguments: tuple[str, ...] = ()  # of the Java program
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # name -> default; "" is off


#: By default it closes a client whose heart-beats are a little late, as those of a timer are.
_LATE = "{transport}://127.0.0.1:{stomp}?transport.hbGracePeriodMultiplier=2"


def _activemq(name: str, version: str) -> Peer:
    parts = ("activemq-stomp", "activemq-kahadb-store", "activemq-jaas")
    jars = tuple(f"org.apache.activemq:{part}:{version}" for part in parts)
    return Peer(
        name,
        "ActiveMQ Classic",
        version,
        "jars",
        "activemq",
        ("stomp", "openwire"),
        artifacts=(*jars, "org.slf4j:slf4j-simple:2.0.16"),
        main="ActiveMQ",
        arguments=(_LATE, "tcp://127.0.0.1:{openwire}"),
        options={"transport": "stomp"},  # or stomp+nio
    )


_CREATED = {"journal": "nio", "access": "allow-anonymous"}  # or aio, mapped; or require-login
_ARTEMIS = Peer(
    "artemis",
    "Artemis, /queue/ anycast, /topic/ multicast",
    "2.40.0",
    "artemis",
    "artemis",
    ("stomp", "core"),  # JMS and AMQP clients find the same addresses at the port "core"
    ws="ws://guest:guest@127.0.0.1:{stomp}/stomp",
    options={**_CREATED, "prefixes": "anycastPrefix=/queue/;multicastPrefix=/topic/;"},
)
_RABBITMQ = Peer(
    "rabbitmq4",
    "RabbitMQ 4",
    "sid",
    "debian",
    "rabbitmq",
    ("stomp", "ws", "mapper", "nodes"),
    stomp="stomp://guest:guest@127.0.0.1:{stomp}/%2F",
    ws="ws://guest:guest@127.0.0.1:{ws}/ws?vhost=/",
)

_ALL = (
    replace(_activemq("activemq", "5.17"), title="ActiveMQ Classic of this Debian", kind="activemq", artifacts=()),
    replace(_RABBITMQ, name="rabbitmq", title="RabbitMQ of this Debian", version="3.10", kind="rabbitmq"),
    _activemq("activemq5", "5.18.6"),
    _activemq("activemq6", "6.3.1"),
    _ARTEMIS,
    replace(
        _ARTEMIS, name="artemis-plain", title="Artemis, no prefixes", queue="{}", options={**_CREATED, "prefixes": ""}
    ),
    replace(_RABBITMQ, name="rabbitmq3", title="RabbitMQ 3", version="bookworm"),
    _RABBITMQ,
    Peer(
        "spring",
        "Spring Boot, its simple broker or a relay; what it answers is in java/Spring.java",
        "4.0.7",
        "jars",
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
            "limit": "0",  # bytes of a message, for Spring's and Tomcat's limits
        },
    ),
    Peer(
        "vertx",
        "Vert.x STOMP, in memory",
        "5.0.7",
        "jars",
        "vertx",
        ("stomp", "ws"),
        ws="ws://guest:guest@127.0.0.1:{ws}/stomp",
        artifacts=("io.vertx:vertx-stomp",),
        bom="io.vertx:vertx-stack-depchain:5.0.7",
        main="VertxStomp",
        arguments=("{stomp}", "{ws}"),
        options={"heart_beat": "1000", "secured": ""},  # secured=1: it takes guest/guest alone
    ),
    Peer(
        "gostomp", "go-stomp's stompd, no 1.2 ACK", "v3.1.5", "go", "unknown", ("stomp",), receipts=frozenset({"SEND"})
    ),
)
#: All servers, by name.
PEERS = {peer.name: peer for peer in _ALL}
