"""Rights of files: 0600 in folders of 0700, whatever the umask, unless an option opens them."""

import os
import stat
import sys

import pytest
from broker.harness import Bench
from broker.moves import pattern, settle
from broker.storage.storing import put_file, start, stop

from stompcodec.broker.config import parse_config
from stompcodec.broker.core import access_to
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.disk import Access, access_of, create, guard, make_folder
from stompcodec.errors import ConfigError, StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes mean nothing there")
#: A group of ours that is not the usual one; None where there is none.
GROUP = 4242 if hasattr(os, "getuid") and os.getuid() == 0 else None


@pytest.fixture(autouse=True, params=["000", "777"])
def umask(request):
    old = os.umask(int(request.param, 8))
    yield
    os.umask(old)


@pytest.fixture
def data(tmp_path):
    return tmp_path / "top" / "deep" / "data"


def mode_at(path):
    return stat.S_IMODE(path.lstat().st_mode)


def modes(folder):
    return {str(path.relative_to(folder)): mode_at(path) for path in sorted(folder.rglob("*"))}


def wanted(access, folder):
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): access.folder_mode if path.is_dir() else access.mode for path in paths}


def fill(bench):
    peer = bench.peer()
    peer.put("/queue/a", b"small", persistent="true", receipt="r")
    peer.put("/queue/a", pattern(200_000), persistent="true", receipt="r")
    peer.put("/queue/a", pattern(5000))
    peer.raw(peer.octets_of("SEND", pattern(5000), destination="/queue/a")[:3000])
    settle(bench)
    return peer


@pytest.mark.parametrize("mode", [None, 0o640, 0o660])
def test_the_data_folder(mode, data, tmp_path):
    top, access = tmp_path / "top", access_of(mode)
    bench = Bench(SqliteStore(data, access=access), large=1000, data=str(data), mode=mode)
    peer, found = fill(bench), modes(top)
    files = {"messages.sqlite", "messages.sqlite-wal", "messages.sqlite-shm", "lock", "stompcodec-folder"}
    assert {name.rpartition("/")[2] for name in found} >= {"data", "bodies", "incoming", *files}
    assert len(found) == 2 + 7 + 1 + 3
    assert found == wanted(access, top)
    assert mode_at(top) == access.folder_mode
    peer.lose()
    stop(bench)


def test_files_in_a_folder_of_somebody_else(data):
    os.makedirs(data, mode=0o755)
    for path in (data, *data.parents[:2]):
        path.chmod(0o755)
    bench = start(data)
    peer = fill(bench)
    assert modes(data) == wanted(Access(), data)
    assert mode_at(data) == 0o755
    peer.lose()
    stop(bench)


def test_files_of_an_earlier_run_are_given_their_rights(tmp_path):
    """Closed, and with a WAL as a crash leaves it; to fewer and to more readers."""
    bench = start(tmp_path)
    peer = fill(bench)
    bench.store._writer._lock.release()  # as if it was killed
    peer.lose()
    bench.broker.spool.close()
    for path in tmp_path.rglob("*"):
        if path.is_file() and "incoming" not in str(path):
            path.chmod(0o644)
    again = start(tmp_path)
    assert {mode for name, mode in modes(tmp_path).items() if "sqlite" in name or "/" in name} == {0o600}
    stop(again)
    opened = SqliteStore(tmp_path, access=Access(0o640))
    assert [mode for name, mode in modes(tmp_path).items() if "sqlite" in name or "bodies/" in name] == [0o640] * 4
    opened.close()


@pytest.mark.parametrize("named", [True, False])
def test_the_folder_of_large_messages(named, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bench = Bench(large=1000, **({"large_folder": str(tmp_path / "top" / "large")} if named else {}))
    peer = bench.peer()
    peer.put("/queue/a", pattern(5000))
    assert modes(tmp_path) == wanted(Access(), tmp_path)
    assert len(modes(tmp_path)) == (5 if named else 3)
    peer.lose()
    stop(bench)
    assert named or modes(tmp_path) == {}


@pytest.mark.skipif(GROUP is None, reason="only root can be sure of another group")
def test_a_group(data):
    access = access_to(parse_config(f'store.group = "{GROUP}"'))
    assert access.mode == 0o640
    bench = Bench(SqliteStore(data, access=access), large=1000, data=str(data), group=str(GROUP))
    peer = fill(bench)
    assert {path.lstat().st_gid for path in [data, *data.rglob("*")]} == {GROUP}
    assert modes(data) == wanted(access, data)
    peer.lose()
    stop(bench)


def refuse(*_args, **_options):
    raise PermissionError(1, "Operation not permitted")


def test_a_group_that_is_not_ours_is_told(data, monkeypatch):
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(StoreError, match=r"cannot be given its mode and group: .* \(let its owner be a member"):
        SqliteStore(data, access=Access(0o640, os.getegid() + 1))
    with pytest.raises(ConfigError, match="no group of this system is called 'no such group'"):
        access_to(parse_config('[store]\ngroup = "no such group"'))


def test_a_file_system_without_rights_is_good_enough(data, monkeypatch):
    os.umask(0o022)
    monkeypatch.setattr(os, "chmod", refuse)
    stop(start(data))


def test_what_is_there_keeps_its_rights(tmp_path):
    """`create` opens it, `make_folder` leaves it; a link is only followed on demand."""
    one, link = tmp_path / "a", tmp_path / "b"
    put_file(one)
    one.chmod(0o644)
    os.close(create(one, os.O_RDWR, Access(0o660)))
    assert not make_folder(tmp_path, Access(0o660))
    assert modes(tmp_path) == {"a": 0o644}
    link.symlink_to("a")
    with pytest.raises(OSError, match="symbolic"):
        create(link, os.O_RDWR)
    os.close(create(link, os.O_RDWR, follow=True))
    guard(link, Access())
    guard(tmp_path / "missing", Access())
    assert mode_at(one) == 0o644
    guard(one, Access())
    assert mode_at(one) == 0o600
