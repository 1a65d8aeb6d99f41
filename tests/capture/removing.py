"""Ways in which a capture goes away below its writer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["DEEDS"]


def _unlink(suffix: str) -> Callable[[Path], None]:
    def deed(folder: Path) -> None:
        sorted(folder.glob(f"*{suffix}"))[-1].unlink()

    return deed


def _rename(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def _replace_folder(folder: Path) -> None:
    """Another folder of the same name: a volume that was swapped, or a restored backup."""
    copy = Path(shutil.copytree(folder, folder.with_name("copy")))
    shutil.rmtree(folder)
    copy.rename(folder)


def _replace_file(folder: Path) -> None:
    """Another file of the same name and content, as editors and `sed -i` leave it."""
    segment = sorted(folder.glob("*.stomp"))[-1]
    copy = segment.with_name("copy")
    shutil.copy(segment, copy)
    copy.replace(segment)


#: What happens to the folder of a capture, by name. The last segment is the one that is being written.
DEEDS: dict[str, Callable[[Path], None]] = {
    "folder removed": shutil.rmtree,
    "folder renamed": _rename,
    "folder replaced": _replace_folder,
    "segment removed": _unlink(".stomp"),
    "index removed": _unlink(".idx"),
    "segment replaced": _replace_file,
    "lock removed": lambda folder: (folder / "lock").unlink(),
}
