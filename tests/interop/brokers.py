"""Brokers to test with: ours, and those of Debian's packages rabbitmq-server and activemq."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from crash.process import BrokerProcess
from interop.driver import NotThere, Target
from patience import patience

from stompcodec import Frame, serialize

__all__ = ["BROKERS", "RABBITMQ_LACKS", "UNKNOWN", "ActiveMQ", "Foreign", "Ours", "RabbitMQ", "server_of"]

#: What `server_of` returns for a broker that does not say what it is.
UNKNOWN = "unknown/0"
#: Clients that check whether text messages of WebSocket are UTF-8, as the standard wants it.
_CHECK_TEXT = ("stomp.py 1.2", "stompjs 1.0", "stompjs 1.1", "stompjs 1.2", "chromium 1.2")
_TEXT = "RabbitMQ sends bodies in text messages, unless web_stomp.ws_frame is binary, and this client takes only UTF-8"
#: `Target.lacks` of RabbitMQ.
RABBITMQ_LACKS = (
    ("1.0", "escapes", "RabbitMQ escapes in 1.0 too"),
    *((f"{name} ws", check, _TEXT) for name in _CHECK_TEXT for check in ("binary", "one-mebibyte")),
)
#: The one user of our broker, so that wrong passcodes are refused.
_USERS = ("--login", "guest", "--passcode", "guest")
AUTH = Path(__file__).parents[2] / "examples" / "brokers" / "auth.toml"


class Ours:
    """`stompcodec broker`, twice: one that takes any login, and one that has users."""

    title = "our broker"
    missing = ""

    def __enter__(self) -> Target:
        self._folder = Path(tempfile.mkdtemp(prefix="stompcodec-interop-"))
        self._open = BrokerProcess(self._folder / "open")
        users = {"config": AUTH} if AUTH.exists() else {"flags": _USERS}
        self._closed = BrokerProcess(self._folder / "users", memory=True, **users)
        self._open.start()
        self._closed.start()
        url, closed = f"ws://127.0.0.1:{self._open.ws_port}/", f"ws://127.0.0.1:{self._closed.ws_port}/"
        return Target("stompcodec", "127.0.0.1", self._open.port, url, refuses=("127.0.0.1", self._closed.port, closed))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.kill()
        self._closed.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


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


class Foreign(ABC):
    """A broker of a Debian package, started as this user on free ports of the loopback interface."""

    name = title = ""
    needs: tuple[str, ...] = ()
    """Files of the package."""

    def __init__(self) -> None:
        absent = [name for name in self.needs if shutil.which(name) is None and not Path(name).exists()]
        self.missing = f"{self.name} is not installed" if absent else ""
        self.folder = Path()
        self.environment: dict[str, str] = {}

    @abstractmethod
    def prepare(self) -> tuple[list[str], dict[str, str]]:
        """Write its configuration; the command and its environment."""

    @abstractmethod
    def target(self) -> Target:
        """Return how it is reached."""

    def __enter__(self) -> Target:
        if self.missing:
            raise NotThere(self.missing)
        for _ in range(2):
            with suppress(RuntimeError):  # a port that was free is somebody else's now: others
                return self._start()
        return self._start()

    def _start(self) -> Target:
        self.folder = Path(tempfile.mkdtemp(prefix=f"stompcodec-{self.name}-"))
        self.port = free_port()
        command, self.environment = self.prepare()
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        give_up = time.monotonic() + patience(90)
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                said = (self.folder / "output").read_text(errors="replace")[-1000:]
                self.__exit__(None, None, None)
                raise RuntimeError(f"{self.name} did not start:\n{said}")
            time.sleep(0.2)
        return self.target()

    def _answers(self) -> bool:
        try:
            return bool(server_of(Target(self.name, "127.0.0.1", self.port)))
        except OSError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(patience(30))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.clean()
        shutil.rmtree(self.folder, ignore_errors=True)

    def clean(self) -> None:
        """End what the broker leaves running: nothing, for most."""
        return


class RabbitMQ(Foreign):
    name, title = "rabbitmq", "RabbitMQ"
    needs = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "epmd")

    def prepare(self) -> tuple[list[str], dict[str, str]]:
        self.ws_port, self.mapper, distribution = free_port(), free_port(), free_port()
        (self.folder / "plugins").write_text("[rabbitmq_stomp, rabbitmq_web_stomp].\n")
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp = none\nstomp.listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"web_stomp.tcp.ip = 127.0.0.1\nweb_stomp.tcp.port = {self.ws_port}\n"
        )
        return [self.needs[0]], {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self.mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_NODENAME": f"peer{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RUNNING_UNDER_SYSTEMD": "true",  # its start script then becomes the broker instead of minding it
        }

    def clean(self) -> None:
        environment = {**os.environ, "ERL_EPMD_PORT": str(self.mapper)}
        subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)

    def target(self) -> Target:
        url = f"ws://127.0.0.1:{self.ws_port}/ws"
        return Target(
            self.name,
            "127.0.0.1",
            self.port,
            url,
            refuses=("127.0.0.1", self.port, url),
            lacks=RABBITMQ_LACKS,
        )


_ACTIVEMQ = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="peer" useJmx="false" dataDirectory="{folder}/data">
    <persistenceAdapter><kahaDB directory="{folder}/data/kahadb"/></persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="true">
        <users><authenticationUser username="guest" password="guest" groups="guests"/></users>
      </simpleAuthenticationPlugin>
    </plugins>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}?transport.hbGracePeriodMultiplier=2"/>
    </transportConnectors>
  </broker>
</beans>
"""
_OPENS = ("lang", "util", "util.concurrent", "util.concurrent.atomic", "net", "security")


class ActiveMQ(Foreign):
    name, title = "activemq", "ActiveMQ Classic"
    needs = ("java", "/usr/share/activemq/bin/activemq.jar")

    def prepare(self) -> tuple[list[str], dict[str, str]]:
        conf = self.folder / "conf"
        conf.mkdir()
        (conf / "activemq.xml").write_text(_ACTIVEMQ.format(folder=self.folder, port=self.port))
        (conf / "log4j.properties").write_text(
            "log4j.rootLogger = WARN, console\nlog4j.appender.console = org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.console.layout = org.apache.log4j.SimpleLayout\n"
        )
        opens = [word for name in _OPENS for word in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")]
        places = {"home": "/usr/share/activemq", "base": self.folder, "conf": conf, "data": self.folder / "data"}
        properties = [f"-Dactivemq.{name}={place}" for name, place in {**places, "classpath": conf}.items()]
        command = ["java", "-Xms256M", "-Xmx1G", *opens, *properties, "-jar", self.needs[1]]
        return [*command, "start", f"xbean:file:{conf / 'activemq.xml'}"], {}

    def target(self) -> Target:
        return Target(
            self.name,
            "127.0.0.1",
            self.port,
            refuses=("127.0.0.1", self.port, ""),
            nack="/queue/ActiveMQ.DLQ",
            headers=(("activemq.prefetchSize", "100"),),  # by default it sends the next one after an ACK
        )


BROKERS: dict[str, type[Ours] | type[Foreign]] = {"stompcodec": Ours, "rabbitmq": RabbitMQ, "activemq": ActiveMQ}

if sys.platform == "win32":  # the clients are killed by their process group
    raise ImportError("POSIX only")
