"""Rights of files: 0600 in folders of 0700, whatever the umask, unless an option opens them."""

import os
import stat
import sys
from pathlib import Path

import pytest
from broker.folders import put_file, start, stop
from broker.harness import Bench
from broker.large import pattern, settle

from stompcodec.broker.config import parse_config
from stompcodec.broker.core import access_to
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.disk import Access, access_of, create, guard, make_folder, mode_of
from stompcodec.errors import ConfigError, StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes mean nothing there")

#: A group of ours that is not the usual one; None where there is none.
GROUP = 4242 if hasattr(os, "getuid") and os.getuid() == 0 else None


@pytest.fixture(autouse=True, params=["000", "777"])
def umask(request):
    old = os.umask(int(request.param, 8))
    yield
    os.umask(old)


def modes(folder):
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in sorted(folder.rglob("*"))}


def fill(bench):
    """Files of all kinds: rows, bodies beside rows and instead of them, half a large message."""
    peer = bench.peer()
    peer.put("/queue/a", b"small", persistent="true", receipt="r")
    peer.put("/queue/a", pattern(200_000), persistent="true", receipt="r")
    peer.put("/queue/a", pattern(5000))
    peer.raw(peer.octets_of("SEND", pattern(5000), destination="/queue/a")[:3000])
    settle(bench)
    return peer


def all_of(access, folder):
    """What the rights should be."""
    kinds = {path: path.is_dir() for path in sorted(folder.rglob("*"))}
    return {
        str(path.relative_to(folder)): access.folder_mode if is_folder else access.mode
        for path, is_folder in kinds.items()
    }


@pytest.mark.parametrize("mode", [None, 0o640, 0o660])
def test_the_data_folder(mode, tmp_path):
    top = tmp_path / "top"
    data = top / "deep" / "data"
    access = access_of(mode)
    store = SqliteStore(data, access=access)
    bench = Bench(store, large=1000, data=str(data), mode=mode)
    peer = fill(bench)
    found = modes(top)
    assert {name.rpartition("/")[2] for name in found} >= {
        *("data", "messages.sqlite", "messages.sqlite-wal", "messages.sqlite-shm"),
        *("lock", "stompcodec-folder", "bodies", "incoming"),
    }
    assert len(found) == 2 + 7 + 1 + 3
    assert found == all_of(access, top)
    assert stat.S_IMODE(top.stat().st_mode) == access.folder_mode
    peer.lose()
    stop(bench)


def test_files_in_a_folder_of_somebody_else(tmp_path):
    """It stays as it is; what is in it is for the broker alone."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    bench = start(data)
    peer = fill(bench)
    assert modes(data) == all_of(Access(), data)
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
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
    files = {name: mode for name, mode in modes(tmp_path).items() if "sqlite" in name or "/" in name}
    assert set(files.values()) == {0o600}
    stop(again)
    opened = SqliteStore(tmp_path, access=Access(0o640))
    files = {name: mode for name, mode in modes(tmp_path).items() if "sqlite" in name or "bodies/" in name}
    assert set(files.values()) == {0o640}
    assert len(files) == 4
    opened.close()


@pytest.mark.parametrize("named", [True, False])
def test_the_folder_of_large_messages(named, tmp_path, monkeypatch):
    """Also the temporary one of a broker without a data folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bench = Bench(large=1000, **({"large_folder": str(tmp_path / "top" / "large")} if named else {}))
    peer = bench.peer()
    peer.put("/queue/a", pattern(5000))
    assert modes(tmp_path) == all_of(Access(), tmp_path)
    assert len(modes(tmp_path)) == (5 if named else 3)
    peer.lose()
    stop(bench)
    assert named or modes(tmp_path) == {}


@pytest.mark.skipif(GROUP is None, reason="only root can be sure of another group")
def test_a_group(tmp_path):
    data = tmp_path / "data"
    access = access_to(parse_config(f'store.group = "{GROUP}"'))
    assert access.mode == 0o640
    store = SqliteStore(data, access=access)
    bench = Bench(store, large=1000, data=str(data), group=str(GROUP))
    peer = fill(bench)
    assert {path.lstat().st_gid for path in [data, *data.rglob("*")]} == {GROUP}
    assert modes(data) == all_of(access, data)
    peer.lose()
    stop(bench)


def test_a_group_that_is_not_ours_is_told(tmp_path, monkeypatch):
    def refuse(*_args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    access = Access(0o640, os.getegid() + 1)
    with pytest.raises(StoreError, match=r"cannot be given its mode and group: .* \(let its owner be a member"):
        SqliteStore(tmp_path / "data", access=access)


def test_a_file_system_without_rights_is_good_enough(tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(1, "Operation not permitted")

    os.umask(0o022)
    monkeypatch.setattr(os, "chmod", refuse)
    stop(start(tmp_path / "data"))


@pytest.mark.parametrize("value", ["0600", "600", "0o600", 0o600, "0640", "0660", "0644"])
def test_modes(value):
    assert mode_of(value) & 0o600 == 0o600


@pytest.mark.parametrize(
    "value", ["", "0", "0400", "0700", "0666", "0602", "4600", 600, 640, "rw", None, True, -1, "0640\n"]
)
def test_what_is_no_mode(value):
    with pytest.raises(ValueError, match="octal mode of a file"):
        mode_of(value)


def test_keys_of_the_configuration():
    with pytest.raises(ConfigError, match="no group of this system is called 'no such group'"):
        access_to(parse_config('[store]\ngroup = "no such group"'))


def test_what_is_there_keeps_its_rights(tmp_path):
    """`create` opens it, `make_folder` leaves it; a link is only followed on demand."""
    put_file(tmp_path / "a")
    (tmp_path / "a").chmod(0o644)
    os.close(create(tmp_path / "a", os.O_RDWR, Access(0o660)))
    assert not make_folder(tmp_path, Access(0o660))
    assert modes(tmp_path) == {"a": 0o644}
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic"):
        create(tmp_path / "b", os.O_RDWR)
    os.close(create(tmp_path / "b", os.O_RDWR, follow=True))
    guard(tmp_path / "b", Access())
    guard(tmp_path / "missing", Access())
    assert modes(tmp_path)["a"] == 0o644
    guard(tmp_path / "a", Access())
    assert modes(tmp_path)["a"] == 0o600


def test_a_folder_in_a_place_that_is_gone_is_an_error(tmp_path, monkeypatch):
    """The parent is a folder still, and yet nothing can be made in it."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for path in ("a", "a/b/c"):
        with pytest.raises(FileNotFoundError):
            make_folder(Path(path))
