"""The identity of a spool: an id in its folder and in every offset, so that a checkpoint never reads another spool.

Lengths alone do not tell: a spool that was deleted and filled again soon is as long as the one before.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stompcodec.errors import StoreError

#: An offset as Spark keeps it: chain name -> position, and under `_KEY` the identity of the spool.
Offset = dict[str, "int | str"]

#: Key of the identity in an offset. Names of chains do not begin with "#".
_KEY = "#spool"
_FILE = "spool-id"


def identity_of(folder: str) -> str | None:
    """Return the identity of a spool; None if it has none or does not exist. Raises StoreError if it cannot be read."""
    path = Path(folder, _FILE)
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror} (grant access to the spool)") from error
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise StoreError(f"{path} is damaged: it must hold 32 hex digits (put it back, or take a new spoolDir)")
    return text


def identify(folder: str, *, anew: bool = False) -> str:
    """Return the identity of a spool, after making one if it has none. The caller holds the lock of the spool.

    With `anew` it gets a new one, so that older offsets no longer belong to this spool.
    """
    found = identity_of(folder)
    if found is not None and not anew:
        return found
    made, path = uuid.uuid4().hex, Path(folder, _FILE)
    beside = path.with_name(f".{_FILE}")
    try:
        with suppress(FileNotFoundError):
            beside.unlink()
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(file, "w", encoding="ascii") as stream:
            stream.write(f"{made}\n")
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror} (free space, or grant access)") from error
    return made


def stamped(positions: Mapping[str, int], identity: str) -> Offset:
    """Return an offset: the identity of a spool, and positions in its chains.

    >>> stamped({"frames": 7}, "ab")
    {'#spool': 'ab', 'frames': 7}
    """
    offset: Offset = {_KEY: identity}
    offset.update(sorted(positions.items()))
    return offset


def positions_of(offset: Mapping[str, int | str]) -> tuple[str | None, dict[str, int]]:
    """Return the identity in an offset, None if an earlier version wrote it, and the position in each chain.

    >>> positions_of({"#spool": "ab", "frames": 7}), positions_of({"frames": 7})
    (('ab', {'frames': 7}), (None, {'frames': 7}))
    """
    identity = offset.get(_KEY)
    positions = {chain: int(position) for chain, position in offset.items() if not chain.startswith("#")}
    return (None if identity is None else str(identity)), positions
