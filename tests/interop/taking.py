"""What the tests on real servers share: messages that come, queues that are emptied, and verbs of the command line."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import patience

import stompcodec.client as stomp


def taken(subscription: Any, seconds: float = 20) -> stomp.Message:
    message = subscription.get(patience(seconds))
    assert message is not None
    return message  # type: ignore[no-any-return]


def held(url: str, queue: str, quiet: float) -> list[stomp.Message]:
    """Take all messages of a queue, until none comes for so many seconds."""
    found = []
    with stomp.connect(url) as client, client.subscribe(queue, ack="client-individual", prefetch=1000) as subscription:
        while (message := subscription.get(quiet)) is not None:
            message.ack()
            found.append(message)
        client.ping()
    return found


@contextlib.contextmanager
def java(peer: Any, folder: Path, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program with the libraries of a server, on which JMS ones connect, until the block ends."""
    text = Path(__file__).with_name(program).read_text("utf-8")
    is_new = peer.row.name in ("activemq6", "spring")
    (folder / program).write_text(text if is_new else text.replace("jakarta", "javax"), "utf-8")
    core = peer.ports.get("core")
    factory = f"org.apache.activemq{'.artemis.jms.client' * (core is not None)}.ActiveMQConnectionFactory"
    there = [factory, f"tcp://127.0.0.1:{core or peer.ports['openwire']}"] if peer.row.name != "spring" else []
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", peer.classpath, str(folder / program), *there, *arguments]
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen(command, env={**os.environ, "LC_ALL": "C.UTF-8"}, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def jms(peer: Any, folder: Path, *arguments: str) -> list[str]:
    """Run Jms.java, which says what its arguments are; its output."""
    with java(peer, folder, "Jms.java", *arguments) as program:
        said = program.communicate(timeout=patience(120))[0]
        assert program.returncode == 0
    return said.splitlines()


def verb(url: str, *arguments: str, status: int | None = 0) -> Any:
    """Run a verb of the command line, which ends with this status; None for any."""
    pytest.importorskip("click")
    from click.testing import CliRunner

    from stompcodec.cli.app import app

    done = CliRunner().invoke(app, [*arguments, "--url", url, "--timeout", str(patience(20))])
    assert status in (None, done.exit_code), done.output
    return done
