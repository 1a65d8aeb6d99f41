"""Idempotency keys: each SEND with a key is stored once, whoever sends it again, and whatever fails in between."""

import logging
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise

import pytest
from broker.harness import Bench, FaultyStore
from broker.keyed import QUEUE, held, raw_send, receipts, send
from broker.large import settle
from broker.unsure import Unsure

from stompcodec import Limits
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.routing.idempotency import MOST_OCTETS, Mark
from stompcodec.broker.storage.salvage import check, salvage
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import MemoryStore, SentKey

USERS = {name: User(name, hash_passcode("guest", n=16)) for name in ("ada", "eve")}
SPELLINGS = ("idempotency-key", "_AMQ_DUPL_ID")


# ---- once ----


@pytest.mark.parametrize("header", SPELLINGS)
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("delay", [b"", b"delay:5000\n"])
def test_a_second_send_has_its_receipt_and_is_not_stored(header, version, persistent, delay):
    bench = Bench()
    sender, other = bench.peer(version), bench.peer(version)
    more = b"persistent:%b\n" % persistent.encode() + delay
    for peer in (sender, sender, other):
        raw_send(bench, peer, header, "k", b"x", more)
        assert receipts(peer) == 1
    assert held(bench) == ["x"] * (not delay)
    assert len(bench.broker.delayed) == bool(delay)
    assert (bench.broker.stats.duplicates, bench.broker.stats.duplicates_changed) == (2, 0)
    assert len(list(bench.store.keys())) == (persistent == "true")


@pytest.mark.parametrize("header", SPELLINGS)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("letter", ["k", "ü"])
def test_a_key_that_is_too_long_is_an_error(header, inside, letter):
    bench = Bench()
    sender = bench.peer()
    size = len(letter.encode())
    raw_send(bench, sender, header, letter * (MOST_OCTETS // size))
    assert receipts(sender) == 1
    more = b""
    if inside:
        sender.send("BEGIN", transaction="t")
        more = b"transaction:t\n"
    raw_send(bench, sender, header, letter * (MOST_OCTETS // size + 1), more=more)
    error = sender.error()
    assert error.headers["message"] == "the idempotency key is too long"
    assert error.headers["receipt-id"] == "r"
    assert len(held(bench)) == 1


def test_another_body_is_confirmed_counted_and_logged_once_per_second(caplog):
    caplog.set_level(logging.WARNING)
    bench = Bench()
    sender = bench.peer()
    send(sender, "secret", "1")
    for body in ("2", "3", "4"):
        send(sender, "secret", body)
    bench.now += 1
    send(sender, "secret", "5")
    assert receipts(sender) == 5
    assert held(bench) == ["1"]
    assert (bench.broker.stats.duplicates, bench.broker.stats.duplicates_changed) == (4, 4)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "another body" in lines[0]
    assert "(3 such" in lines[1]
    assert "secret" not in caplog.text


def test_a_composite_destination_gets_what_it_lacks():
    bench = Bench(composite=True)
    sender = bench.peer()
    send(sender, "k", destination="/queue/a")
    for _ in range(2):
        send(sender, "k", destination="/queue/a,/queue/b")
    assert receipts(sender) == 3
    assert (held(bench, "/queue/a"), held(bench, "/queue/b")) == (["x"], ["x"])


# ---- scopes ----


@pytest.mark.parametrize("what", ["user", "client-id", "destination", "virtual host", "routing"])
def test_nobody_suppresses_the_message_of_another(what):
    bench = Bench(users={**USERS, "guest": USERS["ada"]}, virtual_hosts=("/", "other"), same_client="allow")

    def peer(login="ada", client="c", host="/"):
        made = bench.peer(connect=False)
        made.connect(login=login, client_id=client, host=host)
        return made

    first, second, where, more = peer(), peer(), QUEUE, {}
    if what == "user":
        second = peer(login="eve")
    elif what == "client-id":
        second = peer(client="d")
    elif what == "virtual host":
        second = peer(host="other")
    elif what == "destination":
        where = "/queue/b"
    else:
        where, more = "plain", {"destination-type": "MULTICAST"}
        send(first, "k", destination=where, persistent="true", **{"destination-type": "ANYCAST"})
    send(first, "k", persistent="true")
    send(second, "k", destination=where, persistent="true", **more)
    assert bench.broker.stats.duplicates == 0
    assert len(bench.broker.sent.scopes) == 2 + (what == "routing")
    for again in range(2):
        send(second, "k", destination=where, persistent="true", **more)
        assert bench.broker.stats.duplicates == again + 1


# ---- transactions ----


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("how", ["abort", "lose", "open"])
def test_a_send_that_was_not_committed_is_none(how, persistent):
    bench = Bench()
    sender, other = bench.peer(), bench.peer()
    sender.send("BEGIN", transaction="t")
    send(sender, "k", transaction="t", persistent=persistent)
    if how == "abort":
        sender.send("ABORT", transaction="t")
    elif how == "lose":
        sender.lose()
    send(other, "k", "kept", persistent=persistent)
    assert receipts(other) == 1
    assert held(bench) == ["kept"]
    if how == "open":  # the other one has taken effect first
        sender.send("COMMIT", transaction="t", receipt="c")
        assert receipts(sender) == 2
        assert held(bench) == ["kept"]


# ---- windows and memory ----


@pytest.mark.parametrize(("age", "known"), [(50.0, 1), (-50.0, 1), (98.9, 1), (101.0, 0)])
def test_time_passes_while_the_broker_is_down(age, known):
    store = MemoryStore()
    store.remember(SentKey(1, b"s" * 24, b"k", 0, 1_000_000.0 - age))
    store.commit()
    bench = Bench(store, key_window=100.0)
    bench.now = 1.0  # the first look
    bench.broker.tick(bench.now)
    bench.turn()
    assert len(bench.broker.sent) == len(list(store.keys())) == known
    bench.wait(102)
    bench.turn()
    assert len(bench.broker.sent) == 0, "a clock that was put back does not make it live longer"


def test_expiry_takes_a_share_of_a_turn_at_a_time():
    bench = Bench(key_window=10.0)
    sent = bench.broker.sent
    for number in range(3 * AT_ONCE):
        sent.enter(Mark(b"%024d" % (number % 7), b"%d" % number, 0), 0.0, stored=False)
    bench.now = 20.0
    steps = sent.sweep(20.0)
    assert steps is not None
    assert sent.sweep(20.0) is None, "one at a time"
    left = [len(sent)]
    left += [len(sent) for _ in steps]
    assert max(before - after for before, after in pairwise(left)) <= AT_ONCE
    assert len(sent) == 0
    bench.audit()


def test_the_user_with_most_keys_loses_the_oldest_when_memory_is_short():
    """However many scopes somebody makes: what others have stays."""
    small = {"limits": Limits(max_headers=20, max_header_line=500, max_body=20_000), "large": 20_000}
    bench = Bench(users=USERS, memory=2**21, **small)
    part = bench.broker.sent.part
    ada, eve = bench.peer(connect=False), bench.peer(connect=False)
    ada.connect(login="ada")
    eve.connect(login="eve")
    for number in range(20):
        send(ada, f"k{number}", destination="/topic/t", persistent="true")
    frames = [
        eve.octets_of("SEND", b"x", destination=f"/topic/{number}", idempotency_key=f"k{number}", persistent="true")
        for number in range(part.limit // 1000)
    ]
    for at in range(0, len(frames), 500):
        eve.raw(b"".join(frames[at : at + 500]))
        assert part.used <= part.limit
    assert part.used > part.limit * 0.9
    assert len(bench.broker.sent) == len(list(bench.store.keys()))
    for number in range(20):
        send(ada, f"k{number}", destination="/topic/t", persistent="true")
    assert bench.broker.stats.duplicates == 20
    assert bench.broker.sent.cost == part.used
    bench.audit()


def test_fewer_keys_are_kept_when_the_configuration_says_so():
    store = MemoryStore()
    for number in range(1, 11):
        store.remember(SentKey(number, b"s" * 24, b"%d" % number, 0, 1_000_000.0))
    store.commit()
    bench = Bench(store, max_keys=4)
    bench.turn()
    assert [key.number for key in store.keys()] == [7, 8, 9, 10]
    bench.audit()


# ---- the disk ----


@pytest.mark.parametrize("destination", [QUEUE, "/topic/t"])
@pytest.mark.parametrize("fails", [False, True])
def test_nobody_gets_it_before_it_is_stored(fails, destination):
    """After a crash in between it would come with another message-id, and unmarked."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, consumer = bench.peer(), bench.peer()
    consumer.subscribe(destination, ack="client")
    send(sender, "k", destination=destination, persistent="true")
    send(sender, None, "behind", destination=destination)
    assert consumer.take() == []
    store.faulty = fails
    store.finish()
    store.faulty = False
    bench.turn()
    assert consumer.bodies() == ([b"behind"] if fails else [b"x", b"behind"])


# ---- restarts ----


def test_keys_outlive_a_restart_and_a_crash(tmp_path):
    bench = Bench(SqliteStore(tmp_path / "data"))
    sender = bench.peer()
    for number in range(5):
        send(sender, f"k{number}", str(number), persistent="true")
    send(sender, "volatile", "gone")
    assert receipts(sender) == 6
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    bench.broker.stop(bench.now)
    bench.turn()
    bench.store.close()
    for name in ("data", "crashed"):
        found = check(tmp_path / name)
        assert (found.whole, found.keys) == (True, 5)
        again = Bench(SqliteStore(tmp_path / name))
        sender = again.peer()
        for number in range(6):
            send(sender, f"k{number}", str(number), persistent="true")
        send(sender, "volatile", "there")
        assert receipts(sender) == 7
        assert held(again) == ["0", "1", "2", "3", "4", "5", "there"]
        again.audit()
        again.store.close()


@pytest.mark.parametrize(
    "change",
    [
        "scope = x'00'",
        "key = x'00'",
        "body = body + 1",
        "at = at + 1",
        "crc = 0",
        "key = 7",
        "body = 'x'",
        "number = 99",
    ],
)
def test_a_damaged_key_is_reported_and_the_others_count(change, tmp_path):
    bench = Bench(SqliteStore(tmp_path / "data"))
    for number in range(3):
        send(bench.peer(), f"k{number}", persistent="true")
    bench.store.close()
    with closing(sqlite3.connect(tmp_path / "data" / "messages.sqlite", isolation_level=None)) as other:
        other.execute(f"UPDATE sent SET {change} WHERE number = 2")
    found = check(tmp_path / "data")
    assert found.problems == ["1 rows of the table sent, idempotency keys, are damaged"]
    assert salvage(tmp_path / "data", tmp_path / "new").keys == 2
    again = Bench(SqliteStore(tmp_path / "data"))
    assert again.store.damage.findings == 1
    for number in (0, 2, 1, 1):
        send(again.peer(), f"k{number}", persistent="true")
    assert again.broker.stats.duplicates == 3
    again.store.close()


def test_a_failed_commit_that_is_on_the_disk_is_taken_back(tmp_path):
    """The COMMIT says that it failed, and has written nevertheless."""
    store = SqliteStore(tmp_path / "data")
    bench = Bench(store)
    sender = bench.peer()
    writer = store._writer
    writer._db = Unsure(writer._db)
    sender.session.receive(
        sender.octets_of("SEND", b"x", destination=QUEUE, persistent="true", idempotency_key="k", receipt="r"), 0.0
    )
    settle(bench)
    assert sender.error()
    send(bench.peer(), "l", persistent="true")
    store.close()
    store = SqliteStore(tmp_path / "data")
    assert len(list(store.keys())) == len(list(store.load())) == 1
    store.close()
