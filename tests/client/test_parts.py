"""The small parts of the client: delays, deadlines, options, and the door."""

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.handlers import SubscribeOptions
from stompcodec.client.outbox import Calls, Deadlines

TREE = Path(__file__).parents[2]


def printed(*command, **options):
    options = {"capture_output": True, "text": True, "timeout": patience(120), **options}
    return subprocess.run([sys.executable, *command], **options)


@pytest.mark.parametrize(
    "wrong", [{"first": 0}, {"first": 60, "most": 30}, {"factor": 0.5}, {"jitter": 2}, {"attempts": 0}]
)
def test_delays_that_make_no_sense(wrong):
    with pytest.raises(ValueError, match=r"is "):
        stomp.Backoff(**wrong)


def test_calls_that_are_done_do_not_pile_up_behind_one_that_waits():
    deadlines, calls = Deadlines(), Calls()
    deadlines.add(calls.make("never answered", 30.0), 0.0)
    for _ in range(10_000):
        call = calls.make("answered", 30.0)
        deadlines.add(call, 0.0)
        call.done = True
    assert sum(map(len, deadlines._queues.values())) <= 2048


def test_it_needs_no_other_package():
    program = """
import sys
before = set(sys.modules)
import stompcodec.client
inner = {name.partition('.')[0] for name in set(sys.modules) - before}
known = sys.stdlib_module_names | {'stompcodec'}
print(sorted(name for name in inner - known if 'cython' not in name))  # the modules of Cython's runtime have no file
"""
    assert printed("-c", program).stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["Client", "Message", "Receipt", "Subscription", "Transaction"])
def test_both_shells_have_the_same_names(name):
    shells = getattr(stomp, name), getattr(stomp, f"Async{name}")
    names = [{name for name in dir(each) if not name.startswith("_")} for each in shells]
    assert names[0] == names[1]


def test_the_public_names_of_a_client():
    names = {name for name in dir(stomp.Client) if not name.startswith("_")}
    assert names == {
        *("addresses", "close", "connected", "dialect", "drain", "epoch", "error", "is_alive", "on_message", "open"),
        *("options", "ping", "receive", "request", "send", "send_for_receipt", "send_many", "state", "subscribe"),
        *("transaction", "version", "wait_connected"),
    }
    for name in names:
        assert getattr(stomp.Client, name).__doc__
    page = TREE / "docs" / "client.md"
    if page.exists():
        text = page.read_text("utf-8")
        assert [name for name in sorted(names) if not re.search(rf"\.{name}\b|`{name}[`(]", text)] == []


def test_the_client_for_threads_is_made_from_that_for_asyncio():
    script = TREE / "scripts" / "unasync.py"
    if not script.exists():
        pytest.skip("without the scripts")
    done = printed(script, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def kinds(options):
    return {name: kind.__forward_arg__ for name, kind in options.__annotations__.items()}


def test_options_that_are_passed_on_have_the_types_of_those_that_take_them():
    fields = {each.name: each.type for each in dataclasses.fields(stomp.Options)}
    assert fields == kinds(stomp.AsyncConnectOptions)
    assert {**fields, "middleware": "Sequence[Middleware]"} == kinds(stomp.ConnectOptions)
    for client in (stomp.Client, stomp.AsyncClient):
        taken = {name: each.annotation for name, each in inspect.signature(client.subscribe).parameters.items()}
        assert taken.keys() - kinds(SubscribeOptions).keys() == {"self", "destination", "handler"}
        for name, kind in kinds(SubscribeOptions).items():
            assert re.sub(r"\[\[(Async)?Message\]", "[[Any]", taken[name]) == kind


CONSUMER = Path(__file__).with_name("consumer.py")
WRONG = {number for number, line in enumerate(CONSUMER.read_text("utf-8").splitlines(), 1) if line.endswith("# wrong")}


@pytest.mark.long
@pytest.mark.skipif(not (TREE / "pyproject.toml").exists(), reason="without the settings of mypy")
def test_mypy_flags_what_is_wrong_in_a_program():
    """From the tree's root, where it shares the cache of `make check`."""
    done = printed("-m", "mypy", "--config-file", "pyproject.toml", CONSUMER, cwd=TREE)
    assert {int(number) for number in re.findall(r"consumer\.py:(\d+): error", done.stdout)} == WRONG, done.stdout
