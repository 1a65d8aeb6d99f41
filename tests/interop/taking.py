"""What the tests on real servers share: messages that come, queues that are emptied, and verbs of the command line."""

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


def verb(url: str, *arguments: str, status: int | None = 0) -> Any:
    """Run a verb of the command line, which ends with this status; None for any."""
    pytest.importorskip("click")
    from click.testing import CliRunner

    from stompcodec.cli.app import app

    done = CliRunner().invoke(app, [*arguments, "--url", url, "--timeout", str(patience(20))])
    assert status in (None, done.exit_code), done.output
    return done
