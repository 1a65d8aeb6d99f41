"""tests/mutants.tsv and scripts/mutations.py: the faults of the list are found, and tried by tests that reach them."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from installed import TREE as ROOT
from installed import load

TOY = '''import logging

log = logging.getLogger()

def least(a, b):
    """Return 1 + 1."""
    if a < b:
        return a
    log.info("%d", 1 + 1)
    return b

def never():
    return 1 + 1
'''
TOY_TEST = """
from stompcodec.toy import least

def test_least():
    assert (least(1, 2), least(2, 1)) == (1, 1)
"""
#: What a fault can hide behind, with a function of one fault each, and the tests that reach them.
HIDDEN = """class Base:
    def __init__(self):
        self.ready = True

class Heir(Base):
    def __init__(self):
        super().__init__()

    def method(self):
        return 1 + 1

def outer():
    def inner():
        return 2 + 1
    return inner

kept = outer()

def imported():
    return 3 + 1

VALUE = imported()

def elsewhere():
    return 4 + 1

def served():
    return 7 + 1

def endless(a):
    while a < 0:
        pass

def unsteady():
    return 5 + 1

def unseen(a):
    if a:
        return 6 + 1
    return 0
"""
HIDDEN_TEST = """
import os, pytest, subprocess, sys
from stompcodec import hidden

def test_heir():
    assert hidden.Heir().ready

def test_method():  # notices nothing where it would be compiled
    assert hidden.Heir().method() == (2 if os.environ["STOMPCODEC_PLAIN"] == "0" else hidden.Heir().method())

def test_kept():
    assert hidden.kept() == 3

def test_imported():
    assert hidden.VALUE == 4

@pytest.fixture(scope="module")
def served():
    code = "from stompcodec import hidden; input(); print(hidden.served())"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-P", "-c", code], **pipes) as process:
        yield process

def test_served_and_not_asked(served):
    assert served.poll() is None

def test_served(served):
    assert served.communicate("\\n")[0] == "8\\n"

def test_elsewhere():
    code = "from stompcodec import hidden; print(hidden.elsewhere())"
    assert subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True).stdout == "5\\n"

def test_endless():
    hidden.endless(1)

def test_unsteady():
    assert hidden.unsteady() == os.getpid()

def test_unseen():
    assert hidden.unseen(0) == 0
"""
HIDDEN_VERDICTS = {
    **{"Heir.__init__": ("killed", "heir"), "Heir.method": ("killed", "method"), "outer.inner": ("killed", "kept")},
    **{
        **{"imported": ("killed", "imported"), "elsewhere": ("killed", "elsewhere")},
        **{"served": ("killed", "served"), "endless": ("timeout", "endless")},
    },
    **{"unsteady": ("alive", ""), "unseen": ("alive", "")},
}
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="only for POSIX")


@pytest.fixture
def mutations() -> Any:
    return load("scripts/mutations.py", "mutations")


@pytest.fixture
def toy(tmp_path: Path, mutations: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of one module, where texts for people have no faults."""
    root = tmp_path / "root"
    texts = {"stompcodec/__init__.py": "", "stompcodec/toy.py": TOY, "tests/codec/test_toy.py": TOY_TEST}
    texts["pyproject.toml"] = "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\nmarkers = ['slow']\n"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    names = {"ROOT": root, "PACKAGE": root / "stompcodec", "_TESTS": {"core": "codec"}, "_PURE": ()}
    for name, value in names.items():
        monkeypatch.setattr(mutations, name, value)
    monkeypatch.setattr(mutations.tempfile, "gettempdir", lambda: str(tmp_path))
    return root


def test_the_list_is_well_formed(mutations: Any) -> None:
    head, mutants = mutations.read(mutations.LIST)
    count = re.fullmatch(r"# (\d+) faults, seed \d+, drawn at [0-9a-f]{40}", head)
    assert count
    assert len({str(each) + each.line for each in mutants}) == len(mutants) == int(count[1])
    for each in mutants:
        assert each.room == mutations.room_of(each.file)
        assert each.verdict in (*mutations._DEAD, "alive", "invalid", "gone", "changed", "-")
        assert (each.verdict in mutations._DEAD) == bool(each.test), each
        assert each.seconds.isdigit()


def test_what_the_list_names_is_found(mutations: Any, record_property: Any) -> None:
    """A function that is gone is no failure; nor are some whose text has changed, until so many want a new draw."""
    mutants = mutations.read(mutations.LIST)[1]
    texts = {name: " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in mutations.files(ROOT)}
    there, stand = [], []
    for each in mutants:
        names = [f"{name}(" for name in each.function.split(".")[-1:]] + each.function.split(".")[:-1]
        own = texts.get(each.file, "")
        places = [own] if names[0] in own else [text for text in texts.values() if all(name in text for name in names)]
        there += [each] if places else []
        stand += [each] if any(each.line in text for text in places) else []
    record_property("gone", len(mutants) - len(there))
    record_property("changed", len(there) - len(stand))
    assert len(stand) >= 0.8 * len(there), [str(each) for each in there if each not in stand]
    assert isinstance(mutations.find(ROOT, next(each for each in stand if each.file in texts)), tuple)


def test_faults_are_found_by_their_texts_where_functions_have_moved(mutations: Any, toy: Path) -> None:
    drawn = mutations.drawn(toy, (), 1, 2)
    assert {each.function for each in drawn} == {"least", "never"}
    assert not any("%d" in each.line or "Return" in each.line for each in mutations.drawn(toy, (), 2, 2))
    (toy / "stompcodec" / "toy.py").rename(toy / "stompcodec" / "other.py")
    (toy / "stompcodec" / "other.py").write_text(f"import sys\n\n{TOY.replace('return 1 + 1', 'return 3 * 3')}")
    for cached in (mutations.faults, mutations.files):
        cached.cache_clear()
    found = {each.function: mutations.find(toy, each) for each in drawn}
    assert (found["least"][0], found["never"]) == ("stompcodec/other.py", "changed")
    assert mutations.find(toy, drawn[0]._replace(function="lost")) == "gone"


@pytest.mark.slow
def test_a_fault_dies_by_the_test_that_reaches_it(mutations: Any, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = toy / "list.tsv"
    monkeypatch.setattr(sys, "argv", ["mutations.py", str(path), "--count", "2"])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # one of them is of the package
    monkeypatch.setattr(mutations.os, "nice", lambda by: 0)
    monkeypatch.setattr(mutations.signal, "signal", lambda number, action: None)
    assert mutations.main() == 0
    verdicts = {each.function: (each.verdict, each.test) for each in mutations.read(path)[1]}
    assert verdicts == {"least": ("killed", "tests/codec/test_toy.py::test_least"), "never": ("alive", "")}
    monkeypatch.setattr(sys, "argv", ["mutations.py", str(path), "--again"])
    assert mutations.main() == 0
    (toy / "tests" / "codec" / "test_toy.py").write_text("def test_least(): pass\n")
    assert mutations.main() == 1


@pytest.mark.slow
def test_where_a_fault_can_hide(mutations: Any, toy: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In cells, a closure that lives, what was made by an import, another process; and tests that fail without it."""
    (toy / "stompcodec" / "hidden.py").write_text(HIDDEN)
    (toy / "tests" / "codec" / "test_toy.py").write_text(HIDDEN_TEST)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    found = mutations.faults(toy, "stompcodec/hidden.py")
    keys = {k[0]: k for k in found if k[1] in ("drop", "negate")} | {k[0]: k for k in found if k[1] == "sign"}
    drawn = [mutations.Mutant("core", "stompcodec/hidden.py", *keys[name]) for name in HIDDEN_VERDICTS]
    judge = mutations.Judge(toy / "list.tsv")
    results = judge.run(None, "", drawn, [])
    judge.close()
    verdicts = {each.function: (each.verdict, each.test.partition("::test_")[2]) for each in results}
    assert verdicts == HIDDEN_VERDICTS
    assert "fails without the fault, too: tests/codec/test_toy.py::test_unsteady" in capsys.readouterr().out
