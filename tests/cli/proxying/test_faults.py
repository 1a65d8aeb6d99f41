"""The faults of the proxy: each once, and what is not one."""

import re
import socket

import pytest
from cli.proxied import raw
from patience import patience

from stompcodec import parse
from stompcodec.cli.proxying.bytes import ACTIONS, faults_of

SEND = b"SEND\ndestination:/queue/a\ncontent-length:5\n\nhello\0"
OTHER = b"SEND\ndestination:/queue/b\ncontent-length:5\n\nother\0"
MESSAGE = b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:0\ncontent-length:2\n\nhi\0"
RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0"
ALL = SEND + b"\r\n\n" + OTHER + b"?" + bytes(range(256))

#: Fault, the side that sends, what it sends, and what comes out at the other side.
CASES = [
    ("lose RECEIPT", "broker", RECEIPT + MESSAGE, MESSAGE),
    ("drop SEND nth=2", "client", SEND * 3, SEND * 2),
    ("lose SEND times=all destination=/queue/a", "client", SEND + OTHER + SEND, OTHER),
    ("duplicate MESSAGE", "broker", MESSAGE + MESSAGE, MESSAGE * 3),
    ("cut MESSAGE octets=20", "broker", RECEIPT + MESSAGE, RECEIPT + MESSAGE[:20]),
    ("cut SEND", "client", OTHER + OTHER, b""),
    ("cut SEND after", "client", SEND + OTHER, SEND),
    ("delay MESSAGE 0.01", "broker", RECEIPT + MESSAGE, RECEIPT + MESSAGE),
    ("delay SEND seconds=0.01", "client", SEND, SEND),
    ("crlf MESSAGE", "broker", MESSAGE, MESSAGE.replace(b"\n", b"\r\n")),
    ("silent", "broker", b"\n" + MESSAGE + b"\n", MESSAGE),
    ("up piece=3 delay=0.0001", "client", SEND, SEND),
    ("down swallow", "broker", MESSAGE, b""),
    ("duplicate SEND nth=100", "client", ALL, ALL),  # does not apply, though frames are taken apart
]


@pytest.mark.parametrize(("fault", "side", "data", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_faults(fault, side, data, wanted):
    with raw(fault) as (proxy, connect):
        near, far = connect()
        sender, reader = (near, far) if side == "client" else (far, near)
        for at in range(0, len(data), 37):
            sender.send(data[at : at + 37])
        sender.end()
        assert reader.rest() == wanted
        reader.sock.close()
        sender.sock.close()
        proxy.closed()
    if fault.split()[0] in ACTIONS:
        told = [line for line in proxy.lines() if fault in line.get("faults", [])]
        assert len(told) == proxy.tally.faults[fault]
        assert bool(told) is (wanted != ALL)


def test_corrupt_flips_one_bit_and_repeat_headers_adds_entries():
    with raw("corrupt MESSAGE", seed=7) as (_, connect):
        near, far = connect()
        far.send(MESSAGE + RECEIPT)
        data = near.read(len(MESSAGE) + len(RECEIPT))
    ((a, b),) = [(a, b) for a, b in zip(data, MESSAGE + RECEIPT) if a != b]
    assert (a ^ b).bit_count() == 1
    with raw("repeat_headers MESSAGE") as (_, connect):
        near, far = connect()
        far.send(MESSAGE)
        far.end()
        (frame,) = parse(near.rest())
    assert (frame.headers.getall("destination"), frame.body) == (["/queue/a", "the second entry"], b"hi")


@pytest.mark.parametrize("fault", ["error SEND message='no room'", "refuse 'message=no room'"])
def test_errors(fault):
    data = b"CONNECT\naccept-version:1.2\nhost:a\nreceipt:r\n\n\0" if "refuse" in fault else SEND
    with raw(fault) as (_, connect):
        near, far = connect()
        near.send(data)
        (frame,) = parse(near.rest())
        assert far.rest() == b""
    assert (frame.command, frame.get("message")) == ("ERROR", "no room")
    assert frame.get("receipt-id") == ("r" if "refuse" in fault else None)


def test_an_unreachable_broker_resets_its_clients():
    with (
        raw("unreachable") as (proxy, _),
        pytest.raises(ConnectionResetError),  # which may come before the connect has returned
        socket.create_connection(("127.0.0.1", proxy.port), timeout=patience(10)) as near,
    ):
        near.recv(1)


def test_a_cut_by_bytes_may_be_orderly_and_what_is_held_is_not_read():
    with raw("down cut_after=10", "fin") as (_, connect):
        near, far = connect()
        far.send(MESSAGE)
        assert near.rest() == MESSAGE[:10]
    with raw("up hold") as (proxy, connect):
        near, far = connect()
        near.send(SEND)
        proxy.frame("SEND")
        far.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            far.sock.recv(1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the first word"),
        ("melt SEND", "the first word"),
        ("lose", "needs a command"),
        ("lose NOTHING", "needs a command"),
        ("error MESSAGE", "frames of clients"),
        ("crlf SEND", "frames of the broker"),
        ("lose SEND nth=0", "nth"),
        ("lose SEND times=none", "times"),
        ("lose SEND after", "write NAME=VALUE"),
        ("cut MESSAGE octets=x", "octets"),
        ("cut MESSAGE octets=1 after", "exclude"),
        ("delay MESSAGE", "needs seconds"),
        ("delay MESSAGE nan", "seconds"),
        ("delay MESSAGE 1e9", "seconds"),
        ("up", "name one of"),
        ("up melt=1", "is not one of"),
        ("up hold=1", "takes no value"),
        ("up piece=0", "piece"),
        ("down cut_after=9..3", "cut_after"),
        ("lose 'SEND", "quotation"),
        ("silent now", "the first word"),
    ],
)
def test_what_is_not_a_fault(text, problem):
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        faults_of((text,), 0)
    assert repr(text) in str(caught.value)
