"""Python's search for cycles never holds up the loop for long, sessions leave none, and buffers are used again."""

import gc
import platform

import pytest
from broker.harness import Bench
from installed import program

from stompcodec.broker.loop_quota import Garbage

#: As a broker with many messages has them, in bytes of the memory account.
MUCH = 2**29


@pytest.fixture
def garbage():
    with Garbage() as entered:
        yield entered


def test_a_look_at_all_objects_comes_before_there_are_many_new_ones(garbage):
    young, middle, old = gc.get_threshold()
    assert young * (middle + 1) * (old + 1) <= 30_000


def test_what_a_look_has_left_is_not_looked_at_again(garbage):
    kept = [[number] for number in range(1000)]
    gc.collect()
    garbage.look(MUCH, 0)
    assert gc.get_freeze_count() >= len(kept)
    assert not {id(each) for each in gc.get_objects()} & {id(each) for each in kept}


@pytest.mark.parametrize(("octets", "sessions"), [(0, 0), (MUCH, 20_000)])
def test_it_is_looked_at_when_there_is_little_else_or_many_sessions_have_come(garbage, octets, sessions):
    gc.collect()
    garbage.look(MUCH, sessions - 1)
    assert gc.get_freeze_count()
    garbage.look(octets, sessions)
    assert not gc.get_freeze_count()


def test_the_process_is_afterwards_as_before():
    before = gc.get_threshold(), list(gc.callbacks)
    with Garbage():
        gc.collect()
    assert (gc.get_threshold(), list(gc.callbacks)) == before
    assert not gc.get_freeze_count()


def live(bench):
    peer = bench.peer()
    for number, destination in enumerate(("/topic/a.b", "/topic/a.*", "/queue/a", "/temp-queue/a"), 1):
        peer.subscribe(destination, id=str(number), ack="client" if number == 3 else "auto")
    peer.put("/queue/a", b"1")
    peer.put("/topic/a.b", b"2")
    peer.send("UNSUBSCRIBE", id="1")
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/z", b"3", transaction="t")
    peer.raw(b"SEND\ndestination:/queue/a\nunfinished:")
    peer.lose()
    bench.peers.pop(peer.session)
    bench.turn()


def test_a_session_leaves_no_cycle():
    bench = Bench(wildcards="rabbitmq")
    for _ in range(2):
        live(bench)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        live(bench)
        gc.collect()
        found = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not found


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is tuned")
def test_the_buffer_of_a_write_is_not_mapped_anew_each_time():
    code = """
import resource
from stompcodec.broker.loop_quota import give_back_large
give_back_large()
kept = [b"x" * 130_000 for _ in range(50)]  # no room is left over from the imports
for turn in range(210):
    if turn == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * 300_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    assert int(program("-c", code)) < 200
