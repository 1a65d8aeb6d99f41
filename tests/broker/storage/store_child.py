"""A process that fills a store, and says so on standard output; to be killed. Run by test_sqlite_faults.py.

    store_child.py FOLDER SEED FIRST_SEQ {sync|later}

A line "write [...]" before each commit says what it holds: [seq, size] of what is put, [seq] of what is removed. A line
"done" after it says that the commit returned.
"""

import asyncio
import json
import random
import sys

from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import Stored

SIZES = [10, 1000, 1000, 5000, 70_000]


def message(seq, size=0):
    return Stored("", seq, f"m-{seq}", "/queue/a", b"a:b\n\n" + (b"%d " % seq * size)[:size] + b"\0")


def say(*words):
    print(*words, flush=True)


async def main(folder, seed, seq, how):
    loop, store, chance = asyncio.get_running_loop(), SqliteStore(folder), random.Random(seed)
    live = [found.seq for found in store.load()]
    say("open")
    while True:
        operations = []
        for _ in range(chance.choice([1, 2, 20, 100, 600])):
            if live and chance.random() < 0.5:
                gone = live.pop(0)
                store.remove("q", message(gone))
                operations.append([gone])
            else:
                size = chance.choice(SIZES) if chance.random() < 0.1 else 10
                store.append("q", message(seq, size))
                operations.append([seq, size])
                live.append(seq)
                seq += 1
        say("write", json.dumps(operations))
        if how == "sync":
            store.commit()
        else:
            answered = loop.create_future()
            store.commit_later(answered.set_result, loop.call_soon_threadsafe)
            assert await answered is None
        say("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
