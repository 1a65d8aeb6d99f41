"""The older worker dialect: by a listener of its own, by detection, and with our client; it folds names of headers."""

import pytest
from broker.harness import Bench, Peer
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, Parser
from stompcodec.broker import message
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.selectors import _ALIASES
from stompcodec.broker.sessions import commands
from stompcodec.broker.sessions.session import NAMES
from stompcodec.codec import serialize
from stompcodec.connection import Connection, FirstFrame, Role, is_legacy
from stompcodec.errors import LocalProtocolError, RemoteProtocolError
from stompcodec.spec import VERSIONS

CONNECT = b"connect\nUsername: fred\nPasscode: xyzzy\n\n\0"
SUBSCRIBE = b"subscribe\ndestination:/queue/a\n\n\0"


class Worker(Peer):
    def __init__(self, bench, **options):
        super().__init__(bench, "legacy", **options)
        self.parser.version = "legacy"

    def flush(self):
        super().flush()
        self.parser.version = "legacy"


def worker(bench=None, connect=CONNECT, **options):
    peer = Worker(Bench(detect_legacy=True) if bench is None else bench, **options)
    peer.raw(connect)
    return peer


@pytest.mark.req("LEG-CMD-01", "LEG-CON-02")
@pytest.mark.parametrize(
    ("octets", "legacy"),
    [
        *((b"connect\n", True), (b"\n\r\nConnect \n", True), (b"CONNECT \nhost:a\n\n\0", True)),
        *((b"CONNECT\nusername: fred\npasscode:x\n\n\0", True), (b"CONNECT\r\nUSERNAME:fred\r\n\r\n\0", True)),
        (b"CONNECT\nusername:fred\naccept-version:1.2\n\n\0", False),
        *((b"CONNECT\nlogin:fred\nusername:x\n\n\0", False), (b"CONNECT\nlogin:fred\n\n\0", False)),
        *((b"CONNECT\n\n\0", False), (b"CONNECT\0", False), (b"STOMP\naccept-version:1.2\n\n\0", False)),
        *((b"GET / HTTP/1.1\r\n", False), (b"CONNECT\n" + b"x" * 9000, False)),
        *((b"CONNECT\nusername:".ljust(8193, b"a"), False), (b"CONNECT\nusername:".ljust(8192, b"a"), None)),
        *((octets, None) for octets in (b"", b"\n\n", b"CON", b"connect", b"CONNECT\nusername: fred\n")),
    ],
)
def test_the_first_frame_tells(octets, legacy):
    assert is_legacy(octets) is legacy


def heard(octets, size):
    """What a server makes of a stream that comes in pieces: frames, version, and what was wrong."""
    server = Connection(Role.SERVER, versions=(*VERSIONS, "legacy"))
    frames = []
    try:
        for at in range(0, len(octets), size):
            for frame in server.receive(octets[at : at + size], 0.0):
                frames.append(frame)
                if frame.command == "CONNECT":
                    server.accept({"session": "1"})
    except RemoteProtocolError as error:
        return frames, server.version, str(error), error.cause and error.cause.offset
    return frames, server.version, None, None


PIECES = st.sampled_from(
    [
        *(b"CONNECT", b"connect", b"Connect ", b"STOMP", b"SEND", b"send", b"\n", b"\r\n", b"\n\n", b"\0", b"\0\n"),
        *(b"username: a", b"Username:b", b"login:c", b"accept-version:1.2", b"host:h", b"destination:/queue/a", b" "),
        *(b"CONNECT\nusername:a\n\n\0", b"CONNECT\naccept-version:1.1\nhost:a\n\n\0", b"x", b"\xff"),
    ]
)


@pytest.mark.req("LEG-CMD-01", "LEG-CON-05")
@given(st.lists(PIECES, max_size=12).map(b"".join), st.integers(1, 9))
def test_what_is_heard_does_not_hang_on_the_cuts(octets, size):
    assert heard(octets, size) == heard(octets, len(octets) or 1)


@pytest.mark.req("LEG-CMD-01", "LEG-HDR-02", "LEG-HDR-04", "LEG-CON-02", "LEG-CON-04", "LEG-RCP-02", "LEG-SUB-01")
def test_any_case_and_padded_values_on_the_normal_port():
    peer = worker()
    peer.raw(b"\nsubscribe\r\nDestination: /queue/a \n\n\0Send\nDESTINATION: /queue/a\nReceipt: r1\n\nhi\0")
    connected, message, receipt = peer.take()
    assert connected.headers["session"] == peer.session.id
    assert connected.get("version") is connected.get("heart-beat") is None
    assert (message.command, message.headers["destination"], message.body) == ("MESSAGE", "/queue/a", b"hi")
    assert (receipt.headers["receipt-id"], receipt.body) == ("r1", b"")


@pytest.mark.req("LEG-CON-05")
def test_where_the_dialect_is_spoken_and_that_nothing_comes_before_connect():
    assert "unknown-command" in worker(Bench()).error().headers["message"]  # without detection
    peer = worker(Bench(), connect=b"CONNECT\naccept-version:1.2\nlogin:a\n\n\0", listener="legacy")
    assert peer.next("CONNECTED").get("version") is None
    assert peer.session.version == "legacy"
    for never in (b"Send\ndestination: /queue/a\n\nx\0", b"CONNECT\nusername:" + b"a" * 10_000):
        assert worker(connect=never).error()
    peer = worker(Bench(), connect=b"send\ndestination: /queue/a\n\nx\0", listener="legacy")
    assert "before CONNECT" in peer.error().headers["message"]


def test_a_stream_that_ends_before_the_dialect_is_known():
    parser = FirstFrame(Parser)
    assert (list(parser.feed(b"con")), parser.buffered, parser.version) == ([], 3, None)
    (frame,) = parser.feed(memoryview(b"nect\n\n\0\nse"))
    assert (frame.command, parser.version) == ("CONNECT", "legacy")
    server, quiet = (Connection(Role.SERVER, versions=(*VERSIONS, "legacy")) for _ in range(2))
    assert list(server.receive(b"CONN", 0.0)) == list(quiet.receive(b"\n\n", 0.0)) == []
    quiet.close(1.0)
    with pytest.raises(RemoteProtocolError, match="inside a frame"):
        server.close(1.0)


@pytest.mark.req("LEG-CON-02")
@pytest.mark.parametrize(("passcode", "let_in"), [(b"xyzzy", True), (b" xyzzy ", True), (b"plugh", False)])
def test_username_and_passcode_are_checked(passcode, let_in):
    users = {"fred": User("fred", hash_passcode("xyzzy", n=16))}
    peer = worker(Bench(detect_legacy=True, users=users), b"CONNECT\nusername: fred\npasscode: %b\n\n\0" % passcode)
    if let_in:
        assert peer.next().command == "CONNECTED"
    else:
        assert peer.error().headers["message"] == "login refused"


@pytest.mark.req("LEG-HDR-02", "LEG-HDR-04", "LEG-HDR-05", "LEG-HDR-06", "LEG-CL-02", "LEG-UTF-02")
def test_what_a_worker_gets_follows_its_rules():
    peer = worker(connect=CONNECT + SUBSCRIBE)
    peer.bench.peer().send(
        *("SEND", "caf\u00e9\0".encode()),
        **{"destination": "/queue/a", "Foo": "a:b", "tab": "a\tb", "line": "a\nb", "x:y": "z", "y": "in between"},
        **{"before": " v", "behind": "v ", "spaces": "  "},  # its readers strip them
    )
    peer.take()
    octets = peer.octets[peer.octets.index(b"MESSAGE") :]
    assert all(line in octets for line in (b"\nfoo:a:b\n", b"content-length:6\n", b"\ny:in between\n"))
    assert not any(name in octets for name in (b"tab", b"line", b"x:y", b"before", b"behind", b"spaces"))
    assert octets.endswith("\n\ncaf\u00e9\0\0\n".encode())


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=4), st.binary(max_size=8))
def test_every_message_can_be_read_by_a_worker(headers, body):
    names = {name: value for name, value in headers.items() if "\0" not in name + value}
    try:
        octets = serialize(Frame("SEND", {"destination": "/queue/a", **names}, body), "1.2")
    except ValueError:
        return
    peer = worker(connect=CONNECT + SUBSCRIBE)
    peer.take()
    peer.bench.peer().raw(octets)
    assert peer.bodies() == [body]


@pytest.mark.req("LEG-RCP-02", "LEG-DIS-01", "LEG-RCP-01")
def test_every_frame_but_connect_can_have_a_receipt():
    peer = worker(connect=b"connect\nusername:a\npasscode:b\nreceipt:c\n\n\0")
    peer.raw(
        b"subscribe\ndestination:/queue/a\nreceipt:1\n\n\0begin\ntransaction:t\nreceipt:2\n\n\0"
        b"abort\ntransaction:t\nreceipt:3\n\n\0send\ndestination:/topic/t\nreceipt:4\n\n\0"
        b"unsubscribe\ndestination:/queue/a\nreceipt:5\n\n\0disconnect\nreceipt:6\n\n\0"
    )
    assert [frame.get("receipt-id") for frame in peer.take()] == [None, "1", "2", "3", "4", "5", "6"]
    assert peer.closed


@pytest.mark.req("LEG-CON-01", "LEG-CON-02", "LEG-CON-03", "LEG-SND-02")
def test_a_client_asks_as_the_dialect_wants():
    with pytest.raises(ValueError, match="legacy beside others"):
        Connection(Role.CLIENT, versions=["1.2", "legacy"])
    client = Connection(Role.CLIENT, versions=["legacy"], heart_beat=(1000, 1000))
    with pytest.raises(LocalProtocolError, match="username, and passcode"):
        client.send(Frame("CONNECT", {"host": "a"}))
    client.send(Frame("CONNECT", {"username": "fred", "passcode": "x"}))
    assert client.take_output() == [b"CONNECT\nusername:fred\npasscode:x\n\n\0"]
    server = b"Connected\nSession: 1\n\n\0\nreceipt\nReceipt-Id: 7\n\n\0"
    assert [frame.command for frame in client.receive(server, 0.0)] == ["CONNECTED", "RECEIPT"]
    assert (client.version, client.heartbeat) == ("legacy", (0, 0))
    client.send(Frame("SEND", {"destination": "/queue/a"}))
    assert client.take_output() == [b"SEND\ndestination:/queue/a\ncontent-length:0\n\n\0"]


def named(bench, door="legacy"):
    peer = worker(bench, b"connect\nUsername: guest\nPasscode: guest\nClient-Id: me\n\n\0", listener=door)
    assert peer.next("CONNECTED") is not None
    return peer


def send(peer, *lines, body="x", destination="/queue/a"):
    peer.raw("\n".join(["SEND", f"destination:{destination}", *lines, "", f"{body}\0"]).encode())


def subscribe(peer, *lines, id="1", ack="client", destination="/queue/a"):
    head = ["SUBSCRIBE", f"destination:{destination}", f"id:{id}", f"ack:{ack}"]
    peer.raw("\n".join([*head, *lines, "", "\0"]).encode())


@pytest.mark.req("LEG-HDR-05")
@pytest.mark.parametrize("door", ["legacy", "tcp"])
def test_names_are_heard_by_their_usual_spelling(door, monkeypatch):
    heard = []
    monkeypatch.setitem(commands.HANDLERS, "SUBSCRIBE", lambda session, frame: heard.extend(frame.headers))
    subscribe(named(Bench(detect_legacy=door == "tcp"), door), *(f"{name.upper()}:1" for name in NAMES))
    assert heard == ["destination", "id", "ack", *NAMES]
    assert {header for headers in _ALIASES.values() for header in headers if header != header.lower()} <= set(NAMES)


class Heard:
    """A frame that notes which headers it was asked for."""

    def __init__(self, frame, asked):
        self.frame, self.asked = frame, asked

    def __getattr__(self, name):
        return getattr(self.frame, name)

    def get(self, name, *default):
        self.asked.add(name)
        return self.frame.get(name, *default)

    def has_any(self, *names):
        self.asked.update(names)
        return self.frame.has_any(*names)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_other_name_with_a_capital_is_asked_for(dialect, monkeypatch):
    asked, receive = set(), Connection.receive

    def heard(connection, data, now):
        for frame in receive(connection, data, now):
            yield Heard(frame, asked) if frame.body is not None else frame

    def real(function):
        return lambda frame, *values, **named: function(getattr(frame, "frame", frame), *values, **named)

    monkeypatch.setattr(Connection, "receive", heard)
    for module in (commands, message):
        monkeypatch.setattr(module, "serialize_tail", real(module.serialize_tail))
    peer = Bench(dialect=dialect, transactional_acks=True).peer(connect=False)
    peer.parser = Parser(None, commands=("PONG", "EMPTY"))
    peer.connect(client_id="me")
    for ack in ("auto", "client", "client-individual"):
        subscribe(peer, id=ack, ack=ack)
    topic = {"artemis": "q"}.get(dialect, "/topic/q")
    subscribe(peer, "durable-subscription-name:d", id="d", destination=topic)
    send(peer)
    send(peer, *("message_group:g", "delay:1", "priority:5", "expires:0", "persistent:true", "idempotency-key:k"))
    send(peer, "reply-to:/temp-queue/a", "transformation:jms-map-json")
    peer.raw(b"BEGIN\ntransaction:t\n\n\0")
    send(peer, "transaction:t")
    for frame in [frame for frame in peer.take() if frame.get("ack")]:
        peer.raw(b"ACK\nid:%b\ntransaction:t\n\n\0" % frame.headers["ack"].encode())
    peer.raw(b"COMMIT\ntransaction:t\n\n\0RECEIVE\ndestination:/queue/a\n\n\0PING\n\n\0")
    peer.raw(b"UNSUBSCRIBE\nid:auto\n\n\0UNSUBSCRIBE\nid:d\n\n\0DISCONNECT\nreceipt:1\n\n\0")
    assert peer.take()[-1].get("receipt-id") == "1"
    assert asked > {"destination", "receipt", "heart-beat", "transaction", "id"}
    assert {name for name in asked if name != name.lower()} == set(NAMES)


def test_other_versions_and_selectors_see_the_usual_spelling():
    bench = Bench()
    reader, sender = bench.peer(), named(bench)
    subscribe(reader, "selector:JMSXGroupID = 'g'", ack="auto")
    send(sender, "JmsXGroupId:g", "Colour:red")
    (got,) = reader.take()
    assert (got.headers["JMSXGroupID"], got.headers["colour"]) == ("g", "red")
    send(sender, "JMSXGROUPID:other")
    subscribe(sender)
    assert b"\njmsxgroupid:other\n" in sender.octets


def test_behind_connect_in_one_read_and_in_a_transaction():
    bench = Bench()
    inside = b"send\ndestination:/queue/a\ntransaction:t\n_AMQ_DUPL_ID:k\n\nx\0"
    once = b"send\ndestination:/queue/a\n_AMQ_DUPL_ID:l\n\nx\0"
    peer = worker(bench, CONNECT + once * 2 + b"begin\ntransaction:t\n\n\0" + inside * 2, listener="legacy")
    assert bench.queue().count == 1
    peer.raw(b"commit\ntransaction:t\n\n\0")
    assert bench.queue().count == 2


def test_a_large_message():
    bench = Bench(large=10)
    peer = named(bench)
    subscribe(peer)
    for _ in range(2):
        send(peer, "content-length:20", "_AMQ_DUPL_ID:k", "AMQ_SCHEDULED_DELAY:5000", body="x" * 20)
    assert peer.take() == []
    bench.later(5.0)
    assert len(peer.take()) == 1
