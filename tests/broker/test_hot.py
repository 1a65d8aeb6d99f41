"""The compiled half of the broker: the same as its Python files, and no value makes it crash."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

import stompcodec
from stompcodec.broker import hot
from stompcodec.codec import BACKEND

TESTS = Path(__file__).parents[1]
PACKAGE = Path(stompcodec.__file__).parent
compiled = pytest.mark.skipif(not hot.COMPILED, reason="the modules of the broker are not compiled")


def run(program: str, *arguments: object, plain: str = "1", good: bool = True) -> str:
    """Run a program of tests/isolated, or some lines, with the modules compiled ("1") or not ("0")."""
    path = os.pathsep.join([str(TESTS), str(TESTS / "isolated"), str(PACKAGE.parent)])
    command = [str(TESTS / "isolated" / program)] if program.endswith(".py") else ["-c", program]
    done = subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, "STOMPCODEC_PLAIN": plain},
        capture_output=True,
        text=True,
        timeout=patience(300),
        check=False,
    )
    assert (done.returncode == 0) is good, done.stderr[-2000:]
    return done.stdout if good else done.stderr


def assert_twins(first: int, count: int) -> None:
    digests = run("twins.py", first, count)
    assert digests.count("\n") == count
    assert digests == run("twins.py", first, count, plain="0")
    assert digests == run("twins.py", first, count, "switching")


@compiled
def test_compiled_or_not_it_says_and_counts_the_same() -> None:
    assert_twins(0, 60)


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("first", range(1000, 9000, 2000))
def test_compiled_or_not_it_says_and_counts_the_same_for_long(first: int) -> None:
    assert_twins(first, 2000)


@compiled
def test_no_value_of_a_typed_field_makes_it_crash() -> None:
    classes, fields, values = map(int, re.findall(r"\d+", run("meddle.py", 0, 60)))
    assert classes > 15
    assert fields > 200
    assert values > 50


@pytest.mark.slow
@pytest.mark.no_asan
@compiled
@pytest.mark.parametrize("first", range(1000, 5000, 1000))
def test_no_value_of_a_typed_field_makes_it_crash_for_long(first: int) -> None:
    run("meddle.py", first, 1000)


def test_each_module_with_a_pxd_file_is_in_the_extension() -> None:
    folder = TESTS.parent / "stompcodec" / "broker"
    typed = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.pxd")}
    assert set(hot.MODULES) == typed | {"sessions.road", "storage.places"}


@pytest.mark.skipif(BACKEND != "c", reason="the broker is compiled for the C backend alone")
@pytest.mark.parametrize(("plain", "says"), [("2", "STOMPCODEC_PLAIN is '2': set it to 1 or 0"), ("", ""), ("0", "")])
def test_the_setting(plain: str, says: str) -> None:
    told = run("from stompcodec.broker import COMPILED; print(COMPILED)", plain=plain, good=not says)
    assert says in told
    if not says:
        assert told.strip() == str(hot.COMPILED and plain != "0" if plain else hot._extension("") is not None)


@compiled
def test_a_module_that_came_too_early_is_an_error() -> None:
    early = "import sys; sys.modules['stompcodec.broker.memory'] = sys; import stompcodec.broker"
    assert "stompcodec.broker.memory was imported before" in run(early, good=False)


@compiled
def test_heads_are_those_of_the_python_file() -> None:
    check = """
import importlib.util, random
from stompcodec.broker.message import Message
from stompcodec.broker.queues import heads
spec = importlib.util.spec_from_file_location("twin", FILE)
twin = importlib.util.module_from_spec(spec); spec.loader.exec_module(twin)
random.seed(1)
def octets(): return random.randbytes(random.randrange(30))
numbers = [0, 1, 9, 10, 2**31, 2**63 - 1]
for number in numbers:
    a, b, c = octets(), octets(), octets()
    assert heads.ident_of(a, number) == twin.ident_of(a, number)
    assert heads.head_of(a, b, c, number) == twin.head_of(a, b, c, number)
    assert heads.frame_of(a, b) == twin.frame_of(a, b)
    some = [Message(octets(), 1, "", octets()) for _ in range(number % 4)]
    assert heads.joined(a, some) == twin.joined(a, some)
for call, arguments in (("ident_of", (b"", -1)), ("head_of", (b"", b"", b"", -1)), ("ident_of", (None, 1)),
        ("ident_of", (b"", 2**63)), ("head_of", (b"", None, b"", 1)), ("frame_of", (b"", None)),
        ("frame_of", ("", b"")), ("joined", (None, [])), ("joined", (b"", [None])), ("joined", (b"", None))):
    try:
        getattr(heads, call)(*arguments)
    except (TypeError, ValueError, OverflowError, AttributeError):
        continue
    raise SystemExit(f"{call}{arguments} is no error")
"""
    run(check.replace("FILE", repr(str(PACKAGE / "broker" / "queues" / "heads.py"))))


@compiled
def test_a_missing_value_is_an_error_of_the_broker() -> None:
    """The session that meets it ends; without the checks of Cython, memory would be read past None."""
    check = """
import logging; logging.disable()
from broker.harness import Bench, FaultyStore
def outcome(change, **headers):
    bench = Bench(FaultyStore())
    one, two = bench.peer(), bench.peer()
    two.subscribe("/queue/a", ack="client-individual", prefetch_count="9")
    one.put("/queue/a", persistent="true")
    change(bench.queue(), bench.queue().consumers[0], one.session)
    one.session.receive(one.octets_of("SEND", b"x", destination="/queue/a", **headers), bench.now)
    return one.session.ended or two.session.failing
def of_queue(name): return lambda queue, consumer, session: setattr(queue, name, None)
for name in ("tally", "account", "bound"):
    assert outcome(of_queue(name)), name
assert outcome(of_queue("account"), persistent="true")
for name in ("outbox", "before", "unacked"):
    assert outcome(lambda queue, consumer, session: setattr(consumer, name, None)), name
assert not outcome(lambda *_: None)
"""
    run(check)
