"""What programs leave to `__del__`, generators and `atexit` ends at once, and says so, when the interpreter ends."""

import subprocess
import sys
from pathlib import Path

import pytest
from client.calls import CALLS
from patience import patience

#: What programs do beside the calls that wait, and the word that is printed then.
IN_DEL = {
    **{"close": ("o.client.close()", "done"), "close twice": ("o.client.close(); o.client.close(5)", "done")},
    "block": ("o.client.__exit__(None, None, None)", "done"),
    "block of a subscription": ("o.subscription.__exit__(None, None, None)", "done"),
    "iteration": ("next(o.subscription)", "LocalProtocolError"),
    "subscribe": ("o.client.subscribe('/queue/a')", "LocalProtocolError"),
    "health": ("assert not o.client.is_alive()", "done"),
    "a new client": ("s.connect(URL)", "LocalProtocolError"),
}
#: All of them in one program, in turn: they need no interpreter each.
TOGETHER = """
import sys
sys.path.insert(0, TESTS)
from client.calls import CALLS, objects
import stompcodec.client as s
class A:
    def __init__(self):
        vars(self).update(vars(objects(s.connect(URL))))
    def __del__(o):
        for name, work in PROGRAMS + list(CALLS.items()):
            try:
                exec(work) if type(work) is str else work(o)
                print(name, "done")
            except Exception as error:
                print(name, type(error).__name__)
a = A()
"""
ALONE = {
    "a generator that is left in its blocks": """
def g():
    with s.connect(URL) as c, c.subscribe("/queue/a"), c.transaction() as t:
        t.send("/queue/a")
        c.send("/queue/b", receipt=True)  # so that nothing is left to send
        yield c
x = g(); next(x)
""",
    "weakref.finalize": """
import weakref
class A: pass
a = A(); c = s.connect(URL); weakref.finalize(a, c.close)
""",
    "a daemon thread in a block": """
import threading
done = threading.Event()
def f():
    with s.connect(URL) as c:
        done.set()
        for m in c.subscribe("/queue/n"): pass
threading.Thread(target=f, daemon=True).start(); done.wait()
""",
}
#: Functions of `atexit` may use clients, wherever they were registered.
AT_EXIT = """
import atexit
def last():
    c.send("/queue/early", b"x", receipt=True)
    c.close()
    print("early", c.state)
atexit.register(last)
import stompcodec.client as s
c = s.connect(URL)
def first():
    c.send("/queue/late", b"x", receipt=True)
    with s.connect(URL) as other:
        print("late", other.subscribe("/queue/late").get(5).body)
atexit.register(first)
"""


def ended(program, broker):
    command = [sys.executable, "-c", f"URL = {broker.url!r}\n{program}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=patience(5), check=True)
    return result.stdout.splitlines(), result.stderr


def test_calls_in_del_end_at_once(broker):
    programs = [(name, work) for name, (work, _) in IN_DEL.items()]
    lines, errors = ended(f"PROGRAMS, TESTS = {programs!r}, {str(Path(__file__).parents[1])!r}\n{TOGETHER}", broker)
    wanted = {name: word for name, (_, word) in IN_DEL.items()} | dict.fromkeys(CALLS, "LocalProtocolError")
    assert (lines, errors) == ([f"{name} {word}" for name, word in wanted.items()], "")


@pytest.mark.parametrize("program", ALONE.values(), ids=ALONE)
def test_blocks_that_are_left_end_at_once(program, broker):
    assert ended(f"import stompcodec.client as s\n{program}", broker) == ([], "")


def test_functions_of_atexit_use_clients_as_ever(broker):
    assert ended(AT_EXIT, broker) == (["late b'x'", "early closed"], "")


def test_a_close_that_comes_too_late_says_what_was_not_sent(broker):
    program = """
import stompcodec.client as s
class A:
    def __init__(self):
        self.c = s.connect(URL)
        self.c._link.core.link.writable(False)
        self.c.send("/queue/a", b"x")
    def __del__(self):
        self.c.close()
a = A()
"""
    lines, errors = ended(program, broker)
    assert lines == []
    assert "1 frames were never sent" in errors
