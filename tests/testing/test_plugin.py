"""The pytest plugin, in runs of pytest of their own: fixtures, markers, reports, and what it loads."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.fixture
def run(tmp_path):
    """Runs pytest on a text; what it prints, and the numbers of its last line."""

    def run(text, *arguments, conftest=""):
        (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
        (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
        command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *arguments, str(tmp_path)]
        options = {"cwd": tmp_path, "env": {**os.environ, "PY_COLORS": "0"}, "timeout": patience(120)}
        done = subprocess.run(command, capture_output=True, text=True, **options)
        assert "Traceback" not in done.stderr, done.stderr
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
        return done.stdout, {word: counts[word] for word in ("passed", "failed", "error", "errors") if word in counts}

    return run


FIXTURES = """
import asyncio, threading
import pytest
import stompcodec.client as stomp

@pytest.mark.parametrize("number", [1, 2])
def test_each_has_its_own(stomp_broker, number):
    assert stomp_broker.frames == []
    with stomp.connect(stomp_broker.url) as client:
        client.send("/queue/a", b"x", receipt=True)
    assert stomp_broker.queued("/queue/a") == 1
    assert [t.name for t in threading.enumerate()].count("stomp-broker") == 1

def test_client(stomp_broker, stomp_client):
    assert isinstance(stomp_client, stomp.Client)
    stomp_client.send("/queue/a", b"x")
    assert stomp_broker.expect("SEND", destination="/queue/a").body == b"x"
    assert stomp_broker.expect("CONNECT").get("heart-beat") in (None, "0,0")

def test_async_client_by_asyncio_run(stomp_broker, async_stomp_client):
    assert isinstance(async_stomp_client, stomp.AsyncClient)
    async def main(body):
        subscription = async_stomp_client.subscribe("/queue/b")
        await async_stomp_client.send("/queue/b", body, receipt=True)
        message = await subscription.get(60)
        await subscription.unsubscribe()
        return message.body
    assert asyncio.run(main(b"1")) == b"1"
    assert asyncio.run(main(b"2")) == b"2"      # another loop

def test_async_client_that_the_test_closes(async_stomp_client):
    async def main():
        async with async_stomp_client as client:
            await client.send("/queue/b", b"x", receipt=True)
        assert client.state == "closed"
    asyncio.run(main())

def test_async_client_whose_loop_is_gone(stomp_broker, async_stomp_client):
    async def main():
        async_stomp_client.subscribe("/queue/b", handler=print)
        await async_stomp_client.send("/queue/a", b"x", receipt=True)
    asyncio.run(main())

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_async_client_by_anyio(anyio_backend, stomp_broker, async_stomp_client):
    await async_stomp_client.send("/queue/a", b"x")
    assert (await stomp_broker.expect_async("SEND")).body == b"x"

def test_factory(stomp_broker, stomp_broker_factory):
    other = stomp_broker_factory(prefetch=3)
    assert other.port != stomp_broker.port
    assert other.config.prefetch == 3

def test_no_client_is_left():
    assert {t.name for t in threading.enumerate()} == {"MainThread"}
"""


def test_the_documentation_is_right(run):
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    output, counts = run("\n\n".join(blocks))
    assert counts == {"passed": 3}, output
    output, _ = run("", "--markers")
    assert "@pytest.mark.stomp_broker(**fields)" in output
    assert "@pytest.mark.stomp_faults(**faults)" in output


def test_fixtures(run):
    output, counts = run(FIXTURES)
    assert counts == {"passed": 9}, output


MARKERS = """
import pytest
import stompcodec.client as stomp

pytestmark = pytest.mark.stomp_broker(prefetch=7, max_attempts=2)

def test_of_the_module(stomp_broker):
    assert (stomp_broker.config.prefetch, stomp_broker.config.max_attempts) == (7, 2)
    assert stomp_broker.config.priority is False      # of the fixture in conftest.py

@pytest.mark.stomp_broker(prefetch=8, priority=True)
def test_the_nearest_wins(stomp_broker):
    assert (stomp_broker.config.prefetch, stomp_broker.config.max_attempts) == (8, 2)
    assert stomp_broker.config.priority is True

@pytest.mark.stomp_faults(refuse="not today")
def test_a_text(stomp_broker):
    with pytest.raises(stomp.RejectedError, match="not today"):
        stomp.connect(stomp_broker.url)

@pytest.mark.stomp_faults(refuse=True, silent=True)
def test_a_switch(stomp_broker):
    assert stomp_broker.faults.silent
    with pytest.raises(stomp.RejectedError):
        stomp.connect(stomp_broker.url)

@pytest.mark.stomp_faults(refuse=False, error={"command": "SEND", "message": "full", "nth": 2})
def test_arguments(stomp_client):
    stomp_client.send("/queue/a", b"1", receipt=True)
    with pytest.raises(stomp.RejectedError, match="full"):
        stomp_client.send("/queue/a", b"2", receipt=True)

@pytest.mark.stomp_faults(refuse="not today", strict=False)
def test_a_fixture_by_its_name(request):
    assert request.getfixturevalue("stomp_broker").config.prefetch == 7

def test_a_change_that_raises(stomp_broker, stomp_client):
    stomp_broker.faults.change("SEND", lambda frame: 1 / 0)
    stomp_client.send("/queue/a", b"x", receipt=True)

@pytest.mark.stomp_faults(lose="RECEIPT")
def test_a_fault_that_never_happens(stomp_broker): ...

@pytest.mark.stomp_faults(lose="RECEIPT", strict=False)
def test_a_fault_that_need_not_happen(stomp_broker): ...

@pytest.mark.xfail
@pytest.mark.stomp_faults(lose="MESSAGE")
def test_it_is_expected_to_fail(stomp_broker):
    assert False

@pytest.mark.stomp_faults(lose="MESSAGE")
def test_one_failure_is_enough(stomp_broker):
    assert False

@pytest.mark.stomp_broker(prefixes={"anycast": "/queue/", "multicast": "/topic/"}, redelivery_delay="0s")
def test_as_in_a_file(stomp_broker):
    assert (stomp_broker.config.anycast_prefix, stomp_broker.config.redelivery_delay.first) == ("/queue/", 0)

def test_the_module_is_not_meant(): ...
"""
#: Decorators of a test -> what its error says, in one line.
MISTAKES = {
    "stomp_faults(lose='RECIEPT')": "stomp_faults(lose='RECIEPT'): unknown command 'RECIEPT': did you mean RECEIPT?",
    "stomp_faults(loose='RECEIPT')": "stomp_faults(loose='RECEIPT'): write lose=",
    "stomp_faults(lose='SEND', nth=3)": "stomp_faults(nth=3): write lose=",
    "stomp_faults(error=('SEND', 'full'))": "stomp_faults(error=('SEND', 'full')): write ",
    "stomp_faults(error={'mesage': 'full'})": "stomp_faults(error={'mesage': 'full'}): ",
    "stomp_faults(cut={'command': 'ACK', 'nth': '2'})": "'nth': '2'}): nth is '2': it must be a whole number",
    "stomp_broker('prefetch')": "@pytest.mark.stomp_broker takes names and values only",
    "stomp_broker(no_such=1)": "stomp_broker: unknown argument 'no_such'",
    "stomp_broker(max_attempts=0)": "stomp_broker: queues.max_attempts: it must be a whole number, 1 to",
    "stomp_broker(prefetch=-1)": "stomp_broker: queues.prefetch: it must be a number of messages",
    "stomp_broker(durable='sometimes')": "stomp_broker: store.durable: it must be one of",
    "stomp_broker(redelivery_delay=0)": "stomp_broker: queues.redelivery_delay: it must be a time such as",
}
UNREAD = ("stomp_faults(lose='RECEIPT')", "stomp_broker(prefetch=1)")
CONFTEST = """
import pytest

@pytest.fixture
def stomp_broker_config():
    return {"priority": False, "prefetch": 6}
"""


def test_markers(run):
    output, counts = run(MARKERS, conftest=CONFTEST)
    assert counts == {"passed": 11, "failed": 1, "errors": 2}, output
    for text in (
        "ZeroDivisionError",
        "a fault never happened (see FrameFaults.strict): lose('RECEIPT', nth=1), after 0",
    ):
        assert text in output
    assert "lose('MESSAGE'" not in output


def test_a_mistake_in_a_marker_is_told_in_a_line(run):
    tests = [f"@pytest.mark.{mark}\ndef test_{at}(stomp_broker): ..." for at, mark in enumerate(MISTAKES)]
    tests += [f"@pytest.mark.{mark}\ndef test_unread_{at}(): ..." for at, mark in enumerate(UNREAD)]
    output, counts = run("\n".join(["import pytest", *tests]))
    assert counts == {"passed": len(UNREAD), "errors": len(tests)}, output
    said = [*MISTAKES.values(), *(f"@pytest.mark.{mark[:12]}: the test does not use the fixture" for mark in UNREAD)]
    assert [text for text in said if not any(text in line for line in output.splitlines())] == []
    assert len(output.splitlines()) < 6 * len(tests), output


OWN = """
import pytest
from stompcodec.testing import StompBroker

@pytest.fixture
def stomp_broker(request):
    with StompBroker(**request.node.get_closest_marker("stomp_broker").kwargs) as broker:
        yield broker

@pytest.mark.stomp_broker(prefetch=3)
def test_own(stomp_broker):
    assert stomp_broker.config.prefetch == 3
"""


@pytest.mark.parametrize(
    ("text", "option", "counts"),
    [(OWN, "-rA", {"passed": 1}), (OWN, "--setup-plan", {}), (MARKERS, "--setup-plan", {})],
)
def test_a_marker_may_be_read_by_others(run, text, option, counts):
    output, seen = run(text, option)
    assert seen == counts, output


SESSION = """
import pytest
import stompcodec.client as stomp
from stompcodec.testing import StompBroker

@pytest.fixture(scope="session")
def broker():
    with StompBroker() as broker:
        broker.faults.lose("BEGIN", times=None)  # it stays, and need not happen
        yield broker

@pytest.fixture(scope="session")
def other():
    with StompBroker() as broker:
        yield broker

@pytest.fixture(scope="session")
def client(broker):
    with stomp.connect(broker.url) as client:
        yield client

@pytest.fixture(scope="session")
def delay(broker):
    return broker.faults.delay("RECEIPT", 0.001, times=None)

def test_1(broker, other, client, delay):
    broker.expect("CONNECT")
    client.send("/queue/a", b"of the first", receipt=True)
    assert delay.happened == 1
    broker.faults.lose("NACK")
    broker.faults.silent = other.faults.silent = True

def test_2(broker, other, client, delay):
    broker.expect_none("SEND", timeout=0.01)
    assert not broker.faults.silent and not other.faults.silent
    broker.faults.change("SEND", lambda frame: None)
    client.send("/queue/a", b"of the second", receipt=True)

def test_3(broker, client):
    client.send("/queue/a", b"of the third", receipt=True)
    broker.faults.lose("NACK")
    assert False

def test_4(broker, client):
    client.send("/queue/a", b"of the fourth", receipt=True)
    broker.expect("SEND", body=b"of another", timeout=0.01)

def test_5(client, delay):
    client.send("/queue/a", b"of the fifth", receipt=True)
    assert delay.happened == 5

def test_6(broker):
    broker.faults.lose("NACK")
    assert False
"""


def test_a_broker_for_the_session_knows_its_tests(run):
    output, counts = run(SESSION)
    assert counts == {"passed": 3, "failed": 3, "errors": 2}, output
    errors = re.findall(r"ERROR at teardown of (\w+).*?\nE +(.*?)\n", output, re.DOTALL)
    assert [(name, text.split()[0]) for name, text in errors] == [
        ("test_1", "AssertionError:"),
        ("test_2", "TypeError:"),
    ]
    assert "of the first" not in output.partition("test_2")[2]
    shown = [min(2, output.count(f"of the {name}'")) for name in ("third", "fourth", "fifth")]
    assert shown == [1, 2, 0]  # the fourth with the difference, too, of which pytest shows more under CI
    assert "of one differs at byte 3" in output
    assert "stompcodec/testing" not in output
    assert "arguments.py" not in output


def test_what_a_failure_shows(run):
    output, counts = run(
        """
import stompcodec.client as stomp

def test_fails(stomp_broker, stomp_broker_factory):
    stomp_broker_factory()
    with stomp.connect(stomp_broker.url, login="ann", passcode="hush") as client:
        client.send("/queue/mine", b"x")
        stomp_broker.expect("SEND")
        assert False

def test_passes(stomp_broker, stomp_client):
    stomp_client.send("/queue/other", b"x", receipt=True)

def test_fails_without_a_broker():
    assert False
""",
        "-rA",  # what passed is shown, too
    )
    assert counts == {"failed": 2, "passed": 1}
    assert "STOMP frames (> to the broker, < from it)" in output
    assert re.search(r"> SEND destination='/queue/mine' .*\[expected\]", output)
    assert "passcode='***'" in output
    assert "STOMP frames of broker 2" in output
    assert output.count("STOMP frames") == 2
    assert "/queue/other" not in output


def test_it_loads_next_to_nothing():
    """It is loaded into every run of pytest where the package is installed."""
    text = """
import sys, pytest
before = set(sys.modules)
import stompcodec.testing.plugin
loaded = set(sys.modules) - before
wrong = [name for name in loaded if name in {"sqlite3", "ssl", "asyncio", "lark", "websockets", "click", "rich"}]
assert not wrong, wrong
assert not [name for name in loaded if name.startswith(("stompcodec.broker", "stompcodec.client"))]
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=patience(60))
