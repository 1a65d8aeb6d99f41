"""Bring servers onto this machine, below one folder of caches: from Maven's repository, Debian or Go's module proxy."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from peers.table import NEEDS, TOOLS, Peer

#: The sources of the servers that are started from Java.
JAVA = Path(__file__).parent / "java"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>peer</groupId><artifactId>peer</artifactId><version>1</version>
  <packaging>pom</packaging><dependencyManagement><dependencies>{bom}</dependencies></dependencyManagement>
  <dependencies>{artifacts}</dependencies>
</project>
"""
_DEBOOTSTRAP = r"""
debootstrap --variant=minbase "$3" "$1" "$2"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
printf '#!/bin/sh\nexit 101\n' | install -m 755 /dev/stdin "$1/usr/sbin/policy-rc.d" # the package starts no broker
DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 LC_ALL=C.UTF-8 \
    chroot "$1" apt-get install -qq --no-install-recommends rabbitmq-server
rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/*
echo 127.0.0.1 localhost >"$1/etc/hosts"
mkdir -p "$1/data"
"""
#: A private namespace for mounts and processes, which ends with its first process.
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
_MIRROR = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian")


class PeerError(Exception):
    """A server could not be fetched, or did not start."""


def _said(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "" if done.returncode else done.stdout


def _absent(there: object, name: str) -> str:
    return "" if there else f"{name} is not installed (Debian: apt-get install {TOOLS.get(name, name)})"


@functools.cache
def _java_17() -> str:
    found = re.search(r'version "(\d+)', _said("java", "-version"))
    version = int(found[1]) if found else 0
    return "" if version >= 17 else f"Java {version or 'of an unknown version'} is too old: it needs 17"


def _root() -> str:
    if os.geteuid() != 0:
        return "it needs root"
    tried = subprocess.run([*APART, "true"], capture_output=True, check=False)
    return "this root may not mount (unshare failed)" if tried.returncode else ""


@functools.cache
def _mirror() -> str:
    return _said(*_MIRROR).partition("\n")[0] if shutil.which("apt-get") else ""


#: Of Debian's packages: the jars, and the script that does not change to another user.
ACTIVEMQ, RABBITMQ = Path("/usr/share/activemq/lib"), Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
#: What a server needs beside a program -> a function that returns why it is not so, or "".
CONDITIONS: dict[str, Callable[[], str]] = {
    "linux": lambda: "" if sys.platform == "linux" else "it runs on Linux only",
    "java 17": _java_17,
    "root": _root,
    "activemq jars": lambda: _absent(ACTIVEMQ.exists(), "activemq"),
    "rabbitmq-server": lambda: _absent(RABBITMQ.exists(), "rabbitmq-server"),
    "apt": lambda: "" if _mirror() else "no Debian mirror is among the sources of apt",
}


def missing(peer: Peer) -> str:
    """Return why a server cannot run on this machine, and what would help, or ""."""
    for need in NEEDS[peer.kind]:
        if reason := CONDITIONS[need]() if need in CONDITIONS else _absent(shutil.which(need), need):
            return reason
    return ""


def cache() -> Path:
    """Return the folder of everything that is fetched: stompcodec-peers in XDG_CACHE_HOME, or in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stompcodec-peers"


def folder_of(peer: Peer) -> Path:
    """Return where a server is, or will be; those that differ only in their options share it."""
    return cache() / f"{peer.main.lower() or peer.kind}-{peer.version}"


def _stamp(peer: Peer) -> str:
    """Return the key of an installed server: its coordinates and its source."""
    source = (JAVA / f"{peer.main}.java").read_text(encoding="utf-8") if peer.main else ""
    recipe = {"jars": _POM, "debian": _DEBOOTSTRAP}.get(peer.kind)
    return hashlib.sha256(repr((peer.artifacts, peer.bom, recipe, source)).encode()).hexdigest()


def is_fetched(peer: Peer) -> bool:
    """Return whether the server is in the cache, made from what the table says now."""
    made = folder_of(peer) / "made"
    return made.is_file() and made.read_text(encoding="utf-8") == _stamp(peer)


def fetch(peer: Peer, say: Callable[[str], None] = lambda line: None) -> Path:
    """Fetch a server unless it is in the cache, and return its folder. One process of this user at a time does that.
    `say` takes a line about the progress every few seconds.

    Raises:
        PeerError: something is missing here, or a command failed; with the end of its log.
    """
    folder = folder_of(peer)
    if is_fetched(peer):
        return folder
    if reason := missing(peer):
        raise PeerError(f"{peer.name} cannot run here: {reason}")
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_fetched(peer):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            _KINDS[peer.kind](peer, folder, say)
            (folder / "made").write_text(_stamp(peer), encoding="utf-8")
    return folder


def tail(log: Path, lines: int = 20) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def spawn(
    command: list[str],
    folder: Path,
    environment: Mapping[str, str],
    output: str,
    *,
    bound: bool = True,
    fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program that leads a session of its own; if it is bound, it is killed when the thread that calls ends."""
    with (folder / output).open("ab") as log:
        return subprocess.Popen(
            [*(["setpriv", "--pdeathsig", "KILL"] if bound else []), *command],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=fds,
        )


def _run(peer: Peer, command: list[str], folder: Path, say: Callable[[str], None], **environment: str) -> None:
    """Run a command to its end, its output in the file `log`; and say how much there is every few seconds."""
    began, before, what = time.monotonic(), shutil.disk_usage(folder).used, shlex.join(command[:3])
    say(f"{peer.name}: {what} …")
    process = spawn(command, folder, environment, "log")
    try:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
                continue
            size = max(0, shutil.disk_usage(folder).used - before) >> 20
            say(f"{peer.name}: {size} MB written after {time.monotonic() - began:.0f} s")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise PeerError(f"{peer.name}: {what} … ended with {process.returncode}:\n{tail(folder / 'log')}")


def _maven(*goal: str) -> list[str]:
    return ["mvn", "-B", "-ntp", f"-Dmaven.repo.local={cache() / 'maven'}", *goal]


def _dependency(coordinates: str, rest: str = "") -> str:
    names = ("groupId", "artifactId", "version")
    inner = "".join(f"<{name}>{word}</{name}>" for name, word in zip(names, coordinates.split(":"), strict=False))
    return f"<dependency>{inner}{rest}</dependency>"


def _jars(peer: Peer, folder: Path, say: Callable[[str], None]) -> None:
    bom = _dependency(peer.bom, "<type>pom</type><scope>import</scope>") if peer.bom else ""
    artifacts = "".join(map(_dependency, peer.artifacts))
    (folder / "pom.xml").write_text(_POM.format(bom=bom, artifacts=artifacts), encoding="utf-8")
    copied = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}")
    _run(peer, _maven(*copied), folder, say)
    _compile(peer, folder, say)


def _compile(peer: Peer, folder: Path, say: Callable[[str], None]) -> None:
    source = str(JAVA / f"{peer.main}.java")
    _run(peer, ["javac", "-nowarn", "-proc:none", "-cp", classpath(peer), "-d", str(folder), source], folder, say)


def classpath(peer: Peer) -> str:
    """Return where the classes of a server in Java are."""
    folder = folder_of(peer)
    return f"{folder}:{ACTIVEMQ}/*:{ACTIVEMQ}/optional/*" if peer.kind == "activemq" else f"{folder}:{folder}/*"


def _artemis(peer: Peer, folder: Path, say: Callable[[str], None]) -> None:
    artifact = f"org.apache.activemq:apache-artemis:{peer.version}:zip:bin"
    _run(peer, _maven("dependency:copy", f"-DoutputDirectory={folder}", f"-Dartifact={artifact}"), folder, say)
    archive = folder / f"apache-artemis-{peer.version}-bin.zip"
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    archive.unlink()
    (folder / f"apache-artemis-{peer.version}").rename(folder / "home")


def _debian(peer: Peer, folder: Path, say: Callable[[str], None]) -> None:
    say(f"{peer.name}: a Debian {peer.version} of its own, about 500 MB, one to three minutes")
    inside = ("bash", "-euc", _DEBOOTSTRAP, "made", str(folder / "root"), _mirror(), peer.version)
    _run(peer, [*APART, *inside], folder, say)


def _go(peer: Peer, folder: Path, say: Callable[[str], None]) -> None:
    module = "github.com/go-stomp/stomp/v3"
    (folder / "go.mod").write_text(f"module peer\ngo 1.21\nrequire {module} {peer.version}\n", encoding="utf-8")
    caches = {"GOMODCACHE": str(cache() / "go" / "modules"), "GOCACHE": str(cache() / "go" / "builds")}
    # The proxy has versions of it but no list of them, which `go install` wants.
    build = ["go", "build", "-mod=mod", "-modcacherw", "-o", "stompd", f"{module}/stompd"]
    _run(peer, build, folder, say, **caches)


_KINDS: dict[str, Callable[[Peer, Path, Callable[[str], None]], None]] = {
    **{"jars": _jars, "artemis": _artemis, "debian": _debian, "go": _go, "activemq": _compile},
    "rabbitmq": lambda peer, folder, say: None,
}
