"""What pub and req send as text: as the client does, which makes a TextMessage of it on a JMS broker."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner
from click.testing import CliRunner

from stompcodec.cli.app import app
from stompcodec.testing import StompBroker

TEXT = "text/plain;charset=utf-8"


@pytest.mark.parametrize("arguments", [("é",), ("-",), ("-l", "-")])
def test_text_is_sent_as_text(at: Runner, fresh: str, arguments: tuple[str, ...]) -> None:
    at.good("pub", fresh, *arguments, input="é".encode())
    (line,) = at.good("sub", fresh, "-n", "1", "--json").splitlines()
    assert (json.loads(line)["body"], dict(json.loads(line)["headers"])["content-type"]) == ("é", TEXT)


@pytest.mark.parametrize(
    ("body", "more"),
    [(b"\xff", ()), (b"a\0", ()), (b"a", ("-H", "content-encoding:gzip"))],
    ids=["latin", "NUL", "gzip"],
)
def test_what_is_not_text_gets_no_content_type(at: Runner, fresh: str, body: bytes, more: tuple[str, ...]) -> None:
    at.good("pub", fresh, "-", *more, input=body)
    (line,) = at.good("sub", fresh, "-n", "1", "--json").splitlines()
    assert "content-type" not in dict(json.loads(line)["headers"])


@pytest.mark.parametrize(
    ("arguments", "counted"),
    [
        (["hello"], False),
        (["{}", "-H", "content-type:application/json"], False),
        (["png", "-H", "content-type:image/png"], True),
    ],
)
def test_a_jms_broker_gets_text_without_content_length(arguments: list[str], counted: bool) -> None:
    with StompBroker(dialect="activemq") as broker:
        assert CliRunner().invoke(app, ["pub", "/queue/a", *arguments, "-u", broker.url]).exit_code == 0
        assert ("content-length" in broker.expect("SEND").headers) is counted


def test_lines_of_json_keep_what_they_were() -> None:
    lines = [{"command": "SEND", "headers": headers, "body": "x"} for headers in ([], [["content-length", "1"]])]
    with StompBroker(dialect="activemq") as broker:
        whole = "\n".join(map(json.dumps, lines))
        assert CliRunner().invoke(app, ["pub", "/queue/a", "--json", "-u", broker.url], input=whole).exit_code == 0
        found = [broker.expect("SEND").headers for _ in lines]
    assert ["content-length" in each for each in found] == [False, True]
    assert ["content-type" in each for each in found] == [True, False]
