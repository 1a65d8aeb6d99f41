"""What the tests of captures share, and ways in which a capture goes away below its writer."""

import shutil
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from stompcodec import Frame
from stompcodec.capture import CHAIN, Capture, octets_of

#: Bodies with NULs have a content-length, those without may do without.
frames = st.builds(
    lambda number, body: Frame("MESSAGE", {"destination": "/queue/a", "message-id": f"m:{number}\n"}, body),
    st.integers(0, 10**6),
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"", b"\0", b"MESSAGE\n\n\0", b"stompix1" + bytes(16), b"stompend" + bytes(16)]),
        st.integers(0, 3000).map(lambda size: b"x" * size),
    ),
)
batches = st.lists(frames, min_size=1, max_size=4)
TIME = 1_700_000_000_000_000
ONE, TWO = (octets_of(Frame("MESSAGE", {"destination": "/queue/a"}, body)) for body in (b"one", b"two"))


def octets(batch: list[Frame]) -> bytes:
    return b"".join(map(octets_of, batch))


def read(path: Path, chain: str = CHAIN, problems: list[str] | None = None) -> list[Frame]:
    """The frames of a chain. Without `problems` nothing may be wrong."""
    capture = Capture(path, on_problem=None if problems is None else problems.append)
    return [without_length(frame) for _, _, frame in capture.frames(chain)]


def without_length(frame: Frame) -> Frame:
    pairs = [pair for pair in frame.headers.pairs() if pair[0] != "content-length"]
    return Frame(frame.command, pairs, frame.body)


def segment(path: Path, number: int = 0) -> Path:
    return Capture(path).segments()[number].path


def _last(folder: Path, suffix: str) -> Path:
    return sorted(folder.glob(f"*{suffix}"))[-1]


def _replace(path: Path) -> None:
    """Another of the same name and content: a restored backup, or as editors and `sed -i` leave a file."""
    copy = path.with_name("copy")
    if path.is_dir():
        shutil.copytree(path, copy)
        shutil.rmtree(path)
    else:
        shutil.copy(path, copy)
    copy.replace(path)


#: What happens to the folder of a capture, by name.
DEEDS: dict[str, Callable[[Path], object]] = {
    **{"folder removed": shutil.rmtree, "folder renamed": lambda folder: folder.rename(folder.with_name("moved"))},
    **{"folder replaced": _replace, "segment removed": lambda folder: _last(folder, ".stomp").unlink()},
    "index removed": lambda folder: _last(folder, ".idx").unlink(),
    "segment replaced": lambda folder: _replace(_last(folder, ".stomp")),
    "lock removed": lambda folder: (folder / "lock").unlink(),
}
