"""The walks of ARCHITECTURE.md: the functions that it names run for each frame."""

import asyncio
import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import stompcodec
from stompcodec.broker import COMPILED, Config, serve

PAGE = Path(__file__).resolve().parents[1] / "ARCHITECTURE.md"
_PACKAGE = str(Path(stompcodec.__file__).parent)
_ROW = re.compile(r"^\| `([\w.]+)` \| `([\w./]+)` \|", re.MULTILINE)
_FRAMES = 20
pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="this is not the whole tree")


def _walks() -> list[list[tuple[str, str]]]:
    section = PAGE.read_text("utf-8").partition("## The way of a SEND")[2].partition("\n## ")[0]
    return [[(file, name) for name, file in _ROW.findall(part)] for part in section.split("\n**")[1:]]


async def _calls(folder: Path, headers: str) -> Counter[tuple[str, str]]:
    """Return how often each function ran while a broker took frames, one after the other."""
    calls = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE):
            calls[code.co_filename[len(_PACKAGE) + 1 :].replace("\\", "/"), code.co_qualname] += 1

    async with serve(Config(port=0, data=str(folder))) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        await reader.readuntil(b"\0")
        broker.broker.quota.clock = lambda: 0.0  # so that no turn is over: the rest of one is left to Python
        for number in range(_FRAMES + 2):  # the first ones look the destination up
            if number == 2:
                sys.setprofile(profile)
            writer.write(b"SEND\ndestination:/queue/a\nreceipt:%d\n%s\nbody\0" % (number, headers.encode()))
            await reader.readuntil(b"receipt-id:%d\n\n\0" % number)
        sys.setprofile(None)
        writer.close()
    return calls


PLAIN, SPECIAL = "persistent:false\n", "persistent:true\npriority:5\n"


@pytest.mark.uncompiled
def test_each_send_runs_what_its_walk_names(tmp_path: Path) -> None:
    first, second = _walks()
    calls = asyncio.run(_calls(tmp_path, PLAIN))
    assert [place for place in first if calls[place] < _FRAMES] == []
    assert len({file for file, _ in first}) <= 9
    calls = asyncio.run(_calls(tmp_path, SPECIAL))
    plain = [("broker/sessions/plain.py", "send"), ("broker/queues/queue.py", "Queue.put_plain")]
    assert [place for place in first + second if place not in plain and calls[place] < _FRAMES] == []
    assert [place for place in plain if calls[place]] == []


@pytest.mark.skipif(not COMPILED, reason="the modules of the broker are not compiled")
def test_compiled_no_frame_is_made_of_a_plain_send(tmp_path: Path) -> None:
    calls = asyncio.run(_calls(tmp_path, PLAIN))
    assert calls["broker/sessions/session.py", "Session.take_output"] >= _FRAMES
    assert calls["broker/sessions/commands.py", "_send"] == 0
