"""The plain road in C does not trust what it saw before it called Python. Each case runs in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import patience

import stompcodec
from stompcodec.broker.sessions import plain
from stompcodec.broker.sessions.transaction import Sending, Target

TESTS = Path(__file__).parents[2]
ROOT = str(Path(stompcodec.__file__).parents[1])
pytestmark = pytest.mark.skipif(plain.EXTENSION is None, reason="the plain road is not built, or switched off")

#: A broker with a queue that has a consumer and is full after each message, and its parts.
BEGIN = """
from contextlib import suppress
import logging; logging.disable()
from broker.harness import Bench, FaultyStore
from stompcodec.broker.sessions import plain
bench = Bench(FaultyStore(), max_queue_messages=1)
one, two = bench.peer(), bench.peer()
one.put("/queue/a", "first")
two.subscribe("/queue/a", id="1", ack="client-individual", prefetch_count="9", **SELECTOR)
(queue,), session = bench.broker.queues.values(), one.session
(consumer,), outbox = queue.consumers, two.session.outbox
acks = [frame.get("ack") for frame in two.take()]
def send(count=3, **headers):
    for _ in range(count):
        with suppress(AttributeError, TypeError):
            session.receive(one.octets_of("SEND", b"x", destination="/queue/a", **headers), bench.now)
class Tally:
    def __getattr__(self, name):
        meddle()
        return lambda *_: 1
class Selector:
    def matches(self, message):
        meddle()
        return True
"""
AUTO = "{'selector': 'x IS NULL'}"
CASES: dict[str, tuple[str, str]] = {
    "no overflow": ("{}", "del queue.overflow; send()"),
    "no account": (
        "{}",
        "queue.bound = queue.bound._replace(messages=10**9) if hasattr(queue.bound, '_replace') else queue.bound\n"
        "def meddle(): queue.account = None\nqueue.tally = Tally(); send()",
    ),
    "no ring": ("{}", "def meddle(): queue.ring = None\nqueue.tally = Tally(); send()"),
    "no ring by a selector": (
        AUTO,
        "def meddle():\n    with suppress(AttributeError): del queue.ring\nconsumer.selector = Selector(); send()",
    ),
    "no outbox by a selector": (
        AUTO,
        "def meddle(): consumer.outbox = None; two.session.outbox = None\nconsumer.selector = Selector(); send()",
    ),
    "no chunks by a selector": (AUTO, "def meddle(): outbox.chunks = 7\nconsumer.selector = Selector(); send()"),
    "no blocked senders": (
        "{}",
        "del queue.blocked\nwith suppress(AttributeError, TypeError):\n"
        "    two.session.receive(two.octets_of('ACK', id=acks[0]), bench.now)\nsend()",
    ),
    "a short target": (
        "{}",
        "from stompcodec.broker.sessions.transaction import Target\n"
        "one.send('BEGIN', transaction='t'); send(transaction='t')\n"
        "(transaction,) = session.transactions.values()\n"
        "transaction._target = tuple.__new__(Target, ()); send(transaction='t')",
    ),
}


def run(code, selector="{}"):
    """Run code behind BEGIN, or alone."""
    begin = "" if selector is None else BEGIN.replace("SELECTOR", selector)
    paths = [ROOT, str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", begin + code],
        env={**os.environ, "STOMPCODEC_PURE": "0", "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(100),
        cwd=TESTS / "isolated",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", CASES)
def test_a_field_that_goes(name: str) -> None:
    selector, code = CASES[name]
    assert run(code + "\nprint('end')", selector) == "end\n"


def meddle(first, count):
    return run(f"import sys, meddle; sys.argv = ['meddle', '{first}', '{count}']; meddle.main()", None)


def test_fields_that_change_at_any_time() -> None:
    assert meddle(430, 40) == "end\n"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_fields_that_change_at_any_time_for_long(first: int) -> None:
    """Ten thousand conversations."""
    assert meddle(first, 1_000) == "end\n"


def test_a_tuple_made_in_c_has_its_hash() -> None:
    """CPython 3.14 and later keep the hash of a tuple in it."""
    code = (
        "one.send('BEGIN', transaction='t'); send(transaction='t')\n"
        "(transaction,) = session.transactions.values()\n"
        "from types import SimpleNamespace as N\n"
        "from stompcodec.broker.message import Message; Message.__hash__ = object.__hash__\n"
        "made = transaction.operations\n"
        "assert len(made) == 3 and all(type(each).__name__ == 'Sending' for each in made), made\n"
        "same = [tuple(each) for each in made]; same = [type(each)(*each) for each in made]\n"
        "for each in made: each.target._replace(queue=None)\n"
        "transaction._target = None\n"
        "def digest(each):\n"
        "    try: return hash(each)\n"
        "    except TypeError: return 'unhashable'\n"
        "assert [digest(each) for each in made] == [digest(each) for each in same]\n"
        "assert 0 not in [digest(each) for each in made]\n"
        "print('end')"
    )
    assert run(code) == "end\n"


class NotATuple:
    """A class instead of the named tuples that C makes and reads."""

    __slots__ = ("destination", "message", "queue", "target")
    _fields = ("target", "message", "mark")


def prepare(**changed: Any) -> None:
    assert plain.EXTENSION is not None
    classes = {each.__name__: each for each in plain._CLASSES} | changed
    plain.EXTENSION.prepare(classes, (), (), (None,) * 8, None, plain.EACH, plain.MESSAGE, plain.OPERATION)


@pytest.mark.parametrize(
    "changed", [{"Target": NotATuple}, {"Sending": NotATuple}, {"Target": Sending}, {"Sending": Target}]
)
def test_classes_that_are_no_such_tuples_are_an_error_at_load(changed: dict[str, type]) -> None:
    """And then nothing has been learned: the road goes on as before."""
    with pytest.raises(TypeError, match="named tuple of"):
        prepare(**changed)
    test_fields_that_change_at_any_time()


def test_a_taker_is_offered_by_its_owner_alone() -> None:
    code = (
        "from stompcodec._codec_c import Parser\n"
        "class Keeper: pass\n"
        "keeper, road = Keeper(), plain.EXTENSION.Road(session, bench.broker)\n"
        "keeper.taker = road.taker\n"
        "for _ in range(2):\n"
        "    try: Parser('1.2')._offer(keeper)\n"
        "    except ValueError as error: print(error)\n"
        "    road = None\n"
        "    import gc; gc.collect()"
    )
    first, second = run(code).splitlines()
    assert "belongs to another object" in first
    assert "incorrect name" in second
