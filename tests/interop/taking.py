"""What the tests on real servers share: messages that come, queues that are emptied, and verbs of the command line."""

import subprocess
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


def jms(peer: Any, folder: Path, *arguments: str) -> list[str]:
    """Run Jms.java, which says what its arguments are; its output."""
    text, port = Path(__file__).with_name("Jms.java").read_text("utf-8"), peer.ports.get("openwire")
    if peer.row.name != "activemq6":
        text = text.replace("jakarta.jms", "javax.jms")
    if port is None:
        text = text.replace("org.apache.activemq.Active", "org.apache.activemq.artemis.jms.client.Active")
    (folder / "Jms.java").write_text(text, "utf-8")
    url = f"tcp://127.0.0.1:{port or peer.ports['core']}"
    command = ["java", "-Dfile.encoding=UTF-8", "-cp", peer.classpath, str(folder / "Jms.java"), url, *arguments]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=patience(120), env={"LC_ALL": "C.UTF-8"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def verb(url: str, *arguments: str, status: int | None = 0) -> Any:
    """Run a verb of the command line, which ends with this status; None for any."""
    pytest.importorskip("click")
    from click.testing import CliRunner

    from stompcodec.cli.app import app

    done = CliRunner().invoke(app, [*arguments, "--url", url, "--timeout", str(patience(20))])
    assert status in (None, done.exit_code), done.output
    return done
