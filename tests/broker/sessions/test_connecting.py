"""CONNECT and its answer, logins, rules, the connection TTL, the frame log; and what the wish-list for 1.1 proposed."""

import json
import logging

import pytest
from broker.harness import Bench, Peer
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import __version__
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.codec import Frame
from stompcodec.connection import Connection, Role
from stompcodec.errors import RemoteProtocolError
from stompcodec.spec import VERSIONS


@pytest.mark.req("S12-CON-10", "S11-CON-11", "WISH-VHO-01")
def test_virtual_hosts_are_apart():
    bench = Bench(virtual_hosts=("first", "second"))
    one, two, default = bench.client(host="first"), bench.client(host="second"), Peer(bench, "1.0")
    default.raw(b"CONNECT\n\n\0")
    default.next("CONNECTED")
    any_host = Bench()
    for host in ("a", "b"):  # without virtual hosts
        any_host.client(host=host)
    assert set(any_host.broker._virtual_hosts) == {"/"}
    for peer in (one, two, default):
        peer.subscribe("/queue/a")
        peer.subscribe("/topic/a", "2")
    two.put("/queue/a", "q")
    two.put("/topic/a", "t")
    assert two.bodies() == [b"q", b"t"]
    assert one.take() == default.take() == []
    one.put("/topic/a", "t")
    assert one.bodies() == default.bodies() == [b"t"]
    nowhere = Peer(bench)
    nowhere.send("CONNECT", accept_version="1.2", host="third")
    assert nowhere.error().headers["message"] == "unknown virtual host"


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("command", ["STOMP", "CONNECT"])
@pytest.mark.parametrize("login", ["DOM\\user", "DOM\\nick", "DOM\\carl", "DOM\\rob"])
def test_a_login_with_a_backslash_may_come_as_it_is(login, command, version):
    """stomp.py does not escape the command STOMP. The escapes of all other headers have to be right."""
    bench = Bench(users={login: User(login, hash_passcode("p:a\\ss\\new", n=16))})
    for passcode, answer in (("p:a\\ss\\new", "CONNECTED"), ("p:a\\ss\\nev", "ERROR")):
        peer = Peer(bench)
        peer.raw(f"{command}\naccept-version:{version}\nhost:/\nlogin:{login}\npasscode:{passcode}\n\n\0".encode())
        assert peer.next(answer)
    if command == "STOMP":
        other = Peer(bench)
        other.raw(b"STOMP\naccept-version:1.2\nhost:a\\v\nlogin:x\n\n\0")
        assert "bad-escape" in other.error().headers["message"]


@pytest.mark.req("S12-CON-03", "S12-CON-04")
@pytest.mark.parametrize("passcode", ["wrong", "", "ada"])
def test_a_wrong_passcode(passcode, caplog):
    caplog.set_level(logging.DEBUG)
    peer = Peer(Bench(users={name: User(name, hash_passcode(name, n=16)) for name in ("guest", "ada")}))
    peer.send("CONNECT", accept_version="1.2", host="/", login="guest", passcode=passcode or "x7secret", receipt="no")
    error = peer.error()
    assert (error.headers["message"], error.get("receipt-id")) == ("login refused", None)
    assert "x7secret" not in caplog.text + repr(error) + error.body.decode()


#: Users of the tests of blanks behind the colons of CONNECT, as examples of the older specifications write them.
PASSCODES = {"ada": "lovelace", " eve": " apple"}
BLANKS = {name: User(name, passcode=hash_passcode(passcode, n=2)) for name, passcode in PASSCODES.items()}


LOGIN, REFUSED = "login:ada\npasscode:lovelace\nhost:/\n", "login refused"


@pytest.mark.req("WISH-NEG-01", "WISH-NEG-02")
@pytest.mark.parametrize(
    ("lines", "config", "said"),
    [
        ("login: ada\npasscode: lovelace\nversion: 1.1\n", {"version_header": True}, "1.1"),
        ("login: ada\npasscode:lovelace\nversion: 1.1\n", {"version_header": True}, "1.1"),
        *(("login:ada\npasscode:lovelace\n", {}, "1.0"), ("login: ada\npasscode: lovelace\n", {}, "1.0")),
        ("login: eve\npasscode: apple\n", {}, "1.0"),  # these blanks belong to them
        ("login:  eve\npasscode:  apple\n", {}, "1.0"),
        ("username: ada\npasscode: lovelace\n", {"detect_legacy": True}, None),
        (LOGIN + "accept-version:1.0, 1.1, 1.2\n", {}, "1.0"),
        ("login:  ada\npasscode:  lovelace\n", {}, REFUSED),
        *(("login: ada\npasscode: wrong\n", {}, REFUSED), ("login:ada \npasscode:lovelace\n", {}, REFUSED)),
        ("login: ada\npasscode: lovelace\naccept-version:1.2\nhost:/\n", {}, REFUSED),
        ("login:ada\npasscode: lovelace\naccept-version:1.1\nhost:/\n", {}, REFUSED),
        *(
            (f"{LOGIN}accept-version:{blank}1.1{blank}\nheart-beat:{blank}1000,2000{blank}\n", {}, "1.1")
            for blank in ("", " ", "\t", "  ")  # values of the protocol are read without blanks around
        ),
    ],
)
def test_a_client_of_1_0_may_write_one_blank(lines, config, said):
    peer = Bench(users=BLANKS, **config).peer(connect=False)
    peer.raw(f"CONNECT\n{lines}\n\0".encode())
    frame = peer.take()[-1]
    assert (frame.get("message", frame.get("version")), peer.closed) == (said, said == REFUSED)


@pytest.mark.parametrize(("dialect", "manner"), [("stompcodec", ""), ("artemis", " as artemis")])
def test_the_server_of_connected_names_another_dialect(dialect, manner):
    peer = Bench(dialect=dialect).peer(connect=False)
    peer.raw(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
    assert peer.next("CONNECTED").get("server") == f"stompcodec/{__version__}{manner}"


BOUNDS = {"ttl": 60_000, "ttl_min": 1000, "ttl_max": 30_000}


def connected(version="1.2", heart_beat=None, **config):
    peer = Bench(**config).peer(version, connect=False)
    return peer, peer.connect(**({} if heart_beat is None else {"heart-beat": heart_beat})).get("heart-beat")


def given_up(peer):
    """Let time pass until the broker gives the peer up: after how many seconds of silence, and its ERROR."""
    bench, start = peer.bench, peer.bench.now
    while not peer.closed:
        bench.now = max(bench.now, bench.broker._deadlines._times[peer.session.id])  # past the sweeps, which are many
        bench.broker.tick(bench.now)
        bench.turn()
    error = peer.error()
    assert error.headers["message"] == "heart-beats are missing"
    return bench.now - start, error


@pytest.mark.req("S11-HB-01", "S11-CTD-03", "ART-TTL-02", "ART-TTL-03", "ART-TTL-04", "ART-TTL-05")
@pytest.mark.parametrize(
    ("version", "heart_beat", "config", "said", "seconds"),
    [
        *[("1.2", offer, {"ttl": 60_000}, "0,0", 60.0) for offer in (None, "0,0")],
        ("1.1", "0,700", {"ttl": 60_000}, "700,0", 60.0),
        ("1.2", None, {"ttl": 5000, "ttl_override": 7000}, "0,0", 5.0),
        ("1.2", None, {"ttl_override": 7000}, "0,0", 7.0),
        *[("1.0", offer, {"ttl": 9000}, "0,0", 9.0) for offer in ("100,100", "x", "")],
        ("1.2", "2000,0", {"ttl": 60_000}, "0,2000", 4.0),
        ("1.2", "2000,0", {"ttl": 60_000, "ttl_modifier": 3.0}, "0,2000", 6.0),
        *[("1.2", f"{offer},0", BOUNDS, "0,500", 1.0) for offer in (100, 500)],
        *[("1.2", f"{offer},0", BOUNDS, "0,15000", 30.0) for offer in (20_000, 15_000)],
        ("1.2", "50000000,0", {"ttl": 60_000}, "0,50000000", 100_000.0),
    ],
)
def test_how_long_a_silent_client_lives(version, heart_beat, config, said, seconds):
    """CONNECTED says it: the TTL without heart-beats, and always in 1.0; else so many intervals, within the bounds. Who
    is cut off is told what to configure."""
    peer, told = connected(version, heart_beat, **config)
    after, error = given_up(peer)
    assert (told, after) == (said, pytest.approx(seconds))
    none = ["STOMP 1.1" if version == "1.0" else "no heart-beats", "heart-beat:10000,10000", "sessions.ttl"]
    words = none if said.endswith(",0") else ["agreed", "factor of"]
    assert all(word in error.body.decode() for word in (f"{seconds:.10g} s", *words))


@pytest.mark.req("ART-TTL-05", "ART-TTL-06", "ART-TTL-07", "ART-TTL-08")
@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(0, 10**6), st.floats(0.1, 10))
@settings(max_examples=examples(60))
def test_a_client_that_does_what_connected_says_lives(interval, least, span, modifier):
    """As long as it keeps to the larger of its own interval and the one that it is told, as STOMP has it, it is fine;
    unless the settings leave less than one interval."""
    config = {"ttl": 60_000, "ttl_min": least, "ttl_max": least + span, "ttl_modifier": modifier}
    peer, said = connected(heart_beat=f"{interval},0", **config)
    wanted = min(max(int(interval * modifier), least), least + span)
    assert given_up(peer)[0] * 1000 == pytest.approx(wanted, abs=2)
    assert int(said.split(",")[1]) == (interval if int(interval * modifier) == wanted else int(wanted / modifier))


def names(peer):
    peer.raw(b"RECEIVE\ndestination:*\nid:1\nbrowser:names\n\n\0")
    message = peer.next("MESSAGE")
    assert (message.get("browser"), message.get("content-type")) == ("names", "application/json")
    page = json.loads(message.body)
    assert page["next"] is None
    return [(row["destination"], row["kind"], row["ready"], row["messages"]) for row in page["destinations"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_names_and_counts(version):
    bench = Bench(window_messages=3)
    peer, consumer = bench.peer(version), bench.peer()
    for name in ("/queue/b", *["/queue/a"] * 10, "plain"):
        peer.put(name, "x", persistent="true")
    consumer.subscribe("/queue/a", ack="client-individual", prefetch_count="4")
    for name in ("/topic/t", "/temp-queue/t"):  # the second one is nobody else's business
        peer.subscribe(name, name)
    assert names(peer) == [
        *(("/queue/a", "queue", 6, 10), ("/queue/b", "queue", 1, 1), ("/topic/t", "topic", 0, 0)),
        ("plain", "queue", 1, 1),
    ]


LOGGER = "stompcodec.broker.frames"


@pytest.mark.req("ART-LOG-01")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_of_both_sides_with_address_and_connection_id(caplog, version):
    caplog.set_level(logging.INFO, LOGGER)
    peer = Bench(log_frames="all").peer(version, peer="10.1.2.3:4711")
    peer.subscribe("/queue/a", ack="client")
    peer.put("/queue/a", "the body", color="red")
    peer.ack(peer.next("MESSAGE"), receipt="r")
    assert peer.next("RECEIPT")
    found = [record.getMessage().split(" ", 3) for record in caplog.records if record.name == LOGGER]
    assert {(ident, address) for ident, address, *_ in found} == {(peer.session.id, "10.1.2.3:4711")}
    shown = " ".join(direction + frame.split(" ")[1].rstrip(">") for _, _, direction, frame in found)
    assert shown == "<CONNECT >CONNECTED <SUBSCRIBE <SEND >MESSAGE <ACK >RECEIPT"
    assert "body=8 bytes b'the body'" in found[4][3]
    assert "color='red'" in found[4][3]


@pytest.mark.parametrize("kind", ["heads", "all"])
def test_no_secret_is_logged(caplog, kind):
    caplog.set_level(logging.INFO, LOGGER)
    peer = Bench(log_frames=kind).client(login="ann", passcode="s3cr3t")
    peer.put("/queue/a", "x", auth_token="s3cr3t")
    assert "login='ann'" in caplog.text
    assert "s3cr3t" not in caplog.text


def peers(bench, *versions, **headers):
    made = [bench.peer(version, connect=False) for version in versions]
    for peer in made:
        peer.parser = type(peer.parser)(None, commands=("PONG", "EMPTY"))
        peer.connect(**headers)
    return made


def receive(peer, destination="/queue/a", id="1", **headers):
    send(peer, "RECEIVE", destination=destination, id=id, **headers)
    return peer.next()


def send(peer, command, **headers):
    pairs = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items() if value is not None)
    peer.raw(f"{command}\n{pairs}\n\0".encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_receive_without_an_id_is_answered_in_every_version(version):
    (peer,) = peers(Bench(), version)
    peer.put("/queue/a", b"1")
    for command in ("MESSAGE", "EMPTY"):
        answer = receive(peer, id=None)
        assert (answer.command, answer.get("subscription")) == (command, None if version == "1.0" else "/queue/a")


@pytest.mark.req("S12-TX-03", "S11-TX-03", "S10-TX-03", "S10-TX-05", "WISH-RCV-01")
@pytest.mark.parametrize(("mode", "persistent"), [("client", "true"), ("client-individual", "false")])
@pytest.mark.parametrize(("version", "command"), [("1.0", "ACK"), ("1.1", "NACK"), ("1.2", "ACK"), ("1.2", "NACK")])
def test_a_received_message_in_a_transaction(version, command, mode, persistent):
    bench = Bench(store=MemoryStore())
    (peer,) = peers(bench, version)
    queue, session = bench.broker.virtual_host("/").destinations.queue("/queue/a"), peer.session
    for body in (b"1", b"2"):
        peer.put("/queue/a", body, persistent=persistent)
    before, message = session.memory.spare, receive(peer, ack=mode)
    for end in ("ABORT", "ABORT", "COMMIT"):
        send(peer, "BEGIN", transaction="t")
        peer.ack(message, command, transaction="t")
        session.outbox.starved = True
        session.refill()  # it gets no further message
        assert (queue.count, len(queue.messages), len(session.consumers)) == (2, 1, 1)
        send(peer, end, transaction="t", receipt="r")
        assert [frame.command for frame in peer.take()] == ["RECEIPT"]
        if end == "ABORT":  # it is unacknowledged again
            (consumer,) = session.consumers.values()
            assert (list(consumer.unacked), len(queue.messages), session.windows.total) == ([1], 1, 1)
    again = command == "NACK"
    assert (queue.count, len(queue.messages)) == (1 + again, 1 + again)
    assert (session.consumers, session.by_number, queue.consumers) == ({}, {}, [])
    assert (session.windows.total, session.memory.spare) == (0, before)
    assert [receive(peer).body for _ in range(queue.count)] == ([b"1", b"2"] if again else [b"2"])


@pytest.mark.parametrize("end", ["ack", "nack", "lose"])
def test_receive_beside_consumers_that_pick(end):
    pytest.importorskip("lark")
    bench = Bench()
    peer, other = peers(bench, "1.2", "1.2")
    other.subscribe("/queue/a", selector="n > 2", ack="client-individual")
    for n in ("1", "2", "3"):
        peer.put("/queue/a", n, n=n)
    assert other.next("MESSAGE").body == b"3"
    message = receive(peer, ack="client-individual", selector="n = 2")
    assert message.body == b"2"
    getattr(peer, end)(*([message] if end != "lose" else []))
    (again,) = peers(bench, "1.2")
    bodies = [receive(again).body, receive(again).body]
    assert bodies == ([b"1", b""] if end == "ack" else [b"1", b"2"])
    assert len(bench.broker.virtual_host("/").destinations.queue("/queue/a").consumers) == 1


@pytest.mark.parametrize("headers", [{}, {"selector": "n = 1"}])
def test_expired_messages_are_not_received(headers):
    pytest.importorskip("lark")
    bench = Bench()
    (peer,) = peers(bench, "1.2")
    peer.put("/queue/a", b"old", expiration="1000", n="1")
    peer.put("/queue/a", b"new", n="1")
    bench.date += 2
    assert receive(peer, **headers).body == b"new"
    assert (bench.queue().count, bench.ready()) == (0, [])


def test_receive_from_a_durable_subscription():
    bench, names = Bench(), {"durable-subscription-name": "daily"}
    (peer,) = peers(bench, "1.2", client_id="me")
    send(peer, "SUBSCRIBE", destination="/topic/t", id="1", **names)
    send(peer, "DISCONNECT")
    bench.peer().put("/topic/t", b"1")
    (peer,) = peers(bench, "1.2", client_id="me")
    message = receive(peer, "/topic/t", ack="client-individual", **names)
    assert message.body == b"1"
    peer.ack(message)
    assert receive(peer, "/topic/t", **names).command == "EMPTY"
    assert not peer.session.consumers
    bench.peer().put("/topic/t", b"2")
    assert receive(peer, "/topic/t", **names).body == b"2"


@pytest.mark.parametrize(
    ("config", "headers", "why"),
    [
        ({}, {"destination": None}, "no destination"),
        ({"dialect": "activemq"}, {"destination": "/queue/a,/queue/b"}, "RECEIVE takes one destination"),
        ({}, {"ack": "sometimes"}, "unknown ack mode"),
        ({}, {"browser": "true"}, "RECEIVE cannot browse"),
        ({"max_unacked": 1, "prefetch": 1}, {"ack": "client"}, "too many unacknowledged messages"),
        ({"max_subscriptions": 1}, {"ack": "client"}, "too many unacknowledged RECEIVEs"),
    ],
)
def test_what_cannot_be_received_is_refused(config, headers, why):
    bench = Bench(**config)
    (peer,) = peers(bench, "1.2")
    for _ in range(2):
        peer.put("/queue/a", b"x")
    for _ in range(2):
        if not peer.closed:
            send(peer, "RECEIVE", **{"destination": "/queue/a", "id": "1", **headers})
    assert peer.error().headers["message"] == why


@pytest.mark.req("WISH-NEG-01", "WISH-NEG-03")
@given(st.sampled_from(VERSIONS), st.lists(st.sampled_from(VERSIONS), min_size=1, unique=True))
def test_a_client_that_names_its_highest_version(highest, versions):
    client = Connection(Role.CLIENT, versions=VERSIONS)
    client.send(Frame("CONNECT", {"host": "a", "version": highest}))
    server = Connection(Role.SERVER, versions=versions, version_header=True)
    lower = [version for version in VERSIONS if version in versions and version <= highest]
    try:
        for _frame in server.receive(b"".join(client.take_output()), 0.0):
            server.accept({"session": "1"})
    except RemoteProtocolError:
        assert not lower
        return
    list(client.receive(b"".join(server.take_output()), 0.0))
    assert (client.version, server.version) == (lower[-1], lower[-1])
