"""-H does not overwrite what the client keeps account of: wrong usage, in one line."""

import pytest
from click.testing import CliRunner

from stompcodec.cli.app import app

SEND = ("destination", "receipt", "transaction", "subscription", "message-id")
CASES = [
    *(("pub /queue/a x", name) for name in SEND),
    *(("reply /queue/a x", name) for name in SEND),
    *(("req /queue/a x", name) for name in (*SEND, "reply-to", "correlation-id")),
    *(("sub /queue/a", name) for name in (*SEND, "id", "ack")),
    *(("record /queue/a -o nowhere", name) for name in (*SEND, "id", "ack")),
]


@pytest.mark.parametrize(("verb", "name"), CASES)
def test_a_header_of_the_client_is_wrong_usage(verb, name):
    result = CliRunner().invoke(app, [*verb.split(), "-H", "n:1", "-H", f"{name}:mine"])
    assert result.exit_code == 2
    *_, last = result.output.strip().splitlines()
    assert f"'{name}' is a header that the client writes itself" in last


def test_a_usual_prefetch_gives_way_to_a_header():
    from client.broker import BrokerThread

    with BrokerThread() as broker:
        verb = ["sub", "/queue/a", "-n", "1", "-u", broker.url, "-H", "prefetch-count:1"]
        assert CliRunner().invoke(app, ["pub", "/queue/a", "x", "-q", "-u", broker.url]).exit_code == 0
        result = CliRunner().invoke(app, verb)
        assert (result.exit_code, result.stdout) == (0, "x\n")
        other = CliRunner().invoke(app, [*verb, "--prefetch", "5"])
        assert other.exit_code == 1
        assert "give one of them" in other.stderr
