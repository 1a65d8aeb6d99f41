"""stompcodec conformance: our codec, a codec of somebody's, a broker; what fails is told, with its rules."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stompcodec.cli.app import app
from stompcodec.cli.conformity import suite
from stompcodec.cli.conformity.suite import Result as Case
from stompcodec.cli.conformity.suite import requirements_of, suite_folder
from stompcodec.testing import StompBroker

WRONG = """
from conformance import Adapter


class Wrong(Adapter):
    def decode(self, version, chunks, eof, limits, lenient):
        events = list(super().decode(version, chunks, eof, limits, lenient))
        return [event if event[0] != "frame" else (*event[:3], event[3].upper()) for event in events]


class Strict(Adapter):
    def decode(self, version, chunks, eof, limits, lenient):
        assert not lenient
        return super().decode(version, chunks, eof, limits, lenient)


class Half:
    def encode(self, version, command, headers, body, options, lenient):
        return Adapter().encode(version, command, headers, body, options, lenient)


ready = Adapter()
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["conformance", *map(str, arguments)])


def cases(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def all_vectors() -> list[dict[str, object]]:
    files = (suite_folder() / "vectors").glob("*.json")
    return [vector for path in files for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]]


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_codec.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("mode", [(), ("--lenient",)])
def test_our_codec(mode: tuple[str, ...]) -> None:
    result = run(*mode)
    assert result.exit_code == 0, result.output
    assert f"{len(all_vectors())} passed, 0 failed; 0 of " in result.stdout
    assert "escapes" in result.stdout
    assert "FAILED" not in result.stdout


def test_json_is_one_object_a_case() -> None:
    found = cases(run("--json", "--only", "escapes/"))
    assert {case["topic"] for case in found} == {"escapes"}
    assert {case["outcome"] for case in found} == {"passed"}
    assert len(found) > 20
    assert all(case["requirements"] for case in found)


def test_a_codec_that_is_wrong(modules: None) -> None:
    result = run("wrong_codec:Wrong", "--rules")
    assert result.exit_code == 1
    failed = result.stdout.count("FAILED ")
    assert failed > 50
    assert f" {failed} failed" in result.stdout
    assert "body b'" in result.stdout  # the reason
    rules = [line.split() for line in result.stdout.splitlines() if line.endswith((" failed", " passed"))]
    assert {outcome for _, outcome in rules} == {"passed", "failed"}
    names = [name for name, _ in rules]
    assert len(set(names)) == len(names) > 100
    assert f"{sum(outcome == 'failed' for _, outcome in rules)} of {len(rules)} rules broken" in result.stdout


def test_an_adapter_is_told_to_be_lenient(modules: None) -> None:
    assert run("wrong_codec:Strict", "--only", "escapes/").exit_code == 0
    assert run("wrong_codec:Strict", "--only", "escapes/", "--lenient").exit_code == 1


def test_what_an_adapter_lacks_is_skipped(modules: None) -> None:
    result = run("wrong_codec:Half", "--json")
    assert result.exit_code == 0
    found = cases(result)
    passed = {case["id"] for case in found if case["outcome"] == "passed"}
    assert passed == {vector["id"] for vector in all_vectors() if vector["kind"] == "encode"}
    skipped = [case for case in found if case["outcome"] == "skipped"]
    assert any("no decode" in str(case["reason"]) for case in skipped)


def test_an_adapter_may_be_ready_made(modules: None) -> None:
    assert run("wrong_codec:ready", "--only", "utf8/").exit_code == 0


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    vector = {
        "id": "MY-1",
        "kind": "encode",
        "version": "1.2",
        "requirements": ["S12-AUG-01"],
        "frame": {"command": "SEND", "headers": [["destination", "a"]]},
        "expect_wire_b64": "d3Jvbmc=",
    }
    source = json.loads((suite_folder() / "vectors" / "encode.json").read_text(encoding="utf-8"))
    vector["frame"] = source["vectors"][0]["frame"]
    (tmp_path / "mine.json").write_text(json.dumps({"vectors": [vector]}))
    result = run("stompcodec", tmp_path, "--json")
    assert result.exit_code == 1
    (case,) = cases(result)
    assert (case["topic"], case["id"], case["outcome"]) == ("mine", "MY-1", "failed")
    assert "b'wrong'" in str(case["reason"])


# ---- brokers ----


@pytest.fixture(scope="module")
def broker():
    with StompBroker(ws_port=0) as broker:
        yield broker


@pytest.mark.parametrize("url", ["url", "ws_url"])
def test_a_broker(broker: StompBroker, url: str) -> None:
    result = run(getattr(broker, url), "--only", "receipts/", "--json")
    found = cases(result)
    assert result.exit_code == 0, result.stdout
    assert len(found) > 5
    assert {case["outcome"] for case in found} == {"passed"}
    assert all(case["level"] and case["title"] for case in found)


def test_features_are_chosen(broker: StompBroker) -> None:

    def skipped(*more: str) -> set[object]:
        found = cases(run(broker.url, "--json", "--jobs", "16", "--only", "acknowledgement/", *more))
        assert all("needs " in str(case["reason"]) for case in found if case["outcome"] == "skipped")
        return {case["id"] for case in found if case["outcome"] == "skipped"}

    assert skipped() == {"AK-19", "AK-20", "AK-21"}
    assert skipped("--feature", "nack") == skipped("--all") == set()


def test_prefixes_of_destinations(broker: StompBroker) -> None:
    run(broker.url, "--only", "messages/MS-01", "--queue-prefix", "/queue/mine-", "--topic-prefix", "/topic/mine-")
    assert [seen for seen in broker.frames if "mine-" in (seen.get("destination") or "")]


def test_a_broker_that_breaks_rules(broker: StompBroker) -> None:
    broker.faults.lose("RECEIPT", times=None)
    result = run(broker.url, "--only", "receipts/", "--timeout", "0.1")
    broker.faults.clear()
    assert result.exit_code == 1
    assert "FAILED receipts/" in result.stdout
    assert "(MUST)" in result.stdout


@pytest.mark.parametrize("more", [(), ("--json",), ("--rules",), ("--all",)], ids=" ".join)
def test_a_broker_that_is_not_there(more: tuple[str, ...]) -> None:
    with StompBroker() as gone:
        url = gone.url
    for target in (url, url.removeprefix("stomp://"), url.replace("stomp:", "ws:")):
        result = run(target, *more)
        assert result.exit_code == 1
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert "Connection refused (is the broker running there? check TARGET)" in line


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no CONNECTED, but b'HTTP/1.1 400 Bad Request"),
        (b"\x16\x03\x01", "no CONNECTED, but"),
        (b"", "it closed the connection"),
        (b"ERROR\nmessage:Bad CONNECT\n\n\0", "CONNECT was rejected: Bad CONNECT (check --login"),
    ],
)
def test_a_port_without_a_broker_gets_no_verdict(answer: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            side, _ = listener.accept()
            with side:
                side.recv(65536)
                side.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        result = run(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert words in line


def test_a_broker_that_goes_away(broker: StompBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "_gone", lambda address, timeout: f"cannot connect to {address}: Connection refused")
    broker.faults.lose("RECEIPT", times=None)
    result = run(broker.url, "--only", "receipts/", "--timeout", "0.1", "--jobs", "1")
    broker.faults.clear()
    assert result.exit_code == 1
    assert result.stdout.count("FAILED") == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("stompcodec: the broker went away: cannot connect to")
    assert line.endswith("1 cases ran before")


# ---- wrong usage ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no_such_module:X",), "no_such_module"),
        (("json:NoSuch",), "not an adapter"),
        (("json",), "not an adapter"),
        (("stompcodec", "--only", "no such case"), "no case was selected"),
        (("stomp+ssl://localhost",), "stomp: and ws: only"),
        (("stomp://",), "stomp"),
        (("stompcodec", "/no/such/folder"), "does not exist"),
    ],
)
def test_wrong_usage(modules: None, arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_requirements_of() -> None:
    found = requirements_of(
        [
            Case("t", "1", ("S12-A-10", "S12-A-2"), "passed"),
            Case("t", "2", ("S12-A-10",), "failed"),
            Case("t", "3", ("S12-A-10",), "passed"),
            Case("t", "4", ("S12-B-1",), "skipped"),
        ]
    )
    assert list(found.items()) == [("S12-A-2", "passed"), ("S12-A-10", "failed")]
