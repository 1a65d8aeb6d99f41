"""Brokers by URL, and the tables of scripts/interop.py."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("POSIX only", allow_module_level=True)

from client.broker import BrokerThread
from interop import brokers
from interop.brokers import named, server_of
from interop.fields import place_of
from interop.run import Outcome

from stompcodec.broker.auth import User, hash_passcode

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "interop.py"


@pytest.mark.parametrize(
    "texts",
    [
        ["pika"],
        ["=stomp://h"],
        ["a="],
        ["a=http://u:secret@h"],
        ["a=stomp://u:secret@h:99999"],
        ["a=stomp://u:secret@h?x=1"],
        ["a=stomp://u:secret@h", "a=stomp://u:secret@h"],
        ["a=ws://u:secret@h"],
        ["a=stomp://u:secret@[h"],
    ],
)
def test_others_are_refused_without_their_passcode(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        named(texts)
    assert "secret" not in str(refused.value)


def test_a_broker_behind_tls_and_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trustme = pytest.importorskip("trustme")
    authority, pem, trusted = trustme.CA(), str(tmp_path / "own.pem"), str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    users = {"me": User("me", hash_passcode("se:cret", n=16))}
    with BrokerThread(tls_port=0, tls_cert=pem, tls_key=pem, users=users, dialect="rabbitmq") as broker:
        running = named([f"ours=stomp+ssl://me:se%3Acret@127.0.0.1:{broker.tls_port}/shop"])["ours"]
        with pytest.raises(OSError, match="certificate verify failed"), running.start():
            pass
        monkeypatch.setenv("SSL_CERT_FILE", trusted)
        with running.start() as target:
            assert (target.login, target.passcode, target.vhost, target.name) == ("me", "se:cret", "shop", "stompcodec")
            assert target.refuses == ("127.0.0.1", target.port, "")
            assert server_of(target) == brokers.SERVERS["ours"]
            place = place_of(target)
            assert place is not None
            assert (place.name, place.own) == ("rabbitmq", True)
            place.connect().close()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if not SCRIPT.is_file():
        pytest.skip("this is no checkout")
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("scripts_interop", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_outcomes_become_the_tables_of_the_page(script: ModuleType) -> None:
    tables, good = script.Tables(), Outcome("ok")

    def enter(function: str, outcome: Outcome, file: str = "test_clients.py", at: str = "", **parameters: Any) -> None:
        call, name = SimpleNamespace(params=parameters), f"{function}[{at}]"
        item = SimpleNamespace(originalname=function, name=name, path=Path(file), callspec=call)
        tables.enter(item, outcome)

    broker = brokers.STARTED["stompcodec"]
    for client, outcome in (("a", good), ("b", good), ("c", Outcome("n/a", "it cannot")), ("d", Outcome("FAIL", "no"))):
        row = SimpleNamespace(name=client)
        enter("test_our_client", good, broker=broker, row=row, check="connect")
        enter("test_our_client", outcome, broker=broker, row=row, check="one-mebibyte")
    enter("test_spark", good, broker=broker, check="read-spool")
    for at, outcome in (("activemq-1.0", Outcome("FAIL", "no")), ("activemq-1.2", good), ("rabbitmq-1.2", good)):
        enter("test_move_keeps_order", outcome, "test_queue_tools.py", at)
    enter("test_dead_letters_of_activemq_go_back", good, "test_queue_tools.py")
    enter("test_a_trace_through_all_brokers_is_one", good, "test_tracing.py")
    page = script.page(tables, {"RabbitMQ": "3.10.8", "x": ""})
    assert ": RabbitMQ 3.10.8, x.\n" in page
    assert "| Our client against our broker | a, b | 2 of 2 | |\n| | c | 1 of 2 | one mebibyte: it cannot |\n" in page
    assert "| | d | 1 of 2 | FAIL: one mebibyte: no |" in page
    assert "| what | our broker | RabbitMQ | ActiveMQ Classic |" in page
    assert (
        "| queue tools: move keeps order | - | ok | FAIL |\n| queue tools: dead letters go back | - | - | ok |" in page
    )
    assert "| traces: a trace through all brokers is one | ok | ok | ok |" in page
    assert "| broker | read spool |\n| --- | :-: |\n| our broker | ok |" in page


def test_what_needs_our_broker_is_left_out_without_it(script: ModuleType) -> None:
    named, parameters = "test_other_peoples_clients", ({"broker": None}, {"broker": brokers.STARTED["rabbitmq"]})
    items = [SimpleNamespace(originalname=named, path=SCRIPT, callspec=SimpleNamespace(params=p)) for p in parameters]
    left = items[1:]
    script.Tables().pytest_collection_modifyitems(items)
    assert items == left
