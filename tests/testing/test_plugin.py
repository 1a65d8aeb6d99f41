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

@pytest.mark.stomp_broker("prefetch")
def test_no_names(stomp_broker): ...

@pytest.mark.stomp_broker(no_such=1)
def test_no_such_field(stomp_broker): ...

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

@pytest.mark.stomp_faults(lose="RECIEPT")
def test_no_such_command(stomp_broker): ...
"""
CONFTEST = """
import pytest

@pytest.fixture
def stomp_broker_config():
    return {"priority": False, "prefetch": 6}
"""


def test_markers(run):
    output, counts = run(MARKERS, conftest=CONFTEST)
    assert counts == {"passed": 8, "failed": 1, "errors": 5}, output
    said = ("takes names and values only", "'no_such'", "ZeroDivisionError", "did you mean RECEIPT?")
    for text in (*said, "a fault never happened (see FrameFaults.strict): lose('RECEIPT', nth=1), after 0"):
        assert text in output
    assert "lose('MESSAGE'" not in output


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
