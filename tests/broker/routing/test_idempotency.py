"""Idempotency keys: each SEND with a key is stored once, whoever sends it again, and whatever fails in between."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Bench, Peer
from broker.keyed import QUEUE, held, raw_send, receipts, send

from stompcodec import Limits
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.config.config import DIALECTS, Config
from stompcodec.broker.config.file import parse_config
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.routing.idempotency import MOST_OCTETS, Mark
from stompcodec.broker.storage.store import MemoryStore, SentKey
from stompcodec.errors import ConfigError

USERS = {name: User(name, hash_passcode("guest", n=16)) for name in ("ada", "eve")}
SPELLINGS = ("idempotency-key", "_AMQ_DUPL_ID")


# ---- once ----


@pytest.mark.parametrize("header", SPELLINGS)
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_second_send_has_its_receipt_and_is_not_stored(header: str, version: str, persistent: str) -> None:
    bench = Bench()
    sender, other = bench.peer(version), bench.peer(version)
    more = b"persistent:%b\n" % persistent.encode()
    for peer in (sender, sender, other):
        raw_send(bench, peer, header, "k", b"x", more)
        assert receipts(peer) == 1
    assert held(bench) == ["x"]
    assert (bench.broker.stats.duplicates, bench.broker.stats.duplicates_changed) == (2, 0)
    assert len(list(bench.store.keys())) == (persistent == "true")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("header", SPELLINGS)
def test_in_every_dialect(dialect: str, header: str) -> None:
    bench = Bench(**DIALECTS[dialect])
    sender = bench.peer()
    for _ in range(2):
        raw_send(bench, sender, header, "k")
        assert receipts(sender) == 1
    (queue,) = bench.broker.queues.values()
    assert len(queue.messages) == 1


@pytest.mark.parametrize("header", SPELLINGS)
def test_over_the_legacy_listener(header: str) -> None:
    bench = Bench()
    sender = Peer(bench, "legacy", listener="legacy")
    sender.parser.version = "legacy"
    sender.raw(b"CONNECT\nusername:guest\npasscode:guest\n\n\0")
    assert sender.next().command == "CONNECTED"
    for _ in range(2):
        raw_send(bench, sender, header, "k")
    assert held(bench) == ["x"]


def test_both_spellings_are_one_key_and_the_first_one_counts() -> None:
    bench = Bench()
    sender = bench.peer()
    raw_send(bench, sender, "_AMQ_DUPL_ID", "k", b"1")
    raw_send(bench, sender, "idempotency-key", "k", b"1")
    raw_send(bench, sender, "idempotency-key", "other", b"2", b"_AMQ_DUPL_ID:k\n")
    assert held(bench) == ["1", "2"]


@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_an_empty_key_is_none(version: str) -> None:
    bench = Bench()
    sender = bench.peer(version)
    for _ in range(2):
        raw_send(bench, sender, "idempotency-key", "")
    assert held(bench) == ["x", "x"]


def test_spaces_around_a_key_mean_nothing_in_1_0() -> None:
    bench = Bench()
    old = bench.peer("1.0")
    raw_send(bench, old, "idempotency-key", " k ")
    raw_send(bench, bench.peer("1.2"), "idempotency-key", "k")
    assert held(bench) == ["x"]


def test_the_key_stays_on_the_message() -> None:
    bench = Bench()
    consumer = bench.peer()
    consumer.subscribe(QUEUE)
    send(bench.peer(), "k")
    assert consumer.next("MESSAGE").headers["idempotency-key"] == "k"


@pytest.mark.parametrize("header", SPELLINGS)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("letter", ["k", "ü"])
def test_a_key_that_is_too_long_is_an_error(header: str, inside: bool, letter: str) -> None:
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


def test_a_window_of_0_turns_it_off() -> None:
    bench = Bench(key_window=0.0)
    sender = bench.peer()
    for _ in range(2):
        send(sender, "k" * 1000)
    assert held(bench) == ["x", "x"]


@pytest.mark.parametrize(("written", "found"), [("0", 0.0), ("0.5", 0.5), ('"1h"', 3600.0)])
def test_the_window_of_a_file(written: str, found: float) -> None:
    assert parse_config(f"[idempotency]\nwindow = {written}").key_window == found


@pytest.mark.parametrize("written", ["-1", "true", '"1w"', "nan"])
def test_a_window_that_is_none(written: str) -> None:
    with pytest.raises(ConfigError, match=r"idempotency.window: it must be a time"):
        parse_config(f"[idempotency]\nwindow = {written}")


def test_another_body_is_confirmed_counted_and_logged_once_per_second(caplog: Any) -> None:
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


def test_a_large_message_comes_once(tmp_path: Path) -> None:
    bench = Bench(large=2000, large_folder=str(tmp_path / "large"))
    sender = bench.peer()
    for body in ("x" * 5000, "x" * 5000, "y" * 5000):
        send(sender, "k", body)
    assert receipts(sender) == 3
    assert len(bench.broker.queues["/", QUEUE].messages) == 1
    assert (bench.broker.stats.duplicates, bench.broker.stats.duplicates_changed) == (2, 1)
    assert bench.broker.spool.octets == 5000, "the files of the others are gone"


def test_a_topic_and_its_durable_subscription_get_it_once() -> None:
    bench = Bench()
    plain, lasting, sender = bench.peer(), bench.peer(connect=False), bench.peer()
    lasting.connect(client_id="c")
    plain.subscribe("/topic/t")
    lasting.subscribe("/topic/t", durable_subscription_name="n")
    for _ in range(2):
        send(sender, "k", destination="/topic/t", persistent="true")
    assert receipts(sender) == 2
    assert plain.bodies() == lasting.bodies() == [b"x"]


def test_what_nobody_listens_to_was_sent_nevertheless() -> None:
    bench = Bench()
    sender, listener = bench.peer(), bench.peer()
    send(sender, "k", destination="/topic/t", persistent="true")
    assert receipts(sender) == 1
    listener.subscribe("/topic/t")
    send(sender, "k", destination="/topic/t", persistent="true")
    assert receipts(sender) == 1
    assert listener.take() == []
    assert len(list(bench.store.keys())) == 1


def test_a_delayed_message_comes_once() -> None:
    bench = Bench()
    sender = bench.peer()
    for _ in range(2):
        send(sender, "k", delay="5000")
    assert receipts(sender) == 2
    assert len(bench.broker.delayed) == 1


def test_a_composite_destination_gets_what_it_lacks() -> None:
    bench = Bench(composite=True)
    sender = bench.peer()
    send(sender, "k", destination="/queue/a")
    for _ in range(2):
        send(sender, "k", destination="/queue/a,/queue/b")
    assert receipts(sender) == 3
    assert (held(bench, "/queue/a"), held(bench, "/queue/b")) == (["x"], ["x"])


def test_a_second_send_is_confirmed_where_a_first_one_would_be_refused() -> None:
    """The queue is full, or the disk is: an ERROR would say that the first one was not stored."""
    bench = Bench()
    sender = bench.peer()
    headers = {"x-max-length": "1", "x-overflow": "reject-publish"}
    sender.subscribe(QUEUE, ack="client", prefetch_count="1", **headers)
    send(sender, "k", persistent="true")
    bench.broker.journal.short = True
    other = bench.peer()
    send(other, "k", persistent="true")
    assert receipts(other) == 1
    send(other, "another", persistent="true")
    assert other.error()


# ---- scopes ----


@pytest.mark.parametrize("what", ["user", "client-id", "destination", "virtual host", "routing"])
def test_nobody_suppresses_the_message_of_another(what: str) -> None:
    bench = Bench(users={**USERS, "guest": USERS["ada"]}, virtual_hosts=("/", "other"), same_client="allow")

    def peer(login: str = "ada", client: str = "c", host: str = "/") -> Peer:
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


def test_who_comes_back_with_the_same_names_has_the_same_scope() -> None:
    bench = Bench(users=USERS)
    for _ in range(3):
        sender = bench.peer(connect=False)
        sender.connect(login="ada", client_id="c")
        send(sender, "k")
        sender.lose()
    assert held(bench) == ["x"]


def test_a_temporary_queue_of_another_session_is_another_destination() -> None:
    bench = Bench()
    for _ in range(2):
        peer = bench.peer()
        peer.subscribe("/temp-queue/t")
        send(peer, "k", destination="/temp-queue/t")
        assert [frame.command for frame in peer.take()] == ["MESSAGE", "RECEIPT"]
        peer.lose()


# ---- transactions ----


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("how", ["abort", "lose", "open"])
def test_a_send_that_was_not_committed_is_none(how: str, persistent: str) -> None:
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


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("count", [3, AT_ONCE + 10])
def test_a_transaction_that_comes_again_changes_nothing(persistent: str, count: int) -> None:
    bench = Bench()
    for sender in (bench.peer(), bench.peer()):
        sender.send("BEGIN", transaction="t")
        frames = (
            sender.octets_of(
                "SEND", b"%d" % n, destination=QUEUE, transaction="t", idempotency_key=f"k{n}", persistent=persistent
            )
            for n in [*range(count), 0]
        )
        sender.raw(b"".join(frames))
        sender.send("COMMIT", transaction="t", receipt="c")
        bench.turn()
        assert receipts(sender) == 1
    assert held(bench) == [str(n) for n in range(count)]
    assert bench.broker.stats.duplicates == count + 2
    bench.audit()


def test_a_transaction_that_is_refused_leaves_no_key() -> None:
    bench = Bench(max_delayed=1)
    sender = bench.peer()
    sender.send("BEGIN", transaction="t")
    send(sender, "k", transaction="t")
    send(sender, "l", transaction="t", delay="5000")
    send(bench.peer(), None, delay="5000")
    sender.take()
    sender.send("COMMIT", transaction="t")
    assert sender.error()
    send(bench.peer(), "k")
    assert held(bench) == ["x"]


def test_one_commits_what_the_other_has_sent_meanwhile_in_shares() -> None:
    """A long COMMIT takes several turns. What comes between them counts."""
    bench = Bench()
    sender, other = bench.peer(), bench.peer()
    sender.send("BEGIN", transaction="t")
    many = range(3 * AT_ONCE)
    frames = (sender.octets_of("SEND", b"t", destination=QUEUE, transaction="t", idempotency_key=f"k{n}") for n in many)
    sender.raw(b"".join(frames))
    sender.session.receive(sender.octets_of("COMMIT", transaction="t", receipt="c"), bench.now)
    octets = other.octets_of("SEND", b"o", destination=QUEUE, receipt="r", idempotency_key=f"k{many[-1]}")
    other.session.receive(octets, bench.now)
    bench.turn()
    assert (receipts(sender), receipts(other)) == (1, 1)
    assert sorted(held(bench)) == ["o"] + ["t"] * (len(many) - 1)


# ---- windows and memory ----


def test_a_key_is_forgotten_after_its_time_and_not_before(tmp_path: Path) -> None:
    bench = Bench(key_window=100.0)
    sender = bench.peer()
    send(sender, "k", persistent="true")
    bench.wait(99)
    send(sender, "k", persistent="true")
    assert held(bench) == ["x"]
    bench.wait(5)
    bench.turn()
    assert not bench.broker.sent.scopes
    assert list(bench.store.keys()) == []
    send(sender, "k", "again", persistent="true")
    assert held(bench) == ["x", "again"]


@pytest.mark.parametrize(("age", "known"), [(50.0, 1), (-50.0, 1), (98.9, 1), (101.0, 0)])
def test_time_passes_while_the_broker_is_down(age: float, known: int) -> None:
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


def test_expiry_takes_a_share_of_a_turn_at_a_time() -> None:
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


def test_a_scope_keeps_its_latest_keys() -> None:
    bench = Bench(max_keys=3)
    sender = bench.peer()
    for number in range(5):
        send(sender, f"k{number}", persistent="true")
    send(sender, "k0", destination="/queue/b", persistent="true")
    assert len(list(bench.store.keys())) == 4
    before = bench.broker.stats.duplicates
    for number in (2, 3, 4):
        send(sender, f"k{number}", persistent="true")
    assert bench.broker.stats.duplicates == before + 3
    send(sender, "k0", persistent="true")
    assert bench.broker.stats.duplicates == before + 3
    bench.audit()


def test_the_user_with_most_keys_loses_the_oldest_when_memory_is_short() -> None:
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


def test_keys_are_a_part_of_the_account_and_leave_it() -> None:
    bench = Bench(key_window=5.0)
    account = bench.broker.account
    sender = bench.peer()
    before = account.used
    for number in range(10):
        send(sender, f"k{number}", destination="/topic/nobody")
    assert account.used > before
    bench.audit()
    sender.send("BEGIN", transaction="t")
    send(sender, "t", transaction="t")
    bench.audit()
    sender.lose()
    bench.date += 100
    bench.wait(100)
    bench.turn()
    bench.audit()
    assert account.used == 0


def test_fewer_keys_are_kept_when_the_configuration_says_so() -> None:
    store = MemoryStore()
    for number in range(1, 11):
        store.remember(SentKey(number, b"s" * 24, b"%d" % number, 0, 1_000_000.0))
    store.commit()
    bench = Bench(store, max_keys=4)
    bench.turn()
    assert [key.number for key in store.keys()] == [7, 8, 9, 10]
    bench.audit()


def test_the_defaults_cover_what_our_client_may_send_again() -> None:
    from stompcodec.client import Options

    assert Config().max_keys >= 2 * Options().outbox_frames
