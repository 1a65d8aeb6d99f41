"""Names of queues and topics on Artemis, with prefixes on the acceptor and without; requests; headers sent on."""

import json
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from interop.taking import java, taken, verb
from patience import patience

import stompcodec.client as stomp

BOTH = pytest.mark.peer("artemis", "artemis-plain")
#: Seconds in which a message comes on a quiet machine, and in which one that does not come would have come.
_SOON, _NOTHING = 20, 0.5
TYPED: Any = {"artemis_types": True}
UNTYPED: Any = {"artemis_types": False}


def fresh(kind: str = "queue") -> str:
    return f"/{kind}/names-{uuid.uuid4().hex[:12]}"


def got(subscription: stomp.Subscription, count: int) -> list[str]:
    """So many bodies, and what more there is."""
    found = []
    while (message := subscription.get(patience(_SOON) if len(found) < count else _NOTHING)) is not None:
        found.append(message.body.decode())
        if subscription.ack != "auto":
            message.ack()
    return found


def address(peer: Any, name: str) -> str:
    """Return the address that a name means: an acceptor with prefixes takes them off."""
    return name if peer.row.name == "artemis-plain" else name.removeprefix("/queue/")


def manage(client: stomp.Client, operation: str, *arguments: str) -> str:
    """Have Artemis do an operation of its broker; its answer."""
    answers = uuid.uuid4().hex
    with client.subscribe(answers, headers={"subscription-type": "ANYCAST"}) as subscription:
        headers = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation, "destination-type": "ANYCAST"}
        client.send("activemq.management", json.dumps(arguments), {**headers, "reply-to": answers}, receipt=True)
        answer = taken(subscription)
    assert answer.get("_AMQ_OperationSucceeded") == "true", answer.body
    return answer.body.decode()


@BOTH
def test_a_queue_keeps_what_comes_first_and_its_consumers_share(peer: Any) -> None:
    for form in ("/queue/", "queue/", "jms.queue.", "queue://", "/temp-queue/"):
        name = form + uuid.uuid4().hex
        with stomp.connect(peer.url) as one, stomp.connect(peer.url) as other:
            one.send(name, b"0", receipt=True)
            subscriptions = [each.subscribe(name, ack="client-individual", prefetch=1) for each in (one, other)]
            for number in range(1, 6):
                one.send(name, b"%d" % number, receipt=True)
            found = [got(each, 1) for each in subscriptions]
            assert sorted(found[0] + found[1]) == [str(number) for number in range(6)]


@BOTH
def test_each_subscriber_of_a_topic_gets_all_and_a_durable_one_keeps(peer: Any) -> None:
    with stomp.connect(peer.url, client_id=uuid.uuid4().hex) as one, stomp.connect(peer.url) as other:
        for form in ("/topic/", "topic/", "jms.topic.", "topic://"):
            name = form + uuid.uuid4().hex
            subscriptions = [each.subscribe(name) for each in (one, other)]
            one.send(name, b"1", receipt=True)
            assert [got(each, 1) for each in subscriptions] == [["1"], ["1"]]
        name = fresh("topic")
        one.subscribe(name, durable="d").unsubscribe()
        other.send(name, b"kept", receipt=True)
        subscription = one.subscribe(name, durable="d")
        assert got(subscription, 1) == ["kept"]
        subscription.unsubscribe(delete=True)
        other.send(name, b"gone", receipt=True)
        assert got(one.subscribe(name, durable="d"), 0) == []
        with pytest.raises(ValueError, match="which is a queue"):
            one.subscribe(fresh(), durable="e")


@BOTH
def test_an_untyped_peer_shares_a_queue_that_exists(peer: Any) -> None:
    """And what it has made without a type is another destination, where the acceptor has no prefixes."""
    with stomp.connect(peer.url) as typed, stomp.connect(peer.url, **UNTYPED) as untyped:
        name = fresh()
        typed.send(name, b"0", receipt=True)
        subscription = untyped.subscribe(name)
        for client, body in ((typed, b"1"), (untyped, b"2")):
            client.send(name, body, receipt=True)
        assert got(subscription, 3) == ["0", "1", "2"]
        name = fresh()
        first = untyped.subscribe(name)
        typed.send(name, b"1", receipt=True)
        is_plain = peer.row.name == "artemis-plain"
        assert got(first, 0 if is_plain else 1) == ([] if is_plain else ["1"])
        assert got(typed.subscribe(name), 1 if is_plain else 0) == (["1"] if is_plain else [])


@BOTH
def test_where_nothing_is_created_an_address_of_the_other_type_is_refused_in_words(peer: Any) -> None:
    name = fresh()
    kinds = {"": "ANYCAST", "-topic": "MULTICAST"}
    with stomp.connect(peer.url) as client:
        for end in ("", "-none", "-topic"):
            off = json.dumps({"autoCreateQueues": False, "autoCreateAddresses": False})
            manage(client, "addAddressSettings", address(peer, name + end), off)
        for end, kind in kinds.items():
            manage(client, "createAddress", address(peer, name + end), kind)
        there = {"name": address(peer, name), "address": address(peer, name), "routing-type": "ANYCAST"}
        manage(client, "createQueue", json.dumps(there))
        client.send(name, b"x", receipt=True)
        assert got(client.subscribe(name), 1) == ["x"]
    for end, reason in (("-none", "Destination does not exist"), ("-topic", "Not allowed to specify ANYCAST")):
        for call in ("send", "subscribe"):
            with stomp.connect(peer.url, reconnect=None) as client, pytest.raises(stomp.RejectedError, match=reason):
                client.send(name + end, b"x", receipt=True) if call == "send" else client.subscribe(name + end)


@BOTH
def test_requests_are_answered_by_typed_and_untyped_services(peer: Any) -> None:
    for options in (TYPED, UNTYPED):
        name = fresh()
        with stomp.connect(peer.url, **options) as service, stomp.connect(peer.url) as client:
            if options is UNTYPED:  # it finds the queue, and does not make it
                client.send(name, b"first", receipt=True)
            service.subscribe(name, handler=lambda message: message.get("reply-to") and message.reply(b"pong"))
            assert client.request(name, b"ping", patience(_SOON)).body == b"pong"
            service.send(name, b"no request", receipt=True)
            assert client.request(name, b"ping", patience(_SOON)).body == b"pong"
        name = f"/temp-queue/{uuid.uuid4().hex}"
        with stomp.connect(peer.url, **options) as client, stomp.connect(peer.url) as service:
            answers, asked = client.subscribe(name), fresh()
            service.send(asked, b"?", {"reply-to": name}, receipt=True)
            message = taken(service.subscribe(asked))
            message.reply(b"!", receipt=True)
            assert got(answers, 1) == ["!"]


@pytest.mark.peer("activemq5", "activemq6", "artemis", "artemis-plain")
def test_jms_programs_and_ours_answer_each_other(peer: Any, tmp_path: Path) -> None:
    kinds, name = ["queue", "topic", "temp-queue", "temp-topic"], fresh()
    theirs = name if peer.row.name == "artemis-plain" else name[7:]
    page = (Path(__file__).parents[2] / "docs" / f"{peer.row.dialect}.md").read_text("utf-8")
    shown = page.partition("```java\n")[2].partition("```")[0].splitlines()
    program = Path(__file__).with_name("Requests.java")
    assert {*shown} <= {line.strip() for line in program.read_text("utf-8").splitlines()}
    with java(peer, tmp_path, program.name, theirs, *kinds) as asking:
        verb(peer.url, "reply", name, "pong", "-n", "4", "-w", str(patience(60)))
        out = asking.communicate(timeout=patience(60))[0]
        assert (out.splitlines(), asking.returncode) == (["pong"] * 4, 0)
    with java(peer, tmp_path, program.name, theirs), stomp.connect(peer.url) as client:
        for number in range(2):
            assert client.request(name, str(number), patience(_SOON)).text() == f"{number} pong"


@BOTH
def test_an_openwire_program_answers_to_a_queue(peer: Any, start_peer: Any, tmp_path: Path) -> None:
    name, answers = fresh(), uuid.uuid4().hex
    theirs = start_peer("activemq6")  # for its libraries
    at_artemis = SimpleNamespace(row=theirs.row, ports={"openwire": peer.ports["core"]}, classpath=theirs.classpath)
    with java(at_artemis, tmp_path, "Requests.java", address(peer, name)), stomp.connect(peer.url) as client:
        subscription = client.subscribe(answers, headers={"subscription-type": "ANYCAST"})
        for reply_to in (f"queue://{answers}", answers):
            client.send(name, "one", {"reply-to": reply_to, "correlation-id": "1"}, receipt=True)
            assert taken(subscription).text() == "one pong"


@pytest.mark.peer("activemq5", "activemq6")
@pytest.mark.parametrize("reply_to", ["/remote-temp-queue/ID:gone-1:1:1", "temp-topic://ID:gone-1:1:1"])
def test_a_reply_fails_where_the_broker_says_that_the_requester_is_gone(peer: Any, reply_to: str) -> None:
    name = fresh()
    with stomp.connect(peer.url) as client:
        client.send(name, b"?", {"reply-to": reply_to}, receipt=True)
        with pytest.raises(stomp.RejectedError, match="does not exist"):
            taken(client.subscribe(name)).reply(b"!", receipt=True)
        client.send(f"{name}.verb", b"?", {"reply-to": reply_to}, receipt=True)
    assert "the answer was refused" in verb(peer.url, "reply", f"{name}.verb", "!", "-n", "1", status=1).output


@BOTH
def test_nobody_else_reads_an_answer_and_nothing_is_left(peer: Any) -> None:
    name, mine = fresh(), "/temp-topic/replies"
    with stomp.connect(peer.url) as other, stomp.connect(peer.url) as service:
        shared = [other.subscribe(each) for each in (mine, "/temp-queue/replies")]
        service.subscribe(name, handler=lambda message: message.reply(b"secret"))
        with stomp.connect(peer.url) as client:
            assert client.request(name, b"?", patience(_SOON)).body == b"secret"
            assert mine in manage(other, "getAddressNames")
        assert [got(each, 0) for each in shared] == [[], []]
        assert f"{mine}." not in manage(other, "getAddressNames")


@BOTH
def test_a_missing_right_to_have_replies_is_one_error(peer: Any) -> None:
    """The rights are those of the order in which the operation takes their roles."""
    rights = ["send", "consume", *("createDurableQueue", "deleteDurableQueue", "createNonDurableQueue")]
    rights += ["deleteNonDurableQueue", "manage", "browse", "createAddress", "deleteAddress"]
    with stomp.connect(peer.url) as other:
        for right in ("consume", "createNonDurableQueue", "createAddress"):
            manage(
                other,
                "addSecuritySettings",
                "/temp-topic/replies.#",
                *("x" if each == right else "amq" for each in rights),
            )
            try:
                for version in ("1.0", "1.1", "1.2"):
                    options: Any = {"versions": [version], "dialect": "artemis"}
                    refused = pytest.raises(stomp.RejectedError, match=f"needs the rights .*{right}")
                    with stomp.connect(peer.url, **options) as client, refused:
                        client.request(fresh(), b"?", patience(_SOON))
            finally:
                manage(other, "removeSecuritySettings", "/temp-topic/replies.#")


@BOTH
def test_the_tools_move_record_and_send_back(peer: Any, tmp_path: Any) -> None:
    name, other, bare, typed = fresh(), fresh(), uuid.uuid4().hex, {"subscription-type": "ANYCAST"}
    with stomp.connect(peer.url) as client:
        client.send_many([(name, b"%d" % number, {"n": str(number)}) for number in range(3)], persistent=True)
        verb(peer.url, "move", name, other, "--yes", "--idle", "1")
        verb(peer.url, "move", other, bare, "--yes", "--idle", "1")  # which is a queue, as the tool knows
        assert got(client.subscribe(bare, headers=typed, ack="client-individual"), 3) == ["0", "1", "2"]
        client.send(name, b"recorded", receipt=True)
        verb(peer.url, "record", name, "-o", str(tmp_path / "a.stompcap"), "-n", "1", "-q")
        assert got(client.subscribe(name), 0) == []
    with stomp.connect(peer.url) as client:  # deliveries without ACK make a dead letter
        letters = client.subscribe("DLQ", headers=typed, ack="client-individual")
        client.send(other, b"bad", {"n": "7"}, receipt=True, persistent=True)
        while (letter := letters.get(0.05)) is None:
            with stomp.connect(peer.url) as taker:
                taker.subscribe(other, ack="client-individual", prefetch=1).get(1.0)
        assert letter.get("_AMQ_ORIG_ROUTING_TYPE") == "1"
    verb(peer.url, "dlq", "retry", "DLQ", "--only", "*names-*", "--yes", "--idle", "1")
    with stomp.connect(peer.url) as client:
        back = taken(client.subscribe(other))
        assert (back.body, back.get("n")) == (b"bad", "7")
        assert not [name for name in back.headers if "_AMQ_ORIG" in name or name == "content-type"]


@pytest.mark.peer("artemis", "artemis-plain", "activemq6")
def test_the_headers_of_a_received_message_are_sent_on(peer: Any) -> None:
    name, other = fresh(), fresh()
    with stomp.connect(peer.url, receipt_timeout=patience(_SOON)) as client:
        subscription = client.subscribe(name, ack="client-individual")
        client.send(name, b"x", {"n": "1"}, receipt=True, resend=True)
        message = taken(subscription)
        for headers in (message.headers, dict(message.headers)):
            client.send(other, message.body, headers, receipt=True)
            client.send(name, message.body, headers, receipt=True)
        for each in (client.subscribe(other, ack="client-individual"), subscription):
            for _ in range(2):
                copy = taken(each)
                assert (copy.body, copy.get("n")) == (b"x", "1")
                copy.ack(receipt=True)
        message.ack(receipt=True)
