"""What survives a lost connection, a restart and a kill of the broker: the table of promises.md, and first programs."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash.process import BrokerProcess
from docsite.blocks import ROOT
from patience import patience

import stompcodec.client as stomp
from stompcodec.testing import StompBroker

#: What a cell says: whether the message is there afterwards; None for what is no matter of this test.
CELLS = {"kept": True, "delivered again": True, "lost": False, "not delivered again": False}
OTHERS = ("may be", "raises", "the client subscribes again", "ends")


def _rows() -> list[tuple[str, list[str]]]:
    """Return the code of each row of the table, and its cells."""
    text = (ROOT / "docs" / "promises.md").read_text("utf-8")
    part = text.partition("## What survives what\n")[2].partition("\n## ")[0]
    lines = [line.strip("| \n").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`([^`]*)`", first)[0], cells) for first, *cells in lines]


ROWS = _rows()


def _do(client: Any, code: str, place: str) -> None:
    """Do what a row says, with a message to a place of its own, until its call has returned."""
    topic = "/topic/" in code
    if topic:
        client.subscribe(place, durable=place.rpartition("/")[2], ack="client-individual").unsubscribe()
    names: dict[str, Any] = {"client": client, "body": place, "stomp": stomp}
    if "client." not in code:
        client.send(place, place, receipt=True)
        names["subscription"] = client.subscribe(place, ack="client-individual")
        if code.startswith("message."):
            names["message"] = names["subscription"].get(patience(20))
    exec(re.sub(r'"/(queue|topic)/a"', repr(place), code), names)


def _is_there(client: Any, code: str, place: str) -> bool:
    """Return whether the message of a row is in its queue, or kept for its durable subscription."""
    durable = place.rpartition("/")[2] if "/topic/" in code else None
    subscription = client.subscribe(place, durable=durable, ack="client-individual")
    client.send(place, "end", persistent=True, receipt=True)
    found = subscription.get(patience(20))
    assert found is not None
    return bool(found.text() == place)


def _check(fault: int, cause: Callable[[], object], url: Callable[[], str]) -> None:
    """Do what the rows say that tell what becomes of a message, then let the fault happen, and look."""
    told = []
    for at, (code, cells) in enumerate(ROWS):
        assert all(cell in CELLS or cell.startswith(OTHERS) for cell in cells), cells
        if cells[fault] in CELLS:
            told.append((code, f"/{'topic' if '/topic/' in code else 'queue'}/r{at}", CELLS[cells[fault]]))
    assert len(told) >= 9
    with contextlib.closing(stomp.connect(url(), client_id="desk", reconnect=None)) as client:
        for code, place, _there in told:
            _do(client, code, place)
        cause()
    with stomp.connect(url(), client_id="desk") as client:
        found = {code: _is_there(client, code, place) for code, place, _there in told}
    assert found == {code: there for code, _place, there in told}


@pytest.mark.long
@pytest.mark.parametrize("fault", ["lost connection", "restart"])
def test_the_table_is_right(fault: str, tmp_path: Path) -> None:
    with StompBroker(data=str(tmp_path)) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        cause = (broker.cut, restart)[fault == "restart"]
        _check(int(fault == "restart"), cause, lambda: broker.url)


@pytest.mark.long
def test_the_table_is_right_for_kill_9(tmp_path: Path) -> None:
    """And the broker says at its start what survives."""
    with BrokerProcess(tmp_path) as broker:

        def kill() -> None:
            broker.kill()
            broker.start()

        _check(2, kill, lambda: f"stomp://127.0.0.1:{broker.port}")
        assert f"; messages to queues survive a restart, in {tmp_path / 'data'}\n" in broker.tail(1000)


# ---- first programs ----


class _Enough(BaseException):
    """Ends a program that would go on for ever."""


def _program(page: str, marks: str) -> str:
    """Return the first block of a page with these words, without the prompts of a session and with a restart."""
    text = (ROOT / page).read_text("utf-8")
    (block, *_) = [each for each in re.findall(r"^```py\w+\n(.*?)^```", text, re.M | re.S) if marks in each]
    lines = [line[4:] if line.startswith((">>> ", "... ")) else line for line in block.splitlines()]
    lines = [line for line in lines if not line.startswith("b'")]  # what a session prints
    (at, *_) = [number for number, line in enumerate(lines) if "for message in" in line]
    lines.insert(at, re.match(" *", lines[at])[0] + "restart(client)")
    program = "\n".join(lines).replace("serve(Config(port=0))", "contextlib.nullcontext(server)")
    return re.sub(r"failover:\([^)]*\)", "stomp://127.0.0.1:{}", program)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("persistent", ["all", "persistent"])
@pytest.mark.parametrize(
    ("page", "marks", "found"),
    [
        ("README.md", "import asyncio", [b"hello"]),
        ("README.md", "fetch_token", [b"1", b"2"]),
        ("docs/coming-from-stomp-py.md", "import stompcodec.client as stomp", ["/queue/orders hello"]),
        ("docs/coming-from-stompman.md", "async def ours", [b"hello"]),
    ],
)
def test_the_first_program_of_a_page_gets_its_message_after_a_restart(
    page: str, marks: str, found: list[Any], persistent: str, tmp_path: Path
) -> None:
    """The broker restarts between its sends and its loop: ours as it is, and one that stores only what says so."""
    if persistent == "persistent" and marks == "import asyncio":
        return  # it runs its own broker
    got: list[Any] = []

    def work(message: Any) -> None:
        got.append(message.body)
        if len(got) == 2:
            raise _Enough

    with StompBroker(data=str(tmp_path), durable=persistent) as broker:

        def restart(client: Any) -> None:
            epoch = client.epoch
            broker.stop()
            broker.start()
            give_up = time.monotonic() + patience(20)
            while client.epoch == epoch or client.state != "connected":
                assert time.monotonic() < give_up
                time.sleep(0.001)

        names = {"server": broker, "restart": restart, "work": work, "asyncio": asyncio, "contextlib": contextlib}
        names |= {"host": "127.0.0.1", "port": broker.port, "url": broker.url, "fetch_token": lambda: "x"}
        names |= {"stomp": stomp, "print": lambda *what: got.append(what[0] if len(what) == 1 else " ".join(what))}
        program = _program(page, marks).replace("127.0.0.1:{}", f"127.0.0.1:{broker.port}")
        program = program.replace("asyncio.run(main())", "print(asyncio.run(main()))")
        with contextlib.suppress(_Enough):
            exec(compile(program, page, "exec"), names)
    assert got == found
