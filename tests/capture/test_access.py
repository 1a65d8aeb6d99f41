"""Captures are for their owner alone, unless an option opens them."""

import os
import stat
import subprocess
import sys

import pytest
from patience import patience

from stompcodec.capture import Capture, CaptureWriter
from stompcodec.disk import Access, access_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes mean nothing there")
FRAME = b"MESSAGE\ndestination:/queue/a\n\nhello\0"
each_access = pytest.mark.parametrize("access", [Access(), Access(0o640)])


@pytest.fixture(autouse=True, params=[0, 0o777])
def umask(request):
    old = os.umask(request.param)
    yield
    os.umask(old)


def modes(folder):
    return [(stat.S_IMODE(path.lstat().st_mode), path.is_dir()) for path in sorted(folder.rglob("*"))]


def assert_all(folder, access, count):
    found = modes(folder)
    assert found == [(access.folder_mode if is_folder else access.mode, is_folder) for _, is_folder in found]
    assert len(found) == count


@each_access
def test_a_folder(access, tmp_path):
    """Its lock, segments and indexes, while they are written and when they are sealed, and all folders above."""
    path = tmp_path / "deep" / "a.stompcap"
    with CaptureWriter(path, segment_octets=1, access=access) as capture:
        for number in range(3):
            capture.append(FRAME, number + 1)
            capture.sync()
        capture.append(FRAME, 4, "frames.1")
        assert_all(tmp_path, access, 2 + 1 + 2 * 4)
    assert_all(tmp_path, access, 2 + 1 + 2 * 4)
    with CaptureWriter(path, access=access) as capture:
        capture.append(FRAME, 5)
    assert_all(tmp_path, access, 2 + 1 + 2 * 5)


@each_access
def test_a_single_file(access, tmp_path, path):
    for number in range(2):
        with CaptureWriter(path, single=True, access=access) as capture:
            capture.append(FRAME, number + 1)
            capture.sync()
            assert_all(tmp_path, access, 2)
        assert_all(tmp_path, access, 1)
    assert len(list(Capture(path).frames())) == 2


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("harm", ["index gone", "index torn", "frame torn"])
def test_what_is_put_right_keeps_its_rights(single, harm, tmp_path, path):
    """Somebody has opened a capture by hand: an index that is made anew can be read by the same people."""
    with CaptureWriter(path, single=single) as capture:
        capture.append(FRAME, 1)
        capture.sync()
        capture.close(seal=False)
    for each in tmp_path.rglob("*"):
        each.chmod(0o755 if each.is_dir() else 0o644)
    (index,) = tmp_path.rglob("*.idx")
    (segment,) = [each for each in (path, *path.rglob("*.stomp")) if each.is_file()]
    if harm == "index gone":
        index.unlink()
    elif harm == "index torn":
        os.truncate(index, index.stat().st_size - 3)
    else:
        segment.write_bytes(segment.read_bytes() + b"MESS")
    with CaptureWriter(path, single=single) as capture:
        capture.append(FRAME, 2)
        capture.sync()
        assert {mode for mode, is_folder in modes(tmp_path) if not is_folder} == {0o644}
    assert len(list(Capture(path).frames())) == 2


def test_groups_that_python_does_not_have(monkeypatch):
    """Python in a browser has no module for them: captures work, a group needs its number."""
    monkeypatch.setitem(sys.modules, "grp", None)
    assert access_of(None, "7") == Access(0o640, 7)
    with pytest.raises(ValueError, match="this system has no names of groups"):
        access_of(None, "users")
    program = "import sys; sys.modules['grp'] = None; import stompcodec.capture"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=patience(60))
