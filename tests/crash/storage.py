"""Rounds of a store that is killed while it gives space back, or is salvaged: nothing gets lost."""

import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from crash.ledger import Ledger
from crash.process import environment

from stompcodec.broker.storage.salvage import check
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Stored

#: What is done to a folder when it is killed.
WAYS = {
    "vacuum": """
store = SqliteStore(sys.argv[1])
while store._writer.tidy():
    pass
store.close()
""",
    "salvage": """from stompcodec.broker.storage.salvage import salvage
salvage(sys.argv[1], sys.argv[1] + '-new')""",
}
_COMMON = "import sys\nfrom stompcodec.broker.storage.sqlite import SqliteStore\nprint(1, flush=True)\n"
_LEFT, _ALL = 60, 260


def _message(seq: int) -> Stored:
    size = 70_000 if seq % 20 == 0 else 20_000
    tail = b"a:b\n\n" + (b"%d " % seq * size)[:size] + b"\0"
    return Stored("", seq, f"m-{seq}", "/queue/a", tail, priority=9 if seq % 3 else 4)


def _origin(folder: Path) -> dict[int, bytes]:
    store = SqliteStore(folder)
    for seq in range(_ALL):
        store.append("q", _message(seq))
    store.commit()
    for seq in range(_LEFT, _ALL):
        store.remove("q", _message(seq))
    store.close()
    return {seq: _message(seq).tail for seq in range(_LEFT)}


def _content(folder: Path) -> dict[int, bytes]:
    store = SqliteStore(folder)
    try:
        found = {one.seq: one.tail for one in store.load()}
        pages: list[Any] = []
        for priority in (4, 9):
            store.read("q", -1, _ALL, _ALL, 10**9, pages.append, None, priority)
        paged = {one.seq: one.tail for page in pages for one in page.messages}
        return found if found == paged and not store.damage.findings else {}
    finally:
        store.close()


def storage_rounds(folder, rounds, *, seed=0, progress=lambda _: None):
    """Kill a process in the middle of one of `WAYS`, so many times, and look at the folder afterwards."""
    chance, ledger = random.Random(seed), Ledger()
    origins = {way: (folder / way, _origin(folder / way)) for way in WAYS}
    for number in range(rounds):
        way = list(WAYS)[number % len(WAYS)]
        source, sent = origins[way]
        image = folder / f"image-{number}"
        shutil.copytree(source, image)
        command = [sys.executable, "-c", _COMMON + WAYS[way], str(image)]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            timer = threading.Timer(chance.uniform(0, 0.03) ** 2 * 100, process.kill)
            timer.start()
            process.wait()
            timer.join()
        new = Path(f"{image}-new")
        if way == "salvage" and new.exists() and _content(new) != sent:
            ledger.problem("salvaged by half", way)
        if not check(image).whole:
            ledger.problem("damaged by a kill", way)
        if _content(image) != sent:
            ledger.problem("lost", way)
        for path in (image, new, folder / f".{new.name}.salvage"):
            shutil.rmtree(path, ignore_errors=True)
        progress(number + 1)
    return ledger
