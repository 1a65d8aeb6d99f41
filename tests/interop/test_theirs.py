"""What other people's brokers do their own way, and what our client makes of it: on the real ones.

Answers that end a connection, refused logins and values, handlers that fail; windows and transactions; JMS programs;
and messages that ActiveMQ cannot write as STOMP.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from bridge.running import carry, end
from client.shells import QUICK, Shell
from client.test_sent_on import ACTIVEMQ, ARTEMIS
from interop.spark_rows import missing, sparks
from interop.taking import java, jms, taken, verb
from patience import patience
from peering import FOLDER

import stompcodec.client as stomp
from stompcodec.client import dialects
from stompcodec.errors import RejectedError, RemoteProtocolError, StompError
from stompcodec.testing import StompBroker
from stompcodec.transport.http import Handshake

TABLES = {"artemis": ARTEMIS, "activemq6": ACTIVEMQ}
#: What Spring serves behind an HTTP login.
CLOSED = ("ws://{}/closed/stomp", "http://{}/closed/sockjs")


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.peer("activemq6")
def test_an_error_does_not_end_the_session_of_activemq(peer: Any, version: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "stompcodec.client")
    name = f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url, versions=[version]) as client:
        with pytest.raises(RejectedError):
            client.subscribe(name, selector="a !")
        client.send(name, b"x", receipt=True)  # on a new connection in 1.2, whose rules end it
        assert "the server ended" not in caplog.text
        assert ("the session ended with an ERROR of the server" in caplog.text) == (version == "1.2")


@pytest.mark.peer("activemq6")
def test_activemq_takes_the_group_out_of_messages(peer: Any) -> None:
    """So a `key` for handlers has to read another header."""
    name = f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        client.send(name, b"x", {"JMSXGroupID": "g", "JMSXGroupSeq": "1", "group": "g"}, receipt=True)
        message = taken(client.subscribe(name))
        assert [message.get(key) for key in ("JMSXGroupID", "JMSXGroupSeq", "group")] == [None, None, "g"]


@pytest.fixture(params=["sync", "async"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    yield shell
    shell.stop()


@pytest.mark.peer("activemq5", "activemq6")
def test_a_message_that_is_answered_by_closing_is_given_up_and_the_others_arrive(peer: Any, shell: Shell) -> None:
    destination = peer.row.queue.format(uuid4().hex)
    client = shell.connect(
        peer.url, reconnect=QUICK, resend=True, dialect="unknown"
    )  # that of theirs refuses the value
    receipts = [
        client.send_for_receipt(destination, b"1"),
        client.send_for_receipt(destination, b"bad", {"priority": "high"}, timeout=patience(60)),
        client.send_for_receipt(destination, b"2", timeout=patience(60)),
    ]
    receipts[0].wait()
    with pytest.raises(stomp.ConnectionLostError, match="the outcome is unknown") as unknown:
        receipts[1].wait()
    assert unknown.value.sent
    receipts[2].wait()
    subscription = client.subscribe(destination)
    assert [subscription.get(patience(30)).body for _ in range(2)] == [b"1", b"2"]


@pytest.mark.peer("spring", "activemq5", "activemq6", "artemis")
def test_a_subscribe_that_is_refused_without_a_receipt_ends_and_the_others_go_on(peer: Any, shell: Shell) -> None:
    client = shell.connect(peer.ws_url or peer.url, reconnect=QUICK)
    good = client.subscribe(peer.row.queue.format(uuid4().hex), confirm=False)
    destination, selector = ("/topic/refused", None) if peer.row.name == "spring" else ("/queue/refused", "((")
    bad = client.subscribe(destination, selector=selector, confirm=False)
    with pytest.raises(stomp.RejectedError, match=f"SUBSCRIBE to {bad.destination} was rejected"):
        bad.get(patience(60))
    client.wait_connected(patience(30))
    message = None
    while message is None:  # without a receipt of SUBSCRIBE, a message may overtake it
        client.send(good.destination, b"on")
        message = good.get(1)
    assert (message.body, good.error) == (b"on", None)


@pytest.fixture
def letter(tmp_path: Path) -> str:
    """The query with a file of HTTP headers."""
    (tmp_path / "headers").write_text("Authorization: Bearer letmein\n")
    return f"?http_headers_file={tmp_path / 'headers'}"


@pytest.mark.parametrize("endpoint", CLOSED)
@pytest.mark.peer("spring")
def test_an_http_login_before_the_session(
    peer: Any, shell: Shell, endpoint: str, monkeypatch: Any, letter: str
) -> None:
    where, sent, headers = f"127.0.0.1:{peer.ports['ws']}", [], Handshake.headers
    asked = Request(f"http://{where}/closed/sockjs/info", headers={"Authorization": "Basic YW5uOnNlY3JldA=="})
    with urlopen(asked) as answer:
        cookie = {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}
    monkeypatch.setattr(Handshake, "headers", lambda self: sent.append(headers(self)) or sent[-1])
    bearer = {"Authorization": "Bearer letmein"}
    given = ((f"ann:secret@{where}", "", None), *((where, "", each) for each in (bearer, lambda: bearer, cookie)))
    for host, query, own in (*given, (where, letter, None)):
        client = shell.connect(endpoint.format(host) + query, http_headers=own)
        assert client.subscribe("/app/hello", confirm=False).get(patience(10)).text() == "hello"
        assert own or query or "Cookie" in sent[-1] or "sockjs" not in endpoint  # the one that Spring has set
    for host, why in ((where, "wants an HTTP login"), (f"ann:wrong@{where}", "does not accept this login")):
        with pytest.raises(stomp.ConnectionLostError, match=f"401: it {why}"):
            shell.connect(endpoint.format(host))


@pytest.mark.peer("spring")
def test_connect_of_1_0_alone_is_left_unanswered(peer: Any, shell: Shell) -> None:
    with pytest.raises(stomp.ConnectionLostError, match=r"do not answer STOMP 1\.0 alone"):
        shell.connect(peer.ws_url, versions=["1.0"], connect_timeout=2.0)
    assert shell.connect(peer.ws_url, versions=["1.0", "1.1"]).version == "1.1"


@pytest.mark.parametrize(
    ("limit", "sizes", "said"),
    [(0, [8_000, 9_000], ["8000", "Connection closed"]), (2**16, [9_000, 60_000], ["9000", "60000"])],
)
@pytest.mark.peer("spring")
def test_springs_own_client_takes_8_kib_unless_both_limits_are_raised(
    peer: Any, tmp_path: Path, limit: int, sizes: list[int], said: list[str], caplog: Any
) -> None:
    caplog.set_level(logging.INFO, "stompcodec.broker")
    with StompBroker(ws_port=0) as broker:
        arguments = (broker.ws_url, "/topic/a", str(limit))
        with java(peer, tmp_path, "SpringClient.java", *arguments) as program, stomp.connect(broker.url) as client:
            assert program.stdout is not None
            broker.wait_subscribed("/topic/a", timeout=patience(60))
            client.send_many([("/topic/a", "x" * size) for size in sizes])
            assert [program.stdout.readline().strip() for _ in sizes] == said
    assert ("closed the WebSocket: 1009: The decoded text message was too big" in caplog.text) == (limit == 0)


@pytest.mark.peer("spring")
def test_the_page_of_spring(peer: Any) -> None:
    page = (FOLDER.parents[1] / "docs/spring.md").read_text("utf-8")
    java, python = page.split("```java\n")[1].split("```\n\n```python\n")
    assert java in (FOLDER / "java/Spring.java").read_text("utf-8").replace("        @Message", "@Message")
    exec(
        python.partition("```")[0].replace("ws://app.example:8080/portfolio", peer.ws_url),
        {"stomp": stomp, "time": time},
    )


@pytest.mark.peer("spring", "gostomp")
def test_a_server_that_answers_no_receipts(peer: Any, shell: Shell, tmp_path: Path) -> None:
    """go-stomp's answers those of SEND. Its messages have no `ack` header."""
    url, topic = peer.ws_url or peer.url, f"/topic/{uuid4().hex}"
    with pytest.raises(stomp.ReceiptTimeoutError, match=r"no SUBSCRIBE has been answered yet: .* with receipts=False"):
        shell.connect(url).subscribe(topic, timeout=1).join(patience(20))
    client, done = shell.connect(f"{url}?receipts=false"), threading.Event()
    subscription = client.subscribe(topic, ack="client-individual")

    def send() -> None:
        while not done.wait(0.2):  # a SUBSCRIBE is read some time later
            verb(url, "pub", topic, "x", "--no-receipts")

    sender = threading.Thread(target=send)
    sender.start()
    assert subscription.get(patience(20)).body == b"x"
    for arguments in (("sub",), ("record", "-o", str(tmp_path / "capture"))):
        verb(url, *arguments, topic, "--no-receipts", "-n", "2")
    done.set()
    sender.join()
    client.send_many([(topic, "1"), (topic, "2")])
    client.close()


@pytest.mark.parametrize("scheme", ["ws", "http"])
@pytest.mark.peer("spring")
def test_large_frames_to_spring(peer: Any, shell: Shell, scheme: str) -> None:
    """It has buffers of 8 KiB, and says so as it closes. It takes bytes for text unless they have another type."""
    url, lost, topic = peer.ws_url if scheme == "ws" else sockjs(peer), [], f"/topic/{uuid4().hex}"
    bodies = ["x" * 60_000, "é" * 15_000, *([b"\xff\0" * 30_000] if scheme == "ws" else [])]
    client = shell.connect(url, receipts=False)
    subscription = client.subscribe(topic)
    while subscription.get(0.2) is None:
        client.send(topic, "on")
    for body in bodies:
        client.send(topic, body, {"content-type": "application/octet-stream"} if isinstance(body, bytes) else None)
        message = subscription.get(patience(10))
        while message.body == b"on":
            message = subscription.get(patience(10))
        assert message.body == (body if isinstance(body, bytes) else body.encode())
    whole = shell.connect(url, websocket_pieces="whole", reconnect=None, on_state=lambda _, error: lost.append(error))
    whole.send(topic, bodies[0])
    give_up = time.monotonic() + patience(10)
    while not any(lost) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert "1009: The decoded text message was too big" in str(lost[-1])


def sockjs(peer: Any) -> str:
    return str(peer.ws_url.replace("ws:", "http:").replace("/stomp", "/sockjs"))


@pytest.fixture(scope="module")
def relay(start_peer: Any) -> Iterator[Any]:
    """Spring before our broker."""
    with StompBroker() as broker:
        yield start_peer("spring", relay=str(broker.port))


@pytest.mark.parametrize("scheme", ["ws", "http"])
@pytest.mark.peer("spring")
def test_through_a_relay(relay: Any, shell: Shell, scheme: str, caplog: Any) -> None:
    """It passes on what the broker offers, and knows STOMP alone. Its ERROR at the end is no news."""
    url, queue = relay.ws_url if scheme == "ws" else sockjs(relay), f"/queue/{uuid4().hex}"
    client = shell.connect(url)
    subscription, body = client.subscribe(queue), "é" * 30_000
    client.send(queue, body, receipt=True)
    assert subscription.get(patience(10)).text() == body
    assert client.ping() < patience(10)
    with pytest.raises(stomp.LocalProtocolError, match="does not offer RECEIVE"):
        client.receive(queue)
    assert client.epoch == 1
    for _ in range(10):
        shell.connect(url).close()
        verb(url, "pub", queue, "x", "-l")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    stranger = shell.connect(url.replace("guest:guest@", ""), reconnect=QUICK)
    assert stranger.ping() < patience(10)
    with pytest.raises(stomp.RejectedError, match=r"RECEIVE from .*No enum constant"):
        stranger.receive(queue)
    stranger.wait_connected()
    with pytest.raises(stomp.LocalProtocolError, match="does not offer RECEIVE"):
        stranger.receive(queue)


@pytest.mark.parametrize("endpoint", CLOSED)
@pytest.mark.peer("spring")
def test_an_http_login_of_the_bridge(relay: Any, endpoint: str, letter: str) -> None:
    url = endpoint.format(f"127.0.0.1:{relay.ports['ws']}") + letter
    queue = f"/queue/{uuid4().hex}"
    verb(url, "pub", queue, "x")
    with StompBroker() as other:
        for way, to in (((url, other.url), queue), ((other.url, url), f"{queue}.back")):
            ends = (end(each, name=uuid4().hex) for each in way)  # by their own names they are a circle
            assert carry(*ends, f"{queue}={to}", way={"idle": patience(9), "most": 1}).carried == 1
    assert verb(url, "sub", f"{queue}.back", "-n", "1").output == "x\n"


@pytest.mark.peer("spring")
def test_an_http_login_of_spark(relay: Any, letter: str, tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    with sparks() as spark:
        for endpoint in CLOSED:
            url, queue = endpoint.format(f"127.0.0.1:{relay.ports['ws']}") + letter, f"/queue/{uuid4().hex}"
            rows = spark.createDataFrame([(queue, b"x")], "destination string, body binary")
            rows.write.format("stomp").mode("append").option("url", url).save()
            read = spark.read.format("stomp").options(url=url, destination=queue, maxFrames=1)
            rows = read.option("spoolDir", str(tmp_path / queue[7:])).load()
            assert [bytes(row.body) for row in rows.collect()] == [b"x"]
            assert "letmein" not in rows._jdf.queryExecution().toString()


@pytest.mark.parametrize("scheme", ["ws", "http"])
@pytest.mark.peer("spring")
def test_a_relay_whose_broker_starts_again(start_peer: Any, shell: Shell, scheme: str) -> None:
    """Clients are told, and come back when the relay has its broker."""
    told = threading.Event()
    with StompBroker() as broker:
        port, topic, queue = broker.port, f"/topic/{uuid4().hex}", f"/queue/{uuid4().hex}"
        relay = start_peer("spring", relay=str(port), limit="1000000")
        url = relay.ws_url if scheme == "ws" else sockjs(relay)
        how = {"reconnect": QUICK, "on_state": lambda state, _: state == "reconnecting" and told.set()}
        client = shell.connect(url, resend=True, **how)
        news, work = client.subscribe(topic), client.subscribe(queue)
        client.send(queue, "x" * 100_000, receipt=True)
        assert len(taken(work).body) == 100_000
    assert told.wait(patience(10))
    with StompBroker(port=port):
        client.wait_connected(patience(60))
        for subscription in (work, news):
            client.send(subscription.destination, "again", receipt=True)
            assert taken(subscription).text() == "again"
        assert client.epoch > 1


@pytest.mark.peer("activemq5", "activemq6")
def test_only_what_always_fails_becomes_a_dead_letter(peer: Any) -> None:
    """The first message fails for two seconds, the third one always."""
    queue, calls, handled = f"/queue/handled.{uuid4().hex}", [], []
    began, done = time.monotonic(), threading.Event()

    def handle(message: stomp.Message) -> None:
        text = message.text()
        calls.append(text)
        if text.endswith("bad") or (text.endswith("0") and time.monotonic() - began < 2):
            raise RuntimeError("not now")
        handled.append(text)
        if len(handled) == 4:
            done.set()

    with stomp.connect(peer.url) as client:
        bodies = [f"{queue} {end}" for end in ("0", "1", "bad", "3", "4")]
        client.send_many([(queue, body) for body in bodies], persistent=True)
        client.subscribe(queue, handler=handle)
        assert done.wait(patience(60))
        letters = client.subscribe("/queue/ActiveMQ.DLQ", ack="client-individual")
        found = []
        while not found or found[-1] != bodies[2]:
            message = taken(letters)
            found.append(message.text())
            message.ack()
    assert handled == [body for body in bodies if body != bodies[2]]
    assert calls.count(bodies[2]) == 6
    assert [each for each in found if each.startswith(queue)] == [bodies[2]]


@pytest.mark.peer("activemq5", "activemq6")
def test_an_outage_does_not_change_the_order(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the longest pauses the window is one message, and grows again behind them."""
    monkeypatch.setattr("stompcodec.client.handlers.LONGEST", 0.4)
    monkeypatch.setattr("stompcodec.client.sync.messages.LONGEST", 0.4)
    queue, handled, windows = f"/queue/outage.{uuid4().hex}", [], []
    began, done = time.monotonic(), threading.Event()

    def handle(message: stomp.Message) -> None:
        if time.monotonic() - began < 1.5:
            raise RuntimeError("not now")
        handled.append(int(message.body))
        if message.body == b"59":
            done.set()

    def watch(_way: str, frame: Any) -> None:
        if frame.command == "SUBSCRIBE":
            windows.append(frame.get("activemq.prefetchSize"))

    with stomp.connect(peer.url, on_frame=watch) as client:
        client.send_many([(queue, b"%d" % number) for number in range(60)], persistent=True)
        client.subscribe(queue, handler=handle, prefetch=20)
        assert done.wait(patience(60))
    assert windows == ["20", "1", "20"]
    assert handled == sorted(set(handled))


@pytest.mark.peer("artemis", "activemq6")
def test_the_broker_loses_what_the_client_refuses_and_takes_what_it_sends(peer: Any) -> None:
    with stomp.connect(peer.url) as taker:
        for name, (lost, good) in TABLES[peer.row.name].items():
            for value in lost + good:
                queue = f"/queue/values-{uuid4().hex[:12]}"
                destination, headers = (value, {}) if name == "destination" else (queue, {name: value})
                subscription = taker.subscribe(queue)
                # Not by its own dialect, so that the client does not judge.
                options: Any = {"dialect": "stompcodec", "reconnect": None, "receipt_timeout": patience(10)}
                with stomp.connect(peer.url, **options) as client:
                    try:
                        client.send(destination, b"asked", headers, receipt=True)
                        is_sent = True
                    except StompError:
                        is_sent = False
                taker.send(queue, b"end", receipt=True)
                found = [taken(subscription), subscription.get(0.5)]  # a low priority may come behind the end
                came = destination != queue or b"asked" in [each.body for each in found if each is not None]
                if headers != {"destination-type": "MULTICAST"}:  # which is another destination
                    assert (is_sent and came) is (value in good), (name, value, is_sent)
                subscription.unsubscribe()


# ---- windows and transactions: no program stalls that holds fewer messages than its prefetch ----

#: What makes a destination a queue on both acceptors of Artemis.
_SENT, _TAKEN = {"destination-type": "ANYCAST", "persistent": "true"}, {"subscription-type": "ANYCAST"}
_WAIT = 20


def _fill(client: Any, queue: str, count: int, size: int, headers: dict[str, str]) -> list[bytes]:
    bodies = [b"%d " % number + bytes(size) for number in range(count)]
    client.send_many([(queue, body, headers) for body in bodies])
    return [body[:4] for body in bodies]


def _take(subscription: Any, count: int) -> list[Any]:
    taken = []
    while len(taken) < count and (message := subscription.get(patience(_WAIT))) is not None:
        taken.append(message)
    return taken


@pytest.mark.peer("artemis", "artemis-plain")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize(("count", "size"), [(100, 3_000), (5, 1_000_000)])
def test_a_program_may_hold_as_many_messages_as_its_prefetch_says(peer, count, size, ack, version):
    """Each comes once and in order, also after the acknowledgements, and none comes again."""
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url, versions=[version]) as client:
        expected = _fill(client, queue, 2 * count, size, _SENT)
        subscription = client.subscribe(queue, ack=ack, prefetch=count, headers=_TAKEN)
        found = []
        for _ in range(2):
            some = _take(subscription, count)
            found += [message.body[:4] for message in some]
            for message in some[-1:] if ack == "client" else some:
                message.ack()
        assert found == expected
    with stomp.connect(peer.url) as client:
        client.send(queue, b"the end", _SENT, receipt=True)
        message = taken(client.subscribe(queue, ack="client", headers=_TAKEN))
        assert message.body == b"the end"
        message.ack(receipt=True)


@pytest.mark.peer("artemis", "artemis-plain")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_queue_that_refuses_a_further_consumer_ends_one_connection_at_most(peer: Any, version: str) -> None:
    """Artemis names the id in the message of its ERROR, and gives no receipt-id; in 1.1 the session goes on."""
    queue, states = f"windows.{uuid4().hex}", []
    made = {"name": queue, "address": queue, "routing-type": "ANYCAST", "max-consumers": 1}
    managed = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "createQueue"}
    with stomp.connect(peer.url, versions=[version], on_state=lambda state, _: states.append(state)) as client:
        client.send("activemq.management", json.dumps([json.dumps(made)]), managed, receipt=True)
        expected = _fill(client, queue, 4, 100_000, _SENT)
        subscription = client.subscribe(queue, ack="client-individual", prefetch=5, headers=_TAKEN)
        (held,) = _take(subscription, 1)
        for _ in range(2):
            held = subscription.get(1) or held  # after the reconnect it comes again
        found = [held.body[:4]]
        held.ack()
        for message in (_take(subscription, 1)[0] for _ in range(3)):
            found.append(message.body[:4])
            message.ack()
        assert found == expected
    assert states.count("reconnecting") == (version == "1.2")


@pytest.mark.peer("artemis")
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_an_ack_takes_effect_with_its_transaction(peer: Any, ack: str) -> None:
    """In mode `client`, a later ACK outside does not settle what an aborted transaction had acknowledged."""
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        _fill(client, queue, 5, 10, _SENT)
        subscription = client.subscribe(queue, ack=ack, headers=_TAKEN)
        first, second, third, fourth, _ = _take(subscription, 5)
        with client.transaction() as kept:
            kept.ack(first)
            kept.send(queue + ".out", b"done", _SENT)
        dropped = client.transaction().begin()
        dropped.ack(second)
        third.ack()
        dropped.abort()
        if ack == "client-individual":
            fourth.ack()
        client.close()
    with stomp.connect(peer.url) as client:
        subscription = client.subscribe(queue, ack="client", headers=_TAKEN)
        again = ["1", "4"] if ack == "client-individual" else ["1", "2", "3", "4"]
        assert [message.text()[:1] for message in _take(subscription, len(again))] == again


@pytest.mark.peer("artemis")
def test_a_receive_that_a_transaction_stops_is_an_error(peer: Any) -> None:
    queue = f"/queue/windows.{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        _fill(client, queue, 3, 3_000, _SENT)
        subscription = client.subscribe(queue, ack="client-individual", prefetch=2, headers=_TAKEN)
        with client.transaction() as transaction:
            for message in _take(subscription, 2):
                transaction.ack(message)
            with pytest.raises(stomp.LocalProtocolError, match="prefetch of 2"):
                subscription.get(patience(_WAIT))
        assert taken(subscription).body[:1] == b"2"


# ---- JMS programs ----


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.peer("activemq5", "activemq6", "artemis")
def test_what_jms_programs_send(peer: Any, tmp_path: Path, version: str, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(dialects, "_warned", set())
    name, kinds = uuid4().hex, ["é", "", "map", "object", "bytes"]
    jms(peer, tmp_path, name, *kinds, *["stream"] * (peer.row.dialect == "activemq"))  # Artemis fails to deliver that
    with stomp.connect(peer.url, versions=[version], dialect=peer.row.dialect) as client:
        subscription = client.subscribe(f"/queue/{name}")
        found = [taken(subscription) for _ in kinds]
    assert [message.text() for message in found] == ["é", "", "", "", "bytes"]
    assert [found[0].subscription.dialect.body_of(message.frame) for message in found] == ["é", "", "", "", b"bytes"]
    assert caplog.text.count("has no body") == 1


@pytest.mark.peer("activemq5", "activemq6", "artemis")
def test_text_stays_text_for_a_jms_reader(peer: Any, tmp_path: Path) -> None:
    name = uuid4().hex
    there, to = f"/queue/{name}", f"/queue/{name}.to"
    jms(peer, tmp_path, name, "map", *["é", "bytes"] * 3)
    for tool in (["move", there, to], ["dlq", "retry", there, "--to", to]):  # which leave the map
        assert "--text moves them as empty texts" in verb(peer.url, *tool, "-n", "3", "--yes", status=1).output
    with StompBroker(jms=True) as ours:
        carry(peer.url, ours.url, f"{there}=/queue/a", way={"idle": patience(3)})
        carry(end(ours.url, name="x"), end(peer.url, name="y"), f"/queue/a={to}")
    for version in ("1.0", "1.1"):
        with stomp.connect(peer.url, versions=[version]) as client:
            for body in ("é", b"bytes"):
                client.send(to, body, receipt=True)
    with stomp.connect(peer.url) as client:
        client.send_many([(to, "é"), (to, b"bytes")])
        client.send(there, b"", {"reply-to": to}, receipt=True)
        request = taken(client.subscribe(there, ack="client-individual"))
        for answer in ("é", b"bytes"):
            request.reply(answer, receipt=True)
        request.ack()
    verb(peer.url, "pub", to, "é")
    verb(peer.url, "pub", to, "bytes", "--bytes")
    both = ["text é", "bytes bytes"]
    assert jms(peer, tmp_path, f"{name}.to", "read", "17") == [*both * 2, "text ", *both * 6]


# ---- messages that ActiveMQ cannot write: a JMS client sends two, and the client and the tools get past them ----

LETTERS = "/queue/ActiveMQ.DLQ"
on_activemq = pytest.mark.peer("activemq5", "activemq6")


@pytest.fixture
def poisoned(peer: Any, tmp_path: Path) -> str:
    """A queue with a good message, two that cannot be read, and a good one."""
    name = f"poison.{uuid4().hex}"
    jms(peer, tmp_path, name, "first", "nul", "property", "last")
    return f"/queue/{name}"


def run(peer: Any, *arguments: str, status: int = 0) -> str:
    return str(verb(peer.url, *arguments, status=status).stdout)


def count(peer: Any, queue: str) -> int:
    """How many messages a queue has, with those that cannot be read."""
    counts = json.loads(run(peer, "purge", queue, "--dry-run", "--lenient", "--json"))
    return int(counts["messages"])


def until_it_fails(subscription: stomp.Subscription) -> None:
    for _ in range(20):
        message = subscription.get(patience(10))
        assert message is None or message.body in (b"first", b"nul")


@on_activemq
def test_without_an_option_the_subscription_ends_and_says_why(peer: Any, poisoned: str) -> None:
    with stomp.connect(peer.url, reconnect=stomp.Backoff(first=0.05, most=0.05)) as client:
        other = client.subscribe(f"{poisoned}.other", ack="client-individual")
        subscription = client.subscribe(poisoned, ack="client-individual", id="mine")
        with pytest.raises(
            RemoteProtocolError, match=f"subscription 'mine', destination '{poisoned}', message-id 'ID:"
        ):
            until_it_fails(subscription)
        assert client.epoch <= 4  # the third loss has counted, too
        client.wait_connected(patience(10))
        client.send(f"{poisoned}.other", "hello", receipt=True)
        taken(other).ack()


@on_activemq
@pytest.mark.parametrize(("policy", "letters", "left"), [("skip", 2, 0), ("ack", 0, 0), ("ignore", 0, 2)])
def test_the_others_come_and_each_policy_does_what_it_says(peer, poisoned, policy, letters, left):
    run(peer, "purge", LETTERS, "--yes", "--lenient")
    with stomp.connect(peer.url) as client:
        subscription = client.subscribe(poisoned, ack="client-individual", on_unreadable=policy)
        for body in (b"first", b"last"):
            message = taken(subscription)
            assert message.body == body
            message.ack(receipt=True)
        assert client.epoch == 1
    assert count(peer, poisoned) == left
    assert count(peer, LETTERS) == letters


@on_activemq
def test_dead_letters_that_cannot_be_read_stay_until_they_are_purged(peer: Any, poisoned: str) -> None:
    run(peer, "purge", LETTERS, "--yes", "--lenient")
    run(peer, "sub", poisoned, "-n", "2", "-f", "{body}", "--lenient")
    assert run(peer, "dlq", "list", "--json") == ""
    run(peer, "dlq", "retry", LETTERS, "--yes", "--lenient", status=1)
    assert count(peer, LETTERS) == 2
    run(peer, "purge", LETTERS, "--yes", status=1)
    assert json.loads(run(peer, "purge", LETTERS, "--yes", "--lenient", "--json"))["messages"] == 2
    assert count(peer, LETTERS) == 0


@on_activemq
def test_they_do_not_hold_up_what_is_moved(peer: Any, poisoned: str) -> None:
    run(peer, "move", poisoned, f"{poisoned}.moved", "--yes", "--lenient", status=1)
    assert count(peer, poisoned) == 2
    assert count(peer, f"{poisoned}.moved") == 2
