"""Start a server on ports of its own, wait until STOMP answers, kill it, and start it again with its data."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

import stompcodec.client as stomp
from peers.fetching import APART, RABBITMQ, PeerError, cache, classpath, fetch, folder_of, spawn, tail
from peers.table import PEERS

#: Below the ports that connections take by themselves.
_PORTS = range(20_000, 32_000)
_RABBITMQ_CONF = """
listeners.tcp = none
stomp.listeners.tcp.1 = 127.0.0.1:{stomp}
web_stomp.tcp.ip = 127.0.0.1
web_stomp.tcp.port = {ws}
"""
#: Upstream refuses these queues from 4.3 on; Debian's sid permits them.
_AS_UPSTREAM = "deprecated_features.permit.transient_nonexcl_queues = false\n"
#: Under systemd the start script becomes the broker.
_ENVIRONMENT = """
export HOME=$DATA LC_ALL=C.UTF-8 RUNNING_UNDER_SYSTEMD=true RABBITMQ_CONF_ENV_FILE=/dev/null
export RABBITMQ_CONFIG_FILE=$DATA/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=$DATA/enabled_plugins
export RABBITMQ_MNESIA_BASE=$DATA/mnesia RABBITMQ_LOG_BASE=$DATA/log RABBITMQ_NODENAME=peer$2@localhost
export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$3 RABBITMQ_DIST_PORT=$4
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
"""
#: The first process stays root, or it would not end with its parent.
_INSIDE = f"""
DATA=/data
{_ENVIRONMENT}
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --bind . "$1/data"
chroot "$1" setpriv --reuid=rabbitmq --regid=rabbitmq --init-groups \
    /bin/sh -c "cd /data && exec {RABBITMQ}"
exit $?
"""
#: Its port mapper would else outlive it.
_INSTALLED = f"""
DATA=$PWD
{_ENVIRONMENT}
setpriv --pdeathsig KILL epmd &
until epmd -names >/dev/null 2>&1; do sleep 0.05; done
exec {RABBITMQ}
"""


def _answers(url: str) -> bool:
    try:
        stomp.connect(url, reconnect=None, connect_timeout=5.0, close_timeout=1.0).close()
    except (stomp.StompError, OSError):
        return False
    return True


def _reserve() -> tuple[int, TextIO]:
    """Return a free port, and a file: no other process takes this port from here as long as that is open."""
    folder = cache() / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    for number in random.sample(_PORTS, min(200, len(_PORTS))):
        lock = (folder / f"{number}").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            socket.create_server(("127.0.0.1", number)).close()
        except OSError:
            lock.close()
        else:
            return number, lock
    raise PeerError(f"none of the ports from {_PORTS.start} to {_PORTS.stop - 1} is free")


class Server:
    """A server of the table. Nothing runs before `start`, or the block of `with`.

    Args:
        name: of the table.
        options: of its row, which has their defaults.
        folder: an empty folder for its data and its log, removed by `close`; by default a new one.
        bound: it is killed with the thread that started it, however that ends.
        limit: seconds for each start.
        say: takes a line about the progress of a download.

    Raises:
        TypeError: it has no such option.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, str] = MappingProxyType({}),
        *,
        folder: Path | None = None,
        bound: bool = True,
        limit: float = 120.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.row = PEERS[name]
        if unknown := options.keys() - self.row.options.keys():
            known = ", ".join(self.row.options) or "none"
            raise TypeError(f"{name} has no option {', '.join(sorted(unknown))}; it has: {known}")
        self.options = {**self.row.options, **options}
        self.bound, self.limit, self._say = bound, limit, say
        self._given = folder
        self.folder = Path()
        self.process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, tuple[int, TextIO]] = {}

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def ports(self) -> dict[str, int]:
        """Name of the table -> port. They stay the same until `close`."""
        return {name: number for name, (number, _) in self._ports.items()}

    @property
    def url(self) -> str:
        """The URL for STOMP over TCP, or over WebSocket if the server has nothing else."""
        return (self.row.stomp or self.row.ws).format(**self.ports)

    @property
    def ws_url(self) -> str:
        """The URL for STOMP over WebSocket, or ""."""
        return self.row.ws.format(**self.ports)

    @property
    def log(self) -> Path:
        return self.folder / "output"

    @property
    def classpath(self) -> str:
        """The address that Java programs need for its own protocol, or ""."""
        artemis = f"{folder_of(self.row)}/home/lib/*"
        return artemis if self.row.kind == "artemis" else classpath(self.row) if self.row.main else ""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, with the data it had before `kill`, and wait until CONNECT is answered by CONNECTED.

        Raises:
            PeerError: it cannot run here, or STOMP did not answer in time; with the end of its log.
        """
        if self.running:
            return
        fetch(self.row, self._say)
        if not self._ports:
            self.folder = self._given or Path(tempfile.mkdtemp(prefix=f"stompcodec-peer-{self.row.name}-"))
            self.folder.mkdir(parents=True, exist_ok=True)
            self._ports = {name: _reserve() for name in self.row.ports}
        command, environment = _COMMANDS[self.row.kind](self)
        locks = [lock.fileno() for _, lock in self._ports.values()]  # it holds them for as long as it runs
        self.process = spawn(command, self.folder, environment, self.log.name, bound=self.bound, fds=locks)
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def _wait(self) -> None:
        give_up = time.monotonic() + self.limit
        while not (_answers(self.url) and self.running):
            if not self.running or time.monotonic() > give_up:
                why = "did not answer" if self.running else "ended"
                raise PeerError(f"{self.row.name} {why}; the end of its log:\n{tail(self.log)}")
            time.sleep(0.1)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End all of its processes by this signal, and wait: by SIGKILL if they are there after 30 s."""
        if self.process is None:
            return
        for signalled in (number, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signalled)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
                break
        self.process = None

    def close(self) -> None:
        """Kill it, remove its data, and leave its ports to others."""
        self.kill()
        for _, lock in self._ports.values():
            lock.close()
        if self._ports:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._ports = {}


def _jars(server: Server) -> tuple[list[str], dict[str, str]]:
    row = server.row
    environment = {f"PEER_{name.upper()}": value for name, value in server.options.items()}
    words = [word.format(**server.ports, **server.options) for word in row.arguments]
    quiet = ("-Xmx1G", "-Dlogging.level.root=warn", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    return ["java", *quiet, "-cp", classpath(row), f"peer.{row.main}", *words], environment


def _artemis(server: Server) -> tuple[list[str], dict[str, str]]:
    ports, instance = server.ports, server.folder / "instance"
    if not instance.exists():
        create = ["bash", str(folder_of(server.row) / "home/bin/artemis"), "create", "--silent", "--name", "peer"]
        create += ["--user", "guest", "--password", "guest", "--no-web", "--no-autotune"]
        create += [f"--no-{name}-acceptor" for name in ("mqtt", "hornetq", "amqp", "stomp")]
        create += ["--host", "127.0.0.1", "--default-port", str(ports["core"]), "--java-memory", "1G"]
        create += [f"--{server.options['access']}", f"--{server.options['journal']}", str(instance)]
        if spawn(create, server.folder, {}, server.log.name).wait():
            raise PeerError(f"{server.row.name} could not be created:\n{tail(server.log)}")
        uri = f"tcp://127.0.0.1:{ports['stomp']}?protocols=STOMP;useEpoll=true;{server.options['prefixes']}"
        file = instance / "etc" / "broker.xml"
        text = file.read_text(encoding="utf-8").replace("<max-disk-usage>90", "<max-disk-usage>99")
        acceptor = f'<acceptor name="stomp">{uri}</acceptor></acceptors>'
        file.write_text(text.replace("</acceptors>", acceptor), encoding="utf-8")
    return ["bash", str(instance / "bin" / "artemis"), "run"], {}


def _configure(server: Server) -> list[str]:
    settings = _RABBITMQ_CONF.format(**server.ports) + (_AS_UPSTREAM if server.row.version == "sid" else "")
    (server.folder / "rabbitmq.conf").write_text(settings, encoding="utf-8")
    (server.folder / "enabled_plugins").write_text("[rabbitmq_stomp, rabbitmq_web_stomp].\n", encoding="utf-8")
    return [str(server.ports[name]) for name in ("stomp", "mapper", "nodes")]


def _debian(server: Server) -> tuple[list[str], dict[str, str]]:
    numbers, root = _configure(server), folder_of(server.row) / "root"
    rabbitmq = (root / "var/lib/rabbitmq").stat()
    for path in (server.folder, *server.folder.iterdir()):
        os.chown(path, rabbitmq.st_uid, rabbitmq.st_gid)
    return [*APART, "bash", "-euc", _INSIDE, "inside", str(root), *numbers], {}


def _rabbitmq(server: Server) -> tuple[list[str], dict[str, str]]:
    return ["bash", "-euc", _INSTALLED, "here", "/", *_configure(server)], {}


def _go(server: Server) -> tuple[list[str], dict[str, str]]:
    return [str(folder_of(server.row) / "stompd"), "-addr", f"127.0.0.1:{server.ports['stomp']}"], {}


_COMMANDS = {"jars": _jars, "artemis": _artemis, "debian": _debian, "go": _go, "activemq": _jars, "rabbitmq": _rabbitmq}
