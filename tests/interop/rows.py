"""The clients: how each is started, and where it is missing, the word for it."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from crash import process
from interop.driver import Program
from patience import patience

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
#: What `scripts/interop.py` fills.
FOLDER = Path(os.environ.get("STOMPCODEC_INTEROP", HERE.parents[1] / "build" / "interop"))


class Row(NamedTuple):
    """A client in one version, over one transport."""

    client: str
    version: str
    websocket: bool
    program: str  # Its file in clients/.
    lacks: tuple[tuple[str, str], ...] = ()  # Checks that cannot be asked of this client, and why.

    @property
    def name(self) -> str:
        return f"{self.client} {self.version}{' ws' if self.websocket else ''}"

    @property
    def _python(self) -> str:
        is_here = self.program in ("our_client.py", "chromium_client.py")
        return sys.executable if is_here else str(FOLDER / "venv" / "bin" / "python")

    def start(self) -> Program:
        environment = {"STOMPCODEC_NODE_MODULES": str(FOLDER / "node"), "STOMPCODEC_SHELL": self.client}
        if self.program == "our_client.py":
            environment["PYTHONPATH"] = process.environment()["PYTHONPATH"]
        runners = {".py": self._python, ".rb": "ruby", ".php": "php", ".pl": "perl", ".js": "node"}
        command = [runners[Path(self.program).suffix], str(CLIENTS / self.program)]
        return Program(command, environment, self.version, self.websocket)

    def missing(self) -> str:
        """What has to be installed first, or ""."""
        return _missing(self.program, self._python)


@cache
def _missing(program: str, python: str) -> str:
    needs = {
        "stomp_py_client.py": [python, "-c", "import stomp"],
        "stompman_client.py": [python, "-c", "import stompman"],
        "aiostomp_client.py": [python, "-c", "import aiostomp"],
        "ruby_stomp_client.rb": ["ruby", "-e", "require 'stomp'"],
        "php_stomp_client.php": ["php", "-r", "exit(class_exists('Stomp') ? 0 : 1);"],
        "net_stomp_client.pl": ["perl", "-e", "use Net::Stomp; use JSON::PP; use Time::HiRes;"],
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


_NO_BEATS = ("heart-beats", "it has no heart-beats")
_TEXT = "it sends every body in a text message of WebSocket, which has to be UTF-8"
_RAW = ("escapes", "it writes and shows headers as they are")

OTHERS = (
    *(Row("stomp.py", version, False, "stomp_py_client.py") for version in ("1.0", "1.1", "1.2")),
    Row("stomp.py", "1.2", True, "stomp_py_client.py"),
    Row("stompman", "1.2", False, "stompman_client.py"),
    Row("stompman", "1.2", True, "stompman_client.py", (("binary", _TEXT), ("one-mebibyte", _TEXT))),
    Row("aiostomp", "1.1", False, "aiostomp_client.py"),
    *(Row("ruby-stomp", version, False, "ruby_stomp_client.rb") for version in ("1.0", "1.1", "1.2")),
    Row("php-stomp", "1.0", False, "php_stomp_client.php", (_NO_BEATS,)),
    Row("php-stomp", "1.1", False, "php_stomp_client.php", (_NO_BEATS, _RAW)),
    Row("Net::Stomp", "1.0", False, "net_stomp_client.pl", (_NO_BEATS,)),
    *(Row("Net::Stomp", version, False, "net_stomp_client.pl", (_NO_BEATS, _RAW)) for version in ("1.1", "1.2")),
    Row("stompjs", "1.0", True, "stompjs_client.js"),
    Row("stompjs", "1.1", True, "stompjs_client.js", (("escapes", "it escapes in 1.2 only"),)),
    Row("stompjs", "1.2", True, "stompjs_client.js"),
    Row("chromium", "1.2", True, "chromium_client.py"),
)

OURS = (
    *(Row("sync", version, False, "our_client.py") for version in ("1.0", "1.1", "1.2")),
    *(Row("asyncio", version, False, "our_client.py") for version in ("1.0", "1.1", "1.2")),
    Row("sync", "1.2", True, "our_client.py"),
    Row("asyncio", "1.2", True, "our_client.py"),
)
