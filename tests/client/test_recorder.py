"""The recorder: each message once in the capture, acknowledged when it may be, over cuts, restarts and full disks."""

import contextlib
import random
import sys
import threading
import time

import pytest
from capture.capturing import DEEDS
from client.feeding import fill_disk, left, publish, wait_for
from client.shells import QUICK
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patience
from profiles import examples

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.capture import Capture, CaptureWriter, octets_of, writer
from stompcodec.client import recorder as module
from stompcodec.client import runs
from stompcodec.client.dialects import BROKERS, lasting_identity, row_of
from stompcodec.client.messages import Comings
from stompcodec.client.recorder import Dedupe, Held, Recorder
from stompcodec.errors import SilentFeedError, StaleAckError, StoreError
from stompcodec.testing import StompBroker
from stompcodec.testing.faults import FaultProxy

removing = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no open files")
modes = pytest.mark.parametrize("mode", ["synced", "released"])


@pytest.fixture(autouse=True, scope="module")
def much():
    """Runs are treated like long ones: they have buffers, and are written one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_LONG", 1)
        patch.setattr(module, "BIG", 1)
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.stompcap"


def bodies(path):
    capture = Capture(path)
    return [int(frame.body.split()[0]) for chain in capture.chains() for _, _, frame in capture.frames(chain)]


@contextlib.contextmanager
def recording(url, capture, queue, *, clients=1, prefetch=100, segment=2**20, **options):
    """A recorder that runs in a thread, and its `capture`; `error` is what ended it, and `join` waits for that.
    url: of all clients, or of each; capture: its path, or one that the caller closes."""

    def run():
        try:
            recorder.run()
        except Exception as error:
            recorder.error = error

    def join():
        thread.join(patience(60))
        assert not thread.is_alive()

    with contextlib.ExitStack() as stack:
        if not isinstance(capture, CaptureWriter):
            capture = CaptureWriter(capture, segment_octets=segment)
            stack.callback(capture.close)
        urls = [url] * clients if isinstance(url, str) else url
        connected = [stack.enter_context(stomp.connect(each, reconnect=QUICK)) for each in urls]
        recorder = Recorder(connected if len(connected) > 1 else connected[0], capture, **options)
        recorder.subscribe(queue, prefetch=prefetch)
        thread = threading.Thread(target=run)
        recorder.error, recorder.capture, recorder.join = None, capture, join
        thread.start()
        try:
            yield recorder
        finally:
            recorder.stop()
            recorder.join()


@contextlib.contextmanager
def cutting(broker, **options):
    with FaultProxy(("127.0.0.1", broker.port), **options) as proxy:
        yield proxy, f"stomp://127.0.0.1:{proxy.port}"


def test_a_restart_knows_what_is_in_the_capture(broker, queue, path):
    publish(broker.url, queue, 30)
    with recording(broker.url, path, queue, acknowledge="released") as recorder:
        wait_for(lambda: recorder.held == 30)
    publish(broker.url, queue, 5, first=30)
    with recording(broker.url, path, queue, dedupe=Dedupe()) as recorder:
        wait_for(lambda: (recorder.messages, recorder.duplicates) == (5, 30))
    assert (sorted(bodies(path)), left(broker.url, queue)) == ([*range(35)], 0)


@pytest.mark.req("S11-SUB-08")
def test_one_ack_settles_what_was_synced_together(path):
    with StompBroker() as broker:
        publish(broker.url, "/queue/a", 500)
        with recording(broker.url, path, "/queue/a", prefetch=500) as recorder:
            wait_for(lambda: recorder.messages == 500 and not recorder.unacknowledged)
            with pytest.raises(ValueError, match="the client records '/queue/a': use another client"):
                recorder.subscribe("/queue/b")
        assert left(broker.url, "/queue/a") == 0
        assert [frame.command for frame in broker.frames].count("ACK") < 50
    assert bodies(path) == [*range(500)]


def test_an_ack_that_fails_ends_the_recorder(broker, queue, path, monkeypatch):
    monkeypatch.setattr(module, "acknowledge", lambda messages: 1 / 0)
    publish(broker.url, queue, 1)
    with recording(broker.url, path, queue) as recorder:
        wait_for(lambda: recorder.messages == 1)
    assert isinstance(recorder.error, ZeroDivisionError)


texts = st.text(max_size=6)


def message(destination="/q", name="1", body=b"x", **headers):
    return Frame("MESSAGE", {"destination": destination, "message-id": name, **headers}, body)


messages = st.builds(message, texts, texts, st.binary(max_size=6))


@given(messages, messages)
def test_only_the_same_message_is_a_duplicate(one, other):
    dedupe = Dedupe()
    key = dedupe.key(one)
    assert key is not None
    dedupe.remember([key])
    same = all(one.headers[name] == other.headers[name] for name in ("destination", "message-id"))
    assert (dedupe.key(other) in dedupe) == (same and one.body == other.body)


def test_an_unknown_broker_is_recorded_whole_and_named(path, caplog):
    """Its ids may be a counter that begins again: two messages with one id and one body are both recorded."""
    with StompBroker() as broker:
        broker.faults.change("CONNECTED", lambda frame: Frame("CONNECTED", {"version": "1.2"}), times=None)
        broker.faults.change("MESSAGE", lambda m: Frame("MESSAGE", {**m.headers, "message-id": "1"}, b"x"), times=None)
        publish(broker.url, "/queue/a", 2)
        with recording(broker.url, path, "/queue/a", dedupe=Dedupe()) as recorder:
            wait_for(lambda: recorder.messages + recorder.duplicates == 2)
            assert (recorder.messages, recorder.duplicates) == (2, 0)
    assert "use header:NAME" in caplog.text


def test_another_header_may_be_the_id():
    dedupe = Dedupe.of("header:uuid", 10)
    assert dedupe.key(message(name="1", uuid="x")) == dedupe.key(message(name="2", uuid="x"))
    assert dedupe.key(message(name="1")) is None
    assert Dedupe.of("none") is None
    for text in ("", "header:", "uuid"):
        with pytest.raises(ValueError, match="use messageId"):
            Dedupe.of(text)
    with pytest.raises(ValueError, match="window is 0"):
        Dedupe(window=0)


@settings(max_examples=examples(30))
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3)), max_size=30),
    st.integers(1, 20),
    st.integers(1, 400),
)
def test_the_window_is_the_newest_of_all_chains(tmp_path_factory, batches, window, segment):
    path, frames = tmp_path_factory.mktemp("capture") / "a.stompcap", []
    with CaptureWriter(path, segment_octets=segment) as writer:
        for now, (chain, count) in enumerate(batches):
            for _ in range(count):
                frames.append(message(name=str(len(frames))))
                writer.append(octets_of(frames[-1]), 1000 + now, chain)
        writer.sync()
    dedupe = Dedupe(window=window)
    dedupe.load(Capture(path))
    known = [int(frame.headers["message-id"]) for frame in frames if dedupe.key(frame) in dedupe]
    assert known == list(range(max(0, len(frames) - window), len(frames)))
    dedupe.remember(range(window))  # others come: the old ones are forgotten
    assert all(number in dedupe for number in range(window))
    assert not any(dedupe.key(frame) in dedupe for frame in frames)


# ---- the lasting identity of a message: the same in each delivery, and another one for each other message ----
ARTEMIS = "ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine"
AT = "1795935891986"
#: server -> message-id and timestamp of one message in two deliveries, and its identity, as the brokers gave them.
SEEN = {
    "stompcodec/1.0": (("1a2233f868a-456", None), ("1a2233f868a-456", None), "1a2233f868a-456"),
    "stompcodec/1.0 as artemis": (("1a2233f868a-456", AT), ("1a2233f868a-456", AT), "1a2233f868a-456"),
    ARTEMIS: (("72,28", AT), ("2147483665,28", AT), f"28 {AT}"),
    "ActiveMQ/6.3.1": (("ID:vm-4-3:2:-1:1:1", AT), ("ID:vm-4-3:2:-1:1:1", AT), "ID:vm-4-3:2:-1:1:1"),
    "RabbitMQ/4.3.6": (("T_1@@session-a@@1", None), ("T_1@@session-b@@1", None), None),
    "SomeBroker/1": (("1", None), ("1", None), None),  # go-stomp counts from 1 on for each connection
}


def headers(id, time):
    return {name: value for name, value in (("message-id", id), ("timestamp", time)) if value is not None}


@pytest.mark.parametrize("server", SEEN)
def test_two_deliveries_of_a_message_have_one_identity(server):
    one, other, identity = SEEN[server]
    row = row_of("auto", server)
    assert [lasting_identity(row, headers(*each)) for each in (one, other)] == [identity, identity]
    if server == ARTEMIS:  # another number, or another time
        others = [
            lasting_identity(row, headers(*each)) for each in (("72,29", AT), ("72,28", AT[:-1] + "7"), ("7,228", AT))
        ]
        assert len({identity, *others}) == 4


@pytest.mark.parametrize(
    ("id", "time"),
    [
        (None, AT), ("72,28", None), ("72,28", "0"), ("72,28", ""), ("72,28", "now"), ("72,28", "-1"), ("28", AT),
        (",28", AT), ("72,", AT),
        ("72,28,1", AT), ("72,28\n", AT), ("72,28", AT + "\n"), ("ID:a,28", AT), ("٧٢,٢٨", AT), ("", AT),
    ],
)  # fmt: skip
def test_another_form_has_no_identity_on_artemis(id, time):
    assert lasting_identity(BROKERS["artemis"], headers(id, time)) is None


def test_what_cannot_be_read_is_counted_by_it():
    """Else it would come for ever: Artemis gives it another message-id each time."""

    def counted(dialect, **more):
        comings = Comings()
        frames = [Frame("MESSAGE", {"subscription": "1", "message-id": f"{n},28", **more}) for n in range(3)]
        return [comings.is_last(frame, 0, 100, BROKERS[dialect]) for frame in frames]

    assert counted("artemis", timestamp=AT) == [False, False, True]
    assert counted("artemis") == [False, False, True]  # the fault was before the timestamp
    assert counted("activemq") == [False, False, False]


def test_nothing_is_acknowledged_before_it_is_released(broker, queue, path):
    publish(broker.url, queue, 10)
    with recording(broker.url, path, queue, acknowledge="released", prefetch=4) as recorder:
        wait_for(lambda: recorder.held == 4)
        ends = [offset for offset, _, _ in Capture(path).frames()][1:] + [recorder.capture.end()]
        assert recorder.release({"frames": ends[0] - 1}) == 0
        assert recorder.release({"frames": ends[1]}) == 2  # and then two more come
        wait_for(lambda: recorder.messages == 6 and recorder.held == 4)
        assert recorder.release({"frames": ends[0]}) == 0  # what was said before still holds
    assert (bodies(path), left(broker.url, queue)) == ([*range(6)], 8)


def test_a_prefetch_smaller_than_what_is_released_at_once_does_not_stall(broker, queue, path):
    publish(broker.url, queue, 200)
    with recording(broker.url, path, queue, acknowledge="released", prefetch=7) as recorder:
        while recorder.messages < 200:
            recorder.release({"frames": recorder.capture.end()})
            time.sleep(0.001)
        recorder.release({"frames": recorder.capture.end()})
    assert left(broker.url, queue) == 0


def test_a_duplicate_waits_for_all_that_was_there_when_it_came(broker, queue, path):
    publish(broker.url, queue, 5)
    turns = []
    options = {"acknowledge": "released", "dedupe": Dedupe(), "on_turn": lambda: turns.append(1)}
    with cutting(broker) as (proxy, url), recording(url, path, queue, **options) as recorder:
        wait_for(lambda: recorder.held == 5)
        end = recorder.capture.end()
        proxy.cut()
        wait_for(lambda: recorder.duplicates == 5)
        counted = len(turns)
        wait_for(lambda: len(turns) > counted)  # duplicates are held in the turn that counts them
        assert recorder.held == 5  # the first deliveries can no longer be acknowledged
        assert [recorder.release({"frames": end + more}) for more in (-1, 0)] == [0, 5]
        assert recorder.held == 0
    assert left(broker.url, queue) == 0


class Told:
    body, acks = b"", 0

    def ack(self):
        self.acks += 1
        raise StaleAckError("its connection is over")


chains = st.sampled_from("ab")


@given(st.lists(st.one_of(st.tuples(chains, st.integers(1, 9)), st.dictionaries(chains, st.integers(0, 99)))))
def test_held_against_a_model(steps):
    held, ends, released = Held(), {"a": 0, "b": 0}, {"a": 0, "b": 0}
    written, again = [], []
    for step in steps:
        if isinstance(step, tuple):
            chain, size = step
            ends[chain] += size
            written.append((Told(), chain, ends[chain]))
            held.hold({chain: ends[chain]}, written[-1][0])
            again.append((Told(), dict(ends)))
            held.hold(ends, again[-1][0])
        else:
            held.release(step)
            released = {chain: max(step.get(chain, 0), offset) for chain, offset in released.items()}
        assert all(told.acks == (end <= released[chain]) for told, chain, end in written)
        assert all(told.acks == all(released[c] >= e for c, e in there.items()) for told, there in again)


@pytest.mark.long
@modes
def test_exactly_once_over_cut_connections(broker, queue, path, mode):
    total, number = 1500, 0
    publisher = threading.Thread(target=publish, args=(broker.url, queue, total))
    publisher.start()
    with cutting(broker, seed=7) as (proxy, url):
        while number < total:
            proxy.rules.up.cut_after = proxy.rules.down.cut_after = None
            options = {"acknowledge": mode, "dedupe": Dedupe(), "clients": 2, "prefetch": 50, "segment": 50_000}
            with recording(url, path, queue, **options) as recorder:
                for cut_after in (None, (0, 60_000), None, (0, 60_000), None):
                    proxy.rules.down.cut_after = cut_after
                    proxy.rules.up.cut_after = None if cut_after is None else (0, 4000)
                    until = time.monotonic() + 0.1
                    while time.monotonic() < until:
                        recorder.release({chain: recorder.capture.end(chain) for chain in ("frames", "frames.1")})
                        time.sleep(0.005)
            number = len(bodies(path))
    publisher.join()
    assert sorted(bodies(path)) == list(range(total))
    with recording(broker.url, path, queue, dedupe=Dedupe()) as recorder:
        publish(broker.url, queue, 1, first=total)
        wait_for(lambda: recorder.messages == 1)
    assert left(broker.url, queue) == 0


@modes
@pytest.mark.parametrize("clients", [1, 2])
def test_what_fits_on_a_full_disk_is_recorded(broker, queue, path, monkeypatch, mode, clients):
    room, size = 20_000, 1000
    full, ready, troubles = threading.Event(), threading.Event(), []
    full.set()

    def used():
        return sum(file.stat().st_size for file in path.glob("*.stomp"))

    def is_stuck():
        messages, count = recorder.messages, len(troubles)
        wait_for(lambda: len(troubles) >= count + 10)  # it tries half as much each time
        return recorder.messages == messages

    def is_full(data):
        return full.is_set() and used() + len(data) > room

    fill_disk(monkeypatch, is_full, lambda data: min(len(data) // 2, room - used()))
    monkeypatch.setattr(module, "_RETRY", 0.01)
    publish(broker.url, queue, 40, size=size)
    options = {"acknowledge": mode, "hold": lambda: not ready.is_set(), "on_trouble": troubles.append}
    with recording(broker.url, path, queue, clients=clients, prefetch=40 // clients, **options) as recorder:
        wait_for(lambda: recorder.unacknowledged == 40)
        ready.set()
        wait_for(is_stuck)
        assert "No space left" in str(troubles[0])
        assert room - 2 * size < used() <= room
        assert len(bodies(path)) == recorder.messages
        wait_for(lambda: recorder.unacknowledged == 40 - (recorder.messages if mode == "synced" else 0))
        if mode == "released":
            ends = {chain: recorder.capture.end(chain) for chain in Capture(path).chains()}
            assert recorder.release(ends) == recorder.messages
        full.clear()
        wait_for(lambda: recorder.messages == 40)
        recorder.release(dict.fromkeys(Capture(path).chains(), 10**9))
    assert (sorted(bodies(path)), left(broker.url, queue)) == ([*range(40)], 0)


@pytest.mark.long
def test_each_message_once_on_a_disk_that_fails_now_and_then(broker, queue, path, monkeypatch):
    chance = random.Random(5)
    monkeypatch.setattr(module, "_RETRY", 0.001)
    options = {"clients": 2, "dedupe": Dedupe(), "prefetch": 30}
    with CaptureWriter(path, segment_octets=500) as capture, monkeypatch.context() as failing:
        fill_disk(failing, lambda data: chance.random() < 0.2, lambda data: chance.randrange(len(data)))
        with recording(broker.url, capture, queue, **options) as recorder:
            publish(broker.url, queue, 400)
            wait_for(lambda: recorder.messages == 400)
    assert (sorted(bodies(path)), left(broker.url, queue)) == ([*range(400)], 0)


@pytest.mark.parametrize("is_held", [False, True])
def test_what_is_held_back_or_cannot_be_written_is_no_silence(broker, queue, path, monkeypatch, is_held):
    full, silence = [True], patience(0.5)
    if not is_held:
        fill_disk(monkeypatch, lambda data: bool(full))
        monkeypatch.setattr(module, "_RETRY", 0.01)
        publish(broker.url, queue, 1)
    with recording(broker.url, path, queue, hold=lambda: is_held and bool(full), expect=silence) as recorder:
        time.sleep(1.4 * silence)
        assert recorder.error is None
        full.clear()
        wait_for(lambda: isinstance(recorder.error, SilentFeedError))


@removing
@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("traffic", ["much", "new segments", "none"])
def test_nothing_is_acknowledged_into_what_was_removed(broker, queue, path, deed, traffic, monkeypatch):
    """Without traffic `run` looks for it, and whoever writes looks first."""
    publish(broker.url, queue, 20)
    if traffic != "none":
        monkeypatch.setattr(module, "_LOOK", patience(600))
    with recording(broker.url, path, queue, segment=100 if traffic == "new segments" else 2**20) as recorder:
        wait_for(lambda: recorder.messages == 20 and not recorder.unacknowledged)
        DEEDS[deed](path)
        if traffic != "none":
            publish(broker.url, queue, 30, first=20)
        recorder.join()
    assert isinstance(recorder.error, StoreError)
    assert str(path) in str(recorder.error)
    assert "removed, renamed or replaced" in str(recorder.error)
    assert left(broker.url, queue) == (30 if traffic != "none" else 0)


# ---- each subscription has a thread that writes ----
@contextlib.contextmanager
def stuck(monkeypatch, fails=False):
    """The first sync, of `go.chain`, ends with `go`; by an error if it `fails`, and it is not tried again."""
    real, go, failing = CaptureWriter.sync, threading.Event(), [True] * fails
    go.began, go.chain = threading.Event(), None

    def sync(self, chain=None):
        if go.chain is None:
            go.chain = chain
            go.began.set()
            assert go.wait(patience(60))
        real(self, chain)

    monkeypatch.setattr(module, "_RETRY", patience(600))
    monkeypatch.setattr(CaptureWriter, "sync", sync)
    fill_disk(monkeypatch, lambda data: bool(go.is_set() and failing and failing.pop()))
    try:
        yield go
    finally:
        go.set()


def test_connections_write_side_by_side(broker, queue, path, monkeypatch):
    monkeypatch.setattr(module, "_LOOK", patience(600))
    with stuck(monkeypatch) as go, recording(broker.url, path, queue, clients=2, prefetch=1) as recorder:
        publish(broker.url, queue, 10)
        wait_for(lambda: recorder.messages == 9 and recorder.unacknowledged == 1)
        go.set()
        wait_for(lambda: recorder.messages == 10 and not recorder.unacknowledged)
    assert (sorted(bodies(path)), left(broker.url, queue)) == ([*range(10)], 0)


@pytest.mark.parametrize("fails", [False, True])
def test_a_duplicate_of_what_is_being_written_waits_for_it(broker, queue, path, monkeypatch, fails):
    """It comes by the other connection, and is the message itself if the first one cannot be written."""
    publish(broker.url, queue, 1)
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(contextlib.ExitStack()) for _ in range(2)]
        urls = [way.enter_context(cutting(broker))[1] for way in ways]
        go = stack.enter_context(stuck(monkeypatch, fails))
        recorder = stack.enter_context(recording(urls, path, queue, dedupe=Dedupe(), prefetch=1))
        assert go.began.wait(patience(60))
        first = int(go.chain != "frames")
        ways[first].close()
        other = [*recorder._subscriptions][not first]
        wait_for(lambda: other.open or recorder.messages)
        time.sleep(0.05)
        assert (recorder.messages, recorder.duplicates) == (0, 0)
        go.set()
        wait_for(lambda: recorder.messages and not other.open)
    assert (bodies(path), left(broker.url, queue)) == ([0], 0)


@pytest.mark.parametrize("fails", [False, True])
def test_two_connections_end_at_the_count(broker, queue, path, monkeypatch, fails):
    """Also if what one of them was about to write fails: the other one has held back as many."""
    publish(broker.url, queue, 40)
    if not fails:
        monkeypatch.setattr(module, "_LOOK", patience(600))
    with stuck(monkeypatch, fails) as go:
        with recording(broker.url, path, queue, clients=2, prefetch=20, most=15) as recorder:
            assert go.began.wait(patience(60))
            other = [*recorder._subscriptions][go.chain == "frames"]
            wait_for(lambda: other.open == 20 - recorder.messages)
            go.set()
            recorder.join()
        assert (recorder.error, recorder.messages) == (None, 15)
    found = bodies(path)
    assert (len(found), len({*found}), left(broker.url, queue)) == (15, 15, 25)


def test_nothing_is_written_while_run_has_its_turn(broker, queue, path, monkeypatch):
    real, count, turns, holds = CaptureWriter.append, [0], [], []

    def append(*args, **options):
        count[0] += 1
        try:
            return real(*args, **options)
        finally:
            count[0] += 1

    def turn():
        before = count[0]
        time.sleep(0.005)
        turns.append((count[0] - before, before % 2))

    def hold():
        holds.append(1)
        time.sleep(0.0001)
        return len(holds) != 1 or holds.clear()  # more than one are here otherwise

    monkeypatch.setattr(module, "_LOOK", 0.001)
    monkeypatch.setattr(CaptureWriter, "append", append)
    with recording(broker.url, path, queue, clients=2, prefetch=2, on_turn=turn, hold=hold) as recorder:
        publish(broker.url, queue, 500)
        wait_for(lambda: recorder.messages == 500)
    assert {*turns} == {(0, 0)}
    assert not holds


def test_what_comes_in_bursts_is_written_from_where_it_was_read_to(broker, queue, path, monkeypatch):
    real, kinds = CaptureWriter.append, set()

    def append(self, data, *args, **options):
        kinds.add(type(data))
        return real(self, data, *args, **options)

    monkeypatch.setattr(CaptureWriter, "append", append)
    with recording(broker.url, path, queue, prefetch=1000):
        wait_for(lambda: publish(broker.url, queue, 100, size=1000) or memoryview in kinds)


def test_what_is_released_is_written_in_parts(broker, queue, path, monkeypatch):
    real, sizes, ready = CaptureWriter.append, [], threading.Event()

    def append(self, data, *args, **options):
        sizes.append(len(data))
        return real(self, data, *args, **options)

    monkeypatch.setattr(CaptureWriter, "append", append)
    monkeypatch.setattr(module, "BIG", 10_000)
    monkeypatch.setattr(module, "_GROUP", 5000)
    publish(broker.url, queue, 40, size=1000)
    options = {"acknowledge": "released", "hold": lambda: not ready.is_set()}
    with recording(broker.url, path, queue, **options) as recorder:
        wait_for(lambda: recorder.unacknowledged == 40)
        ready.set()
        wait_for(lambda: recorder.messages == 40)
    assert 2000 < max(sizes) < 7000


def test_a_duplicate_is_not_acknowledged_if_its_original_was_removed(broker, queue, path, monkeypatch):
    """Another chain had it, and `run` has not looked since."""
    real, first = module.acknowledge, [True]
    monkeypatch.setattr(module, "acknowledge", lambda messages: first.clear() if first else real(messages))
    monkeypatch.setattr(module, "_LOOK", patience(600))
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(contextlib.ExitStack()) for _ in range(2)]
        urls = [way.enter_context(cutting(broker))[1] for way in ways]
        recorder = stack.enter_context(recording(urls, path, queue, dedupe=Dedupe(), prefetch=1))
        publish(broker.url, queue, 1)
        wait_for(lambda: recorder.messages == 1)
        (chain,) = Capture(path).chains()
        for file in path.glob(f"{chain}-*"):
            file.unlink()
        ways[chain != "frames"].close()
        recorder.join()
        assert "removed, renamed or replaced" in str(recorder.error)
        assert left(broker.url, queue) == 1


@pytest.mark.parametrize("is_final", [False, True])
def test_what_could_not_be_written_is_told_at_the_end(broker, queue, path, monkeypatch, is_final):
    def cut(file, size):
        raise OSError("it cannot be undone")

    fill_disk(monkeypatch, lambda data: True)
    if is_final:
        monkeypatch.setattr(writer, "cut", cut)
    publish(broker.url, queue, 3)
    for name in ("_LOOK", "_RETRY"):
        monkeypatch.setattr(module, name, patience(600))
    troubles = []
    with recording(broker.url, path, queue, on_trouble=troubles.append) as recorder:
        if not is_final:
            wait_for(lambda: troubles)
            recorder.stop()
        recorder.join()
    assert "No space left" in str(recorder.error)
    assert (len(troubles), left(broker.url, queue)) == (not is_final, 3)
