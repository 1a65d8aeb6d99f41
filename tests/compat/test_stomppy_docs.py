"""The examples of docs/coming-from-stomp-py.md run, and its table names what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from client.broker import BrokerThread
from compat.stomppy_peer import compat, needs_stomppy

import stompcodec.client
from stompcodec.client import Client, Message, Options, Transaction

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-stomp-py.md"

pytestmark = [needs_stomppy, pytest.mark.skipif(not PAGE.is_file(), reason="without the docs")]


def test_the_examples_run(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    try:
        with BrokerThread() as broker:
            names = {"host": "127.0.0.1", "port": broker.port}
            for block in blocks:
                exec(compile(block, PAGE.name, "exec"), names)
    finally:
        compat.install().undo()
    assert capsys.readouterr().out == "/queue/orders hello\n"


def test_the_names_of_our_client_exist():
    """What the second column calls."""
    column = " ".join(line.split(" | ")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if " | " in line)
    known = {
        *dir(stompcodec.client),
        *dir(Client),
        *dir(Message),
        *dir(Transaction),
        *inspect.signature(Options).parameters,
    }
    known |= {
        name for kind in (Client, Message) for call in vars(kind).values() if callable(call) for name in _names(call)
    }
    called = set(re.findall(r"\b([a-z_]+)(?:=|\()", column)) - {"failover", "stomp"}
    assert len(called) > 20
    assert called <= known | {"attempts", "unsubscribe"}, called - known


def _names(call):
    return inspect.signature(call).parameters if inspect.isfunction(call) else ()
