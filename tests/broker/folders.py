"""Data folders for tests, and brokers on them."""

import os
from pathlib import Path
from typing import Any

from broker.harness import Bench
from broker.large import pattern, settle

from stompcodec.broker.storage.sqlite import SqliteStore

OURS = "0123456789abcdef-17"


def start(data: Path, **config: Any) -> Bench:
    store = SqliteStore(data)
    try:
        return Bench(store, large=1000, data=str(data), **config)
    except BaseException:
        store.close()
        raise


def stop(bench: Bench) -> None:
    bench.store.close()
    bench.broker.spool.close()


def tree(folder: Path) -> dict[str, bytes | str]:
    """All there is, links as what they say."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"to {os.readlink(path)}"
        else:
            found[name] = path.read_bytes() if path.is_file() else "folder"
    return found


def use(data: Path) -> None:
    bench = start(data)
    peer = bench.peer()
    for size in (10, 5000, 70_000, 200_000):
        peer.put("/queue/u", pattern(size), persistent="true", receipt="r")
    settle(bench)
    peer.subscribe("/queue/u", ack="client-individual")
    for message in [frame for frame in peer.take() if frame.command == "MESSAGE"]:
        peer.ack(message)
    settle(bench)
    stop(bench)


def put_file(path: Path) -> None:
    path.write_bytes(b"mine")
