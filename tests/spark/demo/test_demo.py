"""The demonstration: its feed, its proof, its parts, and all of it with a driver that is killed."""

import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import replace

import pytest
from patience import patience

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("rich")
pytest.importorskip("click")

from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import Frame, Parser, serialize
from stompcodec.spark.demo import main
from stompcodec.spark.demo.feed import ID_HEADER, TD, TRUST, Ledger, feed
from stompcodec.spark.demo.parts import Broker, DemoError, Driver, Producer
from stompcodec.spark.demo.proof import Proof, prove
from stompcodec.spark.demo.screen import Screen

NOW = 1_700_000_000_000


def messages(count, seed=0):
    return list(feed(count, clock=lambda: NOW, seed=seed))


def readable(body):
    try:
        return isinstance(json.loads(body.decode()), list)
    except ValueError:
        return False


# ---- the feed ----


@settings(max_examples=examples(30))
@given(st.integers(0, 1500), st.integers(0, 2**32))
def test_feed_has_exactly_the_shares_it_promises(count, seed):
    made = messages(count, seed)
    firsts = [message for message in made if not message.again]
    assert len(made) == count
    assert len(made) - len(firsts) == round(count * 0.01)
    assert len({message.id for message in firsts}) == len(firsts)
    assert sum(message.malformed for message in firsts) == round(count * 0.005)
    assert sum(message.late for message in firsts) == round(count * 0.01)


def test_feed_is_the_same_for_the_same_seed_and_another_for_another():
    assert messages(300, 7) == messages(300, 7)
    assert messages(300, 7) != messages(300, 8)


def test_second_copy_is_the_same_message_and_comes_later():
    first = {}
    copies = 0
    for message in messages(3000):
        if message.again:
            copies += 1
            assert (message.headers, message.body) == (first[message.id].headers, first[message.id].body)
        else:
            assert message.id not in first
            first[message.id] = message
    assert copies == 30


def test_bodies_are_lists_of_events_unless_malformed():
    kinds = Counter()
    for message in messages(4000):
        if message.malformed:
            assert not readable(message.body)
            assert message.events == 0
            continue
        items = json.loads(message.body)
        assert len(items) == message.events > 0
        for item in items:
            if message.destination == TD:
                ((name, told),) = item.items()
                assert name == f"{told['msg_type']}_MSG"
                kinds[name] += 1
            else:
                assert set(item) == {"header", "body"}
                kinds[item["header"]["msg_type"]] += 1
    assert set(kinds) == {"CA_MSG", "CB_MSG", "CC_MSG", "SF_MSG", "SG_MSG", "SH_MSG", "0001", "0003"}
    assert {message.destination for message in messages(4000)} == {TD, TRUST}


def test_late_messages_have_a_timestamp_that_is_long_past_and_others_have_not():
    for message in messages(2000):
        age = NOW - int(message.headers["timestamp"])
        assert (age >= 5 * 60_000) == message.late
        assert 0 <= age <= 90 * 60_000


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_every_message_goes_through_the_codec_and_comes_out_as_it_was(version):
    made = messages(1000)
    frames = [Frame("SEND", {"destination": message.destination, **message.headers}, message.body) for message in made]
    parser = Parser(version=version)
    back = list(parser.feed(b"".join(serialize(frame, version) for frame in frames)))
    assert [(frame.headers[ID_HEADER], frame.body) for frame in back] == [(each.id, each.body) for each in made]


# ---- the proof ----


def sink(folder, made, rows=None, quarantine=None, typed=0):
    """Files as the sink has them, of the messages in `made`."""
    columns = {
        "message_id": [f"m{message.id}" for message in made],
        "redelivered": [None for _ in made],
        "headers": pa.array([list(message.headers.items()) for message in made], pa.map_(pa.string(), pa.string())),
        "body": [message.body for message in made],
    }
    schema = {"redelivered": pa.bool_(), "message_id": pa.string(), "body": pa.binary()}
    table = pa.table({name: pa.array(each, schema.get(name)) for name, each in columns.items()})
    archive = folder / "destination=%2Fqueue%2Fa" / "part 0.parquet"
    archive.parent.mkdir(parents=True)
    pq.write_table(table, archive)
    wrong = quarantine if quarantine is not None else [message for message in made if message.malformed]
    ids = pa.array([f"m{message.id}" for message in wrong], pa.string())
    pq.write_table(pa.table({"message_id": ids}), folder / "quarantine.parquet")
    pq.write_table(pa.table({"n": list(range(typed))}), folder / "rows.parquet")
    return {
        "archive": [archive.as_uri()],
        "quarantine": [(folder / "quarantine.parquet").as_uri()],
        "rows": [(folder / "rows.parquet").as_uri()],
    }


@pytest.fixture
def sent():
    ledger = Ledger()
    made = messages(400)
    for message in made:
        ledger.add(message)
    return ledger, [message for message in made if not message.again]


def test_proof_of_a_sink_that_has_everything_once(tmp_path, sent):
    ledger, firsts = sent
    proof = prove(ledger, sink(tmp_path, firsts, typed=ledger.events), 0)
    assert proof.wrong == ()
    assert (proof.produced, proof.in_sink, proof.sent_twice, proof.malformed, proof.quarantined) == (396, 396, 4, 2, 2)
    assert proof.events == proof.typed_rows > 396


CHANGES = [
    ("missing", 2, lambda firsts: firsts[1:-1]),
    ("duplicates", 3, lambda firsts: firsts + firsts[5:8]),
    ("damaged", 1, lambda firsts: [replace(firsts[0], body=b"[]"), *firsts[1:]]),
    ("damaged", 1, lambda firsts: [*firsts, replace(firsts[0], headers={ID_HEADER: "of nobody"})]),
    ("damaged", 1, lambda firsts: [*firsts, replace(firsts[0], headers={})]),
]


@pytest.mark.parametrize(("field", "count", "change"), CHANGES)
def test_proof_finds_what_is_missing_doubled_or_damaged(tmp_path, sent, field, count, change):
    ledger, firsts = sent
    proof = prove(ledger, sink(tmp_path, change(firsts), typed=ledger.events), 0)
    assert getattr(proof, field) == count
    assert any(what.startswith(f"{count} ") for what in proof.wrong)


def test_proof_finds_what_is_wrong_beside_the_archive(tmp_path, sent):
    ledger, firsts = sent
    good = [message for message in firsts if not message.malformed]
    assert len(prove(ledger, sink(tmp_path / "a", firsts, typed=ledger.events), 3).wrong) == 1
    assert len(prove(ledger, sink(tmp_path / "b", firsts, quarantine=good[:2], typed=ledger.events), 0).wrong) == 1
    assert len(prove(ledger, sink(tmp_path / "c", firsts, typed=ledger.events - 1), 0).wrong) == 1


# ---- its parts ----


def test_producer_holds_where_it_should_and_accounts_for_what_the_broker_has(tmp_path):
    with Broker(tmp_path) as broker:
        producer = Producer(broker.url, 600, seed=1, rate=100_000, hold_at=450)
        producer.start()
        while producer.ledger.sent < 450:
            assert not producer.done
        assert producer.ledger.sent == 450
        producer.go_on()
        while not producer.done:
            pass
        assert (producer.ledger.sent, len(producer.ledger.bodies), producer.ledger.twice) == (600, 594, 6)
        assert broker.left() == 600
        assert broker.left() == 0
    expected = {message.id: zlib.crc32(message.body) for message in messages(600, 1)}
    assert producer.ledger.bodies.keys() == expected.keys()


def test_feed_goes_to_any_broker(tmp_path):
    with Broker(tmp_path) as broker:
        command = [sys.executable, "-m", "stompcodec.spark.demo.send", broker.url, "--frames", "300", "--rate", "1e6"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("300 messages sent and confirmed, 3 of them twice, 2 with")
        assert broker.left() == 300
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_driver_that_fails_is_reported_with_the_end_of_its_log(tmp_path):
    driver = Driver({}, tmp_path / "driver.log")
    with pytest.raises(DemoError, match=r"(?s)driver ended.*KeyError: 'folder'"):
        driver.wait("session")
    driver.close()


def test_folder_that_is_not_ours_is_left_alone(tmp_path, capsys):
    pytest.importorskip("pyspark")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit) as ended:
        main(["--folder", str(tmp_path)])
    assert ended.value.code == 2
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_table_shows_what_is_wrong_and_no_escape_sequences_in_a_pipe(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    proof = Proof(100, 98, 2, 0, 0, 0, 1, 0, 1, 1, 1, 500, 500, ("2 messages are missing in the sink",))
    result = {**proof.figures(), "wrong": list(proof.wrong), "killed": {"stored": 50, "sent": 60}}
    with Screen() as screen:
        screen.stage("begins")
        screen.show(1, 2, 3)
    screen.table({**result, "seconds": 1.0, "report": "there/report.html"})
    shown = capsys.readouterr().out
    assert "wrong: 2 messages are missing in the sink" in shown
    assert "not as it should be" in shown
    assert "\x1b" not in shown


# ---- all of it ----


@pytest.mark.slow
def test_demo_loses_and_doubles_nothing(tmp_path):
    pytest.importorskip("pyspark")
    folder = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "stompcodec.spark.demo", "--frames", "2000", "--folder", str(folder), "--json"],
        capture_output=True,
        text=True,
        timeout=patience(420),
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert (result["produced"], result["in_sink"], result["missing"], result["duplicates"]) == (1980, 1980, 0, 0)
    assert (result["sent_twice"], result["malformed"], result["quarantined"]) == (20, 10, 10)
    assert result["killed"]["stored"] < 1980
    assert "kill -9" in done.stderr
    page = (folder / "report" / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))["proof"]["missing"] == 0
