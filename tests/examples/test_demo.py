"""The demonstration of examples/: its feed, its proof, and all of it with a driver that is killed."""

import json
import subprocess
import sys

import demo
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patience
from profiles import examples
from railway import Ledger, feed

NOW = 1_700_000_000_000


def messages(count, seed=0):
    return list(feed(count, clock=lambda: NOW, seed=seed))


@settings(max_examples=examples(30))
@given(st.integers(0, 1500), st.integers(0, 2**32))
def test_the_feed_has_exactly_the_shares_it_promises(count, seed):
    made = messages(count, seed)
    firsts = {message.id: message for message in made if not message.again}
    assert (made, len(made)) == (messages(count, seed), count)
    assert len(made) - len(firsts) == round(count * 0.01)
    assert sum(message.malformed for message in firsts.values()) == round(count * 0.005)
    assert sum(message.late for message in firsts.values()) == round(count * 0.01)
    assert all(vars(each) | {"again": False} == vars(firsts[each.id]) for each in made)


def proof(change=""):
    """The proof of a table with everything once, but for a change."""
    ledger = Ledger()
    for message in messages(400):
        ledger.add(message)
    rows = [(name, crc, False, f"m-{name}") for name, crc in ledger.bodies.items()]
    quarantined, typed, left = {f"m-{name}" for name in ledger.malformed}, ledger.events, 0
    if change == "missing":
        del rows[0], rows[-1]
    elif change == "duplicates":
        rows += rows[5:8]
    elif change == "damaged":
        rows = [(rows[0][0], 1, False, "m-0"), *rows[1:], ("of nobody", 2, False, "m-1")]
    elif change == "left_in_broker":
        left = 3
    elif change == "quarantined":
        quarantined.add(rows[0][3])
    elif change == "typed_rows":
        typed -= 1
    return demo.prove(ledger, rows, quarantined, typed, left)


def test_everything_once_is_proven():
    found = proof()
    assert found["wrong"] == []
    assert (found["produced"], found["in_sink"], found["sent_twice"], found["malformed"]) == (396, 396, 4, 2)
    assert "every message is in the sink, and once" in list(demo.table(found, 100))


@pytest.mark.parametrize(
    ("change", "count"),
    [
        *(("missing", 2), ("duplicates", 3), ("damaged", 2), ("left_in_broker", 3), ("quarantined", 3)),
        ("typed_rows", None),
    ],
)
def test_the_proof_finds_what_is_wrong(change, count):
    found = proof(change)
    assert len(found["wrong"]) == 1
    assert count is None or found[change] == count
    assert "not as it should be" in list(demo.table(found, 100))


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    done = subprocess.run(
        [sys.executable, demo.__file__, "--folder", tmp_path], capture_output=True, text=True, timeout=patience(60)
    )
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.slow
def test_the_demonstration_loses_and_doubles_nothing(tmp_path):
    pytest.importorskip("pyspark")
    command = [sys.executable, demo.__file__, "--frames", "2000", "--folder", tmp_path / "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(420))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    made = json.loads((tmp_path / "demo" / "report" / "report.json").read_text(encoding="utf-8"))["proof"]
    assert (made["produced"], made["in_sink"], made["missing"], made["duplicates"]) == (1980, 1980, 0, 0)
    assert (made["sent_twice"], made["malformed"], made["quarantined"]) == (20, 10, 10)
    assert "<svg" in (tmp_path / "demo" / "report" / "report.html").read_text(encoding="utf-8")
