"""The clients: how each is started, and where it is missing, the word for it."""

import os
import shutil
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import NamedTuple

from crash import process
from interop.driver import Over, Program
from patience import patience
from peering import load

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
#: What `scripts/interop.py` fills.
FOLDER = Path(os.environ.get("STOMPCODEC_INTEROP", HERE.parents[1] / "build" / "interop"))


#: Program -> the servers of scripts/peers that have its library.
_PEERS = {"Clients.java": ("spring", "vertx"), "go_stomp_client.go": ("gostomp",)}
_BUILDS = threading.Lock()


class Row(NamedTuple):
    """A client in one version, over one transport."""

    client: str
    version: str
    over: Over
    program: str  # Its file in clients/.
    lacks: tuple[tuple[str, str], ...] = ()  # Checks that cannot be asked of this client, and why.

    @property
    def name(self) -> str:
        return f"{self.client} {self.version} {self.over}".rstrip()

    @property
    def _python(self) -> str:
        is_here = self.program in ("our_client.py", "chromium_client.py")
        return sys.executable if is_here else str(FOLDER / "venv" / "bin" / "python")

    def start(self) -> Program:
        environment = {
            "STOMPCODEC_NODE_MODULES": str(FOLDER / "node"),
            "STOMPCODEC_COMPOSER": str(FOLDER / "php"),
            "STOMPCODEC_SHELL": self.client,
        }
        if self.program == "our_client.py":
            environment["PYTHONPATH"] = process.environment()["PYTHONPATH"]
        if self.program in _PEERS:
            with _BUILDS:
                command = _built(self.program, self.client)
        else:
            runners = {".py": self._python, ".rb": "ruby", ".php": "php", ".js": "node"}
            command = (runners[Path(self.program).suffix], str(CLIENTS / self.program))
        return Program(list(command), environment, self.version, self.over)

    def missing(self) -> str:
        """What has to be installed first, or ""."""
        return _missing(self.program, self._python)


def _lacks(why: str, *checks: str) -> tuple[tuple[str, str], ...]:
    return tuple((check, why) for check in checks)


@cache
def _built(program: str, client: str) -> tuple[str, ...]:
    """Compile a program, and return the command that runs it for one of its clients."""
    peers, made = load(), FOLDER / program
    folders = [str(peers.fetch(peers.PEERS[name])) for name in _PEERS[program]]
    FOLDER.mkdir(parents=True, exist_ok=True)
    if program.endswith(".go"):
        modules = peers.fetching.cache() / "go"
        caches = {"GOMODCACHE": f"{modules}/modules", "GOCACHE": f"{modules}/builds"}
        build = ["go", "build", "-mod=mod", "-modcacherw", "-o", f"{made}.exe", str(CLIENTS / program)]
        subprocess.run(build, cwd=folders[0], env={**os.environ, **caches}, check=True)
        return (f"{made}.exe",)
    # That of the client first: both have libraries of the same name.
    path = ":".join([str(made), *(f"{folder}/*" for folder in (folders if client == "Spring" else folders[::-1]))])
    subprocess.run(["javac", "-nowarn", "-d", str(made), "-cp", path, str(CLIENTS / program)], check=True)
    return ("java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, "Clients", client)


@cache
def _missing(program: str, python: str) -> str:
    if program in _PEERS:
        peers = load()
        return next(filter(None, (str(peers.missing(peers.PEERS[name])) for name in _PEERS[program])), "")
    needs = {
        "stomp_py_client.py": [python, "-c", "import stomp"],
        "stompman_client.py": [python, "-c", "import stompman"],
        "ruby_stomp_client.rb": ["ruby", "-e", "require 'stomp'"],
        "stomp_php_client.php": ["php", str(FOLDER / "php/vendor/autoload.php")],
        "stompjs_client.js": ["node", "-e", f"require({str(FOLDER / 'node/node_modules/ws')!r})"],
        "chromium_client.py": ["chromium", "--version"],
        "our_client.py": [python, "-c", "import asyncio"],
    }
    command = needs[program]
    if shutil.which(command[0]) is None:
        return f"{Path(command[0]).name} is not installed"
    done = subprocess.run(command, capture_output=True, timeout=patience(60), check=False)
    if done.returncode:
        return f"{program.rpartition('_')[0]} is not installed"
    if program == "chromium_client.py" and not (FOLDER / "node/node_modules/@stomp/stompjs").is_dir():
        return "stompjs is not installed"
    return ""


_TEXT = _lacks("it sends every body in a text message of WebSocket, which has to be UTF-8", "binary", "one-mebibyte")

_NO_TX = _lacks("it has no transactions", "commit", "abort", "ack-in-transaction")
_CLIENT = _lacks("it knows client-individual from 1.1 on", "ack-client-individual", "redelivery", "ack-in-transaction")
_NO_ACK = _lacks("its ACK is that of 1.2", "ack-client", "ack-client-individual", "nack", "ack-in-transaction")
_SOCKJS = _lacks("SockJS carries text, in UTF-8", "binary", "one-mebibyte")

OTHERS = (
    *(Row("stomp.py", version, "", "stomp_py_client.py") for version in ("1.0", "1.1", "1.2")),
    Row("stomp.py", "1.2", "ws", "stomp_py_client.py"),
    Row("stompman", "1.2", "", "stompman_client.py"),
    Row("stompman", "1.2", "ws", "stompman_client.py", _TEXT),
    *(Row("ruby-stomp", version, "", "ruby_stomp_client.rb") for version in ("1.0", "1.1", "1.2")),
    Row("stomp-php", "1.0", "", "stomp_php_client.php", (*_CLIENT, *_lacks("it escapes in 1.0 too", "escapes"))),
    *(Row("stomp-php", version, "", "stomp_php_client.php") for version in ("1.1", "1.2")),
    *(Row("go-stomp", version, "", "go_stomp_client.go") for version in ("1.0", "1.1", "1.2")),
    *(Row("Spring", version, "", "Clients.java", _NO_TX) for version in ("1.1", "1.2")),
    Row("Spring", "1.2", "ws", "Clients.java", _NO_TX),
    *(Row("Vert.x", version, "", "Clients.java", _NO_ACK) for version in ("1.0", "1.1")),
    Row("Vert.x", "1.2", "", "Clients.java"),
    Row("stompjs", "1.0", "ws", "stompjs_client.js"),
    Row("stompjs", "1.1", "ws", "stompjs_client.js", _lacks("it escapes in 1.2 only", "escapes")),
    Row("stompjs", "1.2", "ws", "stompjs_client.js"),
    Row("stompjs", "1.2", "sockjs", "stompjs_client.js", _SOCKJS),
    Row("rx-stomp", "1.2", "ws", "stompjs_client.js"),
    Row("chromium", "1.2", "ws", "chromium_client.py"),
)

OURS = (
    *(Row("sync", version, "", "our_client.py") for version in ("1.0", "1.1", "1.2")),
    *(Row("asyncio", version, "", "our_client.py") for version in ("1.0", "1.1", "1.2")),
    Row("sync", "1.2", "ws", "our_client.py"),
    Row("asyncio", "1.2", "ws", "our_client.py"),
    Row("sync", "1.2", "sockjs", "our_client.py", _SOCKJS),
)
