"""The connection: its handshake, the order of frames, required headers, output, and errors of its peer."""

import copy
import itertools
import logging
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.talking import (
    ALL_HEADERS,
    COMMANDS,
    OTHER,
    client_in_session,
    connect_wire,
    connected_wire,
    connecting_client,
    connection_in,
    full,
    in_session,
    listen,
    refused,
    sent_frames,
    server_in_session,
    wire_of,
)

from stompcodec import END_OF_BODY, errors
from stompcodec.codec import Frame, parse, serialize
from stompcodec.connection import Connection, Role, steady
from stompcodec.errors import FrameError, LocalProtocolError, RemoteProtocolError
from stompcodec.spec import CLIENT_1_0, VERSIONS, Limits
from stompcodec.states import REQUIRED_HEADERS, Heartbeat, State, next_state

EVERY_COMMAND = [*COMMANDS[Role.CLIENT], *COMMANDS[Role.SERVER]]
each_role = pytest.mark.parametrize("role", list(Role))
each_state = pytest.mark.parametrize("state", State)
each_version = pytest.mark.parametrize("version", VERSIONS)
some_versions = st.lists(st.sampled_from(VERSIONS), min_size=1, unique=True)


@pytest.mark.req("S12-NEG-03", "S12-NEG-04", "S12-NEG-05", "S11-NEG-03", "S12-CTD-01")
@given(some_versions, some_versions)
def test_both_sides_agree_on_the_highest_common_version(ours, theirs):
    client, server = Connection(Role.CLIENT, versions=ours), Connection(Role.SERVER, versions=theirs)
    client.send(Frame("CONNECT", {"host": "a"}))
    common = [version for version in VERSIONS if version in ours and version in theirs]
    got = listen(server, [wire_of(client)])
    [heard] = client.receive(got.sent, 0.0)
    if common:
        assert (heard.command, server.version, client.version) == ("CONNECTED", common[-1], common[-1])
        assert server.state is client.state is State.CONNECTED
    else:
        assert (heard.command, got.error[0]) == ("ERROR", "no common version")
        assert ("version", ",".join(version for version in VERSIONS if version in theirs)) in got.error[2]
        assert server.state is client.state is State.FAILED


@pytest.mark.req("S12-CTD-01", "S12-NEG-04")
@pytest.mark.parametrize("version", ["1.2", "1.3", "", "1 .1"])
def test_a_client_refuses_a_version_it_did_not_offer(version):
    error = refused(connecting_client(versions=["1.0", "1.1"]), b"CONNECTED\nversion:%b\n\n\0" % version.encode())
    assert (error.cause.kind, error.reply) == ("no-common-version", None)


def test_connect_says_what_we_were_given_unless_it_says_so_itself():
    said = {"accept-version": "1.1,1.2", "heart-beat": "100,200", "host": "a"}
    for versions, itself in ((["1.2", "1.1"], {}), (VERSIONS, {"accept-version": "1.1", "heart-beat": "5,6"})):
        client = Connection(Role.CLIENT, versions=versions, heart_beat=(100, 200))
        client.send(Frame("CONNECT", {**itself, "host": "a"}))
        assert parse(wire_of(client), None)[0].headers == {**said, **itself}
    assert "no-common-version" in str(refused(client, connected_wire("1.2")))
    client = Connection(Role.CLIENT, versions=["1.0"])
    client.send(Frame("CONNECT"))
    assert wire_of(client) == b"CONNECT\n\n\0"


@pytest.mark.req("S12-CTD-01", "S12-CTD-02", "S10-CON-04")
def test_connected_carries_version_heart_beat_and_what_the_owner_adds():
    server = Connection(Role.SERVER, heart_beat=(0, 50))
    for _ in server.receive(connect_wire("1.1"), 0.0):
        assert server.accept([("server", "x"), ("session", "s")]).command == "CONNECTED"
    assert wire_of(server) == b"CONNECTED\nversion:1.1\nheart-beat:0,50\nserver:x\nsession:s\n\n\0\n"
    server = connection_in(Role.SERVER, State.CONNECTING, "1.0")
    with pytest.raises(LocalProtocolError, match="CONNECTED lacks session"):
        server.accept()
    server.accept({"session": "1"})
    assert server.state is State.CONNECTED
    for other in (server, Connection(Role.SERVER)):
        with pytest.raises(LocalProtocolError, match="no CONNECT to answer"):
            other.accept({"session": "1"})


@pytest.mark.req("S12-HB-02", "S12-HB-05", "S12-HB-06", "S12-HB-07")
@given(*[st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))] * 2)
def test_both_sides_agree_on_heart_beats(ours, theirs):
    client, server = Connection(Role.CLIENT, heart_beat=ours), Connection(Role.SERVER, heart_beat=theirs)
    client.send(Frame("CONNECT", {"host": "a"}))
    assert client.heartbeat == server.heartbeat == Heartbeat(0, 0)
    list(client.receive(listen(server, [wire_of(client)]).sent, 0.0))
    assert client.heartbeat == server.heartbeat[::-1]
    assert client.heartbeat.send_every == (max(ours[0], theirs[1]) if ours[0] and theirs[1] else 0)
    assert client.heartbeat.receive_every == (max(ours[1], theirs[0]) if ours[1] and theirs[0] else 0)


@pytest.mark.parametrize(("silence", "dead"), [(None, 4.0), (5000, 5.0), (5001, 5.002)])
def test_terms_of_heart_beats_for_one_client(silence, dead):
    server = Connection(Role.SERVER, heart_beat=(1, 1))
    for _ in server.receive(connect_wire(more=b"heart-beat:2000,700\n"), 0.0):
        frame = server.accept({"session": "1"}, heart_beat=(500, 1000), silence=silence)
    assert (frame.headers["heart-beat"], server.heartbeat.send_every) == ("500,1000", 700)
    server.take_output(0.0)
    assert server.tick(dead - 0.01)
    assert not server.tick(dead)


@pytest.mark.req("S12-HB-02", "S11-HB-02")
@pytest.mark.parametrize("value", ["abc", "1000", "-5,0", "1,2,3", "", "1, 2", "1," + "9" * 200])
def test_malformed_heart_beats_are_refused_but_in_1_0(value):
    header = b"heart-beat:%b\n" % value.encode()
    error = refused(Connection(Role.SERVER), connect_wire("1.2", header))
    assert (error.cause.kind, error.reply.headers["message"]) == ("bad-heart-beat", "heart-beat is malformed")
    assert server_in_session("1.0", more=header).heartbeat == Heartbeat(0, 0)
    assert refused(connecting_client(), connected_wire("1.2", header)).cause.kind == "bad-heart-beat"


@pytest.mark.parametrize(
    ("said", "setting", "values"),
    [
        *(("versions is", "versions", [[], ["1.3"]]), ("heart_beat is", "heart_beat", [(-1, 0)])),
        *(("max_body", "limits", [Limits(max_body=-1)]), ("max_headers", "first_limits", [Limits(max_headers=-1)])),
    ],
)
def test_settings_are_checked(said, setting, values):
    for value in values:
        with pytest.raises(ValueError, match=said):
            Connection(Role.SERVER, **{setting: value})


@pytest.mark.req("S12-CON-01", "S12-CON-05", "S12-DIS-02", "S12-ERR-02", "S12-FRM-06", "S12-FRM-07", "S12-CMD-02")
@each_version
@each_state
@each_role
def test_what_comes_follows_the_table(role, state, version):
    for command in EVERY_COMMAND:
        connection = connection_in(role, state, version)
        known = connection.version
        after = next_state(OTHER[role].value, state, command, known)
        codec_knows = command in (*CLIENT_1_0, *COMMANDS[Role.SERVER]) or known != "1.0"
        frame = Frame("CONNECTED", {"version": version, "session": "1"}) if command == "CONNECTED" else full(command)
        got = listen(connection, [serialize(frame)], answer=lambda *_: None)
        ended = state in (State.FAILED, State.CLOSED)
        if ended or (role is Role.SERVER and state in (State.DISCONNECTING, State.CONNECTING)):
            assert got == ([], None, state, known, b""), command
        elif after is None or not codec_knows:
            assert got.frames == []
            assert got.error is not None, command
        else:
            assert (got.frames, got.error, got.state) == ([frame], None, after), command


@pytest.mark.req("S12-CON-01", "S12-DIS-02", "S12-ERR-02", "S12-FRM-06", "S12-FRM-07")
@each_version
@each_state
@each_role
def test_what_is_sent_follows_the_table(role, state, version):
    for command in EVERY_COMMAND:
        connection = connection_in(role, state, version)
        after = next_state(role.value, state, command, connection.version)
        codec_knows = connection.version != "1.0" or command not in ("NACK", "STOMP")
        if after is None or not codec_knows:
            error, said = (LocalProtocolError, command) if after is None else (FrameError, "unknown-command")
            with pytest.raises(error, match=said):
                connection.send(full(command))
            assert (connection.output, connection.state) == ([], state)
        else:
            connection.send(full(command))
            assert connection.state is after
            assert [sent.command for sent in sent_frames(connection)] == [command]


def test_the_hot_road_knows_all_that_leaves_the_state_as_it_is():
    """The tables may only skip work, so that nothing else would notice a frame that they miss."""
    for version, state, role in itertools.product(VERSIONS, (State.CONNECTED, State.DISCONNECTING), Role):
        one, some = steady(role.value, state, version)
        for command in COMMANDS[role]:
            needs = REQUIRED_HEADERS[version, role.value].get(command, ())
            if next_state(role.value, state, command, version) is not state or needs == ("destination|id",):
                assert command not in {*one, *some}
            elif version != "1.0" or command != "NACK":
                assert (one[command],) == needs if len(needs) == 1 else some[command] == needs


def test_further_commands_need_nothing_and_only_go_in_a_session():
    server, client = server_in_session(commands=["PING"]), client_in_session(commands=["PING"])
    client.send(Frame("PING"))
    assert list(server.receive(wire_of(client), 0.0)) == [Frame("PING")]
    server.send(Frame("PING"))
    assert wire_of(server) == b"PING\n\n\0\n"
    server.send(Frame("ERROR"))
    with pytest.raises(LocalProtocolError, match="unknown command PING"):
        server.send(Frame("PING"))
    assert str(refused(Connection(Role.SERVER, commands=["PING"]), b"PING\n\n\0")) == "unknown command PING"
    assert "SEND lacks destination" in str(refused(server_in_session(commands=["SEND"]), b"SEND\n\n\0"))


REQUIRED = [
    (version, Role(sender), command, entry)
    for (version, sender), table in REQUIRED_HEADERS.items()
    for command, names in table.items()
    for entry in names
    if version != "legacy" and command not in ("CONNECT", "STOMP", "CONNECTED")
]


@pytest.mark.req("S12-SND-01", "S12-SUB-01", "S12-UNS-01", "S12-ACK-01", "S12-NAK-01", "S12-TX-01", "S12-MSG-01")
@pytest.mark.req("S11-SND-01", "S11-SUB-01", "S11-ACK-01", "S10-SND-01", "S10-UNS-01", "S10-ACK-01", "S10-TX-01")
@pytest.mark.parametrize(("version", "sender", "command", "entry"), REQUIRED)
def test_each_required_header_is_missed_on_both_sides(version, sender, command, entry):
    left_out = entry.split("|")
    pairs = [(name, "1") for name in ALL_HEADERS if name not in left_out]
    frame = Frame(command, [*pairs, ("receipt", "r")])
    said = f"{command} lacks {' or '.join(left_out)}"
    with pytest.raises(LocalProtocolError, match=said):
        in_session(sender, version).send(frame)
    receiver = in_session(OTHER[sender], version)
    good = serialize(Frame(command, [*pairs, *[(name, "") for name in left_out[-1:]]]), version)
    outcome = listen(receiver, [good + serialize(frame, version) + good])
    assert len(outcome.frames) == 1, "one in front of it, none behind it"
    assert outcome.error[0] == said
    if receiver.role is Role.SERVER:
        (reply,) = parse(outcome.sent, version)
        assert (reply.headers["message"], reply.headers["receipt-id"]) == (said, "r")


def test_a_lenient_client_takes_what_lacks_headers_and_a_lenient_server_does_not():
    wire = b"MESSAGE\ndestination:/queue/a\n\nhi\0RECEIPT\n\n\0"
    found = client_in_session("1.0", lenient=True).receive(wire, 0.0)
    assert [frame.command for frame in found] == ["MESSAGE", "RECEIPT"]
    assert "SEND lacks destination" in str(refused(server_in_session(lenient=True), b"SEND\n\nhi\0"))


@pytest.mark.parametrize("whole_frames", [True, False])
@pytest.mark.parametrize("size", [0, 5, 8191, 8192, 100_000])
def test_large_bodies_are_not_copied_and_a_server_writes_an_eol_behind_each_frame(size, whole_frames):
    """There is a client in use that cannot read a stream of frames without them."""
    for role, command, end in ((Role.SERVER, "MESSAGE", b"\0\n"), (Role.CLIENT, "SEND", b"\0")):
        frame = Frame(command, ALL_HEADERS, b"x" * size)
        connection = in_session(role, whole_frames=whole_frames)
        connection.send(frame)
        connection.send(frame)
        chunks, wire = connection.take_output(), serialize(frame)[:-1] + end
        assert b"".join(chunks) == wire * 2
        assert not whole_frames or chunks == [wire] * 2
        assert size < 100_000 or any(chunk is frame.body for chunk in chunks) is not whole_frames


BODY = bytes(range(256)) * 4


def send_wire(body, length=True):
    counted = b"content-length:%d\n" % len(body) if length else b""
    return b"SEND\ndestination:/queue/a\n%b\n%b\0" % (counted, body)


def streaming(**options):
    server, pieces = server_in_session(stream_over=99, **options), []
    server.on_piece = pieces.append
    return server, pieces


@pytest.mark.parametrize("cut", [1, 7, 500, 10_000])
@pytest.mark.parametrize("length", [True, False])
def test_a_large_body_comes_in_pieces_behind_its_frame(length, cut):
    server, pieces = streaming()
    body = BODY if length else BODY.replace(b"\0", b"x")
    wire = send_wire(b"s" * 99) + send_wire(body, length) + send_wire(b"after")
    frames = []
    for at in range(0, len(wire), cut):
        for frame in server.receive(wire[at : at + cut], 0.0):
            assert len(frames) != 1 or pieces == [], "the frame is handed out first"
            frames.append(frame)
    assert [frame.body for frame in frames] == [b"s" * 99, None, b"after"]
    assert pieces[-1] is END_OF_BODY
    assert b"".join(pieces[:-1]) == body


def test_before_the_session_nothing_is_handed_out_in_pieces():
    server = Connection(Role.SERVER, stream_over=0, first_limits=Limits(max_body=10))
    assert [frame.body for frame in server.receive(connect_wire(), 0.0)] == [b""]


@pytest.mark.req("S12-ERR-03", "S12-ERR-04", "S10-ERR-02", "S11-ERR-02", "S12-CMD-02")
@each_version
@pytest.mark.parametrize(
    ("wire", "message", "receipt"),
    [
        (b"SEND\nreceipt:r/1\n\n\0", "SEND lacks destination", "r/1"),
        (b"MESSAGE\nreceipt:r\n\n\0", "a client must not send MESSAGE", "r"),
        (b"CONNECT\nreceipt:r\n\n\0", "CONNECT cannot come twice", None),
        (b"JUMP\nreceipt:r\n\n\0", "malformed frame (unknown-command)", None),
        (b"SEND\ndestination:a\nbroken\n\n\0", "malformed frame (bad-header-line)", None),
        (b"SEND\ncontent-length:1\n\nab\0", "malformed frame (missing-null)", None),
    ],
)
def test_the_answer_is_ready(version, wire, message, receipt):
    server = server_in_session(version)
    error = refused(server, wire)
    assert str(error) == message
    names = ["message", "content-type"] + ["receipt-id"] * (receipt is not None)
    assert [name for name, _ in error.reply.headers.pairs()] == names
    assert (error.reply.get("receipt-id"), error.reply.headers["content-type"]) == (receipt, "text/plain")
    assert error.reply.body
    assert b"\0" not in error.reply.body
    server.send(error.reply)
    sent = wire_of(server)
    assert b"content-length" not in sent.partition(b"\n\n")[0]
    assert parse(sent, version) == [error.reply]
    assert server.state is (State.FAILED if version == "1.2" else State.CONNECTED)


@pytest.mark.req("S12-ERR-02", "S12-RCP-02")
@each_version
def test_nothing_comes_behind_an_error(version):
    good = b"SEND\ndestination:a\nreceipt:1\n\n\0"
    server = server_in_session(version, heart_beat=(10, 10), more=b"heart-beat:10,10\n")
    outcome = listen(server, [good + b"SEND\n\n\0" + good, good, b"nonsense", good])
    assert len(outcome.frames) == outcome.sent.count(b"ERROR\n") == 1
    assert server.next_deadline() is None
    assert server.tick(1000.0)
    assert server.take_output() == []
    server.close(1000.0)


@pytest.mark.parametrize("end", ["error", "disconnect", "refused", "closed"])
def test_what_is_dropped_is_not_kept(end):
    flood, server = b"SEND\ndestination:a\n\n" + b"x" * 100_000, server_in_session()
    if end == "error":
        server.send(Frame("ERROR"))
    elif end == "disconnect":
        list(server.receive(b"DISCONNECT\n\n\0", 0.0))
    elif end == "refused":
        refused(server, b"SEND\n\n\0" + flood)
    else:
        server.close(0.0)
    assert (list(server.receive(flood, 0.0)), server._parser.buffered) == ([], 0)


@pytest.mark.parametrize(
    ("role", "state", "command", "words"),
    [
        (Role.SERVER, State.NEW, "SEND", "SEND cannot come before CONNECT"),
        (Role.CLIENT, State.NEW, "MESSAGE", "MESSAGE cannot come before CONNECT"),
        (Role.CLIENT, State.CONNECTING, "MESSAGE", "MESSAGE cannot come before CONNECTED"),
        (Role.CLIENT, State.CONNECTED, "CONNECTED", "CONNECTED cannot come twice"),
        (Role.SERVER, State.CONNECTED, "STOMP", "STOMP cannot come twice"),
        (Role.CLIENT, State.CONNECTED, "SEND", "a server must not send SEND"),
        (Role.CLIENT, State.DISCONNECTING, "CONNECTED", "CONNECTED cannot come after DISCONNECT"),
    ],
)
def test_why_not_is_said_in_words(role, state, command, words):
    assert str(refused(connection_in(role, state), serialize(full(command)))) == words


def test_why_not_is_said_to_the_owner():
    with pytest.raises(LocalProtocolError, match="STOMP cannot come twice"):
        connection_in(Role.CLIENT, State.CONNECTING).send(full("STOMP"))
    for state, end in (("FAILED", "ERROR"), ("CLOSED", "the end of the stream"), ("DISCONNECTING", "DISCONNECT")):
        with pytest.raises(LocalProtocolError, match=f"SEND cannot come after {end}"):
            connection_in(Role.CLIENT, State[state]).send(full("SEND"))
    odd = refused(server_in_session(lenient=True), b"caf\xc3\xa9" + b"x" * 100 + b"\n\n\0")
    assert str(odd) == "unknown command caf\\xe9" + "x" * 36


@given(st.data())
def test_no_passcode_is_shown(data):
    secret = "hunter2-geheim"
    lines = [b"accept-version:1.2", b"host:a", b"login:ann", b"passcode:" + secret.encode(), b"heart-beat:1,1"]
    lines = data.draw(st.permutations(lines))
    fault = data.draw(st.sampled_from([b"", b"broken", b"\xff:1", b"accept-version:9", b"heart-beat:x", b"a:\0"]))
    lines.insert(data.draw(st.integers(0, 5)), fault)
    command = data.draw(st.sampled_from([b"CONNECT", b"STOMP", b"connect", b"SEND"]))
    wire = b"\n".join([command, *filter(None, lines), b"", b""]) + b"\0"
    server = Connection(Role.SERVER, first_limits=data.draw(st.sampled_from([None, Limits(max_header_line=16)])))
    shown = [repr(server)]
    try:
        for frame in server.receive(wire, 0.0):
            record = logging.makeLogRecord({"msg": "came: %s, %r", "args": (frame, frame)})
            shown += [repr(frame), record.getMessage(), repr(frame.headers)]
            server.accept()
        server.close(0.0)
    except RemoteProtocolError as error:
        shown += [str(error), repr(error), repr(error.reply), *traceback.format_exception(error)]
        shown += [str(error.cause), error.reply.body.decode("latin-1") if error.reply else ""]
    shown += [repr(server), str(server.output)]
    assert secret not in "\n".join(shown)


def test_errors_survive_pickling():
    reply = Frame("ERROR", {"message": "x"})
    for error in (
        RemoteProtocolError("a", reply=reply, cause=FrameError("truncated", 3)),
        *(errors.RejectedError("b", reply), errors.ConfigError("c", file="f", line=2, key="k")),
        *(errors.ConnectionLostError("d", sent=False), errors.ReceiptTimeoutError("e", sent=False)),
        LocalProtocolError("f"),
    ):
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(twin), str(twin)) == (type(error), str(error))
            assert {**vars(twin), "cause": None} == {**vars(error), "cause": None}
