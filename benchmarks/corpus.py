"""The workloads of make_corpus.py, made once for each scale and kept in build/corpus."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # pytest imports this file without its folder

import make_corpus

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "corpus"
NAMES = tuple(make.__name__ for make in make_corpus.WORKLOADS)


@dataclass(frozen=True)
class Workload:
    """One stream of frames, and what a decoder must find in it.

    Attributes:
        version: of STOMP, whose rules it follows.
        data: the octets on the wire.
        frames: how many frames they are.
        digest: of the decoded frames, see `make_corpus.frame_digest`.
    """

    name: str
    about: str
    version: str
    data: bytes
    frames: int
    digest: str

    def pieces(self, size: int | None = 65536) -> list[bytes]:
        """The octets as a reader gets them, `size` at a time."""
        return list(make_corpus.fragments(self.data, size))


def load(scale: float = 1.0, only: tuple[str, ...] = NAMES) -> dict[str, Workload]:
    """Workloads by name. Scale 1.0 is 1 to 17 MB each."""
    folder = CACHE / f"{scale:g}"
    if not _is_whole(folder):
        make_corpus.write(folder, scale=scale)
    manifest = json.loads((folder / "manifest.json").read_text())
    entries = {entry["name"]: entry for entry in manifest["workloads"]}
    return {name: _workload(folder, entries[name]) for name in only}


def _workload(folder: Path, entry: dict) -> Workload:
    data = (folder / entry["file"]).read_bytes()
    return Workload(entry["name"], entry["about"], entry["version"], data, entry["frames"], entry["digest"])


def _is_whole(folder: Path) -> bool:
    """The cache is made again when it is cut short, or when the generator is newer."""
    path = folder / "manifest.json"
    if not path.is_file() or path.stat().st_mtime < Path(make_corpus.__file__).stat().st_mtime:
        return False
    sizes = {entry["file"]: entry["bytes"] for entry in json.loads(path.read_text())["workloads"]}
    return all((folder / file).is_file() and (folder / file).stat().st_size == size for file, size in sizes.items())
