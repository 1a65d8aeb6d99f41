"""The lasting identity of a message: the same in each delivery, and another one for each other message."""

from __future__ import annotations

import pytest

from stompcodec import Frame
from stompcodec.client.dialects import BROKERS, lasting_identity, row_of
from stompcodec.client.messages import Comings

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


def headers(id: str | None, time: str | None) -> dict[str, str]:
    return {name: value for name, value in (("message-id", id), ("timestamp", time)) if value is not None}


@pytest.mark.parametrize("server", SEEN)
def test_two_deliveries_of_a_message_have_one_identity(server: str) -> None:
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
def test_another_form_has_no_identity_on_artemis(id: str | None, time: str | None) -> None:
    assert lasting_identity(BROKERS["artemis"], headers(id, time)) is None


# ---- who uses it ----


def test_what_cannot_be_read_is_counted_by_it() -> None:
    """Else it would come for ever: Artemis gives it another message-id each time."""

    def counted(dialect: str, **more: str) -> list[bool]:
        comings = Comings()
        frames = [Frame("MESSAGE", {"subscription": "1", "message-id": f"{n},28", **more}) for n in range(3)]
        return [comings.is_last(frame, 0, 100, BROKERS[dialect]) for frame in frames]

    assert counted("artemis", timestamp=AT) == [False, False, True]
    assert counted("artemis") == [False, False, True]  # the fault was before the timestamp
    assert counted("activemq") == [False, False, False]
